//! `meta.toml`: what a dataset folder says about its two arrays.

use crate::grid::Grid;
use crate::pde::{Burgers, Darcy, Problem};
use serde::{Deserialize, Serialize};

/// The contents of `meta.toml`, for generated and for imported data alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Samples N: the length of both arrays' first axis.
    pub samples: usize,
    /// Channels of an input: the length of its last axis.
    pub input_channels: usize,
    /// Channels of a target.
    pub target_channels: usize,
    /// The seed, of generated data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The version of this library that wrote the folder.
    pub version: String,
    /// Checksums of the arrays.
    pub checksums: Checksums,
    /// Where the points of both arrays lie.
    pub grid: Grid,
    /// Where the data come from, with all parameters.
    pub problem: Origin,
}

/// CRC-32 (that of zip and gzip) of whole files, header included, in eight hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checksums {
    /// Of `inputs.npy`.
    pub inputs: String,
    /// Of `targets.npy`.
    pub targets: String,
}

/// Where data come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Origin {
    /// Generated: Burgers' equation.
    Burgers(Burgers),
    /// Generated: Darcy's flow.
    Darcy(Darcy),
    /// Read from other people's files.
    Imported(Imported),
}

/// The files an imported dataset was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imported {
    /// File names, without their folders.
    pub files: Vec<String>,
}

impl From<Problem> for Origin {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Burgers(problem) => Self::Burgers(problem),
            Problem::Darcy(problem) => Self::Darcy(problem),
        }
    }
}

impl Origin {
    /// The problem that more samples can be generated of; none for imported data.
    pub fn problem(&self) -> Option<Problem> {
        match self {
            Self::Burgers(problem) => Some(Problem::Burgers(problem.clone())),
            Self::Darcy(problem) => Some(Problem::Darcy(problem.clone())),
            Self::Imported(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::GridKind;

    #[test]
    fn every_origin_survives_the_file() {
        let imported = Origin::Imported(Imported { files: vec!["burgers.mat".into()] });
        let origins = [
            (Problem::Burgers(Burgers::default()).into(), Some(7), GridKind::Periodic),
            (Problem::Darcy(Darcy::default()).into(), Some(7), GridKind::Vertices),
            (imported, None, GridKind::Periodic),
        ];
        for (problem, seed, kind) in origins {
            let meta = Meta {
                samples: 3,
                input_channels: 1,
                target_channels: 1,
                seed,
                version: "0.1.0".into(),
                checksums: Checksums { inputs: "00000000".into(), targets: "ffffffff".into() },
                grid: Grid::new(kind, &[421, 421]),
                problem,
            };
            let text = toml::to_string(&meta).unwrap();
            assert_eq!(toml::from_str::<Meta>(&text).unwrap(), meta, "{text}");
        }
    }

    #[test]
    fn a_problem_needs_its_name_only_and_refuses_what_it_does_not_know() {
        let problem: Problem = toml::from_str("name = \"darcy\"").unwrap();
        assert_eq!(problem, Problem::Darcy(Darcy::default()));
        let error = toml::from_str::<Problem>("name = \"burgers\"\nviscosty = 1e-3").unwrap_err().to_string();
        assert!(error.contains("viscosty"), "{error}");
    }
}
