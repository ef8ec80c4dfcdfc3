//! Linear attention with two softmaxes: features of Q at each point, points of K at each feature.
//!
//! ```text
//! Q̄ = softmax over the D features of [coordinates | x W_Q + b_Q]
//! K̄ = softmax over the n points of [coordinates | K̂ γ_K + β_K]     Ṽ = [coordinates | V̂ γ_V + β_V]
//! A = K̄ᵀ diag(w) Ṽ     (D × D)     out = Σ_h Q̄_h A_h W_O,h + b_O
//! ```
//!
//! The softmax over points runs along with the sum over points: exponentials are taken against the largest key seen so far in their
//! column, and what was summed before is scaled down when a larger one comes. Nothing folds through a softmax, so tiles here have
//! the full width H·D.
//!
//! Layouts, all row-major:
//! - moments: largest key (H·D), Z = Σ exp (H·D), sums Σ exp·w·Ṽ (H·D, D)
//! - folded: G (H·D, d) = A_h W_O,h; b_O (d); A (H·D, D) after dropout
//! - gradient of folded: dG (H·D, d), db_O (d)
//! - gradient of moments: dA (H·D, D), scaled; κ (H·D) = Σ_m A dA

use super::heads::{Heads, Side, Tile};
use super::scheme::{NormSums, Scheme};
use super::{Grads, Parameters, blocks};
use crate::dims::take;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::simd::{axpy, dot, exp, sum, vectorize};
use crate::tile::{add_column_sums, scale_rows, set_affine};

pub(crate) struct Linear<'a>(pub &'a Heads<'a>);

impl Linear<'_> {
    /// d, e, p, D, H
    fn letters(&self) -> (usize, usize, usize, usize, usize) {
        self.0.dims.letters()
    }

    /// H·D
    fn full(&self) -> usize {
        self.0.dims.heads * self.0.dims.wide()
    }

    /// out_h += a_hᵀ b_h, head by head of two full-width tiles: (H·D, D).
    fn add_products(&self, rows: usize, a: &[f32], b: &[f32], out: &mut [f32]) {
        let (wide, heads, full) = (self.0.dims.wide(), self.0.dims.heads, self.full());
        for h in 0..heads {
            let a = View::strided(&a[h * wide..], rows, wide, full);
            let b = View::strided(&b[h * wide..], rows, wide, full);
            gemm(Into::Add, 1.0, a.t(), b, ViewMut::new(&mut out[h * wide * wide..], wide, wide));
        }
    }

    /// out_h = u_h m_h, or u_h m_hᵀ, head by head on full-width tiles.
    fn head_products(&self, rows: usize, u: &[f32], m: &[f32], transposed: bool, out: &mut [f32]) {
        let (wide, heads, full) = (self.0.dims.wide(), self.0.dims.heads, self.full());
        for h in 0..heads {
            let u = View::strided(&u[h * wide..], rows, wide, full);
            let m = View::new(&m[h * wide * wide..], wide, wide);
            let m = if transposed { m.t() } else { m };
            gemm(Into::Set, 1.0, u, m, ViewMut::strided(&mut out[h * wide..], rows, wide, full));
        }
    }

    /// Raises the largest keys to `larger` and scales what was summed against the old ones.
    fn raise(&self, moments: &mut [f32], larger: impl Fn(usize) -> f32) {
        let (full, wide) = (self.full(), self.0.dims.wide());
        let [largest, z, sums] = blocks(moments, [full, full, full * wide]);
        for c in 0..full {
            let top = larger(c).max(largest[c]);
            if top > largest[c] {
                let scale = exp(largest[c] - top);
                z[c] *= scale;
                sums[c * wide..][..wide].iter_mut().for_each(|s| *s *= scale);
                largest[c] = top;
            }
        }
    }

    /// Turns keys into exp(key − largest), in place.
    fn exponentials(&self, largest: &[f32], keys: &mut [f32]) {
        vectorize!({
            for row in keys.chunks_exact_mut(largest.len()) {
                row.iter_mut().zip(largest).for_each(|(k, top)| *k = exp(*k - top));
            }
        });
    }
}

