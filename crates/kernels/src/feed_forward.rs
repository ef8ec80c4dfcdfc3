//! The two-layer network y = drop(act(x W₁ + b₁)) W₂ + b₂ at every point.
//!
//! x: (rows, inputs), W₁: (inputs, hidden), W₂: (hidden, outputs), y: (rows, outputs). The hidden layer never leaves the cache: the
//! backward pass computes it again from x, tile by tile. The tile functions here are also the second half of the encoder layer.

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, mismatch};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::tile::{add_column_sums, set_affine, transpose};

/// Shapes and options of the network.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward {
    /// Rows: points of all samples.
    pub rows: usize,
    /// Features of x.
    pub inputs: usize,
    /// f, width of the hidden layer.
    pub hidden: usize,
    /// Features of y.
    pub outputs: usize,
    /// The activation.
    pub activation: Activation,
    /// Dropout rate on the hidden layer, at position row·f + c; 0 outside training.
    pub dropout: f32,
    /// The stream of the masks.
    pub key: Key,
}

/// Parameters, W stored (in, out). `T` is f64 for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a, T = f32> {
    /// (inputs, hidden)
    pub w_1: &'a [T],
    /// (hidden)
    pub b_1: &'a [T],
    /// (hidden, outputs)
    pub w_2: &'a [T],
    /// (outputs)
    pub b_2: &'a [T],
}

/// Gradients of [`Params`], field by field.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Grads<'a> {
    pub w_1: &'a mut [f32],
    pub b_1: &'a mut [f32],
    pub w_2: &'a mut [f32],
    pub b_2: &'a mut [f32],
}

/// The hidden layer of a tile: `z` before and `h` after activation and dropout, `dh` its gradient. `z` is empty where h tells the
/// activation's derivative.
pub(crate) struct Hidden<'a> {
    z: &'a mut [f32],
    h: &'a mut [f32],
    dh: &'a mut [f32],
}

impl<'a> Hidden<'a> {
    /// Values a tile of `rows` rows needs; the gradient's share is used by the backward pass alone.
    pub(crate) fn len(ffn: &FeedForward, rows: usize) -> usize {
        rows * ffn.hidden * if ffn.activation.needs_no_z() { 2 } else { 3 }
    }

    pub(crate) fn new(memory: &'a mut [f32], ffn: &FeedForward, rows: usize) -> Self {
        let len = rows * ffn.hidden;
        let (z, rest) = memory.split_at_mut(if ffn.activation.needs_no_z() { 0 } else { len });
        let (h, rest) = rest.split_at_mut(len);
        Self { z, h, dh: &mut rest[..len] }
    }
}

impl FeedForward {
    fn mask(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Hidden }
    }

    /// Fills the hidden layer of the tile that starts at row `first`.
    pub(crate) fn hidden_tile(&self, params: &Params, first: usize, x: &[f32], hidden: &mut Hidden) {
        let (f, m) = (self.hidden, hidden.h.len() / self.hidden);
        let w_1 = View::new(params.w_1, self.inputs, f);
        let x = View::new(x, m, self.inputs);
        if self.activation.needs_no_z() {
            gemm(Into::Set, 1.0, x, w_1, ViewMut::new(hidden.h, m, f));
            self.activation.forward_in_place(params.b_1, hidden.h);
        } else {
            gemm(Into::Set, 1.0, x, w_1, ViewMut::new(hidden.z, m, f));
            self.activation.forward_biased(params.b_1, hidden.z, hidden.h);
        }
        self.mask().apply((first * f) as u64, hidden.h);
    }

    /// `y += h W₂`; the caller has put b₂, and whatever else is to be added, into y.
    pub(crate) fn output_tile(&self, params: &Params, hidden: &Hidden, y: &mut [f32]) {
        let m = hidden.h.len() / self.hidden;
        let w_2 = View::new(params.w_2, self.hidden, self.outputs);
        gemm(Into::Add, 1.0, View::new(hidden.h, m, self.hidden), w_2, ViewMut::new(y, m, self.outputs));
    }

    /// Sets `dx` or adds to it, and adds to the gradients of the parameters, from `dy` and the hidden layer as [`hidden_tile`](Self::hidden_tile) left it.
    /// `transposed` is what [`transpose`](Self::transpose) wrote.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn backward_tile(
        &self,
        transposed: &[f32],
        first: usize,
        x: &[f32],
        dy: &[f32],
        hidden: &mut Hidden,
        into: Into,
        dx: &mut [f32],
        grads: &mut Grads,
    ) {
        let (i, f, o, m) = (self.inputs, self.hidden, self.outputs, hidden.h.len() / self.hidden);
        let (w_1_t, w_2_t) = transposed.split_at(f * i);
        let dy_view = View::new(dy, m, o);
        gemm(Into::Add, 1.0, View::new(hidden.h, m, f).t(), dy_view, ViewMut::new(grads.w_2, f, o));
        add_column_sums(dy, grads.b_2);

        gemm(Into::Set, 1.0, dy_view, View::new(w_2_t, o, f), ViewMut::new(hidden.dh, m, f));
        if self.activation.needs_no_z() {
            self.activation.backward_dropped(hidden.h, self.mask().kept(), hidden.dh);
        } else {
            self.mask().apply((first * f) as u64, hidden.dh);
            self.activation.backward(hidden.z, hidden.dh);
        }

        let dz = View::new(hidden.dh, m, f);
        gemm(Into::Add, 1.0, View::new(x, m, i).t(), dz, ViewMut::new(grads.w_1, i, f));
        add_column_sums(hidden.dh, grads.b_1);
        gemm(into, 1.0, dz, View::new(w_1_t, f, i), ViewMut::new(dx, m, i));
    }

    /// W₁ᵀ and W₂ᵀ into [`transposed_len`](Self::transposed_len) values.
    pub(crate) fn transpose(&self, params: &Params, transposed: &mut [f32]) {
        let (w_1_t, w_2_t) = transposed.split_at_mut(self.inputs * self.hidden);
        transpose(params.w_1, self.inputs, self.hidden, w_1_t);
        transpose(params.w_2, self.hidden, self.outputs, w_2_t);
    }

    pub(crate) fn transposed_len(&self) -> usize {
        self.hidden * (self.inputs + self.outputs)
    }

    /// Lengths of the parameters in the order of their fields.
    pub(crate) fn lengths(&self) -> [usize; 4] {
        [self.inputs * self.hidden, self.hidden, self.hidden * self.outputs, self.outputs]
    }
}

