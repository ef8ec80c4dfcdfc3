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
    let origin = Path::new("x.toml");
    let config = match RunConfig::parse(text, origin, &sets) {
        Ok(config) => config,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    config.check().expect("what is parsed is checked");
    let _ = config.network.parameters();
    let _ = config.total_steps();
    for printed in [config.to_toml(), config.to_commented_toml()] {
        let again = RunConfig::parse(&printed, origin, &[]).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(again, config, "{printed}");
    }
});
