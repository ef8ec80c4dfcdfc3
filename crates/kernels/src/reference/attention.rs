//! Attention through its defining formulas; fourier and softmax through the n × n matrix.
//!
//! Letters as in [`Attention`]: B samples, n points, d features, H heads of e = d/H, p coordinates, D = e + p.

use super::{instance_norm, layer_norm, linear};
use crate::activation::Activation;
use crate::attention::{Attention, Input, Kind, Norm, Params};

/// What attention returns.
#[derive(Clone, Debug)]
pub struct AttentionOutput {
    /// (B, n, d)
    pub y: Vec<f64>,
    /// The attention weights A, after scaling and dropout: (B, H, side, side) with
    /// [`weights_side`](Attention::weights_side).
    pub weights: Vec<f64>,
}

/// One attention layer. Per sample and head, with w_j = 1/n unless quadrature weights are given:
///
/// ```text
/// q, k, v = x W + b                          columns h·e..(h+1)·e
/// k and v (galerkin, linear) or q and k (fourier, softmax) are normalised over features or over points
/// q, k, v = [coordinates | q], [coordinates | k], [coordinates | v]
///
/// galerkin    A_ab = drop(Σ_j w_j k_ja v_jb)                                   o_ib = Σ_a q_ia A_ab
/// linear      the same with q softmaxed over its D features and k over the n points
/// fourier     A_ij = drop(w_j q_i·k_j/√D)                                      o_ib = Σ_j A_ij v_jb
/// softmax     A_ij = drop(w_j exp(s_ij)/Σ_l w_l exp(s_il)), s_ij = q_i·k_j/√D  o_ib = Σ_j A_ij v_jb
///
/// y = [o of head 0 | o of head 1 | …] W_O + b_O, or the heads side by side without projection
/// ```
pub fn attention(layer: &Attention, params: &Params<f64>, input: Input<f64>) -> AttentionOutput {
    let &Attention { batch, n, d, heads, .. } = layer;
    let (side, wide) = (layer.weights_side(), layer.wide());
    let mut merged = vec![0.0; batch * n * heads * wide];
    let mut weights = Vec::with_capacity(batch * heads * side * side);
    let projected = Projected::new(layer, params, input);
    for b in 0..batch {
        for h in 0..heads {
            let Head { mut q, mut k, v } = projected.head(layer, params, input, b, h);
            let w = measure(input, b, n);
            if layer.kind == Kind::Linear {
                for i in 0..n {
                    softmax(&mut q, &vec![1.0; wide], |a| i * wide + a);
                }
                for a in 0..wide {
                    softmax(&mut k, &vec![1.0; n], |j| j * wide + a);
                }
            }
            let mut a = match layer.kind {
                Kind::Galerkin | Kind::Linear => weighted_product(&k, &v, &w, wide),
                Kind::Fourier => {
                    let mut s = similarity(&q, &k, n, wide);
                    for i in 0..n {
                        for j in 0..n {
                            s[i * n + j] *= w[j];
                        }
                    }
                    s
                }
                Kind::Softmax => {
                    let mut s = similarity(&q, &k, n, wide);
                    for i in 0..n {
                        softmax(&mut s, &w, |j| i * n + j);
                    }
                    s
                }
            };
            let start = weights.len();
            for (offset, a) in a.iter_mut().enumerate() {
                *a *= layer.weights_dropout().factor((start + offset) as u64) as f64;
            }
            let o = match layer.kind {
                Kind::Galerkin | Kind::Linear => product(&q, &a, n, wide, wide),
                Kind::Fourier | Kind::Softmax => product(&a, &v, n, n, wide),
            };
            merge(&mut merged, &o, layer, b, h);
            weights.extend(a);
        }
    }
    let y = if layer.projection {
        linear(&merged, params.w_o, params.b_o, batch * n, heads * wide, d, Activation::None)
    } else {
        merged
    };
    AttentionOutput { y, weights }
}

