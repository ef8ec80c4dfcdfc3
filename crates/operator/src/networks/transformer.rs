//! The transformer: lift, encoder layers, decoder, on grids of one to three axes.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::lift::{InterpolationConfig, LiftConfig};
use super::{Boundary, Observer, OutputGrid, SpectralConfig};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, AttentionConfig, AttentionKind, Downsampler, DownsamplerConfig, EncoderLayer,
    EncoderLayerConfig, HeadNorm, Linear, LinearConfig, Mode, PointwiseDecoder, PointwiseDecoderConfig,
    SpectralDecoder, Upsampler, UpsamplerConfig, check_rates, check_sizes, coordinates, resized,
};
use crate::ops::{self, AttentionInput};
use crate::reference::{Entry, ReferenceNames};
use crate::settings::settings;

settings! {
    /// Lift, dropout, encoder layers, dropout, decoder.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TransformerConfig {
        /// values per point of an input
        pub inputs: usize,
        /// values per point of an output
        pub outputs: usize,
        /// whether each axis of the grid is periodic
        pub periodic: Vec<bool>,
        /// input: on the grid of the input | coarse: on that of the encoder | { resized = { from = [..], to = [..] } }
        #[serde(default)]
        pub output: OutputGrid,
        /// points along each axis of the grid that it computes on, which inputs of other grids are brought to; []: that of the input
        #[serde(default)]
        pub native: Vec<usize>,
        /// free | zero: outputs on the ends of closed axes are set to zero
        pub boundary: Boundary,
        /// whether coordinates of periodic axes are j/(n - 1) too, as in the authors' code, instead of j/n
        #[serde(default)]
        pub closed_coordinates: bool,
        /// dropout rate before the encoder and before the decoder
        #[serde(default)]
        pub dropout: f64,
        /// from inputs to features
        pub lift: LiftConfig,
        /// the encoder layers
        pub encoder: EncoderConfig,
        /// from features to outputs
        pub decoder: DecoderConfig,
    }
}

settings! {
    /// The encoder layers, all alike.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct EncoderConfig {
        /// galerkin | fourier | linear | softmax
        pub attention: AttentionKind,
        /// encoder layers
        pub layers: usize,
        /// features of a point
        pub width: usize,
        /// heads of the attention; they divide the width
        pub heads: usize,
        /// features inside the feed-forward network
        pub hidden: usize,
        /// of the feed-forward network: none | relu | silu | gelu
        pub activation: Activation,
        /// layer: norm inside the heads over features, the paper's scheme | instance: over points | none
        pub head_norm: HeadNorm,
        /// whether a layer norm follows each residual
        pub residual_norm: bool,
        /// epsilon of the norms
        pub eps: f64,
        /// whether the attention is taken away from x instead of added
        #[serde(default)]
        pub minus: bool,
        /// eta, gain of the initial projections; 0: like other layers
        pub gain: f64,
        /// delta, added to the diagonal of the initial projections
        pub diagonal: f64,
        /// whether all layers begin with the values of the first, as in the authors' code
        #[serde(default)]
        pub equal_layers: bool,
        /// dropout rate on the attention weights
        pub attention_dropout: f64,
        /// dropout rate before the residuals
        pub residual_dropout: f64,
        /// dropout rate inside the feed-forward network
        pub hidden_dropout: f64,
    }
}

/// Which decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DecoderConfig {
    /// Spectral convolutions.
    Spectral(SpectralConfig),
    /// Linear layers at every point.
    Pointwise(PointwiseConfig),
}

settings! {
    /// Linear layers at every point.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PointwiseConfig {
        /// whether its first layer takes the coordinates of its point too
        pub coordinates: bool,
        /// linear layers with activation
        pub layers: usize,
        /// none | relu | silu | gelu
        pub activation: Activation,
        /// dropout rate after every activation
        pub dropout: f64,
    }
}

