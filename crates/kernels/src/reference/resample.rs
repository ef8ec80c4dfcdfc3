//! Convolution, resize and local means as their definitions.

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

/// Means over the cells of another grid, see [`LocalMeans`](crate::local_means::LocalMeans): x (B, n1, n2, c), result (B, m1, m2, c).
pub fn local_means(
    batch: usize,
    from: [usize; 2],
    to: [usize; 2],
    periodic: [bool; 2],
    channels: usize,
    x: &[f64],
) -> Vec<f64> {
    let weights = [0, 1].map(|k| cell_weights(from[k], to[k], periodic[k]));
    let mut y = Vec::with_capacity(batch * to[0] * to[1] * channels);
    for b in 0..batch {
        for k in 0..to[0] {
            for l in 0..to[1] {
                for c in 0..channels {
                    let mut sum = 0.0;
                    for i in 0..from[0] {
                        for j in 0..from[1] {
                            let point = (b * from[0] + i) * from[1] + j;
                            sum += weights[0][k][i] * weights[1][l][j] * x[point * channels + c];
                        }
                    }
                    y.push(sum);
                }
            }
        }
    }
    y
}

/// W: the share of the cell of each of m points that lies in the cell of each of n.
pub fn cell_weights(n: usize, m: usize, periodic: bool) -> Vec<Vec<f64>> {
    let of_output = |i: usize| {
        let whole = cell(i, m, periodic);
        let share = |j: usize| {
            let part = cell(j, n, periodic);
            // Once round and back: the same cell again.
            let turns = if periodic { -1..=1 } else { 0..=0 };
            let met = turns.map(|turn| {
                let turn = turn as f64;
                (whole[1].min(part[1] + turn) - whole[0].max(part[0] + turn)).max(0.0)
            });
            met.sum::<f64>() / (whole[1] - whole[0])
        };
        (0..n).map(share).collect()
    };
    (0..m).map(of_output).collect()
}

/// The ends of the cell of point i of n.
pub fn cell(i: usize, n: usize, periodic: bool) -> [f64; 2] {
    let (i, n) = (i as f64, n as f64);
    match periodic {
        true => [(i - 0.5) / n, (i + 0.5) / n],
        false if n == 1.0 => [0.0, 1.0],
        false => [((i - 0.5) / (n - 1.0)).max(0.0), ((i + 0.5) / (n - 1.0)).min(1.0)],
    }
}

/// Output i of m looks at the coordinate i·(n − 1)/(m − 1): its integer part, and the rest.
fn source(i: usize, n: usize, m: usize) -> (usize, f64) {
    if m == 1 {
        return (0, 0.0);
    }
    let coordinate = (i * (n - 1)) as f64 / (m - 1) as f64;
    (coordinate as usize, coordinate.fract())
}
