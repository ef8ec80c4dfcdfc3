//! What a network keeps of the grid it is on: zeros on the ends of closed axes, and symmetry under shifts along periodic ones.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::layers::{Mode, TargetNormalizer, local_means, resized};
use galerkin::networks::{Network, NetworkConfig};
use galerkin_data::Array;
use galerkin_data::normalize::Normalizer;
use serde_json::{Value, json};

/// Which axes are periodic, points of the input, points of the output.
const GRIDS: [(&[bool], &[usize], &[usize]); 8] = [
    (&[false], &[9], &[9]),
    (&[true], &[8], &[8]),
    // Cylinders.
    (&[false, true], &[7, 8], &[7, 8]),
    (&[true, false], &[8, 7], &[12, 10]),
    (&[false, false], &[7, 9], &[13, 5]),
    (&[true, true], &[8, 6], &[8, 6]),
    (&[false, true, false], &[5, 6, 7], &[5, 6, 7]),
    (&[true, false, true], &[6, 5, 6], &[9, 7, 4]),
];

/// Exactly zero there, and nowhere else: a network with random weights has no other reason to be. A normaliser with a mean does not undo it.
#[test]
fn zero_on_the_ends_of_closed_axes_and_nowhere_else() {
    for (periodic, grid, output) in GRIDS {
        let resized = match grid == output {
            true => json!("input"),
            false => json!({ "resized": { "from": grid, "to": output } }),
        };
        let both = [transformer(periodic, &resized, "zero"), fno(periodic, &resized, "zero", true, 0.25)];
        for config in both.into_iter().chain(multilevel(periodic, &resized, "zero", true)) {
            let one = |value: f32| Array { shape: vec![2], values: vec![value; 2] };
            let normalizer = Normalizer::new(one(0.7), one(2.0)).unwrap();
            let normalizer = TargetNormalizer::new(&normalizer, &Device::flex()).unwrap();
            let network = init(&config);
            for network in [network.clone(), network.with_normalizer(normalizer)] {
                let y = run(&network, wave(grid, 2), grid);
                let points: usize = output.iter().product();
                assert_eq!(y.len(), 2 * 2 * points, "{periodic:?} {output:?}");
                for (at, values) in y.chunks_exact(2).enumerate() {
                    let at = place(at % points, output);
                    let mut axes = at.iter().zip(output).zip(periodic);
                    let end = axes.any(|((i, n), periodic)| !periodic && (*i == 0 || i + 1 == *n));
                    for value in values {
                        assert_eq!(*value == 0.0, end, "{periodic:?} {output:?}: {value} at {at:?}");
                    }
                }
            }
        }
    }
}

/// Without a boundary condition no point is set to zero.
#[test]
fn free_ends_are_not_zero() {
    for (periodic, grid, _) in GRIDS {
        let both = [
            transformer(periodic, &json!("input"), "free"),
            fno(periodic, &json!("input"), "free", true, 0.0),
        ];
        for config in both.into_iter().chain(multilevel(periodic, &json!("input"), "free", true)) {
            assert!(run(&init(&config), wave(grid, 2), grid).iter().all(|y| *y != 0.0), "{periodic:?}");
        }
    }
}

/// A Fourier operator that is not told where it is commutes with shifts along periodic axes, whether closed ones beside them are padded or
/// not; with coordinates it does not. Both sides are the same sums in another order: some ten sums of up to a hundred terms, 200 roundings
/// of the largest value.
#[test]
fn shifts_along_periodic_axes() {
    for (periodic, grid, _) in GRIDS {
        for axis in (0..grid.len()).filter(|axis| periodic[*axis]) {
            for padding in [0.0, 0.25] {
                let [without, with] =
                    [false, true].map(|told| init(&fno(periodic, &json!("input"), "zero", told, padding)));
                let x = wave(grid, 2);
                let there = shifted(&x, grid, axis, 3);
                let largest = |y: &[f32]| y.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let off = |network: &Network| {
                    let (y, of_shifted) = (run(network, x.clone(), grid), run(network, there.clone(), grid));
                    let y = shifted(&y, grid, axis, 3);
                    let errors: Vec<f32> = y.iter().zip(&of_shifted).map(|(a, b)| a - b).collect();
                    largest(&errors) / largest(&y)
                };
                let what = format!("{periodic:?} {grid:?}, axis {axis}, padding {padding}");
                assert!(off(&without) <= 200.0 * f32::EPSILON, "{what}: {}", off(&without));
                assert!(off(&with) > 1e-3, "{what}: coordinates change nothing: {}", off(&with));
            }
        }
    }
}

