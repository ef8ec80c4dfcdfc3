//! Layer norm (each row over its features) and instance norm (each feature over the points of its sample).
//!
//! x̂ = (x − μ)·r with r = 1/√(σ² + ε) and the biased variance σ²; y = γ x̂ + β. Backward, with g = γ·dy and
//! means over whatever was normalised: dx = r (g − mean(g) − x̂ mean(g x̂)).
//!
//! The first half of the file works in place on tiles and leaves the affine map to the caller; the second half are the two norms
//! as kernels of their own.

use crate::dims::{check_at_least, check_len, take};
use crate::par::{self, Rows, equal, pieces, sum_lanes};
use crate::simd::{rows, vectorize};
use crate::tile::{add, add_bias, add_column_dots, add_column_sums, scale_columns};

/// Normalises every group of `width` values in place after adding `bias` (one value per column, or none), and keeps r per group.
pub(crate) fn normalize_groups(u: &mut [f32], bias: &[f32], width: usize, eps: f32, r: &mut [f32]) {
    let groups = bias.len().checked_div(width).unwrap_or(0).max(1);
    rows!(simd: S, { u: &'a mut [f32], bias: &'a [f32], width: usize, groups: usize, eps: f32, r: &'a mut [f32] }, {
        let inverse = 1.0 / width as f32;
        let zero = simd.splat_f32s(0.0);
        for (row, r) in u.chunks_exact_mut(groups * width).zip(r.chunks_exact_mut(groups)) {
            for (g, (group, r)) in row.chunks_exact_mut(width).zip(r).enumerate() {
                let (u, u_rest) = S::as_mut_simd_f32s(group);
                if !bias.is_empty() {
                    let (b, b_rest) = S::as_simd_f32s(&bias[g * width..][..width]);
                    u.iter_mut().zip(b).for_each(|(u, b)| *u = simd.add_f32s(*u, *b));
                    u_rest.iter_mut().zip(b_rest).for_each(|(u, b)| *u += b);
                }
                let total = u.iter().fold(zero, |sum, u| simd.add_f32s(sum, *u));
                let mean = inverse * (simd.reduce_sum_f32s(total) + u_rest.iter().sum::<f32>());
                let m = simd.splat_f32s(mean);
                let squares = u.iter().fold(zero, |sum, u| {
                    let v = simd.sub_f32s(*u, m);
                    simd.add_f32s(sum, simd.mul_f32s(v, v))
                });
                let rest: f32 = u_rest.iter().map(|u| (u - mean) * (u - mean)).sum();
                *r = 1.0 / (inverse * (simd.reduce_sum_f32s(squares) + rest) + eps).sqrt();
                let scale = simd.splat_f32s(*r);
                u.iter_mut().for_each(|u| *u = simd.mul_f32s(simd.sub_f32s(*u, m), scale));
                u_rest.iter_mut().for_each(|u| *u = (*u - mean) * *r);
            }
        }
    })
}

/// Turns gradients of x̂ into gradients of x, in place, group by group.
pub(crate) fn normalize_groups_backward(hat: &[f32], r: &[f32], g: &mut [f32], width: usize) {
    rows!(simd: S, { hat: &'a [f32], r: &'a [f32], g: &'a mut [f32], width: usize }, {
        let inverse = 1.0 / width as f32;
        let zero = simd.splat_f32s(0.0);
        for ((hat, g), r) in hat.chunks_exact(width).zip(g.chunks_exact_mut(width)).zip(r) {
            let ((h, h_rest), (g, g_rest)) = (S::as_simd_f32s(hat), S::as_mut_simd_f32s(g));
            let (sum, dot) = g.iter().zip(h).fold((zero, zero), |(sum, dot), (g, h)| {
                (simd.add_f32s(sum, *g), simd.add_f32s(dot, simd.mul_f32s(*g, *h)))
            });
            let mean = inverse * (simd.reduce_sum_f32s(sum) + g_rest.iter().sum::<f32>());
            let rest: f32 = g_rest.iter().zip(h_rest).map(|(g, h)| g * h).sum();
            let slope = inverse * (simd.reduce_sum_f32s(dot) + rest);
            let (ms, ss, rs) = (simd.splat_f32s(mean), simd.splat_f32s(slope), simd.splat_f32s(*r));
            for (g, h) in g.iter_mut().zip(h) {
                *g = simd.mul_f32s(rs, simd.sub_f32s(simd.sub_f32s(*g, ms), simd.mul_f32s(*h, ss)));
            }
            g_rest.iter_mut().zip(h_rest).for_each(|(g, h)| *g = r * (*g - mean - h * slope));
        }
    })
}

