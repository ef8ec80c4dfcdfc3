//! Attention through the n × n matrix, block by block: softmax, and fourier when dropout acts on its weights.
//!
//! ```text
//! S = Q̃K̃ᵀ/√D     softmax: A_ij = w_j exp(S_ij − ℓ_i), ℓ_i = log Σ_j w_j exp(S_ij)     fourier: A_ij = w_j S_ij
//! O = (mask ∘ A) V     out = O W_O + b_O
//! dA = mask ∘ (dO Vᵀ)     softmax: dS = A ∘ (dA − δ), δ_i = dO_i·O_i     fourier: dS_ij = w_j dA_ij
//! dQ̃ = dS K̃/√D     dK̃ = dSᵀ Q̃/√D     dV = (mask ∘ A)ᵀ dO
//! ```
//!
//! w is 1 for softmax and 1/n for fourier, or the quadrature weights. A row of A is never stored: the softmax keeps a running maximum and sum
//! over blocks of keys, and the backward pass computes each block again from ℓ. There a worker owns a *portion* of a sample's keys: their dK̃ and
//! dV, and a dQ̃ of its own of all queries, which are summed afterwards. So every block is computed once.
//!
//! Full-width tensors Q̃, K̃, V, O, dO are (B, n, H·D), heads side by side. K̃ᵀ and Vᵀ are (B, H·D, n): as the right factor of a product a transposed
//! view would be packed again for every tile of queries.
//! Kept for the backward pass: O, and for softmax ℓ (B, n, H).
//!
//! Products whose columns are features leave the coordinates in front of them out, which would cost a vector register's width: those of O are
//! summed row by row, and nobody wants the gradients of coordinates.

use super::heads::{Heads, Side, Tile};
use super::scheme::{NormSums, Tail, share_sums};
use super::{Attention, Grads, Kind, Norm};
use crate::dims::{take, taking};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::simd::{dot, exp, largest, sum, vectorize};
use crate::tile::{add, add_column_sums, set_affine, transpose};
use std::ops::Range;

/// Keys per block: with a tile of queries, their scores and two full-width tiles stay in cache.
const KEYS: usize = 128;
/// Portions of keys over all samples, at least: as many threads can work on a backward pass.
const PORTIONS: usize = 16;

pub(crate) struct Quadratic<'a> {
    heads: &'a Heads<'a>,
    rows: Rows,
    /// H·D
    full: usize,
}

/// Q̃, K̃ᵀ and V or Vᵀ of all points.
#[derive(Clone, Copy)]
struct Sides<'a> {
    q: &'a [f32],
    k_transposed: &'a [f32],
    v: &'a [f32],
}

impl<'a> Quadratic<'a> {
    pub fn new(heads: &'a Heads<'a>) -> Self {
        let full = heads.dims.heads * heads.dims.wide();
        Self { heads, rows: heads.dims.cut(), full }
    }

    pub fn saved_len(dims: &Attention) -> usize {
        dims.batch * dims.n * (dims.heads * dims.wide() + dims.heads)
    }

    fn softmax(&self) -> bool {
        self.heads.dims.kind == Kind::Softmax
    }

    /// Scratch of a worker in any pass.
    fn share<T: Tail>(&self, tail: &T) -> usize {
        let (d, m, heads) = (self.heads.dims.d, self.rows.tile, self.heads.dims.heads);
        m * tail.record_len() + tail.tile_len(m) + m * (self.full + 2 * d + heads + 2 + 2 * KEYS)
    }

    fn grads_len<T: Tail>(&self, tail: &T) -> usize {
        self.heads.dims.lengths().total() + tail.grads_len()
    }

    fn sums_len(&self) -> usize {
        if self.heads.dims.norm == Norm::Instance { 4 * self.heads.dims.d } else { 0 }
    }

    /// Portions of the keys of a sample, of whole blocks.
    fn portions(&self) -> usize {
        PORTIONS.div_ceil(self.rows.samples.max(1)).min(self.rows.n.div_ceil(KEYS)).max(1)
    }

