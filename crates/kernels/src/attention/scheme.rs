//! Attention at linear cost, in five steps that every such type fills in its own way.
//!
//! ```text
//! forward    moments    sums over the points of a sample: K̃ᵀṼ and the like        tiles
//!            fold       everything that is the same at all points, in one matrix   samples
//!            apply      its product with each point                                tiles
//! backward   apply_backward, fold_backward, moments_backward: the same steps, last to first
//! ```
//!
//! What follows the attention at a point (nothing, or the rest of the encoder layer) is a [`Tail`]: it runs on each tile right after
//! `apply`, while the tile is in cache. Three things are known of every point: its keys, its queries and the tail's record. With
//! [`keep`](super::Attention::keep) they wait for the backward pass; without, only the moments do, O(d²) per sample, and they are computed again
//! from x, which gives the same bits.

use super::heads::{Heads, Tile};
use super::{Attention, Grads, Norm, Parameters, blocks};
use std::ops::Range;

use crate::dims::{take, taking};
use crate::norm::{add_column_statistics, finish_statistics, merge_column_statistics};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::tile::add;

/// What differs between the types.
pub(crate) trait Scheme: Sync {
    /// Values of the sums over the points of one sample.
    fn moments_len(&self) -> usize;
    /// Values of what `fold` makes of them.
    fn folded_len(&self) -> usize;
    /// Values of the gradient of that part of `folded` which `apply` reads.
    fn folded_gradient_len(&self) -> usize;
    /// Values of the gradient of the moments.
    fn moments_gradient_len(&self) -> usize;
    /// Values of the keys and of the queries at one point.
    fn keys_len(&self) -> usize;
    fn queries_len(&self) -> usize;
    /// Scratch of any step on a tile of `rows` rows.
    fn tile_len(&self, rows: usize) -> usize;
    /// Scratch of either fold.
    fn fold_len(&self) -> usize;
    /// Which gradients of parameters come from the passes over points; the fold gives the others.
    fn by_rows(&self) -> Parameters<bool>;
    /// Whether `apply_backward` passes through a norm over points, whose sums need a pass of their own first.
    fn norm_in_apply(&self) -> bool;

    fn clear(&self, moments: &mut [f32]) {
        moments.fill(0.0);
    }
    /// What `add_moments` and `moments_backward` look at.
    fn keys(&self, tile: &Tile, keys: &mut [f32]);
    fn add_moments(&self, tile: &Tile, keys: &[f32], moments: &mut [f32], scratch: &mut [f32]);
    fn merge(&self, moments: &mut [f32], more: &[f32]) {
        add(moments, more);
    }
    fn fold(&self, sample: usize, moments: &[f32], folded: &mut [f32], scratch: &mut [f32]);
    /// The attention weights (H, D, D) within what `fold` made.
    fn weights<'a>(&self, folded: &'a [f32]) -> &'a [f32];
    /// What `apply` and `apply_backward` look at.
    fn queries(&self, tile: &Tile, queries: &mut [f32], scratch: &mut [f32]);
    /// `out = base + sign·attention`, base being 0 if there is none.
    fn apply(
        &self,
        tile: &Tile,
        queries: &[f32],
        folded: &[f32],
        base: Option<&[f32]>,
        sign: f32,
        out: &mut [f32],
    );

    /// Adds to dx, to the gradients of `folded` and of parameters, from the gradient `da` of the attention.
    #[allow(clippy::too_many_arguments)]
    fn apply_backward(
        &self,
        tile: &Tile,
        queries: &[f32],
        folded: &[f32],
        da: &[f32],
        norm_sums: NormSums,
        dx: &mut [f32],
        dfolded: &mut [f32],
        grads: &mut Grads,
        scratch: &mut [f32],
    );
    /// Sets the gradient of the moments and adds to those of parameters. `dfolded` may be overwritten.
    #[allow(clippy::too_many_arguments)]
    fn fold_backward(
        &self,
        sample: usize,
        moments: &[f32],
        folded: &[f32],
        dfolded: &mut [f32],
        dmoments: &mut [f32],
        grads: &mut Grads,
        scratch: &mut [f32],
    );
    /// Adds to dx and to the gradients of parameters.
    #[allow(clippy::too_many_arguments)]
    fn moments_backward(
        &self,
        tile: &Tile,
        keys: &[f32],
        moments: &[f32],
        dmoments: &[f32],
        norm_sums: NormSums,
        dx: &mut [f32],
        grads: &mut Grads,
        scratch: &mut [f32],
    );
}

