//! The paper's networks and their baselines: one [`Model`], made from one serialisable [`ModelConfig`].

mod fno;
mod preset;
mod transformer_1d;
mod transformer_2d;

pub use fno::{Fno1d, Fno2d, FnoConfig};
pub use preset::Preset;
pub use transformer_1d::{Transformer1d, Transformer1dConfig};
pub use transformer_2d::{
    Decoder, DecoderConfig, Grids, Resampling, Through, Transformer2d, Transformer2dConfig,
};

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, AttentionConfig, AttentionKind, EncoderLayer, EncoderLayerConfig, HeadNorm, Mode, Normalizer,
};
use crate::ops::AttentionInput;
use crate::reference::{Entry, ReferenceNames};

/// Everything that decides what a network computes, but its weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "network", rename_all = "snake_case")]
pub enum ModelConfig {
    /// The transformer on a line.
    Transformer1d(Transformer1dConfig),
    /// The transformer on a square.
    Transformer2d(Transformer2dConfig),
    /// The Fourier operator on a line.
    Fno1d(FnoConfig),
    /// The Fourier operator on a square.
    Fno2d(FnoConfig),
}

/// A network of one of the kinds.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a program holds one or two, and its parameters dwarf it")]
pub enum Model {
    /// The transformer on a line.
    Transformer1d(Transformer1d),
    /// The transformer on a square.
    Transformer2d(Transformer2d),
    /// The Fourier operator on a line.
    Fno1d(Fno1d),
    /// The Fourier operator on a square.
    Fno2d(Fno2d),
}

/// A batch of functions on a grid.
#[derive(Clone, Debug)]
pub enum Field {
    /// (B, n, channels)
    Line(Tensor<3>),
    /// (B, n₁, n₂, channels)
    Square(Tensor<4>),
}

/// An intermediate value of a model, as its forward pass shows it.
#[derive(Clone, Debug)]
pub enum Latent<'a> {
    /// (B, n, features)
    Points(&'a Tensor<3>),
    /// (B, n₁, n₂, features)
    Grid(&'a Tensor<4>),
}

/// Called with the name of every stage of a model, as the reference names its modules, and with the stage's output.
pub type Observer<'a> = &'a mut dyn FnMut(&str, Latent);

/// What happens on the outermost ring of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// Nothing.
    Free,
    /// It is set to zero.
    Dirichlet,
}

impl ModelConfig {
    /// The network, with initial weights.
    pub fn init(&self, builder: &mut Builder) -> Result<Model> {
        Ok(match self {
            ModelConfig::Transformer1d(config) => Model::Transformer1d(config.init(builder)?),
            ModelConfig::Transformer2d(config) => Model::Transformer2d(config.init(builder)?),
            ModelConfig::Fno1d(config) => Model::Fno1d(config.init_1d(builder)?),
            ModelConfig::Fno2d(config) => Model::Fno2d(config.init_2d(builder)?),
        })
    }

    /// Axes of the grid.
    pub fn dimensions(&self) -> usize {
        match self {
            ModelConfig::Transformer1d(_) | ModelConfig::Fno1d(_) => 1,
            ModelConfig::Transformer2d(_) | ModelConfig::Fno2d(_) => 2,
        }
    }

    /// Values per point of the input and of the output.
    pub fn channels(&self) -> [usize; 2] {
        match self {
            ModelConfig::Transformer1d(config) => [config.inputs, config.decoder.outputs],
            ModelConfig::Transformer2d(config) => [config.downsampler.inputs, config.decoder.outputs()],
            ModelConfig::Fno1d(config) | ModelConfig::Fno2d(config) => [config.inputs, config.outputs],
        }
    }

    /// Points along each axis of the output for an input on `grid`.
    pub fn output_grid(&self, grid: &[usize]) -> Result<Vec<usize>> {
        match (self, grid) {
            (ModelConfig::Transformer2d(config), &[n1, n2]) => {
                Ok(config.resampling.through([n1, n2])?.up[1].to_vec())
            }
            _ if grid.len() == self.dimensions() => Ok(grid.to_vec()),
            _ => Err(wrong_rank(self.dimensions(), grid)),
        }
    }
}

impl Model {
    /// On any grid the modes allow; the field must have as many axes as the model.
    pub fn forward(&self, x: Field, mode: Mode) -> Result<Field> {
        self.forward_observed(x, mode, &mut |_, _| {})
    }

    /// As [`forward`](Self::forward), showing every stage.
    pub fn forward_observed(&self, x: Field, mode: Mode, observe: Observer) -> Result<Field> {
        match (self, x) {
            (Model::Transformer1d(model), Field::Line(x)) => model.forward_observed(x, mode, observe),
            (Model::Fno1d(model), Field::Line(x)) => model.forward(x, mode, observe),
            (Model::Transformer2d(model), Field::Square(x)) => {
                return model.forward_observed(x, mode, observe).map(Field::Square);
            }
            (Model::Fno2d(model), Field::Square(x)) => {
                return model.forward(x, mode, observe).map(Field::Square);
            }
            (_, x) => return Err(wrong_rank(self.dimensions(), &x.dims())),
        }
        .map(Field::Line)
    }

