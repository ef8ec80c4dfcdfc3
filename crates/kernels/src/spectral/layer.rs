//! The layer around the truncated transform: forward and backward, tile by tile, the same for one, two and three dimensions.
//!
//! ```text
//! z = Aᵀ C M A drop(x) + x W + b        out = act(z)
//! ```
//!
//! A is the truncated DFT as a real matrix, C the weights c of the half spectrum, M the mixing. The backward pass is the
//! same chain with Mᵀ, so both are made of the two halves of A and the two halves of Aᵀ that a [`Transform`] supplies:
//!
//! ```text
//! points ──analyze──▶ partial ──collect──▶ spectrum ──mix──▶ spectrum ──spread──▶ combs ──synthesize──▶ points
//!         by tile              by column k          by column k         by sample         by tile
//! ```
//!
//! The bias costs nothing: the first column of A's matrix is the constant n^{−1/2}, so n^{1/2} b is added to mode zero
//! of the combs, and the gradient of b is n^{1/2} times mode zero of the transformed gradient.

use std::ops::Range;

use super::{Grads, Parameters, Params};
use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, mismatch, take};
use crate::dropout::Dropout;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{Rows, equal, for_each, pieces, sum_lanes};
use crate::simd::{axpy, vectorize};

/// Sizes of a layer. A row is what tiles are made of: a point in 1D, a line of the grid in 2D, a plane in 3D.
pub(super) struct Layer {
    pub rows: Rows,
    /// Points per row.
    pub points: usize,
    /// i
    pub inputs: usize,
    /// o
    pub outputs: usize,
    /// Columns of modes: m, of the last axis.
    pub columns: usize,
    /// Modes per column: 1, 2m in 2D, 4m² in 3D.
    pub slots: usize,
    /// The slot that holds frequency zero, in column 0.
    pub zero_slot: usize,
    /// Whether `analyze` leaves one partial transform per row (2D, 3D) instead of one sum per chunk.
    pub partial_per_row: bool,
    /// Values of a partial transform per channel.
    pub partial: usize,
    /// Values of a comb per channel.
    pub comb: usize,
    /// Where frequency zero lies in a comb, in values per channel.
    pub zero_in_comb: usize,
    /// Scratch of `analyze`, `collect` and `synthesize` per channel, whichever is most.
    pub scratch: usize,
    pub pointwise: bool,
    pub activation: Activation,
    pub dropout: Dropout,
}

/// The halves of A and of Aᵀ, for values of any width w (channels).
pub(super) trait Transform: Sync {
    /// First half of A, on the rows of a tile: x (rows, points, w) into the partial transforms of its chunk, which starts at
    /// row `chunk`. Tiles of a chunk come in order and the first one overwrites.
    fn analyze(
        &self,
        chunk: usize,
        tile: Range<usize>,
        w: usize,
        x: &[f32],
        partial: &mut [f32],
        scratch: &mut [f32],
    );
    /// Second half of A: column `k` of the spectra of all samples, (slots, B, 2, w), from all partial transforms.
    fn collect(&self, k: usize, w: usize, partial: &[f32], spectrum: &mut [f32], scratch: &mut [f32]);
    /// Adjoint of the second half, for sample `b`: from all spectra (columns, slots, B, 2, w) to its comb.
    fn spread(&self, b: usize, w: usize, spectra: &[f32], comb: &mut [f32]);
    /// Adjoint of the first half: the rows of a tile (rows, points, w), overwritten, from the comb of its sample.
    fn synthesize(&self, tile: Range<usize>, w: usize, comb: &[f32], out: &mut [f32], scratch: &mut [f32]);
    /// c_k of column k.
    fn weight(&self, k: usize) -> f32;
}

impl Layer {
    /// Values of x per channel: B·n.
    fn total(&self) -> usize {
        self.rows.total() * self.points
    }

    pub fn lengths(&self) -> Parameters<usize> {
        let (i, o) = (self.inputs, self.outputs);
        let (w, b) = if self.pointwise { (i * o, o) } else { (0, 0) };
        Parameters { weights: self.columns * self.slots * 2 * i * o, w, b }
    }

    /// Values of one column of all spectra of width w, (slots, B, 2, w).
    fn column_len(&self, w: usize) -> usize {
        self.slots * self.rows.samples * 2 * w
    }

    fn spectra_len(&self, w: usize) -> usize {
        self.columns * self.column_len(w)
    }

    /// Spectra before and after the mixing, the latter times c.
    pub fn saved_len(&self) -> usize {
        self.spectra_len(self.inputs) + self.spectra_len(self.outputs)
    }

