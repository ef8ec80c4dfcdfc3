//! What is measured: the networks of `galerkin`, and encoder layers alone.

use std::path::Path;

use anyhow::Context;
use burn::module::Module;
use burn::tensor::{Device, Gradients, Tensor};
use galerkin::init::Builder;
use galerkin::layers::{AttentionKind, EncoderLayer, EncoderLayerConfig, Mode, coordinates};
use galerkin::networks::{Network, NetworkConfig, TransformerConfig};
use galerkin::ops::AttentionInput;
use galerkin::presets;
use galerkin::reference::{Entry, ReferenceNames, import};
use galerkin::weights;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a measured process holds one")]
pub(in crate::commands) enum MeasuredConfig {
    Network(NetworkConfig),
    Encoder(EncoderConfig),
}

/// Encoder layers on the periodic line without anything before or behind them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::commands) struct EncoderConfig {
    encoder: EncoderLayerConfig,
    pub(super) layers: usize,
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a process holds one")]
pub(super) enum Measured {
    Network(Network),
    Encoder(Encoder),
}

#[derive(Module, Debug)]
pub(super) struct Encoder {
    layers: Vec<EncoderLayer>,
}

/// Values (B, points, channels) on a grid.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) tensor: Tensor<3>,
    /// Points along each axis.
    pub(super) grid: Vec<usize>,
}

/// The kind of encoder layers alone, where networks have theirs.
const ENCODER: &str = "encoder";

/// The transformer of a preset.
pub(super) fn transformer(preset: &str) -> galerkin::Result<TransformerConfig> {
    match presets::get(preset)?.network {
        NetworkConfig::Transformer(config) => Ok(config),
        _ => {
            let why = "its network is no transformer".to_string();
            Err(galerkin::Error::Setting { what: format!("preset {preset}"), why })
        }
    }
}

impl EncoderConfig {
    /// The second block of the paper's table of costs: d = 128.
    pub(super) fn paper(kind: AttentionKind, layers: usize) -> galerkin::Result<Self> {
        let mut config = transformer("burgers")?;
        let encoder = &mut config.encoder;
        (encoder.attention, encoder.width, encoder.heads, encoder.hidden) = (kind, 128, 4, 256);
        Ok(Self { encoder: config.layer(), layers })
    }
}

impl MeasuredConfig {
    /// As it stands in the metadata of a weight file.
    pub(in crate::commands) fn to_json(&self) -> serde_json::Result<Value> {
        match self {
            MeasuredConfig::Network(config) => serde_json::to_value(config),
            MeasuredConfig::Encoder(config) => {
                let mut value = serde_json::to_value(config)?;
                value["kind"] = ENCODER.into();
                Ok(value)
            }
        }
    }

    pub(super) fn init(&self, device: &Device) -> galerkin::Result<Measured> {
        Ok(match self {
            MeasuredConfig::Network(config) => Measured::Network(config.init(0, device)?),
            MeasuredConfig::Encoder(config) => {
                let mut builder = Builder::new(0, device);
                let layers: galerkin::Result<_> =
                    (0..config.layers).map(|_| config.encoder.init(&mut builder)).collect();
                Measured::Encoder(Encoder { layers: layers? })
            }
        })
    }

    /// Values per point that go in and that come out.
    pub(super) fn channels(&self) -> [usize; 2] {
        match self {
            MeasuredConfig::Network(config) => config.channels(),
            MeasuredConfig::Encoder(config) => [config.encoder.attention.features; 2],
        }
    }

    /// Points along each axis of the output.
    pub(super) fn output_grid(&self, grid: &[usize]) -> galerkin::Result<Vec<usize>> {
        match self {
            MeasuredConfig::Network(config) => config.output_grid(grid),
            MeasuredConfig::Encoder(_) => Ok(grid.to_vec()),
        }
    }

    /// Multiplications and additions of a training step of one sample: those of the forward pass, and twice as many of the backward pass.
    pub(in crate::commands) fn training_flops(&self, grid: &[usize]) -> galerkin::Result<u64> {
        let forward = match self {
            MeasuredConfig::Network(config) => config.flops(grid)?,
            MeasuredConfig::Encoder(config) => {
                config.layers as u64 * config.encoder.flops(grid.iter().product())
            }
        };
        Ok(3 * forward)
    }

    /// The kind of attention of its encoder layers, if it has any.
    pub(super) fn attention(&self) -> Option<AttentionKind> {
        match self {
            MeasuredConfig::Network(NetworkConfig::Transformer(config)) => Some(config.encoder.attention),
            MeasuredConfig::Network(_) => None,
            MeasuredConfig::Encoder(config) => Some(config.encoder.attention.kind),
        }
    }
}

impl Measured {
    pub(super) fn load(path: &Path, device: &Device) -> anyhow::Result<Self> {
        let file = weights::load(path)?;
        let text = file.metadata.get("config").context("no config in the metadata of the weights")?;
        let config: Value = serde_json::from_str(text)?;
        if config["kind"] != ENCODER {
            return Ok(Measured::Network(file.into_network(device)?));
        }
        let config = MeasuredConfig::Encoder(serde_json::from_value(config)?);
        Ok(import(config.init(device)?, &file.arrays)?)
    }

    pub(super) fn forward(&self, x: &Values, mode: Mode) -> galerkin::Result<Values> {
        let Values { tensor, grid } = x.clone();
        match self {
            Measured::Network(network) => {
                let tensor = network.forward_points(tensor, &grid, mode, &mut |_, _, _| {})?;
                Ok(Values { tensor, grid: network.config().output_grid(&grid)? })
            }
            Measured::Encoder(encoder) => {
                let at = coordinates(tensor.dims()[0], &grid, &[true], &tensor.device());
                let pass = |x, layer: &EncoderLayer| {
                    let coordinates = Some(at.clone());
                    layer.forward(AttentionInput { x, coordinates, weights: None }, mode)
                };
                Ok(Values { tensor: encoder.layers.iter().try_fold(tensor, pass)?, grid })
            }
        }
    }

    /// Gradients of the mean square of the difference to a target, and that mean.
    pub(super) fn gradients(
        &self,
        x: &Values,
        target: &Values,
        mode: Mode,
    ) -> galerkin::Result<(Gradients, f32)> {
        let y = self.forward(x, mode)?.tensor;
        if y.dims() != target.tensor.dims() {
            let (expected, found) = (format!("{:?}", y.dims()), target.tensor.dims().to_vec());
            return Err(galerkin::Error::Shape { what: "target".into(), expected, found });
        }
        let loss = (y - target.tensor.clone()).square().mean();
        Ok((loss.backward(), loss.into_scalar::<f32>()))
    }
}

impl ReferenceNames for Measured {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match self {
            Measured::Network(network) => network.entries(prefix),
            Measured::Encoder(encoder) => {
                let layers = encoder.layers.iter().enumerate();
                layers.flat_map(|(i, layer)| layer.entries(&format!("{prefix}encoder_layers.{i}."))).collect()
            }
        }
    }
}
