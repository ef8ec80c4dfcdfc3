//! Layer norm and instance norm: parity, gradients, threads, sizes.

use crate::layers::{assert_names_sizes, panic_message};
use crate::run::unwritten;
use crate::support::{
    assert_close, assert_same_bits_with_any_threads, check_gradient, check_pairs, values, widen,
};
use galerkin_kernels::norm::{InstanceNorm, LayerNorm};
use galerkin_kernels::{par, reference};

/// Roundings of a mean, a variance and a quotient. Measured: 4.
const FORWARD: f64 = 16.0;
/// Those of a backward pass, whose sums run over all rows. Measured: 7.
const BACKWARD: f64 = 24.0;

/// ε of gradient checks, about the variance of x: with a small one the norm of two values is ±1 whatever they are, and its gradient
/// nothing but cancellation.
const EPS: f32 = 0.3;

/// γ around 1 and β around 0.
fn parameters(width: usize) -> [Vec<f32>; 2] {
    [values(6, width).iter().map(|v| 1.0 + 0.5 * v).collect(), values(7, width)]
}

/// x with a mean that is not small beside its deviation, as the inputs of a norm are.
fn shifted(len: usize) -> Vec<f32> {
    values(1, len).iter().map(|v| v + 0.7).collect()
}

fn loss(y: &[f64], dy: &[f32]) -> f64 {
    y.iter().zip(dy).map(|(y, dy)| y * *dy as f64).sum()
}

/// y, dx, dγ, dβ; every buffer starts as NaN.
fn run_layer_norm(norm: &LayerNorm, x: &[f32], dy: &[f32]) -> [Vec<f32>; 4] {
    let [gamma, beta] = parameters(norm.width);
    let (mut y, mut dx) = (unwritten(x.len()), unwritten(x.len()));
    let (mut dgamma, mut dbeta) = (unwritten(norm.width), unwritten(norm.width));
    let mut workspace = unwritten(norm.workspace_len(par::threads()));
    norm.forward(&gamma, &beta, x, &mut y);
    norm.backward(&gamma, x, dy, &mut dx, (&mut dgamma, &mut dbeta), &mut workspace);
    [y, dx, dgamma, dbeta]
}

/// y, dx, dγ, dβ; every buffer starts as NaN.
fn run_instance_norm(norm: &InstanceNorm, x: &[f32], dy: &[f32]) -> [Vec<f32>; 4] {
    let [gamma, beta] = parameters(norm.width);
    let (mut y, mut dx) = (unwritten(x.len()), unwritten(x.len()));
    let (mut dgamma, mut dbeta) = (unwritten(norm.width), unwritten(norm.width));
    let mut workspace = unwritten(norm.workspace_len(par::threads()));
    norm.forward(&gamma, &beta, x, &mut y, &mut workspace);
    workspace.fill(f32::NAN);
    norm.backward(&gamma, x, dy, &mut dx, (&mut dgamma, &mut dbeta), &mut workspace);
    [y, dx, dgamma, dbeta]
}

fn reference_layer_norm(norm: &LayerNorm, x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    reference::layer_norm(x, norm.rows, norm.width, gamma, beta, norm.eps as f64)
}

fn reference_instance_norm(norm: &InstanceNorm, x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    reference::instance_norm(x, norm.batch, norm.n, norm.width, gamma, beta, norm.eps as f64)
}

/// Widths around those of the sixteen accumulators of a sum; rows around those of a tile, and several lanes.
#[test]
fn layer_norm_parity() {
    for rows in [1, 2, 31, 63, 64, 65, 1000, 3089] {
        for width in [1, 2, 7, 16, 31, 96, 97] {
            let norm = LayerNorm { rows, width, eps: 1e-3 };
            let (x, [gamma, beta]) = (shifted(rows * width), parameters(width));
            let [y, ..] = run_layer_norm(&norm, &x, &values(4, rows * width));
            let want = reference_layer_norm(&norm, &widen(&x), &widen(&gamma), &widen(&beta));
            assert_close(&format!("{norm:?}"), &y, &want, FORWARD);
        }
    }
}

