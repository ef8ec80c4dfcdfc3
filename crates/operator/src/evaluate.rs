//! Errors of a trained model on a dataset: on any grid, with any noise, beside the classical solver where the problem is known.

mod break_even;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use galerkin_data::generate::checksum;
use galerkin_data::io::Output;
use galerkin_data::normalize::Normalizer;
use galerkin_data::{Array, Dataset, Grid};
use serde::{Deserialize, Serialize};

pub use self::break_even::{BreakEven, Reach, milliseconds};
use crate::config::{DataConfig, RunConfig};
use crate::error::{Error, Result};
use crate::metrics::{Summary, l_infinity, relative_h1, relative_l2, relative_l2_of_channel};
use crate::networks::{Network, NetworkConfig};
use crate::reference::to_vec;
use crate::run::{self, RunFolder, Snapshot};
use crate::samples::{Samples, View, for_each_sample, on_grid, on_points, rows, split_of};
use crate::symmetry::{Group, Symmetry};

/// Errors on one grid with one level of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Of which model on which samples.
    #[serde(flatten)]
    pub subject: Subject,
    /// Points along the first axis of the inputs.
    pub grid: usize,
    /// Points along each axis of the inputs.
    pub points: Vec<usize>,
    /// Noise on the inputs, relative to their deviation.
    pub noise: f64,
    /// What does not lie on the dataset's own points there.
    #[serde(default, skip_serializing_if = "Interpolated::is_none")]
    pub interpolated: Interpolated,
    /// Number of samples.
    pub samples: usize,
    /// How many of them count in no relative error, because their target is zero everywhere.
    #[serde(default)]
    pub zero_targets: usize,
    /// ‖p − u‖/‖u‖ over all channels.
    pub relative_l2: Summary,
    /// The same for every channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelErrors>,
    /// The same in the H¹-seminorm; absent where a grid has no differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_h1: Option<Summary>,
    /// max |p − u|.
    pub l_infinity: Summary,
    /// Relative L² errors of all samples; infinite where the target is zero.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_sample: Vec<f64>,
    /// Seconds of a sample, samples taken together in batches.
    pub seconds_per_sample: f64,
    /// The solver of the problem, on the same inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolverRow>,
    /// The solver on a coarser grid, where it is as accurate; measured if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_even: Option<BreakEven>,
}

impl Evaluation {
    /// Of which samples and weights: `, 100 samples of datasets/burgers, best weights`.
    pub fn label(&self) -> String {
        let Subject { dataset, weights, includes_training, symmetric, .. } = &self.subject;
        let mut words = format!(", {} samples", self.samples);
        if !dataset.as_os_str().is_empty() {
            words.push_str(&format!(" of {}", dataset.display()));
        }
        if *includes_training {
            words.push_str(", those of the training included");
        }
        words.push_str(match weights {
            Snapshot::Last => ", last weights",
            Snapshot::Best => ", best weights",
        });
        if *symmetric {
            words.push_str(", mean over symmetries");
        }
        words
    }
}

/// What of a sample was interpolated to the grid of an evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolated {
    /// Nothing: the grid is one of every so many points of the dataset's.
    #[default]
    Nothing,
    /// Targets; the problem of the dataset makes its inputs on any grid.
    Targets,
    /// Inputs too.
    Both,
}

impl Interpolated {
    fn is_none(&self) -> bool {
        *self == Self::Nothing
    }
}

/// Errors of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelErrors {
    /// What the channel is called.
    pub name: String,
    /// ‖p − u‖/‖u‖.
    pub relative_l2: Summary,
}

/// What the classical solver does with the inputs of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SolverRow {
    /// Against the same targets.
    pub relative_l2: Summary,
    /// Seconds of a sample, on one thread.
    pub seconds_per_sample: f64,
}

/// What was evaluated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// The folder of the dataset, as it was named.
    pub dataset: PathBuf,
    /// The checksums of its arrays; empty if it has none.
    pub checksum: String,
    /// Which weights of the run.
    pub weights: Snapshot,
    /// The checksum of their file.
    pub weights_checksum: String,
    /// Samples of the dataset that were left out because the run was trained or validated with them.
    pub left_out: usize,
    /// Whether samples that the run was trained with are among those that were evaluated.
    pub includes_training: bool,
    /// Whether predictions are means over the run's flips and transpositions.
    pub symmetric: bool,
    /// The version that evaluated.
    pub version: String,
}

