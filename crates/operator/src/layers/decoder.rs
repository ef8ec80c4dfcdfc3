//! Decoders: from the encoder's features to the values of the solution.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    Activation, FeedForward, FeedForwardConfig, Linear, LinearConfig, Mode, SpectralConv1d, SpectralConv2d,
    SpectralConvConfig, SpectralLaw, check_rates, check_sizes,
};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops;
use crate::reference::{Entry, ReferenceNames};

/// \[features | grid\] to hidden channels (optional), spectral convolutions, a two-layer network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpectralDecoderConfig {
    /// Features of x.
    pub inputs: usize,
    /// Coordinates put behind the features, before a linear layer to `hidden`; 0 leaves both out.
    pub coordinates: usize,
    /// Channels of the first convolution's input; equal to `inputs` without coordinates.
    pub hidden: usize,
    /// Channels of the convolutions' outputs.
    pub channels: usize,
    /// Kept modes.
    pub modes: usize,
    /// Number of convolutions.
    pub layers: usize,
    /// Width of the network at the end.
    pub feed_forward: usize,
    /// Values per point.
    pub outputs: usize,
    /// Of the convolutions and of the network at the end.
    pub activation: Activation,
    /// Whether the last convolution has the activation too.
    pub last_activation: bool,
    /// Dropout rate of the convolutions, in training.
    pub dropout: f64,
}

/// See [`SpectralDecoderConfig`].
#[derive(Module, Debug)]
pub struct SpectralDecoder1d {
    /// \[features | grid\] to hidden.
    pub lift: Option<Linear>,
    /// The convolutions.
    pub convolutions: Vec<SpectralConv1d>,
    /// The network at the end.
    pub feed_forward: FeedForward,
}

/// See [`SpectralDecoderConfig`].
#[derive(Module, Debug)]
pub struct SpectralDecoder2d {
    /// \[features | grid\] to hidden.
    pub lift: Option<Linear>,
    /// The convolutions.
    pub convolutions: Vec<SpectralConv2d>,
    /// The network at the end.
    pub feed_forward: FeedForward,
}

/// \[features | grid\] to hidden features (optional), linear layers with activation, a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointwiseDecoderConfig {
    /// Features of x.
    pub inputs: usize,
    /// Coordinates put behind the features, before a linear layer to `hidden`; 0 leaves both out.
    pub coordinates: usize,
    /// Features of the layers; equal to `inputs` without coordinates.
    pub hidden: usize,
    /// Number of layers with activation.
    pub layers: usize,
    /// Values per point.
    pub outputs: usize,
    /// Of the layers.
    pub activation: Activation,
    /// Dropout rate after every activation, in training.
    pub dropout: f64,
}

/// See [`PointwiseDecoderConfig`].
#[derive(Module, Debug)]
pub struct PointwiseDecoder {
    /// \[features | grid\] to hidden.
    pub lift: Option<Linear>,
    /// The layers with activation.
    pub layers: Vec<Linear>,
    /// The last layer.
    pub last: Linear,
    #[module(skip)]
    config: PointwiseDecoderConfig,
    first_layer: u32,
}

impl SpectralDecoderConfig {
    /// Every part as its own config makes it.
    pub fn init_1d(&self, builder: &mut Builder) -> Result<SpectralDecoder1d> {
        let lift = lift("spectral decoder", [self.inputs, self.coordinates, self.hidden], builder)?;
        let convolutions: Result<_> = self.convolutions()?.map(|conv| conv.init_1d(builder)).collect();
        Ok(SpectralDecoder1d { lift, convolutions: convolutions?, feed_forward: self.end().init(builder)? })
    }

    /// Every part as its own config makes it.
    pub fn init_2d(&self, builder: &mut Builder) -> Result<SpectralDecoder2d> {
        let lift = lift("spectral decoder", [self.inputs, self.coordinates, self.hidden], builder)?;
        let convolutions: Result<_> = self.convolutions()?.map(|conv| conv.init_2d(builder)).collect();
        Ok(SpectralDecoder2d { lift, convolutions: convolutions?, feed_forward: self.end().init(builder)? })
    }

    pub(crate) fn convolutions(&self) -> Result<impl Iterator<Item = SpectralConvConfig> + use<>> {
        check_sizes("spectral decoder", &[("layers", self.layers)])?;
        let config = *self;
        Ok((0..config.layers).map(move |i| SpectralConvConfig {
            inputs: if i == 0 { config.hidden } else { config.channels },
            outputs: config.channels,
            modes: config.modes,
            activation: match i + 1 < config.layers || config.last_activation {
                true => config.activation,
                false => Activation::None,
            },
            dropout: config.dropout,
            law: SpectralLaw::Normal,
        }))
    }

    fn end(&self) -> FeedForwardConfig {
        FeedForwardConfig {
            inputs: self.channels,
            hidden: self.feed_forward,
            outputs: self.outputs,
            activation: self.activation,
            dropout: 0.0,
        }
    }
}

