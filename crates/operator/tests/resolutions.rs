//! The same weights on two grids: where the grids share points, the outputs agree up to the grids' own error.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::init::Builder;
use galerkin::layers::{AttentionKind, Mode};
use galerkin::models::{Transformer1dConfig, Transformer2dConfig};

const KINDS: [AttentionKind; 3] = [AttentionKind::Galerkin, AttentionKind::Fourier, AttentionKind::Softmax];

#[test]
fn a_1d_transformer_on_nested_grids() {
    let device = Device::flex();
    for kind in KINDS {
        let model = Transformer1dConfig::burgers(kind).init(&mut Builder::new(2, &device)).unwrap();
        let run = |n: usize| {
            let wave = |j: usize| {
                let x = std::f64::consts::TAU * j as f64 / n as f64;
                (x.sin() + 0.5 * (3.0 * x + 1.0).cos()) as f32
            };
            let x = TensorData::new((0..n).map(wave).collect::<Vec<_>>(), [1, n, 1]);
            values(model.forward(Tensor::<3>::from_data(x, &device), Mode::Evaluate).unwrap())
        };
        let on_finest = |n: usize, y: Vec<f32>| -> Vec<f32> { y.into_iter().step_by(n / 64).collect() };
        let [coarse, fine, finest] = [64, 128, 256].map(|n| on_finest(n, run(n)));
        let scale = spread(&finest);
        let (first, second) = (distance(&coarse, &fine) / scale, distance(&fine, &finest) / scale);
        // The coordinate is not periodic: its mean over the grid is off by h/2, an error of first order.
        assert!(first < 2.0 / 64.0 && second < 2.0 / 128.0, "{kind:?}: {first:.1e}, {second:.1e}");
        assert!(second < 0.7 * first + 1e-5, "{kind:?}: {first:.1e} does not fall, {second:.1e}");
    }
}

#[test]
fn a_2d_transformer_on_nested_grids() {
    let device = Device::flex();
    for kind in KINDS {
        let mut config = Transformer2dConfig::darcy(kind, 41, 21);
        config.layers = 2;
        config.resampling.by_factor = false;
        let model = config.init(&mut Builder::new(2, &device)).unwrap();
        let run = |n: usize| {
            let value = |at: usize| {
                let (x, y) = ((at % n) as f64 / (n - 1) as f64, (at / n) as f64 / (n - 1) as f64);
                ((4.0 * x).sin() * (3.0 * y).cos() + x * y) as f32
            };
            let x = TensorData::new((0..n * n).map(value).collect::<Vec<_>>(), [1, n, n, 1]);
            let y = values(model.forward(Tensor::<4>::from_data(x, &device), Mode::Evaluate).unwrap());
            let step = (n - 1) / 40;
            let shared = (0..41 * 41).map(|at| y[at / 41 * step * n + at % 41 * step]);
            shared.collect::<Vec<f32>>()
        };
        let [coarse, fine, finest] = [41, 81, 161].map(run);
        let scale = spread(&finest);
        let (first, second) = (distance(&coarse, &fine) / scale, distance(&fine, &finest) / scale);
        // Convolutions see the zeros outside in a strip of their own width, and the decoder's Fourier modes have the period
        // of the grid, 1 + h: errors of first order.
        assert!(first < 10.0 / 40.0 && second < 10.0 / 80.0, "{kind:?}: {first:.1e}, {second:.1e}");
        assert!(second < 0.7 * first, "{kind:?}: {first:.1e} does not fall, {second:.1e}");
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

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}
