//! Looking into a model: what its layers hold, what they cost.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use galerkin::init::Builder;
//! use galerkin::models::{Field, Preset};
//!
//! let config = Preset::Burgers.config();
//! let model = config.init(&mut Builder::new(1, &Device::flex()))?;
//! let u0 = Field::Line(Tensor::ones([1, 64, 1], &Device::flex()));
//! // K̃ᵀṼ/n of the third encoder layer: one head of 96 features and a coordinate.
//! assert_eq!(model.attention_weights(u0.clone(), 2)?.dims(), [1, 1, 97, 97]);
//! assert_eq!(model.latents(u0)?[4].0, "encoder_layers.3");
//! let parameters: usize = model.components(&config, &[64])?.iter().map(|c| c.parameters).sum();
//! assert_eq!(parameters, 530_305);
//! # Ok::<(), galerkin::Error>(())
//! ```

use burn::module::Module;
use burn::tensor::Tensor;

use crate::error::{Error, Result};
use crate::layers::{
    AttentionKind, DownsamplerConfig, EncoderLayerConfig, HeadNorm, Mode, PointwiseDecoderConfig,
    SpectralConvConfig, SpectralDecoderConfig,
};
use crate::models::{
    DecoderConfig, Field, FnoConfig, Latent, Model, ModelConfig, Transformer1dConfig, Transformer2dConfig,
};
use crate::reference::ReferenceNames;

/// A part of a model and what it costs on a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// As the weights' names begin.
    pub name: String,
    /// Trained numbers.
    pub parameters: usize,
    /// Multiplications and additions of the products of one sample's forward pass.
    ///
    /// Counted in the order in which we multiply: fourier attention is re-associated, so that only softmax attention grows with
    /// the square of the points. Norms, activations and residuals are left out. A backward pass costs twice as much.
    pub flops: u64,
    /// Values of one sample that wait for the backward pass, without those that it could compute again.
    pub kept: u64,
}

impl Model {
    /// The name and the output of every stage, on the way to the prediction.
    pub fn latents(&self, x: Field) -> Result<Vec<(String, Field)>> {
        let mut latents = Vec::new();
        self.forward_observed(x, Mode::Evaluate, &mut |name, latent| {
            let field = match latent {
                Latent::Points(x) => Field::Line(x.clone()),
                Latent::Grid(x) => Field::Square(x.clone()),
            };
            latents.push((name.to_string(), field));
        })?;
        Ok(latents)
    }

    /// The attention weights of an encoder layer: K̃ᵀṼ/n (B, H, D, D) of galerkin and linear attention, the (B, H, n, n) matrix
    /// of fourier and softmax attention.
    pub fn attention_weights(&self, x: Field, layer: usize) -> Result<Tensor<4>> {
        match (self, x) {
            (Model::Transformer1d(model), Field::Line(x)) => model.attention_weights(x, layer),
            (Model::Transformer2d(model), Field::Square(x)) => model.attention_weights(x, layer),
            (model, x) => Err(model.without_attention(&x)),
        }
    }

    /// Q, K and V of an encoder layer, (B, H, n, D) each, as they stand in the products of its attention: after the norms inside the heads,
    /// so K̃ and Ṽ of galerkin attention, and with the p coordinates as the first of the D = d/H + p columns. Linear attention takes its
    /// softmaxes of these.
    pub fn projections(&self, x: Field, layer: usize) -> Result<[Tensor<4>; 3]> {
        match (self, x) {
            (Model::Transformer1d(model), Field::Line(x)) => model.projections(x, layer),
            (Model::Transformer2d(model), Field::Square(x)) => model.projections(x, layer),
            (model, x) => Err(model.without_attention(&x)),
        }
    }

    /// Why a look at attention is refused.
    fn without_attention(&self, x: &Field) -> Error {
        match self {
            Model::Fno1d(_) | Model::Fno2d(_) => {
                Error::setting("attention of a Fourier operator", "it has none")
            }
            _ => crate::models::wrong_rank(self.dimensions(), &x.dims()),
        }
    }

    /// Its parts and what they cost for an input on `grid`; `config` is the one it was made from.
    pub fn components(&self, config: &ModelConfig, grid: &[usize]) -> Result<Vec<Component>> {
        let mut components = config.costs(grid)?;
        let mut sizes = Sizes::default();
        self.visit(&mut sizes);
        for entry in self.entries("") {
            let owner = components.iter_mut().find(|c| {
                let rest = entry.names[0].strip_prefix(c.name.as_str());
                rest.is_some_and(|rest| rest.starts_with('.'))
            });
            let owner =
                owner.ok_or_else(|| Error::setting(&entry.names[0], "the config has no such part"))?;
            owner.parameters += sizes.0[&entry.id];
        }
        Ok(components)
    }
}

