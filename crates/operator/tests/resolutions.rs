//! The same weights on two grids: where the grids share points, the outputs agree up to the grids' own error.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::init::Builder;
use galerkin::layers::{AttentionKind, Mode};
use galerkin::models::{
    Field, FnoConfig, Model, ModelConfig, Preset, Transformer1dConfig, Transformer2dConfig,
};

const KINDS: [AttentionKind; 3] = [AttentionKind::Galerkin, AttentionKind::Fourier, AttentionKind::Softmax];

/// On a line the coordinate is not periodic: its mean over the grid is off by h/2, an error of first order.
#[test]
fn models_on_a_line() {
    let transformers = KINDS.map(|kind| ModelConfig::Transformer1d(Transformer1dConfig::burgers(kind)));
    let presets = [Preset::Burgers, Preset::FnoBurgers].map(Preset::config);
    for config in transformers.into_iter().chain(presets) {
        agree(&config, [64, 128, 256], 2.0 / 64.0);
    }
}

/// On a square convolutions see the zeros outside in a strip of their own width, and Fourier modes have the period of the grid, 1 + h:
/// errors of first order.
#[test]
fn models_on_a_square() {
    let transformers = KINDS.map(|kind| Transformer2dConfig::darcy(kind, 41, 21));
    for mut config in transformers {
        config.layers = 2;
        config.resampling.by_factor = false;
        agree(&ModelConfig::Transformer2d(config), [41, 81, 161], 10.0 / 40.0);
    }
    agree(&ModelConfig::Fno2d(FnoConfig::darcy()), [41, 81, 161], 10.0 / 40.0);
}

/// From a fine grid to the coarse one. The sizes nest: the coarse grids are 21, 41 and 81.
#[test]
fn the_inverse_model() {
    let mut config = Transformer2dConfig::darcy_inverse(AttentionKind::Galerkin, 41, 21);
    config.layers = 2;
    config.resampling.by_factor = false;
    agree(&ModelConfig::Transformer2d(config), [41, 81, 161], 10.0 / 40.0);
}

/// The outputs on three grids, each twice as fine as the one before, differ at shared points by less than `first` of their
/// spread, then by less than half of that, and the difference falls.
fn agree(config: &ModelConfig, grids: [usize; 3], first: f64) {
    let model = config.init(&mut Builder::new(2, &Device::flex())).unwrap();
    let [coarse, fine, finest] =
        [0, 1, 2].map(|level| shared_values(config, &model, grids[level], 1 << level));
    let scale = spread(&finest);
    let differences = [distance(&coarse, &fine) / scale, distance(&fine, &finest) / scale];
    let name = serde_json::to_string(config).unwrap();
    assert!(differences[0] < first && differences[1] < first / 2.0, "{differences:?}: {name}");
    assert!(differences[1] < 0.7 * differences[0] + 1e-5, "{differences:?} does not fall: {name}");
}

/// The output for a smooth function on n points a side, at every `step`-th of them.
fn shared_values(config: &ModelConfig, model: &Model, n: usize, step: usize) -> Vec<f32> {
    let device = Device::flex();
    match config.dimensions() {
        1 => {
            let wave = |j: usize| {
                let x = std::f64::consts::TAU * j as f64 / n as f64;
                (x.sin() + 0.5 * (3.0 * x + 1.0).cos()) as f32
            };
            let x = TensorData::new((0..n).map(wave).collect::<Vec<_>>(), [1, n, 1]);
            let y =
                values(model.forward(Field::Line(Tensor::from_data(x, &device)), Mode::Evaluate).unwrap());
            y.into_iter().step_by(step).collect()
        }
        _ => {
            let value = |at: usize| {
                let (x, y) = ((at % n) as f64 / (n - 1) as f64, (at / n) as f64 / (n - 1) as f64);
                ((4.0 * x).sin() * (3.0 * y).cos() + x * y) as f32
            };
            let x = TensorData::new((0..n * n).map(value).collect::<Vec<_>>(), [1, n, n, 1]);
            let y =
                values(model.forward(Field::Square(Tensor::from_data(x, &device)), Mode::Evaluate).unwrap());
            let n = config.output_grid(&[n, n]).unwrap()[0];
            let rows = y.chunks_exact(n).step_by(step);
            rows.flat_map(|row| row.iter().copied().step_by(step)).collect()
        }
    }
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

fn values(field: Field) -> Vec<f32> {
    match field {
        Field::Line(y) => y.into_data().try_into_vec().unwrap(),
        Field::Square(y) => y.into_data().try_into_vec().unwrap(),
    }
}
