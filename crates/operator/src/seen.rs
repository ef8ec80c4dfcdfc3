//! Which samples a run has seen, by what identifies them in any dataset.
//!
//! A generated sample is its problem, a seed and an index: on whatever grid, and however many others there are, it is the same function. A sample that came
//! from a file is its values.

use std::collections::HashSet;

use galerkin_data::Dataset;
use galerkin_data::pde::Problem;
use galerkin_data::split::Split;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The samples that a run was trained and validated with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SeenSamples {
    /// Of samples that were generated.
    Generated {
        /// What they are samples of.
        problem: Problem,
        /// Their seed.
        seed: u64,
        /// Indices of those that fit weights.
        train: Vec<usize>,
        /// Indices of those that choose between epochs.
        validation: Vec<usize>,
    },
    /// Of samples that were imported: their [fingerprints](Dataset::fingerprint).
    Imported {
        /// Of those that fit weights.
        train: Vec<String>,
        /// Of those that choose between epochs.
        validation: Vec<String>,
    },
}

impl SeenSamples {
    /// Those of a split of a dataset.
    pub fn of(dataset: &Dataset, split: &Split) -> Result<Self> {
        let generated = dataset.meta().and_then(|meta| Some((meta.problem.clone()?, meta.seed?)));
        Ok(match generated {
            Some((problem, seed)) => {
                let Split { train, validation, .. } = split.clone();
                SeenSamples::Generated { problem, seed, train, validation }
            }
            None => {
                let of = |indices: &[usize]| {
                    indices
                        .iter()
                        .map(|index| dataset.fingerprint(*index))
                        .collect::<galerkin_data::Result<_>>()
                };
                SeenSamples::Imported { train: of(&split.train)?, validation: of(&split.validation)? }
            }
        })
    }

    /// The samples of a dataset, perhaps another one, that are not among these.
    pub fn others(&self, dataset: &Dataset) -> Result<Vec<usize>> {
        let all = 0..dataset.len();
        match self {
            SeenSamples::Generated { problem, seed, train, validation } => {
                let meta = dataset.meta();
                let same = meta.is_some_and(|meta| {
                    meta.seed == Some(*seed)
                        && meta.problem.as_ref().is_some_and(|other| other.law() == problem.law())
                });
                let seen: HashSet<_> = train.iter().chain(validation).filter(|_| same).collect();
                Ok(all.filter(|index| !seen.contains(index)).collect())
            }
            SeenSamples::Imported { train, validation } => {
                let seen: HashSet<_> = train.iter().chain(validation).collect();
                let mut others = Vec::new();
                for index in all {
                    if !seen.contains(&dataset.fingerprint(index)?) {
                        others.push(index);
                    }
                }
                Ok(others)
            }
        }
    }
}