/// Mean and sum of squared deviations per column, merged tile by tile (Chan's update), so that a mean far from zero costs no digits.
///
/// Layout: `[mean (width) | deviations (width)]`; `seen` rows are in it already.
pub(crate) fn add_column_statistics(u: &[f32], seen: usize, statistics: &mut [f32]) {
    let width = statistics.len() / 2;
    let rows = u.len() / width.max(1);
    let (mean, deviations) = statistics.split_at_mut(width);
    for c in 0..width {
        let column = || u.iter().skip(c).step_by(width);
        let own_mean = column().sum::<f32>() / rows as f32;
        let own_deviations: f32 = column().map(|v| (v - own_mean) * (v - own_mean)).sum();
        merge_column(&mut mean[c], &mut deviations[c], seen, own_mean, own_deviations, rows);
    }
}

/// Merges the statistics of `rows` further rows into those of `seen` rows.
pub(crate) fn merge_column_statistics(statistics: &mut [f32], seen: usize, other: &[f32], rows: usize) {
    let width = statistics.len() / 2;
    let (mean, deviations) = statistics.split_at_mut(width);
    for c in 0..width {
        merge_column(&mut mean[c], &mut deviations[c], seen, other[c], other[width + c], rows);
    }
}

fn merge_column(
    mean: &mut f32,
    deviations: &mut f32,
    seen: usize,
    other: f32,
    other_deviations: f32,
    rows: usize,
) {
    let share = rows as f32 / (seen + rows) as f32;
    let shift = if seen == 0 { 0.0 } else { other - *mean };
    *mean = if seen == 0 { other } else { *mean + shift * share };
    *deviations = if seen == 0 { 0.0 } else { *deviations };
    *deviations += other_deviations + shift * shift * seen as f32 * share;
}

/// Turns deviations over `n` points into r = 1/√(σ² + ε), in place.
pub(crate) fn finish_statistics(statistics: &mut [f32], n: usize, eps: f32) {
    let width = statistics.len() / 2;
    for v in &mut statistics[width..] {
        *v = 1.0 / (*v / n as f32 + eps).sqrt();
    }
}

/// Normalises columns in place with `[mean | r]`, after adding `bias` (or none).
pub(crate) fn normalize_columns(u: &mut [f32], bias: &[f32], statistics: &[f32]) {
    let (mean, r) = statistics.split_at(statistics.len() / 2);
    vectorize!({
        for row in u.chunks_exact_mut(mean.len()) {
            if !bias.is_empty() {
                row.iter_mut().zip(bias).for_each(|(u, b)| *u += b);
            }
            for ((u, m), r) in row.iter_mut().zip(mean).zip(r) {
                *u = (*u - m) * r;
            }
        }
    });
}

/// Turns gradients of x̂ into gradients of x, in place; `sums` is `[Σ g | Σ g x̂]` over the `n` points of the sample.
pub(crate) fn normalize_columns_backward(
    hat: &[f32],
    statistics: &[f32],
    sums: &[f32],
    n: usize,
    g: &mut [f32],
) {
    let width = statistics.len() / 2;
    let (r, (mean, slope)) = (&statistics[width..], sums.split_at(width));
    let inverse = 1.0 / n as f32;
    vectorize!({
        for (hat, g) in hat.chunks_exact(width).zip(g.chunks_exact_mut(width)) {
            for ((((g, h), r), mean), slope) in g.iter_mut().zip(hat).zip(r).zip(mean).zip(slope) {
                *g = r * (*g - inverse * (mean + h * slope));
            }
        }
    });
}

/// Layer norm over the last axis of (rows, width).
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Rows.
    pub rows: usize,
    /// Features per row.
    pub width: usize,
    /// ε
    pub eps: f32,
}

/// Rows that a norm keeps in cache at a time.
const TILE: usize = 64;

impl LayerNorm {
    fn sizes(&self) -> [(&'static str, usize); 2] {
        [("rows", self.rows), ("width", self.width)]
    }

    fn cut(&self) -> Rows {
        Rows::new(1, self.rows, TILE)
    }

    /// Values of workspace that [`backward`](Self::backward) needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        threads.max(1) * self.share() + self.cut().lanes * 2 * self.width
    }

