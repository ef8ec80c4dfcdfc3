//! The linear layer and the feed-forward network: parity, gradients, threads, sizes.

use crate::layers::{assert_names_sizes, in_turn, in_turn_mut, panic_message, widen_all};
use crate::run::{unwritten, unwritten_like};
use crate::support::{
    assert_close, assert_same_bits_with_any_threads, check_gradient, check_pairs, values, widen,
};
use galerkin_kernels::activation::Activation;
use galerkin_kernels::dropout::{Dropout, Key, Site};
use galerkin_kernels::feed_forward::{self, FeedForward};
use galerkin_kernels::linear::{self, Linear};
use galerkin_kernels::pointwise::Pointwise;
use galerkin_kernels::{par, reference};

pub const ACTIVATIONS: [Activation; 4] =
    [Activation::None, Activation::Relu, Activation::Silu, Activation::Gelu];

/// Rows: one, odd, prime, a power of two, one more than a tile, several tiles, several lanes with a ragged end.
const ROWS: [usize; 7] = [1, 7, 31, 64, 257, 1000, 3089];

/// Roundings of one or two sums of at most 96 products and an activation. Measured: 7.
const FORWARD: f64 = 24.0;
/// Those of a backward pass, whose sums run over all rows. Measured: 7.
const BACKWARD: f64 = 24.0;

/// Parameters of these lengths: weights, whose variance keeps that of a sum over `fan_in` terms, and biases in turn.
fn parameters(lens: &[usize], fan_in: &[usize]) -> Vec<Vec<f32>> {
    let draw = |(slot, (&len, &fan_in)): (usize, (&usize, &usize))| {
        let scale = if slot % 2 == 0 { 1.7 / (fan_in.max(1) as f32).sqrt() } else { 0.5 };
        values(200 + slot as u32, len).into_iter().map(|v| scale * v).collect()
    };
    lens.iter().zip(fan_in).enumerate().map(draw).collect()
}

/// Moves biases away from zero, on either side of it, so far that no pre-activation of ReLU crosses its kink: differences
/// want a smooth function.
fn avoid_kinks(activation: Activation, bias: &mut [f32]) {
    if activation == Activation::Relu {
        for (c, b) in bias.iter_mut().enumerate() {
            *b = if c % 2 == 0 { 9.0 } else { -9.0 };
        }
    }
}

fn loss(y: &[f64], dy: &[f32]) -> f64 {
    y.iter().zip(dy).map(|(y, dy)| y * *dy as f64).sum()
}

pub fn linear(rows: usize, [inputs, coordinates, outputs]: [usize; 3], activation: Activation) -> Linear {
    Linear { rows, inputs, coordinates, outputs, activation }
}

fn linear_parameters(layer: &Linear) -> Vec<Vec<f32>> {
    let inputs = layer.inputs + layer.coordinates;
    parameters(&layer.lengths().into_array(), &[inputs; 2])
}

fn linear_coordinates(layer: &Linear) -> Vec<f32> {
    values(2, layer.rows * layer.coordinates)
}

/// y, dx, dw, db; every buffer starts as NaN.
fn run_linear(layer: &Linear, list: &[Vec<f32>], x: &[f32], dy: &[f32]) -> [Vec<f32>; 4] {
    let coordinates = &linear_coordinates(layer);
    let [w, b] = list else { panic!("a linear layer has 2 parameters") };
    let (mut y, mut dx) = (unwritten(layer.rows * layer.outputs), unwritten(x.len()));
    let (mut dw, mut db) = (unwritten(w.len()), unwritten(b.len()));
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    let (params, grads) = (linear::Params { w, b }, linear::Grads { w: &mut dw, b: &mut db });
    layer.forward(&params, x, coordinates, &mut y, &mut workspace);
    workspace.fill(f32::NAN);
    layer.backward(&params, x, coordinates, dy, &mut dx, grads, &mut workspace);
    [y, dx, dw, db]
}

/// The reference knows no coordinates: they are features behind the others.
fn reference_linear(layer: &Linear, list: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    let (coordinates, inputs) = (widen(&linear_coordinates(layer)), layer.inputs + layer.coordinates);
    let row = |r: usize| {
        let of = |all: &[f64], width: usize| all[r * width..][..width].to_vec();
        [of(x, layer.inputs), of(&coordinates, layer.coordinates)].concat()
    };
    let x: Vec<f64> = (0..layer.rows).flat_map(row).collect();
    reference::linear(&x, &list[0], &list[1], layer.rows, inputs, layer.outputs, layer.activation)
}

