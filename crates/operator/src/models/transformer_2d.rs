//! The transformer for functions on a square: attention on a coarse grid between two interpolation networks.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{Boundary, Latent, Observer, encode_points, finish, layer_of, paper_encoder};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, AttentionKind, Downsampler, DownsamplerConfig, EncoderLayer, EncoderLayerConfig, Mode,
    Normalizer, PointwiseDecoder, PointwiseDecoderConfig, ScalerSizes, SpectralDecoder2d,
    SpectralDecoderConfig, Upsampler, UpsamplerConfig, square,
};
use crate::ops::{self, AttentionInput};
use crate::reference::{Entry, ReferenceNames};

/// Downsampler, dropout, encoder layers on the coarse grid, upsampler, dropout, decoder, normaliser, boundary condition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transformer2dConfig {
    /// To the coarse grid.
    pub downsampler: DownsamplerConfig,
    /// Every encoder layer.
    pub encoder: EncoderLayerConfig,
    /// Number of encoder layers.
    pub layers: usize,
    /// Whether all of them begin with the values of the first, as in the authors' code.
    #[serde(default)]
    pub equal_layers: bool,
    /// To the grid of the output.
    pub upsampler: UpsamplerConfig,
    /// The decoder.
    pub decoder: DecoderConfig,
    /// The grids.
    pub resampling: Resampling,
    /// What happens on the boundary of the output.
    pub boundary: Boundary,
    /// Dropout rate before the encoder and before the decoder, in training.
    pub dropout: f64,
}

/// Which decoder.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecoderConfig {
    /// Spectral convolutions.
    Spectral(SpectralDecoderConfig),
    /// Linear layers at every point.
    Pointwise(PointwiseDecoderConfig),
}

/// The grids of a model, given by the fine and the coarse one it was made for. An input of another size keeps their ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resampling {
    /// n_f, points a side of the input.
    pub fine: usize,
    /// n_c, points a side of the attention.
    pub coarse: usize,
    /// Whether the downsampler goes by factor, as in the paper's runs, which may miss n_c by one; by sizes otherwise.
    pub by_factor: bool,
    /// Whether the output is on the coarse grid (the inverse problem) instead of the fine one.
    pub coarse_output: bool,
}

/// Sizes after each of the two resizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Through {
    /// Of the downsampler; the second is the grid of the attention.
    pub down: [[usize; 2]; 2],
    /// Of the upsampler; the second is the grid of the output.
    pub up: [[usize; 2]; 2],
}

/// Grids and their coordinates.
#[derive(Clone, Debug)]
pub struct Grids {
    /// The sizes.
    pub through: Through,
    /// Of the attention, (B, n_c·n_c, 2).
    pub positions: Tensor<3>,
    /// Of the output, (B, n, n, 2).
    pub output: Tensor<4>,
}

/// See [`Transformer2dConfig`].
#[derive(Module, Debug)]
pub struct Transformer2d {
    /// To the coarse grid.
    pub downsampler: Downsampler,
    /// The encoder layers.
    pub encoder: Vec<EncoderLayer>,
    /// To the grid of the output.
    pub upsampler: Upsampler,
    /// The decoder.
    pub decoder: Decoder,
    /// Of the targets; its inverse is applied to the decoder's output.
    pub normalizer: Option<Normalizer>,
    #[module(skip)]
    resampling: Resampling,
    #[module(skip)]
    boundary: Boundary,
    dropout: f64,
    first_layer: u32,
}

/// See [`DecoderConfig`].
#[derive(Module, Debug)]
pub enum Decoder {
    /// Spectral convolutions.
    Spectral(SpectralDecoder2d),
    /// Linear layers at every point.
    Pointwise(PointwiseDecoder),
}

impl Transformer2dConfig {
    /// The paper's network for Darcy flow, from a fine grid to itself.
    pub fn darcy(kind: AttentionKind, fine: usize, coarse: usize) -> Self {
        let d = 128;
        let mut encoder = paper_encoder(kind, d, 4, 2);
        (encoder.attention.eps, encoder.eps) = (1e-7, 1e-7);
        (encoder.residual_dropout, encoder.hidden_dropout) = (0.05, 0.1);
        Self {
            downsampler: DownsamplerConfig {
                inputs: 1,
                outputs: d,
                activation: Activation::Relu,
                dropout: 0.05,
            },
            encoder,
            layers: 6,
            equal_layers: false,
            upsampler: UpsamplerConfig { channels: d, activation: Activation::Silu, dropout: 0.0 },
            decoder: DecoderConfig::Spectral(SpectralDecoderConfig {
                inputs: d,
                coordinates: 2,
                hidden: 32,
                channels: 32,
                modes: 12,
                layers: 2,
                feed_forward: 128,
                outputs: 1,
                activation: Activation::Silu,
                last_activation: true,
                dropout: 0.0,
            }),
            resampling: Resampling { fine, coarse, by_factor: true, coarse_output: false },
            boundary: Boundary::Dirichlet,
            dropout: 0.0,
        }
    }

