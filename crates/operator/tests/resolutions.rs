//! The same weights on several grids: where the grids share points, the outputs agree up to the grids' own error.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::evaluate::{Among, Evaluator, Interpolated};
use galerkin::layers::{AttentionKind, Mode};
use galerkin::networks::{LiftConfig, Network, NetworkConfig, TransformerConfig};
use galerkin::presets;
use galerkin::run::{RunFolder, Snapshot};
use galerkin::train::Trainer;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Coefficient, Darcy, Problem};
use galerkin_data::random_field::FieldLaw;
use serde_json::{Value, json};
use std::f64::consts::TAU;
use std::ops::ControlFlow;

const KINDS: [AttentionKind; 3] = [AttentionKind::Galerkin, AttentionKind::Fourier, AttentionKind::Softmax];

/// On a line the coordinate is not periodic: its mean over the grid is off by h/2, an error of first order.
#[test]
fn networks_on_a_line() {
    let transformers = KINDS.map(|kind| {
        let mut config = transformer("burgers");
        config.encoder.attention = kind;
        NetworkConfig::Transformer(config)
    });
    let operator = presets::get("fno-burgers").unwrap().network;
    for config in transformers.into_iter().chain([operator]) {
        agree(&config, [64, 128, 256].map(|n| vec![n]), 2.0 / 64.0);
    }
}

/// On a square convolutions see the zeros outside in a strip of their own width, and Fourier modes have the period of the grid, 1 + h:
/// errors of first order.
#[test]
fn networks_on_a_square() {
    for kind in KINDS {
        let config = on_nested_grids("darcy", kind);
        agree(&config, squares(), 10.0 / 40.0);
    }
    agree(&presets::get("fno-darcy").unwrap().network, squares(), 10.0 / 40.0);
}

/// From a fine grid to the coarse one. The sizes nest: the coarse grids are 21, 41 and 81.
#[test]
fn the_inverse_network() {
    agree(&on_nested_grids("darcy-inverse", AttentionKind::Galerkin), squares(), 10.0 / 40.0);
}

/// On a torus, with other numbers of points along its two axes, the coordinates alone are not periodic: as on a line, their means are off
/// by h/2 along each, h here at most 1/16.
#[test]
fn transformers_on_a_torus() {
    for kind in KINDS {
        let config = json!({
            "kind": "transformer", "inputs": 1, "outputs": 1, "periodic": [true, true], "boundary": "free",
            "lift": { "kind": "pointwise", "coordinates": true },
            "encoder": {
                "attention": kind, "layers": 2, "width": 24, "heads": 2, "hidden": 48, "activation": "relu",
                "head_norm": "layer", "residual_norm": false, "eps": 1e-5, "gain": 0.01, "diagonal": 0.01,
                "attention_dropout": 0.0, "residual_dropout": 0.0, "hidden_dropout": 0.0,
            },
            "decoder": {
                "kind": "spectral", "layers": 2, "channels": 12, "modes": 5, "feed_forward": 24,
                "activation": "silu", "last_activation": true, "coordinates": false, "law": "normal",
                "padding": 0.0, "dropout": 0.0,
            },
        });
        agree(&serde_json::from_value(config).unwrap(), tori(), 1.0 / 16.0);
    }
}

/// A Fourier operator without coordinates is a map of periodic functions, whatever the grid: it only sees modes. What an activation adds
/// beyond the grid's modes comes back folded; for a smooth activation that falls faster than any power of h. Products of three of the kept
/// modes fit on the first grid, so that little is folded there, and on the next only roundings are left.
#[test]
fn a_fourier_operator_without_coordinates_on_a_torus() {
    let config = json!({
        "kind": "fno", "inputs": 1, "outputs": 1, "periodic": [true, true], "boundary": "free",
        "spectral": {
            "layers": 3, "channels": 8, "modes": 5, "feed_forward": 16, "activation": "gelu",
            "last_activation": false, "coordinates": false, "law": "uniform", "padding": 0.0, "dropout": 0.0,
        },
    });
    let config: NetworkConfig = serde_json::from_value(config).unwrap();
    let differences = differences(&config, tori());
    assert!(differences[0] < 1e-4 && differences[1] < 1e-5, "{differences:?}");
}

/// A padded Fourier operator on a closed line. The zeros behind its end keep their share of the intervals, but the last point and the period
/// that goes round it are off by h: an error of first order.
#[test]
fn a_padded_fourier_operator() {
    let NetworkConfig::Fno(mut config) = presets::get("fno-burgers").unwrap().network else {
        panic!("a Fourier operator")
    };
    (config.periodic, config.spectral.padding) = (vec![false], 0.25);
    agree(&NetworkConfig::Fno(config), [65, 129, 257].map(|n| vec![n]), 2.0 / 64.0);
}

