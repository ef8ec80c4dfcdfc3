//! Runs on Darcy flow: from the coefficient to the solution, and back.

use std::fmt::Display;

use galerkin::layers::AttentionKind::{self, Fourier, Galerkin, Linear, Softmax};

use super::Norm::{self, Heads, Residual};
use super::{Row, Trial, attention_name, short};
use crate::experiment::Scale;

/// Four kinds of attention with two norms, and the Fourier operator.
pub(super) fn table(scale: Scale) -> Vec<Row> {
    let transformers = [
        (Fourier, Residual, [0.838, 0.847]),
        (Galerkin, Residual, [0.894, 0.856]),
        (Softmax, Residual, [1.075, 1.131]),
        (Linear, Residual, [1.024, 1.130]),
        (Fourier, Heads, [0.873, 0.921]),
        (Galerkin, Heads, [0.839, 0.844]),
        (Softmax, Heads, [0.946, 0.959]),
        (Linear, Heads, [0.875, 0.970]),
    ];
    let mut rows = Vec::new();
    for (k, &[fine, coarse]) in grids(scale, Direction::Forward).iter().enumerate() {
        let trials = |paper: [f64; 2]| {
            let grids = match scale {
                Scale::Quick => vec![43, 85],
                Scale::Cpu => vec![85, 141, 211],
                Scale::Paper => vec![fine],
            };
            // The paper trains on what it evaluates on: its number for 141 stands beside our 85.
            let paper = |at: usize| (at == 0).then_some(paper[k]);
            let trial = |(at, grid)| Trial { grid, noise: 0.0, paper: paper(at) };
            grids.into_iter().enumerate().map(trial).collect::<Vec<_>>()
        };
        let name = |id: String| if k > 0 { format!("{id}-{fine}") } else { id };
        let mut row = Row::new(name("darcy-fno".into()), "FNO2d", "fno-darcy", scale);
        row.set("data.grid", fine);
        row.trials = trials([1.419, 1.424]);
        rows.push(row);
        for (kind, norm, paper) in transformers {
            let id = name(format!("darcy-{}-{}", short(kind).to_lowercase(), norm.name()));
            let label = format!("{}, {}", short(kind), norm.label(kind));
            let mut row = Row::new(id, label, "darcy", scale);
            set_transformer(&mut row, kind, norm, [fine, coarse], scale);
            row.trials = trials(paper);
            row.pictured = (kind, norm) == (Galerkin, Heads);
            rows.push(row);
        }
    }
    rows
}

/// Levels of noise that networks are trained at.
const NOISES: [f64; 3] = [0.0, 0.01, 0.1];

/// The inverse problem, every network evaluated at the level of noise that it was trained at.
pub(super) fn inverse(scale: Scale) -> Vec<Row> {
    // Per grid and level of noise.
    let transformers = [
        (Fourier, Residual, [[1.799, 2.467, 6.814], [1.563, 2.704, 8.110]]),
        (Galerkin, Residual, [[2.026, 2.536, 6.659], [1.732, 2.775, 8.024]]),
        (Softmax, Residual, [[2.434, 3.106, 7.431], [2.069, 3.365, 8.918]]),
        (Linear, Residual, [[2.254, 3.194, 9.056], [2.063, 3.544, 9.874]]),
        (Fourier, Heads, [[1.921, 2.717, 6.725], [1.523, 2.691, 8.286]]),
        (Galerkin, Heads, [[1.944, 2.552, 6.689], [1.651, 2.729, 7.903]]),
        (Softmax, Heads, [[2.160, 2.807, 6.995], [1.889, 3.123, 8.788]]),
        (Linear, Heads, [[2.360, 3.196, 8.656], [2.136, 3.539, 9.622]]),
    ];
    let fno = [[13.71, 13.78, 15.12], [13.93, 13.96, 15.04]];
    let mut rows = Vec::new();
    for (k, &grids) in grids(scale, Direction::Inverse).iter().enumerate() {
        for (level, noise) in NOISES.into_iter().enumerate() {
            let trials = |paper: f64| vec![Trial { grid: grids[0], noise, paper: Some(paper) }];
            let (id, label) =
                (inverse_id("fno", k, grids[0], noise), format!("FNO2d (only n_f), ε = {noise}"));
            let mut row = Row::new(id, label, "fno-darcy", scale);
            row.set("data.inverse", true);
            row.set("loss.weight", "none");
            row.set("data.grid", grids[0]);
            row.set("data.noise", noise);
            row.set("loss.gamma", 0.0);
            row.trials = trials(fno[k][level]);
            rows.push(row);
            for (kind, norm, paper) in transformers {
                let label = format!("{}, {}, ε = {noise}", short(kind), norm.label(kind));
                let mut row = inverse_transformer(label, kind, norm, k, grids, noise, scale);
                row.trials = trials(paper[k][level]);
                row.pictured = (kind, norm) == (Galerkin, Heads);
                rows.push(row);
            }
        }
    }
    rows
}

