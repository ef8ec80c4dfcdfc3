//! Fused and composed operations agree: values and every gradient, through Burn's autodiff, with and without dropout.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::error::Error;
use galerkin::layers::*;
use galerkin::networks::*;
use galerkin::ops::{self, *};
use galerkin::presets;
use galerkin::reference::{ReferenceNames, export_gradients};
use galerkin_kernels::activation::Activation as Kernel;
use galerkin_kernels::attention::{Attention as AttentionOp, Kind, Norm};
use galerkin_kernels::dropout::{Dropout, Key, Site};
use galerkin_kernels::encoder::EncoderLayer as EncoderOp;
use galerkin_kernels::random::philox;
use galerkin_kernels::spectral::{SpectralConv1d, SpectralConv2d, SpectralConv3d};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KEY: Key = Key { seed: 5, step: 3, layer: 2 };
const KINDS: [Kind; 4] = [Kind::Galerkin, Kind::Fourier, Kind::Linear, Kind::Softmax];

#[test]
fn attention_of_every_kind() {
    for kind in KINDS {
        for (heads, coordinates, norm) in
            [(1, 1, Norm::Layer), (2, 2, Norm::None), (4, 0, Norm::Layer), (2, 1, Norm::Instance)]
        {
            for (dropout, weighted) in [(0.0, false), (0.3, false), (0.0, true), (0.3, true)] {
                let op = attention_op(kind, heads, coordinates, norm, dropout);
                let what = format!(
                    "{kind:?}, {heads} heads, {coordinates} coordinates, {norm:?}, dropout {dropout}, weighted {weighted}"
                );
                let mut leaves = Leaves::new();
                let params = attention_params(&op, &mut leaves);
                let input = attention_input(&op, weighted, &mut leaves);
                leaves.compare(&what, || ops::attention(op, input.clone(), params.clone()).unwrap());
            }
        }
    }
}

#[test]
fn encoder_layers_of_every_kind() {
    for kind in KINDS {
        for (norm, norm_after, minus) in
            [(Norm::Layer, false, false), (Norm::None, true, true), (Norm::Layer, true, false)]
        {
            for rate in [0.0, 0.2] {
                for activation in [Kernel::Relu, Kernel::Gelu] {
                    let op = EncoderOp {
                        attention: attention_op(kind, 2, 1, norm, rate),
                        hidden: 20,
                        activation,
                        norm_after,
                        eps: 1e-5,
                        minus,
                        residual_dropout: rate,
                        hidden_dropout: rate,
                    };
                    let mut leaves = Leaves::new();
                    let attention = attention_params(&op.attention, &mut leaves);
                    let feed_forward = FeedForwardParams {
                        w_1: leaves.add([12, 20], 0.3, 0.0),
                        b_1: leaves.add([20], 0.3, 0.0),
                        w_2: leaves.add([20, 12], 0.3, 0.0),
                        b_2: leaves.add([12], 0.3, 0.0),
                    };
                    let norm = norm_after.then(|| norm_params(&mut leaves));
                    let params = EncoderParams { attention, feed_forward, norm };
                    let input = attention_input(&op.attention, false, &mut leaves);
                    let what =
                        format!("{kind:?} {activation:?}, after {norm_after}, minus {minus}, dropout {rate}");
                    leaves.compare(&what, || ops::encoder_layer(op, input.clone(), params.clone()).unwrap());
                }
            }
        }
    }
}

#[test]
fn pointwise_layers() {
    for activation in [Kernel::None, Kernel::Relu, Kernel::Silu, Kernel::Gelu] {
        let mut leaves = Leaves::new();
        let x: Tensor<4> = leaves.add([2, 3, 5, 7], 1.0, 0.0);
        let (w, b) = (leaves.add([7, 4], 0.5, 0.0), leaves.add([4], 0.5, 0.0));
        let what = format!("linear {activation:?}");
        leaves.compare(&what, || ops::linear(x.clone(), None, w.clone(), b.clone(), activation).unwrap());
        let mut leaves = Leaves::new();
        let x: Tensor<4> = leaves.add([2, 3, 5, 7], 1.0, 0.0);
        let (w, b) = (leaves.add([9, 4], 0.5, 0.0), leaves.add([4], 0.5, 0.0));
        let grid = Some(constant([2, 3, 5, 2], 6, 1.0, 0.0));
        leaves.compare(&format!("{what} with coordinates"), || {
            ops::linear(x.clone(), grid.clone(), w.clone(), b.clone(), activation).unwrap()
        });
        for rate in [0.0, 0.4] {
            let mut leaves = Leaves::new();
            let x: Tensor<3> = leaves.add([3, 11, 7], 1.0, 0.0);
            let params = FeedForwardParams {
                w_1: leaves.add([7, 9], 0.5, 0.0),
                b_1: leaves.add([9], 0.5, 0.0),
                w_2: leaves.add([9, 2], 0.5, 0.0),
                b_2: leaves.add([2], 0.5, 0.0),
            };
            leaves.compare(&format!("feed-forward {activation:?}, dropout {rate}"), || {
                ops::feed_forward(x.clone(), params.clone(), activation, rate, KEY).unwrap()
            });
        }
    }
}

