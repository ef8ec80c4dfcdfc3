//! Orthonormal bases of small matrices, on the calling thread: what the preconditioned optimisers need of linear algebra.
//!
//! A basis of r vectors is an r × r matrix B whose *rows* are the vectors.

use crate::gemm::{Into, View, ViewMut, gemm};
use crate::simd::{axpy, dot, largest, vectorize};

/// Vectors that are made orthogonal to all earlier ones at once, by matrix products.
const BLOCK: usize = 32;

/// Values of scratch that [`orthonormalize`] needs for r vectors.
pub(crate) fn scratch_len(r: usize) -> usize {
    BLOCK.min(r) * r
}

/// Makes the rows of w (r × r) orthonormal, each within the space of itself and the rows before it: Gram and Schmidt, with all earlier blocks
/// at once, and again for a row of which little is left.
///
/// A row that depends on the ones before it, up to rounding, becomes any vector orthogonal to them.
pub(crate) fn orthonormalize(w: &mut [f32], r: usize, scratch: &mut [f32]) {
    for first in (0..r).step_by(BLOCK) {
        let end = (first + BLOCK).min(r);
        let (done, rest) = w.split_at_mut(first * r);
        let block = &mut rest[..(end - first) * r];
        let apart = remove(done, block, r, scratch);
        for (i, apart) in apart.into_iter().enumerate().take(end - first) {
            let (before, row) = block.split_at_mut(i * r);
            if !orthogonalize(done, before, &mut row[..r], apart, scratch) {
                any_other(done, before, &mut row[..r], scratch);
            }
        }
    }
}

/// Times that others are taken away from a row at most: every time but the last it was next to nothing but a part in their space.
const TIMES: usize = 8;

/// A row that keeps this part of its squared length is orthogonal to what was taken away, up to some roundings. One that keeps less may be mostly rounding errors, of the
/// projection and of the row, and these do lie in the space of the others.
const KEPT: f32 = 0.25;

/// Takes what lies in the space of `done` away from rows, until all of them keep enough of themselves; says of each whether it did.
fn remove(done: &[f32], block: &mut [f32], r: usize, scratch: &mut [f32]) -> [bool; BLOCK] {
    let mut apart = [done.is_empty(); BLOCK];
    for _ in 0..TIMES {
        let mut lengths = [0.0; BLOCK];
        for (length, row) in lengths.iter_mut().zip(block.chunks_exact_mut(r)) {
            scale_to_one(row);
            *length = vectorize!(dot(row, row));
        }
        if done.is_empty() {
            break;
        }
        away_from(done, block, r, scratch);
        for ((apart, length), row) in apart.iter_mut().zip(lengths).zip(block.chunks_exact(r)) {
            *apart = vectorize!(dot(row, row)) >= KEPT * length;
        }
        if apart[..block.len() / r].iter().all(|apart| *apart) {
            break;
        }
    }
    apart
}

/// Takes what lies in the space of others away from a row, and makes its length one; `false` if nothing is left. `apart`: it is orthogonal to `done` already.
fn orthogonalize(done: &[f32], before: &[f32], row: &mut [f32], apart: bool, scratch: &mut [f32]) -> bool {
    let r = row.len();
    for time in 0..TIMES {
        let length = vectorize!(dot(row, row));
        if time > 0 || !apart {
            away_from(done, row, r, scratch);
        }
        for other in before.chunks_exact(r) {
            vectorize!({
                let along = dot(row, other);
                axpy(-along, other, row);
            });
        }
        let left = vectorize!(dot(row, row));
        if left == 0.0 {
            return false;
        }
        if left >= KEPT * length {
            let length = left.sqrt();
            vectorize!(row.iter_mut().for_each(|v| *v /= length));
            return true;
        }
        scale_to_one(row);
    }
    false
}

/// w −= (w doneᵀ) done.
fn away_from(done: &[f32], w: &mut [f32], r: usize, scratch: &mut [f32]) {
    let (others, rows) = (done.len() / r, w.len() / r);
    let along = &mut scratch[..rows * others];
    gemm(
        Into::Set,
        1.0,
        View::new(w, rows, r),
        View::new(done, others, r).t(),
        ViewMut::new(along, rows, others),
    );
    gemm(
        Into::Add,
        -1.0,
        View::new(along, rows, others),
        View::new(done, others, r),
        ViewMut::new(w, rows, r),
    );
}

