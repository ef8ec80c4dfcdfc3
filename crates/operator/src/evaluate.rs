//! Errors of a trained model on a dataset: on any grid, with any noise, beside the classical solver where the problem is known.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use galerkin_data::Grid;
use galerkin_data::normalize::Normalizer;
use galerkin_data::split::Split;
use galerkin_data::{Array, Dataset};
use serde::{Deserialize, Serialize};

use crate::config::{DataConfig, RunConfig, Task};
use crate::error::Result;
use crate::layers::Mode;
use crate::loss::Ends;
use crate::metrics::{Summary, l_infinity, relative_h1, relative_l2};
use crate::models::{Field, Model, ModelConfig, Preset};
use crate::reference::to_vec;
use crate::run::{self, RunFolder, Which};
use crate::train::{Samples, View, on_grid, resized};

/// Errors on one grid with one level of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_h1: Option<Summary>,
    /// max |p − u|.
    pub l_infinity: Summary,
    /// Relative L² errors of all samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_sample: Vec<f64>,
    /// Seconds of a sample, samples taken together in batches.
    pub seconds_per_sample: f64,
    /// The solver of the problem, on the same inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolverRow>,
}

/// What the classical solver does with the inputs of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SolverRow {
    /// Against the same targets.
    pub relative_l2: Summary,
    /// Seconds of a sample, on one thread.
    pub seconds_per_sample: f64,
}

/// What `metrics.json` holds: the last evaluation of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The folder, as it was named.
    pub run: PathBuf,
    /// What was trained.
    pub preset: Preset,
    /// On every grid with every level of noise.
    pub evaluations: Vec<Evaluation>,
}

/// Samples with what a model says of them, in the units of the dataset.
#[derive(Clone, Debug)]
pub struct Shown {
    /// (samples, points…, channels), with noise.
    pub inputs: Array,
    /// (samples, points…, channels)
    pub targets: Array,
    /// Of the shape of the targets.
    pub predictions: Array,
    /// Relative L² errors.
    pub errors: Vec<f64>,
    /// The grid of the targets.
    pub grid: Grid,
}

/// A sample inside a transformer on a square, on the coarse grid of its attention.
#[derive(Clone, Debug)]
pub struct Latents {
    /// Of the problem behind the sample (n₁, n₂, channels), bilinearly interpolated from the grid of the run.
    pub coefficient: Array,
    /// The names of the encoder layers and their outputs (n₁, n₂, features).
    pub layers: Vec<(String, Array)>,
}

/// A trained model with the samples it is evaluated on.
#[derive(Debug)]
pub struct Evaluator {
    config: RunConfig,
    model: Model,
    normalizer: Option<Normalizer>,
    dataset: Dataset,
    indices: Vec<usize>,
    device: Device,
}

impl Evaluator {
    /// The model of a run, on the test samples of its dataset or on all samples of another one.
    pub fn open(folder: &RunFolder, which: Which, data: Option<&Path>, device: &Device) -> run::Result<Self> {
        let config = folder.config()?;
        let (model, _) = folder.model(which, device)?;
        let path = data.unwrap_or(&config.data.folder);
        if data.is_none() && !path.exists() {
            let why = format!("its dataset {} is not there; name one by --data", path.display());
            return Err(folder.wrong(why));
        }
        let dataset = Dataset::open(path)?;
        let indices = match trained_with(folder, path) {
            true => {
                let DataConfig { train, validation, test, .. } = config.data;
                Split::new(dataset.len(), train, validation, test, config.train.seed)?.test
            }
            false => (0..dataset.len()).collect(),
        };
        if indices.is_empty() {
            return Err(folder.wrong("no samples to evaluate: data.test = 0"));
        }
        Ok(Self { model, normalizer: folder.normalizer()?, config, dataset, indices, device: device.clone() })
    }

    /// What the run was told.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The dataset on its own grid.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The dataset as the model sees it on a grid, without normalisation and noise.
    pub fn seen(&self, grid: usize) -> run::Result<Dataset> {
        self.view(grid, 0.0)?.plain(&self.dataset)
    }

    /// Errors on a grid of so many points, a side in 2D, with noise on the inputs.
    pub fn evaluate(&self, grid: usize, noise: f64) -> run::Result<Evaluation> {
        let view = self.view(grid, noise)?;
        let samples = Samples::load(&self.dataset, &view, &self.indices, false, &self.device)?;
        let start = Instant::now();
        let predictions = predict(&self.model, &samples, &self.device)?;
        let seconds = start.elapsed().as_secs_f64();
        let count = samples.len();
        let errors = relative_l2(&predictions, &samples.targets.values, count)?;
        let ends = if samples.grid.axes[0].periodic { Ends::Periodic } else { Ends::Interior };
        let (targets, target_grid) = (&samples.targets.values, &samples.grid);
        let slopes =
            relative_h1(&predictions, targets, count, &target_grid.points(), &target_grid.spacing(), ends);
        Ok(Evaluation {
            grid,
            points: view.plain(&self.dataset)?.grid()?.points(),
            noise,
            samples: count,
            relative_l2: Summary::of(&errors)?,
            relative_h1: slopes.ok().map(|slopes| Summary::of(&slopes)).transpose()?,
            l_infinity: Summary::of(&l_infinity(&predictions, targets, count)?)?,
            per_sample: errors,
            seconds_per_sample: seconds / count.max(1) as f64,
            solver: self.solver_row(grid)?,
        })
    }

