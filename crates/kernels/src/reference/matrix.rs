//! The optimisers' steps on matrices as their definitions.

use crate::adam::{Adam, Step};
use crate::muon::{COEFFICIENTS, ITERATIONS, Muon, SCALE};
use crate::soap::{LONGEST, SHIFT, Soap};

/// A plain matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Row-major.
    pub values: Vec<f64>,
}

impl Dense {
    /// Of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self { rows, cols, values: vec![0.0; rows * cols] }
    }

    /// The identity.
    pub fn identity(side: usize) -> Self {
        let mut one = Self::zeros(side, side);
        (0..side).for_each(|i| one.values[i * side + i] = 1.0);
        one
    }

    /// A B
    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.cols, other.rows, "a product of matrices");
        let mut out = Self::zeros(self.rows, other.cols);
        for i in 0..self.rows {
            for k in 0..self.cols {
                for j in 0..other.cols {
                    out.values[i * other.cols + j] +=
                        self.values[i * self.cols + k] * other.values[k * other.cols + j];
                }
            }
        }
        out
    }

    /// Aᵀ
    pub fn transposed(&self) -> Self {
        let mut out = Self::zeros(self.cols, self.rows);
        for i in 0..self.rows {
            for j in 0..self.cols {
                out.values[j * self.rows + i] = self.values[i * self.cols + j];
            }
        }
        out
    }

    /// f of every value of A and the one of B.
    pub fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| f(*a, *b)).collect();
        Self { rows: self.rows, cols: self.cols, values }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        self.with(self, |a, _| f(a))
    }

    fn rows_in_order(&self, order: &[usize]) -> Self {
        let row = |i: &usize| self.values[i * self.cols..(i + 1) * self.cols].to_vec();
        Self { values: order.iter().flat_map(row).collect(), ..*self }
    }
}

/// One step of [`Muon`] on p with gradient g, already clipped, and momentum m.
pub fn muon_step(muon: &Muon, step: &Step, p: &mut Dense, g: &Dense, m: &mut Dense) {
    let mu = muon.momentum;
    *m = m.with(g, |m, g| mu * m + (1.0 - mu) * g);
    let u = g.with(m, |g, m| (1.0 - mu) * g + mu * m);
    let norm = u.values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut x = u.map(|v| v / (norm + 1e-20));
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..ITERATIONS {
        let gram = x.times(&x.transposed());
        let polynomial = gram.with(&gram.times(&gram), |one, two| b * one + c * two);
        x = x.with(&polynomial.times(&x), |x, more| a * x + more);
    }
    let size = step.lr * SCALE * (p.rows.max(p.cols) as f64).sqrt();
    *p = p.with(&x, |p, x| p * (1.0 - step.lr * muon.weight_decay) - size * x);
}

/// The state of [`soap_step`]: m and v in the bases, factors and bases of rows and columns.
#[derive(Clone, Debug)]
pub struct SoapState {
    /// m
    pub m: Dense,
    /// v
    pub v: Dense,
    /// L and R.
    pub factors: [Dense; 2],
    /// B_L and B_R, their vectors as rows.
    pub bases: [Dense; 2],
}

impl SoapState {
    /// Before the first step.
    pub fn new(rows: usize, cols: usize) -> Self {
        let zeros = |[rows, cols]: [usize; 2]| Dense::zeros(rows, cols);
        Self {
            m: zeros([rows, cols]),
            v: zeros([rows, cols]),
            factors: [[rows; 2], [cols; 2]].map(zeros),
            bases: [rows, cols].map(Dense::identity),
        }
    }
}

/// One step of [`Soap`] on p with gradient g, already clipped.
pub fn soap_step(soap: &Soap, step: &Step, p: &mut Dense, g: &Dense, state: &mut SoapState) {
    let Adam { beta2: beta, eps, weight_decay, .. } = soap.adam;
    let t = g.transposed();
    for (factor, (a, b)) in state.factors.iter_mut().zip([(g, &t), (&t, g)]) {
        *factor = factor.with(&a.times(b), |old, new| beta * old + (1.0 - beta) * new);
    }
    if step.t.is_multiple_of(soap.refresh) {
        for side in 0..2 {
            let at_rows = |x: &Dense| if side == 0 { x.clone() } else { x.transposed() };
            let (mut m, mut v) = (at_rows(&state.m), at_rows(&state.v));
            turn(&mut state.bases[side], &state.factors[side], &mut m, &mut v);
            (state.m, state.v) = (at_rows(&m), at_rows(&v));
        }
    }
    let [left, right] = &state.bases;
    let turned = left.times(g).times(&right.transposed());
    state.m = state.m.with(&turned, |m, g| step.beta1 * m + (1.0 - step.beta1) * g);
    state.v = state.v.with(&turned, |v, g| beta * v + (1.0 - beta) * g * g);
    let correction = (1.0 - beta.powf(step.t as f64)).sqrt();
    let size = step.lr / (1.0 - step.beta1.powf(step.t as f64));
    let update = state.m.with(&state.v, |m, v| size * m / (v.sqrt() / correction + eps));
    let update = left.transposed().times(&update).times(right);
    *p = p.with(&update, |p, u| p * (1.0 - step.lr * weight_decay) - u);
}

fn turn(basis: &mut Dense, factor: &Dense, m: &mut Dense, v: &mut Dense) {
    let side = factor.rows;
    let trace: f64 = (0..side).map(|i| factor.values[i * side + i]).sum();
    if side > LONGEST || trace < 1e-30 {
        return;
    }
    let product = basis.times(factor);
    let value =
        |i: usize| (0..side).map(|j| product.values[i * side + j] * basis.values[i * side + j]).sum::<f64>();
    let mut order: Vec<usize> = (0..side).collect();
    order.sort_by(|i, j| value(*j).total_cmp(&value(*i)));
    let old = basis.rows_in_order(&order);
    *v = v.rows_in_order(&order);
    *basis = product.rows_in_order(&order).with(&old, |w, b| w + SHIFT * trace / side as f64 * b);
    for i in 0..side {
        for j in 0..i {
            let along: f64 = (0..side).map(|k| basis.values[i * side + k] * basis.values[j * side + k]).sum();
            (0..side).for_each(|k| basis.values[i * side + k] -= along * basis.values[j * side + k]);
        }
        let row = &mut basis.values[i * side..(i + 1) * side];
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter_mut().for_each(|v| *v /= length);
    }
    *m = basis.times(&old.transposed()).times(&m.rows_in_order(&order));
}
