//! Convolution, resize and local means.

use galerkin_kernels::activation::Activation;
use galerkin_kernels::conv3x3::{Conv3x3, Grads, Params, weights_from_torch, weights_to_torch};
use galerkin_kernels::dropout::{Dropout, Key, Site};
use galerkin_kernels::local_means::LocalMeans;
use galerkin_kernels::par::threads;
use galerkin_kernels::reference;
use galerkin_kernels::resize::Resize;

use crate::support::{assert_close, assert_same_bits_with_any_threads, check_gradient, values, widen};

const ACTIVATIONS: [Activation; 4] = [Activation::None, Activation::Relu, Activation::Silu, Activation::Gelu];

pub fn conv(batch: usize, n1: usize, n2: usize, inputs: usize, outputs: usize) -> Conv3x3 {
    let (dropout, activation) = (None, Activation::None);
    Conv3x3 { batch, n1, n2, inputs, outputs, bias: false, dropout, activation, keep: false }
}

pub fn with_everything(shape: Conv3x3, activation: Activation) -> Conv3x3 {
    let key = Key { seed: 3, step: 1, layer: 4 };
    let dropout = Some(Dropout { rate: 0.3, key, site: Site::Outside });
    Conv3x3 { bias: true, dropout, activation, ..shape }
}

/// Roundings of a sum of 9c terms, with a margin of eight.
fn roundings(terms: usize) -> f64 {
    8.0 * (terms as f64).sqrt() + 8.0
}

/// x, w, b of a shape.
fn conv_data(shape: &Conv3x3) -> [Vec<f32>; 3] {
    [values(1, shape.x_len()), values(2, shape.lengths().w), values(3, shape.lengths().b)]
}

fn conv_forward(shape: &Conv3x3, data: &[Vec<f32>; 3]) -> Vec<f32> {
    conv_forward_saving(shape, data)[0].clone()
}

/// y and what waits for the backward pass.
fn conv_forward_saving(shape: &Conv3x3, [x, w, b]: &[Vec<f32>; 3]) -> [Vec<f32>; 2] {
    // Outputs and workspaces begin as NaN: whatever is not written shows.
    let [mut y, mut saved, mut workspace] =
        [shape.y_len(), shape.saved_len(), shape.forward_workspace_len(threads())]
            .map(|len| vec![f32::NAN; len]);
    shape.forward(x, Params { w, b }, &mut y, &mut saved, &mut workspace);
    [y, saved]
}

/// dx, dw, db.
fn conv_backward(shape: &Conv3x3, data: &[Vec<f32>; 3], dy: &[f32]) -> [Vec<f32>; 3] {
    let ([x, w, b], [_, saved]) = (data, conv_forward_saving(shape, data));
    let [mut dx, mut dw, mut db] = [x, w, b].map(|v| vec![f32::NAN; v.len()]);
    let mut workspace = vec![f32::NAN; shape.workspace_len(threads())];
    let grads = Grads { w: &mut dw, b: &mut db };
    shape.backward(x, Params { w, b }, &saved, dy, Some(&mut dx), grads, &mut workspace);
    [dx, dw, db]
}

fn conv_reference(shape: &Conv3x3, x: &[f64], w: &[f64], b: &[f64]) -> Vec<f64> {
    reference::conv3x3(shape, x, Params { w, b })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn convolution_matches_the_reference_at_all_sizes() {
    // The last four are cut into several tiles per image, of unequal heights or of single rows.
    let grids = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (1, 17), (16, 16), (7, 31), (13, 1)];
    let grids = grids.into_iter().chain([(23, 37), (130, 2), (3, 331), (64, 8)]);
    let channels = [(1, 1), (1, 16), (3, 42), (16, 3), (42, 42), (5, 1)];
    for (n1, n2) in grids {
        for (inputs, outputs) in channels {
            let plain = conv(2, n1, n2, inputs, outputs);
            for shape in [plain, with_everything(plain, Activation::Silu)] {
                let data = conv_data(&shape);
                let [x, w, b] = data.each_ref().map(|v| widen(v));
                let want = conv_reference(&shape, &x, &w, &b);
                assert_close(
                    &format!("{shape:?}"),
                    &conv_forward(&shape, &data),
                    &want,
                    roundings(9 * inputs),
                );
            }
        }
    }
}

