//! What is measured: the networks of `galerkin`, and encoder layers alone.

use std::path::Path;

use anyhow::Context;
use burn::module::Module;
use burn::tensor::{Device, Gradients, Tensor};
use galerkin::init::Builder;
use galerkin::layers::{AttentionKind, EncoderLayer, EncoderLayerConfig, Mode, line};
use galerkin::models::{Field, Model, ModelConfig, Transformer1dConfig};
use galerkin::ops::AttentionInput;
use galerkin::reference::{Entry, ReferenceNames, import};
use galerkin::weights;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A network to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::commands) enum NetworkConfig {
    Model(ModelConfig),
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
pub(super) enum Network {
    Model(Model),
    Encoder(Encoder),
}

#[derive(Module, Debug)]
pub(super) struct Encoder {
    layers: Vec<EncoderLayer>,
}

/// The tag of encoder layers alone, where other networks have theirs.
const ENCODER: &str = "encoder";

impl EncoderConfig {
    /// The second block of the paper's table of costs: d = 128.
    pub(super) fn paper(kind: AttentionKind, layers: usize) -> Self {
        let mut encoder = Transformer1dConfig::burgers(kind).encoder;
        (encoder.attention.features, encoder.attention.heads, encoder.hidden) = (128, 4, 256);
        Self { encoder, layers }
    }
}

impl NetworkConfig {
    /// As it stands in the metadata of a weight file.
    pub(in crate::commands) fn to_json(self) -> serde_json::Result<Value> {
        match self {
            NetworkConfig::Model(config) => serde_json::to_value(config),
            NetworkConfig::Encoder(config) => {
                let mut value = serde_json::to_value(config)?;
                value["network"] = ENCODER.into();
                Ok(value)
            }
        }
    }

    pub(super) fn init(&self, device: &Device) -> galerkin::Result<Network> {
        let mut builder = Builder::new(0, device);
        Ok(match self {
            NetworkConfig::Model(config) => Network::Model(config.init(&mut builder)?),
            NetworkConfig::Encoder(config) => {
                let layers: galerkin::Result<_> =
                    (0..config.layers).map(|_| config.encoder.init(&mut builder)).collect();
                Network::Encoder(Encoder { layers: layers? })
            }
        })
    }

    /// Values per point that go in and that come out.
    pub(super) fn channels(&self) -> [usize; 2] {
        match self {
            NetworkConfig::Model(config) => config.channels(),
            NetworkConfig::Encoder(config) => [config.encoder.attention.features; 2],
        }
    }

    /// Points along each axis of the output.
    pub(super) fn output_grid(&self, grid: &[usize]) -> galerkin::Result<Vec<usize>> {
        match self {
            NetworkConfig::Model(config) => config.output_grid(grid),
            NetworkConfig::Encoder(_) => Ok(grid.to_vec()),
        }
    }

    /// Multiplications and additions of a training step of one sample: those of the forward pass, and twice as many of the backward pass.
    pub(in crate::commands) fn training_flops(&self, grid: &[usize]) -> galerkin::Result<u64> {
        let forward = match self {
            NetworkConfig::Model(config) => config.flops(grid)?,
            NetworkConfig::Encoder(config) => {
                config.layers as u64 * config.encoder.flops(grid.iter().product())
            }
        };
        Ok(3 * forward)
    }

    /// The kind of attention of its encoder layers, if it has any.
    pub(super) fn attention(&self) -> Option<AttentionKind> {
        let encoder = match self {
            NetworkConfig::Model(ModelConfig::Transformer1d(config)) => config.encoder,
            NetworkConfig::Model(ModelConfig::Transformer2d(config)) => config.encoder,
            NetworkConfig::Model(ModelConfig::Fno1d(_) | ModelConfig::Fno2d(_)) => return None,
            NetworkConfig::Encoder(config) => config.encoder,
        };
        Some(encoder.attention.kind)
    }
}

impl Network {
    pub(super) fn load(path: &Path, device: &Device) -> anyhow::Result<Self> {
        let file = weights::load(path)?;
        let text = file.metadata.get("config").context("no config in the metadata of the weights")?;
        let config: Value = serde_json::from_str(text)?;
        if config["network"] != ENCODER {
            return Ok(Network::Model(file.into_model(device)?.0));
        }
        let config = NetworkConfig::Encoder(serde_json::from_value(config)?);
        Ok(import(config.init(device)?, &file.arrays)?)
    }

    pub(super) fn forward(&self, x: Field, mode: Mode) -> galerkin::Result<Field> {
        match (self, x) {
            (Network::Model(model), x) => model.forward(x, mode),
            (Network::Encoder(encoder), Field::Line(x)) => {
                let [batch, n, _] = x.dims();
                let positions = line(batch, n, false, &x.device());
                let pass = |x, layer: &EncoderLayer| {
                    let coordinates = Some(positions.clone());
                    layer.forward(AttentionInput { x, coordinates, weights: None }, mode)
                };
                encoder.layers.iter().try_fold(x, pass).map(Field::Line)
            }
            (Network::Encoder(_), Field::Square(x)) => Err(galerkin::Error::Shape {
                what: "input".into(),
                expected: "(B, n, d)".into(),
                found: x.dims().to_vec(),
            }),
        }
    }

    /// Gradients of the mean square of the difference to a target, and that mean.
    pub(super) fn gradients(
        &self,
        x: &Field,
        target: &Field,
        mode: Mode,
    ) -> galerkin::Result<(Gradients, f32)> {
        fn square<const D: usize>(y: Tensor<D>, target: Tensor<D>) -> (Gradients, f32) {
            let loss = (y - target).square().mean();
            (loss.backward(), loss.into_scalar::<f32>())
        }
        match (self.forward(x.clone(), mode)?, target.clone()) {
            (Field::Line(y), Field::Line(target)) => Ok(square(y, target)),
            (Field::Square(y), Field::Square(target)) => Ok(square(y, target)),
            (y, target) => Err(galerkin::Error::Shape {
                what: "target".into(),
                expected: format!("{:?}", y.dims()),
                found: target.dims(),
            }),
        }
    }
}

impl ReferenceNames for Network {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match self {
            Network::Model(model) => model.entries(prefix),
            Network::Encoder(encoder) => {
                let layers = encoder.layers.iter().enumerate();
                layers.flat_map(|(i, layer)| layer.entries(&format!("{prefix}encoder_layers.{i}."))).collect()
            }
        }
    }
}
