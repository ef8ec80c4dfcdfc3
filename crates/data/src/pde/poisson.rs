//! −Δ_h u = r on the interior of a square grid with u = 0 around it, exactly: sine transform along rows, tridiagonal systems across.
//!
//! With m interior points per axis, N = m + 1 and h² on the right-hand side, mode k of the rows obeys
//! (4 − 2cos(πk/N)) û_i − û_{i−1} − û_{i+1} = h² r̂_i. Elimination runs over i for all k at once, so nothing is transposed.

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// The factorised five-point Laplacian of m × m interior points.
pub(super) struct Poisson {
    m: usize,
    transform: Arc<dyn RealToComplex<f64>>,
    /// sin(πj/N), j = 0 … m.
    sines: Vec<f64>,
    /// Reciprocal pivots of the tridiagonal systems, (row i, mode k).
    pivots: Vec<f64>,
}

/// Buffers of the transform.
pub(super) struct Scratch {
    row: Vec<f64>,
    half: Vec<Complex<f64>>,
    inner: Vec<Complex<f64>>,
}

impl Poisson {
    pub(super) fn new(m: usize) -> Self {
        let n = m + 1;
        let angle = |j: usize| PI * j as f64 / n as f64;
        let mut pivots: Vec<f64> = Vec::with_capacity(m * m);
        for i in 0..m {
            for k in 1..=m {
                let above = if i == 0 { 0.0 } else { pivots[(i - 1) * m + k - 1] };
                pivots.push(1.0 / (4.0 - 2.0 * libm::cos(angle(k)) - above));
            }
        }
        Self {
            m,
            transform: RealFftPlanner::new().plan_fft_forward(n),
            sines: (0..n).map(|j| libm::sin(angle(j))).collect(),
            pivots,
        }
    }

    pub(super) fn scratch(&self) -> Scratch {
        Scratch {
            row: self.transform.make_input_vec(),
            half: self.transform.make_output_vec(),
            inner: self.transform.make_scratch_vec(),
        }
    }

    /// z = (−h²Δ_h)⁻¹ r.
    pub(super) fn solve(&self, r: &[f64], z: &mut [f64], scratch: &mut Scratch) {
        let m = self.m;
        z.copy_from_slice(r);
        for i in 0..m {
            let (above, row) =
                z[i.saturating_sub(1) * m..(i + 1) * m].split_at_mut(if i == 0 { 0 } else { m });
            self.sine_transform(row, scratch);
            if i > 0 {
                let pivots = &self.pivots[(i - 1) * m..i * m];
                row.iter_mut().zip(above).zip(pivots).for_each(|((v, above), g)| *v += g * *above);
            }
        }
        // The sine transform is its own inverse up to 2/N.
        let scale = 2.0 / (m + 1) as f64;
        for i in (0..m).rev() {
            let end = if i + 1 < m { m } else { 0 };
            let (row, below) = z[i * m..(i + 1) * m + end].split_at_mut(m);
            let pivots = &self.pivots[i * m..(i + 1) * m];
            row.iter_mut().zip(pivots).for_each(|(v, g)| *v *= g);
            if end > 0 {
                row.iter_mut().zip(&*below).zip(pivots).for_each(|((v, below), g)| *v += g * below);
                // The row below has served and can leave the modes.
                self.sine_transform(below, scratch);
                below.iter_mut().for_each(|v| *v *= scale);
            }
        }
        let first = &mut z[..m];
        self.sine_transform(first, scratch);
        first.iter_mut().for_each(|v| *v *= scale);
    }

    /// S_k = Σ_{j=1}^{m} a_j sin(πjk/N) in place, by a real transform of N values.
    ///
    /// y_j = sin(πj/N)(a_j + a_{N−j}) + ½(a_j − a_{N−j}) has Σ y_j cos(2πjk/N) = S_{2k+1} − S_{2k−1} and
    /// Σ y_j sin(2πjk/N) = S_{2k}.
    fn sine_transform(&self, a: &mut [f64], scratch: &mut Scratch) {
        let Scratch { row, half, inner } = scratch;
        row[0] = 0.0;
        for (((y, s), v), w) in row[1..].iter_mut().zip(&self.sines[1..]).zip(&*a).zip(a.iter().rev()) {
            *y = s * (v + w) + 0.5 * (v - w);
        }
        self.transform.process_with_scratch(row, half, inner).expect("buffers made by the transform");
        // a[k − 1] holds S_k.
        let mut odd = 0.5 * half[0].re;
        let mut pairs = a.chunks_exact_mut(2);
        let mut modes = half[1..].iter();
        for (pair, mode) in (&mut pairs).zip(&mut modes) {
            pair[0] = odd;
            pair[1] = -mode.im;
            odd += mode.re;
        }
        if let [last] = pairs.into_remainder() {
            *last = odd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sine_transform_is_its_sum() {
        for m in [1, 2, 3, 4, 7, 10, 419] {
            let poisson = Poisson::new(m);
            let a: Vec<f64> = (0..m).map(|j| ((j * j) as f64 * 0.7 + 0.3).sin()).collect();
            let mut found = a.clone();
            poisson.sine_transform(&mut found, &mut poisson.scratch());
            for k in 1..=m {
                let angle = |j: usize| PI * ((j * k) % (2 * (m + 1))) as f64 / (m + 1) as f64;
                let expected: f64 = (1..=m).map(|j| a[j - 1] * angle(j).sin()).sum();
                // Running sums of m roundings, of values below m.
                let tolerance = f64::EPSILON * (m * m) as f64;
                assert!(
                    (found[k - 1] - expected).abs() <= tolerance,
                    "m {m} k {k}: {} {expected}",
                    found[k - 1]
                );
            }
        }
    }

    #[test]
    fn the_solution_has_the_right_hand_side_as_its_laplacian() {
        for m in [1, 2, 5, 20, 63] {
            let poisson = Poisson::new(m);
            let r: Vec<f64> = (0..m * m).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
            let mut z = vec![f64::NAN; m * m];
            poisson.solve(&r, &mut z, &mut poisson.scratch());
            let at = |i: isize, j: isize| {
                let inside = |i: isize| i >= 0 && i < m as isize;
                if inside(i) && inside(j) { z[i as usize * m + j as usize] } else { 0.0 }
            };
            let largest = z.iter().fold(0.0f64, |l, v| l.max(v.abs()));
            for i in 0..m as isize {
                for j in 0..m as isize {
                    let laplacian =
                        4.0 * at(i, j) - at(i - 1, j) - at(i + 1, j) - at(i, j - 1) - at(i, j + 1);
                    let error = (laplacian - r[i as usize * m + j as usize]).abs();
                    // Roundings of z, a few per transform, amplified by the norm of the matrix, 8.
                    assert!(error <= 64.0 * m as f64 * f64::EPSILON * largest.max(1.0), "m {m}: {error}");
                }
            }
        }
    }
}
