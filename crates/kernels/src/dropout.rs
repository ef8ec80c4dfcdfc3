//! Dropout masks as a function of (seed, step, layer, site, position): nothing is stored between forward and backward.
//!
//! The generator is Philox-4x32 with ten rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011): a keyed bijection of a 128-bit counter. The key is the seed; the counter holds the position divided by four, the
//! step, and layer and site, and its four output words serve four neighbouring positions.

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
    /// The probability that a value is dropped, in [0, 1].
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
        let words = philox(self.counter(position / 4), self.key());
        self.keep(words[(position % 4) as usize])
    }

    /// Multiplies `values`, which lie at `position` and following, by their factors.
    #[inline]
    pub fn apply(&self, position: u64, values: &mut [f32]) {
        if self.active() {
            self.each(position, values, |v, factor| *v *= factor);
        }
    }

    /// Calls `f(value, factor)` for each of `values`, which lie at `position` and following.
    pub fn each(&self, position: u64, values: &mut [f32], f: impl Fn(&mut f32, f32)) {
        let lead = ((4 - position % 4) % 4).min(values.len() as u64) as usize;
        let (head, body) = values.split_at_mut(lead);
        for (i, v) in head.iter_mut().enumerate() {
            f(v, self.factor(position + i as u64));
        }
        let mut block = (position + lead as u64) / 4;
        crate::simd::vectorize!({
            /// Counters mixed at once: one AVX-512 register of words.
            const WIDE: usize = 16;
            let mut groups = body.chunks_exact_mut(4 * WIDE);
            for group in &mut groups {
                let counters: [[u32; 4]; WIDE] = std::array::from_fn(|i| self.counter(block + i as u64));
                let words = philox_wide(counters, self.key());
                for i in 0..WIDE {
                    for j in 0..4 {
                        f(&mut group[4 * i + j], self.keep(words[j][i]));
                    }
                }
                block += WIDE as u64;
            }
            for four in groups.into_remainder().chunks_mut(4) {
                let words = philox(self.counter(block), self.key());
                for (v, w) in four.iter_mut().zip(words) {
                    f(v, self.keep(w));
                }
                block += 1;
            }
        });
    }

    #[inline(always)]
    fn keep(&self, word: u32) -> f32 {
        // 2³²·rate as u64, so that a rate of 1 drops every word.
        let threshold = (self.rate as f64 * 4_294_967_296.0) as u64;
        if (word as u64) < threshold { 0.0 } else { 1.0 / (1.0 - self.rate) }
    }

    #[inline(always)]
    fn key(&self) -> [u32; 2] {
        [self.key.seed as u32, (self.key.seed >> 32) as u32]
    }

    #[inline(always)]
    fn counter(&self, block: u64) -> [u32; 4] {
        [block as u32, (block >> 32) as u32, self.key.step, self.key.layer << 8 | self.site as u32]
    }
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Philox-4x32-10: four random words for a counter and a key.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_wide([counter], key).map(|[word]| word)
}

/// `W` counters at once, words apart, so that the rounds vectorise.
#[inline(always)]
fn philox_wide<const W: usize>(counters: [[u32; 4]; W], mut key: [u32; 2]) -> [[u32; W]; 4] {
    let mut c: [[u32; W]; 4] = std::array::from_fn(|j| std::array::from_fn(|i| counters[i][j]));
    for _ in 0..10 {
        #[allow(clippy::needless_range_loop, reason = "i is the second index, which no iterator walks")]
        for i in 0..W {
            let a = MULTIPLIERS[0] as u64 * c[0][i] as u64;
            let b = MULTIPLIERS[1] as u64 * c[2][i] as u64;
            let (c1, c3) = (c[1][i], c[3][i]);
            c[0][i] = (b >> 32) as u32 ^ c1 ^ key[0];
            c[1][i] = b as u32;
            c[2][i] = (a >> 32) as u32 ^ c3 ^ key[1];
            c[3][i] = a as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the generator (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_mask_depends_on_position_alone_however_it_is_cut() {
        let key = Key { seed: 7, step: 3, layer: 2 };
        let dropout = Dropout { rate: 0.3, key, site: Site::Hidden };
        let whole: Vec<f32> = (0..1000).map(|i| dropout.factor(i)).collect();
        for start in [0, 1, 2, 3, 5, 64, 131] {
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