#[test]
fn spectral_convolutions() {
    for (n, modes, pointwise, dropout) in
        [(16, 9, true, 0.0), (15, 8, false, 0.3), (40, 5, true, 0.3), (1, 1, true, 0.0)]
    {
        let op = SpectralConv1d {
            batch: 0,
            n: 0,
            inputs: 3,
            outputs: 4,
            modes,
            pointwise,
            activation: Kernel::Silu,
            dropout,
            key: KEY,
        };
        let mut leaves = Leaves::new();
        let x: Tensor<3> = leaves.add([2, n, 3], 1.0, 0.0);
        let weights = leaves.add([modes, 2, 3, 4], 0.5, 0.0);
        let params = SpectralParams { weights, pointwise: pair(pointwise, [3, 4], &mut leaves) };
        leaves.compare(&format!("1D, n = {n}, {modes} modes"), || {
            ops::spectral_1d(op, x.clone(), params.clone()).unwrap()
        });
    }
    // Squares and rectangles; blocks apart, touching and overlapping (2m > n₁).
    for (n1, n2, modes, pointwise, dropout) in
        [(8, 8, 3, true, 0.0), (9, 12, 4, false, 0.3), (7, 10, 5, true, 0.3), (6, 16, 6, true, 0.0)]
    {
        let op = SpectralConv2d {
            batch: 0,
            n1: 0,
            n2: 0,
            inputs: 3,
            outputs: 2,
            modes,
            pointwise,
            activation: Kernel::Silu,
            dropout,
            key: KEY,
        };
        let mut leaves = Leaves::new();
        let x: Tensor<4> = leaves.add([2, n1, n2, 3], 1.0, 0.0);
        let weights = leaves.add([2 * modes * modes, 2, 3, 2], 0.5, 0.0);
        let pointwise = pair(pointwise, [3, 2], &mut leaves);
        let params = SpectralParams { weights, pointwise };
        leaves.compare(&format!("2D, {n1} x {n2}, {modes} modes"), || {
            ops::spectral_2d(op, x.clone(), params.clone()).unwrap()
        });
    }
}

#[test]
fn spectral_convolutions_on_three_axes() {
    // Cubes and boxes; blocks apart, touching (2m = n) and overlapping along the first, the second and both axes, down to n = m; the third
    // axis with and without its last mode (m = n₃/2 + 1), of an odd and of an even number of points; a single point.
    let sizes = [
        ([6, 6, 6], 2),
        ([4, 4, 4], 2),
        ([5, 8, 6], 3),
        ([9, 4, 7], 3),
        ([5, 4, 8], 3),
        ([3, 5, 6], 3),
        ([3, 3, 4], 3),
        ([3, 3, 5], 3),
        ([1, 1, 1], 1),
    ];
    for ([n1, n2, n3], modes) in sizes {
        for (pointwise, dropout) in [(true, 0.0), (true, 0.3), (false, 0.0), (false, 0.3)] {
            let op = SpectralConv3d {
                batch: 0,
                n1: 0,
                n2: 0,
                n3: 0,
                inputs: 3,
                outputs: 2,
                modes,
                pointwise,
                activation: Kernel::Silu,
                dropout,
                key: KEY,
            };
            let mut leaves = Leaves::new();
            let x: Tensor<5> = leaves.add([2, n1, n2, n3, 3], 1.0, 0.0);
            let weights = leaves.add([4 * modes.pow(3), 2, 3, 2], 0.5, 0.0);
            let params = SpectralParams { weights, pointwise: pair(pointwise, [3, 2], &mut leaves) };
            let what =
                format!("3D, {n1} x {n2} x {n3}, {modes} modes, pointwise {pointwise}, dropout {dropout}");
            leaves.compare(&what, || ops::spectral_3d(op, x.clone(), params.clone()).unwrap());
        }
    }
}

