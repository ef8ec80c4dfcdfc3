//! How a quantity grows with the number of points.

/// The exponent p of y ≈ c·xᵖ by least squares of the logarithms; `None` of fewer than two points (x, y), or where one is not positive.
pub fn exponent(points: &[[f64; 2]]) -> Option<f64> {
    if points.len() < 2 || points.iter().flatten().any(|value| *value <= 0.0) {
        return None;
    }
    let logarithms: Vec<[f64; 2]> = points.iter().map(|point| point.map(f64::ln)).collect();
    let mean = |axis: usize| logarithms.iter().map(|p| p[axis]).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(0), mean(1));
    let product = |p: &[f64; 2]| [(p[0] - x) * (p[1] - y), (p[0] - x) * (p[0] - x)];
    let [xy, xx] = logarithms.iter().map(product).fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    Some(xy / xx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_has_its_exponent() {
        let points = [1.0, 2.0, 4.0, 9.0].map(|n: f64| [n, 3.0 * n.powf(-1.5)]);
        // Logarithms are rounded, to sixteen digits.
        assert!((exponent(&points).unwrap() + 1.5).abs() < 1e-14);
        assert_eq!(exponent(&points[..1]), None);
        assert_eq!(exponent(&[[1.0, 1.0], [2.0, 0.0]]), None);
    }
}
