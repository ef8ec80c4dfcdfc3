//! The interpolation network (CiNN): 3 × 3 convolutions and bilinear resizes between a fine and a coarse grid.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Activation, Mode, check_rates, check_sizes};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops;
use crate::reference::{Entry, Layout, ReferenceNames};

/// The sizes between a fine grid of n_f and a coarse one of n_c points a side: the reference's rule.
///
/// The factor is about √(n_c/n_f), on a lattice of 0.005, moved up where the last digit of its four decimals is small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerSizes {
    /// Each of the two steps of a downsampler that goes by factor.
    pub factor: f64,
    /// The size between the two steps of an upsampler, and of a downsampler that goes by size.
    pub middle: usize,
}

impl ScalerSizes {
    /// For 2 ≤ n_c ≤ n_f.
    pub fn between(fine: usize, coarse: usize) -> Result<Self> {
        if coarse < 2 || coarse > fine {
            let what = format!("scaler between grids of {fine} and {coarse} points");
            return Err(Error::setting(what, "the coarse one needs 2 points and no more than the fine one"));
        }
        // Tens of thousandths, rounded as Python rounds: f64 to the nearest decimal, then the digits of its shortest form.
        let ratio = ((coarse as f64 / fine as f64).sqrt() * 1e4).round_ties_even() as u64;
        let mut shortest = ratio;
        while shortest >= 10 && shortest.is_multiple_of(10) {
            shortest /= 10;
        }
        // "1.0" for equal grids ends in 0; otherwise the last digit that is written.
        let last_digit = if ratio == 10_000 { 0 } else { shortest % 10 };
        let mut lifted = thousandths(ratio);
        if last_digit < 5 {
            lifted += 0.005;
        }
        let factor = (lifted / 0.005 + 0.5).floor() * 0.005;
        let middle = (fine as f64 * factor).round_ties_even() as usize;
        Ok(Self { factor, middle: middle.saturating_sub(1).max(1) })
    }

    /// The two sizes of a downsampler that goes by factor; the second may miss n_c by one.
    pub fn by_factor(&self, fine: usize) -> [usize; 2] {
        let scaled = |size: usize| ((size as f64 * self.factor).floor() as usize).max(1);
        [scaled(fine), scaled(scaled(fine))]
    }
}

/// Ten thousandths to thousandths, halves rounded as Python's `round(x, 3)` does with the f64 nearest to x.
fn thousandths(ratio: u64) -> f64 {
    format!("{:.3}", ratio as f64 / 1e4).parse().expect("a number that was just written")
}

/// Fine to coarse: a convolution to all channels, resize, three convolutions in a row side by side, resize.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DownsamplerConfig {
    /// Channels of x.
    pub inputs: usize,
    /// w, channels of y; a third, a third and the rest come from the three convolutions.
    pub outputs: usize,
    /// After every convolution and every resize.
    pub activation: Activation,
    /// Rate between every convolution and its activation, in training.
    pub dropout: f64,
}

/// See [`DownsamplerConfig`].
#[derive(Module, Debug)]
pub struct Downsampler {
    /// inputs to w, w to ⌊w/3⌋, ⌊w/3⌋ to ⌊w/3⌋, ⌊w/3⌋ to the rest.
    pub convolutions: Vec<Convolution>,
    #[module(skip)]
    config: DownsamplerConfig,
}

/// Coarse to fine: resize, convolution, resize.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpsamplerConfig {
    /// Channels of x and y.
    pub channels: usize,
    /// Twice after the convolution.
    pub activation: Activation,
    /// Rate before each of the two activations, in training.
    pub dropout: f64,
}

/// See [`UpsamplerConfig`].
#[derive(Module, Debug)]
pub struct Upsampler {
    /// channels to channels.
    pub convolution: Convolution,
    #[module(skip)]
    config: UpsamplerConfig,
    layer: u32,
}

/// A 3 × 3 convolution without bias.
#[derive(Module, Debug)]
pub struct Convolution {
    /// (3, 3, inputs, outputs)
    pub weight: Param<Tensor<4>>,
    layer: u32,
}