/// Fourier attention re-associated: `o = q (Σ_j w_j k_jᵀ v_j)/√D` is the same map without the n × n matrix.
///
/// Returns y (B, n, d). Only without dropout on the weights: a mask on the n × n matrix does not factor.
pub fn fourier_reassociated(layer: &Attention, params: &Params<f64>, input: Input<f64>) -> Vec<f64> {
    assert_eq!(layer.kind, Kind::Fourier, "only fourier attention is re-associated here");
    assert_eq!(layer.dropout, 0.0, "fourier attention with dropout on its weights does not re-associate");
    let &Attention { batch, n, d, heads, .. } = layer;
    let wide = layer.wide();
    let mut merged = vec![0.0; batch * n * heads * wide];
    let projected = Projected::new(layer, params, input);
    for b in 0..batch {
        for h in 0..heads {
            let Head { q, k, v } = projected.head(layer, params, input, b, h);
            let a = weighted_product(&k, &v, &measure(input, b, n), wide);
            let mut o = product(&q, &a, n, wide, wide);
            for o in &mut o {
                *o /= (wide as f64).sqrt();
            }
            merge(&mut merged, &o, layer, b, h);
        }
    }
    if !layer.projection {
        return merged;
    }
    linear(&merged, params.w_o, params.b_o, batch * n, heads * wide, d, Activation::None)
}

/// Causal linear attention, a function of ready-made q, k, v (heads, n, d), `heads` counting samples times heads:
///
/// ```text
/// A_t = Σ_{s≤t} k_s v_sᵀ/n        y_t = q_tᵀ A_t / (q_t · (Σ_{s≤t} k_s/n + ε))
/// ```
///
/// Returns y (heads, n, d), and the running sums A (heads, n, d, d) as weights.
pub fn causal_linear_attention(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    heads: usize,
    n: usize,
    d: usize,
    eps: f64,
) -> AttentionOutput {
    let mut y = vec![0.0; heads * n * d];
    let mut weights = Vec::with_capacity(heads * n * d * d);
    for h in 0..heads {
        let mut sum_kv = vec![0.0; d * d];
        let mut sum_k = vec![0.0; d];
        for t in 0..n {
            let row = (h * n + t) * d;
            for a in 0..d {
                let k = k[row + a] / n as f64;
                sum_k[a] += k;
                for b in 0..d {
                    sum_kv[a * d + b] += k * v[row + b];
                }
            }
            let q = &q[row..row + d];
            let total: f64 = (0..d).map(|a| q[a] * (sum_k[a] + eps)).sum();
            for b in 0..d {
                y[row + b] = (0..d).map(|a| q[a] * sum_kv[a * d + b]).sum::<f64>() / total;
            }
            weights.extend(&sum_kv);
        }
    }
    AttentionOutput { y, weights }
}

/// x W + b for the three projections, each (B, n, d).
struct Projected {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

/// q, k, v of one sample and head, each (n, D): normalised, coordinates in front.
struct Head {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Projected {
    fn new(layer: &Attention, params: &Params<f64>, input: Input<f64>) -> Self {
        let &Attention { batch, n, d, heads, coordinates, .. } = layer;
        assert!(heads > 0 && d.is_multiple_of(heads), "{heads} heads do not divide {d} features");
        assert!(layer.projection || coordinates == 0, "{coordinates} coordinates need the projection");
        let project = |w, b| linear(input.x, w, b, batch * n, d, d, Activation::None);
        Projected {
            q: project(params.w_q, params.b_q),
            k: project(params.w_k, params.b_k),
            v: project(params.w_v, params.b_v),
        }
    }

