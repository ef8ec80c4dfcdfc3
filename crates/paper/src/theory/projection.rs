//! Attention is the projection: equation `attention-update` and Theorem 4.4 against the saddle-point system, solved as it stands.

use faer::linalg::solvers::{DenseSolveCore, Solve};
use faer::{Mat, MatRef, Scale, Side};
use serde::Serialize;

use super::space::{self, Space};
use super::{attention, mean_product, normal_matrix};
use crate::{Error, Result};

/// Where Q and V come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatentSource {
    /// One y, as in the theorem: all keys are combinations of y's columns, so are all values, and the projection is orthogonal.
    Shared,
    /// One y for Q and another for K and V: nothing in the proof needs them to be the same, and the projection is oblique.
    Separate,
}

/// Random matrices of these sizes.
///
/// y has independent standard normal entries. W_K and W_V have normal ones of variance 1/4d plus 1 on the diagonal, the paper's initialisation with
/// gains that keep them well-conditioned; so has W_Q if r = d, and else it is the product of a (d, r) and an (r, d) matrix of normal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Points.
    pub n: usize,
    /// Columns of Q, K and V.
    pub d: usize,
    /// The rank of Q, from 1 to d.
    pub r: usize,
    /// Where they come from.
    pub latents: LatentSource,
    /// Of all numbers.
    pub seed: u64,
}

/// Small and large, square and not, values as many as keys and fewer.
pub const CASES: [Case; 8] = [
    Case { n: 64, d: 4, r: 4, latents: LatentSource::Shared, seed: 1 },
    Case { n: 256, d: 32, r: 32, latents: LatentSource::Shared, seed: 2 },
    Case { n: 256, d: 32, r: 11, latents: LatentSource::Shared, seed: 3 },
    Case { n: 8192, d: 96, r: 96, latents: LatentSource::Shared, seed: 4 },
    Case { n: 8192, d: 96, r: 40, latents: LatentSource::Shared, seed: 5 },
    Case { n: 64, d: 4, r: 1, latents: LatentSource::Separate, seed: 6 },
    Case { n: 256, d: 32, r: 11, latents: LatentSource::Separate, seed: 7 },
    Case { n: 8192, d: 96, r: 40, latents: LatentSource::Separate, seed: 8 },
];

/// ‖z − p‖/‖p‖ in the Frobenius norm, of what attention gives and what the systems give.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProjectionCheck {
    /// The matrices.
    pub case: Case,
    /// p = Q̃(K̃ᵀṼ)ζ/n of equation `attention-update` for d functions, and the saddle-point system solved by LU.
    pub update: f64,
    /// The same and the minimiser of max_v |b(v, f − q)|/‖v‖, found by least squares.
    pub min_max: f64,
    /// z = Q̃(KᵀV)/n of Theorem 4.4, Q̃ from keys K, and its system.
    pub basis_update: f64,
    /// The same with the matrix that the paper prints. Not small, unless K = V and n = 1.
    pub basis_update_printed: f64,
    /// The same with 1/n, which is missing there. Not small, unless K = V.
    pub basis_update_scaled: f64,
    /// The largest condition of Q's independent columns, K and V; their Gram matrices have the square of it.
    pub condition: f64,
}

