//! A run for a dataset: one proposed from nothing, or a preset that takes from the dataset what nobody has said.

use std::path::Path;

use galerkin_data::{Array, Dataset, Grid};

use crate::config::{CheckpointConfig, DataConfig, LossConfig, Noise, Normalization, RunConfig, TrainConfig};
use crate::error::{Error, Result};
use crate::layers::{Activation, AttentionKind, HeadNorm, SpectralLaw};
use crate::loss::check_grid;
use crate::networks::{
    Boundary, DecoderConfig, EncoderConfig, FnoConfig, InterpolationConfig, LevelEncoderConfig, LiftConfig,
    MultilevelConfig, NetworkConfig, OutputGrid, PointwiseConfig, PointwiseLiftConfig, Resizing,
    SpectralConfig, TransformerConfig, resized_points,
};
use crate::optimizer::{AdamConfig, OptimizerConfig};
use crate::samples::{View, split_of};
use crate::schedule::Schedule;
use crate::symmetry::{Group, Symmetry};

/// Kinds of networks that can be proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkKind {
    /// The transformer with Galerkin attention.
    #[default]
    Transformer,
    /// The Fourier neural operator.
    Fno,
    /// The multilevel network, for grids of one and two axes.
    Multilevel,
}

/// More points than this are too many for an encoder layer on every one of them, where a coarser grid can be had.
const MOST_POINTS: usize = 4096;

/// A network and a training for a dataset in a folder.
///
/// Sizes are those that did well on small datasets of different kinds; the numbers behind them are in the project's `docs/proposals.md`.
pub fn propose(dataset: &Dataset, folder: &Path, kind: NetworkKind) -> Result<RunConfig> {
    let (grid, target) = grids(dataset)?;
    let [train, validation, test] = parts(dataset)?;
    let name = folder.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    let zero = dataset.is_zero_on_boundary()?;
    let network = match kind {
        NetworkKind::Transformer => NetworkConfig::Transformer(transformer(dataset, &grid, &target, zero)),
        NetworkKind::Fno => NetworkConfig::Fno(fno(dataset, &grid, &target, zero)),
        NetworkKind::Multilevel => NetworkConfig::Multilevel(multilevel(dataset, &grid, &target, zero)),
    };
    // Some sixty steps an epoch, more where samples are many, and more than two thousand in all.
    let batch = (train / 60).clamp(1, 16).next_power_of_two().min(16);
    let steps = (train / batch).max(1);
    let epochs = (2400 / steps).clamp(30, 200) as u32;
    // The seminorm steadies the slopes, where the grid shows them.
    let gamma = if target.points().iter().all(|n| *n >= 8) { 0.1 } else { 0.0 };
    let config = RunConfig {
        name,
        data: DataConfig {
            folder: folder.into(),
            grid: grid.axes[0].points,
            inverse: false,
            coarse: None,
            train,
            validation,
            test,
            noise: Noise::default(),
            normalize_inputs: Normalization::Channel,
            normalize_targets: Normalization::Channel,
        },
        network,
        loss: LossConfig {
            gamma,
            weight: "none".into(),
            channels: Vec::new(),
            eps: least_eps(dataset)?,
            interior: false,
        },
        train: TrainConfig {
            epochs,
            batch,
            accumulate: 1,
            lr: 1e-3,
            seed: 1,
            average: 0.0,
            augment: declared(dataset)?,
        },
        // Attention leaves its path if the rate grows too fast; Fourier operators do not.
        schedule: Schedule::OneCycle { peak: 0.3, rise: if kind == NetworkKind::Fno { 0 } else { 200 } },
        optimizer: OptimizerConfig::Adam(AdamConfig { beta2: 0.99, ..AdamConfig::default() }),
        checkpoint: CheckpointConfig { every_steps: 0, every_minutes: 2.0 },
    };
    fit_memory(config, &grid)
}