/// See [`TransformerConfig`].
#[derive(Module, Debug)]
pub struct Transformer {
    /// From inputs to features.
    pub lift: Lift,
    /// The encoder layers.
    pub encoder: Vec<EncoderLayer>,
    /// From the encoder's grid to that of the output, of an interpolation network.
    pub upsampler: Option<Upsampler>,
    /// The decoder.
    pub decoder: Decoder,
    first_layer: u32,
}

/// See [`LiftConfig`].
#[derive(Module, Debug)]
pub enum Lift {
    /// A linear layer at every point.
    Pointwise(Linear),
    /// To the coarse grid.
    Interpolation(Downsampler),
}

/// See [`DecoderConfig`].
#[derive(Module, Debug)]
pub enum Decoder {
    /// Spectral convolutions.
    Spectral(SpectralDecoder),
    /// Linear layers at every point.
    Pointwise(PointwiseDecoder),
}

/// Coordinates of the points that a transformer works on.
#[derive(Clone, Debug)]
pub struct Coordinates {
    /// Of the encoder, (B, points, axes).
    pub encoder: Tensor<3>,
    /// Of the output, (B, points, axes).
    pub output: Tensor<3>,
}

impl TransformerConfig {
    /// Every part as its own config makes it; the layers are drawn independently unless they are to be equal.
    pub(super) fn init(&self, builder: &mut Builder) -> Result<Transformer> {
        self.check()?;
        let lift = match &self.lift {
            LiftConfig::Pointwise(_) => Lift::Pointwise(self.pointwise_lift().init(builder)?),
            LiftConfig::Interpolation(config) => Lift::Interpolation(self.downsampler(config).init(builder)?),
        };
        let layer = self.layer();
        let encoder = builder.layers(self.encoder.layers, self.encoder.equal_layers, |b| layer.init(b))?;
        let first_layer = builder.layer();
        builder.layer();
        let upsampler = match &self.lift {
            LiftConfig::Pointwise(_) => None,
            LiftConfig::Interpolation(config) => Some(self.upsampler(config).init(builder)?),
        };
        let decoder = match &self.decoder {
            DecoderConfig::Spectral(config) => Decoder::Spectral(
                config.decoder(self.axes(), self.encoder.width, self.outputs).init(builder)?,
            ),
            DecoderConfig::Pointwise(config) => {
                Decoder::Pointwise(self.pointwise_decoder(config).init(builder)?)
            }
        };
        Ok(Transformer { lift, encoder, upsampler, decoder, first_layer })
    }

    /// `Ok` if its numbers have a meaning.
    pub(super) fn check(&self) -> Result<()> {
        check_sizes("network.encoder", &[("layers", self.encoder.layers), ("hidden", self.encoder.hidden)])?;
        check_rates("network", &[self.dropout])?;
        self.layer().check()?;
        match &self.decoder {
            DecoderConfig::Spectral(config) => config.check()?,
            DecoderConfig::Pointwise(config) => config.check()?,
        }
        match &self.lift {
            LiftConfig::Pointwise(_) if self.output == OutputGrid::Coarse => {
                Err(Error::setting("network.output = \"coarse\"", "a pointwise lift has no coarse grid"))
            }
            LiftConfig::Pointwise(_) => Ok(()),
            LiftConfig::Interpolation(_) if self.axes() != 2 => Err(Error::setting(
                "network.lift.kind = \"interpolation\"",
                format!("it is for grids of two axes, not of {}; take \"pointwise\"", self.axes()),
            )),
            // Its resizes and its zero padding take every axis for closed.
            LiftConfig::Interpolation(_) if self.periodic.contains(&true) => Err(Error::setting(
                "network.lift.kind = \"interpolation\"",
                "it is for closed axes; take \"pointwise\"",
            )),
            LiftConfig::Interpolation(config) => {
                config.check()?;
                self.downsampler(config).check()
            }
        }
    }

    pub(crate) fn axes(&self) -> usize {
        self.periodic.len()
    }

