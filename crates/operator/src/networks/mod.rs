//! Networks: one [`Network`], made from one serialisable [`NetworkConfig`], which is `[network]` of a run's config and lies in its weight file.

mod fno;
mod legacy;
mod lift;
mod multilevel;
mod transformer;

pub use fno::FnoConfig;
pub(crate) use legacy::parse as parse_config;
pub(crate) use lift::resized_points;
pub use lift::{InterpolationConfig, LiftConfig, PointwiseLiftConfig, ResampledSizes};
pub(crate) use multilevel::StageConfig;
pub use multilevel::{LevelEncoderConfig, Multilevel, MultilevelConfig, Stage};
pub use transformer::{
    Coordinates, Decoder, DecoderConfig, EncoderConfig, Lift, PointwiseConfig, Transformer, TransformerConfig,
};

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::init::Builder;
use crate::layers::{
    Activation, Mode, SpectralDecoder, SpectralDecoderConfig, SpectralLaw, TargetNormalizer, check_rates,
    check_sizes, coordinates, local_means, resized,
};
use crate::ops::AttentionInput;
use crate::reference::{Entry, ReferenceNames};
use crate::settings::settings;

/// Everything that decides what a network computes, but its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkConfig {
    /// The transformer.
    Transformer(TransformerConfig),
    /// The Fourier neural operator.
    Fno(FnoConfig),
    /// The multilevel network.
    Multilevel(MultilevelConfig),
}

settings! {
    /// Spectral convolutions and a two-layer network behind them.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SpectralConfig {
        /// spectral convolutions
        pub layers: usize,
        /// channels of the convolutions
        pub channels: usize,
        /// modes that the convolutions keep along every axis
        pub modes: usize,
        /// width of the two-layer network at the end
        pub feed_forward: usize,
        /// of convolutions and network: none | relu | silu | gelu
        pub activation: Activation,
        /// whether the last convolution has the activation too
        pub last_activation: bool,
        /// whether a layer before the convolutions takes the coordinates of the points
        pub coordinates: bool,
        /// initial spectral weights: normal | uniform, as Li et al. have them
        pub law: SpectralLaw,
        /// zeros behind closed axes while the convolutions, which take them for periodic, are at work: a share of the points
        pub padding: f64,
        /// dropout rate on the input of the convolutions
        pub dropout: f64,
    }
}

/// The grid of an output, for an input on any grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputGrid {
    /// That of the input.
    #[default]
    Input,
    /// That of the encoder.
    Coarse,
    /// Another one; its intervals keep the ratio that these numbers of points along each axis have.
    Resized(Resizing),
}

/// Points along each axis of an input and of its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resizing {
    /// Of the input.
    pub from: Vec<usize>,
    /// Of the output.
    pub to: Vec<usize>,
}

/// What happens on the ends of closed axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// Nothing.
    Free,
    /// Outputs are set to zero there.
    Zero,
}

/// A network.
#[derive(Module, Debug)]
pub struct Network {
    body: Body,
    /// Of the targets; its inverse is applied to what the body gives.
    normalizer: Option<TargetNormalizer>,
    #[module(skip)]
    config: NetworkConfig,
}

/// What differs between kinds of networks.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a program holds one or two, and its parameters dwarf it")]
enum Body {
    Transformer(Transformer),
    Fno(SpectralDecoder),
    Multilevel(Multilevel),
}

/// Called with the name of every stage of a network, as the reference names its modules, with the stage's output (B, points, features) and the
/// points along each axis of its grid.
pub type Observer<'a> = &'a mut dyn FnMut(&str, &Tensor<3>, &[usize]);

impl NetworkConfig {
    /// The network with initial weights, which are a function of the seed. On a device with autodiff its parameters are tracked.
    pub fn init(&self, seed: u64, device: &Device) -> Result<Network> {
        self.check()?;
        let builder = &mut Builder::new(seed, device);
        let body = match self {
            NetworkConfig::Transformer(config) => Body::Transformer(config.init(builder)?),
            NetworkConfig::Fno(config) => Body::Fno(config.decoder().init(builder)?),
            NetworkConfig::Multilevel(config) => Body::Multilevel(config.init(builder)?),
        };
        Ok(Network { body, normalizer: None, config: self.clone() })
    }

    /// `Ok` if every number has a meaning: the network can be built.
    pub fn check(&self) -> Result<()> {
        self.check_body()?;
        self.check_native()
    }

