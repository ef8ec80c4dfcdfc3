//! Forward and backward pass of whole models, fused against composed on the same backend, with peak memory.
//!
//! `cargo bench -p galerkin`, or with a name from the table: `cargo bench -p galerkin -- burgers-2048`. Each row and way is a
//! process of its own, so that its peak memory is its own; the time is the fastest of the repetitions after one to warm up. The
//! optimiser's step is not in it.

#![allow(clippy::print_stdout)]

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::device::on_pool;
use galerkin::layers::Mode;
use galerkin::networks::{LiftConfig, NetworkConfig};
use galerkin::{ops, presets};
use std::process::Command;
use std::time::Instant;

/// A model and its grid.
struct Row {
    name: &'static str,
    batch: usize,
    /// Points, a side in 2D.
    n: usize,
    /// Points a side of the coarse grid of a 2D transformer.
    coarse: usize,
    /// Repetitions of the composed way; four times as many of the fused one.
    repetitions: usize,
}

const ROWS: [Row; 8] = [
    Row { name: "burgers-512", batch: 8, n: 512, coarse: 0, repetitions: 5 },
    Row { name: "burgers-2048", batch: 8, n: 2048, coarse: 0, repetitions: 3 },
    Row { name: "burgers-8192", batch: 4, n: 8192, coarse: 0, repetitions: 2 },
    Row { name: "darcy-85", batch: 4, n: 85, coarse: 29, repetitions: 3 },
    Row { name: "darcy-141", batch: 4, n: 141, coarse: 43, repetitions: 2 },
    Row { name: "darcy-inverse-141", batch: 4, n: 141, coarse: 36, repetitions: 2 },
    Row { name: "fno-burgers-2048", batch: 8, n: 2048, coarse: 0, repetitions: 3 },
    Row { name: "fno-darcy-85", batch: 4, n: 85, coarse: 0, repetitions: 3 },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [way, name] = args.as_slice() {
        let row = ROWS.iter().find(|row| row.name == name).expect("a name from the table");
        let seconds = on_pool(|| measure(row, way == "composed"));
        println!("{seconds} {}", peak_memory());
        return;
    }
    println!(
        "{:<18} {:>10} {:>12} {:>6} {:>14} {:>14} {:>14}",
        "", "fused ms", "composed ms", "x", "fused MB", "composed MB", "estimated MB"
    );
    for row in ROWS.iter().filter(|row| args.is_empty() || args.iter().any(|arg| arg == row.name)) {
        let [fused, composed] = ["fused", "composed"].map(|way| run(way, row.name));
        println!(
            "{:<18} {:>10.1} {:>12.1} {:>6.1} {:>14.0} {:>14.0} {:>14.0}",
            row.name,
            1e3 * fused.0,
            1e3 * composed.0,
            composed.0 / fused.0,
            fused.1,
            composed.1,
            row.estimated_megabytes(),
        );
    }
}

/// Seconds and megabytes, from a process of its own.
fn run(way: &str, name: &str) -> (f64, f64) {
    let this = std::env::current_exe().expect("the benchmark's own path");
    let output = Command::new(this).args([way, name]).output().expect("the benchmark runs itself");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [seconds, megabytes] => (seconds, megabytes),
        _ => panic!("{way} {name}: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

impl Row {
    /// The network of the preset that the name begins with, for this grid.
    fn config(&self) -> NetworkConfig {
        let (preset, _) = self.name.rsplit_once('-').expect("a preset and its points");
        let mut config = presets::get(preset).expect("a preset").network;
        if let NetworkConfig::Transformer(network) = &mut config
            && let LiftConfig::Interpolation(lift) = &mut network.lift
        {
            (lift.fine, lift.coarse) = (self.n, self.coarse);
        }
        config
    }

    fn grid(&self, config: &NetworkConfig) -> Vec<usize> {
        vec![self.n; config.axes()]
    }

    fn estimated_megabytes(&self) -> f64 {
        let config = self.config();
        config.training_memory(self.batch, &self.grid(&config)).unwrap() as f64 / 1024.0 / 1024.0
    }
}

fn measure(row: &Row, composed: bool) -> f64 {
    let &Row { batch, repetitions, .. } = row;
    let device = Device::flex().autodiff();
    let config = row.config();
    let network = config.init(1, &device).unwrap();
    let grid = row.grid(&config);
    let x: Tensor<3> = waves([batch, grid.iter().product(), 1], &device);
    let step = || {
        let mode = Mode::Train { seed: 1, step: 1 };
        let y = network.forward_points(x.clone(), &grid, mode, &mut |_, _, _| {}).unwrap();
        drop(y.square().mean().backward());
    };
    let step = || if composed { ops::composed_only(step) } else { step() };
    step();
    let time = || {
        let start = Instant::now();
        step();
        start.elapsed().as_secs_f64()
    };
    let repetitions = if composed { repetitions } else { 4 * repetitions };
    (0..repetitions).map(|_| time()).fold(f64::INFINITY, f64::min)
}

fn waves<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| (i as f32 * 0.01).sin()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The most memory this process ever had, in megabytes; 0 where the system does not say.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}
