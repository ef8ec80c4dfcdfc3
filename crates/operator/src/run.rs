//! The folder of a run: everything that evaluation and prediction need, in files that other programs read too.
//!
//! | file | what |
//! | --- | --- |
//! | `config.toml` | the [`RunConfig`], resolved |
//! | `dataset.toml` | what the dataset's own `meta.toml` says |
//! | `normalizer.safetensors` | mean and deviation of the inputs, of runs that normalise them |
//! | `model.safetensors` | the weights at the last checkpoint or at the end |
//! | `best.safetensors` | those with the smallest error on the validation samples |
//! | `checkpoint/` | the last two states, for resuming |
//! | `log.jsonl` | a line of JSON per step and per epoch; no clock in it, so that it is the same for the same run |
//! | `metrics.json` | the last evaluation |

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use galerkin_data::normalize::Normalizer;
use galerkin_data::{Dataset, Meta};
use serde::Deserialize;

use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::metrics::Summary;
use crate::networks::Network;
use crate::weights;

/// A folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// Which weights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The last ones.
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
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(self.wrong("no folder of a run: it has no config.toml"));
            }
            Err(source) => return Err(Error::Io { path, source }),
        };
        RunConfig::parse(&text, &path, &[])
    }

    /// The trained network, on a device.
    pub fn network(&self, snapshot: Snapshot, device: &Device) -> Result<Network> {
        weights::load(self.weights_file(snapshot))?.into_network(device)
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
        let path = self.log_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(History::default()),
            Err(source) => return Err(Error::Io { path, source }),
        };
        let (mut history, mut rate) = (History::default(), 0.0);
        for line in text.lines() {
            // The last line of a run that was killed may be half a line.
            let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
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

    /// Whether the run was trained with the dataset of a folder, which may have moved since, or been written again by another version: its arrays
    /// have the checksums on record. A run whose weights come from elsewhere has no dataset of its own.
    pub fn is_trained_with(&self, dataset: &Dataset) -> bool {
        let own = std::fs::read_to_string(self.dataset_file()).ok().and_then(|text| Meta::parse(&text).ok());
        match (own, dataset.meta()) {
            (Some(own), Some(meta)) => (own.samples, &own.checksums) == (meta.samples, &meta.checksums),
            _ => false,
        }
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Folder { path: self.path.clone(), why: why.into() }
    }
}
