//! Fourier neural operators: the baselines of Li et al., without batch normalisation, as the paper trains them.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Boundary, Latent, Observer, finish};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, FeedForward, FeedForwardConfig, Linear, LinearConfig, Mode, Normalizer, SpectralConv1d,
    SpectralConv2d, SpectralConvConfig, SpectralLaw, check_sizes, line, spectral_entries, square,
};
use crate::reference::{Entry, ReferenceNames};

/// \[input | coordinates\] to channels, spectral convolutions with a pointwise path, a two-layer network.
///
/// The last convolution has no activation. In 2D a normaliser and a boundary condition follow, as in
/// [`Transformer2dConfig`](super::Transformer2dConfig).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FnoConfig {
    /// Values per point of the input, without coordinates.
    pub inputs: usize,
    /// Channels of the convolutions.
    pub channels: usize,
    /// Kept modes along every axis.
    pub modes: usize,
    /// Number of convolutions.
    pub layers: usize,
    /// Width of the network at the end.
    pub feed_forward: usize,
    /// Values per point of the output.
    pub outputs: usize,
    /// Of the convolutions and of the network at the end.
    pub activation: Activation,
    /// What happens on the boundary of the output; in 1D there is none.
    pub boundary: Boundary,
}

/// On a line; see [`FnoConfig`].
#[derive(Module, Debug)]
pub struct Fno1d {
    /// \[input | coordinate\] to channels.
    pub lift: Linear,
    /// The convolutions.
    pub convolutions: Vec<SpectralConv1d>,
    /// The network at the end.
    pub feed_forward: FeedForward,
}

/// On a square; see [`FnoConfig`].
#[derive(Module, Debug)]
pub struct Fno2d {
    /// \[input | coordinates\] to channels.
    pub lift: Linear,
    /// The convolutions.
    pub convolutions: Vec<SpectralConv2d>,
    /// The network at the end.
    pub feed_forward: FeedForward,
    /// Of the targets; its inverse is applied to the network's output.
    pub normalizer: Option<Normalizer>,
    #[module(skip)]
    boundary: Boundary,
}

impl FnoConfig {
    /// The paper's baseline for the Burgers equation.
    pub fn burgers() -> Self {
        Self {
            inputs: 1,
            channels: 64,
            modes: 16,
            layers: 4,
            feed_forward: 128,
            outputs: 1,
            activation: Activation::Relu,
            boundary: Boundary::Free,
        }
    }

    /// The paper's baseline for Darcy flow.
    pub fn darcy() -> Self {
        Self { channels: 32, modes: 12, ..Self::burgers() }
    }

    /// Spectral weights uniform as Li et al. have them; linear layers as [`LinearConfig::init`].
    pub fn init_1d(&self, builder: &mut Builder) -> Result<Fno1d> {
        if self.boundary != Boundary::Free {
            return Err(Error::setting("1D Fourier operator with a boundary", "its grid is periodic"));
        }
        let lift = self.lift(1).init(builder)?;
        let convolutions: Result<_> = self.convolutions()?.map(|conv| conv.init_1d(builder)).collect();
        Ok(Fno1d { lift, convolutions: convolutions?, feed_forward: self.end().init(builder)? })
    }

    /// Spectral weights uniform as Li et al. have them; linear layers as [`LinearConfig::init`].
    pub fn init_2d(&self, builder: &mut Builder) -> Result<Fno2d> {
        let lift = self.lift(2).init(builder)?;
        let convolutions: Result<_> = self.convolutions()?.map(|conv| conv.init_2d(builder)).collect();
        Ok(Fno2d {
            lift,
            convolutions: convolutions?,
            feed_forward: self.end().init(builder)?,
            normalizer: None,
            boundary: self.boundary,
        })
    }

    pub(crate) fn lift(&self, coordinates: usize) -> LinearConfig {
        LinearConfig { inputs: self.inputs + coordinates, outputs: self.channels }
    }

    pub(crate) fn convolutions(&self) -> Result<impl Iterator<Item = SpectralConvConfig> + use<>> {
        check_sizes("Fourier operator", &[("layers", self.layers)])?;
        let config = *self;
        Ok((0..config.layers).map(move |i| SpectralConvConfig {
            inputs: config.channels,
            outputs: config.channels,
            modes: config.modes,
            activation: if i + 1 < config.layers { config.activation } else { Activation::None },
            dropout: 0.0,
            law: SpectralLaw::Uniform,
        }))
    }

