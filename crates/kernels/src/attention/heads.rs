//! Q, K and V of a tile before the coordinates are put in front: projection, norm, and their gradients.

use super::scheme::NormSums;
use super::{Attention, Grads, Input, Norm, Params};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::norm::{
    normalize_columns, normalize_columns_backward, normalize_groups, normalize_groups_backward,
};
use crate::simd::vectorize;
use crate::tile::{add_bias, add_column_dots, add_column_sums, scale_columns, scale_rows};

/// A run of points of one sample, small enough to stay in cache.
pub(crate) struct Tile<'a> {
    pub sample: usize,
    /// The first row, counted over all samples.
    pub first: usize,
    pub rows: usize,
    /// (rows, d)
    pub x: &'a [f32],
    /// (rows, p)
    pub coordinates: &'a [f32],
    /// (rows)
    pub weights: Option<&'a [f32]>,
}

impl Tile<'_> {
    /// The rows of `values`, each times its weight if there are weights, for which there is `scratch`.
    pub fn weighted<'v>(&self, values: &'v [f32], scratch: &'v mut [f32]) -> &'v [f32] {
        let Some(w) = self.weights else { return values };
        let weighted = &mut scratch[..values.len()];
        weighted.copy_from_slice(values);
        scale_rows(weighted, w);
        weighted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Q,
    K,
    V,
}

/// The layer as the passes over its points see it.
pub(crate) struct Heads<'a> {
    pub dims: Attention,
    pub params: &'a Params<'a>,
    pub input: Input<'a>,
    /// `[mean | r]` (2d) of K, then of its partner, per sample; empty unless the norm is over the points.
    pub statistics: &'a [f32],
    /// W_Qᵀ, W_Kᵀ, W_Vᵀ, for the backward pass alone.
    pub transposed: &'a [f32],
}

