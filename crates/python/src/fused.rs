//! Layers and networks whose weights come from outside with every call: the forward pass, and the backward pass of what it kept.
//!
//! Weights have the names and layouts of the paper's PyTorch code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin::config::RunConfig;
use galerkin::init::Builder;
use galerkin::layers::{
    Attention, AttentionConfig, EncoderLayer, EncoderLayerConfig, Mode, SpectralConv, SpectralConvConfig,
};
use galerkin::networks::{LiftConfig, Network, NetworkConfig, OutputGrid, TransformerConfig};
use galerkin::ops::AttentionInput;
use galerkin::reference::{self, Entry, ReferenceNames};
use galerkin::run::{RunFolder, Snapshot};
use galerkin_data::Array;
use numpy::PyUntypedArrayMethods;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use crate::array::{In, Out, given, taken};
use crate::error::{Result, wrong};
use crate::work::compute;

/// What can stand in a program of PyTorch.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a program holds a few, and their parameters dwarf them")]
enum Part {
    Attention(Attention),
    Encoder(Vec<EncoderLayer>),
    Spectral(SpectralConv),
    Network(Network),
}

impl ReferenceNames for Part {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match self {
            Part::Attention(layer) => layer.entries(prefix),
            Part::Encoder(layers) => {
                let of = |(i, layer): (usize, &EncoderLayer)| layer.entries(&format!("{prefix}{i}."));
                layers.iter().enumerate().flat_map(of).collect()
            }
            Part::Spectral(layer) => layer.entries(prefix),
            Part::Network(network) => network.entries(prefix),
        }
    }
}

/// A part without gradients, and the same with them. Nothing in it ever changes: threads share it.
#[pyclass(frozen, module = "galerkin._galerkin")]
pub struct Fused {
    plain: Part,
    tracked: Part,
    /// Names and shapes of the weights, in the order in which they come and gradients go.
    names: Vec<(String, Vec<usize>)>,
}

/// What a forward pass kept for its backward pass.
#[pyclass(frozen, module = "galerkin._galerkin")]
pub struct Tape(Mutex<Option<Kept>>);

struct Kept {
    part: Part,
    /// If its gradient is wanted.
    x: Option<Tensor<3>>,
    /// Where the backward pass begins.
    end: Tensor<1>,
    /// What it begins with: the gradient of y.
    start: Start,
    /// Of x and of y, as they came and went.
    shapes: [Vec<usize>; 2],
}

#[pymethods]
impl Fused {
    /// `kind` is attention, encoder (a list of layers), spectral or network; `config` its config as JSON.
    #[new]
    fn new(kind: &str, config: &str) -> Result<Self> {
        let [plain, tracked] =
            [Device::flex(), Device::flex().autodiff()].map(|device| part(kind, config, &device));
        let plain = plain?;
        // In the order of the layers, not of the alphabet.
        let entries = plain.entries("").into_iter();
        let names = entries.flat_map(|entry| entry.names.into_iter().zip(entry.layout.shapes())).collect();
        Ok(Self { plain, tracked: tracked?, names })
    }

    /// Names and shapes of the weights.
    fn names(&self) -> Vec<(String, Vec<usize>)> {
        self.names.clone()
    }

