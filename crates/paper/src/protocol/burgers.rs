//! Runs on Burgers' equation.

use galerkin::layers::AttentionKind::{self, Fourier, Galerkin, Linear, Softmax};

use super::Norm::{self, Heads, Residual};
use super::{Row, Trial, attention_name, short};
use crate::experiment::Scale;

/// Four kinds of attention with two norms, and the Fourier operator.
pub(super) fn table(scale: Scale) -> Vec<Row> {
    // Per model the paper's numbers, trained on 512, 2048 and 8192 points.
    let fno = [4.373, 4.126, 4.151];
    let transformers = [
        (Fourier, Residual, [1.400, 1.477, 1.172]),
        (Galerkin, Residual, [2.181, 1.512, 2.747]),
        (Softmax, Residual, [1.927, 2.307, 1.981]),
        (Linear, Residual, [1.813, 1.770, 1.617]),
        (Fourier, Heads, [1.135, 1.123, 1.071]),
        (Galerkin, Heads, [1.203, 1.150, 1.025]),
        (Softmax, Heads, [1.271, 1.266, 1.330]),
        (Linear, Heads, [1.139, 1.149, 1.221]),
    ];
    let mut rows = Vec::new();
    for (k, &grid) in grids(scale).iter().enumerate() {
        let at = |mut row: Row, paper: [f64; 3]| {
            row.set("data.grid", grid);
            if k > 0 {
                row.id = format!("{}-{grid}", row.id);
            }
            if grid == 8192 {
                row.set("train.batch", 4);
            }
            // The model trained on the coarsest grid is evaluated on the finer ones too.
            let grids: Vec<usize> = if k == 0 { finer(scale) } else { vec![grid] };
            row.trials = grids.into_iter().map(|grid| Trial { grid, noise: 0.0, paper: None }).collect();
            row.trials[0].paper = Some(paper[k]);
            row
        };
        rows.push(at(Row::new("burgers-fno", "FNO1d", "fno-burgers", scale), fno));
        for (kind, norm, paper) in transformers {
            let label = format!("{}, {}", short(kind), norm.label(kind));
            let id = format!("burgers-{}-{}", short(kind).to_lowercase(), norm.name());
            let mut row = at(transformer(id, label, kind, norm, scale), paper);
            row.pictured = (kind, norm) == (Galerkin, Heads);
            rows.push(row);
        }
    }
    rows
}

/// Rates of dropout as in the paper's table of them; for softmax and linear attention, and the optimiser, as in the authors' code.
fn transformer(
    id: impl Into<String>,
    label: impl Into<String>,
    kind: AttentionKind,
    norm: Norm,
    scale: Scale,
) -> Row {
    let mut row = Row::new(id, label, "burgers", scale);
    row.set_training(scale);
    row.set("network.encoder.attention", attention_name(kind));
    row.set_norm(norm);
    match (kind, norm) {
        (Galerkin, Heads) => {}
        (Galerkin, Residual) => {
            row.set("network.encoder.attention_dropout", 0.1);
            row.set("network.encoder.hidden_dropout", 0.1);
        }
        (Fourier, _) => row.set("network.encoder.hidden_dropout", 0.05),
        (Softmax | Linear, _) => row.set("network.encoder.residual_dropout", 0.1),
    }
    row
}