    fn combs_len(&self, w: usize) -> usize {
        self.rows.samples * self.comb * w
    }

    /// Where the partial transforms of a chunk begin.
    fn partial_start(&self, chunk: usize, w: usize) -> usize {
        let before = if self.partial_per_row { self.rows.chunk_start(chunk) } else { chunk };
        before * self.partial * w
    }

    fn partial_len(&self, w: usize) -> usize {
        self.partial_start(self.rows.samples * self.rows.chunks, w)
    }

    /// Values of a tile of width w.
    fn tile_len(&self, w: usize) -> usize {
        self.rows.tile.min(self.rows.n) * self.points * w
    }

    /// The matrix (2B, 2i) of [`expand`].
    fn expanded_len(&self) -> usize {
        4 * self.rows.samples * self.inputs
    }

    /// Scratch of one worker: the largest of what the passes take.
    fn share(&self) -> usize {
        let widest = self.inputs.max(self.outputs);
        let tiles = self.scratch * widest + self.tile_len(widest);
        let mixing = self.scratch * widest + 2 * self.expanded_len() + self.column_len(self.outputs);
        tiles.max(mixing)
    }

    /// Partial transforms, combs and scratch.
    pub fn forward_workspace_len(&self, threads: usize) -> usize {
        self.partial_len(self.inputs) + self.combs_len(self.outputs) + threads.max(1) * self.share()
    }

    /// For the backward pass dz, the spectra of dx and one dW per lane as well.
    pub fn workspace_len(&self, threads: usize) -> usize {
        let backward = self.dz_len()
            + self.partial_len(self.outputs)
            + self.combs_len(self.inputs.max(self.outputs))
            + self.spectra_len(self.inputs)
            + self.lanes_len()
            + threads.max(1) * self.share();
        backward.max(self.forward_workspace_len(threads))
    }

    /// dz = dy without an activation, so that only an activation needs memory for it.
    fn dz_len(&self) -> usize {
        if self.activation == Activation::None { 0 } else { self.total() * self.outputs }
    }

    fn lanes_len(&self) -> usize {
        if self.pointwise { self.rows.lanes * self.inputs * self.outputs } else { 0 }
    }

    pub fn forward(
        &self,
        transform: &impl Transform,
        params: &Params,
        x: &[f32],
        out: &mut [f32],
        saved: &mut [f32],
        mut workspace: &mut [f32],
    ) {
        let (i, o) = (self.inputs, self.outputs);
        self.check_channels();
        params.check("spectral", self.lengths(), &self.sizes());
        self.check("x", x.len(), self.total() * i);
        self.check("out", out.len(), self.total() * o);
        self.check("saved", saved.len(), self.saved_len());
        self.check_workspace(workspace.len(), self.forward_workspace_len(1));
        if self.total() == 0 {
            return saved.fill(0.0);
        }
        let partial = take(&mut workspace, self.partial_len(i));
        let combs = take(&mut workspace, self.combs_len(o));
        let scratch = workspace;
        let (before, after) = saved.split_at_mut(self.spectra_len(i));

        self.analyze_input(transform, x, partial, scratch);
        self.mix(transform, params, partial, before, after, scratch);
        self.spread_output(transform, params, after, combs);

        let (rows, combs) = (self.rows, &*combs);
        let own = pieces(out, move |lane| rows.row_of_lane(lane) * self.points * o);
        for_each(rows.lanes, own, scratch, self.share(), &|lane, out, scratch| {
            let mut rest = out;
            for tile in rows.lane(lane).flat_map(|chunk| rows.tiles(chunk)) {
                let out = take(&mut rest, tile.len() * self.points * o);
                if self.activation == Activation::None {
                    self.pre_activation(transform, params, tile, x, combs, out, scratch);
                } else {
                    let (z, scratch) = scratch.split_at_mut(out.len());
                    self.pre_activation(transform, params, tile, x, combs, z, scratch);
                    self.activation.forward(z, out);
                }
            }
        });
    }

