//! What networks cost: parameters, operations and memory of their parts, counted from the config alone.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::error::{Error, Result};
use crate::layers::{
    AttentionKind, EncoderLayerConfig, GridConvConfig, HeadNorm, PointwiseDecoderConfig, SpectralConvConfig,
    SpectralDecoderConfig,
};
use crate::networks::{
    DecoderConfig, FnoConfig, InterpolationConfig, LiftConfig, MultilevelConfig, Network, NetworkConfig,
    OutputGrid, StageConfig, TransformerConfig, wrong_shape,
};
use crate::reference::ReferenceNames;

/// A part of a network and what it costs on a grid.
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

impl Network {
    /// Its parts and what they cost for an input on `grid`.
    pub fn components(&self, grid: &[usize]) -> Result<Vec<Component>> {
        let mut components = self.config().costs(grid)?;
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

impl NetworkConfig {
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
        let grid = self.inner_grid(grid);
        let in_encoder = match self {
            NetworkConfig::Transformer(config) => {
                let [coarse, _] = config.grids(grid)?;
                config.encoder.layers * config.layer().kept(batch, coarse.iter().product())
            }
            NetworkConfig::Fno(_) => 0,
            NetworkConfig::Multilevel(config) => {
                let grids = config.grids(grid);
                let layers = config.stages().flat_map(|stage| {
                    let n = grids[stage.level].iter().product();
                    stage.encoder.into_iter().map(move |layer| layer.kept(batch, n))
                });
                layers.sum()
            }
        };
        let batch = (batch as u64).saturating_mul(kept + widest);
        let values =
            batch.saturating_add(in_encoder as u64).saturating_add(self.parameters().saturating_mul(5));
        Ok(values.saturating_mul(4).saturating_add(PROCESS))
    }

    /// Trained numbers, counted without building the network: a config from a file may ask for more than memory holds.
    pub fn parameters(&self) -> u64 {
        // Exact below 2⁵³, and sizes that make no sense do not overflow.
        let count = match self {
            NetworkConfig::Transformer(c) => {
                let d = c.encoder.width;
                let convolution = |i: usize, o: usize| 9.0 * i as f64 * o as f64;
                let lift = match &c.lift {
                    LiftConfig::Pointwise(_) => {
                        let lift = c.pointwise_lift();
                        linear(lift.inputs, lift.outputs)
                    }
                    LiftConfig::Interpolation(_) => {
                        let third = d / 3;
                        convolution(c.inputs, d)
                            + convolution(d, third)
                            + convolution(third, third)
                            + convolution(third, d - 2 * third)
                            + convolution(d, d)
                    }
                };
                let decoder = match &c.decoder {
                    DecoderConfig::Spectral(spectral) => {
                        spectral_parameters(&spectral.decoder(c.axes(), d, c.outputs))
                    }
                    DecoderConfig::Pointwise(config) => pointwise_parameters(&c.pointwise_decoder(config)),
                };
                lift + c.encoder.layers as f64 * encoder_parameters(&c.layer()) + decoder
            }
            NetworkConfig::Fno(c) => spectral_parameters(&c.decoder()),
            // A file may hold a config that was never checked.
            NetworkConfig::Multilevel(c) if c.check().is_err() => 0.0,
            NetworkConfig::Multilevel(c) => {
                let decoder = match &c.decoder {
                    DecoderConfig::Spectral(spectral) => {
                        spectral_parameters(&spectral.decoder(c.axes(), c.channels[0], c.outputs))
                    }
                    DecoderConfig::Pointwise(config) => pointwise_parameters(&c.pointwise_decoder(config)),
                };
                c.stages().map(|stage| stage_parameters(&stage)).sum::<f64>() + decoder
            }
        };
        count as u64
    }

    /// The parts, without their parameters.
    fn costs(&self, grid: &[usize]) -> Result<Vec<Component>> {
        if grid.len() != self.axes() {
            return Err(wrong_shape(self.axes(), grid));
        }
        // Means and interpolation before and behind are no products.
        let grid = self.inner_grid(grid);
        match self {
            NetworkConfig::Transformer(config) => transformer(config, grid),
            NetworkConfig::Fno(config) => fno(config, grid),
            NetworkConfig::Multilevel(config) => multilevel(config, grid),
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

fn spectral_parameters(config: &SpectralDecoderConfig) -> f64 {
    let axes = config.axes as i32;
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

/// A complex matrix per kept mode, of either sign along every axis but the last, and the pointwise path.
fn convolution_parameters(inputs: usize, outputs: usize, modes: usize, axes: i32) -> f64 {
    let matrices = 2f64.powi(axes) * (modes as f64).powi(axes);
    matrices * inputs as f64 * outputs as f64 + linear(inputs, outputs)
}

fn pointwise_parameters(config: &PointwiseDecoderConfig) -> f64 {
    lift_parameters(config.inputs, config.coordinates, config.hidden)
        + config.layers as f64 * linear(config.hidden, config.hidden)
        + linear(config.hidden, config.outputs)
}

fn stage_parameters(stage: &StageConfig) -> f64 {
    let convolution = |c: &GridConvConfig| (c.taps() as f64 * c.inputs as f64 + 1.0) * c.outputs as f64;
    convolution(&stage.enter)
        + stage.convolutions.iter().map(convolution).sum::<f64>()
        + stage.encoder.iter().map(encoder_parameters).sum::<f64>()
}

/// Bytes of the program itself with its threads, their workspaces and what the command's allocator does not give back.
const PROCESS: u64 = 60 << 20;

fn part(name: impl Into<String>, flops: usize, kept: usize) -> Component {
    Component { name: name.into(), parameters: 0, flops: flops as u64, kept: kept as u64 }
}

fn transformer(config: &TransformerConfig, grid: &[usize]) -> Result<Vec<Component>> {
    let [coarse, output] = config.grids(grid)?;
    let points = |grid: &[usize]| grid.iter().product::<usize>();
    let d = config.encoder.width;
    let (down, up) = match (&config.lift, grid) {
        (LiftConfig::Interpolation(lift), &[n1, n2]) => {
            let [down, up] = interpolation(config, lift, [n1, n2])?;
            (down, Some(up))
        }
        _ => {
            let (n, lift) = (points(grid), config.pointwise_lift());
            let kept = n * (lift.inputs + d);
            (part("feat_extract", 2 * n * lift.inputs * d, kept), None)
        }
    };
    let mut parts = vec![down];
    parts.extend(encoder_layers(&config.layer(), config.encoder.layers, points(&coarse))?);
    parts.extend(up);
    parts.push(match &config.decoder {
        DecoderConfig::Spectral(spectral) => {
            spectral_decoder(&spectral.decoder(config.axes(), d, config.outputs), &output)
        }
        DecoderConfig::Pointwise(pointwise) => {
            pointwise_decoder(&config.pointwise_decoder(pointwise), points(&output))
        }
    });
    Ok(parts)
}

/// The two ways of an interpolation network. The convolutions keep what goes in and what comes out before the activation; so does each resize.
/// The upsampler has the gradient of its convolution in the workspace on top.
fn interpolation(
    config: &TransformerConfig,
    lift: &InterpolationConfig,
    input: [usize; 2],
) -> Result<[Component; 2]> {
    let sizes = lift.sizes(input, config.output == OutputGrid::Coarse)?;
    let points = |[n1, n2]: [usize; 2]| n1 * n2;
    let (fine, [down, up]) = (points(input), [sizes.down.map(points), sizes.up.map(points)]);
    let (inputs, d, third) = (config.inputs, config.encoder.width, config.encoder.width / 3);
    let (first, others) = (18 * inputs * d, 18 * (d * third + third * third + third * (d - 2 * third)));
    let kept = fine * (inputs + d) + down[0] * 3 * d + down[1] * 2 * d;
    Ok([
        part("downscaler", fine * first + down[0] * others, kept),
        part("upscaler", up[0] * 18 * d * d, up[0] * 5 * d + up[1] * d),
    ])
}

fn fno(config: &FnoConfig, grid: &[usize]) -> Result<Vec<Component>> {
    let (n, decoder) = (grid.iter().product::<usize>(), config.decoder());
    let wide = decoder.inputs + decoder.coordinates;
    let mut parts = Vec::new();
    if decoder.coordinates > 0 {
        parts.push(part("fc", 2 * n * wide * decoder.hidden, n * (wide + decoder.hidden)));
    }
    for (i, convolution) in decoder.convolutions()?.enumerate() {
        let flops = spectral_convolution(&convolution, grid);
        parts.push(part(format!("spectral_conv.{i}"), flops, n * convolution.outputs));
    }
    let end = decoder.end();
    let flops = 2 * n * end.hidden * (end.inputs + end.outputs);
    parts.push(part("regressor", flops, n * end.outputs));
    Ok(parts)
}

/// A convolution keeps what it takes, what it gives before the activation and, with residual, the sum.
fn multilevel(config: &MultilevelConfig, grid: &[usize]) -> Result<Vec<Component>> {
    let grids = config.grids(grid);
    let points = |grid: &[usize]| grid.iter().product::<usize>();
    let mut parts = Vec::new();
    for stage in config.stages() {
        let n = points(&grids[stage.level]);
        let flops = |c: &GridConvConfig| 2 * n * c.taps() * c.inputs * c.outputs;
        let enter = &stage.enter;
        let joined = if config.axes() == 1 { 3 } else { 1 };
        let kept = |c: &GridConvConfig| n * (joined * c.inputs + 2 * c.outputs);
        let mut component = part(
            &stage.name,
            flops(enter) + stage.convolutions.iter().map(flops).sum::<usize>(),
            kept(enter) + stage.convolutions.iter().map(kept).sum::<usize>(),
        );
        for layer in &stage.encoder {
            for part in encoder_layers(layer, 1, n)? {
                component.flops += part.flops;
                component.kept += part.kept;
            }
        }
        parts.push(component);
    }
    let output = config.output.points(grid, &config.periodic);
    parts.push(match &config.decoder {
        DecoderConfig::Spectral(spectral) => {
            spectral_decoder(&spectral.decoder(config.axes(), config.channels[0], config.outputs), &output)
        }
        DecoderConfig::Pointwise(pointwise) => {
            pointwise_decoder(&config.pointwise_decoder(pointwise), points(&output))
        }
    });
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
    // Both ways along the last axis: real to m complex modes and back. Then complex to complex, to 2m modes, along the axis before, and so on.
    let (mut along, mut modes) = (4 * n * m, m);
    for axis in (0..grid.len() - 1).rev() {
        let lines: usize = grid[..axis].iter().product();
        along += 16 * lines * grid[axis] * m * modes;
        modes *= 2 * m;
    }
    along * (i + o) + 8 * modes * i * o + pointwise
}

/// Bytes that can still be had; `None` where the system does not say.
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use burn::tensor::Device;

    fn transformer() -> TransformerConfig {
        match presets::get("burgers").unwrap().network {
            NetworkConfig::Transformer(config) => config,
            _ => panic!("a transformer"),
        }
    }

    #[test]
    fn components_count_every_parameter_once() {
        for name in presets::names() {
            let config = presets::get(name).unwrap().network;
            let network = config.init(1, &Device::flex()).unwrap();
            let components = network.components(&vec![85; config.axes()]).unwrap();
            let parameters: usize = components.iter().map(|c| c.parameters).sum();
            assert_eq!(parameters, network.num_params(), "{name}");
            assert_eq!(config.parameters(), parameters as u64, "{name}");
            assert!(components.iter().all(|c| c.parameters > 0 && c.flops > 0 && c.kept > 0), "{name}");
            assert!(network.components(&[85, 85, 85]).is_err());
        }
    }

    #[test]
    fn parameters_are_counted_for_every_norm_every_grid_and_for_sizes_beyond_memory() {
        let mut config = transformer();
        config.encoder.attention = AttentionKind::Softmax;
        config.encoder.residual_norm = true;
        for (norm, axes) in [(HeadNorm::None, 1), (HeadNorm::Layer, 2), (HeadNorm::Layer, 3)] {
            (config.encoder.head_norm, config.periodic) = (norm, vec![true; axes]);
            if let DecoderConfig::Spectral(spectral) = &mut config.decoder {
                (spectral.modes, spectral.coordinates) = (3, axes == 3);
            }
            let config = NetworkConfig::Transformer(config.clone());
            let network = config.init(1, &Device::flex()).unwrap();
            assert_eq!(config.parameters(), network.num_params() as u64);
        }
        config.encoder.heads = 0;
        let error = NetworkConfig::Transformer(config).training_memory(1, &[8, 8, 8]).unwrap_err();
        assert!(error.to_string().contains("heads"), "{error}");
        let NetworkConfig::Fno(mut vast) = presets::get("fno-darcy").unwrap().network else { panic!() };
        (vast.spectral.modes, vast.spectral.channels) = (usize::MAX, usize::MAX);
        assert_eq!(NetworkConfig::Fno(vast).parameters(), u64::MAX);
    }

    #[test]
    fn flops_of_an_encoder_layer_are_those_of_its_products() {
        // n = 10, d = 4, one head of 4 + 1, f = 8: Q, K, V; KᵀV and Q·A; projection; feed-forward network.
        let mut layer = transformer().layer();
        (layer.attention.features, layer.hidden) = (4, 8);
        let products = 3 * (10 * 4 * 4) + 2 * (10 * 5 * 5) + 10 * 5 * 4 + 2 * (10 * 4 * 8);
        assert_eq!(layer.flops(10), 2 * products);
        layer.attention.kind = AttentionKind::Softmax;
        let products = 3 * (10 * 4 * 4) + 2 * (10 * 10 * 5) + 10 * 5 * 4 + 2 * (10 * 4 * 8);
        assert_eq!(layer.flops(10), 2 * products);
    }

    #[test]
    fn encoder_layers_keep_of_their_points_what_is_not_too_much() {
        let mut layer = transformer().layer();
        // K̂ and V̂ with one r each, x₁ and the hidden layer.
        assert_eq!(layer.kept(8, 2048), 8 * 2048 * (2 * 97 + 96 + 192));
        assert_eq!(layer.kept(4, 8192), 0, "two times as many values");
        layer.attention.kind = AttentionKind::Softmax;
        assert_eq!(layer.kept(8, 2048), 0);
        let config = NetworkConfig::Transformer(transformer());
        let [small, large] =
            [(8, 2048), (4, 8192)].map(|(batch, n)| config.training_memory(batch, &[n]).unwrap());
        assert!(small > large, "{small} bytes on 8 times 2048 points, {large} on 4 times 8192");
    }
}
