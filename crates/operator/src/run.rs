//! The folder of a run: everything that evaluation and prediction need, in files that other programs read too.
//!
//! | file | what |
//! | --- | --- |
//! | `config.toml` | the [`RunConfig`], resolved |
//! | `dataset.toml` | what the dataset's own `meta.toml` says |
//! | `samples.json` | the [`SeenSamples`] |
//! | `normalizer.safetensors` | mean and deviation of the inputs, of runs that normalise them |
//! | `model.safetensors` | the weights at the last checkpoint or at the end |
//! | `best.safetensors` | those with the smallest error on the validation samples |
//! | `checkpoint/` | the last two states, for resuming |
//! | `log.jsonl` | a line of JSON per step and per epoch; no clock in it, so that it is the same for the same run |
//! | `clock.jsonl` | how long it took, see [`clock`](crate::clock) |
//! | `metrics.json` | evaluations, each with what was evaluated |
//!
//! While a process writes the folder, the file `.lock` says which.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use galerkin_data::io::read_text;
use galerkin_data::normalize::Normalizer;
use galerkin_data::split::Split;
use galerkin_data::{Dataset, Meta};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::metrics::Summary;
use crate::networks::Network;
use crate::samples::split;
use crate::seen::SeenSamples;
use crate::symmetry::Symmetry;
use crate::weights;

/// A folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// Which weights of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    /// The last ones.
    #[default]
    Last,
    /// The best ones on the validation samples.
    Best,
}

/// What the log says of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Its epochs.
    pub epochs: Vec<Epoch>,
    /// Steps taken, some of them perhaps after the last checkpoint.
    pub steps: u64,
    /// Whether it ended because its loss was no longer a number, or too large.
    pub diverged: bool,
    /// Numbers of lines that make no sense, counted from 1.
    pub damaged: Vec<usize>,
}

impl History {
    /// The epoch with the smallest error on the validation samples.
    pub fn best(&self) -> Option<&Epoch> {
        self.epochs.iter().min_by(|a, b| a.validation.mean.total_cmp(&b.validation.mean))
    }
}

/// What the log says of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Counted from 1.
    pub epoch: u32,
    /// Steps taken at its end.
    pub step: u64,
    /// Mean loss of its steps.
    pub loss: f64,
    /// Relative L² error on the validation samples.
    pub validation: Summary,
    /// Learning rate of its last step.
    pub rate: f64,
}

/// A line of the log: of a step, which has a learning rate, of an epoch, or of the end of a run that diverged.
#[derive(Deserialize)]
struct Line {
    step: u64,
    lr: Option<f64>,
    epoch: Option<u32>,
    train_loss: Option<f64>,
    validation: Option<Summary>,
    diverged: Option<bool>,
}

impl RunFolder {
    /// Not looked at before something is read.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.toml`.
    pub fn config_file(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// `dataset.toml`.
    pub fn dataset_file(&self) -> PathBuf {
        self.path.join("dataset.toml")
    }

    /// `samples.json`.
    pub fn samples_file(&self) -> PathBuf {
        self.path.join("samples.json")
    }

    /// `normalizer.safetensors`.
    pub fn normalizer_file(&self) -> PathBuf {
        self.path.join("normalizer.safetensors")
    }

    /// `model.safetensors` or `best.safetensors`.
    pub fn weights_file(&self, snapshot: Snapshot) -> PathBuf {
        self.path.join(match snapshot {
            Snapshot::Last => "model.safetensors",
            Snapshot::Best => "best.safetensors",
        })
    }

    /// `log.jsonl`.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// `clock.jsonl`.
    pub fn clock_file(&self) -> PathBuf {
        self.path.join("clock.jsonl")
    }

    /// `metrics.json`.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join("metrics.json")
    }

    /// `figures/`.
    pub fn figures(&self) -> PathBuf {
        self.path.join("figures")
    }

    /// `checkpoint/`.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// The config it was begun with.
    pub fn config(&self) -> Result<RunConfig> {
        let path = self.config_file();
        let text = read(&path)?.ok_or_else(|| self.wrong("no folder of a run: it has no config.toml"))?;
        RunConfig::parse(&text, &path, &[])
    }

