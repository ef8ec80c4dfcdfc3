//! The transformer for functions on a line.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Latent, Observer, encode_points, layer_of, paper_encoder};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, AttentionKind, EncoderLayer, EncoderLayerConfig, Linear, LinearConfig, Mode,
    SpectralDecoder1d, SpectralDecoderConfig, line,
};
use crate::ops::{self, AttentionInput};
use crate::reference::{Entry, ReferenceNames};

/// Linear layer, encoder layers, dropout, spectral decoder.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transformer1dConfig {
    /// Values per point of the input.
    pub inputs: usize,
    /// Every encoder layer.
    pub encoder: EncoderLayerConfig,
    /// Number of encoder layers.
    pub layers: usize,
    /// Whether all of them begin with the values of the first, as in the authors' code.
    #[serde(default)]
    pub equal_layers: bool,
    /// Whether the coordinates are j/(n − 1), as in the authors' code, instead of j/n.
    #[serde(default)]
    pub closed_line: bool,
    /// The decoder.
    pub decoder: SpectralDecoderConfig,
    /// Dropout rate before the decoder, in training.
    pub dropout: f64,
}

/// See [`Transformer1dConfig`].
#[derive(Module, Debug)]
pub struct Transformer1d {
    /// To the features.
    pub lift: Linear,
    /// The encoder layers.
    pub encoder: Vec<EncoderLayer>,
    /// The decoder.
    pub decoder: SpectralDecoder1d,
    closed_line: bool,
    dropout: f64,
    layer: u32,
}

impl Transformer1dConfig {
    /// The paper's network for the Burgers equation.
    pub fn burgers(kind: AttentionKind) -> Self {
        Self {
            inputs: 1,
            encoder: paper_encoder(kind, 96, 1, 1),
            layers: 4,
            equal_layers: false,
            closed_line: false,
            decoder: SpectralDecoderConfig {
                inputs: 96,
                coordinates: 0,
                hidden: 96,
                channels: 48,
                modes: 16,
                layers: 2,
                feed_forward: 48,
                outputs: 1,
                activation: Activation::Silu,
                last_activation: true,
                dropout: 0.0,
            },
            dropout: 0.0,
        }
    }

    /// Every part as its own config makes it; the layers are drawn independently.
    pub fn init(&self, builder: &mut Builder) -> Result<Transformer1d> {
        let d = self.encoder.attention.features;
        if self.decoder.inputs != d {
            let what = format!("1D transformer: decoder for {} features", self.decoder.inputs);
            return Err(Error::setting(what, format!("the encoder has {d}")));
        }
        crate::layers::check_rates("1D transformer", &[self.dropout])?;
        let lift = LinearConfig { inputs: self.inputs, outputs: d }.init(builder)?;
        let encoder = builder.layers(self.layers, self.equal_layers, |builder| self.encoder.init(builder))?;
        Ok(Transformer1d {
            lift,
            encoder,
            decoder: self.decoder.init_1d(builder)?,
            closed_line: self.closed_line,
            dropout: self.dropout,
            layer: builder.layer(),
        })
    }
}

impl Transformer1d {
    /// On the periodic grid of n points, for any n the decoder's modes allow.
    ///
    /// # Shapes
    ///
    /// - x: (B, n, inputs)
    /// - y: (B, n, outputs)
    pub fn forward(&self, x: Tensor<3>, mode: Mode) -> Result<Tensor<3>> {
        self.forward_observed(x, mode, &mut |_, _| {})
    }

    /// As [`forward`](Self::forward), showing every stage.
    pub fn forward_observed(&self, x: Tensor<3>, mode: Mode, observe: Observer) -> Result<Tensor<3>> {
        Error::check_filled("input", &x.dims())?;
        let ([batch, n, _], device) = (x.dims(), x.device());
        self.forward_at(x, line(batch, n, self.closed_line, &device), mode, observe)
    }

