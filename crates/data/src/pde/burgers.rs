//! Viscous Burgers' equation u_t + u u_x = ν u_xx, periodic on [0, 1]: u(·, 0) → u(·, T).
//!
//! Fourier in space with the quadratic term dealiased by the 2/3 rule: of M internal points only the modes k ≤ (M − 1)/3 live. In
//! time the exponential Runge–Kutta method of Cox and Matthews (ETDRK4): diffusion is exact, so the step answers to
//! the advection alone, whatever the viscosity.
//!
//! Two things are adapted and none is assumed. *The step*: every pair of steps h is compared with one step 2h; the difference
//! over 2⁴ − 1 estimates the error. Steps are T/2ᵖ, so that they meet and their coefficients are few. *The grid*: M doubles, and the
//! march begins again, when the end of the spectrum rises above the tolerance. Rough initial data have modes beyond any M:
//! those are dropped whose effect is estimated below the tolerance, because viscosity kills them before they act.
//! What cannot be resolved within the limits is an error.

use super::etd::{Coefficients, Lattice};
use super::{Equation, Problem, Sample, Sampler, check_law, single};
use crate::domain::Grid;
use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};
use crate::random_field::{self, FieldLaw, sample_periodic};
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Initial values of Burgers' equation and its solution at a later time, on a periodic grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Burgers {
    /// Points n.
    pub points: usize,
    /// ν.
    pub viscosity: f64,
    /// T.
    pub time: f64,
    /// Tolerance of the solver.
    pub tolerance: f64,
    /// The law of the initial values.
    pub initial: FieldLaw,
}

impl Default for Burgers {
    fn default() -> Self {
        Self {
            points: 8192,
            viscosity: 0.1 / std::f64::consts::TAU,
            time: 1.0,
            tolerance: Options::default().tolerance,
            initial: FieldLaw::BURGERS,
        }
    }
}

impl Equation for Burgers {
    fn describe(&self) -> String {
        format!("Burgers, viscosity {:.6}, time {}", self.viscosity, self.time)
    }

    fn channels(&self) -> [&'static str; 2] {
        ["u0", "u"]
    }

    fn titles(&self) -> [String; 2] {
        ["u(x, 0)".into(), format!("u(x, {})", self.time)]
    }

    fn grid(&self) -> Grid {
        Grid::unit(&[self.points], true)
    }

    fn law(&self) -> Problem {
        let initial = FieldLaw { modes: 0, ..self.initial };
        Problem::Burgers(Burgers { points: 0, tolerance: 0.0, initial, ..self.clone() })
    }

    fn sampler(&self) -> Result<Sampler<'_>> {
        super::check("points", self.points, 1)?;
        check_law(&self.initial, self.initial.modes)?;
        Ok(Box::new(|seed, index| {
            let series = self.series(seed, index);
            let options = Options { tolerance: self.tolerance, ..Options::default() };
            let solution = solve_series(&series, self.viscosity, self.time, self.points, &options)?;
            let input = sample_periodic(&series, self.points);
            Ok(Sample { input: single(&input), target: single(&solution.u) })
        }))
    }

    fn input(&self, seed: u64, index: u32, points: &[usize]) -> Option<Result<Vec<f64>>> {
        let sampled = || Ok(sample_periodic(&self.series(seed, index), points[0]));
        Some(check_law(&self.initial, self.initial.modes).and_then(|()| sampled()))
    }

    fn solve(&self, input: &[f64], points: &[usize]) -> Option<Result<Vec<f64>>> {
        Some(solve(input, self.viscosity, self.time, points[0]))
    }

    /// The solution is a Fourier series, which any grid samples.
    fn solver(&self, _: &[usize], to: &[usize], tolerance: f64) -> Option<Result<super::Solver<'_>>> {
        let (options, points) = (Options { tolerance, ..Options::default() }, to[0]);
        Some(Ok(Box::new(move |u0| {
            Ok(solve_series(&coefficients(u0)?, self.viscosity, self.time, points, &options)?.u)
        })))
    }

    /// The field is as likely everywhere and with either sign.
    fn symmetries(&self) -> &'static [&'static str] {
        &["shift x", "flip x -u0 -u"]
    }
}

