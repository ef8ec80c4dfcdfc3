//! The Céa-type inequality of Theorem 4.3 for many functions, on random matrices and on those of a layer.
//!
//! All norms here are those of vectors; 1/√n is a factor of both sides, and slacks are relative to ‖f‖.

use burn::tensor::Tensor;
use faer::{Mat, MatRef};
use galerkin::networks::{Network, NetworkConfig};
use galerkin_data::random::{Purpose, Stream};
use serde::Serialize;

use super::projection::{Case, Update};
use super::space::{Space, inf_sup, min_max};
use super::{attention, mean_product};
use crate::{Error, Result};

/// The right side minus the left side of inequalities that must hold, by ‖f‖: the smallest found, over many functions f.
///
/// f_h is the nearest function to f among the values. g(f) is attention's output with the matrices of equation `attention-update` for the
/// right side ζ = (b(v_j, f)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slack {
    /// Functions f.
    pub functions: usize,
    /// r, the dimension of the values.
    pub values: usize,
    /// s, the dimension of the keys.
    pub keys: usize,
    /// c, for orthonormal bases, in which it is the best there is.
    pub c: f64,
    /// As printed: ‖f − g(f_h)‖ ≤ c⁻¹ min_q max_v |b(v, f_h − q)|/‖v‖ + ‖f − f_h‖. Both sides are equal but for rounding.
    pub printed: f64,
    /// With content: ‖f − g(f)‖ ≤ c⁻¹ max_v |b(v, f − f_h)|/‖v‖ + ‖f − f_h‖.
    pub projection: f64,
    /// Quasi-optimality: ‖f − g(f)‖ ≤ c⁻¹‖f − f_h‖.
    pub quasi_optimal: f64,
    /// The largest left side of `projection` by its right side, at most 1: of functions that are further from the values than 10⁻⁷ and
    /// than a hundred times `rounding`, 0 if there are none.
    pub tightest: f64,
    /// The largest ‖f − g(f)‖/‖f − f_h‖ of the same functions, at most 1/c.
    pub worst_ratio: f64,
    /// The lower bound c‖f_h‖ ≤ max_v |b(v, f_h)|/‖v‖, by ‖f_h‖.
    pub lower_bound: f64,
    /// What rounding can take from either side: 32 ε (A/c + 1/c²), with ε = 2⁻⁵² and A the sum of the conditions of Q and V. The spaces
    /// are known to ε A, the projection's norm is 1/c, and c² is the smallest eigenvalue of the matrix that is inverted. A sixth of it was
    /// measured at most.
    pub rounding: f64,
}

/// Theorem 4.4: with values updated for keys K, attention brings every column of V as near to the values as it gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BasisUpdate {
    /// r, the dimension of the values.
    pub values: usize,
    /// s, the dimension of the keys.
    pub keys: usize,
    /// c, for orthonormal bases.
    pub c: f64,
    /// How far max_k |b(k, v_j − z_j)|/‖k‖ is from min_q max_k |b(k, v_j − q)|/‖k‖, by ‖v_j‖, at most over the columns of V: 0 but for
    /// rounding.
    pub excess: f64,
    /// What rounding can do, as in [`Slack`] with K for V.
    pub rounding: f64,
}

/// Both theorems on the matrices of one head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerCheck {
    /// Points.
    pub n: usize,
    /// Columns of Q, K, V.
    pub d: usize,
    /// Theorem 4.3: values Q, keys V.
    pub cea: Slack,
    /// Theorem 4.4: values Q, keys K, queries V.
    pub basis_update: BasisUpdate,
}

/// Both theorems on one head of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeadCheck {
    /// Counted from 0.
    pub layer: usize,
    /// Counted from 0.
    pub head: usize,
    /// What holds there.
    pub check: LayerCheck,
}

impl LayerCheck {
    /// An error that names the inequality if one does not hold, or if rounding is too large to tell.
    pub fn verify(&self) -> Result<()> {
        self.cea.verify()?;
        let BasisUpdate { excess, rounding, .. } = self.basis_update;
        judge("basis update, Theorem 4.4", -excess, rounding)
    }
}

