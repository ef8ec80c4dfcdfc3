//! Attention with and without softmax.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use galerkin_kernels::attention as kernel;
use serde::{Deserialize, Serialize};

use super::{Linear, LinearConfig, Mode, check_rates, check_sizes};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops::{self, AttentionInput, AttentionParams};
use crate::reference::{Entry, Layout, ReferenceNames};

/// Which attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// Q (K̃ᵀṼ)/n
    Galerkin,
    /// (Q̃K̃ᵀ)V/(n√D)
    Fourier,
    /// softmax(Q) (softmax(K̃)ᵀ Ṽ)/n
    Linear,
    /// softmax(Q̃K̃ᵀ/√D) V
    Softmax,
}

/// How two of Q, K, V are normalised inside every head: K and V for galerkin and linear, Q and K for fourier and softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadNorm {
    /// Not at all.
    None,
    /// Every point over its features.
    Layer,
    /// Every feature over the points.
    Instance,
}

/// Attention of H heads, with coordinates in front of the features of every head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionConfig {
    /// Which attention.
    pub kind: AttentionKind,
    /// d, features of a point.
    pub features: usize,
    /// H, heads; must divide d.
    pub heads: usize,
    /// p, coordinates of a point. With 0 there is no output projection either, as in the reference.
    pub coordinates: usize,
    /// The norm inside the heads.
    pub norm: HeadNorm,
    /// ε of that norm.
    pub eps: f64,
    /// Dropout rate on the attention weights, in training.
    pub dropout: f64,
    /// η, gain of the projections' initial weights; 0 initialises them like any other linear layer.
    pub gain: f64,
    /// δ, what is added to the diagonal of the projections' initial weights.
    pub diagonal: f64,
}

/// See [`AttentionConfig`].
#[derive(Module, Debug)]
pub struct Attention {
    /// W_Q (d, d) and b_Q.
    pub query: Linear,
    /// W_K (d, d) and b_K.
    pub key: Linear,
    /// W_V (d, d) and b_V.
    pub value: Linear,
    /// Of K.
    pub key_norm: Option<Affine>,
    /// Of V for galerkin and linear, of Q for fourier and softmax.
    pub other_norm: Option<Affine>,
    /// (H·(e + p), d), with coordinates only.
    pub projection: Option<Linear>,
    #[module(skip)]
    config: AttentionConfig,
    layer: u32,
}

/// γ and β of a norm, (d) each.
#[derive(Module, Debug)]
pub struct Affine {
    /// γ
    pub gamma: Param<Tensor<1>>,
    /// β
    pub beta: Param<Tensor<1>>,
}

impl Affine {
    /// γ = 1, β = 0.
    pub(super) fn init(width: usize, builder: &mut Builder) -> Self {
        Affine { gamma: builder.constant([width], 1.0), beta: builder.constant([width], 0.0) }
    }
}

impl AttentionConfig {
    /// Projections Xavier-uniform with gain η plus δ·I and bias zero; everything else as [`LinearConfig::init`].
    pub fn init(&self, builder: &mut Builder) -> Result<Attention> {
        let d = self.features;
        self.check()?;
        check_rates("attention", &[self.dropout])?;
        let project = |builder: &mut Builder| match self.gain > 0.0 {
            true => Ok(Linear {
                weight: builder.projection(d, self.gain, self.diagonal),
                bias: builder.constant([d], 0.0),
            }),
            false => LinearConfig { inputs: d, outputs: d }.init(builder),
        };
        let [query, key, value] = [project(builder)?, project(builder)?, project(builder)?];
        let norm = |builder: &mut Builder| (self.norm != HeadNorm::None).then(|| Affine::init(d, builder));
        let merged = d + self.heads * self.coordinates;
        Ok(Attention {
            query,
            key,
            value,
            key_norm: norm(builder),
            other_norm: norm(builder),
            projection: match self.coordinates {
                0 => None,
                _ => Some(LinearConfig { inputs: merged, outputs: d }.init(builder)?),
            },
            config: *self,
            layer: builder.layer(),
        })
    }

