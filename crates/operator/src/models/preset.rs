//! The paper's networks by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{FnoConfig, ModelConfig, Transformer1dConfig, Transformer2dConfig};
use crate::error::{Error, Result};
use crate::layers::AttentionKind;

/// A network of the paper, with its sizes and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The Galerkin transformer for the Burgers equation.
    Burgers,
    /// The Galerkin transformer for Darcy flow, 141 × 141 points with attention on 43 × 43.
    Darcy,
    /// The Galerkin transformer from the solution of Darcy flow, on 141 × 141 points, to the coefficient on 36 × 36.
    DarcyInverse,
    /// The Fourier operator for the Burgers equation.
    FnoBurgers,
    /// The Fourier operator for Darcy flow.
    FnoDarcy,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 5] =
        [Preset::Burgers, Preset::Darcy, Preset::DarcyInverse, Preset::FnoBurgers, Preset::FnoDarcy];

    /// Its network.
    pub fn config(self) -> ModelConfig {
        let kind = AttentionKind::Galerkin;
        match self {
            Preset::Burgers => ModelConfig::Transformer1d(Transformer1dConfig::burgers(kind)),
            Preset::Darcy => ModelConfig::Transformer2d(Transformer2dConfig::darcy(kind, 141, 43)),
            Preset::DarcyInverse => {
                ModelConfig::Transformer2d(Transformer2dConfig::darcy_inverse(kind, 141, 36))
            }
            Preset::FnoBurgers => ModelConfig::Fno1d(FnoConfig::burgers()),
            Preset::FnoDarcy => ModelConfig::Fno2d(FnoConfig::darcy()),
        }
    }

    /// As it is written in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Burgers => "burgers",
            Preset::Darcy => "darcy",
            Preset::DarcyInverse => "darcy-inverse",
            Preset::FnoBurgers => "fno-burgers",
            Preset::FnoDarcy => "fno-darcy",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Preset::name).join(", ");
            Error::setting(format!("preset {name:?}"), format!("the presets are {names}"))
        })
    }
}
