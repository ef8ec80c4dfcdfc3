//! Training losses: the relative L² error plus a relative H¹-seminorm of the error as regulariser, on grids of one to three axes.
//!
//! With a prediction p and a target u on a grid of spacing h, and differences D p = (p₊ − p₋)/(2h) at its points, the mean over samples and
//! channels of
//!
//! | | data term | regulariser |
//! | --- | --- | --- |
//! | one axis | √( Σ (p − u)² / Σ (u² + ε) ) | √( γh · Σ (a (u′ − D p))² / Σ (a u′² + ε) ) |
//! | k axes | √( mean (p − u)² / (mean u² + ε) ) | √( γh · mean (a (∇u − D p))² / (k mean a (∇u)² + ε) ) |
//!
//! The derivative u′ or ∇u belongs to the data (it is computed on a finer grid than that of training); only the prediction's
//! is a difference here. Along closed axes it exists at inner points alone; sums and means of a denominator always run over all points. The
//! weight a is 1, or a channel of the input: the coefficient of an equation.
//!
//! The paper speaks of a relative L² loss regularised by the H¹-seminorm; the weights above are those of the authors' code, kept
//! as they are there: γ counts times h, so that refining the grid weakens the regulariser; the coefficient a is squared in
//! the numerator and not in the denominator; the k of the denominator has no counterpart in the numerator. Two differences: √(γh) stands before
//! the root, so that γ = 0 has the gradient 0, and a grid may have another spacing along each axis, with their geometric mean as h in the weight.
//!
//! A root has no derivative at 0: a sample predicted without any error has the gradient NaN, and with ε = 0 so has a target that
//! is 0 everywhere.

use burn::tensor::Tensor;

use crate::error::{Error, Result};

/// A loss and what it consists of, each of shape (1).
#[derive(Clone, Debug)]
pub struct Loss {
    /// data + regularizer, to be minimised.
    pub total: Tensor<1>,
    /// The relative L² error.
    pub data: Tensor<1>,
    /// The weighted relative error of the derivative; 0 without derivative of the target.
    pub regularizer: Tensor<1>,
}

/// The loss on a grid, see the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct GridLoss {
    /// Points along each axis.
    pub grid: Vec<usize>,
    /// h, distance of neighbouring points along each axis.
    pub spacing: Vec<f64>,
    /// Along which axes the last point is a neighbour of the first, so that differences exist at all points.
    pub periodic: Vec<bool>,
    /// γ, weight of the regulariser; the reference has 0.1 on a line and 0.5 for Darcy flow.
    pub gamma: f64,
    /// ε of the denominators; the reference has 0 on a line and 10⁻¹⁰ on a square.
    pub eps: f64,
    /// Weights of the channels, whose sum is taken for 1; empty for channels that count alike.
    pub channels: Vec<f64>,
}

/// What a prediction is compared with.
#[derive(Clone, Debug)]
pub struct LossTarget {
    /// u (B, points, channels)
    pub values: Tensor<3>,
    /// ∇u (B, points, channels · axes), the axes of a channel beside each other; without it there is no regulariser.
    pub slopes: Option<Tensor<3>>,
    /// a (B, points, 1); 1 if absent.
    pub weight: Option<Tensor<3>>,
}

