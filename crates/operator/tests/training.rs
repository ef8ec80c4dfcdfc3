//! Whole runs on small data: they learn, and an interruption leaves no trace.

use burn::tensor::Device;
use galerkin::clock::{ClockLine, reaches, training_spent};
use galerkin::config::RunConfig;
use galerkin::evaluate::{Among, Evaluator, SampleLatents};
use galerkin::run::{RunFolder, Snapshot};
use galerkin::train::{Event, Outcome, Trainer};
use galerkin::{Error, Model, presets};
use galerkin_data::dataset::Statistics;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Darcy, Problem};
use galerkin_data::random_field::FieldLaw;
use galerkin_data::{Array, Dataset};
use std::ops::ControlFlow;
use std::path::Path;

/// 40 samples of a coarse problem, that of a preset.
fn dataset(folder: &Path, preset: &str) {
    let problem = match presets::problem(preset).unwrap() {
        Problem::Burgers(burgers) => Problem::Burgers(Burgers { points: 128, tolerance: 1e-5, ..burgers }),
        Problem::Darcy(darcy) => {
            let field = FieldLaw { modes: 33, ..FieldLaw::DARCY };
            Problem::Darcy(Darcy { points: 65, field, ..darcy })
        }
    };
    write_dataset(folder, &problem, 3, 40, |_| ControlFlow::Continue(())).unwrap();
}

/// A network of a few thousand parameters.
fn config(preset: &str, data: &Path, more: &[(&str, &str)]) -> RunConfig {
    let narrow = [
        ("network.encoder.width", "24"),
        ("network.encoder.hidden", "48"),
        ("network.encoder.layers", "2"),
        ("train.lr", "5e-3"),
    ];
    let small: &[(&str, &str)] = match preset {
        "burgers" => &[("data.grid", "64")],
        "fno-burgers" => {
            &[("data.grid", "64"), ("network.spectral.channels", "16"), ("network.spectral.layers", "2")]
        }
        "darcy" => &[("data.grid", "33"), ("network.lift.coarse", "9")],
        "darcy-multilevel" => &[
            ("data.grid", "33"),
            ("network.channels", "[8, 16, 24]"),
            ("network.encoder_layers", "[0, 1, 1]"),
        ],
        _ => &[("data.grid", "33"), ("network.lift.coarse", "9"), ("data.coarse", "9")],
    };
    let common = [
        ("data.train", "24"),
        ("data.validation", "6"),
        ("data.test", "8"),
        ("train.epochs", "4"),
        ("train.batch", "4"),
    ];
    let narrow = match preset {
        "fno-burgers" | "fno-darcy" => &[][..],
        "darcy-multilevel" => &narrow[3..],
        _ => &narrow,
    };
    let folder = ("data.folder", data.to_str().unwrap());
    let all = [&common[..], small, narrow, &[folder], more].concat();
    let sets: Vec<_> = all.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let keys: Vec<_> = sets.iter().map(|(key, _)| key.clone()).collect();
    presets::get(preset)
        .unwrap()
        .with(&sets)
        .unwrap()
        .fitted_to(&Dataset::open(data).unwrap(), &keys)
        .unwrap()
}

fn run_to_the_end(config: &RunConfig, folder: &RunFolder) -> Outcome {
    Trainer::new(config).out(folder.path()).run(&mut |_| ControlFlow::Continue(())).unwrap()
}

