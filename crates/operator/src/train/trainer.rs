//! The training loop: one for all problems and networks.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use galerkin_data::Dataset;
use galerkin_data::io::{FolderLock, write_whole};
use galerkin_data::split::{Split, batches};
use serde_json::json;

use super::augment::TrainingSamples;
use super::checkpoint::{Checkpoint, RunState};
use super::estimate::{refuse_too_large, refuse_too_slow, training_memory, training_time};
use crate::clock::RunClock;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::layers::{Mode, TargetNormalizer};
use crate::loss::GridLoss;
use crate::metrics::{Summary, relative_l2};
use crate::networks::Network;
use crate::optimizer::Optimizer;
use crate::run::{self, RunFolder, Snapshot};
use crate::samples::{Batch, Samples, View, fitted, split_of};
use crate::schedule::Rates;
use crate::seen::SeenSamples;
use crate::weights;

/// What happens in a run, as it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Before the first step, or after a resume.
    Started {
        /// Trained numbers.
        parameters: usize,
        /// Steps already taken.
        steps: u64,
        /// Steps of the whole run.
        total: u64,
        /// Bytes the training needs, an estimate.
        memory: u64,
        /// Time the steps that are left will take, from one that was tried.
        time: Duration,
    },
    /// After a step.
    Step {
        /// Steps taken.
        steps: u64,
        /// The loss of its batches.
        loss: f32,
        /// What it was taken with.
        rates: Rates,
        /// Norm of the gradient before clipping.
        norm: f64,
    },
    /// After an epoch.
    Epoch {
        /// Epochs done.
        epoch: u32,
        /// Steps taken.
        step: u64,
        /// Mean loss of its steps.
        loss: f64,
        /// Relative L² error on the validation samples.
        validation: Summary,
        /// Whether it is the smallest mean so far.
        best: bool,
    },
    /// A checkpoint that cannot be read, before the run goes on from the one before it.
    Damaged {
        /// The file, and what is wrong with it.
        why: String,
    },
    /// A clock that is not there or cannot be relied on, before it begins anew.
    ClockLost {
        /// The file, and what is wrong with it.
        why: String,
    },
    /// After a checkpoint was written.
    Saved {
        /// The file.
        path: PathBuf,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps were taken.
    Finished,
    /// It was told to stop, and can be resumed.
    Interrupted,
}

/// A loss, which is relative, beyond which training is lost.
const DIVERGED: f32 = 1e4;

/// A training to be.
///
/// ```no_run
/// use galerkin::{presets, train::Trainer};
/// use std::ops::ControlFlow;
///
/// let config = presets::get("burgers")?;
/// Trainer::new(&config).out("runs/burgers").run(&mut |_| ControlFlow::Continue(()))?;
/// # Ok::<(), galerkin::Error>(())
/// ```
#[derive(Debug)]
pub struct Trainer<'a> {
    config: &'a RunConfig,
    folder: RunFolder,
    resume: bool,
    limit: Option<Duration>,
    device: Device,
}

impl<'a> Trainer<'a> {
    /// On the processor, in the folder `runs/NAME`, which must be new or empty.
    pub fn new(config: &'a RunConfig) -> Self {
        let folder = RunFolder::new(PathBuf::from("runs").join(&config.name));
        Self { config, folder, resume: false, limit: None, device: Device::flex() }
    }

    /// In this folder.
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = RunFolder::new(folder);
        self
    }

    /// Whether the run in the folder goes on; without one it begins.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// A run that would take longer is refused before it begins.
    pub fn limit(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    /// Where to compute; a device without autodiff.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = device.clone();
        self
    }

    /// Trains. `watch` is told what happens, and ends the run, with a checkpoint, by answering `Break`.
    pub fn run(self, watch: &mut dyn FnMut(Event) -> ControlFlow<()>) -> Result<Outcome> {
        let Self { config, folder, resume, limit, device } = self;
        config.check()?;
        let dataset = Dataset::open(&config.data.folder)?;
        config.check_with(&dataset)?;
        dataset.check_finite()?;
        let _lock = FolderLock::take(folder.path())?;
        let mut damaged = Vec::new();
        let checkpoint = look(config, &dataset, &folder, resume, &mut damaged)?;
        let taken = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.state.steps);
        let steps = config.total_steps().saturating_sub(taken);
        let mut training = Training::new(config, &folder, &dataset, steps, limit, &device)?;
        if let Some(checkpoint) = checkpoint {
            training.restore(checkpoint)?;
        }
        for why in damaged {
            // Whether to go on is asked when it has begun.
            let _ = watch(Event::Damaged { why });
        }
        training.run(watch)
    }
}

