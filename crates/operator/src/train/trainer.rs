//! The training loop: one for all tasks and networks.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use galerkin_data::Dataset;
use galerkin_data::dataset::Statistics;
use galerkin_data::io::write_whole;
use galerkin_data::split::{Split, batches};
use serde_json::json;

use super::checkpoint::{Checkpoint, Progress};
use super::samples::{Samples, View};
use super::{Optimizer, Pace};
use crate::config::{DataConfig, RunConfig, Task};
use crate::evaluate::relative_errors;
use crate::init::Builder;
use crate::layers::{Mode, Normalizer};
use crate::metrics::Summary;
use crate::models::{Field, Model, ModelConfig};
use crate::run::{Error, Result, RunFolder, Which};
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
        pace: Pace,
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

/// Whether a run may go on in a folder that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The folder must be new or empty.
    Fresh,
    /// The run in it goes on; without one it begins.
    Resume,
}

/// A loss, which is relative, beyond which training is lost.
const DIVERGED: f32 = 1e4;

/// Trains a run in its folder. `watch` is told what happens, and ends the run, with a checkpoint, by answering `Break`. A run that
/// would take longer than the `limit` is refused before it begins.
///
/// `device` is one without autodiff.
pub fn train(
    config: &RunConfig,
    folder: &RunFolder,
    start: Start,
    limit: Option<Duration>,
    device: &Device,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Outcome> {
    config.check()?;
    let dataset = Dataset::open(&config.data.folder)?;
    dataset.verify()?;
    dataset.check_finite()?;
    let checkpoint = look(config, folder, start)?;
    let taken = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.progress.steps);
    let limits = Limits { steps: config.total_steps().saturating_sub(taken), time: limit };
    let mut trainer = Trainer::new(config, folder, &dataset, limits, device)?;
    if let Some(checkpoint) = checkpoint {
        trainer.restore(checkpoint)?;
    }
    trainer.run(watch)
}

/// Checks a folder that has a run; gives the state to go on from.
fn look(config: &RunConfig, folder: &RunFolder, start: Start) -> Result<Option<Checkpoint>> {
    if !folder.config_file().exists() {
        return Ok(None);
    }
    if start == Start::Fresh {
        return Err(folder.wrong("a run is here already; go on with it by --resume, or choose another --out"));
    }
    let begun = folder.config()?;
    if begun != *config {
        let (before, now) = (begun.to_toml(), config.to_toml());
        let changed = before.lines().zip(now.lines()).find(|(before, now)| before != now);
        let (before, now) = changed.unwrap_or(("", "another number of settings"));
        return Err(folder.wrong(format!("begun with other settings: `{before}` there, `{now}` now")));
    }
    if read(folder.dataset_file())? != read(config.data.folder.join("meta.toml"))? {
        let why = format!("begun with another dataset than {} holds now", config.data.folder.display());
        return Err(folder.wrong(why));
    }
    Checkpoint::last(&folder.checkpoints())
}

/// Makes the folder of a run that is not there yet.
fn begin(config: &RunConfig, folder: &RunFolder) -> Result<()> {
    if folder.config_file().exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder.path())
        .map_err(|source| Error::Io { path: folder.path().into(), source })?;
    write_whole(folder.dataset_file(), read(config.data.folder.join("meta.toml"))?.as_bytes())?;
    Ok(write_whole(folder.config_file(), config.to_toml().as_bytes())?)
}

fn read(path: PathBuf) -> Result<String> {
    std::fs::read_to_string(&path).map_err(|source| Error::Io { path, source })
}

struct Trainer<'a> {
    config: &'a RunConfig,
    model_config: ModelConfig,
    folder: &'a RunFolder,
    /// With autodiff.
    device: Device,
    /// Without.
    plain: Device,
    model: Model,
    optimizer: Optimizer,
    averages: Vec<Vec<f32>>,
    train: Samples,
    validation: Samples,
    /// What the steps that are left will take.
    time: Duration,
    progress: Progress,
    log: BufWriter<File>,
}

/// What is still to do, and how long it may take.
struct Limits {
    steps: u64,
    time: Option<Duration>,
}

