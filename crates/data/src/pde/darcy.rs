//! Darcy's flow −∇·(a∇u) = f on the unit square, u = 0 on its boundary: a → u.
//!
//! Five-point scheme on the n × n vertices, boundary included, h = 1/(n − 1); the coefficient of a face is the arithmetic mean of its two
//! vertices:
//!
//! Σ_{neighbours q of p} ½(a_p + a_q)(u_p − u_q) = h² f_p.
//!
//! Solved by conjugate gradients with the Laplacian of the same grid as preconditioner, which [`poisson`](super) inverts exactly.
//! The preconditioned matrix has its spectrum between min a and max a, whatever the grid: with a in {3, 12} every iteration divides the
//! error by 3 at least, and 10⁻¹⁰ takes some twenty. (A factor before the preconditioner would change nothing: conjugate gradients do
//! not see it.)

use super::eigen::{self, Eigenpair};
use super::poisson::{Poisson, Scratch};
use super::{Equation, Problem, Sample, Sampler, check_law, single};
use crate::domain::Grid;
use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};
use crate::random_field::{self, FieldLaw};
use serde::{Deserialize, Serialize};

/// Coefficients of Darcy's equation and its solution, on the vertices of a square grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Darcy {
    /// Vertices n a side, boundary included.
    pub points: usize,
    /// f, the same everywhere.
    pub source: f64,
    /// Tolerance of the solver.
    pub tolerance: f64,
    /// How the field becomes a coefficient.
    pub coefficient: Coefficient,
    /// The law of the field behind the coefficient.
    pub field: FieldLaw,
}

impl Default for Darcy {
    fn default() -> Self {
        Self {
            points: 421,
            source: 1.0,
            tolerance: Options::default().tolerance,
            coefficient: Coefficient::Threshold { at: 0.0, above: 12.0, below: 3.0 },
            field: FieldLaw::DARCY,
        }
    }
}

/// How a Gaussian field g becomes a positive coefficient a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Coefficient {
    /// Two phases with sharp interfaces.
    Threshold {
        /// Where g is cut.
        at: f64,
        /// a where g ≥ at.
        above: f64,
        /// a where g < at.
        below: f64,
    },
    /// a = exp(location + scale·g).
    Lognormal {
        /// The mean of log a.
        location: f64,
        /// The factor of g.
        scale: f64,
    },
}

impl Equation for Darcy {
    fn describe(&self) -> String {
        match self.coefficient {
            Coefficient::Threshold { at, above, below } => {
                format!("Darcy, coefficient {above} above and {below} below {at}")
            }
            Coefficient::Lognormal { location, scale } => {
                format!("Darcy, coefficient exp({location} + {scale}·g)")
            }
        }
    }

    fn channels(&self) -> [&'static str; 2] {
        ["a", "u"]
    }

    fn titles(&self) -> [String; 2] {
        ["coefficient a(x, y)".into(), "solution u(x, y)".into()]
    }

    fn grid(&self) -> Grid {
        Grid::unit(&[self.points; 2], false)
    }

    fn law(&self) -> Problem {
        let field = FieldLaw { modes: 0, ..self.field };
        Problem::Darcy(Darcy { points: 0, tolerance: 0.0, field, ..self.clone() })
    }

    fn sampler(&self) -> Result<Sampler<'_>> {
        check_law(&self.field, self.field.modes.saturating_mul(self.field.modes))?;
        let solver = Solver::new(self.points)?;
        Ok(Box::new(move |seed, index| {
            let a = self.coefficient_of(seed, index, self.points);
            let options = Options { tolerance: self.tolerance, ..Options::default() };
            let solution = solver.solve(&a, &vec![self.source; a.len()], &options)?;
            Ok(Sample { input: single(&a), target: single(&solution.u) })
        }))
    }

    fn input(&self, seed: u64, index: u32, points: &[usize]) -> Option<Result<Vec<f64>>> {
        let &[n, columns] = points else { return None };
        let made = || Ok(self.coefficient_of(seed, index, n));
        let law = || check_law(&self.field, self.field.modes.saturating_mul(self.field.modes));
        (n == columns).then(|| law().and_then(|()| made()))
    }

    fn solve(&self, input: &[f64], _: &[usize]) -> Option<Result<Vec<f64>>> {
        Some(solve(input, &vec![self.source; input.len()], self.tolerance))
    }

    /// The solution between the vertices is bilinear.
    fn solver(&self, from: &[usize], to: &[usize], tolerance: f64) -> Option<Result<super::Solver<'_>>> {
        let solver = match Solver::new(from[0]) {
            Ok(solver) => solver,
            Err(error) => return Some(Err(error)),
        };
        let options = Options { tolerance, ..Options::default() };
        let (from, to, source) = (from[0], to[0], vec![self.source; from[0] * from[0]]);
        Some(Ok(Box::new(move |a| Ok(bilinear(&solver.solve(a, &source, &options)?.u, from, to)))))
    }

    /// The source is the same everywhere, and no direction of the square is special to the field.
    fn symmetries(&self) -> &'static [&'static str] {
        &["flip x", "flip y", "transpose"]
    }

    fn zero_boundary(&self) -> bool {
        true
    }

    fn eigenfunctions(&self, input: &[f64], n: usize, count: usize) -> Option<Result<Vec<Eigenpair>>> {
        Some(eigen::eigenfunctions(input, n, count))
    }
}

