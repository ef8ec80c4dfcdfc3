//! MATLAB 5 files of kinds that scipy does not write: big-endian, narrow storage of all types, unknown classes.

use galerkin_data::io::{File, Kind};

use crate::support::Mat5;

const DOUBLE: u32 = 6;

#[test]
fn big_endian_files_give_the_same_values() {
    // (2, 3), first axis fastest: 1 2 | 3 4 | 5 6.
    for big in [false, true] {
        let mat = Mat5::new(big);
        let values: Vec<u8> = (1..=6)
            .flat_map(|v| if big { f64::from(v).to_be_bytes() } else { f64::from(v).to_le_bytes() })
            .collect();
        let matrix = mat.matrix("x", DOUBLE, &[2, 3], &mat.element(9, &values));
        for file in [Mat5::new(big).push(&matrix), Mat5::new(big).push_compressed(&matrix)] {
            let array = File::from_bytes("x.mat", file.bytes).unwrap().read("x").unwrap();
            assert_eq!((array.shape, array.values), (vec![2, 3], vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0]));
        }
    }
}

#[test]
fn doubles_are_stored_in_any_narrower_type() {
    let mat = Mat5::new(false);
    let stored: [(u32, Vec<u8>); 9] = [
        (1, [-1i8, 2].map(|v| v as u8).to_vec()),
        (2, vec![200, 2]),
        (3, [-300i16, 2].map(i16::to_le_bytes).concat()),
        (4, [40000u16, 2].map(u16::to_le_bytes).concat()),
        (5, [-70000i32, 2].map(i32::to_le_bytes).concat()),
        (6, [3000000000u32, 2].map(u32::to_le_bytes).concat()),
        (7, [0.5f32, 2.0].map(f32::to_le_bytes).concat()),
        (12, [-(1i64 << 40), 2].map(i64::to_le_bytes).concat()),
        (13, [1u64 << 63, 2].map(u64::to_le_bytes).concat()),
    ];
    let first =
        [-1.0, 200.0, -300.0, 40000.0, -70000.0, 3e9, 0.5, -((1i64 << 40) as f32), (1u64 << 63) as f32];
    for ((kind, bytes), first) in stored.into_iter().zip(first) {
        let matrix = mat.matrix("x", DOUBLE, &[1, 2], &mat.element(kind, &bytes));
        let array =
            File::from_bytes("x.mat", Mat5::new(false).push(&matrix).bytes).unwrap().read("x").unwrap();
        assert_eq!(array.values, [first, 2.0], "type {kind}");
    }
}

#[test]
fn up_to_four_bytes_lie_inside_the_tag() {
    let mat = Mat5::new(false);
    // Type 2 (uint8), three bytes, in the tag itself.
    let small = [mat.word(3 << 16 | 2), [7, 8, 9, 0]].concat();
    let matrix = mat.matrix("x", DOUBLE, &[3, 1], &small);
    let array = File::from_bytes("x.mat", Mat5::new(false).push(&matrix).bytes).unwrap().read("x").unwrap();
    assert_eq!(array.values, [7.0, 8.0, 9.0]);
}

#[test]
fn what_cannot_be_read_hides_nothing() {
    let mat = Mat5::new(false);
    let number = mat.matrix("x", DOUBLE, &[1, 1], &mat.element(2, &[5]));
    let unknown = mat.matrix("later", 30, &[1, 1], &[]);
    let object = {
        let flags = [mat.word(17), mat.word(0)].concat();
        mat.element(14, &[mat.element(6, &flags), mat.element(1, b"object")].concat())
    };
    let nameless = mat.matrix("", 9, &[1, 1], &mat.element(2, &[5]));
    let bytes = Mat5::new(false).push(&unknown).push(&object).push(&nameless).push(&number).bytes;
    let file = File::from_bytes("x.mat", bytes).unwrap();
    let names: Vec<_> = file.variables().iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["later", "object", "x"]);
    assert_eq!(file.variables()[0].kind, Kind::Other("an array of the unknown class 30".into()));
    assert_eq!(file.read("x").unwrap().values, [5.0]);
    let error = file.read("object").unwrap_err().to_string();
    assert_eq!(error, "x.mat: variable `object`: expected an array of real numbers, found an object");
}