impl RunConfig {
    /// `Ok` if the dataset is one that this run can be trained on: everything that can be known before a step is taken.
    pub fn check_with(&self, dataset: &Dataset) -> Result<()> {
        let (stored, _) = grids(dataset)?;
        let view = View::of(&self.data, self.train.seed, None);
        if stored.axes.len() != self.network.axes() {
            let what = format!("a network for grids of {} axes", self.network.axes());
            return Err(Error::setting(what, format!("the dataset lies on {stored}")));
        }
        let plain = view.plain(dataset)?;
        let (grid, target) = (plain.grid()?, plain.target_grid()?);
        let found = [plain.input_channels(), plain.target_channels()];
        for ((what, said), names) in
            ["network.inputs", "network.outputs"].iter().zip(self.network.channels()).zip(found)
        {
            if said != names.len() {
                let why = format!("the dataset has {}: {}", names.len(), names.join(", "));
                return Err(Error::setting(format!("{what} = {said}"), why));
            }
        }
        if self.network.periodic() != grid.periodic() {
            let what = format!("network.periodic = {:?}", self.network.periodic());
            return Err(Error::setting(what, format!("the axes of the dataset are {:?}", grid.periodic())));
        }
        let output = self.network.output_grid(&grid.points())?;
        if output != target.points() {
            let what = format!("network.output on {output:?} points");
            let why = format!("targets lie on {:?}; see network.output", target.points());
            return Err(Error::setting(what, why));
        }
        self.network.check_grid(&grid.points())?;
        if self.loss.gamma > 0.0 {
            check_grid(&target.points())?;
        }
        if self.network.boundary() == Boundary::Zero && !plain.is_zero_on_boundary()? {
            let why = "the targets are not zero on the ends of closed axes; take \"free\"";
            return Err(Error::setting("network.boundary = \"zero\"", why));
        }
        Group::of(&self.train.augment, &plain)?;
        if let Some(symmetry) = self.train.augment.iter().find(|s| s.changes(&self.loss.weight)) {
            let why =
                format!("it changes loss.weight, {}, which has one sign and one meaning", self.loss.weight);
            return Err(Error::setting(format!("train.augment, \"{symmetry}\""), why));
        }
        split_of(self, dataset).map(drop)
    }

    /// A preset for a dataset: grids, split, batch, axes and the channel that weighs the loss are taken from it where the preset's do not fit, and symmetries
    /// that it does not have are left out, unless they are among the keys that were `set`.
    pub fn fitted_to(mut self, dataset: &Dataset, set: &[String]) -> Result<Self> {
        let is_set = |key: &str| set.iter().any(|set| set == key);
        let (grid, _) = grids(dataset)?;
        if !is_set("data.grid") && grid.stride_to(self.data.grid).is_err() {
            self.data.grid = grid.axes[0].points;
        }
        if ["data.train", "data.validation", "data.test"].iter().all(|key| !is_set(key)) {
            let said = [self.data.train, self.data.validation, self.data.test];
            let given = dataset.meta().is_some_and(|meta| meta.split.is_some());
            if given || said.iter().sum::<usize>() > dataset.len() {
                let [train, validation, test] = parts(dataset)?;
                (self.data.train, self.data.validation, self.data.test) = (train, validation, test);
            }
        }
        let step = self.data.train / (self.train.accumulate as usize).max(1);
        if !is_set("train.batch") && self.train.batch > step {
            self.train.batch = step.max(1);
        }
        let names = if self.data.inverse { dataset.target_channels() } else { dataset.input_channels() };
        if let ([only], false) = (names, is_set("loss.weight"))
            && self.loss.weight != "none"
        {
            self.loss.weight = only.clone();
        }
        if !is_set("network.periodic") && self.network.axes() == grid.axes.len() {
            match &mut self.network {
                NetworkConfig::Transformer(config) => config.periodic = grid.periodic(),
                NetworkConfig::Fno(config) => config.periodic = grid.periodic(),
                NetworkConfig::Multilevel(config) => config.periodic = grid.periodic(),
            }
        }
        self = self.with_grids(set)?;
        if !is_set("train.augment") {
            let plain = View::of(&self.data, self.train.seed, None).plain(dataset)?;
            self.train.augment.retain(|symmetry| Group::of(std::slice::from_ref(symmetry), &plain).is_ok());
        }
        Ok(self)
    }

