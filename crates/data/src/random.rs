//! Random numbers as functions of (seed, purpose, index, position), never of what was drawn before.
//!
//! The generator is the kernels' Philox-4x32-10: the key is the seed, the counter holds the number of a block (two words), the
//! index of a sample or an epoch, and a word for the purpose. Words of purposes count down from 2³² − 2: dropout masks keep
//! layer and site there, which stay far below, and initial weights 2³² − 1; so streams of one seed never meet.
//!
//! Logarithms, sines and cosines are `libm`'s and not the platform's: the numbers have the same bits on any machine.

use galerkin_kernels::random::philox;

/// What a stream is drawn for; streams of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Initial conditions of evolution equations; the index is the sample.
    Initial = u32::MAX - 1,
    /// Coefficients of elliptic equations; the index is the sample.
    Coefficient = u32::MAX - 2,
    /// Measurement noise; the index is the sample.
    Noise = u32::MAX - 3,
    /// Which samples train and which validate; the index is 0.
    Split = u32::MAX - 4,
    /// The order of the samples; the index is the epoch.
    Order = u32::MAX - 5,
    /// Matrices and functions to check the theory on; the index tells them apart.
    Theory = u32::MAX - 6,
    /// Weights and fields to measure time with; the index tells them apart.
    Bench = u32::MAX - 7,
    /// Vectors that an iteration starts from; the index is 0.
    Start = u32::MAX - 8,
    /// How training samples are transformed; the index is the sample.
    Augment = u32::MAX - 9,
    /// Noise on training samples; the index is the sample.
    TrainingNoise = u32::MAX - 10,
}

/// An endless sequence of random numbers, any part of which can be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The seed of the dataset or the run.
    pub seed: u64,
    /// What the numbers are for.
    pub purpose: Purpose,
    /// The sample or the epoch.
    pub index: u32,
}

impl Stream {
    /// Number `position` of the stream, uniform in (0, 1) with 53 bits.
    pub fn uniform(&self, position: u64) -> f64 {
        unit(self.words(position / 2)[(position % 2) as usize])
    }

    /// Fills `out` with independent standard normal numbers, those at positions 0 and following.
    pub fn normals(&self, out: &mut [f64]) {
        self.normals_of(0, out);
    }

    /// The same from one of 2³² parts of the stream, each of 2³³ numbers: those of an epoch, for one.
    pub fn normals_of(&self, part: u32, out: &mut [f64]) {
        for (block, pair) in ((part as u64) << 32..).zip(out.chunks_mut(2)) {
            pair.copy_from_slice(&self.normal_pair(block)[..pair.len()]);
        }
    }

    /// A permutation of 0..len, every one of them equally likely.
    ///
    /// Fisher and Yates's shuffle; a word that would favour some remainders is thrown away.
    pub fn permutation(&self, len: usize) -> Vec<usize> {
        let mut words = (0..).flat_map(|block| self.words(block));
        let mut below = |bound: u64| {
            let fair = u64::MAX - u64::MAX % bound;
            // The stream is endless: `find` always finds.
            words.find(|&word| word < fair).map_or(0, |word| word % bound)
        };
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            order.swap(last, below(last as u64 + 1) as usize);
        }
        order
    }

    /// Normal numbers 2·block and 2·block + 1 (Box and Muller).
    fn normal_pair(&self, block: u64) -> [f64; 2] {
        let [u, v] = self.words(block).map(unit);
        let (radius, turn) = ((-2.0 * libm::log(u)).sqrt(), std::f64::consts::TAU * v);
        [radius * libm::cos(turn), radius * libm::sin(turn)]
    }

    fn words(&self, block: u64) -> [u64; 2] {
        let counter = [block as u32, (block >> 32) as u32, self.index, self.purpose as u32];
        let [a, b, c, d] = philox(counter, [self.seed as u32, (self.seed >> 32) as u32]);
        [(a as u64) << 32 | b as u64, (c as u64) << 32 | d as u64]
    }
}

/// The middle of one of 2⁵² equal intervals of (0, 1): never 0 nor 1, and exact in f64.
fn unit(word: u64) -> f64 {
    ((word >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream { seed: 7, purpose: Purpose::Initial, index: 3 };

    #[test]
    fn normals_have_the_moments_of_a_normal_law() {
        let n = 200_000;
        let mut values = vec![0.0; n];
        STREAM.normals(&mut values);
        // E z = 0, E z² = 1, E z³ = 0, E z⁴ = 3, and no correlation of neighbours. The variances of the terms are
        // E z²ᵏ − (E zᵏ)²; five standard errors are passed by chance once in 1.7 million.
        for (power, moment, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let mean = values.iter().map(|z| z.powi(power)).sum::<f64>() / n as f64;
            let error = (mean - moment).abs() / (variance / n as f64).sqrt();
            assert!(error < 5.0, "moment {power} is {mean}, {error} standard errors from {moment}");
        }
        let neighbours = values.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / (n as f64).sqrt();
        assert!(neighbours.abs() < 5.0, "neighbours correlate: {neighbours} standard errors");
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_index_and_nothing_else() {
        let draw = |stream: Stream| {
            let mut values = vec![0.0; 33];
            stream.normals(&mut values);
            values
        };
        let base = draw(STREAM);
        assert_eq!(draw(STREAM), base);
        for other in [
            Stream { seed: 8, ..STREAM },
            Stream { seed: 7 + (1 << 32), ..STREAM },
            Stream { purpose: Purpose::Noise, ..STREAM },
            Stream { index: 4, ..STREAM },
        ] {
            assert!(draw(other).iter().zip(&base).all(|(a, b)| a != b), "{other:?}");
        }
        let mut part = vec![0.0; 33];
        STREAM.normals_of(0, &mut part);
        assert_eq!(part, base);
        STREAM.normals_of(1, &mut part);
        assert!(part.iter().zip(&base).all(|(a, b)| a != b));
        let mut longer = vec![0.0; 64];
        STREAM.normals(&mut longer);
        assert_eq!(longer[..33], base);
    }

    /// The bits are part of the format: a dataset is named by its seed.
    #[test]
    fn the_first_numbers_of_a_stream_are_these() {
        let mut values = [0.0; 2];
        STREAM.normals(&mut values);
        assert_eq!(values.map(f64::to_bits), [0xbfed_cfa6_0a4a_1676, 0xbfa6_ee17_895d_c7bc], "{values:?}");
    }

    #[test]
    fn uniforms_stay_inside_and_fill_the_interval() {
        assert!(unit(0) > 0.0 && unit(u64::MAX) < 1.0);
        let n = 100_000;
        let mean = (0..n).map(|i| STREAM.uniform(i)).sum::<f64>() / n as f64;
        // Variance 1/12; five standard errors.
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0 / n as f64).sqrt(), "{mean}");
    }

    #[test]
    fn a_permutation_has_every_number_once_and_no_favourite_place() {
        for len in [0, 1, 2, 1024] {
            let mut order = STREAM.permutation(len);
            order.sort_unstable();
            assert_eq!(order, (0..len).collect::<Vec<_>>());
        }
        // All 6 orders of 3 elements, 6000 epochs: chi-square with 5 degrees of freedom passes 36 once in a million.
        let mut counts = [0.0f64; 6];
        for index in 0..6000 {
            let order = Stream { purpose: Purpose::Order, index, ..STREAM }.permutation(3);
            counts[2 * order[0] + usize::from(order[1] > order[2])] += 1.0;
        }
        let chi_square: f64 = counts.iter().map(|c| (c - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_square < 36.0, "{counts:?}");
    }
}
