//! A space of functions on n points: the span of the columns of a matrix.

use faer::linalg::solvers::SolveLstsq;
use faer::{Mat, MatRef};

use crate::{Error, Result};

/// The span of the columns of A (n, d), of dimension r.
pub(super) struct Space {
    /// U (d, d), invertible: the first r columns of A U are the basis.
    pub change: Mat<f64>,
    /// (n, r), the basis.
    pub basis: Mat<f64>,
    /// O (n, r), OᵀO = I, a basis of the same space.
    pub orthonormal: Mat<f64>,
    /// The largest singular value of the columns or directions that were taken by the smallest.
    pub condition: f64,
}

impl Space {
    /// The basis is made of columns of A, in their order, and U is a permutation, as in the paper; it is the identity if all columns are
    /// independent. A column is left out where the part of it that is not in the span of others is below `tolerance` of the longest.
    pub fn of_columns(name: &str, a: MatRef<f64>, tolerance: f64) -> Result<Self> {
        check(name, a)?;
        let d = a.ncols();
        let pivoted = a.qr().thin_R().col_piv_qr();
        let rest = |i: usize| pivoted.thin_R()[(i, i)].abs();
        let r = (0..d).take_while(|&i| rest(i) > tolerance * rest(0)).count();
        let mut order = pivoted.P().arrays().0.to_vec();
        order[..r].sort_unstable();
        let change = Mat::from_fn(d, d, |i, j| f64::from(order[j] == i));
        let basis = a * change.subcols(0, r);
        let factors = basis.qr();
        let sigma = singular_values(factors.thin_R())?;
        let condition = ratio(name, &sigma)?;
        Ok(Space { change, orthonormal: factors.compute_thin_Q(), basis, condition })
    }

    /// The basis is orthonormal, vᵢᵀvⱼ/n = δᵢⱼ, and made of the leading singular directions of A: those above `tolerance` of the first,
    /// and no more than `most`.
    ///
    /// A basis of columns would do as well on paper. This one keeps M = I, where the Gram matrix of columns has the square of their
    /// condition.
    pub fn of_directions(name: &str, a: MatRef<f64>, tolerance: f64, most: usize) -> Result<Self> {
        check(name, a)?;
        let (n, d) = (a.nrows(), a.ncols());
        let factors = a.qr();
        let svd = factors.thin_R().svd().map_err(|_| unconverged())?;
        let sigma: Vec<f64> = svd.S().column_vector().iter().copied().collect();
        let r = sigma.iter().take_while(|&&s| s > tolerance * sigma[0]).count().min(most);
        let condition = ratio(name, &sigma[..r])?;
        let root = (n as f64).sqrt();
        let change =
            Mat::from_fn(
                d,
                d,
                |i, j| if j < r { svd.V()[(i, j)] * root / sigma[j] } else { svd.V()[(i, j)] },
            );
        Ok(Space {
            basis: a * change.subcols(0, r),
            orthonormal: factors.compute_thin_Q() * svd.U().subcols(0, r),
            change,
            condition,
        })
    }

    /// r.
    pub fn dimension(&self) -> usize {
        self.basis.ncols()
    }

    /// Of every column of f the nearest function of the space.
    pub fn nearest(&self, f: MatRef<f64>) -> Mat<f64> {
        &self.orthonormal * self.responses(f)
    }

    /// Oᵀf (r, m). Its columns are as long as √n max_v b(v, f)/‖v‖ over the functions v of the space.
    pub fn responses(&self, f: MatRef<f64>) -> Mat<f64> {
        self.orthonormal.transpose() * f
    }
}

/// The largest c with c‖q‖ ≤ max_v b(v, q)/‖v‖ for all q: the cosine of the largest angle between a value and its nearest key.
pub(super) fn inf_sup(values: &Space, keys: &Space) -> Result<f64> {
    let cosines = singular_values(keys.responses(values.orthonormal.as_ref()).as_ref())?;
    // Fewer keys than values leave some value without a response.
    Ok(if keys.dimension() < values.dimension() { 0.0 } else { cosines[values.dimension() - 1] })
}

/// Of every column of f the q among the values with the smallest max_v b(v, f − q)/‖v‖, by least squares on the responses of orthonormal keys:
/// neither B nor M nor the saddle-point system has a part in it.
pub(super) fn min_max(values: &Space, keys: &Space, f: MatRef<f64>) -> Mat<f64> {
    let responses = keys.responses(values.orthonormal.as_ref());
    &values.orthonormal * responses.qr().solve_lstsq(keys.responses(f))
}

/// σ₁ ≥ σ₂ ≥ …
pub(super) fn singular_values(a: MatRef<f64>) -> Result<Vec<f64>> {
    a.singular_values().map_err(|_| unconverged())
}

fn check(name: &str, a: MatRef<f64>) -> Result<()> {
    let shape = [a.nrows(), a.ncols()];
    if shape.contains(&0) {
        let expected = "without empty axis".into();
        return Err(Error::Shape { what: name.into(), expected, found: shape.to_vec() });
    }
    if shape[0] < shape[1] {
        let expected = "(n, d), n ≥ d".into();
        return Err(Error::Shape { what: name.into(), expected, found: shape.to_vec() });
    }
    if !a.is_all_finite() {
        return Err(Error::setting(name, "it has values that are not finite"));
    }
    Ok(())
}

fn ratio(name: &str, sigma: &[f64]) -> Result<f64> {
    match sigma {
        [first, .., last] => Ok(first / last),
        [_] => Ok(1.0),
        [] => Err(Error::setting(name, "all its columns are zero")),
    }
}

fn unconverged() -> Error {
    Error::setting("singular values", "their iteration did not converge")
}
