//! Generate, train, be killed, resume, evaluate, predict.

use crate::Desk;
use std::time::Duration;

/// A network of some thousand parameters, for forty samples.
const SMALL: &str = "--set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.batch=4 \
    --set model.width=24 --set model.layers=2 --set train.lr=5e-3";

fn with_data() -> Desk {
    let desk = Desk::new();
    desk.works("generate burgers --samples 40 --grid 128 --modes 64 --tolerance 1e-5 --out data -q");
    desk
}

#[test]
fn a_run_killed_at_any_moment_ends_with_the_same_bytes() {
    let desk = with_data();
    let words =
        format!("train burgers --data data {SMALL} --set train.epochs=30 --set checkpoint.every_steps=7 -q");
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
}

#[test]
fn wrong_settings_and_folders_are_named() {
    let desk = with_data();
    let train =
        |more: &str, code: i32| desk.fails(&format!("train burgers --data data {SMALL} {more} -q"), code);
    assert!(train("--set train.epoch=3 --out a", 2).contains("epoch"));
    assert!(train("--set model.attention=magic --out a", 2).contains("magic"));
    assert!(train("--set data.train=1000 --out a", 1).contains("the dataset has 40"));
    assert!(train("--set data.grid=100 --out a", 1).contains("sizes that work"));
    assert!(train("--device vulkan --out a", 2).contains("vulkan"));
    assert!(desk.fails("train heat --out a", 2).contains("the presets are"));
    assert!(desk.fails("train burgers --data nowhere --out a", 1).contains("nowhere"));
    assert!(desk.fails("evaluate data", 1).contains("no folder of a run"));
    assert!(desk.fails("config heat", 2).contains("the presets are"));

    desk.works(&format!("train burgers --data data {SMALL} --set train.epochs=1 --out run -q"));
    assert!(train("--set train.epochs=1 --out run", 1).contains("a run is here already"));
    assert!(train("--set train.epochs=2 --out run --resume", 1).contains("epochs = 1"));
    assert!(desk.fails("predict run --input data/meta.toml --output y.npy", 1).contains("meta.toml"));
    assert!(!desk.path("y.npy").exists());
}

#[test]
fn a_printed_config_trains() {
    let desk = with_data();
    let config = desk.works("config fno-burgers");
    assert!(config.contains("# samples to train on"), "{config}");
    std::fs::write(desk.path("mine.toml"), config).unwrap();
    let small = "--set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.epochs=1";
    desk.works(&format!("train mine.toml --data data {small} --set model.width=8 --out run -q"));
    desk.works("evaluate run");
}

#[test]
fn published_weights_become_a_run() {
    let desk = Desk::new();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../operator/tests/golden/checkpoint/ex1_galerkin.pt");
    let error = desk.fails(&format!("import-weights {golden} --preset burgers --out run"), 1);
    assert!(error.contains("weights do not fit the model"), "{error}");
    assert!(!desk.path("run").exists());

    let sizes = "--set model.width=24 --set model.channels=12 --set model.modes=6";
    desk.works(&format!("import-weights {golden} --preset burgers {sizes} --out run"));
    desk.works("generate burgers --samples 2 --grid 32 --modes 16 --tolerance 1e-5 --out data -q");
    desk.works("predict run --input data/inputs.npy --output y.npy -q");
    assert!(desk.works("evaluate run --data data --grid 32").contains("model"));
}
