use crate::{Desk, Said};
use std::process::Stdio;
use std::time::{Duration, Instant};

const BURGERS: &str = "generate burgers --samples 5 --grid 32 --modes 8 --seed 7 --out";

#[test]
fn a_dataset_is_three_files() {
    let desk = Desk::new();
    let Said { code, out, err } = desk.run(&format!("{BURGERS} deep/burgers"));
    assert_eq!((code, out.as_str()), (Some(0), "wrote deep/burgers: 5 samples on 32 points\n"), "{err}");
    assert!(err.contains("5 samples on 32 points, 0.00 MB, to deep/burgers"), "{err}");
    let [inputs, targets, meta] = desk.dataset("deep/burgers");
    // A header of 128 bytes and 5 × 32 numbers of 4 bytes.
    assert_eq!([inputs.len(), targets.len()], [128 + 640; 2]);
    let meta = String::from_utf8(meta).unwrap();
    assert!(
        meta.contains("samples = 5") && meta.contains("seed = 7") && meta.contains("modes = 8"),
        "{meta}"
    );
    assert_eq!(desk.names(), ["deep"]);
}

#[test]
fn every_setting_arrives() {
    let desk = Desk::new();
    desk.works(
        "generate burgers --samples 1 --grid 16 --viscosity 0.05 --time 0.5 --modes 3 --smoothness 1.5 --tau 2 --sigma 4 \
         --tolerance 1e-6 --quiet --out b",
    );
    desk.works("generate darcy --samples 1 --grid 9 --contrast 5,0.5 --threshold -0.1 --source 2 --modes 4 -q --out d");
    desk.works("generate darcy --samples 1 --grid 9 --lognormal -1,0.5 --modes 4 -q --out e");
    let meta = |name: &str| String::from_utf8(desk.dataset(name)[2].clone()).unwrap();
    let expected = [
        ("b", "viscosity = 0.05"),
        ("b", "time = 0.5"),
        ("b", "tolerance = 0.000001"),
        ("b", "smoothness = 1.5"),
        ("b", "tau = 2.0"),
        ("b", "sigma = 4.0"),
        ("b", "modes = 3"),
        ("d", "above = 5.0"),
        ("d", "below = 0.5"),
        ("d", "at = -0.1"),
        ("d", "source = 2.0"),
        ("e", "location = -1.0"),
        ("e", "scale = 0.5"),
    ];
    for (name, words) in expected {
        let meta = meta(name).replace("1e-6", "0.000001");
        assert!(meta.contains(words), "{words}\n{meta}");
    }
}

#[test]
fn samples_do_not_depend_on_how_many_there_are() {
    let desk = Desk::new();
    desk.works("generate darcy --samples 2 --grid 9 --modes 4 -q --out two");
    desk.works("generate darcy --samples 5 --grid 9 --modes 4 -q --out five");
    let ([two, ..], [five, ..]) = (desk.dataset("two"), desk.dataset("five"));
    assert_eq!(two[128..], five[128..128 + 2 * 81 * 4]);
    desk.works("generate darcy --samples 2 --grid 9 --modes 4 -q --seed 1 --out other");
    assert_ne!(two[128..], desk.dataset("other")[0][128..]);
}

#[test]
fn a_complete_dataset_is_left_as_it_is() {
    let desk = Desk::new();
    desk.works(&format!("{BURGERS} b"));
    let before = desk.dataset("b");
    // A slash at the end names the same folder.
    assert_eq!(desk.works(&format!("{BURGERS} b/")), "b is complete already\n");
    for other in [
        "--samples 6 --grid 32 --modes 8 --seed 7",
        "--samples 5 --grid 32 --modes 8 --seed 8",
        "--preset paper",
    ] {
        let error = desk.fails(&format!("generate burgers {other} --out b"), 1);
        assert!(error.contains("b exists and is not the dataset asked for"), "{error}");
    }
    assert!(desk.dataset("b") == before);
    assert_eq!(desk.names(), ["b"]);
}

#[test]
fn settings_that_cannot_work_leave_nothing_behind() {
    let desk = Desk::new();
    for (settings, cause) in [
        ("darcy --grid 2", "grid: expected 3 to 8193 vertices a side, found 2"),
        ("darcy --grid 9 --contrast 3,-1 --modes 4", "coefficient: expected positive numbers, found -1"),
        ("darcy --grid 9 --modes 0", "modes: expected 1 to"),
        ("burgers --grid 16 --sigma NaN", "sigma: expected a finite number, found NaN"),
        ("burgers --grid 16 --viscosity -1 --modes 4", "viscosity"),
    ] {
        let settings = settings.replace("--viscosity -1", "--viscosity=-1");
        let error = desk.fails(&format!("generate {settings} --samples 3 --out d"), 2);
        assert!(error.contains("sample 0 of seed 0\n  caused by: ") && error.contains(cause), "{error}");
    }
    let error = desk.fails("generate darcy --grid 8000 --samples 4000000000 --out d", 1);
    assert!(error.contains("of free space, found"), "{error}");
    assert!(desk.names().is_empty(), "{:?}", desk.names());
}

/// About a second and a half of a processor, so that it can be interrupted: five times what is made between two records.
const SLOW: &str = "generate burgers --samples 160 --grid 64 --modes 8 --seed 3 --out";

#[test]
fn killed_it_goes_on_and_ends_with_the_same_bytes() {
    let desk = Desk::new();
    desk.works(&format!("{SLOW} whole"));
    let mut child = desk.command(&format!("{SLOW} killed")).stderr(Stdio::null()).spawn().unwrap();
    wait_for_samples(&desk, "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!desk.path("killed").exists());
    let error = desk.fails("generate burgers --samples 10 --grid 64 -q --out killed", 1);
    assert!(error.contains("killed.partial was begun with another problem"), "{error}");
    desk.works(&format!("{SLOW} killed"));
    assert!(desk.dataset("whole") == desk.dataset("killed"));
    assert_eq!(desk.names(), ["killed", "whole"]);
}

#[cfg(unix)]
#[test]
fn interrupted_it_says_how_to_go_on() {
    let desk = Desk::new();
    let mut command = desk.command(&format!("{SLOW} d"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_samples(&desk, "d");
    let kill = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("of 160 samples; run the same command again to go on from there\n"), "{error}");
    assert!(output.stdout.is_empty() && !error.contains("error"), "{error}");
    assert_eq!(desk.names(), ["d.partial"]);
    desk.works(&format!("{SLOW} d"));
    assert_eq!(desk.names(), ["d"]);
}

/// Until the first samples are on record.
fn wait_for_samples(desk: &Desk, name: &str) {
    let record = desk.path(&format!("{name}.partial/progress.toml"));
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        if !text.is_empty() && !text.contains("complete = 0\n") {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no sample in a minute: {text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
