//! Samples in memory and batches of them: the only place where a dataset becomes tensors.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin_data::dataset::Statistics;
use galerkin_data::normalize::Normalizer;
use galerkin_data::split::{Parts, Split};
use galerkin_data::{Array, Axis, Dataset, Grid};

use crate::config::{DataConfig, LossConfig, Normalization, RunConfig};
use crate::error::{Error, Result};
use crate::layers::{Mode, resized};
use crate::loss::{GridLoss, LossTarget};
use crate::networks::Network;
use crate::reference::to_vec;

/// Samples on the grid they are trained or evaluated on.
#[derive(Clone, Debug)]
pub struct Samples {
    /// (samples, points…, channels), normalised, with noise.
    pub inputs: Array,
    /// (samples, points…, channels)
    pub targets: Array,
    /// The grid of the inputs.
    pub input_grid: Grid,
    /// The grid of the targets.
    pub grid: Grid,
    /// ∇u (samples, points…, channels · axes).
    pub(crate) slopes: Option<Array>,
    /// What ∇u is weighed by, (samples, points…, 1).
    pub(crate) weights: Option<Array>,
}

/// Some of the samples as tensors.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What goes in, (B, points, channels).
    pub input: Tensor<3>,
    /// What should come out.
    pub target: LossTarget,
}

/// How a run sees a dataset.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Points along the first axis of the inputs.
    pub grid: usize,
    /// Whether inputs are learned from targets.
    pub inverse: bool,
    /// Points a side that the targets of an inverse problem on a square are averaged to.
    pub coarse: Option<usize>,
    /// Of the inputs, on any grid.
    pub normalizer: Option<&'a Normalizer>,
    /// Noise on the normalised inputs.
    pub noise: f64,
    /// Of the noise.
    pub seed: u64,
}

impl<'a> View<'a> {
    /// As a run is validated.
    pub fn of(data: &DataConfig, seed: u64, normalizer: Option<&'a Normalizer>) -> Self {
        let &DataConfig { grid, inverse, coarse, noise, .. } = data;
        Self { grid, inverse, coarse, normalizer, noise: noise.mean(), seed }
    }

    /// The dataset on the grids of the view, without normalisation and noise.
    pub fn plain(&self, dataset: &Dataset) -> Result<Dataset> {
        let coarse = dataset.grid()?.axes[0].points != self.grid;
        let dataset = if coarse { dataset.clone().subsample_to(self.grid)? } else { dataset.clone() };
        Ok(if self.inverse { dataset.inverse(self.coarse)? } else { dataset })
    }
}

