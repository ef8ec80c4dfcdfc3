//! Muon: momentum whose singular values are all made about one.
//!
//! ```text
//! m ← μm + (1 − μ)g        u = (1 − μ)g + μm                                        (Nesterov)
//! X = u/‖u‖,  five times X ← aX + (bA + cA²)X  with A = XXᵀ                         (Newton and Schulz)
//! p ← p·(1 − lr·decay) − lr·0.2·√max(rows, cols)·X
//! ```
//!
//! With (a, b, c) = (3.4445, −4.775, 2.0315) five iterations bring every singular value above some 10⁻³ of the largest into (0.6, 1.3), without computing one. The
//! factor 0.2·√max makes the update about as large as Adam's, so that learning rates carry over. A matrix is worked on by one thread from
//! beginning to end; threads share the matrices.

use crate::adam::Step;
use crate::dims::{check_at_least, check_len};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, pieces};
use crate::simd::{axpy, vectorize};

/// What stays the same over a run.
#[derive(Clone, Copy, Debug)]
pub struct Muon {
    /// μ
    pub momentum: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// A matrix (rows, cols) with its gradient and its momentum, row-major. The momentum starts as zeros.
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
    /// m
    pub m: &'a mut [f32],
}

/// Newton's and Schulz's iterations.
pub const ITERATIONS: usize = 5;
/// a, b, c of the odd polynomial that an iteration applies to every singular value.
pub const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];
/// Size of an update beside Adam's.
pub const SCALE: f64 = 0.2;

impl Muon {
    /// Values of workspace that [`apply`](Self::apply) needs for `threads` threads.
    pub fn workspace_len(matrices: &[Matrix], threads: usize) -> usize {
        threads.max(1) * share(matrices)
    }

    /// One step on all matrices, with gradients scaled by `clip`.
    pub fn apply(&self, step: Step, clip: f32, matrices: &mut [Matrix], workspace: &mut [f32]) {
        for (i, matrix) in matrices.iter().enumerate() {
            let sizes = [("matrix", i), ("rows", matrix.rows), ("cols", matrix.cols)];
            let len = matrix.rows * matrix.cols;
            check_len("muon param", matrix.param.len(), len, &sizes);
            check_len("muon grad", matrix.grad.len(), len, &sizes);
            check_len("muon m", matrix.m.len(), len, &sizes);
        }
        let share = share(matrices);
        check_at_least("muon workspace", workspace.len(), share, &[("matrices", matrices.len())]);
        let lanes = par::lanes_by_cost(matrices, |matrix| cost(matrix.rows, matrix.cols));
        let start = |lane: usize| lanes.start(lane);
        par::for_each(lanes.count, pieces(matrices, start), workspace, share, &|_, matrices, scratch| {
            matrices.iter_mut().for_each(|matrix| self.update(step, clip, matrix, scratch));
        });
    }

    fn update(&self, step: Step, clip: f32, matrix: &mut Matrix, scratch: &mut [f32]) {
        let (rows, cols) = (matrix.rows, matrix.cols);
        let (x, scratch) = scratch.split_at_mut(rows * cols);
        let (mu, rest) = (self.momentum as f32, (1.0 - self.momentum) as f32);
        let Matrix { param, grad, m, .. } = matrix;
        vectorize!({
            for ((x, g), m) in x.iter_mut().zip(&**grad).zip(m.iter_mut()) {
                let g = clip * g;
                *m = mu * *m + rest * g;
                *x = rest * g + mu * *m;
            }
        });
        orthogonalize(x, rows, cols, scratch);
        let keep = (1.0 - step.lr * self.weight_decay) as f32;
        let size = (step.lr * SCALE * (rows.max(cols) as f64).sqrt()) as f32;
        vectorize!({
            for ((p, g), x) in param.iter_mut().zip(grad.iter_mut()).zip(&*x) {
                *p = keep * *p - size * x;
                *g = *p;
            }
        });
    }
}

/// All singular values to about one; zeros stay.
fn orthogonalize(x: &mut [f32], rows: usize, cols: usize, scratch: &mut [f32]) {
    let norm = x.iter().map(|v| *v as f64 * *v as f64).sum::<f64>().sqrt();
    let scale = (1.0 / (norm + 1e-20)) as f32;
    vectorize!(x.iter_mut().for_each(|v| *v *= scale));
    let side = rows.min(cols);
    let (a, scratch) = scratch.split_at_mut(side * side);
    let (b, scratch) = scratch.split_at_mut(side * side);
    let next = &mut scratch[..rows * cols];
    let [first, second, third] = COEFFICIENTS.map(|c| c as f32);
    for _ in 0..ITERATIONS {
        let view = View::new(x, rows, cols);
        // XXᵀ or XᵀX, whichever is smaller: the polynomial is the same from either side.
        let (left, right) = if rows <= cols { (view, view.t()) } else { (view.t(), view) };
        gemm(Into::Set, 1.0, left, right, ViewMut::new(a, side, side));
        b.copy_from_slice(a);
        vectorize!(b.iter_mut().for_each(|v| *v *= second));
        let square = View::new(a, side, side);
        gemm(Into::Add, third, square, square, ViewMut::new(b, side, side));
        let (view, b) = (View::new(x, rows, cols), View::new(b, side, side));
        let (left, right) = if rows <= cols { (b, view) } else { (view, b) };
        gemm(Into::Set, 1.0, left, right, ViewMut::new(next, rows, cols));
        vectorize!(axpy(first, x, next));
        x.copy_from_slice(next);
    }
}

fn share(matrices: &[Matrix]) -> usize {
    let of = |matrix: &Matrix| {
        let side = matrix.rows.min(matrix.cols);
        2 * (matrix.rows * matrix.cols + side * side)
    };
    matrices.iter().map(of).max().unwrap_or(0)
}

/// Multiplications of a matrix, about.
fn cost(rows: usize, cols: usize) -> usize {
    let (side, long) = (rows.min(cols), rows.max(cols));
    1 + ITERATIONS * side * side * (2 * long + side)
}
