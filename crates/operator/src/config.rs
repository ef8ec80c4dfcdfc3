//! What a run is told: data, network, loss, training. A TOML file, both ways.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layers::{AttentionKind, EncoderLayerConfig, HeadNorm};
use crate::models::{DecoderConfig, ModelConfig, Preset, Transformer2dConfig};
use crate::train::{OptimizerConfig, Schedule};

/// Everything a run depends on. The same config gives the same weights, bit by bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The network all other settings of the model start from.
    pub preset: Preset,
    /// What is learned from.
    pub data: DataConfig,
    /// What is changed in the preset's network.
    pub model: ModelSettings,
    /// How far a prediction is off.
    pub loss: LossConfig,
    /// The training.
    pub train: TrainConfig,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// When the state of a run is saved.
    pub checkpoint: CheckpointConfig,
}

/// What is to be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// From initial values to the solution at time 1.
    Burgers,
    /// From the coefficient to the solution.
    Darcy,
    /// From the solution to the coefficient.
    DarcyInverse,
}

/// What is learned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// What is learned.
    pub task: Task,
    /// The folder of the dataset. A preset's data are generated if it is not there.
    pub folder: PathBuf,
    /// Points, a side in 2D, of the grid trained on; taken from the finer one of the dataset.
    pub grid: usize,
    /// Points a side of the grid of the attention in 2D, and of the targets of the inverse problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coarse: Option<usize>,
    /// Samples to train on.
    pub train: usize,
    /// Samples to choose the best weights with.
    pub validation: usize,
    /// Samples to report on: the last ones of the dataset.
    pub test: usize,
    /// Noise on the inputs, relative to their deviation at each point.
    pub noise: f64,
}

/// What is changed in the preset's network; what is absent stays as it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// Which attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionKind>,
    /// Where the layer norms are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormPlace>,
    /// Encoder layers, or convolutions of a Fourier operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// Features of a point in these layers; the feed-forward network is twice as wide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Heads of the attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Channels of a transformer's spectral decoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
    /// Modes that spectral convolutions keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<usize>,
    /// η, gain of the initial projections; 0 initialises them like other layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// δ, added to the diagonal of the initial projections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagonal: Option<f64>,
    /// Whether all encoder layers begin with the values of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equal_layers: Option<bool>,
    /// Whether coordinates of a line are j/(n − 1) instead of j/n.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_line: Option<bool>,
    /// Dropout rate of the attention weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// Dropout rate before the residuals of an encoder layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_dropout: Option<f64>,
    /// Dropout rate inside the feed-forward network of an encoder layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
}

/// Where the layer norms of an encoder layer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Inside the heads: the paper's new scheme.
    Heads,
    /// After the residuals: the usual one.
    Residual,
}

/// How far a prediction is off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// γ, weight of the H¹-seminorm of the error; 0 leaves it out.
    pub gamma: f64,
    /// Whether the first and the last point of a periodic line are left out of the error's seminorm, as in the authors' code.
    #[serde(default)]
    pub interior: bool,
}

/// The training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the training samples.
    pub epochs: u32,
    /// Samples of a batch.
    pub batch: usize,
    /// Batches of a step.
    pub accumulate: u32,
    /// The largest learning rate.
    pub lr: f64,
    /// Of weights, dropout, split, order and noise.
    pub seed: u64,
    /// Decay of a running average of the weights, which is then what is evaluated; 0 is none.
    pub average: f64,
}

/// When the state of a run is saved; both may apply. It is saved at its end in any case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between two checkpoints; 0 is never.
    pub every_steps: u64,
    /// Minutes between two checkpoints; 0 is never.
    pub every_minutes: f64,
}