    /// The grids of a preset or a proposal for the grid of the data, in the ratios that they had: the native grid, those of an interpolation network, and
    /// what targets are averaged to. What was `set` stays.
    pub fn with_grids(mut self, set: &[String]) -> Result<Self> {
        let is_set = |key: &str| set.iter().any(|set| set == key);
        let periodic = self.network.periodic().to_vec();
        if !is_set("network.native") {
            let native = self.network.native_mut();
            let first = native.first().copied();
            for (n, periodic) in native.iter_mut().zip(&periodic) {
                *n = resized_points(*n, first.unwrap_or(*n), self.data.grid, *periodic);
            }
        }
        match &mut self.network {
            NetworkConfig::Transformer(TransformerConfig {
                lift: LiftConfig::Interpolation(lift), ..
            }) => {
                let (fine, coarse) = (lift.fine, lift.coarse);
                if !is_set("network.lift.fine") {
                    lift.fine = self.data.grid;
                }
                if !is_set("network.lift.coarse") {
                    lift.coarse = match self.data.coarse.filter(|_| is_set("data.coarse")) {
                        Some(coarse) => coarse,
                        None => resized_points(lift.fine, fine, coarse, false),
                    };
                }
                if self.data.coarse.is_some() && !is_set("data.coarse") {
                    self.data.coarse = Some(lift.coarse);
                }
                if (fine, coarse) != (lift.fine, lift.coarse) && !is_set("network.lift.by_factor") {
                    // By factor as in the paper, unless that misses the coarse grid.
                    lift.by_factor = true;
                    lift.by_factor = lift.sizes([lift.fine; 2], false)?.down[1] == [lift.coarse; 2];
                }
            }
            NetworkConfig::Multilevel(network) => {
                if let (OutputGrid::Resized(sizes), Some(coarse)) =
                    (&mut network.output, &mut self.data.coarse)
                    && !is_set("network.output")
                {
                    let axes = sizes.from.len();
                    if !is_set("data.coarse") {
                        *coarse = resized_points(self.data.grid, sizes.from[0], sizes.to[0], false);
                    }
                    *sizes = Resizing { from: vec![self.data.grid; axes], to: vec![*coarse; axes] };
                }
            }
            NetworkConfig::Transformer(_) | NetworkConfig::Fno(_) => {}
        }
        self.check()?;
        Ok(self)
    }
}

/// The grids of inputs and targets; an error with the way out of what no network takes.
fn grids(dataset: &Dataset) -> Result<(Grid, Grid)> {
    let what = || match dataset.meta().map(|meta| &meta.files) {
        Some(files) if !files.is_empty() => format!("the dataset of {}", files.join(", ")),
        _ => "the dataset".to_string(),
    };
    if dataset.times().is_some() {
        let why = "its targets are at several times, which no network takes yet; \
                   import one time as an array of its own";
        return Err(Error::setting(what(), why));
    }
    let (Ok(grid), Ok(target)) = (dataset.grid(), dataset.target_grid()) else {
        return Err(Error::setting(what(), "it lies at points, which no network takes yet; grids are"));
    };
    if grid.axes.len() != target.axes.len() {
        let why = format!("its inputs lie on {grid}, its targets on {target}: the axes must be the same");
        return Err(Error::setting(what(), why));
    }
    Ok((grid, target))
}

/// The symmetries that the problem behind a dataset declares.
fn declared(dataset: &Dataset) -> Result<Vec<Symmetry>> {
    let problem = dataset.meta().and_then(|meta| meta.problem.as_ref());
    problem.map_or(Ok(Vec::new()), |problem| Symmetry::declared(problem.equation().symmetries()))
}

