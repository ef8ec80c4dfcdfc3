//! After how many queries a network has made up for its data and its training, beside a classical solver of its own accuracy.
//!
//! The solver has the samples of the evaluation on coarser grids, those that nest in the dataset's, and a tolerance a tenth of the network's error. Its
//! solutions are brought to the points of the evaluation and compared with the same targets. The coarsest grid on which its mean error is at most the
//! network's is the one that counts.

use std::time::Instant;

use galerkin_data::clock::DatasetClock;
use galerkin_data::pde::{self, Problem};
use serde::{Deserialize, Serialize};

use super::{Evaluation, Evaluator};
use crate::clock::training_spent;
use crate::error::{Error, Result};
use crate::metrics::{Summary, relative_l2};
use crate::run::RunFolder;
use crate::samples::Samples;

/// A network beside a classical solver of its accuracy. Times are in seconds, of a sample, many samples at a time on all threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakEven {
    /// Points along each axis of the solver's grid.
    pub points: Vec<usize>,
    /// How its error lies to that of the network.
    pub reach: Reach,
    /// Mean relative L² error of the solver.
    pub solver_error: f64,
    /// What the solver was told.
    pub tolerance: f64,
    /// Of the solver.
    pub solver_seconds: f64,
    /// Of the network.
    pub network_seconds: f64,
    /// Threads of both.
    pub threads: usize,
    /// Seconds that the samples took which the network was trained and validated with; absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_seconds: Option<f64>,
    /// Seconds of the training; absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_seconds: Option<f64>,
    /// (data + training)/(solver − network); absent if it never pays or nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<f64>,
}

/// What was found among the grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// On this grid the solver is at least as accurate as the network, on coarser ones it is not.
    Reached,
    /// It is so on the coarsest grid that was tried.
    Coarsest,
    /// It is not even on the finest grid.
    NotReached,
}

/// Intervals along the shortest axis of the coarsest grid.
const LEAST_INTERVALS: usize = 4;
/// Rounds of which the fastest counts.
const ROUNDS: usize = 3;

impl Evaluator {
    /// `Ok` if a classical solver can stand beside the network, at these levels of noise.
    pub fn check_break_even(&self, noises: &[f64]) -> Result<()> {
        self.solvable(noises).map(|_| ())
    }

    /// Measures network and solver on the samples of an evaluation.
    pub fn break_even(&self, evaluation: &Evaluation, folder: &RunFolder) -> Result<BreakEven> {
        let problem = self.solvable(&[evaluation.noise])?;
        let error = evaluation.relative_l2.mean;
        if !(error.is_finite() && error > 0.0) {
            return Err(Error::setting("--break-even", format!("the mean error of the network is {error}")));
        }
        // The solver's own error is to be that of the grid.
        let tolerance = (0.1 * error).clamp(1e-13, 0.1);
        let Found { points, reach, solver_error, inputs } =
            self.coarsest(problem, &evaluation.points, error, tolerance)?;
        let solver = solver(problem, &points, &evaluation.points, tolerance)?;
        let solver_seconds = fastest(inputs.len(), || Ok(pde::solve_all(&solver, &inputs).map(drop)?))?;

        let view = self.view(evaluation.grid, evaluation.noise)?;
        let samples = Samples::load(&self.dataset, &view, &self.indices, None, &self.device)?;
        let network_seconds =
            fastest(samples.len(), || self.predict(&self.dataset, &samples, &view).map(drop))?;

        let data = &self.config.data;
        let data_seconds = DatasetClock::read(&data.folder)
            .filter(|clock| clock.samples > 0)
            .map(|clock| clock.spent.seconds / clock.samples as f64 * (data.train + data.validation) as f64);
        let mut found = BreakEven {
            points,
            reach,
            solver_error,
            tolerance,
            solver_seconds,
            network_seconds,
            threads: galerkin_kernels::par::threads(),
            data_seconds,
            training_seconds: training_spent(folder).map(|spent| spent.seconds),
            queries: None,
        };
        found.queries = found.cost().filter(|_| found.may_pay()).map(|cost| cost / found.gain());
        Ok(found)
    }

