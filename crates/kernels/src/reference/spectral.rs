//! Spectral convolution by direct sums.

use super::activate;
use crate::spectral::{Params, SpectralConv1d, SpectralConv2d, SpectralConv3d};

/// Spectral convolution in 1D of x (B, n, i): the output (B, n, o) and the mixed spectrum (B, o, n/2 + 1, 2).
///
/// ```text
/// X_k = n^{−1/2} Σ_j drop(x)_j e^{−2πijk/n}                   k < m
/// Y_k = X_k w_k                                               complex, i → o
/// z_j = n^{−1/2} Σ_k c_k Re(Y_k e^{2πijk/n}) + x_j W + b      c_0 = c_{n/2} = 1, else 2
/// out = act(z)
/// ```
pub fn spectral_conv1d(conv: &SpectralConv1d, params: &Params<f64>, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let SpectralConv1d { batch, n, inputs, outputs, modes, .. } = *conv;
    let (bins, dropout) = (n / 2 + 1, conv.input_dropout());
    let mut out = vec![0.0; batch * n * outputs];
    let mut spectrum = vec![0.0; batch * outputs * bins * 2];
    if n == 0 {
        return (out, spectrum);
    }
    let scale = 1.0 / (n as f64).sqrt();
    for b in 0..batch {
        for k in 0..modes {
            for i in 0..inputs {
                let mut mode = [0.0; 2];
                for j in 0..n {
                    let at = (b * n + j) * inputs + i;
                    let value = x[at] * dropout.factor(at as u64) as f64 * scale;
                    let (cos, sin) = turn(k * j, n);
                    mode = [mode[0] + value * cos, mode[1] - value * sin];
                }
                for o in 0..outputs {
                    let w = [0, 1].map(|part| params.weights[((k * 2 + part) * inputs + i) * outputs + o]);
                    add_product(mode, w, &mut spectrum[((b * outputs + o) * bins + k) * 2..]);
                }
            }
        }
        for j in 0..n {
            for o in 0..outputs {
                let mut z =
                    pointwise(conv.pointwise, params, &x[(b * n + j) * inputs..][..inputs], o, outputs);
                for k in 0..modes {
                    let y = &spectrum[((b * outputs + o) * bins + k) * 2..];
                    let (cos, sin) = turn(k * j, n);
                    z += scale * half_weight(k, n) * (y[0] * cos - y[1] * sin);
                }
                out[(b * n + j) * outputs + o] = activate(conv.activation, z);
            }
        }
    }
    (out, spectrum)
}

/// Spectral convolution in 2D of x (B, n₁, n₂, i): the output (B, n₁, n₂, o) and the mixed spectrum (B, o, n₁, n₂/2 + 1, 2).
///
/// As [`spectral_conv1d`] with e^{∓2πi(k₁p/n₁ + k₂q/n₂)} at the point (p, q), for k₂ < m and the rows k₁ < m with the weights
/// of block 0, then the rows k₁ = n₁ − m + a with those of block 1, which overwrite.
pub fn spectral_conv2d(conv: &SpectralConv2d, params: &Params<f64>, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let SpectralConv2d { batch, n1, n2, inputs, outputs, modes, .. } = *conv;
    let (n, bins, dropout) = (n1 * n2, n2 / 2 + 1, conv.input_dropout());
    let mut out = vec![0.0; batch * n * outputs];
    let mut spectrum = vec![0.0; batch * outputs * n1 * bins * 2];
    if n == 0 {
        return (out, spectrum);
    }
    let scale = 1.0 / (n as f64).sqrt();
    let rows = |a: usize| [(0, a), (1, n1 - modes + a)];
    for b in 0..batch {
        for (block, a) in [0, 1].into_iter().flat_map(|block| (0..modes).map(move |a| (block, a))) {
            let (_, k1) = rows(a)[block];
            for k2 in 0..modes {
                for o in 0..outputs {
                    spectrum[(((b * outputs + o) * n1 + k1) * bins + k2) * 2..][..2].fill(0.0);
                }
                for i in 0..inputs {
                    let mut mode = [0.0; 2];
                    for p in 0..n1 {
                        for q in 0..n2 {
                            let at = (b * n + p * n2 + q) * inputs + i;
                            let value = x[at] * dropout.factor(at as u64) as f64 * scale;
                            let (cos, sin) = turn(k1 * p * n2 + k2 * q * n1, n);
                            mode = [mode[0] + value * cos, mode[1] - value * sin];
                        }
                    }
                    let matrix = ((k2 * 2 + block) * modes + a) * 2;
                    for o in 0..outputs {
                        let w =
                            [0, 1].map(|part| params.weights[((matrix + part) * inputs + i) * outputs + o]);
                        let at = (((b * outputs + o) * n1 + k1) * bins + k2) * 2;
                        add_product(mode, w, &mut spectrum[at..]);
                    }
                }
            }
        }
        for (p, q) in (0..n1).flat_map(|p| (0..n2).map(move |q| (p, q))) {
            let point = b * n + p * n2 + q;
            for o in 0..outputs {
                let mut z = pointwise(conv.pointwise, params, &x[point * inputs..][..inputs], o, outputs);
                for (k1, k2) in (0..n1).flat_map(|k1| (0..modes).map(move |k2| (k1, k2))) {
                    let y = &spectrum[(((b * outputs + o) * n1 + k1) * bins + k2) * 2..];
                    let (cos, sin) = turn(k1 * p * n2 + k2 * q * n1, n);
                    z += scale * half_weight(k2, n2) * (y[0] * cos - y[1] * sin);
                }
                out[point * outputs + o] = activate(conv.activation, z);
            }
        }
    }
    (out, spectrum)
}