/// The sums over points that the backward pass of a norm over points needs, `[Σ g | Σ g ẑ]` of K and of its partner (4d).
pub(crate) enum NormSums<'a> {
    /// They are being collected: add this tile's share and do nothing else.
    Collect(&'a mut [f32]),
    /// They are known (or not needed: then they are empty).
    Known(&'a [f32]),
}

/// What happens to a point after the attention.
pub(crate) trait Tail: Sync {
    /// Values of the record of one point.
    fn record_len(&self) -> usize;
    /// Scratch of the backward pass on a tile of `rows` rows.
    fn tile_len(&self, rows: usize) -> usize;
    /// Values of the gradients of its parameters.
    fn grads_len(&self) -> usize;
    /// What the backward pass looks at, from the tile's x and its attention, which `apply(base, sign, out)` computes.
    fn record(&self, tile: &Tile, record: &mut [f32], apply: Apply);
    /// `record` and `out`.
    fn forward(&self, tile: &Tile, record: &mut [f32], out: &mut [f32], apply: Apply);
    /// Sets `dx`, adds to `grads`, and returns the gradient of the attention.
    fn backward<'a>(
        &self,
        tile: &Tile,
        record: &[f32],
        dy: &'a [f32],
        dx: &mut [f32],
        grads: &mut [f32],
        scratch: &'a mut [f32],
    ) -> &'a [f32];
}

/// `(base, sign, out)`: out = base + sign·attention of the tile at hand.
pub(crate) type Apply<'a> = &'a mut dyn FnMut(Option<&[f32]>, f32, &mut [f32]);

/// No tail: the attention is the output.
pub(crate) struct Bare;

impl Tail for Bare {
    fn record_len(&self) -> usize {
        0
    }
    fn tile_len(&self, _: usize) -> usize {
        0
    }
    fn grads_len(&self) -> usize {
        0
    }
    fn record(&self, _: &Tile, _: &mut [f32], _: Apply) {}
    fn forward(&self, _: &Tile, _: &mut [f32], out: &mut [f32], apply: Apply) {
        apply(None, 1.0, out);
    }
    fn backward<'a>(
        &self,
        _: &Tile,
        _: &[f32],
        dy: &'a [f32],
        dx: &mut [f32],
        _: &mut [f32],
        _: &'a mut [f32],
    ) -> &'a [f32] {
        dx.fill(0.0);
        dy
    }
}

/// Sizes of all buffers of a call; every length is a function of the layer's shape and the number of threads.
pub(crate) struct Buffers {
    pub rows: Rows,
    /// Scratch of a worker, and in it that of the tail.
    share: usize,
    tail: usize,
    /// Keys, queries and records of all points.
    points: Points,
    /// Parameters whose gradients the passes over points sum, in lanes; and those of the fold, in runs of samples.
    by_rows: Parameters<usize>,
    by_fold: Parameters<usize>,
    tail_grads: usize,
    sample_lanes: usize,
    norm_sums: usize,
}