    /// Whether there is such a layer.
    pub(crate) fn check(&self) -> Result<()> {
        let d = self.features;
        check_sizes("attention", &[("features", d), ("heads", self.heads)])?;
        if !d.is_multiple_of(self.heads) {
            let what = format!("attention: {} heads for {d} features", self.heads);
            return Err(Error::setting(what, "the number of heads must divide the number of features"));
        }
        Ok(())
    }

    /// The kernel of the layer with this number; batch and points are read off the tensors later.
    pub(super) fn kernel(&self, mode: Mode, layer: u32) -> kernel::Attention {
        kernel::Attention {
            kind: match self.kind {
                AttentionKind::Galerkin => kernel::Kind::Galerkin,
                AttentionKind::Fourier => kernel::Kind::Fourier,
                AttentionKind::Linear => kernel::Kind::Linear,
                AttentionKind::Softmax => kernel::Kind::Softmax,
            },
            batch: 0,
            n: 0,
            d: self.features,
            heads: self.heads,
            coordinates: self.coordinates,
            projection: self.coordinates > 0,
            norm: match self.norm {
                HeadNorm::None => kernel::Norm::None,
                HeadNorm::Layer => kernel::Norm::Layer,
                HeadNorm::Instance => kernel::Norm::Instance,
            },
            eps: self.eps as f32,
            dropout: mode.rate(self.dropout),
            key: mode.key(layer),
            keep: false,
        }
    }
}

impl Attention {
    /// # Shapes
    ///
    /// - x: (B, n, d), coordinates: (B, n, p), weights: (B, n)
    /// - y: (B, n, d)
    pub fn forward(&self, input: AttentionInput, mode: Mode) -> Result<Tensor<3>> {
        ops::attention(self.kernel(mode), input, self.params())
    }

    /// The attention weights, to look at: (B, H, D, D) for galerkin and linear, (B, H, n, n) for fourier and softmax.
    pub fn weights(&self, input: AttentionInput, mode: Mode) -> Result<Tensor<4>> {
        ops::attention_weights(self.kernel(mode), input, self.params())
    }

    /// Q, K and V, to look at: (B, H, n, D) each, as they stand in the products, after the norms inside the heads and with the p coordinates
    /// as first columns.
    pub fn projections(&self, input: AttentionInput, mode: Mode) -> Result<[Tensor<4>; 3]> {
        ops::attention_projections(self.kernel(mode), input, self.params())
    }

    pub(super) fn kernel(&self, mode: Mode) -> kernel::Attention {
        self.config.kernel(mode, self.layer)
    }

    pub(super) fn params(&self) -> AttentionParams {
        let norm = self.key_norm.as_ref().zip(self.other_norm.as_ref());
        AttentionParams {
            w_q: self.query.weight.val(),
            b_q: self.query.bias.val(),
            w_k: self.key.weight.val(),
            b_k: self.key.bias.val(),
            w_v: self.value.weight.val(),
            b_v: self.value.bias.val(),
            norm: norm.map(|(k, o)| [k.gamma.val(), k.beta.val(), o.gamma.val(), o.beta.val()]),
            projection: self.projection.as_ref().map(|p| (p.weight.val(), p.bias.val())),
        }
    }
}

impl ReferenceNames for Attention {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let (heads, width) = (self.config.heads, self.config.features / self.config.heads);
        let other = match self.config.kind {
            AttentionKind::Galerkin | AttentionKind::Linear => "norm_V",
            AttentionKind::Fourier | AttentionKind::Softmax => "norm_Q",
        };
        let mut entries = Vec::new();
        for (i, linear) in [&self.query, &self.key, &self.value].into_iter().enumerate() {
            entries.extend(linear.entries(&format!("{prefix}linears.{i}.")));
        }
        for (name, norm) in [("norm_K", &self.key_norm), (other, &self.other_norm)] {
            let Some(Affine { gamma, beta }) = norm else { continue };
            for (part, param) in [("weight", gamma), ("bias", beta)] {
                let names = (0..heads).map(|h| format!("{prefix}{name}.{h}.{part}")).collect();
                entries.push(Entry { id: param.id, names, layout: Layout::Heads { heads, width } });
            }
        }
        entries.extend(self.projection.iter().flat_map(|p| p.entries(&format!("{prefix}fc."))));
        entries
    }
}
