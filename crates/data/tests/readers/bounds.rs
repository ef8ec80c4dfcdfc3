//! The work that a file can cause is bounded by its bytes, what it says is harmless to show, and memory that is not there is an error.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use galerkin_data::error::shown;
use galerkin_data::import::{Import, Variables};
use galerkin_data::io::{self, File, Format};

use crate::pickle::{Pickle, Tensor, archive};
use crate::support::{Mat5, fixture};

/// What `work` gives. It takes a fraction of a second; what is unbounded, or grows with the square of a file, takes far longer than this.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("work that ends")
}

fn npy(descr: &str, shape: &str, values: usize) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len() + values, 0);
    bytes
}

/// Imports the one variable of a file, as inputs and as targets, and gives the refusal.
fn import(name: &'static str, bytes: Vec<u8>, layout: &'static str) -> String {
    soon(move || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let words = || layout.split(',').map(String::from).collect();
        let import = Import {
            files: vec![path],
            variables: Variables { inputs: vec!["x".into()], targets: vec!["x".into()] },
            input_layout: words(),
            target_layout: vec!["samples".into(), "x".into()],
            ..Import::default()
        };
        import.write(folder.path().join("dataset")).unwrap_err().to_string()
    })
}

#[test]
fn empty_arrays_have_axes_that_can_be_counted() {
    let huge = npy("<f4", "(0, 18446744073709551615)", 0);
    let message = File::from_bytes("x.npy", huge.clone()).unwrap_err().to_string();
    assert_eq!(
        message,
        "x.npy: header: expected a shape that memory can hold, found [0, 18446744073709551615]"
    );
    let message = File::from_bytes("x.npy", npy("|u1", "(4294967296, 0, 4294967296)", 0)).unwrap_err();
    assert!(message.to_string().contains("a shape that memory can hold"), "{message}");
    for layout in ["samples,channels", "channels,samples", "samples,x", "x,samples"] {
        let message = import("x.npy", huge.clone(), layout);
        assert!(message.contains("a shape that memory can hold"), "{layout}: {message}");
        // One that can be counted, and has no value either.
        let message = import("x.npy", npy("<f4", "(0, 1099511627776)", 0), layout);
        assert!(message.contains("no sample") || message.contains("expected values"), "{layout}: {message}");
    }
    assert!(File::from_bytes("x.npy", npy("<f4", "(0, 5)", 0)).unwrap().read("x").unwrap().values.is_empty());
}

/// Shapes of formats whose listing does not read values.
#[test]
fn axes_are_not_followed_beyond_the_bytes_of_a_file() {
    let mat = Mat5::new(false);
    for shape in [[1, i32::MAX], [i32::MAX, 1]] {
        let matrix = mat.matrix("x", 6, &shape, &[mat.word(9), mat.word(0)].concat());
        let bytes = Mat5::new(false).push(&matrix).bytes;
        assert!(bytes.len() <= 200, "{}", bytes.len());
        for layout in ["samples,channels", "channels,samples"] {
            let message = import("x.mat", bytes.clone(), layout);
            assert!(message.contains("values, which") && message.contains("bytes can hold"), "{message}");
        }
    }
    let header = r#"{"x":{"dtype":"F32","shape":[1,4611686018427387904],"data_offsets":[0,0]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let message = import("x.safetensors", bytes, "samples,channels");
    assert!(message.contains("x.safetensors: "), "{message}");
    // The file holds them, and they would be written at every one of as many points.
    let message = import("x.npy", npy("|u1", "(2, 2000)", 4000), "samples,channels");
    assert!(message.contains("at most 1024 parameters") && message.ends_with("found 2000"), "{message}");
    // And no dataset has so many.
    let message = import("x.npy", npy("|u1", "(2, 70000)", 140_000), "samples,channels");
    assert!(message.contains("at most 65536 channels, found 70000"), "{message}");
}

/// Files with tens of thousands of variables: finding, checking and reading one does not go through the others.
#[test]
fn many_variables_are_listed_and_read_one_by_one() {
    const MANY: usize = 30_000;
    fn read_all(file: &File, count: usize) {
        assert_eq!(file.variables().len(), count);
        for variable in file.variables() {
            assert_eq!(file.summary(&variable.name).unwrap().count, 1, "{}", variable.name);
        }
    }
    soon(|| {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        let array = npy("|u1", "(1,)", 1);
        for i in 0..MANY {
            writer.start_file(format!("v{i}.npy"), options).unwrap();
            writer.write_all(&array).unwrap();
        }
        read_all(&File::from_bytes("x.npz", writer.finish().unwrap().into_inner()).unwrap(), MANY);
    });
    soon(|| {
        let entry = |i| format!(r#""v{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1);
        let header = format!("{{{}}}", (0..MANY).map(entry).collect::<Vec<_>>().join(","));
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![7; MANY]].concat();
        read_all(&File::from_bytes("x.safetensors", bytes).unwrap(), MANY);
    });
    // One storage of 32 MB: its checksum is computed once.
    soon(|| {
        let pickle = (0..MANY as i64).fold(Pickle::new().raw(b"}"), |pickle, i| {
            let tensor = Tensor {
                storage: "ByteStorage",
                key: "0",
                len: 32 << 20,
                offset: i,
                shape: &[1],
                strides: &[1],
            };
            pickle.text(&format!("v{i}")).tensor(&tensor).raw(b"s")
        });
        let bytes = archive(&pickle.raw(b".").0, &[("0", vec![7; 32 << 20])]);
        read_all(&File::from_bytes("x.pt", bytes).unwrap(), MANY);
    });
}

