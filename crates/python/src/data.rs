//! Datasets: open, write, generate; classical solvers.

use std::path::{Path, PathBuf};

use galerkin_data::dataset::Pair;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{Burgers, Darcy, Problem, burgers, darcy, solve_all};
use galerkin_data::{Array, Meta};
use numpy::PyUntypedArrayMethods;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{In, Out, given, taken, values};
use crate::error::{Error, Result, wrong};
use crate::work::{compute, watched};

/// See `galerkin.Dataset`: a folder.
#[pyclass(frozen, module = "galerkin._galerkin")]
pub struct Dataset {
    dataset: galerkin_data::Dataset,
}

#[pymethods]
impl Dataset {
    #[staticmethod]
    fn open(py: Python, path: PathBuf) -> Result<Self> {
        Ok(Self { dataset: compute(py, || Ok(galerkin_data::Dataset::open(&path)?))? })
    }

    /// A new folder: what it says of itself as JSON, without checksums, and arrays by the names of their files.
    #[staticmethod]
    fn write(py: Python, path: PathBuf, meta: &str, arrays: Vec<(String, In)>) -> Result<Self> {
        let meta: Meta = serde_json::from_str(meta).map_err(|error| wrong(error.to_string()))?;
        let arrays = arrays.iter().map(|(name, array)| Ok((name.clone(), taken(array)?)));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        Ok(Self { dataset: compute(py, || Ok(galerkin_data::Dataset::write(&path, meta, &arrays)?))? })
    }

    fn __len__(&self) -> usize {
        self.dataset.len()
    }

    /// `meta.toml` as JSON.
    fn meta(&self) -> Result<String> {
        let meta = self.dataset.meta().expect("a folder has a description");
        serde_json::to_string(meta).map_err(|error| wrong(error.to_string()))
    }

    /// Input and target of a sample, (points…, channels).
    fn sample<'py>(&self, py: Python<'py>, index: usize) -> Result<(Out<'py>, Out<'py>)> {
        both(py, compute(py, || Ok(self.dataset.sample(index)?))?)
    }

    /// Inputs and targets of all samples, (samples, points…, channels), which lie at as many points.
    fn all<'py>(&self, py: Python<'py>) -> Result<(Out<'py>, Out<'py>)> {
        let indices: Vec<usize> = (0..self.dataset.len()).collect();
        both(py, compute(py, || Ok(self.dataset.batch(&indices)?))?)
    }

    /// Coordinates, weights and cells of the points of a sample's input or target; nothing on a grid.
    fn points<'py>(&self, py: Python<'py>, index: usize, target: bool) -> Result<Option<Bound<'py, PyDict>>> {
        let set = match target {
            true => self.dataset.target_points(index)?,
            false => self.dataset.input_points(index)?,
        };
        let Some(set) = set else { return Ok(None) };
        let dict = PyDict::new(py);
        let Array { shape, values } = set.coordinates;
        dict.set_item("points", given(py, shape, values)?)?;
        if let Some(weights) = set.weights {
            dict.set_item("weights", given(py, vec![weights.len()], weights)?)?;
        }
        // There are no corners without cells.
        if let Some(cells) = set.cells.len().checked_div(set.corners) {
            dict.set_item("cells", given(py, vec![cells, set.corners], set.cells)?)?;
        }
        Ok(Some(dict))
    }
}

fn both(py: Python, pair: Pair) -> Result<(Out, Out)> {
    let [input, target] = [pair.input, pair.target].map(|Array { shape, values }| given(py, shape, values));
    Ok((input?, target?))
}

/// Makes a dataset of a problem, which is JSON as in `meta.toml`, or goes on with one that was begun. `progress` is told how many samples are done.
#[pyfunction]
pub fn generate(
    py: Python,
    problem: &str,
    samples: u32,
    seed: u64,
    out: PathBuf,
    progress: Py<PyAny>,
) -> Result<()> {
    let problem: Problem = serde_json::from_str(problem).map_err(|error| wrong(error.to_string()))?;
    if is_there(&out, &problem, samples, seed)? {
        return Ok(());
    }
    watched(
        py,
        |tell| {
            // Settings that cannot work leave no folder behind.
            problem.sample(seed, 0)?;
            Ok(write_dataset(&out, &problem, seed, samples, tell).map(drop)?)
        },
        |py, complete: u32| progress.call1(py, (complete,)).map(|_| true),
    )
}

