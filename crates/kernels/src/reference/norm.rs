//! Layer norm and instance norm: `(x − mean)/√(variance + ε) · γ + β` with the biased variance.

/// Layer norm: every row over its own features. x (rows, width), γ and β (width).
pub fn layer_norm(x: &[f64], rows: usize, width: usize, gamma: &[f64], beta: &[f64], eps: f64) -> Vec<f64> {
    let mut y = vec![0.0; rows * width];
    for row in 0..rows {
        let of_row: Vec<f64> = (0..width).map(|c| x[row * width + c]).collect();
        for (c, x) in normalized(&of_row, eps).into_iter().enumerate() {
            y[row * width + c] = x * gamma[c] + beta[c];
        }
    }
    y
}

/// Instance norm: every feature of a sample over its n points. x (batch, n, width), γ and β (width).
pub fn instance_norm(
    x: &[f64],
    batch: usize,
    n: usize,
    width: usize,
    gamma: &[f64],
    beta: &[f64],
    eps: f64,
) -> Vec<f64> {
    let mut y = vec![0.0; batch * n * width];
    for b in 0..batch {
        for c in 0..width {
            let of_feature: Vec<f64> = (0..n).map(|j| x[(b * n + j) * width + c]).collect();
            for (j, x) in normalized(&of_feature, eps).into_iter().enumerate() {
                y[(b * n + j) * width + c] = x * gamma[c] + beta[c];
            }
        }
    }
    y
}

/// `(x − mean)/√(variance + ε)` with mean = Σx/m and variance = Σ(x − mean)²/m over the m values.
fn normalized(x: &[f64], eps: f64) -> Vec<f64> {
    let m = x.len() as f64;
    let mean = x.iter().sum::<f64>() / m;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / m;
    x.iter().map(|x| (x - mean) / (variance + eps).sqrt()).collect()
}