#[derive(Default)]
struct Sizes(std::collections::BTreeMap<burn::module::ParamId, usize>);

impl burn::module::ModuleVisitor for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
        self.0.insert(param.id, param.val().dims().iter().product());
    }
}

impl EncoderLayerConfig {
    /// [`Component::flops`] of a layer on n points.
    pub fn flops(&self, n: usize) -> u64 {
        let attention = self.attention;
        let (d, heads) = (attention.features, attention.heads);
        let wide = d / heads + attention.coordinates;
        let merged = heads * wide;
        let interaction = match attention.kind {
            AttentionKind::Softmax => 4 * n * n * merged,
            AttentionKind::Galerkin | AttentionKind::Fourier | AttentionKind::Linear => 4 * n * merged * wide,
        };
        let projection = if attention.coordinates > 0 { 2 * n * merged * d } else { 0 };
        (6 * n * d * d + interaction + projection + 4 * n * d * self.hidden) as u64
    }
}

impl ModelConfig {
    /// [`Component::flops`] of all parts.
    pub fn flops(&self, grid: &[usize]) -> Result<u64> {
        Ok(self.costs(grid)?.iter().map(|part| part.flops).sum())
    }

    /// Bytes that a training step needs with `batch` samples on `grid`, an estimate.
    ///
    /// What waits for the backward pass, the gradients under way, and weights, gradients, both moments of Adam and the
    /// optimiser's copy of the weights. On the CPU; the composed operations of other devices need several times as much.
    pub fn training_memory(&self, batch: usize, grid: &[usize]) -> Result<u64> {
        let costs = self.costs(grid)?;
        let kept: u64 = costs.iter().map(|c| c.kept).sum();
        let widest = costs.iter().map(|c| c.kept).max().unwrap_or(0);
        let in_encoder = match self {
            ModelConfig::Transformer1d(c) => c.layers * c.encoder.kept(batch, grid[0]),
            ModelConfig::Transformer2d(c) => {
                let [n1, n2] = c.resampling.through([grid[0], grid[1]])?.down[1];
                c.layers * c.encoder.kept(batch, n1 * n2)
            }
            ModelConfig::Fno1d(_) | ModelConfig::Fno2d(_) => 0,
        };
        Ok(4 * (batch as u64 * (kept + widest) + in_encoder as u64 + 5 * self.parameters()) + PROCESS)
    }

    /// Trained numbers, counted without building the network: a config from a file may ask for more than memory holds.
    pub fn parameters(&self) -> u64 {
        // Exact below 2⁵³, and sizes that make no sense do not overflow.
        let count = match self {
            ModelConfig::Transformer1d(c) => {
                linear(c.inputs, c.encoder.attention.features)
                    + c.layers as f64 * encoder_parameters(&c.encoder)
                    + spectral_parameters(&c.decoder, 1)
            }
            ModelConfig::Transformer2d(c) => {
                let (d, third) = (c.downsampler.outputs, c.downsampler.outputs / 3);
                let convolution = |i: usize, o: usize| 9.0 * i as f64 * o as f64;
                convolution(c.downsampler.inputs, d)
                    + convolution(d, third)
                    + convolution(third, third)
                    + convolution(third, d - 2 * third)
                    + c.layers as f64 * encoder_parameters(&c.encoder)
                    + convolution(c.upsampler.channels, c.upsampler.channels)
                    + match &c.decoder {
                        DecoderConfig::Spectral(decoder) => spectral_parameters(decoder, 2),
                        DecoderConfig::Pointwise(decoder) => pointwise_parameters(decoder),
                    }
            }
            ModelConfig::Fno1d(c) => fno_parameters(c, 1),
            ModelConfig::Fno2d(c) => fno_parameters(c, 2),
        };
        count as u64
    }

    /// The parts, without their parameters.
    fn costs(&self, grid: &[usize]) -> Result<Vec<Component>> {
        match (self, grid) {
            (ModelConfig::Transformer1d(config), &[n]) => transformer_1d(config, n),
            (ModelConfig::Transformer2d(config), &[n1, n2]) => transformer_2d(config, [n1, n2]),
            (ModelConfig::Fno1d(config), &[n]) => fno(config, &[n]),
            (ModelConfig::Fno2d(config), &[n1, n2]) => fno(config, &[n1, n2]),
            _ => Err(crate::models::wrong_rank(self.dimensions(), grid)),
        }
    }
}

