//! Attention without and with softmax: shapes, parameters and the four types.

mod fourier;
mod galerkin;
mod heads;
mod linear;
mod quadratic;
mod scheme;

pub(crate) use heads::Tile;
pub(crate) use scheme::{Apply, Bare, Tail};

use crate::dims::{check_at_least, check_len, mismatch};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::Rows;
use crate::parameters::parameters;
use crate::tile::{add, transpose};
use fourier::Fourier;
use galerkin::Galerkin;
use heads::Heads;
use linear::Linear;
use quadratic::Quadratic;
use scheme::{Buffers, Points, Scheme};

/// Which attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Q (K̃ᵀṼ)/n: norms on K and V.
    Galerkin,
    /// (Q̃K̃ᵀ)V/(n√D): norms on Q and K.
    Fourier,
    /// softmax_features(Q) (softmax_points(K̃)ᵀ Ṽ)/n: norms on K and V.
    Linear,
    /// softmax(Q̃K̃ᵀ/√D) V: norms on Q and K.
    Softmax,
}

/// How two of Q, K, V are normalised inside the heads, before the coordinates are put in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Not at all.
    None,
    /// Every point over the e features of its head.
    Layer,
    /// Every feature over the n points of its sample.
    Instance,
}

/// Shapes and options of an attention layer.
///
/// B = `batch`, n = `n` points, d = `d` features, H = `heads`, e = d/H features per head, p = `coordinates`, D = e + p.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Which attention.
    pub kind: Kind,
    /// B, samples.
    pub batch: usize,
    /// n, points per sample.
    pub n: usize,
    /// d, features per point.
    pub d: usize,
    /// H, heads; must divide d.
    pub heads: usize,
    /// p, coordinates put in front of the features of every head of Q, K and V.
    pub coordinates: usize,
    /// Whether the heads are merged by W_O and b_O. Without, p must be 0 and the heads side by side are the output.
    pub projection: bool,
    /// The norm inside the heads.
    pub norm: Norm,
    /// ε of that norm: (x − mean)/√(variance + ε).
    pub eps: f32,
    /// Dropout rate on the attention weights (K̃ᵀṼ/n, or the n × n matrix); 0 outside training.
    pub dropout: f32,
    /// The stream of the masks.
    pub key: Key,
    /// Whether the forward pass keeps what it knows of every point, some n·d values each of Q̂ or V̂, K̂ and in an encoder layer x₁ and the hidden layer,
    /// instead of leaving it to the backward pass to compute again. The results are the same bits. Attention through an n × n matrix keeps nothing.
    pub keep: bool,
}

parameters! {
    /// Parameters, y = x W + b with W stored (in, out), or one thing for each of them.
    pub struct Parameters {
        /// (d, d): head h owns columns h·e..(h+1)·e.
        w_q,
        /// (d)
        b_q,
        /// (d, d)
        w_k,
        /// (d)
        b_k,
        /// (d, d)
        w_v,
        /// (d)
        b_v,
        /// (d), heads side by side; empty without norm.
        gamma_k,
        /// (d); empty without norm.
        beta_k,
        /// (d): of V for galerkin and linear, of Q for fourier and softmax; empty without norm.
        gamma_qv,
        /// (d); empty without norm.
        beta_qv,
        /// (H·D, d): rows of head h are h·D..(h+1)·D, coordinates first; empty without projection.
        w_o,
        /// (d); empty without projection.
        b_o,
    }
}

/// What attention looks at, besides its parameters. `T` is f64 for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a, T = f32> {
    /// (B, n, d)
    pub x: &'a [T],
    /// (B, n, p)
    pub coordinates: &'a [T],
    /// (B, n) quadrature weights in place of 1/n.
    ///
    /// They stand for the measure of a point: in galerkin, fourier and linear the factor 1/n becomes w_j inside the sum over
    /// points; softmax becomes w_j exp(s_ij) / Σ_l w_l exp(s_il). Equal weights 1/n give the unweighted layer.
    pub weights: Option<&'a [T]>,
}

impl Attention {
    /// e = d/H.
    pub fn head_width(&self) -> usize {
        self.d / self.heads
    }

    /// D = e + p.
    pub fn wide(&self) -> usize {
        self.head_width() + self.coordinates
    }

    /// Whether the norm acts on V (galerkin, linear) rather than on Q (fourier, softmax); K is always the other.
    pub fn norm_on_v(&self) -> bool {
        matches!(self.kind, Kind::Galerkin | Kind::Linear)
    }

