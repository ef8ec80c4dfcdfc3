use galerkin_data::Axis;
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::random_field::{FieldLaw, neumann, periodic, sample_periodic};
use std::f64::consts::PI;

const SAMPLES: u32 = 2000;

fn stream(index: u32) -> Stream {
    Stream { seed: 3, purpose: Purpose::Initial, index }
}

/// The sum of `degrees` squared standard normal numbers leaves these bounds once in a million, for many degrees: 4.9 standard
/// deviations of Wilson and Hilferty's cube root.
fn check_chi_square(sum: f64, degrees: f64, what: &str) {
    let variance = 2.0 / (9.0 * degrees);
    let z = ((sum / degrees).cbrt() - (1.0 - variance)) / variance.sqrt();
    assert!(z.abs() < 4.9, "{what}: {sum} of {degrees} degrees, {z} deviations");
}

/// Coefficients read back from values on a grid, so that the evaluation is tested with the law.
#[test]
fn modes_of_periodic_fields_have_their_variances() {
    let law = FieldLaw { modes: 32, ..FieldLaw::BURGERS };
    let n = 64;
    for k in [1, 2, 5, 17] {
        let expected = 2.0 * 25.0f64.powi(2) / ((2.0 * PI * k as f64).powi(2) + 25.0).powi(2);
        let mut sum = 0.0;
        for index in 0..SAMPLES {
            let values = sample_periodic(&periodic(&law, &stream(index)), n);
            let project = |wave: fn(f64) -> f64| -> f64 {
                let angle = |j: usize| 2.0 * PI * ((j * k) % n) as f64 / n as f64;
                values.iter().enumerate().map(|(j, v)| v * wave(angle(j))).sum::<f64>() * 2.0 / n as f64
            };
            sum += (project(f64::cos).powi(2) + project(f64::sin).powi(2)) / expected;
        }
        check_chi_square(sum, 2.0 * SAMPLES as f64, &format!("mode {k}"));
    }
}

#[test]
fn modes_of_fields_on_the_square_have_their_variances() {
    let law = FieldLaw { modes: 9, ..FieldLaw::DARCY };
    let n = 10;
    for (k, l) in [(1, 0), (0, 1), (2, 3), (5, 1), (8, 8)] {
        let expected = 9.0 / (PI * PI * (k * k + l * l) as f64 + 9.0).powi(2);
        // The trapezoidal rule is exact for products of cosines below n − 1; ψ_k has norm 1.
        let weights = |k: usize| -> Vec<f64> {
            let ends = |i| if i == 0 || i == n - 1 { 0.5 } else { 1.0 };
            let scale = if k == 0 { 1.0 } else { 2.0f64.sqrt() } / (n - 1) as f64;
            (0..n).map(|i| ends(i) * scale * (PI * (k * i) as f64 / (n - 1) as f64).cos()).collect()
        };
        let (down, across) = (weights(k), weights(l));
        let mut sum = 0.0;
        for index in 0..SAMPLES {
            let field = neumann(&law, &stream(index), n);
            let mode: f64 = (0..n * n).map(|i| down[i / n] * across[i % n] * field[i]).sum();
            sum += mode * mode / expected;
        }
        check_chi_square(sum, SAMPLES as f64, &format!("mode {k}, {l}"));
    }
}

#[test]
fn fields_are_their_series_on_grids_fine_and_coarse() {
    let law = FieldLaw { modes: 12, ..FieldLaw::BURGERS };
    let series = periodic(&law, &stream(0));
    for n in [1, 2, 3, 8, 12, 24, 25, 100] {
        let points = Axis::unit("x", n, true).coordinates();
        for (x, found) in points.into_iter().zip(sample_periodic(&series, n)) {
            let term = |k: usize| {
                let (s, c) = (2.0 * PI * k as f64 * x).sin_cos();
                2.0 * (series[k].re * c - series[k].im * s)
            };
            let expected: f64 = (1..=12).map(term).sum();
            assert!((found - expected).abs() < 1e-13, "n {n}: {found}, {expected}");
        }
    }
    let law = FieldLaw { modes: 21, ..FieldLaw::DARCY };
    let fine = neumann(&law, &stream(0), 61);
    for (n, step) in [(31, 2), (21, 3), (11, 6), (4, 20), (2, 60)] {
        for (i, found) in neumann(&law, &stream(0), n).into_iter().enumerate() {
            let expected = fine[i / n * step * 61 + i % n * step];
            assert!((found - expected).abs() < 1e-13, "n {n}: {found}, {expected}");
        }
    }
    // The first axis carries the first mode: a law with one mode along y only would not tell.
    let mut normals = vec![0.0; 21 * 21];
    stream(0).normals(&mut normals);
    let mean_along_x = |j: usize| -> f64 {
        (0..61).map(|i| fine[i * 61 + j] * if i == 0 || i == 60 { 0.5 } else { 1.0 } / 60.0).sum()
    };
    let expected = |j: usize| -> f64 {
        let mode = |l: usize| normals[l] * law.neumann_deviation(0, l) * 2.0f64.sqrt();
        (1..21).map(|l| mode(l) * (PI * (l * j) as f64 / 60.0).cos()).sum()
    };
    assert!((0..61).all(|j| (mean_along_x(j) - expected(j)).abs() < 1e-13));
}

#[test]
fn other_exponents_follow_the_formula() {
    let law = FieldLaw { smoothness: 2.5, tau: 7.0, sigma: 49.0, modes: 4 };
    let expected = 2.0f64.sqrt() * 49.0 * ((6.0 * PI).powi(2) + 49.0).powf(-1.25);
    // Two powers by different libraries.
    assert!((law.periodic_deviation(3) / expected - 1.0).abs() < 1e-14);
}
