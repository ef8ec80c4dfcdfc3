//! One step of the exponential Runge–Kutta method ETDRK4 for Burgers' equation in Fourier space.
//!
//! c_k' = z_k c_k / h + N_k(c) with z_k = −ν(2πk)² h and N(u) = −½ ∂_x(u²). Stages, with φ_1 at half a step:
//!
//! a = e^{z/2} u + ½h φ_1 N(u),  b = e^{z/2} u + ½h φ_1 N(a),  c = e^{z/2} a + ½h φ_1 (2N(b) − N(u)),
//! u⁺ = e^z u + h [(φ_1 − 3φ_2 + 4φ_3) N(u) + 2(φ_2 − 2φ_3)(N(a) + N(b)) + (4φ_3 − φ_2) N(c)].

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// The factors of one step length, per mode.
#[derive(Clone)]
pub(super) struct Coefficients(Vec<Factors>);

#[derive(Clone, Copy)]
struct Factors {
    half: f64,
    whole: f64,
    stage: f64,
    first: f64,
    middle: f64,
    last: f64,
}

impl Coefficients {
    pub(super) fn new(viscosity: f64, h: f64, modes: usize) -> Self {
        let factors = |k: usize| {
            let z = -viscosity * (2.0 * PI * k as f64).powi(2) * h;
            let [p1, p2, p3] = phi(z);
            Factors {
                half: libm::exp(0.5 * z),
                whole: libm::exp(z),
                stage: 0.5 * h * phi(0.5 * z)[0],
                first: h * (p1 - 3.0 * p2 + 4.0 * p3),
                middle: 2.0 * h * (p2 - 2.0 * p3),
                last: h * (4.0 * p3 - p2),
            }
        };
        Self((0..=modes).map(factors).collect())
    }
}

/// φ_1 = (e^z − 1)/z, φ_2 = (φ_1 − 1)/z, φ_3 = (φ_2 − ½)/z for z ≤ 0.
///
/// Near zero the quotients cancel, so there φ_3 is its series Σ z^i/(i + 3)! and the others follow upwards; at |z| ≥ 1 the
/// quotients lose less than a digit.
fn phi(z: f64) -> [f64; 3] {
    if z > -1.0 {
        // 17 terms: the next is below 1/20!, 4e-19.
        let p3 = (3..20).rev().fold(0.0, |sum, i| (1.0 + sum * z) / i as f64) / 2.0;
        let p2 = 0.5 + z * p3;
        [1.0 + z * p2, p2, p3]
    } else {
        let p1 = libm::expm1(z) / z;
        let p2 = (p1 - 1.0) / z;
        [p1, p2, (p2 - 0.5) / z]
    }
}

/// Transforms and buffers of a grid of M points with K living modes.
pub(super) struct Lattice {
    to_values: Arc<dyn ComplexToReal<f64>>,
    to_modes: Arc<dyn RealToComplex<f64>>,
    /// M/2 + 1 modes.
    half: Vec<Complex<f64>>,
    /// M values.
    values: Vec<f64>,
    scratch: Vec<Complex<f64>>,
    /// Stages and their slopes, K + 1 modes each.
    a: Vec<Complex<f64>>,
    b: Vec<Complex<f64>>,
    slope_a: Vec<Complex<f64>>,
    slope_b: Vec<Complex<f64>>,
}

impl Lattice {
    pub(super) fn new(points: usize, modes: usize) -> Self {
        let mut planner = RealFftPlanner::new();
        let (to_values, to_modes) = (planner.plan_fft_inverse(points), planner.plan_fft_forward(points));
        let scratch = to_values.get_scratch_len().max(to_modes.get_scratch_len());
        let state = || vec![Complex::default(); modes + 1];
        Self {
            half: to_values.make_input_vec(),
            values: to_values.make_output_vec(),
            scratch: vec![Complex::default(); scratch],
            to_values,
            to_modes,
            a: state(),
            b: state(),
            slope_a: state(),
            slope_b: state(),
        }
    }

    /// N(u) = −½ ∂_x(u²), mode by mode: −πik (u²)_k.
    pub(super) fn advection(&mut self, u: &[Complex<f64>], out: &mut [Complex<f64>]) {
        let points = self.values.len() as f64;
        let (alive, dead) = self.half.split_at_mut(u.len());
        alive.copy_from_slice(u);
        // The mean of a real function is real; rounding must not make it otherwise.
        alive[0].im = 0.0;
        dead.fill(Complex::default());
        self.to_values
            .process_with_scratch(&mut self.half, &mut self.values, &mut self.scratch)
            .expect("buffers made by the transform, ends real");
        self.values.iter_mut().for_each(|v| *v *= *v);
        self.to_modes
            .process_with_scratch(&mut self.values, &mut self.half, &mut self.scratch)
            .expect("buffers made by the transform");
        for (k, (out, square)) in out.iter_mut().zip(&self.half).enumerate() {
            let factor = PI * k as f64 / points;
            *out = Complex::new(factor * square.im, -factor * square.re);
        }
    }

    /// One step from u, whose slope N(u) is known.
    pub(super) fn step(
        &mut self,
        coefficients: &Coefficients,
        u: &[Complex<f64>],
        slope: &[Complex<f64>],
        out: &mut [Complex<f64>],
    ) {
        let factors = &coefficients.0;
        let [mut a, mut b, mut slope_a, mut slope_b] =
            [&mut self.a, &mut self.b, &mut self.slope_a, &mut self.slope_b].map(std::mem::take);
        for (k, f) in factors.iter().enumerate() {
            a[k] = u[k] * f.half + slope[k] * f.stage;
        }
        self.advection(&a, &mut slope_a);
        for (k, f) in factors.iter().enumerate() {
            b[k] = u[k] * f.half + slope_a[k] * f.stage;
        }
        self.advection(&b, &mut slope_b);
        for (k, f) in factors.iter().enumerate() {
            a[k] = a[k] * f.half + (slope_b[k] * 2.0 - slope[k]) * f.stage;
            out[k] = u[k] * f.whole + slope[k] * f.first + (slope_a[k] + slope_b[k]) * f.middle;
        }
        self.advection(&a, &mut slope_a);
        for (k, f) in factors.iter().enumerate() {
            out[k] += slope_a[k] * f.last;
        }
        (self.a, self.b, self.slope_a, self.slope_b) = (a, b, slope_a, slope_b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// φ_1 … φ_3 by Simpson's rule on φ_k(z) = ∫₀¹ e^{(1−s)z} s^{k−1}/(k − 1)! ds.
    #[test]
    fn phi_functions_are_their_integrals() {
        for z in [0.0, -1e-9, -1e-3, -0.5, -0.999, -1.0, -1.5, -20.0, -300.0] {
            let n = 20_000;
            let mut integrals = [0.0; 3];
            for i in 0..=n {
                let s = i as f64 / n as f64;
                let weight =
                    if i == 0 || i == n { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 } / (3.0 * n as f64);
                let e = weight * ((1.0 - s) * z).exp();
                integrals.iter_mut().zip([1.0, s, 0.5 * s * s]).for_each(|(sum, f)| *sum += e * f);
            }
            for (found, expected) in phi(z).into_iter().zip(integrals) {
                // Simpson's error is (z/n)⁴/180, 3e-10 relative at the worst z; rounding of the sum 1e-13.
                assert!((found - expected).abs() <= 1e-9 * expected, "z = {z}: {found}, {expected}");
            }
        }
    }
}
