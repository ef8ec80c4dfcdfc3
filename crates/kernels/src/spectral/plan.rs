//! The truncated DFT as a thin real matrix.

use super::slots::Slots;
use crate::dims::mismatch;

/// The kept modes of one axis: a matrix E and the weights c of the half spectrum. Built once per (n, modes).
///
/// E has n rows and a pair of columns per mode, E\[j, (k, ·)\] = (cos θ, −sin θ)/√n with θ = 2πkj/n, so that for real x
///
/// ```text
/// X = Eᵀ x        (re, im) of X_k = n^{-1/2} Σ_j x_j e^{−iθ},  k < modes
/// x = E C X       x_j = n^{-1/2} Σ_k c_k Re(X_k e^{iθ}),       c_0 = c_{n/2} = 1, else c_k = 2
/// ```
///
/// The inverse uses the very numbers of the forward transform, so each is exactly the adjoint of the other.
#[derive(Clone, Debug)]
pub struct Plan {
    n: usize,
    modes: usize,
    /// E, (n, modes, 2)
    basis: Vec<f32>,
}

/// The plans of the two axes of an n₁ × n₂ grid.
#[derive(Clone, Debug)]
pub struct Plan2d {
    /// Of n₁, with the frequencies 0..=min(modes, n₁/2): those of the kept rows up to sign.
    pub(super) rows: Plan,
    /// Of n₂, the half axis.
    pub(super) columns: Plan,
}

/// The plans of the three axes of an n₁ × n₂ × n₃ grid.
#[derive(Clone, Debug)]
pub struct Plan3d {
    /// Of n₁, with the frequencies 0..=min(modes, n₁/2).
    pub(super) planes: Plan,
    /// Of n₂, with the frequencies 0..=min(modes, n₂/2).
    pub(super) lines: Plan,
    /// Of n₃, the half axis.
    pub(super) columns: Plan,
}

impl Plan {
    /// The first `modes` frequencies of `n` points; `modes` ≤ n/2 + 1 unless there are no points.
    pub fn new(n: usize, modes: usize) -> Self {
        if modes == 0 || (n > 0 && modes > n / 2 + 1) {
            mismatch("spectral plan", &[("n", n), ("modes", modes), ("most modes", n / 2 + 1)]);
        }
        let scale = 1.0 / (n as f64).sqrt();
        let turns: Vec<[f32; 2]> = (0..n)
            .map(|t| {
                let (cos, sin) = turn(t, n);
                [(cos * scale) as f32, (-sin * scale) as f32]
            })
            .collect();
        let mut basis = Vec::with_capacity(2 * n * modes);
        for j in 0..n {
            // kj is reduced modulo n as an integer: the angle is as exact for the last point as for the first.
            basis.extend((0..modes).flat_map(|k| turns[(k as u128 * j as u128 % n as u128) as usize]));
        }
        Self { n, modes, basis }
    }

    /// The frequencies up to sign of an axis with modes of either sign.
    fn of_slots(n: usize, modes: usize) -> Self {
        Self::new(n, Slots { n, modes }.frequencies())
    }

    /// Points.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Kept modes.
    pub fn modes(&self) -> usize {
        self.modes
    }

    /// Rows `j0..j1` of E, (j1 − j0, modes, 2).
    #[inline]
    pub(super) fn basis(&self, j0: usize, j1: usize) -> &[f32] {
        &self.basis[2 * self.modes * j0..2 * self.modes * j1]
    }

    /// c_k: how often frequency k occurs in the whole spectrum of a real signal.
    #[inline]
    pub(super) fn weight(&self, k: usize) -> f32 {
        if k == 0 || 2 * k == self.n { 1.0 } else { 2.0 }
    }
}

