//! The encoder layer: parity, gradients, threads, sizes.

use crate::attention::{KINDS, NORMS, layer as attention};
use crate::layers::{
    Given, assert_names_sizes, check_directions, check_gradients, encoder_lens, encoder_params,
    panic_message, parameters, reference_encoder, widen_all,
};
use crate::linear::ACTIVATIONS;
use crate::run::{encoder_grads, forward_encoder, run_encoder};
use crate::support::{assert_close, assert_same_bits_with_any_threads, values};
use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Input, Kind, Norm};
use galerkin_kernels::encoder::EncoderLayer;
use galerkin_kernels::par;

/// Roundings of a forward pass: those of attention, then two more sums and two norms. Measured: 5.
const FORWARD: f64 = 32.0;
/// Those of a backward pass, through up to four norms. Measured: 25.
const BACKWARD: f64 = 96.0;

pub fn layer(attention: Attention) -> EncoderLayer {
    EncoderLayer {
        attention,
        hidden: 2 * attention.d + 3,
        activation: Activation::Gelu,
        norm_after: false,
        eps: 1e-2,
        minus: false,
        residual_dropout: 0.0,
        hidden_dropout: 0.0,
    }
}

#[track_caller]
pub fn check_parity(layer: &EncoderLayer, weighted: bool) {
    let list = parameters(&encoder_lens(layer), layer.attention.d);
    let given = Given::new(&layer.attention, weighted);
    let want = reference_encoder(layer, &widen_all(&list), &given.widen());
    let y = forward_encoder(layer, &list, &given);
    assert_close(&format!("{layer:?}, weighted {weighted}"), &y, &want, FORWARD);
}

