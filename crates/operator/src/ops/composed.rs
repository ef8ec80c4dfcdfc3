//! The operations from plain tensor operations: what they mean, and how every backend without kernels computes them.
//!
//! Letters and layouts are those of `galerkin_kernels`; dropout masks are made of the very factors the kernels use.

use std::f64::consts::FRAC_1_SQRT_2;

use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData, activation as burn_activation};
use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Kind, Norm};
use galerkin_kernels::conv3x3::Conv3x3;
use galerkin_kernels::dropout::{Dropout, Site};
use galerkin_kernels::encoder::EncoderLayer;
use galerkin_kernels::feed_forward::FeedForward;
use galerkin_kernels::reference::cell_weights;
use galerkin_kernels::spectral::{SpectralConv1d, SpectralConv2d, SpectralConv3d};

use super::{AttentionInput, AttentionParams, EncoderParams, FeedForwardParams, SpectralParams};

/// Attention's output (B, n, d) and its weights (B, H, side, side).
pub(super) fn attention(
    op: &Attention,
    input: AttentionInput,
    params: AttentionParams,
) -> (Tensor<3>, Tensor<4>) {
    let (heads, batch, n, wide) = (op.heads, op.batch, op.n, op.wide());
    let [q, k, v] = projections(op, &input, &params);

    // The measure of a point: 1/n, or its quadrature weight.
    let weigh_rows = |t: Tensor<4>| match &input.weights {
        Some(w) => t * w.clone().reshape([batch, 1, n, 1]),
        None => t / n as f32,
    };
    let columns = input.weights.clone().map(|w| w.reshape([batch, 1, 1, n]));
    let scores = |q: Tensor<4>, k: Tensor<4>| q.matmul(k.transpose()) / (wide as f32).sqrt();
    let (weights, out) = match op.kind {
        Kind::Galerkin => {
            let weights = dropped(k.transpose().matmul(weigh_rows(v)), op.weights_dropout());
            (weights.clone(), q.matmul(weights))
        }
        Kind::Linear => {
            let (q, k) = (burn_activation::softmax(q, 3), burn_activation::softmax(k, 2));
            let weights = dropped(k.transpose().matmul(weigh_rows(v)), op.weights_dropout());
            (weights.clone(), q.matmul(weights))
        }
        Kind::Fourier => {
            let scores = match columns {
                Some(w) => scores(q, k) * w,
                None => scores(q, k) / n as f32,
            };
            let weights = dropped(scores, op.weights_dropout());
            (weights.clone(), weights.matmul(v))
        }
        Kind::Softmax => {
            let scores = match columns {
                Some(w) => scores(q, k) + w.log(),
                None => scores(q, k),
            };
            let weights = dropped(burn_activation::softmax(scores, 3), op.weights_dropout());
            (weights.clone(), weights.matmul(v))
        }
    };
    let merged = out.swap_dims(1, 2).reshape([batch, n, heads * wide]);
    let out = match params.projection {
        Some((w_o, b_o)) => affine(merged, w_o, b_o),
        None => merged,
    };
    (out, weights)
}

/// Q, K and V (B, H, n, D) as the products of attention take them: normalised, and with coordinates in front.
pub(super) fn projections(
    op: &Attention,
    input: &AttentionInput,
    params: &AttentionParams,
) -> [Tensor<4>; 3] {
    let (heads, e, batch, n) = (op.heads, op.head_width(), op.batch, op.n);
    let project = |w: &Tensor<2>, b: &Tensor<1>| {
        affine(input.x.clone(), w.clone(), b.clone()).reshape([batch, n, heads, e]).swap_dims(1, 2)
    };
    let mut q = project(&params.w_q, &params.b_q);
    let mut k = project(&params.w_k, &params.b_k);
    let mut v = project(&params.w_v, &params.b_v);
    if let Some([gamma_k, beta_k, gamma_qv, beta_qv]) = params.norm.clone() {
        let axis = if op.norm == Norm::Instance { 2 } else { 3 };
        let normalize = |t: Tensor<4>, gamma: Tensor<1>, beta: Tensor<1>| {
            normalized(t, axis, op.eps) * gamma.reshape([1, heads, 1, e]) + beta.reshape([1, heads, 1, e])
        };
        k = normalize(k, gamma_k, beta_k);
        match op.norm_on_v() {
            true => v = normalize(v, gamma_qv, beta_qv),
            false => q = normalize(q, gamma_qv, beta_qv),
        }
    }
    if let Some(coordinates) = input.coordinates.clone() {
        let coordinates = coordinates.unsqueeze_dim::<4>(1).expand([batch, heads, n, op.coordinates]);
        let widen = |t: Tensor<4>| Tensor::cat(vec![coordinates.clone(), t], 3);
        (q, k, v) = (widen(q), widen(k), widen(v));
    }
    [q, k, v]
}