/// Measures how far attention is from the projection.
pub fn check(case: Case) -> Result<ProjectionCheck> {
    let drawn = case.draw()?;
    let [q, k, v] = drawn.matrices();
    let values = Space::of_columns("Q", q.as_ref(), INDEPENDENT)?;
    let keys = Space::of_columns("V", v.as_ref(), INDEPENDENT)?;
    let update = Update::new(&values, &keys)?;
    let f = normal_matrix(case.seed, FUNCTIONS, case.n, case.d);

    // The updated matrices stand at y, where a network has them.
    let projected = drawn.attend(&update) * mean_product(keys.basis.as_ref(), f.as_ref());
    let by_system = saddle_point(&values, &keys, f.as_ref());

    let test = Space::of_columns("K", k.as_ref(), INDEPENDENT)?;
    let updated_values = Update::new(&values, &test)?.values(q.as_ref(), k.as_ref(), &test);
    let updated = attention(updated_values.as_ref(), k.as_ref(), v.as_ref());
    let with_measure =
        attention(update.values(q.as_ref(), v.as_ref(), &keys).as_ref(), k.as_ref(), v.as_ref());
    let printed = &with_measure * Scale(case.n as f64);
    let queries = saddle_point(&values, &test, v.as_ref());
    Ok(ProjectionCheck {
        case,
        update: difference(&projected, &by_system),
        min_max: difference(&projected, &space::min_max(&values, &keys, f.as_ref())),
        basis_update: difference(&updated, &queries),
        basis_update_printed: difference(&printed, &queries),
        basis_update_scaled: difference(&with_measure, &queries),
        condition: values.condition.max(keys.condition).max(test.condition),
    })
}

/// Columns of random matrices count as dependent where rounding, of which n·d is plenty, is all there is besides the others.
const INDEPENDENT: f64 = 1e-10;

// Streams of a seed.
const LATENT: u32 = 0;
const OTHER_LATENT: u32 = 1;
const QUERY_LEFT: u32 = 2;
const QUERY_RIGHT: u32 = 3;
const KEY: u32 = 4;
const VALUE: u32 = 5;
const FUNCTIONS: u32 = 6;

/// LatentSource and projection matrices of a [`Case`].
pub(super) struct Drawn {
    /// y of Q, and y of K and V.
    latents: [Mat<f64>; 2],
    /// W_Q, W_K, W_V (d, d).
    weights: [Mat<f64>; 3],
}

impl Case {
    pub(super) fn draw(&self) -> Result<Drawn> {
        let Case { n, d, r, latents, seed } = *self;
        if r == 0 || r > d || d >= n {
            let what = format!("n = {n}, d = {d}, r = {r}");
            return Err(Error::setting(what, "the theorem is about 1 ≤ r ≤ d < n"));
        }
        let weight = |index| {
            normal_matrix(seed, index, d, d) * Scale(0.5 / (d as f64).sqrt()) + Mat::<f64>::identity(d, d)
        };
        let w_q = match r < d {
            true => normal_matrix(seed, QUERY_LEFT, d, r) * normal_matrix(seed, QUERY_RIGHT, r, d),
            false => weight(QUERY_LEFT),
        };
        let y = normal_matrix(seed, LATENT, n, d);
        let other = match latents {
            LatentSource::Shared => y.clone(),
            LatentSource::Separate => normal_matrix(seed, OTHER_LATENT, n, d),
        };
        Ok(Drawn { latents: [y, other], weights: [w_q, weight(KEY), weight(VALUE)] })
    }
}

impl Drawn {
    /// Q, K, V (n, d).
    pub fn matrices(&self) -> [Mat<f64>; 3] {
        let ([y, other], [w_q, w_k, w_v]) = (&self.latents, &self.weights);
        [y * w_q, other * w_k, other * w_v]
    }

    /// Attention (n, d) with the updated matrices.
    fn attend(&self, update: &Update) -> Mat<f64> {
        let ([y, other], [w_q, _, w_v]) = (&self.latents, &self.weights);
        let [q, k, v] = [y * (w_q * &update.q), y * (w_q * &update.k), other * (w_v * &update.v)];
        attention(q.as_ref(), k.as_ref(), v.as_ref())
    }
}

/// What equation `attention-update` multiplies from the right: Q̃ = Q U, K̃ = Q U Λ and Ṽ = V U_V blkdiag(M⁻¹, 0).
///
/// Λ = blkdiag((B M⁻¹ Bᵀ)⁻¹, 0). The paper's U is a permutation that brings r independent columns to the front, and any U that puts a
/// basis there does. The paper's V has independent columns, U_V = I; with a basis at the front of V U_V the formula holds for others.
/// M must be invertible, which is what a basis is, and so must B M⁻¹ Bᵀ, which is what the lower bound c > 0 is.
pub(super) struct Update {
    /// U (d, d)
    pub q: Mat<f64>,
    /// UΛ (d, d)
    pub k: Mat<f64>,
    /// U_V blkdiag(M⁻¹, 0) without its columns of zeros, (d, s)
    pub v: Mat<f64>,
}