    /// Points along each axis of the encoder's grid and of the output's, for an input on `grid`.
    pub fn grids(&self, grid: &[usize]) -> Result<[Vec<usize>; 2]> {
        match (&self.lift, grid) {
            (LiftConfig::Interpolation(config), &[n1, n2]) => {
                let sizes = config.sizes([n1, n2], self.output == OutputGrid::Coarse)?;
                let output = match &self.output {
                    OutputGrid::Resized(_) => self.output.points(grid, &self.periodic),
                    OutputGrid::Input | OutputGrid::Coarse => sizes.up[1].to_vec(),
                };
                Ok([sizes.down[1].to_vec(), output])
            }
            _ => Ok([grid.to_vec(), self.output.points(grid, &self.periodic)]),
        }
    }

    /// The coordinates for an input of `batch` samples on `grid`.
    pub fn coordinates(&self, batch: usize, grid: &[usize], device: &Device) -> Result<Coordinates> {
        let closed = vec![false; self.axes()];
        let periodic = if self.closed_coordinates { &closed } else { &self.periodic };
        let [encoder, output] = self.grids(grid)?.map(|grid| coordinates(batch, &grid, periodic, device));
        Ok(Coordinates { encoder, output })
    }

    pub(crate) fn pointwise_lift(&self) -> LinearConfig {
        let more = match &self.lift {
            LiftConfig::Pointwise(config) if config.coordinates => self.axes(),
            _ => 0,
        };
        LinearConfig { inputs: self.inputs.saturating_add(more), outputs: self.encoder.width }
    }

    pub(crate) fn downsampler(&self, config: &InterpolationConfig) -> DownsamplerConfig {
        let InterpolationConfig { activation, dropout, .. } = *config;
        DownsamplerConfig { inputs: self.inputs, outputs: self.encoder.width, activation, dropout }
    }

    fn upsampler(&self, config: &InterpolationConfig) -> UpsamplerConfig {
        UpsamplerConfig {
            channels: self.encoder.width,
            activation: config.up_activation,
            dropout: config.up_dropout,
        }
    }

    /// Every encoder layer.
    pub fn layer(&self) -> EncoderLayerConfig {
        let e = &self.encoder;
        EncoderLayerConfig {
            attention: AttentionConfig {
                kind: e.attention,
                features: e.width,
                heads: e.heads,
                coordinates: self.axes(),
                norm: e.head_norm,
                eps: e.eps,
                dropout: e.attention_dropout,
                gain: e.gain,
                diagonal: e.diagonal,
            },
            hidden: e.hidden,
            activation: e.activation,
            norm_after: e.residual_norm,
            eps: e.eps,
            minus: e.minus,
            residual_dropout: e.residual_dropout,
            hidden_dropout: e.hidden_dropout,
        }
    }

    pub(crate) fn pointwise_decoder(&self, config: &PointwiseConfig) -> PointwiseDecoderConfig {
        config.decoder(self.axes(), self.encoder.width, self.outputs)
    }
}

impl PointwiseConfig {
    /// The layers between so many features and outputs.
    pub(crate) fn decoder(&self, axes: usize, width: usize, outputs: usize) -> PointwiseDecoderConfig {
        PointwiseDecoderConfig {
            inputs: width,
            coordinates: if self.coordinates { axes } else { 0 },
            hidden: width,
            layers: self.layers,
            outputs,
            activation: self.activation,
            dropout: self.dropout,
        }
    }

    /// `Ok` if its numbers have a meaning.
    pub(super) fn check(&self) -> Result<()> {
        check_rates("network.decoder", &[self.dropout])?;
        check_sizes("network.decoder", &[("layers", self.layers.max(1))])
    }
}