    pub fn backward(
        &self,
        transform: &impl Transform,
        params: &Params,
        x: &[f32],
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        mut workspace: &mut [f32],
    ) {
        let (i, o) = (self.inputs, self.outputs);
        self.check_channels();
        params.check("spectral", self.lengths(), &self.sizes());
        grads.check("gradient of spectral", self.lengths(), &self.sizes());
        self.check("x", x.len(), self.total() * i);
        self.check("saved", saved.len(), self.saved_len());
        self.check("dy", dy.len(), self.total() * o);
        self.check("dx", dx.len(), self.total() * i);
        self.check_workspace(workspace.len(), self.workspace_len(1));
        if self.total() == 0 {
            return grads.into_array().into_iter().for_each(|g| g.fill(0.0));
        }
        let dz = take(&mut workspace, self.dz_len());
        let partial = take(&mut workspace, self.partial_len(o));
        let combs = take(&mut workspace, self.combs_len(i.max(o)));
        let spectra = take(&mut workspace, self.spectra_len(i));
        let lanes = take(&mut workspace, self.lanes_len());
        let scratch = workspace;
        let (before, after) = saved.split_at(self.spectra_len(i));

        if self.activation != Activation::None {
            self.spread_output(transform, params, after, &mut combs[..self.combs_len(o)]);
        }
        self.analyze_gradient(transform, params, x, dy, combs, dz, partial, lanes, scratch);
        if self.pointwise {
            sum_lanes(lanes, self.rows.lanes, 0, grads.w);
        }
        self.mix_backward(transform, params, partial, before, spectra, grads.weights, grads.b, scratch);
        let combs = &mut combs[..self.combs_len(i)];
        self.spread(transform, i, spectra, combs);
        let dz = if self.activation == Activation::None { dy } else { dz };
        self.synthesize_gradient(transform, params, dz, combs, dx, scratch);
    }

    /// The first half of A on drop(x).
    fn analyze_input(&self, transform: &impl Transform, x: &[f32], partial: &mut [f32], scratch: &mut [f32]) {
        let (rows, i) = (self.rows, self.inputs);
        let own = pieces(partial, move |lane| self.partial_start(rows.lane_start(lane), i));
        for_each(rows.lanes, own, scratch, self.share(), &|lane, mut partial, scratch| {
            for chunk in rows.lane(lane) {
                let partial = take(&mut partial, self.partial_of_chunk(chunk, i));
                for tile in rows.tiles(chunk) {
                    let mut input = self.slice(&tile, i, x);
                    let (dropped, scratch) = scratch.split_at_mut(input.len());
                    if self.dropout.active() {
                        dropped.copy_from_slice(input);
                        self.dropout.apply(self.position(&tile), dropped);
                        input = dropped;
                    }
                    transform.analyze(rows.chunk_start(chunk), tile, i, input, partial, scratch);
                }
            }
        });
    }

    /// dz = dy·act'(z) with z computed again, its analysis, and xᵀ dz of every lane.
    fn analyze_gradient(
        &self,
        transform: &impl Transform,
        params: &Params,
        x: &[f32],
        dy: &[f32],
        combs: &[f32],
        dz: &mut [f32],
        partial: &mut [f32],
        lanes: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (rows, i, o) = (self.rows, self.inputs, self.outputs);
        let linear = self.activation == Activation::None;
        let dz_row = if linear { 0 } else { self.points * o };
        let own = (
            pieces(dz, move |lane| rows.row_of_lane(lane) * dz_row),
            pieces(partial, move |lane| self.partial_start(rows.lane_start(lane), o)),
            equal(lanes, if self.pointwise { i * o } else { 0 }),
        );
        for_each(rows.lanes, own, scratch, self.share(), &|lane, (mut dz, mut partial, dw), scratch| {
            let mut into = Into::Set;
            for chunk in rows.lane(lane) {
                let partial = take(&mut partial, self.partial_of_chunk(chunk, o));
                for tile in rows.tiles(chunk) {
                    let mut gradient = self.slice(&tile, o, dy);
                    if !linear {
                        let own = take(&mut dz, gradient.len());
                        let (z, scratch) = scratch.split_at_mut(gradient.len());
                        self.pre_activation(transform, params, tile.clone(), x, combs, z, scratch);
                        own.copy_from_slice(gradient);
                        self.activation.backward(z, own);
                        gradient = own;
                    }
                    if self.pointwise {
                        let points = tile.len() * self.points;
                        let input = View::new(self.slice(&tile, i, x), points, i);
                        gemm(into, 1.0, input.t(), View::new(gradient, points, o), ViewMut::new(dw, i, o));
                        into = Into::Add;
                    }
                    transform.analyze(rows.chunk_start(chunk), tile, o, gradient, partial, scratch);
                }
            }
        });
    }