impl Update {
    pub fn new(values: &Space, keys: &Space) -> Result<Self> {
        let (r, s) = (values.dimension(), keys.dimension());
        if s < r {
            return Err(Error::setting(
                format!("{s} keys for {r} values"),
                "there must be a key for every value",
            ));
        }
        let b = mean_product(values.basis.as_ref(), keys.basis.as_ref());
        let m_inverse =
            inverse("the Gram matrix M of the keys", mean_product(keys.basis.as_ref(), keys.basis.as_ref()))?;
        let schur_inverse = inverse("B M⁻¹ Bᵀ", &b * &m_inverse * b.transpose())?;
        let mut k = Mat::zeros(values.change.nrows(), values.change.ncols());
        k.subcols_mut(0, r).copy_from(values.change.subcols(0, r) * schur_inverse);
        Ok(Update { q: values.change.clone(), k, v: keys.change.subcols(0, s) * m_inverse })
    }

    /// The updated values of Theorem 4.4, Q U W̃ (n, d) with W̃ = (QUΛ)ᵀ(K U_K M⁻¹) U_Kᵀ/n: attention of these with K and V as they are is
    /// the projection of V's columns. `k` is the matrix of the keys.
    pub fn values(&self, q: MatRef<f64>, k: MatRef<f64>, keys: &Space) -> Mat<f64> {
        let w = mean_product((q * &self.k).as_ref(), (k * &self.v).as_ref());
        (q * &self.q) * (w * keys.change.subcols(0, keys.dimension()).transpose())
    }
}

/// p (n, m) from M μ + Bᵀλ = ζ, B μ = 0, `mix-matrix`, with ζ = (b(v_j, f)) for every column of f: the whole system by LU.
fn saddle_point(values: &Space, keys: &Space, f: MatRef<f64>) -> Mat<f64> {
    let (r, s) = (values.dimension(), keys.dimension());
    let b = mean_product(values.basis.as_ref(), keys.basis.as_ref());
    let mut system = Mat::zeros(s + r, s + r);
    system.submatrix_mut(0, 0, s, s).copy_from(mean_product(keys.basis.as_ref(), keys.basis.as_ref()));
    system.submatrix_mut(0, s, s, r).copy_from(b.transpose());
    system.submatrix_mut(s, 0, r, s).copy_from(&b);
    let mut right = Mat::zeros(s + r, f.ncols());
    right.submatrix_mut(0, 0, s, f.ncols()).copy_from(mean_product(keys.basis.as_ref(), f));
    let solution = system.full_piv_lu().solve(&right);
    &values.basis * solution.submatrix(s, 0, r, f.ncols())
}

/// Of a symmetric positive definite matrix.
fn inverse(name: &str, a: Mat<f64>) -> Result<Mat<f64>> {
    let factors = a.llt(Side::Lower).map_err(|_| Error::setting(name, "it is not positive definite"))?;
    Ok(factors.inverse())
}