    fn head(&self, layer: &Attention, params: &Params<f64>, input: Input<f64>, b: usize, h: usize) -> Head {
        let &Attention { n, d, .. } = layer;
        let e = layer.head_width();
        let cut = |all: &[f64]| -> Vec<f64> {
            (0..n).flat_map(|j| (0..e).map(move |c| (b * n + j) * d + h * e + c)).map(|i| all[i]).collect()
        };
        let norm = |x: Vec<f64>, gamma: &[f64], beta: &[f64]| -> Vec<f64> {
            let own = h * e..(h + 1) * e;
            match layer.norm {
                Norm::None => x,
                Norm::Layer => layer_norm(&x, n, e, &gamma[own.clone()], &beta[own], layer.eps as f64),
                Norm::Instance => {
                    instance_norm(&x, 1, n, e, &gamma[own.clone()], &beta[own], layer.eps as f64)
                }
            }
        };
        let (mut q, mut v) = (cut(&self.q), cut(&self.v));
        let k = norm(cut(&self.k), params.gamma_k, params.beta_k);
        if layer.norm_on_v() {
            v = norm(v, params.gamma_qv, params.beta_qv);
        } else {
            q = norm(q, params.gamma_qv, params.beta_qv);
        }
        let p = layer.coordinates;
        let widen = |x: &[f64]| -> Vec<f64> {
            let mut wide = Vec::with_capacity(n * (p + e));
            for j in 0..n {
                wide.extend(&input.coordinates[(b * n + j) * p..(b * n + j + 1) * p]);
                wide.extend(&x[j * e..(j + 1) * e]);
            }
            wide
        };
        Head { q: widen(&q), k: widen(&k), v: widen(&v) }
    }
}

/// w_j of sample b: the quadrature weights if there are any, else 1/n.
fn measure(input: Input<f64>, b: usize, n: usize) -> Vec<f64> {
    match input.weights {
        Some(weights) => weights[b * n..(b + 1) * n].to_vec(),
        None => vec![1.0 / n as f64; n],
    }
}

/// `Σ_j w_j k_ja v_jb`: (D, D).
fn weighted_product(k: &[f64], v: &[f64], w: &[f64], wide: usize) -> Vec<f64> {
    let mut a = vec![0.0; wide * wide];
    for (j, w) in w.iter().enumerate() {
        for row in 0..wide {
            for col in 0..wide {
                a[row * wide + col] += w * k[j * wide + row] * v[j * wide + col];
            }
        }
    }
    a
}

/// `q_i · k_j/√D`: (n, n).
fn similarity(q: &[f64], k: &[f64], n: usize, wide: usize) -> Vec<f64> {
    let mut s = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            let dot: f64 = (0..wide).map(|c| q[i * wide + c] * k[j * wide + c]).sum();
            s[i * n + j] = dot / (wide as f64).sqrt();
        }
    }
    s
}

/// Replaces the values s_j at `place(j)` by `w_j exp(s_j)/Σ_l w_l exp(s_l)`; the largest s is taken off first, which
/// changes nothing but keeps exp finite.
fn softmax(values: &mut [f64], w: &[f64], place: impl Fn(usize) -> usize) {
    let largest = (0..w.len()).map(|j| values[place(j)]).fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for (j, w) in w.iter().enumerate() {
        values[place(j)] = w * (values[place(j)] - largest).exp();
        total += values[place(j)];
    }
    for j in 0..w.len() {
        values[place(j)] /= total;
    }
}

/// The matrix product (rows, inner) · (inner, cols).
fn product(a: &[f64], b: &[f64], rows: usize, inner: usize, cols: usize) -> Vec<f64> {
    let mut c = vec![0.0; rows * cols];
    for row in 0..rows {
        for i in 0..inner {
            for col in 0..cols {
                c[row * cols + col] += a[row * inner + i] * b[i * cols + col];
            }
        }
    }
    c
}

/// Puts the output o (n, D) of head h into columns h·D..(h+1)·D of the merged heads (B, n, H·D).
fn merge(merged: &mut [f64], o: &[f64], layer: &Attention, b: usize, h: usize) {
    let wide = layer.wide();
    for j in 0..layer.n {
        for c in 0..wide {
            merged[((b * layer.n + j) * layer.heads + h) * wide + c] = o[j * wide + c];
        }
    }
}
