//! Errors of a trained model on a dataset: on any grid, with any noise, beside the classical solver where the problem is known.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use galerkin_data::Dataset;
use galerkin_data::grid::GridKind;
use galerkin_data::pde::{Problem, burgers, darcy};
use serde::Serialize;

use crate::config::{RunConfig, Task};
use crate::error::Result;
use crate::layers::Mode;
use crate::loss::Ends;
use crate::metrics::{Summary, l_infinity, relative_h1, relative_l2};
use crate::models::{Field, Model};
use crate::reference::to_vec;
use crate::run;
use crate::train::{Samples, View};

/// Errors on one grid with one level of noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Points, a side in 2D, of the inputs.
    pub grid: usize,
    /// Points along each axis of the inputs.
    pub points: Vec<usize>,
    /// Noise on the inputs, relative to their deviation.
    pub noise: f64,
    /// Number of samples.
    pub samples: usize,
    /// ‖p − u‖/‖u‖.
    pub relative_l2: Summary,
    /// The same in the H¹-seminorm; absent where a grid has no differences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_h1: Option<Summary>,
    /// max |p − u|.
    pub l_infinity: Summary,
    /// Relative L² errors of all samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_sample: Vec<f64>,
    /// Seconds of a sample, samples taken together in batches.
    pub seconds_per_sample: f64,
    /// The solver of the problem, on the same inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolverRow>,
}

/// What the classical solver does with the inputs of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SolverRow {
    /// Against the same targets.
    pub relative_l2: Summary,
    /// Seconds of a sample, on one thread.
    pub seconds_per_sample: f64,
}

/// What to evaluate on.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The dataset, on its own grid.
    pub dataset: &'a Dataset,
    /// Samples of it.
    pub indices: &'a [usize],
    /// Points, a side in 2D.
    pub grid: usize,
    /// Noise on the inputs.
    pub noise: f64,
    /// The problem the dataset was made from, for the solver's row.
    pub problem: Option<&'a Problem>,
}

/// Evaluates a model of a run.
pub fn evaluate(
    config: &RunConfig,
    model: &Model,
    normalizer: Option<&galerkin_data::normalize::Normalizer>,
    setting: Setting,
    device: &Device,
) -> run::Result<Evaluation> {
    let (samples, view) = samples(config, normalizer, setting, device)?;
    let start = Instant::now();
    let predictions = predict(model, &samples, device)?;
    let seconds = start.elapsed().as_secs_f64();
    let count = samples.len();
    let errors = relative_l2(&predictions, &samples.targets.values, count)?;
    let ends = if samples.grid.kind == GridKind::Periodic { Ends::Periodic } else { Ends::Interior };
    let (targets, grid) = (&samples.targets.values, &samples.grid);
    let slopes = relative_h1(&predictions, targets, count, &grid.points, &grid.spacing, ends);
    Ok(Evaluation {
        grid: setting.grid,
        points: view.plain(setting.dataset)?.grid().points,
        noise: setting.noise,
        samples: count,
        relative_l2: Summary::of(&errors)?,
        relative_h1: slopes.ok().map(|slopes| Summary::of(&slopes)).transpose()?,
        l_infinity: Summary::of(&l_infinity(&predictions, targets, count)?)?,
        per_sample: errors,
        seconds_per_sample: seconds / count.max(1) as f64,
        solver: solver_row(config.data.task, setting)?,
    })
}

/// The samples of a setting as a run sees them.
pub fn samples<'a>(
    config: &RunConfig,
    normalizer: Option<&'a galerkin_data::normalize::Normalizer>,
    setting: Setting,
    device: &Device,
) -> run::Result<(Samples, View<'a>)> {
    let mut view = View::of(&config.data, config.train.seed, normalizer);
    (view.grid, view.noise) = (setting.grid, setting.noise);
    if config.data.task == Task::DarcyInverse {
        view.coarse = config.model_config()?.output_grid(&[setting.grid; 2])?[0];
    }
    Ok((Samples::load(setting.dataset, &view, setting.indices, false, device)?, view))
}

/// The model's predictions, (samples, points…, channels).
pub fn predict(model: &Model, samples: &Samples, device: &Device) -> Result<Vec<f32>> {
    let points: usize = samples.inputs.shape[1..].iter().product();
    let mut values = Vec::with_capacity(samples.targets.values.len());
    for places in samples.batches(batch_of(points)) {
        let x = samples.batch(&places, device)?.input;
        values.extend(match model.forward(x, Mode::Evaluate)? {
            Field::Line(y) => to_vec(y),
            Field::Square(y) => to_vec(y),
        });
    }
    Ok(values)
}

/// Relative L² errors of a model that is being trained.
pub(crate) fn relative_errors(model: &Model, samples: &Samples, device: &Device) -> Result<Vec<f64>> {
    let predictions = predict(&model.valid(), samples, device)?;
    relative_l2(&predictions, &samples.targets.values, samples.len())
}

/// Samples that go through a model together: enough to keep threads busy, few enough to need little memory.
pub(crate) fn batch_of(points: usize) -> usize {
    (32_768 / points.max(1)).clamp(1, 64)
}

/// Solves the problem from the same inputs, without noise: the inputs of the inverse problem have no solver here.
fn solver_row(task: Task, setting: Setting) -> run::Result<Option<SolverRow>> {
    let Some(problem) = setting.problem else { return Ok(None) };
    let dataset = setting.dataset.clone().subsample_to(setting.grid)?;
    let start = Instant::now();
    let mut errors = Vec::new();
    for index in setting.indices {
        let pair = dataset.sample(*index)?;
        let input: Vec<f64> = pair.input.values.iter().map(|v| *v as f64).collect();
        let solved = match (problem, task) {
            (Problem::Burgers(p), Task::Burgers) => {
                burgers::solve(&input, p.viscosity, p.time, setting.grid)?
            }
            (Problem::Darcy(p), Task::Darcy) => {
                let source = vec![p.source; input.len()];
                darcy::solve(&input, &source, p.tolerance)?
            }
            _ => return Ok(None),
        };
        let solved: Vec<f32> = solved.iter().map(|v| *v as f32).collect();
        errors.extend(relative_l2(&solved, &pair.target.values, 1)?);
    }
    let seconds_per_sample = start.elapsed().as_secs_f64() / setting.indices.len().max(1) as f64;
    Ok(Some(SolverRow { relative_l2: Summary::of(&errors)?, seconds_per_sample }))
}
