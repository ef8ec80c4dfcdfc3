//! The paper's experiments as lists of runs.

use galerkin::config::{NormPlace, RunConfig, Task};
use galerkin::layers::AttentionKind;
use galerkin::models::Preset;
use galerkin::train::OptimizerConfig;
use galerkin_data::pde::{self, Problem};

use crate::args::{Experiment, Scale};

/// A table of the paper.
pub(super) struct Study {
    pub title: &'static str,
    /// Errors are printed as multiples of this, as the paper does.
    pub unit: f64,
    pub rows: Vec<Row>,
}

/// A run, and what it is evaluated on.
pub(super) struct Row {
    /// Name of its folder, the same in every study that has it.
    pub id: String,
    /// As the table says it.
    pub label: String,
    pub config: RunConfig,
    /// Grids and levels of noise.
    pub settings: Vec<Setting>,
    /// Whether the report has pictures of its test samples.
    pub pictured: bool,
}

/// What a model is evaluated on, and what the paper reports for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub grid: usize,
    pub noise: f64,
    /// In the unit of the study; the paper's grids are others than ours where [`Row::label`] or the report says so.
    pub paper: Option<f64>,
}

/// The runs of an experiment; `None` for those that are no lists of runs.
pub(super) fn study(experiment: Experiment, scale: Scale) -> Option<Study> {
    let (title, unit, rows) = match experiment {
        Experiment::Burgers => ("Burgers' equation, relative L² error (Table 2a)", 1e-3, burgers(scale)),
        Experiment::BurgersInit => {
            ("Initialisation of the Galerkin transformer on Burgers' equation", 1e-3, burgers_init(scale))
        }
        Experiment::Corrections => {
            ("What our departures from the authors' code do on Burgers' equation", 1e-3, corrections(scale))
        }
        Experiment::Darcy => ("Darcy flow, relative L² error (Table 2b)", 1e-2, darcy(scale)),
        Experiment::DarcyInverse => {
            ("Coefficient of Darcy flow from its solution, relative L² error", 1e-2, inverse(scale, false))
        }
        Experiment::Noise => {
            ("Trained at one level of noise, evaluated at others", 1e-2, inverse(scale, true))
        }
        Experiment::Seeds => ("Seeds of the Galerkin transformer on Burgers' equation", 1e-3, seeds(scale)),
        Experiment::MemorySpeed | Experiment::Theory | Experiment::All => return None,
    };
    Some(Study { title, unit, rows })
}

/// The problem whose samples a run needs.
pub(super) fn problem(config: &RunConfig, scale: Scale) -> Problem {
    match (config.data.task, scale) {
        (Task::Burgers, Scale::Quick) => Problem::Burgers(pde::Burgers { points: 512, ..Default::default() }),
        (Task::Burgers, _) => Problem::Burgers(pde::Burgers::default()),
        (Task::Darcy | Task::DarcyInverse, Scale::Quick) => {
            Problem::Darcy(pde::Darcy { points: 85, ..Default::default() })
        }
        (Task::Darcy | Task::DarcyInverse, _) => Problem::Darcy(pde::Darcy::default()),
    }
}

use AttentionKind::{Fourier, Galerkin, Linear, Softmax};
use NormPlace::{Heads, Residual};

fn burgers(scale: Scale) -> Vec<Row> {
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
    for (k, &grid) in burgers_grids(scale).iter().enumerate() {
        let at = |mut row: Row, paper: [f64; 3]| {
            row.config.data.grid = grid;
            if k > 0 {
                row.id = format!("{}-{grid}", row.id);
            }
            if grid == 8192 {
                row.config.train.batch = 4;
            }
            // The model trained on the coarsest grid is evaluated on the finer ones too.
            let grids: Vec<usize> = if k == 0 { finer(scale) } else { vec![grid] };
            row.settings = grids.into_iter().map(|grid| Setting { grid, noise: 0.0, paper: None }).collect();
            row.settings[0].paper = Some(paper[k]);
            row
        };
        let row = |id: &str, label: &str, config| Row {
            id: id.into(),
            label: label.into(),
            config,
            settings: vec![],
            pictured: false,
        };
        rows.push(at(row("burgers-fno", "FNO1d", scaled(Preset::FnoBurgers, scale)), fno));
        for (kind, norm, paper) in transformers {
            let (short, norm_label) = (short(kind), norm_label(kind, norm));
            let config = burgers_transformer(kind, norm, scale);
            let name = format!("burgers-{}-{}", short.to_lowercase(), norm_name(norm));
            let mut row = at(row(&name, &format!("{short}, {norm_label}"), config), paper);
            row.pictured = (kind, norm) == (Galerkin, Heads);
            rows.push(row);
        }
    }
    rows
}