    fn share(&self) -> usize {
        TILE * (self.width + 1)
    }

    /// `out = γ x̂ + β`; x, out: (rows, width), γ, β: (width).
    pub fn forward(&self, gamma: &[f32], beta: &[f32], x: &[f32], out: &mut [f32]) {
        let (len, width, rows) = (self.rows * self.width, self.width, self.cut());
        check_len("layer norm x", x.len(), len, &self.sizes());
        check_len("layer norm out", out.len(), len, &self.sizes());
        check_len("layer norm gamma", gamma.len(), width, &self.sizes());
        check_len("layer norm beta", beta.len(), width, &self.sizes());
        if len == 0 {
            return;
        }
        par::for_each(
            rows.lanes,
            pieces(out, |l| rows.row_of_lane(l) * width),
            &mut [],
            0,
            &|lane, out, _| {
                let x = &x[rows.row_of_lane(lane) * width..][..out.len()];
                let mut r = [0.0; TILE];
                for (out, x) in out.chunks_mut(TILE * width).zip(x.chunks(TILE * width)) {
                    out.copy_from_slice(x);
                    normalize_groups(out, &[], width, self.eps, &mut r);
                    scale_columns(out, gamma);
                    add_bias(out, beta);
                }
            },
        );
    }

    /// Gradients of x, γ and β; they are overwritten.
    pub fn backward(
        &self,
        gamma: &[f32],
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        (dgamma, dbeta): (&mut [f32], &mut [f32]),
        workspace: &mut [f32],
    ) {
        let (len, width, rows) = (self.rows * self.width, self.width, self.cut());
        for (what, found) in
            [("layer norm x", x.len()), ("layer norm dy", dy.len()), ("layer norm dx", dx.len())]
        {
            check_len(what, found, len, &self.sizes());
        }
        for (what, found) in [
            ("layer norm gamma", gamma.len()),
            ("layer norm dgamma", dgamma.len()),
            ("layer norm dbeta", dbeta.len()),
        ] {
            check_len(what, found, width, &self.sizes());
        }
        check_at_least("layer norm workspace", workspace.len(), self.workspace_len(1), &self.sizes());
        let (partial, scratch) = workspace.split_at_mut(rows.lanes * 2 * width);
        partial.fill(0.0);
        if len > 0 {
            let parts = (pieces(dx, |l| rows.row_of_lane(l) * width), equal(partial, 2 * width));
            par::for_each(rows.lanes, parts, scratch, self.share(), &|lane, (dx, partial), scratch| {
                let first = rows.row_of_lane(lane);
                let (dgamma, dbeta) = partial.split_at_mut(width);
                for chunk in rows.lane(lane) {
                    for tile in rows.tiles(chunk) {
                        let (at, count) = (tile.start * width..tile.end * width, tile.len());
                        let (hat, r) = scratch.split_at_mut(TILE * width);
                        let (hat, r) = (&mut hat[..count * width], &mut r[..count]);
                        hat.copy_from_slice(&x[at.clone()]);
                        normalize_groups(hat, &[], width, self.eps, r);
                        add_column_dots(&dy[at.clone()], hat, dgamma);
                        add_column_sums(&dy[at.clone()], dbeta);
                        let dx = &mut dx[(tile.start - first) * width..][..count * width];
                        dx.copy_from_slice(&dy[at]);
                        scale_columns(dx, gamma);
                        normalize_groups_backward(hat, r, dx, width);
                    }
                }
            });
        }
        sum_lanes(partial, rows.lanes, 0, dgamma);
        sum_lanes(partial, rows.lanes, width, dbeta);
    }
}

/// Instance norm of (batch, n, width): every feature over the n points of its sample.
#[derive(Clone, Copy, Debug)]
pub struct InstanceNorm {
    /// Samples.
    pub batch: usize,
    /// Points per sample.
    pub n: usize,
    /// Features per point.
    pub width: usize,
    /// ε
    pub eps: f32,
}

impl InstanceNorm {
    fn sizes(&self) -> [(&'static str, usize); 3] {
        [("batch", self.batch), ("n", self.n), ("width", self.width)]
    }

    /// Values of workspace that [`forward`](Self::forward) and [`backward`](Self::backward) need for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        threads.max(1) * self.share() + self.batch * 2 * self.width
    }

    /// `[mean | r]`, `[Σ g | Σ g x̂]` and x̂ of a tile.
    fn share(&self) -> usize {
        (4 + TILE) * self.width
    }