    /// The problem, if it has a solver for what the network does.
    fn solvable(&self, noises: &[f64]) -> Result<&Problem> {
        let refused = |why: String| Err(Error::setting("--break-even", why));
        let Some(problem) = self.dataset.meta().and_then(|meta| meta.problem.as_ref()) else {
            return refused(format!(
                "nobody knows a solver for {}, which was not generated here",
                self.subject.dataset.display()
            ));
        };
        if self.config.data.inverse {
            return refused("there is no classical solver of the inverse problem here".into());
        }
        if let Some(noise) = noises.iter().find(|noise| **noise != 0.0) {
            return refused(format!(
                "the solver takes inputs without noise, found {noise}; leave it to --noise 0"
            ));
        }
        let points = self.dataset.grid()?.points();
        match problem.equation().solver(&points, &points, 0.1) {
            Some(_) => Ok(problem),
            None => refused(format!("there is no solver of {}", problem.equation().describe())),
        }
    }

    /// The coarsest grid on which the solver's error is at most `error`, or the finest.
    fn coarsest(&self, problem: &Problem, to: &[usize], error: f64, tolerance: f64) -> Result<Found> {
        let targets = self.dataset.clone().subsample_to(to[0])?;
        let targets = self.indices.iter().map(|index| Ok(targets.sample(*index)?.target.values));
        let targets: Vec<Vec<f32>> = targets.collect::<Result<_>>()?;
        let whole = self.dataset.grid()?;
        let sizes: Vec<usize> = whole.sizes().into_iter().rev().collect();
        let mut found = None;
        let mut tried = 0;
        for size in sizes {
            let dataset = self.dataset.clone().subsample_to(size)?;
            let grid = dataset.grid()?;
            if grid.axes.iter().any(|axis| axis.intervals() < LEAST_INTERVALS) {
                continue;
            }
            tried += 1;
            let inputs = self.indices.iter().map(|index| {
                Ok(dataset.sample(*index)?.input.values.iter().map(|value| f64::from(*value)).collect())
            });
            let inputs: Vec<Vec<f64>> = inputs.collect::<Result<_>>()?;
            let solved = pde::solve_all(&solver(problem, &grid.points(), to, tolerance)?, &inputs)?;
            let mut errors = Vec::new();
            for (solved, target) in solved.iter().zip(&targets) {
                let solved: Vec<f32> = solved.iter().map(|value| *value as f32).collect();
                errors.extend(relative_l2(&solved, target, 1)?);
            }
            let solver_error = Summary::of_defined(&errors)?.mean;
            let reach = match (solver_error <= error, tried) {
                (false, _) => Reach::NotReached,
                (true, 1) => Reach::Coarsest,
                (true, _) => Reach::Reached,
            };
            found = Some(Found { points: grid.points(), reach, solver_error, inputs });
            if reach != Reach::NotReached {
                break;
            }
        }
        found.ok_or_else(|| {
            let why = format!("{whole} has no grid of {LEAST_INTERVALS} intervals");
            Error::setting("--break-even", why)
        })
    }
}

/// A grid with the inputs there.
struct Found {
    points: Vec<usize>,
    reach: Reach,
    solver_error: f64,
    inputs: Vec<Vec<f64>>,
}

impl BreakEven {
    /// Seconds that a query with the network saves.
    fn gain(&self) -> f64 {
        self.solver_seconds - self.network_seconds
    }

    /// Whether the solver, which is as accurate, is slower; or is not as accurate on any grid, and nothing can be compared.
    fn may_pay(&self) -> bool {
        self.reach != Reach::NotReached && self.gain() > 0.0
    }

