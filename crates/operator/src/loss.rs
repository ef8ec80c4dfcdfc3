//! Training losses: the relative L² error plus a relative H¹-seminorm of the error as regulariser, in 1D and 2D.
//!
//! With a prediction p and a target u on a grid of spacing h, and differences D p = (p₊ − p₋)/(2h) at its points:
//!
//! | | data term, mean over samples of | regulariser, mean over samples of |
//! | --- | --- | --- |
//! | 1D | √( Σ (p − u)² / Σ u² ) | √( γh · Σ (u′ − D p)² / Σ u′² ) |
//! | 2D | √( mean (p − u)² / (mean u² + ε) ) | √( γh · mean (a (∇u − D p))² / (2 mean a (∇u)² + ε) ) |
//!
//! The derivative u′ or ∇u belongs to the data (it is computed on a finer grid than that of training); only the prediction's
//! is a difference here. [`Ends`] says at which points it exists; sums and means of a denominator always run over all points.
//!
//! The paper speaks of a relative L² loss regularised by the H¹-seminorm; the weights above are those of the authors' code, kept
//! as they are there: γ counts times h, so that refining the grid weakens the regulariser; the coefficient a is squared in
//! the numerator and not in the denominator; the 2 of the denominator has no counterpart in the numerator; ε is in 2D only.
//! Two differences: √(γh) stands before the root, so that γ = 0 has the gradient 0, and a grid may have another spacing along
//! each axis, with h = √(h₁h₂) in the weight.
//!
//! A root has no derivative at 0: a sample predicted without any error has the gradient NaN, and so in 1D has a target that
//! is 0 everywhere.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where central differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// At points with a neighbour on either side along every axis: all but the outermost, as in the authors' code.
    Interior,
    /// At all points: the last one is the left neighbour of the first.
    Periodic,
}

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

/// The loss in 1D, see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss1dConfig {
    /// h, distance of neighbouring points.
    pub spacing: f64,
    /// γ, weight of the regulariser; the reference has 0.1.
    pub gamma: f64,
    /// Where the prediction is differentiated.
    pub ends: Ends,
}

/// The loss in 2D, see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss2dConfig {
    /// h₁ and h₂, distances of neighbouring points along the axes n₁ and n₂.
    pub spacing: [f64; 2],
    /// γ, weight of the regulariser; the reference has 0.5 for Darcy flow.
    pub gamma: f64,
    /// ε of the denominators; the reference has [`Loss2dConfig::EPS`].
    pub eps: f64,
    /// Where the prediction is differentiated.
    pub ends: Ends,
}

/// What the regulariser in 2D needs to know of the target.
#[derive(Clone, Debug)]
pub struct Gradient2d {
    /// ∇u (B, n₁, n₂, 2): the derivatives along n₁ and along n₂.
    pub gradient: Tensor<4>,
    /// a (B, n₁, n₂, 1); 1 if absent.
    pub coefficient: Option<Tensor<4>>,
}

impl Loss1dConfig {
    /// Of prediction and target (B, n), with the target's derivative (B, n), or without and then without regulariser.
    pub fn forward(&self, p: Tensor<2>, u: Tensor<2>, derivative: Option<Tensor<2>>) -> Result<Loss> {
        check_settings(&[self.spacing], self.gamma, 0.0)?;
        let [batch, n] = p.dims();
        Error::check_filled("prediction", &[batch, n])?;
        Error::check_shape("target", &u.dims(), &[batch, n])?;
        let ratio =
            |error: Tensor<2>, whole: Tensor<2>| error.square().sum_dim(1) / whole.square().sum_dim(1);
        let regularizer = match derivative {
            None => None,
            Some(derivative) => {
                Error::check_shape("derivative of the target", &derivative.dims(), &[batch, n])?;
                check_grid(&[n])?;
                let error =
                    self.ends.keep(derivative.clone(), 1) - self.ends.slope(p.clone(), 1, self.spacing);
                Some(weighted(self.gamma * self.spacing, ratio(error, derivative).sqrt().mean()))
            }
        };
        Ok(Loss::new(ratio(p - u.clone(), u).sqrt().mean(), regularizer))
    }
}

impl Loss2dConfig {
    /// ε of the reference.
    pub const EPS: f64 = 1e-10;

    /// Of prediction and target (B, n₁, n₂), with the target's gradient, or without and then without regulariser.
    pub fn forward(&self, p: Tensor<3>, u: Tensor<3>, gradient: Option<Gradient2d>) -> Result<Loss> {
        check_settings(&self.spacing, self.gamma, self.eps)?;
        let [batch, n1, n2] = p.dims();
        Error::check_filled("prediction", &[batch, n1, n2])?;
        Error::check_shape("target", &u.dims(), &[batch, n1, n2])?;
        let regularizer = match gradient {
            None => None,
            Some(gradient) => Some(self.regularizer(p.clone(), gradient)?),
        };
        let whole = u.clone().square().mean_dims(&[1, 2]) + self.eps as f32;
        let data = ((p - u).square().mean_dims(&[1, 2]) / whole).sqrt().mean();
        Ok(Loss::new(data, regularizer))
    }

