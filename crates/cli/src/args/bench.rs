//! The words of `galerkin bench`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand, ValueEnum};

/// Time and memory.
#[derive(Debug, Group)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  galerkin bench
  galerkin bench burgers-gt-2048 darcy-141
  galerkin bench pytorch --python venv/bin/python burgers --out results
  galerkin bench scale --upto 65536

Every measurement is a process of its own, so that its peak memory is its own. A time is the fastest of the steps of a process; tables have
the median of the processes, and least and most. Nothing else should run on the machine: threads of PyTorch wait by spinning.")]
pub struct Bench {
    /// What else than our own numbers.
    #[command(subcommand)]
    pub kind: Option<BenchKind>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: BenchOptions,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchKind {
    /// The same networks with the same weights in PyTorch, in turn with ours
    Pytorch(PytorchArgs),
    /// Training steps on growing grids, and with more threads
    Scale(ScaleArgs),
    /// One measurement, for a process of its own
    #[command(hide = true)]
    Measure(MeasureArgs),
}

/// How to measure.
#[derive(Clone, Debug, Group)]
pub struct BenchOptions {
    /// Rows of the table, by name or by the beginning of it [default: all]
    #[arg(value_name = "ROW")]
    pub rows: Vec<String>,
    /// Threads of every measured process
    #[arg(long, value_name = "T", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Processes per number
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Seconds of repeated steps in a process, of which there are two at least
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// Write DIR/DATE-bench… with README.md and table.csv
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Small grids, to try the command
    #[arg(long, hide = true)]
    pub tiny: bool,
}

/// Beside PyTorch.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin bench pytorch --python venv/bin/python
  galerkin bench pytorch --python venv/bin/python burgers-gt encoder --out results
  galerkin bench pytorch --python venv/bin/python --train datasets/burgers --epochs 100 --grid 512 --run runs/pytorch

Both halves read the same weights and inputs. Their outputs must agree to 1e-4 and their gradients to 1e-3 before a time is taken. Fourier
attention has a second row in which PyTorch multiplies K by V first, as we do; the paper's code does not. Fourier and softmax attention have
one more in which PyTorch goes through the n x n weights step by step and drops half of them, as the authors' code does; what is compared
before are outputs without dropout. With --train PyTorch trains the Galerkin transformer of the preset burgers from our initial weights, on
the samples and batches of `galerkin train burgers`; `galerkin info` and `galerkin evaluate` take its run for any other. How to get a Python
with torch is in benches/pytorch/README.md.")]
pub struct PytorchArgs {
    /// A Python with torch, numpy and safetensors
    #[arg(long, value_name = "PATH", default_value = "python3")]
    pub python: PathBuf,
    /// Let PyTorch compile its networks (torch.compile)
    #[arg(long)]
    pub compile: bool,
    /// Measure nothing, but train the preset burgers in PyTorch on a dataset of ours
    #[arg(long, value_name = "DATASET", requires = "run", conflicts_with_all = ["rows", "compile", "repetitions", "seconds", "out"])]
    pub train: Option<PathBuf>,
    /// Folder of that run, new or empty
    #[arg(long, value_name = "RUN", requires = "train")]
    pub run: Option<PathBuf>,
    /// Its epochs [default: those of the preset]
    #[arg(long, value_name = "N", requires = "train", value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: Option<u32>,
    /// Its grid [default: that of the preset]
    #[arg(long, value_name = "n", requires = "train")]
    pub grid: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: BenchOptions,
}

/// Growing grids.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin bench scale
  galerkin bench scale --upto 65536 --repetitions 1

Rows are gt, ft and darcy. One training step of one sample each; growth exponents are fitted to all sizes of a row, of memory to what a step
adds to the network itself.")]
pub struct ScaleArgs {
    /// Largest number of points: of the line, or of the fine grid of the square
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub upto: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub options: BenchOptions,
}

/// One measurement; the other half, benches/pytorch/measure.py, has the same words.
#[derive(Debug, Group)]
pub struct MeasureArgs {
    /// What is done
    pub pass: Pass,
    /// Weights of the network
    #[arg(long)]
    pub weights: PathBuf,
    /// Its input
    #[arg(long)]
    pub input: PathBuf,
    /// What its output is compared with in training
    #[arg(long)]
    pub target: PathBuf,
    /// File to write the output or the gradients to
    #[arg(long)]
    pub output: PathBuf,
    /// Repeat for so long
    #[arg(long)]
    pub seconds: f64,
    /// What only the other half needs to be told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub theirs: Vec<String>,
}

/// What a measured process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Pass {
    /// Forward pass, loss, backward pass, step of the optimiser
    Train,
    /// Forward pass without gradients
    Infer,
    /// Gradients without dropout, written and not timed
    Gradients,
}

impl Pass {
    /// As it is written in commands and tables.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Train => "train",
            Pass::Infer => "infer",
            Pass::Gradients => "gradients",
        }
    }
}
