//! Damaged and malicious files: a typed error that names the file, never a panic, never memory the file does not justify.

use galerkin_data::io::{File, Limits};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::support::{EVERY_FORMAT, Mat5, fixture};

/// Opens, lists and reads everything; an error must name the file. Whether anything could be read is of no interest.
fn exercise(name: &str, bytes: Vec<u8>) {
    // More than deflate can make of the file; decoders pad and round, hence the constant.
    let most = bytes.len() * 1032 + 4096;
    let named = |error: galerkin_data::Error| {
        let message = error.to_string();
        assert!(message.starts_with(name), "{message}");
        let harmless = |c: char| c == '\n' || !c.is_control();
        assert!(message.chars().all(harmless), "{message:?}");
    };
    let file = match File::from_bytes(name, bytes) {
        Ok(file) => file,
        Err(error) => return named(error),
    };
    for variable in file.variables() {
        // In blocks: as many values as the shape says, one after the other, or an error.
        let mut next = 0;
        let scanned = file.scan(&variable.name, &mut |first, values| {
            assert_eq!(first, next);
            assert!(!values.is_empty() && values.len() <= 1 << 18, "{} at once", values.len());
            next += values.len();
            assert!(next <= most, "{next} values of {most} bytes");
            Ok(())
        });
        match scanned {
            // Names may be there twice; the first is read.
            Ok(()) => assert_eq!(next, file.variable(&variable.name).unwrap().len()),
            Err(error) => named(error),
        }
        match file.read(&variable.name) {
            Ok(array) => {
                assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
                assert!(array.values.len() <= most, "{} values of {most} bytes", array.values.len());
            }
            Err(error) => named(error),
        }
    }
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

/// One entry of an archive.
fn entry_of(file: &str, entry: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes_of(file))).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut archive.by_name(entry).unwrap(), &mut bytes).unwrap();
    bytes
}

/// `torch/data.pt` with another pickle.
fn torch_with_pickle(pickle: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes_of("torch/data.pt"))).unwrap();
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let names: Vec<_> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
    for name in names {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut archive.by_name(&name).unwrap(), &mut bytes).unwrap();
        let bytes = if name.ends_with("data.pkl") { pickle.to_vec() } else { bytes };
        writer.start_file(name, options).unwrap();
        std::io::Write::write_all(&mut writer, &bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    /// A word that reads as a huge length in any width.
    Huge(prop::sample::Index, u8),
    /// Bytes copied from elsewhere in the file: plausible, but at the wrong place.
    Copy(prop::sample::Index, prop::sample::Index, u8),
    Append(Vec<u8>),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Damage::Truncate(at) => bytes.truncate(at.index(len)),
            Damage::Flip(at, bit) => bytes[at.index(len)] ^= 1 << (bit % 8),
            Damage::Huge(at, width) => {
                let at = at.index(len);
                let end = len.min(at + 1 + *width as usize % 8);
                bytes[at..end].fill(0xff);
                // Positive if it is read as a signed number.
                bytes[end - 1] = 0x7f;
            }
            Damage::Copy(from, to, width) => {
                let (from, to) = (from.index(len), to.index(len));
                let width = (*width as usize % 32).min(len - from).min(len - to);
                bytes.copy_within(from..from + width, to);
            }
            Damage::Append(more) => bytes.extend(more),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Damage::Truncate),
        (index(), any::<u8>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (index(), any::<u8>()).prop_map(|(at, width)| Damage::Huge(at, width)),
        (index(), index(), any::<u8>()).prop_map(|(from, to, width)| Damage::Copy(from, to, width)),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Damage::Append),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_give_errors(which in 0..EVERY_FORMAT.len(), damages in prop::collection::vec(damage(), 1..5)) {
        let name = EVERY_FORMAT[which];
        let mut bytes = bytes_of(name);
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        exercise(name, bytes);
    }

    /// Damage to the pickle with a checksum that agrees: the interpreter sees it.
    #[test]
    fn damage_inside_a_pickle_gives_errors(damages in prop::collection::vec(damage(), 1..5)) {
        let mut pickle = entry_of("torch/data.pt", "data/data.pkl");
        damages.iter().for_each(|damage| damage.apply(&mut pickle));
        exercise("x.pt", torch_with_pickle(&pickle));
    }

    /// Damage before compression: the reader behind the inflater sees it too.
    #[test]
    fn damage_inside_a_compressed_variable_gives_errors(damages in prop::collection::vec(damage(), 1..5)) {
        let mut matrix = bytes_of("written/classes.mat").split_off(128);
        damages.iter().for_each(|damage| damage.apply(&mut matrix));
        exercise("x.mat", Mat5::new(false).push_compressed(&matrix).bytes);
    }

    #[test]
    fn bytes_of_chance_give_errors(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for name in ["x.npy", "x.npz", "x.mat", "x.h5", "x.safetensors", "x.pt", "x"] {
            exercise(name, bytes.clone());
        }
    }
}