    fn regularizer(&self, p: Tensor<3>, of_target: Gradient2d) -> Result<Tensor<1>> {
        let [batch, n1, n2] = p.dims();
        let Gradient2d { gradient, coefficient } = of_target;
        Error::check_shape("gradient of the target", &gradient.dims(), &[batch, n1, n2, 2])?;
        if let Some(coefficient) = &coefficient {
            Error::check_shape("coefficient", &coefficient.dims(), &[batch, n1, n2, 1])?;
        }
        check_grid(&[n1, n2])?;
        let [h1, h2] = self.spacing;
        let inside = |x: Tensor<4>| self.ends.keep(self.ends.keep(x, 1), 2);
        let along_1 = self.ends.keep(self.ends.slope(p.clone(), 1, h1), 2);
        let along_2 = self.ends.keep(self.ends.slope(p, 2, h2), 1);
        let mut error = inside(gradient.clone()) - Tensor::stack::<4>(vec![along_1, along_2], 3);
        let mut energy = gradient.square();
        if let Some(a) = coefficient {
            error = error * inside(a.clone());
            energy = energy * a;
        }
        let whole = energy.mean_dims(&[1, 2, 3]) * 2.0 + self.eps as f32;
        let ratio = error.square().mean_dims(&[1, 2, 3]) / whole;
        Ok(weighted(self.gamma * (h1 * h2).sqrt(), ratio.sqrt().mean()))
    }
}

impl Loss {
    fn new(data: Tensor<1>, regularizer: Option<Tensor<1>>) -> Self {
        match regularizer {
            Some(regularizer) => Loss { total: data.clone() + regularizer.clone(), data, regularizer },
            None => Loss { total: data.clone(), regularizer: Tensor::zeros([1], &data.device()), data },
        }
    }
}

impl Ends {
    /// Central differences along an axis, at the points that [`keep`](Self::keep) keeps.
    fn slope<const D: usize>(self, x: Tensor<D>, axis: usize, h: f64) -> Tensor<D> {
        let n = x.dims()[axis];
        let part = |start, length| x.clone().narrow(axis, start, length);
        let (next, previous) = match self {
            Ends::Interior => (part(2, n - 2), part(0, n - 2)),
            Ends::Periodic => (
                Tensor::cat(vec![part(1, n - 1), part(0, 1)], axis),
                Tensor::cat(vec![part(n - 1, 1), part(0, n - 1)], axis),
            ),
        };
        (next - previous) / (2.0 * h) as f32
    }

    /// The points along an axis that have a difference.
    fn keep<const D: usize>(self, x: Tensor<D>, axis: usize) -> Tensor<D> {
        let n = x.dims()[axis];
        match self {
            Ends::Interior => x.narrow(axis, 1, n - 2),
            Ends::Periodic => x,
        }
    }
}

