//! Weight files: safetensors with the names and shapes of the paper's PyTorch code, and that code's own `.pt` files.
//!
//! A file that [`save`] writes holds what [`export`] gives, so in Python `model.load_state_dict(safetensors.torch.load_file(path))`
//! loads it into the paper's module, but for the normaliser of the targets, which is not part of a state dict there and must be
//! taken out first: `normalizer.mean` and `normalizer.std`, both (points…, c) or (c). The metadata are text:
//!
//! | key | value |
//! | --- | --- |
//! | `format` | `galerkin` |
//! | `version` | version of the format, `3`; files of `1` and `2` are read too |
//! | `checksum` | of all bytes of the file; versions `1` and `2` had none |
//! | `config` | [`NetworkConfig`] in JSON |
//! | `normalizer.eps` | ε of the normaliser, if there is one |
//!
//! and whatever the caller adds. The same weights and metadata give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use galerkin_data::Array;
use galerkin_data::io::{Tensors, torch};
use galerkin_data::normalize::Normalizer;

use crate::error::{Error, Result};
use crate::layers::TargetNormalizer;
use crate::networks::{Network, NetworkConfig, parse_config};
use crate::reference::{ReferenceNames, export, import};

/// The content of a weight file.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Where it was read.
    pub path: PathBuf,
    /// Arrays under the reference's names, and the normaliser.
    pub arrays: BTreeMap<String, Array>,
    /// Text by key.
    pub metadata: BTreeMap<String, String>,
}

const MEAN: &str = "normalizer.mean";
const DEVIATION: &str = "normalizer.std";
const EPS: &str = "normalizer.eps";

/// Writes the weights of a network, its normaliser and its config. `more` are metadata of the caller; of the same key,
/// ours stay.
///
/// The file appears whole or not at all: it is written beside its place, synced and renamed.
pub fn save(network: &Network, more: &BTreeMap<String, String>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let mut arrays = export(network);
    let mut metadata = more.clone();
    if let Some(normalizer) = network.normalizer() {
        let [mean, deviation] = normalizer.arrays();
        arrays.extend([(MEAN.into(), mean), (DEVIATION.into(), deviation)]);
        metadata.insert(EPS.into(), TargetNormalizer::EPS.to_string());
    }
    let config = serde_json::to_string(network.config())
        .map_err(|error| Error::Io { path: path.into(), source: error.into() })?;
    metadata.insert("config".into(), config);
    Ok(Tensors { arrays, metadata }.save(path)?)
}

/// Reads a file of safetensors: any that holds f32 alone, ours, which must have its checksum, or another's.
pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
    let path = path.as_ref();
    let Tensors { arrays, metadata } = Tensors::open(path)?;
    Ok(Weights { path: path.into(), arrays, metadata })
}

/// The module with the weights of a state dict that PyTorch saved.
pub fn import_torch<M: Module + ReferenceNames>(module: M, path: impl AsRef<Path>) -> Result<M> {
    let path = path.as_ref();
    let arrays = torch::read(path)?;
    import(module, &arrays).map_err(|source| Error::Mismatch { path: path.into(), source })
}

impl Weights {
    /// The config of the network they belong to.
    pub fn config(&self) -> Result<NetworkConfig> {
        let text = self.metadata.get("config");
        let config = text.ok_or("none".to_string()).and_then(|text| parse_config(text));
        config.map_err(|found| self.content("metadata `config`", "the JSON of a network's config", found))
    }

    /// The network these weights were saved of.
    pub fn into_network(self, device: &Device) -> Result<Network> {
        let config = self.config()?;
        let ours = self.arrays.iter().filter(|(name, _)| ![MEAN, DEVIATION].contains(&name.as_str()));
        let found: usize = ours.map(|(_, array)| array.values.len()).sum();
        // Before anything is built: a config that belongs to other weights may ask for any size.
        if config.parameters() != found as u64 {
            let expected = format!("a network of {found} numbers, as many as the file has");
            return Err(self.content(
                "metadata `config`",
                expected,
                format!("one of {}", config.parameters()),
            ));
        }
        let network = config.init(0, device).map_err(|error| {
            self.content("metadata `config`", "a network that can be built", error.to_string())
        })?;
        self.put_into(network)
    }

    /// The network with these weights, and with their normaliser if there is one. Every name must be there, known and of the right shape.
    pub fn put_into(mut self, network: Network) -> Result<Network> {
        let normalizer = self.take_normalizer(&network)?;
        let Weights { path, arrays, .. } = self;
        let network = import(network, &arrays).map_err(|source| Error::Mismatch { path, source })?;
        Ok(match normalizer {
            Some(normalizer) => network.with_normalizer(normalizer),
            None => network,
        })
    }

    fn take_normalizer(&mut self, network: &Network) -> Result<Option<TargetNormalizer>> {
        let (mean, deviation) = match (self.arrays.remove(MEAN), self.arrays.remove(DEVIATION)) {
            (None, None) => return Ok(None),
            (Some(mean), Some(deviation)) => (mean, deviation),
            _ => return Err(self.content("normaliser", format!("both `{MEAN}` and `{DEVIATION}`"), "one")),
        };
        let eps = self.metadata.get(EPS).map_or(Ok(TargetNormalizer::EPS), |text| text.parse());
        if eps != Ok(TargetNormalizer::EPS) {
            let found = self.metadata.get(EPS).map_or("", String::as_str);
            return Err(self.content(
                &format!("metadata `{EPS}`"),
                TargetNormalizer::EPS.to_string(),
                format!("{found:.40}"),
            ));
        }
        let (config, shape) = (network.config(), &mean.shape);
        let fits = shape.last() == Some(&config.channels()[1])
            && [1, config.axes() + 1].contains(&shape.len())
            && !mean.values.is_empty();
        if !fits {
            let expected = format!(
                "({} of points, channels = {})",
                ["an axis", "two axes", "three axes"][config.axes().clamp(1, 3) - 1],
                config.channels()[1]
            );
            return Err(self.content(MEAN, expected, format!("shape {shape:?}")));
        }
        if deviation.shape != *shape {
            let expected = format!("shape {shape:?}, that of `{MEAN}`");
            return Err(self.content(DEVIATION, expected, format!("shape {:?}", deviation.shape)));
        }
        let device = network.devices().into_iter().next().unwrap_or_default();
        let fit = Normalizer::new(mean, deviation)?;
        TargetNormalizer::new(&fit, &device).map(Some)
    }

    fn content(&self, place: &str, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Content {
            path: self.path.clone(),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}
