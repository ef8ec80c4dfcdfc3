//! SOAP: Adam in the eigenbasis of Shampoo's factors.
//!
//! For a matrix p with gradient G, both (rows, cols):
//!
//! ```text
//! L ← βL + (1 − β)GGᵀ        R ← βR + (1 − β)GᵀG
//! every `refresh` steps:  rows of B_L sorted by b·Lb, B_L ← orthonormalised B_L(L + δI), likewise B_R from R
//! G' = B_L G B_Rᵀ          m ← β₁m + (1 − β₁)G'      v ← βv + (1 − β)G'²
//! p ← p·(1 − lr·decay) − lr/(1 − β₁ᵗ) · B_Lᵀ [m / (√v/√(1 − βᵗ) + ε)] B_R
//! ```
//!
//! β is Adam's β₂ and Shampoo's decay alike. The rows of a basis are its vectors; bases start as the identity, so that the first steps are Adam's. One refresh is
//! one step of an orthogonal iteration: over the run it follows the eigenvectors. When a basis turns, m turns with it; v, which cannot, is only sorted along. δ is 10⁻⁵ of the mean
//! eigenvalue, so that directions that no gradient has seen keep their vectors instead of taking those of rounding errors.
//!
//! A side longer than [`LONGEST`] keeps the identity: its factor would cost more than the layer. A matrix is worked on by one thread from beginning to end; threads
//! share the matrices.

use crate::adam::{Adam, Step, Update};
use crate::basis::{self, orthonormalize};
use crate::dims::{check_at_least, check_len};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, pieces};
use crate::simd::{dot, vectorize};

/// The longest side that gets a basis.
pub const LONGEST: usize = 512;

/// δ beside the mean eigenvalue of a factor.
pub const SHIFT: f64 = 1e-5;

/// What stays the same over a run.
#[derive(Clone, Copy, Debug)]
pub struct Soap {
    /// β as its β₂, ε and weight decay.
    pub adam: Adam,
    /// Steps between two refreshes of the bases.
    pub refresh: u64,
}

/// A matrix (rows, cols) with its gradient and its state, row-major. The state starts as zeros, bases as identities ([`start`]).
#[derive(Debug)]
pub struct Matrix<'a> {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// p
    pub param: &'a mut [f32],
    /// g; after the step a second copy of p.
    pub grad: &'a mut [f32],
    /// m, in the bases.
    pub m: &'a mut [f32],
    /// v, in the bases.
    pub v: &'a mut [f32],
    /// L and R one after the other, [`factors_len`] values.
    pub factors: &'a mut [f32],
    /// B_L and B_R one after the other, as many.
    pub bases: &'a mut [f32],
}

/// Values of both factors of a matrix, and of both bases.
pub fn factors_len(rows: usize, cols: usize) -> usize {
    sides(rows, cols).iter().map(|side| side * side).sum()
}

/// Bases as they start: identities.
pub fn start(rows: usize, cols: usize) -> Vec<f32> {
    let mut bases = vec![0.0; factors_len(rows, cols)];
    let mut first = 0;
    for side in sides(rows, cols) {
        bases[first..first + side * side].iter_mut().step_by(side + 1).for_each(|v| *v = 1.0);
        first += side * side;
    }
    bases
}

/// Sides that get a basis, 0 in place of one that does not.
fn sides(rows: usize, cols: usize) -> [usize; 2] {
    [rows, cols].map(|side| if side <= LONGEST { side } else { 0 })
}

impl Soap {
    /// Values of workspace that [`apply`](Self::apply) needs for `threads` threads.
    pub fn workspace_len(matrices: &[Matrix], threads: usize) -> usize {
        threads.max(1) * share(matrices)
    }