impl Buffers {
    pub fn new<S: Scheme, T: Tail>(heads: &Heads, scheme: &S, tail: &T) -> Self {
        let dims = &heads.dims;
        let rows = dims.cut();
        let pick = |wanted: bool| {
            let lengths = dims.lengths().zip(scheme.by_rows());
            lengths.map(|(len, by_rows)| if by_rows == wanted { len } else { 0 })
        };
        let (points, tail_len) = (Points::new(dims, scheme, tail), tail.tile_len(rows.tile));
        let [keys, queries, record] =
            [points.keys, points.queries, points.records].map(|own| own.scratch_len(rows.tile));
        let of_points = keys.max(queries + record + tail_len);
        let share = (of_points + scheme.tile_len(rows.tile)).max(scheme.fold_len());
        let norm_sums = if dims.norm == Norm::Instance { 4 * dims.d } else { 0 };
        Self {
            rows,
            share,
            tail: tail_len,
            points,
            by_rows: pick(true),
            by_fold: pick(false),
            tail_grads: tail.grads_len(),
            sample_lanes: dims.batch.clamp(1, 32),
            norm_sums,
        }
    }

    fn samples_of(&self, lane: usize) -> std::ops::Range<usize> {
        let start = |l| self.rows.samples * l / self.sample_lanes;
        start(lane)..start(lane + 1)
    }

    fn chunks(&self) -> usize {
        self.rows.samples * self.rows.chunks
    }

    fn row_grads(&self) -> usize {
        self.by_rows.total() + self.tail_grads
    }

    fn fold_grads(&self) -> usize {
        self.by_fold.total()
    }

    pub fn forward_len<S: Scheme>(&self, scheme: &S, threads: usize) -> usize {
        self.chunks() * scheme.moments_len()
            + self.rows.samples * scheme.folded_len()
            + threads.max(1) * self.share
            + self.chunks() * self.norm_sums
    }

    pub fn backward_len<S: Scheme>(&self, scheme: &S, threads: usize) -> usize {
        self.rows.samples * (scheme.folded_len() + scheme.moments_gradient_len())
            + self.chunks() * (scheme.folded_gradient_len() + self.norm_sums)
            + self.rows.lanes * self.row_grads()
            + self.sample_lanes * self.fold_grads()
            + threads.max(1) * self.share
    }
}

/// Keys, queries and records: what is known of every point.
#[derive(Clone, Copy)]
pub(crate) struct Points {
    keys: PerPoint,
    queries: PerPoint,
    records: PerPoint,
}

impl Points {
    pub fn new<S: Scheme, T: Tail>(dims: &Attention, scheme: &S, tail: &T) -> Self {
        let kept = dims.keep;
        Self {
            keys: PerPoint { len: scheme.keys_len(), kept },
            queries: PerPoint { len: scheme.queries_len(), kept },
            records: PerPoint { len: tail.record_len(), kept },
        }
    }

    /// Values kept of so many points.
    pub fn kept_len(&self, points: usize) -> usize {
        self.kept_lens(points).iter().sum()
    }

    fn kept_lens(&self, points: usize) -> [usize; 3] {
        [self.keys, self.queries, self.records].map(|own| own.kept_len(points))
    }
}

/// Values of every point: kept until the backward pass, or in a worker's scratch, a tile at a time.
#[derive(Clone, Copy)]
struct PerPoint {
    len: usize,
    kept: bool,
}

impl PerPoint {
    fn kept_len(&self, points: usize) -> usize {
        if self.kept { points * self.len } else { 0 }
    }

    fn scratch_len(&self, tile: usize) -> usize {
        if self.kept { 0 } else { tile * self.len }
    }

    /// Room for the values of a tile; `kept` begins with the row that `rows` counts from.
    fn room<'a>(&self, kept: &'a mut [f32], scratch: &'a mut [f32], rows: Range<usize>) -> &'a mut [f32] {
        let memory = if self.kept { &mut kept[rows.start * self.len..] } else { scratch };
        &mut memory[..rows.len() * self.len]
    }

    /// The values of a tile, as they were kept or as `again` computes them.
    fn find<'a>(
        &self,
        kept: &'a [f32],
        scratch: &'a mut [f32],
        rows: Range<usize>,
        again: impl FnOnce(&mut [f32]),
    ) -> &'a [f32] {
        if self.kept {
            return &kept[rows.start * self.len..rows.end * self.len];
        }
        let values = &mut scratch[..rows.len() * self.len];
        again(values);
        values
    }
}