/// Rates of dropout as in the paper's table of them; for softmax and linear attention, and the optimiser, as in the authors' code.
fn burgers_transformer(kind: AttentionKind, norm: NormPlace, scale: Scale) -> RunConfig {
    let mut config = scaled(Preset::Burgers, scale);
    config.optimizer = OptimizerConfig::default();
    let model = &mut config.model;
    (model.attention, model.norm) = (Some(kind), Some(norm));
    match (kind, norm) {
        (Galerkin, Heads) => {}
        (Galerkin, Residual) => (model.attention_dropout, model.hidden_dropout) = (Some(0.1), Some(0.1)),
        (Fourier, _) => model.hidden_dropout = Some(0.05),
        (Softmax | Linear, _) => model.residual_dropout = Some(0.1),
    }
    config
}

fn burgers_init(scale: Scale) -> Vec<Row> {
    let grid = burgers_grids(scale)[0];
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
        let mut config = burgers_transformer(Galerkin, norm, scale);
        let model = &mut config.model;
        (model.gain, model.diagonal, model.attention_dropout) = (Some(gain), Some(diagonal), Some(dropout));
        if norm == Residual && dropout == 0.0 {
            model.hidden_dropout = Some(0.05);
        }
        let mut label = format!("GT {}", if norm == Heads { "A" } else { "R" });
        let mut id = format!("burgers-gt-{}", norm_name(norm));
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
        let settings = vec![Setting { grid, noise: 0.0, paper: Some(paper) }];
        Row { id, label, config, settings, pictured: false }
    })
    .collect()
}

fn corrections(scale: Scale) -> Vec<Row> {
    let grid = burgers_grids(scale)[0];
    type Change = fn(&mut RunConfig);
    let changes: [(&str, &str, Change); 7] = [
        ("", "ours", |_| {}),
        ("-equal", "equal layers at the start", |config| config.model.equal_layers = Some(true)),
        ("-closed", "coordinates j/(n − 1)", |config| config.model.closed_line = Some(true)),
        ("-interior", "seminorm without the ends", |config| config.loss.interior = true),
        ("-dropout", "dropout 0.5 of the attention weights, in training", |config| {
            config.model.attention_dropout = Some(0.5);
        }),
        // This row is the preset.
        ("-beta2", "β₂ = 0.99 instead of 0.999", |config| config.optimizer.beta2 = 0.99),
        ("-authors", "all but the dropout, as the authors' code", |config| {
            (config.model.equal_layers, config.model.closed_line) = (Some(true), Some(true));
            config.loss.interior = true;
        }),
    ];
    let rows = changes.into_iter().map(|(id, label, change)| {
        let mut config = burgers_transformer(Galerkin, Heads, scale);
        change(&mut config);
        let settings = vec![Setting { grid, noise: 0.0, paper: None }];
        Row { id: format!("burgers-gt-heads{id}"), label: label.into(), config, settings, pictured: false }
    });
    rows.collect()
}

