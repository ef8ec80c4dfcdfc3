#![no_main]
//! The words of `import`, one flag and its value per line, for files that are sound: a dataset comes out, or an error.

use std::path::PathBuf;
use std::sync::LazyLock;

use galerkin_data::Dataset;
use galerkin_data::import::Import;
use libfuzzer_sys::fuzz_target;

/// Files by letter, relative to the fixtures of the readers.
const FILES: [(&str, &str); 4] = [
    ("b", "mat/burgers_v5.mat"),
    ("d", "mat/darcy_v5.mat"),
    ("t", "torch/data.pt"),
    ("n", "written/types.npz"),
];

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);

fuzz_target!(|text: &str| {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/data/tests/fixtures"));
    let mut import = Import { memory: 4096, ..Import::default() };
    for line in text.lines() {
        let (flag, value) = line.split_once(' ').unwrap_or((line, ""));
        let words = || value.split(',').map(String::from).collect::<Vec<_>>();
        let pair = || value.split_once('=').unwrap_or((value, ""));
        let number = || value.parse().unwrap_or(0);
        match flag {
            "files" => {
                let paths = value.split(',').filter_map(|word| FILES.iter().find(|(name, _)| *name == word));
                import.files.extend(paths.take(4).map(|(_, path)| fixtures.join(path)));
            }
            "inputs" => import.variables.inputs = words(),
            "targets" => import.variables.targets = words(),
            "layout" => import.layout = words(),
            "input-layout" => import.input_layout = words(),
            "target-layout" => import.target_layout = words(),
            "periodic" => import.periodic = words(),
            "length" => import.lengths.push((pair().0.into(), pair().1.parse().unwrap_or(1.0))),
            "origin" => import.origins.push((pair().0.into(), pair().1.parse().unwrap_or(0.0))),
            "coordinates" => import.coordinates.push((pair().0.into(), pair().1.into())),
            "points" => import.points.coordinates = words(),
            "points-layout" => import.points.layout = words(),
            "weights" => import.points.weights = Some(value.into()),
            "cells" => import.points.cells = Some(value.into()),
            "cells-from" => import.points.cells_from = number(),
            "offsets" => import.points.offsets = Some(value.into()),
            "subsample" => import.subsample = number(),
            _ => {}
        }
    }
    let folder = SCRATCH.path().join("dataset");
    match import.write(&folder) {
        Ok(meta) => {
            let dataset = Dataset::open(&folder).expect("what was imported opens");
            assert_eq!(dataset.len(), meta.samples);
            dataset.sample(meta.samples - 1).expect("what was imported is read");
            std::fs::remove_dir_all(&folder).expect("the folder is ours");
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!folder.exists(), "an import that failed leaves nothing");
        }
    }
});
