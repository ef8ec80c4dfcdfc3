//! The pointwise linear layer y = act([x | coordinates] W + b).
//!
//! x: (rows, inputs), coordinates: (rows, p), W: (inputs + p, outputs), b: (outputs), y: (rows, outputs). Coordinates lie beside x, which
//! need not be copied to lie with them, and get no gradient. Nothing is kept for the backward pass but x; z, what the activation is
//! taken of, is computed again there when it needs it.

use std::ops::Range;

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, take};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::parameters::parameters;
use crate::tile::{add_moments, set_affine, transpose};

/// Shapes and activation of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// Rows: points of all samples.
    pub rows: usize,
    /// Features of x.
    pub inputs: usize,
    /// p, coordinates of a row.
    pub coordinates: usize,
    /// Features of y.
    pub outputs: usize,
    /// The activation.
    pub activation: Activation,
}

parameters! {
    /// Parameters, or one thing for each of them.
    pub struct Parameters {
        /// (inputs + p, outputs): the rows that multiply coordinates last.
        w,
        /// (outputs)
        b,
    }
}

/// Rows of a tile: two tiles of a hundred features stay in a megabyte of cache.
const TILE: usize = 256;

impl Linear {
    fn sizes(&self) -> [(&'static str, usize); 4] {
        let Self { rows, inputs, coordinates, outputs, .. } = *self;
        [("rows", rows), ("inputs", inputs), ("coordinates", coordinates), ("outputs", outputs)]
    }

    fn cut(&self) -> Rows {
        Rows::new(1, self.rows, TILE)
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        self.inputs * self.outputs + threads.max(1) * self.share() + self.cut().lanes * self.lengths().total()
    }

    /// z and dz of a tile.
    fn share(&self) -> usize {
        2 * TILE * self.outputs
    }

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        Parameters { w: (self.inputs + self.coordinates) * self.outputs, b: self.outputs }
    }

    /// `y = act([x | coordinates] W + b)`
    pub fn forward(
        &self,
        params: &Params,
        x: &[f32],
        coordinates: &[f32],
        y: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.check(params, x, coordinates, y.len(), workspace);
        let (rows, inputs, outputs) = (self.cut(), self.inputs, self.outputs);
        if outputs == 0 {
            return;
        }
        let parts = pieces(y, |l| rows.row_of_lane(l) * outputs);
        par::for_each(rows.lanes, parts, workspace, self.share(), &|lane, y, scratch| {
            let first = rows.row_of_lane(lane);
            for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                let y = &mut y[(tile.start - first) * outputs..][..tile.len() * outputs];
                let x = View::new(&x[tile.start * inputs..], tile.len(), inputs);
                let coordinates = self.coordinates_of(&tile, coordinates);
                if self.activation == Activation::None {
                    self.affine(x, coordinates, params, y);
                } else {
                    let z = &mut scratch[..tile.len() * outputs];
                    self.affine(x, coordinates, params, z);
                    self.activation.forward(z, y);
                }
            }
        });
    }

    /// Gradients of x, W and b; they are overwritten.
    pub fn backward(
        &self,
        params: &Params,
        x: &[f32],
        coordinates: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.check(params, x, coordinates, dy.len(), workspace);
        check_len("linear dx", dx.len(), x.len(), &self.sizes());
        grads.check("gradient of linear", self.lengths(), &self.sizes());
        let (rows, inputs, outputs) = (self.cut(), self.inputs, self.outputs);
        if outputs == 0 {
            dx.fill(0.0);
            return;
        }
        // Wᵀ once: every tile multiplies by it, and a product would pack a transposed view each time.
        let mut rest = workspace;
        let w_t = take(&mut rest, inputs * outputs);
        transpose(&params.w[..inputs * outputs], inputs, outputs, w_t);
        let w_t = View::new(w_t, outputs, inputs);
        let count = self.lengths().total();
        let partial = take(&mut rest, rows.lanes * count);
        let parts = (pieces(dx, |l| rows.row_of_lane(l) * inputs), equal(partial, count));
        par::for_each(rows.lanes, parts, rest, self.share(), &|lane, (dx, partial), scratch| {
            partial.fill(0.0);
            // The rows of W that multiply coordinates, and b, the row that multiplies 1.
            let (dw, rows_and_bias) = partial.split_at_mut(inputs * outputs);
            let first = rows.row_of_lane(lane);
            for tile in rows.lane(lane).flat_map(|c| rows.tiles(c)) {
                let (m, len) = (tile.len(), tile.len() * outputs);
                let x = View::new(&x[tile.start * inputs..], m, inputs);
                let coordinates = self.coordinates_of(&tile, coordinates);
                let (z, dz) = scratch.split_at_mut(TILE * outputs);
                let (z, dz) = (&mut z[..len], &mut dz[..len]);
                dz.copy_from_slice(&dy[tile.start * outputs..][..len]);
                if self.activation != Activation::None {
                    self.affine(x, coordinates, params, z);
                    self.activation.backward(z, dz);
                }
                add_moments(dz, coordinates, None, rows_and_bias, outputs);
                gemm(Into::Add, 1.0, x.t(), View::new(dz, m, outputs), ViewMut::new(dw, inputs, outputs));
                let dx = &mut dx[(tile.start - first) * inputs..][..m * inputs];
                gemm(Into::Set, 1.0, View::new(dz, m, outputs), w_t, ViewMut::new(dx, m, inputs));
            }
        });
        sum_lanes(partial, rows.lanes, 0, grads.w);
        sum_lanes(partial, rows.lanes, self.lengths().w, grads.b);
    }

    fn coordinates_of<'a>(&self, tile: &Range<usize>, coordinates: &'a [f32]) -> &'a [f32] {
        &coordinates[tile.start * self.coordinates..][..tile.len() * self.coordinates]
    }

    /// `z = [x | coordinates] W + b` of a tile.
    fn affine(&self, x: View, coordinates: &[f32], params: &Params, z: &mut [f32]) {
        let (w, table) = params.w.split_at(self.inputs * self.outputs);
        set_affine(z, None, 1.0, params.b, coordinates, table);
        let rows = z.len() / self.outputs;
        gemm(Into::Add, 1.0, x, View::new(w, self.inputs, self.outputs), ViewMut::new(z, rows, self.outputs));
    }

    fn check(&self, params: &Params, x: &[f32], coordinates: &[f32], y: usize, workspace: &[f32]) {
        let Self { rows, inputs, coordinates: p, outputs, .. } = *self;
        params.check("linear", self.lengths(), &self.sizes());
        check_len("linear x", x.len(), rows * inputs, &self.sizes());
        check_len("linear coordinates", coordinates.len(), rows * p, &self.sizes());
        check_len("linear y", y, rows * outputs, &self.sizes());
        check_at_least("linear workspace", workspace.len(), self.workspace_len(1), &self.sizes());
    }
}
