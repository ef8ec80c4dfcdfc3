//! What a run is told: data, network, loss, training. A TOML file, both ways.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::loss::check_channel_weights;
use crate::networks::{
    EncoderConfig, FnoConfig, InterpolationConfig, LevelEncoderConfig, MultilevelConfig, NetworkConfig,
    PointwiseConfig, PointwiseLiftConfig, SpectralConfig, TransformerConfig,
};
use crate::optimizer::{AdamConfig, MuonConfig, OptimizerConfig, SoapConfig};
use crate::schedule::Schedule;
use crate::settings::settings;
use crate::symmetry::Symmetry;

settings! {
    /// Everything a run depends on. The same config gives the same weights, bit by bit.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RunConfig {
        /// what tables and figures call the run
        pub name: String,
        /// what is learned from
        pub data: DataConfig,
        /// what learns
        pub network: NetworkConfig,
        /// how far a prediction is off
        pub loss: LossConfig,
        /// the training
        pub train: TrainConfig,
        /// the learning rate over the run
        pub schedule: Schedule,
        /// the optimiser
        pub optimizer: OptimizerConfig,
        /// when the state of a run is saved; at its end in any case
        pub checkpoint: CheckpointConfig,
    }
}

settings! {
    /// What is learned from.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct DataConfig {
        /// folder of the dataset
        pub folder: PathBuf,
        /// points along the first axis of the grid trained on; taken from the dataset's finer one
        pub grid: usize,
        /// whether inputs are learned from targets instead
        #[serde(default)]
        pub inverse: bool,
        /// of an inverse problem on a square: points a side of the grid that what is learned is averaged to
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub coarse: Option<usize>,
        /// samples to train on
        pub train: usize,
        /// samples to choose the best weights with
        pub validation: usize,
        /// samples to report on
        pub test: usize,
        /// noise on the inputs, relative to their deviation; [low, high]: a training sample has low + (high - low) u^2 with u uniform in (0, 1), a validation sample the mean of that
        #[serde(default)]
        pub noise: Noise,
        /// inputs less their mean, over their deviation: none | channel | point
        pub normalize_inputs: Normalization,
        /// what the network gives times the deviation of the targets, plus their mean: none | channel | point
        pub normalize_targets: Normalization,
    }
}

/// The level of noise on inputs, relative to their deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a level of noise or a range [low, high]")]
pub enum Noise {
    /// The same for all samples.
    Level(f64),
    /// Another one for every training sample of every epoch.
    Range([f64; 2]),
}

impl Default for Noise {
    fn default() -> Self {
        Noise::Level(0.0)
    }
}

impl Noise {
    /// The least and the largest level.
    pub fn range(self) -> [f64; 2] {
        match self {
            Noise::Level(level) => [level; 2],
            Noise::Range(range) => range,
        }
    }

    /// The level of a number that is uniform in (0, 1): low + (high − low)·u², so that small levels of a range that begins at 0 come up often.
    pub fn at(self, uniform: f64) -> f64 {
        let [low, high] = self.range();
        low + (high - low) * uniform * uniform
    }

    /// The mean of those levels.
    pub fn mean(self) -> f64 {
        let [low, high] = self.range();
        low + (high - low) / 3.0
    }

    /// Levels that a model is evaluated at unless others are asked for: the only one, or both ends of the range.
    pub fn levels(self) -> Vec<f64> {
        match self {
            Noise::Level(level) => vec![level],
            Noise::Range(range) => range.to_vec(),
        }
    }
}

/// `0.01` or `0 to 0.1`.
impl std::fmt::Display for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Noise::Level(level) => write!(f, "{level}"),
            Noise::Range([low, high]) => write!(f, "{low} to {high}"),
        }
    }
}

/// Over what mean and deviation are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// They are not.
    None,
    /// Over all samples and points, for every channel.
    Channel,
    /// Over all samples, at every point.
    Point,
}