    fn check_body(&self) -> Result<()> {
        let [inputs, outputs] = self.channels();
        check_sizes("network", &[("inputs", inputs), ("outputs", outputs)])?;
        let axes = self.axes();
        if !(1..=3).contains(&axes) {
            return Err(Error::setting(format!("network.periodic of {axes} axes"), "a grid has 1 to 3"));
        }
        if let OutputGrid::Resized(Resizing { from, to }) = self.output()
            && (from.len() != axes
                || to.len() != axes
                || from.iter().chain(to).any(|n| check_sizes("network.output", &[("points", *n)]).is_err()))
        {
            let what = format!("network.output from {from:?} to {to:?}");
            return Err(Error::setting(what, format!("points along each of the {axes} axes are needed")));
        }
        match self {
            NetworkConfig::Transformer(config) => config.check(),
            NetworkConfig::Fno(config) => {
                if config.output == OutputGrid::Coarse {
                    return Err(Error::setting("network.output = \"coarse\"", "an FNO has no coarse grid"));
                }
                config.spectral.check()
            }
            NetworkConfig::Multilevel(config) => config.check(),
        }
    }

    /// `Ok` if there is no native grid, or one that the network can compute on.
    fn check_native(&self) -> Result<()> {
        let native = self.native();
        if native.is_empty() {
            return Ok(());
        }
        let wrong = |why: String| Err(Error::setting(format!("network.native = {native:?}"), why));
        let way_out = "take the grid of the training, or [] for that of the input";
        if native.len() != self.axes() {
            return wrong(format!("the grid has {} axes; {way_out}", self.axes()));
        }
        if native.iter().any(|n| check_sizes("network.native", &[("points", *n)]).is_err()) {
            return wrong(format!("there are 1 to 65536 points along an axis; {way_out}"));
        }
        self.check_inner(native).or_else(|error| wrong(format!("{error}; or {way_out}")))
    }

    /// Axes of the grid.
    pub fn axes(&self) -> usize {
        self.periodic().len()
    }

    /// Which axes are periodic.
    pub fn periodic(&self) -> &[bool] {
        match self {
            NetworkConfig::Transformer(config) => &config.periodic,
            NetworkConfig::Fno(config) => &config.periodic,
            NetworkConfig::Multilevel(config) => &config.periodic,
        }
    }

    /// Values per point of the input and of the output.
    pub fn channels(&self) -> [usize; 2] {
        match self {
            NetworkConfig::Transformer(config) => [config.inputs, config.outputs],
            NetworkConfig::Fno(config) => [config.inputs, config.outputs],
            NetworkConfig::Multilevel(config) => [config.inputs, config.outputs],
        }
    }

    /// What happens on the ends of closed axes.
    pub fn boundary(&self) -> Boundary {
        match self {
            NetworkConfig::Transformer(config) => config.boundary,
            NetworkConfig::Fno(config) => config.boundary,
            NetworkConfig::Multilevel(config) => config.boundary,
        }
    }

    /// Points along each axis of the grid that it computes on; none: that of its input.
    pub fn native(&self) -> &[usize] {
        match self {
            NetworkConfig::Transformer(config) => &config.native,
            NetworkConfig::Fno(config) => &config.native,
            NetworkConfig::Multilevel(config) => &config.native,
        }
    }

    /// The same, to be changed.
    pub(crate) fn native_mut(&mut self) -> &mut Vec<usize> {
        match self {
            NetworkConfig::Transformer(config) => &mut config.native,
            NetworkConfig::Fno(config) => &mut config.native,
            NetworkConfig::Multilevel(config) => &mut config.native,
        }
    }

    /// Points along each axis of the grid that an input on `grid` is computed on.
    pub fn inner_grid<'a>(&'a self, grid: &'a [usize]) -> &'a [usize] {
        if self.native().is_empty() { grid } else { self.native() }
    }

    fn output(&self) -> &OutputGrid {
        match self {
            NetworkConfig::Transformer(config) => &config.output,
            NetworkConfig::Fno(config) => &config.output,
            NetworkConfig::Multilevel(config) => &config.output,
        }
    }

    /// Points along each axis of the output for an input on `grid`.
    pub fn output_grid(&self, grid: &[usize]) -> Result<Vec<usize>> {
        if grid.len() != self.axes() {
            return Err(wrong_shape(self.axes(), grid));
        }
        match self {
            // An output on another grid than the native one is not computed there, and asks for no coarse grid of its own.
            NetworkConfig::Transformer(config)
                if config.native.is_empty() || config.output == OutputGrid::Coarse =>
            {
                config.grids(grid).map(|[_, output]| output)
            }
            _ => Ok(self.output().points(grid, self.periodic())),
        }
    }

