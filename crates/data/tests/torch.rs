//! Files of PyTorch: whole ones give their arrays; broken and hostile ones an error that names the place.

use galerkin_data::Array;
use galerkin_data::io::torch::{Problem, parse, read};
use std::path::{Path, PathBuf};

/// What writes pickles, one operation after another.
#[derive(Clone, Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Pickle(b"\x80\x02".to_vec())
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    fn int(self, int: i64) -> Self {
        self.raw(b"\x8a\x08").raw(&int.to_le_bytes())
    }

    fn tuple(self, ints: &[i64]) -> Self {
        ints.iter().fold(self.raw(b"("), |pickle, int| pickle.int(*int)).raw(b"t")
    }

    fn tensor(self, tensor: &Tensor) -> Self {
        self.raw(b"ctorch._utils\n_rebuild_tensor_v2\n((")
            .text("storage")
            .raw(format!("ctorch\n{}\n", tensor.storage).as_bytes())
            .text(tensor.key)
            .text("cuda:0")
            .int(tensor.len)
            .raw(b"tQ")
            .int(tensor.offset)
            .tuple(tensor.shape)
            .tuple(tensor.strides)
            .raw(b"\x89ccollections\nOrderedDict\n)RtR")
    }
}

#[derive(Clone, Copy)]
struct Tensor<'a> {
    storage: &'a str,
    key: &'a str,
    len: i64,
    offset: i64,
    shape: &'a [i64],
    strides: &'a [i64],
}

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

fn archive(pickle: &[u8], storages: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut entries = vec![("model/data.pkl".to_string(), pickle.to_vec(), 0)];
    entries.push(("model/byteorder".into(), b"little".to_vec(), 0));
    entries.extend(storages.iter().map(|(key, bytes)| (format!("model/data/{key}"), bytes.clone(), 0)));
    zip(&entries)
}

/// A zip archive from names, bytes and methods (0: stored).
fn zip(entries: &[(String, Vec<u8>, u16)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, method) in entries {
        let mut common = vec![20, 0, 0, 0];
        common.extend(method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(crc(bytes).to_le_bytes());
        common.extend([(bytes.len() as u32).to_le_bytes(); 2].concat());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        directory.extend([b"PK\x01\x02\x14\x00".as_slice(), &common, &[0; 10]].concat());
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend([b"PK\x03\x04".as_slice(), &common, name.as_bytes(), bytes].concat());
    }
    let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
    end.extend([(entries.len() as u16).to_le_bytes(); 2].concat());
    end.extend((directory.len() as u32).to_le_bytes());
    end.extend((file.len() as u32).to_le_bytes());
    end.extend([0; 2]);
    [file, directory, end].concat()
}

/// The checksum of zip, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= *byte as u32;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

fn values(file: &[u8], name: &str) -> Vec<f32> {
    parse(file).unwrap()[name].values.clone()
}

/// Wants an error whose message has all of these words.
#[track_caller]
fn refused(file: &[u8], words: &[&str]) {
    let message = parse(file).unwrap_err().to_string();
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
        ("module.pt", "`torch.nn.modules.container.Sequential` has no place"),
        ("old.pt", "before 1.6"),
        ("without_checksums.pt", "set_crc32_options"),
    ] {
        let message = read(fixture(name)).unwrap_err().to_string();
        assert!(message.contains(words) && message.contains(name), "{message}");
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
    let problem = parse(&archive(&call.0, &[])).unwrap_err();
    assert!(matches!(&problem, Problem::Global { at: 9, name } if name == "os.system"), "{problem}");
    let call = Pickle::new().text("builtins").text("eval").raw(b"\x93.");
    refused(&archive(&call.0, &[]), &["builtins.eval", "torch.save(model.state_dict(), path)"]);
    // INST, OBJ, NEWOBJ, EXT1 and friends reach functions in other ways.
    for opcode in [b'i', b'o', 0x81, 0x92, 0x82, 0x83, 0x84, b'P'] {
        let problem = parse(&archive(&[0x80, 2, b'(', opcode, b'.'], &[])).unwrap_err();
        assert!(matches!(problem, Problem::Opcode { at: 3, opcode: found } if found == opcode), "{problem}");
    }
    let odd = Pickle::new().raw(b"ccollections\nOrderedDict\nK\x01\x85R.");
    refused(&archive(&odd.0, &[]), &["byte 30", "arguments"]);
}

#[test]
fn tensors_that_their_storage_does_not_hold() {
    refused(&one(Tensor { shape: &[2, 4], strides: &[4, 1], ..SIX }), &["`w`", "[2, 4]", "runs out", "6"]);
    refused(&one(Tensor { strides: &[4, 1], ..SIX }), &["`w`", "strides [4, 1]", "runs out"]);
    refused(&one(Tensor { offset: 1, ..SIX }), &["`w`", "from 1", "runs out"]);
    refused(&one(Tensor { offset: i64::MAX, strides: &[i64::MAX, 1], ..SIX }), &["runs out"]);
    refused(&one(Tensor { offset: -1, ..SIX }), &["offset"]);
    refused(&one(Tensor { shape: &[-2, 3], ..SIX }), &["`w`", "-2", "shape"]);
    refused(&one(Tensor { strides: &[-3, 1], ..SIX }), &["`w`", "-3", "strides"]);
    refused(&one(Tensor { strides: &[1], ..SIX }), &["[2, 3]", "[1]"]);
    refused(&one(Tensor { len: 7, ..SIX }), &["7 values of 4 bytes", "24 bytes"]);
    refused(&one(Tensor { len: i64::MAX, ..SIX }), &["24 bytes"]);
    refused(&one(Tensor { key: "1", ..SIX }), &["data/1"]);
    refused(&one(Tensor { storage: "ByteStorage", ..SIX }), &["torch.ByteStorage"]);
    refused(&one(Tensor { shape: &[i64::MAX; 3], strides: &[0; 3], ..SIX }), &["larger than the file"]);
    refused(&one(Tensor { shape: &[1 << 30], strides: &[0], ..SIX }), &["larger than the file"]);
    refused(&one(Tensor { shape: &[1; 17], strides: &[0; 17], ..SIX }), &["at most 16 axes"]);

    // Many tensors that are each as large as the file lets them be.
    let large = Tensor { shape: &[1000], strides: &[0], ..SIX };
    let many = (0..50)
        .fold(Pickle::new().raw(b"}"), |pickle, i| pickle.text(&format!("w{i}")).tensor(&large).raw(b"s"));
    refused(&archive(&many.raw(b".").0, &[("0", six())]), &["larger than the file"]);
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
