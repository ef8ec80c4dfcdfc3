//! Whole runs on small data: they learn, and an interruption leaves no trace.

use burn::tensor::Device;
use galerkin::config::{RunConfig, Task};
use galerkin::evaluate::{Evaluator, Latents};
use galerkin::models::Preset;
use galerkin::predict::Predictor;
use galerkin::run::{Error, RunFolder, Which};
use galerkin::train::{Event, Outcome, Start, train};
use galerkin_data::dataset::Statistics;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Darcy, Problem};
use galerkin_data::random_field::FieldLaw;
use galerkin_data::{Array, Dataset};
use std::ops::ControlFlow;
use std::path::Path;

/// 40 samples of a coarse problem.
fn dataset(folder: &Path, task: Task) {
    let problem = match task {
        Task::Burgers => Problem::Burgers(Burgers { points: 128, tolerance: 1e-5, ..Burgers::default() }),
        Task::Darcy | Task::DarcyInverse => {
            let field = FieldLaw { modes: 33, ..FieldLaw::DARCY };
            Problem::Darcy(Darcy { points: 65, field, ..Darcy::default() })
        }
    };
    write_dataset(folder, &problem, 3, 40, |_| ControlFlow::Continue(())).unwrap();
}

/// A network of a few thousand parameters.
fn config(preset: Preset, data: &Path, more: &[(&str, &str)]) -> RunConfig {
    let small: &[(&str, &str)] = match preset {
        Preset::Burgers => &[
            ("data.grid", "64"),
            ("model.width", "24"),
            ("model.layers", "2"),
            ("data.train", "24"),
            ("train.lr", "5e-3"),
        ],
        Preset::FnoBurgers => &[("data.grid", "64"), ("model.width", "16"), ("model.layers", "2")],
        _ => &[
            ("data.grid", "33"),
            ("data.coarse", "9"),
            ("model.width", "24"),
            ("model.layers", "2"),
            ("train.lr", "5e-3"),
        ],
    };
    let common = [
        ("data.train", "24"),
        ("data.validation", "6"),
        ("data.test", "8"),
        ("train.epochs", "4"),
        ("train.batch", "4"),
    ];
    let folder = ("data.folder", data.to_str().unwrap());
    let all = [&common[..], small, &[folder], more].concat();
    let sets: Vec<_> = all.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    RunConfig::preset(preset).with(&sets).unwrap()
}

fn run_to_the_end(config: &RunConfig, folder: &RunFolder) -> Outcome {
    train(config, folder, Start::Fresh, None, &Device::flex(), &mut |_| ControlFlow::Continue(())).unwrap()
}

/// The files a finished run is compared by.
fn files(folder: &RunFolder) -> [Vec<u8>; 3] {
    [folder.weights_file(Which::Last), folder.weights_file(Which::Best), folder.log_file()]
        .map(|path| std::fs::read(path).unwrap())
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, Task::Burgers);
    let more = [("train.average", "0.9"), ("train.accumulate", "2"), ("model.residual_dropout", "0.1")];
    let config = config(Preset::Burgers, &data, &more);
    let whole = RunFolder::new(temporary.path().join("whole"));
    assert_eq!(run_to_the_end(&config, &whole), Outcome::Finished);

    let parts = RunFolder::new(temporary.path().join("parts"));
    // 3 steps an epoch, 12 in all: stopped in the middle of an epoch, at its end, and twice at once.
    for stop in [1, 3, 3, 8] {
        let mut seen = 0;
        let watch = &mut |event| match event {
            Event::Started { steps, .. } => {
                seen = steps;
                if steps >= stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Event::Step { steps, .. } if steps >= stop => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let threads = rayon::ThreadPoolBuilder::new().num_threads(stop as usize).build().unwrap();
        let outcome =
            threads.install(|| train(&config, &parts, Start::Resume, None, &Device::flex(), watch)).unwrap();
        assert_eq!(outcome, Outcome::Interrupted);
        assert!(seen <= stop);
    }
    let watch = &mut |_| ControlFlow::Continue(());
    assert_eq!(
        train(&config, &parts, Start::Resume, None, &Device::flex(), watch).unwrap(),
        Outcome::Finished
    );
    assert!(files(&whole) == files(&parts), "weights or log differ");

    // Nothing is left to do, and nothing changes.
    assert_eq!(
        train(&config, &parts, Start::Resume, None, &Device::flex(), watch).unwrap(),
        Outcome::Finished
    );
    assert!(files(&whole) == files(&parts));
}

#[test]
fn other_settings_other_data_and_finished_folders_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, Task::Burgers);
    let small = config(Preset::Burgers, &data, &[("train.epochs", "1")]);
    let folder = RunFolder::new(temporary.path().join("run"));
    run_to_the_end(&small, &folder);
    let again = |config: &RunConfig, start| {
        let watch = &mut |_| ControlFlow::Continue(());
        train(config, &folder, start, None, &Device::flex(), watch).unwrap_err().to_string()
    };
    assert!(again(&small, Start::Fresh).contains("a run is here already"));
    let longer = config(Preset::Burgers, &data, &[("train.epochs", "2")]);
    let error = again(&longer, Start::Resume);
    assert!(error.contains("`epochs = 1` there, `epochs = 2` now"), "{error}");

    // One bit of the data.
    let path = data.join("targets.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = again(&small, Start::Resume);
    assert!(error.contains("targets.npy") && error.contains("checksum"), "{error}");
}