    /// y of x (B, points…, features), and with `track` what the backward pass needs, for the gradients of the weights and, if `x_wanted`, of x.
    ///
    /// `train`: the seed that dropout is drawn from; none in an evaluation.
    #[allow(clippy::too_many_arguments)]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        x: In<'py>,
        weights: Vec<In<'py>>,
        coordinates: Option<In<'py>>,
        quadrature: Option<In<'py>>,
        train: Option<u64>,
        track: bool,
        x_wanted: bool,
    ) -> Result<(Out<'py>, Option<Tape>)> {
        let x = taken(&x)?;
        let [coordinates, quadrature] =
            [coordinates, quadrature].map(|array| array.as_ref().map(taken).transpose());
        let (coordinates, quadrature) = (coordinates?, quadrature?);
        let weights = self.named(&weights)?;
        let part = if track { &self.tracked } else { &self.plain }.clone();
        let mode = train.map_or(Mode::Evaluate, |seed| Mode::Train { seed, step: 0 });
        let (shape, values, kept) = compute(py, || {
            let part = reference::import(part, &weights)
                .map_err(|why| galerkin::Error::Setting { what: "weights".into(), why: why.to_string() })?;
            let device = if track { Device::flex().autodiff() } else { Device::flex() };
            let data = |array: Array| TensorData::new(array.values, array.shape);
            let grid = points(&x.shape)?.to_vec();
            let [batch, features] = [x.shape[0], x.shape[x.shape.len() - 1]];
            let rows = TensorData::new(x.values, [batch, grid.iter().product(), features]);
            let mut input = Tensor::<3>::from_data(rows, &device);
            if x_wanted && track {
                input = input.require_grad();
            }
            let coordinates =
                rank(coordinates, "coordinates", 3)?.map(|c| Tensor::<3>::from_data(data(c), &device));
            let weights = rank(quadrature, "weights", 2)?.map(|w| Tensor::<2>::from_data(data(w), &device));
            let kept_input = (x_wanted && track).then(|| input.clone());
            let y = apply(&part, input, &grid, coordinates, weights, mode)?;
            let shape = output_shape(&part, batch, &grid, y.dims()[2])?;
            if !track {
                return Ok((shape, values_of(y), None));
            }
            let (values, end, start) = ended(y);
            let shapes = [[vec![batch], grid, vec![features]].concat(), shape.clone()];
            Ok((shape, values, Some(Kept { part, x: kept_input, end, start, shapes })))
        })?;
        Ok((given(py, shape, values)?, kept.map(|kept| Tape(Mutex::new(Some(kept))))))
    }
}

#[pymethods]
impl Tape {
    /// Gradients of x, if it was wanted, and of the weights in their order, from that of y. Once: then there are none.
    #[allow(clippy::type_complexity)]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        dy: In<'py>,
    ) -> Result<Option<(Option<Out<'py>>, Vec<Out<'py>>)>> {
        let dy = taken(&dy)?;
        let kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(Kept { part, x, end, start, shapes: [x_shape, y_shape] }) = kept else { return Ok(None) };
        if dy.shape != y_shape {
            return Err(wrong(format!("gradient of y: expected shape {y_shape:?}, found {:?}", dy.shape)));
        }
        let (dx, mut named) = compute(py, || {
            start.set(dy.values);
            let mut gradients = end.backward();
            let dx = x.map(|x| x.grad_remove(&mut gradients).map(values_of));
            Ok((dx, reference::export_gradients(&part, &gradients)))
        })?;
        let zeros = |shape: &[usize]| vec![0.0; shape.iter().product()];
        let dx =
            dx.map(|dx| given(py, x_shape.clone(), dx.unwrap_or_else(|| zeros(&x_shape)))).transpose()?;
        let names =
            part.entries("").into_iter().flat_map(|entry| entry.names.into_iter().zip(entry.layout.shapes()));
        let gradients = names
            .map(|(name, shape)| {
                let values = named.remove(&name).map_or_else(|| zeros(&shape), |array| array.values);
                given(py, shape, values)
            })
            .collect::<Result<_>>()?;
        Ok(Some((dx, gradients)))
    }
}

/// Burn holds what a forward pass kept until a backward pass of any graph sweeps it, one step of the graph at a time, beginning with the first.
impl Drop for Tape {
    fn drop(&mut self) {
        /// No network has more steps one after the other.
        const SWEEPS: usize = 64;
        let kept = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if kept.is_some() {
            drop(kept);
            for _ in 0..SWEEPS {
                let one = Tensor::<1>::zeros([1], &Device::flex().autodiff()).require_grad();
                one.backward();
            }
        }
    }
}

