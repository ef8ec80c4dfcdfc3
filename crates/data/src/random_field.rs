//! Gaussian random fields with covariance σ²(−Δ + τ²)^−γ, without their constant mode.
//!
//! Periodic, on [0, 1]: u(x) = Σ_{k=1}^{N} √2 σ ((2πk)² + τ²)^(−γ/2) [ξ_k cos 2πkx + η_k sin 2πkx].
//!
//! Neumann, on the unit square: g(x, y) = Σ_{(k,l) ≠ 0} σ (π²(k² + l²) + τ²)^(−γ/2) ζ_kl ψ_k(x) ψ_l(y), k, l < N, with ψ_0 = 1 and
//! ψ_k = √2 cos πk·; evaluated at the vertices i/(n − 1).
//!
//! ξ, η, ζ are independent standard normal numbers. The number of modes N is a parameter of the law and no function of the grid: a field
//! is its coefficients, and a grid, however coarse, samples it exactly (a mode the grid cannot tell from a slower one is added to that
//! one), so that the same sample on nested grids has the same values. The defaults are what the finest default grid resolves.

use crate::random::Stream;
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, SQRT_2};

/// The law of a field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLaw {
    /// γ (α in two dimensions): the exponent of the covariance operator.
    pub smoothness: f64,
    /// τ: the inverse length of correlation.
    pub tau: f64,
    /// σ: the scale.
    pub sigma: f64,
    /// N: modes, per axis in two dimensions.
    pub modes: usize,
}

impl FieldLaw {
    /// N(0, 25²(−Δ + 25)⁻²) with the 4096 modes of a grid of 8192 points: initial conditions of Burgers' equation.
    pub const BURGERS: Self = Self { smoothness: 2.0, tau: 5.0, sigma: 25.0, modes: 4096 };
    /// N(0, 3²(−Δ + 9)⁻²) with the 421 modes per axis of a grid of 421 × 421 vertices: fields behind Darcy's coefficients. (σ = τ^(α−1)
    /// does not matter where the field is only compared with zero.)
    pub const DARCY: Self = Self { smoothness: 2.0, tau: 3.0, sigma: 3.0, modes: 421 };

    /// The standard deviation of ξ_k and η_k's factor, k ≥ 1, in the periodic field.
    pub fn periodic_deviation(&self, k: usize) -> f64 {
        SQRT_2 * self.deviation(2.0 * PI * k as f64, 0.0)
    }

    /// The factor of ζ_kl, zero for the constant mode, in the field on the square.
    pub fn neumann_deviation(&self, k: usize, l: usize) -> f64 {
        if k == 0 && l == 0 { 0.0 } else { self.deviation(PI * k as f64, PI * l as f64) }
    }

    fn deviation(&self, p: f64, q: f64) -> f64 {
        let symbol = p * p + q * q + self.tau * self.tau;
        // The defaults' exponent needs no power, which would be most of the cost of a field on the square.
        let root =
            if self.smoothness == 2.0 { 1.0 / symbol } else { libm::pow(symbol, -0.5 * self.smoothness) };
        self.sigma * root
    }
}

/// Fourier coefficients c_0 … c_N of a periodic field u = c_0 + 2 Re Σ_{k≥1} c_k e^{2πikx}; c_0 = 0.
pub fn periodic(law: &FieldLaw, stream: &Stream) -> Vec<Complex<f64>> {
    let mut normals = vec![0.0; 2 * law.modes];
    stream.normals(&mut normals);
    let (xi, eta) = normals.split_at(law.modes);
    let mode = |k: usize| Complex::new(xi[k - 1], -eta[k - 1]) * (0.5 * law.periodic_deviation(k));
    std::iter::once(Complex::default()).chain((1..=law.modes).map(mode)).collect()
}

/// The values of a real Fourier series c_0 + 2 Re Σ_{k≥1} c_k e^{2πikx} at x_j = j/n, for any number of coefficients.
pub fn sample_periodic(coefficients: &[Complex<f64>], n: usize) -> Vec<f64> {
    if n == 0 {
        return Vec::new();
    }
    // At the points of the grid mode k is mode k mod n, and that of a number above n/2 the conjugate of its mirror image.
    let mut half = vec![Complex::default(); n / 2 + 1];
    for (k, &c) in coefficients.iter().enumerate() {
        let r = k % n;
        let (r, c) = if r <= n / 2 { (r, c) } else { (n - r, c.conj()) };
        // Modes 0 and n/2 are their own mirror images: the inverse transform counts them once, the series twice.
        half[r] +=
            if r == 0 || 2 * r == n { Complex::from(if k == 0 { c.re } else { 2.0 * c.re }) } else { c };
    }
    let mut values = vec![0.0; n];
    let transform = RealFftPlanner::new().plan_fft_inverse(n);
    transform.process(&mut half, &mut values).expect("lengths n/2 + 1 and n, ends real");
    values
}

/// A field on the n × n vertices of the unit square, row by row.
pub fn neumann(law: &FieldLaw, stream: &Stream, n: usize) -> Vec<f64> {
    let modes = law.modes;
    let mut coefficients = vec![0.0; modes * modes];
    stream.normals(&mut coefficients);
    for (i, c) in coefficients.iter_mut().enumerate() {
        let (k, l) = (i / modes, i % modes);
        let ends = [k, l].map(|k| if k == 0 { 1.0 } else { SQRT_2 });
        *c *= law.neumann_deviation(k, l) * ends[0] * ends[1];
    }
    let cosines = CosineSeries::new(modes, n);
    let rows = cosines.each_row(&coefficients); // (modes, n)
    let columns = cosines.each_row(&transpose(&rows, modes, n)); // (n, n), the first mode's axis last
    transpose(&columns, n, n)
}

/// Evaluates Σ_{k<N} c_k cos(πk i/(n − 1)) at i = 0 … n − 1 by a transform of the even extension, of length 2(n − 1).
struct CosineSeries {
    modes: usize,
    n: usize,
    transform: std::sync::Arc<dyn realfft::ComplexToReal<f64>>,
}

impl CosineSeries {
    fn new(modes: usize, n: usize) -> Self {
        let period = 2 * n.saturating_sub(1).max(1);
        Self { modes, n, transform: RealFftPlanner::new().plan_fft_inverse(period) }
    }

    /// Rows of coefficients (·, modes) to rows of values (·, n).
    fn each_row(&self, coefficients: &[f64]) -> Vec<f64> {
        let period = self.transform.len();
        let (mut half, mut values) = (self.transform.make_input_vec(), self.transform.make_output_vec());
        let mut scratch = self.transform.make_scratch_vec();
        let mut out = Vec::with_capacity(coefficients.len() / self.modes.max(1) * self.n);
        for row in coefficients.chunks_exact(self.modes.max(1)) {
            half.fill(Complex::default());
            for (k, &c) in row.iter().enumerate() {
                let r = k % period;
                let r = r.min(period - r);
                half[r].re += if r == 0 || 2 * r == period { c } else { 0.5 * c };
            }
            self.transform
                .process_with_scratch(&mut half, &mut values, &mut scratch)
                .expect("buffers made by the transform, ends real");
            out.extend_from_slice(&values[..self.n]);
        }
        out
    }
}

fn transpose(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut out = vec![0.0; rows * columns];
    for (i, row) in values.chunks(columns.max(1)).enumerate() {
        row.iter().enumerate().for_each(|(j, v)| out[j * rows + i] = *v);
    }
    out
}