impl Burgers {
    /// The initial values of a sample.
    fn series(&self, seed: u64, index: u32) -> Vec<Complex<f64>> {
        random_field::periodic(&self.initial, &Stream { seed, purpose: Purpose::Initial, index })
    }
}

/// How exact, and at what greatest cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The sum of the estimated errors of all steps relative to ‖u‖; the spectrum is resolved to a hundredth of it. Viscosity
    /// forgets errors, and the solution is 10 to 1000 times closer than this sum says.
    pub tolerance: f64,
    /// Internal points at the most.
    pub most_points: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { tolerance: 1e-8, most_points: 1 << 17 }
    }
}

/// A solution and what it took.
#[derive(Clone, Debug)]
pub struct Solution {
    /// Values at j/n.
    pub u: Vec<f64>,
    /// Internal points M of the grid that resolved it.
    pub points: usize,
    /// Steps taken on that grid.
    pub steps: usize,
    /// The sum of the estimated errors of all steps, relative to ‖u(·, T)‖.
    pub error: f64,
}

/// The solution at time T, at `n_out` points j/n_out, from values of u at as many points j/n as there are.
pub fn solve(u0: &[f64], viscosity: f64, time: f64, n_out: usize) -> Result<Vec<f64>> {
    Ok(solve_series(&coefficients(u0)?, viscosity, time, n_out, &Options::default())?.u)
}

/// Fourier coefficients c_0 … c_{n/2} of values at j/n: u = c_0 + 2 Re Σ_{k≥1} c_k e^{2πikx}.
pub fn coefficients(u: &[f64]) -> Result<Vec<Complex<f64>>> {
    let n = u.len();
    if n == 0 {
        return Err(Error::invalid("initial values", "at least one", "none"));
    }
    let transform = RealFftPlanner::new().plan_fft_forward(n);
    let mut half = transform.make_output_vec();
    transform.process(&mut u.to_vec(), &mut half).expect("lengths n and n/2 + 1");
    half.iter_mut().for_each(|c| *c /= n as f64);
    if n.is_multiple_of(2) {
        // The highest mode of an even grid is a cosine, and the series counts it twice.
        half[n / 2] *= 0.5;
    }
    Ok(half)
}

/// The solution at time T from the Fourier series c_0 + 2 Re Σ_{k≥1} c_k e^{2πikx} of the initial values.
pub fn solve_series(
    initial: &[Complex<f64>],
    viscosity: f64,
    time: f64,
    n_out: usize,
    options: &Options,
) -> Result<Solution> {
    check(initial, viscosity, time)?;
    if !(options.tolerance > 1e-14 && options.tolerance < 1.0) {
        return Err(Error::invalid("tolerance", "between 1e-14 and 1", options.tolerance));
    }
    if options.most_points < 64 {
        return Err(Error::invalid("most_points", "at least 64", options.most_points));
    }
    let rough = Rough::new(initial, viscosity, time, options.tolerance);
    let mut points = rough.first_guess().min(options.most_points);
    loop {
        while points <= options.most_points && !rough.may_be_cut_at(modes(points)) {
            points *= 2;
        }
        if points > options.most_points {
            return Err(Error::Unresolved { points: options.most_points, viscosity });
        }
        match march(initial, &rough, points)? {
            Some((series, steps, error)) => {
                return Ok(Solution { u: sample_periodic(&series, n_out), points, steps, error });
            }
            None => points *= 2,
        }
    }
}

/// The solution after so many equal steps on so many internal points, unadapted and unchecked: for studies of convergence.
pub fn solve_fixed(
    initial: &[Complex<f64>],
    viscosity: f64,
    time: f64,
    n_out: usize,
    points: usize,
    steps: usize,
) -> Result<Vec<f64>> {
    check(initial, viscosity, time)?;
    if points < 4 || steps == 0 {
        let found = format!("{points} points and {steps} steps");
        return Err(Error::invalid("discretisation", "at least 4 points and 1 step", found));
    }
    let mut grid = Lattice::new(points, modes(points));
    let coefficients = Coefficients::new(viscosity, time / steps as f64, modes(points));
    let mut u = truncated(initial, modes(points));
    let (mut slope, mut next) = (u.clone(), u.clone());
    for _ in 0..steps {
        grid.advection(&u, &mut slope);
        grid.step(&coefficients, &u, &slope, &mut next);
        std::mem::swap(&mut u, &mut next);
    }
    Ok(sample_periodic(&u, n_out))
}

