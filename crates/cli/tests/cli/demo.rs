//! The README's first command.

use crate::Desk;

#[test]
#[ignore = "trains for minutes; the continuous integration runs it"]
fn the_demo_ends_below_a_quarter_of_a_percent_on_both_grids() {
    let desk = Desk::new();
    let said = desk.works("demo -q");
    let metrics = std::fs::read(desk.path("demo/run/metrics.json")).unwrap();
    let metrics: serde_json::Value = serde_json::from_slice(&metrics).unwrap();
    let evaluations = metrics["evaluations"].as_array().unwrap();
    assert_eq!(evaluations.len(), 2);
    for evaluation in evaluations {
        let error = evaluation["relative_l2"]["mean"].as_f64().unwrap();
        // 0.18 % on both; another processor rounds otherwise.
        assert!(error < 0.0025, "{evaluation}");
        // A solver on the same coarse inputs is the bar that the table shows.
        assert!(evaluation["solver"]["relative_l2"]["mean"].as_f64().unwrap() < error);
    }
    for name in ["convergence", "samples", "resolutions"] {
        assert!(desk.path(&format!("demo/run/figures/{name}.png")).exists());
    }
    for place in ["demo/data", "demo/run/model.safetensors", "demo/run/metrics.json", "demo/run/figures"] {
        assert!(said.contains(place) && desk.path(place).exists(), "{said}");
    }
    // Called again, it finds everything there.
    let weights = || std::fs::read(desk.path("demo/run/model.safetensors")).unwrap();
    let before = weights();
    desk.works("demo -q");
    assert!(weights() == before);
}
