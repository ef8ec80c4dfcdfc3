//! The encoder layer: attention, residual, feed-forward network, residual.
//!
//! ```text
//! t₁ = x ± drop(Attn(x))        x₁ = LN₁(t₁) or t₁
//! t₂ = x₁ + drop(FFN(x₁))       y  = LN₂(t₂) or t₂        FFN(x) = drop(act(x W₁ + b₁)) W₂ + b₂
//! ```

use crate::activation::Activation;
use crate::attention::{self, Attention};
use crate::dropout::{Dropout, Site};

/// Shapes and options of an encoder layer.
#[derive(Clone, Copy, Debug)]
pub struct EncoderLayer {
    /// The attention, with B, n, d.
    pub attention: Attention,
    /// f, width of the FFN's hidden layer.
    pub hidden: usize,
    /// The FFN's activation.
    pub activation: Activation,
    /// Whether a layer norm over d follows each residual (LN₁, LN₂).
    pub norm_after: bool,
    /// ε of LN₁ and LN₂.
    pub eps: f32,
    /// Whether the attention is taken away from x instead of added.
    pub minus: bool,
    /// Dropout rate before both residuals; 0 outside training.
    pub residual_dropout: f32,
    /// Dropout rate on the FFN's hidden layer; 0 outside training.
    pub hidden_dropout: f32,
}

/// Parameters, W stored (in, out). `T` is f64 for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a, T = f32> {
    /// The attention's own.
    pub attention: attention::Params<'a, T>,
    /// (d, f)
    pub w_1: &'a [T],
    /// (f)
    pub b_1: &'a [T],
    /// (f, d)
    pub w_2: &'a [T],
    /// (d)
    pub b_2: &'a [T],
    /// (d) of LN₁; empty without `norm_after`.
    pub gamma_1: &'a [T],
    /// (d) of LN₁; empty without `norm_after`.
    pub beta_1: &'a [T],
    /// (d) of LN₂; empty without `norm_after`.
    pub gamma_2: &'a [T],
    /// (d) of LN₂; empty without `norm_after`.
    pub beta_2: &'a [T],
}

/// Gradients of [`Params`], field by field; they are overwritten.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Grads<'a> {
    pub attention: attention::Grads<'a>,
    pub w_1: &'a mut [f32],
    pub b_1: &'a mut [f32],
    pub w_2: &'a mut [f32],
    pub b_2: &'a mut [f32],
    pub gamma_1: &'a mut [f32],
    pub beta_1: &'a mut [f32],
    pub gamma_2: &'a mut [f32],
    pub beta_2: &'a mut [f32],
}

impl EncoderLayer {
    /// Dropout before the first residual; the value of sample b, point j, feature c lies at position (b·n + j)·d + c.
    pub fn attention_dropout(&self) -> Dropout {
        Dropout { rate: self.residual_dropout, key: self.attention.key, site: Site::Attention }
    }

    /// Dropout on the hidden layer, at position (b·n + j)·f + c.
    pub fn hidden_dropout(&self) -> Dropout {
        Dropout { rate: self.hidden_dropout, key: self.attention.key, site: Site::Hidden }
    }

    /// Dropout before the second residual, at position (b·n + j)·d + c.
    pub fn feed_forward_dropout(&self) -> Dropout {
        Dropout { rate: self.residual_dropout, key: self.attention.key, site: Site::FeedForward }
    }
}