    /// The first samples with their predictions.
    pub fn show(&self, grid: usize, noise: f64, count: usize) -> run::Result<Shown> {
        let view = self.view(grid, noise)?;
        let indices = &self.indices[..count.min(self.indices.len())];
        let samples = Samples::load(&self.dataset, &view, indices, false, &self.device)?;
        let predictions = predict(&self.model, &samples, &self.device)?;
        let Samples { mut inputs, targets, grid, .. } = samples;
        let errors = relative_l2(&predictions, &targets.values, indices.len())?;
        if let Some(normalizer) = view.normalizer {
            let points = &inputs.shape[1..inputs.shape.len() - 1];
            let normalizer = on_grid(normalizer, points, &self.device)?;
            let len = inputs.values.len() / indices.len().max(1);
            for sample in inputs.values.chunks_exact_mut(len.max(1)) {
                normalizer.invert(sample)?;
            }
        }
        let predictions = Array { shape: targets.shape.clone(), values: predictions };
        Ok(Shown { inputs, targets, predictions, errors, grid })
    }

    /// The first samples as the model takes them.
    fn inputs(&self, grid: usize, noise: f64, count: usize) -> run::Result<Field> {
        let indices = &self.indices[..count.min(self.indices.len())];
        let samples = Samples::load(&self.dataset, &self.view(grid, noise)?, indices, false, &self.device)?;
        let places: Vec<usize> = (0..samples.len()).collect();
        Ok(samples.batch(&places, &self.device)?.input)
    }

    /// What the encoder layers make of the first sample; `None` of a model that is no transformer on a square.
    pub fn latents(&self) -> run::Result<Option<Latents>> {
        let DataConfig { grid, noise, .. } = self.config.data;
        let first = &self.indices[..1];
        // Both problems have the coefficient as the input of their datasets.
        let coefficient = self.dataset.clone().subsample_to(grid)?.sample(first[0])?.input;
        let (ModelConfig::Transformer2d(config), &[n1, n2, c]) =
            (self.config.model_config()?, &coefficient.shape[..])
        else {
            return Ok(None);
        };
        let coarse = config.resampling.through([n1, n2])?.down[1];
        let coefficient = resized(&coefficient, [n1, n2, c], coarse, &self.device)?;
        let stages = self.model.latents(self.inputs(grid, noise, 1)?)?;
        // Of all stages only the encoder layers take the square as a list of points.
        let layers = stages.into_iter().filter_map(|(name, stage)| match stage {
            Field::Line(x) => {
                let [_, _, features] = x.dims();
                Some((name, Array { shape: vec![coarse[0], coarse[1], features], values: to_vec(x) }))
            }
            Field::Square(_) => None,
        });
        Ok(Some(Latents { coefficient, layers: layers.collect() }))
    }

    /// The samples as the run sees them, on another grid.
    fn view(&self, grid: usize, noise: f64) -> run::Result<View<'_>> {
        let mut view = View::of(&self.config.data, self.config.train.seed, self.normalizer.as_ref());
        (view.grid, view.noise) = (grid, noise);
        if self.config.data.task == Task::DarcyInverse {
            view.coarse = self.config.model_config()?.output_grid(&[grid; 2])?[0];
        }
        Ok(view)
    }

    /// Solves the problem the dataset was made from, from the same inputs without noise. The inverse problem has no solver here.
    fn solver_row(&self, grid: usize) -> run::Result<Option<SolverRow>> {
        let problem = self.dataset.meta().and_then(|meta| meta.problem.as_ref());
        let (Some(problem), Task::Burgers | Task::Darcy) = (problem, self.config.data.task) else {
            return Ok(None);
        };
        let dataset = self.dataset.clone().subsample_to(grid)?;
        let points = dataset.grid()?.points();
        let start = Instant::now();
        let mut errors = Vec::new();
        for index in &self.indices {
            let pair = dataset.sample(*index)?;
            let input: Vec<f64> = pair.input.values.iter().map(|v| *v as f64).collect();
            let Some(solved) = problem.equation().solve(&input, &points) else { return Ok(None) };
            let solved = solved?;
            let solved: Vec<f32> = solved.iter().map(|v| *v as f32).collect();
            errors.extend(relative_l2(&solved, &pair.target.values, 1)?);
        }
        let seconds_per_sample = start.elapsed().as_secs_f64() / self.indices.len().max(1) as f64;
        Ok(Some(SolverRow { relative_l2: Summary::of(&errors)?, seconds_per_sample }))
    }
}

/// Whether a run was trained with the dataset of a folder, which may have moved since. A run whose weights come from elsewhere has
/// no dataset of its own.
fn trained_with(folder: &RunFolder, data: &Path) -> bool {
    let read = |path: PathBuf| std::fs::read(path).ok();
    read(folder.dataset_file()).is_some_and(|own| Some(own) == read(data.join("meta.toml")))
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
