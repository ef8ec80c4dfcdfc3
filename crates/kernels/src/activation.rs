//! The activations, as functions of the pre-activation z.

use crate::simd::{exp, rows, update, vectorize};

/// An elementwise activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// z
    #[default]
    None,
    /// max(z, 0), with derivative 0 at 0
    Relu,
    /// z·σ(z)
    Silu,
    /// z·Φ(z) with the exact normal distribution function Φ
    Gelu,
}

impl Activation {
    /// `out = f(z)`, elementwise.
    pub fn forward(self, z: &[f32], out: &mut [f32]) {
        assert_eq!(z.len(), out.len(), "activation: {} values into {}", z.len(), out.len());
        match self {
            Activation::None => out.copy_from_slice(z),
            Activation::Relu => map(z, out, |z, _| relu(z)),
            Activation::Silu => map(z, out, |z, _| z * sigmoid(z)),
            Activation::Gelu => map(z, out, |z, _| z * normal_cdf(z)),
        }
    }

    /// Whether the output tells the derivative as well as z does: it is positive just where z is.
    pub(crate) fn needs_no_z(self) -> bool {
        self == Activation::Relu
    }

    /// `z = f(z + bias)`, row by row, for an activation that needs no z afterwards.
    pub(crate) fn forward_in_place(self, bias: &[f32], z: &mut [f32]) {
        debug_assert!(self.needs_no_z());
        rows!(simd: S, { bias: &'a [f32], z: &'a mut [f32] }, {
            // The larger of 0 and NaN is NaN in this order.
            let (zero, (b, b_rest)) = (simd.splat_f32s(0.0), S::as_simd_f32s(bias));
            for z in z.chunks_exact_mut(bias.len()) {
                let (z, z_rest) = S::as_mut_simd_f32s(z);
                z.iter_mut().zip(b).for_each(|(z, b)| *z = simd.max_f32s(zero, simd.add_f32s(*z, *b)));
                z_rest.iter_mut().zip(b_rest).for_each(|(z, b)| *z = relu(*z + b));
            }
        })
    }

    /// `dz *= f'(z)` and the mask of h = drop(f(z)), from h alone: it is positive just where z is and was kept, by the factor `kept`.
    pub(crate) fn backward_dropped(self, h: &[f32], kept: f32, dz: &mut [f32]) {
        debug_assert!(self.needs_no_z());
        vectorize!(update(dz, [h], |g, [h]| {
            let g = kept * g;
            if h > 0.0 { g } else { 0.0 }
        }));
    }

    /// `z += bias`, row by row, and `out = f(z)`: what a linear layer does after its product, in one sweep.
    pub(crate) fn forward_biased(self, bias: &[f32], z: &mut [f32], out: &mut [f32]) {
        match self {
            Activation::None => map_biased(bias, z, out, |z| z),
            Activation::Relu => map_biased(bias, z, out, relu),
            Activation::Silu => map_biased(bias, z, out, |z| z * sigmoid(z)),
            Activation::Gelu => map_biased(bias, z, out, |z| z * normal_cdf(z)),
        }
    }

    /// `dz *= f'(z)`, elementwise: turns the gradient of the output into that of the pre-activation.
    pub fn backward(self, z: &[f32], dz: &mut [f32]) {
        assert_eq!(z.len(), dz.len(), "activation: {} values, {} gradients", z.len(), dz.len());
        match self {
            Activation::None => {}
            Activation::Relu => map(z, dz, |z, g| if z > 0.0 { g } else { 0.0 }),
            Activation::Silu => map(z, dz, |z, g| {
                let s = sigmoid(z);
                g * cut(s + z * s * (1.0 - s))
            }),
            Activation::Gelu => map(z, dz, |z, g| {
                const ROOT_1_2PI: f32 = 0.398_942_3;
                g * cut(normal_cdf(z) + z * ROOT_1_2PI * exp(-0.5 * z * z))
            }),
        }
    }
}

#[inline(always)]
fn map(z: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    vectorize!({
        update(out, [z], |out, [z]| f(z, out));
    });
}

#[inline(always)]
fn map_biased(bias: &[f32], z: &mut [f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    let width = bias.len().max(1);
    vectorize!({
        for (z, out) in z.chunks_exact_mut(width).zip(out.chunks_exact_mut(width)) {
            update(z, [bias], |z, [b]| z + b);
            update(out, [z], |_, [z]| f(z));
        }
    });
}

/// NaN stays NaN, so that a diverging run shows: a maximum would hide it.
#[inline(always)]
fn relu(z: f32) -> f32 {
    if z < 0.0 { 0.0 } else { z }
}

/// A slope so small that no sum shows it is zero: gradients times such slopes become subnormal numbers, which a processor multiplies tens of
/// times slower than others.
#[inline(always)]
fn cut(slope: f32) -> f32 {
    if slope.abs() < 1e-20 { 0.0 } else { slope }
}

#[inline(always)]
fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + exp(-z))
}

/// Φ(z) = erfc(−z/√2)/2: the complement keeps its relative accuracy where Φ is small.
#[inline(always)]
fn normal_cdf(z: f32) -> f32 {
    0.5 * libm::erfcf(-z * std::f32::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// f and f' in f64.
    fn exact(activation: Activation, z: f64) -> (f64, f64) {
        match activation {
            Activation::None => (z, 1.0),
            Activation::Relu => (z.max(0.0), if z > 0.0 { 1.0 } else { 0.0 }),
            Activation::Silu => {
                let s = 1.0 / (1.0 + (-z).exp());
                (z * s, s + z * s * (1.0 - s))
            }
            Activation::Gelu => {
                let cdf = 0.5 * libm::erfc(-z / 2f64.sqrt());
                (z * cdf, cdf + z * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt())
            }
        }
    }

    #[test]
    fn values_and_derivatives_match_f64() {
        let z: Vec<f32> = (-4000..4000).map(|i| i as f32 * 0.01).collect();
        for activation in [Activation::None, Activation::Relu, Activation::Silu, Activation::Gelu] {
            let (mut out, mut slope) = (vec![0.0; z.len()], vec![1.0; z.len()]);
            activation.forward(&z, &mut out);
            activation.backward(&z, &mut slope);
            for ((z, out), slope) in z.iter().zip(&out).zip(&slope) {
                let (f, df) = exact(activation, *z as f64);
                // A handful of roundings of values of size max(1, |z|).
                let tolerance = 8.0 * f32::EPSILON as f64 * (1.0 + z.abs() as f64);
                assert!((*out as f64 - f).abs() < tolerance, "{activation:?}({z}) = {out}, exactly {f}");
                assert!(
                    (*slope as f64 - df).abs() < tolerance,
                    "{activation:?}'({z}) = {slope}, exactly {df}"
                );
            }
        }
    }
}
