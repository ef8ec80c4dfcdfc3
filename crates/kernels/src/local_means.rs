//! Means over the cells of another grid, channels last: (B, n1, n2, c) → (B, m1, m2, c).
//!
//! A point of an axis has a cell, which reaches half an interval to either side. The points of a closed axis of n lie at i/(n − 1), and its first
//! and last cell are cut at the ends; those of a periodic axis lie at i/n, and cells go round. The cell of a point that is alone is the whole axis.
//! Output i is the mean over its cell of the function that is constant on the cells of the input:
//!
//! ```text
//! y[k, l] = Σ_{i,j} W₁[k, i] W₂[l, j] x[i, j],   W[k, i] = |cell k of m ∩ cell i of n| / |cell k of m|
//! ```
//!
//! Rows of W sum to 1: constants stay. So does the integral, the sum of all values weighed by the lengths of their cells. Lengths of cells are whole numbers in the
//! unit 1/(2(n − 1)(m − 1)), or 1/(2nm) of a periodic axis: equal grids are the identity without rounding. Both directions gather, as in
//! [`resize`](crate::resize): every row is written by one thread, and every sum has one order. Nothing is saved.

use crate::dims::{check_at_least, check_len, mismatch};
use crate::par::{self, equal};
use crate::simd::vectorize;
use crate::sparse::{Entry, Sparse, combine};

/// The plan of local means: tables of both axes, for any batch.
#[derive(Clone, Debug)]
pub struct LocalMeans {
    axes: [Axis; 2],
    channels: usize,
}

impl LocalMeans {
    /// From (n1, n2) to (m1, m2) points of c channels, along axes that are periodic or closed.
    ///
    /// An input of no points can only become an output of none.
    pub fn new(from: [usize; 2], to: [usize; 2], periodic: [bool; 2], channels: usize) -> Self {
        let axis = |k: usize| Axis::new(from[k], to[k], periodic[k]);
        Self { axes: [axis(0), axis(1)], channels }
    }

    /// Values of x for a batch.
    pub fn x_len(&self, batch: usize) -> usize {
        batch * self.axes[0].n * self.axes[1].n * self.channels
    }

    /// Values of y for a batch.
    pub fn y_len(&self, batch: usize) -> usize {
        batch * self.axes[0].m * self.axes[1].m * self.channels
    }

    /// Values of workspace that either pass needs for `threads` threads, with any batch.
    pub fn workspace_len(&self, threads: usize) -> usize {
        threads.max(1) * self.share()
    }

    /// y = W x.
    pub fn forward(&self, batch: usize, x: &[f32], y: &mut [f32], workspace: &mut [f32]) {
        self.check("local means x", x.len(), self.x_len(batch), batch);
        self.check("local means y", y.len(), self.y_len(batch), batch);
        self.check_workspace(workspace.len(), batch);
        let [down, along] = &self.axes;
        let tables = [&down.means, &along.means];
        self.gather(batch * down.m, [down.n, down.m], [along.n, along.m], tables, x, y, workspace);
    }

    /// dx = Wᵀ dy.
    pub fn backward(&self, batch: usize, dy: &[f32], dx: &mut [f32], workspace: &mut [f32]) {
        self.check("local means dy", dy.len(), self.y_len(batch), batch);
        self.check("local means dx", dx.len(), self.x_len(batch), batch);
        self.check_workspace(workspace.len(), batch);
        let [down, along] = &self.axes;
        let tables = [&down.transposed, &along.transposed];
        self.gather(batch * down.n, [down.m, down.n], [along.m, along.n], tables, dy, dx, workspace);
    }