    /// As [`forward_observed`](Self::forward_observed), with the coordinates (B, n, 1) of the points.
    pub fn forward_at(
        &self,
        x: Tensor<3>,
        coordinates: Tensor<3>,
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        let x = self.encode(x, coordinates.clone(), &self.encoder, mode, observe)?.x;
        let x = ops::dropout(x, mode.dropout(self.dropout, self.layer));
        self.decoder.forward_observed(x, Some(coordinates), mode, |i, x| {
            observe(&format!("regressor.spectral_conv.{i}"), Latent::Points(x))
        })
    }

    /// The attention weights of one encoder layer, see [`Attention::weights`](crate::layers::Attention::weights).
    pub fn attention_weights(&self, x: Tensor<3>, layer: usize) -> Result<Tensor<4>> {
        let (looked_at, input) = self.attention_input(x, layer)?;
        looked_at.attention.weights(input, Mode::Evaluate)
    }

    /// Q, K and V of one encoder layer, see [`Attention::projections`](crate::layers::Attention::projections).
    pub fn projections(&self, x: Tensor<3>, layer: usize) -> Result<[Tensor<4>; 3]> {
        let (looked_at, input) = self.attention_input(x, layer)?;
        looked_at.attention.projections(input, Mode::Evaluate)
    }

    /// An encoder layer and what it takes.
    fn attention_input(&self, x: Tensor<3>, layer: usize) -> Result<(&EncoderLayer, AttentionInput)> {
        Error::check_filled("input", &x.dims())?;
        let looked_at = layer_of(&self.encoder, layer)?;
        let [batch, n, _] = x.dims();
        let coordinates = line(batch, n, self.closed_line, &x.device());
        let before = &self.encoder[..layer];
        Ok((looked_at, self.encode(x, coordinates, before, Mode::Evaluate, &mut |_, _| {})?))
    }

    /// Linear layer and the given encoder layers: what the next layer takes.
    fn encode(
        &self,
        x: Tensor<3>,
        coordinates: Tensor<3>,
        layers: &[EncoderLayer],
        mode: Mode,
        observe: Observer,
    ) -> Result<AttentionInput> {
        let x = self.lift.forward(x, Activation::None)?;
        observe("feat_extract", Latent::Points(&x));
        encode_points(x, coordinates, layers, mode, observe)
    }
}

impl ReferenceNames for Transformer1d {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = self.lift.entries(&format!("{prefix}feat_extract.id."));
        for (i, layer) in self.encoder.iter().enumerate() {
            entries.extend(layer.entries(&format!("{prefix}encoder_layers.{i}.")));
        }
        entries.extend(self.decoder.entries(&format!("{prefix}regressor.")));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_paper_counts_530305_parameters() {
        for kind in
            [AttentionKind::Galerkin, AttentionKind::Fourier, AttentionKind::Linear, AttentionKind::Softmax]
        {
            let config = Transformer1dConfig::burgers(kind);
            let model = config.init(&mut Builder::new(1, &Device::flex())).unwrap();
            assert_eq!(model.num_params(), 530_305, "{kind:?}");
        }
    }

    #[test]
    fn bad_input_is_refused_with_its_place() {
        let config = Transformer1dConfig::burgers(AttentionKind::Galerkin);
        let device = Device::flex();
        let model = config.init(&mut Builder::new(1, &device)).unwrap();
        let run = |shape: [usize; 3]| model.forward(Tensor::zeros(shape, &device), Mode::Evaluate);
        assert_eq!(run([2, 64, 1]).unwrap().dims(), [2, 64, 1]);
        let channels = run([2, 64, 3]).unwrap_err();
        assert_eq!(channels.to_string(), "linear x: expected shape [2, 64, 1], found [2, 64, 3]");
        for empty in [[0, 64, 1], [2, 0, 1]] {
            assert!(matches!(run(empty).unwrap_err(), Error::Shape { .. }));
        }
        // 16 modes need 30 points.
        assert!(run([1, 30, 1]).is_ok());
        assert!(matches!(run([1, 29, 1]).unwrap_err(), Error::Modes { modes: 16, most: 15, .. }));
    }
}
