//! Files written by scipy, h5py, numpy and safetensors, against the values those libraries read back.

use galerkin_data::io::{self, Format, Kind};
use galerkin_data::{Array, Error};
use serde_json::Value;

use crate::support::{EVERY_FORMAT, fixture};

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

fn shape_of(value: &Value) -> Vec<usize> {
    value["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

#[test]
fn matlab_files_hold_the_expected_arrays() {
    let index = json("mat/mat_index.json");
    let files = index["files"].as_array().unwrap();
    assert_eq!(files.len(), 9);
    for file in files {
        let name = file["file"].as_str().unwrap();
        let opened = io::open(fixture(&format!("mat/{name}"))).unwrap();
        let format = if name.contains("v73") { Format::Mat73 } else { Format::Mat5 };
        assert_eq!(opened.format(), format, "{name}");
        let variables = file["variables"].as_object().unwrap();
        assert_eq!(opened.variables().len(), variables.len(), "{name}: {:?}", opened.variables());
        for (variable, description) in variables {
            let expected = fixture(&format!("mat/{}", description["expected"].as_str().unwrap()));
            let expected = io::open(expected).unwrap();
            let expected = expected.read(&expected.variables()[0].name).unwrap();
            assert_eq!(expected.shape, shape_of(description));
            assert_eq!(opened.variable(variable).unwrap().shape, expected.shape, "{name} {variable}");
            // Both are the same doubles, rounded the same way.
            assert_eq!(opened.read(variable).unwrap(), expected, "{name} {variable}");
        }
    }
}

#[test]
fn every_type_and_layout_is_read_as_it_was_written() {
    for (name, variables) in json("written/expected.json").as_object().unwrap() {
        let file = io::open(fixture(&format!("written/{name}"))).unwrap();
        let variables = variables.as_object().unwrap();
        assert_eq!(file.variables().len(), variables.len(), "{name}: {:?}", file.variables());
        for (variable, expected) in variables {
            if expected.is_null() {
                let error = file.read(variable).unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{name}: {error}");
                continue;
            }
            let values = expected["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32);
            let expected = Array { shape: shape_of(expected), values: values.collect() };
            assert_eq!(file.read(variable).unwrap(), expected, "{name} {variable}");
        }
    }
}

#[test]
fn formats_are_told_by_content_whatever_the_name() {
    for (name, format) in [
        ("written/types.npz", Format::Npz),
        ("written/version2.npy", Format::Npy),
        ("written/classes.mat", Format::Mat5),
        ("mat/burgers_v73.mat", Format::Mat73),
        ("written/types.h5", Format::Hdf5),
        ("written/types.safetensors", Format::Safetensors),
        ("torch/data.pt", Format::Torch),
    ] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        assert_eq!(io::File::from_bytes("nameless", bytes).unwrap().format(), format, "{name}");
    }
    let error = io::File::from_bytes("letter.txt", b"Dear reader".to_vec()).unwrap_err().to_string();
    assert!(error.starts_with("letter.txt: first bytes: expected a file of numpy"), "{error}");
    // Too damaged to tell: the extension decides who complains.
    let error = io::File::from_bytes("x.safetensors", vec![1, 2, 3]).unwrap_err().to_string();
    assert_eq!(
        error,
        "x.safetensors: length of the header: expected 8 bytes from byte 0 on, found a file of 3 bytes"
    );
}

#[test]
fn types_are_named_as_numpy_names_them() {
    let file = io::open(fixture("written/classes.mat")).unwrap();
    let kind = |name: &str| file.variable(name).unwrap().kind.name().to_owned();
    assert_eq!(kind("x_f8"), "float64");
    assert_eq!(kind("x_u2"), "uint16");
    assert_eq!(kind("logical"), "bool");
    assert_eq!(file.variable("cell").unwrap().kind, Kind::Other("a cell array".into()));
    assert_eq!(file.variable("complex").unwrap().kind, Kind::Other("an array of complex numbers".into()));
    let error = file.read("y").unwrap_err().to_string();
    assert!(error.contains("no variable `y`; the file has x_f8, x_f4, "), "{error}");
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let error = io::open(fixture("written/nothing.mat")).unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("nothing.mat"), "{error}");
    let error = io::open(fixture("written")).unwrap_err().to_string();
    assert!(error.contains("expected a file, found a folder"), "{error}");
}

/// Blocks follow each other, and put together and in order they are what `read` gives.
#[test]
fn blocks_make_up_the_whole() {
    for name in EVERY_FORMAT {
        let file = io::open(fixture(name)).unwrap();
        for variable in file.variables().iter().filter(|v| matches!(v.kind, Kind::Numbers(_))) {
            let mut stored = Vec::new();
            file.scan(&variable.name, &mut |at, block| {
                assert_eq!(at, stored.len());
                stored.extend_from_slice(block);
                Ok(())
            })
            .unwrap();
            let whole = file.read(&variable.name).unwrap();
            let mut order = variable.order.clone();
            // Where the value of every row-major index is in the order of the file.
            let place = |at: usize| {
                let mut rest = at;
                let mut index = vec![0; variable.shape.len()];
                for axis in (0..variable.shape.len()).rev() {
                    index[axis] = rest % variable.shape[axis];
                    rest /= variable.shape[axis];
                }
                variable.order.iter().fold(0, |place, axis| place * variable.shape[*axis] + index[*axis])
            };
            for (at, value) in whole.values.iter().enumerate() {
                assert_eq!(value.to_bits(), stored[place(at)].to_bits(), "{name}: {}", variable.name);
            }
            assert_eq!(stored.len(), whole.values.len());
            order.sort_unstable();
            assert_eq!(order, (0..variable.shape.len()).collect::<Vec<_>>());
        }
    }
}

/// An error of the one who takes the blocks ends the reading.
#[test]
fn whoever_takes_blocks_can_stop() {
    let file = io::open(fixture("mat/burgers_v73_chunked.mat")).unwrap();
    let mut calls = 0;
    let stopped = file.scan("a", &mut |_, _| {
        calls += 1;
        Err(galerkin_data::Error::Io { path: "x".into(), source: std::io::ErrorKind::Interrupted.into() })
    });
    assert!(stopped.is_err());
    assert_eq!(calls, 1);
}