impl DownsamplerConfig {
    /// Convolutions uniform in ±1/√(9·inputs), as PyTorch has it.
    pub fn init(&self, builder: &mut Builder) -> Result<Downsampler> {
        self.check()?;
        let (w, third) = (self.outputs, self.outputs / 3);
        let sizes = [[self.inputs, w], [w, third], [third, third], [third, w - 2 * third]];
        Ok(Downsampler {
            convolutions: sizes.map(|sizes| Convolution::init(sizes, builder)).to_vec(),
            config: *self,
        })
    }

    /// `Ok` if its numbers have a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        check_sizes("downsampler", &[("inputs", self.inputs)])?;
        check_rates("downsampler", &[self.dropout])?;
        match self.outputs {
            3.. => Ok(()),
            outputs => {
                let what = format!("downsampler: outputs = {outputs}");
                Err(Error::setting(
                    what,
                    "three convolutions share the width of the encoder; it must be at least 3",
                ))
            }
        }
    }
}

impl UpsamplerConfig {
    /// The convolution uniform in ±1/√(9·channels), as PyTorch has it.
    pub fn init(&self, builder: &mut Builder) -> Result<Upsampler> {
        check_sizes("upsampler", &[("channels", self.channels)])?;
        check_rates("upsampler", &[self.dropout])?;
        let convolution = Convolution::init([self.channels; 2], builder);
        Ok(Upsampler { convolution, config: *self, layer: builder.layer() })
    }
}

impl Downsampler {
    /// `through` are the sizes after the first and after the second resize.
    ///
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, inputs)
    /// - y: (B, m₁, m₂, outputs), (m₁, m₂) the second of `through`
    pub fn forward(&self, x: Tensor<4>, through: [[usize; 2]; 2], mode: Mode) -> Result<Tensor<4>> {
        let DownsamplerConfig { activation, dropout, .. } = self.config;
        let convolve = |i: usize, x: Tensor<4>| self.convolutions[i].forward(x, activation, dropout, mode);
        let x = ops::resize(convolve(0, x)?, through[0], activation.into())?;
        let first = convolve(1, x)?;
        let second = convolve(2, first.clone())?;
        let third = convolve(3, second.clone())?;
        // Channels are resized apart from one another, so they can be put side by side where there are fewer points.
        let coarse = [first, second, third].map(|x| ops::resize(x, through[1], activation.into()));
        Ok(Tensor::cat(coarse.into_iter().collect::<Result<_>>()?, 3))
    }
}

impl Upsampler {
    /// `through` are the sizes after the first and after the second resize.
    ///
    /// # Shapes
    ///
    /// - x: (B, n₁, n₂, channels)
    /// - y: (B, m₁, m₂, channels), (m₁, m₂) the second of `through`
    pub fn forward(&self, x: Tensor<4>, through: [[usize; 2]; 2], mode: Mode) -> Result<Tensor<4>> {
        let UpsamplerConfig { activation, dropout, .. } = self.config;
        let x = ops::resize(x, through[0], Activation::None.into())?;
        let x = self.convolution.forward(x, activation, dropout, mode)?;
        let x = ops::activate(x, mode.dropout(dropout, self.layer), activation.into());
        ops::resize(x, through[1], Activation::None.into())
    }
}

impl Convolution {
    fn init([inputs, outputs]: [usize; 2], builder: &mut Builder) -> Self {
        let bound = 1.0 / (9.0 * inputs as f64).sqrt();
        let weight = builder.uniform([3, 3, inputs, outputs], -bound, bound);
        Convolution { weight, layer: builder.layer() }
    }

    fn forward(&self, x: Tensor<4>, activation: Activation, rate: f64, mode: Mode) -> Result<Tensor<4>> {
        let dropout = Some(mode.dropout(rate, self.layer)).filter(|dropout| dropout.active());
        ops::conv3x3(x, self.weight.val(), None, dropout, activation.into())
    }

    fn entry(&self, name: String) -> Entry {
        let [_, _, inputs, outputs] = self.weight.val().dims();
        Entry::one(&self.weight, name, Layout::Conv3x3 { inputs, outputs })
    }
}