#[test]
fn convolution_and_resize() {
    let ways = [(false, 0.0, Kernel::None), (true, 0.0, Kernel::Relu), (false, 0.3, Kernel::Silu)];
    // From sixteen channels on, what stands before the activation is kept for the backward pass.
    for (inputs, (bias, rate, activation)) in [3, 16].into_iter().flat_map(|c| ways.map(|way| (c, way))) {
        let mut leaves = Leaves::new();
        let x: Tensor<4> = leaves.add([2, 7, 6, inputs], 1.0, 0.0);
        let w: Tensor<4> = leaves.add([3, 3, inputs, 5], 0.3, 0.0);
        let b: Option<Tensor<1>> = bias.then(|| leaves.add([5], 0.3, 0.0));
        let dropout = (rate > 0.0).then_some(Dropout { rate, key: KEY, site: Site::Outside });
        leaves.compare(&format!("conv of {inputs}, bias {bias}, dropout {rate}, {activation:?}"), || {
            ops::conv3x3(x.clone(), w.clone(), b.clone(), dropout, activation).unwrap()
        });
    }
    for (from, to) in [([7, 5], [4, 9]), ([4, 4], [4, 4]), ([1, 3], [2, 1]), ([11, 11], [29, 29])] {
        for activation in [Kernel::None, Kernel::Silu] {
            let mut leaves = Leaves::new();
            let x: Tensor<4> = leaves.add([2, from[0], from[1], 3], 1.0, 0.0);
            leaves.compare(&format!("{from:?} to {to:?}, {activation:?}"), || {
                ops::resize(x.clone(), to, activation).unwrap()
            });
        }
    }
}

#[test]
fn local_means() {
    for (from, to) in [([7, 5], [4, 3]), ([4, 4], [4, 4]), ([9, 3], [2, 1]), ([29, 29], [11, 13])] {
        for periodic in [[false, false], [true, false], [true, true]] {
            let mut leaves = Leaves::new();
            let x: Tensor<4> = leaves.add([2, from[0], from[1], 3], 1.0, 0.0);
            leaves.compare(&format!("means of {from:?} on {to:?}, {periodic:?}"), || {
                ops::local_means(x.clone(), to, periodic).unwrap()
            });
        }
    }
}

#[test]
fn a_1d_transformer_in_training() {
    for kind in [AttentionKind::Galerkin, AttentionKind::Fourier] {
        let mut config = transformer("burgers");
        let encoder = &mut config.encoder;
        (encoder.attention, encoder.layers, encoder.width, encoder.hidden) = (kind, 2, 24, 32);
        (encoder.attention_dropout, encoder.residual_dropout, encoder.hidden_dropout) = (0.1, 0.1, 0.2);
        let DecoderConfig::Spectral(decoder) = &mut config.decoder else { panic!("a spectral decoder") };
        (decoder.channels, decoder.dropout) = (12, 0.1);
        config.dropout = 0.1;
        let network = NetworkConfig::Transformer(config).init(3, &device()).unwrap();
        let x: Tensor<3> = constant([2, 64, 1], 9, 1.0, 0.0);
        check_network(&format!("{kind:?}"), &network, |mode| network.forward(x.clone(), mode).unwrap());
    }
}

#[test]
fn a_2d_transformer_in_training() {
    for preset in ["darcy", "darcy-inverse"] {
        let mut config = small_square(preset);
        config.dropout = 0.1;
        let network = NetworkConfig::Transformer(config).init(3, &device()).unwrap();
        let x: Tensor<4> = constant([1, 29, 29, 1], 9, 1.0, 0.0);
        check_network(preset, &network, |mode| network.forward(x.clone(), mode).unwrap());
    }
}

#[test]
fn fourier_operators() {
    let operator = |preset: &str, boundary: Boundary| {
        let NetworkConfig::Fno(mut config) = presets::get(preset).unwrap().network else {
            panic!("{preset} is no Fourier operator")
        };
        (config.spectral.channels, config.spectral.layers, config.boundary) = (12, 2, boundary);
        NetworkConfig::Fno(config).init(3, &device()).unwrap()
    };
    let line = operator("fno-burgers", Boundary::Free);
    let x: Tensor<3> = constant([2, 64, 1], 9, 1.0, 0.0);
    compare_network("line", &line, &[Mode::Evaluate], &|mode| line.forward(x.clone(), mode).unwrap());
    let square = operator("fno-darcy", Boundary::Zero);
    let x: Tensor<4> = constant([1, 29, 29, 1], 9, 1.0, 0.0);
    compare_network("square", &square, &[Mode::Evaluate], &|mode| square.forward(x.clone(), mode).unwrap());
}