impl Transformer {
    /// Of x (B, points of `grid`, inputs), with the coordinates of its points. Neither normaliser nor boundary are applied.
    pub(super) fn forward(
        &self,
        config: &TransformerConfig,
        x: Tensor<3>,
        grid: &[usize],
        coordinates: Coordinates,
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        let [coarse, output] = config.grids(grid)?;
        let mut x = self.encode(config, x, grid, coordinates.encoder, &self.encoder, mode, observe)?.x;
        let [batch, _, d] = x.dims();
        if let (Some(upsampler), LiftConfig::Interpolation(lift), &[n1, n2], &[m1, m2]) =
            (&self.upsampler, &config.lift, &coarse[..], &output[..])
        {
            let mut up = match *grid {
                [n1, n2] => lift.sizes([n1, n2], config.output == OutputGrid::Coarse)?.up,
                _ => return Err(super::wrong_shape(config.axes(), grid)),
            };
            up[1] = [m1, m2];
            x = upsampler.forward(x.reshape([batch, n1, n2, d]), up, mode)?.reshape([batch, m1 * m2, d]);
            observe("upscaler", &x, &output);
        } else {
            x = resized(x, &coarse, &output, &config.periodic)?;
        }
        let x = ops::dropout(x, mode.dropout(config.dropout, self.first_layer + 1));
        let at = Some(coordinates.output);
        match (&self.decoder, &config.decoder) {
            (Decoder::Spectral(decoder), DecoderConfig::Spectral(spectral)) => {
                let padding = spectral.padding(&output, &config.periodic);
                decoder.forward(x, at, &output, &padding, mode, &mut |name, x| {
                    observe(&format!("regressor.{name}"), x, &spectral.wide(&output, &padding, name))
                })
            }
            (Decoder::Spectral(_), _) => Err(Error::setting("network.decoder", "it is not the network's")),
            (Decoder::Pointwise(decoder), _) => decoder.forward(x, at, mode),
        }
    }

    /// Lift and the given encoder layers: what the next layer takes.
    pub(super) fn encode(
        &self,
        config: &TransformerConfig,
        x: Tensor<3>,
        grid: &[usize],
        at: Tensor<3>,
        layers: &[EncoderLayer],
        mode: Mode,
        observe: Observer,
    ) -> Result<AttentionInput> {
        let [coarse, _] = config.grids(grid)?;
        let mut x = match (&self.lift, &config.lift, grid) {
            (Lift::Pointwise(lift), LiftConfig::Pointwise(config), _) if config.coordinates => {
                lift.lift(x, at.clone())?
            }
            (Lift::Pointwise(lift), ..) => lift.forward(x, Activation::None)?,
            (Lift::Interpolation(downsampler), LiftConfig::Interpolation(lift), &[n1, n2]) => {
                let [batch, _, inputs] = x.dims();
                let down = lift.sizes([n1, n2], false)?.down;
                let x = downsampler.forward(x.reshape([batch, n1, n2, inputs]), down, mode)?;
                let [_, m1, m2, d] = x.dims();
                x.reshape([batch, m1 * m2, d])
            }
            _ => return Err(super::wrong_shape(config.axes(), grid)),
        };
        observe(self.lift.name(), &x, &coarse);
        x = ops::dropout(x, mode.dropout(config.dropout, self.first_layer));
        for (i, layer) in layers.iter().enumerate() {
            x = layer.forward(AttentionInput { x, coordinates: Some(at.clone()), weights: None }, mode)?;
            observe(&format!("encoder_layers.{i}"), &x, &coarse);
        }
        Ok(AttentionInput { x, coordinates: Some(at), weights: None })
    }
}

impl Lift {
    /// As the reference calls it.
    fn name(&self) -> &'static str {
        match self {
            Lift::Pointwise(_) => "feat_extract",
            Lift::Interpolation(_) => "downscaler",
        }
    }
}

impl ReferenceNames for Transformer {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = match &self.lift {
            Lift::Pointwise(lift) => lift.entries(&format!("{prefix}feat_extract.id.")),
            Lift::Interpolation(downsampler) => downsampler.entries(&format!("{prefix}downscaler.")),
        };
        entries.extend(self.upsampler.iter().flat_map(|up| up.entries(&format!("{prefix}upscaler."))));
        for (i, layer) in self.encoder.iter().enumerate() {
            entries.extend(layer.entries(&format!("{prefix}encoder_layers.{i}.")));
        }
        entries.extend(self.decoder.entries(&format!("{prefix}regressor.")));
        entries
    }
}

impl ReferenceNames for Decoder {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match self {
            Decoder::Spectral(decoder) => decoder.entries(prefix),
            Decoder::Pointwise(decoder) => decoder.entries(prefix),
        }
    }
}