#[test]
fn instance_norm_parity() {
    for batch in [1, 3] {
        for n in [1, 2, 31, 63, 64, 65, 1000, 2053] {
            for width in [1, 3, 16, 97] {
                let norm = InstanceNorm { batch, n, width, eps: 1e-3 };
                let (x, [gamma, beta]) = (shifted(batch * n * width), parameters(width));
                let [y, ..] = run_instance_norm(&norm, &x, &values(4, batch * n * width));
                let want = reference_instance_norm(&norm, &widen(&x), &widen(&gamma), &widen(&beta));
                assert_close(&format!("{norm:?}"), &y, &want, FORWARD);
            }
        }
    }
}

#[track_caller]
fn check_all_gradients(
    what: &str,
    [found, dx, dgamma, dbeta]: [Vec<f32>; 4],
    (x, dy): (&[f32], &[f32]),
    y: impl Fn(&[f64], &[f64], &[f64]) -> Vec<f64>,
) {
    let (list, at) = (parameters(dgamma.len()), widen(x));
    let [gamma, beta] = list.each_ref().map(|p| widen(p));
    assert_close(what, &found, &y(&at, &gamma, &beta), FORWARD);
    let of_x = |x: &[f64]| loss(&y(x, &gamma, &beta), dy);
    check_gradient(&format!("{what}: x"), &dx, &at, of_x, BACKWARD);
    let of_pair = |list: &[Vec<f64>]| loss(&y(&at, &list[0], &list[1]), dy);
    check_pairs(what, &["gamma", "beta"], (&list, &[dgamma, dbeta]), of_pair, BACKWARD);
}

#[test]
fn layer_norm_gradients_are_those_of_the_reference() {
    for (rows, width) in [(1, 1), (1, 2), (7, 5), (65, 16), (31, 97), (1500, 3)] {
        check_layer_norm(rows, width);
    }
}

/// Values and gradients.
#[track_caller]
pub fn check_layer_norm(rows: usize, width: usize) {
    let norm = LayerNorm { rows, width, eps: EPS };
    let (x, dy) = (shifted(rows * width), values(4, rows * width));
    let run = run_layer_norm(&norm, &x, &dy);
    check_all_gradients(&format!("{norm:?}"), run, (&x, &dy), |x, gamma, beta| {
        reference_layer_norm(&norm, x, gamma, beta)
    });
}

#[test]
fn instance_norm_gradients_are_those_of_the_reference() {
    for (batch, n, width) in [(1, 1, 1), (2, 2, 3), (3, 7, 5), (1, 65, 16), (2, 31, 97), (2, 1500, 3)] {
        check_instance_norm(batch, n, width);
    }
}

/// Values and gradients.
#[track_caller]
pub fn check_instance_norm(batch: usize, n: usize, width: usize) {
    let norm = InstanceNorm { batch, n, width, eps: EPS };
    let (x, dy) = (shifted(batch * n * width), values(4, batch * n * width));
    let run = run_instance_norm(&norm, &x, &dy);
    check_all_gradients(&format!("{norm:?}"), run, (&x, &dy), |x, gamma, beta| {
        reference_instance_norm(&norm, x, gamma, beta)
    });
}