/// Checks a folder that has a run; gives the state to go on from, and what is wrong with checkpoints after it.
fn look(
    config: &RunConfig,
    dataset: &Dataset,
    folder: &RunFolder,
    resume: bool,
    damaged: &mut Vec<String>,
) -> Result<Option<Checkpoint>> {
    if !folder.config_file().exists() {
        return Ok(None);
    }
    if !resume {
        return Err(folder.wrong("a run is here already; go on with it by --resume, or choose another --out"));
    }
    let begun = folder.config()?;
    if begun != *config {
        let (before, now) = (begun.to_toml(), config.to_toml());
        let changed = before.lines().zip(now.lines()).find(|(before, now)| before != now);
        let (before, now) = changed.unwrap_or(("", "another number of settings"));
        return Err(folder.wrong(format!("begun with other settings: `{before}` there, `{now}` now")));
    }
    if !folder.is_trained_with(dataset)? {
        let why = format!("begun with another dataset than {} holds now", config.data.folder.display());
        return Err(folder.wrong(why));
    }
    Checkpoint::last(&folder.checkpoints(), &mut |error| damaged.push(error.to_string()))
}

/// Writes what a run that is not there yet begins with.
fn begin(config: &RunConfig, dataset: &Dataset, split: &Split, folder: &RunFolder) -> Result<()> {
    if folder.config_file().exists() {
        return Ok(());
    }
    let meta = config.data.folder.join("meta.toml");
    let meta = run::read(&meta)?.ok_or_else(|| Error::Folder { path: meta, why: "it is gone".into() })?;
    let seen = serde_json::to_string(&SeenSamples::of(dataset, split)?).expect("numbers and words");
    write_whole(folder.dataset_file(), meta.as_bytes())?;
    write_whole(folder.samples_file(), seen.as_bytes())?;
    // Last: a folder with a config has all of it.
    Ok(write_whole(folder.config_file(), config.to_toml().as_bytes())?)
}

/// A training under way.
struct Training<'a> {
    config: &'a RunConfig,
    folder: &'a RunFolder,
    /// With autodiff.
    device: Device,
    /// Without.
    plain: Device,
    model: Network,
    optimizer: Optimizer,
    averages: Vec<Vec<f32>>,
    train: TrainingSamples,
    validation: Samples,
    /// Points along each axis of the inputs.
    grid: Vec<usize>,
    loss: GridLoss,
    /// What the steps that are left will take.
    time: Duration,
    state: RunState,
    log: BufWriter<File>,
}

impl<'a> Training<'a> {
    fn new(
        config: &'a RunConfig,
        folder: &'a RunFolder,
        dataset: &Dataset,
        steps: u64,
        limit: Option<Duration>,
        device: &Device,
    ) -> Result<Self> {
        let (data, seed) = (&config.data, config.train.seed);
        let split = split_of(config, dataset)?;
        let mut view = View::of(data, seed, None);
        let plain = view.plain(dataset)?;
        refuse_too_large(config, &plain)?;

        let tracked = device.clone().autodiff();
        let mut model = config.network.init(seed, &tracked)?;
        let normalizer = fitted(data.normalize_inputs, |how| plain.fit_inputs(&split.train, how))?;
        if let Some(fit) = fitted(data.normalize_targets, |how| plain.fit_targets(&split.train, how))? {
            model = model.with_normalizer(TargetNormalizer::new(&fit, device)?);
        }
        view.normalizer = normalizer.as_ref();
        let train = TrainingSamples::load(config, dataset, &view, &split.train, device)?;
        let validation = Samples::load(dataset, &view, &split.validation, None, device)?;
        let grid = train.samples().input_grid.points();
        let time = training_time(config, &grid, steps, device)?;
        refuse_too_slow(config, steps, time, limit)?;

        // What can be wrong with settings and data was found by now: it leaves no folder behind.
        begin(config, dataset, &split, folder)?;
        if let Some(normalizer) = &normalizer {
            normalizer.save(folder.normalizer_file())?;
        }
        let path = folder.log_file();
        let log = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let log = BufWriter::new(log.map_err(Error::io(&path))?);
        let optimizer = Optimizer::new(&config.optimizer, &model);
        let averages = match config.train.average > 0.0 {
            true => optimizer.states().iter().map(|state| state.weights.clone()).collect(),
            false => Vec::new(),
        };
        let state = RunState { best_bits: f64::INFINITY.to_bits(), ..RunState::default() };
        let loss = train.samples().loss(&config.loss);
        let (device, plain) = (tracked, device.clone());
        Ok(Self {
            config,
            folder,
            device,
            plain,
            model,
            optimizer,
            averages,
            train,
            validation,
            grid,
            loss,
            time,
            state,
            log,
        })
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint { state, states, averages } = checkpoint;
        if averages.len() != self.averages.len() {
            return Err(self
                .folder
                .wrong("its checkpoint has no averaged weights, or some where none are asked for"));
        }
        self.optimizer.restore(state.steps, states)?;
        self.model = self.optimizer.apply(self.model.clone());
        (self.averages, self.state) = (averages, state);
        Ok(())
    }

