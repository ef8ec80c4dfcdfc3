//! Spectral convolution in one and two dimensions.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use galerkin_kernels::spectral as kernel;
use serde::{Deserialize, Serialize};

use super::{Activation, Linear, LinearConfig, Mode, check_rates, check_sizes};
use crate::error::Result;
use crate::init::Builder;
use crate::ops::{self, SpectralParams};
use crate::reference::{Entry, Layout, ReferenceNames};

/// y = act(F⁻¹(w · F(drop(x))) + x W + b): a complex matrix per kept mode, and a pointwise path around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpectralConvConfig {
    /// Channels of x.
    pub inputs: usize,
    /// Channels of y.
    pub outputs: usize,
    /// m, kept modes along every axis; a grid needs n/2 + 1 ≥ m.
    pub modes: usize,
    /// The activation.
    pub activation: Activation,
    /// Dropout rate on the input of the Fourier path, in training.
    pub dropout: f64,
    /// The law of the initial spectral weights.
    pub law: SpectralLaw,
}

/// Initial spectral weights of i inputs, o outputs and m modes, real and imaginary parts alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpectralLaw {
    /// Normal with deviation 1/(i·o·√((i + o)·m)) in 1D and 1/(i·o·m) in 2D: the transformers' decoders.
    Normal,
    /// Uniform in (0, 1/(i·o)): the Fourier neural operators of Li et al.
    Uniform,
}

/// See [`SpectralConvConfig`].
#[derive(Module, Debug)]
pub struct SpectralConv1d {
    /// (m, 2, inputs, outputs)
    pub weights: Param<Tensor<4>>,
    /// W and b.
    pub pointwise: Linear,
    #[module(skip)]
    config: SpectralConvConfig,
    layer: u32,
}

/// See [`SpectralConvConfig`].
#[derive(Module, Debug)]
pub struct SpectralConv2d {
    /// (m, 2, m, 2, inputs, outputs)
    pub weights: Param<Tensor<6>>,
    /// W and b.
    pub pointwise: Linear,
    #[module(skip)]
    config: SpectralConvConfig,
    layer: u32,
}

impl SpectralConvConfig {
    /// Spectral weights by their law; W and b as [`LinearConfig::init`].
    pub fn init_1d(&self, builder: &mut Builder) -> Result<SpectralConv1d> {
        let (i, o, m) = self.check()?;
        let deviation = 1.0 / ((i * o) as f64 * (((i + o) * m) as f64).sqrt());
        Ok(SpectralConv1d {
            weights: self.draw([m, 2, i, o], deviation, builder),
            pointwise: LinearConfig { inputs: i, outputs: o }.init(builder)?,
            config: *self,
            layer: builder.layer(),
        })
    }

    /// Spectral weights by their law; W and b as [`LinearConfig::init`].
    pub fn init_2d(&self, builder: &mut Builder) -> Result<SpectralConv2d> {
        let (i, o, m) = self.check()?;
        Ok(SpectralConv2d {
            weights: self.draw([m, 2, m, 2, i, o], 1.0 / (i * o * m) as f64, builder),
            pointwise: LinearConfig { inputs: i, outputs: o }.init(builder)?,
            config: *self,
            layer: builder.layer(),
        })
    }

    fn draw<const R: usize>(
        &self,
        shape: [usize; R],
        deviation: f64,
        builder: &mut Builder,
    ) -> Param<Tensor<R>> {
        match self.law {
            SpectralLaw::Normal => builder.normal(shape, deviation),
            SpectralLaw::Uniform => builder.uniform(shape, 0.0, 1.0 / (self.inputs * self.outputs) as f64),
        }
    }

    fn check(&self) -> Result<(usize, usize, usize)> {
        let (i, o, m) = (self.inputs, self.outputs, self.modes);
        check_sizes("spectral convolution", &[("inputs", i), ("outputs", o), ("modes", m)])?;
        check_rates("spectral convolution", &[self.dropout])?;
        Ok((i, o, m))
    }
}

impl SpectralConv1d {
    /// # Shapes
    ///
    /// - x: (B, n, inputs)
    /// - y: (B, n, outputs)
    pub fn forward(&self, x: Tensor<3>, mode: Mode) -> Result<Tensor<3>> {
        let op = kernel::SpectralConv1d {
            batch: 0,
            n: 0,
            inputs: self.config.inputs,
            outputs: self.config.outputs,
            modes: self.config.modes,
            pointwise: true,
            activation: self.config.activation.into(),
            dropout: mode.rate(self.config.dropout),
            key: mode.key(self.layer),
        };
        ops::spectral_1d(op, x, params(&self.weights, &self.pointwise))
    }
}

impl SpectralConv2d {
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, inputs)
    /// - y: (B, n₁, n₂, outputs)
    pub fn forward(&self, x: Tensor<4>, mode: Mode) -> Result<Tensor<4>> {
        let op = kernel::SpectralConv2d {
            batch: 0,
            n1: 0,
            n2: 0,
            inputs: self.config.inputs,
            outputs: self.config.outputs,
            modes: self.config.modes,
            pointwise: true,
            activation: self.config.activation.into(),
            dropout: mode.rate(self.config.dropout),
            key: mode.key(self.layer),
        };
        ops::spectral_2d(op, x, params(&self.weights, &self.pointwise))
    }
}

fn params<const R: usize>(weights: &Param<Tensor<R>>, pointwise: &Linear) -> SpectralParams<R> {
    SpectralParams { weights: weights.val(), pointwise: Some((pointwise.weight.val(), pointwise.bias.val())) }
}

impl ReferenceNames for SpectralConv1d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let SpectralConvConfig { inputs, outputs, modes, .. } = self.config;
        let layout = Layout::Spectral1d { inputs, outputs, modes };
        let mut entries = vec![Entry::one(&self.weights, format!("{prefix}fourier_weight"), layout)];
        entries.extend(self.pointwise.entries(&format!("{prefix}linear.")));
        entries
    }
}

impl ReferenceNames for SpectralConv2d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let SpectralConvConfig { inputs, outputs, modes, .. } = self.config;
        let names = [0, 1].map(|block| format!("{prefix}fourier_weight.{block}")).to_vec();
        let layout = Layout::Spectral2d { inputs, outputs, modes };
        let mut entries = vec![Entry { id: self.weights.id, names, layout }];
        entries.extend(self.pointwise.entries(&format!("{prefix}linear.")));
        entries
    }
}