/// The files a finished run is compared by.
fn files(folder: &RunFolder) -> [Vec<u8>; 3] {
    [folder.weights_file(Snapshot::Last), folder.weights_file(Snapshot::Best), folder.log_file()]
        .map(|path| std::fs::read(path).unwrap())
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "burgers");
    let more =
        [("train.average", "0.9"), ("train.accumulate", "2"), ("network.encoder.residual_dropout", "0.1")];
    let config = config("burgers", &data, &more);
    let whole = RunFolder::new(temporary.path().join("whole"));
    assert_eq!(run_to_the_end(&config, &whole), Outcome::Finished);

    let parts = RunFolder::new(temporary.path().join("parts"));
    let go_on = |watch: &mut dyn FnMut(Event) -> ControlFlow<()>| {
        Trainer::new(&config).out(parts.path()).resume(true).device(&Device::flex()).run(watch).unwrap()
    };
    // 3 steps an epoch, 12 in all: stopped in the middle of an epoch, at its end, and twice at once.
    for stop in [1, 3, 3, 8] {
        let mut seen = 0;
        let watch = &mut |event: Event| match event {
            Event::Started { steps, .. } => {
                seen = steps;
                if steps >= stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Event::Step { steps, .. } if steps >= stop => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let threads = rayon::ThreadPoolBuilder::new().num_threads(stop as usize).build().unwrap();
        let outcome = threads.install(|| {
            let trainer = Trainer::new(&config).out(parts.path()).resume(true).device(&Device::flex());
            trainer.run(watch).unwrap()
        });
        assert_eq!(outcome, Outcome::Interrupted);
        assert!(seen <= stop);
    }
    let watch = &mut |_| ControlFlow::Continue(());
    assert_eq!(go_on(watch), Outcome::Finished);
    assert!(files(&whole) == files(&parts), "weights or log differ");

    // Nothing is left to do, and nothing changes.
    assert_eq!(go_on(watch), Outcome::Finished);
    assert!(files(&whole) == files(&parts));

    // Every epoch and checkpoint has a time, which is a sum over all parts.
    for (folder, steps) in [(&whole, &[3, 6, 9, 12, 12][..]), (&parts, &[1, 3, 3, 6, 8, 9, 12, 12])] {
        let text = std::fs::read_to_string(folder.clock_file()).unwrap();
        let lines: Vec<ClockLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| line.step).collect::<Vec<_>>(), steps);
        let epochs: Vec<_> = lines.iter().filter_map(|line| line.epoch).collect();
        assert_eq!(epochs, [1, 2, 3, 4]);
        assert!(lines.is_sorted_by(|a, b| a.spent.seconds < b.spent.seconds), "{text}");
        assert!(lines.iter().all(|line| line.since == 0 && line.spent.threads > 0), "{text}");
        assert_eq!(training_spent(folder), lines.last().map(|line| line.spent));
    }
    let validation = whole.history().unwrap().epochs[3].validation.mean;
    let reached = reaches(&whole, validation).unwrap().unwrap();
    assert!(reached.epoch <= 4 && reached.spent.is_some(), "{reached:?}");
    assert_eq!(reaches(&whole, 0.0).unwrap(), None);
}

/// Without its clock a run goes on to the same bits, and says that times are not those of the whole run.
#[test]
fn a_lost_clock_stops_no_run() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "burgers");
    let config = config("burgers", &data, &[("train.epochs", "2")]);
    let whole = RunFolder::new(temporary.path().join("whole"));
    run_to_the_end(&config, &whole);
    for (name, damage) in [("missing", None), ("damaged", Some("no clock\n"))] {
        let folder = RunFolder::new(temporary.path().join(name));
        let mut lost = Vec::new();
        for stop in [7, 12] {
            let trainer = Trainer::new(&config).out(folder.path()).resume(true);
            trainer
                .run(&mut |event| match event {
                    Event::ClockLost { why } => {
                        lost.push(why);
                        ControlFlow::Continue(())
                    }
                    Event::Step { steps, .. } if steps == stop => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                })
                .unwrap();
            match damage {
                _ if stop == 12 => {}
                None => std::fs::remove_file(folder.clock_file()).unwrap(),
                Some(text) => std::fs::write(folder.clock_file(), text).unwrap(),
            }
        }
        assert!(lost.len() == 1 && lost[0].contains("clock.jsonl"), "{lost:?}");
        assert!(files(&whole) == files(&folder), "weights or log differ");
        assert!(std::fs::read_to_string(folder.clock_file()).unwrap().contains("\"since\":7"));
        assert_eq!(training_spent(&folder), None);
    }
}

#[test]
fn other_settings_other_data_and_finished_folders_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "burgers");
    let small = config("burgers", &data, &[("train.epochs", "1")]);
    let folder = RunFolder::new(temporary.path().join("run"));
    run_to_the_end(&small, &folder);
    let again = |config: &RunConfig, resume: bool| {
        let trainer = Trainer::new(config).out(folder.path()).resume(resume);
        trainer.run(&mut |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    assert!(again(&small, false).contains("a run is here already"));
    let longer = config("burgers", &data, &[("train.epochs", "2")]);
    let error = again(&longer, true);
    assert!(error.contains("`epochs = 1` there, `epochs = 2` now"), "{error}");

    // One bit of the data.
    let path = data.join("targets.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = again(&small, true);
    assert!(error.contains("targets.npy") && error.contains("checksum"), "{error}");
}

#[test]
fn a_diverging_run_stops_and_names_its_place() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "burgers");
    let more =
        [("train.lr", "1e6"), ("schedule", "{ kind = \"constant\" }"), ("checkpoint.every_steps", "1")];
    let config = config("burgers", &data, &more);
    let folder = RunFolder::new(temporary.path().join("run"));
    let trainer = Trainer::new(&config).out(folder.path());
    let error = trainer.run(&mut |_| ControlFlow::Continue(())).unwrap_err();
    let Error::Diverged { step, rate, ref state, .. } = error else { panic!("{error}") };
    assert!(step >= 2 && rate == 1e6, "{error}");
    assert!(state.contains(&format!("step {} in", step - 1)), "{error}");
    let history = folder.history().unwrap();
    assert!(history.diverged && history.steps == step, "{history:?}");
}

