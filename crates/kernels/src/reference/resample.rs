//! Convolution and resize as their definitions.

use super::activate;
use crate::activation::Activation;
use crate::conv3x3::{Conv3x3, Params};

/// y = act(drop(conv(x))), see [`Conv3x3`]: x (B, n1, n2, c), y (B, n1, n2, o).
pub fn conv3x3(shape: &Conv3x3, x: &[f64], params: Params<f64>) -> Vec<f64> {
    let Conv3x3 { batch, n1, n2, inputs, outputs, .. } = *shape;
    let mut y = Vec::with_capacity(shape.y_len());
    for at in 0..batch * n1 * n2 * outputs {
        let (b, i, j, q) = (at / outputs / n2 / n1, at / outputs / n2 % n1, at / outputs % n2, at % outputs);
        let mut z = if shape.bias { params.b[q] } else { 0.0 };
        for s in 0..3 {
            for t in 0..3 {
                // Pixel (i + s − 1, j + t − 1), if the image has it.
                if (1..=n1).contains(&(i + s)) && (1..=n2).contains(&(j + t)) {
                    let pixel = (b * n1 + i + s - 1) * n2 + j + t - 1;
                    for c in 0..inputs {
                        z += x[pixel * inputs + c] * params.w[((s * 3 + t) * inputs + c) * outputs + q];
                    }
                }
            }
        }
        let factor = shape.dropout.map_or(1.0, |d| d.factor(at as u64) as f64);
        y.push(activate(shape.activation, factor * z));
    }
    y
}

/// Bilinear resize with aligned corners, then the activation: x (B, n1, n2, c), result (B, m1, m2, c).
pub fn resize(
    batch: usize,
    from: [usize; 2],
    to: [usize; 2],
    channels: usize,
    activation: Activation,
    x: &[f64],
) -> Vec<f64> {
    let mut y = Vec::with_capacity(batch * to[0] * to[1] * channels);
    for b in 0..batch {
        for k in 0..to[0] {
            for l in 0..to[1] {
                let (i, s) = source(k, from[0], to[0]);
                let (j, t) = source(l, from[1], to[1]);
                for c in 0..channels {
                    // The neighbour behind the last pixel only ever has weight 0.
                    let pixel = |i: usize, j: usize| {
                        let (i, j) = (i.min(from[0] - 1), j.min(from[1] - 1));
                        x[((b * from[0] + i) * from[1] + j) * channels + c]
                    };
                    let upper = (1.0 - t) * pixel(i, j) + t * pixel(i, j + 1);
                    let lower = (1.0 - t) * pixel(i + 1, j) + t * pixel(i + 1, j + 1);
                    y.push(activate(activation, (1.0 - s) * upper + s * lower));
                }
            }
        }
    }
    y
}

/// Output i of m looks at the coordinate i·(n − 1)/(m − 1): its integer part, and the rest.
fn source(i: usize, n: usize, m: usize) -> (usize, f64) {
    if m == 1 {
        return (0, 0.0);
    }
    let coordinate = (i * (n - 1)) as f64 / (m - 1) as f64;
    (coordinate as usize, coordinate.fract())
}