impl<'a> Grads<'a> {
    /// Cuts the fields out of one run of values.
    pub(crate) fn carve(memory: &'a mut [f32], lengths: [usize; 4]) -> Self {
        let (w_1, rest) = memory.split_at_mut(lengths[0]);
        let (b_1, rest) = rest.split_at_mut(lengths[1]);
        let (w_2, rest) = rest.split_at_mut(lengths[2]);
        Self { w_1, b_1, w_2, b_2: &mut rest[..lengths[3]] }
    }
}

/// Names of the parameters, and of their gradients, in panics.
const NAMES: [&str; 4] = ["feed-forward w_1", "feed-forward b_1", "feed-forward w_2", "feed-forward b_2"];

/// Rows of a tile: x, y and three hidden tiles of two hundred features stay in a megabyte of cache.
const TILE: usize = 256;

impl FeedForward {
    fn sizes(&self) -> [(&'static str, usize); 4] {
        [("rows", self.rows), ("inputs", self.inputs), ("hidden", self.hidden), ("outputs", self.outputs)]
    }

    fn cut(&self) -> Rows {
        Rows::new(1, self.rows, TILE)
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        let partial = self.cut().lanes * self.lengths().iter().sum::<usize>();
        self.transposed_len() + partial + threads.max(1) * Hidden::len(self, TILE)
    }

    /// y from x.
    pub fn forward(&self, params: &Params, x: &[f32], y: &mut [f32], workspace: &mut [f32]) {
        self.check(params, x, y.len(), workspace);
        let (rows, i, o) = (self.cut(), self.inputs, self.outputs);
        let parts = pieces(y, |l| rows.row_of_lane(l) * o);
        par::for_each(rows.lanes, parts, workspace, Hidden::len(self, TILE), &|lane, y, scratch| {
            let first = rows.row_of_lane(lane);
            for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                let mut hidden = Hidden::new(scratch, self, tile.len());
                let y = &mut y[(tile.start - first) * o..][..tile.len() * o];
                self.hidden_tile(params, tile.start, &x[tile.start * i..tile.end * i], &mut hidden);
                set_affine(y, None, 1.0, params.b_2, &[], &[]);
                self.output_tile(params, &hidden, y);
            }
        });
    }

    /// Gradients of x and of the parameters; they are overwritten.
    pub fn backward(
        &self,
        params: &Params,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.check(params, x, dy.len(), workspace);
        check_len("feed-forward dx", dx.len(), x.len(), &self.sizes());
        let (rows, i, o, lengths) = (self.cut(), self.inputs, self.outputs, self.lengths());
        let grads = [grads.w_1, grads.b_1, grads.w_2, grads.b_2];
        for ((what, grad), len) in NAMES.iter().zip(&grads).zip(lengths) {
            check_len(what, grad.len(), len, &self.sizes());
        }
        let count: usize = lengths.iter().sum();
        let (transposed, rest) = workspace.split_at_mut(self.transposed_len());
        self.transpose(params, transposed);
        let (partial, scratch) = rest.split_at_mut(rows.lanes * count);
        let parts = (pieces(dx, |l| rows.row_of_lane(l) * i), equal(partial, count));
        par::for_each(
            rows.lanes,
            parts,
            scratch,
            Hidden::len(self, TILE),
            &|lane, (dx, partial), scratch| {
                partial.fill(0.0);
                let mut grads = Grads::carve(partial, lengths);
                let first = rows.row_of_lane(lane);
                for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                    let mut hidden = Hidden::new(scratch, self, tile.len());
                    let x = &x[tile.start * i..tile.end * i];
                    let dx = &mut dx[(tile.start - first) * i..][..tile.len() * i];
                    self.hidden_tile(params, tile.start, x, &mut hidden);
                    let dy = &dy[tile.start * o..tile.end * o];
                    self.backward_tile(transposed, tile.start, x, dy, &mut hidden, Into::Set, dx, &mut grads);
                }
            },
        );
        let mut at = 0;
        for (grad, len) in grads.into_iter().zip(lengths) {
            sum_lanes(partial, rows.lanes, at, grad);
            at += len;
        }
    }

    fn check(&self, params: &Params, x: &[f32], y: usize, workspace: &[f32]) {
        if self.inputs * self.hidden * self.outputs == 0 {
            mismatch("feed-forward: no width may be zero", &self.sizes());
        }
        let found = [params.w_1, params.b_1, params.w_2, params.b_2].map(|p| p.len());
        for ((what, found), expected) in NAMES.iter().zip(found).zip(self.lengths()) {
            check_len(what, found, expected, &self.sizes());
        }
        check_len("feed-forward x", x.len(), self.rows * self.inputs, &self.sizes());
        check_len("feed-forward y", y, self.rows * self.outputs, &self.sizes());
        check_at_least("feed-forward workspace", workspace.len(), self.workspace_len(1), &self.sizes());
    }
}
