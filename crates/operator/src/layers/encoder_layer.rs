//! The encoder layer: attention, residual, feed-forward network, residual.

use burn::module::Module;
use burn::tensor::Tensor;
use galerkin_kernels::encoder as kernel;
use serde::{Deserialize, Serialize};

use super::attention::Affine;
use super::{
    Activation, Attention, AttentionConfig, FeedForward, FeedForwardConfig, HeadNorm, Mode, check_rates,
};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops::{self, AttentionInput, EncoderParams};
use crate::reference::{Entry, ReferenceNames};

/// x₁ = N₁(x ± drop(Attn(x))), y = N₂(x₁ + drop(FFN(x₁))), where N₁ and N₂ are layer norms or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EncoderLayerConfig {
    /// The attention, with the norm inside its heads.
    pub attention: AttentionConfig,
    /// f, width of the feed-forward network.
    pub hidden: usize,
    /// Activation of the feed-forward network.
    pub activation: Activation,
    /// Whether a layer norm follows each residual.
    pub norm_after: bool,
    /// ε of these two norms.
    pub eps: f64,
    /// Whether the attention is taken away from x instead of added.
    pub minus: bool,
    /// Dropout rate before both residuals, in training.
    pub residual_dropout: f64,
    /// Dropout rate on the hidden layer of the feed-forward network, in training.
    pub hidden_dropout: f64,
}

/// See [`EncoderLayerConfig`].
#[derive(Module, Debug)]
pub struct EncoderLayer {
    /// The attention.
    pub attention: Attention,
    /// N₁.
    pub first_norm: Option<Affine>,
    /// N₂.
    pub second_norm: Option<Affine>,
    /// The feed-forward network.
    pub feed_forward: FeedForward,
    #[module(skip)]
    config: EncoderLayerConfig,
}

impl EncoderLayerConfig {
    /// Every part as its own config makes it. A layer without any norm is refused.
    pub fn init(&self, builder: &mut Builder) -> Result<EncoderLayer> {
        self.check()?;
        let d = self.attention.features;
        let attention = self.attention.init(builder)?;
        let norm = |builder: &mut Builder| self.norm_after.then(|| Affine::init(d, builder));
        Ok(EncoderLayer {
            attention,
            first_norm: norm(builder),
            second_norm: norm(builder),
            feed_forward: FeedForwardConfig {
                inputs: d,
                hidden: self.hidden,
                outputs: d,
                activation: self.activation,
                dropout: self.hidden_dropout,
            }
            .init(builder)?,
            config: *self,
        })
    }

    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        self.attention.check()?;
        self.check_numbers()?;
        if !self.norm_after && self.attention.norm == HeadNorm::None {
            return Err(Error::setting(
                "encoder layer without norm",
                "one is needed inside the heads or after the residuals",
            ));
        }
        Ok(())
    }

    /// `Ok` if those numbers have a meaning that belong to no width.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        check_rates("encoder layer", &[self.attention.dropout, self.residual_dropout, self.hidden_dropout])?;
        for (name, value) in
            [("eps", self.eps), ("gain", self.attention.gain), ("diagonal", self.attention.diagonal)]
        {
            if !value.is_finite() || (name == "eps" && value <= 0.0) {
                return Err(Error::setting(format!("encoder layer: {name} = {value}"), "it is out of range"));
            }
        }
        Ok(())
    }

    fn kernel(&self, attention: galerkin_kernels::attention::Attention, mode: Mode) -> kernel::EncoderLayer {
        kernel::EncoderLayer {
            attention,
            hidden: self.hidden,
            activation: self.activation.into(),
            norm_after: self.norm_after,
            eps: self.eps as f32,
            minus: self.minus,
            residual_dropout: mode.rate(self.residual_dropout),
            hidden_dropout: mode.rate(self.hidden_dropout),
        }
    }

    /// Values that a layer on `batch` samples of n points keeps for its backward pass, which could compute them again. Its attention has been
    /// [checked](AttentionConfig::check).
    pub(crate) fn kept(&self, batch: usize, n: usize) -> usize {
        let mode = Mode::Train { seed: 0, step: 0 };
        let mut attention = self.attention.kernel(mode, 0);
        (attention.batch, attention.n) = (batch, n);
        let op = self.kernel(attention, mode);
        ops::keeping(op).saved_len() - op.saved_len()
    }
}

impl EncoderLayer {
    /// # Shapes
    ///
    /// - x: (B, n, d), coordinates: (B, n, p), weights: (B, n)
    /// - y: (B, n, d)
    pub fn forward(&self, input: AttentionInput, mode: Mode) -> Result<Tensor<3>> {
        let op = self.config.kernel(self.attention.kernel(mode), mode);
        let norm = self.first_norm.as_ref().zip(self.second_norm.as_ref());
        let params = EncoderParams {
            attention: self.attention.params(),
            feed_forward: self.feed_forward.params(),
            norm: norm.map(|(a, b)| [a.gamma.val(), a.beta.val(), b.gamma.val(), b.beta.val()]),
        };
        ops::encoder_layer(op, input, params)
    }
}

impl ReferenceNames for EncoderLayer {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = self.attention.entries(&format!("{prefix}attn."));
        for (name, norm) in [("layer_norm1", &self.first_norm), ("layer_norm2", &self.second_norm)] {
            let Some(Affine { gamma, beta }) = norm else { continue };
            entries.push(Entry::plain(gamma, format!("{prefix}{name}.weight")));
            entries.push(Entry::plain(beta, format!("{prefix}{name}.bias")));
        }
        let (first, second) = (format!("{prefix}ff.lr1."), format!("{prefix}ff.lr2."));
        entries.extend(self.feed_forward.entries_as(&first, &second));
        entries
    }
}