/// A unit vector of the coordinates, made orthogonal to all rows before: the first one that keeps enough of itself.
#[cold]
fn any_other(done: &[f32], before: &[f32], row: &mut [f32], scratch: &mut [f32]) {
    let r = row.len();
    for k in 0..r {
        row.fill(0.0);
        row[k] = 1.0;
        away_from(done, row, r, scratch);
        away_from(before, row, r, scratch);
        // The squares of what all r of them keep add up to at least 1.
        if 2.0 * r as f32 * dot(row, row) >= 1.0 {
            scale_to_one(row);
            if orthogonalize(done, before, row, false, scratch) {
                return;
            }
        }
    }
}

/// Largest value one, so that squares neither overflow nor vanish. Zeros stay.
fn scale_to_one(row: &mut [f32]) {
    vectorize!({
        let size = row.chunks(64).fold(0.0f32, |size, part| {
            let mut parts = [0.0; 64];
            parts.iter_mut().zip(part).for_each(|(p, v)| *p = v.abs());
            largest(size, &parts)
        });
        if size > f32::MIN_POSITIVE {
            row.iter_mut().for_each(|v| *v /= size);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::philox;

    fn graded(r: usize) -> Vec<f32> {
        // Rows whose length falls by six orders, each with much of the first one in it.
        let wave = |i: usize, j: usize| ((i * 37 + j * 11 + i * j) as f32 * 0.7).sin();
        let size = |i: usize| 10f32.powf(-6.0 * i as f32 / r as f32);
        (0..r * r)
            .map(|at| size(at / r) * wave(at / r, at % r) + 0.3 * size(at / r) * wave(0, at % r))
            .collect()
    }

    fn largest_error(b: &[f32], r: usize) -> f32 {
        let mut worst = 0.0f32;
        for i in 0..r {
            for j in 0..r {
                let product: f64 = (0..r).map(|k| b[i * r + k] as f64 * b[j * r + k] as f64).sum();
                worst = worst.max((product - f64::from(u8::from(i == j))).abs() as f32);
            }
        }
        worst
    }

    #[test]
    fn rows_become_orthonormal_in_order() {
        for r in [1, 2, 7, 31, 32, 33, 100] {
            let before = graded(r);
            let mut b = before.clone();
            orthonormalize(&mut b, r, &mut vec![f32::NAN; scratch_len(r)]);
            // A dot product of r terms rounds by some units of 6e-8, five times as much beside a row of which a fifth was left; 2e-6 were found.
            assert!(largest_error(&b, r) < 8e-6, "{r}: {}", largest_error(&b, r));
            // Row i lies in the space of the first i + 1: the later vectors see nothing of it.
            for i in 0..r.min(4) {
                let row = &before[i * r..(i + 1) * r];
                let length = dot(row, row).sqrt();
                for other in b[(i + 1) * r..].chunks_exact(r) {
                    assert!((dot(row, other) / length).abs() < 1e-5, "{r}, {i}");
                }
            }
        }
    }

    /// A factor of low rank and the little that keeps the other vectors, as a first refresh of SOAP has it: next to nothing of most rows lies outside of a few directions.
    #[test]
    fn rows_of_a_few_directions_become_orthonormal() {
        let (r, few) = (432, 6);
        let noise: Vec<f32> = (0..(r * few) as u32)
            .map(|i| philox([i, 0, 0, 0], [1, 0])[0] as f32 / 2f32.powi(31) - 1.0)
            .collect();
        for fall in [1.0f32, 0.1, 0.01] {
            let eigenvalue = |k: usize| fall.powi(k as i32);
            let value = |at: usize| -> f32 {
                let (i, j) = (at / r, at % r);
                (0..few).map(|k| eigenvalue(k) * noise[i * few + k] * noise[j * few + k]).sum()
            };
            let mut b: Vec<f32> = (0..r * r).map(value).collect();
            let trace: f32 = b.iter().step_by(r + 1).sum();
            b.iter_mut().step_by(r + 1).for_each(|v| *v += 1e-5 * trace / r as f32);
            orthonormalize(&mut b, r, &mut vec![f32::NAN; scratch_len(r)]);
            // Sums of 432 terms; 4e-6 were found.
            assert!(largest_error(&b, r) < 8e-6, "{fall}: {}", largest_error(&b, r));
        }
    }

    #[test]
    fn dependent_and_empty_rows_become_others() {
        for r in [3, 40] {
            let mut b = vec![1.0; r * r];
            b[r..2 * r].fill(0.0);
            orthonormalize(&mut b, r, &mut vec![f32::NAN; scratch_len(r)]);
            assert!(largest_error(&b, r) < 8e-6, "{r}: {}", largest_error(&b, r));
        }
    }
}