#[test]
fn convolution_at_the_networks_width_matches_the_reference() {
    for (inputs, outputs) in [(128, 128), (1, 128), (128, 42)] {
        let shape = conv(1, 5, 29, inputs, outputs);
        let data = conv_data(&shape);
        let [x, w, b] = data.each_ref().map(|v| widen(v));
        let want = conv_reference(&shape, &x, &w, &b);
        assert_close("wide", &conv_forward(&shape, &data), &want, roundings(9 * inputs));
    }
}

#[test]
fn convolution_gradients_match_central_differences() {
    let small = [(1, 1, 3, 2), (2, 1, 1, 5), (1, 2, 4, 3), (5, 7, 3, 4), (8, 4, 1, 16)];
    // Several tiles in one lane, and several lanes.
    for (n1, n2, inputs, outputs) in small.into_iter().chain([(23, 37, 2, 3), (41, 59, 3, 2)]) {
        let plain = conv(2, n1, n2, inputs, outputs);
        let shapes = ACTIVATIONS.map(|activation| with_everything(plain, activation));
        for shape in shapes.into_iter().chain([plain, Conv3x3 { bias: true, ..plain }]) {
            check_conv(&shape);
        }
    }
}

/// Values and gradients.
#[track_caller]
pub fn check_conv(shape: &Conv3x3) {
    let Conv3x3 { batch, n1, n2, inputs, outputs, .. } = *shape;
    let data = conv_data(shape);
    let dy = values(4, shape.y_len());
    let [dx, dw, db] = conv_backward(shape, &data, &dy);
    let ([x, w, b], dy) = (data.each_ref().map(|v| widen(v)), widen(&dy));
    let what = |name: &str| format!("{name} of {shape:?}");
    let y = conv_reference(shape, &x, &w, &b);
    assert_close(&what("y"), &conv_forward(shape, &data), &y, roundings(9 * inputs));
    let pixels = batch * n1 * n2;
    let loss = |x: &[f64], w: &[f64], b: &[f64]| dot(&dy, &conv_reference(shape, x, w, b));
    check_gradient(&what("dx"), &dx, &x, |x| loss(x, &w, &b), roundings(9 * (inputs + outputs)));
    check_gradient(&what("dw"), &dw, &w, |w| loss(&x, w, &b), roundings(9 * inputs + pixels));
    check_gradient(&what("db"), &db, &b, |b| loss(&x, &w, b), roundings(9 * inputs + pixels));
}

/// Without an activation y is linear in x and in w, so ⟨y, dy⟩ = ⟨x, dx⟩ = ⟨w, dw⟩, at sizes too large for differences.
#[test]
fn convolution_gradients_are_adjoint_over_several_lanes() {
    let shape = conv(3, 41, 59, 16, 24);
    let data = conv_data(&shape);
    let dy = values(4, shape.y_len());
    let y = widen(&conv_forward(&shape, &data));
    let [dx, dw, _] = conv_backward(&shape, &data, &dy);
    let pairing = dot(&y, &widen(&dy));
    // The three pairings sum 174 168 products of size 7 with f32 factors: a rounding each, in random directions.
    let tolerance = 8.0 * f32::EPSILON as f64 * 7.0 * (y.len() as f64).sqrt();
    assert!((dot(&widen(&data[0]), &widen(&dx)) - pairing).abs() < tolerance);
    assert!((dot(&widen(&data[1]), &widen(&dw)) - pairing).abs() < tolerance);
}

