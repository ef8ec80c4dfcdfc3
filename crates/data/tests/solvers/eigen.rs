use crate::relative_error;
use galerkin_data::Axis;
use galerkin_data::Error;
use galerkin_data::pde::eigen::{Eigenpair, eigenfunctions};
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::random_field::{FieldLaw, neumann};
use std::f64::consts::PI;

fn two_phases(n: usize) -> Vec<f64> {
    let stream = Stream { seed: 2, purpose: Purpose::Coefficient, index: 0 };
    neumann(&FieldLaw::DARCY, &stream, n).into_iter().map(|g| if g >= 0.0 { 12.0 } else { 3.0 }).collect()
}

/// sin iπx sin jπy at the vertices.
fn sines(n: usize, i: usize, j: usize) -> Vec<f64> {
    let x = Axis::unit("x", n, false).coordinates();
    (0..n * n).map(|at| (i as f64 * PI * x[at / n]).sin() * (j as f64 * PI * x[at % n]).sin()).collect()
}

/// The quadratic forms ∫a∇u·∇v and ∫uv of bilinear functions, by Gauss's two points an axis, which are exact: written without
/// the matrices of an element.
fn forms(n: usize, a: &[f64], u: &[f64], v: &[f64]) -> [f64; 2] {
    let h = 1.0 / (n - 1) as f64;
    let nodes = [-1.0, 1.0].map(|s: f64| 0.5 + s * 0.5 / 3.0f64.sqrt());
    let (mut energy, mut product) = (0.0, 0.0);
    for (i, j) in (0..n - 1).flat_map(|i| (0..n - 1).map(move |j| (i, j))) {
        let corners =
            |w: &[f64]| [w[i * n + j], w[i * n + j + 1], w[(i + 1) * n + j], w[(i + 1) * n + j + 1]];
        let mean = corners(a).iter().sum::<f64>() / 4.0;
        for (s, t) in nodes.iter().flat_map(|s| nodes.iter().map(move |t| (*s, *t))) {
            let at = |w: &[f64]| {
                let [p, q, r, z] = corners(w);
                let value = (1.0 - s) * ((1.0 - t) * p + t * q) + s * ((1.0 - t) * r + t * z);
                let down = ((1.0 - t) * (r - p) + t * (z - q)) / h;
                [value, down, ((1.0 - s) * (q - p) + s * (z - r)) / h]
            };
            let ([u, ux, uy], [v, vx, vy]) = (at(u), at(v));
            energy += 0.25 * h * h * mean * (ux * vx + uy * vy);
            product += 0.25 * h * h * u * v;
        }
    }
    [energy, product]
}

/// Bilinear elements on a uniform grid are tensor products of linear ones, whose eigenvalues are 6/h²·(1 − c)/(2 + c), c = cos iπh.
fn discrete(n: usize, i: usize, j: usize) -> f64 {
    let h = 1.0 / (n - 1) as f64;
    let axis = |i: usize| {
        let c = (i as f64 * PI * h).cos();
        6.0 / (h * h) * (1.0 - c) / (2.0 + c)
    };
    axis(i) + axis(j)
}

fn values(pairs: &[Eigenpair]) -> Vec<f64> {
    pairs.iter().map(|pair| pair.value).collect()
}

#[test]
fn a_uniform_coefficient_has_the_eigenvalues_of_tensor_products() {
    for n in [3, 4, 9, 29, 71] {
        let count = 8.min((n - 2) * (n - 2));
        let found = values(&eigenfunctions(&vec![1.0; n * n], n, count).unwrap());
        let axis = 1..n - 1;
        let mut all: Vec<f64> =
            axis.clone().flat_map(|i| axis.clone().map(move |j| discrete(n, i, j))).collect();
        all.sort_by(f64::total_cmp);
        for (found, exact) in found.iter().zip(&all) {
            // Roundings of the factors, some n² of them relative to the least eigenvalue, and those of 1 − c.
            assert!((found / exact - 1.0).abs() < 1e-11, "n {n}: {found}, {exact}");
        }
    }
}