    /// The trained network, on a device.
    pub fn network(&self, snapshot: Snapshot, device: &Device) -> Result<Network> {
        let path = self.weights_file(snapshot);
        if snapshot == Snapshot::Best && !path.exists() && self.weights_file(Snapshot::Last).exists() {
            return Err(self.wrong("it has no best.safetensors, only the last weights; leave out --best"));
        }
        weights::load(path)?.into_network(device)
    }

    /// The normaliser of the inputs, if the run has one.
    pub fn normalizer(&self) -> Result<Option<Normalizer>> {
        let path = self.normalizer_file();
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Normalizer::open(path)?))
    }

    /// What the log says of the epochs so far; nothing without a log.
    pub fn history(&self) -> Result<History> {
        let Some(text) = read(&self.log_file())? else { return Ok(History::default()) };
        let (mut history, mut rate) = (History::default(), 0.0);
        let mut lines = text.split_inclusive('\n').enumerate().peekable();
        while let Some((at, text)) = lines.next() {
            let Ok(line) = serde_json::from_str::<Line>(text) else {
                // The last line of a run that was killed may be half a line.
                if lines.peek().is_some() || text.ends_with('\n') {
                    history.damaged.push(at + 1);
                }
                continue;
            };
            let Line { step, lr, epoch, train_loss, validation, diverged } = line;
            rate = lr.unwrap_or(rate);
            history.steps = step;
            history.diverged |= diverged.unwrap_or(false);
            if let (Some(epoch), Some(loss), Some(validation)) = (epoch, train_loss, validation) {
                history.epochs.push(Epoch { epoch, step, loss, validation, rate });
            }
        }
        Ok(history)
    }

    /// Which samples it was trained and validated with; `None` if its weights come from elsewhere. Runs of earlier versions kept no record:
    /// for generated samples it follows from their config, for imported ones it is `None`.
    pub fn seen(&self) -> Result<Option<SeenSamples>> {
        let path = self.samples_file();
        if let Some(text) = read(&path)? {
            let seen = serde_json::from_str(&text);
            let wrong = |error| Error::Folder { path, why: format!("no record of samples: {error}") };
            return seen.map(Some).map_err(wrong);
        }
        let Some(Meta { problem: Some(problem), seed: Some(seed), samples, split: parts, .. }) =
            self.dataset()?
        else {
            return Ok(None);
        };
        let Split { train, validation, .. } = split(&self.config()?, parts.as_ref(), samples)?;
        Ok(Some(SeenSamples::Generated { problem, seed, train, validation }))
    }

    /// The symmetries that predictions can be averaged over: those it was trained with, or else those that the problem of its dataset declares. An
    /// error if no flip and no transposition is among them.
    pub fn symmetries(&self) -> Result<Vec<Symmetry>> {
        let mut symmetries = self.config()?.train.augment;
        let problem = self.dataset()?.and_then(|meta| meta.problem);
        if let (true, Some(problem)) = (symmetries.is_empty(), problem) {
            symmetries = Symmetry::declared(problem.equation().symmetries())?;
        }
        if symmetries.iter().all(Symmetry::is_shift) {
            let what = format!("{}: a mean over symmetries", self.path.display());
            let why = "there is no flip and no transposition in its train.augment, and its dataset is of no problem that declares some";
            return Err(Error::setting(what, why));
        }
        Ok(symmetries)
    }

    /// What the dataset said of itself when the run began; `None` without one.
    pub(crate) fn dataset(&self) -> Result<Option<Meta>> {
        let path = self.dataset_file();
        let Some(text) = read(&path)? else { return Ok(None) };
        Meta::parse(&text).map(Some).map_err(|why| Error::Folder { path, why })
    }

    /// Whether the run was trained with the dataset of a folder, which may have moved since, or been written again by another version: its arrays
    /// have the checksums on record. A run whose weights come from elsewhere has no dataset of its own.
    pub fn is_trained_with(&self, dataset: &Dataset) -> Result<bool> {
        Ok(match (self.dataset()?, dataset.meta()) {
            (Some(own), Some(meta)) => (own.samples, &own.checksums) == (meta.samples, &meta.checksums),
            _ => false,
        })
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Folder { path: self.path.clone(), why: why.into() }
    }
}

/// The text of a file; `None` if it is not there.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    /// Bytes: a step of the log has a hundred, a sample in the record of samples twenty.
    const LARGEST: u64 = 1 << 32;
    match read_text(path, LARGEST) {
        Ok(text) => Ok(Some(text)),
        Err(galerkin_data::Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