/// Grids that no preset has: which axes are periodic, their points, and the points of the output if they are others.
const GRIDS: [(&[bool], &[usize], Option<&[usize]>); 7] = [
    (&[false], &[19], Some(&[28])),
    // A rectangle that closes along one axis, as it is, and to a finer and a coarser grid.
    (&[false, true], &[9, 12], None),
    (&[true, false], &[12, 9], Some(&[18, 9])),
    (&[false, true], &[13, 12], Some(&[9, 16])),
    (&[true, true, true], &[6, 8, 6], None),
    (&[false, true, false], &[5, 6, 7], None),
    (&[false, true, false], &[5, 6, 7], Some(&[7, 4, 9])),
];

#[test]
fn transformers_on_grids_of_all_kinds() {
    for (periodic, grid, output) in GRIDS {
        for kind in [AttentionKind::Galerkin, AttentionKind::Fourier] {
            check_on_grid(&small_transformer(kind, periodic, grid, output), grid, output);
        }
    }
}

#[test]
fn fourier_operators_on_grids_of_all_kinds() {
    for (periodic, grid, output) in GRIDS {
        check_on_grid(&small_fno(periodic, grid, output), grid, output);
    }
}

/// Fused against composed, on a grid; and that an input with its axes apart gives the same bits.
#[track_caller]
fn check_on_grid(config: &NetworkConfig, grid: &[usize], output: Option<&[usize]>) {
    let what = format!("{:?} from {grid:?} to {output:?}", config.periodic());
    let network = config.init(3, &device()).unwrap();
    let [inputs, outputs] = config.channels();
    let output = output.unwrap_or(grid);
    let x: Tensor<3> = constant([2, grid.iter().product(), inputs], 9, 1.0, 0.0);
    let forward = |mode| network.forward_points(x.clone(), grid, mode, &mut |_, _, _| {}).unwrap();
    assert_eq!(forward(Mode::Evaluate).dims(), [2, output.iter().product(), outputs], "{what}");
    check_network(&what, &network, forward);

    fn apart<const D: usize>(network: &Network, x: &Tensor<3>, grid: &[usize]) -> (Vec<usize>, Vec<f32>) {
        let [batch, _, channels] = x.dims();
        let shape: [usize; D] = [vec![batch], grid.to_vec(), vec![channels]].concat().try_into().unwrap();
        let y = network.forward::<D>(x.clone().reshape(shape), Mode::Evaluate).unwrap();
        (y.dims().to_vec(), to_vec(y))
    }
    let (shape, values) = match grid.len() {
        1 => apart::<3>(&network, &x, grid),
        2 => apart::<4>(&network, &x, grid),
        _ => apart::<5>(&network, &x, grid),
    };
    assert_eq!(shape, [vec![2], output.to_vec(), vec![outputs]].concat(), "{what}");
    assert_eq!(values, to_vec(forward(Mode::Evaluate)), "{what}");
}

/// Each rate of a config is in force by itself, with all at zero training is evaluation, and none can be one.
#[test]
fn every_dropout_acts() {
    type Rate = fn(&mut TransformerConfig) -> &mut f64;
    let check = |what: &str,
                 none: &TransformerConfig,
                 x: &dyn Fn(&Network, Mode) -> Vec<f32>,
                 rates: &[Rate]| {
        let changed = |config: &TransformerConfig| {
            let network = NetworkConfig::Transformer(config.clone()).init(3, &device()).unwrap();
            x(&network, Mode::Train { seed: 1, step: 1 }) != x(&network, Mode::Evaluate)
        };
        assert!(!changed(none), "{what}");
        for (i, rate) in rates.iter().enumerate() {
            let mut config = none.clone();
            *rate(&mut config) = 0.2;
            assert!(changed(&config), "{what}: rate {i}");
            *rate(&mut config) = 1.0;
            assert!(NetworkConfig::Transformer(config).init(3, &device()).is_err(), "{what}: rate {i} of 1");
        }
    };
    let line: Tensor<3> = constant([1, 32, 1], 9, 1.0, 0.0);
    let mut none = transformer("burgers");
    none.encoder.layers = 1;
    let forward = |network: &Network, mode: Mode| to_vec(network.forward(line.clone(), mode).unwrap());
    let rates: [Rate; 5] = [
        |c| &mut c.encoder.attention_dropout,
        |c| &mut c.encoder.residual_dropout,
        |c| &mut c.encoder.hidden_dropout,
        decoder_dropout,
        |c| &mut c.dropout,
    ];
    check("1D", &none, &forward, &rates);

    let square: Tensor<4> = constant([1, 29, 29, 1], 9, 1.0, 0.0);
    let forward = |network: &Network, mode: Mode| to_vec(network.forward(square.clone(), mode).unwrap());
    let rates: [Rate; 6] = [
        |c| &mut interpolation(c).dropout,
        |c| &mut c.encoder.residual_dropout,
        |c| &mut c.encoder.hidden_dropout,
        |c| &mut interpolation(c).up_dropout,
        decoder_dropout,
        |c| &mut c.dropout,
    ];
    for preset in ["darcy", "darcy-inverse"] {
        let mut none = small_square(preset);
        rates.iter().for_each(|rate| *rate(&mut none) = 0.0);
        check(preset, &none, &forward, &rates);
    }
}