    fn run(mut self, watch: &mut dyn FnMut(Event) -> ControlFlow<()>) -> Result<Outcome> {
        let (total, per_epoch) = (self.config.total_steps(), self.config.steps_per_epoch());
        // What was logged after the last checkpoint is taken again, and logged again.
        self.logged(|log, state| {
            log.get_mut().set_len(state.log_bytes)?;
            log.seek(SeekFrom::Start(state.log_bytes))
        })?;
        let parameters = self.model.num_params();
        let memory = training_memory(self.config, &self.grid)?;
        let (steps, time) = (self.state.steps, self.time);
        let started = Event::Started { parameters, steps, total, memory, time };
        let mut go_on = watch(started);
        let (mut clock, lost) = RunClock::go_on(self.folder, steps)?;
        if let Some(why) = lost
            && watch(Event::ClockLost { why }).is_break()
        {
            go_on = ControlFlow::Break(());
        }
        let mut saved_at = Instant::now();
        let mut saved_steps = self.state.steps;
        while self.state.steps < total && go_on.is_continue() {
            let epoch = (self.state.steps / per_epoch) as u32;
            let order = self.order(epoch, (self.state.steps % per_epoch) as usize);
            for places in order {
                let mut tell = |event: Event| {
                    if watch(event).is_break() {
                        go_on = ControlFlow::Break(());
                    }
                };
                tell(self.step(&places, total)?);
                if self.state.steps.is_multiple_of(per_epoch) {
                    tell(self.end_epoch(per_epoch, &mut clock)?);
                }
                let every = &self.config.checkpoint;
                let due = every.every_steps > 0 && self.state.steps.is_multiple_of(every.every_steps);
                let minutes = saved_at.elapsed().as_secs_f64() / 60.0;
                let late = every.every_minutes > 0.0 && minutes >= every.every_minutes;
                if (due || late) && self.state.steps < total {
                    tell(self.save(&mut clock)?);
                    (saved_at, saved_steps) = (Instant::now(), self.state.steps);
                }
                if go_on.is_break() {
                    break;
                }
            }
        }
        if saved_steps < self.state.steps {
            // The run ends here, whatever the answer.
            let _ = watch(self.save(&mut clock)?);
        }
        Ok(if self.state.steps == total { Outcome::Finished } else { Outcome::Interrupted })
    }

    /// The batches of an epoch's steps, those of the first `done` left out.
    fn order(&self, epoch: u32, done: usize) -> Vec<Vec<Vec<usize>>> {
        let accumulate = self.config.train.accumulate as usize;
        let all =
            batches(self.config.train.seed, epoch, self.train.samples().len(), self.config.train.batch, true);
        let all: Vec<Vec<usize>> = all.collect();
        all.chunks_exact(accumulate).skip(done).map(<[_]>::to_vec).collect()
    }