fn weighted(weight: f64, x: Tensor<1>) -> Tensor<1> {
    x * weight.sqrt() as f32
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

fn check_settings(spacing: &[f64], gamma: f64, eps: f64) -> Result<()> {
    check_spacing(spacing)?;
    for (name, value) in [("gamma", gamma), ("eps", eps)] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Error::setting(format!("{name} {value}"), "must be finite and not negative"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::to_vec;
    use burn::tensor::{Device, TensorData};
    use std::f64::consts::TAU;

    fn tensor<const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), &Device::flex().autodiff())
    }

    #[track_caller]
    fn near(found: Tensor<1>, expected: f64) {
        let found = to_vec(found)[0] as f64;
        assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    const LINE: Loss1dConfig = Loss1dConfig { spacing: 0.5, gamma: 0.5, ends: Ends::Interior };
    const PLANE: Loss2dConfig =
        Loss2dConfig { spacing: [0.5, 0.5], gamma: 0.5, eps: Loss2dConfig::EPS, ends: Ends::Interior };

    #[test]
    fn one_dimension_by_hand() {
        let p = tensor(&[1.0, 2.0, 4.0, 3.0], [1, 4]);
        let u = tensor(&[1.0, 0.0, 2.0, 2.0], [1, 4]);
        let derivative = tensor(&[2.0, 1.0, 3.0, 1.0], [1, 4]);
        // Σ(p − u)² = 4 + 4 + 1, Σu² = 9. Slopes of p inside: 3 and 1, Σ(u′ − Dp)² = 4 + 4, Σu′² = 15, γh = 1/4.
        let loss = LINE.forward(p.clone(), u.clone(), Some(derivative.clone())).unwrap();
        let inside = (0.25f64 * 8.0 / 15.0).sqrt();
        near(loss.data, 1.0);
        near(loss.regularizer, inside);
        near(loss.total, 1.0 + inside);
        // Round the ends the slopes are 2 − 3 = −1 and 1 − 4 = −3: 9 and 16 more.
        let periodic = Loss1dConfig { ends: Ends::Periodic, ..LINE };
        let loss = periodic.forward(p.clone(), u.clone(), Some(derivative)).unwrap();
        near(loss.regularizer, (0.25f64 * 33.0 / 15.0).sqrt());
        let loss = LINE.forward(p, u, None).unwrap();
        near(loss.regularizer, 0.0);
        near(loss.total, 1.0);
    }

    #[test]
    fn two_dimensions_by_hand() {
        // One inner point: slopes of p there are 7 − 1 = 6 along the first axis and 5 − 3 = 2 along the second.
        let p = tensor(&[0.0, 1.0, 0.0, 3.0, 1.0, 5.0, 0.0, 7.0, 0.0], [1, 3, 3]);
        let u = tensor(&[1.0; 9], [1, 3, 3]);
        let gradient = tensor(&[1.0; 18], [1, 3, 3, 2]);
        let a = tensor(&[3.0; 9], [1, 3, 3, 1]);
        let with = |coefficient| Some(Gradient2d { gradient: gradient.clone(), coefficient });
        // Mean over both components of (3 (1 − 6))² and (3 (1 − 2))², over 2 · 3.
        let loss = PLANE.forward(p.clone(), u.clone(), with(Some(a))).unwrap();
        // Four corners are off by 1, the others by 0, 2, 0, 4 and 6.
        near(loss.data, ((4.0 + 4.0 + 16.0 + 36.0f64) / 9.0).sqrt());
        near(loss.regularizer, (0.25f64 * 117.0 / 6.0).sqrt());
        let loss = PLANE.forward(p.clone(), u.clone(), with(None)).unwrap();
        near(loss.regularizer, (0.25f64 * 13.0 / 2.0).sqrt());
        // Half the spacing along the second axis: twice that slope, and h = √(h₁h₂).
        let other = Loss2dConfig { spacing: [0.5, 0.25], ..PLANE };
        let loss = other.forward(p, u, with(None)).unwrap();
        near(loss.regularizer, (0.5 * 0.125f64.sqrt() * 17.0 / 2.0).sqrt());
    }

    #[test]
    fn periodic_differences_of_a_fourier_mode() {
        // D sin(2πkx) = sin(2πkh)/(h 2πk) · (sin(2πkx))′ at every point: the relative error is one number.
        let n = 32;
        let h = 1.0 / n as f64;
        for k in [1.0, 3.0, 7.0] {
            let at = |f: &dyn Fn(f64) -> f64| (0..n).map(|i| f(i as f64 * h) as f32).collect::<Vec<_>>();
            let u = at(&|x| (TAU * k * x).sin());
            let slope = at(&|x| TAU * k * (TAU * k * x).cos());
            let factor = (TAU * k * h).sin() / (h * TAU * k);
            let config = Loss1dConfig { spacing: h, gamma: 1.0 / h, ends: Ends::Periodic };
            let u = tensor(&u, [1, n]);
            let loss = config.forward(u.clone(), u, Some(tensor(&slope, [1, n]))).unwrap();
            near(loss.data, 0.0);
            near(loss.regularizer, 1.0 - factor);
        }
    }

    #[test]
    fn no_weight_no_gradient() {
        let p = tensor(&[1.0, 2.0, 4.0, 3.0], [1, 4]).require_grad();
        let u = tensor(&[1.0, 0.0, 2.0, 2.0], [1, 4]);
        let config = Loss1dConfig { gamma: 0.0, ..LINE };
        let loss = config.forward(p.clone(), u.clone(), Some(u)).unwrap();
        let gradient = to_vec(p.grad(&loss.total.backward()).unwrap());
        // (p − u)/(√9 √9)
        for (found, expected) in gradient.iter().zip([0.0, 2.0, 2.0, 1.0]) {
            assert!((found - expected / 9.0).abs() < 1e-6, "{gradient:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let line = |n| tensor::<2>(&vec![1.0; n], [1, n]);
        let plane = |n| tensor::<3>(&vec![1.0; n * n], [1, n, n]);
        assert!(LINE.forward(line(4), line(5), None).is_err());
        assert!(LINE.forward(line(4), line(4), Some(line(5))).is_err());
        assert!(LINE.forward(line(2), line(2), Some(line(2))).is_err());
        assert!(Loss1dConfig { spacing: 0.0, ..LINE }.forward(line(4), line(4), None).is_err());
        assert!(Loss1dConfig { gamma: -1.0, ..LINE }.forward(line(4), line(4), None).is_err());
        assert!(PLANE.forward(plane(4), plane(3), None).is_err());
        let gradient = |n| tensor::<4>(&vec![1.0; 2 * n * n], [1, n, n, 2]);
        let with = |gradient, coefficient| Some(Gradient2d { gradient, coefficient });
        assert!(PLANE.forward(plane(4), plane(4), with(gradient(3), None)).is_err());
        assert!(PLANE.forward(plane(4), plane(4), with(gradient(4), Some(gradient(4)))).is_err());
        assert!(PLANE.forward(plane(2), plane(2), with(gradient(2), None)).is_err());
        assert!(Loss2dConfig { eps: f64::NAN, ..PLANE }.forward(plane(4), plane(4), None).is_err());
    }
}
