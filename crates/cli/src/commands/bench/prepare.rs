//! Weights, input and target of a row, in files that every measured process reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use galerkin::device::Device;
use galerkin::layers::TargetNormalizer;
use galerkin::networks::{LiftConfig, NetworkConfig};
use galerkin::reference::{Array, export};
use galerkin_data::io::{Tensors, npy, write_whole};
use galerkin_data::random::{Purpose, Stream};

use super::network::MeasuredConfig;
use super::rows::Row;

/// The files of a row.
pub(super) struct Files {
    pub(super) weights: PathBuf,
    pub(super) input: PathBuf,
    pub(super) target: PathBuf,
}

/// Writes them to a folder, which must be there.
pub(super) fn write(row: &Row, folder: &Path) -> anyhow::Result<Files> {
    let at = |name: &str| folder.join(format!("{}.{name}", row.name));
    let files =
        Files { weights: at("weights.safetensors"), input: at("input.npy"), target: at("target.npy") };
    let [inputs, outputs] = row.network.channels();
    let output_grid = row.network.output_grid(&row.grid)?;
    let shape = |grid: &[usize], channels| [&[row.batch], grid, &[channels]].concat();
    write_field(&files.input, &shape(&row.grid, inputs), 0)?;
    write_field(&files.target, &shape(&output_grid, outputs), 1)?;

    let mut arrays = export(&row.network.init(&Device::flex())?);
    let mut metadata = BTreeMap::from([
        ("format".to_string(), "galerkin".to_string()),
        ("version".into(), "2".into()),
        ("config".into(), row.network.to_json()?.to_string()),
    ]);
    for (i, (name, array)) in arrays.iter_mut().enumerate() {
        array.values = draw_weights(name, &array.shape, 2 + i as u32);
    }
    if let MeasuredConfig::Network(NetworkConfig::Transformer(config)) = &row.network
        && matches!(config.lift, LiftConfig::Interpolation(_))
    {
        // As in training on Darcy flow, where the targets are normalised at every point.
        let shape = [output_grid.as_slice(), &[outputs]].concat();
        for (name, shift) in [("normalizer.mean", 0.0), ("normalizer.std", 1.0)] {
            let values = normals(shape.iter().product(), u32::MAX - shift as u32);
            let values = values.into_iter().map(|z| shift + 0.1 * z).collect();
            arrays.insert(name.into(), Array { shape: shape.clone(), values });
        }
        metadata.insert("normalizer.eps".into(), TargetNormalizer::EPS.to_string());
    }
    Tensors { arrays, metadata }.save(&files.weights)?;
    Ok(files)
}

/// Standard normal values.
fn write_field(path: &Path, shape: &[usize], index: u32) -> anyhow::Result<()> {
    let mut bytes = npy::header(shape);
    bytes.extend(normals(shape.iter().product(), index).into_iter().flat_map(f32::to_le_bytes));
    Ok(write_whole(path, &bytes)?)
}

/// Weights under which every part of a network counts, so that a part that differs between two programs shows in the output. Initial
/// weights of spectral convolutions and of projections are so small that they would hide it. Matrices of encoder layers are quartered:
/// without, values grow by the layer, to 10⁴ after six. Gradients in f32 would keep three digits in either program, and some activations become
/// so flat that both programs spend their time on subnormal numbers, which no network in training does.
fn draw_weights(name: &str, shape: &[usize], index: u32) -> Vec<f32> {
    let spectral = name.contains("fourier_weight");
    let size = if name.starts_with("encoder_layers") { 0.25 } else { 1.0 };
    let (shift, scale) = match *shape {
        [_] if name.ends_with("weight") => (1.0, 0.1),
        [_] => (0.0, 0.1),
        [inputs, ..] if spectral => (0.0, 1.0 / (inputs as f32).sqrt()),
        // (outputs, inputs) and (outputs, inputs, 3, 3)
        [_, ref inputs @ ..] => (0.0, size / (inputs.iter().product::<usize>() as f32).sqrt()),
        [] => (0.0, 1.0),
    };
    normals(shape.iter().product(), index).into_iter().map(|z| shift + scale * z).collect()
}

fn normals(len: usize, index: u32) -> Vec<f32> {
    let mut values = vec![0.0; len];
    Stream { seed: 0, purpose: Purpose::Bench, index }.normals(&mut values);
    values.into_iter().map(|z| z as f32).collect()
}