    /// The paper's network for the inverse problem, from a fine grid to the coarse one.
    pub fn darcy_inverse(kind: AttentionKind, fine: usize, coarse: usize) -> Self {
        let d = 192;
        let mut encoder = paper_encoder(kind, d, 4, 2);
        (encoder.attention.eps, encoder.eps) = (1e-7, 1e-7);
        (encoder.residual_dropout, encoder.hidden_dropout) = (0.05, 0.05);
        let activation = Activation::Silu;
        Self {
            downsampler: DownsamplerConfig { inputs: 1, outputs: d, activation, dropout: 0.05 },
            encoder,
            layers: 6,
            equal_layers: false,
            upsampler: UpsamplerConfig { channels: d, activation, dropout: 0.05 },
            decoder: DecoderConfig::Pointwise(PointwiseDecoderConfig {
                inputs: d,
                coordinates: 2,
                hidden: d,
                layers: 1,
                outputs: 1,
                activation,
                dropout: 0.05,
            }),
            resampling: Resampling { fine, coarse, by_factor: true, coarse_output: true },
            boundary: Boundary::Free,
            dropout: 0.05,
        }
    }

    /// Every part as its own config makes it; the layers are drawn independently.
    pub fn init(&self, builder: &mut Builder) -> Result<Transformer2d> {
        let d = self.encoder.attention.features;
        for (part, width) in [
            ("downsampler to", self.downsampler.outputs),
            ("upsampler of", self.upsampler.channels),
            ("decoder for", self.decoder.inputs()),
        ] {
            if width != d {
                let what = format!("2D transformer: {part} {width} features");
                return Err(Error::setting(what, format!("the encoder has {d}")));
            }
        }
        crate::layers::check_rates("2D transformer", &[self.dropout])?;
        ScalerSizes::between(self.resampling.fine, self.resampling.coarse)?;
        let downsampler = self.downsampler.init(builder)?;
        let encoder = builder.layers(self.layers, self.equal_layers, |builder| self.encoder.init(builder))?;
        let first_layer = builder.layer();
        builder.layer();
        Ok(Transformer2d {
            downsampler,
            encoder,
            upsampler: self.upsampler.init(builder)?,
            decoder: match &self.decoder {
                DecoderConfig::Spectral(config) => Decoder::Spectral(config.init_2d(builder)?),
                DecoderConfig::Pointwise(config) => Decoder::Pointwise(config.init(builder)?),
            },
            normalizer: None,
            resampling: self.resampling,
            boundary: self.boundary,
            dropout: self.dropout,
            first_layer,
        })
    }
}

impl DecoderConfig {
    /// Features that go in.
    pub fn inputs(&self) -> usize {
        match self {
            DecoderConfig::Spectral(config) => config.inputs,
            DecoderConfig::Pointwise(config) => config.inputs,
        }
    }

    /// Values per point that come out.
    pub fn outputs(&self) -> usize {
        match self {
            DecoderConfig::Spectral(config) => config.outputs,
            DecoderConfig::Pointwise(config) => config.outputs,
        }
    }
}

impl Resampling {
    /// The sizes for an input of n₁ × n₂ points.
    pub fn through(&self, input: [usize; 2]) -> Result<Through> {
        let factor = ScalerSizes::between(self.fine, self.coarse)?;
        let axis = |n: usize| -> Result<[[usize; 2]; 2]> {
            let coarse = self.coarse_for(n);
            let middle = ScalerSizes::between(n, coarse)?.middle;
            let down = if self.by_factor { factor.by_factor(n) } else { [middle, coarse] };
            Ok([down, if self.coarse_output { [down[1]; 2] } else { [middle, n] }])
        };
        let [one, two] = [axis(input[0])?, axis(input[1])?];
        let pair = |way: usize, step: usize| [one[way][step], two[way][step]];
        Ok(Through { down: [pair(0, 0), pair(0, 1)], up: [pair(1, 0), pair(1, 1)] })
    }

    /// n_c for n points a side: the intervals keep their ratio, rounded, so that the coarse grids of nested grids nest.
    fn coarse_for(&self, n: usize) -> usize {
        let (intervals, fine) = ((n.saturating_sub(1)) * (self.coarse - 1), self.fine - 1);
        (2 * intervals + fine) / (2 * fine) + 1
    }
}