    /// Seconds before the first query.
    fn cost(&self) -> Option<f64> {
        Some(self.data_seconds? + self.training_seconds?)
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let sizes: Vec<_> = self.points.iter().map(ToString::to_string).collect();
        let points = format!("{} points", sizes.join(" × "));
        let [solver, network] = [self.solver_seconds, self.network_seconds].map(milliseconds);
        let error = self.solver_error;
        let beginning = match self.reach {
            Reach::Reached => {
                format!("The classical solver reaches this error on {points} in {solver} ms a sample")
            }
            Reach::Coarsest => format!(
                "Even on {points}, the coarsest grid tried, the classical solver is at least as accurate (mean error {error:.2e}) in {solver} ms a sample"
            ),
            Reach::NotReached => {
                return format!(
                    "The classical solver does not reach this error: on {points}, the finest grid, its mean error is {error:.2e} in {solver} ms a \
                     sample, and the network takes {network} ms."
                );
            }
        };
        let end = match (self.may_pay(), self.queries) {
            (false, _) => "it never pays".to_string(),
            (true, Some(queries)) => format!("it pays after {:.0} queries", queries.ceil()),
            (true, None) => {
                let unknown = match (self.data_seconds, self.training_seconds) {
                    (None, None) => "times of data and training unknown",
                    (None, _) => "time of the data unknown",
                    _ => "training time unknown",
                };
                format!("it saves {} ms a query ({unknown})", milliseconds(self.gain()))
            }
        };
        format!("{beginning}, the network takes {network} ms: {end}.")
    }
}

/// Two digits.
pub fn milliseconds(seconds: f64) -> String {
    let value = 1e3 * seconds;
    if value == 0.0 {
        return "0".into();
    }
    let digits = 1 - libm::log10(value.abs()).floor() as i32;
    format!("{value:.*}", digits.max(0) as usize)
}

/// From a grid to another.
fn solver<'a>(problem: &'a Problem, from: &[usize], to: &[usize], tolerance: f64) -> Result<pde::Solver<'a>> {
    let solver = problem.equation().solver(from, to, tolerance);
    Ok(solver.ok_or_else(|| Error::setting("--break-even", "there is no solver"))??)
}

/// Seconds of a sample, of the fastest of some rounds after one to warm up.
fn fastest(samples: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        work()?;
        least = least.min(begin.elapsed().as_secs_f64());
    }
    Ok(least / samples.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> BreakEven {
        BreakEven {
            points: vec![22, 22],
            reach: Reach::Reached,
            solver_error: 8e-3,
            tolerance: 1e-3,
            solver_seconds: 3.0e-4,
            network_seconds: 4.1e-3,
            threads: 2,
            data_seconds: Some(30.0),
            training_seconds: Some(600.0),
            queries: None,
        }
    }

    #[test]
    fn the_sentence_says_what_was_found() {
        assert_eq!(
            found().sentence(),
            "The classical solver reaches this error on 22 × 22 points in 0.30 ms a sample, the network takes 4.1 ms: it never pays."
        );
        let fast = BreakEven { network_seconds: 1e-4, queries: Some(3_149_999.2), ..found() };
        assert!(
            fast.sentence().ends_with("the network takes 0.10 ms: it pays after 3150000 queries."),
            "{}",
            fast.sentence()
        );
        let unknown = BreakEven { training_seconds: None, queries: None, ..fast.clone() };
        let end = "it saves 0.20 ms a query (training time unknown).";
        assert!(unknown.sentence().ends_with(end), "{}", unknown.sentence());
        let coarsest = BreakEven { reach: Reach::Coarsest, ..found() };
        assert!(coarsest.sentence().starts_with("Even on 22 × 22 points, the coarsest grid tried,"));
        assert!(coarsest.sentence().ends_with("it never pays."));
        let worse = BreakEven { reach: Reach::NotReached, ..fast };
        assert!(worse.sentence().contains("does not reach this error") && !worse.sentence().contains("pays"));
    }

    #[test]
    fn what_was_spent_is_shared_among_what_is_saved() {
        let fast = BreakEven { network_seconds: 1e-4, ..found() };
        assert_eq!(fast.cost(), Some(630.0));
        assert!(fast.may_pay() && (fast.cost().unwrap() / fast.gain() - 630.0 / 2e-4).abs() < 1e-3);
        assert!(!found().may_pay());
    }

    #[test]
    fn milliseconds_have_two_digits() {
        let shown = [0.0, 3e-7, 4.14e-3, 0.0312, 0.25, 12.0].map(milliseconds);
        assert_eq!(shown, ["0", "0.00030", "4.1", "31", "250", "12000"]);
    }
}
