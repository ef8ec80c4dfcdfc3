//! The optimiser's step: clipping by the global norm, then Adam with decoupled weight decay.
//!
//! ```text
//! g ← g·min(1, max_norm/(‖g‖ + 1e-6))                 ‖g‖ over all parameters together
//! m ← β₁m + (1 − β₁)g          v ← β₂v + (1 − β₂)g²
//! p ← p·(1 − lr·decay) − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
//! ```
//!
//! β₁ may change from step to step (a one-cycle schedule moves it); the correction 1 − β₁ᵗ uses the current one, as
//! PyTorch's does. The parameters count as one long vector, cut into lanes by its length alone: lanes are shared among threads,
//! and their sums of squares, in f64, are added in order.

use crate::dims::check_len;
use crate::par::{self, Parts, equal};
use crate::simd::vectorize;

/// What stays the same over a run.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// β₂.
    pub beta2: f64,
    /// ε.
    pub eps: f64,
    /// Decoupled weight decay (AdamW); 0 gives Adam.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; longer ones are scaled down. Infinite: no clipping.
    pub max_norm: f64,
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The learning rate.
    pub lr: f64,
    /// β₁.
    pub beta1: f64,
    /// t, counted from 1.
    pub t: u64,
}

/// One parameter with its gradient and its state, all of one length. The state starts as zeros.
#[derive(Debug, Default)]
pub struct Slot<'a> {
    /// p
    pub param: &'a mut [f32],
    /// g; after the step a second copy of p, for a caller that keeps one and gives one away.
    pub grad: &'a mut [f32],
    /// m, the running mean of g.
    pub m: &'a mut [f32],
    /// v, the running mean of g².
    pub v: &'a mut [f32],
}

/// Lanes are worth at least this many values, and there are at most so many of them.
const LANE_VALUES: usize = 4096;
const MOST_LANES: usize = 64;

impl Adam {
    /// One step on all parameters. Returns ‖g‖ before clipping.
    ///
    /// If the norm is infinite or NaN it is returned and nothing is changed, neither parameters nor gradients nor state, so that
    /// the caller can stop with a good model in hand.
    pub fn step(&self, step: Step, slots: &mut [Slot]) -> f64 {
        let norm = gradient_norm(slots.iter().map(|slot| &*slot.grad));
        if norm.is_finite() {
            self.apply(step, self.clip(norm), slots);
        }
        norm
    }

    /// What gradients with this norm, all together, are scaled by.
    pub fn clip(&self, norm: f64) -> f32 {
        (self.max_norm / (norm + 1e-6)).min(1.0) as f32
    }

    /// The step itself, with gradients scaled by `clip`: what [`step`](Self::step) does after it has looked at the norm.
    pub fn apply(&self, step: Step, clip: f32, slots: &mut [Slot]) {
        assert!(step.t > 0, "adam: steps are counted from 1, found t = 0");
        for (i, slot) in slots.iter().enumerate() {
            let (len, sizes) = (slot.param.len(), [("slot", i), ("param", slot.param.len())]);
            check_len("adam grad", slot.grad.len(), len, &sizes);
            check_len("adam m", slot.m.len(), len, &sizes);
            check_len("adam v", slot.v.len(), len, &sizes);
        }
        let update = self.update(step, clip);
        let (lanes, start) = lanes(slots.iter().map(|slot| slot.param.len()).sum());
        let run = Run { first: Slot::default(), slots, last: Slot::default(), at: 0, start };
        par::for_each(lanes, run, &mut [], 0, &|_, run, _| run.each(|slot| update.apply(slot)));
    }

    /// The step's coefficients, computed in f64 once.
    pub(crate) fn update(&self, step: Step, clip: f32) -> Update {
        let t = step.t as f64;
        Update {
            clip,
            beta1: step.beta1 as f32,
            one_minus_beta1: (1.0 - step.beta1) as f32,
            beta2: self.beta2 as f32,
            one_minus_beta2: (1.0 - self.beta2) as f32,
            keep: (1.0 - step.lr * self.weight_decay) as f32,
            step_size: (step.lr / (1.0 - step.beta1.powf(t))) as f32,
            root_correction: (1.0 / (1.0 - self.beta2.powf(t)).sqrt()) as f32,
            eps: self.eps as f32,
        }
    }
}

/// The coefficients of a step, in the letters of the [module](self): `keep` is 1 − lr·decay, `step_size` lr/(1 − β₁ᵗ), `root_correction` 1/√(1 − β₂ᵗ).
#[derive(Clone, Copy)]
pub(crate) struct Update {
    pub clip: f32,
    pub beta1: f32,
    pub one_minus_beta1: f32,
    pub beta2: f32,
    pub one_minus_beta2: f32,
    pub keep: f32,
    pub step_size: f32,
    pub root_correction: f32,
    pub eps: f32,
}

