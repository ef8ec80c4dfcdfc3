//! The pointwise Gaussian normaliser: mean and deviation of the training targets at every point of the grid.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};

use galerkin_data::Array;

use super::Activation;
use crate::error::{Error, Result};
use crate::ops;

/// (x − mean)/(deviation + ε) and back, at every point of an n₁ × n₂ grid; 1D grids have n₂ = 1.
#[derive(Module, Debug)]
pub struct Normalizer {
    /// (n₁, n₂, c)
    pub mean: Tensor<3>,
    /// (n₁, n₂, c)
    pub deviation: Tensor<3>,
    eps: f64,
}

impl Normalizer {
    /// ε of the reference.
    pub const EPS: f64 = 1e-5;

    /// From mean and deviation of one shape (n₁, n₂, c).
    pub fn new(mean: Tensor<3>, deviation: Tensor<3>) -> Result<Self> {
        Error::check_shape("normaliser deviation", &deviation.dims(), &mean.dims())?;
        Ok(Self { mean, deviation, eps: Self::EPS })
    }

    /// From what was fitted to samples (n₁, n₂, c).
    pub fn from_fit(fit: &galerkin_data::normalize::Normalizer, device: &Device) -> Result<Self> {
        let tensor = |array: &Array| match <[usize; 3]>::try_from(array.shape.clone()) {
            Ok(shape) => Ok(Tensor::from_data(TensorData::new(array.values.clone(), shape), device)),
            Err(found) => {
                Err(Error::Shape { what: "normaliser".into(), expected: "(n₁, n₂, c)".into(), found })
            }
        };
        Self::new(tensor(&fit.mean)?, tensor(&fit.deviation)?)
    }

    /// (x − mean)/(deviation + ε) of (B, n₁, n₂, c); mean and deviation are interpolated to another grid.
    pub fn normalize(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        let (mean, scale) = self.on_grid_of(&x)?;
        Ok((x - mean) / scale)
    }

    /// x·(deviation + ε) + mean, the inverse of [`normalize`](Self::normalize).
    pub fn denormalize(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        let (mean, scale) = self.on_grid_of(&x)?;
        Ok(x * scale + mean)
    }

    /// Mean and deviation + ε as (1, n₁, n₂, c) on the grid of x.
    fn on_grid_of(&self, x: &Tensor<4>) -> Result<(Tensor<4>, Tensor<4>)> {
        let ([batch, n1, n2, _], [_, _, c]) = (x.dims(), self.mean.dims());
        Error::check_shape("normaliser input", &x.dims(), &[batch, n1, n2, c])?;
        let on_grid = |values: &Tensor<3>| {
            let values = values.clone().unsqueeze::<4>();
            match values.dims() == [1, n1, n2, c] {
                true => Ok(values),
                false => ops::resize(values, [n1, n2], Activation::None.into()),
            }
        };
        Ok((on_grid(&self.mean)?, on_grid(&self.deviation)? + self.eps as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::to_vec;
    use galerkin_data::normalize::Fit;

    #[test]
    fn fits_and_inverts() {
        let device = Device::flex();
        // Two samples of a 1 x 2 grid: means 2 and −1, deviations 1 and 3.
        let values = [1.0, 2.0, 3.0, -4.0];
        let mut fit = Fit::new(&[1, 2, 1]);
        values.chunks_exact(2).for_each(|sample| fit.add(sample).unwrap());
        let normalizer = Normalizer::from_fit(&fit.finish().unwrap(), &device).unwrap();
        assert_eq!(to_vec(normalizer.mean.clone()), [2.0, -1.0]);
        assert_eq!(to_vec(normalizer.deviation.clone()), [1.0, 3.0]);
        let x = Tensor::<4>::from_data(TensorData::new(values.to_vec(), [2, 1, 2, 1]), &device);
        let normal = to_vec(normalizer.normalize(x.clone()).unwrap());
        for (found, expected) in normal.iter().zip([-1.0, 1.0, 1.0, -1.0]) {
            assert!((found - expected).abs() < 2e-5, "{normal:?}");
        }
        let back = normalizer.denormalize(normalizer.normalize(x).unwrap()).unwrap();
        for (found, expected) in to_vec(back).iter().zip(values) {
            assert!((found - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn another_grid_gets_interpolated_statistics() {
        let device = Device::flex();
        let tensor =
            |values: Vec<f32>, shape| Tensor::<3>::from_data(TensorData::new(values, shape), &device);
        let normalizer =
            Normalizer::new(tensor(vec![0.0, 2.0], [1, 2, 1]), tensor(vec![1.0, 3.0], [1, 2, 1])).unwrap();
        let zero = Tensor::<4>::zeros([1, 1, 3, 1], &device);
        assert_eq!(to_vec(normalizer.denormalize(zero).unwrap()), [0.0, 1.0, 2.0]);
    }
}
