#![no_main]
//! The text of `meta.toml`: what is parsed passes its own check, says itself in words, and survives being written.

use galerkin_data::{Domain, Meta};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(meta) = Meta::parse(text) else { return };
    meta.check().expect("what was parsed is checked");
    for domain in [&meta.domain, meta.target_domain()] {
        let _ = domain.to_string();
        if let Domain::Grid(grid) = domain {
            assert_eq!(grid.sizes().len(), grid.strides().len());
            assert!(grid.spacing().iter().all(|spacing| spacing.is_finite()), "{grid:?}");
        }
    }
    // Texts and not values are compared: a NaN is not itself. Numbers beyond those of TOML cannot be written.
    if let Ok(text) = toml::to_string(&meta) {
        let again = Meta::parse(&text).expect("what was written is read");
        assert_eq!(toml::to_string(&again).as_deref(), Ok(text.as_str()));
    }
});
