//! The optimiser step as its definition.

use crate::adam::{Adam, Step};

/// One step of Adam (AdamW with weight decay) on parameters p with gradients g and state m, v; see [`Adam`].
///
/// Returns the norm of all gradients together; if it is not finite, nothing else happens.
pub fn adam_step(
    adam: &Adam,
    step: &Step,
    p: &mut [Vec<f64>],
    g: &[Vec<f64>],
    m: &mut [Vec<f64>],
    v: &mut [Vec<f64>],
) -> f64 {
    let norm = g.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return norm;
    }
    let clip = (adam.max_norm / (norm + 1e-6)).min(1.0);
    let (beta1, beta2) = (step.beta1, adam.beta2);
    let step_size = step.lr / (1.0 - beta1.powf(step.t as f64));
    let correction = (1.0 - beta2.powf(step.t as f64)).sqrt();
    for i in 0..p.len() {
        for j in 0..p[i].len() {
            let g = clip * g[i][j];
            m[i][j] = beta1 * m[i][j] + (1.0 - beta1) * g;
            v[i][j] = beta2 * v[i][j] + (1.0 - beta2) * g * g;
            p[i][j] *= 1.0 - step.lr * adam.weight_decay;
            p[i][j] -= step_size * m[i][j] / (v[i][j].sqrt() / correction + adam.eps);
        }
    }
    norm
}