fn difference(found: &Mat<f64>, expected: &Mat<f64>) -> f64 {
    (found - expected).norm_l2() / expected.norm_l2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every entry of the updated matrices matters: changed by 10⁻⁶ of the largest one, it is seen in the result as more than 10⁻⁹, a hundred
    /// times what rounding leaves of the unchanged one. (Columns of QU beyond r are multiplied by zero.)
    #[test]
    fn other_matrices_do_not_project() {
        for latents in [LatentSource::Shared, LatentSource::Separate] {
            let case = Case { n: 128, d: 8, r: 5, latents, seed: 9 };
            let drawn = case.draw().unwrap();
            let [q, _, v] = drawn.matrices();
            let values = Space::of_columns("Q", q.as_ref(), INDEPENDENT).unwrap();
            let keys = Space::of_columns("V", v.as_ref(), INDEPENDENT).unwrap();
            let f = normal_matrix(3, FUNCTIONS, case.n, 3);
            let expected = saddle_point(&values, &keys, f.as_ref());
            let project = |update: &Update| {
                let zeta = mean_product(keys.basis.as_ref(), f.as_ref());
                difference(&(drawn.attend(update) * zeta), &expected)
            };
            let exact = Update::new(&values, &keys).unwrap();
            assert!(project(&exact) < 1e-11, "{}", project(&exact));
            for which in 0..3 {
                for (i, j) in (0..case.d).flat_map(|i| (0..case.r).map(move |j| (i, j))) {
                    let mut matrices = [exact.q.clone(), exact.k.clone(), exact.v.clone()];
                    let change = 1e-6 * matrices[which].norm_max();
                    matrices[which][(i, j)] += change;
                    let [q, k, v] = matrices;
                    let found = project(&Update { q, k, v });
                    assert!(found > 1e-9, "matrix {which}, entry ({i}, {j}): {found}");
                }
            }
        }
    }

    #[test]
    fn the_permutation_finds_independent_columns() {
        // The third column is the sum of the first two, the second to last is zero.
        let a = normal_matrix(1, 0, 10, 5);
        let a = Mat::from_fn(10, 5, |i, j| match j {
            2 => a[(i, 0)] + a[(i, 1)],
            3 => 0.0,
            _ => a[(i, j)],
        });
        let space = Space::of_columns("A", a.as_ref(), INDEPENDENT).unwrap();
        assert_eq!(space.dimension(), 3);
        assert_eq!((&a * &space.change).subcols(0, 3).to_owned(), space.basis);
        let missing = a.as_ref() - space.nearest(a.as_ref());
        assert!(missing.norm_max() < 1e-14, "{missing:?}");
        let square = &space.change * space.change.transpose();
        assert_eq!(square, Mat::<f64>::identity(5, 5));
        // The same space by its directions, with M = I.
        let directions = Space::of_directions("A", a.as_ref(), INDEPENDENT, 5).unwrap();
        assert_eq!(directions.dimension(), 3);
        let gram = mean_product(directions.basis.as_ref(), directions.basis.as_ref());
        assert!((gram - Mat::<f64>::identity(3, 3)).norm_max() < 1e-13);
        assert!((space::inf_sup(&space, &directions).unwrap() - 1.0).abs() < 1e-14);
    }

    #[test]
    fn sizes_and_values_without_sense_are_refused() {
        let case = Case { n: 8, d: 4, r: 2, latents: LatentSource::Shared, seed: 1 };
        for bad in
            [Case { r: 0, ..case }, Case { r: 5, ..case }, Case { d: 8, ..case }, Case { n: 0, ..case }]
        {
            let message = check(bad).unwrap_err().to_string();
            assert!(message.ends_with("the theorem is about 1 ≤ r ≤ d < n"), "{message}");
        }
        let zero = Space::of_columns("A", Mat::zeros(4, 2).as_ref(), INDEPENDENT);
        assert_eq!(zero.err().unwrap().to_string(), "A: all its columns are zero");
        let mut a = normal_matrix(1, 0, 4, 2);
        let fewer = Space::of_columns("A", a.subcols(0, 1), INDEPENDENT).unwrap();
        let more = Space::of_columns("A", a.as_ref(), INDEPENDENT).unwrap();
        let message = Update::new(&more, &fewer).err().unwrap().to_string();
        assert_eq!(message, "1 keys for 2 values: there must be a key for every value");
        assert_eq!(space::inf_sup(&more, &fewer).unwrap(), 0.0);
        a[(1, 1)] = f64::NAN;
        assert!(Space::of_directions("A", a.as_ref(), INDEPENDENT, 2).is_err());
    }
}