    /// Values per sample and head of the attention weights: n × n for fourier and softmax, D × D for galerkin and linear.
    pub fn weights_side(&self) -> usize {
        match self.kind {
            Kind::Galerkin | Kind::Linear => self.wide(),
            Kind::Fourier | Kind::Softmax => self.n,
        }
    }

    /// The dropout on the attention weights. The weight (i, j) of sample b and head h lies at position
    /// ((b·H + h)·side + i)·side + j with [`weights_side`](Self::weights_side).
    pub fn weights_dropout(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Weights }
    }
}

/// Rows of a tile for width d: the dozen tiles a point passes through, with the weights, stay in a second-level cache of two megabytes.
fn tile_rows(d: usize) -> usize {
    (32_768 / d.max(1) / 12 * 12).clamp(12, 384)
}

impl Attention {
    /// d, e, p, D, H
    pub(crate) fn letters(&self) -> (usize, usize, usize, usize, usize) {
        (self.d, self.head_width(), self.coordinates, self.wide(), self.heads)
    }

    pub(crate) fn sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("batch", self.batch),
            ("n", self.n),
            ("d", self.d),
            ("heads", self.heads),
            ("coordinates", self.coordinates),
        ]
    }

    pub(crate) fn cut(&self) -> Rows {
        Rows::new(self.batch, self.n, tile_rows(self.d))
    }

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        let (d, norm) = (self.d, if self.norm == Norm::None { 0 } else { self.d });
        let (w_o, b_o) = if self.projection { (self.heads * self.wide() * d, d) } else { (0, 0) };
        Parameters {
            w_q: d * d,
            b_q: d,
            w_k: d * d,
            b_k: d,
            w_v: d * d,
            b_v: d,
            gamma_k: norm,
            beta_k: norm,
            gamma_qv: norm,
            beta_qv: norm,
            w_o,
            b_o,
        }
    }

    /// g_h = m_h W_O,h: (H·D, D) to (H·D, d). Without projection head h goes to its own columns.
    fn project_heads(&self, params: &Params, m: &[f32], g: &mut [f32]) {
        let (d, e, _, wide, heads) = self.letters();
        if !self.projection {
            g.fill(0.0);
            for (row, m) in m.chunks_exact(e).enumerate() {
                g[row * d + row / e * e..][..e].copy_from_slice(m);
            }
            return;
        }
        for h in 0..heads {
            let m = View::new(&m[h * wide * wide..], wide, wide);
            let w_o = View::new(&params.w_o[h * wide * d..], wide, d);
            gemm(Into::Set, 1.0, m, w_o, ViewMut::new(&mut g[h * wide * d..], wide, d));
        }
    }

    /// dm from dg, and the gradients of W_O and b_O from dg and the gradient `dc` of what is added at every point.
    fn project_heads_backward(
        &self,
        params: &Params,
        m: &[f32],
        dg: &[f32],
        dc: &[f32],
        dm: &mut [f32],
        grads: &mut Grads,
    ) {
        let (d, e, _, wide, heads) = self.letters();
        if !self.projection {
            for (row, dm) in dm.chunks_exact_mut(e).enumerate() {
                dm.copy_from_slice(&dg[row * d + row / e * e..][..e]);
            }
            return;
        }
        add(grads.b_o, dc);
        for h in 0..heads {
            let m = View::new(&m[h * wide * wide..], wide, wide);
            let w_o = View::new(&params.w_o[h * wide * d..], wide, d);
            let dg = View::new(&dg[h * wide * d..], wide, d);
            gemm(Into::Set, 1.0, dg, w_o.t(), ViewMut::new(&mut dm[h * wide * wide..], wide, wide));
            gemm(Into::Add, 1.0, m.t(), dg, ViewMut::new(&mut grads.w_o[h * wide * d..], wide, d));
        }
    }
}

impl Attention {
    /// Values saved from the forward for the backward pass: sums over points, O(d²) per sample, and with [`keep`](Self::keep) what is known of every
    /// point.
    pub fn saved_len(&self) -> usize {
        self.saved_len_with(&Bare)
    }

    pub(crate) fn saved_len_with<T: Tail>(&self, tail: &T) -> usize {
        self.check_shape();
        let none = Params::default();
        let heads =
            Heads { dims: *self, params: &none, input: Input::EMPTY, statistics: &[], transposed: &[] };
        self.statistics_len()
            + match self.route() {
                Route::Galerkin => scheme_saved(self, &Galerkin(&heads), tail),
                Route::Fourier => scheme_saved(self, &Fourier(&heads), tail),
                Route::Linear => scheme_saved(self, &Linear(&heads), tail),
                Route::Quadratic => Quadratic::saved_len(self),
            }
    }

