#![no_main]
//! Any file, imported with every layout that its first array may have.

use std::sync::LazyLock;

use galerkin_data::import::{Import, Variables};
use galerkin_data::io::{self, Kind};
use libfuzzer_sys::fuzz_target;

const LAYOUTS: [&str; 7] =
    ["", "samples", "samples,channels", "channels,samples", "samples,x", "x,samples", "samples,y,x"];

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);

fuzz_target!(|bytes: &[u8]| {
    let (path, folder) = (SCRATCH.path().join("file"), SCRATCH.path().join("dataset"));
    std::fs::write(&path, bytes).expect("a file in memory");
    let Ok(file) = io::open(&path) else { return };
    let Some(variable) = file.variables().iter().find(|v| matches!(v.kind, Kind::Numbers(_))) else { return };
    for layout in LAYOUTS {
        let import = Import {
            files: vec![path.clone()],
            variables: Variables {
                inputs: vec![variable.name.clone()],
                targets: vec![variable.name.clone()],
            },
            input_layout: layout.split(',').filter(|word| !word.is_empty()).map(String::from).collect(),
            subsample: 1 + usize::from(layout.len() == 9),
            ..Import::default()
        };
        match import.write(&folder) {
            Ok(meta) => {
                assert!(meta.samples > 0);
                std::fs::remove_dir_all(&folder).expect("the folder is ours");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
