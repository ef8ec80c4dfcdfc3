#![no_main]
//! The text of a run's config, and a `--set` behind it: what is parsed and checked can be counted and printed, and means the same again. A small network is
//! built, saved and loaded, and predicts on small grids.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use galerkin::config::RunConfig;
use galerkin::networks::NetworkConfig;
use galerkin::reference::{Array, export};
use galerkin::{Model, device, weights};
use galerkin_fuzz::{Bounded, bits};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

static SCRATCH: LazyLock<tempfile::TempDir> = LazyLock::new(galerkin_fuzz::scratch);
/// Numbers of a network that is built: hundreds such in a second.
const SMALL: u64 = 4_000;
/// Points of a grid that is predicted on, and of what is predicted.
const FEW: usize = 1_000;

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
    let _ = config.total_steps();
    for printed in [config.to_toml(), config.to_commented_toml()] {
        let again = RunConfig::parse(&printed, origin, &[]).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        assert_eq!(again, config, "{printed}");
    }
    if config.network.parameters() <= SMALL {
        exercise_network(&config.network, config.train.seed);
    }
});

fn exercise_network(config: &NetworkConfig, seed: u64) {
    let device = device::parse("cpu").expect("always there");
    let network = config.init(seed, &device).expect("what is checked can be built");
    let saved = export(&network);
    let count: usize = saved.values().map(|array| array.values.len()).sum();
    assert_eq!(config.parameters(), count as u64);
    let path = SCRATCH.path().join("x.safetensors");
    weights::save(&network, &BTreeMap::new(), &path).expect("a file in memory");
    let model = Model::load(&path).expect("just written");
    // The config is not compared: without its feature `float_roundtrip` serde_json may miss the last digit of a number.
    assert_eq!(bits(&export(model.network())), bits(&saved));

    let [inputs, outputs] = config.channels();
    for n in [1, 2, 5, 8] {
        let grid = vec![n; config.axes()];
        let points = |grid: &[usize]| grid.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        let few = |grid: &[usize]| points(grid).is_some_and(|points| points <= FEW);
        let (Ok(()), Ok(output)) = (config.check_grid(&grid), config.output_grid(&grid)) else { continue };
        if !few(&grid) || !few(&output) {
            continue;
        }
        let shape = |grid: &[usize], channels| [&[1], grid, &[channels]].concat();
        let len = points(&grid).expect("few") * inputs;
        let values = (0..len).map(|i| (i % 7) as f32 - 3.0).collect();
        let predicted = model.predict(Array { shape: shape(&grid, inputs), values });
        let predicted = predicted.unwrap_or_else(|e| panic!("{e} on {grid:?}, which was checked"));
        assert_eq!(predicted.shape, shape(&output, outputs));
    }
}
