//! The attention kernels: parity, gradients, threads, sizes, and what the mathematics promises.

use crate::layers::{
    Given, assert_names_sizes, attention_lens, attention_params, check_directions, check_gradients,
    panic_message, parameters, reference_attention, widen_all,
};
use crate::run::{attention_grads, forward_attention, run_attention, run_attention_weights};
use crate::support::{assert_close, assert_same_bits_with_any_threads, values, widen};
use galerkin_kernels::attention::{Attention, Input, Kind, Norm};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::par;
use galerkin_kernels::reference;
use proptest::prelude::*;

pub const KINDS: [Kind; 4] = [Kind::Galerkin, Kind::Fourier, Kind::Linear, Kind::Softmax];
pub const NORMS: [Norm; 3] = [Norm::None, Norm::Layer, Norm::Instance];
/// H, p, and whether there is a projection.
const HEADS: [(usize, usize, bool); 7] =
    [(1, 0, false), (4, 0, false), (4, 0, true), (1, 1, true), (4, 1, true), (1, 2, true), (4, 2, true)];

/// Roundings that a forward pass may pile up: four sums in a row, of up to d, n, D and H·D terms. Measured: 9.
const FORWARD: f64 = 32.0;
/// Those of a backward pass: as many sums again, through the norms' 1/√(variance + ε) ≤ 10 with the ε of these tests.
/// Measured: 11.
const BACKWARD: f64 = 48.0;

pub fn layer(kind: Kind, n: usize, (heads, coordinates, projection): (usize, usize, bool)) -> Attention {
    Attention {
        kind,
        batch: 2,
        n,
        d: 16,
        heads,
        coordinates,
        projection,
        norm: Norm::None,
        // Large enough that features which happen to agree do not turn the norm into a step.
        eps: 1e-2,
        dropout: 0.0,
        key: Key { seed: 5, step: 3, layer: 1 },
        keep: false,
    }
}

#[track_caller]
fn check_parity(layer: &Attention, weighted: bool) {
    let (list, given) = (parameters(&attention_lens(layer), layer.d), Given::new(layer, weighted));
    let what = format!("{layer:?}, weighted {weighted}");
    let wide = widen_all(&list);
    let exact = reference::attention(layer, &attention_params(&wide), given.widen().input());
    assert_close(&what, &forward_attention(layer, &list, &given), &exact.y, FORWARD);
    assert_close(&what, &run_attention_weights(layer, &list, &given), &exact.weights, FORWARD);
}

