//! Galerkin attention with the query side folded.
//!
//! Per head, with ẑ the normalised projections before their affine map, x_a the coordinates and w the measure of a point:
//!
//! ```text
//! K̃ = [coordinates | K̂ γ_K + β_K]     Ṽ = [coordinates | V̂ γ_V + β_V]     M = K̃ᵀ diag(w) Ṽ     (D × D)
//! out = Σ_h [coordinates | x W_Q + b_Q]_h M_h W_O,h + b_O = x E + coordinates C + c
//! ```
//!
//! Q is not normalised, so everything to the right of x is one d × d matrix per sample: E = Σ_h W_Q,h (M_h W_O,h) with its
//! coordinate rows C and constant c. A point then costs one product instead of three. The affine maps and the coordinates fold as well:
//! the sums over points are K̂ᵀV̂ alone, and K̂ and V̂ against the coordinates and against 1.
//!
//! Layouts, all row-major:
//! - moments: S (d, e) = K̂_hᵀ w V̂_h, heads stacked; K (p+1, d) and V (p+1, d), the last row against 1; coordinates (p+1, p+1)
//! - folded: E (d, d), C (p, d), c (d); Eᵀ (d, d); G (H·D, d) = M_h W_O,h; M (H·D, D) after dropout
//! - gradient of folded: dE (d, d), dC (p, d), dc (d)
//! - gradient of moments: T (d, e) = γ_K γ_V dM scaled, and T_hᵀ (d, e); for K̂ and V̂, the rows (p+1, d) that multiply coordinates and 1

use super::heads::{Heads, Side, Tile};
use super::scheme::{NormSums, Scheme};
use super::{Grads, Parameters, blocks};
use crate::dims::take;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::simd::{axpy, dot, update, vectorize};
use crate::tile::{add_moments, scale_rows, set_affine, transpose};

pub(crate) struct Galerkin<'a>(pub &'a Heads<'a>);

impl Galerkin<'_> {
    /// d, e, p, D, H
    fn letters(&self) -> (usize, usize, usize, usize, usize) {
        self.0.dims.letters()
    }
}

