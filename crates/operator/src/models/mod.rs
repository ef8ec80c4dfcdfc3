//! The paper's networks: the transformer for functions on a line, and the one for functions on a square.

mod transformer_1d;
mod transformer_2d;

pub use transformer_1d::{Transformer1d, Transformer1dConfig};
pub use transformer_2d::{
    Boundary, Decoder, DecoderConfig, Grids, Resampling, Through, Transformer2d, Transformer2dConfig,
};

use burn::tensor::Tensor;

use crate::layers::{Activation, AttentionConfig, AttentionKind, EncoderLayerConfig, HeadNorm};

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
