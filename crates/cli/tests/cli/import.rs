use crate::{Desk, fixture};

#[test]
fn published_files_are_known_by_their_variables() {
    let desk = Desk::new();
    for (k, file) in
        ["burgers_v5.mat", "burgers_v5_compressed.mat", "burgers_v73.mat", "burgers_v73_chunked.mat"]
            .into_iter()
            .enumerate()
    {
        let out = desk.works(&format!("import {} --out b{k}", fixture(&format!("mat/{file}"))));
        let expected = format!(
            "wrote b{k}: 4 samples on 16 points\n  inputs   a: 16 points, x periodic; x from 0 to 1\n  \
             targets  u: 16 points, x periodic; x from 0 to 1\n"
        );
        assert_eq!(out, expected);
        assert!(desk.dataset(&format!("b{k}"))[..2] == desk.dataset("b0")[..2], "{file}");
    }
    let out = desk.works(&format!("import {} --out d --subsample 3", fixture("mat/darcy_v5.mat")));
    assert!(
        out.starts_with("wrote d: 3 samples on 3 × 3 points\n  inputs   coeff: 3 × 3 points, y and x closed"),
        "{out}"
    );
}

#[test]
fn variables_and_axes_are_named() {
    let desk = Desk::new();
    let [a, u] = ["mat/burgers.a.npy", "mat/burgers.u.npy"].map(fixture);
    let error = desk.fails(&format!("import {a} {u} --out d"), 2);
    assert!(error.contains("--inputs NAME; the files have burgers.a [4, 16], burgers.u [4, 16]"), "{error}");
    let names = "--inputs burgers.a --targets burgers.u";
    let out = desk.works(&format!("import {a} {u} {names} --periodic x --out d"));
    assert!(out.contains("16 points, x periodic"), "{out}");
    desk.works(&format!("import {} --out e", fixture("mat/burgers_v5.mat")));
    assert!(desk.dataset("d")[..2] == desk.dataset("e")[..2]);
    // Not said to be periodic: the summary says what it is taken for.
    let out = desk.works(&format!("import {a} {u} {names} --length x=2 --origin x=-1 --out f"));
    assert!(out.contains("16 points, x closed; x from -1 to 1"), "{out}");
    // A split by files, here twice the same.
    let split = format!("import {a} {u} --train burgers.a:burgers.u --test-files {a} {u} --out g");
    assert!(desk.works(&split).contains("split    4 to train, 0 to validate, 4 to test"));
}

#[test]
fn numpy_files_in_either_order_are_the_same_dataset() {
    let desk = Desk::new();
    // (samples, y, x), row-major and column-major, and an archive of both.
    let (shape, len) = ([3usize, 4, 5], 60usize);
    let rows: Vec<f32> = (0..len).map(|v| v as f32).collect();
    let mut columns = vec![0.0; len];
    for (at, value) in rows.iter().enumerate() {
        let [s, y, x] = [at / 20, at / 5 % 4, at % 5];
        columns[s + 3 * (y + 4 * x)] = *value;
    }
    let [plain, turned] = [npy(&shape, false, &rows), npy(&shape, true, &columns)];
    std::fs::write(desk.path("a.npy"), &plain).unwrap();
    std::fs::write(desk.path("u.npy"), &turned).unwrap();
    std::fs::write(desk.path("both.npz"), stored(&[("a.npy", &turned), ("u.npy", &plain)])).unwrap();
    let error = desk.fails("import both.npz --inputs a --targets u --out d", 2);
    for reading in ["--layout samples,y,x ", "--layout samples,x,channels ", "--layout y,x,samples "] {
        assert!(error.contains(reading), "{error}");
    }
    assert_eq!(desk.names(), ["a.npy", "both.npz", "u.npy"]);
    let words = "--inputs a --targets u --layout samples,y,x --out";
    desk.works(&format!("import a.npy u.npy {words} d"));
    desk.works(&format!("import both.npz {words} e"));
    let [inputs, targets, _] = desk.dataset("d");
    assert!(inputs == targets && desk.dataset("e")[..2] == [inputs, targets]);
    let out = desk.works("info d");
    assert!(out.contains("4 × 5 points, y and x closed"), "{out}");
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let desk = Desk::new();
    let values = [1.0, f32::NAN, f32::INFINITY, 2.0, f32::NAN, 3.0];
    std::fs::write(desk.path("u.npy"), npy(&[2, 3], false, &values)).unwrap();
    let out = desk.works("import u.npy --inputs u --targets u --out d");
    assert!(out.contains("targets have 2 NaN and 1 infinite values; training refuses them"), "{out}");
}

#[test]
fn what_does_not_fit_is_named_and_leaves_nothing_behind() {
    let desk = Desk::new();
    let file = fixture("mat/burgers_v5.mat");
    let cases = [
        (format!("import {file} --inputs b --targets u --out d"), 2, "no variable `b`; there are a, u"),
        (format!("import {file} --subsample 3 --out d"), 2, "sizes that work: 16, 8, 4, 2, 1"),
        (format!("import {file} --layout x,y --out d"), 2, "no axis is called `samples`"),
        (format!("import {file} --train a:u --test a:v --out d"), 2, "no variable `v`"),
        (format!("import {file} --periodic y --out d"), 2, "no axis has this name; there are x"),
        ("import nothing.mat --out d".into(), 1, "nothing.mat: No such file"),
    ];
    for (words, code, message) in cases {
        let error = desk.fails(&words, code);
        assert!(error.contains(message), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for words in [
        "--inputs a",
        "--train a",
        "--test a:u",
        "--length x",
        "--cells c",
        "--train a:u --inputs a --targets u",
    ] {
        desk.fails(&format!("import {file} --out d {words}"), 2);
    }
    assert!(desk.names().is_empty());
    desk.works(&format!("import {file} --out d"));
    let error = desk.fails(&format!("import {file} --out d"), 1);
    assert!(error.contains("d exists already"), "{error}");
}

/// A `.npy` file.
pub(super) fn npy(shape: &[usize], column_major: bool, values: &[f32]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let order = if column_major { "True" } else { "False" };
    let head = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': ({axes}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// A zip archive that compresses nothing.
pub(super) fn stored(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let (len, start) = ((bytes.len() as u32).to_le_bytes(), (archive.len() as u32).to_le_bytes());
        // Versions, flags, method, time and date, of which only the version is not zero.
        let mut head = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head.extend(crc32(bytes).to_le_bytes());
        head.extend([len, len].concat());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend([0, 0]);
        archive.extend([b"PK\x03\x04".as_slice(), &head, name.as_bytes(), bytes].concat());
        directory
            .extend([b"PK\x01\x02\x14\x00".as_slice(), &head, &[0; 10], &start, name.as_bytes()].concat());
    }
    let (count, len, start) = (entries.len() as u16, directory.len() as u32, archive.len() as u32);
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\x00\x00\x00\x00");
    archive.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    archive.extend([len.to_le_bytes(), start.to_le_bytes()].concat());
    archive.extend([0, 0]);
    archive
}

/// The checksum of zip, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}