/// How many samples are to train, to validate and to test: as the dataset says, or eight, one and one of ten.
fn parts(dataset: &Dataset) -> Result<[usize; 3]> {
    if let Some(parts) = dataset.meta().and_then(|meta| meta.split) {
        return Ok(parts.counts());
    }
    let samples = dataset.len();
    if samples < 3 {
        let why = "one sample each is needed to train, to validate and to test";
        return Err(Error::setting(format!("a dataset of {samples} samples"), why));
    }
    let tenth = (samples / 10).max(1);
    Ok([samples - 2 * tenth, tenth, tenth])
}

fn transformer(dataset: &Dataset, grid: &Grid, target: &Grid, zero: bool) -> TransformerConfig {
    let axes = grid.axes.len();
    // A line has few points, and can have more layers for the same time.
    let (heads, layers, width) = if axes == 1 { (1, 4, 64) } else { (4, 2, 48) };
    let closed_plane = axes == 2 && !grid.periodic().contains(&true);
    let lift = match closed_plane && grid.len() > MOST_POINTS {
        true => {
            let fine = grid.axes[0].points;
            // As many points as an encoder layer on all of them would have at most.
            let ratio = (MOST_POINTS as f64 / 2.0 / grid.len() as f64).sqrt();
            let coarse = ((fine - 1) as f64 * ratio).round() as usize + 1;
            LiftConfig::Interpolation(InterpolationConfig {
                fine,
                coarse: coarse.clamp(2, fine),
                by_factor: false,
                activation: Activation::Silu,
                dropout: 0.0,
                up_activation: Activation::Silu,
                up_dropout: 0.0,
            })
        }
        false => LiftConfig::Pointwise(PointwiseLiftConfig { coordinates: true }),
    };
    TransformerConfig {
        inputs: dataset.input_channels().len(),
        outputs: dataset.target_channels().len(),
        periodic: grid.periodic(),
        output: output(grid, target),
        // Convolutions see a strip as wide as themselves, which is another one on another grid; attention and modes do not.
        native: match lift {
            LiftConfig::Interpolation(_) => grid.points(),
            LiftConfig::Pointwise(_) => Vec::new(),
        },
        boundary: boundary(zero),
        closed_coordinates: false,
        dropout: 0.0,
        lift,
        encoder: EncoderConfig {
            attention: AttentionKind::Galerkin,
            layers,
            width,
            heads,
            hidden: 2 * width,
            activation: Activation::Relu,
            head_norm: HeadNorm::Layer,
            residual_norm: false,
            eps: 1e-5,
            minus: false,
            gain: 0.01,
            diagonal: 0.01,
            equal_layers: false,
            attention_dropout: 0.0,
            residual_dropout: 0.0,
            hidden_dropout: 0.0,
        },
        decoder: DecoderConfig::Spectral(SpectralConfig {
            layers: 3,
            last_activation: true,
            activation: Activation::Silu,
            law: SpectralLaw::Normal,
            ..spectral(target, 1.0 / 3.0)
        }),
    }
}

/// Levels down to some ten points, with attention on the two coarsest.
fn multilevel(dataset: &Dataset, grid: &Grid, target: &Grid, zero: bool) -> MultilevelConfig {
    let least = grid.points().into_iter().min().unwrap_or(1);
    let levels = (1..5).take_while(|halvings| least >> halvings >= 8).count() + 1;
    let mut encoder_layers = vec![0; levels];
    encoder_layers[levels - 1] = 2;
    if levels > 1 {
        encoder_layers[levels - 2] = 1;
    }
    MultilevelConfig {
        inputs: dataset.input_channels().len(),
        outputs: dataset.target_channels().len(),
        periodic: grid.periodic(),
        output: output(grid, target),
        native: grid.points(),
        boundary: boundary(zero),
        channels: (0..levels).map(|level| 24 << level.min(2)).collect(),
        convolutions: 1,
        encoder_layers,
        coordinates: true,
        activation: Activation::Silu,
        dropout: 0.0,
        encoder: LevelEncoderConfig {
            attention: AttentionKind::Galerkin,
            heads: 4,
            expansion: 2,
            activation: Activation::Relu,
            head_norm: HeadNorm::Layer,
            residual_norm: false,
            eps: 1e-5,
            gain: 0.01,
            diagonal: 0.01,
            attention_dropout: 0.0,
            residual_dropout: 0.0,
            hidden_dropout: 0.0,
        },
        decoder: DecoderConfig::Pointwise(PointwiseConfig {
            coordinates: true,
            layers: 1,
            activation: Activation::Silu,
            dropout: 0.0,
        }),
    }
}

