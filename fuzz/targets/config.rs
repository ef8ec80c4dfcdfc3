#![no_main]
//! The text of a run's config, and a `--set` behind it: what is parsed and checked can be counted and printed, and means the same again.

use std::path::Path;

use galerkin::config::RunConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // A last line `key=value` behind a form feed is what `--set` takes.
    let (text, set) = text.split_once('\u{c}').unwrap_or((text, ""));
    let sets: Vec<_> =
        set.split_once('=').map(|(key, value)| (key.into(), value.into())).into_iter().collect();
    let config = match RunConfig::parse(text, Path::new("x.toml"), &sets) {
        Ok(config) => config,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if config.check().is_ok() {
        let _ = config.network.parameters();
        let _ = config.total_steps();
    }
});