    /// Rows of the output: first over rows of the input, then along the row. Sizes are those of input and output.
    #[allow(clippy::too_many_arguments, reason = "both passes, with the two grids in either order")]
    fn gather(
        &self,
        rows: usize,
        [from, to]: [usize; 2],
        [from_len, to_len]: [usize; 2],
        [down, along]: [&Sparse; 2],
        input: &[f32],
        output: &mut [f32],
        workspace: &mut [f32],
    ) {
        let c = self.channels;
        let row_len = from_len * c;
        par::for_each(rows, equal(output, to_len * c), workspace, self.share(), &|row, out, scratch| {
            let (sample, i) = (row / to, row % to);
            let (input, sum) = (&input[sample * from * row_len..], &mut scratch[..row_len]);
            vectorize!({
                combine(down.row(i), input, sum);
                for (j, out) in out.chunks_exact_mut(c.max(1)).enumerate() {
                    combine(along.row(j), sum, out);
                }
            });
        });
    }

    /// Scratch of one thread: a row of sums in either direction.
    fn share(&self) -> usize {
        self.axes[1].n.max(self.axes[1].m) * self.channels
    }

    #[track_caller]
    fn check(&self, what: &str, len: usize, expected: usize, batch: usize) {
        check_len(what, len, expected, &self.sizes(batch));
    }

    #[track_caller]
    fn check_workspace(&self, len: usize, batch: usize) {
        check_at_least("local means workspace", len, self.workspace_len(1), &self.sizes(batch));
    }

    fn sizes(&self, batch: usize) -> [(&'static str, usize); 6] {
        let [one, two] = &self.axes;
        [
            ("batch", batch),
            ("n1", one.n),
            ("n2", two.n),
            ("m1", one.m),
            ("m2", two.m),
            ("channels", self.channels),
        ]
    }
}

/// One axis: W and Wᵀ.
#[derive(Clone, Debug)]
struct Axis {
    n: usize,
    m: usize,
    means: Sparse,
    transposed: Sparse,
}

impl Axis {
    fn new(n: usize, m: usize, periodic: bool) -> Self {
        if n == 0 && m > 0 {
            mismatch("local means of nothing", &[("n", n), ("m", m)]);
        }
        let entries = (0..m).flat_map(|i| row(i, n, m, periodic).map(move |entry| (i, entry)));
        let means = Sparse::new(m, entries.collect());
        Self { n, m, transposed: means.transposed(n), means }
    }
}

/// Row i of W: the cells of the input that the cell of output i meets, in increasing order.
fn row(i: usize, n: usize, m: usize, periodic: bool) -> impl Iterator<Item = Entry> {
    // What a point and its neighbour are apart is the product of two halves: of a cell of the output, and of a cell of the input.
    let less = i64::from(!periodic);
    let (n, m, i) = (n as i64, m as i64, i as i64);
    let (steps, coarse_steps) = ((n - less).max(1), (m - less).max(1));
    let length = 2 * steps * coarse_steps;
    // Of a cell of the input and of one of the output.
    let (half, wide) = match periodic {
        true => (m, n),
        false => (if n == 1 { length } else { coarse_steps }, if m == 1 { length } else { steps }),
    };
    let cut = |place: i64| if periodic { place } else { place.clamp(0, length) };
    let (begin, end) = (cut((2 * i - 1) * wide), cut((2 * i + 1) * wide));
    let first = (begin + half).div_euclid(2 * half);
    let last = (end + half - 1).div_euclid(2 * half);
    let mut met: Vec<(i64, i64)> = (first..=last)
        .map(|j| {
            let overlap = cut((2 * j + 1) * half).min(end) - cut((2 * j - 1) * half).max(begin);
            (j.rem_euclid(n), overlap)
        })
        .filter(|(_, overlap)| *overlap > 0)
        .collect();
    // Once round, the last cell may be the first again.
    met.sort_by_key(|(j, _)| *j);
    met.dedup_by(|next, one| {
        let same = next.0 == one.0;
        one.1 += if same { next.1 } else { 0 };
        same
    });
    let whole = (end - begin) as f64;
    met.into_iter()
        .map(move |(j, overlap)| Entry { column: j as usize, weight: (overlap as f64 / whole) as f32 })
}