impl Darcy {
    /// The coefficient of a sample on n × n vertices.
    fn coefficient_of(&self, seed: u64, index: u32, n: usize) -> Vec<f64> {
        let stream = Stream { seed, purpose: Purpose::Coefficient, index };
        let mut a = random_field::neumann(&self.field, &stream, n);
        a.iter_mut().for_each(|g| *g = self.coefficient.of(*g));
        a
    }
}

impl Coefficient {
    /// a for a value of the field.
    pub fn of(&self, g: f64) -> f64 {
        match *self {
            Self::Threshold { at, above, below } => {
                if g >= at {
                    above
                } else {
                    below
                }
            }
            Self::Lognormal { location, scale } => libm::exp(location + scale * g),
        }
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The residual relative to the right-hand side, ‖h²f − Au‖₂ / ‖h²f‖₂. Roundings of u keep it above some 10⁻¹² on 421 × 421
    /// vertices, and in proportion to n² on others; a smaller tolerance is never met.
    pub tolerance: f64,
    /// Iterations at the most.
    pub most_iterations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { tolerance: 1e-10, most_iterations: 500 }
    }
}

/// A solution and what it took.
#[derive(Clone, Debug)]
pub struct Solution {
    /// Values at the n × n vertices, zero on the boundary.
    pub u: Vec<f64>,
    /// Iterations of conjugate gradients.
    pub iterations: usize,
    /// The residual relative to the right-hand side, computed from u and not updated along the way.
    pub residual: f64,
}

/// The solution for a and f given at the n × n vertices, row by row.
pub fn solve(a: &[f64], f: &[f64], tolerance: f64) -> Result<Vec<f64>> {
    let n = a.len().isqrt();
    Ok(Solver::new(n)?.solve(a, f, &Options { tolerance, ..Options::default() })?.u)
}

/// Values at n × n vertices of the square, brought to m × m vertices.
fn bilinear(u: &[f64], n: usize, m: usize) -> Vec<f64> {
    // Vertex i of m lies at j + t of n, with j < n − 1.
    let places: Vec<(usize, f64)> = (0..m)
        .map(|i| {
            let (intervals, at) = ((m - 1).max(1), i * (n - 1));
            let j = (at / intervals).min(n - 2);
            (j, (at - j * intervals) as f64 / intervals as f64)
        })
        .collect();
    let mut values = Vec::with_capacity(m * m);
    for &(row, s) in &places {
        let [above, below] = [row, row + 1].map(|row| &u[row * n..(row + 1) * n]);
        values.extend(places.iter().map(|&(j, t)| {
            let between = |row: &[f64]| row[j] + t * (row[j + 1] - row[j]);
            between(above) + s * (between(below) - between(above))
        }));
    }
    values
}

/// A grid with its factorised preconditioner, shared by all samples and threads.
pub struct Solver {
    n: usize,
    poisson: Poisson,
}

impl Solver {
    /// A grid of n × n vertices.
    pub fn new(n: usize) -> Result<Self> {
        // The preconditioner has (n − 2)² numbers; 2¹³ vertices a side are half a gigabyte.
        if !(3..=8193).contains(&n) {
            return Err(Error::invalid("grid", "3 to 8193 vertices a side", n));
        }
        Ok(Self { n, poisson: Poisson::new(n - 2) })
    }

    /// The solution for a and f given at the n × n vertices, row by row; f on the boundary is not used.
    pub fn solve(&self, a: &[f64], f: &[f64], options: &Options) -> Result<Solution> {
        let n = self.n;
        for (name, values) in [("coefficient", a), ("right-hand side", f)] {
            if values.len() != n * n {
                let expected = format!("{n} × {n} = {} values", n * n);
                return Err(Error::invalid(name, expected, values.len()));
            }
        }
        if let Some(v) = a.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
            return Err(Error::invalid("coefficient", "positive numbers", v));
        }
        if let Some(v) = f.iter().find(|v| !v.is_finite()) {
            return Err(Error::invalid("right-hand side", "finite numbers", v));
        }
        if !(options.tolerance > 0.0 && options.tolerance < 1.0) {
            return Err(Error::invalid("tolerance", "between 0 and 1", options.tolerance));
        }
        let (interior, iterations, residual) = Gradients::new(self, a, f).run(options)?;
        let mut u = vec![0.0; n * n];
        for (i, row) in interior.chunks_exact(n - 2).enumerate() {
            u[(i + 1) * n + 1..(i + 2) * n - 1].copy_from_slice(row);
        }
        Ok(Solution { u, iterations, residual })
    }
}