pub(super) fn encoder_layer(op: &EncoderLayer, input: AttentionInput, params: EncoderParams) -> Tensor<3> {
    let (x, d) = (input.x.clone(), op.attention.d);
    let (attended, _) = attention(&op.attention, input, params.attention);
    let attended = dropped(attended, op.attention_dropout());
    let mut x = if op.minus { x - attended } else { x + attended };
    let [first, second] = match params.norm {
        Some([gamma_1, beta_1, gamma_2, beta_2]) => [Some((gamma_1, beta_1)), Some((gamma_2, beta_2))],
        None => [None, None],
    };
    let norm = |x: Tensor<3>, affine: Option<(Tensor<1>, Tensor<1>)>| match affine {
        Some((gamma, beta)) => normalized(x, 2, op.eps) * gamma.reshape([1, 1, d]) + beta.reshape([1, 1, d]),
        None => x,
    };
    x = norm(x, first);
    let p = params.feed_forward;
    let hidden = dropped(activated(affine(x.clone(), p.w_1, p.b_1), op.activation), op.hidden_dropout());
    let out = affine(hidden, p.w_2, p.b_2);
    norm(x + dropped(out, op.feed_forward_dropout()), second)
}

pub(super) fn feed_forward<const D: usize>(
    op: &FeedForward,
    x: Tensor<D>,
    params: FeedForwardParams,
) -> Tensor<D> {
    let mask = Dropout { rate: op.dropout, key: op.key, site: Site::Hidden };
    let hidden = dropped(activated(affine(x, params.w_1, params.b_1), op.activation), mask);
    affine(hidden, params.w_2, params.b_2)
}

/// x W + b over the last axis.
pub(super) fn affine<const D: usize>(x: Tensor<D>, w: Tensor<2>, b: Tensor<1>) -> Tensor<D> {
    let [inputs, outputs] = w.dims();
    let mut shape = x.dims();
    shape[D - 1] = outputs;
    let rows = shape[..D - 1].iter().product();
    let y = x.reshape([rows, inputs]).matmul(w) + b.reshape([1, outputs]);
    y.reshape(shape)
}

pub(super) fn spectral_1d(op: &SpectralConv1d, x: Tensor<3>, params: SpectralParams) -> Tensor<3> {
    let (batch, m, o) = (op.batch, op.modes, op.outputs);
    let device = x.device();
    let [cos, sin] = waves(op.n, &frequencies(m), &device);

    // (m, B, i) of the real and of the imaginary part; e^{−iθ} = cos − i sin.
    let masked = dropped(x.clone(), op.input_dropout());
    let analyze =
        |wave: &Tensor<2>| wave.clone().unsqueeze_dim::<3>(0).matmul(masked.clone()).swap_dims(0, 1);
    let (re, im) = (analyze(&cos), -analyze(&sin));
    let (re, im) = mixed(re, im, params.weights);

    // Σ_k c_k (Re Y cos − Im Y sin)
    let counts = half_spectrum(op.n, m, &device).reshape([m, 1, 1]);
    let back = |part: Tensor<3>, wave: Tensor<2>| {
        let part = (part * counts.clone()).swap_dims(0, 1);
        wave.transpose().unsqueeze_dim::<3>(0).matmul(part)
    };
    let z = back(re, cos) - back(im, sin);
    debug_assert_eq!(z.dims(), [batch, op.n, o]);
    finish_spectral(z, x, params.pointwise, op.activation)
}

