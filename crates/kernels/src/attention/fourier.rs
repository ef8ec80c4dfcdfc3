//! Fourier attention at linear cost: (Q̃K̃ᵀ)V = Q̃(K̃ᵀV), because no softmax stands in between.
//!
//! Per head, with ẑ the normalised projections before their affine map and w the measure of a point:
//!
//! ```text
//! Q̃ = [coordinates | Q̂ γ_Q + β_Q]    K̃ = [coordinates | K̂ γ_K + β_K]    V = [coordinates | x W_V + b_V]
//! N = K̃ᵀ diag(w) V / √D     (D × D)
//! out = Σ_h Q̃_h N_h W_O,h + b_O = Q̂ E + coordinates C + c
//! ```
//!
//! V is not normalised, so its projection moves out of the sum over points: K̃ᵀV needs K̂ᵀx alone, and W_V acts on a d × d matrix
//! per sample. A point costs as many products as in [Galerkin attention](super::galerkin).
//!
//! Layouts, all row-major:
//! - moments: S (d, d) = K̂ᵀ w x; K (p+1, d) and X (p+1, d), K̂ and x against the coordinates and, last, against 1; coordinates (p+1, p+1)
//! - folded: E (d, d) = γ_Q G, C (p, d), c (d); Eᵀ (d, d); G (H·D, d) = N_h W_O,h; N (H·D, D)
//! - gradient of folded: dE (d, d), dC (p, d), dc (d)
//! - gradient of moments: dS (d, d) and dSᵀ; for K̂ and x, the rows (p+1, d) that multiply coordinates and 1

use super::heads::{Heads, Side, Tile};
use super::scheme::{NormSums, Scheme};
use super::{Grads, Parameters, blocks};
use crate::dims::take;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::simd::{axpy, dot};
use crate::tile::{add, add_moments, scale_rows, set_affine, transpose};

pub(crate) struct Fourier<'a>(pub &'a Heads<'a>);

impl Fourier<'_> {
    /// d, e, p, D, H
    fn letters(&self) -> (usize, usize, usize, usize, usize) {
        self.0.dims.letters()
    }

    /// The measure of a point over √D.
    fn scale(&self) -> f32 {
        self.0.measure() / (self.0.dims.wide() as f32).sqrt()
    }

    fn key_map(&self, feature: usize) -> (f32, f32) {
        self.0.affine_at(Side::K, feature)
    }

    fn query_map(&self, feature: usize) -> (f32, f32) {
        self.0.affine_at(Side::Q, feature)
    }

    /// U = γ_K S + β_K ⊗ (1ᵀ w x): the features of K̃ against x, (d, d).
    fn keys_against_x(&self, moments: &Moments, u: &mut [f32]) {
        let (d, _, p, ..) = self.letters();
        for (i, (u, s)) in u.chunks_exact_mut(d).zip(moments.s.chunks_exact(d)).enumerate() {
            let (gamma, beta) = self.key_map(i);
            let x_one = &moments.x[p * d..];
            u.iter_mut().zip(s).zip(x_one).for_each(|((u, s), x)| *u = gamma * s + beta * x);
        }
    }
}

/// The moments by name.
struct Moments<'a> {
    s: &'a [f32],
    k: &'a [f32],
    x: &'a [f32],
    coordinates: &'a [f32],
}

impl<'a> Moments<'a> {
    fn new(moments: &'a [f32], d: usize, p: usize) -> Self {
        let (s, rest) = moments.split_at(d * d);
        let (k, rest) = rest.split_at((p + 1) * d);
        let (x, coordinates) = rest.split_at((p + 1) * d);
        Self { s, k, x, coordinates }
    }
}