/// Trained models keep their errors from half to four times the grid of their training. The inputs have modes that half of the grid still carries:
/// two on the circle, and three cosines along each axis of the square.
#[test]
fn trained_models_keep_their_errors_on_other_grids() {
    let temporary = tempfile::tempdir().unwrap();
    let [line, square] = ["line", "square"].map(|name| temporary.path().join(name));
    let initial = FieldLaw { modes: 2, ..FieldLaw::BURGERS };
    let burgers = Burgers { points: 256, viscosity: 0.02, tolerance: 1e-6, initial, ..Burgers::default() };
    let field = FieldLaw { modes: 3, ..FieldLaw::DARCY };
    let coefficient = Coefficient::Lognormal { location: 0.0, scale: 0.5 };
    let darcy = Darcy { points: 129, field, coefficient, ..Darcy::default() };
    for (folder, problem) in [(&line, Problem::Burgers(burgers)), (&square, Problem::Darcy(darcy))] {
        write_dataset(folder, &problem, 5, 88, |_| ControlFlow::Continue(())).unwrap();
    }
    let multilevel = json!({
        "kind": "multilevel", "inputs": 1, "outputs": 1, "periodic": [true], "native": [64], "boundary": "free",
        "channels": [16, 24, 32], "convolutions": 1, "encoder_layers": [0, 0, 1], "coordinates": false,
        "activation": "silu",
        "encoder": {
            "attention": "galerkin", "heads": 2, "expansion": 2, "activation": "relu", "head_norm": "layer",
            "residual_norm": false, "eps": 1e-5, "gain": 0.01, "diagonal": 0.01,
            "attention_dropout": 0.0, "residual_dropout": 0.0, "hidden_dropout": 0.0,
        },
        "decoder": { "kind": "pointwise", "coordinates": false, "layers": 1, "activation": "silu", "dropout": 0.0 },
    });
    let narrow =
        [("network.encoder.width", "24"), ("network.encoder.hidden", "48"), ("network.encoder.layers", "2")];
    let fno = [("network.spectral.channels", "16"), ("network.spectral.layers", "2")];
    let lift = [("network.lift.coarse", "9"), ("network.native", "[33, 33]")];
    let kinds: [(&str, &str, Vec<_>, Option<&Value>); 4] = [
        ("transformer", "burgers", narrow.to_vec(), None),
        ("fno", "fno-burgers", fno.to_vec(), None),
        ("multilevel with a native grid", "fno-burgers", vec![], Some(&multilevel)),
        ("interpolation with a native grid", "darcy", [&narrow[..], &lift].concat(), None),
    ];
    for (kind, preset, more, network) in kinds {
        let on_a_line = preset != "darcy";
        let (data, grid) = if on_a_line { (&line, "64") } else { (&square, "33") };
        let common = [
            ("data.folder", data.to_str().unwrap()),
            ("data.grid", grid),
            ("data.train", "64"),
            ("data.validation", "8"),
            ("data.test", "16"),
            ("train.epochs", if on_a_line { "20" } else { "8" }),
            ("train.batch", "4"),
            ("train.lr", "3e-3"),
        ];
        let sets: Vec<_> =
            common.iter().chain(&more).map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let keys: Vec<_> = sets.iter().map(|(key, _)| key.clone()).collect();
        let mut config = presets::get(preset).unwrap().with(&sets).unwrap().with_grids(&keys).unwrap();
        if let Some(network) = network {
            config.network = serde_json::from_value(network.clone()).unwrap();
        }
        let folder = RunFolder::new(temporary.path().join(kind));
        Trainer::new(&config).out(folder.path()).run(&mut |_| ControlFlow::Continue(())).unwrap();
        let evaluator =
            Evaluator::open(&folder, Snapshot::Last, None, Among::Unseen, &Device::flex()).unwrap();
        let (trained, grids, between): (_, _, [usize; 2]) =
            if on_a_line { (64, [32, 128, 256], [45, 91]) } else { (33, [17, 65, 129], [24, 47]) };
        let error = |grid: usize| evaluator.evaluate_anywhere(grid, 0.0).unwrap().relative_l2.mean;
        let own = error(trained);
        let ratios: Vec<f64> = grids.iter().chain(&between).map(|grid| error(*grid) / own).collect();
        // Trained: knowing nothing is an error of about one.
        assert!(own < 0.2, "{kind}: {own}");
        assert!(ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.1), "{kind}: {own:.4}, {ratios:.3?}");

        // What `--resolutions` evaluates: from half of the training grid, or a quarter, to the dataset's own.
        let found = evaluator.resolutions().unwrap();
        assert!((6..=9).contains(&found.len()), "{kind}: {found:?}");
        assert!(
            found.is_sorted() && found.contains(&trained) && found.contains(&grids[0]),
            "{kind}: {found:?}"
        );
        assert_eq!(found.last(), Some(&grids[2]), "{kind}: {found:?}");
        let made = evaluator.evaluate_anywhere(between[0], 0.0).unwrap();
        assert_eq!((made.grid, made.interpolated), (between[0], Interpolated::Targets), "{kind}");
    }
}