/// Weight and bias of a linear layer.
fn linear(inputs: usize, outputs: usize) -> f64 {
    (inputs as f64 + 1.0) * outputs as f64
}

fn encoder_parameters(config: &EncoderLayerConfig) -> f64 {
    let attention = &config.attention;
    let d = attention.features;
    let merged = d as f64 + attention.heads as f64 * attention.coordinates as f64;
    let projection = if attention.coordinates > 0 { (merged + 1.0) * d as f64 } else { 0.0 };
    let inside = if attention.norm == HeadNorm::None { 0.0 } else { 4.0 * d as f64 };
    let after = if config.norm_after { 4.0 * d as f64 } else { 0.0 };
    3.0 * linear(d, d) + projection + inside + after + linear(d, config.hidden) + linear(config.hidden, d)
}

fn spectral_parameters(config: &SpectralDecoderConfig, axes: i32) -> f64 {
    let layers = config.layers as f64 - 1.0;
    lift_parameters(config.inputs, config.coordinates, config.hidden)
        + convolution_parameters(config.hidden, config.channels, config.modes, axes)
        + layers * convolution_parameters(config.channels, config.channels, config.modes, axes)
        + linear(config.channels, config.feed_forward)
        + linear(config.feed_forward, config.outputs)
}

/// The layer of a decoder that takes coordinates; there is none without them.
fn lift_parameters(inputs: usize, coordinates: usize, hidden: usize) -> f64 {
    if coordinates == 0 { 0.0 } else { linear(inputs.saturating_add(coordinates), hidden) }
}

/// A complex matrix per kept mode, of which 2D has two blocks, and the pointwise path.
fn convolution_parameters(inputs: usize, outputs: usize, modes: usize, axes: i32) -> f64 {
    let matrices = 2.0 * axes as f64 * (modes as f64).powi(axes);
    matrices * inputs as f64 * outputs as f64 + linear(inputs, outputs)
}

fn pointwise_parameters(config: &PointwiseDecoderConfig) -> f64 {
    lift_parameters(config.inputs, config.coordinates, config.hidden)
        + config.layers as f64 * linear(config.hidden, config.hidden)
        + linear(config.hidden, config.outputs)
}

fn fno_parameters(config: &FnoConfig, axes: i32) -> f64 {
    linear(config.inputs.saturating_add(axes as usize), config.channels)
        + config.layers as f64 * convolution_parameters(config.channels, config.channels, config.modes, axes)
        + linear(config.channels, config.feed_forward)
        + linear(config.feed_forward, config.outputs)
}

/// Bytes of the program itself with its threads, their workspaces and what the command's allocator does not give back.
const PROCESS: u64 = 60 << 20;

fn part(name: impl Into<String>, flops: usize, kept: usize) -> Component {
    Component { name: name.into(), parameters: 0, flops: flops as u64, kept: kept as u64 }
}

fn transformer_1d(config: &Transformer1dConfig, n: usize) -> Result<Vec<Component>> {
    let d = config.encoder.attention.features;
    let mut parts = vec![part("feat_extract", 2 * n * config.inputs * d, n * (config.inputs + d))];
    parts.extend(encoder_layers(&config.encoder, config.layers, n)?);
    parts.push(spectral_decoder(&config.decoder, &[n]));
    Ok(parts)
}

fn transformer_2d(config: &Transformer2dConfig, input: [usize; 2]) -> Result<Vec<Component>> {
    let through = config.resampling.through(input)?;
    let points = |[n1, n2]: [usize; 2]| n1 * n2;
    let fine = points(input);
    let [down, up] = [through.down.map(points), through.up.map(points)];
    let d = config.encoder.attention.features;
    let DownsamplerConfig { inputs, .. } = config.downsampler;
    let third = d / 3;
    let (first, others) = (18 * inputs * d, 18 * (d * third + third * third + third * (d - 2 * third)));
    // The convolutions keep what goes in and what comes out before the activation; so does each resize. The upsampler has the gradient of its
    // convolution in the workspace on top.
    let mut parts = vec![part(
        "downscaler",
        fine * first + down[0] * others,
        fine * (inputs + d) + down[0] * 3 * d + down[1] * 2 * d,
    )];
    parts.extend(encoder_layers(&config.encoder, config.layers, down[1])?);
    parts.push(part("upscaler", up[0] * 18 * d * d, up[0] * 5 * d + up[1] * d));
    let output = [through.up[1][0], through.up[1][1]];
    parts.push(match &config.decoder {
        DecoderConfig::Spectral(decoder) => spectral_decoder(decoder, &output),
        DecoderConfig::Pointwise(decoder) => pointwise_decoder(decoder, up[1]),
    });
    Ok(parts)
}