impl Scheme for Fourier<'_> {
    fn moments_len(&self) -> usize {
        let (d, _, p, ..) = self.letters();
        d * d + 2 * (p + 1) * d + (p + 1) * (p + 1)
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
        let (d, _, p, ..) = self.letters();
        2 * d * d + 2 * (p + 1) * d
    }

    fn keys_len(&self) -> usize {
        self.0.hat_len()
    }

    fn queries_len(&self) -> usize {
        self.0.hat_len()
    }

    fn tile_len(&self, rows: usize) -> usize {
        rows * self.0.dims.d
    }

    fn fold_len(&self) -> usize {
        let (d, _, _, wide, heads) = self.letters();
        2 * d * d + heads * wide * (d + wide)
    }

    fn weights<'a>(&self, folded: &'a [f32]) -> &'a [f32] {
        let (d, _, p, wide, heads) = self.letters();
        &folded[(2 * d + p + 1) * d + heads * wide * d..]
    }

    fn by_rows(&self) -> Parameters<bool> {
        Parameters { w_q: true, b_q: true, w_k: true, b_k: true, ..Parameters::default() }
    }

    fn norm_in_apply(&self) -> bool {
        true
    }

    /// K̂
    fn keys(&self, tile: &Tile, keys: &mut [f32]) {
        self.0.hat(Side::K, tile, keys);
    }

    fn add_moments(&self, tile: &Tile, keys: &[f32], moments: &mut [f32], scratch: &mut [f32]) {
        let (d, _, p, ..) = self.letters();
        let (k, _) = self.0.split_hat(keys);
        let [s, sk, sx, coordinates] = blocks(moments, [d * d, (p + 1) * d, (p + 1) * d, (p + 1) * (p + 1)]);
        add_moments(k, tile.coordinates, tile.weights, sk, d);
        add_moments(tile.x, tile.coordinates, tile.weights, sx, d);
        self.0.add_coordinate_moments(tile, coordinates);
        let k = tile.weighted(k, scratch);
        let (k, x) = (View::new(k, tile.rows, d), View::new(tile.x, tile.rows, d));
        gemm(Into::Add, 1.0, k.t(), x, ViewMut::new(s, d, d));
    }

    fn fold(&self, _: usize, moments: &[f32], folded: &mut [f32], scratch: &mut [f32]) {
        let (d, e, p, wide, heads) = self.letters();
        let (dims, params, scale) = (&self.0.dims, self.0.params, self.scale());
        let moments = Moments::new(moments, d, p);
        let [ec, e_transposed, g, n] =
            blocks(folded, [(d + p + 1) * d, d * d, heads * wide * d, heads * wide * wide]);
        let u = &mut scratch[..d * d];
        self.keys_against_x(&moments, u);
        for h in 0..heads {
            let (f, n) = (h * e, &mut n[h * wide * wide..][..wide * wide]);
            let w_v = View::strided(&params.w_v[f..], d, e, d);
            let features = View::new(&u[f * d..], e, d);
            gemm(Into::Set, scale, features, w_v, ViewMut::strided(&mut n[p * wide + p..], e, e, wide));
            let b_v = &params.b_v[f..f + e];
            for i in 0..e {
                let (gamma, beta) = self.key_map(f + i);
                let at =
                    |a: usize| gamma * moments.k[a * d + f + i] + beta * moments.coordinates[p * (p + 1) + a];
                let row = &mut n[(p + i) * wide..][..wide];
                for (b, out) in row[..p].iter_mut().enumerate() {
                    *out = scale * at(b);
                }
                axpy(scale * at(p), b_v, &mut row[p..]);
            }
            if p > 0 {
                let x_rows = View::new(moments.x, p, d);
                gemm(Into::Set, scale, x_rows, w_v, ViewMut::strided(&mut n[p..], p, e, wide));
            }
            for a in 0..p {
                let row = &mut n[a * wide..][..wide];
                for (out, m) in row[..p].iter_mut().zip(&moments.coordinates[a * (p + 1)..]) {
                    *out = scale * m;
                }
                axpy(scale * moments.coordinates[a * (p + 1) + p], b_v, &mut row[p..]);
            }
        }
        dims.project_heads(params, n, g);
        let (e_matrix, rows) = ec.split_at_mut(d * d);
        let (c_rows, c) = rows.split_at_mut(p * d);
        c_rows.fill(0.0);
        c.fill(0.0);
        if dims.projection {
            c.copy_from_slice(params.b_o);
        }
        for h in 0..heads {
            let g = &g[h * wide * d..][..wide * d];
            add(c_rows, g);
            for i in 0..e {
                let (gamma, beta) = self.query_map(h * e + i);
                let g = &g[(p + i) * d..][..d];
                e_matrix[(h * e + i) * d..][..d].iter_mut().zip(g).for_each(|(e, g)| *e = gamma * g);
                axpy(beta, g, c);
            }
        }
        transpose(e_matrix, d, d, e_transposed);
    }

    /// Q̂
    fn queries(&self, tile: &Tile, queries: &mut [f32], _: &mut [f32]) {
        self.0.hat(Side::Q, tile, queries);
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
        let (d, _, p, ..) = self.letters();
        let (e_matrix, rest) = folded.split_at(d * d);
        set_affine(out, base, sign, &rest[p * d..][..d], tile.coordinates, &rest[..p * d]);
        let q = View::new(self.0.split_hat(queries).0, tile.rows, d);
        gemm(Into::Add, sign, q, View::new(e_matrix, d, d), ViewMut::new(out, tile.rows, d));
    }

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
    ) {
        let (d, _, p, ..) = self.letters();
        let m = tile.rows;
        let e_transposed = &folded[(d + p + 1) * d..][..d * d];
        let (q, r) = self.0.split_hat(queries);
        let dq = &mut scratch[..m * d];
        let da_view = View::new(da, m, d);
        gemm(Into::Set, 1.0, da_view, View::new(e_transposed, d, d), ViewMut::new(dq, m, d));
        let sums = match norm_sums {
            NormSums::Collect(sums) => return self.0.add_sums(Side::Q, q, dq, sums),
            NormSums::Known(sums) => sums,
        };
        let (de, rows) = dfolded.split_at_mut(d * d);
        gemm(Into::Add, 1.0, View::new(q, m, d).t(), da_view, ViewMut::new(de, d, d));
        add_moments(da, tile.coordinates, None, rows, d);
        self.0.normalized_backward(Side::Q, tile, q, r, sums, dq);
        self.0.project_backward(Side::Q, tile, dq, dx, grads.w_q, grads.b_q);
    }

    fn fold_backward(
        &self,
        _: usize,
        moments: &[f32],
        folded: &[f32],
        dfolded: &mut [f32],
        dmoments: &mut [f32],
        grads: &mut Grads,
        mut scratch: &mut [f32],
    ) {
        let (d, e, p, wide, heads) = self.letters();
        let (dims, params, scale) = (&self.0.dims, self.0.params, self.scale());
        let moments = Moments::new(moments, d, p);
        let normed = !grads.gamma_k.is_empty();
        let (g, n) = folded[(2 * d + p + 1) * d..].split_at(heads * wide * d);
        let (de, rows) = dfolded.split_at(d * d);
        let (dc_rows, dc) = rows.split_at(p * d);
        let [u, du] = [0; 2].map(|_| take(&mut scratch, d * d));
        let dg = take(&mut scratch, heads * wide * d);
        let dn = take(&mut scratch, heads * wide * wide);

        // E = γ_Q G, c = b_O + β_Q G
        for h in 0..heads {
            let (g, dg) = (&g[h * wide * d..][..wide * d], &mut dg[h * wide * d..][..wide * d]);
            dg[..p * d].copy_from_slice(dc_rows);
            for i in 0..e {
                let (gamma, beta) = self.query_map(h * e + i);
                let (g, de) = (&g[(p + i) * d..][..d], &de[(h * e + i) * d..][..d]);
                let dg = &mut dg[(p + i) * d..][..d];
                dg.iter_mut().zip(de).zip(dc).for_each(|((dg, de), dc)| *dg = gamma * de + beta * dc);
                if normed {
                    grads.gamma_qv[h * e + i] += dot(g, de);
                    grads.beta_qv[h * e + i] += dot(g, dc);
                }
            }
        }
        dims.project_heads_backward(params, n, dg, dc, dn, grads);

        // N = scale·(U W_V + k₁ ⊗ b_V) and its coordinate rows and columns
        self.keys_against_x(&moments, u);
        let [ds, ds_transposed, k_rows, x_rows] = blocks(dmoments, [d * d, d * d, (p + 1) * d, (p + 1) * d]);
        k_rows.fill(0.0);
        x_rows.fill(0.0);
        for h in 0..heads {
            let (f, dn) = (h * e, &dn[h * wide * wide..][..wide * wide]);
            let w_v = View::strided(&params.w_v[f..], d, e, d);
            let features = View::strided(&dn[p * wide + p..], e, e, wide);
            gemm(Into::Set, scale, features, w_v.t(), ViewMut::new(&mut du[f * d..], e, d));
            let u = View::new(&u[f * d..], e, d);
            gemm(Into::Add, scale, u.t(), features, ViewMut::strided(&mut grads.w_v[f..], d, e, d));
            if p > 0 {
                let coordinate_rows = View::strided(&dn[p..], p, e, wide);
                let x = View::new(moments.x, p, d);
                gemm(
                    Into::Add,
                    scale,
                    x.t(),
                    coordinate_rows,
                    ViewMut::strided(&mut grads.w_v[f..], d, e, d),
                );
                gemm(Into::Add, scale, coordinate_rows, w_v.t(), ViewMut::new(x_rows, p, d));
            }
            let b_v = &params.b_v[f..f + e];
            for a in 0..p {
                let total = scale * moments.coordinates[a * (p + 1) + p];
                axpy(total, &dn[a * wide + p..][..e], &mut grads.b_v[f..f + e]);
            }
            for i in 0..e {
                let (gamma, beta) = self.key_map(f + i);
                let dn = &dn[(p + i) * wide..][..wide];
                // k_a = γ K_a + β coordinates_a: against each coordinate, and against 1 through b_V
                let slope = |a: usize| scale * if a < p { dn[a] } else { dot(&dn[p..], b_v) };
                let key = |a: usize| (moments.k[a * d + f + i], moments.coordinates[p * (p + 1) + a]);
                axpy(scale * (gamma * key(p).0 + beta * key(p).1), &dn[p..], &mut grads.b_v[f..f + e]);
                for a in 0..=p {
                    k_rows[a * d + f + i] = gamma * slope(a);
                    if normed {
                        grads.gamma_k[f + i] += slope(a) * key(a).0;
                        grads.beta_k[f + i] += slope(a) * key(a).1;
                    }
                }
            }
        }
        // U = γ_K S + β_K ⊗ x₁
        for i in 0..d {
            let (gamma, beta) = self.key_map(i);
            let du = &du[i * d..][..d];
            ds[i * d..][..d].iter_mut().zip(du).for_each(|(ds, du)| *ds = gamma * du);
            axpy(beta, du, &mut x_rows[p * d..]);
            if normed {
                grads.gamma_k[i] += dot(du, &moments.s[i * d..][..d]);
                grads.beta_k[i] += dot(du, &moments.x[p * d..]);
            }
        }
        transpose(ds, d, d, ds_transposed);
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
        scratch: &mut [f32],
    ) {
        let (d, _, p, ..) = self.letters();
        let m = tile.rows;
        let (k, r) = self.0.split_hat(keys);
        let dk = &mut scratch[..m * d];
        let (ds, rest) = dmoments.split_at(d * d);
        let (ds_transposed, rest) = rest.split_at(d * d);
        let (k_rows, x_rows) = rest.split_at((p + 1) * d);
        let [ds, ds_transposed] = [ds, ds_transposed].map(|m| View::new(m, d, d));
        // dK̂ = w (x dSᵀ + coordinates · rows + row)
        set_affine(dk, None, 1.0, &k_rows[p * d..], tile.coordinates, &k_rows[..p * d]);
        gemm(Into::Add, 1.0, View::new(tile.x, m, d), ds_transposed, ViewMut::new(dk, m, d));
        if let Some(w) = tile.weights {
            scale_rows(dk, w);
        }
        let sums = match norm_sums {
            NormSums::Collect(sums) => return self.0.add_sums(Side::K, k, dk, sums),
            NormSums::Known(sums) => sums,
        };
        self.0.normalized_backward(Side::K, tile, k, r, sums, dk);
        self.0.project_backward(Side::K, tile, dk, dx, grads.w_k, grads.b_k);
        // dx += w (K̂ dS + coordinates · rows + row), which may take the place of dK̂ now
        let own = dk;
        set_affine(own, None, 1.0, &x_rows[p * d..], tile.coordinates, &x_rows[..p * d]);
        match tile.weights {
            None => {
                add(dx, own);
                gemm(Into::Add, 1.0, View::new(k, m, d), ds, ViewMut::new(dx, m, d));
            }
            Some(w) => {
                gemm(Into::Add, 1.0, View::new(k, m, d), ds, ViewMut::new(own, m, d));
                scale_rows(own, w);
                add(dx, own);
            }
        }
    }
}
