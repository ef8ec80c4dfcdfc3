//! Weight files: what is saved is loaded again, bit for bit; a bad file is an error that names file and place.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::init::Builder;
use galerkin::layers::{AttentionKind, Normalizer};
use galerkin::models::{FnoConfig, Model, ModelConfig, Transformer1dConfig};
use galerkin::reference::export;
use galerkin::weights::{Error, import_torch, load, load_into, save};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn weights_config_and_normalizer_come_back() {
    let folder = Folder::new("come_back");
    let configs = [
        ModelConfig::Transformer1d(Transformer1dConfig::burgers(AttentionKind::Galerkin)),
        ModelConfig::Fno2d(FnoConfig { modes: 3, ..FnoConfig::darcy() }),
    ];
    for config in configs {
        let mut saved = model(&config, 1);
        if config.dimensions() == 2 {
            saved = saved.with_normalizer(normalizer()).unwrap();
        }
        let path = folder.file("model.safetensors");
        let more =
            BTreeMap::from([("epoch", "7"), ("format", "ours stays")].map(|(k, v)| (k.into(), v.into())));
        save(&saved, &config, &more, &path).unwrap();
        let first = std::fs::read(&path).unwrap();

        let weights = load(&path).unwrap();
        assert_eq!(weights.config().unwrap(), config);
        assert_eq!(weights.metadata["epoch"], "7");
        assert_eq!(weights.metadata["format"], "galerkin");
        let loaded = load_into(model(&config, 2), &path).unwrap();
        assert_eq!(export(&loaded), export(&saved));
        assert_eq!(statistics(&loaded), statistics(&saved));
        assert_eq!(statistics(&loaded).is_some(), config.dimensions() == 2);

        // The same bytes again, over the old file, with nothing left beside it.
        save(&loaded, &config, &more, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }
}

#[test]
fn a_file_gives_its_own_model_and_a_config_of_another_one_builds_nothing() {
    let folder = Folder::new("own_model");
    let (config, path) = (small(), folder.file("model.safetensors"));
    let saved = model(&config, 1);
    save(&saved, &config, &BTreeMap::new(), &path).unwrap();
    let (loaded, found) = load(&path).unwrap().into_model(&Device::flex()).unwrap();
    assert_eq!((export(&loaded), found), (export(&saved), config));

    let vast = ModelConfig::Fno2d(FnoConfig { channels: 1 << 40, ..FnoConfig::darcy() });
    save(&saved, &vast, &BTreeMap::new(), &path).unwrap();
    let refusal = load(&path).unwrap().into_model(&Device::flex());
    refused(refusal, &["model.safetensors", "metadata `config`", "as many as the file has"]);
}

#[test]
fn the_safetensors_crate_reads_what_we_write() {
    let folder = Folder::new("crate_reads");
    let config = small();
    let saved = model(&config, 1);
    let path = folder.file("model.safetensors");
    save(&saved, &config, &BTreeMap::new(), &path).unwrap();
    let file = std::fs::read(&path).unwrap();
    let stored = safetensors::SafeTensors::deserialize(&file).unwrap();
    let expected = export(&saved);
    assert_eq!(stored.len(), expected.len());
    for (name, array) in expected {
        let view = stored.tensor(&name).unwrap();
        assert_eq!(view.shape(), array.shape, "{name}");
        let bytes: Vec<u8> = array.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(view.data(), bytes, "{name}");
    }
}

#[test]
fn files_that_do_not_fit() {
    let folder = Folder::new("do_not_fit");
    let path = folder.file("model.safetensors");
    let line = small();
    let square = ModelConfig::Fno2d(FnoConfig { modes: 3, channels: 4, layers: 1, ..FnoConfig::darcy() });
    save(&model(&square, 1).with_normalizer(normalizer()).unwrap(), &square, &BTreeMap::new(), &path)
        .unwrap();

    let error = load_into(model(&line, 1), &path).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let wider = ModelConfig::Fno2d(FnoConfig { modes: 4, channels: 4, layers: 1, ..FnoConfig::darcy() });
    let message = load_into(model(&wider, 1), &path).unwrap_err().to_string();
    assert!(message.contains("model.safetensors: weights do not fit the model; misshapen: "), "{message}");

    // A normaliser for a model on a line, half a normaliser, and one with another ε.
    save(&model(&line, 1), &line, &BTreeMap::new(), &path).unwrap();
    let whole = Safetensors::read(&path);
    let mut file = whole.clone();
    file.add("normalizer.mean", &[2, 2, 1]).add("normalizer.std", &[2, 2, 1]).write(&path);
    refused(load_into(model(&line, 1), &path), &["normaliser for a model on a line"]);
    whole.clone().add("normalizer.mean", &[2, 2, 1]).write(&path);
    refused(load_into(model(&line, 1), &path), &["both `normalizer.mean` and `normalizer.std`"]);
    let mut file = whole.clone();
    file.add("normalizer.mean", &[4]).add("normalizer.std", &[4]).write(&path);
    refused(load_into(model(&line, 1), &path), &["normalizer.mean", "(n₁, n₂, c)", "[4]"]);
    let mut file = whole.clone();
    file.header["__metadata__"]["normalizer.eps"] = json!("0.1");
    file.add("normalizer.mean", &[2, 2, 1]).add("normalizer.std", &[2, 2, 1]).write(&path);
    refused(load_into(model(&line, 1), &path), &["normalizer.eps", "0.00001", "0.1"]);

    let mut file = whole.clone();
    file.header["__metadata__"]["version"] = json!("2");
    file.write(&path);
    refused(load(&path), &["version of the format", "`1`", "`2`"]);
    let mut file = whole.clone();
    file.header["__metadata__"]["config"] = json!("{\"network\": \"none\"}");
    file.write(&path);
    refused(load(&path).unwrap().config(), &["metadata `config`", "none"]);
    let mut file = whole;
    file.header.as_object_mut().unwrap().remove("__metadata__");
    file.write(&path);
    refused(load(&path).unwrap().config(), &["metadata `config`", "found none"]);
    load_into(model(&line, 1), &path).unwrap();
}

#[test]
fn files_that_are_broken() {
    let folder = Folder::new("broken");
    let path = folder.file("model.safetensors");
    refused(load(&path), &["No such file"]);
    refused(load(&folder.0), &["not a file"]);
    let config = small();
    save(&model(&config, 1), &config, &BTreeMap::new(), &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for len in (0..header).step_by(7).chain((header..bytes.len()).step_by(997)) {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let place = if len < header { "header" } else { "values" };
        refused(load(&path), &[place, &format!("a file of {len} bytes")]);
    }
    std::fs::write(&path, [&bytes[..], &[0; 4]].concat()).unwrap();
    refused(load(&path), &["values", "as many bytes as the header describes"]);
    for len in [u64::MAX, 1 << 62, 200_000_000, bytes.len() as u64] {
        let mut bytes = bytes.clone();
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        refused(load(&path), &["header", &len.to_string()]);
    }
    let mut wrong = bytes.clone();
    wrong[10] = 0xff;
    std::fs::write(&path, wrong).unwrap();
    refused(load(&path), &["header", "UTF-8"]);
    // Whatever bit of the header flips: an answer, and no more values than there were.
    let count = |len: usize| len / 4;
    for bit in (8 * 8..8 * header).step_by(37) {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(weights) = load(&path) {
            let found: usize = weights.arrays.values().map(|array| array.values.len()).sum();
            assert!(found <= count(bytes.len() - header), "bit {bit}");
        }
    }
}

#[test]
fn headers_that_lie() {
    let folder = Folder::new("lie");
    let path = folder.file("model.safetensors");
    let entry = |dtype: &str, shape: Value, offsets: [u64; 2]| json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
    let check = |header: Value, words: &[&str]| {
        Safetensors { header, values: vec![0; 32] }.write(&path);
        refused(load(&path), words);
    };
    check(
        json!({"a": entry("F32", json!([4]), [0, 16]), "b": entry("F32", json!([4]), [8, 24])}),
        &["header", "`b`"],
    );
    check(json!({"a": entry("F32", json!([4]), [16, 32])}), &["header", "`a`"]);
    check(json!({"a": entry("F32", json!([5]), [0, 32])}), &["header"]);
    check(json!({"a": entry("F32", json!([u64::MAX, 2]), [0, 32])}), &["header", "overflow"]);
    check(json!({"a": entry("F64", json!([4]), [0, 32])}), &["a: expected values of type F32", "F64"]);
    check(json!({"a": entry("F33", json!([4]), [0, 32])}), &["header"]);
    check(json!({"a": entry("F32", json!([-8]), [0, 32])}), &["header"]);
    check(json!({"a": entry("F32", json!([4]), [0, 16])}), &["values"]);
    check(json!([1, 2, 3]), &["header"]);
    check(json!({"__metadata__": {"config": 3}}), &["header"]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    std::fs::write(&path, [&(deep.len() as u64).to_le_bytes(), deep.as_bytes()].concat()).unwrap();
    refused(load(&path), &["header"]);
}

#[test]
fn files_of_pytorch_that_do_not_fit() {
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/checkpoint/ex1_galerkin.pt");
    let message = import_torch(model(&small(), 1), &checkpoint).unwrap_err().to_string();
    assert!(message.contains("ex1_galerkin.pt: weights do not fit the model; missing: "), "{message}");
    assert!(message.contains(" and ") && message.contains(" more; not known: "), "{message}");
    assert!(message.len() < 1000, "{message}");
    refused(import_torch(model(&small(), 1), "no/such.pt"), &["no/such.pt"]);
}

#[test]
fn a_folder_that_is_not_there_is_named_and_nothing_is_left() {
    let folder = Folder::new("not_there");
    let config = small();
    let path = folder.0.join("none/model.safetensors");
    refused(save(&model(&config, 1), &config, &BTreeMap::new(), &path), &["none/model.safetensors"]);
    // A folder in the place of the file: the partial file goes away again.
    let taken = folder.file("taken");
    std::fs::create_dir(&taken).unwrap();
    refused(save(&model(&config, 1), &config, &BTreeMap::new(), &taken), &["taken"]);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, words: &[&str]) {
    let Err(error) = result else { panic!("expected an error that says {words:?}") };
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

fn small() -> ModelConfig {
    ModelConfig::Fno1d(FnoConfig { modes: 3, channels: 4, layers: 2, ..FnoConfig::burgers() })
}

fn model(config: &ModelConfig, seed: u64) -> Model {
    config.init(&mut Builder::new(seed, &Device::flex())).unwrap()
}

fn normalizer() -> Normalizer {
    let tensor = |values: [f32; 4]| {
        Tensor::<3>::from_data(TensorData::new(values.to_vec(), [2, 2, 1]), &Device::flex())
    };
    Normalizer::new(tensor([0.0, 1.0, 2.0, 3.0]), tensor([1.0, 0.5, 0.25, 0.125])).unwrap()
}

fn statistics(model: &Model) -> Option<[Vec<f32>; 2]> {
    let normalizer = model.normalizer()?;
    Some([&normalizer.mean, &normalizer.deviation].map(|t| t.clone().into_data().try_into_vec().unwrap()))
}

/// A safetensors file in its two parts.
#[derive(Clone)]
struct Safetensors {
    header: Value,
    values: Vec<u8>,
}

impl Safetensors {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (header, values) =
            bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize);
        Safetensors { header: serde_json::from_slice(header).unwrap(), values: values.to_vec() }
    }

    /// One more array, of zeros.
    fn add(&mut self, name: &str, shape: &[usize]) -> &mut Self {
        let begin = self.values.len();
        self.values.resize(begin + 4 * shape.iter().product::<usize>(), 0);
        self.header[name] =
            json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, self.values.len()]});
        self
    }

    fn write(&self, path: &Path) {
        let header = self.header.to_string();
        let length = (header.len() as u64).to_le_bytes();
        std::fs::write(path, [&length, header.as_bytes(), &self.values].concat()).unwrap();
    }
}

/// A folder of its own for every test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("weights_{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