/// Highest mode that lives on M points: products of two modes then alias onto dead ones only.
fn modes(points: usize) -> usize {
    (points - 1) / 3
}

/// Times are whole multiples of T/2^FINEST.
const FINEST: u32 = 30;

/// Marches to T on a grid of so many points; `None` if the grid turns out too coarse.
#[allow(clippy::type_complexity, reason = "series, steps and error have one reader, just above")]
fn march(
    initial: &[Complex<f64>],
    rough: &Rough,
    points: usize,
) -> Result<Option<(Vec<Complex<f64>>, usize, f64)>> {
    let (viscosity, time, tolerance) = (rough.viscosity, rough.time, rough.tolerance);
    let modes = modes(points);
    let mut grid = Lattice::new(points, modes);
    // Level p: pairs of steps that cover T/2ᵖ. Its coefficients are those of the single step, and those of the halves
    // are the next level's.
    let mut table: Vec<Option<Coefficients>> = vec![None; FINEST as usize + 2];
    let mut u = truncated(initial, modes);
    let (mut slope, mut middle_slope) = (u.clone(), u.clone());
    let (mut middle, mut fine, mut coarse) = (u.clone(), u.clone(), u.clone());
    let (mut level, mut now, end) = (6u32, 0u64, 1u64 << FINEST);
    let (mut steps, mut error) = (0, 0.0);
    grid.advection(&u, &mut slope);
    while now < end {
        let span = 1u64 << (FINEST - level);
        let length = time * span as f64 / end as f64;
        for (p, h) in [(level, length), (level + 1, 0.5 * length)] {
            table[p as usize].get_or_insert_with(|| Coefficients::new(viscosity, h, modes));
        }
        let [Some(whole), Some(half)] = &table[level as usize..level as usize + 2] else { unreachable!() };
        grid.step(whole, &u, &slope, &mut coarse);
        grid.step(half, &u, &slope, &mut middle);
        grid.advection(&middle, &mut middle_slope);
        grid.step(half, &middle, &middle_slope, &mut fine);
        let size = norm(fine.iter().copied());
        let difference = norm(fine.iter().zip(&coarse).map(|(a, b)| a - b)) / 15.0;
        // Roundings of a few transforms per step cannot be stepped away: the least error asked for is 32 times what they make up.
        let rounding = 0.5 * f64::EPSILON * size;
        let allowed = (tolerance * span as f64 / end as f64 * size).max(32.0 * rounding);
        // A step into infinity is refused as well: its difference is no number.
        if difference > allowed || difference.is_nan() {
            level += 1;
            if level > FINEST {
                return Err(Error::Step { time: time * now as f64 / end as f64, viscosity });
            }
            continue;
        }
        std::mem::swap(&mut u, &mut fine);
        grid.advection(&u, &mut slope);
        now += span;
        steps += 2;
        error += difference;
        if rough.has_settled(modes, time * now as f64 / end as f64) && !rough.is_resolved(&u) {
            return Ok(None);
        }
        // A step twice as long errs 32 times more; it is tried where it keeps to multiples of its length.
        if difference <= (allowed / 40.0).max(rounding) && level > 1 && now.is_multiple_of(2 * span) {
            level -= 1;
        }
    }
    let size = norm(u.iter().copied()).max(f64::MIN_POSITIVE);
    Ok(Some((u, steps, error / size)))
}

/// Initial data as far as the choice of a grid depends on them.
struct Rough {
    /// |c_k|² of the initial series.
    squares: Vec<f64>,
    /// ‖u0‖.
    norm: f64,
    /// max u0 − min u0.
    range: f64,
    viscosity: f64,
    time: f64,
    tolerance: f64,
}

