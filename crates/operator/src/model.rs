//! A trained model: a network with the normaliser of its inputs, for inputs in memory and in files.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use galerkin_data::io::Output;
use galerkin_data::io::npy::{self, Runs};
use galerkin_data::normalize::Normalizer;
use galerkin_data::pde::inverse::{mirrors, pooled_len};
use galerkin_data::{Array, Domain, Grid};

use crate::error::{Error, Result};
use crate::inspect::Latent;
use crate::layers::Mode;
use crate::networks::{Network, NetworkConfig, wrong_shape_of};
use crate::reference::to_vec;
use crate::run::{RunFolder, Snapshot};
use crate::samples::{batch_of, for_each_sample, on_grid, rows};
use crate::symmetry::{Group, Side, Symmetry};
use crate::weights;

/// A trained model with all that it needs to take inputs as they are.
#[derive(Debug)]
pub struct Model {
    network: Network,
    normalizer: Option<Normalizer>,
    allow_nan: bool,
    /// What predictions are averaged over, if they are.
    frame: Option<Frame>,
    device: Device,
}

/// Symmetries, and the axes and channels of inputs and targets that they speak of.
#[derive(Debug)]
struct Frame {
    symmetries: Vec<Symmetry>,
    grids: [Grid; 2],
    channels: [Vec<String>; 2],
}

impl Frame {
    /// Of a run.
    fn of(folder: &RunFolder) -> Result<Self> {
        let (symmetries, data) = (folder.symmetries()?, folder.config()?.data);
        let meta = folder.dataset()?;
        let Some((Domain::Grid(inputs), Domain::Grid(targets), meta)) =
            meta.map(|meta| (meta.domain.clone(), meta.target_domain().clone(), meta))
        else {
            return Err(
                folder.wrong("a mean over symmetries needs its dataset.toml, which names axes and channels")
            );
        };
        let (mut grids, mut channels) = ([inputs, targets], [meta.inputs, meta.targets]);
        if data.inverse {
            grids.reverse();
            channels.reverse();
        }
        // Of an inverse problem, targets are means over windows.
        if let Some(coarse) = data.coarse.filter(|_| data.inverse) {
            let axis = &grids[1].axes[0];
            let windows = [(axis.points, data.grid), (data.grid, coarse)];
            let mirror = windows.iter().all(|(from, to)| {
                let window = (1..=*from).find(|window| pooled_len(*from, *window) == *to);
                window.is_none_or(|window| mirrors(*from, window, axis.periodic))
            });
            if !mirror && symmetries.iter().any(Symmetry::is_flip) {
                let why = format!(
                    "data.coarse = {coarse}: its targets are averaged over windows that are not their own mirror image"
                );
                return Err(Error::setting("a mean over flips", why));
            }
        }
        Ok(Self { symmetries, grids, channels })
    }

    /// On grids of so many points.
    fn group(&self, points: [&[usize]; 2]) -> Result<Group> {
        let [inputs, targets] = [0, 1].map(|side| self.grids[side].with_points(points[side]));
        let [of_inputs, of_targets] = &self.channels;
        let inputs = Side { grid: &inputs, channels: of_inputs };
        Group::new(&self.symmetries, [inputs, Side { grid: &targets, channels: of_targets }])
    }
}

