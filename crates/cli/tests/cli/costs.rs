//! What a run cost, and whether it pays.

use serde_json::Value;

use crate::Desk;

const SMALL: &str = "--set train.batch=4 --set data.train=24 --set data.validation=6 --set data.test=8 --set network.encoder.width=24 \
     --set network.encoder.hidden=48 --set network.encoder.layers=2 -q";

fn burgers() -> Desk {
    let desk = Desk::new();
    desk.works("generate burgers --samples 40 --grid 256 --modes 128 --tolerance 1e-6 --out data -q");
    desk.works(&format!(
        "train burgers --data data --set data.grid=64 --set train.epochs=3 --out run {SMALL}"
    ));
    desk
}

fn evaluation(desk: &Desk, words: &str) -> Value {
    let mut found: Value = serde_json::from_str(&desk.works(words)).unwrap();
    found["evaluations"][0].take()
}

#[test]
fn a_network_stands_beside_a_solver_of_its_accuracy() {
    let desk = burgers();
    let check = |evaluation: &Value, axes: usize| {
        let found = &evaluation["break_even"];
        let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key}: {found}"));
        let error = evaluation["relative_l2"]["mean"].as_f64().unwrap();
        assert_ne!(found["reach"], "not_reached", "the finest grid is that of the targets: {found}");
        assert!(number("solver_error") <= error, "{found}, {error}");
        assert_eq!(found["points"].as_array().unwrap().len(), axes);
        for key in ["solver_seconds", "network_seconds", "data_seconds", "training_seconds"] {
            assert!(number(key) > 0.0, "{key}: {found}");
        }
        let gain = number("solver_seconds") - number("network_seconds");
        let queries = (gain > 0.0).then(|| (number("data_seconds") + number("training_seconds")) / gain);
        match (found["queries"].as_f64(), queries) {
            (Some(found), Some(expected)) => {
                assert!((found / expected - 1.0).abs() < 1e-9, "{found}, {expected}")
            }
            (found, expected) => assert_eq!(found, expected),
        }
    };
    check(&evaluation(&desk, "evaluate run --break-even --json"), 1);
    let kept: Value = serde_json::from_slice(&std::fs::read(desk.path("run/metrics.json")).unwrap()).unwrap();
    check(&kept["evaluations"][0], 1);

    // Times of 24 + 6 of the 40 samples.
    let clock: Value = serde_json::from_slice(&std::fs::read(desk.path("data/clock.json")).unwrap()).unwrap();
    let data = kept["evaluations"][0]["break_even"]["data_seconds"].as_f64().unwrap();
    let whole = clock["seconds"].as_f64().unwrap();
    assert!((data - 0.75 * whole).abs() < 1e-9 * whole, "{data}, {clock}");

    // What nobody knows is said.
    std::fs::remove_file(desk.path("data/clock.json")).unwrap();
    std::fs::remove_file(desk.path("run/clock.jsonl")).unwrap();
    let said = desk.works("evaluate run --break-even");
    assert_eq!(said.matches(" unknown ").count(), 2, "{said}");
    let sentence = said.lines().last().unwrap();
    assert!(sentence.contains("classical solver") && sentence.contains("the network takes"), "{said}");
    assert!(desk.works("info run --reaches 10").contains("1e1: from epoch 1 on; the run has no clock of it"));

    desk.works("generate darcy --samples 40 --grid 65 --modes 33 --out flow -q");
    let flow = "--data flow --set data.grid=33 --set network.lift.coarse=9 --set train.epochs=1";
    desk.works(&format!("train darcy {flow} --out darcy {SMALL}"));
    check(&evaluation(&desk, "evaluate darcy --break-even --json"), 2);
}

#[test]
fn break_even_is_refused_where_there_is_no_solver() {
    let desk = burgers();
    let error = desk.fails("evaluate run --break-even --noise 0.01", 2);
    assert!(error.contains("inputs without noise"), "{error}");
    desk.works(
        "import data/inputs.npy data/targets.npy --inputs inputs --targets targets --periodic x --out mine",
    );
    let error = desk.fails("evaluate run --break-even --data mine", 2);
    assert!(error.contains("nobody knows a solver for mine"), "{error}");

    desk.works("generate darcy --samples 40 --grid 33 --modes 16 --out flow -q");
    let back =
        "--data flow --set data.grid=17 --set data.coarse=9 --set network.lift.coarse=9 --set train.epochs=1";
    desk.works(&format!("train darcy-inverse {back} --out back {SMALL}"));
    let error = desk.fails("evaluate back --break-even --noise 0", 2);
    assert!(error.contains("inverse problem"), "{error}");
    let before = std::fs::read(desk.path("back/config.toml")).unwrap();
    assert!(!desk.path("back/metrics.json").exists() && !before.is_empty());
}

#[test]
fn a_run_says_when_it_reached_an_error() {
    let desk = burgers();
    let said = desk.works("info run --reaches 10 --reaches 1e-9");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("  reaches")).collect();
    assert!(
        lines[0].starts_with("  reaches    1e1: from epoch 1 on, after ") && lines[0].contains(" minutes"),
        "{said}"
    );
    assert_eq!(lines[1], "  reaches    1e-9: not reached");
    let error = desk.fails("info data --reaches 1", 2);
    assert!(error.contains("no folder of a run"), "{error}");
}
