//! The lower bound c and the number of points, with layer norm on the keys and with a softmax over the points.
//!
//! Lemma `lower-bound`: c‖q‖ ≤ max_v |b(v, q)|/‖v‖ for all values q, with c = c_V⁻¹ c_Q⁻¹ min σ(B), where B = QᵀV/n and c_V, c_Q are the
//! smallest constants of
//!
//! ‖Σ μ_j v_j‖ ≤ c_V |μ| and ‖Σ λ_i q_i‖ ≤ c_Q |λ|, that is c_V = σ₁(V)/√n and c_Q = σ₁(Q)/√n.
//!
//! The bases are the columns of Q (n, r) and of V (n, d). Those of Q must be independent. Those of V need not be: the proof maximises
//! over μ, and a μ for every v is all it takes.

use faer::{Mat, MatRef, Scale};
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::random_field::{FieldLaw, periodic, sample_periodic};
use serde::Serialize;

use super::space::{Space, inf_sup, singular_values};
use super::{mean_product, normal_matrix};
use crate::growth::exponent;
use crate::{Error, Result};

/// Smooth functions on the circle, the same for every number of points.
///
/// y has d independent periodic Gaussian fields as columns, Fourier series with coefficients that fall like 1/k, and Q = y W_Q (n, r) and
/// y W (n, d) have weights with normal entries of variance 1/d. Keys are the layer norm of y W, over the d features of a point, without
/// γ and β; and the softmax over the points of that, as in linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SmoothFunctions {
    /// Features of y and of the keys.
    pub d: usize,
    /// Values: fewer than d, as layer norm leaves d − 1 independent keys.
    pub r: usize,
    /// Frequencies of the fields; 2·modes ≥ d makes the columns of y independent.
    pub modes: usize,
    /// Of fields and weights.
    pub seed: u64,
}

impl Default for SmoothFunctions {
    /// 32 features, 16 values, and 20 frequencies, which 64 points resolve.
    fn default() -> Self {
        Self { d: 32, r: 16, modes: 20, seed: 1 }
    }
}

/// The lower bound of Lemma `lower-bound` and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LowerBound {
    /// min σ(B)
    pub sigma: f64,
    /// c_V
    pub c_v: f64,
    /// c_Q
    pub c_q: f64,
    /// c = σ/(c_V c_Q)
    pub c: f64,
    /// The largest constant with which the inequality holds: c for orthonormal bases of the same spaces.
    pub best: f64,
}

/// The bounds on one grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GridBounds {
    /// Points.
    pub n: usize,
    /// Keys with layer norm.
    pub layer_norm: LowerBound,
    /// Keys with layer norm and softmax, v in b(v, q)/‖v‖ being the key after the softmax.
    pub softmax: LowerBound,
    /// c of keys with layer norm and softmax where ‖v‖ is the norm of the key before the softmax: σ from after, c_V from before.
    pub softmax_by_norm_before: f64,
}

/// Exponents a of c ≈ C nᵃ, by least squares of the logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slopes {
    /// Of `layer_norm.c`.
    pub layer_norm: f64,
    /// Of `layer_norm.best`.
    pub layer_norm_best: f64,
    /// Of `softmax.c`.
    pub softmax: f64,
    /// Of `softmax.best`.
    pub softmax_best: f64,
    /// Of `softmax.c_v`, which the paper's remark is about.
    pub softmax_c_v: f64,
    /// Of `softmax.sigma`.
    pub softmax_sigma: f64,
    /// Of `softmax_by_norm_before`.
    pub softmax_by_norm_before: f64,
}

/// What [`measure`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stability {
    /// The functions.
    pub functions: SmoothFunctions,
    /// The bounds for every number of points.
    pub grids: Vec<GridBounds>,
    /// Over all grids.
    pub slopes: Slopes,
}

/// The lower bounds for each of two or more numbers of points, each larger than d.
pub fn measure(functions: &SmoothFunctions, points: &[usize]) -> Result<Stability> {
    let SmoothFunctions { d, r, modes, seed } = *functions;
    if r == 0 || r >= d || 2 * modes < d {
        let what = format!("d = {d}, r = {r}, modes = {modes}");
        return Err(Error::setting(what, "1 ≤ r < d ≤ 2·modes makes the functions independent"));
    }
    if points.len() < 2 || points.iter().any(|&n| n <= d) {
        return Err(Error::setting(
            format!("points {points:?}"),
            format!("at least two, each above d = {d}"),
        ));
    }
    let law = FieldLaw { smoothness: 1.0, tau: std::f64::consts::TAU, sigma: std::f64::consts::TAU, modes };
    let fields: Vec<_> = (0..d as u32)
        .map(|index| periodic(&law, &Stream { seed, purpose: Purpose::Theory, index }))
        .collect();
    let weight = |index, columns| normal_matrix(seed, index, d, columns) * Scale((d as f64).sqrt().recip());
    let (w_q, w) = (weight(QUERY, r), weight(KEY, d));
    let bounds = |&n: &usize| {
        let samples: Vec<_> = fields.iter().map(|field| sample_periodic(field, n)).collect();
        let y = Mat::from_fn(n, d, |i, j| samples[j][i]);
        let (q, before) = (&y * &w_q, layer_norm(y * &w));
        let after = softmax(before.clone());
        let layer_norm = LowerBound::of(q.as_ref(), before.as_ref())?;
        let softmax = LowerBound::of(q.as_ref(), after.as_ref())?;
        let softmax_by_norm_before = softmax.sigma / (layer_norm.c_v * softmax.c_q);
        Ok(GridBounds { n, layer_norm, softmax, softmax_by_norm_before })
    };
    let grids = points.iter().map(bounds).collect::<Result<Vec<_>>>()?;
    let slope = |of: fn(&GridBounds) -> f64| {
        let points: Vec<_> = grids.iter().map(|grid| [grid.n as f64, of(grid)]).collect();
        exponent(&points).unwrap_or(f64::NAN)
    };
    let slopes = Slopes {
        layer_norm: slope(|grid| grid.layer_norm.c),
        layer_norm_best: slope(|grid| grid.layer_norm.best),
        softmax: slope(|grid| grid.softmax.c),
        softmax_best: slope(|grid| grid.softmax.best),
        softmax_c_v: slope(|grid| grid.softmax.c_v),
        softmax_sigma: slope(|grid| grid.softmax.sigma),
        softmax_by_norm_before: slope(|grid| grid.softmax_by_norm_before),
    };
    Ok(Stability { functions: *functions, grids, slopes })
}