#[test]
fn eigenvalues_are_approached_from_above_at_second_order() {
    let errors = [9, 17, 33, 65].map(|n| {
        let found = values(&eigenfunctions(&vec![1.0; n * n], n, 4).unwrap());
        let exact = [2.0, 5.0, 5.0, 8.0].map(|s| PI * PI * s);
        [0, 1, 2, 3].map(|k| found[k] / exact[k] - 1.0)
    });
    for (pair, k) in errors.windows(2).flat_map(|pair| (0..4).map(move |k| (pair, k))) {
        let order = (pair[0][k] / pair[1][k]).log2();
        assert!(pair[1][k] > 0.0 && (1.9..2.1).contains(&order), "function {k}: order {order}, {errors:?}");
    }
}

#[test]
fn eigenfunctions_of_a_uniform_coefficient_are_products_of_sines() {
    let n = 29;
    let pairs = eigenfunctions(&vec![7.0; n * n], n, 4).unwrap();
    // The vertices of sin πx sin πy have ∫u² a little below ¼ for bilinear functions: each is compared after normalisation.
    let normal = |i, j| {
        let u = sines(n, i, j);
        let size = forms(n, &u, &u, &u)[1].sqrt();
        u.iter().map(|v| v / size).collect::<Vec<f64>>()
    };
    // The residual of 1e-10 over the distance to the next eigenvalue, 0.4 of it or more.
    assert!(relative_error(&pairs[0].function, &normal(1, 1)) < 1e-9);
    assert!(relative_error(&pairs[3].function, &normal(2, 2)) < 1e-9);
    // The second and the third belong to one eigenvalue: each lies in the plane of two products.
    for pair in &pairs[1..3] {
        let [one, two] = [normal(1, 2), normal(2, 1)];
        let [along, across] = [&one, &two].map(|basis| forms(n, &one, &pair.function, basis)[1]);
        let plane: Vec<f64> = one.iter().zip(&two).map(|(p, q)| along * p + across * q).collect();
        assert!(relative_error(&pair.function, &plane) < 1e-9);
    }
}

#[test]
fn functions_are_orthonormal_and_make_the_residual_vanish() {
    for n in [9, 29] {
        let a = two_phases(n);
        let pairs = eigenfunctions(&a, n, 5).unwrap();
        for (k, pair) in pairs.iter().enumerate() {
            for (l, other) in pairs.iter().enumerate() {
                let [energy, product] = forms(n, &a, &pair.function, &other.function);
                let one = if k == l { 1.0 } else { 0.0 };
                // Orthonormal by construction, up to roundings of sums over n² vertices.
                assert!((product - one).abs() < 1e-12, "n {n}, {k} and {l}: {product}");
                assert!((energy / pair.value - one).abs() < 1e-12, "n {n}, {k} and {l}: {energy}");
            }
            // ∫a∇u·∇φ = λ∫uφ for every basis function φ. The residual of 1e-10 is that of A⁻¹M; A itself amplifies its rough part by
            // at most λ_max/λ, some thousands, and roundings by as much.
            let mut worst: f64 = 0.0;
            for at in (0..n * n).filter(|at| (1..n - 1).contains(&(at / n)) && (1..n - 1).contains(&(at % n)))
            {
                let mut hat = vec![0.0; n * n];
                hat[at] = 1.0;
                let [energy, product] = forms(n, &a, &pair.function, &hat);
                worst = worst.max((energy - pair.value * product).abs() / (pair.value / (n * n) as f64));
            }
            assert!(worst < 1e-7, "n {n}, function {k}: {worst:e}");
            for i in 0..n {
                let u = &pair.function;
                assert_eq!([u[i], u[(n - 1) * n + i], u[i * n], u[i * n + n - 1]], [0.0; 4]);
            }
        }
        assert!(pairs.windows(2).all(|pair| pair[0].value <= pair[1].value));
        // The first eigenfunction has no sign change, and the sign is fixed.
        assert!(pairs[0].function.iter().all(|v| *v >= 0.0), "n {n}");
        assert_eq!(pairs, eigenfunctions(&a, n, 5).unwrap());
    }
}