fn fno(config: &FnoConfig, grid: &[usize]) -> Result<Vec<Component>> {
    let n: usize = grid.iter().product();
    let lift = config.lift(grid.len());
    let mut parts = vec![part("fc", 2 * n * lift.inputs * lift.outputs, n * (lift.inputs + lift.outputs))];
    for (i, convolution) in config.convolutions()?.enumerate() {
        let flops = spectral_convolution(&convolution, grid);
        parts.push(part(format!("spectral_conv.{i}"), flops, n * convolution.outputs));
    }
    let end = config.end();
    let flops = 2 * n * end.hidden * (end.inputs + end.outputs);
    parts.push(part("regressor", flops, n * end.outputs));
    Ok(parts)
}

fn encoder_layers(
    config: &EncoderLayerConfig,
    layers: usize,
    n: usize,
) -> Result<impl Iterator<Item = Component>> {
    let attention = config.attention;
    attention.check()?;
    let (d, heads, flops) = (attention.features, attention.heads, config.flops(n) as usize);
    let wide = d / heads + attention.coordinates;
    // The layer's input is the output of the one before; each keeps its own output and the moments of its attention.
    Ok((0..layers).map(move |i| part(format!("encoder_layers.{i}"), flops, n * d + heads * wide * wide)))
}

fn spectral_decoder(config: &SpectralDecoderConfig, grid: &[usize]) -> Component {
    let n: usize = grid.iter().product();
    let [mut flops, mut kept] = lift([config.inputs, config.coordinates, config.hidden], n);
    for convolution in config.convolutions().into_iter().flatten() {
        flops += spectral_convolution(&convolution, grid);
        kept += n * convolution.outputs;
    }
    flops += 2 * n * config.feed_forward * (config.channels + config.outputs);
    part("regressor", flops, kept + n * config.outputs)
}

/// Operations and kept values of the layer of a decoder that takes coordinates.
fn lift([inputs, coordinates, hidden]: [usize; 3], n: usize) -> [usize; 2] {
    let wide = inputs + coordinates;
    if coordinates == 0 { [0; 2] } else { [2 * n * wide * hidden, n * (wide + hidden)] }
}

fn pointwise_decoder(config: &PointwiseDecoderConfig, n: usize) -> Component {
    let [mut flops, mut kept] = lift([config.inputs, config.coordinates, config.hidden], n);
    flops += config.layers * 2 * n * config.hidden * config.hidden + 2 * n * config.hidden * config.outputs;
    kept += n * (3 * config.layers * config.hidden + config.outputs);
    part("regressor", flops, kept)
}