#[test]
fn convolution_is_the_same_bits_with_any_threads_and_without_dx() {
    let plain = conv(3, 41, 59, 5, 7);
    for shape in [plain, with_everything(plain, Activation::Silu)] {
        let data = conv_data(&shape);
        let dy = values(4, shape.y_len());
        assert_same_bits_with_any_threads("conv3x3", || {
            let mut all = vec![conv_forward(&shape, &data)];
            all.extend(conv_backward(&shape, &data, &dy));
            all
        });
        let [_, dw, db] = conv_backward(&shape, &data, &dy);
        let (mut dw_alone, mut db_alone) = (dw.clone(), db.clone());
        let grads = Grads { w: &mut dw_alone, b: &mut db_alone };
        let mut workspace = vec![f32::NAN; shape.workspace_len(threads())];
        let params = Params { w: &data[1], b: &data[2] };
        shape.backward(&data[0], params, &[], &dy, None, grads, &mut workspace);
        assert!(dw == dw_alone && db == db_alone);
    }
}

#[test]
fn what_a_convolution_keeps_is_what_it_would_compute_again() {
    let plain = conv(3, 41, 59, 5, 7);
    for activation in ACTIVATIONS {
        let shape = with_everything(plain, activation);
        let keeping = Conv3x3 { keep: true, ..shape };
        assert_eq!(keeping.saved_len(), if activation == Activation::None { 0 } else { shape.y_len() });
        let (data, dy) = (conv_data(&shape), values(4, shape.y_len()));
        assert_eq!(conv_forward(&shape, &data), conv_forward(&keeping, &data), "{activation:?}");
        assert_eq!(conv_backward(&shape, &data, &dy), conv_backward(&keeping, &data, &dy), "{activation:?}");
        assert_same_bits_with_any_threads("conv3x3 that keeps", || {
            let mut all = conv_forward_saving(&keeping, &data).to_vec();
            all.extend(conv_backward(&keeping, &data, &dy));
            all
        });
    }
}

#[test]
fn convolution_of_nothing_is_nothing_with_gradient_zero() {
    let with_bias = |shape| Conv3x3 { bias: true, ..shape };
    for shape in [conv(0, 5, 5, 3, 4), conv(2, 0, 5, 3, 4), conv(2, 5, 0, 3, 4)].map(with_bias) {
        let data = conv_data(&shape);
        assert!(conv_forward(&shape, &data).is_empty());
        let [_, dw, db] = conv_backward(&shape, &data, &[]);
        assert!(dw.iter().chain(&db).all(|&v| v == 0.0));
    }
    let no_inputs = with_bias(conv(1, 2, 2, 0, 3));
    let data = conv_data(&no_inputs);
    assert_eq!(conv_forward(&no_inputs, &data), data[2].repeat(4));
    assert!(conv_forward(&conv(1, 2, 2, 3, 0), &conv_data(&conv(1, 2, 2, 3, 0))).is_empty());
}

#[test]
fn torch_weights_go_there_and_back() {
    let (inputs, outputs) = (2, 3);
    let torch: Vec<f32> = (0..54).map(|i| i as f32).collect();
    let (mut ours, mut back) = (vec![0.0; 54], vec![0.0; 54]);
    weights_from_torch(&torch, inputs, outputs, &mut ours);
    // torch[q = 2, c = 1, s = 0, t = 2] = ours[s = 0, t = 2, c = 1, q = 2]
    assert_eq!(ours[((2) * inputs + 1) * outputs + 2], torch[(2 * inputs + 1) * 9 + 2]);
    weights_to_torch(&ours, inputs, outputs, &mut back);
    assert_eq!(torch, back);
}

#[test]
#[should_panic(
    expected = "conv3x3 x: expected 120 values, found 119 (batch = 2, n1 = 4, n2 = 5, inputs = 3, outputs = 7"
)]
fn convolution_names_all_sizes_when_x_is_wrong() {
    let shape = conv(2, 4, 5, 3, 7);
    let mut workspace = vec![0.0; shape.forward_workspace_len(1)];
    let params = Params { w: &[0.0; 189], b: &[] };
    shape.forward(&[0.0; 119], params, &mut [0.0; 280], &mut [], &mut workspace);
}

