//! Partial differential equations: solvers, and problems whose samples they make.
//!
//! A [`Problem`] is everything a sample depends on beside (seed, index): equation, parameters, law of the input, grid, tolerance.

pub mod burgers;
pub mod cole_hopf;
pub mod darcy;
pub mod eigen;
mod etd;
pub mod inverse;
mod poisson;

use crate::grid::{Grid, GridKind};
use crate::random::{Purpose, Stream};
use crate::random_field::{self, FieldLaw};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::ops::Range;

/// Why an equation was not solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// An argument is out of range.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A spectrum did not fit the greatest grid allowed.
    #[error(
        "Burgers' equation with viscosity {viscosity} is not resolved by {points} points, the most allowed"
    )]
    Unresolved {
        /// Points of that grid.
        points: usize,
        /// The viscosity.
        viscosity: f64,
    },
    /// Time steps shrank to nothing.
    #[error("Burgers' equation with viscosity {viscosity}: no time step is short enough at time {time}")]
    Step {
        /// Where the march stopped.
        time: f64,
        /// The viscosity.
        viscosity: f64,
    },
    /// Cole and Hopf's transform lost the digits of its result.
    #[error(
        "Cole and Hopf's form with viscosity {viscosity} cancels: the transform falls to {smallest:e} of its maximum"
    )]
    Cancellation {
        /// The viscosity.
        viscosity: f64,
        /// The smallest value of the transform, relative to its greatest initial one.
        smallest: f64,
    },
    /// Conjugate gradients ran into the limit of iterations.
    #[error(
        "Darcy's equation: relative residual {residual:e} after {iterations} iterations, expected at most {tolerance:e}"
    )]
    NotConverged {
        /// Iterations allowed.
        iterations: usize,
        /// The relative residual reached.
        residual: f64,
        /// The relative residual asked for.
        tolerance: f64,
    },
    /// Inverse iteration ran into the limit of iterations, or into vectors that roundings made dependent.
    #[error(
        "eigenfunctions: relative residual {residual:e} after at most {iterations} iterations, expected at most {tolerance:e}"
    )]
    NoEigenfunctions {
        /// Iterations allowed.
        iterations: usize,
        /// The relative residual reached.
        residual: f64,
        /// The relative residual asked for.
        tolerance: f64,
    },
}

impl SolveError {
    pub(crate) fn invalid(what: &'static str, expected: impl Display, found: impl Display) -> Self {
        Self::Invalid { what, expected: expected.to_string(), found: found.to_string() }
    }
}

/// A sample that could not be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("sample {index} of seed {seed}")]
pub struct SampleError {
    /// The sample.
    pub index: u32,
    /// The seed of the dataset.
    pub seed: u64,
    /// What went wrong.
    pub source: SolveError,
}

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
            tolerance: burgers::Options::default().tolerance,
            initial: FieldLaw::BURGERS,
        }
    }
}

/// Coefficients of Darcy's equation and its solution, on the vertices of a square grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Darcy {
    /// Vertices n a side, boundary included.
    pub points: usize,
    /// f, the same everywhere.
    pub source: f64,
    /// Tolerance of the solver.
    pub tolerance: f64,
    /// How the field becomes a coefficient.
    pub coefficient: Coefficient,
    /// The law of the field behind the coefficient.
    pub field: FieldLaw,
}

impl Default for Darcy {
    fn default() -> Self {
        Self {
            points: 421,
            source: 1.0,
            tolerance: darcy::Options::default().tolerance,
            coefficient: Coefficient::Threshold { at: 0.0, above: 12.0, below: 3.0 },
            field: FieldLaw::DARCY,
        }
    }
}

/// How a Gaussian field g becomes a positive coefficient a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Coefficient {
    /// Two phases with sharp interfaces.
    Threshold {
        /// Where g is cut.
        at: f64,
        /// a where g ≥ at.
        above: f64,
        /// a where g < at.
        below: f64,
    },
    /// a = exp(location + scale·g).
    Lognormal {
        /// The mean of log a.
        location: f64,
        /// The factor of g.
        scale: f64,
    },
}

/// What samples are samples of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Problem {
    /// Viscous Burgers' equation.
    Burgers(Burgers),
    /// Darcy's flow.
    Darcy(Darcy),
}

/// An input and its target, each on the problem's grid, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Initial values, or coefficients.
    pub input: Vec<f32>,
    /// The solution.
    pub target: Vec<f32>,
}

/// Finest grid and most modes a problem may ask for, so that a slip of the pen is an error and not a machine out of memory.
const MOST_POINTS: usize = 1 << 24;

