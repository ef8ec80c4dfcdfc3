//! The multilevel network: a V-cycle of convolutions, with attention where a level has few points.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{Boundary, Decoder, DecoderConfig, Observer, OutputGrid, PointwiseConfig};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, AttentionConfig, AttentionKind, EncoderLayer, EncoderLayerConfig, GridConv, GridConvConfig,
    HeadNorm, Mode, PointwiseDecoderConfig, check_rates, check_sizes, coordinates, resized,
};
use crate::ops::AttentionInput;
use crate::reference::{Entry, ReferenceNames};
use crate::settings::settings;

settings! {
    /// From level to level, each with half of the intervals, to the coarsest grid and back, then the decoder.
    ///
    /// Level l on either way: a convolution to its channels, from the inputs on the first and from what the level before gave, resized, on the others;
    /// on the way up, what the level had on the way down is added; convolutions y = x + act(conv(x)); encoder layers.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct MultilevelConfig {
        /// values per point of an input
        pub inputs: usize,
        /// values per point of an output
        pub outputs: usize,
        /// whether each axis of the grid is periodic
        pub periodic: Vec<bool>,
        /// input: on the grid of the input | { resized = { from = [..], to = [..] } }: on another, in this ratio
        #[serde(default)]
        pub output: OutputGrid,
        /// points along each axis of the grid that it computes on, which inputs of other grids are brought to; []: that of the input
        #[serde(default)]
        pub native: Vec<usize>,
        /// free | zero: outputs on the ends of closed axes are set to zero
        pub boundary: Boundary,
        /// features of a point on every level, the finest first; each next level has half of the intervals
        pub channels: Vec<usize>,
        /// convolutions with residual on every level, on each of its ways; the coarsest has one way
        pub convolutions: usize,
        /// encoder layers on every level, on each of its ways; the coarsest has one way
        pub encoder_layers: Vec<usize>,
        /// whether points know where they are: coordinates as inputs and in the heads of the attention
        pub coordinates: bool,
        /// of the convolutions: none | relu | silu | gelu
        pub activation: Activation,
        /// dropout rate of the convolutions, before their activation
        #[serde(default)]
        pub dropout: f64,
        /// the encoder layers
        pub encoder: LevelEncoderConfig,
        /// from features to outputs
        pub decoder: DecoderConfig,
    }
}

settings! {
    /// The encoder layers of all levels.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct LevelEncoderConfig {
        /// galerkin | fourier | linear | softmax
        pub attention: AttentionKind,
        /// heads of the attention; they divide the width
        pub heads: usize,
        /// features inside the feed-forward network for every feature of a point
        pub expansion: usize,
        /// of the feed-forward network: none | relu | silu | gelu
        pub activation: Activation,
        /// layer: norm inside the heads over features, the paper's scheme | instance: over points | none
        pub head_norm: HeadNorm,
        /// whether a layer norm follows each residual
        pub residual_norm: bool,
        /// epsilon of the norms
        pub eps: f64,
        /// eta, gain of the initial projections; 0: like other layers
        pub gain: f64,
        /// delta, added to the diagonal of the initial projections
        pub diagonal: f64,
        /// dropout rate on the attention weights
        pub attention_dropout: f64,
        /// dropout rate before the residuals
        pub residual_dropout: f64,
        /// dropout rate inside the feed-forward network
        pub hidden_dropout: f64,
    }
}

/// See [`MultilevelConfig`].
#[derive(Module, Debug)]
pub struct Multilevel {
    /// The way down, the finest level first.
    pub down: Vec<Stage>,
    /// The way up, the finest level first; the coarsest has none.
    pub up: Vec<Stage>,
    /// The decoder.
    pub decoder: Decoder,
}

/// A level on one of its ways.
#[derive(Module, Debug)]
pub struct Stage {
    /// To the level's channels.
    pub enter: GridConv,
    /// With residual.
    pub convolutions: Vec<GridConv>,
    /// The encoder layers.
    pub encoder: Vec<EncoderLayer>,
}

/// What a stage is made of.
#[derive(Clone, Debug)]
pub(crate) struct StageConfig {
    /// As the weights' names begin.
    pub name: String,
    /// Its level, 0 the finest.
    pub level: usize,
    /// Whether it is on the way up.
    pub up: bool,
    pub enter: GridConvConfig,
    pub convolutions: Vec<GridConvConfig>,
    pub encoder: Vec<EncoderLayerConfig>,
}

/// Variance two of what is left of a value after ReLU or its like is one: He et al.
const HE: f64 = std::f64::consts::SQRT_2;
/// What goes past a residual is small beside it.
const RESIDUAL: f64 = 0.5;

impl MultilevelConfig {
    /// Every part as its own config makes it.
    pub(super) fn init(&self, builder: &mut Builder) -> Result<Multilevel> {
        self.check()?;
        let mut ways = [Vec::new(), Vec::new()];
        for stage in self.stages() {
            ways[usize::from(stage.up)].push(stage.init(builder)?);
        }
        let [down, mut up] = ways;
        up.reverse();
        let decoder = match &self.decoder {
            DecoderConfig::Spectral(config) => {
                Decoder::Spectral(config.decoder(self.axes(), self.channels[0], self.outputs).init(builder)?)
            }
            DecoderConfig::Pointwise(config) => {
                Decoder::Pointwise(self.pointwise_decoder(config).init(builder)?)
            }
        };
        Ok(Multilevel { down, up, decoder })
    }