#[test]
fn values_scale_with_the_coefficient_and_lie_between_those_of_its_phases() {
    let n = 43;
    let a = two_phases(n);
    let pairs = eigenfunctions(&a, n, 4).unwrap();
    for factor in [1e-200, 0.3, 1e200] {
        let scaled: Vec<f64> = a.iter().map(|a| factor * a).collect();
        for (one, other) in pairs.iter().zip(eigenfunctions(&scaled, n, 4).unwrap()) {
            assert!((other.value / factor / one.value - 1.0).abs() < 1e-12);
            // Two iterations that stop at a residual of 1e-10, and the distances between these eigenvalues.
            assert!(relative_error(&other.function, &one.function) < 1e-8);
        }
    }
    // Courant, Fischer and Weyl: the forms of 3, a and 12 are ordered, so are their eigenvalues.
    for (value, (i, j)) in values(&pairs).into_iter().zip([(1, 1), (1, 2), (2, 1), (2, 2)]) {
        let one = discrete(n, i, j);
        assert!(3.0 * one < value && value < 12.0 * one, "{value}");
    }
}

#[test]
fn no_function_has_a_smaller_quotient_than_the_first() {
    let n = 29;
    // Contrast a million: an island that conducts, off the centre.
    let x = Axis::unit("x", n, false).coordinates();
    let a: Vec<f64> = (0..n * n)
        .map(|at| if (x[at / n] - 0.4).abs() < 0.2 && (x[at % n] - 0.7).abs() < 0.15 { 1e6 } else { 1.0 })
        .collect();
    let pairs = eigenfunctions(&a, n, 2).unwrap();
    let quotient = |u: &[f64]| {
        let [energy, product] = forms(n, &a, u, u);
        energy / product
    };
    for (i, j) in [(1, 1), (1, 2), (3, 1)] {
        assert!(pairs[0].value < quotient(&sines(n, i, j)));
    }
    // The quotient is stationary at the first: a step of ε away raises it by ε², never lowers it.
    let first = &pairs[0].function;
    for (k, away) in [sines(n, 1, 1), sines(n, 2, 1), pairs[1].function.clone()].iter().enumerate() {
        for step in [1e-3, -1e-3] {
            let near: Vec<f64> = first.iter().zip(away).map(|(u, v)| u + step * v).collect();
            assert!(quotient(&near) > pairs[0].value * (1.0 - 1e-12), "direction {k}");
        }
    }
    // The function is flat on the island, where slopes cost a million times as much.
    let inside: Vec<f64> = (0..n * n).filter(|at| a[*at] > 1.0).map(|at| first[at]).collect();
    let [least, most] = [f64::min, f64::max].map(|of| inside.iter().copied().reduce(of).unwrap());
    assert!(most / least < 1.001, "{least} to {most}");
}

#[test]
fn wrong_input_is_an_error() {
    let wrong = |a: &[f64], n: usize, count: usize| match eigenfunctions(a, n, count) {
        Err(Error::Invalid { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(wrong(&[], 0, 1), "grid");
    assert_eq!(wrong(&[1.0; 4], 2, 1), "grid");
    assert_eq!(wrong(&[1.0; 9], 100_000, 1), "grid");
    assert_eq!(wrong(&[1.0; 80], 9, 1), "coefficient");
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut a = vec![1.0; 81];
        a[40] = bad;
        assert_eq!(wrong(&a, 9, 1), "coefficient");
    }
    assert_eq!(wrong(&[1.0; 81], 9, 0), "eigenfunctions");
    assert_eq!(wrong(&[1.0; 81], 9, 50), "eigenfunctions");
    assert_eq!(wrong(&vec![1.0; 71 * 71], 71, 65), "eigenfunctions");
    // A contrast that f64 does not hold leaves zeros in the matrix.
    let mut a = vec![1e-300; 81];
    a[40] = 1e300;
    assert_eq!(wrong(&a, 9, 1), "coefficient");
}
