//! What the training loop adds to the passes through the model: data, optimiser, log.
//!
//! `cargo bench -p galerkin --bench training_loop`. Between any two steps of a real run the same model makes the same passes, loss
//! included, on a batch that is there already; both medians come from one run, and their ratio is the loop's overhead.

#![allow(clippy::print_stdout)]

use burn::tensor::Device;
use galerkin::config::RunConfig;
use galerkin::device::on_pool;
use galerkin::init::Builder;
use galerkin::layers::Mode;
use galerkin::models::Preset;
use galerkin::run::RunFolder;
use galerkin::train::{Event, Samples, Start, View, train};
use galerkin_data::Dataset;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Darcy, Problem};
use std::ops::ControlFlow;
use std::time::Instant;

fn main() {
    println!("{:<14} {:>12} {:>12} {:>10} {:>8}", "", "step ms", "passes ms", "overhead", "steps");
    for (preset, samples, epochs) in [
        (Preset::Burgers, 64, 25),
        (Preset::FnoBurgers, 64, 40),
        (Preset::Darcy, 16, 8),
        (Preset::FnoDarcy, 16, 25),
    ] {
        let [step, passes, count] = on_pool(|| measure(preset, samples, epochs));
        let overhead = 100.0 * (step / passes - 1.0);
        println!(
            "{:<14} {:>12.2} {:>12.2} {overhead:>8.1} % {count:>8}",
            preset.name(),
            1e3 * step,
            1e3 * passes
        );
    }
}

/// Median seconds of a step and of the passes alone, and the number of steps.
fn measure(preset: Preset, samples: usize, epochs: u32) -> [f64; 3] {
    let temporary = tempfile::tempdir().expect("a folder to work in");
    let mut config = RunConfig::preset(preset);
    config.data.folder = temporary.path().join("data");
    (config.data.train, config.data.validation, config.data.test) = (samples, 4, 0);
    config.train.epochs = epochs;
    // Steps are compared, not what is written every few minutes.
    config.checkpoint.every_minutes = 0.0;
    let problem = match preset {
        Preset::Burgers | Preset::FnoBurgers => {
            Problem::Burgers(Burgers { points: config.data.grid, tolerance: 1e-5, ..Burgers::default() })
        }
        _ => Problem::Darcy(Darcy { points: config.data.grid, ..Darcy::default() }),
    };
    let count = (samples + 4) as u32;
    write_dataset(&config.data.folder, &problem, 1, count, |_| ControlFlow::Continue(())).expect("a dataset");

    let device = Device::flex();
    let tracked = device.clone().autodiff();
    let model =
        config.model_config().and_then(|model| model.init(&mut Builder::new(1, &tracked))).expect("a model");
    let dataset = Dataset::open(&config.data.folder).expect("the dataset");
    let places: Vec<usize> = (0..config.train.batch).collect();
    let view = View::of(&config.data, 1, None);
    let batch = Samples::load(&dataset, &view, &places, true, &device).expect("samples");
    let (grid, batch) = (batch.grid.clone(), batch.batch(&places, &tracked).expect("a batch"));
    let pass = || {
        let prediction =
            model.forward(batch.input.clone(), Mode::Train { seed: 1, step: 1 }).expect("a prediction");
        drop(batch.loss(prediction, &grid, config.loss).expect("a loss").total.backward());
    };

    let (mut steps, mut passes) = (Vec::new(), Vec::new());
    let mut last = Instant::now();
    let folder = RunFolder::new(temporary.path().join("run"));
    train(&config, &folder, Start::Fresh, None, &device, &mut |event| {
        if let Event::Step { .. } = event {
            steps.push(last.elapsed().as_secs_f64());
            let start = Instant::now();
            pass();
            passes.push(start.elapsed().as_secs_f64());
        }
        last = Instant::now();
        ControlFlow::Continue(())
    })
    .expect("a run");
    // The first step comes after everything that happens once.
    let count = steps.len() as f64;
    [median(&mut steps[1..]), median(&mut passes), count]
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