/// The statistics of the norm over points, `[mean | r]` of K and its partner per sample, from the projections.
pub(crate) fn point_statistics(heads: &Heads, statistics: &mut [f32], workspace: &mut [f32]) {
    use super::heads::Side;
    let (dims, rows) = (heads.dims, heads.dims.cut());
    let (d, len) = (dims.d, 4 * dims.d);
    let partner = if dims.norm_on_v() { Side::V } else { Side::Q };
    let (chunk_statistics, scratch) = workspace.split_at_mut(rows.samples * rows.chunks * len);
    let parts = pieces(chunk_statistics, |l| rows.lane_start(l) * len);
    par::for_each(rows.lanes, parts, scratch, rows.tile * d, &|lane, part, scratch| {
        for (chunk, part) in rows.lane(lane).zip(part.chunks_exact_mut(len)) {
            for tile in rows.tiles(chunk) {
                let seen = tile.start - rows.chunk_start(chunk);
                let tile = heads.tile(chunk / rows.chunks, tile);
                let z = &mut scratch[..tile.rows * d];
                for (side, own) in [Side::K, partner].into_iter().zip(part.chunks_exact_mut(2 * d)) {
                    heads.project(side, &tile, z);
                    add_column_statistics(z, seen, own);
                }
            }
        }
    });
    for (sample, all) in statistics.chunks_exact_mut(len).enumerate() {
        let first = rows.chunk_start(sample * rows.chunks);
        for chunk in sample * rows.chunks..(sample + 1) * rows.chunks {
            let (start, end) = (rows.chunk_start(chunk), rows.chunk_start(chunk + 1));
            for (all, own) in
                all.chunks_exact_mut(2 * d).zip(chunk_statistics[chunk * len..][..len].chunks_exact(2 * d))
            {
                merge_column_statistics(all, start - first, own, end - start);
            }
        }
        all.chunks_exact_mut(2 * d).for_each(|own| finish_statistics(own, dims.n, dims.eps));
    }
}

/// Moments of every sample into `moments`, their fold into `folded`, and the keys into `kept` if they are to be kept.
fn sum_and_fold<S: Scheme>(
    heads: &Heads,
    scheme: &S,
    buffers: &Buffers,
    moments: &mut [f32],
    kept: &mut [f32],
    folded: &mut [f32],
    workspace: &mut [f32],
) {
    let (rows, len, mut rest) = (buffers.rows, scheme.moments_len(), workspace);
    let chunk_moments = take(&mut rest, buffers.chunks() * len);
    let keys = buffers.points.keys;
    let parts = (
        pieces(chunk_moments, |l| rows.lane_start(l) * len),
        pieces(kept, |l| keys.kept_len(rows.row_of_lane(l))),
    );
    par::for_each(rows.lanes, parts, rest, buffers.share, &|lane, (part, kept), scratch| {
        let first = rows.row_of_lane(lane);
        let (room, scratch) = scratch.split_at_mut(keys.scratch_len(rows.tile));
        for (chunk, part) in rows.lane(lane).zip(part.chunks_exact_mut(len)) {
            scheme.clear(part);
            for tile in rows.tiles(chunk) {
                let keys = keys.room(kept, room, tile.start - first..tile.end - first);
                let tile = heads.tile(chunk / rows.chunks, tile);
                scheme.keys(&tile, keys);
                scheme.add_moments(&tile, keys, part, scratch);
            }
        }
    });
    let parts = (equal(moments, len), equal(folded, scheme.folded_len()));
    par::for_each(rows.samples, parts, rest, buffers.share, &|sample, (moments, folded), scratch| {
        let mut chunks = chunk_moments[sample * rows.chunks * len..][..rows.chunks * len].chunks_exact(len);
        moments.copy_from_slice(chunks.next().expect("a sample has at least one chunk"));
        chunks.for_each(|more| scheme.merge(moments, more));
        scheme.fold(sample, moments, folded, scratch);
    });
}