settings! {
    /// How far a prediction is off.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct LossConfig {
        /// gamma, weight of the error's H1-seminorm beside its relative L2-norm; 0 leaves it out
        pub gamma: f64,
        /// what the seminorm is weighed by: none | the name of an input channel
        #[serde(default = "none")]
        pub weight: String,
        /// weights of the target's channels; [] lets them count alike
        #[serde(default)]
        pub channels: Vec<f64>,
        /// added to the mean square of a target, so that one that is zero everywhere has a loss too
        pub eps: f64,
        /// whether the ends of periodic axes are left out of the seminorm, as in the authors' code
        #[serde(default)]
        pub interior: bool,
    }
}

settings! {
    /// The training.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TrainConfig {
        /// passes over the training samples
        pub epochs: u32,
        /// samples of a batch
        pub batch: usize,
        /// batches of a step
        pub accumulate: u32,
        /// the largest learning rate
        pub lr: f64,
        /// of weights, dropout, split, order, symmetries and noise
        pub seed: u64,
        /// decay of averaged weights, which are then evaluated; 0: none
        pub average: f64,
        /// symmetries that change a training sample anew in every epoch: "shift x" | "flip x" | "transpose", behind it -CHANNEL changes a sign and CHANNEL~CHANNEL swaps two
        #[serde(default)]
        pub augment: Vec<Symmetry>,
    }
}

settings! {
    /// When the state of a run is saved; both may apply.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct CheckpointConfig {
        /// steps between two checkpoints; 0: not by steps
        pub every_steps: u64,
        /// minutes between two checkpoints; 0: not by time
        pub every_minutes: f64,
    }
}

fn none() -> String {
    "none".into()
}

/// Which settings stand in which section, of all kinds of a section or of one.
const SECTIONS: &[(&str, &str, &[(&str, &str)])] = &[
    ("", "", RunConfig::SETTINGS),
    ("data", "", DataConfig::SETTINGS),
    ("network", "", &[("kind", "transformer | fno | multilevel")]),
    ("network", "transformer", TransformerConfig::SETTINGS),
    ("network", "fno", FnoConfig::SETTINGS),
    ("network", "multilevel", MultilevelConfig::SETTINGS),
    (
        "network.output.resized",
        "",
        &[("from", "points along each axis of an input"), ("to", "of its output")],
    ),
    ("network.lift", "", &[("kind", "pointwise | interpolation: convolutions to a coarser grid and back")]),
    ("network.lift", "pointwise", PointwiseLiftConfig::SETTINGS),
    ("network.lift", "interpolation", InterpolationConfig::SETTINGS),
    ("network.encoder", "", EncoderConfig::SETTINGS),
    ("network.encoder", "", LevelEncoderConfig::SETTINGS),
    ("network.decoder", "", &[("kind", "spectral: convolutions | pointwise: linear layers")]),
    ("network.decoder", "spectral", SpectralConfig::SETTINGS),
    ("network.decoder", "pointwise", PointwiseConfig::SETTINGS),
    ("network.spectral", "", SpectralConfig::SETTINGS),
    ("loss", "", LossConfig::SETTINGS),
    ("train", "", TrainConfig::SETTINGS),
    ("schedule", "", &[("kind", "one_cycle with peak and rise | cosine with warmup | constant")]),
    ("schedule", "one_cycle", Schedule::ONE_CYCLE),
    ("schedule", "cosine", Schedule::COSINE),
    ("schedule", "constant", &[]),
    (
        "optimizer",
        "",
        &[(
            "kind",
            "adam | soap: Adam in the eigenbasis of Shampoo's factors | muon: orthogonalised momentum",
        )],
    ),
    ("optimizer", "adam", AdamConfig::SETTINGS),
    ("optimizer", "soap", SoapConfig::SETTINGS),
    ("optimizer", "muon", MuonConfig::SETTINGS),
    ("checkpoint", "", CheckpointConfig::SETTINGS),
];

