//! Solvers against known answers, fields against their laws, datasets against themselves.

mod burgers;
mod darcy;
mod dataset;
mod eigen;
mod fields;

/// ‖a − b‖₂ / ‖b‖₂.
fn relative_error(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |v: f64| v * v;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (difference / b.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}
