//! Weight files: safetensors with the names and shapes of the paper's PyTorch code, and that code's own `.pt` files.
//!
//! A file that [`save`] writes holds what [`export`] gives, so in Python `model.load_state_dict(safetensors.torch.load_file(path))`
//! loads it into the paper's module, but for the normaliser of the targets, which is not part of a state dict there and must be
//! taken out first: `normalizer.mean` and `normalizer.std`, both (points…, c) or (c). The metadata are text:
//!
//! | key | value |
//! | --- | --- |
//! | `format` | `galerkin` |
//! | `version` | version of the format, `2`; files of version `1` are read too |
//! | `config` | [`NetworkConfig`] in JSON |
//! | `normalizer.eps` | ε of the normaliser, if there is one |
//!
//! and whatever the caller adds. The same weights and metadata give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use galerkin_data::Array;
use galerkin_data::io::{torch, write_whole};
use galerkin_data::normalize::Normalizer;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::{Map, Value, json};

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

const FORMAT: [(&str, &str); 2] = [("format", "galerkin"), ("version", "2")];
/// A version that is read too: its config is in other words.
const BEFORE: &str = "1";
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
    metadata.extend(FORMAT.map(|(key, value)| (key.into(), value.into())));
    let config = serde_json::to_string(network.config())
        .map_err(|error| Error::Io { path: path.into(), source: error.into() })?;
    metadata.insert("config".into(), config);
    write_arrays(&arrays, &metadata, path)
}

/// Writes arrays and metadata as they are, whole or not at all.
pub fn write_arrays(
    arrays: &BTreeMap<String, Array>,
    metadata: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<()> {
    Ok(write_whole(path, &bytes(arrays, metadata))?)
}

/// Reads a file of safetensors: any that holds f32 alone, ours or another's.
pub fn load(path: impl AsRef<Path>) -> Result<Weights> {
    let path = path.as_ref();
    let file = match std::fs::metadata(path) {
        // A device or a pipe has no length to judge by.
        Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("not a file")),
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    let file = file.map_err(|source| Error::Io { path: path.into(), source })?;
    let content = |place: &str, expected: String, found: String| Error::Content {
        path: path.into(),
        place: place.into(),
        expected,
        found,
    };
    let lead = file.first_chunk().map(|lead| u64::from_le_bytes(*lead));
    if lead.is_none_or(|len| len > file.len() as u64 - 8) {
        let expected = lead.map_or("8 bytes".into(), |len| format!("{len} bytes behind the first 8"));
        return Err(content("header", expected, format!("a file of {} bytes", file.len())));
    }
    let header = |error| match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            let found = format!("a file of {} bytes", file.len());
            content("values", "as many bytes as the header describes".into(), found)
        }
        error => Error::Header { path: path.into(), source: Box::new(error) },
    };
    let stored = SafeTensors::deserialize(&file).map_err(header)?;
    let (_, described) = SafeTensors::read_metadata(&file).map_err(header)?;
    let metadata: BTreeMap<_, _> = described.metadata().clone().unwrap_or_default().into_iter().collect();
    let [(format, ours), (version, known)] = FORMAT;
    if metadata.get(format).is_some_and(|found| found == ours)
        && metadata.get(version).is_none_or(|v| v != known && v != BEFORE)
    {
        let found = metadata.get(version).map_or("none".into(), |found| format!("`{found:.40}`"));
        return Err(content("version of the format", format!("`{known}`"), found));
    }
    let mut arrays = BTreeMap::new();
    for (name, view) in stored.iter() {
        if view.dtype() != Dtype::F32 {
            return Err(content(name, "values of type F32".into(), format!("type {:?}", view.dtype())));
        }
        let values =
            view.data().chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        arrays.insert(name.to_string(), Array { shape: view.shape().to_vec(), values: values.collect() });
    }
    Ok(Weights { path: path.into(), arrays, metadata })
}

/// The module with the weights of a state dict that PyTorch saved.
pub fn import_torch<M: Module + ReferenceNames>(module: M, path: impl AsRef<Path>) -> Result<M> {
    let path = path.as_ref();
    let arrays = torch::read(path).map_err(galerkin_data::Error::from)?;
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
        let fits =
            shape.last() == Some(&config.channels()[1]) && [1, config.axes() + 1].contains(&shape.len());
        if !fits {
            let expected = format!(
                "({} of points, channels = {})",
                ["an axis", "two axes", "three axes"][config.axes().clamp(1, 3) - 1],
                config.channels()[1]
            );
            return Err(self.content(MEAN, expected, format!("shape {shape:?}")));
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

/// A safetensors file: length of the header, header, values in the order of names. The crate's own writer puts metadata in
/// another order every time.
fn bytes(arrays: &BTreeMap<String, Array>, metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut header = Map::from_iter([("__metadata__".to_string(), json!(metadata))]);
    let mut end = 0;
    for (name, Array { shape, values }) in arrays {
        let begin = end;
        end += 4 * values.len();
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}));
    }
    let mut header = Value::Object(header).to_string();
    // Values begin at a multiple of 8 bytes.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let mut bytes = Vec::with_capacity(8 + header.len() + end);
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(arrays.values().flat_map(|array| &array.values).flat_map(|value| value.to_le_bytes()));
    bytes
}