/// Padding is for closed axes: on a torus it changes nothing, on a cylinder it does.
#[test]
fn padding_is_for_closed_axes() {
    for (periodic, grid, _) in GRIDS {
        let [bare, padded] = [0.0, 0.5].map(|padding| {
            run(&init(&fno(periodic, &json!("input"), "free", true, padding)), wave(grid, 2), grid)
        });
        assert_eq!(bare == padded, periodic.iter().all(|periodic| *periodic), "{periodic:?}");
    }
}

/// Samples of a batch do not see each other.
#[test]
fn a_batch_is_its_samples() {
    for (periodic, grid, _) in GRIDS {
        let both = [
            transformer(periodic, &json!("input"), "zero"),
            fno(periodic, &json!("input"), "zero", true, 0.25),
        ];
        for config in both.into_iter().chain(multilevel(periodic, &json!("input"), "zero", true)) {
            let network = init(&config);
            let both = wave(grid, 2);
            let halves = both.chunks_exact(both.len() / 2);
            let apart: Vec<f32> = halves.flat_map(|x| run(&network, x.to_vec(), grid)).collect();
            assert_eq!(apart, run(&network, both.clone(), grid), "{periodic:?}");
        }
    }
}

/// On a grid that halves evenly, a multilevel network that is not told where it is commutes with shifts by a point of its coarsest level; not with shifts by
/// less, and not with coordinates. The same sums in another order, as above.
#[test]
fn a_multilevel_network_commutes_with_shifts_of_its_coarsest_points() {
    let grids: [(&[bool], &[usize]); 4] =
        [(&[true], &[16]), (&[true, true], &[16, 8]), (&[false, true], &[9, 16]), (&[true, false], &[8, 9])];
    for (periodic, grid) in grids {
        for axis in (0..grid.len()).filter(|axis| periodic[*axis]) {
            let off = |told: bool, by: usize| {
                let network = init(&multilevel(periodic, &json!("input"), "free", told).unwrap());
                let x = wave(grid, 2);
                let y = shifted(&run(&network, x.clone(), grid), grid, axis, by);
                let of_shifted = run(&network, shifted(&x, grid, axis, by), grid);
                let largest = |y: &[f32]| y.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let errors: Vec<f32> = y.iter().zip(&of_shifted).map(|(a, b)| a - b).collect();
                largest(&errors) / largest(&y)
            };
            let what = format!("{periodic:?} {grid:?}, axis {axis}");
            assert!(off(false, 4) <= 200.0 * f32::EPSILON, "{what}: {}", off(false, 4));
            assert!(off(false, 1) > 1e-4, "{what}: levels change nothing: {}", off(false, 1));
            assert!(off(true, 4) > 1e-4, "{what}: coordinates change nothing: {}", off(true, 4));
        }
    }
}

#[test]
fn multilevel_networks_are_counted_kept_and_refused() {
    use burn::module::Module;
    let folder = tempfile::tempdir().unwrap();
    for (periodic, grid) in [(&[true][..], &[12][..]), (&[false, true], &[9, 8])] {
        for spectral in [false, true] {
            let mut config =
                serde_json::to_value(multilevel(periodic, &json!("input"), "free", true)).unwrap();
            if spectral {
                config["decoder"] = convolutions(true, 0.25);
                config["decoder"]["kind"] = json!("spectral");
            }
            let config: NetworkConfig = serde_json::from_value(config).unwrap();
            let network = init(&config);
            assert_eq!(config.parameters(), network.num_params() as u64, "{periodic:?}");
            let parts = network.components(grid).unwrap();
            assert_eq!(parts.iter().map(|part| part.parameters).sum::<usize>(), network.num_params());
            assert!(parts.iter().all(|part| part.flops > 0), "{parts:?}");
            let path = folder.path().join("weights.safetensors");
            galerkin::weights::save(&network, &Default::default(), &path).unwrap();
            let read = galerkin::weights::load(&path).unwrap().into_network(&Device::flex()).unwrap();
            assert_eq!(run(&read, wave(grid, 1), grid), run(&network, wave(grid, 1), grid));
            // Three levels of four points are one point.
            let small: Vec<usize> = grid.iter().map(|_| 4).collect();
            let error = config.check_grid(&small).unwrap_err().to_string();
            assert!(error.contains("they need 5 along every axis"), "{error}");
        }
    }
    let with = |key: &str, value: Value| {
        let mut config = serde_json::to_value(multilevel(&[true], &json!("input"), "free", true)).unwrap();
        config[key] = value;
        let config: NetworkConfig = serde_json::from_value(config).unwrap();
        config.check().unwrap_err().to_string()
    };
    assert!(with("periodic", json!([true, true, true])).contains("1 and 2 axes"));
    assert!(with("encoder_layers", json!([1])).contains("each of the 3 levels"));
    assert!(with("channels", json!([])).contains("1 to 16"));
    assert!(with("output", json!("coarse")).contains("finest grid"));
}

