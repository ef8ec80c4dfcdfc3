#![no_main]
//! Weight files: whatever was read can be asked for its config. Of a file that accounts for all its numbers the network is built.

use std::borrow::Cow;
use std::sync::LazyLock;

use galerkin::{device, reference, weights};
use galerkin_fuzz::{Bounded, bits};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);
/// Numbers of a network that is built: many such in a second.
const SMALL: u64 = 10_000;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &*file(bytes);
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
            let mut of_file = arrays;
            of_file.retain(|name, _| !name.starts_with("normalizer."));
            assert_eq!(bits(&reference::export(&network)), bits(&of_file));
        }
        Err(error) => galerkin_fuzz::named("x.safetensors", &error),
    }
});

/// The file, or one of a header, a form feed, which no header has, and values: in front of it the length of the header is right, however it was changed.
fn file(bytes: &[u8]) -> Cow<'_, [u8]> {
    let end = bytes.iter().position(|byte| *byte == 0xc).filter(|_| bytes.starts_with(b"{\""));
    match end {
        None => bytes.into(),
        Some(end) => [&(end as u64).to_le_bytes(), &bytes[..end], &bytes[end + 1..]].concat().into(),
    }
}