#[test]
fn parity_over_all_options_at_small_sizes() {
    for n in [1, 2, 7, 31] {
        for kind in KINDS {
            for heads in HEADS {
                for norm in NORMS {
                    for dropout in [0.0, 0.3] {
                        for weighted in [false, true] {
                            check_parity(&Attention { norm, dropout, ..layer(kind, n, heads) }, weighted);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn parity_at_larger_sizes() {
    for n in [64, 97, 300, 1500] {
        for kind in KINDS {
            let base = Attention { d: 24, ..layer(kind, n, (4, 2, true)) };
            check_parity(&Attention { norm: Norm::Layer, ..base }, true);
            check_parity(&Attention { norm: Norm::Instance, heads: 1, dropout: 0.1, ..base }, false);
        }
    }
}

/// The widths of the paper's networks: Burgers, Darcy, the inverse problem.
#[test]
fn parity_at_the_widths_of_the_networks() {
    for kind in KINDS {
        for (d, heads) in [(96, (1, 1, true)), (128, (4, 2, true)), (192, (4, 2, true))] {
            check_parity(&Attention { d, norm: Norm::Layer, ..layer(kind, 150, heads) }, false);
        }
    }
}

/// With ε as in the networks and features that differ enough.
#[test]
fn parity_with_a_small_eps() {
    for kind in KINDS {
        for norm in [Norm::Layer, Norm::Instance] {
            check_parity(&Attention { norm, eps: 1e-7, ..layer(kind, 50, (1, 2, true)) }, false);
        }
    }
}

#[test]
fn gradients_are_those_of_the_reference() {
    for kind in KINDS {
        for heads in [(1, 0, false), (2, 0, true), (2, 1, true), (4, 2, true)] {
            for norm in NORMS {
                for (weighted, dropout) in [(false, 0.0), (true, 0.0), (false, 0.3), (true, 0.3)] {
                    let layer = Attention { norm, dropout, d: 8, ..layer(kind, 7, heads) };
                    let (list, given) =
                        (parameters(&attention_lens(&layer), 8), Given::new(&layer, weighted));
                    let dy = values(4, layer.batch * layer.n * layer.d);
                    let run = run_attention(&layer, &list, &given, &dy);
                    check_gradients(
                        &format!("{layer:?}, weighted {weighted}"),
                        (&list, &run.grads),
                        (&given, &run.dx),
                        &dy,
                        |list, given| reference_attention(&layer, list, given),
                        BACKWARD,
                    );
                }
            }
        }
    }
}

/// Several tiles and lanes, none of which ends where a sample does.
#[test]
fn gradients_at_a_larger_size() {
    for kind in KINDS {
        for (norm, weighted, dropout) in
            [(Norm::Layer, true, 0.0), (Norm::Instance, false, 0.2), (Norm::None, false, 0.0)]
        {
            let layer = Attention { batch: 5, norm, dropout, d: 8, ..layer(kind, 501, (2, 1, true)) };
            let (list, given) = (parameters(&attention_lens(&layer), 8), Given::new(&layer, weighted));
            let dy = values(4, layer.batch * layer.n * layer.d);
            let run = run_attention(&layer, &list, &given, &dy);
            check_directions(
                &format!("{layer:?}, weighted {weighted}"),
                (&list, &run.grads),
                (&given, &run.dx),
                &dy,
                |list, given| reference_attention(&layer, list, given),
                BACKWARD,
            );
        }
    }
}

#[test]
fn same_bits_with_any_number_of_threads() {
    for kind in KINDS {
        for (norm, dropout, weighted) in
            [(Norm::None, 0.0, true), (Norm::Layer, 0.2, false), (Norm::Instance, 0.0, false)]
        {
            // 5200 rows: several lanes, and samples that do not end where tiles do.
            let layer = Attention { batch: 4, d: 8, norm, dropout, ..layer(kind, 1300, (2, 1, true)) };
            let (list, given) = (parameters(&attention_lens(&layer), 8), Given::new(&layer, weighted));
            let dy = values(4, layer.batch * layer.n * layer.d);
            assert_same_bits_with_any_threads(&format!("{layer:?}"), || {
                let run = run_attention(&layer, &list, &given, &dy);
                let mut arrays = run.grads;
                arrays.extend([run.y, run.dx, run.weights]);
                arrays
            });
        }
    }
}

#[test]
fn no_samples_and_no_points_are_defined() {
    for kind in KINDS {
        for norm in NORMS {
            for (batch, n) in [(0, 5), (2, 0), (0, 0)] {
                let layer = Attention { batch, norm, ..layer(kind, n, (4, 1, true)) };
                let (list, given) = (parameters(&attention_lens(&layer), 16), Given::new(&layer, false));
                let run = run_attention(&layer, &list, &given, &[]);
                assert!(run.y.is_empty() && run.dx.is_empty());
                assert!(run.grads.iter().flatten().all(|g| *g == 0.0), "{layer:?}: gradients over nothing");
                assert!(run.weights.iter().all(|a| *a == 0.0), "{layer:?}: weights over nothing");
            }
        }
    }
}

#[test]
fn heads_that_do_not_divide_the_features_panic() {
    let layer = Attention { d: 22, ..layer(Kind::Galerkin, 9, (4, 1, true)) };
    let (list, given) = (parameters(&attention_lens(&layer), 22), Given::new(&layer, false));
    let message = panic_message("22 features in 4 heads", || drop(forward_attention(&layer, &list, &given)));
    assert_names_sizes("22 features in 4 heads", &message, &[22, 4]);
}

#[test]
fn coordinates_without_projection_panic() {
    let layer = Attention { projection: false, ..layer(Kind::Fourier, 9, (4, 3, true)) };
    let (list, given) = (parameters(&attention_lens(&layer), 16), Given::new(&layer, false));
    panic_message("coordinates without projection", || drop(forward_attention(&layer, &list, &given)));
}

/// Every buffer in turn is one value short; the message has to name B, n, d, H and p.
#[test]
fn wrong_lengths_panic_and_name_all_sizes() {
    let layer =
        Attention { batch: 3, n: 11, d: 20, norm: Norm::Layer, ..layer(Kind::Galerkin, 11, (5, 2, true)) };
    let list = parameters(&attention_lens(&layer), 20);
    let given = Given::new(&layer, true);
    let len = layer.batch * layer.n * layer.d;
    let buffer = |len: usize| vec![0.0f32; len];
    let (saved, workspace) = (buffer(layer.saved_len()), buffer(layer.workspace_len(par::threads())));
    let weights = given.weights.clone().unwrap();
    let inputs = [list.clone(), vec![given.x, given.coordinates, weights]].concat();
    let sizes = [3, 11, 20, 5, 2];

    let forward = [inputs.clone(), vec![buffer(len), saved.clone()]].concat();
    for short in 0..forward.len() {
        let mut all = forward.clone();
        let (mut workspace, what) = (workspace.clone(), format!("buffer {short} of the forward pass"));
        if all[short].pop().is_none() {
            continue;
        }
        let message = panic_message(&what, move || {
            let (inputs, outputs) = all.split_at_mut(15);
            let [out, saved] = outputs else { unreachable!() };
            let input = Input { x: &inputs[12], coordinates: &inputs[13], weights: Some(&inputs[14]) };
            layer.forward(&attention_params(&inputs[..12]), input, out, saved, &mut workspace);
        });
        assert_names_sizes(&what, &message, &sizes);
    }

    let backward = [inputs, vec![saved, buffer(len), buffer(len)], list].concat();
    for short in 0..backward.len() {
        let mut all = backward.clone();
        let (mut workspace, what) = (workspace.clone(), format!("buffer {short} of the backward pass"));
        if all[short].pop().is_none() {
            continue;
        }
        let message = panic_message(&what, move || {
            let (inputs, outputs) = all.split_at_mut(17);
            let (dx, grads) = outputs.split_at_mut(1);
            let input = Input { x: &inputs[12], coordinates: &inputs[13], weights: Some(&inputs[14]) };
            let (params, grads) = (attention_params(&inputs[..12]), attention_grads(grads));
            layer.backward(&params, input, &inputs[15], &inputs[16], &mut dx[0], grads, &mut workspace);
        });
        assert_names_sizes(&what, &message, &sizes);
    }
}

/// An n × n product and two thin ones are the same map; a mask that drops nothing forces the kernel onto the first way.
#[test]
fn fourier_through_the_square_matrix_equals_fourier_reassociated() {
    for norm in NORMS {
        for weighted in [false, true] {
            let thin = Attention { norm, ..layer(Kind::Fourier, 65, (4, 2, true)) };
            let square = Attention { dropout: 1e-30, ..thin };
            let (list, given) = (parameters(&attention_lens(&thin), 16), Given::new(&thin, weighted));
            let (wide, given_64) = (widen_all(&list), given.widen());
            let (params, input) = (attention_params(&wide), given_64.input());
            let reassociated = reference::fourier_reassociated(&thin, &params, input);
            let through_square = reference::attention(&thin, &params, input).y;
            let scale = reassociated.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (a, b) in reassociated.iter().zip(&through_square) {
                assert!((a - b).abs() < 1e-13 * scale, "{norm:?}, weighted {weighted}: {a} and {b}");
            }
            for layer in [thin, square] {
                let y = forward_attention(&layer, &list, &given);
                assert_close(&format!("{layer:?}"), &y, &reassociated, FORWARD);
            }
        }
    }
}

#[test]
fn equal_weights_are_no_weights() {
    for kind in KINDS {
        let layer = Attention { norm: Norm::Layer, ..layer(kind, 40, (4, 1, true)) };
        let (list, given) = (parameters(&attention_lens(&layer), 16), Given::new(&layer, false));
        let equal = Given { weights: Some(vec![1.0 / 40.0; 80]), ..given.clone() };
        let dy = values(4, layer.batch * layer.n * layer.d);
        let (a, b) = (run_attention(&layer, &list, &given, &dy), run_attention(&layer, &list, &equal, &dy));
        assert_close(&format!("{kind:?}: y"), &b.y, &widen(&a.y), FORWARD);
        assert_close(&format!("{kind:?}: weights"), &b.weights, &widen(&a.weights), FORWARD);
        assert_close(&format!("{kind:?}: dx"), &b.dx, &widen(&a.dx), BACKWARD);
    }
}

/// x and coordinates of one sample of a smooth function at t = j·h, j < n.
fn smooth(n: usize, h: f32, d: usize, weights: Option<Vec<f32>>) -> Given {
    let feature = |j: usize, c: usize| {
        let t = j as f32 * h;
        0.5 * (0.2 * c as f32 * t).exp() - 0.5 * (2.0 * t + c as f32).sin()
    };
    Given {
        x: (0..n).flat_map(|j| (0..d).map(move |c| feature(j, c))).collect(),
        coordinates: (0..n).map(|j| j as f32 * h).collect(),
        weights,
    }
}

/// The largest difference at the shared points when the grid of `coarse` intervals is doubled, and doubled again.
fn refinement(layer: Attention, coarse: usize, points: impl Fn(usize) -> Given) -> [f64; 2] {
    let list = parameters(&attention_lens(&layer), layer.d);
    let [a, b, c] = [coarse, 2 * coarse, 4 * coarse].map(|intervals| {
        let given = points(intervals);
        let layer = Attention { batch: 1, n: given.coordinates.len(), ..layer };
        forward_attention(&layer, &list, &given)
    });
    let difference = |coarse: &[f32], fine: &[f32]| {
        let every_other = fine.chunks(layer.d).step_by(2).flatten();
        coarse.iter().zip(every_other).fold(0.0f64, |m, (a, b)| m.max((a - b).abs() as f64))
    };
    [difference(&a, &b), difference(&b, &c)]
}

/// Sums over points stand for integrals. With 1/n they are left Riemann sums, of order h; with the trapezoidal weights, of
/// order h². So when the grid is doubled what still changes is halved, or quartered. (Not so the linear type: it divides a
/// softmax over the points by n once more, and fades as the grid is refined.)
#[test]
fn refining_the_grid_converges_at_the_order_of_the_quadrature() {
    for kind in [Kind::Galerkin, Kind::Fourier, Kind::Softmax] {
        for norm in [Norm::None, Norm::Layer] {
            let layer = Attention { norm, d: 8, ..layer(kind, 0, (2, 1, true)) };
            let [first, second] = refinement(layer, 32, |m| smooth(m, 1.0 / m as f32, 8, None));
            let ratio = first / second;
            assert!(
                (1.8..2.2).contains(&ratio),
                "{kind:?}, {norm:?}: {first:.2e}, {second:.2e}: ratio {ratio}"
            );

            let [first, second] = refinement(layer, 16, |m| {
                let h = 1.0 / m as f32;
                let weights = (0..=m).map(|j| if j == 0 || j == m { 0.5 * h } else { h }).collect();
                smooth(m + 1, h, 8, Some(weights))
            });
            let ratio = first / second;
            assert!(
                (3.5..4.5).contains(&ratio),
                "{kind:?}, {norm:?}: {first:.2e}, {second:.2e}: ratio {ratio}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Points have no order: permuting them (with their coordinates and weights) permutes the output.
    #[test]
    fn permuting_points_permutes_the_output(
        kind in prop::sample::select(&KINDS[..]),
        norm in prop::sample::select(&NORMS[..]),
        heads in prop::sample::select(&HEADS[..]),
        weighted in any::<bool>(),
        order in (2usize..80).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
    ) {
        let n = order.len();
        let layer = Attention { norm, ..layer(kind, n, heads) };
        let (list, given) = (parameters(&attention_lens(&layer), layer.d), Given::new(&layer, weighted));
        let permute = |values: &[f32], width: usize| -> Vec<f32> {
            let rows: Vec<&[f32]> = (0..2 * n).map(|row| &values[row * width..(row + 1) * width]).collect();
            (0..2).flat_map(|b| order.iter().map(move |j| b * n + j)).flat_map(|row| rows[row].to_vec()).collect()
        };
        let permuted = Given {
            x: permute(&given.x, layer.d),
            coordinates: permute(&given.coordinates, layer.coordinates),
            weights: given.weights.as_ref().map(|weights| permute(weights, 1)),
        };
        let want = permute(&forward_attention(&layer, &list, &given), layer.d);
        let y = forward_attention(&layer, &list, &permuted);
        assert_close(&format!("{layer:?}"), &y, &widen(&want), FORWARD);
    }
}