/// Forward and backward of whole networks, dropout on, are the same bits with any number of threads.
#[test]
fn threads_do_not_change_a_bit() {
    let box_grid = [5, 6, 7];
    let configs = [
        (NetworkConfig::Transformer(small_square("darcy")), vec![29, 29]),
        (small_fno(&[false, true, false], &box_grid, None), box_grid.to_vec()),
    ];
    for (config, grid) in configs {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let network = config.init(3, &device()).unwrap();
                let x = constant([3, grid.iter().product(), config.channels()[0]], 9, 1.0, 0.0);
                let mode = Mode::Train { seed: 1, step: 2 };
                let y = network.forward_points(x, &grid, mode, &mut |_, _, _| {}).unwrap();
                let gradients = export_gradients(&network, &y.clone().square().sum().backward());
                let gradients = gradients.into_iter().map(|(name, array)| (name, array.values));
                (to_vec(y), gradients.collect::<Vec<_>>())
            })
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert!(run(threads) == one, "{grid:?}: {threads} threads differ from one");
        }
    }
}

/// Large tensors get the memory of earlier ones. A step and a prediction leave other values there; the next have the bits of the first.
#[test]
fn what_memory_held_before_changes_nothing() {
    let mut darcy = transformer("darcy");
    let lift = interpolation(&mut darcy);
    (lift.fine, lift.coarse) = (43, 22);
    let preset = |name: &str| presets::get(name).unwrap().network;
    let cube = small_fno(&[true; 3], &[12; 3], None);
    for (config, grid) in [
        (preset("burgers"), vec![512]),
        (NetworkConfig::Transformer(darcy), vec![43; 2]),
        (preset("fno-burgers"), vec![512]),
        (preset("fno-darcy"), vec![43; 2]),
        (cube, vec![12; 3]),
    ] {
        let [network, plain] = [device(), Device::flex()].map(|device| config.init(3, &device).unwrap());
        let forward = |network: &Network, scale: f32, device: &Device, mode: Mode| {
            let x = random([2, grid.iter().product(), config.channels()[0]], 8, scale, 0.0, device);
            network.forward_points(x, &grid, mode, &mut |_, _, _| {}).unwrap()
        };
        let run = |scale: f32| {
            let y = to_vec(forward(&plain, scale, &Device::flex(), Mode::Evaluate));
            let loss = forward(&network, scale, &device(), Mode::Train { seed: 2, step: 1 }).square().sum();
            let gradients = export_gradients(&network, &loss.backward());
            (y, gradients.into_values().map(|array| array.values).collect::<Vec<_>>())
        };
        let first = run(1.0);
        // ReLU makes zeros of NaN.
        for other in [f32::NAN, -3.0] {
            assert!(run(other) != first, "{other}: {config:?}");
            assert!(run(1.0) == first, "after {other}: {config:?}");
        }
    }
}

/// Without autodiff, and with gradient checkpointing, the kernels run as well and give the same bits.
#[test]
fn every_kind_of_device_gives_the_same_values() {
    let op = attention_op(Kind::Galerkin, 2, 1, Norm::Layer, 0.0);
    let run = |device: &Device| {
        let mut leaves = Leaves::on(device);
        let params = attention_params(&op, &mut leaves);
        let input = attention_input(&op, false, &mut leaves);
        to_vec(ops::attention(op, input, params).unwrap())
    };
    let plain = run(&Device::flex());
    assert_eq!(plain, run(&Device::flex().autodiff()));
    assert_eq!(plain, run(&Device::flex().autodiff().gradient_checkpointing()));
}

#[test]
fn checkpointing_gives_the_same_gradients() {
    let run = |device: &Device| {
        let mut leaves = Leaves::on(device);
        let x: Tensor<3> = leaves.add([2, 9, 4], 1.0, 0.0);
        let (w, b) = (leaves.add([4, 3], 0.5, 0.0), leaves.add([3], 0.5, 0.0));
        leaves.run(&|| ops::linear(x.clone(), None, w.clone(), b.clone(), Kernel::Silu).unwrap())
    };
    assert_eq!(run(&device()), run(&device().gradient_checkpointing()));
}