/// The truncated transforms as products with thin matrices, a complex matrix per mode, and the pointwise path.
fn spectral_convolution(config: &SpectralConvConfig, grid: &[usize]) -> usize {
    let (i, o, m) = (config.inputs, config.outputs, config.modes);
    let n: usize = grid.iter().product();
    let pointwise = 2 * n * i * o;
    match grid {
        // Both ways along one axis: real to m complex modes and back.
        [_] => 4 * n * m * (i + o) + 8 * m * i * o + pointwise,
        // Along the last axis as in 1D, then complex to complex along the first, to 2m rows of modes.
        _ => (4 * n * m + 16 * grid[0] * m * m) * (i + o) + 16 * m * m * i * o + pointwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::Builder;
    use crate::models::Preset;
    use burn::tensor::Device;

    #[test]
    fn components_count_every_parameter_once() {
        for preset in Preset::ALL {
            let config = preset.config();
            let model = config.init(&mut Builder::new(1, &Device::flex())).unwrap();
            let grid = vec![85; config.dimensions()];
            let components = model.components(&config, &grid).unwrap();
            let parameters: usize = components.iter().map(|c| c.parameters).sum();
            assert_eq!(parameters, model.num_params(), "{preset}");
            assert_eq!(config.parameters(), parameters as u64, "{preset}");
            assert!(components.iter().all(|c| c.parameters > 0 && c.flops > 0 && c.kept > 0), "{preset}");
            assert!(model.components(&config, &[85, 85, 85]).is_err());
        }
    }

    #[test]
    fn parameters_are_counted_for_every_norm_and_for_sizes_beyond_memory() {
        let mut config = Transformer1dConfig::burgers(AttentionKind::Softmax);
        (config.encoder.norm_after, config.encoder.attention.coordinates) = (true, 3);
        for norm in [HeadNorm::None, HeadNorm::Layer] {
            config.encoder.attention.norm = norm;
            let config = ModelConfig::Transformer1d(config);
            let model = config.init(&mut Builder::new(1, &Device::flex())).unwrap();
            assert_eq!(config.parameters(), model.num_params() as u64);
        }
        config.encoder.attention.heads = 0;
        let error = ModelConfig::Transformer1d(config).training_memory(1, &[64]).unwrap_err();
        assert!(error.to_string().contains("heads"), "{error}");
        let vast = FnoConfig { modes: usize::MAX, channels: usize::MAX, ..FnoConfig::darcy() };
        assert_eq!(ModelConfig::Fno2d(vast).parameters(), u64::MAX);
    }

    #[test]
    fn flops_of_an_encoder_layer_are_those_of_its_products() {
        // n = 10, d = 4, one head of 4 + 1, f = 8: Q, K, V; KᵀV and Q·A; projection; feed-forward network.
        let mut config = Transformer1dConfig::burgers(AttentionKind::Galerkin);
        (config.encoder.attention.features, config.encoder.hidden) = (4, 8);
        let products = 3 * (10 * 4 * 4) + 2 * (10 * 5 * 5) + 10 * 5 * 4 + 2 * (10 * 4 * 8);
        assert_eq!(config.encoder.flops(10), 2 * products);
        config.encoder.attention.kind = AttentionKind::Softmax;
        let products = 3 * (10 * 4 * 4) + 2 * (10 * 10 * 5) + 10 * 5 * 4 + 2 * (10 * 4 * 8);
        assert_eq!(config.encoder.flops(10), 2 * products);
    }

    #[test]
    fn encoder_layers_keep_of_their_points_what_is_not_too_much() {
        let mut encoder = Transformer1dConfig::burgers(AttentionKind::Galerkin).encoder;
        // K̂ and V̂ with one r each, x₁ and the hidden layer.
        assert_eq!(encoder.kept(8, 2048), 8 * 2048 * (2 * 97 + 96 + 192));
        assert_eq!(encoder.kept(4, 8192), 0, "two times as many values");
        encoder.attention.kind = AttentionKind::Softmax;
        assert_eq!(encoder.kept(8, 2048), 0);
        let config = Preset::Burgers.config();
        let [small, large] =
            [(8, 2048), (4, 8192)].map(|(batch, n)| config.training_memory(batch, &[n]).unwrap());
        assert!(small > large, "{small} bytes on 8 times 2048 points, {large} on 4 times 8192");
    }

    #[test]
    fn stages_and_weights_can_be_looked_at() {
        let device = Device::flex();
        let mut config = Transformer2dConfig::darcy(AttentionKind::Fourier, 29, 10);
        config.layers = 2;
        let model = ModelConfig::Transformer2d(config).init(&mut Builder::new(1, &device)).unwrap();
        let x = Field::Square(Tensor::ones([2, 29, 29, 1], &device));
        let names: Vec<String> =
            model.latents(x.clone()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["downscaler", "encoder_layers.0", "encoder_layers.1", "upscaler", "regressor"]);
        assert_eq!(model.attention_weights(x.clone(), 1).unwrap().dims(), [2, 4, 100, 100]);
        // Four heads of 128/4 features and two coordinates.
        for matrix in model.projections(x.clone(), 1).unwrap() {
            assert_eq!(matrix.dims(), [2, 4, 100, 34]);
        }
        let beyond = model.attention_weights(x, 2).unwrap_err();
        assert_eq!(beyond.to_string(), "encoder layer 2: layers are 0 to 1");
        let line = Field::Line(Tensor::ones([2, 29, 1], &device));
        assert!(matches!(model.attention_weights(line.clone(), 0).unwrap_err(), Error::Shape { .. }));
        assert!(matches!(model.projections(line.clone(), 0).unwrap_err(), Error::Shape { .. }));
        let operator = ModelConfig::Fno1d(FnoConfig::burgers()).init(&mut Builder::new(1, &device)).unwrap();
        let none = operator.projections(line.clone(), 0).unwrap_err();
        assert_eq!(none.to_string(), "attention of a Fourier operator: it has none");
        let wrong = model.forward(line, Mode::Evaluate).unwrap_err();
        assert_eq!(wrong.to_string(), "input: expected shape (B, n₁, n₂, channels), found [2, 29, 1]");
    }
}