impl Model {
    /// From the folder of a run, or from a weight file, which must take its inputs as they are, on the processor.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match path.is_dir() {
            true => Self::open(&RunFolder::new(path), Snapshot::Last, &Device::flex()),
            false => {
                let network = weights::load(path)?.into_network(&Device::flex())?;
                Ok(Self { network, normalizer: None, allow_nan: false, frame: None, device: Device::flex() })
            }
        }
    }

    /// From the folder of a run.
    pub fn open(folder: &RunFolder, snapshot: Snapshot, device: &Device) -> Result<Self> {
        let network = folder.network(snapshot, device)?;
        Ok(Self {
            network,
            normalizer: folder.normalizer()?,
            allow_nan: false,
            frame: None,
            device: device.clone(),
        })
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The same, which takes what is not finite in its inputs and answers with what comes of it.
    pub fn allow_nan(mut self, allow_nan: bool) -> Self {
        self.allow_nan = allow_nan;
        self
    }

    /// The same, whose predictions are means over all 2ᵏ combinations of the k flips and transpositions of the run in a folder, and take 2ᵏ times as long: see
    /// [`RunFolder::symmetries`].
    pub fn symmetric(mut self, folder: &RunFolder) -> Result<Self> {
        self.frame = Some(Frame::of(folder)?);
        Ok(self)
    }

    /// Of inputs (samples, points…, channels), not normalised. The axis of channels may be left out if there is one alone, and that of samples
    /// for one sample; the answer leaves out the same. Some samples at a time go through the network, as those of [a file](Self::predict_file).
    pub fn predict(&self, inputs: Array) -> Result<Array> {
        let form = self.form(&inputs.shape)?;
        let inputs = Array { shape: form.full(&inputs.shape), values: inputs.values };
        let shape = form.answer(&self.output_shape(&inputs.shape)?);
        let mut values = Vec::with_capacity(shape.iter().product());
        for (first, some) in in_batches(&inputs) {
            values.extend(self.predict_batch(first, some)?);
        }
        Ok(Array { shape, values })
    }

    /// What every stage of the network gives on the way to the predictions of such inputs: its name, as the paper's code calls it, and (samples, points…, features)
    /// on its own grid.
    pub fn latents(&self, inputs: Array) -> Result<Vec<(String, Array)>> {
        let (x, grid) = self.network_input(inputs)?;
        let array = |Latent { name, values, grid }: Latent| {
            let [samples, _, features] = values.dims();
            (name, Array { shape: [vec![samples], grid, vec![features]].concat(), values: to_vec(values) })
        };
        Ok(self.network.latents(x, &grid)?.into_iter().map(array).collect())
    }

    /// The attention weights of an encoder layer for such inputs: (samples, heads, side, side), see [`Network::attention_weights`].
    pub fn attention(&self, inputs: Array, layer: usize) -> Result<Array> {
        let (x, grid) = self.network_input(inputs)?;
        let weights = self.network.attention_weights(x, &grid, layer)?;
        Ok(Array { shape: weights.dims().to_vec(), values: to_vec(weights) })
    }

    /// All samples as the network takes them, and points along each axis.
    fn network_input(&self, inputs: Array) -> Result<(Tensor<3>, Vec<usize>)> {
        let shape = self.form(&inputs.shape)?.full(&inputs.shape);
        let inputs = Array { shape, values: inputs.values };
        self.check_finite(0, &inputs)?;
        self.normalized(inputs)
    }

    /// Of inputs (samples, points…, channels), the first of which is number `first`.
    fn predict_batch(&self, first: usize, inputs: Array) -> Result<Vec<f32>> {
        self.check_finite(first, &inputs)?;
        let Some(frame) = &self.frame else { return self.answer(inputs) };
        let [_, points @ .., _] = &inputs.shape[..] else { return self.answer(inputs) };
        let group = frame.group([points, &self.network.config().output_grid(points)?])?;
        group.average(&inputs, |inputs| self.answer(inputs))
    }

    /// What the network says of inputs (samples, points…, channels).
    fn answer(&self, inputs: Array) -> Result<Vec<f32>> {
        let (x, grid) = self.normalized(inputs)?;
        Ok(to_vec(self.network.forward_points(x, &grid, Mode::Evaluate, &mut |_, _, _| {})?))
    }

    /// Inputs (samples, points…, channels) as the network takes them, and points along each axis.
    fn normalized(&self, mut inputs: Array) -> Result<(Tensor<3>, Vec<usize>)> {
        let samples = inputs.shape[0];
        let grid = inputs.shape[1..inputs.shape.len() - 1].to_vec();
        if let Some(normalizer) = &self.normalizer {
            let mut axes = Grid::unit(&grid, false);
            let periodic = self.network.config().periodic();
            axes.axes.iter_mut().zip(periodic).for_each(|(axis, periodic)| axis.periodic = *periodic);
            let normalizer = on_grid(normalizer, &axes, &self.device)?;
            for_each_sample(&mut inputs, |sample| normalizer.apply(sample))?;
        }
        let places: Vec<usize> = (0..samples).collect();
        Ok((rows(&inputs, &places, &self.device), grid))
    }

    /// Reads inputs from one `.npy` file and writes predictions to another, a few samples at a time. `watch` is told how many of how
    /// many are done, and ends it by answering `Break`; the output appears when it is complete.
    ///
    /// Gives the shape of the output.
    pub fn predict_file(
        &self,
        input: &Path,
        output: &Path,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<usize>>> {
        let runs = Runs::open(input)?;
        let form = self.form(runs.shape()).map_err(|error| error.of_file(input))?;
        let shape = form.full(runs.shape());
        let (samples, values) = (shape[0], shape[1..].iter().product::<usize>());
        let batch = batch_of(shape[1..shape.len() - 1].iter().product());
        let answer = form.answer(&self.output_shape(&shape)?);

        let mut file = Output::create(output)?;
        file.write_all(&npy::header(&answer)).map_err(Error::io(output))?;
        for first in (0..samples).step_by(batch) {
            let count = batch.min(samples - first);
            let inputs = Array {
                shape: [&[count], &shape[1..]].concat(),
                values: runs.read(first * values, count * values)?,
            };
            let predicted = self.predict_batch(first, inputs).map_err(|error| error.of_file(input))?;
            let bytes: Vec<u8> = predicted.iter().flat_map(|v| v.to_le_bytes()).collect();
            file.write_all(&bytes).map_err(Error::io(output))?;
            if watch(first + count, samples).is_break() {
                return Ok(None);
            }
        }
        file.finish()?;
        Ok(Some(answer))
    }

    /// Which axes inputs of this shape have.
    fn form(&self, shape: &[usize]) -> Result<Form> {
        let config = self.network.config();
        let (axes, [channels, outputs]) = (config.axes(), config.channels());
        let with_channels = shape.last() == Some(&channels);
        // A grid has two points at least: a last axis of length 1 is that of the channels.
        let form = match shape.len() {
            rank if rank == axes + 2 && with_channels => Some((true, true)),
            rank if rank == axes + 1 && with_channels => Some((false, true)),
            rank if rank == axes + 1 && channels == 1 => Some((true, false)),
            rank if rank == axes && channels == 1 => Some((false, false)),
            _ => None,
        };
        let (samples, channels) = form.ok_or_else(|| wrong_input(config, shape))?;
        // Several channels need their axis.
        Ok(Form { samples, channels, keep_channels: channels || outputs > 1 })
    }

    /// (samples, points…, channels) of the answer.
    fn output_shape(&self, shape: &[usize]) -> Result<Vec<usize>> {
        let config = self.network.config();
        let grid = config.output_grid(&shape[1..shape.len() - 1])?;
        Ok([vec![shape[0]], grid, vec![config.channels()[1]]].concat())
    }

    fn check_finite(&self, first: usize, inputs: &Array) -> Result<()> {
        let Some(at) = inputs.values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        if self.allow_nan {
            return Ok(());
        }
        let (mut rest, mut place) = (at, Vec::new());
        for len in inputs.shape.iter().rev() {
            place.push(rest % len);
            rest /= len;
        }
        place.reverse();
        place[0] += first;
        let what = format!("input: {} at {place:?} of (sample, points…, channel)", inputs.values[at]);
        Err(Error::setting(what, "expected finite values; --allow-nan takes it as it is"))
    }
}

/// Which axes of (samples, points…, channels) an array has.
#[derive(Clone, Copy, Debug)]
struct Form {
    samples: bool,
    channels: bool,
    /// Whether answers have the axis of channels.
    keep_channels: bool,
}

impl Form {
    /// With all axes.
    fn full(self, shape: &[usize]) -> Vec<usize> {
        let mut full = shape.to_vec();
        if !self.samples {
            full.insert(0, 1);
        }
        if !self.channels {
            full.push(1);
        }
        full
    }

    /// Of an answer with all axes, those that the input had.
    fn answer(self, full: &[usize]) -> Vec<usize> {
        let end = full.len() - usize::from(!self.keep_channels);
        full[usize::from(!self.samples)..end].to_vec()
    }
}

/// Some samples of (samples, points…, channels) at a time, and the number of the first.
fn in_batches(inputs: &Array) -> impl Iterator<Item = (usize, Array)> {
    let (samples, sample) = (inputs.shape[0], &inputs.shape[1..]);
    let values: usize = sample.iter().product();
    let batch = batch_of(sample[..sample.len() - 1].iter().product());
    (0..samples).step_by(batch).map(move |first| {
        let count = batch.min(samples - first);
        let some = inputs.values[first * values..(first + count) * values].to_vec();
        (first, Array { shape: [&[count], sample].concat(), values: some })
    })
}

fn wrong_input(config: &NetworkConfig, found: &[usize]) -> Error {
    wrong_shape_of(config.axes(), &config.channels()[0].to_string(), found)
}