impl GridLoss {
    /// Of a prediction (B, points, channels).
    pub fn forward(&self, p: Tensor<3>, target: LossTarget) -> Result<Loss> {
        let LossTarget { values: u, slopes, weight } = target;
        let ([batch, n, channels], axes) = (p.dims(), self.grid.len());
        self.check(channels)?;
        Error::check_filled("prediction", &[batch, n, channels])?;
        Error::check_shape("prediction", &[n], &[self.grid.iter().product()])?;
        Error::check_shape("target", &u.dims(), &p.dims())?;
        if let Some(slopes) = &slopes {
            Error::check_shape("derivatives of the target", &slopes.dims(), &[batch, n, channels * axes])?;
            check_grid(&self.grid)?;
        }
        if let Some(weight) = &weight {
            Error::check_shape("weight of the seminorm", &weight.dims(), &[batch, n, 1])?;
        }
        let sum: f64 = self.channels.iter().sum();
        let mut loss: Option<[Tensor<1>; 2]> = None;
        for channel in 0..channels {
            let part = |x: &Tensor<3>, width: usize| x.clone().narrow(2, channel * width, width);
            let of_channel = Channel {
                p: part(&p, 1),
                u: part(&u, 1),
                slopes: slopes.as_ref().map(|slopes| part(slopes, axes)),
                weight: weight.clone(),
            };
            let terms = match *self.grid {
                [n] => self.on_line(of_channel, [batch, n]),
                [n1, n2] => self.on_grid(of_channel, [batch, n1, n2], [batch, n1, n2, axes]),
                [n1, n2, n3] => self.on_grid(of_channel, [batch, n1, n2, n3], [batch, n1, n2, n3, axes]),
                _ => return Err(Error::setting(format!("loss on {axes} axes"), "there are 1 to 3")),
            };
            let share = match self.channels.get(channel) {
                Some(weight) => weight / sum,
                None => 1.0 / channels as f64,
            };
            let terms = if channels > 1 { terms.map(|term| term * share as f32) } else { terms };
            loss = Some(match loss {
                None => terms,
                Some([data, regularizer]) => {
                    let [more_data, more] = terms;
                    [data + more_data, regularizer + more]
                }
            });
        }
        let [data, regularizer] = loss.expect("there is a channel");
        let total = if slopes.is_some() { data.clone() + regularizer.clone() } else { data.clone() };
        Ok(Loss { total, data, regularizer })
    }

    /// Data term and regulariser on one axis.
    fn on_line(&self, of_channel: Channel, shape: [usize; 2]) -> [Tensor<1>; 2] {
        let Channel { p, u, slopes, weight } = of_channel;
        let (p, u) = (p.reshape(shape), u.reshape(shape));
        let eps = (self.eps * shape[1] as f64) as f32;
        let ratio = |error: Tensor<2>, whole: Tensor<2>| error.square().sum_dim(1) / (whole.sum_dim(1) + eps);
        let regularizer = slopes.map(|slopes| {
            let slopes = slopes.reshape(shape);
            let mut error = self.keep(slopes.clone(), 0) - self.difference(p.clone(), 0);
            let mut energy = slopes.square();
            if let Some(a) = weight.map(|a| a.reshape(shape)) {
                error = error * self.keep(a.clone(), 0);
                energy = energy * a;
            }
            self.weighted(ratio(error, energy).sqrt().mean())
        });
        let data = ratio(p - u.clone(), u.square()).sqrt().mean();
        let none = Tensor::zeros([1], &data.device());
        [data, regularizer.unwrap_or(none)]
    }

    /// Data term and regulariser on several axes: values of rank D, gradients of rank E = D + 1.
    fn on_grid<const D: usize, const E: usize>(
        &self,
        of_channel: Channel,
        shape: [usize; D],
        with_axes: [usize; E],
    ) -> [Tensor<1>; 2] {
        let Channel { p, u, slopes, weight } = of_channel;
        let (p, u): (Tensor<D>, Tensor<D>) = (p.reshape(shape), u.reshape(shape));
        let axes = self.grid.len();
        let points: Vec<usize> = (1..=axes).collect();
        let regularizer = slopes.map(|slopes| {
            let gradient: Tensor<E> = slopes.reshape(with_axes);
            let inside = |x: Tensor<E>| (0..axes).fold(x, |x, axis| self.keep(x, axis));
            let along = |axis: usize| {
                let others = (0..axes).filter(|other| *other != axis);
                others.fold(self.difference(p.clone(), axis), |x, other| self.keep(x, other))
            };
            let differences = Tensor::stack::<E>((0..axes).map(along).collect(), D);
            let mut error = inside(gradient.clone()) - differences;
            let mut energy = gradient.square();
            if let Some(a) = weight {
                let mut shape = with_axes;
                shape[E - 1] = 1;
                let a: Tensor<E> = a.reshape(shape);
                error = error * inside(a.clone());
                energy = energy * a;
            }
            let all: Vec<usize> = (1..E).collect();
            let whole = energy.mean_dims(&all) * axes as f32 + self.eps as f32;
            let ratio = error.square().mean_dims(&all) / whole;
            self.weighted(ratio.sqrt().mean())
        });
        let whole = u.clone().square().mean_dims(&points) + self.eps as f32;
        let data = ((p - u).square().mean_dims(&points) / whole).sqrt().mean();
        let none = Tensor::zeros([1], &data.device());
        [data, regularizer.unwrap_or(none)]
    }

