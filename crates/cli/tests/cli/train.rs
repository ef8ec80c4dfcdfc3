//! Generate, train, be killed, resume, evaluate, predict.

use crate::Desk;
use std::time::Duration;

/// A network of some thousand parameters, for forty samples.
const SMALL: &str = "--set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.batch=4 \
    --set network.encoder.width=24 --set network.encoder.hidden=48 --set network.encoder.layers=2 --set train.lr=5e-3";

fn with_data() -> Desk {
    let desk = Desk::new();
    desk.works("generate burgers --samples 40 --grid 128 --modes 64 --tolerance 1e-5 --out data -q");
    desk
}

#[test]
fn a_run_killed_at_any_moment_ends_with_the_same_bytes() {
    killed_and_resumed("--set train.augment=[] --set optimizer.kind=adam");
}

/// What happens to a sample is a function of seed, epoch and sample, not of what was drawn before.
#[test]
fn an_augmented_run_killed_at_any_moment_ends_with_the_same_bytes() {
    killed_and_resumed("--set data.noise=[0,0.1]");
}

fn killed_and_resumed(more: &str) {
    let desk = with_data();
    let words = format!(
        "train burgers {more} --data data {SMALL} --set train.epochs=30 --set checkpoint.every_steps=7 -q"
    );
    desk.works(&format!("{words} --out whole"));
    let mut killed = 0;
    // Moments from before the first step to the middle of the run, wherever the machine is then.
    for milliseconds in [20, 90, 150, 210, 330] {
        let mut child = desk.command(&format!("{words} --out parts --resume")).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(killed > 0, "every run was over before it was killed");
    desk.works(&format!("{words} --out parts --resume"));
    for file in ["model.safetensors", "best.safetensors", "log.jsonl", "config.toml"] {
        let [whole, parts] = ["whole", "parts"].map(|run| std::fs::read(desk.path(run).join(file)).unwrap());
        assert!(whole == parts, "{file} differs");
    }
}

#[test]
fn an_augmented_run_has_the_same_bytes_with_any_number_of_threads() {
    let desk = with_data();
    let words = format!("train burgers --data data {SMALL} --set train.epochs=3 --set data.noise=0.05 -q");
    for threads in ["1", "2"] {
        let mut command = desk.command(&format!("{words} --out threads{threads}"));
        assert!(command.env("RAYON_NUM_THREADS", threads).status().unwrap().success());
    }
    for file in ["model.safetensors", "best.safetensors", "log.jsonl"] {
        let [one, two] = ["1", "2"].map(|n| std::fs::read(desk.path(&format!("threads{n}/{file}"))).unwrap());
        assert!(one == two, "{file} differs");
    }
    // Another run than without symmetries.
    desk.works(&format!("{words} --set train.augment=[] --out plain"));
    let [plain, augmented] =
        ["plain", "threads1"].map(|run| std::fs::read(desk.path(run).join("log.jsonl")).unwrap());
    assert!(plain != augmented);
}

#[test]
fn predictions_are_averaged_over_the_symmetries_of_the_run_or_of_its_problem() {
    let desk = with_data();
    desk.works(&format!(
        "train burgers --data data {SMALL} --set train.epochs=1 --set train.augment=[] --out run -q"
    ));
    let evaluate = |words: &str| -> serde_json::Value {
        serde_json::from_str(&desk.works(&format!("evaluate run --json {words}"))).unwrap()
    };
    let plain = evaluate("")["evaluations"][0].clone();
    let symmetric = evaluate("--symmetric")["evaluations"][0].clone();
    assert_eq!((&plain["symmetric"], &symmetric["symmetric"]), (&false.into(), &true.into()));
    assert_ne!(plain["relative_l2"], symmetric["relative_l2"]);
    // They stand beside each other.
    let metrics = std::fs::read_to_string(desk.path("run/metrics.json")).unwrap();
    let metrics: serde_json::Value = serde_json::from_str(&metrics).unwrap();
    assert_eq!(metrics["evaluations"].as_array().unwrap().len(), 2);
    assert!(desk.works("evaluate run --symmetric").contains("model, mean over symmetries"));
    assert!(desk.works("info run").contains("last weights, mean over symmetries"));

    // The mean commutes with (x, u) → (−x, −u): so does the prediction of the turned inputs.
    let read = |name: &str| {
        let file = galerkin_data::io::open(desk.path(name)).unwrap();
        file.read(&file.variables()[0].name).unwrap()
    };
    let turn = |values: &[f32]| -> Vec<f32> {
        values.chunks_exact(128).flat_map(|u| (0..128).map(|j| -u[(128 - j) % 128])).collect()
    };
    let inputs = read("data/inputs.npy");
    let mut bytes = galerkin_data::io::npy::header(&inputs.shape);
    bytes.extend(turn(&inputs.values).iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(desk.path("turned.npy"), bytes).unwrap();
    let predict = |input: &str, words: &str| {
        desk.works(&format!("predict run --input {input} --output y.npy -q {words}"));
        read("y.npy").values
    };
    let difference = |words: &str| {
        let [expected, found] = [turn(&predict("data/inputs.npy", words)), predict("turned.npy", words)];
        expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    assert!(difference("") > 1e-3);
    // Two terms in another order, in f64, rounded to f32 once: values are below 4.
    assert!(difference("--symmetric") < 1e-6);

    // A run of which no symmetry is known.
    std::fs::remove_file(desk.path("run/dataset.toml")).unwrap();
    let error = desk.fails("predict run --symmetric --input turned.npy --output z.npy", 2);
    assert!(error.contains("there is no flip and no transposition in its train.augment"), "{error}");
}

#[test]
fn a_run_trained_on_a_range_of_noise_is_evaluated_at_both_ends() {
    let desk = with_data();
    desk.works(&format!(
        "train burgers --data data {SMALL} --set train.epochs=1 --set data.noise=[0,0.1] --out run -q"
    ));
    let noises = |words: &str| -> Vec<f64> {
        let json: serde_json::Value =
            serde_json::from_str(&desk.works(&format!("evaluate run --json {words}"))).unwrap();
        json["evaluations"].as_array().unwrap().iter().map(|e| e["noise"].as_f64().unwrap()).collect()
    };
    assert_eq!(noises(""), [0.0, 0.1]);
    assert_eq!(noises("--noise 0.05"), [0.05]);
    assert!(desk.works("info run").contains("noise 0 to 0.1"));
    desk.works("plot run --samples 1");
}

#[test]
fn preconditioned_optimisers_go_on_to_the_same_bytes_with_other_threads() {
    let desk = with_data();
    for kind in ["soap", "muon"] {
        let words = format!(
            "train burgers --data data {SMALL} --set optimizer.kind={kind} --set train.epochs=4 --set checkpoint.every_steps=5 -q"
        );
        let run = |out: &str, threads: &str, milliseconds: Option<u64>| {
            let mut command = desk.command(&format!("{words} --out {out} --resume"));
            let mut child = command.env("RAYON_NUM_THREADS", threads).spawn().unwrap();
            if let Some(milliseconds) = milliseconds {
                std::thread::sleep(Duration::from_millis(milliseconds));
                child.kill().unwrap();
            }
            child.wait().unwrap();
        };
        let (whole, parts) = (format!("{kind}-whole"), format!("{kind}-parts"));
        run(&whole, "1", None);
        for milliseconds in [150, 300] {
            run(&parts, "2", Some(milliseconds));
        }
        run(&parts, "3", None);
        for file in ["model.safetensors", "best.safetensors", "log.jsonl", "config.toml"] {
            let [one, other] = [&whole, &parts].map(|run| std::fs::read(desk.path(run).join(file)).unwrap());
            assert!(one == other, "{kind}: {file} differs");
        }
        let config = std::fs::read_to_string(desk.path(&whole).join("config.toml")).unwrap();
        assert!(config.contains(&format!("kind = \"{kind}\"")), "{config}");
    }
}

#[test]
fn a_trained_run_is_evaluated_and_predicts() {
    let desk = with_data();
    desk.works(&format!("train burgers --data data {SMALL} --set train.epochs=30 --out run -q"));
    let said = desk.works("evaluate run --grid 64 --grid 128 --json");
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let [trained, finer] = [&json["evaluations"][0], &json["evaluations"][1]];
    assert_eq!((&trained["grid"], &finer["grid"], &trained["samples"]), (&64.into(), &128.into(), &8.into()));
    let [mean, finest] = [trained, finer].map(|e| e["relative_l2"]["mean"].as_f64().unwrap());
    assert!(mean > 0.0 && mean < 0.3, "{mean}");
    assert!(finest < 2.0 * mean, "{finest} on the finer grid, {mean} on that of training");
    assert!(trained["relative_l2"]["max"].as_f64().unwrap() >= mean);
    // The solver starts from 64 of the points the data were made with.
    assert!(trained["solver"]["relative_l2"]["mean"].as_f64().unwrap() < 0.1 * mean);
    let table = desk.works("evaluate run --best");
    assert!(table.contains("rel. L2 mean") && table.contains("solver"), "{table}");

    let said = desk.works("predict run --input data/inputs.npy --output y.npy -q");
    assert!(said.contains("40 × 128 × 1"), "{said}");
    let file = galerkin_data::io::open(desk.path("y.npy")).unwrap();
    assert_eq!(file.variables()[0].shape, [40, 128, 1]);

    // The dataset may move; its test samples are known by what it says of itself. Of another one all samples are taken.
    std::fs::rename(desk.path("data"), desk.path("moved")).unwrap();
    assert!(desk.fails("evaluate run", 1).contains("its dataset data is not there; name one by --data"));
    let samples = |words: &str| {
        let json: serde_json::Value = serde_json::from_str(&desk.works(words)).unwrap();
        json["evaluations"][0]["samples"].as_u64().unwrap()
    };
    assert_eq!(samples("evaluate run --data moved --json"), 8);
    desk.works("generate burgers --samples 5 --grid 64 --modes 32 --tolerance 1e-5 --seed 3 --out other -q");
    assert_eq!(samples("evaluate run --data other --json"), 5);
}

/// Square problems, forward and inverse: trained, resumed, evaluated, drawn, and better than the mean of all targets.
#[test]
fn square_problems_go_from_data_to_figures() {
    let desk = Desk::new();
    desk.works("generate darcy --samples 40 --grid 65 --modes 33 --out data -q");
    let small = "--data data --set data.grid=33 --set network.lift.coarse=9 --set data.train=24 --set data.validation=6 --set data.test=8 \
        --set train.batch=4 --set train.lr=5e-3 --set network.encoder.width=24 --set network.encoder.hidden=48 --set network.encoder.layers=2 -q";
    for (preset, factor) in [("darcy", 1.5), ("darcy-inverse", 1.1)] {
        let train = |more: &str| format!("train {preset} {small} --out {preset} {more}");
        desk.works(&train("--set train.epochs=25 --tensorboard"));
        let resumed = desk.works(&train("--set train.epochs=25 --resume"));
        assert!(resumed.contains("150 of 150 steps"), "{resumed}");
        let noise = if preset == "darcy-inverse" { "--noise 0 --noise 0.1" } else { "" };
        let said = desk.works(&format!("evaluate {preset} --grid 33 --grid 65 {noise} --json"));
        let json: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = json["evaluations"].as_array().unwrap();
        assert_eq!(found.len(), if noise.is_empty() { 2 } else { 4 });
        assert_eq!(found[0]["solver"].is_object(), preset == "darcy");
        let error = found[0]["relative_l2"]["mean"].as_f64().unwrap();
        let trivial = mean_as_output(&desk, preset == "darcy-inverse");
        assert!(factor * error < trivial, "{preset}: {error:.3}, the mean has {trivial:.3}");

        desk.works(&format!("predict {preset} --input data/targets.npy --output y.npy -q"));
        std::fs::remove_file(desk.path("y.npy")).unwrap();
        let drawn = desk.works(&format!("plot {preset} --samples 2"));
        let mut expected = vec!["convergence", "samples", "latents", "resolutions"];
        expected.extend((preset == "darcy-inverse").then_some("noise"));
        assert_eq!(drawn.lines().count(), expected.len(), "{drawn}");
        for name in expected {
            let [png, svg] = ["png", "svg"].map(|end| desk.path(&format!("{preset}/figures/{name}.{end}")));
            assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"), "{}", png.display());
            assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"), "{}", svg.display());
        }
        let info = desk.works(&format!("info {preset}"));
        assert!(info.contains("150 of 150 steps") && info.contains("on grid 65"), "{info}");
        let board = std::fs::read_dir(desk.path(&format!("{preset}/tensorboard"))).unwrap();
        assert_eq!(board.count(), 1);
    }
}

/// Its grids, what is interpolated on which, errors beside those on the grid of the training, and the figure.
#[test]
fn errors_on_a_range_of_grids_are_tabled_and_drawn() {
    let desk = with_data();
    desk.works(&format!("train burgers --data data {SMALL} --set train.epochs=4 --out run -q"));
    let said = desk.run("evaluate run --resolutions");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let mut lines = said.out.lines();
    assert!(lines.next().unwrap().contains("to training grid"), "{}", said.out);
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    let models: Vec<&Vec<&str>> = rows.iter().filter(|row| row[0] == "model").collect();
    let grids: Vec<usize> = models.iter().map(|row| row[1].parse().unwrap()).collect();
    assert!(grids.is_sorted() && [32, 64, 128].iter().all(|grid| grids.contains(grid)), "{grids:?}");
    for (row, grid) in models.iter().zip(&grids) {
        // Grids between the dataset's points have targets that are interpolated.
        assert_eq!(row[2] == "*", 128 % grid != 0, "{row:?}");
        let ratio: f64 = row[row.len() - 2].parse().unwrap();
        assert!(if *grid == 64 { ratio == 1.0 } else { ratio > 0.0 }, "{row:?}");
    }
    assert_eq!(said.err.contains("* the targets are interpolated"), grids.iter().any(|grid| 128 % grid != 0));
    assert!(said.err.contains("drew run/figures/resolutions.png and .svg"), "{}", said.err);
    for end in ["png", "svg"] {
        assert!(desk.path(&format!("run/figures/resolutions.{end}")).exists());
    }
    assert!(desk.works("info run").contains("on grid 32"));
}

/// Relative L² error on the test samples of the mean of the others, on the grid of training or the coarse one.
fn mean_as_output(desk: &Desk, inverse: bool) -> f64 {
    let data = galerkin_data::Dataset::open(desk.path("data")).unwrap().subsample_to(33).unwrap();
    let data = if inverse { data.inverse(Some(9)).unwrap() } else { data };
    let mean = data
        .fit_targets(&(0..32).collect::<Vec<_>>(), galerkin_data::dataset::Statistics::Point)
        .unwrap()
        .mean
        .values;
    let tests = data.batch(&(32..40).collect::<Vec<_>>()).unwrap().target.values;
    let errors = galerkin::metrics::relative_l2(&mean.repeat(8), &tests, 8).unwrap();
    errors.iter().flatten().sum::<f64>() / 8.0
}

#[test]
fn a_run_that_cannot_fit_leaves_nothing_behind() {
    let desk = with_data();
    let train = |more: &str| desk.fails(&format!("train burgers --data data {SMALL} {more} --out run -q"), 1);
    let error = train("--set train.epochs=1000000 --hours 0.001");
    assert!(error.contains("h are allowed; train.epochs = "), "{error}");
    let error = train("--set train.batch=24 --set network.encoder.width=20000");
    assert!(error.contains("MB are free"), "{error}");
    assert_eq!(desk.names(), ["data"]);
    for folder in ["data/inputs.npy/run", "/proc/run"] {
        let words = format!("train burgers --data data {SMALL} --set train.epochs=1 --out {folder} -q");
        assert!(desk.fails(&words, 1).contains(folder));
    }
}

/// Files that may not grow as large as a checkpoint stand for a disk that is full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_last_good_state() {
    let desk = with_data();
    let words = format!(
        "train burgers --data data {SMALL} --set train.epochs=8 --set checkpoint.every_steps=6 --out run --resume -q"
    );
    desk.works(&words);
    let read = |file: &str| std::fs::read(desk.path(file)).unwrap();
    let files = ["run/model.safetensors", "run/log.jsonl", "run/checkpoint/0000000048.safetensors"];
    let whole = files.map(read);
    // As if it had been killed before its last checkpoint.
    std::fs::remove_file(desk.path(files[2])).unwrap();
    let good = read("run/checkpoint/0000000042.safetensors");

    let limited = format!("trap '' XFSZ; ulimit -f 64; exec \"$0\" {words}");
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &limited, env!("CARGO_BIN_EXE_galerkin")]).current_dir(desk.path(""));
    let output = shell.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: run/") && error.contains("File too large"), "{error}");
    let left: Vec<_> = std::fs::read_dir(desk.path("run/checkpoint")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(read("run/checkpoint/0000000042.safetensors") == good);

    desk.works(&words);
    for (file, before) in files.iter().zip(whole) {
        assert!(read(file) == before, "{file} differs");
    }
}

#[test]
fn wrong_settings_and_folders_are_named() {
    let desk = with_data();
    let train =
        |more: &str, code: i32| desk.fails(&format!("train burgers --data data {SMALL} {more} -q"), code);
    assert!(train("--set train.epoch=3 --out a", 2).contains("epoch"));
    assert!(train("--set network.encoder.attention=magic --out a", 2).contains("magic"));
    assert!(train("--set data.train=1000 --out a", 2).contains("the dataset has 40"));
    assert!(train("--set data.grid=100 --out a", 2).contains("sizes that work"));
    assert!(train("--device vulkan --out a", 2).contains("vulkan"));
    assert!(train("--set train.augment=[\"turn\"] --out a", 2).contains("there is no \"turn\""));
    assert!(train("--set train.augment=[\"transpose\"] --out a", 2).contains("there are 1 axes"));
    assert!(train("--set train.augment=[\"transpose\",\"transpose\"] --out a", 2).contains("twice"));
    assert!(train("--set data.noise=[0.1,0] --out a", 2).contains("data.noise = 0.1 to 0"));
    assert!(train("--set data.noise=word --out a", 2).contains("a range [low, high]"));
    assert!(desk.fails("train heat --out a", 2).contains("there are burgers, darcy"));
    assert!(desk.fails("train burgers --data nowhere --out a", 2).contains("nowhere: no such dataset"));
    assert!(desk.fails("evaluate data", 1).contains("no folder of a run"));
    assert!(desk.fails("config heat", 2).contains("there are burgers, darcy"));

    desk.works(&format!("train burgers --data data {SMALL} --set train.epochs=1 --out run -q"));
    assert!(train("--set train.epochs=1 --out run", 1).contains("a run is here already"));
    assert!(train("--set train.epochs=2 --out run --resume", 1).contains("epochs = 1"));
    assert!(desk.fails("predict run --input data/meta.toml --output y.npy", 1).contains("meta.toml"));
    assert!(desk.fails("predict run --input nowhere.npy --output y.npy", 1).contains("nowhere.npy"));
    assert!(desk.fails("evaluate run --grid 100", 2).contains("sizes that work"));
    assert!(desk.fails("plot data", 1).contains("no folder of a run"));
    assert!(desk.fails("info run --figure", 1).contains("`galerkin plot run`"));
    assert!(desk.fails("demo -q --out data/inputs.npy", 1).contains("data/inputs.npy"));
    assert!(desk.fails("train burgers --data data --hours never --out a", 2).contains("number of hours"));
    // Without its data a run still has a log.
    std::fs::rename(desk.path("data"), desk.path("gone")).unwrap();
    let said = desk.run("plot run");
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert!(said.err.contains("no samples are drawn: run: its dataset data is not there"), "{}", said.err);
    assert!(!desk.path("y.npy").exists());
}

#[test]
fn a_printed_config_trains() {
    let desk = with_data();
    let config = desk.works("config fno-burgers");
    assert!(config.contains("# samples to train on"), "{config}");
    std::fs::write(desk.path("mine.toml"), config).unwrap();
    let small = "--set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.epochs=1";
    desk.works(&format!(
        "train mine.toml --data data {small} --set network.spectral.channels=8 --out run -q"
    ));
    desk.works("evaluate run");
}

#[test]
fn published_weights_become_a_run() {
    let desk = Desk::new();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../operator/tests/golden/checkpoint/ex1_galerkin.pt");
    let error = desk.fails(&format!("import-weights {golden} --preset burgers --out run"), 1);
    assert!(error.contains("weights do not fit the model"), "{error}");
    assert!(!desk.path("run").exists());

    let sizes = "--set network.encoder.width=24 --set network.encoder.hidden=48 --set network.decoder.channels=12 \
        --set network.decoder.feed_forward=12 --set network.decoder.modes=6";
    desk.works(&format!("import-weights {golden} --preset burgers {sizes} --out run"));
    desk.works("generate burgers --samples 2 --grid 32 --modes 16 --tolerance 1e-5 --out data -q");
    desk.works("predict run --input data/inputs.npy --output y.npy -q");
    assert!(desk.works("evaluate run --data data --grid 32").contains("model"));
}

/// From a clone, without training: samples of the law it was trained on, which it has not seen.
#[test]
fn the_pretrained_models_predict() {
    let desk = Desk::new();
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pretrained/burgers");
    desk.works("generate burgers --samples 8 --grid 1024 --seed 7 --out data -q");
    desk.works(&format!("predict {run} --input data/inputs.npy --output y.npy -q"));
    let read = |name: &str| {
        let file = galerkin_data::io::open(desk.path(name)).unwrap();
        file.read(&file.variables()[0].name).unwrap().values
    };
    let errors = galerkin::metrics::relative_l2(&read("y.npy"), &read("data/targets.npy"), 8).unwrap();
    let mean = errors.iter().flatten().sum::<f64>() / 8.0;
    // 5.4e-4 on average over a hundred samples, 2.7e-3 at most.
    assert!(mean < 1.5e-3, "{errors:?}");

    // A coefficient that jumps is seen at every fifth point, so the solution it belongs to is that of the fine grid.
    desk.works("generate darcy --samples 4 --seed 7 --out square -q");
    // 3.9e-3 on average over a hundred samples, 8.0e-3 at most.
    assert!(pretrained_error(&desk, "darcy", "") < 8e-3);
    // 1.8e-2 on average over a hundred samples, 3.8e-2 at most.
    assert!(pretrained_error(&desk, "darcy-inverse", "--noise 0.01") < 3.8e-2);
}

/// Mean relative L² error on `square`. A copy is evaluated, because an evaluation leaves its numbers in the run.
fn pretrained_error(desk: &Desk, name: &str, noise: &str) -> f64 {
    let run = desk.path(name);
    std::fs::create_dir(&run).unwrap();
    for file in ["model.safetensors", "normalizer.safetensors", "config.toml", "dataset.toml"] {
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pretrained");
        std::fs::copy(format!("{from}/{name}/{file}"), run.join(file)).unwrap();
    }
    let said = desk.works(&format!("evaluate {name} --data square --grid 85 {noise}"));
    let model = said.lines().find(|line| line.trim_start().starts_with("model")).unwrap();
    model.split_whitespace().nth(6).unwrap().parse().unwrap()
}