impl Rough {
    fn new(initial: &[Complex<f64>], viscosity: f64, time: f64, tolerance: f64) -> Self {
        let values = sample_periodic(initial, (2 * initial.len()).next_power_of_two());
        let (low, high) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
        let squares = initial.iter().map(|c| c.norm_sqr()).collect();
        Self { squares, norm: norm(initial.iter().copied()), range: high - low, viscosity, time, tolerance }
    }

    /// A power of two. A front of height Δ is tanh(Δx/4ν), whose coefficients fall like exp(−4π²νk/Δ).
    fn first_guess(&self) -> usize {
        let decay = 4.0 * PI * PI * self.viscosity / self.range;
        let modes = (-libm::log(0.01 * self.tolerance) / decay).min(1e9);
        ((3.0 * modes) as usize).next_power_of_two().max(64)
    }

    /// Whether the initial modes above K may be dropped.
    ///
    /// Mode k dies like exp(−ν(2πk)²t). What is left of the dropped ones at T must not be missed, nor what they do before: two of them
    /// feed slow modes at the rate of their product, for as long as they live. Both are held to 1/1000 of the tolerance.
    /// Finally, the end of the kept spectrum must have settled by T/2, or be empty from the start, so that it can be judged.
    fn may_be_cut_at(&self, modes: usize) -> bool {
        let (mut left, mut fed) = (0.0, 0.0);
        for (k, &square) in self.squares.iter().enumerate().skip(modes + 1) {
            let rate = 2.0 * self.rate(k);
            left += 2.0 * square * libm::exp(-rate * self.time);
            fed += 2.0 * PI * 2.0 * square * (1.0 / rate).min(self.time);
        }
        let enough = 0.001 * self.tolerance;
        left.sqrt() <= enough * self.norm
            && fed <= enough * self.norm
            && self.has_settled(modes, 0.5 * self.time)
    }

    /// Whether at this time the last tenth of K modes is what the flow made, and no longer what the initial data had.
    fn has_settled(&self, modes: usize, time: f64) -> bool {
        let first = last_tenth(modes);
        // exp(−40) is below rounding.
        self.squares.iter().skip(first).all(|&square| square == 0.0) || self.rate(first) * time >= 40.0
    }

    fn is_resolved(&self, u: &[Complex<f64>]) -> bool {
        let largest = |part: &[Complex<f64>]| part.iter().map(|c| c.norm_sqr()).fold(0.0, f64::max).sqrt();
        largest(&u[last_tenth(u.len() - 1)..]) <= 0.01 * self.tolerance * largest(u)
    }

    /// ν(2πk)².
    fn rate(&self, k: usize) -> f64 {
        self.viscosity * (2.0 * PI * k as f64).powi(2)
    }
}

fn last_tenth(modes: usize) -> usize {
    modes - modes / 10
}

pub(super) fn check(initial: &[Complex<f64>], viscosity: f64, time: f64) -> Result<()> {
    if !(viscosity > 0.0 && viscosity.is_finite()) {
        return Err(Error::invalid("viscosity", "a positive number", viscosity));
    }
    if !(time > 0.0 && time.is_finite()) {
        return Err(Error::invalid("time", "a positive number", time));
    }
    match initial.iter().find(|c| !(c.re.is_finite() && c.im.is_finite())) {
        Some(c) => Err(Error::invalid("initial values", "finite numbers", c)),
        None => Ok(()),
    }
}

/// The first modes 0 … K of a series.
fn truncated(series: &[Complex<f64>], modes: usize) -> Vec<Complex<f64>> {
    (0..=modes).map(|k| series.get(k).copied().unwrap_or_default()).collect()
}

/// The L² norm of the function with these coefficients.
fn norm(series: impl Iterator<Item = Complex<f64>>) -> f64 {
    series
        .enumerate()
        .map(|(k, c)| if k == 0 { c.norm_sqr() } else { 2.0 * c.norm_sqr() })
        .sum::<f64>()
        .sqrt()
}