    /// The model with the normaliser of its targets, which lie on a square.
    pub fn with_normalizer(self, normalizer: Normalizer) -> Result<Self> {
        Ok(match self {
            Model::Transformer2d(model) => Model::Transformer2d(model.with_normalizer(normalizer)),
            Model::Fno2d(model) => Model::Fno2d(model.with_normalizer(normalizer)),
            Model::Transformer1d(_) | Model::Fno1d(_) => {
                return Err(Error::setting(
                    "normaliser for a model on a line",
                    "it is for those on a square",
                ));
            }
        })
    }

    /// The normaliser of the targets.
    pub fn normalizer(&self) -> Option<&Normalizer> {
        match self {
            Model::Transformer2d(model) => model.normalizer.as_ref(),
            Model::Fno2d(model) => model.normalizer.as_ref(),
            Model::Transformer1d(_) | Model::Fno1d(_) => None,
        }
    }

    /// Axes of the grid.
    pub fn dimensions(&self) -> usize {
        match self {
            Model::Transformer1d(_) | Model::Fno1d(_) => 1,
            Model::Transformer2d(_) | Model::Fno2d(_) => 2,
        }
    }
}

impl Field {
    /// Length of every axis.
    pub fn dims(&self) -> Vec<usize> {
        match self {
            Field::Line(x) => x.dims().to_vec(),
            Field::Square(x) => x.dims().to_vec(),
        }
    }
}

impl ReferenceNames for Model {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match self {
            Model::Transformer1d(model) => model.entries(prefix),
            Model::Transformer2d(model) => model.entries(prefix),
            Model::Fno1d(model) => model.entries(prefix),
            Model::Fno2d(model) => model.entries(prefix),
        }
    }
}

pub(crate) fn wrong_rank(dimensions: usize, found: &[usize]) -> Error {
    let expected = if dimensions == 1 { "(B, n, channels)" } else { "(B, n₁, n₂, channels)" };
    Error::Shape { what: "input".into(), expected: expected.into(), found: found.to_vec() }
}

/// What the paper's encoder layers have in common: the norm inside the heads, ReLU, a feed-forward network of twice the
/// width, η = δ = 0.01, no dropout.
fn paper_encoder(
    kind: AttentionKind,
    features: usize,
    heads: usize,
    coordinates: usize,
) -> EncoderLayerConfig {
    EncoderLayerConfig {
        attention: AttentionConfig {
            kind,
            features,
            heads,
            coordinates,
            norm: HeadNorm::Layer,
            eps: 1e-5,
            dropout: 0.0,
            gain: 0.01,
            diagonal: 0.01,
        },
        hidden: 2 * features,
        activation: Activation::Relu,
        norm_after: false,
        eps: 1e-5,
        minus: false,
        residual_dropout: 0.0,
        hidden_dropout: 0.0,
    }
}

/// Encoder layers one after the other: what a next one would take.
fn encode_points(
    mut x: Tensor<3>,
    coordinates: Tensor<3>,
    layers: &[EncoderLayer],
    mode: Mode,
    observe: Observer,
) -> Result<AttentionInput> {
    for (i, layer) in layers.iter().enumerate() {
        x = layer
            .forward(AttentionInput { x, coordinates: Some(coordinates.clone()), weights: None }, mode)?;
        observe(&format!("encoder_layers.{i}"), Latent::Points(&x));
    }
    Ok(AttentionInput { x, coordinates: Some(coordinates), weights: None })
}

fn layer_of(layers: &[EncoderLayer], number: usize) -> Result<&EncoderLayer> {
    layers.get(number).ok_or_else(|| {
        Error::setting(
            format!("encoder layer {number}"),
            format!("layers are 0 to {}", layers.len() as i64 - 1),
        )
    })
}

/// What follows a decoder on the square: the normaliser's inverse, then the boundary condition.
fn finish(y: Tensor<4>, normalizer: Option<&Normalizer>, boundary: Boundary) -> Result<Tensor<4>> {
    let y = match normalizer {
        Some(normalizer) => normalizer.denormalize(y)?,
        None => y,
    };
    Ok(match boundary {
        Boundary::Free => y,
        Boundary::Dirichlet => without_ring(y),
    })
}

/// The outermost ring set to zero.
fn without_ring(y: Tensor<4>) -> Tensor<4> {
    let [_, n1, n2, _] = y.dims();
    let inside = |i: usize, n: usize| i > 0 && i + 1 < n;
    let factor = |at: usize| if inside(at / n2, n1) && inside(at % n2, n2) { 1.0 } else { 0.0 };
    let mask = TensorData::new((0..n1 * n2).map(factor).collect::<Vec<f32>>(), [1, n1, n2, 1]);
    let mask = Tensor::<4>::from_data(mask, &y.device());
    y * mask
}
