//! The only door to matrix multiplication.
//!
//! [`gemm()`] multiplies strided views of slices on the calling thread: threads are given tiles by
//! [`par`](crate::par), never parts of one product, so that every sum has one fixed order.
//!
//! # Why the `unsafe` here is sound
//!
//! The `gemm` crate takes raw pointers and strides. A [`View`] can only be made by constructors that check, in
//! arithmetic that cannot wrap, that its last element lies inside its slice and that its stride fits the signed
//! integer the crate takes; and [`gemm()`] checks that the three shapes agree. So every
//! address `r·row_stride + c·col_stride` that the crate may touch is inside a slice that is borrowed for the
//! call. The destination is the only `&mut` borrow, so it cannot alias an operand. Rows of an operand may overlap each
//! other (row stride below the number of columns): they are only read. Rows of a destination may not, and
//! [`ViewMut`] checks that.
#![allow(unsafe_code)]

use crate::dims::mismatch;

/// A matrix inside a slice: `rows × cols`, element (r, c) at `r·row_stride + c·col_stride`.
#[derive(Clone, Copy)]
pub struct View<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// A matrix to be written, row-major with a row stride.
pub struct ViewMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a> View<'a> {
    /// The whole slice as a row-major `rows × cols` matrix.
    #[inline]
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major `rows × cols` matrix whose rows are `row_stride` apart: columns of a wider matrix, or, with
    /// `row_stride < cols`, a window that slides over the slice.
    #[inline]
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, cols, row_stride);
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// The transpose, without moving anything.
    #[inline]
    pub fn t(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

impl<'a> ViewMut<'a> {
    /// The whole slice as a row-major `rows × cols` matrix.
    #[inline]
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A row-major `rows × cols` matrix whose rows are `row_stride` apart.
    #[inline]
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, cols, row_stride);
        if row_stride < cols {
            misfit(data.len(), rows, cols, row_stride);
        }
        Self { data, rows, cols, row_stride }
    }
}

/// What a product does with the values already in its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    /// `c = alpha·a·b`
    Set,
    /// `c += alpha·a·b`
    Add,
}

/// `c = alpha·a·b` or `c += alpha·a·b`, on this thread.
#[inline]
pub fn gemm(into: Into, alpha: f32, a: View, b: View, c: ViewMut) {
    if a.cols != b.rows || a.rows != c.rows || b.cols != c.cols {
        mismatch(
            "gemm",
            &[
                ("a.rows", a.rows),
                ("a.cols", a.cols),
                ("b.rows", b.rows),
                ("b.cols", b.cols),
                ("c.rows", c.rows),
                ("c.cols", c.cols),
            ],
        );
    }
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    let accumulate = into == Into::Add;
    // SAFETY: the views were checked against their slices and the shapes against each other (module comment).
    unsafe {
        ::gemm::gemm(
            c.rows,
            c.cols,
            a.cols,
            c.data.as_mut_ptr(),
            1,
            c.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            if accumulate { 1.0 } else { 0.0 },
            alpha,
            false,
            false,
            false,
            ::gemm::Parallelism::None,
        );
    }
}

#[inline]
fn check_extent(len: usize, rows: usize, cols: usize, row_stride: usize) {
    let needed = if rows == 0 || cols == 0 {
        Some(0)
    } else {
        (rows - 1).checked_mul(row_stride).and_then(|last_row| last_row.checked_add(cols))
    };
    // The stride of a single row leads nowhere, but beyond `isize` it would reach the crate with another sign.
    if needed.is_none_or(|needed| len < needed) || isize::try_from(row_stride).is_err() {
        misfit(len, rows, cols, row_stride);
    }
}

