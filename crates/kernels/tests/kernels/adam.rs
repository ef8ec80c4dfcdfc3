//! The optimiser's step.

use galerkin_kernels::adam::{Adam, Slot, Step};
use galerkin_kernels::reference;

use crate::support::{assert_close, assert_same_bits_with_any_threads, values, widen};

const PLAIN: Adam = Adam { beta2: 0.999, eps: 1e-8, weight_decay: 0.0, max_norm: f64::INFINITY };

/// Parameters, m and v, each a list of arrays.
#[derive(Clone, PartialEq, Debug)]
struct State([Vec<Vec<f32>>; 3]);

impl State {
    fn new(lens: &[usize]) -> Self {
        let zeros: Vec<Vec<f32>> = lens.iter().map(|&len| vec![0.0; len]).collect();
        State([arrays(7, lens), zeros.clone(), zeros])
    }

    fn step(&mut self, adam: &Adam, step: Step, grads: &[Vec<f32>]) -> f64 {
        let [params, m, v] = &mut self.0;
        let (state, mut grads) = (m.iter_mut().zip(v), grads.to_vec());
        let slot = |((param, grad), (m, v))| -> Slot { pair(param, grad, m, v) };
        let mut slots: Vec<Slot> = params.iter_mut().zip(&mut grads).zip(state).map(slot).collect();
        let norm = adam.step(step, &mut slots);
        assert!(!norm.is_finite() || grads == *params, "gradients become a copy of the parameters");
        norm
    }
}

fn pair<'a>(
    param: &'a mut Vec<f32>,
    grad: &'a mut Vec<f32>,
    m: &'a mut Vec<f32>,
    v: &'a mut Vec<f32>,
) -> Slot<'a> {
    Slot { param, grad, m, v }
}

fn arrays(tag: u32, lens: &[usize]) -> Vec<Vec<f32>> {
    lens.iter().enumerate().map(|(i, &len)| values(100 * tag + i as u32, len)).collect()
}

fn widen_all(arrays: &[Vec<f32>]) -> Vec<Vec<f64>> {
    arrays.iter().map(|a| widen(a)).collect()
}

/// From zero state m/(1 − β₁) = g and √v/√(1 − β₂) = |g|, so the first step moves p by −lr·g/(|g| + ε).
#[test]
fn the_first_step_is_the_one_computed_by_hand() {
    let (mut param, mut grad, mut m, mut v) =
        ([1.0f32, -2.0, 3.0], [3.0f32, -4.0, 0.0], [0.0f32; 3], [0.0f32; 3]);
    let step = Step { lr: 0.5, beta1: 0.75, t: 1 };
    let adam = Adam { beta2: 0.96, eps: 1.0, weight_decay: 0.5, max_norm: 2.5 };
    let mut slots = [Slot { param: &mut param, grad: &mut grad, m: &mut m, v: &mut v }];
    // ‖g‖ = 5, so the clipped gradient is (1.5, −2, 0) up to the 1e-6.
    assert_eq!(adam.step(step, &mut slots), 5.0);
    assert_close("m", &m, &[0.375, -0.5, 0.0], 4.0);
    assert_close("v", &v, &[0.09, 0.16, 0.0], 8.0);
    // Decay multiplies p by 1 − lr·decay = 0.75.
    let want = [0.75 - 0.5 * 1.5 / 2.5, -1.5 + 0.5 * 2.0 / 3.0, 2.25];
    assert_close("p", &param, &want, 8.0);
}

#[test]
fn several_steps_match_the_reference() {
    for (weight_decay, max_norm) in [(0.0, f64::INFINITY), (0.0, 0.1), (0.01, 0.99), (0.1, 1e6)] {
        check_steps(&[1, 0, 17, 4096, 3, 20_011, 96], weight_decay, max_norm);
    }
}

