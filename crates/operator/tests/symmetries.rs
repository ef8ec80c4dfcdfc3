//! What problems declare is true: a classical solver commutes with every symmetry, and the mean over them makes any network do so.

use galerkin::symmetry::{Group, Side, Symmetry};
use galerkin_data::pde::{Burgers, Darcy, Equation};
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::random_field::FieldLaw;

/// The largest difference of solve(transform(input)) and transform(solve(input)) over the largest |u|, over drawn elements of all symmetries.
fn worst(equation: &dyn Equation, elements: u32) -> f64 {
    let grid = equation.grid();
    let points = grid.points();
    let channels = equation.channels().map(|name| [name.to_string()]);
    let sides = [0, 1].map(|side| Side { grid: &grid, channels: &channels[side] });
    let symmetries = Symmetry::declared(equation.symmetries()).unwrap();
    assert!(!symmetries.is_empty());
    let group = Group::new(&symmetries, sides).unwrap();
    let solve = |input: &[f32]| {
        let input: Vec<f64> = input.iter().map(|v| f64::from(*v)).collect();
        let solved = equation.solve(&input, &points).unwrap().unwrap();
        solved.into_iter().map(|v| v as f32).collect::<Vec<f32>>()
    };
    let sample = equation.sampler().unwrap()(3, 0).unwrap();
    let solved = solve(&sample.input);
    let largest = solved.iter().map(|v| f64::from(v.abs())).fold(0.0, f64::max);
    let mut worst = 0.0f64;
    for index in 0..elements {
        let element = group.draw(&Stream { seed: 1, purpose: Purpose::Augment, index }, 0);
        let [mut moved, mut expected] = [Vec::new(), Vec::new()];
        group.inputs(&element).apply(&sample.input, &mut moved);
        group.targets(&element).apply(&solved, &mut expected);
        let found = solve(&moved);
        let differences = found.iter().zip(&expected).map(|(a, b)| f64::from((a - b).abs()));
        worst = worst.max(differences.fold(0.0, f64::max) / largest);
    }
    worst
}

#[test]
fn burgers_solver_commutes_with_its_symmetries() {
    let field = FieldLaw { modes: 24, ..FieldLaw::BURGERS };
    let burgers = Burgers { points: 64, initial: field, ..Burgers::default() };
    // Solutions are rounded to f32, 6e-8; the steps are chosen to 1e-8 and are the same ones but for roundings of their error estimate.
    let worst = worst(&burgers, 12);
    assert!(worst < 3e-7, "{worst}");
}

#[test]
fn darcy_solver_commutes_with_its_symmetries() {
    let field = FieldLaw { modes: 16, ..FieldLaw::DARCY };
    let darcy = Darcy { points: 33, field, ..Darcy::default() };
    // Conjugate gradients end with a residual of 1e-10; solutions are rounded to f32, 6e-8.
    let worst = worst(&darcy, 24);
    assert!(worst < 3e-7, "{worst}");
}
