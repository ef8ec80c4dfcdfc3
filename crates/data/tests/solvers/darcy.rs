use crate::relative_error;
use faer::Mat;
use faer::linalg::solvers::Solve;
use faer::sparse::{SparseColMat, Triplet};
use galerkin_data::Axis;
use galerkin_data::Error;
use galerkin_data::pde::darcy::{self, Options, Solver};
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::random_field::{FieldLaw, neumann};
use std::f64::consts::PI;

fn two_phases(n: usize) -> Vec<f64> {
    let stream = Stream { seed: 2, purpose: Purpose::Coefficient, index: 0 };
    neumann(&FieldLaw::DARCY, &stream, n).into_iter().map(|g| if g >= 0.0 { 12.0 } else { 3.0 }).collect()
}

/// The same scheme, assembled face by face and factorised.
fn direct(n: usize, a: &[f64], f: &[f64]) -> Vec<f64> {
    let (m, h) = (n - 2, 1.0 / (n - 1) as f64);
    let mut triplets = Vec::new();
    for i in 1..n - 1 {
        for j in 1..n - 1 {
            let (p, row) = (i * n + j, (i - 1) * m + j - 1);
            for (k, l) in [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)] {
                let face = 0.5 * (a[p] + a[k * n + l]);
                triplets.push(Triplet::new(row, row, face));
                if (1..n - 1).contains(&k) && (1..n - 1).contains(&l) {
                    triplets.push(Triplet::new(row, (k - 1) * m + l - 1, -face));
                }
            }
        }
    }
    let matrix = SparseColMat::try_new_from_triplets(m * m, m * m, &triplets).unwrap();
    let b = Mat::from_fn(m * m, 1, |i, _| h * h * f[(i / m + 1) * n + i % m + 1]);
    let solution = matrix.sp_lu().unwrap().solve(&b);
    let mut u = vec![0.0; n * n];
    (0..m * m).for_each(|i| u[(i / m + 1) * n + i % m + 1] = solution[(i, 0)]);
    u
}

#[test]
fn conjugate_gradients_agree_with_a_direct_solve() {
    for n in [3, 4, 10, 33, 64] {
        let a = two_phases(n);
        let f: Vec<f64> = (0..n * n).map(|i| 1.0 + (i as f64 * 0.3).sin()).collect();
        let u = darcy::solve(&a, &f, 1e-12).unwrap();
        let error = relative_error(&u, &direct(n, &a, &f));
        // The residual of 1e-12 times the condition of the preconditioned system, at most 4, and a norm's slack.
        assert!(error < 1e-10, "n {n}: {error:e}");
        for i in 0..n {
            assert_eq!([u[i], u[(n - 1) * n + i], u[i * n], u[i * n + n - 1]], [0.0; 4]);
        }
    }
}

/// u = sin πx sin 2πy, a = 2 + cos πx + xy: f from both by hand.
#[test]
fn a_manufactured_solution_is_approached_at_second_order() {
    let error = |n: usize| {
        let x = Axis::unit("x", n, false).coordinates();
        let at =
            |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> { (0..n * n).map(|i| f(x[i / n], x[i % n])).collect() };
        let exact = at(&|x, y| (PI * x).sin() * (2.0 * PI * y).sin());
        let a = at(&|x, y| 2.0 + (PI * x).cos() + x * y);
        let f = at(&|x, y| {
            let (s, c) = (PI * x).sin_cos();
            let (s2, c2) = (2.0 * PI * y).sin_cos();
            let a = 2.0 + c + x * y;
            5.0 * PI * PI * a * s * s2 - (y - PI * s) * PI * c * s2 - x * 2.0 * PI * s * c2
        });
        let solution = Solver::new(n).unwrap().solve(&a, &f, &Options::default()).unwrap();
        relative_error(&solution.u, &exact)
    };
    let errors = [17, 33, 65, 129].map(error);
    for pair in errors.windows(2) {
        let order = (pair[0] / pair[1]).log2();
        assert!((1.9..2.1).contains(&order), "order {order}, errors {errors:?}");
    }
}

#[test]
fn iterations_do_not_grow_with_the_grid() {
    for n in [29, 141, 421] {
        let a = two_phases(n);
        let solution = Solver::new(n).unwrap().solve(&a, &vec![1.0; n * n], &Options::default()).unwrap();
        // Contrast 4 divides the error by 3 an iteration: 1e-10 takes 21, and the norms' difference a few.
        assert!(solution.iterations <= 28, "n {n}: {}", solution.iterations);
        assert!(solution.residual <= 1e-10, "n {n}: {:e}", solution.residual);
    }
}

#[test]
fn a_uniform_coefficient_takes_one_iteration() {
    let n = 65;
    let solution = Solver::new(n).unwrap().solve(&vec![7.0; n * n], &vec![1.0; n * n], &Options::default());
    assert_eq!(solution.unwrap().iterations, 1);
}

#[test]
fn limits_and_wrong_input_are_errors() {
    let n = 33;
    let (a, f) = (two_phases(n), vec![1.0; n * n]);
    let solver = Solver::new(n).unwrap();
    let few = Options { most_iterations: 3, ..Options::default() };
    match solver.solve(&a, &f, &few) {
        Err(Error::NotConverged { iterations: 3, residual, .. }) => assert!(residual > 1e-10),
        other => panic!("{other:?}"),
    }
    let options = Options::default();
    for (a, f) in [
        (&a[1..], &f[..]),
        (&a[..], &f[1..]),
        (&vec![-1.0; n * n], &f[..]),
        (&vec![f64::NAN; n * n], &f[..]),
        (&a[..], &vec![f64::INFINITY; n * n]),
    ] {
        assert!(matches!(solver.solve(a, f, &options), Err(Error::Invalid { .. })));
    }
    for n in [0, 2, 100_000] {
        assert!(matches!(Solver::new(n), Err(Error::Invalid { .. })));
    }
    assert!(matches!(darcy::solve(&[1.0; 10], &[1.0; 10], 1e-10), Err(Error::Invalid { .. })));
    assert_eq!(solver.solve(&a, &vec![0.0; n * n], &options).unwrap().u, vec![0.0; n * n]);
}