impl Scheme for Linear<'_> {
    fn moments_len(&self) -> usize {
        self.full() * (2 + self.0.dims.wide())
    }

    fn folded_len(&self) -> usize {
        let (d, _, _, wide, _) = self.letters();
        self.full() * (d + wide) + d
    }

    fn folded_gradient_len(&self) -> usize {
        (self.full() + 1) * self.0.dims.d
    }

    fn moments_gradient_len(&self) -> usize {
        self.full() * (self.0.dims.wide() + 1)
    }

    fn keys_len(&self) -> usize {
        2 * self.0.hat_len()
    }

    fn queries_len(&self) -> usize {
        self.full()
    }

    fn tile_len(&self, rows: usize) -> usize {
        rows * (4 * self.full() + self.0.dims.d) + self.full()
    }

    fn fold_len(&self) -> usize {
        self.full() * self.0.dims.wide()
    }

    fn weights<'a>(&self, folded: &'a [f32]) -> &'a [f32] {
        &folded[(self.full() + 1) * self.0.dims.d..]
    }

    fn by_rows(&self) -> Parameters<bool> {
        let all = Parameters::default().map(|()| true);
        Parameters { w_o: false, b_o: false, ..all }
    }

    fn norm_in_apply(&self) -> bool {
        false
    }

    fn clear(&self, moments: &mut [f32]) {
        moments.fill(0.0);
        moments[..self.full()].fill(f32::NEG_INFINITY);
    }

    /// K̂ and V̂.
    fn keys(&self, tile: &Tile, keys: &mut [f32]) {
        self.0.keys_and_values(tile, keys);
    }

    fn add_moments(&self, tile: &Tile, keys: &[f32], moments: &mut [f32], mut scratch: &mut [f32]) {
        let (full, wide) = (self.full(), self.0.dims.wide());
        let [(k, _), (v, _)] = self.0.split_keys_and_values(keys);
        let [keys, values] = [0; 2].map(|_| take(&mut scratch, tile.rows * full));
        self.0.widen(Side::K, tile, k, keys);
        self.0.widen(Side::V, tile, v, values);
        let top = &mut scratch[..full];
        top.fill(f32::NEG_INFINITY);
        for row in keys.chunks_exact(full) {
            top.iter_mut().zip(row).for_each(|(t, k)| *t = t.max(*k));
        }
        self.raise(moments, |c| top[c]);
        let [largest, z, sums] = blocks(moments, [full, full, full * wide]);
        self.exponentials(largest, keys);
        add_column_sums(keys, z);
        if let Some(w) = tile.weights {
            scale_rows(keys, w);
        }
        self.add_products(tile.rows, keys, values, sums);
    }

    fn merge(&self, moments: &mut [f32], more: &[f32]) {
        let (full, wide) = (self.full(), self.0.dims.wide());
        self.raise(moments, |c| more[c]);
        let [largest, z, sums] = blocks(moments, [full, full, full * wide]);
        for c in 0..full {
            let scale = exp(more[c] - largest[c]);
            z[c] += scale * more[full + c];
            axpy(scale, &more[2 * full + c * wide..][..wide], &mut sums[c * wide..][..wide]);
        }
    }

    fn fold(&self, sample: usize, moments: &[f32], folded: &mut [f32], _: &mut [f32]) {
        let (dims, full, wide, d) = (&self.0.dims, self.full(), self.0.dims.wide(), self.0.dims.d);
        let [g, b, a] = blocks(folded, [full * d, d, full * wide]);
        let (z, sums) = (&moments[full..2 * full], &moments[2 * full..]);
        let measure = self.0.measure();
        for c in 0..full {
            let scale = measure / z[c];
            a[c * wide..][..wide].iter_mut().zip(&sums[c * wide..]).for_each(|(a, s)| *a = scale * s);
        }
        dims.weights_dropout().apply((sample * full * wide) as u64, a);
        dims.project_heads(self.0.params, a, g);
        b.fill(0.0);
        if dims.projection {
            b.copy_from_slice(self.0.params.b_o);
        }
    }

    /// Q̄ (rows, H·D).
    fn queries(&self, tile: &Tile, q: &mut [f32], scratch: &mut [f32]) {
        let (d, wide) = (self.0.dims.d, self.0.dims.wide());
        let features = &mut scratch[..tile.rows * d];
        self.0.project(Side::Q, tile, features);
        self.0.widen(Side::Q, tile, features, q);
        vectorize!({
            for group in q.chunks_exact_mut(wide) {
                let top = group.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
                group.iter_mut().for_each(|v| *v = exp(*v - top));
                let scale = 1.0 / sum(group);
                group.iter_mut().for_each(|v| *v *= scale);
            }
        });
    }

    fn apply(
        &self,
        tile: &Tile,
        queries: &[f32],
        folded: &[f32],
        base: Option<&[f32]>,
        sign: f32,
        out: &mut [f32],
    ) {
        let (d, full) = (self.0.dims.d, self.full());
        let (g, rest) = folded.split_at(full * d);
        set_affine(out, base, sign, &rest[..d], &[], &[]);
        let q = View::new(queries, tile.rows, full);
        gemm(Into::Add, sign, q, View::new(g, full, d), ViewMut::new(out, tile.rows, d));
    }

    fn apply_backward(
        &self,
        tile: &Tile,
        q: &[f32],
        folded: &[f32],
        da: &[f32],
        _: NormSums,
        dx: &mut [f32],
        dfolded: &mut [f32],
        grads: &mut Grads,
        mut scratch: &mut [f32],
    ) {
        let (d, full, wide, m) = (self.0.dims.d, self.full(), self.0.dims.wide(), tile.rows);
        let dq = take(&mut scratch, m * full);
        let (hat, g) = (&[], take(&mut scratch, m * d));
        let da_view = View::new(da, m, d);
        let (dg, db) = dfolded.split_at_mut(full * d);
        gemm(Into::Add, 1.0, View::new(q, m, full).t(), da_view, ViewMut::new(dg, full, d));
        add_column_sums(da, db);
        gemm(Into::Set, 1.0, da_view, View::new(&folded[..full * d], full, d).t(), ViewMut::new(dq, m, full));
        vectorize!({
            for (q, dq) in q.chunks_exact(wide).zip(dq.chunks_exact_mut(wide)) {
                let mean = dot(q, dq);
                q.iter().zip(dq).for_each(|(q, dq)| *dq = q * (*dq - mean));
            }
        });
        self.0.widened_backward(Side::Q, tile, (hat, &[]), dq, &mut NormSums::Known(&[]), dx, grads, g);
    }

    fn fold_backward(
        &self,
        sample: usize,
        moments: &[f32],
        folded: &[f32],
        dfolded: &mut [f32],
        dmoments: &mut [f32],
        grads: &mut Grads,
        _: &mut [f32],
    ) {
        let (dims, full, wide, d) = (&self.0.dims, self.full(), self.0.dims.wide(), self.0.dims.d);
        let (dg, db) = dfolded.split_at(full * d);
        let (da, kappa) = dmoments.split_at_mut(full * wide);
        dims.project_heads_backward(self.0.params, &folded[(full + 1) * d..], dg, db, da, grads);
        dims.weights_dropout().apply((sample * full * wide) as u64, da);
        let (z, sums, measure) = (&moments[full..2 * full], &moments[2 * full..], self.0.measure());
        for c in 0..full {
            // dA takes the measure along, so that the points need not.
            let da = &mut da[c * wide..][..wide];
            da.iter_mut().for_each(|v| *v *= measure);
            kappa[c] = dot(&sums[c * wide..][..wide], da) / z[c];
        }
    }

    fn moments_backward(
        &self,
        tile: &Tile,
        keys: &[f32],
        moments: &[f32],
        dmoments: &[f32],
        mut norm_sums: NormSums,
        dx: &mut [f32],
        grads: &mut Grads,
        mut scratch: &mut [f32],
    ) {
        let (d, full, wide, m) = (self.0.dims.d, self.full(), self.0.dims.wide(), tile.rows);
        let [(k, rk), (v, rv)] = self.0.split_keys_and_values(keys);
        let g = take(&mut scratch, m * d);
        let [keys, values, dkeys, dvalues] = [0; 4].map(|_| take(&mut scratch, m * full));
        let (largest, z) = (&moments[..full], &moments[full..2 * full]);
        let (da, kappa) = dmoments.split_at(full * wide);

        self.0.widen(Side::K, tile, k, keys);
        self.exponentials(largest, keys);
        vectorize!({
            for row in keys.chunks_exact_mut(full) {
                row.iter_mut().zip(z).for_each(|(k, z)| *k /= z);
            }
        });
        self.0.widen(Side::V, tile, v, values);

        // dK̃ = K̄ (w Ṽ dAᵀ − κ), dṼ = w K̄ dA
        self.head_products(m, values, da, true, dkeys);
        self.head_products(m, keys, da, false, dvalues);
        if let Some(w) = tile.weights {
            scale_rows(dkeys, w);
            scale_rows(dvalues, w);
        }
        vectorize!({
            for (k, dk) in keys.chunks_exact(full).zip(dkeys.chunks_exact_mut(full)) {
                for ((k, dk), kappa) in k.iter().zip(dk).zip(kappa) {
                    *dk = k * (*dk - kappa);
                }
            }
        });
        self.0.widened_backward(Side::K, tile, (k, rk), dkeys, &mut norm_sums, dx, grads, g);
        self.0.widened_backward(Side::V, tile, (v, rv), dvalues, &mut norm_sums, dx, grads, g);
    }
}