impl RunConfig {
    /// Reads a config. `sets` are pairs of a dotted key and its value, as `--set` takes them.
    pub fn parse(text: &str, origin: &Path, sets: &[(String, String)]) -> Result<Self> {
        let wrong = |error: toml::de::Error| Error::Config {
            origin: origin.display().to_string(),
            why: error.to_string().trim_end().to_string(),
        };
        let mut table: toml::Table = text.parse().map_err(wrong)?;
        if table.contains_key("preset") && table.contains_key("model") {
            let why = "a config of version 0.1, which had [model] in place of [network]; \
                       `galerkin config PRESET` prints a new one, and `galerkin predict` still takes the run";
            return Err(Error::Config { origin: origin.display().to_string(), why: why.into() });
        }
        if let Some(toml::Value::Table(optimizer)) = table.get_mut("optimizer") {
            // Configs of versions that had no other.
            optimizer.entry("kind").or_insert_with(|| "adam".into());
        }
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

    /// The file with what every setting says of itself.
    pub fn to_commented_toml(&self) -> String {
        let mut text = "# `galerkin train FILE.toml --out RUN` trains it.\n".to_string();
        let (mut section, mut kind) = (String::new(), String::new());
        let mut statement = String::new();
        for line in self.to_toml().split_terminator('\n') {
            statement.push_str(line);
            // A name of several lines is one statement, and a comment inside it would be part of the name.
            if statement.parse::<toml::Table>().is_err() {
                statement.push('\n');
                continue;
            }
            if let Some(name) = statement.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                (section, kind) = (name.to_string(), String::new());
            }
            // Of a section of several kinds it is the first setting.
            if let Some(name) = statement.strip_prefix("kind = ") {
                kind = name.trim_matches('"').to_string();
            }
            let words = statement.split_once(" = ").and_then(|(key, _)| described(&section, &kind, key));
            match words {
                Some(words) => text.push_str(&format!("{statement:<36} # {words}\n")),
                None => text.push_str(&format!("{statement}\n")),
            }
            statement.clear();
        }
        text
    }

    /// `Ok` if every number has a meaning and the network can be built: everything that can be known without the dataset.
    pub fn check(&self) -> Result<()> {
        self.schedule.check()?;
        self.optimizer.check()?;
        let DataConfig { grid, coarse, train, validation, noise, ref folder, .. } = self.data;
        let TrainConfig { epochs, batch, accumulate, lr, average, .. } = self.train;
        for (name, value) in [
            ("data.grid", grid),
            ("data.coarse", coarse.unwrap_or(1)),
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
        if folder.as_os_str().is_empty() {
            return Err(Error::setting("data.folder = \"\"", "it needs a name"));
        }
        let step = batch.checked_mul(accumulate as usize);
        if step.is_none_or(|step| step > train) {
            let step = step.map_or("too many to count".to_string(), |step| step.to_string());
            let why = format!("a step takes train.batch times train.accumulate samples, {step}");
            return Err(Error::setting(format!("data.train = {train}"), why));
        }
        let positive = |value: f64| value >= 0.0 && value.is_finite();
        for (name, value, fits) in [
            ("train.lr", lr, lr > 0.0 && lr.is_finite()),
            ("train.average", average, (0.0..1.0).contains(&average)),
            ("loss.gamma", self.loss.gamma, positive(self.loss.gamma)),
            ("loss.eps", self.loss.eps, positive(self.loss.eps)),
            (
                "checkpoint.every_minutes",
                self.checkpoint.every_minutes,
                positive(self.checkpoint.every_minutes),
            ),
        ] {
            if !fits {
                return Err(Error::setting(format!("{name} = {value}"), "it is out of range"));
            }
        }
        let [low, high] = noise.range();
        if !(positive(low) && positive(high) && low <= high) {
            let why = "levels are not negative, and those of a range [low, high] in this order";
            return Err(Error::setting(format!("data.noise = {noise}"), why));
        }
        for (at, symmetry) in self.train.augment.iter().enumerate() {
            if self.train.augment[..at].contains(symmetry) {
                return Err(Error::setting("train.augment", format!("it has \"{symmetry}\" twice")));
            }
        }
        if !self.loss.channels.is_empty() {
            check_channel_weights(&self.loss.channels)?;
            let outputs = self.network.channels()[1];
            if self.loss.channels.len() != outputs {
                let what = format!("loss.channels = {:?}", self.loss.channels);
                return Err(Error::setting(what, format!("the network has {outputs} outputs")));
            }
        }
        self.network.check()
    }

    /// Steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        (self.train.epochs as u64).saturating_mul(self.steps_per_epoch())
    }

