//! What the training loop adds to the passes through the model: data, optimiser, log.
//!
//! `cargo bench -p galerkin --bench training_loop`. Between any two steps of a real run the same model makes the same passes, loss
//! included, on a batch that is there already; both medians come from one run, and their ratio is the loop's overhead.

#![allow(clippy::print_stdout)]

use burn::tensor::Device;
use galerkin::device::on_pool;
use galerkin::layers::Mode;
use galerkin::presets;
use galerkin::samples::{Batch, Samples, View};
use galerkin::train::{Event, Trainer};
use galerkin_data::Dataset;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Darcy, Problem};
use std::ops::ControlFlow;
use std::time::Instant;

fn main() {
    println!("{:<24} {:>12} {:>12} {:>10} {:>8}", "", "step ms", "passes ms", "overhead", "steps");
    for (preset, grid, samples, epochs) in [
        ("burgers", 512, 64, 25),
        ("burgers", 2048, 64, 8),
        ("darcy", 85, 16, 8),
        ("darcy-multilevel", 85, 16, 8),
    ] {
        for kind in ["adam", "soap", "muon"] {
            row(preset, grid, kind, samples, epochs);
        }
    }
    row("fno-burgers", 512, "adam", 64, 40);
    row("fno-darcy", 85, "adam", 16, 25);
}

fn row(preset: &str, grid: usize, kind: &str, samples: usize, epochs: u32) {
    let [step, passes, count] = on_pool(|| measure(preset, grid, kind, samples, epochs));
    let (name, overhead) = (format!("{preset} {grid}, {kind}"), 100.0 * (step / passes - 1.0));
    println!("{name:<24} {:>12.2} {:>12.2} {overhead:>8.1} % {count:>8}", 1e3 * step, 1e3 * passes);
}

/// Seconds of a step and of the passes alone, and the number of steps.
fn measure(preset: &str, grid: usize, kind: &str, samples: usize, epochs: u32) -> [f64; 3] {
    let temporary = tempfile::tempdir().expect("a folder to work in");
    let sets = [("optimizer.kind", kind.to_string()), ("data.grid", grid.to_string())];
    let sets = sets.map(|(key, value)| (key.to_string(), value));
    let config = presets::get(preset).and_then(|config| config.with(&sets));
    let mut config = config.expect("a preset");
    config.data.folder = temporary.path().join("data");
    (config.data.train, config.data.validation, config.data.test) = (samples, 4, 0);
    config.train.epochs = epochs;
    // Steps are compared, not what is written every few minutes.
    config.checkpoint.every_minutes = 0.0;
    let problem = match presets::problem(preset).expect("its problem") {
        Problem::Burgers(burgers) => {
            Problem::Burgers(Burgers { points: config.data.grid, tolerance: 1e-5, ..burgers })
        }
        Problem::Darcy(darcy) => Problem::Darcy(Darcy { points: config.data.grid, ..darcy }),
    };
    let count = (samples + 4) as u32;
    write_dataset(&config.data.folder, &problem, 1, count, |_| ControlFlow::Continue(())).expect("a dataset");

    let device = Device::flex();
    let tracked = device.clone().autodiff();
    let network = config.network.init(1, &tracked).expect("a network");
    let dataset = Dataset::open(&config.data.folder).expect("the dataset");
    let places: Vec<usize> = (0..config.train.batch).collect();
    let view = View::of(&config.data, 1, None);
    let loaded = Samples::load(&dataset, &view, &places, Some(&config.loss), &device).expect("samples");
    let (grid, loss) = (loaded.input_grid.points(), loaded.loss(&config.loss));
    let Batch { input, target } = loaded.batch(&places, &tracked);
    let pass = || {
        let mode = Mode::Train { seed: 1, step: 1 };
        let prediction = network.forward_points(input.clone(), &grid, mode, &mut |_, _, _| {});
        let loss = loss.forward(prediction.expect("a prediction"), target.clone()).expect("a loss");
        drop(loss.total.backward());
    };

    let (mut steps, mut passes) = (Vec::new(), Vec::new());
    let mut last = Instant::now();
    let trainer = Trainer::new(&config).out(temporary.path().join("run")).device(&device);
    let run = trainer.run(&mut |event| {
        if let Event::Step { .. } = event {
            steps.push(last.elapsed().as_secs_f64());
            let start = Instant::now();
            pass();
            passes.push(start.elapsed().as_secs_f64());
        }
        last = Instant::now();
        ControlFlow::Continue(())
    });
    run.expect("a run");
    // The first step comes after everything that happens once. Of the others the ratio to the passes beside it, in the mean: SOAP turns its bases in every tenth.
    let count = steps.len() as f64;
    let ratios: f64 = steps[1..].iter().zip(&passes[1..]).map(|(step, pass)| step / pass).sum();
    let passes = median(&mut passes);
    [passes * ratios / (count - 1.0), passes, count]
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