fn fno(dataset: &Dataset, grid: &Grid, target: &Grid, zero: bool) -> FnoConfig {
    FnoConfig {
        inputs: dataset.input_channels().len(),
        outputs: dataset.target_channels().len(),
        periodic: grid.periodic(),
        output: output(grid, target),
        native: Vec::new(),
        boundary: boundary(zero),
        spectral: spectral(grid, 0.375),
    }
}

fn boundary(zero: bool) -> Boundary {
    if zero { Boundary::Zero } else { Boundary::Free }
}

fn output(grid: &Grid, target: &Grid) -> OutputGrid {
    match (grid.points(), target.points()) {
        (from, to) if from == to => OutputGrid::Input,
        (from, to) => OutputGrid::Resized(Resizing { from, to }),
    }
}

/// Convolutions that keep at most a share of the points of the least axis as modes.
fn spectral(grid: &Grid, share: f64) -> SpectralConfig {
    let (channels, wanted) = [(64, 16), (32, 12), (20, 6)][grid.axes.len().clamp(1, 3) - 1];
    // The highest frequencies of a coarse grid are noise that networks learn by heart.
    let most = grid.points().iter().map(|n| (share * *n as f64) as usize).min().unwrap_or(1);
    SpectralConfig {
        layers: 4,
        channels,
        modes: wanted.min(most).max(1),
        feed_forward: 128,
        activation: Activation::Relu,
        last_activation: false,
        coordinates: true,
        law: SpectralLaw::Uniform,
        padding: if grid.periodic().contains(&false) { 0.125 } else { 0.0 },
        dropout: 0.05,
    }
}

/// 10⁻¹⁰ of the least mean square of a channel of the targets that is not zero everywhere: nothing beside a target, and more than nothing.
fn least_eps(dataset: &Dataset) -> Result<f64> {
    let channels = dataset.target_channels().len();
    let mut squares = vec![0.0f64; channels];
    let mut count = 0usize;
    for index in 0..dataset.len() {
        let Array { values, .. } = dataset.sample(index)?.target;
        count += values.len() / channels;
        for (at, value) in values.iter().enumerate() {
            squares[at % channels] += f64::from(*value) * f64::from(*value);
        }
    }
    let least = squares.into_iter().filter(|square| *square > 0.0 && square.is_finite()).reduce(f64::min);
    let eps = least.map_or(1e-10, |square| 1e-10 * square / count.max(1) as f64);
    // Two digits are enough for a setting that people read.
    Ok(format!("{eps:.1e}").parse().unwrap_or(eps))
}