    /// Steps of an epoch; samples that fill no step are left out of it.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.data.train / (self.train.batch * self.train.accumulate as usize)) as u64
    }
}

/// What a setting says of itself, in a section of this kind.
fn described(section: &str, kind: &str, key: &str) -> Option<&'static str> {
    let sections = SECTIONS.iter().filter(|(name, of, _)| *name == section && ["", kind].contains(of));
    sections
        .flat_map(|(.., settings)| *settings)
        .find(|(name, _)| *name == key)
        .map(|(_, words)| words.trim())
}

/// Puts `value`, which is TOML or else a plain word, at a dotted key.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Result<()> {
    let parsed = format!("value = {value}").parse::<toml::Table>();
    let value = match parsed {
        // Behind a line break there may be another setting, which is none of this one.
        Ok(mut table) if table.len() == 1 => table.remove("value").expect("just parsed"),
        _ => toml::Value::String(value.to_string()),
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
    let kind = value.as_str().unwrap_or_default();
    let known = SECTIONS.iter().find(|(section, of, _)| (*section, *of) == (path, kind));
    if let (true, Some((.., settings))) = (last == "kind", known) {
        // What only another kind has is not meant to stay.
        place.retain(|key, _| settings.iter().any(|(name, _)| *name == key));
    }
    place.insert(last.to_string(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{AttentionKind, HeadNorm};
    use crate::presets;

    fn sets(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn every_preset_goes_to_toml_and_back_with_words_on_every_setting() {
        for name in presets::names() {
            let config = presets::get(name).unwrap();
            assert_eq!(config.name, name);
            assert_eq!(RunConfig::parse(&config.to_toml(), Path::new("test"), &[]).unwrap(), config);
            let text = config.to_commented_toml();
            for line in text.lines().filter(|line| line.contains(" = ")) {
                assert!(line.contains(" # "), "{name}: {line}");
            }
            assert_eq!(RunConfig::parse(&text, Path::new("test"), &[]).unwrap(), config);
        }
    }

    /// Keys that several kinds of a section have say what they mean in this one.
    #[test]
    fn comments_are_those_of_the_kind() {
        let text = |name: &str| presets::get(name).unwrap().to_commented_toml();
        let [multilevel, transformer] = [text("darcy-multilevel"), text("burgers")];
        let pointwise = PointwiseConfig::SETTINGS.iter().find(|(key, _)| *key == "layers").unwrap().1.trim();
        let spectral = SpectralConfig::SETTINGS.iter().find(|(key, _)| *key == "layers").unwrap().1.trim();
        assert_ne!(pointwise, spectral);
        assert!(multilevel.contains(pointwise) && !multilevel.contains(spectral), "{multilevel}");
        assert!(transformer.contains(spectral) && !transformer.contains(pointwise), "{transformer}");
    }

    #[test]
    fn names_of_several_lines_stay_as_they_are_between_comments() {
        for name in ["two\nlines", "a\nname = \"b\"\n[data]\n", "\n", "\r\n", "'\"\"\"'''\n# no comment"] {
            let mut config = presets::get("burgers").unwrap();
            (config.name, config.data.folder) = (name.into(), name.into());
            for text in [config.to_toml(), config.to_commented_toml()] {
                assert_eq!(RunConfig::parse(&text, Path::new("test"), &[]).unwrap(), config, "{text}");
            }
        }
    }

    #[test]
    fn settings_reach_the_network() {
        let names = [
            ("network.encoder.attention", "fourier"),
            ("network.encoder.head_norm", "none"),
            ("network.encoder.residual_norm", "true"),
            ("network.encoder.layers", "2"),
            ("network.encoder.width", "32"),
            ("train.lr", "1"),
            ("data.folder", "some/where"),
        ];
        let config = presets::get("burgers").unwrap().with(&sets(&names)).unwrap();
        assert_eq!(config.train.lr, 1.0);
        assert_eq!(config.data.folder, Path::new("some/where"));
        let NetworkConfig::Transformer(network) = config.network else { panic!() };
        let layer = network.layer();
        assert_eq!(layer.attention.kind, AttentionKind::Fourier);
        assert_eq!(layer.attention.norm, HeadNorm::None);
        assert!(layer.norm_after);
        assert_eq!((network.encoder.layers, layer.attention.features), (2, 32));
    }

    #[test]
    fn another_kind_of_a_section_has_its_own_settings() {
        let config = presets::get("burgers").unwrap();
        let with = |pairs: &[(&str, &str)]| config.with(&sets(pairs));
        let cosine = with(&[("schedule.kind", "cosine")]).unwrap().schedule;
        assert_eq!(cosine, Schedule::Cosine { warmup: 0.1 });
        let cosine = with(&[("schedule.warmup", "0.2"), ("schedule.kind", "cosine")]).unwrap().schedule;
        assert_eq!(cosine, Schedule::Cosine { warmup: 0.2 });
        assert_eq!(with(&[("schedule.kind", "constant")]).unwrap().schedule, Schedule::Constant);
        assert!(with(&[("network.decoder.kind", "pointwise")]).is_ok());
        let missing = with(&[("network.kind", "fno")]).unwrap_err().to_string();
        assert!(missing.contains("missing field `spectral`"), "{missing}");
    }

    #[test]
    fn numbers_of_encoder_layers_that_are_nowhere_have_a_meaning_too() {
        let multilevel = |eps: &str| {
            let encoder = format!(
                "{{ attention = 'galerkin', heads = 1, expansion = 2, activation = 'relu', head_norm = 'layer', residual_norm = false, eps = {eps}, \
                 gain = 0.0, diagonal = 0.0, attention_dropout = 0.0, residual_dropout = 0.0, hidden_dropout = 0.0 }}"
            );
            let decoder =
                "{ kind = 'pointwise', coordinates = false, layers = 0, activation = 'relu', dropout = 0.0 }";
            let network = format!(
                "{{ kind = 'multilevel', inputs = 1, outputs = 1, periodic = [true], boundary = 'free', channels = [4], convolutions = 1, \
                 encoder_layers = [0], coordinates = false, activation = 'relu', encoder = {encoder}, decoder = {decoder} }}"
            );
            presets::get("fno-burgers").unwrap().with(&sets(&[("network", network.as_str())]))
        };
        assert!(multilevel("1e-5").is_ok(), "{:?}", multilevel("1e-5"));
        let error = multilevel("nan").unwrap_err().to_string();
        assert!(error.contains("eps = NaN"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let config = presets::get("burgers").unwrap();
        let error = |key: &str, value: &str| config.with(&sets(&[(key, value)])).unwrap_err().to_string();
        assert!(error("train.epoch", "3").contains("unknown field `epoch`"));
        assert!(error("network.encoder.attention", "magic").contains("unknown variant `magic`"));
        assert!(error("network.encoder.heads", "5").contains("5 heads for 96 features"));
        assert!(error("network.encoder.head_norm", "none").contains("without norm"));
        assert!(error("train.batch", "0").contains("train.batch = 0"));
        assert!(error("train.batch", "4611686018427387904").contains("a step takes"));
        assert!(error("train.batch.size", "0").contains("batch is a value"));
        assert!(error("train.batch", "4\nepochs = 3").contains("invalid type: string"));
        assert!(error("train.lr", "-1").contains("train.lr = -1"));
        assert!(error("loss.channels", "[1, 2]").contains("the network has 1 outputs"));
        assert!(error("schedule.kind", "sine").contains("unknown variant `sine`"));
        let narrow = sets(&[("network.encoder.width", "2"), ("network.encoder.heads", "1")]);
        let error = presets::get("darcy").unwrap().with(&narrow).unwrap_err().to_string();
        assert!(error.contains("it must be at least 3"), "{error}");
        let fno = presets::get("fno-darcy").unwrap();
        let error = fno.with(&sets(&[("network.encoder.width", "3")])).unwrap_err().to_string();
        assert!(error.contains("unknown field `encoder`"), "{error}");
    }
}
