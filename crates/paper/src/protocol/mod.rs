//! The paper's experiments as lists of runs.

mod accuracy;
mod burgers;
mod darcy;

use std::path::{Path, PathBuf};

use galerkin::layers::AttentionKind::{self, Fourier, Galerkin, Linear, Softmax};

use crate::experiment::{Experiment, Scale};

/// The runs of an experiment and the table they make.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    /// What stands above the table.
    pub title: &'static str,
    /// Errors are printed as multiples of this, as the paper does.
    pub unit: f64,
    /// The paper's error of the Galerkin transformer: a report says when runs reach it.
    pub goal: Option<f64>,
    /// A run each.
    pub rows: Vec<Row>,
}

/// A run, and what it is evaluated on.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of its folder, the same in every protocol that has it.
    pub id: String,
    /// As the table says it.
    pub label: String,
    /// The library's preset that it starts from.
    pub preset: &'static str,
    /// What is changed in the preset: dotted keys and values, as `--set` takes them, every key once.
    pub settings: Vec<(&'static str, String)>,
    /// Grids and levels of noise.
    pub trials: Vec<Trial>,
    /// Whether a report has pictures of its test samples.
    pub pictured: bool,
}

/// What a trained model is evaluated on, and what the paper reports for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Points, a side in 2D.
    pub grid: usize,
    /// Noise on the inputs.
    pub noise: f64,
    /// In the unit of the protocol; the paper's grids are others than ours where [`Row::label`] or the report says so.
    pub paper: Option<f64>,
}

impl Experiment {
    /// Its runs; `None` for those that are no lists of runs.
    pub fn protocol(self, scale: Scale) -> Option<Protocol> {
        let (title, unit, rows) = match self {
            Experiment::Burgers => {
                ("Burgers' equation, relative L² error (Table 2a)", 1e-3, burgers::table(scale))
            }
            Experiment::BurgersInit => (
                "Initialisation of the Galerkin transformer on Burgers' equation",
                1e-3,
                burgers::initialisations(scale),
            ),
            Experiment::Corrections => (
                "What our departures from the authors' code do on Burgers' equation",
                1e-3,
                burgers::corrections(scale),
            ),
            Experiment::Darcy => ("Darcy flow, relative L² error (Table 2b)", 1e-2, darcy::table(scale)),
            Experiment::DarcyInverse => (
                "Coefficient of Darcy flow from its solution, relative L² error",
                1e-2,
                darcy::inverse(scale),
            ),
            Experiment::Noise => {
                ("Trained at one level of noise, evaluated at others", 1e-2, darcy::noise_matrix(scale))
            }
            Experiment::Seeds => {
                ("Seeds of the Galerkin transformer on Burgers' equation", 1e-3, burgers::seeds(scale))
            }
            Experiment::AccuracyBurgers => {
                ("Burgers' equation with our presets", 1e-3, accuracy::burgers(scale))
            }
            Experiment::AccuracyDarcy => ("Darcy flow with our presets", 1e-3, accuracy::darcy(scale)),
            Experiment::AccuracyInverse => (
                "Coefficient of Darcy flow from its solution, with our presets",
                1e-2,
                accuracy::inverse(scale),
            ),
            Experiment::MemorySpeed | Experiment::Theory => return None,
        };
        // On the coarsest grid of its tables.
        let goal = match self {
            Experiment::Burgers | Experiment::BurgersInit | Experiment::Corrections | Experiment::Seeds => {
                Some(1.2e-3)
            }
            Experiment::Darcy => Some(8.39e-3),
            _ => None,
        };
        Some(Protocol { title, unit, goal, rows })
    }
}

impl Row {
    /// A preset with as many samples and epochs as the scale has, and without trials yet.
    fn new(id: impl Into<String>, label: impl Into<String>, preset: &'static str, scale: Scale) -> Self {
        let (id, label, settings) = (id.into(), label.into(), Vec::new());
        let mut row = Self { id, label, preset, settings, trials: Vec::new(), pictured: false };
        row.set_scale(scale);
        row
    }

    /// One run of a square problem takes about an hour on two cores at the scale `cpu`; everything else there is the paper's protocol.
    fn set_scale(&mut self, scale: Scale) {
        match (scale, self.preset) {
            (Scale::Cpu, "darcy") => self.set("train.epochs", 60),
            (Scale::Cpu, "darcy-inverse") => self.set("train.epochs", 36),
            (Scale::Cpu | Scale::Paper, _) => {}
            (Scale::Quick, _) => {
                // A grid that has all modes the networks keep, and as many steps as make errors that can be shown.
                let (folder, [train, other], epochs, grid) = match self.is_on_line() {
                    true => ("datasets/quick-burgers", [128, 16], 24, 128),
                    false => ("datasets/quick-darcy", [32, 8], 6, 43),
                };
                self.set("data.folder", folder);
                self.set("data.train", train);
                self.set("data.validation", other);
                self.set("data.test", other);
                self.set("data.grid", grid);
                self.set("train.epochs", epochs);
            }
        }
    }