/// An input that nobody differentiates and parameters that are tracked, and the other way round.
#[test]
fn only_what_is_tracked_gets_gradients() {
    let device = device();
    let x: Tensor<4> = constant([1, 5, 5, 2], 1, 1.0, 0.0);
    let w = constant::<4>([3, 3, 2, 3], 2, 1.0, 0.0).require_grad();
    let y = ops::conv3x3(x.clone(), w.clone(), None, None, Kernel::None).unwrap();
    let gradients = y.sum().backward();
    assert!(w.grad(&gradients).is_some() && x.grad(&gradients).is_none());
    // Coordinates made on the plain device go with tracked features.
    // An input made on the plain device does not untrack the parameters.
    let gradient = |x: Tensor<4>| {
        let y = ops::conv3x3(x, w.clone(), None, None, Kernel::Silu).unwrap();
        to_vec(w.grad(&y.sum().backward()).expect("w is tracked"))
    };
    assert_eq!(gradient(x.clone().without_autodiff()), gradient(x));
    let mut leaves = Leaves::on(&device);
    let op = attention_op(Kind::Galerkin, 2, 1, Norm::Layer, 0.0);
    let params = attention_params(&op, &mut leaves);
    let mut input = attention_input(&op, false, &mut leaves);
    let tracked = to_vec(ops::attention(op, input.clone(), params.clone()).unwrap());
    input.coordinates = input.coordinates.map(Tensor::without_autodiff);
    assert_eq!(to_vec(ops::attention(op, input, params).unwrap()), tracked);
}

#[test]
fn wrong_shapes_are_errors_that_name_the_tensor() {
    let op = attention_op(Kind::Galerkin, 2, 1, Norm::Layer, 0.0);
    let mut leaves = Leaves::new();
    let params = attention_params(&op, &mut leaves);
    let input = attention_input(&op, false, &mut leaves);
    let what = |result: galerkin::Result<Tensor<3>>| match result.unwrap_err() {
        Error::Shape { what, .. } | Error::Modes { what, .. } | Error::Setting { what, .. } => what,
        other => panic!("{other}"),
    };
    let without = AttentionInput { coordinates: None, ..input.clone() };
    assert_eq!(what(ops::attention(op, without, params.clone())), "attention coordinates");
    let narrow = AttentionInput { x: input.x.clone().narrow(2, 0, 11), ..input.clone() };
    assert_eq!(what(ops::attention(op, narrow, params.clone())), "attention x");
    let heads = AttentionOp { heads: 5, ..op };
    assert_eq!(
        what(ops::attention(heads, input.clone(), params.clone())),
        "attention: 5 heads for 12 features"
    );
    let bare = AttentionParams { norm: None, ..params };
    assert_eq!(what(ops::attention(op, input, bare)), "norm inside the heads");
    let empty = ops::resize(constant([1, 3, 3, 1], 1, 1.0, 0.0), [0, 3], Kernel::None).unwrap_err();
    assert!(matches!(empty, Error::Shape { .. }), "{empty}");
}

/// Random tensors that are differentiated.
struct Leaves {
    device: Device,
    count: u32,
    gradients: Vec<Gradient>,
}

/// Reads the gradient of one leaf.
type Gradient = Box<dyn Fn(&burn::tensor::Gradients) -> Vec<f32>>;

impl Leaves {
    fn new() -> Self {
        Self::on(&device())
    }

    fn on(device: &Device) -> Self {
        Leaves { device: device.clone(), count: 0, gradients: Vec::new() }
    }

    fn add<const D: usize>(&mut self, shape: [usize; D], scale: f32, shift: f32) -> Tensor<D> {
        self.count += 1;
        let mut tensor = random(shape, self.count, scale, shift, &self.device);
        if self.device.is_autodiff() {
            tensor = tensor.require_grad();
            let leaf = tensor.clone();
            self.gradients.push(Box::new(move |g| to_vec(leaf.grad(g).expect("every leaf has a gradient"))));
        }
        tensor
    }

    /// y and the gradients of Σ c·y, c random.
    fn run<const D: usize>(&self, f: &dyn Fn() -> Tensor<D>) -> Vec<Vec<f32>> {
        let y = f();
        let loss = (y.clone() * random(y.dims(), 1000, 1.0, 0.0, &self.device)).sum();
        let gradients = loss.backward();
        let mut found = vec![to_vec(y)];
        found.extend(self.gradients.iter().map(|gradient| gradient(&gradients)));
        found
    }