    /// One step on all matrices, with gradients scaled by `clip`.
    pub fn apply(&self, step: Step, clip: f32, matrices: &mut [Matrix], workspace: &mut [f32]) {
        for (i, matrix) in matrices.iter().enumerate() {
            let sizes = [("matrix", i), ("rows", matrix.rows), ("cols", matrix.cols)];
            let len = matrix.rows * matrix.cols;
            check_len("soap param", matrix.param.len(), len, &sizes);
            check_len("soap grad", matrix.grad.len(), len, &sizes);
            check_len("soap m", matrix.m.len(), len, &sizes);
            check_len("soap v", matrix.v.len(), len, &sizes);
            let len = factors_len(matrix.rows, matrix.cols);
            check_len("soap factors", matrix.factors.len(), len, &sizes);
            check_len("soap bases", matrix.bases.len(), len, &sizes);
        }
        let share = share(matrices);
        check_at_least("soap workspace", workspace.len(), share, &[("matrices", matrices.len())]);
        let update = self.adam.update(step, clip);
        let refresh = step.t.is_multiple_of(self.refresh.max(1));
        let lanes = par::lanes_by_cost(matrices, |matrix| cost(matrix.rows, matrix.cols));
        let start = |lane: usize| lanes.start(lane);
        par::for_each(lanes.count, pieces(matrices, start), workspace, share, &|_, matrices, scratch| {
            matrices.iter_mut().for_each(|matrix| take_step(update, refresh, matrix, scratch));
        });
    }
}

fn take_step(update: Update, refresh: bool, matrix: &mut Matrix, scratch: &mut [f32]) {
    let (rows, cols) = (matrix.rows, matrix.cols);
    let [left, right] = sides(rows, cols);
    let Matrix { param, grad, m, v, factors, bases, .. } = matrix;
    vectorize!(grad.iter_mut().for_each(|g| *g *= update.clip));
    let (l, r) = factors.split_at_mut(left * left);
    let (b_l, b_r) = bases.split_at_mut(left * left);
    let g = View::new(grad, rows, cols);
    follow(update, l, left, [g, g.t()]);
    follow(update, r, right, [g.t(), g]);
    if refresh {
        turn(b_l, l, left, m, v, scratch);
        // The columns of m and v are the rows of their transposes.
        let (m_t, rest) = scratch.split_at_mut(rows * cols);
        let (v_t, rest) = rest.split_at_mut(rows * cols);
        transpose(m, rows, cols, m_t);
        transpose(v, rows, cols, v_t);
        turn(b_r, r, right, m_t, v_t, rest);
        transpose(m_t, cols, rows, m);
        transpose(v_t, cols, rows, v);
    }
    let (half, rest) = scratch.split_at_mut(rows * cols);
    let turned = &mut rest[..rows * cols];
    let basis = |b, side| (side > 0).then(|| View::new(b, side, side));
    let (b_l, b_r) = (basis(&*b_l, left), basis(&*b_r, right));
    change_basis([b_l, b_r.map(View::t)], grad, [rows, cols], half, turned);
    vectorize!({
        for ((x, m), v) in turned.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()) {
            let g = *x;
            *m = update.beta1 * *m + update.one_minus_beta1 * g;
            *v = update.beta2 * *v + update.one_minus_beta2 * (g * g);
            *x = update.step_size * *m / (v.sqrt() * update.root_correction + update.eps);
        }
    });
    change_basis([b_l.map(View::t), b_r], turned, [rows, cols], half, grad);
    vectorize!({
        for (p, g) in param.iter_mut().zip(grad.iter_mut()) {
            *p = update.keep * *p - *g;
            *g = *p;
        }
    });
}

/// factor ← β factor + (1 − β) ab.
fn follow(update: Update, factor: &mut [f32], side: usize, [a, b]: [View; 2]) {
    if side > 0 {
        vectorize!(factor.iter_mut().for_each(|v| *v *= update.beta2));
        gemm(Into::Add, update.one_minus_beta2, a, b, ViewMut::new(factor, side, side));
    }
}