/// What `metrics.json` holds: evaluations of a run, the last one of every subject, grid and noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The folder, as it was named.
    pub run: PathBuf,
    /// What the run is called.
    #[serde(alias = "preset")]
    pub name: String,
    /// On every grid with every level of noise.
    pub evaluations: Vec<Evaluation>,
}

impl Metrics {
    /// Those of a run, if it was evaluated.
    pub fn read(folder: &RunFolder) -> Result<Option<Self>> {
        let path = folder.metrics_file();
        let Some(text) = run::read(&path)? else { return Ok(None) };
        let metrics = serde_json::from_str(&text);
        metrics.map(Some).map_err(|error| Error::Folder { path, why: format!("no metrics: {error}") })
    }

    /// Puts them beside those that the run has, in place of earlier ones of the same weights, averaged or not, on the same dataset, grid and noise.
    pub fn add_to(&self, folder: &RunFolder) -> Result<()> {
        // Begun before the others are read: whoever evaluates at the same time waits here.
        let path = folder.metrics_file();
        let mut file = Output::create(&path)?;
        let key = |e: &Evaluation| {
            let Subject { checksum, weights, includes_training, symmetric, .. } = &e.subject;
            (checksum.clone(), *weights, *includes_training, *symmetric, e.points.clone(), e.noise.to_bits())
        };
        let mut all = self.clone();
        if let Some(before) = Self::read(folder)? {
            let kept = before.evaluations.into_iter();
            let kept = kept.filter(|old| self.evaluations.iter().all(|new| key(new) != key(old)));
            all.evaluations = kept.chain(self.evaluations.iter().cloned()).collect();
        }
        let text = serde_json::to_string_pretty(&all).expect("numbers and words");
        writeln!(file, "{text}").map_err(Error::io(&path))?;
        Ok(file.finish()?)
    }
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
    /// Relative L² errors; infinite where the target is zero.
    pub errors: Vec<f64>,
    /// The grid of the targets.
    pub grid: Grid,
}

/// A sample inside a transformer on a square, on the grid of its encoder.
#[derive(Clone, Debug)]
pub struct SampleLatents {
    /// The input of the dataset's sample (n₁, n₂, channels), interpolated from the grid of the run: the coefficient of an equation.
    pub coefficient: Array,
    /// The names of the encoder layers and their outputs (n₁, n₂, features).
    pub layers: Vec<(String, Array)>,
}

/// A trained model with the samples it is evaluated on.
#[derive(Debug)]
pub struct Evaluator {
    config: RunConfig,
    network: Network,
    normalizer: Option<Normalizer>,
    dataset: Dataset,
    indices: Vec<usize>,
    subject: Subject,
    /// Over which predictions are averaged; empty if they are not.
    symmetries: Vec<Symmetry>,
    device: Device,
}

/// Which samples of a dataset are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Among {
    /// Those that the run has neither been trained nor validated with; of its own dataset, the test samples.
    #[default]
    Unseen,
    /// All.
    All,
}