/// Of three levels; `None` where there is none of so many axes.
/// The native grid: on it nothing changes, not a bit; finer inputs are means over its cells, coarser ones interpolated, and outputs interpolated
/// back. Axes are on their own: one may be finer and one coarser.
#[test]
fn inputs_of_other_grids_are_computed_on_the_native_one() {
    for (periodic, grid, output) in GRIDS {
        let resized_output = match grid == output {
            true => json!("input"),
            false => json!({ "resized": { "from": grid, "to": output } }),
        };
        let configs = [
            transformer(periodic, &resized_output, "zero"),
            fno(periodic, &resized_output, "zero", true, 0.25),
        ];
        for config in configs.into_iter().chain(multilevel(periodic, &resized_output, "zero", true)) {
            let plain = init(&config);
            let network = init(&with_native(&config, json!(grid)));
            assert_eq!(run(&network, wave(grid, 2), grid), run(&plain, wave(grid, 2), grid), "{periodic:?}");
            let other: Vec<usize> =
                grid.iter().enumerate().map(|(k, n)| if k == 1 { n / 2 + 1 } else { 2 * n + 1 }).collect();
            let shape = [1, other.iter().product(), 2];
            let x = Tensor::<3>::from_data(TensorData::new(wave(&other, 1), shape), &Device::flex());
            let coarser: Vec<usize> = other.iter().zip(grid).map(|(n, m)| *n.min(m)).collect();
            let there = local_means(x.clone(), &other, &coarser, periodic).unwrap();
            let there = resized(there, &coarser, grid, periodic).unwrap();
            let computed = plain.forward_points(there, grid, Mode::Evaluate, &mut |_, _, _| {}).unwrap();
            let to = network.config().output_grid(&other).unwrap();
            assert_eq!(to, plain.config().output_grid(&other).unwrap());
            let back = resized(computed, output, &to, periodic).unwrap();
            let y = network.forward_points(x, &other, Mode::Evaluate, &mut |_, _, _| {}).unwrap();
            let values = |t: Tensor<3>| t.into_data().try_into_vec::<f32>().unwrap();
            let (y, back) = (values(y), values(back));
            assert_eq!(y, back, "{periodic:?} {other:?}");
            // Interpolation keeps ends that are zero.
            let ends = y.chunks_exact(2).enumerate().filter(|(at, _)| {
                let at = place(*at, &to);
                at.iter()
                    .zip(&to)
                    .zip(periodic)
                    .any(|((i, n), periodic)| !periodic && (*i == 0 || i + 1 == *n))
            });
            assert!(ends.flat_map(|(_, y)| y).all(|y| *y == 0.0), "{periodic:?} {to:?}");
            assert_eq!(network.config().flops(&other).unwrap(), plain.config().flops(grid).unwrap());
        }
    }
}

#[test]
fn a_native_grid_that_cannot_be_is_refused_with_the_way_out() {
    let network = multilevel(&[true, false], &json!("input"), "free", true).unwrap();
    let refused = |native: Value| with_native(&network, native).check().unwrap_err().to_string();
    for native in [json!([8]), json!([8, 9, 8]), json!([0, 9]), json!([8, 70000])] {
        let error = refused(native.clone());
        assert!(
            error.contains("network.native = [") && error.contains("or [] for that of the input"),
            "{error}"
        );
    }
    let error = refused(json!([4, 9]));
    assert!(error.contains("they need 5 along every axis") && error.contains("or [] for that"), "{error}");
    let spectral = with_native(&fno(&[true], &json!("input"), "free", true, 0.0), json!([2]));
    assert!(spectral.check().unwrap_err().to_string().contains("modes"));
    let network = with_native(&network, json!([8, 9]));
    network.check().unwrap();
    network.check_grid(&[2, 300]).unwrap();
    let error = network.check_grid(&[8, 1]).unwrap_err().to_string();
    assert!(error.contains("nothing between its points"), "{error}");
}

fn with_native(config: &NetworkConfig, native: Value) -> NetworkConfig {
    let mut config = serde_json::to_value(config).unwrap();
    config["native"] = native;
    serde_json::from_value(config).unwrap()
}

