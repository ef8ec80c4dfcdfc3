//! The encoder layer, step by step.

use super::{attention, drop_out, feed_forward, layer_norm};
use crate::attention::{Attention, Input};
use crate::encoder::{EncoderLayer, Params};

/// One encoder layer; x and y (B, n, d).
///
/// ```text
/// t₁ = x ± drop(Attn(x))        x₁ = LN₁(t₁) or t₁
/// t₂ = x₁ + drop(FFN(x₁))       y  = LN₂(t₂) or t₂        FFN(x) = drop(act(x W₁ + b₁)) W₂ + b₂
/// ```
///
/// A norm inside the heads (of the attention) and norms after the residuals may be on together.
pub fn encoder_layer(layer: &EncoderLayer, params: &Params<f64>, input: Input<f64>) -> Vec<f64> {
    let Attention { batch, n, d, .. } = layer.attention;
    let rows = batch * n;

    let mut a = attention(&layer.attention, &params.attention, input).y;
    drop_out(&layer.attention_dropout(), &mut a);
    let sign = if layer.minus { -1.0 } else { 1.0 };
    let mut x_1: Vec<f64> = input.x.iter().zip(&a).map(|(x, a)| x + sign * a).collect();
    if layer.norm_after {
        x_1 = layer_norm(&x_1, rows, d, params.gamma_1, params.beta_1, layer.eps as f64);
    }

    let (p, dropout) = (&params.feed_forward, layer.hidden_dropout());
    let mut f = feed_forward(&x_1, p, rows, d, layer.hidden, layer.activation, &dropout);
    drop_out(&layer.feed_forward_dropout(), &mut f);
    let mut y: Vec<f64> = x_1.iter().zip(&f).map(|(x, f)| x + f).collect();
    if layer.norm_after {
        y = layer_norm(&y, rows, d, params.gamma_2, params.beta_2, layer.eps as f64);
    }
    y
}
