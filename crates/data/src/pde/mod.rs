//! Partial differential equations: solvers, and problems whose samples they make.
//!
//! A [`Problem`] is everything a sample depends on beside (seed, index): equation, parameters, law of the input, grid, tolerance. A new one is a file
//! here with an [`Equation`], and a line in the list of problems below.

pub mod burgers;
pub mod cole_hopf;
pub mod darcy;
pub mod eigen;
mod etd;
pub mod inverse;
mod poisson;

pub use burgers::Burgers;
pub use darcy::{Coefficient, Darcy};

use crate::domain::Grid;
use crate::error::{Error, Result};
use crate::random_field::FieldLaw;
use eigen::Eigenpair;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a problem knows. What comes after `sampler` has a default that says no.
pub trait Equation {
    /// In a line, with its parameters.
    fn describe(&self) -> String;

    /// Names of the channel of the inputs and of that of the targets.
    fn channels(&self) -> [&'static str; 2];

    /// What input and target are called in figures.
    fn titles(&self) -> [String; 2];

    /// The grid of inputs and targets.
    fn grid(&self) -> Grid;

    /// The same problem with the numbers of its discretisation blotted out: what says of which functions a sample is.
    fn law(&self) -> Problem;

    /// A function that makes sample `index` of a seed, after what all samples share was prepared.
    fn sampler(&self) -> Result<Sampler<'_>>;

    /// The input of sample `index` of a seed on a grid of so many points along each axis, its own or another: what the sample would be made from there.
    fn input(&self, seed: u64, index: u32, points: &[usize]) -> Option<Result<Vec<f64>>> {
        let _ = (seed, index, points);
        None
    }

    /// The target of an input on a grid of so many points, by a classical solver.
    fn solve(&self, input: &[f64], points: &[usize]) -> Option<Result<Vec<f64>>> {
        let _ = (input, points);
        None
    }

    /// A function from inputs on a grid of `from` points to targets on one of `to` points, by a classical solver with this tolerance on the grid of the
    /// input, after what all samples share was prepared.
    fn solver(&self, from: &[usize], to: &[usize], tolerance: f64) -> Option<Result<Solver<'_>>> {
        let _ = (from, to, tolerance);
        None
    }

    /// Changes that make another sample of one, as `train.augment` names them: axes are those of the grid, channels those of
    /// [`channels`](Self::channels). The law of the inputs has them too.
    fn symmetries(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether every target is zero on the boundary.
    fn zero_boundary(&self) -> bool {
        false
    }

    /// The first eigenfunctions of the operator that an input on n × n points defines.
    fn eigenfunctions(&self, input: &[f64], n: usize, count: usize) -> Option<Result<Vec<Eigenpair>>> {
        let _ = (input, n, count);
        None
    }
}

/// Makes sample `index` of a seed.
pub type Sampler<'a> = Box<dyn Fn(u64, u32) -> Result<Sample> + Sync + 'a>;

/// Solves a problem from an input.
pub type Solver<'a> = Box<dyn Fn(&[f64]) -> Result<Vec<f64>> + Sync + 'a>;

/// The targets of many inputs, on all threads of the current pool.
pub fn solve_all(solver: &Solver, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    inputs.par_iter().with_max_len(1).map(|input| solver(input)).collect()
}

/// An input and its target, each on the problem's grid, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Initial values, or coefficients.
    pub input: Vec<f32>,
    /// The solution.
    pub target: Vec<f32>,
}

/// The list of problems: a name in `meta.toml` and the description behind it.
macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What samples are samples of.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name", rename_all = "snake_case")]
        pub enum Problem {
            $($(#[$doc])* $name($name),)*
        }

        impl Problem {
            /// What it knows.
            pub fn equation(&self) -> &dyn Equation {
                match self {
                    $(Problem::$name(equation) => equation,)*
                }
            }
        }
    };
}

problems! {
    /// Viscous Burgers' equation.
    Burgers,
    /// Darcy's flow.
    Darcy,
}

impl Problem {
    /// The grid of inputs and targets.
    pub fn grid(&self) -> Grid {
        self.equation().grid()
    }

    /// Names of the channel of the inputs and of that of the targets.
    pub fn channels(&self) -> [&'static str; 2] {
        self.equation().channels()
    }

    /// What of it is not a matter of discretisation. Two problems of one law have the same samples, on grids of their own.
    pub fn law(&self) -> Problem {
        self.equation().law()
    }

    /// Sample `index`, which depends on nothing but the problem and the seed.
    pub fn sample(&self, seed: u64, index: u32) -> Result<Sample> {
        let made = self.equation().sampler().and_then(|sample| sample(seed, index));
        made.map_err(failed(seed, index))
    }
}

/// How many samples are in flight: enough to keep many threads busy, few enough that hundreds of 421 × 421 grids do not pile up.
const BATCH: u32 = 32;

/// Makes the samples of a range on all threads of the current pool, and hands them to `each` in order.
///
/// Samples are made in batches; `each` runs between them, on the calling thread. An error of a sample or of `each` ends it.
pub fn generate(
    problem: &Problem,
    seed: u64,
    range: Range<u32>,
    mut each: impl FnMut(u32, Sample) -> Result<()>,
) -> Result<()> {
    let sampler = problem.equation().sampler().map_err(failed(seed, range.start))?;
    let batch = BATCH.max(8 * rayon::current_num_threads() as u32);
    let mut first = range.start;
    while first < range.end {
        let last = range.end.min(first.saturating_add(batch));
        let make = |index| sampler(seed, index).map_err(failed(seed, index));
        let samples: Vec<_> = (first..last).into_par_iter().with_max_len(1).map(make).collect();
        for (index, sample) in (first..last).zip(samples) {
            each(index, sample?)?;
        }
        first = last;
    }
    Ok(())
}

fn failed(seed: u64, index: u32) -> impl FnOnce(Error) -> Error {
    move |source| Error::Sample { index, seed, source: Box::new(source) }
}

/// Finest grid and most modes a problem may ask for, so that a slip of the pen is an error and not a machine out of memory.
const MOST_POINTS: usize = 1 << 24;

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

fn check_law(law: &FieldLaw, modes: usize) -> Result<()> {
    check("modes", modes, 1)?;
    for (what, value) in [("smoothness", law.smoothness), ("tau", law.tau), ("sigma", law.sigma)] {
        if !value.is_finite() {
            return Err(Error::invalid(what, "a finite number", value));
        }
    }
    Ok(())
}

fn check(what: &'static str, found: usize, least: usize) -> Result<()> {
    if (least..=MOST_POINTS).contains(&found) {
        Ok(())
    } else {
        Err(Error::invalid(what, format!("{least} to {MOST_POINTS}"), found))
    }
}
