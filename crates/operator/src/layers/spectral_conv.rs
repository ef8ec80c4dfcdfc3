//! Spectral convolution on grids of one to three axes.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use galerkin_kernels::spectral as kernel;
use serde::{Deserialize, Serialize};

use super::{Activation, Linear, LinearConfig, Mode, check_rates, check_sizes};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops::{self, SpectralParams};
use crate::reference::{Entry, Layout, ReferenceNames};

/// y = act(F⁻¹(w · F(drop(x))) + x W + b): a complex matrix per kept mode, and a pointwise path around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpectralConvConfig {
    /// Axes of the grid, 1 to 3.
    pub axes: usize,
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
    /// Normal with deviation 1/(i·o·√((i + o)·m)) on a line and 1/(i·o·m) on other grids: the transformers' decoders.
    Normal,
    /// Uniform in (0, 1/(i·o)): the Fourier neural operators of Li et al.
    Uniform,
}

/// See [`SpectralConvConfig`].
#[derive(Module, Debug)]
pub struct SpectralConv {
    /// (m, 2m² or 4m³; 2, inputs, outputs): the matrices of the kept modes in the kernels' order.
    pub weights: Param<Tensor<4>>,
    /// W and b.
    pub pointwise: Linear,
    #[module(skip)]
    config: SpectralConvConfig,
    layer: u32,
}

impl SpectralConvConfig {
    /// Spectral weights by their law; W and b as [`LinearConfig::init`].
    pub fn init(&self, builder: &mut Builder) -> Result<SpectralConv> {
        self.check()?;
        let (i, o, m) = (self.inputs, self.outputs, self.modes);
        let shape = [self.matrices(), 2, i, o];
        let deviation = match self.axes {
            1 => 1.0 / ((i * o) as f64 * (((i + o) * m) as f64).sqrt()),
            _ => 1.0 / (i * o * m) as f64,
        };
        Ok(SpectralConv {
            weights: match self.law {
                SpectralLaw::Normal => builder.normal(shape, deviation),
                SpectralLaw::Uniform => builder.uniform(shape, 0.0, 1.0 / (i * o) as f64),
            },
            pointwise: LinearConfig { inputs: i, outputs: o }.init(builder)?,
            config: *self,
            layer: builder.layer(),
        })
    }

    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        let sizes = [("inputs", self.inputs), ("outputs", self.outputs), ("modes", self.modes)];
        check_sizes("spectral convolution", &sizes)?;
        check_rates("spectral convolution", &[self.dropout])?;
        match self.axes {
            1..=3 => Ok(()),
            axes => Err(Error::setting(format!("spectral convolution on {axes} axes"), "there are 1 to 3")),
        }
    }

    /// Complex matrices: a mode of every axis, of either sign along every axis but the last.
    fn matrices(&self) -> usize {
        self.modes.pow(self.axes as u32) << (self.axes - 1)
    }
}

impl SpectralConv {
    /// On the points of a grid, the last axis running fastest.
    ///
    /// # Shapes
    ///
    /// - x: (B, n, inputs), n the points of `grid`
    /// - y: (B, n, outputs)
    pub fn forward(&self, x: Tensor<3>, grid: &[usize], mode: Mode) -> Result<Tensor<3>> {
        let SpectralConvConfig { inputs, outputs, modes, activation, dropout, .. } = self.config;
        let (pointwise, activation) = (true, activation.into());
        let (dropout, key) = (mode.rate(dropout), mode.key(self.layer));
        let params = SpectralParams {
            weights: self.weights.val(),
            pointwise: Some((self.pointwise.weight.val(), self.pointwise.bias.val())),
        };
        let [batch, n, c] = x.dims();
        if n != grid.iter().product::<usize>() || grid.len() != self.config.axes {
            let expected = format!("points of a grid of {} axes, here {grid:?}", self.config.axes);
            return Err(Error::Shape {
                what: "spectral convolution x".into(),
                expected,
                found: vec![batch, n, c],
            });
        }
        // Batch and points of a kernel are read off x.
        match *grid {
            [n1, n2] => {
                let op = kernel::SpectralConv2d {
                    batch: 0,
                    n1: 0,
                    n2: 0,
                    inputs,
                    outputs,
                    modes,
                    pointwise,
                    activation,
                    dropout,
                    key,
                };
                Ok(ops::spectral_2d(op, x.reshape([batch, n1, n2, c]), params)?.reshape([batch, n, outputs]))
            }
            [n1, n2, n3] => {
                let op = kernel::SpectralConv3d {
                    batch: 0,
                    n1: 0,
                    n2: 0,
                    n3: 0,
                    inputs,
                    outputs,
                    modes,
                    pointwise,
                    activation,
                    dropout,
                    key,
                };
                let y = ops::spectral_3d(op, x.reshape([batch, n1, n2, n3, c]), params)?;
                Ok(y.reshape([batch, n, outputs]))
            }
            _ => {
                let op = kernel::SpectralConv1d {
                    batch: 0,
                    n: 0,
                    inputs,
                    outputs,
                    modes,
                    pointwise,
                    activation,
                    dropout,
                    key,
                };
                ops::spectral_1d(op, x, params)
            }
        }
    }
}

impl ReferenceNames for SpectralConv {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let SpectralConvConfig { axes, inputs, outputs, modes, .. } = self.config;
        let layout = Layout::Spectral { axes, inputs, outputs, modes };
        let name = format!("{prefix}fourier_weight");
        // One array on a line, and one for every pair of blocks of frequencies elsewhere.
        let names = match axes {
            1 => vec![name],
            _ => (0..1 << (axes - 1)).map(|block| format!("{name}.{block}")).collect(),
        };
        let mut entries = vec![Entry { id: self.weights.id, names, layout }];
        entries.extend(self.pointwise.entries(&format!("{prefix}linear.")));
        entries
    }
}