    /// The first key of a portion within its sample.
    fn portion_start(&self, portion: usize) -> usize {
        (self.rows.n.div_ceil(KEYS) * portion / self.portions() * KEYS).min(self.rows.n)
    }

    pub fn workspace_len<T: Tail>(&self, tail: &T, threads: usize) -> usize {
        (7 + self.portions()) * self.rows.total() * self.full
            + self.rows.total() * self.heads.dims.heads
            + self.rows.lanes * self.grads_len(tail)
            + self.rows.samples * self.rows.chunks * self.sums_len()
            + threads.max(1) * self.share(tail)
    }

    /// Workspace of [`weights`](Self::weights).
    pub fn weights_len(&self, threads: usize) -> usize {
        4 * self.rows.total() * self.full + threads.max(1) * self.share(&super::Bare)
    }

    /// Q̃, K̃ and V of all points into three tensors.
    fn project(&self, sides: [&mut [f32]; 3], scratch: &mut [f32], share: usize) {
        let (rows, full, d, heads) = (self.rows, self.full, self.heads.dims.d, self.heads.dims.heads);
        let [q, k, v] = sides;
        let by_row = |l| rows.row_of_lane(l) * full;
        let parts = (pieces(q, by_row), pieces(k, by_row), pieces(v, by_row));
        par::for_each(rows.lanes, parts, scratch, share, &|lane, (q, k, v), scratch| {
            let first = rows.row_of_lane(lane);
            for (sample, tile) in self.tiles(lane) {
                let at = (tile.start - first) * full..(tile.end - first) * full;
                let tile = self.heads.tile(sample, tile);
                let (hat, r) = scratch.split_at_mut(tile.rows * d);
                for (side, out) in [(Side::Q, &mut *q), (Side::K, &mut *k), (Side::V, &mut *v)] {
                    self.heads.normalized(side, &tile, hat, &mut r[..tile.rows * heads]);
                    self.heads.widen(side, &tile, hat, &mut out[at.clone()]);
                }
            }
        });
    }

    /// (n, H·D) of every sample to (H·D, n).
    fn transposed(&self, tensor: &[f32], out: &mut [f32]) {
        let (n, full) = (self.rows.n, self.full);
        par::for_each(self.rows.samples, equal(out, n * full), &mut [], 0, &|sample, out, _| {
            transpose(&tensor[sample * n * full..][..n * full], n, full, out);
        });
    }

    /// The tiles of a lane with their sample.
    fn tiles(&self, lane: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let rows = self.rows;
        rows.lane(lane).flat_map(move |chunk| rows.tiles(chunk).map(move |tile| (chunk / rows.chunks, tile)))
    }

    /// Some keys of a sample in blocks, as rows counted over all samples.
    fn blocks(&self, sample: usize, keys: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (start, end) = (sample * self.rows.n + keys.start, sample * self.rows.n + keys.end);
        (start..end).step_by(KEYS).map(move |s| s..(s + KEYS).min(end))
    }