impl Grids {
    /// The grids of the unit square with its boundary.
    pub fn new(batch: usize, through: Through, device: &Device) -> Self {
        let [n1, n2] = through.down[1];
        Self {
            through,
            positions: square(batch, [n1, n2], device).reshape([batch, n1 * n2, 2]),
            output: square(batch, through.up[1], device),
        }
    }
}

impl Transformer2d {
    /// The model with the normaliser of its targets.
    pub fn with_normalizer(mut self, normalizer: Normalizer) -> Self {
        self.normalizer = Some(normalizer);
        self
    }

    /// On the grid of the unit square with its boundary, of any size the decoder's modes allow.
    ///
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, inputs)
    /// - y: (B, n₁, n₂, outputs), or on the coarse grid
    pub fn forward(&self, x: Tensor<4>, mode: Mode) -> Result<Tensor<4>> {
        self.forward_observed(x, mode, &mut |_, _| {})
    }

    /// As [`forward`](Self::forward), showing every stage.
    pub fn forward_observed(&self, x: Tensor<4>, mode: Mode, observe: Observer) -> Result<Tensor<4>> {
        Error::check_filled("input", &x.dims())?;
        let [batch, n1, n2, _] = x.dims();
        let grids = Grids::new(batch, self.resampling.through([n1, n2])?, &x.device());
        self.forward_on(x, grids, None, mode, observe)
    }

    /// As [`forward_observed`](Self::forward_observed), on given grids, with values added after the boundary was set to zero.
    pub fn forward_on(
        &self,
        x: Tensor<4>,
        grids: Grids,
        boundary_value: Option<Tensor<4>>,
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<4>> {
        let Grids { through, positions, output } = grids;
        let encoded = self.encode(x, through, positions, &self.encoder, mode, observe)?.x;
        let ([batch, _, d], [n1, n2]) = (encoded.dims(), through.down[1]);
        let x = self.upsampler.forward(encoded.reshape([batch, n1, n2, d]), through.up, mode)?;
        observe("upscaler", Latent::Grid(&x));
        let x = ops::dropout(x, mode.dropout(self.dropout, self.first_layer + 1));
        let y = match &self.decoder {
            Decoder::Spectral(decoder) => decoder.forward(x, Some(output), mode)?,
            Decoder::Pointwise(decoder) => decoder.forward(x, Some(output), mode)?,
        };
        observe("regressor", Latent::Grid(&y));
        let y = finish(y, self.normalizer.as_ref(), self.boundary)?;
        let Some(value) = boundary_value else { return Ok(y) };
        Error::check_shape("boundary value", &value.dims(), &y.dims())?;
        Ok(y + value)
    }

    /// The attention weights of one encoder layer, see [`Attention::weights`](crate::layers::Attention::weights).
    pub fn attention_weights(&self, x: Tensor<4>, layer: usize) -> Result<Tensor<4>> {
        let (looked_at, input) = self.attention_input(x, layer)?;
        looked_at.attention.weights(input, Mode::Evaluate)
    }

    /// Q, K and V of one encoder layer, see [`Attention::projections`](crate::layers::Attention::projections).
    pub fn projections(&self, x: Tensor<4>, layer: usize) -> Result<[Tensor<4>; 3]> {
        let (looked_at, input) = self.attention_input(x, layer)?;
        looked_at.attention.projections(input, Mode::Evaluate)
    }

    /// An encoder layer and what it takes.
    fn attention_input(&self, x: Tensor<4>, layer: usize) -> Result<(&EncoderLayer, AttentionInput)> {
        Error::check_filled("input", &x.dims())?;
        let looked_at = layer_of(&self.encoder, layer)?;
        let [batch, n1, n2, _] = x.dims();
        let Grids { through, positions, .. } =
            Grids::new(batch, self.resampling.through([n1, n2])?, &x.device());
        let before = &self.encoder[..layer];
        Ok((looked_at, self.encode(x, through, positions, before, Mode::Evaluate, &mut |_, _| {})?))
    }

    /// Downsampler and the given encoder layers: what the next layer takes.
    fn encode(
        &self,
        x: Tensor<4>,
        through: Through,
        positions: Tensor<3>,
        layers: &[EncoderLayer],
        mode: Mode,
        observe: Observer,
    ) -> Result<AttentionInput> {
        let x = self.downsampler.forward(x, through.down, mode)?;
        observe("downscaler", Latent::Grid(&x));
        let [batch, n1, n2, d] = x.dims();
        let x = ops::dropout(x, mode.dropout(self.dropout, self.first_layer));
        encode_points(x.reshape([batch, n1 * n2, d]), positions, layers, mode, observe)
    }
}