#[test]
fn linear_parity() {
    for rows in ROWS {
        for widths in [[1, 0, 1], [3, 0, 96], [64, 0, 17], [96, 0, 1], [1, 2, 32], [96, 1, 48], [5, 3, 17]] {
            for activation in ACTIVATIONS {
                let layer = linear(rows, widths, activation);
                let [inputs, _, outputs] = widths;
                let (list, x) = (linear_parameters(&layer), values(1, rows * inputs));
                let [y, ..] = run_linear(&layer, &list, &x, &values(4, rows * outputs));
                let want = reference_linear(&layer, &widen_all(&list), &widen(&x));
                assert_close(&format!("{layer:?}"), &y, &want, FORWARD);
            }
        }
    }
}

#[test]
fn linear_gradients_are_those_of_the_reference() {
    let cases = [
        (1, [1, 0, 1]),
        (7, [5, 0, 3]),
        (31, [4, 0, 17]),
        (1500, [2, 0, 3]),
        (31, [4, 2, 17]),
        (1500, [2, 1, 3]),
    ];
    for (rows, widths) in cases {
        for activation in ACTIVATIONS {
            check_linear(&linear(rows, widths, activation));
        }
    }
}

/// Values and gradients.
#[track_caller]
pub fn check_linear(layer: &Linear) {
    let Linear { rows, inputs, outputs, activation, .. } = *layer;
    let (mut list, x, dy) = (linear_parameters(layer), values(1, rows * inputs), values(4, rows * outputs));
    avoid_kinks(activation, &mut list[1]);
    let [y, dx, dw, db] = run_linear(layer, &list, &x, &dy);
    let at = widen_all(&list);
    assert_close(&format!("{layer:?}"), &y, &reference_linear(layer, &at, &widen(&x)), FORWARD);
    let of_x = |x: &[f64]| loss(&reference_linear(layer, &at, x), &dy);
    check_gradient(&format!("{layer:?}: x"), &dx, &widen(&x), of_x, BACKWARD);
    check_pairs(
        &format!("{layer:?}"),
        &linear::Parameters::NAMES.into_array(),
        (&list, &[dw, db]),
        |list| loss(&reference_linear(layer, list, &widen(&x)), &dy),
        BACKWARD,
    );
}

#[test]
fn linear_has_the_same_bits_with_any_number_of_threads() {
    let layer = linear(5003, [24, 2, 17], Activation::Gelu);
    let (list, x, dy) = (linear_parameters(&layer), values(1, 5003 * 24), values(4, 5003 * 17));
    assert_same_bits_with_any_threads("linear", || run_linear(&layer, &list, &x, &dy).to_vec());
}

#[test]
fn linear_without_rows_or_features_is_defined() {
    for (rows, inputs, outputs) in [(0, 3, 5), (4, 0, 3), (4, 3, 0), (0, 0, 0)] {
        for activation in ACTIVATIONS {
            let layer = linear(rows, [inputs, 0, outputs], activation);
            let (list, x) = (linear_parameters(&layer), values(1, rows * inputs));
            let dy = values(4, rows * outputs);
            let [y, dx, dw, _] = run_linear(&layer, &list, &x, &dy);
            let want = reference_linear(&layer, &widen_all(&list), &widen(&x));
            assert_close(&format!("{layer:?}"), &y, &want, FORWARD);
            assert!(dx.iter().chain(&dw).all(|v| *v == 0.0), "{layer:?}: sums over nothing are zero");
        }
    }
}

/// Every buffer in turn is one value short.
#[test]
fn linear_names_all_sizes_of_wrong_lengths() {
    let layer = linear(11, [3, 2, 5], Activation::Silu);
    // w, b, x, coordinates, y or dy, workspace, dx, dw, db
    let lengths = [25, 5, 33, 22, 55, layer.workspace_len(1), 33, 25, 5];
    for short in 0..lengths.len() {
        for backward in [false, true] {
            if short > 5 && !backward {
                continue;
            }
            let mut buffers = lengths.map(|len| vec![0.0f32; len]);
            buffers[short].pop();
            let what = format!("buffer {short}, backward {backward}");
            let message = panic_message(&what, move || {
                let [w, b, x, coordinates, y, workspace, dx, dw, db] = &mut buffers;
                let params = linear::Params { w, b };
                if backward {
                    let grads = linear::Grads { w: dw, b: db };
                    layer.backward(&params, x, coordinates, y, dx, grads, workspace);
                } else {
                    layer.forward(&params, x, coordinates, y, workspace);
                }
            });
            assert_names_sizes(&what, &message, &[11, 3, 2, 5]);
        }
    }
}