impl<'a> Trainer<'a> {
    fn new(
        config: &'a RunConfig,
        folder: &'a RunFolder,
        dataset: &Dataset,
        limits: Limits,
        device: &Device,
    ) -> Result<Self> {
        let (data, seed) = (&config.data, config.train.seed);
        let split = Split::new(dataset.len(), data.train, data.validation, data.test, seed)?;
        let mut view = View::of(data, seed, None);
        let plain = view.plain(dataset)?;
        let model_config = config.model_config()?;
        refuse_too_large(config, &model_config, &plain)?;

        let tracked = device.clone().autodiff();
        let mut model = model_config.init(&mut Builder::new(seed, &tracked))?;
        let mut normalizer = None;
        if data.task != Task::Burgers {
            normalizer = Some(plain.fit_inputs(&split.train, Statistics::Point)?);
            let fit = plain.fit_targets(&split.train, Statistics::Point)?;
            model = model.with_normalizer(Normalizer::from_fit(&fit, device)?)?;
        }
        view.normalizer = normalizer.as_ref();
        let load = |indices: &[usize], regularized: bool| {
            Samples::load(dataset, &view, indices, regularized, device)
        };
        let train = load(&split.train, config.loss.gamma > 0.0)?;
        let validation = load(&split.validation, false)?;
        let time = estimate(config, limits.steps, device)?;
        refuse_too_slow(config, limits, time)?;

        // What can be wrong with settings and data was found by now: it leaves no folder behind.
        begin(config, folder)?;
        if let Some(normalizer) = &normalizer {
            normalizer.save(folder.normalizer_file())?;
        }
        let path = folder.log_file();
        let log = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let log = BufWriter::new(log.map_err(|source| Error::Io { path, source })?);
        let optimizer = Optimizer::new(config.optimizer, &model);
        let averages = match config.train.average > 0.0 {
            true => optimizer.states().iter().map(|state| state.weights.clone()).collect(),
            false => Vec::new(),
        };
        let progress = Progress { best_bits: f64::INFINITY.to_bits(), ..Progress::default() };
        Ok(Self {
            config,
            model_config,
            folder,
            device: tracked,
            plain: device.clone(),
            model,
            optimizer,
            averages,
            train,
            validation,
            time,
            progress,
            log,
        })
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint { progress, states, averages } = checkpoint;
        if averages.len() != self.averages.len() {
            return Err(self
                .folder
                .wrong("its checkpoint has no averaged weights, or some where none are asked for"));
        }
        self.optimizer.restore(progress.steps, states)?;
        self.model = self.optimizer.apply(self.model.clone());
        (self.averages, self.progress) = (averages, progress);
        Ok(())
    }

    fn run(mut self, watch: &mut dyn FnMut(Event) -> ControlFlow<()>) -> Result<Outcome> {
        let (total, per_epoch) = (self.config.total_steps(), self.config.steps_per_epoch());
        // What was logged after the last checkpoint is taken again, and logged again.
        self.logged(|log, progress| {
            log.get_mut().set_len(progress.log_bytes)?;
            log.seek(SeekFrom::Start(progress.log_bytes))
        })?;
        let parameters = self.model.num_params();
        let grid = &self.train.inputs.shape[1..self.train.inputs.shape.len() - 1];
        let memory = self.model_config.training_memory(self.config.train.batch, grid)?;
        let (steps, time) = (self.progress.steps, self.time);
        let started = Event::Started { parameters, steps, total, memory, time };
        let mut go_on = watch(started);
        let mut saved_at = Instant::now();
        let mut saved_steps = self.progress.steps;
        while self.progress.steps < total && go_on.is_continue() {
            let epoch = (self.progress.steps / per_epoch) as u32;
            let order = self.order(epoch, (self.progress.steps % per_epoch) as usize);
            for places in order {
                let mut tell = |event: Event| {
                    if watch(event).is_break() {
                        go_on = ControlFlow::Break(());
                    }
                };
                tell(self.step(&places, total)?);
                if self.progress.steps.is_multiple_of(per_epoch) {
                    tell(self.end_epoch(per_epoch)?);
                }
                let every = self.config.checkpoint;
                let due = every.every_steps > 0 && self.progress.steps.is_multiple_of(every.every_steps);
                let minutes = saved_at.elapsed().as_secs_f64() / 60.0;
                let late = every.every_minutes > 0.0 && minutes >= every.every_minutes;
                if (due || late) && self.progress.steps < total {
                    tell(self.save()?);
                    (saved_at, saved_steps) = (Instant::now(), self.progress.steps);
                }
                if go_on.is_break() {
                    break;
                }
            }
        }
        if saved_steps < self.progress.steps {
            // The run ends here, whatever the answer.
            let _ = watch(self.save()?);
        }
        Ok(if self.progress.steps == total { Outcome::Finished } else { Outcome::Interrupted })
    }