/// Six steps on arrays of these lengths.
#[track_caller]
pub fn check_steps(lens: &[usize], weight_decay: f64, max_norm: f64) {
    let adam = Adam { weight_decay, max_norm, ..PLAIN };
    let mut state = State::new(lens);
    let [mut p, mut m, mut v] = state.0.each_ref().map(|a| widen_all(a));
    for t in 1..=6 {
        // A one-cycle schedule: lr rises and falls, β₁ the other way.
        let step = Step {
            lr: 1e-3 * (4.0 - (t as f64 - 3.0).abs()),
            beta1: 0.85 + 0.02 * (t as f64 - 3.0).abs(),
            t,
        };
        let grads = arrays(10 + t as u32, lens);
        let norm = state.step(&adam, step, &grads);
        let want = reference::adam_step(&adam, &step, &mut p, &widen_all(&grads), &mut m, &mut v);
        assert!((norm - want).abs() < 1e-12 * want, "norm {norm}, expected {want}");
    }
    for (name, got, want) in [("p", &state.0[0], &p), ("m", &state.0[1], &m), ("v", &state.0[2], &v)] {
        for (got, want) in got.iter().zip(want) {
            // Six steps of half a dozen roundings each.
            assert_close(&format!("{name}, decay {weight_decay}, clip {max_norm}"), got, want, 24.0);
        }
    }
}

#[test]
fn the_cut_into_slots_does_not_change_a_value() {
    let len = 30_000;
    let step = Step { lr: 0.1, beta1: 0.9, t: 1 };
    let (flat_p, flat_g) = (values(1, len), values(2, len));
    let run = |cuts: &[usize]| {
        let cut = |flat: &[f32]| cuts.windows(2).map(|w| flat[w[0]..w[1]].to_vec()).collect::<Vec<_>>();
        let zeros = cut(&vec![0.0; len]);
        let mut state = State([cut(&flat_p), zeros.clone(), zeros]);
        state.step(&PLAIN, step, &cut(&flat_g));
        state.0.map(|a| a.concat())
    };
    let whole = run(&[0, len]);
    assert_eq!(whole, run(&[0, 1, 2, 3, 4096, 9000, 9000, 15_000, 29_999, len]));
    assert_eq!(whole, run(&(0..=len).step_by(100).collect::<Vec<_>>()));
}

#[test]
fn steps_are_the_same_bits_with_any_threads() {
    let lens = [50_021, 7, 0, 12_000, 300_007, 1];
    let adam = Adam { max_norm: 0.5, weight_decay: 0.01, ..PLAIN };
    let grads = arrays(3, &lens);
    assert_same_bits_with_any_threads("adam", || {
        let mut state = State::new(&lens);
        let norm = state.step(&adam, Step { lr: 0.1, beta1: 0.9, t: 1 }, &grads);
        let State([p, m, v]) = state;
        let bits = norm.to_bits();
        [p, m, v].concat().into_iter().chain([vec![bits as u32 as f32, (bits >> 32) as f32]]).collect()
    });
}

#[test]
fn a_norm_that_is_not_finite_changes_nothing() {
    for bad in [f32::NAN, f32::INFINITY] {
        let lens = [10, 9000];
        let mut state = State::new(&lens);
        let before = state.clone();
        let mut grads = arrays(3, &lens);
        grads[1][8000] = bad;
        assert!(!state.step(&PLAIN, Step { lr: 0.1, beta1: 0.9, t: 1 }, &grads).is_finite());
        assert_eq!(state, before);
    }
}

#[test]
fn no_parameters_have_norm_zero() {
    assert_eq!(PLAIN.step(Step { lr: 0.1, beta1: 0.9, t: 1 }, &mut []), 0.0);
    assert_eq!(State::new(&[0, 0]).step(&PLAIN, Step { lr: 0.1, beta1: 0.9, t: 1 }, &[vec![], vec![]]), 0.0);
}

#[test]
#[should_panic(expected = "adam m: expected 3 values, found 2 (slot = 1, param = 3)")]
fn a_wrong_length_names_the_slot() {
    let mut state = State::new(&[5, 3]);
    state.0[1][1].pop();
    state.step(&PLAIN, Step { lr: 0.1, beta1: 0.9, t: 1 }, &arrays(1, &[5, 3]));
}

#[test]
#[should_panic(expected = "counted from 1")]
fn step_zero_is_refused() {
    PLAIN.step(Step { lr: 0.1, beta1: 0.9, t: 0 }, &mut []);
}