    pub(crate) fn end(&self) -> FeedForwardConfig {
        FeedForwardConfig {
            inputs: self.channels,
            hidden: self.feed_forward,
            outputs: self.outputs,
            activation: self.activation,
            dropout: 0.0,
        }
    }
}

impl Fno1d {
    /// On the periodic grid of n points, for any n the modes allow.
    ///
    /// # Shapes
    ///
    /// - x: (B, n, inputs)
    /// - y: (B, n, outputs)
    pub fn forward(&self, x: Tensor<3>, mode: Mode, observe: Observer) -> Result<Tensor<3>> {
        Error::check_filled("input", &x.dims())?;
        let ([batch, n, _], device) = (x.dims(), x.device());
        let mut x = self.lift.lift(x, line(batch, n, false, &device))?;
        observe("fc", Latent::Points(&x));
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = convolution.forward(x, mode)?;
            observe(&format!("spectral_conv.{i}"), Latent::Points(&x));
        }
        self.feed_forward.forward(x, mode)
    }
}

impl Fno2d {
    /// The model with the normaliser of its targets.
    pub fn with_normalizer(mut self, normalizer: Normalizer) -> Self {
        self.normalizer = Some(normalizer);
        self
    }

    /// On the grid of the unit square with its boundary, of any size the modes allow.
    ///
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, inputs)
    /// - y: (B, n₁, n₂, outputs)
    pub fn forward(&self, x: Tensor<4>, mode: Mode, observe: Observer) -> Result<Tensor<4>> {
        Error::check_filled("input", &x.dims())?;
        let ([batch, n1, n2, _], device) = (x.dims(), x.device());
        let mut x = self.lift.lift(x, square(batch, [n1, n2], &device))?;
        observe("fc", Latent::Grid(&x));
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = convolution.forward(x, mode)?;
            observe(&format!("spectral_conv.{i}"), Latent::Grid(&x));
        }
        finish(self.feed_forward.forward(x, mode)?, self.normalizer.as_ref(), self.boundary)
    }
}

// The paper's code has no Fourier operator; the names are those of its spectral decoder, which has the same parts.
impl ReferenceNames for Fno1d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        spectral_entries(Some(&self.lift), &self.convolutions, &self.feed_forward, prefix)
    }
}

impl ReferenceNames for Fno2d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        spectral_entries(Some(&self.lift), &self.convolutions, &self.feed_forward, prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_paper_counts_550k_and_2_37m_parameters() {
        let device = Device::flex();
        let one = FnoConfig::burgers().init_1d(&mut Builder::new(1, &device)).unwrap();
        assert_eq!(one.num_params(), 549_569);
        let two = FnoConfig::darcy().init_2d(&mut Builder::new(1, &device)).unwrap();
        assert_eq!(two.num_params(), 2_368_001);
    }

    #[test]
    fn bad_settings_and_inputs_are_refused() {
        let device = Device::flex();
        let wrong = FnoConfig { boundary: Boundary::Dirichlet, ..FnoConfig::burgers() };
        assert!(matches!(wrong.init_1d(&mut Builder::new(1, &device)), Err(Error::Setting { .. })));
        let empty = FnoConfig { layers: 0, ..FnoConfig::darcy() };
        assert!(matches!(empty.init_2d(&mut Builder::new(1, &device)), Err(Error::Setting { .. })));
        let model = FnoConfig::darcy().init_2d(&mut Builder::new(1, &device)).unwrap();
        let run =
            |shape: [usize; 4]| model.forward(Tensor::ones(shape, &device), Mode::Evaluate, &mut |_, _| {});
        assert_eq!(run([2, 25, 23, 1]).unwrap().dims(), [2, 25, 23, 1]);
        assert!(matches!(run([1, 25, 25, 2]).unwrap_err(), Error::Shape { .. }));
        assert!(matches!(run([1, 25, 21, 1]).unwrap_err(), Error::Modes { modes: 12, most: 11, .. }));
    }
}