impl RunConfig {
    /// The paper's run of a preset, at sizes for a plain CPU.
    pub fn preset(preset: Preset) -> Self {
        let (task, grid, coarse, gamma, batch, peak, noise) = match preset {
            Preset::Burgers | Preset::FnoBurgers => (Task::Burgers, 512, None, 0.1, 8, 0.2, 0.0),
            Preset::Darcy => (Task::Darcy, 85, Some(29), 0.5, 4, 0.3, 0.0),
            Preset::FnoDarcy => (Task::Darcy, 85, None, 0.5, 4, 0.3, 0.0),
            Preset::DarcyInverse => (Task::DarcyInverse, 85, Some(29), 0.0, 4, 0.3, 0.01),
        };
        let folder = match task {
            Task::Burgers => "datasets/burgers",
            Task::Darcy | Task::DarcyInverse => "datasets/darcy",
        };
        let mut optimizer = OptimizerConfig::default();
        if preset == Preset::Burgers {
            // With 0.999 one of four seeds diverged near the largest learning rate.
            optimizer.beta2 = 0.99;
        }
        Self {
            preset,
            data: DataConfig {
                task,
                folder: folder.into(),
                grid,
                coarse,
                train: 1024,
                validation: 100,
                test: 100,
                noise,
            },
            model: ModelSettings::of(&preset.config()),
            loss: LossConfig { gamma, interior: false },
            train: TrainConfig { epochs: 100, batch, accumulate: 1, lr: 1e-3, seed: 1, average: 0.0 },
            schedule: Schedule::OneCycle { peak },
            optimizer,
            checkpoint: CheckpointConfig { every_steps: 0, every_minutes: 2.0 },
        }
    }

    /// Reads a config. `sets` are pairs of a dotted key and its value, as `--set` takes them.
    pub fn parse(text: &str, origin: &Path, sets: &[(String, String)]) -> Result<Self> {
        let wrong = |error: toml::de::Error| Error::Config {
            origin: origin.display().to_string(),
            why: error.to_string().trim_end().to_string(),
        };
        let mut table: toml::Table = text.parse().map_err(wrong)?;
        for (key, value) in sets {
            set(&mut table, key, value)?;
        }
        let config: Self = table.try_into().map_err(wrong)?;
        config.check()?;
        Ok(config)
    }

    /// With changes, pairs of a dotted key and its value.
    pub fn with(&self, sets: &[(String, String)]) -> Result<Self> {
        Self::parse(&self.to_toml(), Path::new("--set"), sets)
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a config is a table of numbers and names")
    }

    /// The file with a word on every setting.
    pub fn to_commented_toml(&self) -> String {
        let mut text =
            format!("# The run of preset {}. `galerkin train FILE.toml` trains it.\n", self.preset);
        let mut section = String::new();
        for line in self.to_toml().lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = format!("{name}.");
            }
            let key = line.split_once(" = ").map(|(key, _)| format!("{section}{key}"));
            let word = key.and_then(|key| COMMENTS.iter().find(|(known, _)| *known == key));
            match word {
                Some((_, word)) => text.push_str(&format!("{line:<36} # {word}\n")),
                None => text.push_str(&format!("{line}\n")),
            }
        }
        text
    }

    /// `Ok` if the numbers have a meaning, the network can be built and the grids fit it.
    pub fn check(&self) -> Result<()> {
        self.schedule.check()?;
        let DataConfig { train, validation, .. } = self.data;
        let TrainConfig { epochs, batch, accumulate, lr, average, .. } = self.train;
        for (name, value) in [
            ("data.train", train),
            ("data.validation", validation),
            ("train.epochs", epochs as usize),
            ("train.batch", batch),
            ("train.accumulate", accumulate as usize),
        ] {
            if value == 0 {
                return Err(Error::setting(format!("{name} = 0"), "it must be at least 1"));
            }
        }
        if train < batch * accumulate as usize {
            let what = format!("data.train = {train}");
            return Err(Error::setting(
                what,
                format!("a step takes {} samples", batch * accumulate as usize),
            ));
        }
        for (name, value, fits) in [
            ("train.lr", lr, lr > 0.0 && lr.is_finite()),
            ("train.average", average, (0.0..1.0).contains(&average)),
            ("data.noise", self.data.noise, self.data.noise >= 0.0 && self.data.noise.is_finite()),
            ("loss.gamma", self.loss.gamma, self.loss.gamma >= 0.0 && self.loss.gamma.is_finite()),
        ] {
            if !fits {
                return Err(Error::setting(format!("{name} = {value}"), "it is out of range"));
            }
        }
        self.model_config().map(|_| ())
    }

    /// The network.
    pub fn model_config(&self) -> Result<ModelConfig> {
        let DataConfig { task, grid, coarse, .. } = self.data;
        let kind = AttentionKind::Galerkin;
        let need = |coarse: Option<usize>| {
            coarse.ok_or_else(|| Error::setting("data.coarse", "a 2D transformer needs a coarse grid"))
        };
        let config = match (self.preset, task) {
            (Preset::Darcy, Task::Darcy) => {
                ModelConfig::Transformer2d(Transformer2dConfig::darcy(kind, grid, need(coarse)?))
            }
            (Preset::DarcyInverse, Task::DarcyInverse) => {
                ModelConfig::Transformer2d(Transformer2dConfig::darcy_inverse(kind, grid, need(coarse)?))
            }
            (Preset::Burgers | Preset::FnoBurgers, Task::Burgers)
            | (Preset::FnoDarcy, Task::Darcy | Task::DarcyInverse) => self.preset.config(),
            (preset, task) => {
                let what = format!("data.task = {:?}", task.name());
                return Err(Error::setting(
                    what,
                    format!("the network of preset {preset} does not learn it"),
                ));
            }
        };
        let mut config = self.model.change(config)?;
        if let (ModelConfig::Transformer2d(config), Some(coarse)) = (&mut config, coarse) {
            // By factor as in the paper, unless that misses the coarse grid.
            config.resampling.by_factor = config.resampling.through([grid; 2])?.down[1] == [coarse; 2];
        }
        Ok(config)
    }

    /// Steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        self.train.epochs as u64 * self.steps_per_epoch()
    }

    /// Steps of an epoch; samples that fill no step are left out of it.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.data.train / (self.train.batch * self.train.accumulate as usize)) as u64
    }
}

