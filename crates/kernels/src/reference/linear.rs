//! Linear maps with an activation, and the feed-forward network made of two of them.

use crate::activation::Activation;
use crate::dropout::Dropout;
use crate::feed_forward::Params;

/// f(z) of an activation.
pub fn activate(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::None => z,
        Activation::Relu => z.max(0.0),
        Activation::Silu => z / (1.0 + (-z).exp()),
        Activation::Gelu => z * 0.5 * libm::erfc(-z / 2f64.sqrt()),
    }
}

/// `y = act(x W + b)`: x (rows, inputs), W (inputs, outputs), b (outputs), y (rows, outputs).
pub fn linear(
    x: &[f64],
    w: &[f64],
    b: &[f64],
    rows: usize,
    inputs: usize,
    outputs: usize,
    activation: Activation,
) -> Vec<f64> {
    let mut y = vec![0.0; rows * outputs];
    for row in 0..rows {
        for o in 0..outputs {
            let mut z = b[o];
            for i in 0..inputs {
                z += x[row * inputs + i] * w[i * outputs + o];
            }
            y[row * outputs + o] = activate(activation, z);
        }
    }
    y
}

/// `y = drop(act(x W₁ + b₁)) W₂ + b₂`: x and y (rows, d), W₁ (d, f), b₁ (f), W₂ (f, d), b₂ (d).
///
/// The hidden value c of a row lies at the dropout's position row·f + c.
pub fn feed_forward(
    x: &[f64],
    params: &Params<f64>,
    rows: usize,
    d: usize,
    f: usize,
    activation: Activation,
    dropout: &Dropout,
) -> Vec<f64> {
    let mut hidden = linear(x, params.w_1, params.b_1, rows, d, f, activation);
    drop_out(dropout, &mut hidden);
    linear(&hidden, params.w_2, params.b_2, rows, f, d, Activation::None)
}

/// Multiplies the value at each position by its dropout factor, 0 or 1/(1 − rate).
pub fn drop_out(dropout: &Dropout, values: &mut [f64]) {
    for (position, value) in values.iter_mut().enumerate() {
        *value *= dropout.factor(position as u64) as f64;
    }
}
