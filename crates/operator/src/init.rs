//! Initial weights from a counter: every value is a function of (seed, number of the parameter, place in it).
//!
//! The generator is the kernels' Philox. Its counter's last word is 2³² − 1 here, which no dropout mask uses, so weights
//! and masks of one seed are independent. Nothing is drawn from Burn's global generator.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin_kernels::random::philox;

use crate::error::Result;

/// Makes the parameters of a model, one after the other, and numbers its layers.
#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    device: Device,
    parameters: u32,
    layers: u32,
}

impl Builder {
    /// Parameters on `device`; on a device with autodiff they are tracked.
    pub fn new(seed: u64, device: &Device) -> Self {
        Self { seed, device: device.clone(), parameters: 0, layers: 0 }
    }

    /// Where the parameters live.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A number for a layer's dropout masks, unique within the model.
    pub fn layer(&mut self) -> u32 {
        self.layers += 1;
        self.layers - 1
    }

    /// Layers one after the other, independent of each other or, as in the authors' code, all with the values of the first.
    pub fn layers<T>(
        &mut self,
        count: usize,
        equal: bool,
        init: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let first = self.parameters;
        let layer = |_| {
            if equal {
                self.parameters = first;
            }
            init(self)
        };
        (0..count).map(layer).collect()
    }

    /// All values the same.
    pub fn constant<const D: usize>(&mut self, shape: [usize; D], value: f32) -> Param<Tensor<D>> {
        let values = self.draw(shape.iter().product(), |_| [value; 2]);
        self.parameter(shape, values)
    }

    /// Uniform in (low, high).
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], low: f64, high: f64) -> Param<Tensor<D>> {
        let values = self.draw_uniform(shape.iter().product(), low, high);
        self.parameter(shape, values)
    }

    /// Normal with mean zero (Box and Muller).
    pub fn normal<const D: usize>(&mut self, shape: [usize; D], deviation: f64) -> Param<Tensor<D>> {
        let values = self.draw(shape.iter().product(), |[u, v]| {
            let (radius, turn) = (deviation * (-2.0 * libm::log(u)).sqrt(), std::f64::consts::TAU * v);
            [(radius * libm::cos(turn)) as f32, (radius * libm::sin(turn)) as f32]
        });
        self.parameter(shape, values)
    }

    /// A projection of attention, (d, d): Xavier-uniform with gain η, plus δ·I.
    pub fn projection(&mut self, d: usize, gain: f64, diagonal: f64) -> Param<Tensor<2>> {
        let bound = gain * (3.0 / d as f64).sqrt();
        let mut values = self.draw_uniform(d * d, -bound, bound);
        values.iter_mut().step_by(d + 1).for_each(|v| *v += diagonal as f32);
        self.parameter([d, d], values)
    }

    fn draw_uniform(&mut self, len: usize, low: f64, high: f64) -> Vec<f32> {
        self.draw(len, |u| u.map(|u| (low + (high - low) * u) as f32))
    }

    /// The values of the next parameter from pairs of uniform numbers in (0, 1), two neighbours from each.
    fn draw(&mut self, len: usize, f: impl Fn([f64; 2]) -> [f32; 2]) -> Vec<f32> {
        let number = self.parameters;
        self.parameters += 1;
        let unit = |word: u32| (word as f64 + 0.5) / 4_294_967_296.0;
        let block = |block: u64| {
            let counter = [block as u32, (block >> 32) as u32, number, u32::MAX];
            let [a, b, c, d] = philox(counter, [self.seed as u32, (self.seed >> 32) as u32]);
            [f([unit(a), unit(b)]), f([unit(c), unit(d)])]
        };
        (0..).flat_map(block).flatten().take(len).collect()
    }

    fn parameter<const D: usize>(&self, shape: [usize; D], values: Vec<f32>) -> Param<Tensor<D>> {
        Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), &self.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<const D: usize>(param: Param<Tensor<D>>) -> Vec<f32> {
        param.val().into_data().try_into_vec().unwrap()
    }

    /// Mean and variance within five standard errors of a sample of this size.
    fn check_moments(values: &[f32], variance: f64, kurtosis: f64) {
        let n = values.len() as f64;
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n;
        let found = values.iter().map(|v| (*v as f64).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 5.0 * (variance / n).sqrt(), "mean {mean}");
        let error = variance * ((kurtosis - 1.0) / n).sqrt();
        assert!((found - variance).abs() < 5.0 * error, "variance {found}, expected {variance}");
    }

    #[test]
    fn draws_have_the_variance_they_are_asked_for() {
        let mut builder = Builder::new(7, &Device::flex());
        check_moments(&values(builder.uniform([100, 1000], -0.3, 0.3)), 0.03, 1.8);
        check_moments(&values(builder.normal([100, 1000], 0.5)), 0.25, 3.0);
        let projection = values(builder.projection(200, 0.01, 0.0));
        check_moments(&projection, 1e-4 / 200.0, 1.8);
        assert!(projection.iter().all(|v| v.abs() <= 0.01 * (3.0f32 / 200.0).sqrt()));
    }

    #[test]
    fn a_projection_has_its_diagonal() {
        let with = values(Builder::new(7, &Device::flex()).projection(9, 0.01, 0.5));
        let without = values(Builder::new(7, &Device::flex()).projection(9, 0.01, 0.0));
        for i in 0..81 {
            assert_eq!(with[i], without[i] + if i % 10 == 0 { 0.5 } else { 0.0 });
        }
    }

    #[test]
    fn parameters_differ_and_repeat_with_the_seed() {
        let draw = |seed: u64| {
            let mut builder = Builder::new(seed, &Device::flex());
            [values(builder.uniform([33], -1.0, 1.0)), values(builder.uniform([33], -1.0, 1.0))]
        };
        let [first, second] = draw(1);
        assert_ne!(first, second);
        assert_eq!(draw(1), [first.clone(), second]);
        assert_ne!(draw(2)[0], first);
    }
}
