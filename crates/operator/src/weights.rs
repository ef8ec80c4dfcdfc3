//! Weight files: safetensors with the names and shapes of the paper's PyTorch code, and that code's own `.pt` files.
//!
//! A file that [`save`] writes holds what [`export`] gives, so in Python `model.load_state_dict(safetensors.torch.load_file(path))`
//! loads it into the paper's module, but for the normaliser of the targets, which is not part of a state dict there and must be
//! taken out first: `normalizer.mean` and `normalizer.std`, both (n₁, n₂, c). The metadata are text:
//!
//! | key | value |
//! | --- | --- |
//! | `format` | `galerkin` |
//! | `version` | version of the format, `1` |
//! | `config` | [`ModelConfig`] in JSON |
//! | `normalizer.eps` | ε of the normaliser, if there is one |
//!
//! and whatever the caller adds. The same weights and metadata give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin_data::Array;
use galerkin_data::io::{torch, write_whole};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::{Map, Value, json};

use crate::init::Builder;
use crate::layers::Normalizer;
use crate::models::{Model, ModelConfig};
use crate::reference::{Mismatch, ReferenceNames, export, import, to_vec};

/// What keeps weights from being saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file has other content than it must have.
    #[error("{}: {place}: expected {expected}, found {found}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The array, the metadata or the part of the file.
        place: String,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The header of a file makes no sense.
    #[error("{}: header: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What the decoder found.
        source: Box<SafeTensorError>,
    },
    /// The arrays of a file are not those of the model.
    #[error("{}: {source}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All differences.
        source: Mismatch,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] galerkin_data::Error),
    /// A file of PyTorch gives no state dict.
    #[error(transparent)]
    Torch(#[from] torch::Error),
    /// The config of a file makes no network, or none that takes the file's normaliser.
    #[error("{}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: crate::Error,
    },
}

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

const FORMAT: [(&str, &str); 2] = [("format", "galerkin"), ("version", "1")];
const MEAN: &str = "normalizer.mean";
const DEVIATION: &str = "normalizer.std";
const EPS: &str = "normalizer.eps";

/// Writes the weights of a model, its normaliser and its config. `more` are metadata of the caller; of the same key,
/// ours stay.
///
/// The file appears whole or not at all: it is written beside its place, synced and renamed.
pub fn save(
    model: &Model,
    config: &ModelConfig,
    more: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    let path = path.as_ref();
    let mut arrays = export(model);
    let mut metadata = more.clone();
    if let Some(normalizer) = model.normalizer() {
        for (name, tensor) in [(MEAN, &normalizer.mean), (DEVIATION, &normalizer.deviation)] {
            let (shape, values) = (tensor.dims().to_vec(), to_vec(tensor.clone()));
            arrays.insert(name.into(), Array { shape, values });
        }
        metadata.insert(EPS.into(), Normalizer::EPS.to_string());
    }
    metadata.extend(FORMAT.map(|(key, value)| (key.into(), value.into())));
    let config = serde_json::to_string(config)
        .map_err(|error| Error::Io { path: path.into(), source: error.into() })?;
    metadata.insert("config".into(), config);
    write_arrays(&arrays, &metadata, path)
}

/// Writes arrays and metadata as they are, whole or not at all.
pub fn write_arrays(
    arrays: &BTreeMap<String, Array>,
    metadata: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    Ok(write_whole(path, &bytes(arrays, metadata))?)
}

/// Reads a file of safetensors: any that holds f32 alone, ours or another's.
pub fn load(path: impl AsRef<Path>) -> Result<Weights, Error> {
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
        && metadata.get(version).is_none_or(|v| v != known)
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

/// The model with the weights of a file, and its normaliser if it has one.
pub fn load_into(model: Model, path: impl AsRef<Path>) -> Result<Model, Error> {
    load(path)?.put_into(model)
}

/// The module with the weights of a state dict that PyTorch saved.
pub fn import_torch<M: Module + ReferenceNames>(module: M, path: impl AsRef<Path>) -> Result<M, Error> {
    let path = path.as_ref();
    let arrays = torch::read(path)?;
    import(module, &arrays).map_err(|source| Error::Mismatch { path: path.into(), source })
}

impl Weights {
    /// The config of the model they belong to.
    pub fn config(&self) -> Result<ModelConfig, Error> {
        let text = self.metadata.get("config");
        let config = text
            .ok_or("none".to_string())
            .and_then(|text| serde_json::from_str(text).map_err(|e| e.to_string()));
        config.map_err(|found| self.content("metadata `config`", "the JSON of a model's config", found))
    }

    /// The model these weights were saved of, with its config.
    pub fn into_model(self, device: &Device) -> Result<(Model, ModelConfig), Error> {
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
        let model = config.init(&mut Builder::new(0, device));
        let model = model.map_err(|source| Error::Model { path: self.path.clone(), source })?;
        Ok((self.put_into(model)?, config))
    }

    /// The model with these weights, and with their normaliser if there is one. Every name must be there, known and of the right shape.
    pub fn put_into(mut self, model: Model) -> Result<Model, Error> {
        let normalizer = self.take_normalizer(&model)?;
        let Weights { path, arrays, .. } = self;
        let model = match import(model, &arrays) {
            Ok(model) => model,
            Err(source) => return Err(Error::Mismatch { path, source }),
        };
        match normalizer {
            Some(normalizer) => {
                model.with_normalizer(normalizer).map_err(|source| Error::Model { path, source })
            }
            None => Ok(model),
        }
    }

    fn take_normalizer(&mut self, model: &Model) -> Result<Option<Normalizer>, Error> {
        let (mean, deviation) = match (self.arrays.remove(MEAN), self.arrays.remove(DEVIATION)) {
            (None, None) => return Ok(None),
            (Some(mean), Some(deviation)) => (mean, deviation),
            _ => return Err(self.content("normaliser", format!("both `{MEAN}` and `{DEVIATION}`"), "one")),
        };
        let eps = self.metadata.get(EPS).map_or(Ok(Normalizer::EPS), |text| text.parse());
        if eps != Ok(Normalizer::EPS) {
            let found = self.metadata.get(EPS).map_or("", String::as_str);
            return Err(self.content(
                &format!("metadata `{EPS}`"),
                Normalizer::EPS.to_string(),
                format!("{found:.40}"),
            ));
        }
        let device = model.devices().into_iter().next().unwrap_or_default();
        let tensor = |name: &str, Array { shape, values }: Array| match <[usize; 3]>::try_from(shape) {
            Ok(shape) => Ok(Tensor::<3>::from_data(TensorData::new(values, shape), &device)),
            Err(shape) => Err(self.content(name, "shape (n₁, n₂, c)", format!("{shape:?}"))),
        };
        let normalizer = Normalizer::new(tensor(MEAN, mean)?, tensor(DEVIATION, deviation)?);
        normalizer.map(Some).map_err(|source| Error::Model { path: self.path.clone(), source })
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