impl ReferenceNames for Downsampler {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        let named = self.convolutions.iter().enumerate();
        named.map(|(i, conv)| conv.entry(format!("{prefix}downsample.conv{i}.conv.0.weight"))).collect()
    }
}

impl ReferenceNames for Upsampler {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        vec![self.convolution.entry(format!("{prefix}upsample.conv.0.conv.0.weight"))]
    }
}

/// The values of one grid on another of the same axes, multilinearly interpolated.
///
/// # Shapes
///
/// - x: (B, n, channels), n the points of `from`
/// - y: (B, m, channels), m the points of `to`
pub fn resized(x: Tensor<3>, from: &[usize], to: &[usize], periodic: &[bool]) -> Result<Tensor<3>> {
    if from == to {
        return Ok(x);
    }
    let [batch, _, channels] = x.dims();
    let plain = Activation::None.into();
    if let (&[n1, n2], &[m1, m2], [false, false]) = (from, to, periodic) {
        let y = ops::resize(x.reshape([batch, n1, n2, channels]), [m1, m2], plain)?;
        return Ok(y.reshape([batch, m1 * m2, channels]));
    }
    each_axis(x, from, to, |axis, line, m| {
        let [lines, n, after] = line.dims();
        let mut line: Tensor<4> = line.reshape([lines, n, 1, after]);
        if periodic[axis] {
            // Once round the first point comes again: n intervals end there as m do.
            line = Tensor::cat(vec![line.clone(), line.narrow(1, 0, 1)], 1);
            line = ops::resize(line, [m + 1, 1], plain)?.narrow(1, 0, m);
        } else {
            line = ops::resize(line, [m, 1], plain)?;
        }
        Ok(line.reshape([lines, m, after]))
    })
}

/// The values of one grid on another of the same axes, as means over the cells of its points (`galerkin_kernels::local_means`).
///
/// # Shapes
///
/// - x: (B, n, channels), n the points of `from`
/// - y: (B, m, channels), m the points of `to`
pub fn local_means(x: Tensor<3>, from: &[usize], to: &[usize], periodic: &[bool]) -> Result<Tensor<3>> {
    let [batch, _, channels] = x.dims();
    if let (&[n1, n2], &[m1, m2], &[one, two], false) = (from, to, periodic, from == to) {
        let y = ops::local_means(x.reshape([batch, n1, n2, channels]), [m1, m2], [one, two])?;
        return Ok(y.reshape([batch, m1 * m2, channels]));
    }
    each_axis(x, from, to, |axis, line, m| {
        let [lines, n, after] = line.dims();
        let means = ops::local_means(line.reshape([lines, n, 1, after]), [m, 1], [periodic[axis], false])?;
        Ok(means.reshape([lines, m, after]))
    })
}

/// The values of a grid with zeros behind every axis, up to a wider one.
pub(crate) fn padded(x: Tensor<3>, grid: &[usize], wide: &[usize]) -> Result<Tensor<3>> {
    each_axis(x, grid, wide, |_, line, m| {
        let [lines, n, after] = line.dims();
        let zeros = Tensor::zeros([lines, m - n, after], &line.device());
        Ok(Tensor::cat(vec![line, zeros], 1))
    })
}

/// The inverse of [`padded`].
pub(crate) fn cropped(x: Tensor<3>, wide: &[usize], grid: &[usize]) -> Result<Tensor<3>> {
    each_axis(x, wide, grid, |_, line, m| Ok(line.narrow(1, 0, m)))
}

