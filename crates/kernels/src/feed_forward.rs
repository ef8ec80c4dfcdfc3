//! The two-layer network y = drop(act(x W₁ + b₁)) W₂ + b₂ at every point.
//!
//! x: (rows, inputs), W₁: (inputs, hidden), W₂: (hidden, outputs), y: (rows, outputs). The hidden layer never leaves the cache: the
//! backward pass computes it again from x, tile by tile. The tile functions here are also the second half of the encoder layer.

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, mismatch, taking};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::parameters::parameters;
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

parameters! {
    /// Parameters, W stored (in, out), or one thing for each of them.
    pub struct Parameters {
        /// (inputs, hidden)
        w_1,
        /// (hidden)
        b_1,
        /// (hidden, outputs)
        w_2,
        /// (outputs)
        b_2,
    }
}

impl FeedForward {
    fn mask(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Hidden }
    }

    /// Values of the hidden layer of one row: h, after activation and dropout, and before them z unless h tells the activation's
    /// derivative.
    pub(crate) fn hidden_len(&self) -> usize {
        self.hidden * if self.activation.needs_no_z() { 1 } else { 2 }
    }

    /// The hidden layer of the tile that starts at row `first`: h of all its rows, then z.
    pub(crate) fn hidden_tile(&self, params: &Params, first: usize, x: &[f32], hidden: &mut [f32]) {
        let (f, m) = (self.hidden, x.len() / self.inputs);
        let (h, z) = hidden.split_at_mut(m * f);
        let w_1 = View::new(params.w_1, self.inputs, f);
        let x = View::new(x, m, self.inputs);
        if self.activation.needs_no_z() {
            gemm(Into::Set, 1.0, x, w_1, ViewMut::new(h, m, f));
            self.activation.forward_in_place(params.b_1, h);
        } else {
            gemm(Into::Set, 1.0, x, w_1, ViewMut::new(z, m, f));
            self.activation.forward_biased(params.b_1, z, h);
        }
        self.mask().apply((first * f) as u64, h);
    }

    /// `y += h W₂`; the caller has put b₂, and whatever else is to be added, into y.
    pub(crate) fn output_tile(&self, params: &Params, hidden: &[f32], y: &mut [f32]) {
        let (f, m) = (self.hidden, y.len() / self.outputs);
        let w_2 = View::new(params.w_2, f, self.outputs);
        gemm(Into::Add, 1.0, View::new(&hidden[..m * f], m, f), w_2, ViewMut::new(y, m, self.outputs));
    }

    /// Sets `dx` or adds to it, and adds to the gradients of the parameters, from `dy` and the hidden layer as [`hidden_tile`](Self::hidden_tile) left it.
    /// `transposed` is what [`transpose`](Self::transpose) wrote, `dh` (rows, f) is scratch.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn backward_tile(
        &self,
        transposed: &[f32],
        first: usize,
        x: &[f32],
        dy: &[f32],
        hidden: &[f32],
        dh: &mut [f32],
        into: Into,
        dx: &mut [f32],
        grads: &mut Grads,
    ) {
        let (i, f, o, m) = (self.inputs, self.hidden, self.outputs, x.len() / self.inputs);
        let (h, z) = hidden.split_at(m * f);
        let (w_1_t, w_2_t) = transposed.split_at(f * i);
        let dy_view = View::new(dy, m, o);
        gemm(Into::Add, 1.0, View::new(h, m, f).t(), dy_view, ViewMut::new(grads.w_2, f, o));
        add_column_sums(dy, grads.b_2);

        gemm(Into::Set, 1.0, dy_view, View::new(w_2_t, o, f), ViewMut::new(dh, m, f));
        if self.activation.needs_no_z() {
            self.activation.backward_dropped(h, self.mask().kept(), dh);
        } else {
            self.mask().apply((first * f) as u64, dh);
            self.activation.backward(z, dh);
        }

        let dz = View::new(dh, m, f);
        gemm(Into::Add, 1.0, View::new(x, m, i).t(), dz, ViewMut::new(grads.w_1, i, f));
        add_column_sums(dh, grads.b_1);
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

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        let Self { inputs, hidden, outputs, .. } = *self;
        Parameters { w_1: inputs * hidden, b_1: hidden, w_2: hidden * outputs, b_2: outputs }
    }
}