#[test]
fn every_file_can_be_cut_anywhere() {
    for name in EVERY_FORMAT {
        let bytes = bytes_of(name);
        // All lengths of the small files, some hundred of the larger ones.
        for len in (0..bytes.len()).step_by(1 + bytes.len() / 700) {
            exercise(name, bytes[..len].to_vec());
        }
    }
}

/// What a message says about one bad file.
fn message(name: &str, bytes: Vec<u8>) -> String {
    let file = match File::from_bytes(name, bytes) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    file.read(&file.variables()[0].name).unwrap_err().to_string()
}

#[test]
fn npy_that_promises_too_much() {
    let npy = |shape: &str, values: usize| {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(vec![0; values * 8]);
        bytes
    };
    assert_eq!(
        message("x.npy", npy("(1000000000, 1000)", 2)),
        "x.npy: values: expected 8000000000000 bytes for shape [1000000000, 1000] of float64, found 16 bytes"
    );
    assert_eq!(
        message("x.npy", npy("(4294967296, 4294967296, 4294967296)", 2)),
        "x.npy: header: expected a shape that memory can hold, found [4294967296, 4294967296, 4294967296]"
    );
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    assert_eq!(
        message("x.npy", bytes),
        "x.npy: header: expected a header of at most 0 bytes, found 4294967295"
    );
}

#[test]
fn a_matrix_that_promises_too_much() {
    let mat = Mat5::new(false);
    let huge = [mat.word(9), mat.word(u32::MAX - 7)].concat();
    let matrix = mat.matrix("x", 6, &[1 << 14, 1 << 15], &huge);
    assert_eq!(
        message("x.mat", Mat5::new(false).push(&matrix).bytes),
        "x.mat: x: expected 536870912 values of float64 for shape [16384, 32768], found 4294967288 bytes"
    );
    let matrix = mat.matrix("x", 6, &[(1 << 29) - 1, 1], &huge);
    let found = message("x.mat", Mat5::new(false).push(&matrix).bytes);
    assert_eq!(found, "x.mat: x: expected 4294967288 bytes of values, found 56 bytes in the file");
    let found = message("x.mat", Mat5::new(false).push_compressed(&matrix).bytes);
    assert!(found.starts_with("x.mat: x: expected 4294967288 bytes of values, found "), "{found}");
    // Within what deflate could grow, but the stream ends early.
    let short = mat.matrix("x", 6, &[1, 4000], &[mat.word(9), mat.word(32000)].concat());
    let found = message("x.mat", Mat5::new(false).push_compressed(&short).bytes);
    assert_eq!(found, "x.mat: x: expected 4000 values, found 0");
    let negative = mat.matrix("x", 6, &[-1, 3], &[]);
    let found = message("x.mat", Mat5::new(false).push(&negative).bytes);
    assert_eq!(found, "x.mat: variable 1: expected dimensions from 0 on, found [-1, 3]");
}

#[test]
fn safetensors_that_promise_too_much() {
    let file = |header: &str, values: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0; values]);
        bytes
    };
    let mut bytes = u64::MAX.to_le_bytes().to_vec();
    bytes.extend(b"{}");
    let found = message("x.safetensors", bytes);
    assert_eq!(
        found,
        "x.safetensors: header: expected 18446744073709551615 bytes from byte 8 on, found a file of 10 bytes"
    );
    let found = message(
        "x.safetensors",
        file(r#"{"x":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}"#, 8),
    );
    assert_eq!(found, "x.safetensors: x: expected 4000000 bytes from byte 74 on, found a file of 82 bytes");
    let found =
        message("x.safetensors", file(r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 12));
    assert!(
        found.starts_with("x.safetensors: file: expected 70 bytes, as its header says, found 74"),
        "{found}"
    );
    let nested = "[".repeat(100_000);
    assert!(message("x.safetensors", file(&nested, 0)).starts_with("x.safetensors: header: "));
}

