//! Bilinear resize with aligned corners, channels last: (B, n1, n2, c) → (B, m1, m2, c).
//!
//! Along each axis, output i looks at the source coordinate i·(n − 1)/(m − 1) (0 if m = 1) and interpolates linearly between
//! its two neighbours:
//!
//! ```text
//! y = act(z),  z[k, l] = Σ_{i,j} R₁[k, i] R₂[l, j] x[i, j]        dx[i, j] = Σ_{k,l} R₁[k, i] R₂[l, j] dz[k, l]
//! ```
//!
//! Both directions gather: an output row reads the two input rows of its R₁ and then goes along the row with R₂; an
//! input row of the gradient reads the output rows of R₁ᵀ, from a table made beforehand. So every row is written by one
//! thread, and every sum has one order. Nothing is saved; with an activation the backward computes z again.

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, mismatch};
use crate::par::{self, equal};
use crate::simd::vectorize;
use crate::sparse::{Entry, Sparse, combine};

/// The plan of a resize: tables of both axes, for any batch.
#[derive(Clone, Debug)]
pub struct Resize {
    axes: [Axis; 2],
    channels: usize,
    activation: Activation,
}

impl Resize {
    /// From (n1, n2) to (m1, m2) pixels of c channels, with an activation at the end.
    ///
    /// An input of no pixels can only become an output of none.
    pub fn new(from: [usize; 2], to: [usize; 2], channels: usize, activation: Activation) -> Self {
        let axes = [Axis::new(from[0], to[0]), Axis::new(from[1], to[1])];
        Self { axes, channels, activation }
    }

    /// Values of x for a batch.
    pub fn x_len(&self, batch: usize) -> usize {
        batch * self.axes[0].n * self.axes[1].n * self.channels
    }

    /// Values of y for a batch.
    pub fn y_len(&self, batch: usize) -> usize {
        batch * self.axes[0].m * self.axes[1].m * self.channels
    }

    /// Values of workspace that [`forward`](Self::forward) needs for `threads` threads, with any batch.
    pub fn forward_workspace_len(&self, threads: usize) -> usize {
        threads.max(1) * self.share()
    }

    /// Values of workspace that either pass needs for a batch and `threads` threads.
    pub fn workspace_len(&self, batch: usize, threads: usize) -> usize {
        self.dz_len(batch) + threads.max(1) * self.share()
    }

    /// y = act(R x).
    pub fn forward(&self, batch: usize, x: &[f32], y: &mut [f32], workspace: &mut [f32]) {
        self.check("resize x", x.len(), self.x_len(batch), batch);
        self.check("resize y", y.len(), self.y_len(batch), batch);
        self.check_workspace(workspace.len(), self.forward_workspace_len(1), batch);
        let (rows, row_len) = (batch * self.axes[0].m, self.axes[1].m * self.channels);
        par::for_each(rows, equal(y, row_len), workspace, self.share(), &|row, y, scratch| {
            let (z, scratch) = scratch.split_at_mut(row_len);
            if self.activation == Activation::None {
                self.interpolate(x, row, y, scratch);
            } else {
                self.interpolate(x, row, z, scratch);
                self.activation.forward(z, y);
            }
        });
    }

    /// dx = Rᵀ (dy·act'(R x)). Without activation x is not looked at and may be empty.
    pub fn backward(&self, batch: usize, x: &[f32], dy: &[f32], dx: &mut [f32], workspace: &mut [f32]) {
        self.check("resize dy", dy.len(), self.y_len(batch), batch);
        self.check("resize dx", dx.len(), self.x_len(batch), batch);
        self.check_workspace(workspace.len(), self.workspace_len(batch, 1), batch);
        let (dz, scratch) = workspace.split_at_mut(self.dz_len(batch));
        let dz = if self.activation == Activation::None {
            dy
        } else {
            self.check("resize x", x.len(), self.x_len(batch), batch);
            self.slopes(batch, x, dy, dz, scratch);
            dz
        };
        let (rows, row_len) = (batch * self.axes[0].n, self.axes[1].n * self.channels);
        par::for_each(rows, equal(dx, row_len), scratch, self.share(), &|row, dx, scratch| {
            self.gather(dz, row, dx, scratch);
        });
    }

    /// dz = dy·act'(R x).
    fn slopes(&self, batch: usize, x: &[f32], dy: &[f32], dz: &mut [f32], scratch: &mut [f32]) {
        let (rows, row_len) = (batch * self.axes[0].m, self.axes[1].m * self.channels);
        par::for_each(rows, equal(dz, row_len), scratch, self.share(), &|row, dz, scratch| {
            let (z, scratch) = scratch.split_at_mut(row_len);
            self.interpolate(x, row, z, scratch);
            dz.copy_from_slice(&dy[row * row_len..][..row_len]);
            self.activation.backward(z, dz);
        });
    }