/// The attention weights after dropout, (B, H, D, D).
pub(crate) fn weights<S: Scheme>(heads: &Heads, scheme: &S, out: &mut [f32], workspace: &mut [f32]) {
    let (buffers, mut rest) = (Buffers::new(heads, scheme, &Bare), workspace);
    let samples = buffers.rows.samples;
    let mut moments = vec![0.0; samples * scheme.moments_len()];
    let mut kept = vec![0.0; buffers.points.keys.kept_len(buffers.rows.total())];
    let folded = take(&mut rest, samples * scheme.folded_len());
    sum_and_fold(heads, scheme, &buffers, &mut moments, &mut kept, folded, rest);
    for (out, folded) in
        out.chunks_exact_mut(out.len() / samples).zip(folded.chunks_exact(scheme.folded_len()))
    {
        out.copy_from_slice(scheme.weights(folded));
    }
}

/// out (B, n, d), and for the backward pass the moments (B, moments_len) and what is kept of the points.
pub(crate) fn forward<S: Scheme, T: Tail>(
    heads: &Heads,
    scheme: &S,
    tail: &T,
    out: &mut [f32],
    mut saved: &mut [f32],
    workspace: &mut [f32],
) {
    let (buffers, d, mut rest) = (Buffers::new(heads, scheme, tail), heads.dims.d, workspace);
    let (rows, len) = (buffers.rows, scheme.folded_len());
    let Points { queries, records, .. } = buffers.points;
    let moments = take(&mut saved, rows.samples * scheme.moments_len());
    let [kept_keys, kept_queries, kept_records] = blocks(saved, buffers.points.kept_lens(rows.total()));
    let folded = take(&mut rest, rows.samples * len);
    sum_and_fold(heads, scheme, &buffers, moments, kept_keys, folded, rest);
    let parts = (
        pieces(out, |l| rows.row_of_lane(l) * d),
        pieces(kept_queries, |l| queries.kept_len(rows.row_of_lane(l))),
        pieces(kept_records, |l| records.kept_len(rows.row_of_lane(l))),
    );
    par::for_each(
        rows.lanes,
        parts,
        rest,
        buffers.share,
        &|lane, (out, kept_queries, kept_records), scratch| {
            let first = rows.row_of_lane(lane);
            let (queries_room, scratch) = scratch.split_at_mut(queries.scratch_len(rows.tile));
            let (record_room, scratch) = scratch.split_at_mut(records.scratch_len(rows.tile));
            for chunk in rows.lane(lane) {
                let sample = chunk / rows.chunks;
                let folded = &folded[sample * len..][..len];
                for tile in rows.tiles(chunk) {
                    let own = tile.start - first..tile.end - first;
                    let out = &mut out[own.start * d..own.end * d];
                    let queries = queries.room(kept_queries, queries_room, own.clone());
                    let record = records.room(kept_records, record_room, own);
                    let tile = heads.tile(sample, tile);
                    scheme.queries(&tile, queries, scratch);
                    tail.forward(&tile, record, out, &mut |base, sign, out| {
                        scheme.apply(&tile, queries, folded, base, sign, out)
                    });
                }
            }
        },
    );
}

