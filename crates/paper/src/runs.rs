//! Rows as runs of the library: their config, their data, how far they are, and what came out.
//!
//! This is the only place of the crate that knows the library's configs, folders of runs and evaluations. Beside a run's own files lies
//! one more: `evaluations.json`, so that nothing is evaluated twice.

use std::path::{Path, PathBuf};

use galerkin::clock::{Reached, reaches, training_spent};
use galerkin::config::RunConfig;
use galerkin::device::Device;
use galerkin::evaluate::{Among, Evaluation, Evaluator};
use galerkin::networks::Network;
use galerkin::presets;
use galerkin::run::{History, RunFolder, Snapshot};
use galerkin_data::io::write_whole;
use galerkin_data::pde::{self, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::Scale;
use crate::protocol::Row;
use crate::{Error, Result};

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// It can go on after so many steps.
    Begun(u64),
    /// It is over, perhaps because it diverged.
    Ended(History),
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutcome {
    /// What its log says.
    pub history: History,
    /// Epochs it was to have.
    pub epochs: u32,
    /// Samples it was trained on.
    pub samples: usize,
    /// How long it was trained, if it has a clock.
    pub seconds: Option<f64>,
    /// When its validation error reached the goal of the protocol, if it did.
    pub reached: Option<Reached>,
    /// Mean relative L² errors with the weights of the last step, for every trial of the row; nothing if the run diverged.
    pub last: Vec<f64>,
    /// The same with the weights of the smallest validation error; nothing if there was no epoch.
    pub best: Vec<f64>,
}

impl RowOutcome {
    /// What it took to the goal of the protocol, if it has reached it and has a clock.
    pub fn seconds_to_goal(&self) -> Option<f64> {
        Some(self.reached?.spent?.seconds)
    }
}

impl Row {
    /// The config of its run.
    pub fn config(&self) -> Result<RunConfig> {
        let settings: Vec<_> =
            self.settings.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let set: Vec<String> = settings.iter().map(|(key, _)| key.clone()).collect();
        Ok(presets::get(self.preset)?.with(&settings)?.with_grids(&set)?)
    }

    /// The problem whose samples it learns from.
    pub fn problem(&self, scale: Scale) -> Problem {
        match (self.is_on_line(), scale) {
            (true, Scale::Quick) => Problem::Burgers(pde::Burgers { points: 512, ..Default::default() }),
            (true, _) => Problem::Burgers(pde::Burgers::default()),
            (false, Scale::Quick) => Problem::Darcy(pde::Darcy { points: 85, ..Default::default() }),
            (false, _) => Problem::Darcy(pde::Darcy::default()),
        }
    }

    /// How far its run in a folder is. A run with other settings there is an error.
    pub fn stage(&self, folder: &RunFolder) -> Result<Stage> {
        if !folder.config_file().exists() {
            return Ok(Stage::Begun(0));
        }
        let config = self.config()?;
        if folder.config()? != config {
            return Err(Error::OtherRun { path: folder.path().into() });
        }
        let history = folder.history()?;
        let trained = history.steps >= config.total_steps() && folder.weights_file(Snapshot::Last).exists();
        Ok(if history.diverged || trained { Stage::Ended(history) } else { Stage::Begun(history.steps) })
    }

    /// What came out of its run, which ended with this history. Trials that were not evaluated yet are evaluated now.
    pub fn outcome(
        &self,
        folder: &RunFolder,
        history: History,
        goal: Option<f64>,
        device: &Device,
    ) -> Result<RowOutcome> {
        let last = match history.diverged {
            true => Vec::new(),
            false => self.errors(folder, Snapshot::Last, device)?,
        };
        // A run that diverged in its first epoch has none.
        let best = match folder.weights_file(Snapshot::Best).exists() {
            true => self.errors(folder, Snapshot::Best, device)?,
            false => Vec::new(),
        };
        let (config, spent) = (self.config()?, training_spent(folder));
        let seconds = spent.map(|spent| spent.seconds);
        let reached = match goal {
            Some(goal) => reaches(folder, goal)?,
            None => None,
        };
        let (epochs, samples) = (config.train.epochs, config.data.train);
        Ok(RowOutcome { history, epochs, samples, seconds, reached, last, best })
    }

    /// Mean relative L² error of every trial.
    fn errors(&self, folder: &RunFolder, snapshot: Snapshot, device: &Device) -> Result<Vec<f64>> {
        let path = folder.path().join("evaluations.json");
        let mut known: Vec<KnownEvaluation> = read_json(path.clone())?;
        let name = match snapshot {
            Snapshot::Last => "last",
            Snapshot::Best => "best",
        };
        let mut evaluator = None;
        let mut errors = Vec::new();
        for trial in &self.trials {
            let same = |known: &&KnownEvaluation| {
                let KnownEvaluation { which, evaluation } = known;
                which == name && (evaluation.grid, evaluation.noise) == (trial.grid, trial.noise)
            };
            if let Some(known) = known.iter().find(same) {
                errors.push(known.evaluation.relative_l2.mean);
                continue;
            }
            let evaluator = match &evaluator {
                Some(evaluator) => evaluator,
                None => evaluator.insert(Evaluator::open(folder, snapshot, None, Among::Unseen, device)?),
            };
            let evaluation = evaluator.evaluate(trial.grid, trial.noise)?;
            errors.push(evaluation.relative_l2.mean);
            known.push(KnownEvaluation { which: name.into(), evaluation });
            write_json(path.clone(), &known)?;
        }
        Ok(errors)
    }
}

/// The last weights of the run in a folder, and the grid they were trained on.
pub(crate) fn trained_network(folder: &Path, device: &Device) -> Result<(Network, usize)> {
    let folder = RunFolder::new(folder);
    let network = folder.network(Snapshot::Last, device)?;
    Ok((network, folder.config()?.data.grid))
}

/// Whether the run in a folder has last weights.
pub(crate) fn is_trained(folder: &Path) -> bool {
    RunFolder::new(folder).weights_file(Snapshot::Last).exists()
}

/// An entry of `evaluations.json`.
#[derive(Serialize, Deserialize)]
struct KnownEvaluation {
    which: String,
    evaluation: Evaluation,
}

/// What a file holds; nothing if it is not there.
fn read_json<T: Default + DeserializeOwned>(path: PathBuf) -> Result<T> {
    if !path.exists() {
        return Ok(T::default());
    }
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| Error::Json { path, source }),
        Err(source) => Err(Error::Io { path, source }),
    }
}

fn write_json<T: Serialize>(path: PathBuf, value: &T) -> Result<()> {
    match serde_json::to_string(value) {
        Ok(text) => Ok(write_whole(path, text.as_bytes())?),
        Err(source) => Err(Error::Json { path, source }),
    }
}