    /// Values of workspace that any of the passes needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        self.check_shape();
        self.workspace_len_with(&Bare, threads)
    }

    pub(crate) fn workspace_len_with<T: Tail>(&self, tail: &T, threads: usize) -> usize {
        let none = Params::default();
        let heads =
            Heads { dims: *self, params: &none, input: Input::EMPTY, statistics: &[], transposed: &[] };
        let own = match self.route() {
            Route::Galerkin => scheme_workspace(&heads, &Galerkin(&heads), tail, threads),
            Route::Fourier => scheme_workspace(&heads, &Fourier(&heads), tail, threads),
            Route::Linear => scheme_workspace(&heads, &Linear(&heads), tail, threads),
            Route::Quadratic => Quadratic::new(&heads).workspace_len(tail, threads),
        };
        own + 3 * self.d * self.d
    }

    /// The way a layer of this kind is computed.
    fn route(&self) -> Route {
        match self.kind {
            Kind::Galerkin => Route::Galerkin,
            Kind::Fourier if self.dropout == 0.0 => Route::Fourier,
            Kind::Linear => Route::Linear,
            Kind::Fourier | Kind::Softmax => Route::Quadratic,
        }
    }

    /// `out` (B, n, d), and in `saved` what [`backward`](Self::backward) needs.
    pub fn forward(
        &self,
        params: &Params,
        input: Input,
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.check(params, input, saved.len(), workspace.len(), &Bare);
        check_len("attention out", out.len(), self.batch * self.n * self.d, &self.sizes());
        self.forward_with(params, input, &Bare, out, saved, workspace);
    }

    /// `dx` (B, n, d) and the gradients of the parameters, from `dy` (B, n, d); they are overwritten.
    #[allow(clippy::too_many_arguments)]
    pub fn backward(
        &self,
        params: &Params,
        input: Input,
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.check(params, input, saved.len(), workspace.len(), &Bare);
        check_len("attention dy", dy.len(), self.batch * self.n * self.d, &self.sizes());
        check_len("attention dx", dx.len(), self.batch * self.n * self.d, &self.sizes());
        grads.check("gradient of attention", self.lengths(), &self.sizes());
        self.backward_with(params, input, &Bare, saved, dy, dx, grads, &mut [], workspace);
    }

    pub(crate) fn forward_with<T: Tail>(
        &self,
        params: &Params,
        input: Input,
        tail: &T,
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        if out.is_empty() {
            return;
        }
        let (statistics, saved) = saved.split_at_mut(self.statistics_len());
        if !statistics.is_empty() {
            let heads = Heads { dims: *self, params, input, statistics: &[], transposed: &[] };
            scheme::point_statistics(&heads, statistics, workspace);
        }
        let heads = Heads { dims: *self, params, input, statistics, transposed: &[] };
        match self.route() {
            Route::Galerkin => scheme::forward(&heads, &Galerkin(&heads), tail, out, saved, workspace),
            Route::Fourier => scheme::forward(&heads, &Fourier(&heads), tail, out, saved, workspace),
            Route::Linear => scheme::forward(&heads, &Linear(&heads), tail, out, saved, workspace),
            Route::Quadratic => Quadratic::new(&heads).forward(tail, out, saved, workspace),
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn backward_with<T: Tail>(
        &self,
        params: &Params,
        input: Input,
        tail: &T,
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        tail_grads: &mut [&mut [f32]],
        workspace: &mut [f32],
    ) {
        if dx.is_empty() {
            grads.into_array().into_iter().for_each(|g| g.fill(0.0));
            tail_grads.iter_mut().for_each(|g| g.fill(0.0));
            return;
        }
        let (statistics, saved) = saved.split_at(self.statistics_len());
        let (transposed, workspace) = workspace.split_at_mut(3 * self.d * self.d);
        for (w, out) in
            [params.w_q, params.w_k, params.w_v].iter().zip(transposed.chunks_exact_mut(self.d * self.d))
        {
            transpose(w, self.d, self.d, out);
        }
        let heads = Heads { dims: *self, params, input, statistics, transposed };
        match self.route() {
            Route::Galerkin => {
                scheme::backward(&heads, &Galerkin(&heads), tail, saved, dy, dx, grads, tail_grads, workspace)
            }
            Route::Fourier => {
                scheme::backward(&heads, &Fourier(&heads), tail, saved, dy, dx, grads, tail_grads, workspace)
            }
            Route::Linear => {
                scheme::backward(&heads, &Linear(&heads), tail, saved, dy, dx, grads, tail_grads, workspace)
            }
            Route::Quadratic => {
                Quadratic::new(&heads).backward(tail, saved, dy, dx, grads, tail_grads, workspace)
            }
        }
    }

    /// The attention weights after dropout, to look at: (B, H, D, D) for galerkin and linear, (B, H, n, n) for fourier and softmax.
    ///
    /// Looking is not training: this one allocates what it needs.
    pub fn weights(&self, params: &Params, input: Input, out: &mut [f32]) {
        self.check_input(params, input);
        let side = self.weights_side();
        check_len("attention weights out", out.len(), self.batch * self.heads * side * side, &self.sizes());
        if self.batch == 0 || self.n == 0 {
            // Sums over no points.
            return out.fill(0.0);
        }
        let empty = Heads { dims: *self, params, input, statistics: &[], transposed: &[] };
        let (threads, own) = (crate::par::threads(), self.workspace_len_with(&Bare, crate::par::threads()));
        let workspace = &mut vec![0.0; Quadratic::new(&empty).weights_len(threads).max(own)];
        let mut statistics = vec![0.0; self.statistics_len()];
        if !statistics.is_empty() {
            let heads = Heads { dims: *self, params, input, statistics: &[], transposed: &[] };
            scheme::point_statistics(&heads, &mut statistics, workspace);
        }
        let heads = Heads { dims: *self, params, input, statistics: &statistics, transposed: &[] };
        match self.kind {
            Kind::Galerkin => scheme::weights(&heads, &Galerkin(&heads), out, workspace),
            Kind::Linear => scheme::weights(&heads, &Linear(&heads), out, workspace),
            Kind::Fourier | Kind::Softmax => Quadratic::new(&heads).weights(out, workspace),
        }
    }

    fn statistics_len(&self) -> usize {
        if self.norm == Norm::Instance { self.batch * 4 * self.d } else { 0 }
    }

    fn check_shape(&self) {
        if self.heads == 0 || self.d == 0 || !self.d.is_multiple_of(self.heads) {
            mismatch("attention: the number of heads must divide the width", &self.sizes());
        }
        if self.coordinates > 0 && !self.projection {
            mismatch("attention: coordinates need the output projection", &self.sizes());
        }
    }

    /// Panics, with all sizes named, unless every slice fits.
    pub(crate) fn check<T: Tail>(
        &self,
        params: &Params,
        input: Input,
        saved: usize,
        workspace: usize,
        tail: &T,
    ) {
        self.check_input(params, input);
        check_len("attention saved", saved, self.saved_len_with(tail), &self.sizes());
        check_at_least("attention workspace", workspace, self.workspace_len_with(tail, 1), &self.sizes());
    }

    fn check_input(&self, params: &Params, input: Input) {
        self.check_shape();
        let (sizes, points) = (self.sizes(), self.batch * self.n);
        check_len("attention x", input.x.len(), points * self.d, &sizes);
        check_len("attention coordinates", input.coordinates.len(), points * self.coordinates, &sizes);
        if let Some(w) = input.weights {
            check_len("attention weights", w.len(), points, &sizes);
        }
        params.check("attention", self.lengths(), &sizes);
    }
}

impl Input<'_> {
    const EMPTY: Self = Input { x: &[], coordinates: &[], weights: None };
}

enum Route {
    Galerkin,
    Fourier,
    Linear,
    Quadratic,
}

fn scheme_saved<S: Scheme, T: Tail>(dims: &Attention, scheme: &S, tail: &T) -> usize {
    dims.batch * scheme.moments_len() + Points::new(dims, scheme, tail).kept_len(dims.batch * dims.n)
}

fn scheme_workspace<S: Scheme, T: Tail>(heads: &Heads, scheme: &S, tail: &T, threads: usize) -> usize {
    let buffers = Buffers::new(heads, scheme, tail);
    buffers.forward_len(scheme, threads).max(buffers.backward_len(scheme, threads))
}

/// Cuts a run of values into blocks of the given lengths; what is left over is not used.
fn blocks<const N: usize>(memory: &mut [f32], lengths: [usize; N]) -> [&mut [f32]; N] {
    let mut rest = memory;
    lengths.map(|len| crate::dims::take(&mut rest, len))
}