#[test]
#[should_panic(expected = "conv3x3 workspace: needs at least")]
fn convolution_names_all_sizes_when_the_workspace_is_short() {
    let shape = conv(2, 4, 5, 3, 7);
    let (mut dw, grads_b) = (vec![0.0; 189], &mut []);
    let grads = Grads { w: &mut dw, b: grads_b };
    let params = Params { w: &[0.0; 189], b: &[] };
    shape.backward(&[0.0; 120], params, &[], &[0.0; 280], None, grads, &mut [0.0; 10]);
}

const RESIZES: [([usize; 2], [usize; 2]); 13] = [
    ([1, 1], [1, 1]),
    ([1, 1], [4, 3]),
    ([5, 4], [1, 1]),
    ([1, 7], [2, 1]),
    ([2, 2], [5, 7]),
    ([3, 5], [5, 3]),
    ([8, 8], [16, 4]),
    ([7, 11], [7, 11]),
    ([11, 13], [11, 29]),
    ([43, 17], [77, 31]),
    ([29, 40], [11, 7]),
    ([100, 3], [7, 2]),
    ([6, 2], [101, 1]),
];

fn resize_forward(plan: &Resize, batch: usize, x: &[f32]) -> Vec<f32> {
    let (mut y, mut workspace) =
        (vec![f32::NAN; plan.y_len(batch)], vec![f32::NAN; plan.forward_workspace_len(threads())]);
    plan.forward(batch, x, &mut y, &mut workspace);
    y
}

fn resize_backward(plan: &Resize, batch: usize, x: &[f32], dy: &[f32]) -> Vec<f32> {
    let (mut dx, mut workspace) =
        (vec![f32::NAN; plan.x_len(batch)], vec![f32::NAN; plan.workspace_len(batch, threads())]);
    plan.backward(batch, x, dy, &mut dx, &mut workspace);
    dx
}

#[test]
fn resize_matches_the_reference_and_its_gradient_central_differences() {
    for (from, to) in RESIZES {
        for (channels, activation) in [1, 3, 16, 42].into_iter().zip(ACTIVATIONS) {
            check_resize(from, to, channels, activation);
        }
    }
}

/// Values and, unless the grid is large, the gradient.
#[track_caller]
pub fn check_resize(from: [usize; 2], to: [usize; 2], channels: usize, activation: Activation) {
    let plan = Resize::new(from, to, channels, activation);
    let x = values(1, plan.x_len(2));
    let y = |x: &[f64]| reference::resize(2, from, to, channels, activation, x);
    let what = format!("{from:?} to {to:?}, {channels} channels, {activation:?}");
    // Two interpolations and an activation: a handful of roundings.
    assert_close(&what, &resize_forward(&plan, 2, &x), &y(&widen(&x)), 8.0);
    if from[0] * from[1] > 200 {
        return;
    }
    let dy = values(2, plan.y_len(2));
    let dx = resize_backward(&plan, 2, &x, &dy);
    let terms = to[0].div_ceil(from[0]) * to[1].div_ceil(from[1]);
    check_gradient(&what, &dx, &widen(&x), |x| dot(&widen(&dy), &y(x)), roundings(terms));
}

#[test]
fn resize_backward_is_the_transpose() {
    for (from, to) in RESIZES {
        let plan = Resize::new(from, to, 5, Activation::None);
        let (x, dy) = (values(1, plan.x_len(3)), values(2, plan.y_len(3)));
        let y = resize_forward(&plan, 3, &x);
        let dx = resize_backward(&plan, 3, &[], &dy);
        let (left, right) = (dot(&widen(&y), &widen(&dy)), dot(&widen(&x), &widen(&dx)));
        let tolerance = 8.0 * f32::EPSILON as f64 * ((y.len() + dx.len()) as f64).sqrt();
        assert!((left - right).abs() < tolerance, "{from:?} to {to:?}: {left} against {right}");
    }
}