    /// `Ok` if inputs on this grid go through: it has the network's axes, and points enough for its modes; or points enough to be interpolated on
    /// the native grid.
    pub fn check_grid(&self, grid: &[usize]) -> Result<()> {
        self.output_grid(grid)?;
        let inner = self.inner_grid(grid);
        if let Some((n, m)) = grid.iter().zip(inner).find(|(n, m)| **n < 2 && n != m) {
            let what = format!("an input on {grid:?} points");
            let why = format!(
                "it is interpolated to {inner:?}, and an axis of {n} has nothing between its points to become {m}"
            );
            return Err(Error::setting(what, why));
        }
        self.check_inner(inner)
    }

    /// `Ok` if it can compute on this grid.
    fn check_inner(&self, grid: &[usize]) -> Result<()> {
        let output = self.output_grid(grid)?;
        if let NetworkConfig::Transformer(config) = self {
            config.grids(grid)?;
        }
        if let NetworkConfig::Multilevel(config) = self {
            config.check_grid(grid)?;
        }
        let (spectral, grid) = match self {
            NetworkConfig::Transformer(TransformerConfig { decoder, .. })
            | NetworkConfig::Multilevel(MultilevelConfig { decoder, .. }) => match decoder {
                DecoderConfig::Spectral(spectral) => (spectral, output),
                DecoderConfig::Pointwise(_) => return Ok(()),
            },
            NetworkConfig::Fno(config) => (&config.spectral, grid.to_vec()),
        };
        let padding = spectral.padding(&grid, self.periodic());
        let wide: Vec<usize> = grid.iter().zip(&padding).map(|(n, more)| n + more).collect();
        let (last, others) = wide.split_last().expect("a grid has axes");
        let most = others.iter().copied().fold(last / 2 + 1, usize::min);
        match spectral.modes <= most {
            true => Ok(()),
            false => {
                let what = "spectral convolution".to_string();
                Err(Error::Modes { what, modes: spectral.modes, most, grid: wide })
            }
        }
    }
}

impl SpectralConfig {
    /// The layers between so many features and outputs.
    pub(crate) fn decoder(&self, axes: usize, inputs: usize, outputs: usize) -> SpectralDecoderConfig {
        SpectralDecoderConfig {
            axes,
            inputs,
            coordinates: if self.coordinates { axes } else { 0 },
            // Only the layer that takes coordinates changes the number of features.
            hidden: if self.coordinates { self.channels } else { inputs },
            channels: self.channels,
            modes: self.modes,
            layers: self.layers,
            feed_forward: self.feed_forward,
            outputs,
            activation: self.activation,
            last_activation: self.last_activation,
            dropout: self.dropout,
            law: self.law,
        }
    }

    fn check(&self) -> Result<()> {
        let Self { layers, channels, modes, feed_forward, padding, .. } = *self;
        let sizes =
            [("layers", layers), ("channels", channels), ("modes", modes), ("feed_forward", feed_forward)];
        check_sizes("spectral convolutions", &sizes)?;
        check_rates("spectral convolutions", &[self.dropout])?;
        match (0.0..=1.0).contains(&padding) {
            true => Ok(()),
            false => {
                Err(Error::setting(format!("padding = {padding}"), "it is a share of the points, 0 to 1"))
            }
        }
    }

    /// Points of zeros behind every axis.
    fn padding(&self, grid: &[usize], periodic: &[bool]) -> Vec<usize> {
        let of_axis = |(n, periodic): (&usize, &bool)| match periodic {
            true => 0,
            false => (self.padding * n.saturating_sub(1) as f64).round() as usize,
        };
        grid.iter().zip(periodic).map(of_axis).collect()
    }

    /// The grid of a stage: padded from the first convolution on.
    fn wide(&self, grid: &[usize], padding: &[usize], stage: &str) -> Vec<usize> {
        match stage.starts_with("spectral_conv") {
            true => grid.iter().zip(padding).map(|(n, more)| n + more).collect(),
            false => grid.to_vec(),
        }
    }
}

impl OutputGrid {
    /// Points along each axis of the output; of a coarse one as of the input.
    pub(crate) fn points(&self, grid: &[usize], periodic: &[bool]) -> Vec<usize> {
        let OutputGrid::Resized(Resizing { from, to }) = self else { return grid.to_vec() };
        let axes = grid.iter().zip(from).zip(to).zip(periodic);
        axes.map(|(((n, from), to), periodic)| resized_points(*n, *from, *to, *periodic)).collect()
    }
}