impl Update {
    fn apply(self, slot: Slot) {
        vectorize!({
            let state = slot.m.iter_mut().zip(slot.v);
            for ((p, grad), (m, v)) in slot.param.iter_mut().zip(slot.grad).zip(state) {
                let g = self.clip * *grad;
                *m = self.beta1 * *m + self.one_minus_beta1 * g;
                *v = self.beta2 * *v + self.one_minus_beta2 * (g * g);
                *p = self.keep * *p - self.step_size * *m / (v.sqrt() * self.root_correction + self.eps);
                *grad = *p;
            }
        });
    }
}

/// ‖g‖ of all gradients together.
pub fn gradient_norm<'g>(gradients: impl Iterator<Item = &'g [f32]> + Clone + Send + Sync) -> f64 {
    let (lanes, start) = lanes(gradients.clone().map(<[f32]>::len).sum());
    let mut sums = [0.0f64; MOST_LANES];
    par::for_each(lanes, equal(&mut sums[..lanes], 1), &mut [], 0, &|lane, sum, _| {
        sum[0] = sum_of_squares(gradients.clone(), start(lane), start(lane + 1));
    });
    sums[..lanes].iter().sum::<f64>().sqrt()
}

/// How many lanes a vector of this length has, and where each begins.
fn lanes(len: usize) -> (usize, impl Fn(usize) -> usize + Copy + Send + Sync) {
    let lanes = (len / LANE_VALUES).clamp(1, MOST_LANES);
    (lanes, move |lane: usize| len * lane / lanes)
}

/// Σ g² over values start..end of the long vector.
fn sum_of_squares<'g>(gradients: impl Iterator<Item = &'g [f32]>, start: usize, end: usize) -> f64 {
    let (mut at, mut sum) = (0, 0.0);
    for gradient in gradients {
        let (from, to) = (start.max(at), end.min(at + gradient.len()));
        if from < to {
            sum += vectorize!(squares(&gradient[from - at..to - at]));
        }
        at += gradient.len();
    }
    sum
}

/// Σ g² in f64, in a fixed order that vectorises.
#[inline(always)]
fn squares(g: &[f32]) -> f64 {
    const WIDE: usize = 32;
    let mut sums = [0.0f64; WIDE];
    let chunks = g.chunks_exact(WIDE);
    for (sum, g) in sums.iter_mut().zip(chunks.remainder()) {
        *sum = *g as f64 * *g as f64;
    }
    for chunk in chunks {
        for (sum, g) in sums.iter_mut().zip(chunk) {
            *sum += *g as f64 * *g as f64;
        }
    }
    sums.iter().sum()
}

/// A stretch of the long vector: the end of one slot, whole slots, the beginning of another.
struct Run<'s, 'a, F> {
    first: Slot<'s>,
    slots: &'s mut [Slot<'a>],
    last: Slot<'s>,
    /// Where the stretch begins in the long vector.
    at: usize,
    /// Where lanes begin.
    start: F,
}

impl<F: Fn(usize) -> usize + Copy + Send> Parts for Run<'_, '_, F> {
    type Item = Self;

    fn split_at(self, lane: usize) -> (Self, Self) {
        let Run { first, slots, last, at, start } = self;
        let cut = start(lane);
        let mut inside = cut - at;
        // The cut lies in one of the three parts; what is left of it goes to the head, the rest to the tail.
        let run = |first, slots, last, at| Run { first, slots, last, at, start };
        if inside <= first.param.len() {
            let (left, right) = first.split_at(inside);
            return (run(left, &mut [], Slot::default(), at), run(right, slots, last, cut));
        }
        inside -= first.param.len();
        let mut whole = 0;
        while whole < slots.len() && slots[whole].param.len() <= inside {
            inside -= slots[whole].param.len();
            whole += 1;
        }
        let (left, rest) = slots.split_at_mut(whole);
        match rest.split_first_mut() {
            Some((slot, right)) => {
                let (head, tail) = slot.reborrow().split_at(inside);
                (run(first, left, head, at), run(tail, right, last, cut))
            }
            None => {
                let (head, tail) = last.split_at(inside);
                (run(first, left, head, at), run(tail, &mut [], Slot::default(), cut))
            }
        }
    }

    fn into_item(self) -> Self {
        self
    }
}

impl<F> Run<'_, '_, F> {
    fn each(self, f: impl Fn(Slot)) {
        f(self.first);
        self.slots.iter_mut().for_each(|slot| f(slot.reborrow()));
        f(self.last);
    }
}

impl<'a> Slot<'a> {
    fn reborrow(&mut self) -> Slot<'_> {
        Slot { param: self.param, grad: self.grad, m: self.m, v: self.v }
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        let (param, params) = self.param.split_at_mut(at);
        let (grad, grads) = self.grad.split_at_mut(at);
        let (m, ms) = self.m.split_at_mut(at);
        let (v, vs) = self.v.split_at_mut(at);
        (Slot { param, grad, m, v }, Slot { param: params, grad: grads, m: ms, v: vs })
    }
}