/// dx (B, n, d), the gradients of the attention's parameters and those of the tail, all overwritten.
#[allow(clippy::too_many_arguments)]
pub(crate) fn backward<S: Scheme, T: Tail>(
    heads: &Heads,
    scheme: &S,
    tail: &T,
    saved: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    grads: Grads,
    tail_grads: &mut [&mut [f32]],
    workspace: &mut [f32],
) {
    let (buffers, d, mut rest) = (Buffers::new(heads, scheme, tail), heads.dims.d, workspace);
    let rows = buffers.rows;
    let (folded_len, moments_len) = (scheme.folded_len(), scheme.moments_len());
    let (dfolded_len, dmoments_len) = (scheme.folded_gradient_len(), scheme.moments_gradient_len());
    let sums_len = buffers.norm_sums;
    let Points { keys, queries, records } = buffers.points;
    let [keys_len, queries_len, _] = buffers.points.kept_lens(rows.total());
    let (moments, kept) = saved.split_at(rows.samples * moments_len);
    let (kept_keys, kept) = kept.split_at(keys_len);
    let (kept_queries, kept_records) = kept.split_at(queries_len);
    let folded = take(&mut rest, rows.samples * folded_len);
    let dmoments = take(&mut rest, rows.samples * dmoments_len);
    let dfolded = take(&mut rest, buffers.chunks() * dfolded_len);
    let chunk_sums = take(&mut rest, buffers.chunks() * sums_len);
    let row_grads = take(&mut rest, rows.lanes * buffers.row_grads());
    let fold_grads = take(&mut rest, buffers.sample_lanes * buffers.fold_grads());

    par::for_each(
        rows.samples,
        equal(folded, folded_len),
        rest,
        buffers.share,
        &|sample, folded, scratch| {
            scheme.fold(sample, &moments[sample * moments_len..][..moments_len], folded, scratch);
        },
    );

    // Points to fold: the tail and `apply`, last step first. Twice where a norm over points stands in between.
    let passes =
        if sums_len > 0 && scheme.norm_in_apply() { [true, false].as_slice() } else { [false].as_slice() };
    for &collect in passes {
        let parts = (
            pieces(dx, |l| rows.row_of_lane(l) * d),
            pieces(dfolded, |l| rows.lane_start(l) * dfolded_len),
            pieces(chunk_sums, |l| rows.lane_start(l) * sums_len),
            equal(row_grads, buffers.row_grads()),
        );
        par::for_each(
            rows.lanes,
            parts,
            rest,
            buffers.share,
            &|lane, (dx, dfolded, sums, lane_grads), scratch| {
                let first = rows.row_of_lane(lane);
                let (queries_room, scratch) = scratch.split_at_mut(queries.scratch_len(rows.tile));
                let (record_room, scratch) = scratch.split_at_mut(records.scratch_len(rows.tile));
                let (tail_scratch, scratch) = scratch.split_at_mut(buffers.tail);
                lane_grads.fill(0.0);
                let (tail_grads, lane_grads) = lane_grads.split_at_mut(buffers.tail_grads);
                let mut grads = buffers.by_rows.map(taking(lane_grads));
                dfolded.fill(0.0);
                if collect {
                    sums.fill(0.0);
                }
                for (i, chunk) in rows.lane(lane).enumerate() {
                    let sample = chunk / rows.chunks;
                    let folded = &folded[sample * folded_len..][..folded_len];
                    let dfolded = &mut dfolded[i * dfolded_len..][..dfolded_len];
                    let own_sums = &mut sums[i * sums_len..][..sums_len];
                    for tile in rows.tiles(chunk) {
                        let dy = &dy[tile.start * d..tile.end * d];
                        let dx = &mut dx[(tile.start - first) * d..(tile.end - first) * d];
                        let range = tile.clone();
                        let tile = heads.tile(sample, tile);
                        let queries = queries.find(kept_queries, queries_room, range.clone(), |queries| {
                            scheme.queries(&tile, queries, scratch)
                        });
                        let record = records.find(kept_records, record_room, range, |record| {
                            tail.record(&tile, record, &mut |base, sign, out| {
                                scheme.apply(&tile, queries, folded, base, sign, out)
                            })
                        });
                        let da = tail.backward(&tile, record, dy, dx, tail_grads, tail_scratch);
                        let sums =
                            if collect { NormSums::Collect(own_sums) } else { NormSums::Known(own_sums) };
                        scheme.apply_backward(
                            &tile, queries, folded, da, sums, dx, dfolded, &mut grads, scratch,
                        );
                    }
                }
            },
        );
        if collect {
            share_sums(rows, chunk_sums, sums_len);
        }
    }

    // Fold to moments.
    let parts = (
        pieces(dmoments, |l| buffers.samples_of(l).start * dmoments_len),
        pieces(dfolded, |l| buffers.samples_of(l).start * rows.chunks * dfolded_len),
        equal(fold_grads, buffers.fold_grads()),
    );
    par::for_each(
        buffers.sample_lanes,
        parts,
        rest,
        buffers.share,
        &|lane, (dmoments, dfolded, grads), scratch| {
            grads.fill(0.0);
            let mut grads = buffers.by_fold.map(taking(grads));
            for (i, sample) in buffers.samples_of(lane).enumerate() {
                let per_sample = &mut dfolded[i * rows.chunks * dfolded_len..][..rows.chunks * dfolded_len];
                let (total, more) = per_sample.split_at_mut(dfolded_len);
                more.chunks_exact(dfolded_len).for_each(|more| add(total, more));
                scheme.fold_backward(
                    sample,
                    &moments[sample * moments_len..][..moments_len],
                    &folded[sample * folded_len..][..folded_len],
                    total,
                    &mut dmoments[i * dmoments_len..][..dmoments_len],
                    &mut grads,
                    scratch,
                );
            }
        },
    );

    // Moments to points. Twice where K or its partner is normalised over the points.
    let passes = if sums_len > 0 { [true, false].as_slice() } else { [false].as_slice() };
    for &collect in passes {
        let parts = (
            pieces(dx, |l| rows.row_of_lane(l) * d),
            pieces(chunk_sums, |l| rows.lane_start(l) * sums_len),
            equal(row_grads, buffers.row_grads()),
        );
        par::for_each(rows.lanes, parts, rest, buffers.share, &|lane, (dx, sums, lane_grads), scratch| {
            let first = rows.row_of_lane(lane);
            let (keys_room, scratch) = scratch.split_at_mut(keys.scratch_len(rows.tile));
            let mut grads = buffers.by_rows.map(taking(&mut lane_grads[buffers.tail_grads..]));
            if collect {
                sums.fill(0.0);
            }
            for (i, chunk) in rows.lane(lane).enumerate() {
                let sample = chunk / rows.chunks;
                let own_sums = &mut sums[i * sums_len..][..sums_len];
                for tile in rows.tiles(chunk) {
                    let dx = &mut dx[(tile.start - first) * d..(tile.end - first) * d];
                    let sums = if collect { NormSums::Collect(own_sums) } else { NormSums::Known(own_sums) };
                    let range = tile.clone();
                    let tile = heads.tile(sample, tile);
                    let keys = keys.find(kept_keys, keys_room, range, |keys| scheme.keys(&tile, keys));
                    scheme.moments_backward(
                        &tile,
                        keys,
                        &moments[sample * moments_len..][..moments_len],
                        &dmoments[sample * dmoments_len..][..dmoments_len],
                        sums,
                        dx,
                        &mut grads,
                        scratch,
                    );
                }
            }
        });
        if collect {
            share_sums(rows, chunk_sums, sums_len);
        }
    }

    let mut at = 0;
    for grad in tail_grads {
        sum_lanes(row_grads, rows.lanes, at, grad);
        at += grad.len();
    }
    let mut at_fold = 0;
    for (grad, by_rows) in grads.zip(buffers.by_rows).into_array() {
        if by_rows > 0 {
            sum_lanes(row_grads, rows.lanes, at, grad);
            at += grad.len();
        } else {
            sum_lanes(fold_grads, buffers.sample_lanes, at_fold, grad);
            at_fold += grad.len();
        }
    }
}

/// Gives every chunk of a sample the sum over all its chunks.
pub(crate) fn share_sums(rows: Rows, chunk_sums: &mut [f32], len: usize) {
    for sample in chunk_sums.chunks_exact_mut(rows.chunks * len) {
        let (total, more) = sample.split_at_mut(len);
        more.chunks_exact(len).for_each(|more| add(total, more));
        more.chunks_exact_mut(len).for_each(|more| more.copy_from_slice(total));
    }
}