pub(super) fn spectral_2d(op: &SpectralConv2d, x: Tensor<4>, params: SpectralParams) -> Tensor<4> {
    let (batch, n1, n2, m, i, o) = (op.batch, op.n1, op.n2, op.modes, op.inputs, op.outputs);
    let device = x.device();
    let [cos_1, sin_1] = waves(n1, &slots(n1, m), &device);
    let [cos_2, sin_2] = waves(n2, &frequencies(m), &device);

    // Along the second axis: (B, m, n1, i), then along the first: (B, m, 2m, i), then modes in front: (m·2m, B, i).
    let masked = dropped(x.clone(), op.input_dropout());
    let along_2 = |wave: &Tensor<2>| {
        let rows = masked.clone().reshape([batch * n1, n2, i]);
        let spectrum = wave.clone().unsqueeze_dim::<3>(0).matmul(rows);
        spectrum.reshape([batch, n1, m, i]).swap_dims(1, 2)
    };
    let (re, im) = (along_2(&cos_2), -along_2(&sin_2));
    let by = |wave: &Tensor<2>, part: &Tensor<4>| wave.clone().unsqueeze::<4>().matmul(part.clone());
    let front = |part: Tensor<4>| part.reshape([batch, m * 2 * m, i]).swap_dims(0, 1);
    let (re, im) = (front(by(&cos_1, &re) + by(&sin_1, &im)), front(by(&cos_1, &im) - by(&sin_1, &re)));
    let (re, im) = mixed(re, im, params.weights);

    // Back along the first axis: (B, m, n1, o), then along the second.
    let counts = half_spectrum(n2, m, &device).reshape([1, m, 1, 1]);
    let apart = |part: Tensor<3>| part.swap_dims(0, 1).reshape([batch, m, 2 * m, o]);
    let (re, im) = (apart(re), apart(im));
    let (cos_1, sin_1) = (cos_1.transpose(), sin_1.transpose());
    let (re, im) = (by(&cos_1, &re) - by(&sin_1, &im), by(&cos_1, &im) + by(&sin_1, &re));
    let back = |part: Tensor<4>, wave: Tensor<2>| {
        let rows = (part * counts.clone()).swap_dims(1, 2).reshape([batch * n1, m, o]);
        wave.transpose().unsqueeze_dim::<3>(0).matmul(rows).reshape([batch, n1, n2, o])
    };
    let z = back(re, cos_2) - back(im, sin_2);
    finish_spectral(z, x, params.pointwise, op.activation)
}

pub(super) fn spectral_3d(op: &SpectralConv3d, x: Tensor<5>, params: SpectralParams) -> Tensor<5> {
    let (batch, m, i, o) = (op.batch, op.modes, op.inputs, op.outputs);
    let (n1, n2, n3) = (op.n1, op.n2, op.n3);
    let device = x.device();
    let [one, two] = [n1, n2].map(|n| waves(n, &slots(n, m), &device));
    let three = waves(n3, &frequencies(m), &device);

    // Along the third axis, the second and the first; the transformed axes go to the left of the others: (B, m, 2m, 2m, i).
    let masked = dropped(x.clone(), op.input_dropout());
    let lines = masked.reshape([batch * n1 * n2, n3, i]);
    let along_3 = |wave: &Tensor<2>| wave.clone().unsqueeze_dim::<3>(0).matmul(lines.clone());
    let order = |part: Tensor<3>| part.reshape([batch, n1, n2, m, i]).permute([0, 3, 1, 2, 4]);
    let (re, im) = (order(along_3(&three[0])), order(-along_3(&three[1])));
    let (re, im) =
        turned([re.reshape([batch * m * n1, n2, i]), im.reshape([batch * m * n1, n2, i])], &two, -1.0);
    let order = |part: Tensor<3>| part.reshape([batch * m, n1, 2 * m * i]);
    let (re, im) = turned([order(re), order(im)], &one, -1.0);
    let front = |part: Tensor<3>| part.reshape([batch, m * 2 * m * 2 * m, i]).swap_dims(0, 1);
    let (re, im) = mixed(front(re), front(im), params.weights);

    let apart = |part: Tensor<3>| part.swap_dims(0, 1).reshape([batch * m, 2 * m, 2 * m * o]);
    let [one, two] = [one, two].map(|waves| waves.map(Tensor::transpose));
    let (re, im) = turned([apart(re), apart(im)], &one, 1.0);
    let order = |part: Tensor<3>| part.reshape([batch * m * n1, 2 * m, o]);
    let (re, im) = turned([order(re), order(im)], &two, 1.0);
    let counts = half_spectrum(n3, m, &device).reshape([1, m, 1]);
    let back = |part: Tensor<3>, wave: &Tensor<2>| {
        let lines =
            part.reshape([batch, m, n1, n2, o]).permute([0, 2, 3, 1, 4]).reshape([batch * n1 * n2, m, o]);
        wave.clone().transpose().unsqueeze_dim::<3>(0).matmul(lines * counts.clone())
    };
    let z = back(re, &three[0]) - back(im, &three[1]);
    finish_spectral(z.reshape([batch, n1, n2, n3, o]), x, params.pointwise, op.activation)
}