/// Whether the folder is this dataset already; another one there is an error.
fn is_there(out: &Path, problem: &Problem, samples: u32, seed: u64) -> Result<bool> {
    if !out.exists() {
        return Ok(false);
    }
    let same = |meta: &Meta| {
        meta.problem.as_ref() == Some(problem) && (meta.seed, meta.samples) == (Some(seed), samples as usize)
    };
    match galerkin_data::Dataset::open(out)?.meta().is_some_and(same) {
        true => Ok(true),
        false => Err(Error::from(galerkin_data::Error::Exists { path: out.into() })),
    }
}

/// Burgers' equation: u(x, T) of initial values (samples, points), at so many points.
#[pyfunction]
pub fn solve_burgers<'py>(
    py: Python<'py>,
    initial: In<'py, f64>,
    viscosity: f64,
    time: f64,
    points: usize,
    tolerance: f64,
) -> Result<Out<'py, f64>> {
    let &[samples, n] = initial.shape() else {
        return Err(wrong(format!("u0: expected shape (samples, points), found {:?}", initial.shape())));
    };
    let rows = rows(&initial, n)?;
    let solved = compute(py, || {
        let options = burgers::Options { tolerance, ..burgers::Options::default() };
        let solve = |u0: &[f64]| {
            let series = burgers::coefficients(u0)?;
            Ok(burgers::solve_series(&series, viscosity, time, points, &options)?.u)
        };
        Ok(solve_all(&(Box::new(solve) as _), &rows)?)
    })?;
    given(py, vec![samples, points], solved.concat())
}

/// Darcy's flow: u of coefficients (samples, n, n) and right-hand sides of the same shape.
#[pyfunction]
pub fn solve_darcy<'py>(
    py: Python<'py>,
    coefficient: In<'py, f64>,
    source: In<'py, f64>,
    tolerance: f64,
) -> Result<Out<'py, f64>> {
    let &[samples, n, columns] = coefficient.shape() else {
        return Err(wrong(format!("a: expected shape (samples, n, n), found {:?}", coefficient.shape())));
    };
    if n != columns || source.shape() != coefficient.shape() {
        let found = format!("{:?} and {:?}", coefficient.shape(), source.shape());
        return Err(wrong(format!("a and f: expected shape (samples, n, n) of both, found {found}")));
    }
    // Coefficient and right-hand side of a sample, one after the other.
    let both: Vec<Vec<f64>> = rows(&coefficient, n * n)?
        .into_iter()
        .zip(rows(&source, n * n)?)
        .map(|(a, f)| [a, f].concat())
        .collect();
    let solved = compute(py, || {
        let solver = darcy::Solver::new(n)?;
        let options = darcy::Options { tolerance, ..darcy::Options::default() };
        let solve = move |both: &[f64]| {
            let (a, f) = both.split_at(n * n);
            Ok(solver.solve(a, f, &options)?.u)
        };
        Ok(solve_all(&(Box::new(solve) as _), &both)?)
    })?;
    given(py, vec![samples, n, n], solved.concat())
}

fn rows(array: &In<f64>, len: usize) -> Result<Vec<Vec<f64>>> {
    Ok(values(array)?.chunks_exact(len.max(1)).map(<[f64]>::to_vec).collect())
}

/// The problem of this name with its numbers as they are by default, as JSON.
#[pyfunction]
pub fn problem(name: &str) -> Result<String> {
    let problem = match name {
        "burgers" => Problem::Burgers(Burgers::default()),
        "darcy" => Problem::Darcy(Darcy::default()),
        name => return Err(wrong(format!("problem {name:?}: expected burgers or darcy"))),
    };
    serde_json::to_string(&problem).map_err(|error| wrong(error.to_string()))
}
