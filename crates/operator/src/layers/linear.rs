//! The pointwise linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Activation, check_sizes};
use crate::error::Result;
use crate::init::Builder;
use crate::ops;
use crate::reference::{Entry, Layout, ReferenceNames};

/// y = act(x W + b) at every point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearConfig {
    /// Features of x.
    pub inputs: usize,
    /// Features of y.
    pub outputs: usize,
}

/// See [`LinearConfig`].
#[derive(Module, Debug)]
pub struct Linear {
    /// (inputs, outputs)
    pub weight: Param<Tensor<2>>,
    /// (outputs)
    pub bias: Param<Tensor<1>>,
}

impl LinearConfig {
    /// Weight and bias uniform in ±1/√inputs, as PyTorch has it.
    pub fn init(&self, builder: &mut Builder) -> Result<Linear> {
        check_sizes("linear layer", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let bound = 1.0 / (self.inputs as f64).sqrt();
        Ok(Linear {
            weight: builder.uniform([self.inputs, self.outputs], -bound, bound),
            bias: builder.uniform([self.outputs], -bound, bound),
        })
    }
}

impl Linear {
    /// # Shapes
    ///
    /// - x: (…, inputs)
    /// - y: (…, outputs)
    pub fn forward<const D: usize>(&self, x: Tensor<D>, activation: Activation) -> Result<Tensor<D>> {
        ops::linear(x, None, self.weight.val(), self.bias.val(), activation.into())
    }

    /// With coordinates as the last of the inputs, and no activation.
    ///
    /// # Shapes
    ///
    /// - x: (…, inputs − p), coordinates: (…, p)
    /// - y: (…, outputs)
    pub fn lift<const D: usize>(&self, x: Tensor<D>, coordinates: Tensor<D>) -> Result<Tensor<D>> {
        ops::linear(x, Some(coordinates), self.weight.val(), self.bias.val(), Activation::None.into())
    }
}

impl ReferenceNames for Linear {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let [inputs, outputs] = self.weight.val().dims();
        vec![
            Entry::one(&self.weight, format!("{prefix}weight"), Layout::Linear { inputs, outputs }),
            Entry::plain(&self.bias, format!("{prefix}bias")),
        ]
    }
}
