//! What a run will take, before it begins: memory counted, time from a step that is tried.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use galerkin_data::Dataset;

use crate::config::RunConfig;
use crate::cost::available_memory;
use crate::error::{Error, Result};
use crate::layers::Mode;

/// An error if the machine has not the memory a run needs. `plain` is the dataset on the grid of the run.
pub(super) fn refuse_too_large(config: &RunConfig, plain: &Dataset) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let values = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
    let sample = 4 * (3 * values(plain.input_shape()) + 2 * values(plain.target_shape()));
    let samples =
        sample.saturating_mul((config.data.train as u64).saturating_add(config.data.validation as u64));
    let training = training_memory(config, &plain.grid()?.points())?;
    let needed = samples.saturating_add(training);
    if needed <= available {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let suggestion = match training > samples {
        true => "a smaller train.batch, with train.accumulate for the rest, needs less".to_string(),
        false => "fewer samples (data.train) or a coarser data.grid need less".to_string(),
    };
    Err(Error::Memory { needed: megabytes(needed), available: megabytes(available), suggestion })
}

/// Bytes that the training of a run on a grid needs, an estimate.
pub(super) fn training_memory(config: &RunConfig, grid: &[usize]) -> Result<u64> {
    let network = config.network.training_memory(config.train.batch, grid)?;
    Ok(network.saturating_add(config.optimizer.more_memory(config.network.parameters())))
}

/// How long so many steps of a run on a grid will take on this machine, with the validation after every epoch: a step without data is tried, more
/// than once if it is quick.
pub fn training_time(config: &RunConfig, grid: &[usize], steps: u64, device: &Device) -> Result<Duration> {
    if steps == 0 {
        return Ok(Duration::ZERO);
    }
    let tracked = device.clone().autodiff();
    let network = config.network.init(config.train.seed, &tracked)?;
    let [inputs, _] = config.network.channels();
    let x = Tensor::<3>::ones([config.train.batch, grid.iter().product(), inputs], &tracked);
    let mode = Mode::Train { seed: config.train.seed, step: 0 };
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let y = network.forward_points(x.clone(), grid, mode, &mut |_, _, _| {})?;
        drop(y.square().mean().backward());
        quickest = quickest.min(start.elapsed());
        if quickest > Duration::from_secs(1) {
            break;
        }
    }
    // Forward passes take about a third of the time of both.
    let batches = config.train.accumulate as f64
        + config.data.validation as f64 / config.train.batch as f64 / 3.0 / config.steps_per_epoch() as f64;
    let seconds = steps as f64 * batches * quickest.as_secs_f64();
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// An error if so many steps of a run would take longer than they may.
pub(super) fn refuse_too_slow(
    config: &RunConfig,
    steps: u64,
    needed: Duration,
    allowed: Option<Duration>,
) -> Result<()> {
    let Some(allowed) = allowed.filter(|allowed| *allowed < needed) else { return Ok(()) };
    let hours = |time: Duration| time.as_secs_f64() / 3600.0;
    let epochs = (steps as f64 * hours(allowed) / hours(needed)) as u64 / config.steps_per_epoch();
    let suggestion = match epochs {
        0 => "a coarser data.grid or fewer samples (data.train) need less".to_string(),
        _ => format!("train.epochs = {epochs}, a coarser data.grid or fewer samples (data.train) need less"),
    };
    Err(Error::Time { needed: hours(needed), allowed: hours(allowed), suggestion })
}