impl Problem {
    /// The grid of inputs and targets.
    pub fn grid(&self) -> Grid {
        match self {
            Self::Burgers(p) => Grid::new(GridKind::Periodic, &[p.points]),
            Self::Darcy(p) => Grid::new(GridKind::Vertices, &[p.points; 2]),
        }
    }

    /// Sample `index`, which depends on nothing but the problem and the seed.
    pub fn sample(&self, seed: u64, index: u32) -> Result<Sample, SampleError> {
        self.sampler().and_then(|sampler| sampler.sample(seed, index)).map_err(|source| SampleError {
            index,
            seed,
            source,
        })
    }

    fn sampler(&self) -> Result<Sampler<'_>, SolveError> {
        match self {
            Self::Burgers(p) => {
                check("points", p.points, 1)?;
                check_law(&p.initial, p.initial.modes)?;
                Ok(Sampler::Burgers(p))
            }
            Self::Darcy(p) => {
                check_law(&p.field, p.field.modes.saturating_mul(p.field.modes))?;
                let solver = darcy::Solver::new(p.points)?;
                Ok(Sampler::Darcy(p, Box::new(solver)))
            }
        }
    }
}

/// How many samples are in flight: enough to keep many threads busy, few enough that hundreds of 421 × 421 grids do not pile up.
const BATCH: u32 = 32;

/// Makes the samples of a range on all threads of the current pool, and hands them to `each` in order.
///
/// Samples are made in batches; `each` runs between them, on the calling thread. An error of a sample or of `each` ends it.
pub fn generate<E: From<SampleError>>(
    problem: &Problem,
    seed: u64,
    range: Range<u32>,
    mut each: impl FnMut(u32, Sample) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |index, source| SampleError { index, seed, source };
    let sampler = problem.sampler().map_err(|source| failed(range.start, source))?;
    let batch = BATCH.max(8 * rayon::current_num_threads() as u32);
    let mut first = range.start;
    while first < range.end {
        let last = range.end.min(first.saturating_add(batch));
        let make = |index| sampler.sample(seed, index).map_err(|source| failed(index, source));
        let samples: Vec<_> = (first..last).into_par_iter().with_max_len(1).map(make).collect();
        for (index, sample) in (first..last).zip(samples) {
            each(index, sample?)?;
        }
        first = last;
    }
    Ok(())
}

/// A problem with what all its samples share.
enum Sampler<'a> {
    Burgers(&'a Burgers),
    Darcy(&'a Darcy, Box<darcy::Solver>),
}

impl Sampler<'_> {
    fn sample(&self, seed: u64, index: u32) -> Result<Sample, SolveError> {
        match self {
            Self::Burgers(p) => {
                let series =
                    random_field::periodic(&p.initial, &Stream { seed, purpose: Purpose::Initial, index });
                let options = burgers::Options { tolerance: p.tolerance, ..Default::default() };
                let solution = burgers::solve_series(&series, p.viscosity, p.time, p.points, &options)?;
                let input = random_field::sample_periodic(&series, p.points);
                Ok(Sample { input: single(&input), target: single(&solution.u) })
            }
            Self::Darcy(p, solver) => {
                let stream = Stream { seed, purpose: Purpose::Coefficient, index };
                let mut a = random_field::neumann(&p.field, &stream, p.points);
                a.iter_mut().for_each(|g| *g = p.coefficient.of(*g));
                let options = darcy::Options { tolerance: p.tolerance, ..Default::default() };
                let solution = solver.solve(&a, &vec![p.source; a.len()], &options)?;
                Ok(Sample { input: single(&a), target: single(&solution.u) })
            }
        }
    }
}

impl Coefficient {
    /// a for a value of the field.
    pub fn of(&self, g: f64) -> f64 {
        match *self {
            Self::Threshold { at, above, below } => {
                if g >= at {
                    above
                } else {
                    below
                }
            }
            Self::Lognormal { location, scale } => libm::exp(location + scale * g),
        }
    }
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

fn check_law(law: &FieldLaw, modes: usize) -> Result<(), SolveError> {
    check("modes", modes, 1)?;
    for (what, value) in [("smoothness", law.smoothness), ("tau", law.tau), ("sigma", law.sigma)] {
        if !value.is_finite() {
            return Err(SolveError::invalid(what, "a finite number", value));
        }
    }
    Ok(())
}

fn check(what: &'static str, found: usize, least: usize) -> Result<(), SolveError> {
    if (least..=MOST_POINTS).contains(&found) {
        Ok(())
    } else {
        Err(SolveError::invalid(what, format!("{least} to {MOST_POINTS}"), found))
    }
}