    #[track_caller]
    fn compare<const D: usize>(&self, what: &str, f: impl Fn() -> Tensor<D>) {
        let fused = self.run(&f);
        let composed = ops::composed_only(|| self.run(&f));
        let scale = composed[1..].iter().flatten().fold(0.0f32, |m, v| m.max(v.abs()));
        assert_close(&format!("{what}: y"), &fused[0], &composed[0], 0.0);
        for (i, (fused, composed)) in fused.iter().zip(&composed).enumerate().skip(1) {
            assert_close(&format!("{what}: gradient of leaf {i}"), fused, composed, scale);
        }
    }
}

/// Entries agree to 200 roundings of the largest value: two f32 computations of a chain of some ten sums of up to a hundred terms.
/// For gradients `scale` is the largest of all leaves, of which a twentieth counts too: some vanish by symmetry and what is left
/// are roundings of terms of that size.
#[track_caller]
fn assert_close(what: &str, found: &[f32], expected: &[f32], scale: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    let largest = expected.iter().fold(0.05 * scale, |m, v| m.max(v.abs())).max(1e-6);
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let error = (f - e).abs() / (f32::EPSILON * largest);
        assert!(
            error <= 200.0,
            "{what}[{i}]: fused {f}, composed {e}; {error:.0} roundings of {largest:.2e}"
        );
    }
}

/// Values and gradients of a whole network, in evaluation and in training, and that dropout did something.
#[track_caller]
fn check_network<M: burn::module::Module + ReferenceNames, const D: usize>(
    what: &str,
    network: &M,
    forward: impl Fn(Mode) -> Tensor<D>,
) {
    let train = Mode::Train { seed: 11, step: 4 };
    compare_network(what, network, &[Mode::Evaluate, train], &forward);
    let run = |mode: Mode| to_vec(forward(mode));
    assert_ne!(run(train), run(Mode::Evaluate), "{what}: dropout changes nothing");
    assert_eq!(run(train), run(train), "{what}: masks repeat");
    assert_ne!(run(train), run(Mode::Train { seed: 11, step: 5 }), "{what}: masks of two steps");
}

/// Values and gradients of a whole network, fused and composed.
#[track_caller]
fn compare_network<M: burn::module::Module + ReferenceNames, const D: usize>(
    what: &str,
    network: &M,
    modes: &[Mode],
    forward: &impl Fn(Mode) -> Tensor<D>,
) {
    let run = |mode: Mode| -> BTreeMap<String, Vec<f32>> {
        let y = forward(mode);
        let loss = (y.clone() * constant(y.dims(), 1000, 1.0, 0.0)).sum();
        let gradients = export_gradients(network, &loss.backward());
        let mut found: BTreeMap<_, _> = gradients.into_iter().map(|(k, a)| (k, a.values)).collect();
        assert_eq!(found.len(), network.entries("").iter().map(|e| e.names.len()).sum::<usize>());
        found.insert("y".into(), to_vec(y));
        found
    };
    for &mode in modes {
        let (fused, composed) = (run(mode), ops::composed_only(|| run(mode)));
        for (name, composed) in &composed {
            let largest = composed.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
            for (f, c) in fused[name].iter().zip(composed) {
                // A whole network piles up more roundings than an operation, above all where gradients cancel.
                let error = (f - c).abs() / largest;
                assert!(error <= 1e-3, "{what} {mode:?}: {name}: fused {f}, composed {c}");
            }
        }
    }
}

fn attention_op(kind: Kind, heads: usize, coordinates: usize, norm: Norm, dropout: f32) -> AttentionOp {
    let projection = coordinates > 0;
    let (batch, n, d, eps, key) = (0, 0, 12, 1e-5, KEY);
    AttentionOp { kind, batch, n, d, heads, coordinates, projection, norm, eps, dropout, key, keep: false }
}

fn attention_params(op: &AttentionOp, leaves: &mut Leaves) -> AttentionParams {
    let d = op.d;
    AttentionParams {
        w_q: leaves.add([d, d], 0.4, 0.0),
        b_q: leaves.add([d], 0.4, 0.0),
        w_k: leaves.add([d, d], 0.4, 0.0),
        b_k: leaves.add([d], 0.4, 0.0),
        w_v: leaves.add([d, d], 0.4, 0.0),
        b_v: leaves.add([d], 0.4, 0.0),
        norm: (op.norm != Norm::None).then(|| norm_params(leaves)),
        projection: op
            .projection
            .then(|| (leaves.add([op.heads * op.wide(), d], 0.4, 0.0), leaves.add([d], 0.4, 0.0))),
    }
}

fn norm_params(leaves: &mut Leaves) -> [Tensor<1>; 4] {
    let mut pair = || [leaves.add([12], 0.4, 1.0), leaves.add([12], 0.4, 0.0)];
    let ([gamma_1, beta_1], [gamma_2, beta_2]) = (pair(), pair());
    [gamma_1, beta_1, gamma_2, beta_2]
}