impl Slack {
    fn verify(&self) -> Result<()> {
        let sides = [
            ("Céa's inequality, Theorem 4.3", self.printed),
            ("Céa's inequality for the projection of f", self.projection),
            ("quasi-optimality of the projection", self.quasi_optimal),
            ("lower bound of b", self.lower_bound),
        ];
        sides.into_iter().try_for_each(|(what, slack)| judge(what, slack, self.rounding))
    }
}

/// [`check_layer`] on random matrices.
pub fn check_case(case: Case, functions: usize) -> Result<LayerCheck> {
    check_matrices(&case.draw()?.matrices(), functions, case.seed)
}

/// Both theorems for Q, K, V (n, d), row-major, n ≥ d, and for `functions` random functions.
///
/// The matrices are taken as they are: for a layer of a model, as they stand in its products, after norms and with coordinates
/// ([`Network::projections`]). Values and keys are spanned by those singular directions that are longer
/// than 10⁻⁶ of the first, rounding of f32 being what is below; values by the leading ones where they would be more than the keys, as the
/// theorems are about r ≤ s.
///
/// A quarter of the functions are normal numbers at every point, and a quarter are values. The others are a value plus something 1 to 10⁻⁶
/// times as large, again normal numbers or a key: what keys respond to but values cannot represent is what an oblique projection amplifies.
pub fn check_layer<T: Copy + Into<f64>>(
    q: &[T],
    k: &[T],
    v: &[T],
    n: usize,
    d: usize,
    functions: usize,
    seed: u64,
) -> Result<LayerCheck> {
    let read = |(name, values): (&str, &[T])| -> Result<Mat<f64>> {
        let expected = n.checked_mul(d).filter(|len| *len == values.len() && *len > 0);
        expected.ok_or_else(|| Error::Shape {
            what: name.into(),
            expected: format!("{n} × {d} values, at least one"),
            found: vec![values.len()],
        })?;
        Ok(Mat::from_fn(n, d, |i, j| values[i * d + j].into()))
    };
    let [q, k, v] = [read(("Q", q))?, read(("K", k))?, read(("V", v))?];
    check_matrices(&[q, k, v], functions, seed)
}

/// [`check_layer`] of every head of every encoder layer of a network, for the first sample of an input (B, points, channels) on a grid.
pub fn check_network(
    network: &Network,
    input: &Tensor<3>,
    grid: &[usize],
    functions: usize,
    seed: u64,
) -> Result<Vec<HeadCheck>> {
    let layers = match network.config() {
        NetworkConfig::Transformer(config) => config.encoder.layers,
        _ => 0,
    };
    let mut found = Vec::new();
    for layer in 0..layers {
        let projections = network.projections(input.clone(), grid, layer)?;
        let [_, heads, n, wide] = projections[0].dims();
        let [q, k, v] = projections.map(to_vec);
        for head in 0..heads {
            let part = head * n * wide..(head + 1) * n * wide;
            let check = check_layer(&q[part.clone()], &k[part.clone()], &v[part], n, wide, functions, seed)?;
            found.push(HeadCheck { layer, head, check });
        }
    }
    Ok(found)
}

/// The values of a tensor, row-major.
fn to_vec(tensor: Tensor<4>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("converted to f32")
}

fn check_matrices([q, k, v]: &[Mat<f64>; 3], functions: usize, seed: u64) -> Result<LayerCheck> {
    let [q, k, v] = [q.as_ref(), k.as_ref(), v.as_ref()];
    if functions == 0 {
        return Err(Error::setting("0 functions", "there is nothing to check"));
    }
    Ok(LayerCheck {
        n: q.nrows(),
        d: q.ncols(),
        cea: Projector::new(q, v)?.slack(functions, seed),
        basis_update: basis_update(q, k, v)?,
    })
}

