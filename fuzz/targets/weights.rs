#![no_main]
//! Weight files: whatever was read can be asked for its config. Networks are built from files that account for all their numbers.

use std::sync::LazyLock;

use galerkin::weights;
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);

fuzz_target!(|bytes: &[u8]| {
    let path = SCRATCH.path().join("x.safetensors");
    std::fs::write(&path, bytes).expect("a file in memory");
    let weights = match weights::load(&path) {
        Ok(weights) => weights,
        Err(error) => return galerkin_fuzz::named("x.safetensors", &error),
    };
    for (name, array) in &weights.arrays {
        let len = array.shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        assert_eq!(len, Some(array.values.len()), "{name}");
        assert!(4 * array.values.len() <= bytes.len(), "{name}");
    }
    if let Err(error) = weights.config() {
        galerkin_fuzz::named("x.safetensors", &error);
    }
});