/// The transformer of a preset.
fn transformer(preset: &str) -> TransformerConfig {
    match presets::get(preset).unwrap().network {
        NetworkConfig::Transformer(config) => config,
        other => panic!("{preset} is {other:?}"),
    }
}

/// A preset on a square with two layers, made for 41 points a side and 21 of the encoder.
fn on_nested_grids(preset: &str, kind: AttentionKind) -> NetworkConfig {
    let mut config = transformer(preset);
    (config.encoder.attention, config.encoder.layers) = (kind, 2);
    let LiftConfig::Interpolation(lift) = &mut config.lift else { panic!("{preset}: {:?}", config.lift) };
    (lift.fine, lift.coarse, lift.by_factor) = (41, 21, false);
    NetworkConfig::Transformer(config)
}

fn squares() -> [Vec<usize>; 3] {
    [41, 81, 161].map(|n| vec![n; 2])
}

fn tori() -> [Vec<usize>; 3] {
    [1, 2, 4].map(|factor| vec![20 * factor, 16 * factor])
}

/// The outputs on three grids, each twice as fine as the one before, differ at shared points by less than `first` of their
/// spread, then by less than half of that, and the difference falls.
fn agree(config: &NetworkConfig, grids: [Vec<usize>; 3], first: f64) {
    let differences = differences(config, grids);
    let name = serde_json::to_string(config).unwrap();
    assert!(differences[0] < first && differences[1] < first / 2.0, "{differences:?}: {name}");
    assert!(differences[1] < 0.7 * differences[0] + 1e-5, "{differences:?} does not fall: {name}");
}

/// How far the outputs of the first and the second grid, and of the second and the third, are apart, in parts of their spread.
fn differences(config: &NetworkConfig, grids: [Vec<usize>; 3]) -> [f64; 2] {
    let network = config.init(2, &Device::flex()).unwrap();
    let [coarse, fine, finest] = [0, 1, 2].map(|level| shared_values(&network, &grids[level], 1 << level));
    let scale = spread(&finest);
    [distance(&coarse, &fine) / scale, distance(&fine, &finest) / scale]
}

/// The output for a smooth function on a grid, at every `step`-th point along each axis.
fn shared_values(network: &Network, grid: &[usize], step: usize) -> Vec<f32> {
    let config = network.config();
    let x: Vec<f32> = points(grid).map(|at| function(&at, grid, config.periodic())).collect();
    let x = Tensor::from_data(TensorData::new(x, [1, grid.iter().product(), 1]), &Device::flex());
    let y = network.forward_points(x, grid, Mode::Evaluate, &mut |_, _, _| {}).unwrap();
    let channels = y.dims()[2];
    let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
    let output = config.output_grid(grid).unwrap();
    let kept = points(&output).zip(y.chunks_exact(channels));
    kept.filter(|(at, _)| at.iter().all(|i| i % step == 0)).flat_map(|(_, y)| y.iter().copied()).collect()
}

/// The places of a grid's points along its axes, the last axis running fastest.
fn points(grid: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let grid = grid.to_vec();
    (0..grid.iter().product()).map(move |at| {
        let (mut rest, mut place) = (at, Vec::new());
        for n in grid.iter().rev() {
            place.push(rest % n);
            rest /= n;
        }
        place.reverse();
        place
    })
}

/// A smooth function, periodic along the axes that are, where it has modes up to the third alone.
fn function(at: &[usize], grid: &[usize], periodic: &[bool]) -> f32 {
    let place = |axis: usize| {
        let intervals = if periodic[axis] { grid[axis] } else { grid[axis] - 1 };
        at[axis] as f64 / intervals as f64
    };
    let value = match periodic {
        [true] => (TAU * place(0)).sin() + 0.5 * (3.0 * TAU * place(0) + 1.0).cos(),
        [true, true] => {
            let (y, x) = (TAU * place(0), TAU * place(1));
            x.sin() * (2.0 * y).cos() + 0.5 * (3.0 * x - y + 1.0).cos()
        }
        [false] => (4.0 * place(0)).sin() + place(0),
        [false, false] => {
            let (y, x) = (place(0), place(1));
            (4.0 * x).sin() * (3.0 * y).cos() + x * y
        }
        other => panic!("no function on a grid that is periodic along {other:?}"),
    };
    value as f32
}

/// Root mean square difference.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(a, b)| ((a - b) as f64).powi(2)).sum();
    (squares / a.len() as f64).sqrt()
}

/// Root mean square deviation from the mean.
fn spread(a: &[f32]) -> f64 {
    let mean = a.iter().map(|v| *v as f64).sum::<f64>() / a.len() as f64;
    distance(a, &vec![mean as f32; a.len()])
}