/// Singular directions below this part of the first are rounding: f32 has 6·10⁻⁸, times the root of the hundred terms of a product.
const INDEPENDENT: f64 = 1e-6;

/// A function this near to a value is one, and so is one within so many times the rounding: what is left of it is rounding, and no quotient of that
/// means anything.
const A_VALUE: f64 = 1e-7;
const ROUNDINGS: f64 = 100.0;

/// Above this, rounding could hide any violation.
const TOO_ROUNDED: f64 = 1e-3;

/// Functions at a time: a block of them is as large as a matrix of a layer.
const BLOCK: usize = 64;

/// The stream of function i is this plus i; those of matrices come before.
const FUNCTIONS: u32 = 1 << 24;

/// Values, keys, and attention with the updated matrices.
struct Projector {
    values: Space,
    keys: Space,
    c: f64,
    /// Q̃(K̃ᵀṼ)/n (n, s): times ζ, it is g.
    attention: Mat<f64>,
}

impl Projector {
    fn new(q: MatRef<f64>, v: MatRef<f64>) -> Result<Self> {
        let (values, keys, c) = spaces(q, ("V", v))?;
        let update = Update::new(&values, &keys)?;
        let [q_new, k_new, v_new] = [q * &update.q, q * &update.k, v * &update.v];
        let attention = attention(q_new.as_ref(), k_new.as_ref(), v_new.as_ref());
        Ok(Projector { values, keys, c, attention })
    }

    /// g (n, m) of every column of f.
    fn attend(&self, f: MatRef<f64>) -> Mat<f64> {
        &self.attention * mean_product(self.keys.basis.as_ref(), f)
    }

    /// min_q max_v |b(v, f − q)|/‖v‖ of every column of f.
    fn smallest_response(&self, f: MatRef<f64>) -> Vec<f64> {
        lengths(&self.keys.responses((f - min_max(&self.values, &self.keys, f)).as_ref()))
    }

    fn slack(&self, functions: usize, seed: u64) -> Slack {
        let mut slack = Slack {
            functions,
            values: self.values.dimension(),
            keys: self.keys.dimension(),
            c: self.c,
            printed: f64::INFINITY,
            projection: f64::INFINITY,
            quasi_optimal: f64::INFINITY,
            tightest: 0.0,
            worst_ratio: 0.0,
            lower_bound: f64::INFINITY,
            rounding: rounding(&self.values, &self.keys, self.c),
        };
        for first in (0..functions).step_by(BLOCK) {
            let block = first..functions.min(first + BLOCK);
            let f = self.functions(block, seed);
            self.lower(&mut slack, f.as_ref());
        }
        slack
    }

    /// Lowers every slack to the smallest of the columns of f.
    fn lower(&self, slack: &mut Slack, f: MatRef<f64>) {
        let near = self.values.nearest(f);
        let rest = f - &near;
        let [f_len, near_len, rest_len] = [lengths(&f.to_owned()), lengths(&near), lengths(&rest)];
        let error = lengths(&(f - self.attend(f)));
        let printed_error = lengths(&(f - self.attend(near.as_ref())));
        let printed_response = self.smallest_response(near.as_ref());
        let rest_response = lengths(&self.keys.responses(rest.as_ref()));
        let near_response = lengths(&self.keys.responses(near.as_ref()));
        for j in 0..f.ncols() {
            let lower = |least: &mut f64, right: f64, left: f64, scale: f64| {
                // A NaN must not pass for a slack.
                let found = if scale > 0.0 { (right - left) / scale } else { f64::NAN };
                *least = if found.is_nan() { f64::NEG_INFINITY } else { least.min(found) };
            };
            lower(&mut slack.printed, printed_response[j] / self.c + rest_len[j], printed_error[j], f_len[j]);
            let bound = rest_response[j] / self.c + rest_len[j];
            lower(&mut slack.projection, bound, error[j], f_len[j]);
            lower(&mut slack.quasi_optimal, rest_len[j] / self.c, error[j], f_len[j]);
            lower(&mut slack.lower_bound, near_response[j], self.c * near_len[j], near_len[j]);
            if rest_len[j] > A_VALUE.max(ROUNDINGS * slack.rounding) * f_len[j] {
                slack.tightest = slack.tightest.max(error[j] / bound);
                slack.worst_ratio = slack.worst_ratio.max(error[j] / rest_len[j]);
            }
        }
    }