#[test]
fn resize_of_a_linear_function_is_that_function() {
    let coordinate = |i: usize, n: usize| if n == 1 { 0.0 } else { i as f64 / (n - 1) as f64 };
    let plane = |[n1, n2]: [usize; 2]| {
        let at = move |k: usize| 1.0 + 2.0 * coordinate(k / n2, n1) - 3.0 * coordinate(k % n2, n2);
        (0..n1 * n2).map(at).collect::<Vec<f64>>()
    };
    for (from, to) in RESIZES {
        let plan = Resize::new(from, to, 1, Activation::None);
        let x: Vec<f32> = plane(from).iter().map(|&v| v as f32).collect();
        if from[0] > 1 && from[1] > 1 {
            assert_close(&format!("{from:?} to {to:?}"), &resize_forward(&plan, 1, &x), &plane(to), 4.0);
        }
    }
}

#[test]
fn resize_to_the_same_size_is_the_identity_both_ways() {
    let plan = Resize::new([19, 23], [19, 23], 3, Activation::None);
    let mut x = values(1, plan.x_len(2));
    x[100] = f32::INFINITY;
    assert_eq!(resize_forward(&plan, 2, &x), x);
    let dy = values(2, plan.y_len(2));
    assert_eq!(resize_backward(&plan, 2, &[], &dy), dy);
}

#[test]
fn resize_is_the_same_bits_with_any_threads() {
    for (from, to, activation) in
        [([43, 31], [77, 59], Activation::Silu), ([59, 77], [31, 43], Activation::None)]
    {
        let plan = Resize::new(from, to, 5, activation);
        let (x, dy) = (values(1, plan.x_len(3)), values(2, plan.y_len(3)));
        assert_same_bits_with_any_threads("resize", || {
            vec![resize_forward(&plan, 3, &x), resize_backward(&plan, 3, &x, &dy)]
        });
    }
}

#[test]
fn resize_of_no_samples_pixels_or_channels() {
    let plan = Resize::new([3, 4], [5, 6], 2, Activation::Relu);
    assert!(resize_forward(&plan, 0, &[]).is_empty() && resize_backward(&plan, 0, &[], &[]).is_empty());
    let to_nothing = Resize::new([3, 4], [0, 6], 2, Activation::None);
    assert!(resize_forward(&to_nothing, 1, &[1.0; 24]).is_empty());
    assert_eq!(resize_backward(&to_nothing, 1, &[], &[]), [0.0; 24]);
    let no_channels = Resize::new([3, 4], [5, 6], 0, Activation::None);
    assert!(resize_forward(&no_channels, 2, &[]).is_empty());
}

#[test]
#[should_panic(
    expected = "resize y: expected 120 values, found 4 (batch = 2, n1 = 3, n2 = 4, m1 = 5, m2 = 6, channels = 2)"
)]
fn resize_names_all_sizes_when_y_is_wrong() {
    let plan = Resize::new([3, 4], [5, 6], 2, Activation::Relu);
    plan.forward(2, &[0.0; 48], &mut [0.0; 4], &mut [0.0; 100]);
}

#[test]
#[should_panic(expected = "resize of nothing")]
fn resize_makes_nothing_out_of_nothing_only() {
    Resize::new([0, 4], [5, 6], 2, Activation::Relu);
}