impl Network {
    /// What it was made from.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Of inputs on any grid that the modes allow; with a native grid, on any with two points along every axis.
    ///
    /// # Shapes
    ///
    /// - x: (B, points…, inputs), with as many axes of points as the network has: a tensor of rank 3, 4 or 5
    /// - y: (B, points…, outputs)
    pub fn forward<const D: usize>(&self, x: Tensor<D>, mode: Mode) -> Result<Tensor<D>> {
        let dims = x.dims();
        if D != self.config.axes() + 2 {
            return Err(wrong_shape(self.config.axes(), &dims));
        }
        let grid = &dims[1..D - 1];
        let output = self.config.output_grid(grid)?;
        let points = [dims[0], grid.iter().product(), dims[D - 1]];
        let y = self.forward_points(x.reshape(points), grid, mode, &mut |_, _, _| {})?;
        let mut shape = dims;
        shape[1..D - 1].copy_from_slice(&output);
        shape[D - 1] = y.dims()[2];
        Ok(y.reshape(shape))
    }

    /// As [`forward`](Self::forward) with the points of the grid one after the other, (B, points, channels), showing every stage.
    pub fn forward_points(
        &self,
        x: Tensor<3>,
        grid: &[usize],
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        let at = match &self.config {
            NetworkConfig::Transformer(config) => {
                self.check_input(&x, grid)?;
                Some(config.coordinates(x.dims()[0], self.config.inner_grid(grid), &x.device())?)
            }
            NetworkConfig::Fno(_) | NetworkConfig::Multilevel(_) => None,
        };
        self.forward_at(x, grid, at, mode, observe)
    }

    /// As [`forward_points`](Self::forward_points), a transformer with given coordinates: those of the grid that it computes on.
    pub fn forward_at(
        &self,
        x: Tensor<3>,
        grid: &[usize],
        at: Option<Coordinates>,
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        self.check_input(&x, grid)?;
        let (inner, output) = (self.config.inner_grid(grid), self.config.output_grid(grid)?);
        let computed = self.config.output_grid(inner)?;
        let y = self.compute(self.on_inner_grid(x, grid)?, inner, at, mode, observe)?;
        // Closed axes keep their ends, and zeros on them.
        resized(y, &computed, &output, self.config.periodic())
    }

    /// An input on the grid that it is computed on: local means along axes that are finer, linear interpolation along those that are coarser.
    ///
    /// Inputs are normalised before. By channel that is an affine function, the same everywhere, and commutes with means and interpolation, whose
    /// weights sum to 1; statistics at every point are interpolated to the grid of the input (`samples::on_grid`), and do not.
    fn on_inner_grid(&self, x: Tensor<3>, grid: &[usize]) -> Result<Tensor<3>> {
        let (inner, periodic) = (self.config.inner_grid(grid), self.config.periodic());
        let coarser: Vec<usize> = grid.iter().zip(inner).map(|(n, m)| *n.min(m)).collect();
        resized(local_means(x, grid, &coarser, periodic)?, &coarser, inner, periodic)
    }

    /// The output of an input on the grid that it is computed on, in the units of the targets.
    fn compute(
        &self,
        x: Tensor<3>,
        grid: &[usize],
        at: Option<Coordinates>,
        mode: Mode,
        observe: Observer,
    ) -> Result<Tensor<3>> {
        let output = self.config.output_grid(grid)?;
        let y = match (&self.body, &self.config, at) {
            (Body::Transformer(body), NetworkConfig::Transformer(config), Some(at)) => {
                body.forward(config, x, grid, at, mode, observe)?
            }
            (Body::Fno(body), NetworkConfig::Fno(config), _) => {
                let at = coordinates(x.dims()[0], grid, &config.periodic, &x.device());
                let (spectral, padding) = (&config.spectral, config.spectral.padding(grid, &config.periodic));
                let y = body.forward(x, Some(at), grid, &padding, mode, &mut |name, x| {
                    observe(name, x, &spectral.wide(grid, &padding, name))
                })?;
                resized(y, grid, &output, &config.periodic)?
            }
            (Body::Multilevel(body), NetworkConfig::Multilevel(config), _) => {
                body.forward(config, x, grid, mode, observe)?
            }
            _ => return Err(Error::setting("coordinates", "a transformer needs them")),
        };
        observe("regressor", &y, &output);
        let periodic = self.config.periodic();
        let y = match &self.normalizer {
            Some(normalizer) => normalizer.denormalize(y, &output, periodic)?,
            None => y,
        };
        Ok(match self.config.boundary() {
            Boundary::Free => y,
            Boundary::Zero => without_ends(y, &output, periodic),
        })
    }

    /// The network with the normaliser of its targets.
    pub fn with_normalizer(mut self, normalizer: TargetNormalizer) -> Self {
        self.normalizer = Some(normalizer);
        self
    }