/// out = a x b, where a missing factor is the identity.
fn change_basis(
    [a, b]: [Option<View>; 2],
    x: &[f32],
    [rows, cols]: [usize; 2],
    half: &mut [f32],
    out: &mut [f32],
) {
    match a {
        Some(a) => gemm(Into::Set, 1.0, a, View::new(x, rows, cols), ViewMut::new(half, rows, cols)),
        None => half.copy_from_slice(x),
    }
    match b {
        Some(b) => gemm(Into::Set, 1.0, View::new(half, rows, cols), b, ViewMut::new(out, rows, cols)),
        None => out.copy_from_slice(half),
    }
}

/// A refresh of one basis, and of the rows of m and v, which are (side, others).
fn turn(basis: &mut [f32], factor: &[f32], side: usize, m: &mut [f32], v: &mut [f32], scratch: &mut [f32]) {
    let trace: f32 = factor.iter().step_by(side + 1).sum();
    // Without a gradient there is nowhere to turn to. Also where its square is too small to compute with.
    if side == 0 || trace < 1e-30 {
        return;
    }
    let others = m.len() / side;
    let (w, scratch) = scratch.split_at_mut(side * side);
    let (old, scratch) = scratch.split_at_mut(side * side);
    let (values, scratch) = scratch.split_at_mut(side);
    let product = |a: &[f32], b: View, out: &mut [f32]| {
        gemm(Into::Set, 1.0, View::new(a, side, side), b, ViewMut::new(out, side, out.len() / side));
    };
    product(basis, View::new(factor, side, side), w);
    for ((value, w), b) in values.iter_mut().zip(w.chunks_exact(side)).zip(basis.chunks_exact(side)) {
        *value = vectorize!(dot(w, b));
    }
    for first in 0..side {
        // The largest of those left; the first one of equal ones.
        let best = (first..side).fold(first, |best, i| if values[i] > values[best] { i } else { best });
        values.swap(first, best);
        for (rows, len) in [(&mut *w, side), (&mut *basis, side), (&mut *m, others), (&mut *v, others)] {
            swap_rows(rows, len, first, best);
        }
    }
    old.copy_from_slice(basis);
    let shift = (SHIFT * trace as f64 / side as f64) as f32;
    vectorize!(basis.iter_mut().zip(&*w).for_each(|(b, w)| *b = w + shift * *b));
    orthonormalize(basis, side, scratch);
    // B_new B_oldᵀ m
    product(basis, View::new(old, side, side).t(), w);
    let turned = &mut scratch[..side * others];
    product(w, View::new(m, side, others), turned);
    m.copy_from_slice(turned);
}

fn swap_rows(rows: &mut [f32], len: usize, first: usize, second: usize) {
    if first < second {
        let (head, tail) = rows.split_at_mut(second * len);
        head[first * len..(first + 1) * len].swap_with_slice(&mut tail[..len]);
    }
}

fn transpose(x: &[f32], rows: usize, cols: usize, out: &mut [f32]) {
    for (i, row) in x.chunks_exact(cols).enumerate() {
        row.iter().enumerate().for_each(|(j, v)| out[j * rows + i] = *v);
    }
}

/// Scratch of a matrix: both moments transposed, and a basis twice, its eigenvalues, and either the orthonormalisation or the turned moments.
fn share(matrices: &[Matrix]) -> usize {
    let of = |matrix: &Matrix| {
        let len = matrix.rows * matrix.cols;
        let of_side = |side: usize| 2 * side * side + side + basis::scratch_len(side).max(len);
        2 * len + sides(matrix.rows, matrix.cols).map(of_side).into_iter().max().unwrap_or(0)
    };
    matrices.iter().map(of).max().unwrap_or(0)
}

/// Multiplications of a step with a matrix, about.
fn cost(rows: usize, cols: usize) -> usize {
    let [left, right] = sides(rows, cols);
    1 + rows * cols * (1 + 3 * (left + right)) + (left.pow(3) + right.pow(3)) / 2
}