fn network(rows: usize, (inputs, hidden, outputs): (usize, usize, usize)) -> FeedForward {
    let key = Key { seed: 5, step: 2, layer: 1 };
    FeedForward { rows, inputs, hidden, outputs, activation: Activation::Gelu, dropout: 0.0, key }
}

fn network_parameters(layer: &FeedForward) -> Vec<Vec<f32>> {
    let FeedForward { inputs, hidden, .. } = *layer;
    let fan_in = feed_forward::Parameters { w_1: inputs, b_1: 1, w_2: hidden, b_2: 1 };
    parameters(&layer.lengths().into_array(), &fan_in.into_array())
}

fn network_params<T>(list: &[Vec<T>]) -> feed_forward::Params<'_, T> {
    feed_forward::Parameters::NAMES.map(in_turn(list))
}

fn network_grads(list: &mut [Vec<f32>]) -> feed_forward::Grads<'_> {
    feed_forward::Parameters::NAMES.map(in_turn_mut(list))
}

/// y, dx and the gradients; every buffer starts as NaN.
fn run_network(
    layer: &FeedForward,
    list: &[Vec<f32>],
    x: &[f32],
    dy: &[f32],
) -> (Vec<f32>, Vec<f32>, Vec<Vec<f32>>) {
    let (params, mut grads) = (network_params(list), unwritten_like(list));
    let (mut y, mut dx) = (unwritten(layer.rows * layer.outputs), unwritten(x.len()));
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    layer.forward(&params, x, &mut y, &mut workspace);
    workspace.fill(f32::NAN);
    layer.backward(&params, x, dy, &mut dx, network_grads(&mut grads), &mut workspace);
    (y, dx, grads)
}

/// The reference's network has as many outputs as inputs; two linear layers with a mask in between do for any widths.
fn reference_network(layer: &FeedForward, list: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    let FeedForward { rows, inputs, hidden, outputs, activation, .. } = *layer;
    let dropout = Dropout { rate: layer.dropout, key: layer.key, site: Site::Hidden };
    let params = network_params(list);
    if inputs == outputs {
        return reference::feed_forward(x, &params, rows, inputs, hidden, activation, &dropout);
    }
    let mut h = reference::linear(x, params.w_1, params.b_1, rows, inputs, hidden, activation);
    reference::drop_out(&dropout, &mut h);
    reference::linear(&h, params.w_2, params.b_2, rows, hidden, outputs, Activation::None)
}

#[test]
fn network_parity() {
    for rows in ROWS {
        for widths in [(1, 1, 1), (16, 33, 16), (7, 96, 2)] {
            for activation in ACTIVATIONS {
                for dropout in [0.0, 0.3] {
                    let layer = FeedForward { activation, dropout, ..network(rows, widths) };
                    let (list, x) = (network_parameters(&layer), values(1, rows * widths.0));
                    let (y, ..) = run_network(&layer, &list, &x, &values(4, rows * widths.2));
                    let want = reference_network(&layer, &widen_all(&list), &widen(&x));
                    assert_close(&format!("{layer:?}"), &y, &want, FORWARD);
                }
            }
        }
    }
}

#[test]
fn network_gradients_are_those_of_the_reference() {
    for (rows, widths) in [(1, (1, 1, 1)), (7, (5, 8, 5)), (31, (3, 17, 2)), (1500, (2, 3, 2))] {
        for activation in ACTIVATIONS {
            for dropout in [0.0, 0.3] {
                let layer = FeedForward { activation, dropout, ..network(rows, widths) };
                let (mut list, x, dy) =
                    (network_parameters(&layer), values(1, rows * widths.0), values(4, rows * widths.2));
                avoid_kinks(activation, &mut list[1]);
                let (_, dx, grads) = run_network(&layer, &list, &x, &dy);
                let at = widen_all(&list);
                let of_x = |x: &[f64]| loss(&reference_network(&layer, &at, x), &dy);
                check_gradient(&format!("{layer:?}: x"), &dx, &widen(&x), of_x, BACKWARD);
                check_pairs(
                    &format!("{layer:?}"),
                    &feed_forward::Parameters::NAMES.into_array(),
                    (&list, &grads),
                    |list| loss(&reference_network(&layer, list, &widen(&x)), &dy),
                    BACKWARD,
                );
            }
        }
    }
}

