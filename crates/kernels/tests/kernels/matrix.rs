//! The optimisers' steps on matrices.

use galerkin_kernels::adam::{Adam, Slot, Step};
use galerkin_kernels::muon::{self, Muon};
use galerkin_kernels::reference::{Dense, SoapState, muon_step, soap_step};
use galerkin_kernels::soap::{self, Soap};
use galerkin_kernels::{par, reference};

use crate::support::{assert_close, assert_same_bits_with_any_threads, values, widen};

const ADAM: Adam = Adam { beta2: 0.95, eps: 1e-8, weight_decay: 0.0, max_norm: f64::INFINITY };
const MUON: Muon = Muon { momentum: 0.95, weight_decay: 0.02 };

/// A one-cycle schedule: lr rises and falls, β₁ the other way.
fn step(t: u64) -> Step {
    let middle = (t as f64 - 6.0).abs() / 6.0;
    Step { lr: 1e-2 * (1.5 - middle.min(1.0)), beta1: 0.85 + 0.1 * middle.min(1.0), t }
}

/// The gradient of a step: some directions are much stronger than others, and there is noise.
fn gradient(t: u64, rows: usize, cols: usize) -> Vec<f32> {
    let noise = values(1000 + t as u32, rows * cols);
    let strength = |i: usize, j: usize| 2f32.powi(-((i % 7 + j % 5) as i32));
    noise.iter().enumerate().map(|(at, v)| v * strength(at / cols, at % cols)).collect()
}

/// Parameters of several matrices with their state, all arrays of one kind in one vector, as an optimiser holds a stack of matrices.
#[derive(Clone)]
struct Stack {
    sizes: Vec<(usize, usize)>,
    param: Vec<Vec<f32>>,
    m: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    factors: Vec<Vec<f32>>,
    bases: Vec<Vec<f32>>,
}

impl Stack {
    fn new(sizes: &[(usize, usize)]) -> Self {
        let zeros: Vec<Vec<f32>> = sizes.iter().map(|(rows, cols)| vec![0.0; rows * cols]).collect();
        Self {
            sizes: sizes.to_vec(),
            param: sizes.iter().enumerate().map(|(i, (r, c))| values(i as u32, r * c)).collect(),
            m: zeros.clone(),
            v: zeros,
            factors: sizes.iter().map(|(r, c)| vec![0.0; soap::factors_len(*r, *c)]).collect(),
            bases: sizes.iter().map(|(r, c)| soap::start(*r, *c)).collect(),
        }
    }

    fn soap(&mut self, soap: &Soap, t: u64, clip: f32) {
        let mut grads: Vec<Vec<f32>> = self.sizes.iter().map(|(r, c)| gradient(t, *r, *c)).collect();
        let state = self.m.iter_mut().zip(&mut self.v).zip(self.factors.iter_mut().zip(&mut self.bases));
        let params = self.sizes.iter().zip(self.param.iter_mut().zip(&mut grads));
        let mut matrices: Vec<soap::Matrix> = params
            .zip(state)
            .map(|((&(rows, cols), (param, grad)), ((m, v), (factors, bases)))| soap::Matrix {
                rows,
                cols,
                param,
                grad,
                m,
                v,
                factors,
                bases,
            })
            .collect();
        let mut workspace = vec![f32::NAN; Soap::workspace_len(&matrices, par::threads())];
        soap.apply(step(t), clip, &mut matrices, &mut workspace);
        assert_eq!(grads, self.param, "gradients become a copy of the parameters");
    }

    fn muon(&mut self, t: u64, clip: f32) {
        let mut grads: Vec<Vec<f32>> = self.sizes.iter().map(|(r, c)| gradient(t, *r, *c)).collect();
        let params = self.sizes.iter().zip(self.param.iter_mut().zip(&mut grads));
        let mut matrices: Vec<muon::Matrix> = params
            .zip(&mut self.m)
            .map(|((&(rows, cols), (param, grad)), m)| muon::Matrix { rows, cols, param, grad, m })
            .collect();
        let mut workspace = vec![f32::NAN; Muon::workspace_len(&matrices, par::threads())];
        MUON.apply(step(t), clip, &mut matrices, &mut workspace);
        assert_eq!(grads, self.param, "gradients become a copy of the parameters");
    }
}

fn dense(rows: usize, cols: usize, values: &[f32]) -> Dense {
    Dense { rows, cols, values: widen(values) }
}

fn clipped(t: u64, rows: usize, cols: usize, clip: f32) -> Dense {
    let values: Vec<f32> = gradient(t, rows, cols).iter().map(|g| clip * g).collect();
    dense(rows, cols, &values)
}

const SIZES: [(usize, usize); 6] = [(8, 8), (1, 9), (12, 40), (40, 12), (33, 33), (70, 9)];

