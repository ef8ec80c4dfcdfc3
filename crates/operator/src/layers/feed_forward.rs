//! The two-layer network at every point.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Activation, Linear, LinearConfig, Mode, check_rates};
use crate::error::Result;
use crate::init::Builder;
use crate::ops::{self, FeedForwardParams};
use crate::reference::{Entry, ReferenceNames};

/// y = drop(act(x W₁ + b₁)) W₂ + b₂.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedForwardConfig {
    /// Features of x.
    pub inputs: usize,
    /// Features of the hidden layer.
    pub hidden: usize,
    /// Features of y.
    pub outputs: usize,
    /// Of the hidden layer.
    pub activation: Activation,
    /// Rate on the hidden layer, in training.
    pub dropout: f64,
}

/// See [`FeedForwardConfig`].
#[derive(Module, Debug)]
pub struct FeedForward {
    /// W₁ and b₁.
    pub first: Linear,
    /// W₂ and b₂.
    pub second: Linear,
    #[module(skip)]
    config: FeedForwardConfig,
    layer: u32,
}

impl FeedForwardConfig {
    /// Both layers as [`LinearConfig::init`] makes them.
    pub fn init(&self, builder: &mut Builder) -> Result<FeedForward> {
        check_rates("feed-forward network", &[self.dropout])?;
        Ok(FeedForward {
            first: LinearConfig { inputs: self.inputs, outputs: self.hidden }.init(builder)?,
            second: LinearConfig { inputs: self.hidden, outputs: self.outputs }.init(builder)?,
            config: *self,
            layer: builder.layer(),
        })
    }
}

impl FeedForward {
    /// # Shapes
    ///
    /// - x: (…, inputs)
    /// - y: (…, outputs)
    pub fn forward<const D: usize>(&self, x: Tensor<D>, mode: Mode) -> Result<Tensor<D>> {
        let FeedForwardConfig { activation, dropout, .. } = self.config;
        ops::feed_forward(x, self.params(), activation.into(), mode.rate(dropout), mode.key(self.layer))
    }

    pub(super) fn params(&self) -> FeedForwardParams {
        FeedForwardParams {
            w_1: self.first.weight.val(),
            b_1: self.first.bias.val(),
            w_2: self.second.weight.val(),
            b_2: self.second.bias.val(),
        }
    }

    /// The two layers under names of their own.
    pub(crate) fn entries_as(&self, first: &str, second: &str) -> Vec<Entry> {
        [self.first.entries(first), self.second.entries(second)].concat()
    }
}
