//! Burgers' equation by Cole and Hopf's closed form: an independent check of [`burgers`](super::burgers).
//!
//! With m the mean of u0 and v0 = u0 − m = ∂_x Φ, u(x, t) = m − 2ν θ_x/θ at (x − mt, t), where θ solves the heat equation from
//! θ0 = exp(−Φ/2ν). Fourier series solve that exactly.
//!
//! θ0 spans exp(range(Φ)/2ν), and a transform rounds relative to the greatest value: where θ is small its digits are lost. A wave of
//! amplitude 1 has range(Φ) = 1/π: a span of e¹⁰ at ν = 0.1/2π, which costs some four digits, and of e¹⁵⁹ at ν = 10⁻³, where θ
//! comes out negative. So this is no generator for every viscosity; a loss beyond `tolerance` is an error.

use crate::error::{Error, Result};
use crate::random_field::sample_periodic;
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use std::f64::consts::PI;

/// The solution at time T at `n_out` points j/n_out, from the Fourier series c_0 + 2 Re Σ_{k≥1} c_k e^{2πikx} of the initial values.
///
/// `tolerance` bounds the rounding error of θ where it is smallest, relative to its value there.
pub fn solve(
    initial: &[Complex<f64>],
    viscosity: f64,
    time: f64,
    n_out: usize,
    tolerance: f64,
) -> Result<Vec<f64>> {
    super::burgers::check(initial, viscosity, time)?;
    let mean = initial.first().map_or(0.0, |c| c.re);
    // θ0 is no smoother than Φ: four times the points of its series leave the aliases of a rough one below rounding.
    let points = (8 * initial.len()).next_power_of_two().max(4096);
    let potential: Vec<_> = initial
        .iter()
        .enumerate()
        .map(|(k, c)| if k == 0 { Complex::default() } else { c / Complex::new(0.0, 2.0 * PI * k as f64) })
        .collect();
    let mut theta = sample_periodic(&potential, points);
    let lowest = theta.iter().copied().fold(f64::INFINITY, f64::min);
    // Normalised so that the greatest value is 1.
    theta.iter_mut().for_each(|phi| *phi = libm::exp((lowest - *phi) / (2.0 * viscosity)));

    let transform = RealFftPlanner::new().plan_fft_forward(points);
    let mut series = transform.make_output_vec();
    transform.process(&mut theta, &mut series).expect("buffers made by the transform");
    series.pop(); // The highest mode, a cosine without a partner, is far below rounding.
    for (k, c) in series.iter_mut().enumerate() {
        let wave = 2.0 * PI * k as f64;
        let (sine, cosine) = libm::sincos(-wave * mean * time);
        *c *= Complex::new(cosine, sine) * (libm::exp(-viscosity * wave * wave * time) / points as f64);
    }
    let theta = sample_periodic(&series, n_out);
    for (k, c) in series.iter_mut().enumerate() {
        *c *= Complex::new(0.0, 2.0 * PI * k as f64);
    }
    let slope = sample_periodic(&series, n_out);

    let smallest = theta.iter().copied().fold(f64::INFINITY, f64::min);
    let loss = f64::EPSILON / smallest;
    if !(smallest > 0.0 && loss <= tolerance) {
        return Err(Error::Cancellation { viscosity, smallest });
    }
    Ok(theta.iter().zip(&slope).map(|(theta, slope)| mean - 2.0 * viscosity * slope / theta).collect())
}
