//! Weight files: what is saved is loaded again, bit for bit; a bad file is an error that names file and place.

use burn::tensor::Device;
use galerkin::layers::TargetNormalizer;
use galerkin::networks::{Network, NetworkConfig};
use galerkin::reference::export;
use galerkin::weights::{import_torch, load, save};
use galerkin::{Error, Model, Result, presets};
use galerkin_data::Array;
use galerkin_data::normalize::Normalizer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn weights_config_and_normalizer_come_back() {
    let folder = Folder::new("come_back");
    let configs = [
        presets::get("burgers").unwrap().network,
        operator("fno-darcy", |spectral| spectral["modes"] = json!(3)),
    ];
    for config in configs {
        let mut saved = network(&config, 1);
        if config.axes() == 2 {
            saved = saved.with_normalizer(normalizer());
        }
        let path = folder.file("model.safetensors");
        let more =
            BTreeMap::from([("epoch", "7"), ("format", "ours stays")].map(|(k, v)| (k.into(), v.into())));
        save(&saved, &more, &path).unwrap();
        let first = std::fs::read(&path).unwrap();

        let weights = load(&path).unwrap();
        assert_eq!(weights.config().unwrap(), config);
        assert_eq!(weights.metadata["epoch"], "7");
        assert_eq!(weights.metadata["format"], "galerkin");
        let loaded = load_into(network(&config, 2), &path).unwrap();
        assert_eq!(export(&loaded), export(&saved));
        assert_eq!(statistics(&loaded), statistics(&saved));
        assert_eq!(statistics(&loaded).is_some(), config.axes() == 2);

        // The same bytes again, over the old file, with nothing left beside it.
        save(&loaded, &more, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }
}

/// On grids of all kinds, with every setting that a preset leaves alone.
#[test]
fn networks_on_one_to_three_axes_come_back() {
    let folder = Folder::new("axes");
    let path = folder.file("model.safetensors");
    for (periodic, grid) in
        [(vec![false], vec![12]), (vec![false, true], vec![7, 8]), (vec![true; 3], vec![6; 3])]
    {
        let words = json!({
            "kind": "fno", "inputs": 2, "outputs": 3, "periodic": periodic, "boundary": "zero",
            "output": { "resized": { "from": grid, "to": grid.iter().map(|n| n + 2).collect::<Vec<_>>() } },
            "spectral": {
                "layers": 2, "channels": 4, "modes": 3, "feed_forward": 5, "activation": "gelu",
                "last_activation": true, "coordinates": true, "law": "normal", "padding": 0.25, "dropout": 0.1,
            },
        });
        let config: NetworkConfig = serde_json::from_value(words).unwrap();
        // One number per channel: it lies on no grid.
        let [mean, deviation] = [0.5, 2.0].map(|value| Array { shape: vec![3], values: vec![value; 3] });
        let by_channel = Normalizer::new(mean, deviation).unwrap();
        let by_channel = TargetNormalizer::new(&by_channel, &Device::flex()).unwrap();
        let saved = network(&config, 1).with_normalizer(by_channel);
        save(&saved, &BTreeMap::new(), &path).unwrap();
        let loaded = load(&path).unwrap().into_network(&Device::flex()).unwrap();
        assert_eq!(loaded.config(), &config);
        assert_eq!(export(&loaded), export(&saved), "{periodic:?}");
        assert_eq!(statistics(&loaded), statistics(&saved), "{periodic:?}");
        assert!(statistics(&loaded).is_some());
    }
}

#[test]
fn a_file_gives_its_own_network_and_a_config_of_another_one_builds_nothing() {
    let folder = Folder::new("own_network");
    let (config, path) = (small(), folder.file("model.safetensors"));
    let saved = network(&config, 1);
    save(&saved, &BTreeMap::new(), &path).unwrap();
    let loaded = load(&path).unwrap().into_network(&Device::flex()).unwrap();
    assert_eq!((export(&loaded), loaded.config()), (export(&saved), &config));

    let vast = operator("fno-darcy", |spectral| spectral["channels"] = json!(1u64 << 40));
    let mut file = Safetensors::read(&path);
    file.header["__metadata__"]["config"] = json!(serde_json::to_string(&vast).unwrap());
    file.write(&path);
    let refusal = load(&path).unwrap().into_network(&Device::flex());
    refused(refusal, &["model.safetensors", "metadata `config`", "as many as the file has"]);
}

/// Weights that were written before configs had today's words are those of today's networks, and what is saved of them is a file of today.
#[test]
fn files_of_the_first_version() {
    let folder = Folder::new("first_version");
    let attention = |features: usize, heads: usize, coordinates: usize, eps: f64| {
        json!({
            "kind": "galerkin", "features": features, "heads": heads, "coordinates": coordinates, "norm": "layer", "eps": eps,
            "dropout": 0.0, "gain": 0.01, "diagonal": 0.01,
        })
    };
    let line = json!({
        "network": "transformer1d", "inputs": 1, "layers": 4, "equal_layers": false, "closed_line": false, "dropout": 0.0,
        "encoder": {
            "attention": attention(96, 1, 1, 1e-5), "hidden": 192, "activation": "relu", "norm_after": false, "eps": 1e-5,
            "minus": false, "residual_dropout": 0.0, "hidden_dropout": 0.0,
        },
        "decoder": {
            "inputs": 96, "coordinates": 0, "hidden": 96, "channels": 48, "modes": 16, "layers": 2, "feed_forward": 48, "outputs": 1,
            "activation": "silu", "last_activation": true, "dropout": 0.0,
        },
    });
    let square = json!({
        "network": "transformer2d", "layers": 6, "equal_layers": false, "boundary": "dirichlet", "dropout": 0.0,
        "downsampler": { "inputs": 1, "outputs": 128, "activation": "relu", "dropout": 0.05 },
        "encoder": {
            "attention": attention(128, 4, 2, 1e-7), "hidden": 256, "activation": "relu", "norm_after": false, "eps": 1e-7,
            "minus": false, "residual_dropout": 0.05, "hidden_dropout": 0.1,
        },
        "upsampler": { "channels": 128, "activation": "silu", "dropout": 0.0 },
        "decoder": { "spectral": {
            "inputs": 128, "coordinates": 2, "hidden": 32, "channels": 32, "modes": 12, "layers": 2, "feed_forward": 128, "outputs": 1,
            "activation": "silu", "last_activation": true, "dropout": 0.0,
        } },
        "resampling": { "fine": 85, "coarse": 29, "by_factor": true, "coarse_output": false },
    });
    let inverse = json!({
        "network": "transformer2d", "layers": 6, "equal_layers": false, "boundary": "free", "dropout": 0.05,
        "downsampler": { "inputs": 1, "outputs": 192, "activation": "silu", "dropout": 0.05 },
        "encoder": {
            "attention": attention(192, 4, 2, 1e-7), "hidden": 384, "activation": "relu", "norm_after": false, "eps": 1e-7,
            "minus": false, "residual_dropout": 0.05, "hidden_dropout": 0.05,
        },
        "upsampler": { "channels": 192, "activation": "silu", "dropout": 0.05 },
        "decoder": { "pointwise": {
            "inputs": 192, "coordinates": 2, "hidden": 192, "layers": 1, "outputs": 1, "activation": "silu", "dropout": 0.05,
        } },
        "resampling": { "fine": 85, "coarse": 29, "by_factor": true, "coarse_output": true },
    });
    let path = folder.file("model.safetensors");
    for (preset, words) in [("burgers", line), ("darcy", square), ("darcy-inverse", inverse)] {
        let config = presets::get(preset).unwrap().network;
        let saved = network(&config, 1);
        save(&saved, &BTreeMap::new(), &path).unwrap();
        let mut old = Safetensors::read(&path);
        old.header["__metadata__"]["version"] = json!("1");
        old.header["__metadata__"]["config"] = json!(words.to_string());
        old.write(&path);

        let model = Model::load(&path).unwrap();
        assert_eq!(
            (model.network().config(), export(model.network())),
            (&config, export(&saved)),
            "{preset}"
        );
        save(model.network(), &BTreeMap::new(), &path).unwrap();
        let weights = load(&path).unwrap();
        assert_eq!(weights.metadata["version"], "3", "{preset}");
        assert_eq!((weights.config().unwrap(), weights.arrays), (config, export(&saved)), "{preset}");
    }
}

#[test]
fn the_safetensors_crate_reads_what_we_write() {
    let folder = Folder::new("crate_reads");
    let saved = network(&small(), 1);
    let path = folder.file("model.safetensors");
    save(&saved, &BTreeMap::new(), &path).unwrap();
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
    let square = |modes: usize| {
        operator("fno-darcy", |spectral| {
            (spectral["modes"], spectral["channels"], spectral["layers"]) =
                (json!(modes), json!(4), json!(1));
        })
    };
    save(&network(&square(3), 1).with_normalizer(normalizer()), &BTreeMap::new(), &path).unwrap();

    refused(load_into(network(&line, 1), &path), &["normalizer.mean", "an axis of points", "[2, 2, 1]"]);
    save(&network(&square(3), 1), &BTreeMap::new(), &path).unwrap();
    let error = load_into(network(&line, 1), &path).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let message = load_into(network(&square(4), 1), &path).unwrap_err().to_string();
    assert!(message.contains("model.safetensors: weights do not fit the model; misshapen: "), "{message}");

    // A normaliser that fits, on a grid or by channel; one for a square, half of one, one for other channels, and one with another ε.
    save(&network(&line, 1), &BTreeMap::new(), &path).unwrap();
    let whole = Safetensors::read(&path);
    for shape in [&[4, 1][..], &[1]] {
        let mut file = whole.clone();
        file.add("normalizer.mean", shape).add("normalizer.std", shape).write(&path);
        let [mean, deviation] = statistics(&load_into(network(&line, 1), &path).unwrap()).unwrap();
        assert_eq!([&mean.shape[..], &deviation.shape], [shape; 2]);
    }
    let mut file = whole.clone();
    file.add("normalizer.mean", &[2, 2, 1]).add("normalizer.std", &[2, 2, 1]).write(&path);
    refused(load_into(network(&line, 1), &path), &["normalizer.mean", "an axis of points", "[2, 2, 1]"]);
    whole.clone().add("normalizer.mean", &[4, 1]).write(&path);
    refused(load_into(network(&line, 1), &path), &["both `normalizer.mean` and `normalizer.std`"]);
    for shape in [&[4][..], &[4, 2], &[0, 1]] {
        let mut file = whole.clone();
        file.add("normalizer.mean", shape).add("normalizer.std", shape).write(&path);
        refused(
            load_into(network(&line, 1), &path),
            &["model.safetensors", "normalizer.mean", "channels = 1", &format!("{shape:?}")],
        );
    }
    let mut file = whole.clone();
    file.add("normalizer.mean", &[4, 1]).add("normalizer.std", &[2, 1]).write(&path);
    let words = ["model.safetensors", "normalizer.std", "[4, 1]", "[2, 1]"];
    refused(load_into(network(&line, 1), &path), &words);
    let mut file = whole.clone();
    file.header["__metadata__"]["normalizer.eps"] = json!("0.1");
    file.add("normalizer.mean", &[4, 1]).add("normalizer.std", &[4, 1]).write(&path);
    refused(load_into(network(&line, 1), &path), &["normalizer.eps", "0.00001", "0.1"]);

    let mut file = whole.clone();
    file.header["__metadata__"]["version"] = json!("4");
    file.write(&path);
    refused(load(&path), &["version of the format", "`3`", "`4`"]);
    let mut file = whole.clone();
    file.header["__metadata__"]["version"] = json!("3");
    file.write(&path);
    refused(load(&path), &["metadata", "expected a checksum, found none"]);
    for (config, word) in [
        ("{\"kind\": \"none\"}", "none"),
        // In the words of the first version.
        ("{\"network\": \"none\"}", "first version"),
        ("{\"network\": \"fno1d\", \"inputs\": 1}", "first version"),
        ("{", "EOF"),
    ] {
        let mut file = whole.clone();
        file.header["__metadata__"]["config"] = json!(config);
        file.write(&path);
        refused(load(&path).unwrap().config(), &["metadata `config`", word]);
    }
    let mut file = whole;
    file.header.as_object_mut().unwrap().remove("__metadata__");
    file.write(&path);
    refused(load(&path).unwrap().config(), &["metadata `config`", "found none"]);
    load_into(network(&line, 1), &path).unwrap();
}

#[test]
fn files_that_are_broken() {
    let folder = Folder::new("broken");
    let path = folder.file("model.safetensors");
    refused(load(&path), &["No such file"]);
    refused(load(&folder.0), &["expected a file"]);
    save(&network(&small(), 1), &BTreeMap::new(), &path).unwrap();
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
    // Whatever bit flips is noticed.
    for bit in (0..8 * header).step_by(37).chain((8 * header..8 * bytes.len()).step_by(997)) {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        assert!(load(&path).is_err(), "bit {bit}");
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
    let message = import_torch(network(&small(), 1), &checkpoint).unwrap_err().to_string();
    assert!(message.contains("ex1_galerkin.pt: weights do not fit the model; missing: "), "{message}");
    assert!(message.contains(" and ") && message.contains(" more; not known: "), "{message}");
    assert!(message.len() < 1000, "{message}");
    refused(import_torch(network(&small(), 1), "no/such.pt"), &["no/such.pt"]);
}

#[test]
fn a_folder_that_is_not_there_is_named_and_nothing_is_left() {
    let folder = Folder::new("not_there");
    let saved = network(&small(), 1);
    let path = folder.0.join("none/model.safetensors");
    refused(save(&saved, &BTreeMap::new(), &path), &["none/model.safetensors"]);
    // A folder in the place of the file: the partial file goes away again.
    let taken = folder.file("taken");
    std::fs::create_dir(&taken).unwrap();
    refused(save(&saved, &BTreeMap::new(), &taken), &["taken"]);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[track_caller]
fn refused<T>(result: Result<T>, words: &[&str]) {
    let Err(error) = result else { panic!("expected an error that says {words:?}") };
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

fn small() -> NetworkConfig {
    operator("fno-burgers", |spectral| {
        (spectral["modes"], spectral["channels"], spectral["layers"]) = (json!(3), json!(4), json!(2));
    })
}

/// The Fourier operator of a preset with other convolutions.
fn operator(preset: &str, change: impl Fn(&mut Value)) -> NetworkConfig {
    let mut words = serde_json::to_value(presets::get(preset).unwrap().network).unwrap();
    change(&mut words["spectral"]);
    serde_json::from_value(words).unwrap()
}

fn network(config: &NetworkConfig, seed: u64) -> Network {
    config.init(seed, &Device::flex()).unwrap()
}

fn load_into(network: Network, path: &Path) -> Result<Network> {
    load(path)?.put_into(network)
}

fn normalizer() -> TargetNormalizer {
    let array = |values: [f32; 4]| Array { shape: vec![2, 2, 1], values: values.to_vec() };
    let fit = Normalizer::new(array([0.0, 1.0, 2.0, 3.0]), array([1.0, 0.5, 0.25, 0.125])).unwrap();
    TargetNormalizer::new(&fit, &Device::flex()).unwrap()
}

/// Mean and deviation.
fn statistics(network: &Network) -> Option<[Array; 2]> {
    network.normalizer().map(TargetNormalizer::arrays)
}

/// A safetensors file in its two parts.
#[derive(Clone)]
struct Safetensors {
    header: Value,
    values: Vec<u8>,
}

impl Safetensors {
    /// As version 2 wrote it, which had no checksum: what is changed is judged by what it says.
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (header, values) =
            bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize);
        let mut header: Value = serde_json::from_slice(header).unwrap();
        header["__metadata__"]["version"] = json!("2");
        header["__metadata__"].as_object_mut().unwrap().remove("checksum");
        Safetensors { header, values: values.to_vec() }
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
