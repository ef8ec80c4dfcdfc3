//! The paper's problems with our own presets: what the library reaches, not what the paper ran. Its numbers stand beside ours where the grid is the same.

use super::{Row, Trial};
use crate::experiment::Scale;

/// Seeds of the rows that are measured more than once.
fn seeds(scale: Scale) -> std::ops::RangeInclusive<u64> {
    match scale {
        Scale::Quick => 1..=2,
        Scale::Cpu | Scale::Paper => 1..=3,
    }
}

/// The preset from several seeds, on the grid trained on and finer ones, and a longer run.
pub(super) fn burgers(scale: Scale) -> Vec<Row> {
    let grids: &[usize] = if scale == Scale::Quick { &[128, 512] } else { &[512, 2048, 8192] };
    let trials: Vec<Trial> = grids.iter().map(|grid| trial(*grid, 0.0, None)).collect();
    let mut rows = of_seeds("accuracy-burgers", "the preset", "burgers", scale);
    if scale != Scale::Quick {
        let mut long = Row::new("accuracy-burgers-long", "for 400 epochs", "burgers", scale);
        long.set("train.epochs", 400);
        rows.push(long);
    }
    for row in &mut rows {
        if scale == Scale::Quick {
            // Longer than rows of the paper's table.
            row.set("train.epochs", 40);
        }
        row.trials = trials.clone();
        row.trials[0].paper = (grids[0] == 512).then_some(1.203);
    }
    rows[0].pictured = true;
    rows
}

/// The multilevel network from several seeds, on the grid trained on and others, and once on the paper's grid.
pub(super) fn darcy(scale: Scale) -> Vec<Row> {
    let mut rows = of_seeds("accuracy-darcy", "the preset", "darcy-multilevel", scale);
    let grids: &[usize] = if scale == Scale::Quick { &[43, 85] } else { &[85, 141, 211] };
    for row in &mut rows {
        row.trials = grids.iter().map(|grid| trial(*grid, 0.0, None)).collect();
    }
    if scale != Scale::Quick {
        let mut row = Row::new("accuracy-darcy-141", "trained on 141 × 141", "darcy-multilevel", scale);
        row.set("data.grid", 141);
        row.trials = vec![trial(141, 0.0, Some(8.39))];
        rows.push(row);
    }
    rows[0].pictured = true;
    rows
}

/// The multilevel network for the inverse problem, at two levels of noise, and once on the paper's grids.
pub(super) fn inverse(scale: Scale) -> Vec<Row> {
    let [fine, coarse] = if scale == Scale::Quick { [43, 15] } else { [85, 29] };
    let mut cases = vec![("", fine, coarse, 0.01, None), ("", fine, coarse, 0.1, None)];
    if scale != Scale::Quick {
        cases.push(("-141", 141, 36, 0.01, Some(2.552)));
    }
    let row = |(name, fine, coarse, noise, paper): (&str, usize, usize, f64, Option<f64>)| {
        let (id, label) =
            (format!("accuracy-inverse-{noise}{name}"), format!("{fine} to {coarse}, ε = {noise}"));
        let mut row = Row::new(id, label, "darcy-inverse-multilevel", scale);
        row.set("data.grid", fine);
        row.set("data.coarse", coarse);
        row.set("data.noise", noise);
        if fine == 141 {
            // The windows of the paper's coarse grid are not their own mirror image.
            row.set("train.augment", "[\"transpose\"]");
        }
        row.trials = vec![trial(fine, noise, paper)];
        row
    };
    cases.into_iter().map(row).collect()
}

/// A preset once for every seed.
fn of_seeds(id: &str, label: &str, preset: &'static str, scale: Scale) -> Vec<Row> {
    let row = |seed: u64| {
        // The presets have the first seed.
        let name = if seed == 1 { id.to_string() } else { format!("{id}-seed{seed}") };
        let mut row = Row::new(name, format!("{label}, seed {seed}"), preset, scale);
        if seed != 1 {
            row.set("train.seed", seed);
        }
        row
    };
    seeds(scale).map(row).collect()
}

fn trial(grid: usize, noise: f64, paper: Option<f64>) -> Trial {
    Trial { grid, noise, paper }
}
