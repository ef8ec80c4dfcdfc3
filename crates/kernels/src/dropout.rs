//! Dropout masks as a function of (seed, step, layer, site, position): nothing is stored between forward and backward.
//!
//! The words come from [`random`](crate::random). The key is the seed; the counter holds a number of its own, the step, and
//! layer and site. A value takes half a word, so its rate is a multiple of 2⁻¹⁶, rounded to the nearest. Positions go in groups of 128, which
//! take the words of sixteen counters as they lie in the registers that mix them: the lower halves of all first words, their upper halves,
//! those of the second words, and so on.

use crate::random::{MULTIPLIERS, keys, philox};
use crate::simd::rows;

/// Where in a layer a mask acts; masks of different sites are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Site {
    /// The attention weights.
    Weights = 0,
    /// The attention's output, before the residual.
    Attention = 1,
    /// The hidden layer of the FFN.
    Hidden = 2,
    /// The FFN's output, before the residual.
    FeedForward = 3,
    /// The input of a spectral convolution's Fourier path.
    Spectral = 4,
    /// Anything outside the kernels of this crate.
    Outside = 5,
}

/// What masks are drawn from: the same value gives the same masks, on any machine and with any number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Key {
    /// The seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: u32,
    /// The layer, unique within the network; up to 2²⁴ − 1.
    pub layer: u32,
}

/// A dropout site: a rate with the stream its masks come from. Kept values are multiplied by 1/(1 − rate).
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability that a value is dropped, in [0, 1]; as near as 16 bits come to it.
    pub rate: f32,
    /// The stream of the masks.
    pub key: Key,
    /// The site within the layer.
    pub site: Site,
}

impl Dropout {
    /// Whether the mask changes anything.
    #[inline]
    pub fn active(&self) -> bool {
        self.rate > 0.0
    }

    /// The factor of the value at `position`: 0 or 1/(1 − rate).
    pub fn factor(&self, position: u64) -> f32 {
        if !self.active() {
            return 1.0;
        }
        let (group, place) = (position / GROUP as u64, (position % GROUP as u64) as usize);
        let (register, lane) = (place / WIDE, place % WIDE);
        let word = philox(self.counter(group, lane as u32), self.key())[register / 2];
        let half = if register % 2 == 0 { word & 0xffff } else { word >> 16 };
        if half < self.dropped() { 0.0 } else { self.kept() }
    }

    /// Multiplies `values`, which lie at `position` and following, by their factors.
    pub fn apply(&self, position: u64, values: &mut [f32]) {
        if !self.active() {
            return;
        }
        let (first, place) = (position / GROUP as u64, (position % GROUP as u64) as usize);
        let (head, body) = values.split_at_mut(((GROUP - place) % GROUP).min(values.len()));
        if !head.is_empty() {
            self.apply_part(first, place, head);
        }
        let first = position.div_ceil(GROUP as u64);
        let (whole, tail) = body.split_at_mut(body.len() / GROUP * GROUP);
        self.apply_groups(first, whole);
        if !tail.is_empty() {
            self.apply_part(first + (whole.len() / GROUP) as u64, 0, tail);
        }
    }

    /// Some values of a group, the first of them at `place` in it.
    fn apply_part(&self, group: u64, place: usize, values: &mut [f32]) {
        let mut factors = [1.0; GROUP];
        self.apply_groups(group, &mut factors);
        values.iter_mut().zip(&factors[place..]).for_each(|(value, factor)| *value *= factor);
    }

