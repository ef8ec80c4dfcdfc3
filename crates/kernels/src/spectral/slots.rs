//! An axis whose modes of either sign are kept: every axis of a grid but the last.

use crate::simd::{axpy, vectorize};

/// The 2m slots of an axis of n points: the row a of block 0 is the frequency a, that of block 1 is n − m + a.
///
/// The frequencies k and −k share a cosine and, up to sign, a sine, so the matrix E of such an axis has the h frequencies
/// 0..=min(m, n/2) only. With T = Eᵀ S, T_c and T_s from the cosine and the sine column of |k|,
///
/// ```text
/// X = T_c ± i T_s:    Re X = Re T_c ∓ Im T_s,    Im X = Im T_c ± Re T_s        for k = ±|k|
/// ```
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub n: usize,
    pub modes: usize,
}

impl Slots {
    /// 2m
    pub fn count(&self) -> usize {
        2 * self.modes
    }

    /// h, the frequencies up to sign.
    pub fn frequencies(&self) -> usize {
        self.modes.min(self.n / 2) + 1
    }

    /// The slot that holds frequency zero.
    pub fn zero(&self) -> usize {
        if self.modes == self.n { self.modes } else { 0 }
    }

    /// The frequency of a slot, below n, or none where block 1 has overwritten block 0.
    pub fn frequency(&self, slot: usize) -> Option<usize> {
        let block_1 = self.n.checked_sub(self.modes)?;
        if slot < self.modes { (slot < block_1).then_some(slot) } else { Some(block_1 + slot - self.modes) }
    }

    /// The slots that are in use, with |k| and the sign of k.
    pub fn in_use(self) -> impl Iterator<Item = (usize, usize, f32)> {
        (0..self.count()).filter_map(move |slot| {
            let k = self.frequency(slot)?;
            Some(if 2 * k <= self.n { (slot, k, 1.0) } else { (slot, self.n - k, -1.0) })
        })
    }
}

/// X, (2, w), from T_c and T_s, (2, w) each: re, then im.
pub(super) fn combine(sign: f32, cos: &[f32], sin: &[f32], mode: &mut [f32]) {
    let w = mode.len() / 2;
    let (re, im) = mode.split_at_mut(w);
    let (cos, sin) = (&cos[..2 * w], &sin[..2 * w]);
    vectorize!({
        for c in 0..w {
            re[c] = cos[c] - sign * sin[w + c];
            im[c] = cos[w + c] + sign * sin[c];
        }
    });
}

/// The adjoint of [`combine`], added to T_c and T_s.
pub(super) fn add_apart(sign: f32, mode: &[f32], cos: &mut [f32], sin: &mut [f32]) {
    let w = mode.len() / 2;
    let (re, im) = mode.split_at(w);
    let (cos, sin) = (&mut cos[..2 * w], &mut sin[..2 * w]);
    vectorize!({
        axpy(1.0, re, &mut cos[..w]);
        axpy(1.0, im, &mut cos[w..]);
        axpy(sign, im, &mut sin[..w]);
        axpy(-sign, re, &mut sin[w..]);
    });
}