    /// One row of R x: first between two input rows, then along the row.
    fn interpolate(&self, x: &[f32], row: usize, z: &mut [f32], scratch: &mut [f32]) {
        let ([down, along], c) = (&self.axes, self.channels);
        let row_len = along.n * c;
        let (sample, tap) = (row / down.m, down.taps[row % down.m]);
        let input = |i: usize| &x[(sample * down.n + i) * row_len..][..row_len];
        let upper = input(tap.low);
        let between = if tap.on_grid() {
            upper
        } else {
            let between = &mut scratch[..row_len];
            let lower = input(tap.low + 1);
            vectorize!(tap.mix(upper, lower, between));
            between
        };
        vectorize!({
            for (z, tap) in z.chunks_exact_mut(c.max(1)).zip(&along.taps) {
                let left = &between[tap.low * c..][..c];
                if tap.on_grid() {
                    z.copy_from_slice(left);
                } else {
                    tap.mix(left, &between[(tap.low + 1) * c..][..c], z);
                }
            }
        });
    }

    /// One row of Rᵀ dz: first over the output rows that looked at it, then along the row.
    fn gather(&self, dz: &[f32], row: usize, dx: &mut [f32], scratch: &mut [f32]) {
        let ([down, along], c) = (&self.axes, self.channels);
        let row_len = along.m * c;
        let (sample, i) = (row / down.n, row % down.n);
        let (dz, sum) = (&dz[sample * down.m * row_len..], &mut scratch[..row_len]);
        vectorize!({
            combine(down.transposed.row(i), dz, sum);
            for (j, dx) in dx.chunks_exact_mut(c.max(1)).enumerate() {
                combine(along.transposed.row(j), sum, dx);
            }
        });
    }

    fn dz_len(&self, batch: usize) -> usize {
        if self.activation == Activation::None { 0 } else { self.y_len(batch) }
    }

    /// Scratch of one thread: a row of z and a row between two input rows, or a row of sums.
    fn share(&self) -> usize {
        (self.axes[1].m + self.axes[1].n) * self.channels
    }

    #[track_caller]
    fn check(&self, what: &str, len: usize, expected: usize, batch: usize) {
        check_len(what, len, expected, &self.sizes(batch));
    }

    #[track_caller]
    fn check_workspace(&self, len: usize, needed: usize, batch: usize) {
        check_at_least("resize workspace", len, needed, &self.sizes(batch));
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

/// One axis: R as two neighbours for every output, and Rᵀ by its rows.
#[derive(Clone, Debug)]
struct Axis {
    n: usize,
    m: usize,
    taps: Vec<Tap>,
    transposed: Sparse,
}

/// What an output reads: `near`·x[low] + `far`·x[low + 1].
#[derive(Clone, Copy, Debug)]
struct Tap {
    low: usize,
    near: f32,
    far: f32,
}

impl Axis {
    fn new(n: usize, m: usize) -> Self {
        if n == 0 && m > 0 {
            mismatch("resize of nothing", &[("n", n), ("m", m)]);
        }
        let taps: Vec<Tap> = (0..m).map(|i| Tap::new(i, n, m)).collect();
        let mut entries = Vec::with_capacity(2 * m);
        for (column, tap) in taps.iter().enumerate() {
            entries.push((tap.low, Entry { column, weight: tap.near }));
            if !tap.on_grid() {
                entries.push((tap.low + 1, Entry { column, weight: tap.far }));
            }
        }
        Self { n, m, taps, transposed: Sparse::new(n, entries) }
    }
}

impl Tap {
    /// Integers give the neighbour and the remainder exactly; equal sizes are the identity without rounding.
    fn new(i: usize, n: usize, m: usize) -> Self {
        let steps = m.saturating_sub(1).max(1);
        let place = i * (n - 1);
        let far = (place % steps) as f64 / steps as f64;
        Self { low: place / steps, near: (1.0 - far) as f32, far: far as f32 }
    }

    /// Whether the output lies on an input, and there may be no neighbour to read.
    #[inline(always)]
    fn on_grid(&self) -> bool {
        self.far == 0.0
    }

    #[inline(always)]
    fn mix(&self, low: &[f32], high: &[f32], out: &mut [f32]) {
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            *out = self.near * low + self.far * high;
        }
    }
}