/// Conjugate gradients on the interior; every vector is (n − 2) × (n − 2).
struct Gradients<'a> {
    solver: &'a Solver,
    a: &'a [f64],
    b: Vec<f64>,
    u: Vec<f64>,
    residual: Vec<f64>,
    preconditioned: Vec<f64>,
    direction: Vec<f64>,
    image: Vec<f64>,
    /// The row of boundary values above the first row and below the last.
    boundary: Vec<f64>,
    scratch: Scratch,
}

impl<'a> Gradients<'a> {
    fn new(solver: &'a Solver, a: &'a [f64], f: &[f64]) -> Self {
        let (n, m) = (solver.n, solver.n - 2);
        let h = 1.0 / (n - 1) as f64;
        let row = |i: usize| &f[(i + 1) * n + 1..(i + 2) * n - 1];
        let b: Vec<f64> = (0..m).flat_map(row).map(|f| h * h * f).collect();
        let zero = vec![0.0; m * m];
        Self {
            residual: b.clone(),
            u: zero.clone(),
            preconditioned: zero.clone(),
            direction: zero.clone(),
            image: zero,
            boundary: vec![0.0; m],
            scratch: solver.poisson.scratch(),
            solver,
            a,
            b,
        }
    }

    fn run(mut self, options: &Options) -> Result<(Vec<f64>, usize, f64)> {
        let size = dot(&self.b, &self.b).sqrt();
        if size == 0.0 {
            return Ok((self.u, 0, 0.0));
        }
        let mut found = 1.0;
        let mut weight = self.restart();
        for iteration in 1..=options.most_iterations {
            let curvature = apply(self.a, &self.boundary, &self.direction, &mut self.image);
            let length = weight / curvature;
            add(&mut self.u, length, &self.direction);
            add(&mut self.residual, -length, &self.image);
            found = dot(&self.residual, &self.residual).sqrt() / size;
            if found <= options.tolerance {
                // The updated residual drifts from the true one by roundings; the true one decides.
                apply(self.a, &self.boundary, &self.u, &mut self.image);
                for ((r, b), image) in self.residual.iter_mut().zip(&self.b).zip(&self.image) {
                    *r = b - image;
                }
                found = dot(&self.residual, &self.residual).sqrt() / size;
                if found <= options.tolerance {
                    return Ok((self.u, iteration, found));
                }
                weight = self.restart();
                continue;
            }
            if !found.is_finite() {
                break;
            }
            self.solver.poisson.solve(&self.residual, &mut self.preconditioned, &mut self.scratch);
            let next = dot(&self.residual, &self.preconditioned);
            let keep = next / weight;
            self.direction.iter_mut().zip(&self.preconditioned).for_each(|(p, z)| *p = z + keep * *p);
            weight = next;
        }
        Err(Error::NotConverged {
            iterations: options.most_iterations,
            residual: found,
            tolerance: options.tolerance,
        })
    }

    /// Takes the preconditioned residual as direction; returns their product.
    fn restart(&mut self) -> f64 {
        self.solver.poisson.solve(&self.residual, &mut self.preconditioned, &mut self.scratch);
        self.direction.copy_from_slice(&self.preconditioned);
        dot(&self.residual, &self.preconditioned)
    }
}

/// image = A p; returns p·A p. `a` has n × n values, `p` and `image` those of the interior, `boundary` one row of it.
fn apply(a: &[f64], boundary: &[f64], p: &[f64], image: &mut [f64]) -> f64 {
    let m = boundary.len();
    let n = m + 2;
    let mut product = 0.0;
    for (i, out) in image.chunks_exact_mut(m).enumerate() {
        let [north, here, south] = [0, 1, 2].map(|k| &a[(i + k) * n..(i + k + 1) * n]);
        let row = &p[i * m..(i + 1) * m];
        let above = if i == 0 { boundary } else { &p[(i - 1) * m..i * m] };
        let below = if i + 1 == m { boundary } else { &p[(i + 1) * m..(i + 2) * m] };
        // Twice the faces' coefficients; the half is taken once, at the end. Vertex j of the interior is j + 1 of the grid.
        let point = |j: usize, west: f64, east: f64| {
            let c = here[j + 1];
            let [w, e, u, d] = [here[j] + c, here[j + 2] + c, north[j + 1] + c, south[j + 1] + c];
            0.5 * ((w + e + u + d) * row[j] - (w * west + e * east + u * above[j] + d * below[j]))
        };
        if m == 1 {
            out[0] = point(0, 0.0, 0.0);
        } else {
            out[0] = point(0, 0.0, row[1]);
            for j in 1..m - 1 {
                out[j] = point(j, row[j - 1], row[j + 1]);
            }
            out[m - 1] = point(m - 1, row[m - 2], 0.0);
        }
        product += dot(row, out);
    }
    product
}

fn add(u: &mut [f64], factor: f64, direction: &[f64]) {
    u.iter_mut().zip(direction).for_each(|(u, d)| *u += factor * d);
}

/// Eight sums side by side, added in a fixed order: the compiler may vectorise and the bits stay.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (mut xs, mut ys) = (x.chunks_exact(8), y.chunks_exact(8));
    for (x, y) in (&mut xs).zip(&mut ys) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}
