//! The state of a run on disk: after any interruption it goes on with the same bits.
//!
//! A checkpoint is a safetensors file `checkpoint/STEPS.safetensors` with the arrays `N.weights`, `N.first_moment`, `N.second_moment`, `N.factors` and `N.bases`
//! (those that the optimiser has) and, if weights are averaged, `N.average` of every parameter N, and the rest of the state in its metadata. It is written whole
//! or not at all, has a checksum, and the last two are kept: where the last one is damaged, the run goes on from the one before, with the same
//! bits at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use galerkin_data::Array;
use galerkin_data::io::Tensors;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::optimizer::ParameterState;

/// Everything that changes while a run goes on, but the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// Steps taken.
    pub steps: u64,
    /// Sum of the losses of the steps of the current epoch: the bits of a f64, which text would round.
    pub loss_bits: u64,
    /// The smallest error on the validation samples so far, as bits too; of NaN before the first epoch.
    pub best_bits: u64,
    /// Bytes of the log up to here.
    pub log_bytes: u64,
}

/// A state that a run can go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where it was.
    pub state: RunState,
    /// Weights and moments of all parameters.
    pub states: Vec<ParameterState>,
    /// Averaged weights of all parameters, or nothing.
    pub averages: Vec<Vec<f32>>,
}

/// What not every optimiser has.
const MORE: [&str; 3] = ["second_moment", "factors", "bases"];

/// How many checkpoints are kept.
const KEPT: usize = 2;

impl Checkpoint {
    /// Writes it into the folder and removes all but the last two.
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        let mut arrays = BTreeMap::new();
        let mut add = |name: String, values: &Vec<f32>| {
            arrays.insert(name, Array { shape: vec![values.len()], values: values.clone() });
        };
        for (i, state) in self.states.iter().enumerate() {
            add(format!("{i:04}.weights"), &state.weights);
            add(format!("{i:04}.first_moment"), &state.first_moment);
            let more = [&state.second_moment, &state.factors, &state.bases];
            for (name, values) in MORE.iter().zip(more).filter(|(_, values)| !values.is_empty()) {
                add(format!("{i:04}.{name}"), values);
            }
        }
        for (i, average) in self.averages.iter().enumerate() {
            add(format!("{i:04}.average"), average);
        }
        let progress = serde_json::to_string(&self.state).expect("four numbers");
        let metadata = BTreeMap::from([("progress".to_string(), progress)]);
        std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.into(), source })?;
        let path = folder.join(format!("{:010}.safetensors", self.state.steps));
        Tensors { arrays, metadata }.save(&path)?;
        for old in list(folder)?.iter().rev().skip(KEPT) {
            std::fs::remove_file(old).map_err(|source| Error::Io { path: old.clone(), source })?;
        }
        Ok(path)
    }

    /// The last one of a folder that can be read; `None` if there is none. Damaged ones after it get names that end in `.damaged`, and
    /// `passed_over` is told what is wrong with them. If all are damaged, that is the error.
    pub fn last(folder: &Path, passed_over: &mut dyn FnMut(&Error)) -> Result<Option<Self>> {
        let (mut damaged, mut found) = (Vec::new(), None);
        for path in list(folder)?.into_iter().rev() {
            match Self::read(&path) {
                Ok(checkpoint) => {
                    found = Some(checkpoint);
                    break;
                }
                Err(error) => damaged.push((path, error)),
            }
        }
        if found.is_none() && !damaged.is_empty() {
            return Err(damaged.swap_remove(0).1);
        }
        for (path, error) in damaged {
            passed_over(&error);
            let mut name = path.clone().into_os_string();
            name.push(".damaged");
            std::fs::rename(&path, name).map_err(Error::io(&path))?;
        }
        Ok(found)
    }

    fn read(path: &Path) -> Result<Self> {
        let Tensors { mut arrays, metadata } = Tensors::open(path)?;
        let broken = |why: &str| Error::Folder { path: path.into(), why: format!("no checkpoint: {why}") };
        let progress = metadata.get("progress").and_then(|text| serde_json::from_str(text).ok());
        let state = progress.ok_or_else(|| broken("its metadata do not say where the run was"))?;
        let (mut states, mut averages) = (Vec::new(), Vec::new());
        while let Some(first) = arrays.remove(&format!("{:04}.weights", states.len())) {
            let i = states.len();
            let mut take = |name: &str| arrays.remove(&format!("{i:04}.{name}")).map(|array| array.values);
            let Some(first_moment) = take("first_moment") else {
                return Err(broken("a parameter without its moment"));
            };
            let [second_moment, factors, bases] = MORE.map(|name| take(name).unwrap_or_default());
            averages.extend(take("average"));
            states.push(ParameterState {
                weights: first.values,
                first_moment,
                second_moment,
                factors,
                bases,
            });
        }
        if !arrays.is_empty() {
            return Err(broken("arrays that belong to no parameter"));
        }
        Ok(Self { state, states, averages })
    }
}

/// Checkpoints by steps.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Io { path: folder.to_path_buf(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