/// Changes every axis that is to have another number of points, one after the other: `change` takes the number of the axis, its lines
/// (lines, points, values beside each other) and the points they are to have.
fn each_axis(
    x: Tensor<3>,
    from: &[usize],
    to: &[usize],
    change: impl Fn(usize, Tensor<3>, usize) -> Result<Tensor<3>>,
) -> Result<Tensor<3>> {
    let [batch, _, channels] = x.dims();
    let (mut x, mut grid) = (x, from.to_vec());
    for axis in 0..grid.len() {
        let (n, m) = (grid[axis], to[axis]);
        if n == m {
            continue;
        }
        let lines = batch * grid[..axis].iter().product::<usize>();
        let after = grid[axis + 1..].iter().product::<usize>() * channels;
        grid[axis] = m;
        let changed = change(axis, x.reshape([lines, n, after]), m)?;
        x = changed.reshape([batch, grid.iter().product::<usize>(), channels]);
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_functions_are_interpolated_exactly_and_circles_close() {
        let device = burn::tensor::Device::flex();
        let tensor = |values: Vec<f32>, n: usize| {
            Tensor::<3>::from_data(burn::tensor::TensorData::new(values, [1, n, 1]), &device)
        };
        let values = |x: Tensor<3>| crate::reference::to_vec(x);
        // 2i + j/2 − k on 3 × 2 × 3 points to 5 × 3 × 2, all closed.
        let at = |grid: [usize; 3]| {
            let unit = |at: usize, n: usize| at as f32 / (n - 1) as f32;
            let mut all = Vec::new();
            for i in 0..grid[0] {
                for j in 0..grid[1] {
                    for k in 0..grid[2] {
                        all.push(2.0 * unit(i, grid[0]) + 0.5 * unit(j, grid[1]) - unit(k, grid[2]));
                    }
                }
            }
            all
        };
        let found = resized(tensor(at([3, 2, 3]), 18), &[3, 2, 3], &[5, 3, 2], &[false; 3]).unwrap();
        for (found, exact) in values(found).iter().zip(at([5, 3, 2])) {
            assert!((found - exact).abs() < 1e-6, "{found}, {exact}");
        }
        // A circle of two points: between the last and the first lies their mean.
        let found = resized(tensor(vec![0.0, 1.0], 2), &[2], &[4], &[true]).unwrap();
        assert_eq!(values(found), [0.0, 0.5, 1.0, 0.5]);
        let back = resized(tensor(vec![0.0, 0.5, 1.0, 0.5], 4), &[4], &[2], &[true]).unwrap();
        assert_eq!(values(back), [0.0, 1.0]);
    }

    #[test]
    fn padding_adds_zeros_that_cropping_takes_away() {
        let device = burn::tensor::Device::flex();
        let x = Tensor::<3>::from_data(
            burn::tensor::TensorData::new((1..=12).map(|v| v as f32).collect::<Vec<_>>(), [1, 6, 2]),
            &device,
        );
        let wide = padded(x.clone(), &[2, 3], &[3, 4]).unwrap();
        let values = crate::reference::to_vec(wide.clone());
        assert_eq!(values[..8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
        assert!(values[16..].iter().all(|v| *v == 0.0));
        assert_eq!(
            crate::reference::to_vec(cropped(wide, &[3, 4], &[2, 3]).unwrap()),
            crate::reference::to_vec(x)
        );
    }

    #[test]
    fn sizes_follow_the_reference() {
        // Fine, coarse; factor, middle, both sizes by factor. The last one is not reached by factor.
        for (fine, coarse, factor, middle, by_factor) in [
            (141, 43, 0.555, 77, [78, 43]),
            (211, 61, 0.54, 113, [113, 61]),
            (141, 36, 0.51, 71, [71, 36]),
            (211, 71, 0.585, 122, [123, 71]),
            (141, 71, 0.71, 99, [100, 71]),
            (85, 29, 0.59, 49, [50, 29]),
            (421, 141, 0.58, 243, [244, 141]),
            (141, 8, 0.245, 34, [34, 8]),
            (85, 43, 0.715, 60, [60, 42]),
        ] {
            let sizes = ScalerSizes::between(fine, coarse).unwrap();
            assert!((sizes.factor - factor).abs() < 1e-12, "{fine} to {coarse}: {}", sizes.factor);
            assert_eq!(sizes.middle, middle, "{fine} to {coarse}");
            assert_eq!(sizes.by_factor(fine), by_factor, "{fine} to {coarse}");
        }
        for (fine, coarse) in [(43, 141), (10, 1), (0, 0)] {
            assert!(ScalerSizes::between(fine, coarse).is_err(), "{fine} to {coarse}");
        }
    }
}