/// The Galerkin transformer with other initial weights.
pub(super) fn initialisations(scale: Scale) -> Vec<Row> {
    let grid = grids(scale)[0];
    // Norm, gain η, diagonal δ, dropout ζ, the paper's error at n = 512. Without a setting for it, η = 1.
    [
        (Residual, 1.0, 0.0, 0.0, 200.4),
        (Residual, 1.0, 0.0, 0.1, 206.4),
        (Residual, 0.01, 0.0, 0.0, 1.406),
        (Residual, 0.01, 0.0, 0.1, 16.85),
        (Residual, 0.01, 0.01, 0.0, 15.14),
        (Residual, 0.01, 0.01, 0.1, 2.181),
        (Heads, 1.0, 0.0, 0.0, 10.06),
        (Heads, 0.01, 0.0, 0.0, 1.927),
        (Heads, 0.01, 0.01, 0.0, 1.203),
    ]
    .into_iter()
    .map(|(norm, gain, diagonal, dropout, paper)| {
        let mut label = format!("GT {}", if norm == Heads { "A" } else { "R" });
        let mut id = format!("burgers-gt-{}", norm.name());
        match (gain, diagonal) {
            (1.0, _) => id.push_str("-xavier"),
            (_, 0.0) => {
                label.push_str(", η = 0.01");
                id.push_str("-gain");
            }
            _ => label.push_str(", η = δ = 0.01"),
        }
        if dropout > 0.0 {
            label.push_str(", ζ = 0.1");
        }
        // The rows with dropout for one norm and without for the other are those of the main table.
        match (norm, dropout > 0.0) {
            (Residual, false) => id.push_str("-no-dropout"),
            (Residual, true) | (Heads, false) => {}
            (Heads, true) => id.push_str("-dropout"),
        }
        let mut row = transformer(id, label, Galerkin, norm, scale);
        row.set("network.encoder.gain", gain);
        row.set("network.encoder.diagonal", diagonal);
        row.set("network.encoder.attention_dropout", dropout);
        if norm == Residual && dropout == 0.0 {
            row.set("network.encoder.hidden_dropout", 0.05);
        }
        row.trials = vec![Trial { grid, noise: 0.0, paper: Some(paper) }];
        row
    })
    .collect()
}

/// The Galerkin transformer with what the authors' code does otherwise.
pub(super) fn corrections(scale: Scale) -> Vec<Row> {
    let grid = grids(scale)[0];
    let changes: [(&str, &str, &[(&'static str, &str)]); 7] = [
        ("", "ours", &[]),
        ("-equal", "equal layers at the start", &[("network.encoder.equal_layers", "true")]),
        ("-closed", "coordinates j/(n − 1)", &[("network.closed_coordinates", "true")]),
        ("-interior", "seminorm without the ends", &[("loss.interior", "true")]),
        (
            "-dropout",
            "dropout 0.5 of the attention weights, in training",
            &[("network.encoder.attention_dropout", "0.5")],
        ),
        // With which more seeds go through.
        ("-beta2", "β₂ = 0.99 instead of 0.999", &[("optimizer.beta2", "0.99")]),
        (
            "-authors",
            "all but the dropout, as the authors' code",
            &[
                ("network.encoder.equal_layers", "true"),
                ("network.closed_coordinates", "true"),
                ("loss.interior", "true"),
            ],
        ),
    ];
    // Rows of the quick scale have another optimiser, without a β₂.
    let changes = changes.into_iter().filter(|(id, ..)| scale != Scale::Quick || *id != "-beta2");
    let rows = changes.map(|(id, label, settings)| {
        let mut row = transformer(format!("burgers-gt-heads{id}"), label, Galerkin, Heads, scale);
        for (key, value) in settings {
            row.set(key, value);
        }
        row.trials = vec![Trial { grid, noise: 0.0, paper: None }];
        row
    });
    rows.collect()
}

/// The Galerkin transformer from several seeds, with the β₂ with which all of them go through.
pub(super) fn seeds(scale: Scale) -> Vec<Row> {
    let grid = grids(scale)[0];
    let count = match scale {
        Scale::Quick => 2,
        Scale::Cpu => 4,
        Scale::Paper => 10,
    };
    // The last one is the authors' seed, of other numbers here.
    let rows = (1..=count).chain([1_127_802]).map(|seed| {
        let mut row = Row::new("burgers-gt-heads-beta2", format!("GT, seed {seed}"), "burgers", scale);
        row.set_adam(0.99);
        // The preset has the first.
        if seed != 1 {
            row.set("train.seed", seed);
            row.id.push_str(&format!("-seed{seed}"));
        }
        row.trials = vec![Trial { grid, noise: 0.0, paper: None }];
        row
    });
    rows.collect()
}

/// Grids that networks are trained on.
fn grids(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick => &[128],
        Scale::Cpu => &[512],
        Scale::Paper => &[512, 2048, 8192],
    }
}

/// The grid trained on, and finer ones.
fn finer(scale: Scale) -> Vec<usize> {
    match scale {
        Scale::Quick => vec![128, 512],
        Scale::Cpu | Scale::Paper => vec![512, 2048, 8192],
    }
}
