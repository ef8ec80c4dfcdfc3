//! The normaliser of targets: mean and deviation of the training targets, per channel or at every point of the grid.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin_data::Array;
use galerkin_data::normalize::Normalizer;

use super::resized;
use crate::error::{Error, Result};
use crate::reference::to_vec;

/// (u − mean)/(deviation + ε) and back, with one mean per channel or one at every point of a grid, which is interpolated to others.
#[derive(Module, Debug)]
pub struct TargetNormalizer {
    /// (n, c); (1, c) by channel.
    mean: Tensor<2>,
    /// (n, c); (1, c) by channel.
    deviation: Tensor<2>,
    /// Points along each axis; empty by channel.
    #[module(skip)]
    grid: Vec<usize>,
}

impl TargetNormalizer {
    /// ε of the reference.
    pub const EPS: f64 = 1e-5;

    /// From what was fitted to targets (points…, c), at every point or by channel.
    pub fn new(fit: &Normalizer, device: &Device) -> Result<Self> {
        let tensor = |array: &Array| {
            let c = array.shape.last().copied().unwrap_or(0);
            if c == 0 || array.shape.iter().product::<usize>() != array.values.len() {
                let expected = "(points…, channels)".to_string();
                let what = "normaliser of targets".to_string();
                return Err(Error::Shape { what, expected, found: array.shape.clone() });
            }
            let data = TensorData::new(array.values.clone(), [array.values.len() / c, c]);
            Ok(Tensor::<2>::from_data(data, device))
        };
        Error::check_shape("deviation of a normaliser", &fit.deviation.shape, &fit.mean.shape)?;
        let grid = fit.mean.shape[..fit.mean.shape.len().saturating_sub(1)].to_vec();
        Ok(Self { mean: tensor(&fit.mean)?, deviation: tensor(&fit.deviation)?, grid })
    }

    /// Mean and deviation, of shape (points…, c) or (c).
    pub fn arrays(&self) -> [Array; 2] {
        let shape = [self.grid.clone(), vec![self.mean.dims()[1]]].concat();
        [&self.mean, &self.deviation]
            .map(|tensor| Array { shape: shape.clone(), values: to_vec(tensor.clone()) })
    }

    /// (u − mean)/(deviation + ε) of u (B, n, c) on a grid.
    pub fn normalize(&self, u: Tensor<3>, grid: &[usize], periodic: &[bool]) -> Result<Tensor<3>> {
        let [mean, scale] = self.on(&u, grid, periodic)?;
        Ok((u - mean) / scale)
    }

    /// y·(deviation + ε) + mean of y (B, n, c) on a grid, the inverse of [`normalize`](Self::normalize).
    pub fn denormalize(&self, y: Tensor<3>, grid: &[usize], periodic: &[bool]) -> Result<Tensor<3>> {
        let [mean, scale] = self.on(&y, grid, periodic)?;
        Ok(y * scale + mean)
    }

    /// Mean and deviation + ε on the grid of x.
    fn on(&self, x: &Tensor<3>, grid: &[usize], periodic: &[bool]) -> Result<[Tensor<3>; 2]> {
        let ([batch, n, _], c) = (x.dims(), self.mean.dims()[1]);
        Error::check_shape("values for the normaliser of targets", &x.dims(), &[batch, n, c])?;
        let on_grid = |values: &Tensor<2>| {
            let values = values.clone().unsqueeze::<3>();
            match self.grid.is_empty() {
                true => Ok(values),
                false if self.grid.len() != grid.len() => {
                    let expected = format!("a grid of {} axes", self.grid.len());
                    Err(Error::Shape { what: "normaliser of targets".into(), expected, found: grid.to_vec() })
                }
                false => resized(values, &self.grid, grid, periodic),
            }
        };
        Ok([on_grid(&self.mean)?, on_grid(&self.deviation)? + Self::EPS as f32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use galerkin_data::normalize::Fit;

    fn array(values: &[f32], shape: &[usize]) -> Array {
        Array { shape: shape.to_vec(), values: values.to_vec() }
    }

    #[test]
    fn fits_and_inverts() {
        let device = Device::flex();
        // Two samples of a 1 x 2 grid: means 2 and −1, deviations 1 and 3.
        let values = [1.0, 2.0, 3.0, -4.0];
        let mut fit = Fit::new(&[1, 2, 1]);
        values.chunks_exact(2).for_each(|sample| fit.add(sample).unwrap());
        let normalizer = TargetNormalizer::new(&fit.finish().unwrap(), &device).unwrap();
        let [mean, deviation] = normalizer.arrays();
        assert_eq!((mean, deviation), (array(&[2.0, -1.0], &[1, 2, 1]), array(&[1.0, 3.0], &[1, 2, 1])));
        let x = Tensor::<3>::from_data(TensorData::new(values.to_vec(), [2, 2, 1]), &device);
        let (grid, closed) = ([1, 2], [false; 2]);
        let normal = normalizer.normalize(x, &grid, &closed).unwrap();
        for (found, expected) in to_vec(normal.clone()).iter().zip([-1.0, 1.0, 1.0, -1.0]) {
            assert!((found - expected).abs() < 2e-5, "{found}, {expected}");
        }
        let back = normalizer.denormalize(normal, &grid, &closed).unwrap();
        for (found, expected) in to_vec(back).iter().zip(values) {
            assert!((found - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn another_grid_gets_interpolated_statistics_and_channels_any() {
        let device = Device::flex();
        let zero = |n: usize| Tensor::<3>::zeros([1, n, 1], &device);
        let by_point = Normalizer::new(array(&[0.0, 2.0], &[2, 1]), array(&[1.0, 3.0], &[2, 1])).unwrap();
        let by_point = TargetNormalizer::new(&by_point, &device).unwrap();
        assert_eq!(to_vec(by_point.denormalize(zero(3), &[3], &[false]).unwrap()), [0.0, 1.0, 2.0]);
        assert_eq!(to_vec(by_point.denormalize(zero(4), &[4], &[true]).unwrap()), [0.0, 1.0, 2.0, 1.0]);
        assert!(by_point.denormalize(zero(4), &[2, 2], &[false; 2]).is_err());
        let by_channel = Normalizer::new(array(&[5.0], &[1]), array(&[1.0], &[1])).unwrap();
        let by_channel = TargetNormalizer::new(&by_channel, &device).unwrap();
        assert_eq!(to_vec(by_channel.denormalize(zero(4), &[2, 2], &[false; 2]).unwrap()), [5.0; 4]);
    }
}