    /// Random functions, as [`check_layer`] says, each a function of seed and number.
    fn functions(&self, numbers: std::ops::Range<usize>, seed: u64) -> Mat<f64> {
        let (n, r, s) = (self.values.basis.nrows(), self.values.dimension(), self.keys.dimension());
        let mut f = Mat::zeros(n, numbers.len());
        for (j, number) in numbers.enumerate() {
            let index = FUNCTIONS.wrapping_add(number as u32);
            let stream = Stream { seed, purpose: Purpose::Theory, index };
            let mut normals = vec![0.0; r + n.max(s)];
            stream.normals(&mut normals);
            let (values, others) = normals.split_at(r);
            let column = |numbers: &[f64]| Mat::from_fn(numbers.len(), 1, |i, _| numbers[i]);
            let value = &self.values.orthonormal * column(values);
            let noise = || column(&others[..n]) * faer::Scale((n as f64).sqrt().recip());
            let key = || &self.keys.orthonormal * column(&others[..s]);
            // The first number behind those that the normal ones were made of.
            let uniform = stream.uniform(2 * normals.len().div_ceil(2) as u64);
            let scale = faer::Scale(libm::pow(10.0, -6.0 * uniform));
            let function = match number % 4 {
                0 => noise(),
                1 => value + noise() * scale,
                2 => value + key() * scale,
                _ => value,
            };
            f.subcols_mut(j, 1).copy_from(function);
        }
        f
    }
}

fn basis_update(q: MatRef<f64>, k: MatRef<f64>, v: MatRef<f64>) -> Result<BasisUpdate> {
    let (values, keys, c) = spaces(q, ("K", k))?;
    let z = attention(Update::new(&values, &keys)?.values(q, k, &keys).as_ref(), k, v);
    let found = lengths(&keys.responses((v - z).as_ref()));
    let least = lengths(&keys.responses((v - min_max(&values, &keys, v)).as_ref()));
    let mut excess = 0.0;
    for ((found, least), length) in found.iter().zip(least).zip(lengths(&v.to_owned())) {
        // A column of zeros is its own projection.
        let by = if length > 0.0 { (found - least).abs() / length } else { 0.0 };
        excess = if by > excess || by.is_nan() { by } else { excess };
    }
    let rounding = rounding(&values, &keys, c);
    Ok(BasisUpdate { values: values.dimension(), keys: keys.dimension(), c, excess, rounding })
}

/// Values of Q, the named keys, and c.
fn spaces(q: MatRef<f64>, (name, keys): (&str, MatRef<f64>)) -> Result<(Space, Space, f64)> {
    let keys = Space::of_directions(name, keys, INDEPENDENT, keys.ncols())?;
    let values = Space::of_directions("Q", q, INDEPENDENT, keys.dimension())?;
    let c = inf_sup(&values, &keys)?;
    if c < INDEPENDENT {
        let what = format!("keys {name} and values Q: c = {c:.1e}");
        return Err(Error::setting(what, "some value is orthogonal to all keys, and there is no projection"));
    }
    Ok((values, keys, c))
}

fn rounding(values: &Space, keys: &Space, c: f64) -> f64 {
    32.0 * f64::EPSILON * ((values.condition + keys.condition) / c + 1.0 / (c * c))
}

fn judge(what: &str, slack: f64, rounding: f64) -> Result<()> {
    if rounding > TOO_ROUNDED {
        let why = format!("rounding may be {rounding:.1e} of a function, and a violation would not be seen");
        return Err(Error::setting(what, why));
    }
    // Not `slack < -rounding`: NaN does not hold either.
    if slack >= -rounding { Ok(()) } else { Err(Error::Violated { what: what.into(), slack, rounding }) }
}