    /// `Ok` if its numbers have a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        let axes = self.axes();
        if axes > 2 {
            let why =
                format!("it is for grids of 1 and 2 axes, not of {axes}; take \"fno\" or \"transformer\"");
            return Err(Error::setting("network.kind = \"multilevel\"", why));
        }
        if self.output == OutputGrid::Coarse {
            let why = "a multilevel network ends on its finest grid; take \"input\" or { resized = .. }";
            return Err(Error::setting("network.output = \"coarse\"", why));
        }
        let levels = self.channels.len();
        // Each level halves the grid: with more there would be no grid of sizes that anybody means.
        if !(1..=16).contains(&levels) {
            let what = format!("network.channels of {levels} levels");
            return Err(Error::setting(what, "there are 1 to 16"));
        }
        if self.encoder_layers.len() != levels {
            let what = format!("network.encoder_layers = {:?}", self.encoder_layers);
            let why = format!("a number is needed for each of the {levels} levels that network.channels has");
            return Err(Error::setting(what, why));
        }
        for channels in &self.channels {
            check_sizes("network", &[("channels", *channels)])?;
        }
        check_sizes("network", &[("convolutions", self.convolutions.max(1))])?;
        for layers in &self.encoder_layers {
            check_sizes("network", &[("encoder_layers", (*layers).max(1))])?;
        }
        check_rates("network", &[self.dropout])?;
        check_sizes("network.encoder", &[("expansion", self.encoder.expansion)])?;
        // A config without encoder layers has these too, and a weight file has no word for a number that is none.
        self.layer(0).check_numbers()?;
        for level in (0..levels).filter(|level| self.encoder_layers[*level] > 0) {
            let layer = self.layer(level);
            check_sizes("network.encoder", &[("features times expansion", layer.hidden)])?;
            layer.check()?;
        }
        match &self.decoder {
            DecoderConfig::Spectral(config) => config.check(),
            DecoderConfig::Pointwise(config) => config.check(),
        }
    }

    pub(crate) fn axes(&self) -> usize {
        self.periodic.len()
    }

    /// The grids of all levels for an input on `grid`: every second point, of an axis with an even number of intervals, and as many points otherwise.
    pub fn grids(&self, grid: &[usize]) -> Vec<Vec<usize>> {
        let halved = |grid: &Vec<usize>| Some(grid.iter().map(|n| n.div_ceil(2)).collect());
        std::iter::successors(Some(grid.to_vec()), halved).take(self.channels.len()).collect()
    }

    /// `Ok` if every level has fewer points along every axis than the one above it, and more than one.
    pub(super) fn check_grid(&self, grid: &[usize]) -> Result<()> {
        let levels = self.channels.len();
        // One halving more than two points is one point.
        let least = if levels == 1 { 1 } else { (1usize << (levels - 1)) + 1 };
        match grid.iter().all(|n| *n >= least) {
            true => Ok(()),
            false => {
                let what = format!("{levels} levels on a grid of {grid:?} points");
                let why = format!("they need {least} along every axis; name fewer network.channels");
                Err(Error::setting(what, why))
            }
        }
    }

    /// The stages in the order of the V.
    pub(crate) fn stages(&self) -> impl Iterator<Item = StageConfig> {
        let levels = self.channels.len();
        let down = (0..levels).map(|level| self.stage(level, false));
        down.chain((0..levels.saturating_sub(1)).rev().map(|level| self.stage(level, true)))
    }

    fn stage(&self, level: usize, up: bool) -> StageConfig {
        let channels = self.channels[level];
        let inputs = match (up, level) {
            (true, _) => self.channels[level + 1],
            (false, 0) => self.inputs.saturating_add(self.coordinate_columns()),
            (false, _) => self.channels[level - 1],
        };
        let convolution =
            |inputs, gain| GridConvConfig { axes: self.axes(), inputs, outputs: channels, gain };
        StageConfig {
            name: format!("{}.{level}", if up { "up" } else { "down" }),
            level,
            up,
            enter: convolution(inputs, 1.0),
            convolutions: vec![convolution(channels, HE * RESIDUAL); self.convolutions],
            encoder: vec![self.layer(level); self.encoder_layers[level]],
        }
    }

    fn coordinate_columns(&self) -> usize {
        if self.coordinates { self.axes() } else { 0 }
    }

    /// The encoder layers of a level.
    fn layer(&self, level: usize) -> EncoderLayerConfig {
        let (e, width) = (&self.encoder, self.channels[level]);
        EncoderLayerConfig {
            attention: AttentionConfig {
                kind: e.attention,
                features: width,
                heads: e.heads,
                coordinates: self.coordinate_columns(),
                norm: e.head_norm,
                eps: e.eps,
                dropout: e.attention_dropout,
                gain: e.gain,
                diagonal: e.diagonal,
            },
            hidden: e.expansion.saturating_mul(width),
            activation: e.activation,
            norm_after: e.residual_norm,
            eps: e.eps,
            minus: false,
            residual_dropout: e.residual_dropout,
            hidden_dropout: e.hidden_dropout,
        }
    }

    pub(crate) fn pointwise_decoder(&self, config: &PointwiseConfig) -> PointwiseDecoderConfig {
        config.decoder(self.axes(), self.channels[0], self.outputs)
    }

    fn coordinates(&self, batch: usize, grid: &[usize], device: &Device) -> Option<Tensor<3>> {
        self.coordinates.then(|| coordinates(batch, grid, &self.periodic, device))
    }
}