impl Samples {
    /// The samples `indices` of a dataset, for a loss with what it needs to know of the targets' derivatives. These are computed on the grid of
    /// the dataset, which is finer than that of the view.
    pub fn load(
        dataset: &Dataset,
        view: &View,
        indices: &[usize],
        loss: Option<&LossConfig>,
        device: &Device,
    ) -> Result<Self> {
        let mut plain = view.plain(dataset)?;
        let (input_grid, grid) = (plain.grid()?, plain.target_grid()?);
        let regularized = loss.filter(|loss| loss.gamma > 0.0);
        let weights = match regularized.filter(|loss| loss.weight != "none") {
            None => None,
            Some(loss) => Some(weights(&plain, &loss.weight, indices)?),
        };
        // What is averaged to a coarser grid has no values between its points.
        let slopes = match (regularized, view.inverse) {
            (None, _) => None,
            (Some(_), false) => Some(slopes(dataset, &grid, indices)?),
            (Some(_), true) => Some(slopes(&plain, &grid, indices)?),
        };
        if let Some(normalizer) = view.normalizer {
            plain = plain.normalized(on_grid(normalizer, &input_grid, device)?)?;
        }
        let pairs = plain.noisy(view.noise, view.seed).batch(indices)?;
        Ok(Self { inputs: pairs.input, targets: pairs.target, input_grid, grid, slopes, weights })
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.inputs.shape[0]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples at these places.
    pub fn batch(&self, places: &[usize], device: &Device) -> Batch {
        let rows = |array: &Array| rows(array, places, device);
        let target = LossTarget {
            values: rows(&self.targets),
            slopes: self.slopes.as_ref().map(rows),
            weight: self.weights.as_ref().map(rows),
        };
        Batch { input: rows(&self.inputs), target }
    }

    /// Batches of at most `batch` samples, in order.
    pub fn batches(&self, batch: usize) -> impl Iterator<Item = Vec<usize>> {
        let len = self.len();
        (0..len).step_by(batch.max(1)).map(move |start| (start..len.min(start + batch.max(1))).collect())
    }

    /// What a network says of these samples, (samples, points…, channels).
    pub fn predict(&self, network: &Network, device: &Device) -> Result<Vec<f32>> {
        self.predict_inputs(&self.inputs, network, device)
    }

    /// What a network says of other inputs on the grid of these.
    pub(crate) fn predict_inputs(
        &self,
        inputs: &Array,
        network: &Network,
        device: &Device,
    ) -> Result<Vec<f32>> {
        let grid = self.input_grid.points();
        let mut values = Vec::with_capacity(self.targets.values.len());
        for places in self.batches(batch_of(inputs.shape[1..].iter().product())) {
            let x = rows(inputs, &places, device);
            values.extend(to_vec(network.forward_points(x, &grid, Mode::Evaluate, &mut |_, _, _| {})?));
        }
        Ok(values)
    }

    /// The loss of predictions on these samples' grid.
    pub fn loss(&self, config: &LossConfig) -> GridLoss {
        GridLoss {
            grid: self.grid.points(),
            spacing: self.grid.spacing(),
            periodic: self.grid.periodic().iter().map(|periodic| *periodic && !config.interior).collect(),
            gamma: config.gamma,
            eps: config.eps,
            channels: config.channels.clone(),
        }
    }
}

/// Which samples of a dataset a run is trained, validated and tested on: within the parts that the dataset means for that, if it does.
pub fn split_of(config: &RunConfig, dataset: &Dataset) -> Result<Split> {
    split(config, dataset.meta().and_then(|meta| meta.split.as_ref()), dataset.len())
}

/// The same for a dataset of so many samples, in these parts.
pub(crate) fn split(config: &RunConfig, parts: Option<&Parts>, samples: usize) -> Result<Split> {
    let (&DataConfig { train, validation, test, .. }, seed) = (&config.data, config.train.seed);
    Ok(match parts {
        Some(parts) => Split::within(parts, [train, validation, test], seed)?,
        None => Split::new(samples, train, validation, test, seed)?,
    })
}

/// The normaliser that a setting asks for.
pub(crate) fn fitted(
    how: Normalization,
    fit: impl FnOnce(Statistics) -> galerkin_data::Result<Normalizer>,
) -> Result<Option<Normalizer>> {
    let statistics = match how {
        Normalization::None => return Ok(None),
        Normalization::Channel => Statistics::Channel,
        Normalization::Point => Statistics::Point,
    };
    Ok(Some(fit(statistics)?))
}

/// Samples that go through a network together: enough to keep threads busy, few enough to need little memory.
pub(crate) fn batch_of(values: usize) -> usize {
    (32_768 / values.max(1)).clamp(1, 64)
}

/// Some rows of an array (samples, points…, channels) as a tensor (B, points, channels).
pub(crate) fn rows(array: &Array, places: &[usize], device: &Device) -> Tensor<3> {
    let len: usize = array.shape[1..].iter().product();
    let channels = array.shape.last().copied().unwrap_or(1).max(1);
    let mut values = Vec::with_capacity(places.len() * len);
    for place in places {
        values.extend_from_slice(&array.values[place * len..(place + 1) * len]);
    }
    Tensor::from_data(TensorData::new(values, [places.len(), len / channels, channels]), device)
}

/// Does something to every sample of (samples, points…, channels).
pub(crate) fn for_each_sample(
    array: &mut Array,
    change: impl Fn(&mut [f32]) -> galerkin_data::Result<()>,
) -> Result<()> {
    let len = array.values.len() / array.shape[0].max(1);
    Ok(array.values.chunks_exact_mut(len.max(1)).try_for_each(change)?)
}

/// A normaliser on another grid, interpolated; one by channel is the same on all.
pub fn on_grid(normalizer: &Normalizer, grid: &Grid, device: &Device) -> Result<Normalizer> {
    if normalizer.is_by_channel() {
        return Ok(normalizer.clone());
    }
    let resized = |array: &Array| on_points(array, grid, device);
    Ok(Normalizer::new(resized(&normalizer.mean)?, resized(&normalizer.deviation)?)?)
}

/// Values (points…, channels) on another grid of the same domain, interpolated.
pub(crate) fn on_points(array: &Array, grid: &Grid, device: &Device) -> Result<Array> {
    let (channels, from) = array.shape.split_last().map_or((1, &[][..]), |(c, from)| (*c, from));
    let to = grid.points();
    if from.len() != to.len() {
        let expected = format!("({} axes of points, channels)", to.len());
        return Err(Error::Shape { what: "values on a grid".into(), expected, found: array.shape.clone() });
    }
    if from == to {
        return Ok(array.clone());
    }
    let points = from.iter().product::<usize>();
    let tensor = Tensor::<3>::from_data(TensorData::new(array.values.clone(), [1, points, channels]), device);
    let values = to_vec(resized(tensor, from, &to, &grid.periodic())?);
    Ok(Array { shape: [to, vec![channels]].concat(), values })
}

/// One channel of the inputs, as it is without normalisation and noise: (samples, points…, 1).
fn weights(plain: &Dataset, name: &str, indices: &[usize]) -> Result<Array> {
    let names = plain.input_channels();
    let Some(channel) = names.iter().position(|known| known == name) else {
        let why = format!("the inputs have the channels {}", names.join(", "));
        return Err(Error::setting(format!("loss.weight = {name:?}"), why));
    };
    if plain.target_grid()?.points() != plain.grid()?.points() {
        let why = "inputs and targets lie on different grids; take \"none\"";
        return Err(Error::setting(format!("loss.weight = {name:?}"), why));
    }
    let Array { mut shape, values } = plain.batch(indices)?.input;
    let channels = shape.pop().unwrap_or(1).max(1);
    shape.push(1);
    let values: Vec<f32> = values.into_iter().skip(channel).step_by(channels).collect();
    if let Some(negative) = values.iter().find(|value| **value < 0.0) {
        let why = format!("it has the value {negative}, and a weight is not negative; take \"none\"");
        return Err(Error::setting(format!("loss.weight = {name:?}"), why));
    }
    Ok(Array { shape, values })
}

/// Derivatives of the targets: central differences on the dataset's own grid, one-sided of second order at ends that are no
/// neighbours, taken at the points of `grid`. (samples, points…, channels · axes)
fn slopes(dataset: &Dataset, grid: &Grid, indices: &[usize]) -> Result<Array> {
    let fine = dataset.target_grid()?;
    let channels = dataset.target_channels().len();
    let axes = fine.axes.len();
    let strides: Vec<usize> = fine
        .axes
        .iter()
        .zip(&grid.axes)
        .map(|(fine, coarse)| fine.intervals() / coarse.intervals())
        .collect();
    // How far neighbours along each axis lie apart in the fine values.
    let apart: Vec<usize> = (0..axes)
        .map(|axis| fine.axes[axis + 1..].iter().map(|a| a.points).product::<usize>() * channels)
        .collect();
    let mut values = Vec::with_capacity(indices.len() * grid.len() * channels * axes);
    for index in indices {
        let u = dataset.sample(*index)?.target.values;
        for point in 0..grid.len() {
            let mut rest = point;
            let mut at = vec![0; axes];
            for axis in (0..axes).rev() {
                let n = grid.axes[axis].points;
                at[axis] = rest % n * strides[axis];
                rest /= n;
            }
            let place: usize = at.iter().zip(&apart).map(|(i, apart)| i * apart).sum();
            for channel in 0..channels {
                for axis in 0..axes {
                    let line = place - at[axis] * apart[axis] + channel;
                    let along = |i: usize| u[line + i * apart[axis]];
                    values.push(slope(along, at[axis], &fine.axes[axis]) as f32);
                }
            }
        }
    }
    let shape = [vec![indices.len()], grid.points(), vec![channels * axes]].concat();
    Ok(Array { shape, values })
}

/// The derivative at point i of an axis.
fn slope(u: impl Fn(usize) -> f32, i: usize, axis: &Axis) -> f64 {
    let (u, n, h) = (|i: usize| u(i) as f64, axis.points, axis.spacing());
    match axis.periodic {
        true => (u((i + 1) % n) - u((i + n - 1) % n)) / (2.0 * h),
        false if n < 3 => 0.0,
        false if i == 0 => (-3.0 * u(0) + 4.0 * u(1) - u(2)) / (2.0 * h),
        false if i + 1 == n => (3.0 * u(i) - 4.0 * u(i - 1) + u(i - 2)) / (2.0 * h),
        false => (u(i + 1) - u(i - 1)) / (2.0 * h),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: Vec<f32>, shape: &[usize]) -> Array {
        Array { shape: shape.to_vec(), values }
    }

    #[test]
    fn slopes_are_derivatives_on_the_grid_of_training() {
        let n = 64;
        let wave: Vec<f32> =
            (0..n).map(|j| (std::f64::consts::TAU * j as f64 / n as f64).sin() as f32).collect();
        let wave = array(wave, &[1, n, 1]);
        let dataset = Dataset::from_arrays(wave.clone(), wave, Grid::unit(&[n], true)).unwrap();
        let found = slopes(&dataset, &Grid::unit(&[16], true), &[0]).unwrap();
        assert_eq!(found.shape, [1, 16, 1]);
        for (j, found) in found.values.iter().enumerate() {
            let exact = std::f64::consts::TAU * (std::f64::consts::TAU * j as f64 / 16.0).cos();
            // The difference of the wave is its derivative times sin(2πh)/(2πh), which is 1 − 1.6e-3; f32 adds 1e-5.
            assert!((*found as f64 - exact).abs() < 0.012, "{j}: {found}, {exact}");
        }
        // x² + 3y on 5 x 5 vertices, exact for all three differences.
        let values =
            (0..25).map(|at| ((at / 5) as f32 / 4.0).powi(2) + 3.0 * (at % 5) as f32 / 4.0).collect();
        let parabola = array(values, &[1, 5, 5, 1]);
        let dataset = Dataset::from_arrays(parabola.clone(), parabola, Grid::unit(&[5, 5], false)).unwrap();
        let found = slopes(&dataset, &Grid::unit(&[3, 3], false), &[0]).unwrap();
        for (at, found) in found.values.chunks_exact(2).enumerate() {
            assert!(
                (found[0] - (at / 3) as f32).abs() < 1e-5 && (found[1] - 3.0).abs() < 1e-5,
                "{at}: {found:?}"
            );
        }
    }

    #[test]
    fn slopes_of_several_channels_on_three_axes_of_different_lengths() {
        // Two channels, x + 2y + 3z and its negative, on a box of 2 x 1 x 4 with the first axis twice as long as it has unit intervals.
        let mut grid = Grid::unit(&[3, 5, 3], false);
        (grid.axes[0].length, grid.axes[2].length) = (2.0, 4.0);
        let mut values = Vec::new();
        for at in 0..45 {
            let place = [at / 15, at / 3 % 5, at % 3];
            let x: Vec<f64> = place.iter().zip(grid.spacing()).map(|(i, h)| *i as f64 * h).collect();
            let u = (x[0] + 2.0 * x[1] + 3.0 * x[2]) as f32;
            values.extend([u, -u]);
        }
        let linear = array(values, &[1, 3, 5, 3, 2]);
        let dataset = Dataset::from_arrays(linear.clone(), linear, grid.clone()).unwrap();
        let found = slopes(&dataset, &grid.every(2), &[0]).unwrap();
        assert_eq!(found.shape, [1, 2, 3, 2, 6]);
        for point in found.values.chunks_exact(6) {
            for (found, exact) in point.iter().zip([1.0, 2.0, 3.0, -1.0, -2.0, -3.0]) {
                assert!((found - exact).abs() < 1e-5, "{point:?}");
            }
        }
    }

    #[test]
    fn a_weight_is_a_channel_of_the_inputs() {
        let grid = Grid::unit(&[2], false);
        let inputs = array(vec![1.0, 10.0, 2.0, 20.0], &[1, 2, 2]);
        let dataset = Dataset::from_arrays(inputs, array(vec![0.0; 2], &[1, 2, 1]), grid).unwrap();
        assert_eq!(weights(&dataset, "input1", &[0]).unwrap(), array(vec![10.0, 20.0], &[1, 2, 1]));
        let error = weights(&dataset, "a", &[0]).unwrap_err().to_string();
        assert_eq!(error, "loss.weight = \"a\": the inputs have the channels input0, input1");
    }
}