#[test]
fn parity_over_all_options_at_small_sizes() {
    for kind in KINDS {
        for (n, heads) in [(1, (1, 0, false)), (2, (4, 1, true)), (7, (1, 2, true)), (31, (4, 0, true))] {
            for norm in NORMS {
                for norm_after in [false, true] {
                    for activation in ACTIVATIONS {
                        for (dropout, minus) in [(0.0, false), (0.2, true)] {
                            let inner = Attention { norm, dropout, ..attention(kind, n, heads) };
                            let layer = EncoderLayer {
                                activation,
                                norm_after,
                                minus,
                                residual_dropout: dropout,
                                hidden_dropout: 1.5 * dropout,
                                ..layer(inner)
                            };
                            check_parity(&layer, minus);
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
            let inner = Attention { norm: Norm::Layer, d: 24, ..attention(kind, n, (4, 2, true)) };
            check_parity(&layer(inner), true);
            let inner = Attention { norm: Norm::None, heads: 1, dropout: 0.1, ..inner };
            let dropped = EncoderLayer {
                norm_after: true,
                activation: Activation::Relu,
                residual_dropout: 0.1,
                hidden_dropout: 0.05,
                ..layer(inner)
            };
            check_parity(&dropped, false);
        }
    }
}

#[track_caller]
pub fn check_all_gradients(layer: &EncoderLayer, weighted: bool) {
    let d = layer.attention.d;
    let (mut list, given) = (parameters(&encoder_lens(layer), d), Given::new(&layer.attention, weighted));
    if layer.activation == Activation::Relu {
        // Keeps every pre-activation away from the kink, on either side of it: differences want a smooth function.
        for (c, b_1) in list[13].iter_mut().enumerate() {
            *b_1 = if c % 2 == 0 { 9.0 } else { -9.0 };
        }
    }
    let dy = values(4, layer.attention.batch * layer.attention.n * d);
    let run = run_encoder(layer, &list, &given, &dy);
    check_gradients(
        &format!("{layer:?}, weighted {weighted}"),
        (&list, &run.grads),
        (&given, &run.dx),
        &dy,
        |list, given| reference_encoder(layer, list, given),
        BACKWARD,
    );
}

#[test]
fn gradients_are_those_of_the_reference() {
    for kind in KINDS {
        for norm in NORMS {
            for norm_after in [false, true] {
                for (activation, minus, dropout) in [
                    (Activation::None, false, 0.0),
                    (Activation::Relu, true, 0.2),
                    (Activation::Silu, true, 0.0),
                    (Activation::Gelu, false, 0.2),
                ] {
                    let inner = Attention { norm, dropout, d: 8, ..attention(kind, 7, (2, 1, true)) };
                    let layer = EncoderLayer {
                        activation,
                        norm_after,
                        minus,
                        residual_dropout: dropout,
                        hidden_dropout: dropout,
                        ..layer(inner)
                    };
                    check_all_gradients(&layer, minus);
                }
            }
        }
    }
}

#[test]
fn gradients_without_coordinates_and_projection() {
    for kind in KINDS {
        for norm_after in [false, true] {
            let inner = Attention { d: 8, ..attention(kind, 5, (4, 0, false)) };
            check_all_gradients(&EncoderLayer { norm_after, ..layer(inner) }, false);
        }
    }
}

/// Several tiles and lanes, none of which ends where a sample does.
#[test]
fn gradients_at_a_larger_size() {
    for kind in KINDS {
        for (norm, norm_after, dropout) in [(Norm::Layer, false, 0.1), (Norm::Instance, true, 0.0)] {
            let inner = Attention { batch: 5, norm, dropout, d: 8, ..attention(kind, 501, (2, 1, true)) };
            let layer = EncoderLayer {
                norm_after,
                residual_dropout: dropout,
                hidden_dropout: dropout,
                ..layer(inner)
            };
            let (list, given) = (parameters(&encoder_lens(&layer), 8), Given::new(&inner, false));
            let dy = values(4, inner.batch * inner.n * inner.d);
            let run = run_encoder(&layer, &list, &given, &dy);
            check_directions(
                &format!("{layer:?}"),
                (&list, &run.grads),
                (&given, &run.dx),
                &dy,
                |list, given| reference_encoder(&layer, list, given),
                BACKWARD,
            );
        }
    }
}

#[test]
fn same_bits_with_any_number_of_threads() {
    for kind in KINDS {
        for (norm, norm_after, dropout) in [(Norm::Layer, false, 0.0), (Norm::Instance, true, 0.1)] {
            let inner = Attention { batch: 4, d: 8, norm, dropout, ..attention(kind, 1300, (2, 1, true)) };
            let layer = EncoderLayer {
                norm_after,
                residual_dropout: dropout,
                hidden_dropout: dropout,
                ..layer(inner)
            };
            let (list, given) = (parameters(&encoder_lens(&layer), 8), Given::new(&inner, false));
            let dy = values(4, inner.batch * inner.n * inner.d);
            assert_same_bits_with_any_threads(&format!("{layer:?}"), || {
                let run = run_encoder(&layer, &list, &given, &dy);
                let mut arrays = run.grads;
                arrays.extend([run.y, run.dx]);
                arrays
            });
        }
    }
}

#[test]
fn no_samples_and_no_points_are_defined() {
    for kind in KINDS {
        for norm_after in [false, true] {
            for (batch, n) in [(0, 5), (2, 0), (0, 0)] {
                let inner = Attention { batch, norm: Norm::Layer, ..attention(kind, n, (4, 1, true)) };
                let layer = EncoderLayer { norm_after, ..layer(inner) };
                let (list, given) = (parameters(&encoder_lens(&layer), 16), Given::new(&inner, false));
                let run = run_encoder(&layer, &list, &given, &[]);
                assert!(run.y.is_empty() && run.dx.is_empty());
                assert!(
                    run.grads.iter().flatten().all(|g| *g == 0.0),
                    "{layer:?}: sums over nothing are zero"
                );
            }
        }
    }
}

#[test]
fn heads_that_do_not_divide_the_features_panic() {
    let layer = layer(Attention { d: 22, ..attention(Kind::Galerkin, 9, (4, 1, true)) });
    let (list, given) = (parameters(&encoder_lens(&layer), 22), Given::new(&layer.attention, false));
    let message = panic_message("22 features in 4 heads", || drop(forward_encoder(&layer, &list, &given)));
    assert_names_sizes("22 features in 4 heads", &message, &[22, 4]);
}

/// Every buffer in turn is one value short; the message has to name B, n, d and, of the layer's own buffers, f.
#[test]
fn wrong_lengths_panic_and_name_all_sizes() {
    let inner =
        Attention { batch: 3, d: 20, norm: Norm::Layer, ..attention(Kind::Galerkin, 11, (5, 2, true)) };
    let layer = EncoderLayer { norm_after: true, hidden: 17, ..layer(inner) };
    let list = parameters(&encoder_lens(&layer), 20);
    let given = Given::new(&inner, true);
    let len = inner.batch * inner.n * inner.d;
    let buffer = |len: usize| vec![0.0f32; len];
    let (saved, workspace) = (buffer(layer.saved_len()), buffer(layer.workspace_len(par::threads())));
    let weights = given.weights.clone().unwrap();
    let inputs = [list.clone(), vec![given.x, given.coordinates, weights]].concat();
    // Parameters of attention may be found wrong by attention itself, which knows no f.
    let sizes = |of_attention: bool| if of_attention { vec![3, 11, 20] } else { vec![3, 11, 20, 17] };

    let forward = [inputs.clone(), vec![buffer(len), saved.clone()]].concat();
    for short in 0..forward.len() {
        let mut all = forward.clone();
        let (mut workspace, what) = (workspace.clone(), format!("buffer {short} of the forward pass"));
        if all[short].pop().is_none() {
            continue;
        }
        let message = panic_message(&what, move || {
            let (inputs, outputs) = all.split_at_mut(23);
            let [out, saved] = outputs else { unreachable!() };
            let input = Input { x: &inputs[20], coordinates: &inputs[21], weights: Some(&inputs[22]) };
            layer.forward(&encoder_params(&inputs[..20]), input, out, saved, &mut workspace);
        });
        assert_names_sizes(&what, &message, &sizes(!(12..20).contains(&short)));
    }

    let backward = [inputs, vec![saved, buffer(len), buffer(len)], list].concat();
    for short in 0..backward.len() {
        let mut all = backward.clone();
        let (mut workspace, what) = (workspace.clone(), format!("buffer {short} of the backward pass"));
        if all[short].pop().is_none() {
            continue;
        }
        let message = panic_message(&what, move || {
            let (inputs, outputs) = all.split_at_mut(25);
            let (dx, grads) = outputs.split_at_mut(1);
            let input = Input { x: &inputs[20], coordinates: &inputs[21], weights: Some(&inputs[22]) };
            let (params, grads) = (encoder_params(&inputs[..20]), encoder_grads(grads));
            layer.backward(&params, input, &inputs[23], &inputs[24], &mut dx[0], grads, &mut workspace);
        });
        let of_attention = !(12..20).contains(&short) && !(38..46).contains(&short);
        assert_names_sizes(&what, &message, &sizes(of_attention));
    }
}