impl StageConfig {
    fn init(&self, builder: &mut Builder) -> Result<Stage> {
        Ok(Stage {
            enter: self.enter.init(builder)?,
            convolutions: self.convolutions.iter().map(|conv| conv.init(builder)).collect::<Result<_>>()?,
            encoder: self.encoder.iter().map(|layer| layer.init(builder)).collect::<Result<_>>()?,
        })
    }
}

impl Multilevel {
    /// Of x (B, points of `grid`, inputs). Neither normaliser nor boundary are applied.
    pub(super) fn forward(
        &self,
        config: &MultilevelConfig,
        x: Tensor<3>,
        grid: &[usize],
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        config.check_grid(grid)?;
        let ([batch, ..], device) = (x.dims(), x.device());
        let (grids, periodic) = (config.grids(grid), &config.periodic);
        let places: Vec<_> = grids.iter().map(|grid| config.coordinates(batch, grid, &device)).collect();
        let mut x = match &places[0] {
            Some(at) => Tensor::cat(vec![x, at.clone()], 2),
            None => x,
        };
        let mut skips = Vec::new();
        for (level, stage) in self.down.iter().enumerate() {
            let fine = &grids[level.saturating_sub(1)];
            x = resized(x, fine, &grids[level], periodic)?;
            x = stage.enter(config, x, &grids[level], mode)?;
            x = stage.forward(config, x, &grids[level], &places[level], mode)?;
            observe(&format!("down.{level}"), &x, &grids[level]);
            skips.push(x.clone());
        }
        for (level, stage) in self.up.iter().enumerate().rev() {
            let coarse = &grids[level + 1];
            x = stage.enter(config, x, coarse, mode)?;
            x = resized(x, coarse, &grids[level], periodic)? + skips[level].clone();
            x = stage.forward(config, x, &grids[level], &places[level], mode)?;
            observe(&format!("up.{level}"), &x, &grids[level]);
        }
        let output = config.output.points(grid, periodic);
        let x = resized(x, grid, &output, periodic)?;
        let at = Some(coordinates(batch, &output, periodic, &device));
        match (&self.decoder, &config.decoder) {
            (Decoder::Spectral(decoder), DecoderConfig::Spectral(spectral)) => {
                let padding = spectral.padding(&output, periodic);
                decoder.forward(x, at, &output, &padding, mode, &mut |name, x| {
                    observe(&format!("regressor.{name}"), x, &spectral.wide(&output, &padding, name))
                })
            }
            (Decoder::Spectral(_), _) => Err(Error::setting("network.decoder", "it is not the network's")),
            (Decoder::Pointwise(decoder), _) => decoder.forward(x, at, mode),
        }
    }
}

impl Stage {
    /// To the level's channels, on the coarser of its grid and that of the level before.
    fn enter(
        &self,
        config: &MultilevelConfig,
        x: Tensor<3>,
        grid: &[usize],
        mode: Mode,
    ) -> Result<Tensor<3>> {
        self.enter.forward(x, grid, &config.periodic, Activation::None, 0.0, mode)
    }

    fn forward(
        &self,
        config: &MultilevelConfig,
        mut x: Tensor<3>,
        grid: &[usize],
        at: &Option<Tensor<3>>,
        mode: Mode,
    ) -> Result<Tensor<3>> {
        for conv in &self.convolutions {
            let more =
                conv.forward(x.clone(), grid, &config.periodic, config.activation, config.dropout, mode)?;
            x = x + more;
        }
        for layer in &self.encoder {
            x = layer.forward(AttentionInput { x, coordinates: at.clone(), weights: None }, mode)?;
        }
        Ok(x)
    }
}

impl ReferenceNames for Multilevel {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (way, stages) in [("down", &self.down), ("up", &self.up)] {
            for (level, stage) in stages.iter().enumerate() {
                entries.extend(stage.entries(&format!("{prefix}{way}.{level}.")));
            }
        }
        entries.extend(self.decoder.entries(&format!("{prefix}regressor.")));
        entries
    }
}

impl ReferenceNames for Stage {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let mut entries = self.enter.entries(&format!("{prefix}enter."));
        for (i, conv) in self.convolutions.iter().enumerate() {
            entries.extend(conv.entries(&format!("{prefix}conv.{i}.")));
        }
        for (i, layer) in self.encoder.iter().enumerate() {
            entries.extend(layer.entries(&format!("{prefix}encoder.{i}.")));
        }
        entries
    }
}
