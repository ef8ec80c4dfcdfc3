//! The words of the command line.

mod bench;
mod import;

pub use bench::{Bench, BenchKind, BenchOptions, MeasureArgs, Pass, PytorchArgs, ScaleArgs};
pub use import::Import;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use galerkin_paper::{Experiment, Scale};

use crate::figures;

/// Learn solution operators of partial differential equations.
#[derive(Debug, Parser)]
#[command(name = "galerkin", version, propagate_version = true, max_term_width = 110)]
#[command(after_help = "\
Examples:
  galerkin demo
  galerkin import mine.npz --inputs a --targets u --layout samples,y,x --out datasets/mine
  galerkin train --data datasets/mine --out runs/mine
  galerkin generate burgers --samples 100 --grid 1024 --out datasets/burgers
  galerkin info datasets/burgers --figure burgers.png
  galerkin train burgers --out runs/burgers
  galerkin evaluate runs/burgers --grid 512 --grid 2048
  galerkin plot runs/burgers

Exit codes: 0 fine, 2 wrong usage, 130 interrupted, 1 anything else.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The whole job in three minutes: generate, train, evaluate, draw
    Demo(Demo),
    /// Make a dataset by solving an equation many times
    #[command(subcommand)]
    Generate(Equation),
    /// Turn files of MATLAB, HDF5, numpy, safetensors or PyTorch into a dataset
    Import(Box<Import>),
    /// Say what a dataset, a run or a file holds
    Info(Info),
    /// Print the configuration of a preset, or one for a dataset, to be changed and trained from a file
    Config(Config),
    /// Train on a dataset, or a preset, or a configuration; missing data of a preset are generated first
    Train(Train),
    /// Errors of a trained model on any grid and with any noise, beside the classical solver
    Evaluate(Evaluate),
    /// Predictions of a trained model for the inputs of a file
    Predict(Predict),
    /// Draw figures of a run: convergence, samples, errors against resolution
    Plot(Plot),
    /// Run the paper's experiments, as far as time goes, and write its tables beside ours
    Reproduce(Reproduce),
    /// Time and memory of training steps and predictions: alone, beside PyTorch, and with growing grids
    Bench(Bench),
    /// Make the folder of a run from weights of the authors' PyTorch code
    ImportWeights(ImportWeights),
    /// Write completions for a shell to standard output
    #[command(
        after_help = "Example:\n  galerkin completions bash > ~/.local/share/bash-completion/completions/galerkin"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The whole job.
#[derive(Debug, Group)]
#[command(after_help = "\
Example:
  galerkin demo

Makes 1,124 samples of Burgers' equation, trains a Galerkin transformer on 1,024 of them, evaluates it on the grid it was trained on and
on a finer one beside the classical solver, and draws figures. Stopped and called again, it goes on where it was.")]
pub struct Demo {
    /// Folder to write
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub out: PathBuf,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
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
    /// paper: 1,224 samples on 8192 points or 421 × 421: 1,024 to train, 100 to validate, the last 100 to test
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

/// What to look at.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin info datasets/burgers
  galerkin info datasets/burgers --figure burgers.svg
  galerkin info runs/burgers --reaches 1.2e-3
  galerkin info burgers_data_R10.mat")]
pub struct Info {
    /// A dataset folder, the folder of a run, or a file of MATLAB, HDF5, numpy, safetensors or PyTorch
    #[arg(value_name = "DATASET|RUN|FILE")]
    pub path: PathBuf,
    /// Draw the first samples of a dataset, as .png or .svg [default: the name of the dataset, .png, here]
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "", value_parser = figure)]
    pub figure: Option<PathBuf>,
    /// When the validation error of a run came down to this and stayed there; may be repeated
    #[arg(long, value_name = "ERROR")]
    pub reaches: Vec<f64>,
    /// Let compressed variables of a file grow to so many times its size
    #[arg(long, value_name = "FACTOR", default_value_t = 100)]
    pub expand: u64,
}

/// A configuration.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin config --data datasets/mine > mine.toml && galerkin train mine.toml --out runs/mine
  galerkin config --data datasets/mine --network fno
  galerkin config burgers")]