    /// Changes a setting.
    fn set(&mut self, key: &'static str, value: impl ToString) {
        match self.settings.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value.to_string(),
            None => self.settings.push((key, value.to_string())),
        }
    }

    /// The paper's training, but at the quick scale: its steps are too few for Adam, and rows keep the training of the preset.
    fn set_training(&mut self, scale: Scale) {
        if scale != Scale::Quick {
            self.set_adam(0.999);
        }
    }

    /// Adam with the paper's largest rate, and samples as they are.
    fn set_adam(&mut self, beta2: f64) {
        self.set("optimizer.kind", "adam");
        self.set("optimizer.beta2", beta2);
        self.set("train.lr", 1e-3);
        self.set("train.augment", "[]");
    }

    /// Puts the layer norms of a transformer in their place.
    fn set_norm(&mut self, norm: Norm) {
        self.set("network.encoder.head_norm", if norm == Norm::Heads { "layer" } else { "none" });
        self.set("network.encoder.residual_norm", norm == Norm::Residual);
    }

    /// The file of its settings in a folder. Names of runs may have dots, which begin no extension.
    pub fn config_file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.toml", self.id))
    }

    /// Whether its functions live on a line, as those of Burgers' equation do, and not on a square.
    pub fn is_on_line(&self) -> bool {
        matches!(self.preset, "burgers" | "fno-burgers")
    }

    /// Whether two runs are the same, seeds aside.
    pub fn is_same_but_for_seed(&self, other: &Row) -> bool {
        let settings = |row: &Row| {
            let mut settings = row.settings.clone();
            settings.retain(|(key, _)| *key != "train.seed");
            settings.sort();
            settings
        };
        self.preset == other.preset && settings(self) == settings(other)
    }
}

impl Trial {
    /// Whether both are on the same grid with the same noise.
    pub fn is_like(&self, other: &Trial) -> bool {
        (self.grid, self.noise) == (other.grid, other.noise)
    }
}

/// Where the layer norms of a transformer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Norm {
    /// Inside the heads: the paper's new scheme.
    Heads,
    /// After the residuals: the regular one.
    Residual,
}

impl Norm {
    /// In names of folders.
    fn name(self) -> &'static str {
        match self {
            Norm::Heads => "heads",
            Norm::Residual => "residual",
        }
    }

    /// In tables.
    fn label(self, kind: AttentionKind) -> &'static str {
        match (self, kind) {
            (Norm::Residual, _) => "regular norm",
            (Norm::Heads, Galerkin | Linear) => "norm of K, V",
            (Norm::Heads, Fourier | Softmax) => "norm of Q, K",
        }
    }
}

/// The paper's abbreviation of a transformer.
fn short(kind: AttentionKind) -> &'static str {
    match kind {
        Galerkin => "GT",
        Fourier => "FT",
        Linear => "LT",
        Softmax => "ST",
    }
}

/// In settings.
fn attention_name(kind: AttentionKind) -> &'static str {
    match kind {
        Galerkin => "galerkin",
        Fourier => "fourier",
        Linear => "linear",
        Softmax => "softmax",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    use galerkin::config::RunConfig;

    #[test]
    fn every_row_is_a_run_and_one_name_is_one_run() {
        for scale in Scale::ALL {
            let mut runs: HashMap<String, RunConfig> = HashMap::new();
            let mut files = HashSet::new();
            for protocol in Experiment::ALL.into_iter().filter_map(|experiment| experiment.protocol(scale)) {
                for row in protocol.rows {
                    let config = row.config().unwrap_or_else(|error| panic!("{}: {error}", row.id));
                    config.check().unwrap_or_else(|error| panic!("{}: {error}", row.id));
                    assert!(!row.trials.is_empty(), "{}", row.id);
                    files.insert(row.config_file(Path::new("config")));
                    let before = runs.insert(row.id.clone(), config.clone());
                    assert!(before.is_none_or(|before| before == config), "{}", row.id);
                }
            }
            // As many names as there are different runs.
            let mut configs: Vec<String> = runs.values().map(RunConfig::to_toml).collect();
            configs.sort();
            configs.dedup();
            assert_eq!(configs.len(), runs.len());
            assert_eq!(files.len(), runs.len());
        }
    }

    /// Every run of one of the paper's experiments but those of `seeds` is another, whatever its seed.
    #[test]
    fn only_seeds_differ_by_their_seed_alone() {
        let ours = [Experiment::AccuracyBurgers, Experiment::AccuracyDarcy, Experiment::AccuracyInverse];
        for experiment in Experiment::ALL.into_iter().filter(|experiment| !ours.contains(experiment)) {
            let rows = experiment.protocol(Scale::Cpu).map_or(Vec::new(), |protocol| protocol.rows);
            for (i, row) in rows.iter().enumerate() {
                let same = rows[..i].iter().filter(|other| row.is_same_but_for_seed(other)).count();
                assert_eq!(same, if experiment == Experiment::Seeds { i } else { 0 }, "{}", row.id);
            }
        }
    }
}