/// An archive whose one entry deflates to a thousandth: allowed, but only as large as its header says.
#[test]
fn an_archive_that_grows() {
    let zeros = |shape: &str, len: usize| {
        let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend((text.len() as u16).to_le_bytes());
        npy.extend(text.as_bytes());
        npy.extend(vec![0; len]);
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .compression_level(Some(9));
        writer.start_file("x.npy", options).unwrap();
        std::io::Write::write_all(&mut writer, &npy).unwrap();
        writer.finish().unwrap().into_inner()
    };
    let honest = zeros("(1000000,)", 1_000_000);
    assert!(honest.len() < 2000);
    assert_eq!(File::from_bytes("x.npz", honest).unwrap().read("x").unwrap().values.len(), 1_000_000);
    let found = message("x.npz", zeros("(1000000000000,)", 1_000_000));
    assert!(found.contains("expected 1000000000000 bytes for shape [1000000000000] of uint8"), "{found}");
    assert_eq!(
        message("x.npz", zeros("(1000,)", 1_000_000)),
        "x.npz: x: expected 1000 values, found more bytes"
    );
    assert_eq!(message("x.npz", zeros("(1000,)", 999)), "x.npz: x: expected 1000 values, found 999");

    // Honest, and more than is taken without being asked for: 65 MB out of 65 kB.
    let large = zeros("(70000000,)", 70_000_000);
    let (file_len, needed) = (large.len(), 70_000_000usize.div_ceil(large.len()));
    let found = message("x.npz", large.clone());
    let numbers = format!(
        "variable `x`: 70000000 bytes out of a file of {file_len}; more than 64 MB and more than 100 times"
    );
    assert!(found.contains(&numbers) && found.ends_with(&format!("(--expand {needed})")), "{found}");
    let trusted = File::from_bytes_with("x.npz", large, Limits { expansion: needed as u64 }).unwrap();
    assert_eq!(trusted.summary("x").unwrap().count, 70_000_000);
}

/// The same limit for MATLAB's streams.
#[test]
fn a_matrix_that_grows() {
    let mat = Mat5::new(false);
    let values = mat.element(2, &vec![0; 70_000_000]);
    let matrix = mat.matrix("x", 9, &[7000, 10_000], &values);
    let found = message("x.mat", mat.push_compressed(&matrix).bytes);
    assert!(found.contains("70000000 bytes out of a file") && found.contains("--expand"), "{found}");
}

/// Rounds of damage for as long as `GALERKIN_FUZZ_SECONDS` says (60), per format. What was run and found is in tests/FUZZING.md.
#[test]
#[ignore = "runs for minutes"]
fn fuzz() {
    let seconds = std::env::var("GALERKIN_FUZZ_SECONDS").map_or(60, |text| text.parse().unwrap());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for name in EVERY_FORMAT {
        let original = bytes_of(name);
        let (start, mut rounds) = (std::time::Instant::now(), 0);
        while start.elapsed().as_secs() < seconds {
            for _ in 0..100 {
                let damages = prop::collection::vec(damage(), 1..8).new_tree(&mut runner).unwrap().current();
                let mut bytes = original.clone();
                damages.iter().for_each(|damage| damage.apply(&mut bytes));
                let kept = bytes.clone();
                let outcome = std::panic::catch_unwind(|| exercise(name, bytes));
                if outcome.is_err() {
                    let path = std::env::temp_dir().join("galerkin-fuzz-failure");
                    std::fs::write(&path, kept).unwrap();
                    panic!("{name} after {rounds} rounds: {damages:?}; the bytes are in {}", path.display());
                }
                rounds += 1;
            }
        }
        #[expect(clippy::print_stdout, reason = "the counts are what the run is for")]
        {
            println!("{name}: {rounds} rounds");
        }
    }
}