/// Every preset learns more than its trivial predictors know: the mean of the training targets, and the input itself.
#[test]
fn every_preset_beats_the_trivial_predictors() {
    let temporary = tempfile::tempdir().unwrap();
    for (preset, epochs, factor) in [
        ("burgers", "40", 4.0),
        ("fno-burgers", "40", 4.0),
        ("darcy", "25", 1.5),
        ("darcy-multilevel", "25", 1.5),
        ("darcy-inverse", "25", 1.1),
    ] {
        let problem = presets::problem(preset).unwrap();
        let (on_a_line, inverse) = (matches!(problem, Problem::Burgers(_)), preset == "darcy-inverse");
        let data = temporary.path().join(if on_a_line { "burgers" } else { "darcy" });
        if !data.exists() {
            dataset(&data, preset);
        }
        let config = config(preset, &data, &[("train.epochs", epochs)]);
        assert_eq!(config.data.inverse, inverse, "{preset}");
        let folder = RunFolder::new(temporary.path().join(format!("{preset} run")));
        run_to_the_end(&config, &folder);

        let dataset = Dataset::open(&data).unwrap();
        let indices: Vec<usize> = (32..40).collect();
        let device = Device::flex();
        let evaluator = Evaluator::open(&folder, Snapshot::Last, None, Among::Unseen, &device).unwrap();
        let found = evaluator.evaluate(config.data.grid, config.data.noise.mean()).unwrap();
        let shown = evaluator.show(config.data.grid, config.data.noise.mean(), 2).unwrap();
        assert_eq!(shown.errors, found.per_sample[..2], "{preset}");
        let trivial = trivial_error(&config, &dataset, &indices);
        let error = found.relative_l2.mean;
        assert!(factor * error < trivial, "{preset}: {error:.3}, trivial {trivial:.3}");
        assert_eq!(found.solver.is_some(), !inverse);

        // The encoder layers of transformers on a square can be looked at, on the coarse grid and in its own order of points.
        let latents = evaluator.latents().unwrap();
        assert_eq!(latents.is_some(), !on_a_line && preset != "darcy-multilevel", "{preset}");
        if let Some(SampleLatents { coefficient, layers }) = latents {
            let coarse = 9;
            assert_eq!(config.data.coarse, inverse.then_some(coarse), "{preset}");
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

        // The model, which starts from raw inputs, predicts the same.
        if !inverse {
            let model = Model::open(&folder, Snapshot::Last, &device).unwrap();
            let view = dataset.clone().subsample_to(config.data.grid).unwrap();
            let pairs = view.batch(&indices).unwrap();
            let Array { shape, values } = model.predict(pairs.input).unwrap();
            assert_eq!(shape, pairs.target.shape);
            let errors = galerkin::metrics::relative_l2(&values, &pairs.target.values, 8).unwrap();
            let mean = errors.iter().flatten().sum::<f64>() / 8.0;
            assert!((mean - error).abs() < 1e-5 * error, "{preset}: {mean}, evaluated {error}");
        }
    }
}

/// The smaller error of two predictors that know nothing: the mean over the training samples, and the input as it is.
fn trivial_error(config: &RunConfig, dataset: &Dataset, indices: &[usize]) -> f64 {
    let view = dataset.clone().subsample_to(config.data.grid).unwrap();
    let view = if config.data.inverse { view.inverse(config.data.coarse).unwrap() } else { view };
    let mean = view.fit_targets(&(0..32).collect::<Vec<_>>(), Statistics::Point).unwrap().mean.values;
    let pairs = view.batch(indices).unwrap();
    let error = |prediction: &[f32]| {
        let errors = galerkin::metrics::relative_l2(prediction, &pairs.target.values, indices.len()).unwrap();
        errors.iter().flatten().sum::<f64>() / errors.len() as f64
    };
    let of_mean = error(&mean.repeat(indices.len()));
    // Of a time step the input is a state as the target is; a coefficient is something else.
    match config.network.axes() {
        1 => of_mean.min(error(&pairs.input.values)),
        _ => of_mean,
    }
}