impl Task {
    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Task::Burgers => "burgers",
            Task::Darcy => "darcy",
            Task::DarcyInverse => "darcy-inverse",
        }
    }
}

impl ModelSettings {
    /// Those of a network, for a file that shows them all.
    fn of(config: &ModelConfig) -> Self {
        let encoder = |encoder: &EncoderLayerConfig, layers: usize, decoder: Option<[usize; 2]>| Self {
            attention: Some(encoder.attention.kind),
            norm: Some(if encoder.norm_after { NormPlace::Residual } else { NormPlace::Heads }),
            layers: Some(layers),
            equal_layers: Some(false),
            closed_line: None,
            width: Some(encoder.attention.features),
            heads: Some(encoder.attention.heads),
            channels: decoder.map(|[channels, _]| channels),
            modes: decoder.map(|[_, modes]| modes),
            gain: Some(encoder.attention.gain),
            diagonal: Some(encoder.attention.diagonal),
            attention_dropout: Some(encoder.attention.dropout),
            residual_dropout: Some(encoder.residual_dropout),
            hidden_dropout: Some(encoder.hidden_dropout),
        };
        match config {
            ModelConfig::Transformer1d(c) => {
                let decoder = Some([c.decoder.channels, c.decoder.modes]);
                Self { closed_line: Some(c.closed_line), ..encoder(&c.encoder, c.layers, decoder) }
            }
            ModelConfig::Transformer2d(c) => {
                let decoder = match &c.decoder {
                    DecoderConfig::Spectral(decoder) => Some([decoder.channels, decoder.modes]),
                    DecoderConfig::Pointwise(_) => None,
                };
                encoder(&c.encoder, c.layers, decoder)
            }
            ModelConfig::Fno1d(c) | ModelConfig::Fno2d(c) => Self {
                layers: Some(c.layers),
                width: Some(c.channels),
                modes: Some(c.modes),
                ..Self::default()
            },
        }
    }