fn multilevel(periodic: &[bool], output: &Value, boundary: &str, coordinates: bool) -> Option<NetworkConfig> {
    let config = json!({
        "kind": "multilevel", "inputs": 2, "outputs": 2, "periodic": periodic, "output": output,
        "boundary": boundary, "channels": [4, 6, 8], "convolutions": 1, "encoder_layers": [0, 1, 1],
        "coordinates": coordinates, "activation": "silu",
        "encoder": {
            "attention": "galerkin", "heads": 2, "expansion": 2, "activation": "relu", "head_norm": "layer",
            "residual_norm": false, "eps": 1e-5, "gain": 0.5, "diagonal": 0.5,
            "attention_dropout": 0.0, "residual_dropout": 0.0, "hidden_dropout": 0.0,
        },
        "decoder": { "kind": "pointwise", "coordinates": false, "layers": 1, "activation": "silu", "dropout": 0.0 },
    });
    (periodic.len() < 3).then(|| serde_json::from_value(config).unwrap())
}

fn transformer(periodic: &[bool], output: &Value, boundary: &str) -> NetworkConfig {
    let mut decoder = convolutions(true, 0.25);
    decoder["kind"] = json!("spectral");
    let config = json!({
        "kind": "transformer", "inputs": 2, "outputs": 2, "periodic": periodic, "output": output,
        "boundary": boundary, "lift": { "kind": "pointwise", "coordinates": true },
        "encoder": {
            "attention": "galerkin", "layers": 2, "width": 12, "heads": 2, "hidden": 20, "activation": "relu",
            "head_norm": "layer", "residual_norm": false, "eps": 1e-5, "gain": 0.5, "diagonal": 0.5,
            "attention_dropout": 0.0, "residual_dropout": 0.0, "hidden_dropout": 0.0,
        },
        "decoder": decoder,
    });
    serde_json::from_value(config).unwrap()
}

fn fno(periodic: &[bool], output: &Value, boundary: &str, coordinates: bool, padding: f64) -> NetworkConfig {
    let config = json!({
        "kind": "fno", "inputs": 2, "outputs": 2, "periodic": periodic, "output": output,
        "boundary": boundary, "spectral": convolutions(coordinates, padding),
    });
    serde_json::from_value(config).unwrap()
}

fn convolutions(coordinates: bool, padding: f64) -> Value {
    json!({
        "layers": 2, "channels": 6, "modes": 3, "feed_forward": 10, "activation": "silu",
        "last_activation": false, "coordinates": coordinates, "law": "uniform", "padding": padding,
        "dropout": 0.0,
    })
}

fn init(config: &NetworkConfig) -> Network {
    config.init(5, &Device::flex()).unwrap()
}

/// Of inputs (samples, points, 2).
fn run(network: &Network, x: Vec<f32>, grid: &[usize]) -> Vec<f32> {
    let points: usize = grid.iter().product();
    let x = TensorData::new(x.clone(), [x.len() / (2 * points), points, 2]);
    let x = Tensor::<3>::from_data(x, &Device::flex());
    let y = network.forward_points(x, grid, Mode::Evaluate, &mut |_, _, _| {}).unwrap();
    y.into_data().try_into_vec().unwrap()
}

/// Samples of two channels with values in [−1, 1] that do not repeat.
fn wave(grid: &[usize], samples: usize) -> Vec<f32> {
    let value = |i: usize| (1.3 * i as f64 + 0.01 * (i * i % 997) as f64).sin() as f32;
    (0..samples * grid.iter().product::<usize>() * 2).map(value).collect()
}

/// Two channels at every point, moved by so many points along an axis that goes round.
fn shifted(values: &[f32], grid: &[usize], axis: usize, by: usize) -> Vec<f32> {
    let points: usize = grid.iter().product();
    let after: usize = grid[axis + 1..].iter().product();
    let sample = |values: &[f32]| -> Vec<f32> {
        let from = |at: usize| {
            let i = at / after % grid[axis];
            at + ((i + by) % grid[axis]) * after - i * after
        };
        (0..points).flat_map(|at| values[2 * from(at)..][..2].to_vec()).collect()
    };
    values.chunks_exact(2 * points).flat_map(sample).collect()
}

/// The place of a point along each axis.
fn place(at: usize, grid: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut place = Vec::new();
    for n in grid.iter().rev() {
        place.push(rest % n);
        rest /= n;
    }
    place.reverse();
    place
}