/// One list, or one text, under many names is looked through once.
#[test]
fn what_a_memo_repeats_is_not_looked_through_again() {
    const LONG: usize = 1 << 20;
    let list = {
        let mut pickle = Pickle::new().raw(b"}q\0").text("list").raw(b"]q\x01(");
        pickle = pickle.raw(&[b'K', 1].repeat(60_000)).raw(b"e");
        for _ in 0..16 {
            pickle = pickle.raw(b"(").raw(&[b'K', 1].repeat(60_000)).raw(b"e");
        }
        pickle = pickle.raw(b"s").text("text").text(&"x".repeat(LONG)).raw(b"q\x02s");
        (0..90_000).fold(pickle, |pickle, i: i32| {
            let memo: &[u8] = if i % 2 == 0 { b"h\x01s" } else { b"h\x02s" };
            pickle.text(&i.to_string()).raw(memo)
        })
    };
    let file = archive(&list.raw(b".").0, &[]);
    assert_eq!(soon(move || File::from_bytes("x.pt", file).unwrap().variables().len()), 90_002);

    // Names that the memo makes long, many times: 16 groups under each other, the last with many things in it.
    let long = "n".repeat(4000);
    let leaf = (0..8000).fold(Pickle::new().raw(b"}"), |p, i: i32| p.text(&i.to_string()).raw(b"Ns"));
    let nested = leaf.raw(b"q\0").raw(b"}").text(&long).raw(b"h\0s.");
    let message = File::from_bytes("x.pt", archive(&nested.0, &[])).unwrap_err().to_string();
    assert!(message.contains("together"), "{message}");
}

/// A view without values may begin anywhere.
#[test]
fn an_empty_tensor_lies_nowhere() {
    let tensor = Tensor {
        storage: "DoubleStorage",
        key: "0",
        len: 1,
        offset: i64::MAX,
        shape: &[0, 3],
        strides: &[3, 1],
    };
    let pickle = Pickle::new().raw(b"}").text("x").tensor(&tensor).raw(b"s.");
    let bytes = archive(&pickle.0, &[("0", vec![0; 8])]);
    assert!(File::from_bytes("x.pt", bytes.clone()).unwrap().read("x").unwrap().values.is_empty());
    assert_eq!(io::torch::from_bytes("x.pt", bytes).unwrap()["x"].shape, [0, 3]);
    let tensor = Tensor { shape: &[0, 1 << 40, 1 << 40], strides: &[0, 0, 0], ..tensor };
    let pickle = Pickle::new().raw(b"}").text("x").tensor(&tensor).raw(b"s.");
    let message = File::from_bytes("x.pt", archive(&pickle.0, &[("0", vec![0; 8])])).unwrap_err().to_string();
    assert!(message.contains("which the file can account for"), "{message}");
}

#[test]
fn links_multiply_nothing() {
    let file = soon(|| io::open(fixture("links/circle.h5")).unwrap());
    let names: Vec<_> = file.variables().iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["a/x"]);
    assert_eq!(file.read("a/x").unwrap().values, [1.0, 2.0]);
    let message = soon(|| io::open(fixture("links/diamonds.h5")).unwrap_err().to_string());
    assert!(message.contains("expected a group under at most 16 names, found more"), "{message}");
    let file = io::open(fixture("links/chunks.h5")).unwrap();
    assert_eq!(
        (file.format(), file.variable("x").unwrap().shape.as_slice()),
        (Format::Hdf5, &[600, 600][..])
    );
    let message = file.read("x").unwrap_err().to_string();
    assert!(message.contains("chunks, as many as the file has bytes, found 360000"), "{message}");
}

