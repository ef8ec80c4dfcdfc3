//! The words of the command line.

use std::path::{Path, PathBuf};

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::figures;

/// Learn solution operators of partial differential equations.
#[derive(Debug, Parser)]
#[command(name = "galerkin", version, propagate_version = true, max_term_width = 110)]
#[command(after_help = "\
Examples:
  galerkin generate burgers --samples 100 --grid 1024 --out datasets/burgers
  galerkin info datasets/burgers --figure burgers.png

Exit codes: 0 fine, 2 wrong usage, 130 interrupted, 1 anything else.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a dataset by solving an equation many times
    #[command(subcommand)]
    Generate(Equation),
    /// Turn files of MATLAB, HDF5, numpy or safetensors into a dataset
    Import(Import),
    /// Say what a dataset or a file holds, and draw its first samples
    Info(Info),
    /// Write completions for a shell to standard output
    #[command(
        after_help = "Example:\n  galerkin completions bash > ~/.local/share/bash-completion/completions/galerkin"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The equation to solve.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Example:
  galerkin generate darcy --samples 100 --grid 141 --out datasets/darcy

A folder appears under its name when it is complete; until then it is called NAME.partial, and the same command goes on with it.")]
pub enum Equation {
    /// Burgers' equation u_t + u u_x = ν u_xx on a circle: from u at time 0 to u at a later time
    Burgers(Burgers),
    /// Darcy's flow −∇·(a ∇u) = f on a square: from the coefficient a to the solution u
    Darcy(Darcy),
}

/// How many samples, of what, where.
#[derive(Debug, Group)]
pub struct Samples {
    /// Number of samples; sample i depends on the seed, i and the settings alone
    #[arg(long, value_name = "N", required_unless_present = "preset", value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,
    /// Seed of all random numbers
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: u64,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// paper: 1,024 samples to train and 100 to test, the last of the same folder, on 8192 points or 421 × 421
    #[arg(long, hide_possible_values = true, conflicts_with_all = ["samples", "grid"])]
    pub preset: Option<Preset>,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Sizes of published datasets.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs)]
pub enum Preset {
    Paper,
}

/// Burgers' equation.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin generate burgers --samples 100 --grid 1024 --seed 1 --out datasets/burgers
  galerkin generate burgers --preset paper --out datasets/burgers-paper
  galerkin generate burgers --samples 100 --grid 8192 --viscosity 1e-3 --out datasets/burgers-sharp")]
pub struct Burgers {
    /// Points of the periodic grid
    #[arg(long, value_name = "n", default_value_t = 8192)]
    pub grid: usize,
    /// ν [default: 0.1/(2π) = 0.0159]
    #[arg(long, value_name = "ν")]
    pub viscosity: Option<f64>,
    /// When the solution is taken
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    pub time: f64,
    /// Relative error allowed to the solver [default: 1e-8]
    #[arg(long, value_name = "ε")]
    pub tolerance: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub samples: Samples,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub law: Law,
}

/// Darcy's flow.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin generate darcy --samples 100 --grid 141 --out datasets/darcy
  galerkin generate darcy --preset paper --out datasets/darcy-paper
  galerkin generate darcy --samples 100 --grid 141 --lognormal 0,1 --out datasets/darcy-smooth")]
pub struct Darcy {
    /// Vertices a side, boundary included
    #[arg(long, value_name = "n", default_value_t = 421)]
    pub grid: usize,
    /// Coefficient above and below the threshold
    #[arg(long, value_name = "HI,LO", default_value = "12,3", value_parser = pair, allow_hyphen_values = true)]
    pub contrast: [f64; 2],
    /// Where the random field is cut in two
    #[arg(long, value_name = "g", default_value_t = 0.0, allow_negative_numbers = true)]
    pub threshold: f64,
    /// A smooth coefficient exp(MEAN + SCALE·g) instead of two values
    #[arg(long, value_name = "MEAN,SCALE", conflicts_with_all = ["contrast", "threshold"], value_parser = pair, allow_hyphen_values = true)]
    pub lognormal: Option<[f64; 2]>,
    /// The right-hand side, the same everywhere
    #[arg(long, value_name = "f", default_value_t = 1.0, allow_negative_numbers = true)]
    pub source: f64,
    /// Relative residual allowed to the solver [default: 1e-10]
    #[arg(long, value_name = "ε")]
    pub tolerance: Option<f64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub samples: Samples,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub law: Law,
}

/// The law N(0, σ²(−Δ + τ²)^−γ) of the random field behind the input.
#[derive(Debug, Group)]
#[command(next_help_heading = "Law of the random field, N(0, σ²(−Δ + τ²)^−γ)")]
pub struct Law {
    /// Modes, per axis [default: 4096 for Burgers, 421 for Darcy]
    #[arg(long, value_name = "N")]
    pub modes: Option<usize>,
    /// γ [default: 2]
    #[arg(long, value_name = "γ")]
    pub smoothness: Option<f64>,
    /// τ [default: 5 for Burgers, 3 for Darcy]
    #[arg(long, value_name = "τ")]
    pub tau: Option<f64>,
    /// σ [default: 25 for Burgers, 3 for Darcy]
    #[arg(long, value_name = "σ")]
    pub sigma: Option<f64>,
}

/// Files of others.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin import burgers_data_R10.mat --out datasets/burgers
  galerkin import smooth1.mat smooth2.mat --out datasets/darcy --subsample 3
  galerkin import x.npy y.npy --inputs x --targets y --problem darcy --out datasets/mine

Files that hold the same variable follow each other. `galerkin info FILE` lists the variables of a file; that of a .npy has its name.")]
pub struct Import {
    /// Files to read
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Variable of the inputs, (samples, points…) [default: a for Burgers, coeff for Darcy]
    #[arg(long, value_name = "NAME")]
    pub inputs: Option<String>,
    /// Variable of the targets [default: u for Burgers, sol for Darcy]
    #[arg(long, value_name = "NAME")]
    pub targets: Option<String>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Take every so many points along every axis
    #[arg(long, value_name = "s", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub subsample: u32,
    /// burgers: a periodic line; darcy: a square with its boundary [default: told by the variables]
    #[arg(long, hide_possible_values = true)]
    pub problem: Option<Problem>,
}

/// Problems whose files are known.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs)]
pub enum Problem {
    Burgers,
    Darcy,
}

/// What to look at.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin info datasets/burgers
  galerkin info datasets/burgers --figure burgers.svg
  galerkin info burgers_data_R10.mat")]
pub struct Info {
    /// A dataset folder, or a file of MATLAB, HDF5, numpy, safetensors or PyTorch
    #[arg(value_name = "DATASET|FILE")]
    pub path: PathBuf,
    /// Draw the first samples of a dataset, as .png or .svg [default: the name of the dataset, .png, here]
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "", value_parser = figure)]
    pub figure: Option<PathBuf>,
}

/// Two numbers with a comma between them.
fn pair(text: &str) -> Result<[f64; 2], String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|number| number.trim().parse()).collect();
    let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| "expected two numbers with a comma between them".into())
}

/// The name of a figure, or nothing for the default.
fn figure(text: &str) -> Result<PathBuf, String> {
    if !text.is_empty() {
        figures::check_name(Path::new(text))
            .map_err(|_| "expected a name that ends in .png or .svg".to_string())?;
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn pairs_have_two_numbers() {
        assert_eq!(pair("12, 3"), Ok([12.0, 3.0]));
        assert_eq!(pair("-1,1e-2"), Ok([-1.0, 0.01]));
        for wrong in ["", "1", "1,2,3", "1;2", "a,b"] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }
}
