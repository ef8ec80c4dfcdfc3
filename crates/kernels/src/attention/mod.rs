//! Attention without and with softmax: shapes, parameters and the four types.

use crate::dropout::{Dropout, Key, Site};

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
}

/// Parameters: `y = x W + b` with W stored (in, out), row-major. `T` is f64 for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a, T = f32> {
    /// (d, d): head h owns columns h·e..(h+1)·e.
    pub w_q: &'a [T],
    /// (d)
    pub b_q: &'a [T],
    /// (d, d)
    pub w_k: &'a [T],
    /// (d)
    pub b_k: &'a [T],
    /// (d, d)
    pub w_v: &'a [T],
    /// (d)
    pub b_v: &'a [T],
    /// (d), heads side by side; empty without norm.
    pub gamma_k: &'a [T],
    /// (d); empty without norm.
    pub beta_k: &'a [T],
    /// (d): of V for galerkin and linear, of Q for fourier and softmax; empty without norm.
    pub gamma_qv: &'a [T],
    /// (d); empty without norm.
    pub beta_qv: &'a [T],
    /// (H·D, d): rows of head h are h·D..(h+1)·D, coordinates first; empty without projection.
    pub w_o: &'a [T],
    /// (d); empty without projection.
    pub b_o: &'a [T],
}

/// Gradients of [`Params`], field by field; they are overwritten.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Grads<'a> {
    pub w_q: &'a mut [f32],
    pub b_q: &'a mut [f32],
    pub w_k: &'a mut [f32],
    pub b_k: &'a mut [f32],
    pub w_v: &'a mut [f32],
    pub b_v: &'a mut [f32],
    pub gamma_k: &'a mut [f32],
    pub beta_k: &'a mut [f32],
    pub gamma_qv: &'a mut [f32],
    pub beta_qv: &'a mut [f32],
    pub w_o: &'a mut [f32],
    pub b_o: &'a mut [f32],
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