    /// Whole groups.
    fn apply_groups(&self, first: u64, values: &mut [f32]) {
        let dropout = *self;
        rows!(simd: S, { dropout: Dropout, first: u64, values: &'a mut [f32] }, {
            let lanes: [u32; WIDE] = std::array::from_fn(|i| i as u32);
            let (multipliers, low_half) = (MULTIPLIERS.map(|m| simd.splat_u32s(m)), simd.splat_u32s(0xffff));
            let (dropped, sixteen) = (simd.splat_u32s(dropout.dropped()), simd.splat_u32s(16));
            let (zero, kept) = (simd.splat_f32s(0.0), simd.splat_f32s(dropout.kept()));
            for (group, values) in (first..).zip(values.chunks_exact_mut(GROUP)) {
                for (part, lanes) in S::as_simd_u32s(&lanes).0.iter().enumerate() {
                    let mut c = dropout.counter(group, 0).map(|word| simd.splat_u32s(word));
                    c[0] = simd.add_u32s(c[0], *lanes);
                    for key in keys(dropout.key()) {
                        let [key_0, key_1] = key.map(|word| simd.splat_u32s(word));
                        let (a_low, a_high) = simd.widening_mul_u32s(multipliers[0], c[0]);
                        let (b_low, b_high) = simd.widening_mul_u32s(multipliers[1], c[2]);
                        c = [
                            simd.xor_u32s(simd.xor_u32s(b_high, c[1]), key_0),
                            b_low,
                            simd.xor_u32s(simd.xor_u32s(a_high, c[3]), key_1),
                            a_low,
                        ];
                    }
                    for (j, word) in c.into_iter().enumerate() {
                        let halves = [simd.and_u32s(word, low_half), simd.wrapping_dyn_shr_u32s(word, sixteen)];
                        for (k, half) in halves.into_iter().enumerate() {
                            let at = (2 * j + k) * WIDE + part * S::U32_LANES;
                            let value = &mut S::as_mut_simd_f32s(&mut values[at..at + S::U32_LANES]).0[0];
                            let factor = simd.select_f32s(simd.less_than_u32s(half, dropped), zero, kept);
                            *value = simd.mul_f32s(*value, factor);
                        }
                    }
                }
            }
        })
    }

    /// Of 2¹⁶ halves of words, those that drop their value.
    fn dropped(&self) -> u32 {
        (self.rate * 65_536.0).round() as u32
    }

    /// The factor of values that are not dropped.
    pub(crate) fn kept(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }

    #[inline(always)]
    fn key(&self) -> [u32; 2] {
        [self.key.seed as u32, (self.key.seed >> 32) as u32]
    }

    /// A counter of a group. Sixteen of them begin at a multiple of sixteen: there is no carry between the halves of their number.
    #[inline(always)]
    fn counter(&self, group: u64, lane: u32) -> [u32; 4] {
        let first = group * WIDE as u64;
        [first as u32 + lane, (first >> 32) as u32, self.key.step, self.key.layer << 8 | self.site as u32]
    }
}

/// Counters of a group: one AVX-512 register of words.
const WIDE: usize = 16;
/// Positions of a group: each takes half of one of four words.
const GROUP: usize = 2 * 4 * WIDE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_depends_on_position_alone_however_it_is_cut() {
        let key = Key { seed: 7, step: 3, layer: 2 };
        let dropout = Dropout { rate: 0.3, key, site: Site::Hidden };
        let whole: Vec<f32> = (0..1000).map(|i| dropout.factor(i)).collect();
        for start in [0, 1, 5, 64, 127, 128, 131, 990] {
            let mut values = vec![1.0; 1000 - start];
            dropout.apply(start as u64, &mut values);
            assert_eq!(values, whole[start..]);
        }
    }

    #[test]
    fn rates_are_met_and_streams_differ() {
        let key = Key { seed: 11, step: 0, layer: 0 };
        let draw = |rate, key, site| {
            let mut values = vec![1.0f32; 1 << 18];
            Dropout { rate, key, site }.apply(0, &mut values);
            values
        };
        for rate in [0.05f32, 0.5, 0.9] {
            let kept = draw(rate, key, Site::Hidden).iter().filter(|&&v| v != 0.0).count() as f64;
            let (n, q) = ((1 << 18) as f64, 1.0 - rate as f64);
            // Five standard deviations of a binomial: a right generator fails once in 1.7 million draws.
            assert!(
                (kept - n * q).abs() < 5.0 * (n * q * (1.0 - q)).sqrt(),
                "rate {rate}: kept {kept} of {n}"
            );
        }
        assert!(draw(1.0, key, Site::Hidden).iter().all(|&v| v == 0.0));
        let base = draw(0.5, key, Site::Hidden);
        for (other, site) in [
            (Key { seed: 12, ..key }, Site::Hidden),
            (Key { step: 1, ..key }, Site::Hidden),
            (Key { layer: 1, ..key }, Site::Hidden),
            (key, Site::Weights),
        ] {
            let equal = draw(0.5, other, site).iter().zip(&base).filter(|(a, b)| a == b).count() as f64;
            assert!(
                (equal / (1 << 18) as f64 - 0.5).abs() < 0.01,
                "{other:?} {site:?} repeats {equal} values"
            );
        }
    }
}