    /// The network with these settings. One that it does not have is an error.
    fn change(&self, mut config: ModelConfig) -> Result<ModelConfig> {
        match &mut config {
            ModelConfig::Transformer1d(c) => {
                self.change_encoder(&mut c.encoder, &mut c.layers);
                c.equal_layers = self.equal_layers.unwrap_or(c.equal_layers);
                c.closed_line = self.closed_line.unwrap_or(c.closed_line);
                let d = c.encoder.attention.features;
                (c.decoder.inputs, c.decoder.hidden) = (d, d);
                c.decoder.modes = self.modes.unwrap_or(c.decoder.modes);
                if let Some(channels) = self.channels {
                    (c.decoder.channels, c.decoder.feed_forward) = (channels, channels);
                }
            }
            ModelConfig::Transformer2d(c) => {
                self.change_encoder(&mut c.encoder, &mut c.layers);
                c.equal_layers = self.equal_layers.unwrap_or(c.equal_layers);
                if self.closed_line.is_some() {
                    return Err(Error::setting("model.closed_line", "the coordinates are those of a square"));
                }
                let d = c.encoder.attention.features;
                (c.downsampler.outputs, c.upsampler.channels) = (d, d);
                match &mut c.decoder {
                    DecoderConfig::Spectral(decoder) => {
                        decoder.inputs = d;
                        decoder.modes = self.modes.unwrap_or(decoder.modes);
                        if let Some(channels) = self.channels {
                            (decoder.hidden, decoder.channels) = (channels, channels);
                            decoder.feed_forward = channels.saturating_mul(4);
                        }
                    }
                    DecoderConfig::Pointwise(decoder) => {
                        (decoder.inputs, decoder.hidden) = (d, d);
                        for (name, value) in [("modes", self.modes), ("channels", self.channels)] {
                            if let Some(value) = value {
                                let what = format!("model.{name} = {value}");
                                return Err(Error::setting(what, "the pointwise decoder has none"));
                            }
                        }
                    }
                }
            }
            ModelConfig::Fno1d(c) | ModelConfig::Fno2d(c) => {
                c.layers = self.layers.unwrap_or(c.layers);
                c.channels = self.width.unwrap_or(c.channels);
                c.modes = self.modes.unwrap_or(c.modes);
                let rest = Self { layers: None, width: None, modes: None, ..*self };
                if rest != Self::default() {
                    let set = toml::to_string(&rest).unwrap_or_default().trim_end().replace('\n', ", ");
                    return Err(Error::setting(
                        format!("model: {set}"),
                        "a Fourier operator has no attention",
                    ));
                }
            }
        }
        Ok(config)
    }

    fn change_encoder(&self, encoder: &mut EncoderLayerConfig, layers: &mut usize) {
        let attention = &mut encoder.attention;
        attention.kind = self.attention.unwrap_or(attention.kind);
        attention.features = self.width.unwrap_or(attention.features);
        attention.heads = self.heads.unwrap_or(attention.heads);
        attention.gain = self.gain.unwrap_or(attention.gain);
        attention.diagonal = self.diagonal.unwrap_or(attention.diagonal);
        attention.dropout = self.attention_dropout.unwrap_or(attention.dropout);
        if let Some(place) = self.norm {
            attention.norm = if place == NormPlace::Heads { HeadNorm::Layer } else { HeadNorm::None };
            encoder.norm_after = place == NormPlace::Residual;
        }
        encoder.hidden = 2 * attention.features;
        encoder.residual_dropout = self.residual_dropout.unwrap_or(encoder.residual_dropout);
        encoder.hidden_dropout = self.hidden_dropout.unwrap_or(encoder.hidden_dropout);
        *layers = self.layers.unwrap_or(*layers);
    }
}

/// What [`RunConfig::to_commented_toml`] says of each setting.
const COMMENTS: [(&str, &str); 40] = [
    ("preset", "the network all settings of the model start from"),
    ("data.task", "burgers | darcy | darcy-inverse"),
    ("data.folder", "the dataset; a preset's data are generated if it is not there"),
    ("data.grid", "points trained on, a side in 2D; taken from the dataset's finer grid"),
    ("data.coarse", "points a side of the attention's grid, and of the inverse problem's targets"),
    ("data.train", "samples to train on"),
    ("data.validation", "samples to choose the best weights with"),
    ("data.test", "samples to report on, the last of the dataset"),
    ("data.noise", "noise on the inputs, relative to their deviation"),
    ("model.attention", "galerkin | fourier | linear | softmax"),
    ("model.norm", "heads: inside the heads, the paper's new scheme | residual: after the residuals"),
    ("model.layers", "encoder layers, or convolutions of a Fourier operator"),
    ("model.width", "features of a point"),
    ("model.heads", "heads of the attention"),
    ("model.channels", "channels of the spectral decoder"),
    ("model.modes", "modes that spectral convolutions keep"),
    ("model.gain", "eta, gain of the initial projections; 0: like other layers"),
    ("model.diagonal", "delta, added to the diagonal of the initial projections"),
    ("model.equal_layers", "all encoder layers begin with the values of the first, as in the authors' code"),
    ("model.closed_line", "coordinates j/(n - 1), as in the authors' code, instead of j/n"),
    ("model.attention_dropout", "rate on the attention weights"),
    ("model.residual_dropout", "rate before the residuals"),
    ("model.hidden_dropout", "rate inside the feed-forward network"),
    ("loss.gamma", "weight of the error's H1-seminorm; 0 leaves it out"),
    ("loss.interior", "without the first and the last point of a periodic line, as in the authors' code"),
    ("train.epochs", "passes over the training samples"),
    ("train.batch", "samples of a batch"),
    ("train.accumulate", "batches of a step"),
    ("train.lr", "the largest learning rate"),
    ("train.seed", "of weights, dropout, split, order and noise"),
    ("train.average", "decay of averaged weights, which are then evaluated; 0: none"),
    ("schedule.kind", "one_cycle with peak | cosine with warmup | constant"),
    ("schedule.peak", "share of the steps before the largest rate"),
    ("schedule.warmup", "share of the steps on the way up"),
    ("optimizer.beta2", "decay of the second moment"),
    ("optimizer.eps", "added to its root"),
    ("optimizer.weight_decay", "decoupled, as in AdamW; 0: Adam"),
    ("optimizer.max_norm", "gradients with a larger norm, all together, are scaled down"),
    ("checkpoint.every_steps", "0: not by steps"),
    ("checkpoint.every_minutes", "0: not by time"),
];