    /// The batches of an epoch's steps, those of the first `done` left out.
    fn order(&self, epoch: u32, done: usize) -> Vec<Vec<Vec<usize>>> {
        let accumulate = self.config.train.accumulate as usize;
        let all = batches(self.config.train.seed, epoch, self.train.len(), self.config.train.batch, true);
        let all: Vec<Vec<usize>> = all.collect();
        all.chunks_exact(accumulate).skip(done).map(<[_]>::to_vec).collect()
    }

    fn step(&mut self, places: &[Vec<usize>], total: u64) -> Result<Event> {
        let config = self.config;
        let pace = config.schedule.at(self.progress.steps, total, config.train.lr);
        let mut sum = 0.0;
        for (i, places) in places.iter().enumerate() {
            // Each batch of a step has masks of its own.
            let draw = self.progress.steps * config.train.accumulate as u64 + i as u64;
            let mode = Mode::Train { seed: config.train.seed, step: draw as u32 };
            let batch = self.train.batch(places, &self.device)?;
            let prediction = self.model.forward(batch.input.clone(), mode)?;
            let loss = batch.loss(prediction, &self.train.grid, config.loss)?;
            let gradients = loss.total.backward();
            sum += loss.total.into_scalar::<f32>();
            self.optimizer.collect(&self.model, gradients);
        }
        let loss = sum / places.len() as f32;
        let (model, norm) = self.optimizer.step(self.model.clone(), pace);
        self.model = model;
        let steps = self.progress.steps + 1;
        if !norm.is_finite() || !loss.is_finite() || loss > DIVERGED {
            let line = json!({ "step": steps, "diverged": true, "loss": loss.to_string(), "gradient_norm": norm.to_string() });
            self.logged(|log, _| writeln!(log, "{line}").and_then(|()| log.flush()))?;
            let state = match Checkpoint::last(&self.folder.checkpoints())? {
                Some(last) => format!(
                    "the last good state is that of step {} in {}",
                    last.progress.steps,
                    self.folder.checkpoints().display()
                ),
                None => "there was no checkpoint yet".to_string(),
            };
            return Err(Error::Diverged { step: steps, loss, rate: pace.rate, norm, state });
        }
        let decay = config.train.average as f32;
        for (average, state) in self.averages.iter_mut().zip(self.optimizer.states()) {
            average.iter_mut().zip(&state.weights).for_each(|(a, w)| *a = decay * *a + (1.0 - decay) * w);
        }
        self.progress.steps = steps;
        let sum = f64::from_bits(self.progress.loss_bits) + loss as f64;
        self.progress.loss_bits = sum.to_bits();
        let line = json!({
            "step": steps, "loss": loss, "lr": pace.rate, "beta1": pace.beta1, "gradient_norm": norm,
        });
        self.logged(|log, _| writeln!(log, "{line}"))?;
        Ok(Event::Step { steps, loss, pace, norm })
    }

    fn end_epoch(&mut self, per_epoch: u64) -> Result<Event> {
        let epoch = (self.progress.steps / per_epoch) as u32;
        let loss = f64::from_bits(self.progress.loss_bits) / per_epoch as f64;
        self.progress.loss_bits = 0;
        let model = self.evaluated();
        let errors = relative_errors(&model, &self.validation, &self.plain)?;
        let validation = Summary::of(&errors)?;
        let best = validation.mean < f64::from_bits(self.progress.best_bits);
        if best {
            self.progress.best_bits = validation.mean.to_bits();
            self.write_weights(&model, Which::Best)?;
        }
        let line = json!({
            "epoch": epoch, "step": self.progress.steps, "train_loss": loss, "best": best,
            "validation": { "mean": validation.mean, "median": validation.median, "max": validation.max },
        });
        self.logged(|log, _| writeln!(log, "{line}"))?;
        Ok(Event::Epoch { epoch, step: self.progress.steps, loss, validation, best })
    }