#[test]
fn a_diverging_run_stops_and_names_its_place() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, Task::Burgers);
    let more =
        [("train.lr", "1e6"), ("schedule", "{ kind = \"constant\" }"), ("checkpoint.every_steps", "1")];
    let config = config(Preset::Burgers, &data, &more);
    let folder = RunFolder::new(temporary.path().join("run"));
    let watch = &mut |_| ControlFlow::Continue(());
    let error = train(&config, &folder, Start::Fresh, None, &Device::flex(), watch).unwrap_err();
    let Error::Diverged { step, rate, ref state, .. } = error else { panic!("{error}") };
    assert!(step >= 2 && rate == 1e6, "{error}");
    assert!(state.contains(&format!("step {} in", step - 1)), "{error}");
    let history = folder.history().unwrap();
    assert!(history.diverged && history.steps == step, "{history:?}");
}

/// Every task learns more than its trivial predictors know: the mean of the training targets, and the input itself.
#[test]
fn every_task_beats_the_trivial_predictors() {
    let temporary = tempfile::tempdir().unwrap();
    for (preset, epochs, factor) in [
        (Preset::Burgers, "40", 4.0),
        (Preset::FnoBurgers, "40", 4.0),
        (Preset::Darcy, "25", 1.5),
        (Preset::DarcyInverse, "25", 1.1),
    ] {
        let task = RunConfig::preset(preset).data.task;
        let data = temporary.path().join(if task == Task::Burgers { "burgers" } else { "darcy" });
        if !data.exists() {
            dataset(&data, task);
        }
        let config = config(preset, &data, &[("train.epochs", epochs)]);
        let folder = RunFolder::new(temporary.path().join(preset.name()));
        run_to_the_end(&config, &folder);

        let dataset = Dataset::open(&data).unwrap();
        let indices: Vec<usize> = (32..40).collect();
        let device = Device::flex();
        let evaluator = Evaluator::open(&folder, Which::Last, None, &device).unwrap();
        let found = evaluator.evaluate(config.data.grid, config.data.noise).unwrap();
        let shown = evaluator.show(config.data.grid, config.data.noise, 2).unwrap();
        assert_eq!(shown.errors, found.per_sample[..2], "{preset}");
        let trivial = trivial_error(&config, &dataset, &indices);
        let error = found.relative_l2.mean;
        assert!(factor * error < trivial, "{preset}: {error:.3}, trivial {trivial:.3}");
        assert_eq!(found.solver.is_some(), task != Task::DarcyInverse);

        // The encoder layers of transformers on a square can be looked at, on the coarse grid and in its own order of points.
        let latents = evaluator.latents().unwrap();
        assert_eq!(latents.is_some(), task != Task::Burgers, "{preset}");
        if let Some(Latents { coefficient, layers }) = latents {
            let coarse = config.data.coarse.unwrap();
            assert_eq!(coefficient.shape, [coarse, coarse, 1]);
            let finest = dataset.sample(32).unwrap().input;
            let side = finest.shape[0];
            // Bilinear interpolation keeps the corners and goes beyond no value.
            assert_eq!(coefficient.values[coarse - 1], finest.values[side - 1]);
            assert!(coefficient.values.iter().all(|a| (3.0..=12.0).contains(a)));
            let names: Vec<&str> = layers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["encoder_layers.0", "encoder_layers.1"]);
            for (name, layer) in &layers {
                assert_eq!(layer.shape[..2], [coarse, coarse], "{preset}: {name}");
                assert_eq!(layer.values.len(), layer.shape.iter().product::<usize>());
                assert!(layer.values.iter().all(|v| v.is_finite()));
            }
        }

        // The predictor, which starts from raw inputs, predicts the same.
        if task != Task::DarcyInverse {
            let predictor = Predictor::open(&folder, Which::Last, &device).unwrap();
            let view = dataset.clone().subsample_to(config.data.grid).unwrap();
            let pairs = view.batch(&indices).unwrap();
            let Array { shape, values } = predictor.predict(pairs.input).unwrap();
            assert_eq!(shape, pairs.target.shape);
            let errors = galerkin::metrics::relative_l2(&values, &pairs.target.values, 8).unwrap();
            let mean = errors.iter().sum::<f64>() / 8.0;
            assert!((mean - error).abs() < 1e-5 * error, "{preset}: {mean}, evaluated {error}");
        }
    }
}

/// The smaller error of two predictors that know nothing: the mean over the training samples, and the input as it is.
fn trivial_error(config: &RunConfig, dataset: &Dataset, indices: &[usize]) -> f64 {
    let view = dataset.clone().subsample_to(config.data.grid).unwrap();
    let view = match config.data.task {
        Task::DarcyInverse => view.inverse(config.data.coarse).unwrap(),
        Task::Burgers | Task::Darcy => view,
    };
    let mean = view.fit_targets(&(0..32).collect::<Vec<_>>(), Statistics::Point).unwrap().mean.values;
    let pairs = view.batch(indices).unwrap();
    let error = |prediction: &[f32]| {
        let errors = galerkin::metrics::relative_l2(prediction, &pairs.target.values, indices.len()).unwrap();
        errors.iter().sum::<f64>() / errors.len() as f64
    };
    let of_mean = error(&mean.repeat(indices.len()));
    match config.data.task {
        Task::Burgers => of_mean.min(error(&pairs.input.values)),
        Task::Darcy | Task::DarcyInverse => of_mean,
    }
}