impl<'a> Heads<'a> {
    pub fn tile(&self, sample: usize, rows: std::ops::Range<usize>) -> Tile<'a> {
        let (d, p) = (self.dims.d, self.dims.coordinates);
        Tile {
            sample,
            first: rows.start,
            rows: rows.len(),
            x: &self.input.x[rows.start * d..rows.end * d],
            coordinates: &self.input.coordinates[rows.start * p..rows.end * p],
            weights: self.input.weights.map(|w| &w[rows]),
        }
    }

    /// W and b of a side.
    pub fn weights(&self, side: Side) -> (&'a [f32], &'a [f32]) {
        match side {
            Side::Q => (self.params.w_q, self.params.b_q),
            Side::K => (self.params.w_k, self.params.b_k),
            Side::V => (self.params.w_v, self.params.b_v),
        }
    }

    /// 0 for K and 1 for its partner, if the side is normalised.
    fn slot(&self, side: Side) -> Option<usize> {
        let partner = if self.dims.norm_on_v() { Side::V } else { Side::Q };
        match self.dims.norm {
            Norm::None => None,
            _ if side == Side::K => Some(0),
            _ if side == partner => Some(1),
            _ => None,
        }
    }

    /// γ and β of a side, if it is normalised.
    pub fn affine(&self, side: Side) -> Option<(&'a [f32], &'a [f32])> {
        self.slot(side).map(|slot| match slot {
            0 => (self.params.gamma_k, self.params.beta_k),
            _ => (self.params.gamma_qv, self.params.beta_qv),
        })
    }

    /// γ and β of one feature: 1 and 0 where nothing is normalised.
    pub fn affine_at(&self, side: Side, feature: usize) -> (f32, f32) {
        self.affine(side).map_or((1.0, 0.0), |(gamma, beta)| (gamma[feature], beta[feature]))
    }

    /// Coordinates and γ ẑ + β, heads side by side: (rows, d) to (rows, H·D).
    pub fn widen(&self, side: Side, tile: &Tile, hat: &[f32], wide: &mut [f32]) {
        let (d, e, p, width, heads) = self.dims.letters();
        let affine = self.affine(side);
        vectorize!({
            for (group, (out, hat)) in wide.chunks_exact_mut(width).zip(hat.chunks_exact(e)).enumerate() {
                let (r, f) = (group / heads, group % heads * e);
                out[..p].copy_from_slice(&tile.coordinates[r * p..][..p]);
                match affine {
                    None => out[p..].copy_from_slice(hat),
                    Some((gamma, beta)) => {
                        for (((o, z), g), b) in out[p..].iter_mut().zip(hat).zip(&gamma[f..]).zip(&beta[f..])
                        {
                            *o = g * z + b;
                        }
                    }
                }
            }
        });
        debug_assert_eq!(hat.len(), tile.rows * d);
    }

    /// From the gradient of a widened side (rows, H·D): adds to those of γ, β, W, b and x; or, if the sums of a norm over points are
    /// being collected, to those alone. `g` (rows, d) is scratch.
    #[allow(clippy::too_many_arguments)]
    pub fn widened_backward(
        &self,
        side: Side,
        tile: &Tile,
        (hat, r): (&[f32], &[f32]),
        wide: &[f32],
        sums: &mut NormSums,
        dx: &mut [f32],
        grads: &mut Grads,
        g: &mut [f32],
    ) {
        let (_, e, p, width, _) = self.dims.letters();
        for (out, from) in g.chunks_exact_mut(e).zip(wide.chunks_exact(width)) {
            out.copy_from_slice(&from[p..]);
        }
        let (dw, db) = match side {
            Side::Q => (&mut *grads.w_q, &mut *grads.b_q),
            Side::K => (&mut *grads.w_k, &mut *grads.b_k),
            Side::V => (&mut *grads.w_v, &mut *grads.b_v),
        };
        if let Some(slot) = self.slot(side) {
            let (gamma, dgamma, dbeta) = match slot {
                0 => (self.params.gamma_k, &mut *grads.gamma_k, &mut *grads.beta_k),
                _ => (self.params.gamma_qv, &mut *grads.gamma_qv, &mut *grads.beta_qv),
            };
            if let NormSums::Known(_) = sums {
                add_column_dots(g, hat, dgamma);
                add_column_sums(g, dbeta);
            }
            scale_columns(g, gamma);
        }
        match sums {
            NormSums::Collect(sums) => self.add_sums(side, hat, g, sums),
            NormSums::Known(sums) => {
                self.normalized_backward(side, tile, hat, r, sums, g);
                self.project_backward(side, tile, g, dx, dw, db);
            }
        }
    }

    /// `z = x W + b`
    pub fn project(&self, side: Side, tile: &Tile, z: &mut [f32]) {
        self.product(side, tile, z);
        add_bias(z, self.weights(side).1);
    }

    fn product(&self, side: Side, tile: &Tile, z: &mut [f32]) {
        let (d, (w, _)) = (self.dims.d, self.weights(side));
        gemm(
            Into::Set,
            1.0,
            View::new(tile.x, tile.rows, d),
            View::new(w, d, d),
            ViewMut::new(z, tile.rows, d),
        );
    }

    /// `z` = the normalised projection without its affine map (ẑ), or the plain projection; `r` (rows, H) is kept for the backward pass.
    pub fn normalized(&self, side: Side, tile: &Tile, z: &mut [f32], r: &mut [f32]) {
        let Some(slot) = self.slot(side) else { return self.project(side, tile, z) };
        self.product(side, tile, z);
        let bias = self.weights(side).1;
        match self.dims.norm {
            Norm::Instance => normalize_columns(z, bias, self.statistics_of(tile.sample, slot)),
            _ => normalize_groups(z, bias, self.dims.head_width(), self.dims.eps, r),
        }
    }

    /// Values of one point of a side as [`hat`](Self::hat) writes them.
    pub fn hat_len(&self) -> usize {
        self.dims.d + self.dims.heads
    }

    /// ẑ (rows, d) of a side, then its r (rows, H).
    pub fn hat(&self, side: Side, tile: &Tile, hat: &mut [f32]) {
        let (z, r) = hat.split_at_mut(tile.rows * self.dims.d);
        self.normalized(side, tile, z, r);
    }

    /// ẑ and r from what [`hat`](Self::hat) wrote.
    pub fn split_hat<'h>(&self, hat: &'h [f32]) -> (&'h [f32], &'h [f32]) {
        hat.split_at(hat.len() / self.hat_len() * self.dims.d)
    }

    /// K̂ and V̂ of a tile, each as [`hat`](Self::hat) writes it.
    pub fn keys_and_values(&self, tile: &Tile, keys: &mut [f32]) {
        let (k, v) = keys.split_at_mut(tile.rows * self.hat_len());
        self.hat(Side::K, tile, k);
        self.hat(Side::V, tile, v);
    }

    /// ẑ and r of K and of V from what [`keys_and_values`](Self::keys_and_values) wrote.
    pub fn split_keys_and_values<'h>(&self, keys: &'h [f32]) -> [(&'h [f32], &'h [f32]); 2] {
        let (k, v) = keys.split_at(keys.len() / 2);
        [k, v].map(|hat| self.split_hat(hat))
    }

    /// Turns the gradient of ẑ into that of x W + b, in place.
    ///
    /// `sums` are the sample's `[Σ g | Σ g ẑ]` of K and of its partner, which only the norm over points needs.
    pub fn normalized_backward(
        &self,
        side: Side,
        tile: &Tile,
        z: &[f32],
        r: &[f32],
        sums: &[f32],
        g: &mut [f32],
    ) {
        let Some(slot) = self.slot(side) else { return };
        match self.dims.norm {
            Norm::Instance => {
                let sums = &sums[slot * 2 * self.dims.d..][..2 * self.dims.d];
                normalize_columns_backward(z, self.statistics_of(tile.sample, slot), sums, self.dims.n, g);
            }
            _ => normalize_groups_backward(z, r, g, self.dims.head_width()),
        }
    }

    /// Adds a tile's share to the sums that [`normalized_backward`](Self::normalized_backward) of the norm over points needs.
    pub fn add_sums(&self, side: Side, z: &[f32], g: &[f32], sums: &mut [f32]) {
        let Some(slot) = self.slot(side) else { return };
        let (plain, dots) = sums[slot * 2 * self.dims.d..][..2 * self.dims.d].split_at_mut(self.dims.d);
        add_column_sums(g, plain);
        add_column_dots(g, z, dots);
    }

    /// Adds to dx, dW and db, from the gradient of x W + b.
    pub fn project_backward(
        &self,
        side: Side,
        tile: &Tile,
        g: &[f32],
        dx: &mut [f32],
        dw: &mut [f32],
        db: &mut [f32],
    ) {
        let (d, m) = (self.dims.d, tile.rows);
        let w_t = &self.transposed[side as usize * d * d..][..d * d];
        let g_view = View::new(g, m, d);
        gemm(Into::Add, 1.0, View::new(tile.x, m, d).t(), g_view, ViewMut::new(dw, d, d));
        add_column_sums(g, db);
        gemm(Into::Add, 1.0, g_view, View::new(w_t, d, d), ViewMut::new(dx, m, d));
    }

    fn statistics_of(&self, sample: usize, slot: usize) -> &[f32] {
        let len = 2 * self.dims.d;
        &self.statistics[(2 * sample + slot) * len..][..len]
    }

    /// The factor of the sums over points: 1/n, or 1 where quadrature weights take its place.
    pub fn measure(&self) -> f32 {
        if self.input.weights.is_some() { 1.0 } else { 1.0 / self.dims.n as f32 }
    }

    /// `[coordinates | 1]ᵀ diag(w) [coordinates | 1]` of a tile, added to (p + 1, p + 1) values.
    pub fn add_coordinate_moments(&self, tile: &Tile, sums: &mut [f32]) {
        let p = self.dims.coordinates;
        for r in 0..tile.rows {
            let at = |a: usize| if a < p { tile.coordinates[r * p + a] } else { 1.0 };
            let w = tile.weights.map_or(1.0, |w| w[r]);
            for a in 0..=p {
                for b in 0..=p {
                    sums[a * (p + 1) + b] += w * at(a) * at(b);
                }
            }
        }
    }
}