/// Closed and periodic axes in turn; sizes 1, odd, even and prime, finer and coarser.
const MEANS: [([usize; 2], [usize; 2], [bool; 2]); 15] = [
    ([1, 1], [1, 1], [false, true]),
    ([1, 1], [4, 3], [false, true]),
    ([5, 4], [1, 1], [false, true]),
    ([4, 5], [1, 1], [true, true]),
    ([1, 7], [1, 2], [false, true]),
    ([1, 7], [1, 2], [false, false]),
    ([2, 9], [2, 3], [false, false]),
    ([2, 9], [2, 3], [true, true]),
    ([11, 13], [7, 5], [false, true]),
    ([12, 16], [8, 4], [true, false]),
    ([7, 11], [7, 11], [false, true]),
    ([29, 43], [17, 31], [true, false]),
    ([100, 3], [7, 2], [false, true]),
    ([6, 2], [23, 3], [true, false]),
    ([3, 64], [1, 63], [true, true]),
];

fn means_forward(plan: &LocalMeans, batch: usize, x: &[f32]) -> Vec<f32> {
    let (mut y, mut workspace) =
        (vec![f32::NAN; plan.y_len(batch)], vec![f32::NAN; plan.workspace_len(threads())]);
    plan.forward(batch, x, &mut y, &mut workspace);
    y
}

fn means_backward(plan: &LocalMeans, batch: usize, dy: &[f32]) -> Vec<f32> {
    let (mut dx, mut workspace) =
        (vec![f32::NAN; plan.x_len(batch)], vec![f32::NAN; plan.workspace_len(threads())]);
    plan.backward(batch, dy, &mut dx, &mut workspace);
    dx
}

#[test]
fn local_means_match_the_reference_and_their_gradient_central_differences() {
    for (from, to, periodic) in MEANS {
        for channels in [1, 3, 16] {
            check_means(from, to, periodic, channels);
        }
    }
}

/// Values and gradient.
#[track_caller]
pub fn check_means(from: [usize; 2], to: [usize; 2], periodic: [bool; 2], channels: usize) {
    let plan = LocalMeans::new(from, to, periodic, channels);
    let x = values(1, plan.x_len(2));
    let y = |x: &[f64]| reference::local_means(2, from, to, periodic, channels, x);
    let what = format!("means of {from:?} on {to:?}, {periodic:?}, {channels} channels");
    // A sum along each axis.
    let sum = |k: usize| from[k].div_ceil(to[k]) + 2;
    assert_close(&what, &means_forward(&plan, 2, &x), &y(&widen(&x)), roundings(sum(0) * sum(1)));
    if from[0] * from[1] > 200 {
        return;
    }
    let dy = values(2, plan.y_len(2));
    let terms = (0..2).map(|k| to[k].div_ceil(from[k]) + 2).product();
    let dx = means_backward(&plan, 2, &dy);
    check_gradient(&what, &dx, &widen(&x), |x| dot(&widen(&dy), &y(x)), roundings(terms));
}

#[test]
fn local_means_backward_is_the_transpose() {
    for (from, to, periodic) in MEANS {
        let plan = LocalMeans::new(from, to, periodic, 5);
        let (x, dy) = (values(1, plan.x_len(3)), values(2, plan.y_len(3)));
        let (y, dx) = (means_forward(&plan, 3, &x), means_backward(&plan, 3, &dy));
        let (left, right) = (dot(&widen(&y), &widen(&dy)), dot(&widen(&x), &widen(&dx)));
        let tolerance = 8.0 * f32::EPSILON as f64 * ((y.len() + dx.len()) as f64).sqrt();
        assert!((left - right).abs() < tolerance, "{from:?} to {to:?}: {left} against {right}");
    }
}