fn seeds(scale: Scale) -> Vec<Row> {
    let grid = burgers_grids(scale)[0];
    let count = match scale {
        Scale::Quick => 2,
        Scale::Cpu => 4,
        Scale::Paper => 10,
    };
    // The last one is the authors' seed, of other numbers here.
    let rows = (1..=count).chain([1_127_802]).map(|seed| {
        let mut config = scaled(Preset::Burgers, scale);
        let mut id = "burgers-gt-heads-beta2".to_string();
        if seed != config.train.seed {
            config.train.seed = seed;
            id.push_str(&format!("-seed{seed}"));
        }
        let label = format!("GT, seed {}", config.train.seed);
        let settings = vec![Setting { grid, noise: 0.0, paper: None }];
        Row { id, label, config, settings, pictured: false }
    });
    rows.collect()
}

fn darcy(scale: Scale) -> Vec<Row> {
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
    for (k, &(grid, coarse)) in square_grids(scale, false).iter().enumerate() {
        let settings = |paper: [f64; 2]| {
            let grids = match scale {
                Scale::Quick => vec![43, 85],
                Scale::Cpu => vec![85, 141, 211],
                Scale::Paper => vec![grid],
            };
            // The paper trains on what it evaluates on: its number for 141 stands beside our 85.
            let paper = |at: usize| (at == 0).then_some(paper[k]);
            let setting = |(at, grid)| Setting { grid, noise: 0.0, paper: paper(at) };
            grids.into_iter().enumerate().map(setting).collect::<Vec<_>>()
        };
        let name = |id: String| if k > 0 { format!("{id}-{grid}") } else { id };
        let mut config = scaled(Preset::FnoDarcy, scale);
        config.data.grid = grid;
        let (id, label) = (name("darcy-fno".into()), "FNO2d".to_string());
        rows.push(Row { id, label, config, settings: settings([1.419, 1.424]), pictured: false });
        for (kind, norm, paper) in transformers {
            let mut config = scaled(Preset::Darcy, scale);
            (config.data.grid, config.data.coarse) = (grid, Some(coarse));
            (config.model.attention, config.model.norm) = (Some(kind), Some(norm));
            if matches!(kind, Fourier | Softmax) {
                config.train.lr = 5e-4;
            }
            let id = name(format!("darcy-{}-{}", short(kind).to_lowercase(), norm_name(norm)));
            let label = format!("{}, {}", short(kind), norm_label(kind, norm));
            let pictured = (kind, norm) == (Galerkin, Heads);
            rows.push(Row { id, label, config, settings: settings(paper), pictured });
        }
    }
    rows
}

/// The inverse problem; for the `matrix` of noises Galerkin transformers alone, at more levels.
fn inverse(scale: Scale, matrix: bool) -> Vec<Row> {
    const NOISES: [f64; 3] = [0.0, 0.01, 0.1];
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
    for (k, &(grid, coarse)) in square_grids(scale, true).iter().enumerate() {
        for (level, noise) in NOISES.into_iter().enumerate() {
            let settings = |paper: f64| match matrix {
                false => vec![Setting { grid, noise, paper: Some(paper) }],
                true => {
                    [0.0, 0.01, 0.02, 0.05, 0.1].map(|noise| Setting { grid, noise, paper: None }).to_vec()
                }
            };
            let name = |id: String| match k {
                0 => format!("{id}-{noise}"),
                _ => format!("{id}-{noise}-{grid}"),
            };
            if !matrix {
                let mut config = scaled(Preset::FnoDarcy, scale);
                (config.data.task, config.data.grid, config.data.noise) = (Task::DarcyInverse, grid, noise);
                config.loss.gamma = 0.0;
                let label = format!("FNO2d (only n_f), ε = {noise}");
                rows.push(Row {
                    id: name("inverse-fno".into()),
                    label,
                    config,
                    settings: settings(fno[k][level]),
                    pictured: false,
                });
            }
            for (kind, norm, paper) in transformers {
                if matrix && (kind, norm) != (Galerkin, Heads) {
                    continue;
                }
                let mut config = scaled(Preset::DarcyInverse, scale);
                (config.data.grid, config.data.coarse, config.data.noise) = (grid, Some(coarse), noise);
                (config.model.attention, config.model.norm) = (Some(kind), Some(norm));
                if matches!(kind, Fourier | Softmax) {
                    config.train.lr = 5e-4;
                }
                let id = name(format!("inverse-{}-{}", short(kind).to_lowercase(), norm_name(norm)));
                let label = match matrix {
                    false => format!("{}, {}, ε = {noise}", short(kind), norm_label(kind, norm)),
                    true => format!("GT, trained at ε = {noise}"),
                };
                let pictured = !matrix && (kind, norm) == (Galerkin, Heads);
                rows.push(Row { id, label, config, settings: settings(paper[k][level]), pictured });
            }
        }
    }
    rows
}

