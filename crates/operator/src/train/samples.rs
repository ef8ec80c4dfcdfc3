//! Samples in memory and batches of them: the only place where a dataset becomes tensors.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin_data::normalize::Normalizer;
use galerkin_data::{Array, Axis, Dataset, Grid};

use crate::config::{DataConfig, LossConfig, Task};
use crate::error::{Error, Result};
use crate::layers::Activation;
use crate::loss::{Ends, Gradient2d, Loss, Loss1dConfig, Loss2dConfig};
use crate::models::Field;
use crate::ops;
use crate::reference::to_vec;
use crate::run;

/// Samples on the grid they are trained or evaluated on.
#[derive(Clone, Debug)]
pub struct Samples {
    /// (samples, points…, channels), normalised, with noise.
    pub inputs: Array,
    /// (samples, points…, channels)
    pub targets: Array,
    /// The grid of the targets.
    pub grid: Grid,
    /// u′ (samples, n), or ∇u (samples, n₁, n₂, 2).
    slopes: Option<Array>,
    /// a (samples, n₁, n₂, 1), which weighs ∇u.
    coefficients: Option<Array>,
}

/// Some of the samples as tensors.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What goes in.
    pub input: Field,
    /// What should come out.
    pub target: Field,
    slope: Option<Field>,
    coefficient: Option<Tensor<4>>,
}

/// What the samples are a view of.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is learned.
    pub task: Task,
    /// Points, a side in 2D, of the inputs.
    pub grid: usize,
    /// Points a side of the targets of the inverse problem.
    pub coarse: usize,
    /// Of the inputs, on any grid.
    pub normalizer: Option<&'a Normalizer>,
    /// Noise on the normalised inputs.
    pub noise: f64,
    /// Of the noise.
    pub seed: u64,
}

impl<'a> View<'a> {
    /// As a run is trained.
    pub fn of(data: &DataConfig, seed: u64, normalizer: Option<&'a Normalizer>) -> Self {
        let &DataConfig { task, grid, coarse, noise, .. } = data;
        Self { task, grid, coarse: coarse.unwrap_or(grid), normalizer, noise, seed }
    }

    /// The dataset on the grids of the view, without normalisation and noise.
    pub fn plain(&self, dataset: &Dataset) -> run::Result<Dataset> {
        let dataset = dataset.clone().subsample_to(self.grid)?;
        Ok(match self.task {
            Task::Burgers | Task::Darcy => dataset,
            Task::DarcyInverse => dataset.inverse(Some(self.coarse))?,
        })
    }
}