    /// √(γh) x, h the geometric mean of the spacings.
    fn weighted(&self, x: Tensor<1>) -> Tensor<1> {
        let h = match *self.spacing {
            [h] => h,
            [h1, h2] => (h1 * h2).sqrt(),
            ref all => all.iter().product::<f64>().powf(1.0 / all.len() as f64),
        };
        x * (self.gamma * h).sqrt() as f32
    }

    /// Central differences along an axis, at the points that [`keep`](Self::keep) keeps.
    fn difference<const D: usize>(&self, x: Tensor<D>, axis: usize) -> Tensor<D> {
        let (n, place, h) = (self.grid[axis], axis + 1, self.spacing[axis]);
        let part = |start, length| x.clone().narrow(place, start, length);
        let (next, previous) = match self.periodic[axis] {
            false => (part(2, n - 2), part(0, n - 2)),
            true => (
                Tensor::cat(vec![part(1, n - 1), part(0, 1)], place),
                Tensor::cat(vec![part(n - 1, 1), part(0, n - 1)], place),
            ),
        };
        (next - previous) / (2.0 * h) as f32
    }

    /// The points along an axis that have a difference.
    fn keep<const D: usize>(&self, x: Tensor<D>, axis: usize) -> Tensor<D> {
        match self.periodic[axis] {
            false => x.narrow(axis + 1, 1, self.grid[axis] - 2),
            true => x,
        }
    }

    fn check(&self, channels: usize) -> Result<()> {
        let axes = self.grid.len();
        check_spacing(&self.spacing)?;
        Error::check_shape("spacing, one per axis", &[self.spacing.len()], &[axes])?;
        Error::check_shape("periodic, one per axis", &[self.periodic.len()], &[axes])?;
        for (name, value) in [("gamma", self.gamma), ("eps", self.eps)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::setting(format!("{name} {value}"), "must be finite and not negative"));
            }
        }
        if self.channels.is_empty() {
            return Ok(());
        }
        check_channel_weights(&self.channels)?;
        Error::check_shape("weights of the channels", &[self.channels.len()], &[channels])
    }
}

/// One channel of prediction and target: (B, points, 1), and (B, points, axes) of slopes.
struct Channel {
    p: Tensor<3>,
    u: Tensor<3>,
    slopes: Option<Tensor<3>>,
    weight: Option<Tensor<3>>,
}

/// `Ok` if weights of channels are not negative and one of them is not zero.
pub(crate) fn check_channel_weights(weights: &[f64]) -> Result<()> {
    match weights.iter().all(|w| w.is_finite() && *w >= 0.0) && weights.iter().any(|w| *w > 0.0) {
        true => Ok(()),
        false => {
            let why = "weights are finite and not negative, and one is not zero";
            Err(Error::setting(format!("loss.channels = {weights:?}"), why))
        }
    }
}

/// Central differences need three points.
pub(crate) fn check_grid(grid: &[usize]) -> Result<()> {
    if grid.iter().all(|n| *n >= 3) {
        return Ok(());
    }
    let expected = "3 points or more along each axis".into();
    Err(Error::Shape { what: "grid to take differences on".into(), expected, found: grid.to_vec() })
}