pub struct Config {
    /// burgers, darcy, darcy-inverse, darcy-inverse-multilevel, darcy-multilevel, fno-burgers or fno-darcy
    pub preset: Option<String>,
    /// A dataset to propose a network and a training for, or to fit the preset to
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which network to propose [default: transformer]
    #[arg(long, value_name = "KIND", conflicts_with = "preset")]
    pub network: Option<NetworkWord>,
}

/// Kinds of networks that can be proposed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[allow(missing_docs)]
pub enum NetworkWord {
    #[default]
    Transformer,
    Fno,
    Multilevel,
}

/// A training.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin train --data datasets/mine --out runs/mine
  galerkin train --data datasets/mine --network fno --set train.epochs=50 --out runs/mine-fno
  galerkin train burgers --out runs/burgers
  galerkin train burgers --out runs/burgers --resume
  galerkin train darcy --set data.grid=85 --set network.lift.coarse=29 --out runs/darcy
  galerkin train mine.toml --out runs/mine

Without a preset or a file a network and a training are proposed for the dataset: `galerkin config --data DIR` shows them. Keys of --set
are those that `galerkin config` prints: network.encoder.attention, data.grid, train.epochs, loss.gamma and the others.
RAYON_NUM_THREADS sets the number of threads, which changes no bit of the result.")]
pub struct Train {
    /// A file, or burgers, darcy, darcy-inverse, darcy-multilevel, darcy-inverse-multilevel, fno-burgers or fno-darcy
    #[arg(value_name = "PRESET|CONFIG.toml")]
    pub what: Option<String>,
    /// The dataset [default: that of the preset or the file]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which network to propose for the dataset [default: transformer]
    #[arg(long, value_name = "KIND")]
    pub network: Option<NetworkWord>,
    /// Folder of the run [default: runs/ and the name of the preset]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Change a setting
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Go on with the run in the folder
    #[arg(long)]
    pub resume: bool,
    /// Refuse a run that would take longer
    #[arg(long, value_name = "H", value_parser = hours)]
    pub hours: Option<Duration>,
    /// Write event files for TensorBoard too, to tensorboard/ in the folder of the run
    #[arg(long)]
    pub tensorboard: bool,
    /// Where to compute: cpu, or vulkan, vulkan-cpu, cuda, cuda:N in a build with that feature
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// An evaluation.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin evaluate runs/burgers
  galerkin evaluate runs/burgers --grid 512 --grid 2048 --grid 8192
  galerkin evaluate runs/burgers --resolutions
  galerkin evaluate runs/darcy-inverse --noise 0 --noise 0.01 --noise 0.1 --json
  galerkin evaluate runs/burgers --break-even

Evaluated are the test samples of the run, or all samples of --data. The table is also written to metrics.json in the folder of
the run.")]
pub struct Evaluate {
    /// Folder of a run
    pub run: PathBuf,
    /// Another dataset than that of the run
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// All samples, also those that the run was trained with
    #[arg(long)]
    pub include_training: bool,
    /// Points along the first axis; may be repeated [default: those trained on, or those of --data]
    #[arg(long, value_name = "n")]
    pub grid: Vec<usize>,
    /// Up to nine grids, from half of that trained on to the dataset's own, and a figure of them
    #[arg(long, conflicts_with = "grid")]
    pub resolutions: bool,
    /// Noise on the inputs; may be repeated [default: that trained with, of a range both ends]
    #[arg(long, value_name = "ε")]
    pub noise: Vec<f64>,
    /// The weights with the smallest validation error instead of the last ones
    #[arg(long)]
    pub best: bool,
    /// The mean over the flips and transpositions of the run, 2ᵏ times the cost for k of them
    #[arg(long)]
    pub symmetric: bool,
    /// Beside a classical solver of the network's accuracy: times, and after how many queries data and training have paid
    #[arg(long, conflicts_with = "resolutions")]
    pub break_even: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Errors of every sample too
    #[arg(long)]
    pub per_sample: bool,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    pub device: String,
}

/// A prediction.
#[derive(Debug, Group)]
#[command(after_help = "\
Example:
  galerkin predict runs/burgers --input x.npy --output y.npy

The input is (samples, points…, channels), in the units of the dataset, on any grid the network takes. One sample may come without the
axis of samples, and one channel without that of channels; the output has the axes of the input. It is read batch by batch.")]
pub struct Predict {
    /// Folder of a run
    pub run: PathBuf,
    /// A .npy file
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// A .npy file, which appears when it is complete; - is the standard output
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// The mean over the flips and transpositions of the run, 2ᵏ times the cost for k of them
    #[arg(long)]
    pub symmetric: bool,
    /// Accept NaN and infinite values in the input
    #[arg(long)]
    pub allow_nan: bool,
    /// The weights with the smallest validation error instead of the last ones
    #[arg(long)]
    pub best: bool,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Figures of a run.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin plot runs/burgers
  galerkin evaluate runs/burgers --grid 512 --grid 2048 --grid 8192 && galerkin plot runs/burgers

Every figure is written as .png and .svg to figures/ in the folder of the run: convergence from its log, test samples with predictions,
reconstructions at several levels of noise for the inverse problem, latent functions beside eigenfunctions of the equation for transformers
on a square, and errors against resolution if `galerkin evaluate` was on more than one grid.")]
pub struct Plot {
    /// Folder of a run
    pub run: PathBuf,
    /// Another dataset than that of the run
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Test samples to draw
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub samples: u32,
    /// The weights with the smallest validation error instead of the last ones
    #[arg(long)]
    pub best: bool,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    pub device: String,
}

/// The paper's experiments.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin reproduce burgers --scale quick
  galerkin reproduce burgers --scale cpu --only burgers-gt-heads --only burgers-fno
  galerkin reproduce all --scale cpu
  galerkin reproduce burgers --scale cpu --report

Experiments are queues of runs: stopped at any time and called again, they go on where they were. Runs that several experiments need are
trained once. The table is written to results/DATE-NAME-SCALE with its numbers, configurations and figures; rows that were not run say
so.")]
pub struct Reproduce {
    /// Which
    #[arg(value_parser = experiments(), hide_possible_values = false)]
    pub name: ExperimentChoice,
    /// quick: minutes, few samples; cpu: hours on two cores; paper: its protocol
    #[arg(long, value_parser = scales(), default_value = Scale::Quick.name(), hide_possible_values = true)]
    pub scale: Scale,
    /// One row alone; may be repeated
    #[arg(long, value_name = "ROW")]
    pub only: Vec<String>,
    /// No training: the table of what is there
    #[arg(long)]
    pub report: bool,
    /// Folder of the runs
    #[arg(long, value_name = "DIR", default_value = "runs/reproduce")]
    pub runs: PathBuf,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// One experiment of the paper, or every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentChoice {
    /// This one.
    One(Experiment),
    /// Every one.
    All,
}

/// Weights of others.
#[derive(Debug, Group)]
#[command(after_help = "\
Example:
  galerkin import-weights burgers_512_4gt_96d_qkv.pt --preset burgers --set model.attention=galerkin --out runs/published

Nothing in the file is executed. Names and shapes that do not fit are listed. The authors' files hold no normalisers: a model of
Darcy flow predicts normalised values from normalised inputs.")]
pub struct ImportWeights {
    /// A state dict that PyTorch saved
    #[arg(value_name = "FILE.pt")]
    pub file: PathBuf,
    /// burgers, darcy or darcy-inverse
    #[arg(long, value_name = "P")]
    pub preset: String,
    /// Folder of the run
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    /// Change a setting
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
}

/// The paper crate's names, and one for all of them.
fn experiments() -> impl TypedValueParser<Value = ExperimentChoice> {
    let one =
        Experiment::ALL.map(|experiment| PossibleValue::new(experiment.name()).help(experiment.about()));
    let all = PossibleValue::new("all").help("All of these");
    PossibleValuesParser::new(one.into_iter().chain([all]))
        .map(|name| Experiment::named(&name).map_or(ExperimentChoice::All, ExperimentChoice::One))
}

fn scales() -> impl TypedValueParser<Value = Scale> {
    PossibleValuesParser::new(Scale::ALL.map(Scale::name))
        .map(|name| Scale::named(&name).expect("one of the names"))
}

/// A key and its value.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// A time.
fn hours(text: &str) -> Result<Duration, String> {
    let hours = text.parse::<f64>().ok().filter(|hours| *hours > 0.0);
    let time = hours.and_then(|hours| Duration::try_from_secs_f64(3600.0 * hours).ok());
    time.ok_or_else(|| "expected a number of hours".into())
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