/// The same bytes as many variables.
#[test]
fn variables_do_not_overlap() {
    let entry = |i: usize| format!(r#""v{i}":{{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}}"#);
    let header = format!("{{{}}}", (0..100).map(entry).collect::<Vec<_>>().join(","));
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 1000]].concat();
    let message = File::from_bytes("x.safetensors", bytes).unwrap_err().to_string();
    assert!(message.starts_with("x.safetensors: "), "{message}");

    // An archive whose directory names one entry a hundred times.
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("a.npy", options).unwrap();
    writer.write_all(&npy("|u1", "(1000,)", 1000)).unwrap();
    let mut file = writer.finish().unwrap().into_inner();
    let start = file.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let mut end = file.split_off(file.len() - 22);
    let record = file[start..].to_vec();
    for i in 1..100 {
        let mut record = record.clone();
        record[46] = b'a' + i;
        file.extend(record);
    }
    let size = (file.len() - start) as u32;
    end[8] = 100;
    end[10] = 100;
    end[12..16].copy_from_slice(&size.to_le_bytes());
    let message = File::from_bytes("x.npz", [file, end].concat()).unwrap_err().to_string();
    assert!(message.contains("variables that do not overlap"), "{message}");
}

#[test]
fn names_are_shown_without_their_escapes() {
    let evil = "\u{1b}]0;owned\u{7}";
    let mat = Mat5::new(false);
    let matrix = mat.matrix(evil, 6, &[1, 2], &mat.element(2, &[1]));
    let file = File::from_bytes("x.mat", Mat5::new(false).push(&matrix).bytes).unwrap();
    // The name itself is that of the file, so that it can be asked for.
    assert_eq!(file.variables()[0].name, evil);
    assert_eq!(shown(&file.variables()[0].name), "\\u{1b}]0;owned\\u{7}");
    for message in [file.read(evil).unwrap_err(), file.read("y").unwrap_err()].map(|error| error.to_string())
    {
        assert!(
            message.contains("\\u{1b}]0;owned\\u{7}") && !message.contains(char::is_control),
            "{message}"
        );
    }
    let header = npy("\u{1b}[2J", "(1,)", 1);
    let message = File::from_bytes("x.npy", header).unwrap_err().to_string();
    assert!(message.contains("\\u{1b}[2J") && !message.contains(char::is_control), "{message}");
    // And not by the thousand.
    let long = mat.matrix(&"n".repeat(4000), 6, &[1, 2], &mat.element(2, &[1]));
    let file = File::from_bytes("x.mat", Mat5::new(false).push(&long).bytes).unwrap();
    let message = file.read(&file.variables()[0].name).unwrap_err().to_string();
    assert!(message.len() < 500 && message.contains("(4000 bytes in all)"), "{message}");
}

#[test]
fn texts_have_a_largest_size_and_are_utf_8() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "x = 1").unwrap();
    assert_eq!(io::read_text(&path, 5).unwrap(), "x = 1");
    let message = io::read_text(&path, 4).unwrap_err().to_string();
    assert!(message.ends_with("config.toml: file: expected at most 4 bytes, found 5 bytes"), "{message}");
    std::fs::write(&path, b"x\xff").unwrap();
    let message = io::read_text(&path, 5).unwrap_err().to_string();
    assert!(message.ends_with("expected letters of UTF-8, found others from byte 1 on"), "{message}");
    let message = io::read_text(folder.path(), 5).unwrap_err().to_string();
    assert!(message.ends_with("expected a file, found a folder"), "{message}");
}

/// What has no end is not begun; opening a pipe would wait for its writer.
#[cfg(unix)]
#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("x.npy");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), Path::new("/dev/zero")] {
        let path = path.to_path_buf();
        soon(move || {
            let messages = [
                io::open(&path).unwrap_err(),
                io::npy::Runs::open(&path).unwrap_err(),
                io::torch::read(&path).unwrap_err(),
                io::read_text(&path, 1 << 20).unwrap_err(),
            ];
            for message in messages.map(|error| error.to_string()) {
                assert!(message.ends_with("expected a file, found a device or a pipe"), "{message}");
            }
        });
    }
}

/// A file of 2 GB, most of it a hole, in a process that may have 512 MB.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let header = npy("<f4", "(536870912,)", 0);
    let file = std::fs::File::create(&path).unwrap();
    (&file).write_all(&header).unwrap();
    file.set_len(header.len() as u64 + (2 << 30)).unwrap();
    let output = std::process::Command::new("sh")
        .arg("-c")
        .arg("ulimit -v 524288 && exec \"$0\" --exact bounds::reads_the_file_of_the_environment --ignored --nocapture")
        .arg(std::env::current_exe().unwrap())
        .env("GALERKIN_LARGE_FILE", &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// The other half of the test above, in a process of its own.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs little memory and a file that does not fit it"]
fn reads_the_file_of_the_environment() {
    let Some(path) = std::env::var_os("GALERKIN_LARGE_FILE") else { return };
    let path = Path::new(&path);
    let file = io::open(path).unwrap();
    let runs = io::npy::Runs::open(path).unwrap();
    for (place, error) in [("x", file.read("x").unwrap_err()), ("values", runs.read(0, 1 << 29).unwrap_err())]
    {
        let message = error.to_string();
        assert!(message.starts_with(&format!("{}: {place}: ", path.display())), "{message}");
        assert!(message.ends_with("bytes of memory are needed and cannot be had"), "{message}");
    }
}
