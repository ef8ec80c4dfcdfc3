//! Files of PyTorch: whole ones give their arrays; broken and hostile ones an error that names the place.

mod pickle;

use galerkin_data::io::torch::{from_bytes, read};
use galerkin_data::io::{self, Element, File, Format, Kind};
use galerkin_data::{Array, Error};
use pickle::{Pickle, Tensor, archive, zip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Six values, as the storage `0` of the archives here has them.
const SIX: Tensor =
    Tensor { storage: "FloatStorage", key: "0", len: 6, offset: 0, shape: &[2, 3], strides: &[3, 1] };

fn six() -> Vec<u8> {
    (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

/// A state dict with one tensor `w`.
fn one(tensor: Tensor) -> Vec<u8> {
    archive(&Pickle::new().raw(b"}").text("w").tensor(&tensor).raw(b"s.").0, &[("0", six())])
}

fn parse(file: &[u8]) -> Result<BTreeMap<String, Array>, Error> {
    from_bytes("x.pt", file.to_vec())
}

fn values(file: &[u8], name: &str) -> Vec<f32> {
    parse(file).unwrap()[name].values.clone()
}

/// Wants an error whose message has all of these words.
#[track_caller]
fn refused(file: &[u8], words: &[&str]) {
    let message = parse(file).unwrap_err().to_string();
    assert!(message.starts_with("x.pt: "), "{message:?} does not name the file");
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

/// A file that `make.py` in the folder of fixtures wrote.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch").join(name)
}

#[test]
fn files_that_pytorch_wrote() {
    for name in ["protocol_2.pt", "protocol_4.pt"] {
        let arrays = read(fixture(name)).unwrap();
        let expected: [(&str, &[usize], Vec<f32>); 11] = [
            ("plain", &[2, 3, 4], (0..24).map(|i| i as f32).collect()),
            ("transposed", &[4, 3], (0..12).map(|i| (i % 3 * 4 + i / 3) as f32).collect()),
            ("part", &[2, 3], vec![6.0, 8.0, 10.0, 12.0, 14.0, 16.0]),
            // Beyond f32, as PyTorch's own conversion has it.
            ("double", &[2], vec![0.1, f32::INFINITY]),
            // Nearest values of 11 and 8 significant bits.
            ("half", &[3], vec![1638.0 / 16384.0, -65504.0, 2f32.powi(-24)]),
            ("bfloat16", &[2], vec![205.0 / 2048.0, -(226.0 * 2f32.powi(120))]),
            ("long", &[], vec![7.0]),
            ("int", &[2], vec![-1.0, 2.0]),
            ("parameter", &[2], vec![1.5, -1.5]),
            ("empty", &[0, 3], vec![]),
            ("expanded", &[3], vec![9.0; 3]),
        ];
        assert_eq!(arrays.len(), expected.len(), "{name}");
        for (key, shape, values) in expected {
            assert_eq!(arrays[key], Array { shape: shape.to_vec(), values }, "{name}: {key}");
        }
    }
    let arrays = read(fixture("checkpoint.pt")).unwrap();
    let names: Vec<_> = arrays.keys().map(String::as_str).collect();
    let of_norm = ["1.bias", "1.num_batches_tracked", "1.running_mean", "1.running_var", "1.weight"];
    assert_eq!(names, [&["0.bias", "0.weight"][..], &of_norm].concat());
    assert_eq!(arrays["0.weight"].values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(arrays["1.num_batches_tracked"], Array { shape: vec![], values: vec![1.0] });

    for (name, words) in [
        ("module.pt", "found `torch.nn.modules.container.Sequential`, which has no place"),
        ("old.pt", "before 1.6"),
        ("without_checksums.pt", "set_crc32_options"),
    ] {
        let message = read(fixture(name)).unwrap_err().to_string();
        assert!(message.contains(words) && message.contains(name), "{message}");
    }
}

/// Files that Python's own pickler wrote in PyTorch's name: tensors of every type and what people put beside them.
#[test]
fn tensors_of_data_files_are_variables() {
    for name in ["data.pt", "data_4.pt"] {
        let file = io::open(fixture(name)).unwrap();
        assert_eq!(file.format(), Format::Torch);
        let whole: Vec<f32> = (0..24).map(|i| 0.5 * i as f32).collect();
        let gathered = |places: &[usize]| places.iter().map(|place| whole[*place]).collect::<Vec<_>>();
        let expected: [(&str, &str, &[usize], Vec<f32>); 25] = [
            ("float", "float32", &[2, 3, 4], whole.clone()),
            (
                "transposed",
                "float32",
                &[4, 3, 2],
                (0..24).map(|i| whole[i / 6 + i / 2 % 3 * 4 + i % 2 * 12]).collect(),
            ),
            (
                "permuted",
                "float32",
                &[3, 2, 4],
                (0..24).map(|i| whole[i / 8 * 4 + i / 4 % 2 * 12 + i % 4]).collect(),
            ),
            ("part", "float32", &[2, 2], gathered(&[5, 7, 17, 19])),
            ("trained", "float32", &[2], vec![1.5, -1.5]),
            ("parameter", "float32", &[1], vec![2.5]),
            ("double", "float64", &[2], vec![0.25, f32::NEG_INFINITY]),
            ("half", "float16", &[2], vec![0.5, -2.0]),
            ("bfloat16", "bfloat16", &[2], vec![1.0, -3.0]),
            ("bool", "bool", &[3], vec![1.0, 0.0, 1.0]),
            ("i8", "int8", &[3], vec![-3.0, -2.0, 100.0]),
            ("i16", "int16", &[3], vec![-3.0, -2.0, 100.0]),
            ("i32", "int32", &[3], vec![-3.0, -2.0, 100.0]),
            ("i64", "int64", &[3], vec![-3.0, -2.0, 100.0]),
            ("u8", "uint8", &[3], vec![0.0, 1.0, 200.0]),
            ("u16", "uint16", &[3], vec![0.0, 1.0, 200.0]),
            ("u32", "uint32", &[3], vec![0.0, 1.0, 200.0]),
            ("u64", "uint64", &[3], vec![0.0, 1.0, 200.0]),
            ("empty", "float32", &[0, 3], vec![]),
            ("scalar", "float32", &[], vec![7.0]),
            ("nested/inner", "float32", &[2], gathered(&[0, 1])),
            ("nested/deeper/x", "float32", &[3], gathered(&[0, 1, 2])),
            ("nested/5", "float32", &[1], gathered(&[0])),
            ("list/0", "float32", &[2], gathered(&[0, 1])),
            ("list/1", "float32", &[4], gathered(&[2, 3, 4, 5])),
        ];
        let words = [
            ("complex", "an array of complex numbers"),
            ("viscosity", "the number 0.01"),
            ("epochs", "the number 3"),
            ("periodic", "the truth value true"),
            ("words", "the text \"by hand\""),
            ("nothing", "None"),
            ("sizes", "a list"),
            ("size", "a tuple"),
            ("bytes", "bytes"),
            ("names", "a set"),
        ];
        assert_eq!(file.variables().len(), expected.len() + words.len(), "{name}: {:?}", file.variables());
        for (variable, kind, shape, values) in expected {
            assert_eq!(file.variable(variable).unwrap().kind.name(), kind, "{name} {variable}");
            let found = file.read(variable).unwrap();
            assert_eq!(found, Array { shape: shape.to_vec(), values }, "{name} {variable}");
        }
        for (variable, words) in words {
            assert_eq!(file.variable(variable).unwrap().kind, Kind::Other(words.into()), "{name} {variable}");
            assert!(matches!(file.read(variable).unwrap_err(), Error::Unsupported { .. }));
        }
        // Axes from the slowest to the fastest, so that a scan runs through the file once.
        assert_eq!(file.variable("transposed").unwrap().order, [2, 1, 0]);
        assert_eq!(file.variable("permuted").unwrap().order, [1, 0, 2]);
        assert_eq!(file.variable("float").unwrap().order, [0, 1, 2]);
    }
    let alone = io::open(fixture("alone.pt")).unwrap();
    assert_eq!(alone.read("alone").unwrap(), Array { shape: vec![3], values: vec![1.0, 2.0, 3.0] });
    let pair = io::open(fixture("pair.pt")).unwrap();
    assert_eq!(pair.read("0").unwrap().values, [1.0, 2.0]);
    assert_eq!(pair.read("1").unwrap().values, [3.0]);
    // What a training script saves: everything at any depth.
    let checkpoint = io::open(fixture("checkpoint.pt")).unwrap();
    assert_eq!(checkpoint.read("state_dict/0.weight").unwrap().values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(checkpoint.variable("optimizer/state/0/exp_avg").is_ok(), "{:?}", checkpoint.variables());
    assert_eq!(checkpoint.variable("epoch").unwrap().kind, Kind::Other("the number 3".into()));
    let message = io::open(fixture("old.pt")).unwrap_err().to_string();
    assert!(
        message
            .contains("old.pt: format: expected that of PyTorch since 1.6, found that of PyTorch before 1.6"),
        "{message}"
    );
}

#[test]
fn archives_are_told_by_what_is_in_them() {
    let file = File::from_bytes("nameless", one(SIX)).unwrap();
    assert_eq!((file.format(), file.read("w").unwrap().shape), (Format::Torch, vec![2, 3]));
    // Damaged where only the values are: listed, and refused when they are read.
    let mut damaged = one(SIX);
    let at = damaged.windows(24).position(|window| window == six()).unwrap();
    damaged[at + 5] ^= 1;
    let file = File::from_bytes("damaged.pt", damaged).unwrap();
    let message = file.read("w").unwrap_err().to_string();
    assert!(
        message.starts_with("damaged.pt: zip archive, data/0: expected bytes that agree with their checksum"),
        "{message}"
    );
    let message = File::from_bytes("x.pt", zip(&[])).unwrap_err().to_string();
    assert!(message.contains("x.pt: ") && message.contains("data.pkl"), "{message}");
    // A name of its own for the refusal: data are not weights.
    let call = Pickle::new().raw(b"}").text("x").raw(b"cos\nsystem\n").text("true").raw(b"\x85Rs.");
    let message = File::from_bytes("x.pt", archive(&call.0, &[])).unwrap_err().to_string();
    assert!(
        message.starts_with("x.pt: data.pkl, byte 9: ")
            && message.contains("`os.system`, which has no place"),
        "{message}"
    );
}

/// Lists and dictionaries that contain each other, and themselves: what is listed is bounded.
#[test]
fn listings_end() {
    let open = |pickle: Pickle| File::from_bytes("x.pt", archive(&pickle.0, &[("0", six())]));
    let inside = open(Pickle::new().raw(b"}q\0").text("w").raw(b"h\0s.")).unwrap();
    assert_eq!(inside.variables()[0].kind, Kind::Other("a dictionary".into()));
    // Dictionaries that are each twice in the next.
    let many = (0..17).fold(Pickle::new().raw(b"}q\0"), |pickle, _| {
        pickle.raw(b"}").text("a").raw(b"h\0s").text("b").raw(b"h\0sq\0")
    });
    let message = open(many.raw(b".")).unwrap_err().to_string();
    assert!(message.contains("at most 100000 things"), "{message}");
    // One tensor under many names: each may be as large as the file, because none is held in memory.
    let twice = Tensor { storage: "BoolStorage", len: 24, shape: &[24], strides: &[1], ..SIX };
    let pickle =
        (0..9).fold(Pickle::new().raw(b"}"), |p, i| p.text(&format!("w{i}")).tensor(&twice).raw(b"s"));
    assert_eq!(open(pickle.raw(b".")).unwrap().read("w8").unwrap().values.len(), 24);
    let large = Tensor { shape: &[1 << 30], strides: &[0], ..SIX };
    let pickle = Pickle::new().raw(b"}").text("w").tensor(&large).raw(b"s.");
    let message = open(pickle).unwrap_err().to_string();
    let expected = "values, which the file can account for, found shape [1073741824]";
    assert!(message.starts_with("x.pt: tensor `w`: ") && message.ends_with(expected), "{message}");
}

/// A view whose values lie far apart, over more than one stretch of the file.
#[test]
fn views_across_a_large_storage() {
    let len = 3_000_000i64;
    let storage: Vec<u8> = (0..len).flat_map(|i| (i as f32).to_le_bytes()).collect();
    for (shape, strides, offset) in [
        (&[1000i64, 300][..], &[1i64, 10_000][..], 17i64),
        (&[7, 1000], &[400_000, 399], 0),
        (&[2, 3, 100_000], &[1, 1_000_000, 9], 5),
        (&[3, 1000], &[0, 2900], 1),
    ] {
        let tensor = Tensor { storage: "FloatStorage", key: "0", len, offset, shape, strides };
        let pickle = Pickle::new().raw(b"}").text("w").tensor(&tensor).raw(b"s.");
        let file = File::from_bytes("x.pt", archive(&pickle.0, &[("0", storage.clone())])).unwrap();
        let found = file.read("w").unwrap();
        for (at, value) in found.values.iter().enumerate() {
            let (mut rest, mut place) = (at as i64, offset);
            for (n, stride) in shape.iter().zip(strides).rev() {
                place += rest % n * stride;
                rest /= n;
            }
            assert_eq!(*value, place as f32, "{shape:?} {strides:?} at {at}");
        }
    }
}

/// A real file, damaged: never a panic, and never other values than the whole file has.
#[test]
fn files_that_pytorch_wrote_damaged() {
    let file = std::fs::read(fixture("checkpoint.pt")).unwrap();
    let whole = parse(&file).unwrap();
    for len in 0..file.len() {
        assert!(parse(&file[..len]).is_err(), "cut to {len}");
    }
    for bit in (0..8 * file.len()).step_by(3) {
        let mut file = file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        if let Ok(arrays) = parse(&file) {
            assert_eq!(arrays, whole, "bit {bit}");
        }
    }
}

#[test]
fn shapes_strides_and_offsets() {
    let arrays = parse(&one(SIX)).unwrap();
    let expected = Array { shape: vec![2, 3], values: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0] };
    assert_eq!(arrays.into_iter().collect::<Vec<_>>(), [("w".to_string(), expected)]);

    let transposed = Tensor { shape: &[3, 2], strides: &[1, 3], ..SIX };
    assert_eq!(values(&one(transposed), "w"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let column = Tensor { offset: 1, shape: &[2, 1], strides: &[3, 1], ..SIX };
    assert_eq!(values(&one(column), "w"), [1.0, 4.0]);
    let expanded = Tensor { offset: 4, shape: &[2, 2], strides: &[0, 1], ..SIX };
    assert_eq!(values(&one(expanded), "w"), [4.0, 5.0, 4.0, 5.0]);
    let scalar = Tensor { offset: 5, shape: &[], strides: &[], ..SIX };
    assert_eq!(values(&one(scalar), "w"), [5.0]);
    let empty = Tensor { offset: 6, shape: &[0, 3], strides: &[3, 1], ..SIX };
    assert_eq!(parse(&one(empty)).unwrap()["w"], Array { shape: vec![0, 3], values: vec![] });
}

#[test]
fn types_of_values() {
    let bytes = vec![0x00, 0x3c, 0x00, 0xc0];
    for (storage, len, expected) in [
        ("HalfStorage", 2, vec![1.0, -2.0]),
        ("BFloat16Storage", 2, vec![0.0078125, -2.0]),
        ("IntStorage", 1, vec![0xc000_3c00u32 as i32 as f32]),
    ] {
        let tensor = Tensor { storage, len, shape: &[expected.len() as i64], strides: &[1], ..SIX };
        let pickle = Pickle::new().raw(b"}").text("w").tensor(&tensor).raw(b"s.");
        assert_eq!(values(&archive(&pickle.0, &[("0", bytes.clone())]), "w"), expected, "{storage}");
    }
    let wide = [0.1f64, -3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensor = Tensor { storage: "DoubleStorage", len: 2, shape: &[2], strides: &[1], ..SIX };
    let pickle = Pickle::new().raw(b"}").text("w").tensor(&tensor).raw(b"s.");
    assert_eq!(values(&archive(&pickle.0, &[("0", wide)]), "w"), [0.1, -3.0]);
}

#[test]
fn state_dicts_under_a_key_with_other_things_beside() {
    let weights = |pickle: Pickle| {
        // An OrderedDict with a trained parameter and an attribute of its own.
        pickle
            .raw(b"ccollections\nOrderedDict\n)R(")
            .text("w")
            .raw(b"ctorch._utils\n_rebuild_parameter\n(")
            .tensor(&SIX)
            .raw(b"\x88ccollections\nOrderedDict\n)RtRu}")
            .text("_metadata")
            .raw(b"}sb")
    };
    for key in ["state_dict", "model_state_dict", "model"] {
        let pickle = Pickle::new().raw(b"}").text("epoch").int(3).raw(b"s").text("losses");
        let pickle = pickle.raw(b"](K\x01G\0\0\0\0\0\0\0\0esK\x07Ns").text(key);
        assert_eq!(values(&archive(&weights(pickle).raw(b"s.").0, &[("0", six())]), "w").len(), 6, "{key}");
    }
    let pickle = weights(Pickle::new().raw(b"}").text("weights")).raw(b"s.");
    refused(&archive(&pickle.0, &[("0", six())]), &["state_dict", "`weights`: a dictionary"]);
    let mixed = Pickle::new().raw(b"}").text("w").tensor(&SIX).raw(b"s").text("epoch").int(3).raw(b"s.");
    refused(&archive(&mixed.0, &[("0", six())]), &["`epoch`", "a number"]);
    refused(&archive(b"\x80\x02N.", &[]), &["found None"]);
}

#[test]
fn newer_pickles() {
    // Protocol 4: frames, short names, names from the stack, a memo that counts by itself.
    let short = |text: &str| [b"\x8c", &[text.len() as u8][..], text.as_bytes()].concat();
    let pickle = Pickle(b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94".to_vec()).raw(&short("w"));
    let pickle = pickle.raw(&short("torch._utils")).raw(&short("_rebuild_tensor_v2")).raw(b"\x93((");
    let pickle =
        pickle.raw(&short("storage")).raw(&short("torch")).raw(&short("FloatStorage")).raw(b"\x93\x94");
    let pickle =
        pickle.raw(&short("0")).raw(&short("cpu")).raw(b"K\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86\x89NtRs");
    assert_eq!(values(&archive(&pickle.clone().raw(b".").0, &[("0", six())]), "w").len(), 6);
    refused(&archive(&pickle.raw(b"h\x07.").0, &[("0", six())]), &["memo"]);
}

#[test]
fn nothing_is_called() {
    let call =
        Pickle::new().raw(b"}").text("w").raw(b"cos\nsystem\n").text("touch /tmp/called").raw(b"\x85Rs.");
    refused(&archive(&call.0, &[]), &["data.pkl, byte 9: ", "found `os.system`", "was not called"]);
    let call = Pickle::new().text("builtins").text("eval").raw(b"\x93.");
    refused(&archive(&call.0, &[]), &["builtins.eval", "torch.save(model.state_dict(), path)"]);
    // INST, OBJ, NEWOBJ, EXT1 and friends reach functions in other ways.
    for opcode in [b'i', b'o', 0x81, 0x92, 0x82, 0x83, 0x84, b'P'] {
        let words = ["data.pkl, byte 3: ", &format!("operation {opcode:#04x}, which has no place")];
        refused(&archive(&[0x80, 2, b'(', opcode, b'.'], &[]), &words);
    }
    let odd = Pickle::new().raw(b"ccollections\nOrderedDict\nK\x01\x85R.");
    refused(&archive(&odd.0, &[]), &["byte 30", "arguments"]);
}

#[test]
fn tensors_that_their_storage_does_not_hold() {
    refused(
        &one(Tensor { shape: &[2, 4], strides: &[4, 1], ..SIX }),
        &["`w`", "[2, 4]", "inside a storage of 6", "6"],
    );
    refused(&one(Tensor { strides: &[4, 1], ..SIX }), &["`w`", "strides [4, 1]", "inside a storage of 6"]);
    refused(&one(Tensor { offset: 1, ..SIX }), &["`w`", "from 1", "inside a storage of 6"]);
    refused(&one(Tensor { offset: i64::MAX, strides: &[i64::MAX, 1], ..SIX }), &["inside a storage of 6"]);
    refused(&one(Tensor { offset: -1, ..SIX }), &["offset"]);
    refused(&one(Tensor { shape: &[-2, 3], ..SIX }), &["`w`", "-2", "shape"]);
    refused(&one(Tensor { strides: &[-3, 1], ..SIX }), &["`w`", "-3", "strides"]);
    refused(&one(Tensor { strides: &[1], ..SIX }), &["[2, 3]", "[1]"]);
    refused(&one(Tensor { len: 7, ..SIX }), &["7 values of 4 bytes", "24 bytes"]);
    refused(&one(Tensor { len: i64::MAX, ..SIX }), &["24 bytes"]);
    refused(&one(Tensor { key: "1", ..SIX }), &["data/1"]);
    refused(&one(Tensor { key: &"1".repeat(65), ..SIX }), &["at most 64 bytes, found 65"]);
    refused(&one(Tensor { storage: "QUInt8Storage", ..SIX }), &["torch.QUInt8Storage"]);
    refused(
        &one(Tensor { storage: "ComplexFloatStorage", len: 3, shape: &[3], strides: &[1], ..SIX }),
        &["complex"],
    );
    refused(&one(Tensor { shape: &[i64::MAX; 3], strides: &[0; 3], ..SIX }), &["file can account for"]);
    refused(&one(Tensor { shape: &[1 << 30], strides: &[0], ..SIX }), &["file can account for"]);
    refused(&one(Tensor { shape: &[1; 17], strides: &[0; 17], ..SIX }), &["at most 16 axes"]);

    // Many tensors that are each as large as the file lets them be.
    let large = Tensor { shape: &[1000], strides: &[0], ..SIX };
    let many = (0..50)
        .fold(Pickle::new().raw(b"}"), |pickle, i| pickle.text(&format!("w{i}")).tensor(&large).raw(b"s"));
    refused(&archive(&many.raw(b".").0, &[("0", six())]), &["file can account for"]);
    let twice = Pickle::new().raw(b"}").text("w").tensor(&SIX).raw(b"s").text("w").tensor(&SIX).raw(b"s.");
    refused(&archive(&twice.0, &[("0", six())]), &["`w`", "twice"]);
}

#[test]
fn loops_nesting_and_floods() {
    // A dictionary in itself, and one under the key where a state dict is looked for.
    refused(&archive(&Pickle::new().raw(b"}q\0").text("w").raw(b"h\0s.").0, &[]), &["`w`: a dictionary"]);
    let inside = Pickle::new().raw(b"}q\0").text("model").raw(b"h\0s.");
    refused(&archive(&inside.0, &[]), &["`model`", "a dictionary"]);
    // Tuples of tuples: 2^40 values for whoever follows the memo.
    let bomb = (0..40).fold(Pickle::new().raw(b")q\0"), |pickle, _| pickle.raw(b"h\0h\0\x86q\0"));
    refused(&archive(&bomb.raw(b".").0, &[]), &["a tuple"]);
    let deep = [b"\x80\x02)".as_slice(), &[0x85; 1_000_000], b"."].concat();
    refused(&archive(&deep, &[]), &["a tuple"]);
    for flood in [b'N', b'(', b'}', b')', b']'] {
        refused(&archive(&[b"\x80\x02".as_slice(), &[flood; 100_000]].concat(), &[]), &["less on the stack"]);
    }
    refused(&archive(b"\x80\x02X\xff\xff\xff\xff.", &[]), &["breaks off"]);
    refused(&archive(b"\x80\x02X\x01\0\0\0\xff.", &[]), &["UTF-8"]);
    for starved in ["R", "s", "u", "t", "e", "a", "b", "Q", ".", "q\0", "h\0", "\u{5}"] {
        assert!(parse(&archive(starved.as_bytes(), &[])).is_err(), "{starved:?}");
    }
}

#[test]
fn archives_that_are_none() {
    refused(b"", &["cut short or no archive"]);
    refused(&[b'P'; 100_000], &["cut short or no archive"]);
    refused(b"PK\x05\x06", &["cut short"]);
    refused(&zip(&[]), &["data.pkl"]);
    let entry = |name: &str, method| (name.to_string(), b"\x80\x02N.".to_vec(), method);
    refused(&zip(&[entry("a/data.pkl", 8)]), &["a/data.pkl", "compressed"]);
    refused(&zip(&[entry("a/data.pkl", 0), entry("a/data.pkl", 0)]), &["twice"]);
    let big = ("a/byteorder".to_string(), b"big".to_vec(), 0);
    refused(&zip(&[entry("a/data.pkl", 0), big]), &["byteorder", "`big`"]);
    // The old format begins with this pickled number.
    refused(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", &["before 1.6", "torch.save("]);

    // Many records of one large entry.
    let mut file = zip(&[("a/data.pkl".into(), vec![0; 10_000], 0)]);
    let start = file.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let end = file.split_off(file.len() - 22);
    let record = file[start..].to_vec();
    (1..100).for_each(|i| {
        let mut record = record.clone();
        record[46] = i;
        file.extend(record);
    });
    let mut end = end;
    end[10] = 100;
    refused(&[file, end].concat(), &["overlap"]);
}

#[test]
fn files_cut_short_or_with_flipped_bits() {
    let file = one(SIX);
    for len in 0..file.len() {
        assert!(parse(&file[..len]).is_err(), "cut to {len}");
    }
    let whole = parse(&file).unwrap();
    for bit in 0..8 * file.len() {
        let mut file = file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        // Times, versions and the folder's name in one of two places do not matter; values and names may not change.
        if let Ok(arrays) = parse(&file) {
            assert_eq!(arrays, whole, "bit {bit}");
        }
    }
}

/// Changes inside the pickle with a checksum that agrees: whatever the machine is told, it answers.
#[test]
fn pickles_with_flipped_bits() {
    let pickle = Pickle::new().raw(b"}").text("w").tensor(&SIX).raw(b"s.").0;
    let mut read = 0;
    for bit in 0..8 * pickle.len() {
        let mut pickle = pickle.clone();
        pickle[bit / 8] ^= 1 << (bit % 8);
        if let Ok(arrays) = parse(&archive(&pickle, &[("0", six())])) {
            let count: usize = arrays.values().map(|array| array.values.len()).sum();
            assert!(count <= 24, "bit {bit}");
            read += 1;
        }
    }
    // The name, the device and the shape may be anything that fits.
    assert!(read > 0 && read < 8 * pickle.len() / 2, "{read}");
    for len in 0..pickle.len() {
        refused(&archive(&pickle[..len], &[("0", six())]), &["data.pkl"]);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = read("no/such/file.pt").unwrap_err().to_string();
    assert!(message.starts_with("no/such/file.pt: "), "{message}");
}

/// A dictionary as data: what is no tensor is listed in words, what is nested has the names on its way.
#[test]
fn dictionaries_are_data() {
    let pickle = Pickle::new()
        .raw(b"}(")
        .text("x")
        .tensor(&SIX)
        .text("outer")
        .raw(b"}")
        .text("inner")
        .tensor(&Tensor { shape: &[3, 2], strides: &[1, 3], ..SIX })
        .raw(b"s")
        .text("visc")
        .raw(b"G\x3f\x84\x7a\xe1\x47\xae\x14\x7b")
        .text("name")
        .text("burgers")
        .text("nothing")
        .raw(b"N")
        .text("list")
        .raw(b"](K\x01K\x02e")
        .text("pair")
        .raw(b"](")
        .tensor(&SIX)
        .raw(b"Ne")
        .raw(b"u.");
    // No extension: the content says what it is.
    let file = File::from_bytes("data", archive(&pickle.0, &[("0", six())])).unwrap();
    assert_eq!(file.format(), Format::Torch);
    let listed: Vec<_> =
        file.variables().iter().map(|v| (v.name.as_str(), v.shape.clone(), v.kind.name())).collect();
    let expected = [
        ("x", vec![2, 3], "float32"),
        ("outer/inner", vec![3, 2], "float32"),
        ("visc", vec![], "the number 0.01"),
        ("name", vec![], "the text \"burgers\""),
        ("nothing", vec![], "None"),
        ("list", vec![], "a list"),
        ("pair/0", vec![2, 3], "float32"),
        ("pair/1", vec![], "None"),
    ];
    assert_eq!(listed, expected);
    assert_eq!(file.read("x").unwrap().values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    // Stored the other way round, and read as PyTorch shows it.
    assert_eq!(file.variable("outer/inner").unwrap().order, [1, 0]);
    assert_eq!(file.read("outer/inner").unwrap().values, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let error = file.read("visc").unwrap_err().to_string();
    assert!(
        error.ends_with("variable `visc`: expected an array of real numbers, found the number 0.01"),
        "{error}"
    );
}

#[test]
fn a_tensor_alone_is_called_like_its_file() {
    let bytes = archive(&Pickle::new().tensor(&SIX).raw(b".").0, &[("0", six())]);
    let file = File::from_bytes("folder/solution.pt", bytes).unwrap();
    assert_eq!(file.read("solution").unwrap().shape, [2, 3]);
}

#[test]
fn storages_of_every_type_of_number() {
    let cases: [(&str, &[u8], usize, Element, [f32; 2]); 10] = [
        ("FloatStorage", &[0, 0, 128, 63, 0, 0, 0, 192], 4, Element::F32, [1.0, -2.0]),
        (
            "DoubleStorage",
            &[0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 0, 192],
            8,
            Element::F64,
            [1.0, -2.0],
        ),
        ("HalfStorage", &[0, 60, 0, 192], 2, Element::F16, [1.0, -2.0]),
        ("BFloat16Storage", &[128, 63, 0, 192], 2, Element::Bf16, [1.0, -2.0]),
        ("BoolStorage", &[1, 0], 1, Element::Bool, [1.0, 0.0]),
        ("ByteStorage", &[1, 254], 1, Element::U8, [1.0, 254.0]),
        ("CharStorage", &[1, 254], 1, Element::I8, [1.0, -2.0]),
        ("ShortStorage", &[1, 0, 254, 255], 2, Element::I16, [1.0, -2.0]),
        ("IntStorage", &[1, 0, 0, 0, 254, 255, 255, 255], 4, Element::I32, [1.0, -2.0]),
        (
            "LongStorage",
            &[1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255],
            8,
            Element::I64,
            [1.0, -2.0],
        ),
    ];
    for (storage, bytes, size, element, expected) in cases {
        assert_eq!(bytes.len(), 2 * size);
        let tensor = Tensor { storage, len: 2, shape: &[2], strides: &[1], ..SIX };
        let bytes = archive(&Pickle::new().tensor(&tensor).raw(b".").0, &[("0", bytes.to_vec())]);
        let file = File::from_bytes("x.pt", bytes).unwrap();
        assert_eq!(file.variables()[0].kind, Kind::Numbers(element));
        assert_eq!(file.read("x").unwrap().values, expected, "{storage}");
    }
    let complex = Tensor { storage: "ComplexFloatStorage", len: 3, shape: &[3], strides: &[1], ..SIX };
    let bytes = archive(&Pickle::new().tensor(&complex).raw(b".").0, &[("0", six())]);
    let file = File::from_bytes("x.pt", bytes).unwrap();
    assert_eq!(file.variables()[0].kind.name(), "an array of complex numbers");
    assert!(file.read("x").is_err());
}

/// Views with gaps, in any order of their axes, also of storages longer than a block.
#[test]
fn strides_of_any_kind() {
    let (rows, columns) = (700i64, 300i64);
    let storage: Vec<u8> = (0..rows * columns).flat_map(|i| (i as f32).to_le_bytes()).collect();
    for (offset, shape, strides) in [
        (0, [rows, columns], [columns, 1]),
        (0, [columns, rows], [1, columns]),
        (7, [rows / 2, columns / 3], [2 * columns, 3]),
        (0, [rows, 5], [columns, 0]),
        (columns, [columns / 2, rows - 1], [2, columns]),
    ] {
        let tensor = Tensor { len: rows * columns, offset, shape: &shape, strides: &strides, ..SIX };
        let bytes = archive(&Pickle::new().tensor(&tensor).raw(b".").0, &[("0", storage.clone())]);
        let file = File::from_bytes("x.pt", bytes).unwrap();
        let expected: Vec<_> = (0..shape[0])
            .flat_map(|i| (0..shape[1]).map(move |j| (offset + i * strides[0] + j * strides[1]) as f32))
            .collect();
        assert!(file.read("x").unwrap().values == expected, "{shape:?} {strides:?}");
    }
}

#[test]
fn functions_in_data_are_refused_by_name() {
    let evil = Pickle::new().raw(b"}").text("x").raw(b"cos\nsystem\n").text("true").raw(b"\x85Rs.");
    let error = File::from_bytes("x.pt", archive(&evil.0, &[])).unwrap_err().to_string();
    assert!(error.contains("x.pt: data.pkl, byte") && error.contains("`os.system`"), "{error}");
    // A dictionary in itself ends somewhere.
    let inside = Pickle::new().raw(b"}q\0").text("w").raw(b"h\0s.");
    assert!(File::from_bytes("x.pt", archive(&inside.0, &[])).is_ok());
}

/// Damage is found before the first value is handed over.
#[test]
fn damaged_values_are_not_handed_over() {
    let mut bytes = archive(&Pickle::new().tensor(&SIX).raw(b".").0, &[("0", six())]);
    let at = bytes.windows(24).position(|window| window == six()).unwrap();
    bytes[at] ^= 1;
    let file = File::from_bytes("x.pt", bytes).unwrap();
    let error = file.scan("x", &mut |_, _| panic!("a value of a damaged storage")).unwrap_err().to_string();
    assert!(error.contains("data/0") && error.contains("checksum"), "{error}");
}
