//! Measurements of tiny networks: what is asserted is who is measured and what is refused, never a time.

use crate::{Desk, Said};

#[test]
fn rows_are_measured_and_written_down() {
    let desk = Desk::new();
    let said = desk.works(
        "bench --tiny --repetitions 2 --seconds 0 -q --threads 1 --out results burgers-gt-512 darcy-85 encoder-ft single-darcy-141",
    );
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["row", "pass", "batch", "ms", "spread", "MB"]);
    let names: Vec<_> = rows[1..8].iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(
        names,
        [
            "burgers-gt-512 train 2",
            "burgers-gt-512 infer 2",
            "darcy-85 train 2",
            "darcy-85 infer 2",
            "encoder-ft-8192 train 2",
            "encoder-ft-8192 infer 2",
            "single-darcy-141 infer 1",
        ]
    );
    assert!(rows[1..8].iter().all(|row| row[3].parse::<f64>().is_ok_and(|ms| ms > 0.0)), "{said}");
    let folder = said.lines().last().unwrap().strip_prefix("wrote ").unwrap();
    let readme = std::fs::read_to_string(desk.path(folder).join("README.md")).unwrap();
    for words in [
        "`galerkin bench burgers-gt-512 darcy-85 encoder-ft single-darcy-141 --threads 1 --repetitions 2",
        "| burgers-gt-512 | train | 2 |",
    ] {
        assert!(readme.contains(words), "{readme}");
    }
    // A line per process, and the head.
    let table = std::fs::read_to_string(desk.path(folder).join("table.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 2 * 7, "{table}");
    assert!(table.starts_with("row,pass,side,process,fastest_ms,steps,start_mb,peak_mb\n"));
}

#[test]
fn growing_grids_have_exponents_and_threads_a_ratio() {
    let desk = Desk::new();
    let said = desk.works("bench scale --tiny --repetitions 1 --seconds 0 -q --upto 1000 gt darcy");
    let starts: Vec<_> = said.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    // 43 × 43 points are more than 1000, and one size has no exponent.
    assert_eq!(
        starts,
        [
            "row",
            "gt-64",
            "gt-128",
            "darcy-29-15",
            "",
            "row",
            "gt",
            "darcy",
            "",
            "row",
            "burgers-gt-8192",
            "darcy-141"
        ]
    );
    let exponents: Vec<_> = said.lines().nth(6).unwrap().split_whitespace().collect();
    assert!(exponents[1].parse::<f64>().is_ok(), "{said}");
    assert_eq!(said.lines().nth(7).unwrap().split_whitespace().collect::<Vec<_>>(), ["darcy", "-", "-"]);
}

#[test]
fn a_wrong_row_is_told_the_right_ones() {
    let desk = Desk::new();
    for words in ["bench burgers-xt", "bench pytorch darcy-99", "bench scale lt"] {
        let error = desk.fails(words, 2);
        assert!(error.contains("the rows are "), "{error}");
    }
    let error = desk.fails("bench burgers-xt", 2);
    assert!(error.contains("burgers-gt-512") && error.contains("single-darcy-141"), "{error}");
    assert!(desk.fails("bench scale --upto 5", 2).contains("no row has so few points"));
}

#[test]
fn a_missing_python_is_said_with_the_way_to_get_one() {
    let desk = Desk::new();
    let error = desk.fails("bench pytorch --tiny --python no/python burgers-gt-512", 2);
    assert!(error.contains("no/python") && error.contains("benches/pytorch/README.md"), "{error}");
}

/// `GALERKIN_PYTHON=venv/bin/python cargo test --release -p galerkin-cli --test cli -- --ignored pytorch_takes_the_same_steps`
#[test]
#[ignore = "needs a Python with torch, named by GALERKIN_PYTHON"]
fn pytorch_takes_the_same_steps() {
    let python = std::env::var("GALERKIN_PYTHON").expect("a Python with torch");
    let python = std::path::absolute(python).unwrap();
    let desk = Desk::new();
    desk.works("generate burgers --samples 120 --grid 256 --modes 128 --tolerance 1e-6 --out data -q");
    let authors =
        "--set optimizer.kind=adam --set optimizer.beta2=0.999 --set train.lr=1e-3 --set train.augment=[]";
    desk.works(&format!(
        "train burgers --data data --set data.grid=64 --set train.epochs=1 {authors} --out ours -q"
    ));
    let words = "bench pytorch --train data --grid 64 --epochs 1 --run theirs -q --python";
    let said = desk.works(&format!("{words} {}", python.display()));
    assert!(said.starts_with("trained theirs: 12 steps, validation error "), "{said}");
    let numbers = |run: &str, key: &str| -> Vec<f64> {
        let log = std::fs::read_to_string(desk.path(run).join("log.jsonl")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter_map(|line| line[key].as_f64()).collect()
    };
    // Roundings of f32 are some 1e-6 in a step and grow with every step; the wrong batch, rate or loss shows at 1e-2.
    for (key, most) in
        [("loss", 1e-4), ("lr", 1e-9), ("beta1", 1e-9), ("gradient_norm", 1e-3), ("train_loss", 1e-4)]
    {
        let [ours, theirs] = ["ours", "theirs"].map(|run| numbers(run, key));
        assert_eq!(ours.len(), theirs.len(), "{key}");
        assert!(!ours.is_empty());
        for (step, (one, other)) in ours.iter().zip(&theirs).enumerate() {
            assert!((one - other).abs() <= most * one.abs(), "{key} {step}: {one}, in PyTorch {other}");
        }
    }
    // Both on the same test samples.
    let error = |run: &str| -> f64 {
        let said = desk.works(&format!("evaluate {run} --json"));
        let found: serde_json::Value = serde_json::from_str(&said).unwrap();
        found["evaluations"][0]["relative_l2"]["mean"].as_f64().unwrap()
    };
    let [ours, theirs] = ["ours", "theirs"].map(error);
    assert!((ours - theirs).abs() <= 1e-3 * ours, "{ours}, in PyTorch {theirs}");
    assert!(desk.works("info theirs --reaches 10").contains("reaches    1e1: from epoch 1 on, after "));
    let error = desk.fails(&format!("{words} {}", python.display()), 2);
    assert!(error.contains("--run theirs: a run is here already"), "{error}");
}

/// Programs that stand in for Python.
#[cfg(unix)]
mod stand_ins {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A shell script that is called as Python would be; `$1` is the script, `$2` the pass.
    fn python(desk: &Desk, script: &str) {
        let path = desk.path("python");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bench(desk: &Desk, rows: &str) -> Said {
        desk.run(&format!("bench pytorch --tiny --repetitions 2 --seconds 0 --python ./python {rows}"))
    }

    const VERSIONS: &str = r#"[ "$2" = versions ] && echo '{"python": "3.0", "torch": "0.0"}' && exit"#;

    /// Ours in PyTorch's place: its measurements are asked for in the same words.
    fn ours_after(first: &str) -> String {
        let binary = env!("CARGO_BIN_EXE_galerkin");
        format!("{VERSIONS}\n{first}\nshift; exec {binary} bench measure \"$@\"")
    }

    #[test]
    fn a_python_without_torch_is_wrong_usage() {
        let desk = Desk::new();
        python(&desk, "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1");
        let said = bench(&desk, "burgers-gt-512");
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains("No module named 'torch'; benches/pytorch/README.md"), "{}", said.err);
    }

    #[test]
    fn halves_that_agree_are_compared() {
        let desk = Desk::new();
        python(&desk, &ours_after(""));
        let said = bench(&desk, "burgers-ft-512 single-burgers");
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(
            said.err.contains("burgers-ft-512: PyTorch: outputs 0.0e0 apart, gradients 0.0e0"),
            "{}",
            said.err
        );
        let lines: Vec<&str> = said.out.lines().skip(1).map(str::trim_start).collect();
        assert_eq!(lines.len(), 7, "{}", said.out);
        for (line, beginning) in [
            (0, "burgers-ft-512       train  PyTorch  "),
            (1, "burgers-ft-512       train  PyTorch, K by V first  "),
            (2, "burgers-ft-512       train  PyTorch, as the authors' code  "),
            (6, "single-burgers-2048  infer  PyTorch  "),
        ] {
            assert!(lines[line].starts_with(beginning), "{}", said.out);
        }
        assert!(lines.iter().all(|line| line.ends_with("  0.0e0")), "{}", said.out);
    }

    #[test]
    fn halves_that_differ_get_no_times() {
        // The target in place of the input: another function on the same grid.
        let desk = Desk::new();
        let swap = r#"w=$4; t=$8; o=${10}; [ "$2" = infer ] && set -- x infer --weights "$w" --input "$t" --target "$t" --output "$o" --seconds 0"#;
        python(&desk, &ours_after(swap));
        let said = bench(&desk, "burgers-gt-512");
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
        assert!(said.err.contains("burgers-gt-512: outputs of PyTorch are "), "{}", said.err);
        assert!(said.err.contains("away from ours, more than 1e-4"), "{}", said.err);
    }

    #[test]
    fn a_half_that_does_not_fit_into_memory_says_so() {
        let desk = Desk::new();
        let full = r#"[ "$2" != infer ] && echo '{"out_of_memory": true}' && exit"#;
        python(&desk, &ours_after(full));
        let said = bench(&desk, "burgers-gt-512");
        assert_eq!(said.code, Some(0), "{}", said.err);
        let lines: Vec<&str> = said.out.lines().collect();
        assert!(lines[1].contains("train") && lines[1].contains("does not fit"), "{}", said.out);
        assert!(lines[2].contains("infer") && !lines[2].contains("does not fit"), "{}", said.out);
    }

    #[test]
    fn a_half_that_fails_is_quoted() {
        let desk = Desk::new();
        python(&desk, &format!("{VERSIONS}\necho 'ValueError: no such layer' >&2; exit 1"));
        let said = bench(&desk, "burgers-gt-512");
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains("PyTorch infer") && said.err.contains("no such layer"), "{}", said.err);
    }
}