    /// The model that is evaluated: with averaged weights, if they are.
    fn evaluated(&self) -> Model {
        match self.averages.is_empty() {
            true => self.model.clone(),
            false => self.optimizer.replace(self.model.clone(), self.averages.clone()),
        }
    }

    fn save(&mut self) -> Result<Event> {
        self.logged(|log, _| {
            log.flush()?;
            log.get_ref().sync_all()
        })?;
        self.progress.log_bytes = self.logged(|log, _| log.stream_position())?;
        self.write_weights(&self.evaluated(), Which::Last)?;
        let checkpoint = Checkpoint {
            progress: self.progress,
            states: self.optimizer.states().to_vec(),
            averages: self.averages.clone(),
        };
        Ok(Event::Saved { path: checkpoint.save(&self.folder.checkpoints())? })
    }

    fn write_weights(&self, model: &Model, which: Which) -> Result<()> {
        let more = [("steps".to_string(), self.progress.steps.to_string())].into();
        Ok(weights::save(model, &self.model_config, &more, self.folder.weights_file(which))?)
    }

    fn logged<T>(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>, &Progress) -> std::io::Result<T>,
    ) -> Result<T> {
        write(&mut self.log, &self.progress)
            .map_err(|source| Error::Io { path: self.folder.log_file(), source })
    }
}

/// An error if the machine has not the memory a run needs.
fn refuse_too_large(config: &RunConfig, model: &ModelConfig, plain: &Dataset) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let values = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
    let sample = 4 * (3 * values(plain.input_shape()) + 2 * values(plain.target_shape()));
    let samples = sample * (config.data.train + config.data.validation) as u64;
    let training = model.training_memory(config.train.batch, &plain.grid()?.points())?;
    let needed = samples + training;
    if needed <= available {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let suggestion = match training > samples {
        true => "a smaller train.batch, with train.accumulate for the rest, needs less".to_string(),
        false => "fewer samples (data.train) or a coarser data.grid need less".to_string(),
    };
    Err(Error::Memory { needed: megabytes(needed), available: megabytes(available), suggestion })
}

/// How long so many steps of a run will take on this machine, with the validation after every epoch: a step without data is tried, more
/// than once if it is quick.
pub fn estimate(config: &RunConfig, steps: u64, device: &Device) -> Result<Duration> {
    if steps == 0 {
        return Ok(Duration::ZERO);
    }
    let tracked = device.clone().autodiff();
    let model_config = config.model_config()?;
    let model = model_config.init(&mut Builder::new(config.train.seed, &tracked))?;
    let DataConfig { grid, .. } = config.data;
    let x = match model_config.dimensions() {
        1 => Field::Line(Tensor::ones([config.train.batch, grid, 1], &tracked)),
        _ => Field::Square(Tensor::ones([config.train.batch, grid, grid, 1], &tracked)),
    };
    let mode = Mode::Train { seed: config.train.seed, step: 0 };
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let gradients = match model.forward(x.clone(), mode)? {
            Field::Line(y) => y.square().mean().backward(),
            Field::Square(y) => y.square().mean().backward(),
        };
        drop(gradients);
        quickest = quickest.min(start.elapsed());
        if quickest > Duration::from_secs(1) {
            break;
        }
    }
    // Forward passes take about a third of the time of both.
    let batches = config.train.accumulate as f64
        + config.data.validation as f64 / config.train.batch as f64 / 3.0 / config.steps_per_epoch() as f64;
    let seconds = steps as f64 * batches * quickest.as_secs_f64();
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// An error if a run would take longer than it may.
fn refuse_too_slow(config: &RunConfig, limits: Limits, needed: Duration) -> Result<()> {
    let Some(allowed) = limits.time.filter(|allowed| *allowed < needed) else { return Ok(()) };
    let hours = |time: Duration| time.as_secs_f64() / 3600.0;
    let epochs = (limits.steps as f64 * hours(allowed) / hours(needed)) as u64 / config.steps_per_epoch();
    let suggestion = match epochs {
        0 => "a coarser data.grid or fewer samples (data.train) need less".to_string(),
        _ => format!("train.epochs = {epochs}, a coarser data.grid or fewer samples (data.train) need less"),
    };
    Err(Error::Time { needed: hours(needed), allowed: hours(allowed), suggestion })
}

/// Bytes that can still be had; `None` where the system does not say.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
