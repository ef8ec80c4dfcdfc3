//! The same training step on two devices: fused on the processor, and composed on the device `GALERKIN_DEVICE` names.
//!
//! What golden cases lack is here: dropout, quadrature weights, weights drawn on the device itself, and that a run repeats bit by bit.
//! Without the variable both are the processor, and this is one more comparison of fused with composed.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin::init::Builder;
use galerkin::layers::*;
use galerkin::networks::{DecoderConfig, LiftConfig, NetworkConfig, OutputGrid, Resizing, TransformerConfig};
use galerkin::ops::{self, AttentionInput};
use galerkin::reference::{ReferenceNames, export_gradients};
use galerkin::{Result, device, presets};

const TRAIN: Mode = Mode::Train { seed: 11, step: 4 };

#[test]
fn encoder_layers() {
    let kinds =
        [AttentionKind::Galerkin, AttentionKind::Fourier, AttentionKind::Linear, AttentionKind::Softmax];
    for (kind, norm) in
        kinds.into_iter().zip([HeadNorm::Layer, HeadNorm::Instance, HeadNorm::Layer, HeadNorm::None])
    {
        let config = EncoderLayerConfig {
            attention: AttentionConfig {
                kind,
                features: 12,
                heads: 3,
                coordinates: 2,
                norm,
                eps: 1e-5,
                dropout: 0.1,
                gain: 0.5,
                diagonal: 0.5,
            },
            hidden: 20,
            activation: Activation::Gelu,
            norm_after: true,
            eps: 1e-5,
            minus: false,
            residual_dropout: 0.1,
            hidden_dropout: 0.2,
        };
        compare(&format!("{kind:?}"), |device| {
            let layer = config.init(&mut Builder::new(3, device)).unwrap();
            let weights: Tensor<2> = wave([2, 37], 0.3, device) * 0.01 + 1.0 / 37.0;
            let input = AttentionInput {
                x: wave([2, 37, 12], 1.7, device),
                coordinates: Some(wave([2, 37, 2], 0.9, device)),
                weights: Some(weights),
            };
            step(&layer, layer.forward(input, TRAIN))
        });
    }
}

#[test]
fn a_1d_transformer() {
    let mut config = transformer("burgers");
    (config.encoder.attention, config.encoder.layers) = (AttentionKind::Fourier, 1);
    config.dropout = 0.1;
    let DecoderConfig::Spectral(decoder) = &mut config.decoder else { panic!("a spectral decoder") };
    decoder.dropout = 0.1;
    let config = NetworkConfig::Transformer(config);
    compare("1D", |device| {
        let network = config.init(3, device).unwrap();
        step(&network, network.forward::<3>(wave([2, 64, 1], 0.1, device), TRAIN))
    });
}

#[test]
fn a_2d_transformer() {
    let mut config = transformer("darcy");
    config.encoder.layers = 1;
    let LiftConfig::Interpolation(lift) = &mut config.lift else { panic!("an interpolation network") };
    (lift.fine, lift.coarse) = (29, 10);
    let config = NetworkConfig::Transformer(config);
    compare("2D", |device| {
        let network = config.init(3, device).unwrap();
        step(&network, network.forward::<4>(wave([2, 29, 29, 1], 0.1, device), TRAIN))
    });
}

/// A Fourier operator on three axes, one of them periodic and the others padded, with its output on another grid.
#[test]
fn a_3d_fourier_operator() {
    let NetworkConfig::Fno(mut config) = presets::get("fno-darcy").unwrap().network else {
        panic!("a Fourier operator")
    };
    config.periodic = vec![false, true, false];
    config.output = OutputGrid::Resized(Resizing { from: vec![5, 6, 7], to: vec![7, 4, 7] });
    let spectral = &mut config.spectral;
    (spectral.channels, spectral.modes, spectral.layers) = (6, 3, 2);
    (spectral.padding, spectral.dropout) = (0.25, 0.1);
    let config = NetworkConfig::Fno(config);
    compare("3D", |device| {
        let network = config.init(3, device).unwrap();
        step(&network, network.forward::<5>(wave([2, 5, 6, 7, 1], 0.1, device), TRAIN))
    });
}

/// The transformer of a preset.
fn transformer(preset: &str) -> TransformerConfig {
    match presets::get(preset).unwrap().network {
        NetworkConfig::Transformer(config) => config,
        other => panic!("{preset} is {other:?}"),
    }
}

/// y and the gradients of Σ c·y, by name.
type Step = BTreeMap<String, Vec<f32>>;

fn step<M: Module + ReferenceNames, const D: usize>(module: &M, y: Result<Tensor<D>>) -> Step {
    let y = y.unwrap();
    let cotangent = wave(y.dims(), 2.5, &y.device());
    let gradients = export_gradients(module, &(y.clone() * cotangent).sum().backward());
    let mut found: Step = gradients.into_iter().map(|(name, array)| (name, array.values)).collect();
    found.insert("y".into(), y.into_data().try_into_vec().unwrap());
    found
}

/// Entries agree to 200 roundings of the largest value of their tensor, the bound between fused and composed operations; of the
/// largest gradient of all a twentieth counts too, because some vanish (a bias before an instance norm). Measured: at
/// most 25 on the processor, 57 on llvmpipe.
#[track_caller]
fn compare(what: &str, run: impl Fn(&Device) -> Step) {
    let name = std::env::var("GALERKIN_DEVICE").unwrap_or_else(|_| "cpu".into());
    let device = device::parse(&name).unwrap_or_else(|e| panic!("GALERKIN_DEVICE: {e}")).autodiff();
    let fused = run(&Device::flex().autodiff());
    let composed = ops::composed_only(|| run(&device));
    assert!(ops::composed_only(|| run(&device)) == composed, "{what}: a second run gives other bits");
    assert!(fused.keys().eq(composed.keys()), "{what}: names");
    let largest = |values: &[f32]| values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let gradients = fused.iter().filter(|(name, _)| *name != "y");
    let scale = gradients.map(|(_, values)| largest(values)).fold(0.0, f32::max);
    for (name, fused) in &fused {
        let composed = &composed[name];
        assert_eq!(fused.len(), composed.len(), "{what}: {name}: number of values");
        let largest = if name == "y" { largest(fused) } else { largest(fused).max(0.05 * scale) };
        for (i, (f, c)) in fused.iter().zip(composed).enumerate() {
            let error = (f - c).abs() / (f32::EPSILON * largest);
            assert!(
                error <= 200.0,
                "{what}: {name}[{i}]: fused {f}, composed {c} on {device:?}; {error:.0} roundings of {largest:.2e}"
            );
        }
    }
}

/// Values in [−1, 1] that do not repeat.
fn wave<const D: usize>(shape: [usize; D], phase: f64, device: &Device) -> Tensor<D> {
    let value = |i: usize| (1.3 * i as f64 + 0.01 * (i * i % 997) as f64 + phase).sin() as f32;
    let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}