    /// `out = γ x̂ + β`; x, out: (batch, n, width), γ, β: (width).
    pub fn forward(&self, gamma: &[f32], beta: &[f32], x: &[f32], out: &mut [f32], workspace: &mut [f32]) {
        let (len, width) = (self.batch * self.n * self.width, self.width);
        check_len("instance norm x", x.len(), len, &self.sizes());
        check_len("instance norm out", out.len(), len, &self.sizes());
        check_len("instance norm gamma", gamma.len(), width, &self.sizes());
        check_len("instance norm beta", beta.len(), width, &self.sizes());
        check_at_least("instance norm workspace", workspace.len(), self.workspace_len(1), &self.sizes());
        if len == 0 {
            return;
        }
        par::for_each(
            self.batch,
            equal(out, self.n * width),
            workspace,
            self.share(),
            &|sample, out, scratch| {
                let statistics = &mut scratch[..2 * width];
                let x = &x[sample * self.n * width..][..self.n * width];
                self.statistics(x, statistics);
                for (out, x) in out.chunks_mut(TILE * width).zip(x.chunks(TILE * width)) {
                    out.copy_from_slice(x);
                    normalize_columns(out, &[], statistics);
                    scale_columns(out, gamma);
                    add_bias(out, beta);
                }
            },
        );
    }

    /// Gradients of x, γ and β; they are overwritten.
    pub fn backward(
        &self,
        gamma: &[f32],
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        (dgamma, dbeta): (&mut [f32], &mut [f32]),
        workspace: &mut [f32],
    ) {
        let (len, width) = (self.batch * self.n * self.width, self.width);
        for (what, found) in
            [("instance norm x", x.len()), ("instance norm dy", dy.len()), ("instance norm dx", dx.len())]
        {
            check_len(what, found, len, &self.sizes());
        }
        for (what, found) in [
            ("instance norm gamma", gamma.len()),
            ("instance norm dgamma", dgamma.len()),
            ("instance norm dbeta", dbeta.len()),
        ] {
            check_len(what, found, width, &self.sizes());
        }
        check_at_least("instance norm workspace", workspace.len(), self.workspace_len(1), &self.sizes());
        dgamma.fill(0.0);
        dbeta.fill(0.0);
        if len == 0 {
            return;
        }
        let mut rest = workspace;
        let partial = take(&mut rest, self.batch * 2 * width);
        partial.fill(0.0);
        let parts = (equal(dx, self.n * width), equal(partial, 2 * width));
        par::for_each(self.batch, parts, rest, self.share(), &|sample, (dx, partial), scratch| {
            let (statistics, rest) = scratch.split_at_mut(2 * width);
            let (sums, hat) = rest.split_at_mut(2 * width);
            let x = &x[sample * self.n * width..][..self.n * width];
            let dy = &dy[sample * self.n * width..][..self.n * width];
            let tiles = || x.chunks(TILE * width).zip(dy.chunks(TILE * width));
            self.statistics(x, statistics);
            // x̂ is cheaper to make twice than to keep.
            let (dbeta, dgamma) = partial.split_at_mut(width);
            for (x, dy) in tiles() {
                let hat = &mut hat[..x.len()];
                hat.copy_from_slice(x);
                normalize_columns(hat, &[], statistics);
                add_column_sums(dy, dbeta);
                add_column_dots(dy, hat, dgamma);
            }
            // g = γ dy, so its sums are those of dy times γ.
            sums.copy_from_slice(partial);
            scale_columns(sums, gamma);
            for ((x, dy), dx) in tiles().zip(dx.chunks_mut(TILE * width)) {
                let hat = &mut hat[..x.len()];
                hat.copy_from_slice(x);
                normalize_columns(hat, &[], statistics);
                dx.copy_from_slice(dy);
                scale_columns(dx, gamma);
                normalize_columns_backward(hat, statistics, sums, self.n, dx);
            }
        });
        for sample in partial.chunks_exact(2 * width) {
            add(dbeta, &sample[..width]);
            add(dgamma, &sample[width..]);
        }
    }

    /// `[mean | r]` of one sample.
    fn statistics(&self, x: &[f32], statistics: &mut [f32]) {
        for (t, tile) in x.chunks(TILE * self.width).enumerate() {
            add_column_statistics(tile, t * TILE, statistics);
        }
        finish_statistics(statistics, self.n, self.eps);
    }
}
