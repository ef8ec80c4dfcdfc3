#![no_main]
//! Weight files: whatever was read can be asked for its config. Of a file that accounts for all its numbers the network is built.

use std::sync::LazyLock;

use galerkin::{device, reference, weights};
use libfuzzer_sys::fuzz_target;

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);
/// Numbers of a network that is built: many such in a second.
const SMALL: u64 = 10_000;

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
    let config = match weights.config() {
        Ok(config) => config,
        Err(error) => return galerkin_fuzz::named("x.safetensors", &error),
    };
    // A larger one is refused unless the file is as large.
    let count = config.parameters();
    if count > SMALL && count <= bytes.len() as u64 / 4 {
        return;
    }
    let arrays = weights.arrays.clone();
    match weights.into_network(&device::parse("cpu").expect("always there")) {
        Ok(network) => {
            assert_eq!(*network.config(), config);
            // Bits, for there may be NaN among them.
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            for (name, array) in reference::export(&network) {
                assert_eq!(array.shape, arrays[&name].shape, "{name}");
                assert_eq!(bits(&array.values), bits(&arrays[&name].values), "{name}");
            }
        }
        Err(error) => galerkin_fuzz::named("x.safetensors", &error),
    }
});