impl Samples {
    /// The samples `indices` of a dataset, with derivatives of the targets if they are `regularized`. These are computed on the grid of
    /// the dataset, which is finer than that of the view.
    pub fn load(
        dataset: &Dataset,
        view: &View,
        indices: &[usize],
        regularized: bool,
        device: &Device,
    ) -> run::Result<Self> {
        let mut plain = view.plain(dataset)?;
        let grid = plain.target_grid()?;
        let weighted = regularized && view.task == Task::Darcy;
        let coefficients = if weighted { Some(plain.batch(indices)?.input) } else { None };
        if let Some(normalizer) = view.normalizer {
            let normalizer = on_grid(normalizer, &plain.grid()?.points(), device)?;
            plain = plain.normalized(normalizer)?;
        }
        let pairs = plain.noisy(view.noise, view.seed).batch(indices)?;
        let slopes = match regularized && view.task != Task::DarcyInverse {
            true => Some(slopes(dataset, &grid, indices)?),
            false => None,
        };
        Ok(Self { inputs: pairs.input, targets: pairs.target, grid, slopes, coefficients })
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
    pub fn batch(&self, places: &[usize], device: &Device) -> Result<Batch> {
        let coefficient = match &self.coefficients {
            None => None,
            Some(array) => match field(array, places, device)? {
                Field::Square(a) => Some(a),
                Field::Line(_) => None,
            },
        };
        let slope = self.slopes.as_ref().map(|array| field(array, places, device)).transpose()?;
        Ok(Batch {
            input: field(&self.inputs, places, device)?,
            target: field(&self.targets, places, device)?,
            slope,
            coefficient,
        })
    }

    /// Batches of at most `batch` samples, in order.
    pub fn batches(&self, batch: usize) -> impl Iterator<Item = Vec<usize>> {
        let len = self.len();
        (0..len).step_by(batch.max(1)).map(move |start| (start..len.min(start + batch.max(1))).collect())
    }
}

impl Batch {
    /// How far a prediction is off.
    pub fn loss(&self, prediction: Field, grid: &Grid, loss: LossConfig) -> Result<Loss> {
        let LossConfig { gamma, interior } = loss;
        let one_channel = |dims: &[usize]| match dims.last() {
            Some(1) => Ok(()),
            _ => Err(Error::Shape {
                what: "target".into(),
                expected: "one channel".into(),
                found: dims.to_vec(),
            }),
        };
        one_channel(&self.target.dims())?;
        match (prediction, &self.target) {
            (Field::Line(p), Field::Line(u)) => {
                let wraps = grid.axes[0].periodic && !interior;
                let ends = if wraps { Ends::Periodic } else { Ends::Interior };
                let config = Loss1dConfig { spacing: grid.axes[0].spacing(), gamma, ends };
                let slope = match &self.slope {
                    Some(Field::Line(slope)) => Some(slope.clone().squeeze_dim(2)),
                    _ => None,
                };
                config.forward(p.squeeze_dim(2), u.clone().squeeze_dim(2), slope)
            }
            (Field::Square(p), Field::Square(u)) => {
                let spacing = [grid.axes[0].spacing(), grid.axes[1].spacing()];
                let config = Loss2dConfig { spacing, gamma, eps: Loss2dConfig::EPS, ends: Ends::Interior };
                let gradient = match &self.slope {
                    Some(Field::Square(gradient)) => {
                        Some(Gradient2d { gradient: gradient.clone(), coefficient: self.coefficient.clone() })
                    }
                    _ => None,
                };
                config.forward(p.squeeze_dim(3), u.clone().squeeze_dim(3), gradient)
            }
            (prediction, target) => Err(Error::Shape {
                what: "prediction".into(),
                expected: format!("{:?}", target.dims()),
                found: prediction.dims(),
            }),
        }
    }
}

/// Some rows of an array (samples, points…, channels) as a tensor.
pub(crate) fn field(array: &Array, places: &[usize], device: &Device) -> Result<Field> {
    let len: usize = array.shape[1..].iter().product();
    let mut values = Vec::with_capacity(places.len() * len);
    for place in places {
        values.extend_from_slice(&array.values[place * len..(place + 1) * len]);
    }
    match array.shape[1..] {
        [n, c] => Ok(Field::Line(Tensor::from_data(TensorData::new(values, [places.len(), n, c]), device))),
        [n1, n2, c] => {
            let data = TensorData::new(values, [places.len(), n1, n2, c]);
            Ok(Field::Square(Tensor::from_data(data, device)))
        }
        _ => Err(Error::Shape {
            what: "samples".into(),
            expected: "(samples, n, channels) or (samples, n₁, n₂, channels)".into(),
            found: array.shape.clone(),
        }),
    }
}

/// A normaliser on another grid, bilinearly interpolated.
pub fn on_grid(normalizer: &Normalizer, points: &[usize], device: &Device) -> run::Result<Normalizer> {
    let ([n1, n2, c], &[m1, m2]) = (
        <[usize; 3]>::try_from(normalizer.mean.shape.clone()).map_err(|found| Error::Shape {
            what: "normaliser".into(),
            expected: "(n₁, n₂, channels)".into(),
            found,
        })?,
        points,
    ) else {
        return Err(Error::setting("normaliser of inputs on a line", "it is for those on a square").into());
    };
    if [n1, n2] == [m1, m2] {
        return Ok(normalizer.clone());
    }
    let resized = |array: &Array| resized(array, [n1, n2, c], [m1, m2], device);
    Ok(Normalizer::new(resized(&normalizer.mean)?, resized(&normalizer.deviation)?)?)
}

/// Values (n₁, n₂, channels) on another grid of the square, bilinearly interpolated.
pub(crate) fn resized(
    array: &Array,
    [n1, n2, c]: [usize; 3],
    [m1, m2]: [usize; 2],
    device: &Device,
) -> Result<Array> {
    let tensor = Tensor::<4>::from_data(TensorData::new(array.values.clone(), [1, n1, n2, c]), device);
    let values = to_vec(ops::resize(tensor, [m1, m2], Activation::None.into())?);
    Ok(Array { shape: vec![m1, m2, c], values })
}

/// Derivatives of the targets: central differences on the dataset's own grid, one-sided of second order at ends that are no
/// neighbours, taken at the points of `grid`.
fn slopes(dataset: &Dataset, grid: &Grid, indices: &[usize]) -> run::Result<Array> {
    let fine = dataset.target_grid()?;
    let axes = fine.axes.len();
    let mut values = Vec::new();
    for index in indices {
        let u = dataset.sample(*index)?.target;
        match (&fine.axes[..], &grid.points()[..]) {
            ([axis], &[m]) => {
                let n = axis.points;
                let stride = n / m;
                values.extend((0..m).map(|j| slope(|i| u.values[i], j * stride, axis) as f32));
            }
            ([one, two], &[m1, m2]) => {
                let (n1, n2) = (one.points, two.points);
                let stride = |n: usize, m: usize| (n - 1) / (m - 1).max(1);
                for at in 0..m1 * m2 {
                    let (i, j) = (at / m2 * stride(n1, m1), at % m2 * stride(n2, m2));
                    values.push(slope(|i| u.values[i * n2 + j], i, one) as f32);
                    values.push(slope(|j| u.values[i * n2 + j], j, two) as f32);
                }
            }
            _ => return Err(Error::setting(format!("grid of {axes} axes"), "there are one or two").into()),
        }
    }
    let shape = [vec![indices.len()], grid.points(), vec![axes]].concat();
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

    #[test]
    fn slopes_are_derivatives_on_the_grid_of_training() {
        let n = 64;
        let wave: Vec<f32> =
            (0..n).map(|j| (std::f64::consts::TAU * j as f64 / n as f64).sin() as f32).collect();
        let array = |values: Vec<f32>, shape: &[usize]| Array { shape: shape.to_vec(), values };
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
}