pub(crate) fn check_spacing(spacing: &[f64]) -> Result<()> {
    match spacing.iter().all(|h| h.is_finite() && *h > 0.0) {
        true => Ok(()),
        false => Err(Error::setting(format!("spacing {spacing:?}"), "must be positive and finite")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::to_vec;
    use burn::tensor::{Device, TensorData};
    use std::f64::consts::TAU;

    fn tensor(values: &[f32], channels: usize) -> Tensor<3> {
        let data = TensorData::new(values.to_vec(), [1, values.len() / channels, channels]);
        Tensor::from_data(data, &Device::flex().autodiff())
    }

    #[track_caller]
    fn near(found: Tensor<1>, expected: f64) {
        let found = to_vec(found)[0] as f64;
        assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    fn line() -> GridLoss {
        let (grid, spacing) = (vec![4], vec![0.5]);
        GridLoss { grid, spacing, periodic: vec![false], gamma: 0.5, eps: 0.0, channels: Vec::new() }
    }

    fn plane() -> GridLoss {
        let (grid, spacing) = (vec![3, 3], vec![0.5; 2]);
        GridLoss { grid, spacing, periodic: vec![false; 2], eps: 1e-10, ..line() }
    }

    fn target(values: &Tensor<3>, slopes: Option<Tensor<3>>, weight: Option<Tensor<3>>) -> LossTarget {
        LossTarget { values: values.clone(), slopes, weight }
    }

    #[test]
    fn one_axis_by_hand() {
        let p = tensor(&[1.0, 2.0, 4.0, 3.0], 1);
        let u = tensor(&[1.0, 0.0, 2.0, 2.0], 1);
        let slopes = tensor(&[2.0, 1.0, 3.0, 1.0], 1);
        // Σ(p − u)² = 4 + 4 + 1, Σu² = 9. Slopes of p inside: 3 and 1, Σ(u′ − Dp)² = 4 + 4, Σu′² = 15, γh = 1/4.
        let loss = line().forward(p.clone(), target(&u, Some(slopes.clone()), None)).unwrap();
        let inside = (0.25f64 * 8.0 / 15.0).sqrt();
        near(loss.data, 1.0);
        near(loss.regularizer, inside);
        near(loss.total, 1.0 + inside);
        // Round the ends the slopes are 2 − 3 = −1 and 1 − 4 = −3: 9 and 16 more.
        let periodic = GridLoss { periodic: vec![true], ..line() };
        let loss = periodic.forward(p.clone(), target(&u, Some(slopes.clone()), None)).unwrap();
        near(loss.regularizer, (0.25f64 * 33.0 / 15.0).sqrt());
        // Twice the weight: squared above, once below.
        let weight = tensor(&[2.0; 4], 1);
        let loss = line().forward(p.clone(), target(&u, Some(slopes), Some(weight))).unwrap();
        near(loss.regularizer, (0.25f64 * 4.0 * 8.0 / 30.0).sqrt());
        let loss = line().forward(p, target(&u, None, None)).unwrap();
        near(loss.regularizer, 0.0);
        near(loss.total, 1.0);
    }

    #[test]
    fn two_axes_by_hand() {
        // One inner point: slopes of p there are 7 − 1 = 6 along the first axis and 5 − 3 = 2 along the second.
        let p = tensor(&[0.0, 1.0, 0.0, 3.0, 1.0, 5.0, 0.0, 7.0, 0.0], 1);
        let u = tensor(&[1.0; 9], 1);
        let slopes = tensor(&[1.0; 18], 2);
        let weight = tensor(&[3.0; 9], 1);
        // Mean over both components of (3 (1 − 6))² and (3 (1 − 2))², over 2 · 3.
        let loss = plane().forward(p.clone(), target(&u, Some(slopes.clone()), Some(weight))).unwrap();
        // Four corners are off by 1, the others by 0, 2, 0, 4 and 6.
        near(loss.data, ((4.0 + 4.0 + 16.0 + 36.0f64) / 9.0).sqrt());
        near(loss.regularizer, (0.25f64 * 117.0 / 6.0).sqrt());
        let loss = plane().forward(p.clone(), target(&u, Some(slopes.clone()), None)).unwrap();
        near(loss.regularizer, (0.25f64 * 13.0 / 2.0).sqrt());
        // Half the spacing along the second axis: twice that slope, and h = √(h₁h₂).
        let other = GridLoss { spacing: vec![0.5, 0.25], ..plane() };
        let loss = other.forward(p.clone(), target(&u, Some(slopes.clone()), None)).unwrap();
        near(loss.regularizer, (0.5 * 0.125f64.sqrt() * 17.0 / 2.0).sqrt());
        // A cylinder that closes along the second axis has differences at all three points of the middle row.
        let cylinder = GridLoss { periodic: vec![false, true], ..plane() };
        let loss = cylinder.forward(p, target(&u, Some(slopes), None)).unwrap();
        // Along the first axis 0, 6, 0; along the second 1 − 5, 5 − 3, 3 − 1: squares of 1 minus these.
        let squares = [1.0, 25.0, 1.0, 25.0, 1.0, 1.0f64].iter().sum::<f64>();
        near(loss.regularizer, (0.25 * squares / 6.0 / 2.0f64).sqrt());
    }

    #[test]
    fn three_axes_and_channels_by_hand() {
        // p − u is 1 in the first channel of two, whose target is 2, and 0.3 in the second, whose target is 1.
        let (n, pair) = (27, [3.0f32, 1.3]);
        let p = tensor(&pair.repeat(n), 2);
        let u = tensor(&[2.0f32, 1.0].repeat(n), 2);
        let slopes = tensor(&[1.0f32; 6].repeat(n), 6);
        let cube = GridLoss { grid: vec![3; 3], spacing: vec![1.0; 3], periodic: vec![false; 3], ..plane() };
        let loss = cube.forward(p.clone(), target(&u, Some(slopes), None)).unwrap();
        near(loss.data, (0.5 + 0.3) / 2.0);
        // Slopes of p are 0 and of u 1 along three axes: 1 over 3 · 1.
        near(loss.regularizer, (0.5f64 / 3.0).sqrt());
        let weighted = GridLoss { channels: vec![3.0, 1.0], ..cube.clone() };
        near(weighted.forward(p.clone(), target(&u, None, None)).unwrap().data, (3.0 * 0.5 + 0.3) / 4.0);
        for channels in [vec![1.0], vec![-1.0, 2.0], vec![0.0, 0.0]] {
            let wrong = GridLoss { channels, ..cube.clone() };
            assert!(wrong.forward(p.clone(), target(&u, None, None)).is_err());
        }
    }

    #[test]
    fn periodic_differences_of_a_fourier_mode() {
        // D sin(2πkx) = sin(2πkh)/(h 2πk) · (sin(2πkx))′ at every point: the relative error is one number.
        let n = 32;
        let h = 1.0 / n as f64;
        for k in [1.0, 3.0, 7.0] {
            let at = |f: &dyn Fn(f64) -> f64| (0..n).map(|i| f(i as f64 * h) as f32).collect::<Vec<_>>();
            let u = tensor(&at(&|x| (TAU * k * x).sin()), 1);
            let slope = at(&|x| TAU * k * (TAU * k * x).cos());
            let factor = (TAU * k * h).sin() / (h * TAU * k);
            let (grid, spacing, periodic) = (vec![n], vec![h], vec![true]);
            let config = GridLoss { grid, spacing, periodic, gamma: 1.0 / h, ..line() };
            let loss = config.forward(u.clone(), target(&u, Some(tensor(&slope, 1)), None)).unwrap();
            near(loss.data, 0.0);
            near(loss.regularizer, 1.0 - factor);
        }
    }

    #[test]
    fn no_weight_no_gradient_and_zero_targets_have_one() {
        let p = tensor(&[1.0, 2.0, 4.0, 3.0], 1).require_grad();
        let u = tensor(&[1.0, 0.0, 2.0, 2.0], 1);
        let config = GridLoss { gamma: 0.0, ..line() };
        let loss = config.forward(p.clone(), target(&u, Some(u.clone()), None)).unwrap();
        let gradient = to_vec(p.grad(&loss.total.backward()).unwrap());
        // (p − u)/(√9 √9)
        for (found, expected) in gradient.iter().zip([0.0, 2.0, 2.0, 1.0]) {
            assert!((found - expected / 9.0).abs() < 1e-6, "{gradient:?}");
        }
        let zero = tensor(&[0.0; 4], 1);
        let config = GridLoss { eps: 1e-10, ..line() };
        let loss = config.forward(p.clone(), target(&zero, None, None)).unwrap();
        let gradient = to_vec(p.grad(&loss.total.backward()).unwrap());
        assert!(gradient.iter().all(|g| g.is_finite()), "{gradient:?}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let ones = |n: usize, channels: usize| tensor(&vec![1.0; n * channels], channels);
        let run = |config: GridLoss, n: usize, u: usize, slopes: Option<(usize, usize)>| {
            let slopes = slopes.map(|(n, channels)| ones(n, channels));
            config.forward(ones(n, 1), target(&ones(u, 1), slopes, None))
        };
        assert!(run(line(), 4, 4, Some((4, 1))).is_ok());
        assert!(run(line(), 4, 5, None).is_err());
        assert!(run(line(), 5, 5, None).is_err());
        assert!(run(line(), 4, 4, Some((5, 1))).is_err());
        assert!(run(GridLoss { grid: vec![2], ..line() }, 2, 2, Some((2, 1))).is_err());
        assert!(run(GridLoss { spacing: vec![0.0], ..line() }, 4, 4, None).is_err());
        assert!(run(GridLoss { gamma: -1.0, ..line() }, 4, 4, None).is_err());
        assert!(run(plane(), 9, 9, Some((9, 1))).is_err());
        assert!(run(GridLoss { eps: f64::NAN, ..plane() }, 9, 9, None).is_err());
        assert!(run(GridLoss { periodic: vec![false], ..plane() }, 9, 9, None).is_err());
    }
}