/// The gradient of y, once it is known.
#[derive(Clone, Debug, Default)]
struct Start(Arc<Mutex<Option<Vec<f32>>>>);

impl Start {
    fn set(&self, dy: Vec<f32>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(dy);
    }
}

/// The values of y, and a step behind it whose gradient is that of y. Burn's own backward passes begin with ones, and y times its gradient, summed, would be as
/// much as three more passes over memory.
fn ended(y: Tensor<3>) -> (Vec<f32>, Tensor<1>, Start) {
    let dims = y.dims();
    let y = y.try_into_primitive::<Autodiff<Flex>>().expect("the part is tracked and on this device");
    let (y, node) = y.into_parts();
    let start = Start::default();
    let zero = FlexTensor::from_data(TensorData::new(vec![0.0f32], [1]));
    let end = match End.prepare::<NoCheckpointing>([node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((start.clone(), dims), zero),
        OpsKind::UnTracked(prep) => prep.finish(zero),
    };
    let values = values_of(Tensor::<3>::from_primitive::<Flex>(y));
    (values, Tensor::from_primitive::<Autodiff<Flex>>(end), start)
}

#[derive(Debug)]
struct End;

impl Backward<Flex, 1> for End {
    type State = (Start, [usize; 3]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (start, dims) = ops.state;
        let dy = start.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let ([Some(parent)], Some(dy)) = (ops.parents, dy) {
            let dy: FloatTensor<Flex> = FlexTensor::from_data(TensorData::new(dy, dims));
            gradients.register::<Flex>(parent.id, dy);
        }
    }
}

impl Fused {
    /// The weights of a call by their names.
    fn named(&self, weights: &[In]) -> Result<BTreeMap<String, Array>> {
        if weights.len() != self.names.len() {
            return Err(wrong(format!("weights: expected {}, found {}", self.names.len(), weights.len())));
        }
        self.names
            .iter()
            .zip(weights)
            .map(|((name, shape), array)| match array.shape() == shape.as_slice() {
                true => Ok((name.clone(), taken(array)?)),
                false => Err(wrong(format!("{name}: expected shape {shape:?}, found {:?}", array.shape()))),
            })
            .collect()
    }
}

fn parsed<C: DeserializeOwned>(config: &str) -> Result<C> {
    serde_json::from_str(config).map_err(|error| wrong(format!("config: {error}")))
}

fn part(kind: &str, config: &str, device: &Device) -> Result<Part> {
    let builder = &mut Builder::new(0, device);
    Ok(match kind {
        "attention" => Part::Attention(parsed::<AttentionConfig>(config)?.init(builder)?),
        "encoder" => {
            let layers: Vec<EncoderLayerConfig> = parsed(config)?;
            let layers = layers.into_iter().map(|layer| layer.init(builder));
            Part::Encoder(layers.collect::<galerkin::Result<_>>()?)
        }
        "spectral" => Part::Spectral(parsed::<SpectralConvConfig>(config)?.init(builder)?),
        "network" => Part::Network(parsed::<NetworkConfig>(config)?.init(0, device)?),
        kind => {
            return Err(wrong(format!("kind {kind:?}: expected attention, encoder, spectral or network")));
        }
    })
}

/// Points along each axis of (B, points…, features).
fn points(shape: &[usize]) -> galerkin::Result<&[usize]> {
    match shape {
        [_, points @ .., _] if !points.is_empty() => Ok(points),
        found => Err(galerkin::Error::Shape {
            what: "x".into(),
            expected: "(batch, points…, features)".into(),
            found: found.to_vec(),
        }),
    }
}

fn rank(array: Option<Array>, what: &str, axes: usize) -> galerkin::Result<Option<Array>> {
    match array {
        Some(Array { shape, .. }) if shape.len() != axes => {
            Err(galerkin::Error::Shape { what: what.into(), expected: format!("{axes} axes"), found: shape })
        }
        array => Ok(array),
    }
}

fn apply(
    part: &Part,
    x: Tensor<3>,
    grid: &[usize],
    coordinates: Option<Tensor<3>>,
    weights: Option<Tensor<2>>,
    mode: Mode,
) -> galerkin::Result<Tensor<3>> {
    match part {
        Part::Attention(layer) => layer.forward(AttentionInput { x, coordinates, weights }, mode),
        Part::Encoder(layers) => layers.iter().try_fold(x, |x, layer| {
            let input = AttentionInput { x, coordinates: coordinates.clone(), weights: weights.clone() };
            layer.forward(input, mode)
        }),
        Part::Spectral(layer) => layer.forward(x, grid, mode),
        Part::Network(network) => network.forward_points(x, grid, mode, &mut |_, _, _| {}),
    }
}

fn output_shape(part: &Part, batch: usize, grid: &[usize], features: usize) -> galerkin::Result<Vec<usize>> {
    let grid = match part {
        Part::Network(network) => network.config().output_grid(grid)?,
        _ => grid.to_vec(),
    };
    Ok([vec![batch], grid, vec![features]].concat())
}

fn values_of(tensor: Tensor<3>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("converted to f32")
}

/// The grid of an output and, of an interpolation network, the sizes after each of its four resizes.
type Grids = (Vec<usize>, Option<[[usize; 2]; 4]>);

/// For an input on `grid`, of the network of a config in JSON; an error if such an input does not go through.
#[pyfunction]
pub fn grids(config: &str, grid: Vec<usize>) -> Result<Grids> {
    let config: NetworkConfig = parsed(config)?;
    config.check()?;
    config.check_grid(&grid)?;
    let sizes = match (&config, grid.as_slice()) {
        (
            NetworkConfig::Transformer(TransformerConfig {
                lift: LiftConfig::Interpolation(lift),
                output,
                ..
            }),
            &[n1, n2],
        ) => {
            let sizes = lift.sizes([n1, n2], *output == OutputGrid::Coarse)?;
            Some([sizes.down[0], sizes.down[1], sizes.up[0], sizes.up[1]])
        }
        _ => None,
    };
    Ok((config.output_grid(&grid)?, sizes))
}

/// Mean and deviation.
type Statistics<'py> = Option<(Out<'py>, Out<'py>)>;

/// Of a run's folder or a weight file: the network's config in JSON, its weights by name, and the normalisers of inputs and of targets.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn load_weights<'py>(
    py: Python<'py>,
    path: PathBuf,
    best: bool,
) -> Result<(String, Vec<(String, Out<'py>)>, Statistics<'py>, Statistics<'py>)> {
    let (network, inputs) = compute(py, || {
        let folder = RunFolder::new(&path);
        match path.is_dir() {
            true => {
                let snapshot = if best { Snapshot::Best } else { Snapshot::Last };
                Ok((folder.network(snapshot, &Device::flex())?, folder.normalizer()?))
            }
            false => Ok((galerkin::weights::load(&path)?.into_network(&Device::flex())?, None)),
        }
    })?;
    let config = serde_json::to_string(network.config()).map_err(|error| wrong(error.to_string()))?;
    let array = |array: Array| given(py, array.shape, array.values);
    let weights = reference::export(&network).into_iter().map(|(name, values)| Ok((name, array(values)?)));
    let inputs = inputs.map(|fit| Result::Ok((array(fit.mean)?, array(fit.deviation)?))).transpose()?;
    let targets = network.normalizer().map(|fit| {
        let [mean, deviation] = fit.arrays();
        Result::Ok((array(mean)?, array(deviation)?))
    });
    Ok((config, weights.collect::<Result<_>>()?, inputs, targets.transpose()?))
}

/// The config of a run, as TOML, with another network, as JSON.
#[pyfunction]
pub fn with_network(config: &str, network: &str) -> Result<String> {
    let mut config = RunConfig::parse(config, Path::new("config"), &[])?;
    config.network = parsed(network)?;
    Ok(config.to_toml())
}