// Streams of a seed, behind those of the fields, whose number is that of the feature.
const QUERY: u32 = 1 << 24;
const KEY: u32 = QUERY + 1;

/// Of the dependent one among d layer-normed keys, rounding leaves 10⁻¹⁶ of the largest singular value.
const INDEPENDENT: f64 = 1e-10;

impl LowerBound {
    /// For values Q (n, r) and keys V (n, s), s ≥ r.
    fn of(q: MatRef<f64>, v: MatRef<f64>) -> Result<Self> {
        let largest = |a: MatRef<f64>| -> Result<f64> {
            Ok(singular_values(a.qr().thin_R())?[0] / (a.nrows() as f64).sqrt())
        };
        let sigma = singular_values(mean_product(q, v).as_ref())?[q.ncols() - 1];
        let (c_v, c_q) = (largest(v)?, largest(q)?);
        let values = Space::of_directions("Q", q, INDEPENDENT, q.ncols())?;
        let keys = Space::of_directions("V", v, INDEPENDENT, v.ncols())?;
        Ok(LowerBound { sigma, c_v, c_q, c: sigma / (c_v * c_q), best: inf_sup(&values, &keys)? })
    }
}

/// Every row minus its mean, by its standard deviation; ε = 10⁻⁵ as in the models.
fn layer_norm(a: Mat<f64>) -> Mat<f64> {
    let d = a.ncols() as f64;
    let moments = a.row_iter().map(|row| {
        let mean = row.iter().sum::<f64>() / d;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / d;
        [mean, (variance + 1e-5).sqrt()]
    });
    let moments: Vec<[f64; 2]> = moments.collect();
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| (a[(i, j)] - moments[i][0]) / moments[i][1])
}

/// exp of every column, divided by its sum.
fn softmax(mut a: Mat<f64>) -> Mat<f64> {
    for j in 0..a.ncols() {
        let column = a.col_as_slice_mut(j);
        let largest = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        column.iter_mut().for_each(|x| *x = libm::exp(*x - largest));
        let sum: f64 = column.iter().sum();
        column.iter_mut().for_each(|x| *x /= sum);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q spans (e₁, e₂) and V spans (e₁ cos t + e₃ sin t, e₂): the angle t is the largest. Columns are scaled so that c and `best`
    /// differ.
    #[test]
    fn bounds_of_known_planes() {
        let t: f64 = 1.1;
        let q = Mat::from_fn(4, 2, |i, j| if i == j { [2.0, 2.0][j] } else { 0.0 });
        let v = Mat::from_fn(4, 2, |i, j| match (i, j) {
            (0, 0) => 2.0 * t.cos(),
            (2, 0) => 2.0 * t.sin(),
            (1, 1) => 6.0,
            _ => 0.0,
        });
        let found = LowerBound::of(q.as_ref(), v.as_ref()).unwrap();
        // n = 4: ‖q₁‖ = ‖q₂‖ = 1, ‖v₁‖ = 1, ‖v₂‖ = 3, B = diag(cos t, 3).
        let expected = [t.cos(), 3.0, 1.0, t.cos() / 3.0, t.cos()];
        for (found, expected) in [found.sigma, found.c_v, found.c_q, found.c, found.best].iter().zip(expected)
        {
            assert!((found - expected).abs() < 1e-14, "{found} is not {expected}");
        }
    }

    #[test]
    fn norms_normalise() {
        let a = normal_matrix(1, 0, 50, 6);
        let normed = layer_norm(a.clone());
        for (normed, a) in normed.row_iter().zip(a.row_iter()) {
            let moment = |power, shift: f64| a.iter().map(|x| (x - shift).powi(power)).sum::<f64>() / 6.0;
            let mean = moment(1, 0.0);
            for (found, x) in normed.iter().zip(a.iter()) {
                let expected = (x - mean) / (moment(2, mean) + 1e-5).sqrt();
                assert!((found - expected).abs() < 1e-14, "{found} is not {expected}");
            }
            assert!(normed.iter().sum::<f64>().abs() < 1e-14);
        }
        let soft = softmax(a.clone());
        for (soft, a) in soft.col_iter().zip(a.col_iter()) {
            assert!((soft.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            assert!(((soft[3] / soft[7]).ln() - (a[3] - a[7])).abs() < 1e-13);
        }
    }

    #[test]
    fn functions_without_sense_are_refused() {
        let functions = SmoothFunctions::default();
        for bad in [SmoothFunctions { r: 32, ..functions }, SmoothFunctions { modes: 15, ..functions }] {
            assert!(measure(&bad, &[64, 128]).is_err(), "{bad:?}");
        }
        for points in [&[64][..], &[32, 64], &[]] {
            assert!(measure(&functions, points).is_err(), "{points:?}");
        }
    }
}