impl ReferenceNames for Transformer2d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = self.downsampler.entries(&format!("{prefix}downscaler."));
        entries.extend(self.upsampler.entries(&format!("{prefix}upscaler.")));
        for (i, layer) in self.encoder.iter().enumerate() {
            entries.extend(layer.entries(&format!("{prefix}encoder_layers.{i}.")));
        }
        let prefix = format!("{prefix}regressor.");
        entries.extend(match &self.decoder {
            Decoder::Spectral(decoder) => decoder.entries(&prefix),
            Decoder::Pointwise(decoder) => decoder.entries(&prefix),
        });
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(config: Transformer2dConfig) -> Transformer2d {
        config.init(&mut Builder::new(1, &Device::flex())).unwrap()
    }

    #[test]
    fn the_paper_counts_these_parameters() {
        let kind = AttentionKind::Galerkin;
        assert_eq!(build(Transformer2dConfig::darcy(kind, 141, 43)).num_params(), 2_220_829);
        assert_eq!(build(Transformer2dConfig::darcy_inverse(kind, 141, 36)).num_params(), 2_383_873);
    }

    #[test]
    fn every_size_goes_through_and_a_dirichlet_ring_is_zero() {
        let mut config = Transformer2dConfig::darcy(AttentionKind::Galerkin, 29, 10);
        config.layers = 1;
        let device = Device::flex();
        let model = build(config);
        for n in [[29, 29], [43, 43], [57, 31]] {
            let y = model.forward(Tensor::ones([1, n[0], n[1], 1], &device), Mode::Evaluate).unwrap();
            assert_eq!(y.dims(), [1, n[0], n[1], 1]);
            let values = crate::reference::to_vec(y);
            for (at, value) in values.iter().enumerate() {
                let (i, j) = (at / n[1], at % n[1]);
                let ring = i == 0 || j == 0 || i + 1 == n[0] || j + 1 == n[1];
                assert_eq!(ring, *value == 0.0, "({i}, {j}): {value}");
            }
        }
        for empty in [[0, 29, 29, 1], [1, 0, 29, 1], [1, 29, 29, 0]] {
            let result = model.forward(Tensor::ones(empty, &device), Mode::Evaluate);
            assert!(matches!(result.unwrap_err(), Error::Shape { .. }));
        }
        let small = model.forward(Tensor::ones([1, 20, 20, 1], &device), Mode::Evaluate);
        assert!(matches!(small.unwrap_err(), Error::Modes { modes: 12, most: 11, .. }));
    }

    #[test]
    fn a_normalizer_from_the_plain_device_goes_with_a_tracked_model() {
        let mut config = Transformer2dConfig::darcy(AttentionKind::Galerkin, 29, 10);
        config.layers = 1;
        let (plain, device) = (Device::flex(), Device::flex().autodiff());
        let model = config.init(&mut Builder::new(1, &device)).unwrap();
        let x: Tensor<4> = square(1, [29, 29], &plain).narrow(3, 0, 1);
        let without = crate::reference::to_vec(model.forward(x.clone(), Mode::Evaluate).unwrap());
        let constant = |value: f32| Tensor::full([29, 29, 1], value, &plain);
        let model = model.with_normalizer(Normalizer::new(constant(1.0), constant(2.0)).unwrap());
        let y = model.forward(x, Mode::Evaluate).unwrap();
        let gradients = y.clone().sum().backward();
        assert!(model.downsampler.convolutions[0].weight.val().grad(&gradients).is_some());
        for (at, (with, without)) in crate::reference::to_vec(y).iter().zip(without).enumerate() {
            let inside = (1..28).contains(&(at / 29)) && (1..28).contains(&(at % 29));
            let expected = if inside { 1.0 + 2.00001 * without } else { 0.0 };
            assert!((with - expected).abs() < 1e-6, "{at}: {with}, expected {expected}");
        }
    }

    #[test]
    fn the_inverse_problem_ends_on_the_coarse_grid() {
        let mut config = Transformer2dConfig::darcy_inverse(AttentionKind::Galerkin, 29, 10);
        config.layers = 1;
        let x = Tensor::ones([1, 29, 29, 1], &Device::flex());
        assert_eq!(build(config).forward(x, Mode::Evaluate).unwrap().dims(), [1, 10, 10, 1]);
    }

    #[test]
    fn sizes_follow_the_papers_runs() {
        let grids = Resampling { fine: 141, coarse: 43, by_factor: true, coarse_output: false };
        let through = grids.through([141, 141]).unwrap();
        assert_eq!(through, Through { down: [[78; 2], [43; 2]], up: [[77; 2], [141; 2]] });
        let by_sizes = Resampling { by_factor: false, ..grids }.through([141, 141]).unwrap();
        assert_eq!(by_sizes.down, [[77; 2], [43; 2]]);
        let inverse = Resampling { fine: 141, coarse: 36, by_factor: true, coarse_output: true };
        assert_eq!(inverse.through([141, 141]).unwrap().up, [[36; 2]; 2]);
    }
}