    /// dx = drop(Aᵀ …) + dz Wᵀ from the combs of its spectra.
    fn synthesize_gradient(
        &self,
        transform: &impl Transform,
        params: &Params,
        dz: &[f32],
        combs: &[f32],
        dx: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (rows, i, o) = (self.rows, self.inputs, self.outputs);
        let own = pieces(dx, move |lane| rows.row_of_lane(lane) * self.points * i);
        for_each(rows.lanes, own, scratch, self.share(), &|lane, mut dx, scratch| {
            for tile in rows.lane(lane).flat_map(|chunk| rows.tiles(chunk)) {
                let points = tile.len() * self.points;
                let dx = take(&mut dx, points * i);
                transform.synthesize(tile.clone(), i, self.comb(&tile, i, combs), dx, scratch);
                self.dropout.apply(self.position(&tile), dx);
                if self.pointwise {
                    let dz = View::new(self.slice(&tile, o, dz), points, o);
                    gemm(Into::Add, 1.0, dz, View::new(params.w, i, o).t(), ViewMut::new(dx, points, i));
                }
            }
        });
    }

    /// z of a tile.
    fn pre_activation(
        &self,
        transform: &impl Transform,
        params: &Params,
        tile: Range<usize>,
        x: &[f32],
        combs: &[f32],
        z: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (points, i, o) = (tile.len() * self.points, self.inputs, self.outputs);
        transform.synthesize(tile.clone(), o, self.comb(&tile, o, combs), z, scratch);
        if self.pointwise {
            let input = View::new(self.slice(&tile, i, x), points, i);
            gemm(Into::Add, 1.0, input, View::new(params.w, i, o), ViewMut::new(z, points, o));
        }
    }

    /// Per column: X from the partial transforms, then c Y = c X w, both kept.
    fn mix(
        &self,
        transform: &impl Transform,
        params: &Params,
        partial: &[f32],
        before: &mut [f32],
        after: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (batch, i, o) = (self.rows.samples, self.inputs, self.outputs);
        let own = (equal(before, self.column_len(i)), equal(after, self.column_len(o)));
        for_each(self.columns, own, scratch, self.share(), &|k, (before, after), mut scratch| {
            let expanded = take(&mut scratch, self.expanded_len());
            transform.collect(k, i, partial, before, scratch);
            for slot in 0..self.slots {
                expand(&before[slot * 2 * batch * i..][..2 * batch * i], i, expanded);
                let weights = self.mode(params.weights, k, slot);
                gemm(
                    Into::Set,
                    transform.weight(k),
                    View::new(expanded, 2 * batch, 2 * i),
                    View::new(weights, 2 * i, o),
                    ViewMut::new(&mut after[slot * 2 * batch * o..][..2 * batch * o], 2 * batch, o),
                );
            }
        });
    }

    /// Per column: dY from the partial transforms of dz, then dw, dX and, from frequency zero, db.
    fn mix_backward(
        &self,
        transform: &impl Transform,
        params: &Params,
        partial: &[f32],
        before: &[f32],
        spectra: &mut [f32],
        dweights: &mut [f32],
        db: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (batch, i, o) = (self.rows.samples, self.inputs, self.outputs);
        let bias_len = db.len();
        let own = (
            equal(spectra, self.column_len(i)),
            equal(dweights, self.slots * 2 * i * o),
            pieces(db, move |k| if k == 0 { 0 } else { bias_len }),
        );
        for_each(self.columns, own, scratch, self.share(), &|k, (dx, dweights, db), mut scratch| {
            let dy = take(&mut scratch, self.column_len(o));
            let expanded = take(&mut scratch, self.expanded_len());
            let dexpanded = take(&mut scratch, self.expanded_len());
            transform.collect(k, o, partial, dy, scratch);
            if !db.is_empty() {
                self.bias_gradient(&dy[self.zero_slot * 2 * batch * o..], db);
            }
            for slot in 0..self.slots {
                let modes = k * self.slots + slot;
                expand(&before[modes * 2 * batch * i..][..2 * batch * i], i, expanded);
                let dy = View::new(&dy[slot * 2 * batch * o..], 2 * batch, o);
                let dw = &mut dweights[slot * 2 * i * o..][..2 * i * o];
                let c = transform.weight(k);
                gemm(Into::Set, c, View::new(expanded, 2 * batch, 2 * i).t(), dy, ViewMut::new(dw, 2 * i, o));
                let weights = View::new(self.mode(params.weights, k, slot), 2 * i, o);
                gemm(Into::Set, c, dy, weights.t(), ViewMut::new(dexpanded, 2 * batch, 2 * i));
                fold(dexpanded, i, &mut dx[slot * 2 * batch * i..][..2 * batch * i]);
            }
        });
    }