impl Scheme for Galerkin<'_> {
    fn moments_len(&self) -> usize {
        let (d, e, p, ..) = self.letters();
        d * e + 2 * (p + 1) * d + (p + 1) * (p + 1)
    }

    fn folded_len(&self) -> usize {
        let (d, _, p, wide, heads) = self.letters();
        (2 * d + p + 1) * d + heads * wide * (d + wide)
    }

    fn folded_gradient_len(&self) -> usize {
        let (d, _, p, ..) = self.letters();
        (d + p + 1) * d
    }

    fn moments_gradient_len(&self) -> usize {
        let (d, e, p, ..) = self.letters();
        2 * d * e + 2 * (p + 1) * d
    }

    fn keys_len(&self) -> usize {
        2 * self.0.hat_len()
    }

    fn queries_len(&self) -> usize {
        0
    }

    fn tile_len(&self, rows: usize) -> usize {
        rows * 2 * self.0.dims.d
    }

    fn fold_len(&self) -> usize {
        let (d, _, _, wide, heads) = self.letters();
        heads * wide * (d + wide)
    }

    fn weights<'a>(&self, folded: &'a [f32]) -> &'a [f32] {
        let (d, _, p, wide, heads) = self.letters();
        &folded[(2 * d + p + 1) * d + heads * wide * d..]
    }

    fn by_rows(&self) -> Parameters<bool> {
        Parameters { w_k: true, b_k: true, w_v: true, b_v: true, ..Parameters::default() }
    }

    fn norm_in_apply(&self) -> bool {
        false
    }

    /// K̂ and V̂.
    fn keys(&self, tile: &Tile, keys: &mut [f32]) {
        self.0.keys_and_values(tile, keys);
    }

    fn add_moments(&self, tile: &Tile, keys: &[f32], moments: &mut [f32], scratch: &mut [f32]) {
        let (d, e, p, _, heads) = self.letters();
        let [(k, _), (v, _)] = self.0.split_keys_and_values(keys);
        let [s, sk, sv, coordinates] = blocks(moments, [d * e, (p + 1) * d, (p + 1) * d, (p + 1) * (p + 1)]);
        add_moments(k, tile.coordinates, tile.weights, sk, d);
        add_moments(v, tile.coordinates, tile.weights, sv, d);
        self.0.add_coordinate_moments(tile, coordinates);
        let k = tile.weighted(k, scratch);
        for h in 0..heads {
            let k = View::strided(&k[h * e..], tile.rows, e, d);
            let v = View::strided(&v[h * e..], tile.rows, e, d);
            gemm(Into::Add, 1.0, k.t(), v, ViewMut::new(&mut s[h * e * e..], e, e));
        }
    }

    fn fold(&self, sample: usize, moments: &[f32], folded: &mut [f32], _: &mut [f32]) {
        let (d, e, p, wide, heads) = self.letters();
        let (dims, params) = (&self.0.dims, self.0.params);
        let [ec, e_transposed, g, m] =
            blocks(folded, [(d + p + 1) * d, d * d, heads * wide * d, heads * wide * wide]);
        for h in 0..heads {
            let m = &mut m[h * wide * wide..][..wide * wide];
            self.key_value_product(h, moments, m);
            dims.weights_dropout().apply(((sample * heads + h) * wide * wide) as u64, m);
        }
        dims.project_heads(params, m, g);
        let (e_matrix, rows) = ec.split_at_mut(d * d);
        let (c_rows, c) = rows.split_at_mut(p * d);
        e_matrix.fill(0.0);
        c_rows.fill(0.0);
        c.fill(0.0);
        if dims.projection {
            c.copy_from_slice(params.b_o);
        }
        for h in 0..heads {
            let g = &g[h * wide * d..][..wide * d];
            let w_q = View::strided(&params.w_q[h * e..], d, e, d);
            gemm(Into::Add, 1.0, w_q, View::new(&g[p * d..], e, d), ViewMut::new(e_matrix, d, d));
            c_rows.iter_mut().zip(g).for_each(|(c, g)| *c += g);
            for i in 0..e {
                axpy(params.b_q[h * e + i], &g[(p + i) * d..][..d], c);
            }
        }
        transpose(e_matrix, d, d, e_transposed);
    }

    fn queries(&self, _: &Tile, _: &mut [f32], _: &mut [f32]) {}

    fn apply(
        &self,
        tile: &Tile,
        _: &[f32],
        folded: &[f32],
        base: Option<&[f32]>,
        sign: f32,
        out: &mut [f32],
    ) {
        let (d, _, p, ..) = self.letters();
        let (e_matrix, rest) = folded.split_at(d * d);
        set_affine(out, base, sign, &rest[p * d..][..d], tile.coordinates, &rest[..p * d]);
        let x = View::new(tile.x, tile.rows, d);
        gemm(Into::Add, sign, x, View::new(e_matrix, d, d), ViewMut::new(out, tile.rows, d));
    }

    fn apply_backward(
        &self,
        tile: &Tile,
        _: &[f32],
        folded: &[f32],
        da: &[f32],
        _: NormSums,
        dx: &mut [f32],
        dfolded: &mut [f32],
        _: &mut Grads,
        _: &mut [f32],
    ) {
        let (d, _, p, ..) = self.letters();
        let m = tile.rows;
        let (de, rows) = dfolded.split_at_mut(d * d);
        let e_transposed = &folded[(d + p + 1) * d..][..d * d];
        let (x, da_view) = (View::new(tile.x, m, d), View::new(da, m, d));
        gemm(Into::Add, 1.0, x.t(), da_view, ViewMut::new(de, d, d));
        add_moments(da, tile.coordinates, None, rows, d);
        gemm(Into::Add, 1.0, da_view, View::new(e_transposed, d, d), ViewMut::new(dx, m, d));
    }

    fn fold_backward(
        &self,
        sample: usize,
        moments: &[f32],
        folded: &[f32],
        dfolded: &mut [f32],
        dmoments: &mut [f32],
        grads: &mut Grads,
        mut scratch: &mut [f32],
    ) {
        let (d, e, p, wide, heads) = self.letters();
        let (dims, params) = (&self.0.dims, self.0.params);
        let (g, m) = folded[(2 * d + p + 1) * d..].split_at(heads * wide * d);
        let (de, rows) = dfolded.split_at(d * d);
        let (dc_rows, dc) = rows.split_at(p * d);
        let dg = take(&mut scratch, heads * wide * d);
        let dm = take(&mut scratch, heads * wide * wide);
        for h in 0..heads {
            let (g, dg) = (&g[h * wide * d..][..wide * d], &mut dg[h * wide * d..][..wide * d]);
            let w_q = View::strided(&params.w_q[h * e..], d, e, d);
            let (de, features) = (View::new(de, d, d), View::new(&g[p * d..], e, d));
            dg[..p * d].copy_from_slice(dc_rows);
            gemm(Into::Set, 1.0, w_q.t(), de, ViewMut::new(&mut dg[p * d..], e, d));
            gemm(Into::Add, 1.0, de, features.t(), ViewMut::strided(&mut grads.w_q[h * e..], d, e, d));
            for i in 0..e {
                let g = &g[(p + i) * d..][..d];
                grads.b_q[h * e + i] += dot(g, dc);
                axpy(params.b_q[h * e + i], dc, &mut dg[(p + i) * d..][..d]);
            }
        }
        dims.project_heads_backward(params, m, dg, dc, dm, grads);
        dmoments.fill(0.0);
        for h in 0..heads {
            let dm = &mut dm[h * wide * wide..][..wide * wide];
            dims.weights_dropout().apply(((sample * heads + h) * wide * wide) as u64, dm);
            self.key_value_product_backward(h, moments, dm, dmoments, grads);
        }
        let (t, rest) = dmoments.split_at_mut(d * e);
        for (t, t_transposed) in t.chunks_exact(e * e).zip(rest.chunks_exact_mut(e * e)) {
            transpose(t, e, e, t_transposed);
        }
    }

    fn moments_backward(
        &self,
        tile: &Tile,
        keys: &[f32],
        _: &[f32],
        dmoments: &[f32],
        norm_sums: NormSums,
        dx: &mut [f32],
        grads: &mut Grads,
        mut scratch: &mut [f32],
    ) {
        let (d, e, p, _, heads) = self.letters();
        let [(k, rk), (v, rv)] = self.0.split_keys_and_values(keys);
        let [dk, dv] = [0; 2].map(|_| take(&mut scratch, tile.rows * d));
        let (t, rest) = dmoments.split_at(d * e);
        let (t_transposed, rest) = rest.split_at(d * e);
        let (k_rows, v_rows) = rest.split_at((p + 1) * d);
        // dK̂ = w (V̂ Tᵀ + coordinates · rows + row), dV̂ = w (K̂ T + …)
        set_affine(dk, None, 1.0, &k_rows[p * d..], tile.coordinates, &k_rows[..p * d]);
        set_affine(dv, None, 1.0, &v_rows[p * d..], tile.coordinates, &v_rows[..p * d]);
        for h in 0..heads {
            let [t, t_transposed] = [t, t_transposed].map(|t| View::new(&t[h * e * e..], e, e));
            let columns = |u| View::strided(u, tile.rows, e, d);
            gemm(
                Into::Add,
                1.0,
                columns(&v[h * e..]),
                t_transposed,
                ViewMut::strided(&mut dk[h * e..], tile.rows, e, d),
            );
            gemm(
                Into::Add,
                1.0,
                columns(&k[h * e..]),
                t,
                ViewMut::strided(&mut dv[h * e..], tile.rows, e, d),
            );
        }
        if let Some(w) = tile.weights {
            scale_rows(dk, w);
            scale_rows(dv, w);
        }
        match norm_sums {
            NormSums::Collect(sums) => {
                self.0.add_sums(Side::K, k, dk, sums);
                self.0.add_sums(Side::V, v, dv, sums);
            }
            NormSums::Known(sums) => {
                self.0.normalized_backward(Side::K, tile, k, rk, sums, dk);
                self.0.normalized_backward(Side::V, tile, v, rv, sums, dv);
                self.0.project_backward(Side::K, tile, dk, dx, grads.w_k, grads.b_k);
                self.0.project_backward(Side::V, tile, dv, dx, grads.w_v, grads.b_v);
            }
        }
    }
}