/// (Re + i Im) · e^{±iθ} summed along the middle axis, with the cosines and sines of θ.
fn turned([re, im]: [Tensor<3>; 2], [cos, sin]: &[Tensor<2>; 2], sign: f32) -> (Tensor<3>, Tensor<3>) {
    let by = |wave: &Tensor<2>, part: &Tensor<3>| wave.clone().unsqueeze_dim::<3>(0).matmul(part.clone());
    (by(cos, &re) - by(sin, &im) * sign, by(cos, &im) + by(sin, &re) * sign)
}

/// y = act(drop(conv(x))).
pub(super) fn conv3x3(op: &Conv3x3, x: Tensor<4>, w: Tensor<4>, b: Option<Tensor<1>>) -> Tensor<4> {
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let z = conv2d(x.permute([0, 3, 1, 2]), w.permute([3, 2, 0, 1]), b, options).permute([0, 2, 3, 1]);
    let z = match op.dropout {
        Some(dropout) => dropped(z, dropout),
        None => z,
    };
    activated(z, op.activation)
}

pub(super) fn resize(x: Tensor<4>, to: [usize; 2], activation: Activation) -> Tensor<4> {
    let [_, n1, n2, _] = x.dims();
    let device = x.device();
    let along_axes = [interpolation(n1, to[0], &device), interpolation(n2, to[1], &device)];
    activated(resampled(x, to, along_axes), activation)
}

pub(super) fn local_means(x: Tensor<4>, to: [usize; 2], periodic: [bool; 2]) -> Tensor<4> {
    let [_, n1, n2, _] = x.dims();
    let device = x.device();
    let along_axes = [cells(n1, to[0], periodic[0], &device), cells(n2, to[1], periodic[1], &device)];
    resampled(x, to, along_axes)
}

/// A matrix (m, n) along each axis.
fn resampled(x: Tensor<4>, to: [usize; 2], matrices: [Tensor<2>; 2]) -> Tensor<4> {
    let [batch, n1, n2, c] = x.dims();
    let [down, along] = matrices.map(|matrix| matrix.unsqueeze_dim::<3>(0));
    let x = down.matmul(x.reshape([batch, n1, n2 * c])).reshape([batch * to[0], n2, c]);
    along.matmul(x).reshape([batch, to[0], to[1], c])
}

/// The mask of a dropout over all values of a tensor, and the tensor times it.
pub(super) fn dropped<const D: usize>(x: Tensor<D>, dropout: Dropout) -> Tensor<D> {
    if !dropout.active() {
        return x;
    }
    let mut factors = vec![1.0; x.shape().num_elements()];
    dropout.apply(0, &mut factors);
    let mask = Tensor::<D>::from_data(TensorData::new(factors, x.dims()), &x.device());
    x * mask
}

pub(super) fn activated<const D: usize>(z: Tensor<D>, activation: Activation) -> Tensor<D> {
    match activation {
        Activation::None => z,
        Activation::Relu => burn_activation::relu(z),
        Activation::Silu => burn_activation::silu(z),
        // Burn's own `gelu` is exact forward but, on Vulkan and CUDA, goes backward through the formula with tanh.
        Activation::Gelu => (z.clone() * FRAC_1_SQRT_2).erf().add_scalar(1.0) * z * 0.5,
    }
}