/// Galerkin transformers for the inverse problem, trained at one level of noise, and one at all of them, evaluated at every level and at two between.
pub(super) fn noise_matrix(scale: Scale) -> Vec<Row> {
    let mut rows = Vec::new();
    for (k, &grids) in grids(scale, Direction::Inverse).iter().enumerate() {
        for noise in NOISES {
            let label = format!("GT, trained at ε = {noise}");
            rows.push(inverse_transformer(label, Galerkin, Heads, k, grids, noise, scale));
        }
        let label = "GT, trained at ε from 0 to 0.1".to_string();
        let mut row = inverse_transformer(label, Galerkin, Heads, k, grids, "0-0.1", scale);
        row.set("data.noise", "[0.0, 0.1]");
        rows.push(row);
        for row in rows.iter_mut().rev().take(NOISES.len() + 1) {
            let trial = |noise| Trial { grid: grids[0], noise, paper: None };
            row.trials = [0.0, 0.01, 0.02, 0.05, 0.1].map(trial).to_vec();
        }
    }
    rows
}

/// The same run in the table and in the matrix of noises, on the k-th pair of grids.
fn inverse_transformer(
    label: String,
    kind: AttentionKind,
    norm: Norm,
    k: usize,
    grids: [usize; 2],
    noise: impl Display,
    scale: Scale,
) -> Row {
    let network = format!("{}-{}", short(kind).to_lowercase(), norm.name());
    let mut row = Row::new(inverse_id(&network, k, grids[0], &noise), label, "darcy-inverse", scale);
    row.set("data.noise", noise.to_string());
    if scale == Scale::Quick {
        // Its windows are not their own mirror image.
        row.set("train.augment", "[\"transpose\"]");
    }
    set_transformer(&mut row, kind, norm, grids, scale);
    row
}

fn inverse_id(network: &str, k: usize, grid: usize, noise: impl Display) -> String {
    match k {
        0 => format!("inverse-{network}-{noise}"),
        _ => format!("inverse-{network}-{noise}-{grid}"),
    }
}

/// Grids, attention, norm, and the learning rate that goes with them.
fn set_transformer(row: &mut Row, kind: AttentionKind, norm: Norm, [fine, coarse]: [usize; 2], scale: Scale) {
    row.set_training(scale);
    row.set("data.grid", fine);
    row.set("network.lift.coarse", coarse);
    row.set("network.encoder.attention", attention_name(kind));
    row.set_norm(norm);
    if matches!(kind, Fourier | Softmax) {
        row.set("train.lr", 5e-4);
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Inverse,
}

/// Fine and coarse grids that networks are trained on.
fn grids(scale: Scale, direction: Direction) -> &'static [[usize; 2]] {
    match (scale, direction) {
        (Scale::Quick, _) => &[[43, 15]],
        (Scale::Cpu, _) => &[[85, 29]],
        (Scale::Paper, Direction::Forward) => &[[141, 43], [211, 61]],
        (Scale::Paper, Direction::Inverse) => &[[141, 36], [211, 71]],
    }
}