/// Spectral convolution in 3D of x (B, n₁, n₂, n₃, i): the output (B, n₁, n₂, n₃, o) and the mixed spectrum
/// (B, o, n₁, n₂, n₃/2 + 1, 2).
///
/// As [`spectral_conv2d`] with e^{∓2πi(k₁p/n₁ + k₂q/n₂ + k₃r/n₃)} at the point (p, q, r), for k₃ < m; k₁ and k₂ both have
/// their rows of block 0 and then those of block 1, which overwrite.
pub fn spectral_conv3d(conv: &SpectralConv3d, params: &Params<f64>, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let SpectralConv3d { batch, n1, n2, n3, inputs, outputs, modes, .. } = *conv;
    let (n, bins, dropout) = (n1 * n2 * n3, n3 / 2 + 1, conv.input_dropout());
    let mut out = vec![0.0; batch * n * outputs];
    let mut spectrum = vec![0.0; batch * outputs * n1 * n2 * bins * 2];
    if n == 0 {
        return (out, spectrum);
    }
    let scale = 1.0 / (n as f64).sqrt();
    let turns: Vec<(f64, f64)> = (0..n).map(|t| turn(t, n)).collect();
    let wave = |[k1, k2, k3]: [usize; 3], [p, q, r]: [usize; 3]| {
        turns[(k1 * p * n2 * n3 + k2 * q * n1 * n3 + k3 * r * n1 * n2) % n]
    };
    let bin = |b: usize, o: usize, [k1, k2, k3]: [usize; 3]| {
        ((((b * outputs + o) * n1 + k1) * n2 + k2) * bins + k3) * 2
    };
    // Frequencies of the slots (block, row) of an axis, in the order in which they overwrite.
    let slots = |n: usize| (0..modes).chain(n - modes..n).enumerate();
    for b in 0..batch {
        for ((s1, k1), (s2, k2)) in slots(n1).flat_map(|first| slots(n2).map(move |second| (first, second))) {
            for k3 in 0..modes {
                let k = [k1, k2, k3];
                (0..outputs).for_each(|o| spectrum[bin(b, o, k)..][..2].fill(0.0));
                for i in 0..inputs {
                    let mut mode = [0.0; 2];
                    for (j, point) in grid([n1, n2, n3]).enumerate() {
                        let at = (b * n + j) * inputs + i;
                        let value = x[at] * dropout.factor(at as u64) as f64 * scale;
                        let (cos, sin) = wave(k, point);
                        mode = [mode[0] + value * cos, mode[1] - value * sin];
                    }
                    let matrix = ((k3 * 2 * modes + s1) * 2 * modes + s2) * 2;
                    for o in 0..outputs {
                        let w =
                            [0, 1].map(|part| params.weights[((matrix + part) * inputs + i) * outputs + o]);
                        add_product(mode, w, &mut spectrum[bin(b, o, k)..]);
                    }
                }
            }
        }
        for (j, point) in grid([n1, n2, n3]).enumerate() {
            for o in 0..outputs {
                let x = &x[(b * n + j) * inputs..][..inputs];
                let mut z = pointwise(conv.pointwise, params, x, o, outputs);
                for k in grid([n1, n2, modes]) {
                    let y = &spectrum[bin(b, o, k)..];
                    let (cos, sin) = wave(k, point);
                    z += scale * half_weight(k[2], n3) * (y[0] * cos - y[1] * sin);
                }
                out[(b * n + j) * outputs + o] = activate(conv.activation, z);
            }
        }
    }
    (out, spectrum)
}

/// The points of a grid, the last axis running fastest.
fn grid([n1, n2, n3]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..n1).flat_map(move |p| (0..n2).flat_map(move |q| (0..n3).map(move |r| [p, q, r])))
}

/// (cos, sin) of `t/n` of a turn.
fn turn(t: usize, n: usize) -> (f64, f64) {
    let angle = 2.0 * std::f64::consts::PI * (t % n) as f64 / n as f64;
    (angle.cos(), angle.sin())
}

/// c_k
fn half_weight(k: usize, n: usize) -> f64 {
    if k == 0 || 2 * k == n { 1.0 } else { 2.0 }
}

/// `sum += x·w`, complex.
fn add_product(x: [f64; 2], w: [f64; 2], sum: &mut [f64]) {
    sum[0] += x[0] * w[0] - x[1] * w[1];
    sum[1] += x[0] * w[1] + x[1] * w[0];
}

/// Output `o` of x W + b at one point.
fn pointwise(enabled: bool, params: &Params<f64>, x: &[f64], o: usize, outputs: usize) -> f64 {
    if !enabled {
        return 0.0;
    }
    params.b[o] + x.iter().enumerate().map(|(i, x)| x * params.w[i * outputs + o]).sum::<f64>()
}
