//! Eigenfunctions of Darcy's operator: −∇·(a∇u) = λu on the unit square, u = 0 on its boundary.
//!
//! Bilinear finite elements on the n × n vertices, boundary included, h = 1/(n − 1), with the consistent mass matrix: A u = λ M u. The
//! coefficient of an element is the mean of its four vertices.
//!
//! Inverse iteration of a block of vectors X with the Cholesky factors of A, and the projection of Rayleigh and Ritz in every step:
//!
//! Y = A⁻¹M X, (YᵀA Y) s = θ (YᵀM Y) s, X ← Y s.
//!
//! Pairs (θ, x), ‖x‖_M = 1, are done when the sum of all ‖x − θA⁻¹M x‖²_M is small. An iteration multiplies the error of x_k by
//! λ_k/λ_{p+1}, p the vectors of the block; for the first two functions of a uniform coefficient that is ¼. A block, unlike a single Krylov
//! sequence, finds all functions of a multiple eigenvalue.

use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};
use faer::linalg::solvers::Solve;
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::sparse::{SparseColMat, Triplet};
use faer::{Mat, Par, Side};

/// An eigenvalue and a function that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigenpair {
    /// λ.
    pub value: f64,
    /// u at the n × n vertices, row by row, zero on the boundary; ∫u² = 1. Of the vertices where |u| is greatest, up to 10⁻⁶ of it, u is
    /// positive at the first.
    pub function: Vec<f64>,
}

/// The root of that sum at the most. The error of a value is of its square, that of a function of the residual over the relative distance to
/// other eigenvalues. Two phases with contrasts of 4, 100 and 10⁶ reach it on 71 × 71 and on 257 × 257 vertices.
const TOLERANCE: f64 = 1e-10;
const MOST_ITERATIONS: usize = 500;
/// Vertices a side and functions at the most. Two functions on the finest grid take a second and some hundred megabytes.
const MOST_VERTICES: usize = 257;
const MOST_FUNCTIONS: usize = 64;

/// The `count` least eigenvalues in ascending order, multiple ones as often as they are, with M-orthonormal functions, for a
/// coefficient given at the n × n vertices, row by row.
///
/// Functions of a multiple eigenvalue are some orthonormal basis of their space.
pub fn eigenfunctions(coefficient: &[f64], n: usize, count: usize) -> Result<Vec<Eigenpair>> {
    if !(3..=MOST_VERTICES).contains(&n) {
        return Err(Error::invalid("grid", format!("3 to {MOST_VERTICES} vertices a side"), n));
    }
    if coefficient.len() != n * n {
        let expected = format!("{n} × {n} = {} values", n * n);
        return Err(Error::invalid("coefficient", expected, coefficient.len()));
    }
    if let Some(v) = coefficient.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
        return Err(Error::invalid("coefficient", "positive numbers", v));
    }
    let unknowns = (n - 2) * (n - 2);
    let most = unknowns.min(MOST_FUNCTIONS);
    if !(1..=most).contains(&count) {
        return Err(Error::invalid("eigenfunctions", format!("1 to {most}"), count));
    }
    // Relative to the greatest coefficient, so that sums of coefficients do not overflow.
    let greatest = coefficient.iter().copied().fold(0.0, f64::max);
    let relative: Vec<f64> = coefficient.iter().map(|a| a / greatest).collect();
    let pairs = Pencil::new(&relative, n)?.least(count)?;
    Ok(pairs
        .into_iter()
        .map(|(value, interior)| Eigenpair { value: greatest * value, function: signed(&interior, n) })
        .collect())
}

/// A and M on the interior vertices.
struct Pencil {
    stiffness: faer::sparse::linalg::solvers::Llt<usize, f64>,
    mass: SparseColMat<usize, f64>,
    unknowns: usize,
}

/// ∫∇φ·∇ψ of the corners of an element, around it: it does not depend on h.
const STIFFNESS: [f64; 3] = [4.0 / 6.0, -1.0 / 6.0, -2.0 / 6.0];
/// ∫φψ over h².
const MASS: [f64; 3] = [4.0 / 36.0, 2.0 / 36.0, 1.0 / 36.0];