/// A smaller batch where a step would take more than half of the memory that is free.
fn fit_memory(mut config: RunConfig, grid: &Grid) -> Result<RunConfig> {
    config.check()?;
    let Some(available) = crate::cost::available_memory() else { return Ok(config) };
    while config.train.batch > 1
        && config.network.training_memory(config.train.batch, &grid.points())? > available / 2
    {
        config.train.batch /= 2;
        config.train.accumulate *= 2;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(points: &[usize], periodic: bool, channels: [usize; 2], samples: usize) -> Dataset {
        let array = |channels: usize| {
            let shape = [vec![samples], points.to_vec(), vec![channels]].concat();
            let len: usize = shape.iter().product();
            Array { shape, values: (0..len).map(|v| 1.0 + (v % 7) as f32).collect() }
        };
        Dataset::from_arrays(array(channels[0]), array(channels[1]), Grid::unit(points, periodic)).unwrap()
    }

    #[test]
    fn every_grid_gets_a_run_that_fits_it() {
        for (points, periodic, channels) in [
            (&[32][..], true, [1, 1]),
            (&[33], false, [2, 1]),
            (&[16, 9], false, [3, 2]),
            (&[8, 8, 8], true, [1, 1]),
            (&[90, 70], false, [1, 1]),
            (&[4, 5], true, [1, 1]),
        ] {
            let dataset = dataset(points, periodic, channels, 48);
            for kind in [NetworkKind::Transformer, NetworkKind::Fno, NetworkKind::Multilevel] {
                if kind == NetworkKind::Multilevel && points.len() == 3 {
                    let error = propose(&dataset, Path::new("mine"), kind).unwrap_err().to_string();
                    assert!(error.contains("take \"fno\" or \"transformer\""), "{error}");
                    continue;
                }
                let config = propose(&dataset, Path::new("some/mine"), kind).unwrap();
                assert_eq!(config.name, "mine");
                config.check().unwrap();
                config.check_with(&dataset).unwrap();
                assert_eq!([config.data.train, config.data.validation, config.data.test], [40, 4, 4]);
                let text = config.to_commented_toml();
                for line in text.lines().filter(|line| line.contains(" = ")) {
                    assert!(line.contains(" # "), "{line}");
                }
                assert_eq!(RunConfig::parse(&text, Path::new("test"), &[]).unwrap(), config);
            }
        }
        let two = dataset(&[8], true, [1, 1], 2);
        let error = propose(&two, Path::new("mine"), NetworkKind::Fno).unwrap_err().to_string();
        assert!(error.starts_with("a dataset of 2 samples"), "{error}");
    }

    #[test]
    fn what_does_not_fit_a_dataset_is_named_before_anything_is_done() {
        let dataset = dataset(&[16, 16], false, [2, 1], 20);
        let config = propose(&dataset, Path::new("mine"), NetworkKind::Transformer).unwrap();
        let error = |sets: &[(&str, &str)]| {
            let sets: Vec<_> = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            config.with(&sets).and_then(|config| config.check_with(&dataset)).unwrap_err().to_string()
        };
        assert!(error(&[("network.inputs", "1")]).contains("the dataset has 2: input0, input1"));
        assert!(error(&[("network.periodic", "[true, true]")]).contains("[false, false]"));
        assert!(error(&[("network.boundary", "zero")]).contains("take \"free\""));
        assert!(error(&[("network.decoder.modes", "40")]).contains("40 modes"));
        assert!(error(&[("data.grid", "7")]).contains("sizes that work"));
        assert!(error(&[("data.test", "17")]).contains("20"));
        assert!(
            error(&[("network.output", "{ resized = { from = [16, 16], to = [8, 8] } }")])
                .contains("targets lie")
        );
    }

    #[test]
    fn a_preset_takes_from_the_dataset_what_nobody_said() {
        let dataset = dataset(&[43, 43], false, [1, 1], 48);
        let darcy = crate::presets::get("darcy").unwrap();
        let fitted = darcy.clone().fitted_to(&dataset, &[]).unwrap();
        assert_eq!((fitted.data.grid, fitted.data.train, fitted.loss.weight.as_str()), (43, 40, "input"));
        let NetworkConfig::Transformer(network) = &fitted.network else { panic!() };
        let LiftConfig::Interpolation(lift) = &network.lift else { panic!() };
        assert_eq!((lift.fine, lift.coarse), (43, 15));
        let set = ["data.train", "network.lift.coarse"].map(String::from);
        let with = |key: &str, value: &str| (key.to_string(), value.to_string());
        let sets = [with("data.train", "9"), with("network.lift.coarse", "11")];
        let fitted = darcy.with(&sets).unwrap().fitted_to(&dataset, &set).unwrap();
        assert_eq!(fitted.data.train, 9);
        let NetworkConfig::Transformer(network) = &fitted.network else { panic!() };
        let LiftConfig::Interpolation(lift) = &network.lift else { panic!() };
        assert_eq!((lift.fine, lift.coarse), (43, 11));
    }
}
