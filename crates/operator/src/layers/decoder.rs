//! Decoders: from the encoder's features to the values of the solution.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    Activation, FeedForward, FeedForwardConfig, Linear, LinearConfig, Mode, SpectralConv, SpectralConvConfig,
    SpectralLaw, check_rates, check_sizes, cropped, padded,
};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops;
use crate::reference::{Entry, ReferenceNames};

/// \[features | coordinates\] to hidden channels (optional), spectral convolutions, a two-layer network. With the uniform law it is a Fourier
/// neural operator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpectralDecoderConfig {
    /// Axes of the grid, 1 to 3.
    pub axes: usize,
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
    /// The law of the initial spectral weights.
    pub law: SpectralLaw,
}

/// See [`SpectralDecoderConfig`].
#[derive(Module, Debug)]
pub struct SpectralDecoder {
    /// \[features | coordinates\] to hidden.
    pub lift: Option<Linear>,
    /// The convolutions.
    pub convolutions: Vec<SpectralConv>,
    /// The network at the end.
    pub feed_forward: FeedForward,
}

/// \[features | coordinates\] to hidden features (optional), linear layers with activation, a linear layer.
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
    /// \[features | coordinates\] to hidden.
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
    pub fn init(&self, builder: &mut Builder) -> Result<SpectralDecoder> {
        let lift = lift("spectral decoder", [self.inputs, self.coordinates, self.hidden], builder)?;
        let convolutions: Result<_> = self.convolutions()?.map(|conv| conv.init(builder)).collect();
        Ok(SpectralDecoder { lift, convolutions: convolutions?, feed_forward: self.end().init(builder)? })
    }

    pub(crate) fn convolutions(&self) -> Result<impl Iterator<Item = SpectralConvConfig> + use<>> {
        check_sizes("spectral decoder", &[("layers", self.layers)])?;
        let config = *self;
        Ok((0..config.layers).map(move |i| SpectralConvConfig {
            axes: config.axes,
            inputs: if i == 0 { config.hidden } else { config.channels },
            outputs: config.channels,
            modes: config.modes,
            activation: match i + 1 < config.layers || config.last_activation {
                true => config.activation,
                false => Activation::None,
            },
            dropout: config.dropout,
            law: config.law,
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

impl SpectralDecoder {
    /// On the points of a grid, the last axis running fastest. `padding` are points of zeros behind every axis for the convolutions alone, which
    /// take every axis for periodic. `observe` is shown the output of the first layer and of every convolution.
    ///
    /// # Shapes
    ///
    /// - x: (B, n, inputs), coordinates: (B, n, p), not looked at if it was built without
    /// - y: (B, n, outputs)
    pub fn forward(
        &self,
        x: Tensor<3>,
        coordinates: Option<Tensor<3>>,
        grid: &[usize],
        padding: &[usize],
        mode: Mode,
        observe: &mut dyn FnMut(&str, &Tensor<3>),
    ) -> Result<Tensor<3>> {
        let mut x = lifted(&self.lift, x, coordinates)?;
        if self.lift.is_some() {
            observe("fc", &x);
        }
        let wide: Vec<usize> = grid.iter().zip(padding).map(|(n, more)| n + more).collect();
        x = padded(x, grid, &wide)?;
        for (i, convolution) in self.convolutions.iter().enumerate() {
            x = convolution.forward(x, &wide, mode)?;
            observe(&format!("spectral_conv.{i}"), &x);
        }
        self.feed_forward.forward(cropped(x, &wide, grid)?, mode)
    }
}

impl PointwiseDecoder {
    /// # Shapes
    ///
    /// - x: (…, inputs), coordinates: (…, p), not looked at if it was built without
    /// - y: (…, outputs)
    pub fn forward<const D: usize>(
        &self,
        x: Tensor<D>,
        coordinates: Option<Tensor<D>>,
        mode: Mode,
    ) -> Result<Tensor<D>> {
        let mut x = lifted(&self.lift, x, coordinates)?;
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

fn lifted<const D: usize>(
    lift: &Option<Linear>,
    x: Tensor<D>,
    coordinates: Option<Tensor<D>>,
) -> Result<Tensor<D>> {
    let Some(lift) = lift else { return Ok(x) };
    let Some(coordinates) = coordinates else {
        return Err(Error::setting("decoder without coordinates", "it was built with them"));
    };
    lift.lift(x, coordinates)
}

impl ReferenceNames for SpectralDecoder {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.lift.iter().flat_map(|lift| lift.entries(&format!("{prefix}fc."))).collect();
        for (i, convolution) in self.convolutions.iter().enumerate() {
            entries.extend(convolution.entries(&format!("{prefix}spectral_conv.{i}.")));
        }
        let (first, second) = (format!("{prefix}regressor.0."), format!("{prefix}regressor.2."));
        entries.extend(self.feed_forward.entries_as(&first, &second));
        entries
    }
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