#[test]
fn muon_matches_the_reference() {
    let mut stack = Stack::new(&SIZES);
    let mut wanted: Vec<(Dense, Dense)> = SIZES
        .iter()
        .zip(&stack.param)
        .map(|((r, c), param)| (dense(*r, *c, param), Dense::zeros(*r, *c)))
        .collect();
    for t in 1..=12 {
        stack.muon(t, 0.5);
        for ((rows, cols), (p, m)) in SIZES.iter().zip(&mut wanted) {
            muon_step(&MUON, &step(t), p, &clipped(t, *rows, *cols, 0.5), m);
        }
    }
    for (i, (p, m)) in wanted.iter().enumerate() {
        // Twelve steps of a polynomial that takes small singular values to the sixtieth of themselves a step: roundings grow with them. 90 were measured.
        assert_close(&format!("p of {:?}", SIZES[i]), &stack.param[i], &p.values, 400.0);
        assert_close(&format!("m of {:?}", SIZES[i]), &stack.m[i], &m.values, 24.0);
    }
}

/// XXᵀ of an update divided by its size is about the identity: every singular value of the momentum became about one.
#[test]
fn an_update_of_muon_has_singular_values_of_about_one() {
    let (rows, cols) = (16, 48);
    let mut stack = Stack::new(&[(rows, cols)]);
    let before = dense(rows, cols, &stack.param[0]);
    let muon = Muon { momentum: 0.95, weight_decay: 0.0 };
    let mut grad = values(3, rows * cols);
    let mut matrices =
        [muon::Matrix { rows, cols, param: &mut stack.param[0], grad: &mut grad, m: &mut stack.m[0] }];
    let mut workspace = vec![f32::NAN; Muon::workspace_len(&matrices, 1)];
    let step = Step { lr: 0.1, beta1: 0.9, t: 1 };
    muon.apply(step, 1.0, &mut matrices, &mut workspace);
    let size = step.lr * muon::SCALE * (cols as f64).sqrt();
    let x = before.with(&dense(rows, cols, &stack.param[0]), |before, after| (before - after) / size);
    let gram = x.times(&x.transposed());
    for i in 0..rows {
        // Squares of (0.6, 1.3); what is beside the diagonal comes from their differences.
        let value = gram.values[i * rows + i];
        assert!((0.36..1.7).contains(&value), "{i}: {value}");
    }
}

#[test]
fn soap_matches_the_reference() {
    let sizes = [(8, 8), (1, 9), (12, 20), (20, 12), (33, 33)];
    let soap = Soap { adam: Adam { weight_decay: 0.02, ..ADAM }, refresh: 4 };
    let mut stack = Stack::new(&sizes);
    let mut wanted: Vec<(Dense, SoapState)> = sizes
        .iter()
        .zip(&stack.param)
        .map(|((r, c), param)| (dense(*r, *c, param), SoapState::new(*r, *c)))
        .collect();
    for t in 1..=12 {
        stack.soap(&soap, t, 0.5);
        for ((rows, cols), (p, state)) in sizes.iter().zip(&mut wanted) {
            soap_step(&soap, &step(t), p, &clipped(t, *rows, *cols, 0.5), state);
        }
        for (i, (p, _)) in wanted.iter().enumerate() {
            // Roundings of a basis grow where eigenvalues lie close together, and m/√v takes a direction of any size as seriously as another.
            assert_close(&format!("p of {:?} after {t}", sizes[i]), &stack.param[i], &p.values, 2000.0);
        }
    }
}

#[test]
fn bases_of_soap_become_those_of_the_eigenvectors() {
    let (rows, cols) = (24, 36);
    let soap = Soap { adam: ADAM, refresh: 2 };
    let mut stack = Stack::new(&[(rows, cols)]);
    (1..=200).for_each(|t| stack.soap(&soap, t, 1.0));
    let (l, _) = stack.factors[0].split_at(rows * rows);
    let (b, _) = stack.bases[0].split_at(rows * rows);
    let [l, b] = [l, b].map(|values| dense(rows, rows, values));
    let turned = b.times(&l).times(&b.transposed());
    let one = b.times(&b.transposed());
    let (mut beside, mut whole) = (0.0, 0.0);
    for i in 0..rows {
        for j in 0..rows {
            let expected = f64::from(u8::from(i == j));
            assert!((one.values[i * rows + j] - expected).abs() < 1e-5, "({i}, {j})");
            let square = turned.values[i * rows + j].powi(2);
            whole += square;
            beside += if i == j { 0.0 } else { square };
        }
    }
    // The factor forgets a twentieth a step, so that the basis is always behind: 3 % were measured, and a random basis has 90.
    assert!((beside / whole).sqrt() < 0.1, "{}", (beside / whole).sqrt());
}