impl Evaluator {
    /// The model of a run, with samples of its own dataset or of another one.
    pub fn open(
        folder: &RunFolder,
        snapshot: Snapshot,
        data: Option<&Path>,
        among: Among,
        device: &Device,
    ) -> Result<Self> {
        let config = folder.config()?;
        let network = folder.network(snapshot, device)?;
        let path = data.unwrap_or(&config.data.folder);
        if data.is_none() && !path.exists() {
            let why = format!("its dataset {} is not there; name one by --data", path.display());
            return Err(folder.wrong(why));
        }
        let dataset = Dataset::open(path)?;
        let unseen = match folder.seen()? {
            Some(seen) => seen.others(&dataset)?,
            None => (0..dataset.len()).collect(),
        };
        let left_out = dataset.len() - unseen.len();
        let indices = match among {
            Among::All => (0..dataset.len()).collect(),
            Among::Unseen if folder.is_trained_with(&dataset)? => split_of(&config, &dataset)?.test,
            Among::Unseen => unseen,
        };
        if indices.is_empty() {
            let why = match left_out {
                0 => "no samples to evaluate".to_string(),
                _ => format!(
                    "no samples to evaluate: it was trained or validated with all {left_out} of {}; \
                     --include-training evaluates these",
                    path.display()
                ),
            };
            return Err(folder.wrong(why));
        }
        let checksums = dataset.meta().map(|meta| meta.checksums.values().cloned().collect::<Vec<_>>());
        let subject = Subject {
            dataset: path.into(),
            checksum: checksums.unwrap_or_default().join("-"),
            weights: snapshot,
            weights_checksum: checksum(&folder.weights_file(snapshot))?,
            left_out: if among == Among::All { 0 } else { left_out },
            includes_training: among == Among::All && left_out > 0,
            symmetric: false,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let (grid, periodic) = (dataset.grid()?, network.config().periodic());
        if grid.periodic() != periodic {
            let axes: Vec<_> =
                periodic.iter().map(|round| if *round { "periodic" } else { "closed" }).collect();
            let why = format!(
                "it is for grids with {} axes ({}); {} lies on {grid}",
                axes.len(),
                axes.join(", "),
                path.display()
            );
            return Err(folder.wrong(why));
        }
        let [inputs, outputs] = network.config().channels();
        let (mut found, mut channels) = (dataset.input_channels().len(), dataset.target_channels().len());
        if config.data.inverse {
            (found, channels) = (channels, found);
        }
        if (inputs, outputs) != (found, channels) {
            let why = format!(
                "it takes {inputs} and gives {outputs} channels; {} has {found} and {channels}",
                path.display()
            );
            return Err(folder.wrong(why));
        }
        Ok(Self {
            network,
            normalizer: folder.normalizer()?,
            config,
            dataset,
            indices,
            subject,
            symmetries: Vec::new(),
            device: device.clone(),
        })
    }

    /// The same, with predictions that are means over all 2ᵏ combinations of the k flips and transpositions of the run in a folder, and that take 2ᵏ times as
    /// long: see [`RunFolder::symmetries`].
    pub fn symmetric(mut self, folder: &RunFolder) -> Result<Self> {
        self.symmetries = folder.symmetries()?;
        self.subject.symmetric = true;
        Ok(self)
    }

    /// What the run was told.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// What is evaluated.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The dataset on its own grid.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Points along the first axis of the grid that is evaluated on unless another is asked for: that of the training, or the dataset's own if it has
    /// no such grid.
    pub fn grid(&self) -> Result<usize> {
        let (trained, own) = (self.config.data.grid, self.dataset.grid()?);
        Ok(if own.stride_to(trained).is_ok() { trained } else { own.axes[0].points })
    }

    /// The dataset as the model sees it on a grid, without normalisation and noise.
    pub fn seen(&self, grid: usize) -> Result<Dataset> {
        self.view(grid, 0.0)?.plain(&self.dataset)
    }

    /// Errors on a grid of so many points, a side in 2D, with noise on the inputs. It takes every so many points of the dataset's grid.
    pub fn evaluate(&self, grid: usize, noise: f64) -> Result<Evaluation> {
        self.evaluate_with(&self.dataset, &self.indices, grid, noise, Interpolated::Nothing)
    }

    /// Errors on one of the grids that [`resolutions`](Self::resolutions) names: on others than [`evaluate`](Self::evaluate) takes, against
    /// interpolated targets.
    pub fn evaluate_anywhere(&self, grid: usize, noise: f64) -> Result<Evaluation> {
        if self.nests(grid)? {
            return self.evaluate(grid, noise);
        }
        let (dataset, interpolated) = self.resampled(grid)?;
        let indices: Vec<usize> = (0..dataset.len()).collect();
        self.evaluate_with(&dataset, &indices, grid, noise, interpolated)
    }

    /// On these grids with these levels of noise, or those that the model was trained with. `anywhere`: also on grids between the dataset's points.
    pub fn on_grids(
        &self,
        folder: &RunFolder,
        grids: &[usize],
        noises: &[f64],
        anywhere: bool,
    ) -> Result<Metrics> {
        let (grid, noise) = ([self.grid()?], self.config.data.noise.levels());
        let grids = if grids.is_empty() { &grid } else { grids };
        let noises = if noises.is_empty() { &noise } else { noises };
        let mut evaluations = Vec::new();
        for grid in grids {
            for noise in noises {
                evaluations.push(match anywhere {
                    true => self.evaluate_anywhere(*grid, *noise)?,
                    false => self.evaluate(*grid, *noise)?,
                });
            }
        }
        Ok(Metrics { run: folder.path().into(), name: self.config.name.clone(), evaluations })
    }

    /// Points along the first axis of at most nine grids, ascending, for errors against resolution: from half of the grid of the training, or a quarter
    /// if the dataset has it, to the dataset's own. They are about as far apart as each other, and those come first that take every so many points
    /// of the dataset's grid. Targets are interpolated to grids at most half as fine as their own, and to none of an inverse problem.
    pub fn resolutions(&self) -> Result<Vec<usize>> {
        let own = self.dataset.grid()?;
        let more = usize::from(!own.axes[0].periodic);
        let (finest, trained) = (own.axes[0].intervals(), self.grid()?.saturating_sub(more).max(1));
        let nested: Vec<usize> = own.sizes().into_iter().map(|n| n - more.min(n)).collect();
        let nests = |i: usize| nested.contains(&i) && self.nests(i + more).unwrap_or(false);
        let there = |i: usize| i > 0 && (nests(i) || self.can_be_resampled(i + more)) && self.takes(i + more);
        let half = trained.div_ceil(2);
        let quarter =
            (trained.is_multiple_of(4) && nests(trained / 4) && there(trained / 4)).then_some(trained / 4);
        let between: Vec<usize> = (quarter.unwrap_or(half)..=finest).filter(|i| there(*i)).collect();
        let coarsest = between.first().copied();
        let mut chosen: Vec<usize> =
            coarsest.into_iter().chain([half, trained, finest]).filter(|i| there(*i)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        while chosen.len() < 9 {
            let gaps = chosen.windows(2).enumerate().filter_map(|(at, gap)| {
                let (low, high) = (gap[0] as f64, gap[1] as f64);
                let off = |i: usize| (i as f64 / (low * high).sqrt()).ln().abs();
                let inside = || between.iter().copied().filter(|i| gap[0] < *i && *i < gap[1]);
                let closest = |a: &usize, b: &usize| off(*a).total_cmp(&off(*b));
                let exact = inside().filter(|i| nests(*i) && off(*i) < 0.25 * std::f64::consts::LN_2);
                let best = exact.min_by(closest).or_else(|| inside().min_by(closest))?;
                Some((high / low, at, best))
            });
            // Gaps of a fifth show nothing that six grids do not.
            let widest =
                gaps.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|gap| chosen.len() < 6 || gap.0 > 1.2);
            let Some((_, at, best)) = widest else { break };
            chosen.insert(at + 1, best);
        }
        Ok(chosen.into_iter().map(|i| i + more).collect())
    }

    /// Whether so many points along the first axis are every so many of the dataset's.
    fn nests(&self, grid: usize) -> Result<bool> {
        let own = self.dataset.grid()?;
        let alike = self.dataset.target_grid()?.points() == own.points();
        Ok(grid == own.axes[0].points || (alike && own.stride_to(grid).is_ok()))
    }

    /// The grid of inputs with so many points along its first axis, and that of the targets there.
    fn grids_at(&self, grid: usize) -> Result<[Grid; 2]> {
        let own = self.dataset.grid()?;
        let finest = own.axes[0].intervals();
        let wanted = grid.saturating_sub(usize::from(!own.axes[0].periodic));
        let points = own.axes.iter().map(|axis| {
            let intervals = (axis.intervals() * wanted + finest / 2) / finest.max(1);
            intervals + usize::from(!axis.periodic)
        });
        let points: Vec<usize> = points.collect();
        let targets = self.network.config().output_grid(&points)?;
        Ok([own.with_points(&points), self.dataset.target_grid()?.with_points(&targets)])
    }

    /// Whether inputs with so many points along the first axis go through the network.
    fn takes(&self, grid: usize) -> bool {
        let grids = self.grids_at(grid);
        grids.and_then(|[inputs, _]| self.network.config().check_grid(&inputs.points())).is_ok()
    }

    /// Whether targets are fine enough to be interpolated there.
    fn can_be_resampled(&self, grid: usize) -> bool {
        let (Ok([inputs, targets]), Ok(own)) = (self.grids_at(grid), self.dataset.target_grid()) else {
            return false;
        };
        // The means that an inverse problem asks for have no values between their points.
        !self.config.data.inverse
            && inputs.axes.iter().chain(&targets.axes).all(|axis| axis.points > 1)
            && targets.axes.iter().zip(&own.axes).all(|(axis, own)| 2 * axis.intervals() <= own.intervals())
    }

    /// The evaluated samples on a grid that may lie between the dataset's points, in memory. Targets are interpolated multilinearly; inputs are made by the
    /// problem of the dataset if it can make them, and interpolated otherwise.
    fn resampled(&self, grid: usize) -> Result<(Dataset, Interpolated)> {
        let grids = self.grids_at(grid)?;
        let points = grids[0].points();
        let known = self.dataset.meta().and_then(|meta| Some((meta.problem.as_ref()?, meta.seed?)));
        let made = |index: usize| known?.0.equation().input(known?.1, u32::try_from(index).ok()?, &points);
        let mut interpolated = Interpolated::Targets;
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for index in &self.indices {
            let pair = self.dataset.sample(*index)?;
            match made(*index) {
                Some(input) => inputs.extend(input?.iter().map(|v| *v as f32)),
                None => {
                    interpolated = Interpolated::Both;
                    inputs.extend(on_points(&pair.input, &grids[0], &self.device)?.values);
                }
            }
            targets.extend(on_points(&pair.target, &grids[1], &self.device)?.values);
        }
        let names = [self.dataset.input_channels(), self.dataset.target_channels()].map(<[String]>::to_vec);
        let array = |values: Vec<f32>, side: usize| Array {
            shape: [vec![self.indices.len()], grids[side].points(), vec![names[side].len()]].concat(),
            values,
        };
        let arrays = [array(inputs, 0), array(targets, 1)];
        Ok((Dataset::from_named_arrays(arrays, grids, names)?, interpolated))
    }

    /// Errors on samples of a dataset: this one, or what was made of it for a grid between its points.
    fn evaluate_with(
        &self,
        dataset: &Dataset,
        indices: &[usize],
        grid: usize,
        noise: f64,
        interpolated: Interpolated,
    ) -> Result<Evaluation> {
        let view = self.view(grid, noise)?;
        let samples = Samples::load(dataset, &view, indices, None, &self.device)?;
        self.check_output(&samples)?;
        let start = Instant::now();
        let predictions = self.predict(dataset, &samples, &view)?;
        let seconds = start.elapsed().as_secs_f64();
        let count = samples.len();
        let targets = &samples.targets.values;
        let errors = relative_l2(&predictions, targets, count)?;
        let names = view.plain(dataset)?.target_channels().to_vec();
        let of_channel = |(channel, name): (usize, &String)| {
            let errors = relative_l2_of_channel(&predictions, targets, count, names.len(), channel)?;
            Ok(ChannelErrors { name: name.clone(), relative_l2: Summary::of_defined(&errors)? })
        };
        let channels = names.iter().enumerate().map(of_channel).collect::<Result<_>>()?;
        let slopes = relative_h1(&predictions, targets, count, &samples.grid, names.len());
        Ok(Evaluation {
            subject: self.subject.clone(),
            grid,
            points: samples.input_grid.points(),
            noise,
            interpolated,
            samples: count,
            zero_targets: errors.iter().filter(|error| error.is_none()).count(),
            relative_l2: Summary::of_defined(&errors)?,
            channels,
            relative_h1: slopes.ok().map(|slopes| Summary::of_defined(&slopes)).transpose()?,
            l_infinity: Summary::of(&l_infinity(&predictions, targets, count)?)?,
            per_sample: errors.into_iter().map(|error| error.unwrap_or(f64::INFINITY)).collect(),
            seconds_per_sample: seconds / count.max(1) as f64,
            solver: self.solver_row(dataset, indices, grid)?,
            break_even: None,
        })
    }

    /// The first samples with their predictions.
    pub fn show(&self, grid: usize, noise: f64, count: usize) -> Result<Shown> {
        let view = self.view(grid, noise)?;
        let indices = &self.indices[..count.min(self.indices.len())];
        let samples = Samples::load(&self.dataset, &view, indices, None, &self.device)?;
        self.check_output(&samples)?;
        let predictions = self.predict(&self.dataset, &samples, &view)?;
        let Samples { mut inputs, targets, input_grid, grid, .. } = samples;
        let errors = relative_l2(&predictions, &targets.values, indices.len())?;
        if let Some(normalizer) = view.normalizer {
            let normalizer = on_grid(normalizer, &input_grid, &self.device)?;
            for_each_sample(&mut inputs, |sample| normalizer.invert(sample))?;
        }
        let errors = errors.into_iter().map(|error| error.unwrap_or(f64::INFINITY)).collect();
        let predictions = Array { shape: targets.shape.clone(), values: predictions };
        Ok(Shown { inputs, targets, predictions, errors, grid })
    }

    /// What the encoder layers make of the first sample; `None` of a network that is no transformer on a grid of two axes.
    pub fn latents(&self) -> Result<Option<SampleLatents>> {
        let DataConfig { grid, noise, .. } = self.config.data;
        let first = &self.indices[..1];
        let NetworkConfig::Transformer(config) = self.network.config() else { return Ok(None) };
        let samples =
            Samples::load(&self.dataset, &self.view(grid, noise.mean())?, first, None, &self.device)?;
        let points = samples.input_grid.points();
        if points.len() != 2 {
            return Ok(None);
        }
        let [coarse, _] = config.grids(self.network.config().inner_grid(&points))?;
        // Also of an inverse problem: the coefficient is the input of the dataset.
        let input = self.dataset.clone().subsample_to(grid)?.sample(first[0])?.input;
        let coefficient = on_points(&input, &samples.input_grid.with_points(&coarse), &self.device)?;
        let stages = self.network.latents(rows(&samples.inputs, &[0], &self.device), &points)?;
        let layers = stages.into_iter().filter(|stage| stage.name.starts_with("encoder_layers"));
        let layers = layers.map(|stage| {
            let features = stage.values.dims()[2];
            let shape = [stage.grid, vec![features]].concat();
            (stage.name, Array { shape, values: to_vec(stage.values) })
        });
        Ok(Some(SampleLatents { coefficient, layers: layers.collect() }))
    }

    /// What the model says of samples that it sees so.
    fn predict(&self, dataset: &Dataset, samples: &Samples, view: &View) -> Result<Vec<f32>> {
        if self.symmetries.is_empty() {
            return samples.predict(&self.network, &self.device);
        }
        let group = Group::of(&self.symmetries, &view.plain(dataset)?)?;
        let normalizer =
            view.normalizer.map(|n| on_grid(n, &samples.input_grid, &self.device)).transpose()?;
        let change = |inputs: &mut Array, how: fn(&Normalizer, &mut [f32]) -> galerkin_data::Result<()>| {
            for_each_sample(inputs, |sample| normalizer.as_ref().map_or(Ok(()), |n| how(n, sample)))
        };
        // Symmetries are those of inputs as they are; their noise stays.
        let mut inputs = samples.inputs.clone();
        change(&mut inputs, Normalizer::invert)?;
        group.average(&inputs, |mut inputs| {
            change(&mut inputs, Normalizer::apply)?;
            samples.predict_inputs(&inputs, &self.network, &self.device)
        })
    }

    /// An error if predictions do not lie where targets do.
    fn check_output(&self, samples: &Samples) -> Result<()> {
        let points = samples.input_grid.points();
        self.network.config().check_grid(&points)?;
        let (output, targets) = (self.network.config().output_grid(&points)?, samples.grid.points());
        if output == targets {
            return Ok(());
        }
        let what = format!("inputs on {points:?} points");
        Err(Error::setting(
            what,
            format!("the network answers on {output:?}, and targets lie on {targets:?}"),
        ))
    }

    /// The samples as the run sees them, on another grid.
    fn view(&self, grid: usize, noise: f64) -> Result<View<'_>> {
        let mut view = View::of(&self.config.data, self.config.train.seed, self.normalizer.as_ref());
        (view.grid, view.noise) = (grid, noise);
        if let Some(coarse) = &mut view.coarse {
            // On another grid what was averaged lies where the network answers.
            let points = self.dataset.clone().subsample_to(grid)?.grid()?.points();
            *coarse = self.network.config().output_grid(&points)?[0];
        }
        Ok(view)
    }

    /// Solves the problem the dataset was made from, from the same inputs without noise. The inverse problem has no solver here.
    fn solver_row(&self, dataset: &Dataset, indices: &[usize], grid: usize) -> Result<Option<SolverRow>> {
        let problem = self.dataset.meta().and_then(|meta| meta.problem.as_ref());
        let (Some(problem), false) = (problem, self.config.data.inverse) else { return Ok(None) };
        let dataset = dataset.clone().subsample_to(grid)?;
        let points = dataset.grid()?.points();
        let start = Instant::now();
        let mut errors = Vec::new();
        for index in indices {
            let pair = dataset.sample(*index)?;
            let input: Vec<f64> = pair.input.values.iter().map(|v| *v as f64).collect();
            let Some(solved) = problem.equation().solve(&input, &points) else { return Ok(None) };
            let solved = solved?;
            let solved: Vec<f32> = solved.iter().map(|v| *v as f32).collect();
            errors.extend(relative_l2(&solved, &pair.target.values, 1)?);
        }
        let seconds_per_sample = start.elapsed().as_secs_f64() / indices.len().max(1) as f64;
        Ok(Some(SolverRow { relative_l2: Summary::of_defined(&errors)?, seconds_per_sample }))
    }
}