impl Plan2d {
    /// `modes` frequencies from either end of `n1` and the first `modes` of `n2`; `modes` ≤ n₁ and ≤ n₂/2 + 1 unless there
    /// are no points.
    pub fn new(n1: usize, n2: usize, modes: usize) -> Self {
        // Not by their product, which wraps.
        let (empty, most) = ([n1, n2].contains(&0), n1.min(n2 / 2 + 1));
        if modes == 0 || (!empty && modes > most) {
            mismatch("spectral plan", &[("n1", n1), ("n2", n2), ("modes", modes), ("most modes", most)]);
        }
        let [n1, n2] = if empty { [0; 2] } else { [n1, n2] };
        Self { rows: Plan::of_slots(n1, modes), columns: Plan::new(n2, modes) }
    }
}

impl Plan3d {
    /// `modes` frequencies from either end of `n1` and `n2` and the first `modes` of `n3`; `modes` ≤ n₁, ≤ n₂ and ≤ n₃/2 + 1
    /// unless there are no points.
    pub fn new(n1: usize, n2: usize, n3: usize, modes: usize) -> Self {
        let (empty, most) = ([n1, n2, n3].contains(&0), n1.min(n2).min(n3 / 2 + 1));
        if modes == 0 || (!empty && modes > most) {
            let sizes = [("n1", n1), ("n2", n2), ("n3", n3), ("modes", modes), ("most modes", most)];
            mismatch("spectral plan", &sizes);
        }
        let [n1, n2, n3] = if empty { [0; 3] } else { [n1, n2, n3] };
        Self {
            planes: Plan::of_slots(n1, modes),
            lines: Plan::of_slots(n2, modes),
            columns: Plan::new(n3, modes),
        }
    }
}

/// (cos, sin) of `t/n` of a turn, t < n, from an angle of at most an eighth: exact at the quarters, accurate everywhere.
fn turn(t: usize, n: usize) -> (f64, f64) {
    let (t, n) = (t as u128, n as u128);
    let quarter = 4 * t / n;
    let rest = 4 * t - quarter * n; // of a quarter of n
    let angle = |part: u128| std::f64::consts::FRAC_PI_2 * part as f64 / n as f64;
    let (cos, sin) = if 2 * rest <= n {
        (libm::cos(angle(rest)), libm::sin(angle(rest)))
    } else {
        (libm::sin(angle(n - rest)), libm::cos(angle(n - rest)))
    };
    match quarter {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_exact_at_quarters_and_close_elsewhere() {
        assert_eq!([0, 1, 2, 3].map(|t| turn(t, 4)), [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)]);
        for n in [1, 2, 3, 7, 97, 1000] {
            for t in 0..n {
                let angle = 2.0 * std::f64::consts::PI * t as f64 / n as f64;
                let (cos, sin) = turn(t, n);
                assert!((cos - angle.cos()).abs() < 1e-15 && (sin - angle.sin()).abs() < 1e-15, "{t}/{n}");
            }
        }
    }

    #[test]
    fn all_modes_invert() {
        for n in [1, 2, 5, 8] {
            let plan = Plan::new(n, n / 2 + 1);
            for i in 0..n {
                for j in 0..n {
                    let (a, b) = (plan.basis(i, i + 1), plan.basis(j, j + 1));
                    let entry: f32 = (0..plan.modes())
                        .map(|k| plan.weight(k) * (a[2 * k] * b[2 * k] + a[2 * k + 1] * b[2 * k + 1]))
                        .sum();
                    let identity = if i == j { 1.0 } else { 0.0 };
                    assert!((entry - identity).abs() < 1e-6, "E C Eᵀ at n = {n}, ({i}, {j}): {entry}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "n = 8, modes = 6, most modes = 5")]
    fn too_many_modes_are_refused() {
        Plan::new(8, 6);
    }

    #[test]
    #[should_panic(expected = "n1 = 4, n2 = 9, modes = 5, most modes = 4")]
    fn too_many_modes_of_a_grid_are_refused() {
        Plan2d::new(4, 9, 5);
    }

    #[test]
    #[should_panic(expected = "n1 = 9, n2 = 4, n3 = 9, modes = 5, most modes = 4")]
    fn too_many_modes_of_a_volume_are_refused() {
        Plan3d::new(9, 4, 9, 5);
    }
}