/// Bases that never turn are identities.
#[test]
fn soap_without_a_refresh_is_adam() {
    let (rows, cols) = (9, 11);
    let mut stack = Stack::new(&[(rows, cols)]);
    let mut p = vec![widen(&stack.param[0])];
    let (mut m, mut v) = (vec![vec![0.0; rows * cols]], vec![vec![0.0; rows * cols]]);
    for t in 1..=6 {
        stack.soap(&Soap { adam: ADAM, refresh: 1000 }, t, 1.0);
        reference::adam_step(&ADAM, &step(t), &mut p, &[widen(&gradient(t, rows, cols))], &mut m, &mut v);
    }
    assert_close("p", &stack.param[0], &p[0], 24.0);
}

#[test]
fn a_long_side_keeps_the_identity() {
    let (rows, cols) = (soap::LONGEST + 1, 8);
    assert_eq!(soap::factors_len(rows, cols), cols * cols);
    let mut stack = Stack::new(&[(rows, cols)]);
    let mut plain = Stack::new(&[(cols, cols)]);
    let soap = Soap { adam: ADAM, refresh: 1 };
    for t in 1..=3 {
        stack.soap(&soap, t, 1.0);
        plain.soap(&soap, t, 1.0);
    }
    assert!(stack.bases[0] != soap::start(rows, cols), "the short side turns");
    assert!(stack.param[0].iter().all(|v| v.is_finite()));
}

#[test]
fn nothing_to_learn_changes_nothing() {
    let (rows, cols) = (8, 9);
    let before = values(1, rows * cols);
    let soap = Soap { adam: ADAM, refresh: 1 };
    let (mut param, mut grad, zeros) = (before.clone(), vec![0.0; rows * cols], vec![0.0; rows * cols]);
    let (mut m, mut v) = (zeros.clone(), zeros);
    let (mut factors, mut bases) = (vec![0.0; soap::factors_len(rows, cols)], soap::start(rows, cols));
    let mut matrices = [soap::Matrix {
        rows,
        cols,
        param: &mut param,
        grad: &mut grad,
        m: &mut m,
        v: &mut v,
        factors: &mut factors,
        bases: &mut bases,
    }];
    let mut workspace = vec![f32::NAN; Soap::workspace_len(&matrices, 1)];
    soap.apply(step(1), 1.0, &mut matrices, &mut workspace);
    assert_eq!((param, bases), (before.clone(), soap::start(rows, cols)));
    let (mut param, mut grad, mut m) = (before.clone(), vec![0.0; rows * cols], vec![0.0; rows * cols]);
    let mut matrices = [muon::Matrix { rows, cols, param: &mut param, grad: &mut grad, m: &mut m }];
    let mut workspace = vec![f32::NAN; Muon::workspace_len(&matrices, 1)];
    let plain = Muon { weight_decay: 0.0, ..MUON };
    plain.apply(step(1), 1.0, &mut matrices, &mut workspace);
    assert_eq!(param, before);
}

#[test]
fn steps_on_matrices_are_the_same_bits_with_any_threads() {
    let mut sizes = vec![(40, 24); 9];
    sizes.extend([(8, 8), (96, 64), (64, 96)]);
    assert_same_bits_with_any_threads("matrices", || {
        let mut stack = Stack::new(&sizes);
        (1..=4).for_each(|t| stack.soap(&Soap { adam: ADAM, refresh: 2 }, t, 0.9));
        (5..=6).for_each(|t| stack.muon(t, 0.9));
        [stack.param, stack.m, stack.v, stack.factors, stack.bases].concat()
    });
}

#[test]
#[should_panic(expected = "soap m: expected 6 values, found 5 (matrix = 1, rows = 2, cols = 3)")]
fn a_wrong_length_names_the_matrix() {
    let mut stack = Stack::new(&[(2, 2), (2, 3)]);
    stack.m[1].pop();
    stack.soap(&Soap { adam: ADAM, refresh: 1 }, 1, 1.0);
}

/// A step of Adam beside steps on matrices sees one norm of all gradients.
#[test]
fn the_norm_and_the_clip_are_those_of_adam() {
    let adam = Adam { max_norm: 0.5, ..ADAM };
    let (mut one, mut two) = (values(1, 30), values(1, 30));
    let run = |param: &mut Vec<f32>, whole: bool| {
        let (mut grad, mut m, mut v) = (values(2, 30), vec![0.0; 30], vec![0.0; 30]);
        let norm = galerkin_kernels::adam::gradient_norm([&grad[..]].into_iter());
        let mut slots = [Slot { param, grad: &mut grad, m: &mut m, v: &mut v }];
        match whole {
            true => assert_eq!(adam.step(step(1), &mut slots), norm),
            false => adam.apply(step(1), adam.clip(norm), &mut slots),
        }
    };
    run(&mut one, true);
    run(&mut two, false);
    assert_eq!(one, two);
}