impl Pencil {
    fn new(a: &[f64], n: usize) -> Result<Self> {
        let (m, h) = (n - 2, 1.0 / (n - 1) as f64);
        let unknown = |[i, j]: [usize; 2]| {
            let inside = (1..n - 1).contains(&i) && (1..n - 1).contains(&j);
            inside.then(|| (i - 1) * m + j - 1)
        };
        let [mut stiffness, mut mass] = [Vec::new(), Vec::new()];
        for i in 0..n - 1 {
            for j in 0..n - 1 {
                let corners = [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]];
                let mean = 0.25 * corners.iter().map(|[i, j]| a[i * n + j]).sum::<f64>();
                for (k, p) in corners.iter().enumerate() {
                    for (l, q) in corners.iter().enumerate() {
                        let (Some(row), Some(column)) = (unknown(*p), unknown(*q)) else { continue };
                        // The same corner, a neighbour, or the one across.
                        let apart = [0, 1, 2, 1][k.abs_diff(l)];
                        stiffness.push(Triplet::new(row, column, mean * STIFFNESS[apart]));
                        mass.push(Triplet::new(row, column, h * h * MASS[apart]));
                    }
                }
            }
        }
        let unknowns = m * m;
        let matrix = |triplets: &[Triplet<usize, usize, f64>]| {
            SparseColMat::try_new_from_triplets(unknowns, unknowns, triplets)
                .expect("indices below the number of unknowns")
        };
        let stiffness = matrix(&stiffness).sp_cholesky(Side::Lower).map_err(|_| {
            let least = a.iter().copied().fold(f64::INFINITY, f64::min);
            let found = format!("a contrast of {:e}", 1.0 / least);
            Error::invalid("coefficient", "a positive definite matrix in f64", found)
        })?;
        Ok(Self { stiffness, mass: matrix(&mass), unknowns })
    }

    /// Values and functions on the interior.
    fn least(&self, count: usize) -> Result<Vec<(f64, Vec<f64>)>> {
        // More vectors than functions make the ratio of convergence small, whatever lies next to the last function.
        let block = (2 * count + 8).min(self.unknowns);
        let mut start = vec![0.0; self.unknowns * block];
        Stream { seed: 0, purpose: Purpose::Start, index: 0 }.normals(&mut start);
        let mut x = Mat::from_fn(self.unknowns, block, |i, j| start[j * self.unknowns + i]);
        let mut mass_x = &self.mass * &x;
        let mut values: Vec<f64> = Vec::new();
        let mut residual = 1.0;
        for _ in 0..MOST_ITERATIONS {
            let y = self.stiffness.solve(&mass_x);
            let mass_y = &self.mass * &y;
            if !values.is_empty() {
                let of = |x: &Mat<f64>, y: &Mat<f64>, i, j| x[(i, j)] - values[j] * y[(i, j)];
                let square = |j: usize| -> f64 {
                    (0..self.unknowns).map(|i| of(&x, &y, i, j) * of(&mass_x, &mass_y, i, j)).sum()
                };
                // Positive but for roundings; a sum, and not a maximum, lets NaN through.
                residual = (0..count).map(square).sum::<f64>().abs().sqrt();
                if residual <= TOLERANCE {
                    let column = |j: usize| x.col(j).iter().copied().collect();
                    return Ok((0..count).map(|j| (values[j], column(j))).collect());
                }
            }
            // AY = M X.
            let Some((ritz, s)) = generalized(y.transpose() * &mass_x, y.transpose() * &mass_y) else {
                break;
            };
            (values, x, mass_x) = (ritz, &y * &s, &mass_y * &s);
        }
        Err(Error::NoEigenfunctions { iterations: MOST_ITERATIONS, residual, tolerance: TOLERANCE })
    }
}

/// Ascending θ and H-orthonormal s of G s = θ H s; `None` if H is not positive definite in f64.
fn generalized(g: Mat<f64>, h: Mat<f64>) -> Option<(Vec<f64>, Mat<f64>)> {
    let factor = h.llt(Side::Lower).ok()?;
    let lower = factor.L();
    // L⁻¹G L⁻ᵀ, G being symmetric.
    let mut half = g;
    solve_lower_triangular_in_place(lower, half.as_mut(), Par::Seq);
    let mut standard = half.transpose().to_owned();
    solve_lower_triangular_in_place(lower, standard.as_mut(), Par::Seq);
    let eigen = standard.self_adjoint_eigen(Side::Lower).ok()?;
    let mut s = eigen.U().to_owned();
    solve_upper_triangular_in_place(lower.transpose(), s.as_mut(), Par::Seq);
    Some((eigen.S().column_vector().iter().copied().collect(), s))
}

/// Values on all vertices, with the sign that [`Eigenpair::function`] has.
fn signed(interior: &[f64], n: usize) -> Vec<f64> {
    let greatest = interior.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let first = interior.iter().find(|v| v.abs() >= (1.0 - 1e-6) * greatest);
    let sign = first.map_or(1.0, |v| v.signum());
    let mut function = vec![0.0; n * n];
    for (i, row) in interior.chunks_exact(n - 2).enumerate() {
        let out = &mut function[(i + 1) * n + 1..][..n - 2];
        out.iter_mut().zip(row).for_each(|(u, v)| *u = sign * v);
    }
    function
}