/// Puts `value`, which is TOML or else a plain word, at a dotted key.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Result<()> {
    let parsed = format!("value = {value}").parse::<toml::Table>();
    let value = match parsed {
        Ok(mut table) => table.remove("value").expect("just parsed"),
        Err(_) => toml::Value::String(value.to_string()),
    };
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place = table;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let next = place.entry(part).or_insert_with(|| toml::Table::new().into());
        place = next.as_table_mut().ok_or_else(|| {
            Error::setting(format!("--set {key}"), format!("{part} is a value, not a table"))
        })?;
    }
    // A whole number is also a real one: `train.lr=1`.
    let value = match (place.get(last), value) {
        (Some(toml::Value::Float(_)), toml::Value::Integer(whole)) => toml::Value::Float(whole as f64),
        (_, value) => value,
    };
    place.insert(last.to_string(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn every_preset_goes_to_toml_and_back() {
        for preset in Preset::ALL {
            let config = RunConfig::preset(preset);
            config.check().unwrap();
            let back = RunConfig::parse(&config.to_toml(), Path::new("test"), &[]).unwrap();
            assert_eq!(back, config);
        }
    }

    #[test]
    fn every_setting_has_its_word() {
        for preset in Preset::ALL {
            let config = RunConfig::preset(preset);
            let text = config.to_commented_toml();
            for line in text.lines().filter(|line| line.contains(" = ")) {
                assert!(line.contains(" # "), "{line}");
            }
            assert_eq!(RunConfig::parse(&text, Path::new("test"), &[]).unwrap(), config);
        }
    }

    #[test]
    fn settings_reach_the_network() {
        let config = RunConfig::preset(Preset::Burgers);
        let names = [
            ("model.attention", "fourier"),
            ("model.norm", "residual"),
            ("model.layers", "2"),
            ("model.width", "32"),
            ("train.lr", "1"),
            ("data.folder", "some/where"),
        ];
        let config = config.with(&sets(&names)).unwrap();
        assert_eq!(config.train.lr, 1.0);
        assert_eq!(config.data.folder, Path::new("some/where"));
        let ModelConfig::Transformer1d(model) = config.model_config().unwrap() else { panic!() };
        assert_eq!(model.encoder.attention.kind, AttentionKind::Fourier);
        assert_eq!(model.encoder.attention.norm, HeadNorm::None);
        assert!(model.encoder.norm_after);
        assert_eq!((model.layers, model.encoder.hidden, model.decoder.inputs), (2, 64, 32));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let config = RunConfig::preset(Preset::Burgers);
        let error = |key: &str, value: &str| config.with(&sets(&[(key, value)])).unwrap_err().to_string();
        assert!(error("train.epoch", "3").contains("unknown field `epoch`"));
        assert!(error("model.attention", "magic").contains("unknown variant `magic`"));
        assert!(error("train.batch", "0").contains("train.batch = 0"));
        assert!(error("train.batch.size", "0").contains("batch is a value"));
        assert!(error("data.task", "darcy").contains("does not learn it"));
        assert!(error("train.lr", "-1").contains("train.lr = -1"));
        let fno = RunConfig::preset(Preset::FnoDarcy);
        let error = fno.with(&sets(&[("model.attention", "galerkin")])).unwrap_err().to_string();
        assert_eq!(error, "model: attention = \"galerkin\": a Fourier operator has no attention");
    }
}