#[test]
fn local_means_keep_constants_and_the_integral() {
    for (from, to, periodic) in MEANS {
        let what = format!("{from:?} to {to:?}, {periodic:?}");
        let plan = LocalMeans::new(from, to, periodic, 1);
        // Every weight is rounded once and every sum along an axis piles up roundings of its own.
        let terms = (from[0].div_ceil(to[0]) + 2) * (from[1].div_ceil(to[1]) + 2);
        let ones = means_forward(&plan, 1, &vec![1.0; plan.x_len(1)]);
        assert_close(&what, &ones, &vec![1.0; ones.len()], roundings(terms));
        let x = values(1, plan.x_len(1));
        let y = means_forward(&plan, 1, &x);
        let integral = |values: &[f32], n: [usize; 2]| -> f64 {
            let area = |at: usize| -> f64 {
                let cells =
                    [(at / n[1], 0), (at % n[1], 1)].map(|(i, k)| reference::cell(i, n[k], periodic[k]));
                cells.iter().map(|[begin, end]| end - begin).product()
            };
            values.iter().enumerate().map(|(at, v)| area(at) * f64::from(*v)).sum()
        };
        let (before, after) = (integral(&x, from), integral(&y, to));
        assert!(
            (before - after).abs() < roundings(terms) * f64::from(f32::EPSILON),
            "{what}: {before}, {after}"
        );
    }
}

#[test]
fn local_means_on_the_same_grid_are_the_identity_both_ways() {
    let plan = LocalMeans::new([19, 23], [19, 23], [false, true], 3);
    let (x, dy) = (values(1, plan.x_len(2)), values(2, plan.y_len(2)));
    assert_eq!(means_forward(&plan, 2, &x), x);
    assert_eq!(means_backward(&plan, 2, &dy), dy);
}

/// On half of the intervals of a closed axis: (x[2i − 1] + 2 x[2i] + x[2i + 1])/4 inside, and (2 x[0] + x[1])/3 at the first point, whose cell is
/// cut.
#[test]
fn local_means_on_every_second_point() {
    let plan = LocalMeans::new([5, 1], [3, 1], [false, false], 1);
    let y = means_forward(&plan, 1, &[1.0, 2.0, 4.0, 8.0, 16.0]);
    assert_close("halved", &y, &[1.5, 4.5, 12.0], 4.0);
}

#[test]
fn local_means_are_the_same_bits_with_any_threads() {
    for (from, to, periodic) in [([77, 59], [43, 31], [false, true]), ([31, 43], [59, 77], [true, false])] {
        let plan = LocalMeans::new(from, to, periodic, 5);
        let (x, dy) = (values(1, plan.x_len(3)), values(2, plan.y_len(3)));
        assert_same_bits_with_any_threads("local means", || {
            vec![means_forward(&plan, 3, &x), means_backward(&plan, 3, &dy)]
        });
    }
}

#[test]
fn local_means_of_no_samples_points_or_channels() {
    let plan = LocalMeans::new([3, 4], [5, 6], [true, false], 2);
    assert!(means_forward(&plan, 0, &[]).is_empty() && means_backward(&plan, 0, &[]).is_empty());
    let to_nothing = LocalMeans::new([3, 4], [0, 6], [true, false], 2);
    assert!(means_forward(&to_nothing, 1, &[1.0; 24]).is_empty());
    assert_eq!(means_backward(&to_nothing, 1, &[]), [0.0; 24]);
    assert!(means_forward(&LocalMeans::new([3, 4], [5, 6], [false; 2], 0), 2, &[]).is_empty());
}

#[test]
#[should_panic(
    expected = "local means x: expected 48 values, found 4 (batch = 2, n1 = 3, n2 = 4, m1 = 2, m2 = 2, channels = 2)"
)]
fn local_means_name_all_sizes_when_x_is_wrong() {
    LocalMeans::new([3, 4], [2, 2], [false; 2], 2).forward(2, &[0.0; 4], &mut [0.0; 16], &mut [0.0; 100]);
}

#[test]
#[should_panic(expected = "local means workspace: needs at least 8 values, found 7")]
fn local_means_name_all_sizes_when_the_workspace_is_short() {
    LocalMeans::new([3, 4], [2, 2], [false; 2], 2).backward(2, &[0.0; 16], &mut [0.0; 48], &mut [0.0; 7]);
}

#[test]
#[should_panic(expected = "local means of nothing")]
fn local_means_make_nothing_out_of_nothing_only() {
    LocalMeans::new([0, 4], [5, 6], [false; 2], 2);
}