/// Rows of a tile: x, y and three hidden tiles of two hundred features stay in a megabyte of cache.
const TILE: usize = 256;

impl FeedForward {
    fn sizes(&self) -> [(&'static str, usize); 4] {
        [("rows", self.rows), ("inputs", self.inputs), ("hidden", self.hidden), ("outputs", self.outputs)]
    }

    /// Scratch of a worker: the hidden layer of a tile and its gradient.
    fn share(&self) -> usize {
        TILE * (self.hidden_len() + self.hidden)
    }

    fn cut(&self) -> Rows {
        Rows::new(1, self.rows, TILE)
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        let partial = self.cut().lanes * self.lengths().total();
        self.transposed_len() + partial + threads.max(1) * self.share()
    }

    /// y from x.
    pub fn forward(&self, params: &Params, x: &[f32], y: &mut [f32], workspace: &mut [f32]) {
        self.check(params, x, y.len(), workspace);
        let (rows, i, o) = (self.cut(), self.inputs, self.outputs);
        let parts = pieces(y, |l| rows.row_of_lane(l) * o);
        par::for_each(rows.lanes, parts, workspace, self.share(), &|lane, y, scratch| {
            let first = rows.row_of_lane(lane);
            for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                let hidden = &mut scratch[..tile.len() * self.hidden_len()];
                let y = &mut y[(tile.start - first) * o..][..tile.len() * o];
                self.hidden_tile(params, tile.start, &x[tile.start * i..tile.end * i], hidden);
                set_affine(y, None, 1.0, params.b_2, &[], &[]);
                self.output_tile(params, hidden, y);
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
        grads.check("gradient of feed-forward", lengths, &self.sizes());
        let count = lengths.total();
        let (transposed, rest) = workspace.split_at_mut(self.transposed_len());
        self.transpose(params, transposed);
        let (partial, scratch) = rest.split_at_mut(rows.lanes * count);
        let parts = (pieces(dx, |l| rows.row_of_lane(l) * i), equal(partial, count));
        par::for_each(rows.lanes, parts, scratch, self.share(), &|lane, (dx, partial), scratch| {
            partial.fill(0.0);
            let mut grads = lengths.map(taking(partial));
            let first = rows.row_of_lane(lane);
            for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                let (hidden, dh) = scratch.split_at_mut(tile.len() * self.hidden_len());
                let dh = &mut dh[..tile.len() * self.hidden];
                let x = &x[tile.start * i..tile.end * i];
                let dx = &mut dx[(tile.start - first) * i..][..tile.len() * i];
                self.hidden_tile(params, tile.start, x, hidden);
                let dy = &dy[tile.start * o..tile.end * o];
                self.backward_tile(transposed, tile.start, x, dy, hidden, dh, Into::Set, dx, &mut grads);
            }
        });
        let mut at = 0;
        for grad in grads.into_array() {
            sum_lanes(partial, rows.lanes, at, grad);
            at += grad.len();
        }
    }

    fn check(&self, params: &Params, x: &[f32], y: usize, workspace: &[f32]) {
        if [self.inputs, self.hidden, self.outputs].contains(&0) {
            mismatch("feed-forward: no width may be zero", &self.sizes());
        }
        params.check("feed-forward", self.lengths(), &self.sizes());
        check_len("feed-forward x", x.len(), self.rows * self.inputs, &self.sizes());
        check_len("feed-forward y", y, self.rows * self.outputs, &self.sizes());
        check_at_least("feed-forward workspace", workspace.len(), self.workspace_len(1), &self.sizes());
    }
}