    fn step(&mut self, places: &[Vec<usize>], total: u64) -> Result<Event> {
        let config = self.config;
        let rates = config.schedule.at(self.state.steps, total, config.train.lr);
        let epoch = (self.state.steps / config.steps_per_epoch()) as u32;
        let mut sum = 0.0;
        for (i, places) in places.iter().enumerate() {
            // Each batch of a step has masks of its own.
            let draw = self.state.steps * config.train.accumulate as u64 + i as u64;
            let mode = Mode::Train { seed: config.train.seed, step: draw as u32 };
            let Batch { input, target } = self.train.batch(epoch, places, &self.device)?;
            let prediction = self.model.forward_points(input, &self.grid, mode, &mut |_, _, _| {})?;
            let loss = self.loss.forward(prediction, target)?;
            let gradients = loss.total.backward();
            sum += loss.total.into_scalar::<f32>();
            self.optimizer.collect(&self.model, gradients);
        }
        let loss = sum / places.len() as f32;
        let (model, norm) = self.optimizer.step(self.model.clone(), rates);
        self.model = model;
        let steps = self.state.steps + 1;
        if !norm.is_finite() || !loss.is_finite() || loss > DIVERGED {
            let line = json!({ "step": steps, "diverged": true, "loss": loss.to_string(), "gradient_norm": norm.to_string() });
            self.logged(|log, _| writeln!(log, "{line}").and_then(|()| log.flush()))?;
            let state = match Checkpoint::last(&self.folder.checkpoints(), &mut |_| {})? {
                Some(last) => format!(
                    "the last good state is that of step {} in {}",
                    last.state.steps,
                    self.folder.checkpoints().display()
                ),
                None => "there was no checkpoint yet".to_string(),
            };
            return Err(Error::Diverged { step: steps, loss, rate: rates.rate, norm, state });
        }
        let decay = config.train.average as f32;
        for (average, state) in self.averages.iter_mut().zip(self.optimizer.states()) {
            average.iter_mut().zip(&state.weights).for_each(|(a, w)| *a = decay * *a + (1.0 - decay) * w);
        }
        self.state.steps = steps;
        let sum = f64::from_bits(self.state.loss_bits) + loss as f64;
        self.state.loss_bits = sum.to_bits();
        let line = json!({
            "step": steps, "loss": loss, "lr": rates.rate, "beta1": rates.beta1, "gradient_norm": norm,
        });
        self.logged(|log, _| writeln!(log, "{line}"))?;
        Ok(Event::Step { steps, loss, rates, norm })
    }

    fn end_epoch(&mut self, per_epoch: u64, clock: &mut RunClock) -> Result<Event> {
        let epoch = (self.state.steps / per_epoch) as u32;
        let loss = f64::from_bits(self.state.loss_bits) / per_epoch as f64;
        self.state.loss_bits = 0;
        let model = self.evaluated();
        let predictions = self.validation.predict(&model.valid(), &self.plain)?;
        let errors = relative_l2(&predictions, &self.validation.targets.values, self.validation.len())?;
        let validation = Summary::of_defined(&errors)?;
        let best = validation.mean < f64::from_bits(self.state.best_bits);
        if best {
            self.state.best_bits = validation.mean.to_bits();
            self.write_weights(&model, Snapshot::Best)?;
        }
        let line = json!({
            "epoch": epoch, "step": self.state.steps, "train_loss": loss, "best": best,
            "validation": { "mean": validation.mean, "median": validation.median, "max": validation.max },
        });
        self.logged(|log, _| writeln!(log, "{line}"))?;
        clock.write(self.state.steps, Some(epoch))?;
        Ok(Event::Epoch { epoch, step: self.state.steps, loss, validation, best })
    }

    /// The model that is evaluated: with averaged weights, if they are.
    fn evaluated(&self) -> Network {
        match self.averages.is_empty() {
            true => self.model.clone(),
            false => self.optimizer.replace(self.model.clone(), self.averages.clone()),
        }
    }

    fn save(&mut self, clock: &mut RunClock) -> Result<Event> {
        self.logged(|log, _| {
            log.flush()?;
            log.get_ref().sync_all()
        })?;
        // Before the checkpoint: whoever goes on from it finds its line.
        clock.write_through(self.state.steps)?;
        self.state.log_bytes = self.logged(|log, _| log.stream_position())?;
        self.write_weights(&self.evaluated(), Snapshot::Last)?;
        let checkpoint = Checkpoint {
            state: self.state,
            states: self.optimizer.states().to_vec(),
            averages: self.averages.clone(),
        };
        Ok(Event::Saved { path: checkpoint.save(&self.folder.checkpoints())? })
    }

    fn write_weights(&self, model: &Network, snapshot: Snapshot) -> Result<()> {
        let more = [("steps".to_string(), self.state.steps.to_string())].into();
        weights::save(model, &more, self.folder.weights_file(snapshot))
    }

    fn logged<T>(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>, &RunState) -> std::io::Result<T>,
    ) -> Result<T> {
        write(&mut self.log, &self.state).map_err(|source| Error::Io { path: self.folder.log_file(), source })
    }
}