/// (x − mean)/√(variance + ε) over one axis.
fn normalized<const D: usize>(x: Tensor<D>, axis: usize, eps: f32) -> Tensor<D> {
    let centred = x.clone() - x.mean_dim(axis);
    let variance = (centred.clone() * centred.clone()).mean_dim(axis);
    centred / (variance + eps).sqrt()
}

/// Products with the complex matrices of the modes: re, im (modes, B, i), weights (modes, 2, i, o).
fn mixed(re: Tensor<3>, im: Tensor<3>, weights: Tensor<4>) -> (Tensor<3>, Tensor<3>) {
    let part = |at: usize| weights.clone().narrow(1, at, 1).squeeze_dim::<3>(1);
    let (w_re, w_im) = (part(0), part(1));
    (re.clone().matmul(w_re.clone()) - im.clone().matmul(w_im.clone()), re.matmul(w_im) + im.matmul(w_re))
}

fn finish_spectral<const D: usize>(
    z: Tensor<D>,
    x: Tensor<D>,
    pointwise: Option<(Tensor<2>, Tensor<1>)>,
    activation: Activation,
) -> Tensor<D> {
    let z = match pointwise {
        Some((w, b)) => z + affine(x, w, b),
        None => z,
    };
    activated(z, activation)
}

/// Slots of an axis with frequencies of either sign: 0..m, then −m..0; where they meet, the second block is used.
fn slots(n: usize, m: usize) -> Vec<Option<i64>> {
    let slot = |slot: i64| match slot < m as i64 {
        true => (slot < (n - m) as i64).then_some(slot),
        false => Some(slot - 2 * m as i64),
    };
    (0..2 * m as i64).map(slot).collect()
}

fn frequencies(modes: usize) -> Vec<Option<i64>> {
    (0..modes as i64).map(Some).collect()
}

/// cos and sin of 2πkj/n, over √n: (frequencies, n) each, from f64; rows of zeros for no frequency.
fn waves(n: usize, frequencies: &[Option<i64>], device: &Device) -> [Tensor<2>; 2] {
    let mut values = [Vec::with_capacity(n * frequencies.len()), Vec::with_capacity(n * frequencies.len())];
    for k in frequencies {
        for j in 0..n as i64 {
            let (cos, sin) = k.map_or((0.0, 0.0), |k| {
                let turn = (k * j).rem_euclid(n as i64) as f64 / n as f64;
                ((std::f64::consts::TAU * turn).cos(), (std::f64::consts::TAU * turn).sin())
            });
            values[0].push((cos / (n as f64).sqrt()) as f32);
            values[1].push((sin / (n as f64).sqrt()) as f32);
        }
    }
    values.map(|values| Tensor::from_data(TensorData::new(values, [frequencies.len(), n]), device))
}

/// How often each of the first frequencies occurs in the spectrum of a real signal.
fn half_spectrum(n: usize, modes: usize, device: &Device) -> Tensor<1> {
    let count = |k: usize| if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
    Tensor::from_data(TensorData::new((0..modes).map(count).collect::<Vec<f32>>(), [modes]), device)
}

/// The matrix (m, n) of linear interpolation with aligned corners.
fn interpolation(n: usize, m: usize, device: &Device) -> Tensor<2> {
    let mut values = vec![0.0f32; m * n];
    let steps = m.saturating_sub(1).max(1);
    for i in 0..m {
        let (low, far) = (i * (n - 1) / steps, (i * (n - 1) % steps) as f64 / steps as f64);
        values[i * n + low] = (1.0 - far) as f32;
        if far > 0.0 {
            values[i * n + low + 1] = far as f32;
        }
    }
    Tensor::from_data(TensorData::new(values, [m, n]), device)
}

/// The matrix (m, n) of means over cells, as the kernels' reference has it.
fn cells(n: usize, m: usize, periodic: bool, device: &Device) -> Tensor<2> {
    let weights = cell_weights(n, m, periodic).into_iter().flatten().map(|weight| weight as f32);
    Tensor::from_data(TensorData::new(weights.collect::<Vec<_>>(), [m, n]), device)
}