    /// The normaliser of the targets.
    pub fn normalizer(&self) -> Option<&TargetNormalizer> {
        self.normalizer.as_ref()
    }

    /// The attention weights of an encoder layer: K̃ᵀṼ/n (B, H, D, D) of galerkin and linear attention, the (B, H, n, n) matrix
    /// of fourier and softmax attention. x is (B, points, inputs).
    pub fn attention_weights(&self, x: Tensor<3>, grid: &[usize], layer: usize) -> Result<Tensor<4>> {
        let (looked_at, input) = self.attention_input(x, grid, layer)?;
        looked_at.attention.weights(input, Mode::Evaluate)
    }

    /// Q, K and V of an encoder layer, (B, H, n, D) each, as they stand in the products of its attention: after the norms inside the heads,
    /// so K̃ and Ṽ of galerkin attention, and with the p coordinates as the first of the D = d/H + p columns. Linear attention takes its
    /// softmaxes of these. x is (B, points, inputs).
    pub fn projections(&self, x: Tensor<3>, grid: &[usize], layer: usize) -> Result<[Tensor<4>; 3]> {
        let (looked_at, input) = self.attention_input(x, grid, layer)?;
        looked_at.attention.projections(input, Mode::Evaluate)
    }

    /// An encoder layer and what it takes.
    fn attention_input(
        &self,
        x: Tensor<3>,
        grid: &[usize],
        layer: usize,
    ) -> Result<(&crate::layers::EncoderLayer, AttentionInput)> {
        let (Body::Transformer(body), NetworkConfig::Transformer(config)) = (&self.body, &self.config) else {
            let (what, why) = match &self.config {
                NetworkConfig::Multilevel(_) => {
                    ("attention of a multilevel network", "it can be looked at in transformers only")
                }
                _ => ("attention of a Fourier operator", "it has none"),
            };
            return Err(Error::setting(what, why));
        };
        self.check_input(&x, grid)?;
        let looked_at = body.encoder.get(layer).ok_or_else(|| {
            let last = body.encoder.len() as i64 - 1;
            Error::setting(format!("encoder layer {layer}"), format!("layers are 0 to {last}"))
        })?;
        let (x, grid) = (self.on_inner_grid(x, grid)?, self.config.inner_grid(grid));
        let at = config.coordinates(x.dims()[0], grid, &x.device())?.encoder;
        let before = &body.encoder[..layer];
        let input = body.encode(config, x, grid, at, before, Mode::Evaluate, &mut |_, _, _| {})?;
        Ok((looked_at, input))
    }

    fn check_input(&self, x: &Tensor<3>, grid: &[usize]) -> Result<()> {
        let [batch, n, c] = x.dims();
        let (axes, [inputs, _]) = (self.config.axes(), self.config.channels());
        if grid.len() != axes || n != grid.iter().product::<usize>() || c != inputs {
            let found = [vec![batch], grid.to_vec(), vec![c]].concat();
            return Err(wrong_shape_of(axes, &inputs.to_string(), &found));
        }
        Error::check_filled("input", &[batch, n, c])?;
        match self.config.native().is_empty() {
            true => Ok(()),
            false => self.config.check_grid(grid),
        }
    }
}

impl ReferenceNames for Network {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match &self.body {
            Body::Transformer(body) => body.entries(prefix),
            Body::Fno(body) => body.entries(prefix),
            Body::Multilevel(body) => body.entries(prefix),
        }
    }
}

pub(crate) fn wrong_shape(axes: usize, found: &[usize]) -> Error {
    wrong_shape_of(axes, "channels", found)
}

pub(crate) fn wrong_shape_of(axes: usize, channels: &str, found: &[usize]) -> Error {
    let points = ["n", "n₁, n₂", "n₁, n₂, n₃"][axes.clamp(1, 3) - 1];
    let expected = format!("(samples, {points}, {channels})");
    Error::Shape { what: "input".into(), expected, found: found.to_vec() }
}

/// The ends of closed axes set to zero.
fn without_ends(y: Tensor<3>, grid: &[usize], periodic: &[bool]) -> Tensor<3> {
    let points: usize = grid.iter().product();
    let inside = |at: usize| {
        let mut rest = at;
        grid.iter().zip(periodic).rev().all(|(n, periodic)| {
            let i = rest % n;
            rest /= n;
            *periodic || (i > 0 && i + 1 < *n)
        })
    };
    let mask: Vec<f32> = (0..points).map(|at| if inside(at) { 1.0 } else { 0.0 }).collect();
    let mask = Tensor::<3>::from_data(TensorData::new(mask, [1, points, 1]), &y.device());
    y * mask
}
