//! Nothing wrong passes in silence: samples seen before, two writers, damaged files, places that are no files, settings without meaning.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Desk, Said};

/// A network of some thousand parameters and a few steps, for forty samples.
const SMALL: &str = "--set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.batch=4 \
    --set network.encoder.width=24 --set network.encoder.hidden=48 --set network.encoder.layers=2 --set train.epochs=2 -q";

fn generate(desk: &Desk, samples: usize, seed: u64, out: &str) {
    let words = "--grid 128 --modes 64 --tolerance 1e-5";
    desk.works(&format!("generate burgers --samples {samples} --seed {seed} {words} --out {out} -q"));
}

/// With forty samples in `data` and the run `run`.
fn with_run() -> Desk {
    let desk = Desk::new();
    generate(&desk, 40, 0, "data");
    desk.works(&format!("train burgers --data data {SMALL} --out run"));
    desk
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// An array of f32 as a .npy file.
fn write_npy(path: &Path, shape: &[usize], fortran: bool, values: &[f32]) {
    let mut bytes = galerkin_data::io::npy::header(shape);
    if fortran {
        let (row, column) = (b"'fortran_order': False", b"'fortran_order': True ");
        let at = bytes.windows(row.len()).position(|window| window == row).unwrap();
        bytes[at..at + row.len()].copy_from_slice(column);
    }
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

fn read_npy(path: &Path) -> galerkin_data::Array {
    let file = galerkin_data::io::open(path).unwrap();
    file.read(&file.variables()[0].name).unwrap()
}

/// One bit of a byte near the end of a file, where values are.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn generated_samples_of_the_training_are_left_out_wherever_they_are() {
    let desk = with_run();
    // The same seed: the first forty are those of `data`, on another grid.
    desk.works("generate burgers --samples 50 --seed 0 --grid 64 --modes 32 --tolerance 1e-5 --out more -q");
    let said = desk.run("evaluate run --data more --json");
    let evaluation = &json(&said.out)["evaluations"][0];
    assert_eq!((&evaluation["samples"], &evaluation["left_out"]), (&20.into(), &30.into()));
    assert_eq!(evaluation["includes_training"], false);
    assert!(said.err.contains("30 samples of more are left out"), "{}", said.err);
    let said = desk.run("evaluate run --data more --include-training --json");
    let evaluation = &json(&said.out)["evaluations"][0];
    assert_eq!((&evaluation["samples"], &evaluation["includes_training"]), (&50.into(), &true.into()));
    assert!(desk.works("evaluate run --include-training").contains("model, training samples included"));
    // Another seed has other samples; its own dataset has its test samples.
    generate(&desk, 5, 3, "other");
    assert_eq!(json(&desk.works("evaluate run --data other --json"))["evaluations"][0]["samples"], 5);
    assert_eq!(json(&desk.works("evaluate run --json"))["evaluations"][0]["samples"], 8);
    let record = json(&std::fs::read_to_string(desk.path("run/samples.json")).unwrap());
    let first_is_seen =
        ["train", "validation"].iter().any(|part| record[part].as_array().unwrap().contains(&0.into()));
    // A run of a version that kept no record.
    std::fs::remove_file(desk.path("run/samples.json")).unwrap();
    assert_eq!(json(&desk.works("evaluate run --data more --json"))["evaluations"][0]["samples"], 20);
    // Nothing but a training sample.
    assert!(first_is_seen, "{record}");
    generate(&desk, 1, 0, "one");
    let error = desk.fails("evaluate run --data one", 1);
    assert!(error.contains("it was trained or validated with all 1 of one; --include-training"), "{error}");
}

#[test]
fn imported_samples_of_the_training_are_left_out_wherever_they_are() {
    let desk = Desk::new();
    generate(&desk, 40, 0, "made");
    let copy = |from: &str, file: &str| {
        std::fs::copy(desk.path(from).join(format!("{file}.npy")), desk.path(&format!("{file}.npy")))
            .unwrap();
    };
    copy("made", "inputs");
    copy("made", "targets");
    let import = "import inputs.npy targets.npy --inputs inputs --targets targets --periodic x --out";
    desk.works(&format!("{import} data"));
    desk.works(&format!("train burgers --data data {SMALL} --out run"));
    // The same samples in another order, and five others.
    generate(&desk, 5, 9, "five");
    for file in ["inputs", "targets"] {
        let [forty, five] =
            ["made", "five"].map(|from| read_npy(&desk.path(from).join(format!("{file}.npy"))));
        let mut values = five.values;
        forty.values.chunks_exact(128).rev().for_each(|sample| values.extend(sample));
        write_npy(&desk.path(&format!("{file}.npy")), &[45, 128, 1], false, &values);
    }
    desk.works(&format!("{import} mixed"));
    let evaluation = &json(&desk.works("evaluate run --data mixed --json"))["evaluations"][0];
    assert_eq!((&evaluation["samples"], &evaluation["left_out"]), (&15.into(), &30.into()));
}

#[test]
fn a_folder_has_one_writer() {
    let desk = Desk::new();
    generate(&desk, 40, 0, "data");
    let train = format!(
        "train burgers --data data {SMALL} --set train.epochs=100000 --set checkpoint.every_steps=5 --out run"
    );
    let mut first = desk.command(&train).spawn().unwrap();
    let since = Instant::now();
    while !desk.path("run/checkpoint").exists() && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    for more in ["", " --resume", " --set train.seed=2"] {
        let error = desk.fails(&format!("{train}{more}"), 1);
        let holder = format!("run is being written by process {}", first.id());
        assert!(error.contains(&holder), "{error}");
    }
    // Evaluating does not write what training writes.
    desk.works("evaluate run");
    first.kill().unwrap();
    first.wait().unwrap();
    // Its lock died with it.
    assert!(desk.path("run/.lock").exists());
    let mut second = desk.command(&format!("{train} --resume")).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(second.try_wait().unwrap().is_none());
    second.kill().unwrap();
    second.wait().unwrap();
    let log = std::fs::read(desk.path("run/log.jsonl")).unwrap();
    assert!(!log.contains(&0), "NUL in the log");

    // Folders of datasets grow under other names.
    let lock = galerkin_data::io::FolderLock::take(desk.path("new.partial")).unwrap();
    let error = desk.fails("generate burgers --samples 2 --grid 32 --modes 16 --out new -q", 1);
    assert!(error.contains("new.partial is being written by process"), "{error}");
    drop(lock);
    let lock = galerkin_data::io::FolderLock::take(desk.path("mine.importing")).unwrap();
    std::fs::copy(desk.path("data/inputs.npy"), desk.path("x.npy")).unwrap();
    let error = desk.fails("import x.npy --inputs x --targets x --out mine", 1);
    assert!(error.contains("mine.importing is being written by process"), "{error}");
    drop(lock);
    desk.works("import x.npy --inputs x --targets x --out mine");
    assert_eq!(desk.names(), ["data", "mine", "run", "x.npy"]);
}

#[test]
fn damaged_files_are_noticed_by_every_command() {
    let desk = Desk::new();
    desk.works("generate darcy --samples 16 --grid 33 --modes 17 --out data -q");
    let small = "--data data --set data.grid=33 --set network.lift.coarse=9 --set data.train=8 --set data.validation=2 --set data.test=4 \
        --set network.encoder.width=24 --set network.encoder.hidden=48 --set network.encoder.layers=1 --set train.epochs=1 -q";
    desk.works(&format!("train darcy {small} --out run"));
    let predict = "predict run --input data/inputs.npy --output y.npy -q".to_string();
    let train = format!("train darcy {small} --out other");
    let cases: [(&str, &[&str]); 4] = [
        ("run/model.safetensors", &[&predict, "evaluate run", "info run"]),
        ("run/normalizer.safetensors", &[&predict, "evaluate run"]),
        (
            "data/inputs.npy",
            &["evaluate run", "info data", "plot run --data data", "config --data data", &train],
        ),
        (
            "data/targets.npy",
            &["evaluate run", "info data", "plot run --data data", "config --data data", &train],
        ),
    ];
    for (file, commands) in cases {
        let path = desk.path(file);
        let good = std::fs::read(&path).unwrap();
        damage(&path);
        for words in commands {
            let error = desk.fails(words, 1);
            assert!(error.contains(file) && error.contains("checksum"), "{words}: {error}");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert_eq!(desk.names(), ["data", "run"], "something was written");
    desk.works(&predict);
}

#[test]
fn a_damaged_checkpoint_costs_nothing_but_time() {
    let desk = Desk::new();
    generate(&desk, 40, 0, "data");
    let train = |out: &str| {
        format!(
            "train burgers --data data {SMALL} --set train.epochs=5 --set checkpoint.every_steps=7 --out {out} --resume"
        )
    };
    desk.works(&train("whole"));
    desk.works(&train("run"));
    let files = ["run/checkpoint/0000000030.safetensors", "run/checkpoint/0000000028.safetensors"];
    let read = |run: &str, file: &str| std::fs::read(desk.path(run).join(file)).unwrap();
    damage(&desk.path(files[0]));
    let said = desk.run(&train("run"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.err.contains("passed over a damaged checkpoint") && said.err.contains(files[0]),
        "{}",
        said.err
    );
    for file in ["model.safetensors", "best.safetensors", "log.jsonl", "checkpoint/0000000030.safetensors"] {
        assert!(read("whole", file) == read("run", file), "{file} differs");
    }
    // Kept for whoever wants to know.
    assert!(desk.path(&format!("{}.damaged", files[0])).exists());
    // Both.
    files.iter().for_each(|file| damage(&desk.path(file)));
    assert!(desk.fails(&train("run"), 1).contains("checksum"));
}

#[cfg(unix)]
#[test]
fn predictions_go_where_they_are_sent() {
    let desk = with_run();
    let predict = |output: &str| format!("predict run --input data/inputs.npy --output {output} -q");
    desk.works(&predict("y.npy"));
    let expected = std::fs::read(desk.path("y.npy")).unwrap();
    // A link stays a link.
    std::os::unix::fs::symlink("y.npy", desk.path("link.npy")).unwrap();
    std::fs::write(desk.path("y.npy"), "old").unwrap();
    desk.works(&predict("link.npy"));
    assert!(desk.path("link.npy").is_symlink());
    assert_eq!(std::fs::read(desk.path("y.npy")).unwrap(), expected);
    // A device is written to, and so is what has a reader.
    desk.works(&predict("/dev/null"));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let output = desk.command(&predict("-")).output().unwrap();
    assert_eq!(output.stdout, expected);
    assert!(std::process::Command::new("mkfifo").arg(desk.path("pipe")).status().unwrap().success());
    let pipe = desk.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    desk.works(&predict("pipe"));
    assert_eq!(reader.join().unwrap(), expected);
    // What fails leaves nothing.
    let mut values = read_npy(&desk.path("data/inputs.npy"));
    values.values[128 * 3 + 5] = f32::NAN;
    write_npy(&desk.path("x.npy"), &values.shape, false, &values.values);
    let error = desk.fails("predict run --input x.npy --output z.npy -q", 2);
    assert!(error.contains("x.npy: input: NaN at [3, 5, 0]") && error.contains("--allow-nan"), "{error}");
    assert_eq!(desk.names(), ["data", "link.npy", "pipe", "run", "x.npy", "y.npy"]);
    desk.works("predict run --input x.npy --output z.npy -q --allow-nan");
    let numbers = read_npy(&desk.path("z.npy")).values;
    assert!(
        numbers[3 * 128..4 * 128].iter().all(|y| y.is_nan())
            && numbers[..3 * 128].iter().all(|y| y.is_finite())
    );
}

#[test]
fn predictions_have_the_axes_of_their_input() {
    let desk = with_run();
    let inputs = read_npy(&desk.path("data/inputs.npy"));
    let predicted = |shape: &[usize], fortran: bool, values: &[f32]| {
        write_npy(&desk.path("x.npy"), shape, fortran, values);
        desk.works("predict run --input x.npy --output y.npy -q");
        read_npy(&desk.path("y.npy"))
    };
    let whole = predicted(&[40, 128, 1], false, &inputs.values);
    assert_eq!(whole.shape, [40, 128, 1]);
    for (shape, values) in [
        (&[40, 128][..], &inputs.values[..]),
        (&[128], &inputs.values[..128]),
        (&[128, 1], &inputs.values[..128]),
    ] {
        let found = predicted(shape, false, values);
        assert_eq!(found.shape, shape);
        assert_eq!(found.values, whole.values[..values.len()]);
    }
    let columns: Vec<f32> =
        (0..128).flat_map(|x| (0..40).map(move |s| s * 128 + x)).map(|at| inputs.values[at]).collect();
    let found = predicted(&[40, 128], true, &columns);
    assert_eq!((found.shape, found.values), (vec![40, 128], whole.values));
    write_npy(&desk.path("x.npy"), &[2, 8, 8, 1], false, &[0.0; 128]);
    let error = desk.fails("predict run --input x.npy --output y.npy -q", 1);
    assert!(error.contains("x.npy: input: expected shape (samples, n, 1), found [2, 8, 8, 1]"), "{error}");
}

#[test]
fn evaluations_say_of_what_and_stand_beside_each_other() {
    let desk = with_run();
    generate(&desk, 5, 3, "other");
    desk.works("evaluate run --grid 64");
    desk.works("evaluate run --grid 64 --best");
    desk.works("evaluate run --grid 64 --data other");
    desk.works("evaluate run --grid 64");
    let text = std::fs::read_to_string(desk.path("run/metrics.json")).unwrap();
    let metrics = json(&text);
    let found = metrics["evaluations"].as_array().unwrap();
    let subjects: Vec<_> =
        found.iter().map(|e| (e["dataset"].as_str().unwrap(), e["weights"].as_str().unwrap())).collect();
    assert_eq!(subjects, [("data", "best"), ("other", "last"), ("data", "last")]);
    for evaluation in found {
        assert_eq!(evaluation["checksum"].as_str().unwrap().len(), 17, "{evaluation}");
        assert_eq!(evaluation["weights_checksum"].as_str().unwrap().len(), 8, "{evaluation}");
        assert!(evaluation["version"].is_string() && evaluation["samples"].is_u64());
    }
    let info = desk.works("info run");
    assert!(info.contains("noise 0, 5 samples of other, last weights"), "{info}");
    assert!(info.contains("noise 0, 8 samples of data, best weights"), "{info}");
    // Where nothing can be written, what was asked for is printed all the same.
    std::fs::remove_file(desk.path("run/metrics.json")).unwrap();
    std::fs::create_dir(desk.path("run/metrics.json")).unwrap();
    let said = desk.run("evaluate run");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.out.contains("rel. L2 mean") && said.err.contains("not recorded: run/metrics.json"),
        "{}",
        said.err
    );
    // A table too has the errors of every sample.
    assert_eq!(desk.works("evaluate run --per-sample").lines().count(), 3 + 9);
    // A square has no place here.
    desk.works("generate darcy --samples 2 --grid 33 --modes 17 --out square -q");
    let error = desk.fails("evaluate run --data square", 1);
    assert!(error.contains("run: it is for grids with 1 axes (periodic); square lies on"), "{error}");
}

/// Every setting of a config, with values that make no sense for most of them. Whatever is taken trains to the end; whatever is refused leaves
/// nothing behind.
#[test]
fn every_setting_is_refused_or_right() {
    let desk = Desk::new();
    generate(&desk, 12, 0, "data");
    let small = [
        "data.grid=16",
        "data.train=6",
        "data.validation=2",
        "data.test=2",
        "train.batch=2",
        "train.epochs=1",
        "network.encoder.width=8",
        "network.encoder.hidden=8",
        "network.encoder.layers=1",
        "network.decoder.channels=4",
        "network.decoder.feed_forward=4",
        "network.decoder.modes=4",
        "network.decoder.layers=1",
    ];
    let config = small
        .iter()
        .fold("train burgers --data data".to_string(), |words, set| format!("{words} --set {set}"));
    desk.works(&format!("{config} --out first -q"));
    let text = std::fs::read_to_string(desk.path("first/config.toml")).unwrap();
    let mut keys = Vec::new();
    leaves("", &text.parse::<toml::Table>().unwrap(), &mut keys);
    assert!(keys.len() > 50, "{keys:?}");
    let values = [
        "-1",
        "0",
        "nan",
        "inf",
        "1e300",
        "9223372036854775807",
        "\"word\"",
        "[]",
        "true",
        "[0.1,0.2]",
        "[0.2,0.1]",
        "[\"flip\"]",
    ];
    let mut taken = 0;
    let jobs: Vec<(usize, String, &str)> = keys
        .iter()
        .filter(|key| *key != "name" && *key != "data.folder")
        .flat_map(|key| values.iter().map(move |value| (key.clone(), *value)))
        .enumerate()
        .map(|(at, (key, value))| (at, key, value))
        .collect();
    for (at, key, value) in &jobs {
        let words = format!("train first/config.toml --set {key}={value} --hours 0.01 --out run{at} -q");
        let Said { code, err, .. } = desk.run(&words);
        match code {
            Some(0) => {
                taken += 1;
                let log = std::fs::read_to_string(desk.path(&format!("run{at}/log.jsonl"))).unwrap();
                assert!(!log.contains("null") && !log.contains("diverged"), "{key} = {value}: {log}");
            }
            // Too long or too large is no matter of settings alone; a rate of 1e300 is one that somebody may try.
            Some(1) if err.contains("training would take") || err.contains("training needs") => {}
            Some(1) if err.contains("training diverged") => continue,
            code => {
                assert_eq!(code, Some(2), "{key} = {value}: {err}");
                assert!(!desk.path(&format!("run{at}")).exists(), "{key} = {value}: something was written");
            }
        }
    }
    assert!(taken > 20, "{taken} of {} were taken", jobs.len());
}

fn leaves(at: &str, table: &toml::Table, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match value {
            toml::Value::Table(table) => leaves(&key, table, keys),
            _ => keys.push(key),
        }
    }
}

#[test]
fn so_many_threads_are_a_slip_of_the_pen() {
    let desk = Desk::new();
    let words = "generate burgers --samples 2 --grid 32 --modes 16 --out data -q";
    let output = desk.command(words).env("RAYON_NUM_THREADS", "100000").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("RAYON_NUM_THREADS = 100000: going on with"), "{said}");
}