    /// db = Σ dz = n^{1/2} Σ_b of the real part at frequency zero, `zero` (B, 2, o).
    fn bias_gradient(&self, zero: &[f32], db: &mut [f32]) {
        let scale = self.sqrt_n();
        db.fill(0.0);
        for sample in zero.chunks_exact(2 * self.outputs).take(self.rows.samples) {
            vectorize!(axpy(scale, &sample[..self.outputs], db));
        }
    }

    /// The combs of the mixed spectra, with the bias at frequency zero.
    fn spread_output(&self, transform: &impl Transform, params: &Params, spectra: &[f32], combs: &mut [f32]) {
        self.spread(transform, self.outputs, spectra, combs);
        if self.pointwise {
            for comb in combs.chunks_exact_mut(self.comb * self.outputs) {
                axpy(self.sqrt_n(), params.b, &mut comb[self.zero_in_comb * self.outputs..][..self.outputs]);
            }
        }
    }

    fn spread(&self, transform: &impl Transform, w: usize, spectra: &[f32], combs: &mut [f32]) {
        let own = equal(combs, self.comb * w);
        for_each(self.rows.samples, own, &mut [], 0, &|b, comb, _| transform.spread(b, w, spectra, comb));
    }

    fn sqrt_n(&self) -> f32 {
        ((self.rows.n * self.points) as f64).sqrt() as f32
    }

    fn partial_of_chunk(&self, chunk: usize, w: usize) -> usize {
        self.partial_start(chunk + 1, w) - self.partial_start(chunk, w)
    }

    /// The rows of a tile in an array over all points.
    fn slice<'a>(&self, tile: &Range<usize>, w: usize, data: &'a [f32]) -> &'a [f32] {
        &data[tile.start * self.points * w..tile.end * self.points * w]
    }

    /// The comb of a tile's sample.
    fn comb<'a>(&self, tile: &Range<usize>, w: usize, combs: &'a [f32]) -> &'a [f32] {
        &combs[tile.start / self.rows.n * self.comb * w..][..self.comb * w]
    }

    /// The place of a tile's first input among all inputs, for dropout.
    fn position(&self, tile: &Range<usize>) -> u64 {
        (tile.start * self.points * self.inputs) as u64
    }

    /// The weights of one mode, (2i, o).
    fn mode<'a>(&self, weights: &'a [f32], k: usize, slot: usize) -> &'a [f32] {
        let len = 2 * self.inputs * self.outputs;
        &weights[(k * self.slots + slot) * len..][..len]
    }

    fn check_channels(&self) {
        if self.inputs == 0 || self.outputs == 0 {
            mismatch("spectral convolution without channels", &self.sizes());
        }
    }

    #[track_caller]
    fn check(&self, what: &str, len: usize, expected: usize) {
        check_len(what, len, expected, &self.sizes());
    }

    #[track_caller]
    fn check_workspace(&self, len: usize, needed: usize) {
        check_at_least("workspace", len, needed, &self.sizes());
    }

    fn sizes(&self) -> [(&'static str, usize); 6] {
        [
            ("batch", self.rows.samples),
            ("rows", self.rows.n),
            ("points per row", self.points),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("modes", self.columns),
        ]
    }
}

/// A mode of all samples, (B, 2, i), as the matrix (2B, 2i) that turns complex products into a real one:
/// rows (Re X, −Im X) and (Im X, Re X).
fn expand(mode: &[f32], i: usize, expanded: &mut [f32]) {
    for (x, rows) in mode.chunks_exact(2 * i).zip(expanded.chunks_exact_mut(4 * i)) {
        let (re, im) = x.split_at(i);
        let (of_re, of_im) = rows.split_at_mut(2 * i);
        of_re[..i].copy_from_slice(re);
        of_re[i..].iter_mut().zip(im).for_each(|(e, v)| *e = -v);
        of_im[..i].copy_from_slice(im);
        of_im[i..].copy_from_slice(re);
    }
}

/// The adjoint of [`expand`].
fn fold(expanded: &[f32], i: usize, mode: &mut [f32]) {
    for (x, rows) in mode.chunks_exact_mut(2 * i).zip(expanded.chunks_exact(4 * i)) {
        let (re, im) = x.split_at_mut(i);
        let (of_re, of_im) = rows.split_at(2 * i);
        for c in 0..i {
            re[c] = of_re[c] + of_im[i + c];
            im[c] = of_im[c] - of_re[i + c];
        }
    }
}
