//! The measured process: reads weights and input, repeats a pass, prints what it took as JSON.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin::layers::Mode;
use galerkin::optimizer::{Optimizer, OptimizerConfig};
use galerkin::reference::export_gradients;
use galerkin::schedule::Rates;
use galerkin_data::io::{Tensors, npy, write_whole};
use serde::{Deserialize, Serialize};

use super::network::{Measured, Values};
use crate::args::{MeasureArgs, Pass};

/// What a process says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::commands) struct Report {
    /// Of every repetition after one to warm up.
    #[serde(default)]
    pub(super) seconds: Vec<f64>,
    /// The largest memory it had before the first pass, in megabytes; 0 where the system does not say.
    #[serde(default)]
    pub(super) start_mb: f64,
    /// The largest memory it ever had.
    #[serde(default)]
    pub(super) peak_mb: f64,
    /// There was too little memory for it.
    #[serde(default)]
    pub(super) out_of_memory: bool,
}

impl Report {
    pub(in crate::commands) fn fitted(&self) -> bool {
        !self.out_of_memory
    }

    /// Of the fastest repetition.
    pub(super) fn fastest(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Adam's rates in measured steps, which PyTorch's half has too.
const RATES: Rates = Rates { rate: 1e-3, beta1: 0.9 };

/// Does one measurement.
pub(super) fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let report = match args.pass {
        Pass::Train => train(args)?,
        Pass::Infer => infer(args)?,
        Pass::Gradients => gradients(args)?,
    };
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?)
}

/// Steps as the training loop takes them.
fn train(args: &MeasureArgs) -> anyhow::Result<Report> {
    let (mut network, x, target) = tracked(args)?;
    let mut optimizer = Optimizer::new(&OptimizerConfig::default(), &network);
    let start_mb = peak_megabytes();
    let mut step = 0;
    let seconds = repeat(args.seconds, || {
        let (gradients, _) = network.gradients(&x, &target, Mode::Train { seed: 0, step })?;
        optimizer.collect(&network, gradients);
        network = optimizer.step(network.clone(), RATES).0;
        step += 1;
        Ok(())
    })?;
    Ok(Report { seconds, start_mb, peak_mb: peak_megabytes(), out_of_memory: false })
}

fn infer(args: &MeasureArgs) -> anyhow::Result<Report> {
    let device = Device::flex();
    let (network, x) = (Measured::load(&args.weights, &device)?, read_values(&args.input, &device)?);
    let start_mb = peak_megabytes();
    let mut y = None;
    let seconds = repeat(args.seconds, || {
        y = Some(network.forward(&x, Mode::Evaluate)?);
        Ok(())
    })?;
    let peak_mb = peak_megabytes();
    if let Some(y) = y {
        write_values(&args.output, y)?;
    }
    Ok(Report { seconds, start_mb, peak_mb, out_of_memory: false })
}

fn gradients(args: &MeasureArgs) -> anyhow::Result<Report> {
    let (network, x, target) = tracked(args)?;
    let (gradients, _) = network.gradients(&x, &target, Mode::Evaluate)?;
    let arrays = export_gradients(&network, &gradients);
    Tensors { arrays, ..Tensors::default() }.save(&args.output)?;
    Ok(Report::default())
}

/// Network, input and target on the device that keeps track of gradients.
fn tracked(args: &MeasureArgs) -> anyhow::Result<(Measured, Values, Values)> {
    let device = Device::flex().autodiff();
    let network = Measured::load(&args.weights, &device)?;
    Ok((network, read_values(&args.input, &device)?, read_values(&args.target, &device)?))
}

/// Seconds of repetitions after one to warm up, until their sum is the budget.
fn repeat(budget: f64, mut step: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    step()?;
    let mut seconds = Vec::new();
    while seconds.len() < 2 || seconds.iter().sum::<f64>() < budget {
        let start = Instant::now();
        step()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

fn read_values(path: &Path, device: &Device) -> anyhow::Result<Values> {
    let runs = npy::Runs::open(path)?;
    let [batch, grid @ .., channels] = runs.shape() else {
        bail!("{}: expected (samples, points…, channels), found shape {:?}", path.display(), runs.shape());
    };
    let shape = [*batch, grid.iter().product(), *channels];
    let data = TensorData::new(runs.read(0, shape.iter().product())?, shape);
    Ok(Values { tensor: Tensor::from_data(data, device), grid: grid.to_vec() })
}

fn write_values(path: &Path, y: Values) -> anyhow::Result<()> {
    let [batch, _, channels] = y.tensor.dims();
    let mut bytes = npy::header(&[vec![batch], y.grid, vec![channels]].concat());
    bytes.extend(y.tensor.into_data().iter::<f32>().flat_map(f32::to_le_bytes));
    Ok(write_whole(path, &bytes)?)
}

/// The most memory this process ever had, in megabytes; 0 where the system does not say.
fn peak_megabytes() -> f64 {
    kilobytes("/proc/self/status", "VmHWM:") / 1024.0
}

/// A line of one of Linux's tables; 0 where there is none.
pub(super) fn kilobytes(file: &str, key: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}