/// A preset with as many samples and epochs as the scale has. One run of a square problem takes about an hour on two cores at the
/// scale `cpu`; everything else there is the paper's protocol.
fn scaled(preset: Preset, scale: Scale) -> RunConfig {
    let mut config = RunConfig::preset(preset);
    let line = config.data.task == Task::Burgers;
    match scale {
        Scale::Paper => {}
        Scale::Cpu => match preset {
            Preset::Burgers | Preset::FnoBurgers | Preset::FnoDarcy => {}
            Preset::Darcy => config.train.epochs = 60,
            Preset::DarcyInverse => config.train.epochs = 36,
        },
        Scale::Quick => {
            config.data.folder = if line { "datasets/quick-burgers" } else { "datasets/quick-darcy" }.into();
            (config.data.train, config.data.validation, config.data.test) =
                if line { (128, 16, 16) } else { (32, 8, 8) };
            config.train.epochs = if line { 6 } else { 3 };
            // Modes that the coarsest grid has.
            config.data.grid = if line { 128 } else { 43 };
        }
    }
    config
}

/// Grids that networks are trained on.
fn burgers_grids(scale: Scale) -> &'static [usize] {
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

/// Fine and coarse grids that networks are trained on.
fn square_grids(scale: Scale, inverse: bool) -> &'static [(usize, usize)] {
    match (scale, inverse) {
        (Scale::Quick, _) => &[(43, 15)],
        (Scale::Cpu, _) => &[(85, 29)],
        (Scale::Paper, false) => &[(141, 43), (211, 61)],
        (Scale::Paper, true) => &[(141, 36), (211, 71)],
    }
}

fn short(kind: AttentionKind) -> &'static str {
    match kind {
        Galerkin => "GT",
        Fourier => "FT",
        Linear => "LT",
        Softmax => "ST",
    }
}

fn norm_name(norm: NormPlace) -> &'static str {
    match norm {
        Heads => "heads",
        Residual => "residual",
    }
}

fn norm_label(kind: AttentionKind, norm: NormPlace) -> &'static str {
    match (norm, kind) {
        (Residual, _) => "regular norm",
        (Heads, Galerkin | Linear) => "norm of K, V",
        (Heads, Fourier | Softmax) => "norm of Q, K",
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::config_file;
    use super::*;
    use std::collections::{HashMap, HashSet};
    use std::path::{Path, PathBuf};

    #[test]
    fn every_row_is_a_run_and_one_name_is_one_run() {
        for scale in [Scale::Quick, Scale::Cpu, Scale::Paper] {
            let mut runs: HashMap<String, RunConfig> = HashMap::new();
            for study in Experiment::ALL.into_iter().filter_map(|experiment| study(experiment, scale)) {
                for row in study.rows {
                    row.config.check().unwrap_or_else(|error| panic!("{}: {error}", row.id));
                    assert!(!row.settings.is_empty(), "{}", row.id);
                    let before = runs.insert(row.id.clone(), row.config.clone());
                    assert!(before.is_none_or(|before| before == row.config), "{}", row.id);
                }
            }
            // As many names as there are different runs.
            let mut configs: Vec<String> = runs.values().map(RunConfig::to_toml).collect();
            configs.sort();
            configs.dedup();
            assert_eq!(configs.len(), runs.len());
            let files: HashSet<PathBuf> =
                runs.keys().map(|id| config_file(Path::new("config"), id)).collect();
            assert_eq!(files.len(), runs.len());
        }
    }
}