fn lengths(a: &Mat<f64>) -> Vec<f64> {
    a.col_iter().map(|column| column.norm_l2()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::projection::LatentSource;
    use super::*;

    const CASE: Case = Case { n: 96, d: 8, r: 8, latents: LatentSource::Separate, seed: 3 };

    fn projector(case: Case) -> Projector {
        let [q, _, v] = case.draw().unwrap().matrices();
        Projector::new(q.as_ref(), v.as_ref()).unwrap()
    }

    fn violated(slack: &Slack) -> String {
        match slack.verify() {
            Err(Error::Violated { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    /// With other matrices than the update's the theorem fails, and is seen to fail.
    #[test]
    fn attention_that_is_not_updated_is_caught() {
        let mut projector = projector(CASE);
        projector.slack(99, 1).verify().unwrap();
        // Off by 10⁻⁹ of attention, ten times the bound of rounding and more.
        projector.attention[(5, 2)] += 1e-9 * projector.attention.norm_max();
        let slack = projector.slack(99, 1);
        assert!(slack.rounding < 1e-10, "{slack:?}");
        assert_eq!(violated(&slack), "Céa's inequality, Theorem 4.3");
    }

    /// A constant that is too large by a tenth fails. Values and keys are lines here, so that c is the best for every function.
    #[test]
    fn a_constant_that_is_too_large_is_caught() {
        let mut projector = projector(Case { d: 1, r: 1, ..CASE });
        projector.slack(99, 1).verify().unwrap();
        projector.c *= 1.1;
        let slack = projector.slack(99, 1);
        assert!(
            slack.lower_bound < -1e-3 && slack.quasi_optimal < -1e-3 && slack.projection < -1e-3,
            "{slack:?}"
        );
        violated(&slack);
    }

    /// Read with f in the place of f_h, the theorem's bound is wrong: as many keys as values make its first term zero, and an
    /// oblique projection is not the nearest function.
    #[test]
    fn the_bound_with_the_function_itself_is_wrong() {
        let projector = projector(CASE);
        let f = projector.functions(0..60, 1);
        let near = projector.values.nearest(f.as_ref());
        let first = projector.smallest_response(f.as_ref());
        let left = lengths(&(&f - projector.attend(f.as_ref())));
        let rest = lengths(&(&f - near));
        let mut broken = 0;
        for ((left, first), rest) in left.iter().zip(first).zip(rest) {
            assert!(first < 1e-12);
            broken += usize::from(left / rest > 1.01);
        }
        assert!(broken > 40, "{broken} of 60");
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        let case = |r| Case { n: 12, d: 3, r, latents: LatentSource::Separate, seed: 1 };
        assert!(check_case(case(0), 9).is_err() && check_case(case(2), 0).is_err());
        let ones = [1.0f32; 12];
        let short = check_layer(&ones, &ones[1..], &ones, 4, 3, 9, 1).unwrap_err();
        assert_eq!(short.to_string(), "K: expected shape 4 × 3 values, at least one, found [11]");
        assert!(check_layer::<f32>(&[], &[], &[], 0, 3, 9, 1).is_err());
        // Fewer points than columns.
        assert!(check_layer(&ones, &ones, &ones, 3, 4, 9, 1).is_err());
        let values = [1.0, 0.0, 0.0f64];
        let keys = [0.0, 1.0, 0.0];
        let orthogonal = check_layer(&values, &keys, &keys, 3, 1, 9, 1).unwrap_err().to_string();
        assert!(orthogonal.contains("some value is orthogonal to all keys"), "{orthogonal}");
        let nan = [f64::NAN, 0.0, 0.0];
        assert!(check_layer(&values, &values, &nan, 3, 1, 9, 1).is_err());
        assert!(judge("x", f64::NAN, 1e-9).is_err() && judge("x", 1.0, 1.0).is_err());
    }
}