    /// Rows of head h of a full-width tensor.
    fn head<'v>(&self, tensor: &'v [f32], h: usize, rows: &Range<usize>) -> View<'v> {
        let wide = self.heads.dims.wide();
        View::strided(&tensor[rows.start * self.full + h * wide..], rows.len(), wide, self.full)
    }

    /// The same without the coordinates.
    fn features<'v>(&self, tensor: &'v [f32], h: usize, rows: &Range<usize>) -> View<'v> {
        let (_, e, p, wide, _) = self.heads.dims.letters();
        View::strided(&tensor[rows.start * self.full + h * wide + p..], rows.len(), e, self.full)
    }

    /// Columns of head h of a transposed tensor: (D, keys).
    fn columns<'v>(&self, tensor: &'v [f32], h: usize, keys: &Range<usize>) -> View<'v> {
        let (n, wide) = (self.rows.n, self.heads.dims.wide());
        let (sample, first) = (keys.start / n, keys.start % n);
        View::strided(&tensor[(sample * self.full + h * wide) * n + first..], wide, keys.len(), n)
    }

    /// S of a block of queries and keys.
    fn scores(&self, sides: &Sides, h: usize, queries: &Range<usize>, keys: &Range<usize>, s: &mut [f32]) {
        let scale = 1.0 / (self.heads.dims.wide() as f32).sqrt();
        let (q, k) = (self.head(sides.q, h, queries), self.columns(sides.k_transposed, h, keys));
        gemm(Into::Set, scale, q, k, ViewMut::new(s, queries.len(), keys.len()));
    }

    /// w_j, or the constant that stands for it.
    fn measure(&self, key: usize) -> f32 {
        match (self.heads.input.weights, self.softmax()) {
            (Some(w), _) => w[key],
            (None, true) => 1.0,
            (None, false) => 1.0 / self.heads.dims.n as f32,
        }
    }

    /// Multiplies a block of A, or of its gradient, by its dropout mask.
    fn mask(&self, sample: usize, h: usize, queries: &Range<usize>, keys: &Range<usize>, block: &mut [f32]) {
        let dropout = self.heads.dims.weights_dropout();
        if dropout.active() {
            let (n, first) = (self.rows.n as u64, (sample * self.rows.n) as u64);
            for (row, i) in block.chunks_exact_mut(keys.len()).zip(queries.clone()) {
                let head = (sample * self.heads.dims.heads + h) as u64;
                dropout.apply((head * n + i as u64 - first) * n + keys.start as u64 - first, row);
            }
        }
    }

    /// O of a tile and, for softmax, its ℓ.
    fn attend(
        &self,
        sides: &Sides,
        tile: &Tile,
        o: &mut [f32],
        log_sums: &mut [f32],
        mut scratch: &mut [f32],
    ) {
        let (_, e, p, wide, heads) = self.heads.dims.letters();
        let queries = tile.first..tile.first + tile.rows;
        let s = take(&mut scratch, tile.rows * KEYS);
        let [top, total] = [0; 2].map(|_| take(&mut scratch, tile.rows));
        o.fill(0.0);
        for h in 0..heads {
            top.fill(f32::NEG_INFINITY);
            total.fill(0.0);
            for keys in self.blocks(tile.sample, 0..self.rows.n) {
                let s = &mut s[..tile.rows * keys.len()];
                self.scores(sides, h, &queries, &keys, s);
                if self.softmax() {
                    let o = o[h * wide..].chunks_mut(self.full).map(|o| &mut o[..wide]);
                    self.running_softmax(&keys, s, o, top, total);
                } else {
                    self.weigh(&keys, s);
                }
                self.mask(tile.sample, h, &queries, &keys, s);
                self.add_coordinates(&keys, s, &mut o[h * wide..]);
                let s = View::new(s, tile.rows, keys.len());
                let o = ViewMut::strided(&mut o[h * wide + p..], tile.rows, e, self.full);
                gemm(Into::Add, 1.0, s, self.features(sides.v, h, &keys), o);
            }
            if self.softmax() {
                for r in 0..tile.rows {
                    let scale = 1.0 / total[r];
                    o[r * self.full + h * wide..][..wide].iter_mut().for_each(|o| *o *= scale);
                    log_sums[r * heads + h] = top[r] + total[r].ln();
                }
            }
        }
    }

    /// Adds A times the coordinates of a block of keys to the first columns of a head of O.
    fn add_coordinates(&self, keys: &Range<usize>, a: &[f32], o: &mut [f32]) {
        let p = self.heads.dims.coordinates;
        for axis in 0..p {
            let mut column = [0.0; KEYS];
            let points = self.heads.input.coordinates[keys.start * p..keys.end * p].chunks_exact(p);
            column.iter_mut().zip(points).for_each(|(c, point)| *c = point[axis]);
            vectorize!({
                for (o, a) in o.chunks_mut(self.full).zip(a.chunks_exact(keys.len())) {
                    o[axis] += dot(a, &column[..keys.len()]);
                }
            });
        }
    }

    /// A = w S, in place.
    fn weigh(&self, keys: &Range<usize>, s: &mut [f32]) {
        for row in s.chunks_exact_mut(keys.len()) {
            row.iter_mut().zip(keys.clone()).for_each(|(s, j)| *s *= self.measure(j));
        }
    }

    /// Scores to w exp(S − top), with `top`, `total` and the rows of O brought to the new maxima.
    fn running_softmax<'o>(
        &self,
        keys: &Range<usize>,
        s: &mut [f32],
        o: impl Iterator<Item = &'o mut [f32]>,
        top: &mut [f32],
        total: &mut [f32],
    ) {
        let weights = self.heads.input.weights.map(|w| &w[keys.clone()]);
        vectorize!({
            for (r, (s, o)) in s.chunks_exact_mut(keys.len()).zip(o).enumerate() {
                let larger = largest(top[r], s);
                let scale = exp(top[r] - larger);
                s.iter_mut().for_each(|s| *s = exp(*s - larger));
                if let Some(w) = weights {
                    s.iter_mut().zip(w).for_each(|(s, w)| *s *= w);
                }
                if scale != 1.0 {
                    o.iter_mut().for_each(|o| *o *= scale);
                }
                total[r] = total[r] * scale + sum(s);
                top[r] = larger;
            }
        });
    }

    /// out = base + sign·(O W_O + b_O) of a tile.
    fn output(&self, tile: &Tile, o: &[f32], base: Option<&[f32]>, sign: f32, out: &mut [f32]) {
        let (dims, params) = (&self.heads.dims, self.heads.params);
        if dims.projection {
            set_affine(out, base, sign, params.b_o, &[], &[]);
            let (o, w_o) = (View::new(o, tile.rows, self.full), View::new(params.w_o, self.full, dims.d));
            gemm(Into::Add, sign, o, w_o, ViewMut::new(out, tile.rows, dims.d));
        } else {
            for (i, (out, o)) in out.iter_mut().zip(o).enumerate() {
                *out = base.map_or(0.0, |b| b[i]) + sign * o;
            }
        }
    }

    pub fn forward<T: Tail>(&self, tail: &T, out: &mut [f32], saved: &mut [f32], workspace: &mut [f32]) {
        let (rows, full, d, heads) = (self.rows, self.full, self.heads.dims.d, self.heads.dims.heads);
        let (record_len, share, mut rest) = (tail.record_len(), self.share(tail), workspace);
        let [q, k, v, k_transposed] = [0; 4].map(|_| take(&mut rest, rows.total() * full));
        self.project([q, k, v], rest, share);
        self.transposed(k, k_transposed);
        let sides = Sides { q, k_transposed, v };
        let (o, log_sums) = saved.split_at_mut(rows.total() * full);
        let parts = (
            pieces(out, |l| rows.row_of_lane(l) * d),
            pieces(o, |l| rows.row_of_lane(l) * full),
            pieces(log_sums, |l| rows.row_of_lane(l) * heads),
        );
        par::for_each(rows.lanes, parts, rest, share, &|lane, (out, o, log_sums), scratch| {
            let first = rows.row_of_lane(lane);
            let (record, scratch) = scratch.split_at_mut(rows.tile * record_len);
            for (sample, range) in self.tiles(lane) {
                let at = range.start - first;
                let tile = self.heads.tile(sample, range);
                let o = &mut o[at * full..][..tile.rows * full];
                self.attend(&sides, &tile, o, &mut log_sums[at * heads..][..tile.rows * heads], scratch);
                let out = &mut out[at * d..][..tile.rows * d];
                let record = &mut record[..tile.rows * record_len];
                tail.forward(&tile, record, out, &mut |base, sign, out| {
                    self.output(&tile, o, base, sign, out)
                });
            }
        });
    }

    #[allow(clippy::too_many_arguments)]
    pub fn backward<T: Tail>(
        &self,
        tail: &T,
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        tail_grads: &mut [&mut [f32]],
        workspace: &mut [f32],
    ) {
        let (rows, full, d, heads) = (self.rows, self.full, self.heads.dims.d, self.heads.dims.heads);
        let (wide, projection) = (self.heads.dims.wide(), self.heads.dims.projection);
        let (record_len, share, grads_len) = (tail.record_len(), self.share(tail), self.grads_len(tail));
        let lengths = self.heads.dims.lengths();
        let mut rest = workspace;
        let [q, k, v, do_, k_transposed, v_transposed, dk] =
            [0; 7].map(|_| take(&mut rest, rows.total() * full));
        let dq = take(&mut rest, self.portions() * rows.total() * full);
        let delta = take(&mut rest, rows.total() * heads);
        let lane_grads = take(&mut rest, rows.lanes * grads_len);
        let sums_len = self.sums_len();
        let chunk_sums = take(&mut rest, rows.samples * rows.chunks * sums_len);
        self.project([q, k, v], rest, share);
        self.transposed(k, k_transposed);
        self.transposed(v, v_transposed);
        let (sides, dv) = (Sides { q, k_transposed, v: v_transposed }, v);
        let (o, log_sums) = saved.split_at(rows.total() * full);

        // Tail and output projection: dO and δ.
        let parts = (
            pieces(dx, |l| rows.row_of_lane(l) * d),
            pieces(do_, |l| rows.row_of_lane(l) * full),
            pieces(delta, |l| rows.row_of_lane(l) * heads),
            equal(lane_grads, grads_len),
        );
        par::for_each(rows.lanes, parts, rest, share, &|lane, (dx, do_, delta, lane_grads), scratch| {
            lane_grads.fill(0.0);
            let (tail_grads, lane_grads) = lane_grads.split_at_mut(tail.grads_len());
            let grads = lengths.map(taking(lane_grads));
            let first = rows.row_of_lane(lane);
            for (sample, range) in self.tiles(lane) {
                let at = range.start - first;
                let tile = self.heads.tile(sample, range.clone());
                let o = &o[range.start * full..range.end * full];
                let (dx, m) = (&mut dx[at * d..][..tile.rows * d], tile.rows);
                let dy = &dy[range.start * d..range.end * d];
                let (record, scratch) = scratch.split_at_mut(m * record_len);
                tail.record(&tile, record, &mut |base, sign, out| self.output(&tile, o, base, sign, out));
                let da = tail.backward(&tile, record, dy, dx, tail_grads, scratch);
                let do_ = &mut do_[at * full..][..m * full];
                if projection {
                    let (da_view, w_o) = (View::new(da, m, d), View::new(self.heads.params.w_o, full, d));
                    gemm(
                        Into::Add,
                        1.0,
                        View::new(o, m, full).t(),
                        da_view,
                        ViewMut::new(grads.w_o, full, d),
                    );
                    add_column_sums(da, grads.b_o);
                    gemm(Into::Set, 1.0, da_view, w_o.t(), ViewMut::new(do_, m, full));
                } else {
                    do_.copy_from_slice(da);
                }
                let delta = &mut delta[at * heads..][..m * heads];
                for ((delta, o), do_) in
                    delta.iter_mut().zip(o.chunks_exact(wide)).zip(do_.chunks_exact(wide))
                {
                    *delta = dot(o, do_);
                }
            }
        });

        // Scores: dK̃ and dV of a portion of keys, and its part of dQ̃.
        let (portions, n) = (self.portions(), rows.n);
        let by_portion = |item: usize| (item / portions * n + self.portion_start(item % portions)) * full;
        let parts = (pieces(&mut *dk, by_portion), pieces(&mut *dv, by_portion), equal(dq, n * full));
        let incoming = Incoming { log_sums, do_, delta };
        par::for_each(rows.samples * portions, parts, rest, share, &|item, (dk, dv, dq), scratch| {
            let (sample, portion) = (item / portions, item % portions);
            let keys = self.portion_start(portion)..self.portion_start(portion + 1);
            self.portion_backward(&sides, k, &incoming, sample, keys, [dq, dk, dv], scratch);
        });

        // Projections. Twice where Q and K are normalised over the points.
        let (dq, dk, dv) = (&*dq, &*dk, &*dv);
        let passes = if sums_len > 0 { [true, false].as_slice() } else { [false].as_slice() };
        for &collect in passes {
            let parts = (
                pieces(dx, |l| rows.row_of_lane(l) * d),
                equal(lane_grads, grads_len),
                pieces(chunk_sums, |l| rows.lane_start(l) * sums_len),
            );
            par::for_each(rows.lanes, parts, rest, share, &|lane, (dx, lane_grads, sums), scratch| {
                let first = rows.row_of_lane(lane);
                let mut grads = lengths.map(taking(&mut lane_grads[tail.grads_len()..]));
                if collect {
                    sums.fill(0.0);
                }
                for (i, chunk) in rows.lane(lane).enumerate() {
                    let (own, sample) = (&mut sums[i * sums_len..][..sums_len], chunk / rows.chunks);
                    for range in rows.tiles(chunk) {
                        let mut scratch = &mut *scratch;
                        let total = take(&mut scratch, range.len() * full);
                        // The parts of dQ̃ that the portions have, in their order.
                        let at = (range.start - sample * n) * full..(range.end - sample * n) * full;
                        let part =
                            |portion: usize| &dq[(sample * portions + portion) * n * full..][at.clone()];
                        total.copy_from_slice(part(0));
                        (1..portions).for_each(|portion| add(total, part(portion)));
                        let rows_of = range.start * full..range.end * full;
                        let sides =
                            [(Side::Q, &*total), (Side::K, &dk[rows_of.clone()]), (Side::V, &dv[rows_of])];
                        let dx = &mut dx[(range.start - first) * d..(range.end - first) * d];
                        let mut sums = if collect { NormSums::Collect(own) } else { NormSums::Known(own) };
                        let tile = self.heads.tile(sample, range);
                        let [hat, g] = [0; 2].map(|_| take(&mut scratch, tile.rows * d));
                        let r = take(&mut scratch, tile.rows * heads);
                        for (side, gradient) in sides {
                            self.heads.normalized(side, &tile, hat, r);
                            let normalized = (&*hat, &*r);
                            self.heads.widened_backward(
                                side, &tile, normalized, gradient, &mut sums, dx, &mut grads, g,
                            );
                        }
                    }
                }
            });
            if collect {
                share_sums(rows, chunk_sums, sums_len);
            }
        }

        let mut at = 0;
        for grad in tail_grads.iter_mut().map(|g| &mut **g).chain(grads.into_array()) {
            sum_lanes(lane_grads, rows.lanes, at, grad);
            at += grad.len();
        }
    }

    /// dK̃ and dV of a portion of a sample's keys, and its part of dQ̃ of all queries; in place of the coordinates' gradients there are zeros.
    #[allow(clippy::too_many_arguments)]
    fn portion_backward(
        &self,
        sides: &Sides,
        k: &[f32],
        incoming: &Incoming,
        sample: usize,
        keys: Range<usize>,
        [dq, dk, dv]: [&mut [f32]; 3],
        mut scratch: &mut [f32],
    ) {
        let ((_, e, p, wide, heads), full, n) = (self.heads.dims.letters(), self.full, self.rows.n);
        let (scale, tile, start) = (1.0 / (wide as f32).sqrt(), self.rows.tile, sample * n);
        let [a, ds] = [0; 2].map(|_| take(&mut scratch, tile * KEYS));
        [&mut *dq, &mut *dk, &mut *dv].into_iter().for_each(|g| g.fill(0.0));
        for h in 0..heads {
            for keys_of_block in self.blocks(sample, keys.clone()) {
                let m = keys_of_block.len();
                let own = (keys_of_block.start - start - keys.start) * full + h * wide + p;
                for first in (0..n).step_by(tile) {
                    let queries = start + first..start + (first + tile).min(n);
                    let (a, ds) = (&mut a[..queries.len() * m], &mut ds[..queries.len() * m]);
                    self.block_backward(sides, incoming, sample, h, &queries, &keys_of_block, a, ds);
                    let (a, ds) = (View::new(a, queries.len(), m), View::new(ds, queries.len(), m));
                    let dv = ViewMut::strided(&mut dv[own..], m, e, full);
                    gemm(Into::Add, 1.0, a.t(), self.features(incoming.do_, h, &queries), dv);
                    let dk = ViewMut::strided(&mut dk[own..], m, e, full);
                    gemm(Into::Add, scale, ds.t(), self.features(sides.q, h, &queries), dk);
                    let dq = ViewMut::strided(&mut dq[first * full + h * wide + p..], queries.len(), e, full);
                    gemm(Into::Add, scale, ds, self.features(k, h, &keys_of_block), dq);
                }
            }
        }
    }

    /// mask ∘ A and dS of a block.
    #[allow(clippy::too_many_arguments)]
    fn block_backward(
        &self,
        sides: &Sides,
        incoming: &Incoming,
        sample: usize,
        h: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        a: &mut [f32],
        ds: &mut [f32],
    ) {
        let heads = self.heads.dims.heads;
        self.scores(sides, h, queries, keys, a);
        let (do_, v) = (self.head(incoming.do_, h, queries), self.columns(sides.v, h, keys));
        gemm(Into::Set, 1.0, do_, v, ViewMut::new(ds, queries.len(), keys.len()));
        self.mask(sample, h, queries, keys, ds);
        if self.softmax() {
            let weights = self.heads.input.weights.map(|w| &w[keys.clone()]);
            vectorize!({
                let blocks = a.chunks_exact_mut(keys.len()).zip(ds.chunks_exact_mut(keys.len()));
                for ((a, ds), i) in blocks.zip(queries.clone()) {
                    let (log_sum, delta) = (incoming.log_sums[i * heads + h], incoming.delta[i * heads + h]);
                    a.iter_mut().for_each(|a| *a = exp(*a - log_sum));
                    if let Some(w) = weights {
                        a.iter_mut().zip(w).for_each(|(a, w)| *a *= w);
                    }
                    a.iter().zip(ds).for_each(|(a, ds)| *ds = a * (*ds - delta));
                }
            });
        } else {
            self.weigh(keys, a);
            self.weigh(keys, ds);
        }
        self.mask(sample, h, queries, keys, a);
    }

    /// The matrix mask ∘ A, (B, H, n, n).
    pub fn weights(&self, out: &mut [f32], workspace: &mut [f32]) {
        let (rows, full, n, heads) = (self.rows, self.full, self.rows.n, self.heads.dims.heads);
        let (share, mut rest) = (self.share(&super::Bare), workspace);
        let [q, k, v, k_transposed] = [0; 4].map(|_| take(&mut rest, rows.total() * full));
        self.project([q, k, v], rest, share);
        self.transposed(k, k_transposed);
        let sides = Sides { q, k_transposed, v };
        par::for_each(rows.samples * heads, equal(out, n * n), &mut [], 0, &|item, out, _| {
            let (sample, h) = (item / heads, item % heads);
            let all = sample * n..(sample + 1) * n;
            self.scores(&sides, h, &all, &all, out);
            if self.softmax() {
                for row in out.chunks_exact_mut(n) {
                    let top = row.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
                    row.iter_mut().zip(all.clone()).for_each(|(s, j)| *s = self.measure(j) * exp(*s - top));
                    let scale = 1.0 / sum(row);
                    row.iter_mut().for_each(|s| *s *= scale);
                }
            } else {
                self.weigh(&all, out);
            }
            self.mask(sample, h, &all, &all, out);
        });
    }
}

/// What the backward pass knows of each row before it turns to the scores.
struct Incoming<'a> {
    log_sums: &'a [f32],
    do_: &'a [f32],
    delta: &'a [f32],
}