impl Galerkin<'_> {
    /// M of head h (D, D) from the sums over points.
    fn key_value_product(&self, h: usize, moments: &[f32], m: &mut [f32]) {
        let (d, e, p, wide, _) = self.letters();
        let (s, rest) = moments.split_at(d * e);
        let (sk, rest) = rest.split_at((p + 1) * d);
        let (sv, coordinates) = rest.split_at((p + 1) * d);
        let measure = self.0.measure();
        let f = h * e;
        for a in 0..p {
            for b in 0..p {
                m[a * wide + b] = measure * coordinates[a * (p + 1) + b];
            }
            let (mean, total) = (&sv[a * d + f..][..e], coordinates[a * (p + 1) + p]);
            for j in 0..e {
                let (gamma, beta) = self.value_map(f + j);
                m[a * wide + p + j] = measure * (gamma * mean[j] + beta * total);
            }
        }
        for i in 0..e {
            let (gamma, beta) = self.key_map(f + i);
            for b in 0..p {
                let total = coordinates[p * (p + 1) + b];
                m[(p + i) * wide + b] = measure * (gamma * sk[b * d + f + i] + beta * total);
            }
            let (k_one, one) = (sk[p * d + f + i], coordinates[p * (p + 1) + p]);
            let (row, s) = (&mut m[(p + i) * wide + p..][..e], &s[(f + i) * e..]);
            vectorize!(match self.0.affine(Side::V) {
                None => update(row, [s], |_, [s]| measure * s),
                Some((gamma_v, beta_v)) => {
                    let against_one = gamma * k_one + beta * one;
                    update(
                        row,
                        [s, &sv[p * d + f..], &gamma_v[f..], &beta_v[f..]],
                        |_, [s, v, gamma_v, beta_v]| {
                            measure * (gamma_v * (gamma * s + beta * v) + beta_v * against_one)
                        },
                    );
                }
            });
        }
    }

    /// From dM of head h: the gradient of the moments as the points need it, and those of γ and β.
    fn key_value_product_backward(
        &self,
        h: usize,
        moments: &[f32],
        dm: &[f32],
        dmoments: &mut [f32],
        grads: &mut Grads,
    ) {
        let (d, e, p, wide, _) = self.letters();
        let (s, rest) = moments.split_at(d * e);
        let (sk, rest) = rest.split_at((p + 1) * d);
        let (sv, coordinates) = rest.split_at((p + 1) * d);
        let [t, _, k_rows, v_rows] = blocks(dmoments, [d * e, d * e, (p + 1) * d, (p + 1) * d]);
        let measure = self.0.measure();
        let (f, normed) = (h * e, !grads.gamma_k.is_empty());
        let one = coordinates[p * (p + 1) + p];
        for j in 0..e {
            let (gamma, _) = self.value_map(f + j);
            for a in 0..p {
                let g = measure * dm[a * wide + p + j];
                v_rows[a * d + f + j] += gamma * g;
                if normed {
                    grads.gamma_qv[f + j] += g * sv[a * d + f + j];
                    grads.beta_qv[f + j] += g * coordinates[a * (p + 1) + p];
                }
            }
        }
        for i in 0..e {
            let (gamma, beta) = self.key_map(f + i);
            let (mut dgamma, mut dbeta) = (0.0, 0.0);
            for b in 0..p {
                let g = measure * dm[(p + i) * wide + b];
                k_rows[b * d + f + i] += gamma * g;
                dgamma += g * sk[b * d + f + i];
                dbeta += g * coordinates[p * (p + 1) + b];
            }
            let (g, t) = (&dm[(p + i) * wide + p..][..e], &mut t[(f + i) * e..][..e]);
            let Some((gamma_v, beta_v)) = self.0.affine(Side::V) else {
                update(t, [g], |_, [g]| measure * g);
                continue;
            };
            let (s, v_one, k_one) = (&s[(f + i) * e..][..e], &sv[p * d + f..][..e], sk[p * d + f + i]);
            vectorize!({
                // t = γ_V g for the sums, then γ_K γ_V g for the points.
                update(t, [g, &gamma_v[f..]], |_, [g, gamma_v]| measure * gamma_v * g);
                let through_beta = measure * dot(g, &beta_v[f..f + e]);
                k_rows[p * d + f + i] += gamma * through_beta;
                dgamma += dot(t, s) + through_beta * k_one;
                dbeta += dot(t, v_one) + through_beta * one;
                axpy(beta, t, &mut v_rows[p * d + f..][..e]);
                update(t, [], |t, []| gamma * t);
                let against_one = measure * (gamma * k_one + beta * one);
                update(&mut grads.gamma_qv[f..f + e], [g, s, v_one], |sum, [g, s, v]| {
                    sum + measure * g * (gamma * s + beta * v)
                });
                axpy(against_one, g, &mut grads.beta_qv[f..f + e]);
            });
            grads.gamma_k[f + i] += dgamma;
            grads.beta_k[f + i] += dbeta;
        }
    }

    fn key_map(&self, feature: usize) -> (f32, f32) {
        self.0.affine_at(Side::K, feature)
    }

    fn value_map(&self, feature: usize) -> (f32, f32) {
        self.0.affine_at(Side::V, feature)
    }
}