fn attention_input(op: &AttentionOp, weighted: bool, leaves: &mut Leaves) -> AttentionInput {
    let (batch, n) = (2, 37);
    let device = leaves.device.clone();
    AttentionInput {
        x: leaves.add([batch, n, op.d], 1.0, 0.0),
        coordinates: (op.coordinates > 0).then(|| random([batch, n, op.coordinates], 500, 0.5, 0.5, &device)),
        weights: weighted.then(|| random([batch, n], 501, 0.5 / n as f32, 1.0 / n as f32, &device)),
    }
}

/// The transformer of a preset.
fn transformer(preset: &str) -> TransformerConfig {
    match presets::get(preset).unwrap().network {
        NetworkConfig::Transformer(config) => config,
        other => panic!("{preset} is {other:?}"),
    }
}

/// A preset on a square with one layer, made for 29 points a side and 10 of the encoder.
fn small_square(preset: &str) -> TransformerConfig {
    let mut config = transformer(preset);
    config.encoder.layers = 1;
    let lift = interpolation(&mut config);
    (lift.fine, lift.coarse) = (29, 10);
    config
}

fn interpolation(config: &mut TransformerConfig) -> &mut InterpolationConfig {
    match &mut config.lift {
        LiftConfig::Interpolation(lift) => lift,
        other => panic!("{other:?} is no interpolation network"),
    }
}

fn decoder_dropout(config: &mut TransformerConfig) -> &mut f64 {
    match &mut config.decoder {
        DecoderConfig::Pointwise(decoder) => &mut decoder.dropout,
        DecoderConfig::Spectral(decoder) => &mut decoder.dropout,
    }
}

/// A transformer of two inputs and two outputs, padded behind closed axes, with every dropout on.
fn small_transformer(
    kind: AttentionKind,
    periodic: &[bool],
    grid: &[usize],
    output: Option<&[usize]>,
) -> NetworkConfig {
    let mut decoder = small_convolutions();
    decoder["kind"] = json!("spectral");
    let config = json!({
        "kind": "transformer", "inputs": 2, "outputs": 2, "periodic": periodic,
        "output": output_grid(grid, output), "boundary": "zero", "dropout": 0.1,
        "lift": { "kind": "pointwise", "coordinates": true },
        "encoder": {
            "attention": kind, "layers": 1, "width": 12, "heads": 2, "hidden": 20, "activation": "gelu",
            "head_norm": "layer", "residual_norm": true, "eps": 1e-5, "gain": 0.5, "diagonal": 0.5,
            "attention_dropout": 0.1, "residual_dropout": 0.1, "hidden_dropout": 0.2,
        },
        "decoder": decoder,
    });
    serde_json::from_value(config).unwrap()
}

/// A Fourier operator of two inputs and two outputs, padded behind closed axes, with dropout.
fn small_fno(periodic: &[bool], grid: &[usize], output: Option<&[usize]>) -> NetworkConfig {
    let config = json!({
        "kind": "fno", "inputs": 2, "outputs": 2, "periodic": periodic,
        "output": output_grid(grid, output), "boundary": "zero", "spectral": small_convolutions(),
    });
    serde_json::from_value(config).unwrap()
}

fn small_convolutions() -> Value {
    json!({
        "layers": 2, "channels": 6, "modes": 3, "feed_forward": 10, "activation": "silu",
        "last_activation": true, "coordinates": true, "law": "uniform", "padding": 0.25, "dropout": 0.1,
    })
}

fn output_grid(grid: &[usize], output: Option<&[usize]>) -> Value {
    match output {
        None => json!("input"),
        Some(output) => json!({ "resized": { "from": grid, "to": output } }),
    }
}

fn pair(wanted: bool, shape: [usize; 2], leaves: &mut Leaves) -> Option<(Tensor<2>, Tensor<1>)> {
    wanted.then(|| (leaves.add(shape, 0.5, 0.0), leaves.add([shape[1]], 0.5, 0.0)))
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn constant<const D: usize>(shape: [usize; D], tag: u32, scale: f32, shift: f32) -> Tensor<D> {
    random(shape, tag, scale, shift, &device())
}

/// Uniform in shift ± scale, a function of `tag` and the place.
fn random<const D: usize>(shape: [usize; D], tag: u32, scale: f32, shift: f32, device: &Device) -> Tensor<D> {
    let unit = |i: u32| philox([i, tag, 0, 0], [0x5eed, 0])[0] as f32 / 2_147_483_648.0 - 1.0;
    let values = (0..shape.iter().product::<usize>() as u32).map(|i| shift + scale * unit(i)).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, shape), device)
}

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}