impl PointwiseDecoderConfig {
    /// Every part as its own config makes it.
    pub fn init(&self, builder: &mut Builder) -> Result<PointwiseDecoder> {
        check_rates("pointwise decoder", &[self.dropout])?;
        let lift = lift("pointwise decoder", [self.inputs, self.coordinates, self.hidden], builder)?;
        let layer = LinearConfig { inputs: self.hidden, outputs: self.hidden };
        let layers: Result<_> = (0..self.layers).map(|_| layer.init(builder)).collect();
        let first_layer = builder.layer();
        (1..self.layers).for_each(|_| _ = builder.layer());
        Ok(PointwiseDecoder {
            lift,
            layers: layers?,
            last: LinearConfig { inputs: self.hidden, outputs: self.outputs }.init(builder)?,
            config: *self,
            first_layer,
        })
    }
}

impl SpectralDecoder1d {
    /// # Shapes
    ///
    /// - x: (B, n, inputs), grid: (B, n, coordinates), not looked at without coordinates
    /// - y: (B, n, outputs)
    pub fn forward(&self, x: Tensor<3>, grid: Option<Tensor<3>>, mode: Mode) -> Result<Tensor<3>> {
        self.forward_observed(x, grid, mode, |_, _| {})
    }

    /// As [`forward`](Self::forward), and shows the output of every convolution with its number.
    pub fn forward_observed(
        &self,
        x: Tensor<3>,
        grid: Option<Tensor<3>>,
        mode: Mode,
        mut observe: impl FnMut(usize, &Tensor<3>),
    ) -> Result<Tensor<3>> {
        let mut x = lifted(&self.lift, x, grid)?;
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = convolution.forward(x, mode)?;
            observe(i, &x);
        }
        self.feed_forward.forward(x, mode)
    }
}

impl SpectralDecoder2d {
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, inputs), grid: (B, n₁, n₂, coordinates), not looked at without coordinates
    /// - y: (B, n₁, n₂, outputs)
    pub fn forward(&self, x: Tensor<4>, grid: Option<Tensor<4>>, mode: Mode) -> Result<Tensor<4>> {
        self.forward_observed(x, grid, mode, |_, _| {})
    }

    /// As [`forward`](Self::forward), and shows the output of every convolution with its number.
    pub fn forward_observed(
        &self,
        x: Tensor<4>,
        grid: Option<Tensor<4>>,
        mode: Mode,
        mut observe: impl FnMut(usize, &Tensor<4>),
    ) -> Result<Tensor<4>> {
        let mut x = lifted(&self.lift, x, grid)?;
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = convolution.forward(x, mode)?;
            observe(i, &x);
        }
        self.feed_forward.forward(x, mode)
    }
}

impl PointwiseDecoder {
    /// # Shapes
    ///
    /// - x: (…, inputs), grid: (…, coordinates), not looked at without coordinates
    /// - y: (…, outputs)
    pub fn forward<const D: usize>(
        &self,
        x: Tensor<D>,
        grid: Option<Tensor<D>>,
        mode: Mode,
    ) -> Result<Tensor<D>> {
        let mut x = lifted(&self.lift, x, grid)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let dropout = mode.dropout(self.config.dropout, self.first_layer + i as u32);
            x = ops::dropout(layer.forward(x, self.config.activation)?, dropout);
        }
        self.last.forward(x, Activation::None)
    }
}

fn lift(
    what: &str,
    [inputs, coordinates, hidden]: [usize; 3],
    builder: &mut Builder,
) -> Result<Option<Linear>> {
    if coordinates > 0 {
        let config = LinearConfig { inputs: inputs + coordinates, outputs: hidden };
        return config.init(builder).map(Some);
    }
    if inputs != hidden {
        let what = format!("{what}: {inputs} features to {hidden} without coordinates");
        return Err(Error::setting(what, "only the layer that takes coordinates changes their number"));
    }
    Ok(None)
}

fn lifted<const D: usize>(lift: &Option<Linear>, x: Tensor<D>, grid: Option<Tensor<D>>) -> Result<Tensor<D>> {
    let Some(lift) = lift else { return Ok(x) };
    let Some(grid) = grid else {
        return Err(Error::setting("decoder without grid", "it was built with coordinates"));
    };
    lift.lift(x, grid)
}

impl ReferenceNames for SpectralDecoder1d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        spectral_entries(self.lift.as_ref(), &self.convolutions, &self.feed_forward, prefix)
    }
}

impl ReferenceNames for SpectralDecoder2d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        spectral_entries(self.lift.as_ref(), &self.convolutions, &self.feed_forward, prefix)
    }
}

/// The names of a linear layer, spectral convolutions and a two-layer network, one after the other.
pub(crate) fn spectral_entries<C: ReferenceNames>(
    lift: Option<&Linear>,
    convolutions: &[C],
    feed_forward: &FeedForward,
    prefix: &str,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> = lift.into_iter().flat_map(|l| l.entries(&format!("{prefix}fc."))).collect();
    for (i, convolution) in convolutions.iter().enumerate() {
        entries.extend(convolution.entries(&format!("{prefix}spectral_conv.{i}.")));
    }
    let (first, second) = (format!("{prefix}regressor.0."), format!("{prefix}regressor.2."));
    entries.extend(feed_forward.entries_as(&first, &second));
    entries
}

impl ReferenceNames for PointwiseDecoder {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.lift.iter().flat_map(|l| l.entries(&format!("{prefix}fc."))).collect();
        for (i, layer) in self.layers.iter().enumerate() {
            entries.extend(layer.entries(&format!("{prefix}ff.{i}.0.")));
        }
        entries.extend(self.last.entries(&format!("{prefix}out.")));
        entries
    }
}