/// The variance is a sum of squared deviations, never a difference of large squares.
#[test]
fn a_mean_far_from_zero_costs_only_the_digits_of_x() {
    let x: Vec<f32> = values(1, 300 * 24).iter().map(|v| v + 1000.0).collect();
    let (at, [gamma, beta]) = (widen(&x), parameters(24).map(|p| widen(&p)));
    // x − 1000 is exact, and the mean is known to about one rounding of 1000: a thousand roundings of the result. Measured: 920.
    let layer = LayerNorm { rows: 300, width: 24, eps: 1e-3 };
    let [y, ..] = run_layer_norm(&layer, &x, &x);
    assert_close("layer norm", &y, &reference_layer_norm(&layer, &at, &gamma, &beta), 2000.0);
    let instance = InstanceNorm { batch: 1, n: 300, width: 24, eps: 1e-3 };
    let [y, ..] = run_instance_norm(&instance, &x, &x);
    assert_close("instance norm", &y, &reference_instance_norm(&instance, &at, &gamma, &beta), 2000.0);
}

#[test]
fn same_bits_with_any_number_of_threads() {
    let len = 5 * 1009 * 24;
    let (x, dy) = (shifted(len), values(4, len));
    let layer = LayerNorm { rows: 5 * 1009, width: 24, eps: 1e-5 };
    assert_same_bits_with_any_threads("layer norm", || run_layer_norm(&layer, &x, &dy).to_vec());
    let instance = InstanceNorm { batch: 5, n: 1009, width: 24, eps: 1e-5 };
    assert_same_bits_with_any_threads("instance norm", || run_instance_norm(&instance, &x, &dy).to_vec());
}

#[test]
fn nothing_to_normalise_is_defined() {
    for (rows, width) in [(0, 5), (5, 0), (0, 0)] {
        let run = run_layer_norm(&LayerNorm { rows, width, eps: 1e-5 }, &[], &[]);
        assert!(run.iter().flatten().all(|v| *v == 0.0), "rows {rows}, width {width}");
    }
    for (batch, n, width) in [(0, 5, 3), (2, 0, 3), (2, 5, 0)] {
        let run = run_instance_norm(&InstanceNorm { batch, n, width, eps: 1e-5 }, &[], &[]);
        assert!(run.iter().flatten().all(|v| *v == 0.0), "batch {batch}, n {n}, width {width}");
    }
}

/// Every buffer in turn is one value short.
#[test]
fn wrong_lengths_panic_and_name_all_sizes() {
    let layer = LayerNorm { rows: 11, width: 5, eps: 1e-5 };
    // γ, β, x, out or dy, dx, dγ, dβ, workspace
    for (short, backward) in (0..4).map(|i| (i, false)).chain([0, 2, 3, 4, 5, 6, 7].map(|i| (i, true))) {
        let mut buffers =
            [5, 5, 55, 55, 55, 5, 5, layer.workspace_len(1)].map(|len: usize| vec![0.0f32; len]);
        buffers[short].pop();
        let what = format!("layer norm, buffer {short}, backward {backward}");
        let message = panic_message(&what, move || {
            let [gamma, beta, x, y, dx, dgamma, dbeta, workspace] = &mut buffers;
            if backward {
                layer.backward(gamma, x, y, dx, (dgamma, dbeta), workspace);
            } else {
                layer.forward(gamma, beta, x, y);
            }
        });
        assert_names_sizes(&what, &message, &[11, 5]);
    }
    let instance = InstanceNorm { batch: 2, n: 7, width: 5, eps: 1e-5 };
    for (short, backward) in
        [0, 1, 2, 3, 7].map(|i| (i, false)).into_iter().chain([0, 2, 3, 4, 5, 6, 7].map(|i| (i, true)))
    {
        let mut buffers =
            [5, 5, 70, 70, 70, 5, 5, instance.workspace_len(1)].map(|len: usize| vec![0.0f32; len]);
        buffers[short].pop();
        let what = format!("instance norm, buffer {short}, backward {backward}");
        let message = panic_message(&what, move || {
            let [gamma, beta, x, y, dx, dgamma, dbeta, workspace] = &mut buffers;
            if backward {
                instance.backward(gamma, x, y, dx, (dgamma, dbeta), workspace);
            } else {
                instance.forward(gamma, beta, x, y, workspace);
            }
        });
        assert_names_sizes(&what, &message, &[2, 7, 5]);
    }
}