#[test]
fn network_has_the_same_bits_with_any_number_of_threads() {
    let layer = FeedForward { dropout: 0.1, ..network(5003, (24, 40, 17)) };
    let (list, x, dy) = (network_parameters(&layer), values(1, 5003 * 24), values(4, 5003 * 17));
    assert_same_bits_with_any_threads("feed-forward network", || {
        let (y, dx, grads) = run_network(&layer, &list, &x, &dy);
        [vec![y, dx], grads].concat()
    });
}

#[test]
fn network_without_rows_is_defined_and_without_width_refused() {
    let layer = network(0, (3, 5, 2));
    let (y, dx, grads) = run_network(&layer, &network_parameters(&layer), &[], &[]);
    assert!(y.is_empty() && dx.is_empty() && grads.iter().flatten().all(|g| *g == 0.0));
    let layer = network(7, (3, 0, 2));
    let message = panic_message("no hidden layer", move || {
        run_network(&layer, &network_parameters(&layer), &[0.0; 21], &[0.0; 14]);
    });
    assert_names_sizes("no hidden layer", &message, &[7, 3, 0, 2]);
}

/// Every buffer in turn is one value short.
#[test]
fn network_names_all_sizes_of_wrong_lengths() {
    let layer = network(11, (3, 7, 5));
    let parameters = layer.lengths().into_array();
    // parameters, x, y or dy, workspace, dx, gradients
    let lengths = [&parameters[..], &[33, 55, layer.workspace_len(1), 33], &parameters].concat();
    for short in 0..lengths.len() {
        for backward in [false, true] {
            if short > 6 && !backward {
                continue;
            }
            let mut buffers: Vec<Vec<f32>> = lengths.iter().map(|&len| vec![0.0; len]).collect();
            buffers[short].pop();
            let what = format!("buffer {short}, backward {backward}");
            let message = panic_message(&what, move || {
                let (list, rest) = buffers.split_at_mut(4);
                let (others, grads) = rest.split_at_mut(4);
                let [x, y, workspace, dx] = others else { unreachable!() };
                if backward {
                    layer.backward(&network_params(list), x, y, dx, network_grads(grads), workspace);
                } else {
                    layer.forward(&network_params(list), x, y, workspace);
                }
            });
            assert_names_sizes(&what, &message, &[11, 3, 7, 5]);
        }
    }
}

/// y, dx; every buffer starts as NaN.
fn run_pointwise(op: &Pointwise, x: &[f32], dy: &[f32]) -> [Vec<f32>; 2] {
    let (mut y, mut dx) = (unwritten(x.len()), unwritten(x.len()));
    op.forward(x, &mut y);
    op.backward(x, dy, &mut dx);
    [y, dx]
}

#[test]
fn pointwise_values_and_gradients_are_those_of_the_formula_with_any_threads() {
    let key = Key { seed: 5, step: 2, layer: 1 };
    // One value, a ragged end, several blocks.
    for len in [1, 100, 13_001] {
        let (x, dy) = (values(1, len), values(2, len));
        for (activation, rate) in ACTIVATIONS.into_iter().flat_map(|a| [(a, 0.0), (a, 0.3)]) {
            let dropout = Dropout { rate, key, site: Site::Outside };
            let op = Pointwise { len, dropout, activation };
            let [y, dx] = run_pointwise(&op, &x, &dy);
            let formula =
                |i: usize, x: f64| reference::activate(activation, dropout.factor(i as u64) as f64 * x);
            let want: Vec<f64> = widen(&x).into_iter().enumerate().map(|(i, x)| formula(i, x)).collect();
            let what = format!("{op:?}");
            // A product, and an activation of a few roundings.
            assert_close(&what, &y, &want, 8.0);
            // Every value has a function of its own: differences one by one, away from the kink of ReLU.
            for i in (0..len).step_by(len.div_ceil(60)).filter(|&i| x[i].abs() > 1e-4) {
                let (at, step) = (x[i] as f64, 1e-5);
                let slope = (formula(i, at + step) - formula(i, at - step)) / (2.0 * step);
                let error = (dx[i] as f64 - slope * dy[i] as f64).abs();
                assert!(error < 1e-6, "{what}: dx[{i}] = {}, expected {}", dx[i], slope * dy[i] as f64);
            }
        }
    }
    let dropout = Dropout { rate: 0.3, key, site: Site::Outside };
    let op = Pointwise { len: 13_001, dropout, activation: Activation::Silu };
    let (x, dy) = (values(1, op.len), values(2, op.len));
    assert_same_bits_with_any_threads("pointwise", || run_pointwise(&op, &x, &dy).to_vec());
}