#[cold]
#[inline(never)]
fn misfit(len: usize, rows: usize, cols: usize, row_stride: usize) -> ! {
    mismatch("matrix view", &[("len", len), ("rows", rows), ("cols", cols), ("row_stride", row_stride)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_transposed_products_match_loops() {
        let a: Vec<f32> = (0..15).map(|i| i as f32).collect(); // 3 × 5, columns 1..4 used
        let b: Vec<f32> = (0..6).map(|i| 1.0 - i as f32).collect(); // 3 × 2
        let mut c = vec![1.0; 8]; // 3 × 2 in rows of 3
        let view = View::strided(&a[1..], 3, 3, 5);
        gemm(Into::Add, 2.0, view.t(), View::new(&b, 3, 2), ViewMut::strided(&mut c, 3, 2, 3));
        for r in 0..3 {
            for s in 0..2 {
                let sum: f32 = (0..3).map(|k| a[k * 5 + 1 + r] * b[k * 2 + s]).sum();
                assert_eq!(c[r * 3 + s], 1.0 + 2.0 * sum);
            }
        }
        assert_eq!((c[2], c[5]), (1.0, 1.0), "elements between the rows stay");
    }

    /// Sizes for every way of the crate: single rows and columns, ragged edges of its blocks, operands it packs and such that it does not. All memory is as
    /// long as the views and no longer, for tools that watch over its ends (tests/CHECKED.md).
    #[test]
    fn products_of_any_size_stay_inside_their_views() {
        let mut sizes = vec![
            (1, 1, 1),
            (1, 7, 5),
            (9, 1, 4),
            (3, 2, 1),
            (5, 7, 0),
            (13, 17, 9),
            (50, 4, 6),
            (130, 35, 20),
        ];
        if cfg!(miri) {
            // Its processor has blocks of a few rows, which the others fill too; the last would take minutes.
            sizes.pop();
        }
        for (m, n, k) in sizes {
            for (gap, transposed) in [(0, false), (3, false), (0, true), (2, true)] {
                // Integers, whose products and sums are exact in any order.
                let values = |rows: usize, cols: usize| -> Vec<f32> {
                    let len = if rows * cols == 0 { 0 } else { (rows - 1) * (cols + gap) + cols };
                    (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
                };
                let (rows, cols) = if transposed { (k, m) } else { (m, k) };
                let (a, b) = (values(rows, cols), values(k, n));
                let mut c = values(m, n);
                let before = c.clone();
                let view = View::strided(&a, rows, cols, cols + gap);
                let view = if transposed { view.t() } else { view };
                let into = ViewMut::strided(&mut c, m, n, n + gap);
                gemm(Into::Add, -2.0, view, View::strided(&b, k, n, n + gap), into);
                for (i, (found, before)) in c.iter().zip(before).enumerate() {
                    let (r, s) = (i / (n + gap), i % (n + gap));
                    let at = |l: usize| if transposed { l * (cols + gap) + r } else { r * (cols + gap) + l };
                    let term = |l: usize| a[at(l)] * b[l * (n + gap) + s];
                    let sum: f32 = if s < n { (0..k).map(term).sum() } else { 0.0 };
                    assert_eq!(
                        *found,
                        before - 2.0 * sum,
                        "{m} x {n} x {k}, gap {gap}, {transposed}: ({r}, {s})"
                    );
                }
            }
        }
    }

    #[test]
    fn empty_inner_dimension_clears_or_keeps() {
        let mut c = vec![3.0; 4];
        gemm(Into::Add, 1.0, View::new(&[], 2, 0), View::new(&[], 0, 2), ViewMut::new(&mut c, 2, 2));
        assert_eq!(c, [3.0; 4]);
        gemm(Into::Set, 1.0, View::new(&[], 2, 0), View::new(&[], 0, 2), ViewMut::new(&mut c, 2, 2));
        assert_eq!(c, [0.0; 4]);
    }

    #[test]
    fn rows_of_an_operand_may_overlap() {
        let x: Vec<f32> = (0..8).map(|i| (i * i) as f32).collect();
        let (window, mut c) = (View::strided(&x, 6, 3, 1), vec![0.0; 6]);
        gemm(Into::Set, 1.0, window, View::new(&[1.0, -2.0, 1.0], 3, 1), ViewMut::new(&mut c, 6, 1));
        assert_eq!(c, [2.0; 6], "second differences of squares");
        let mut c = vec![0.0; 9];
        gemm(Into::Set, 1.0, window.t(), window, ViewMut::new(&mut c, 3, 3));
        let sum = |r: usize, s: usize| (0..6).map(|i| x[i + r] * x[i + s]).sum::<f32>();
        assert!((0..9).all(|i| c[i] == sum(i / 3, i % 3)));
    }

    #[test]
    #[should_panic(expected = "row_stride = 1")]
    fn rows_of_a_destination_may_not_overlap() {
        ViewMut::strided(&mut [0.0; 8], 6, 3, 1);
    }

    #[test]
    #[should_panic(expected = "len = 7")]
    fn a_view_must_lie_inside_its_slice() {
        View::strided(&[0.0; 7], 6, 3, 1);
    }

    /// Sizes whose extent wraps to one that fits four values, or whose stride would become negative.
    const WRAPPING: [(usize, usize, usize); 6] = [
        (3, 2, 1 << (usize::BITS - 1)),       // huge stride: 2·stride wraps to 0
        (2, 3, usize::MAX),                   // huge stride: stride + 3 wraps to 2
        ((1 << (usize::BITS - 2)) + 1, 1, 4), // huge rows: (rows − 1)·4 wraps to 0
        (2, usize::MAX, 3),                   // huge cols: 3 + cols wraps to 2
        (3, usize::MAX, usize::MAX),          // both, as `new` asks for
        (1, 2, 1 << (usize::BITS - 1)),       // one row, whose stride is never followed
    ];

    #[test]
    fn an_extent_that_wraps_is_refused() {
        for (rows, cols, row_stride) in WRAPPING {
            let refused = |make: fn(usize, usize, usize)| {
                let panic = std::panic::catch_unwind(|| make(rows, cols, row_stride)).unwrap_err();
                let message = panic.downcast_ref::<String>().expect("a worded panic");
                let want = format!("len = 4, rows = {rows}, cols = {cols}, row_stride = {row_stride}");
                assert!(message.contains(&want), "{message}");
            };
            refused(|rows, cols, stride| {
                View::strided(&[0.0; 4], rows, cols, stride).t();
            });
            refused(|rows, cols, stride| {
                ViewMut::strided(&mut [0.0; 4], rows, cols, stride);
            });
        }
    }

    #[test]
    #[should_panic(expected = "sizes do not fit")]
    fn a_product_into_an_extent_that_wraps_writes_nothing() {
        // The rows of c lie half of the address space apart: the third would be the first again, the second far outside.
        let (a, b, mut c) = ([1.0; 3], [1.0; 2], [0.0; 4]);
        let c = ViewMut::strided(&mut c, 3, 2, 1 << (usize::BITS - 1));
        gemm(Into::Set, 1.0, View::new(&a, 3, 1), View::new(&b, 1, 2), c);
    }

    #[test]
    #[should_panic(expected = "a.cols = 3")]
    fn shapes_that_disagree_are_all_named() {
        gemm(
            Into::Set,
            1.0,
            View::new(&[0.0; 6], 2, 3),
            View::new(&[0.0; 4], 2, 2),
            ViewMut::new(&mut [0.0; 4], 2, 2),
        );
    }
}
