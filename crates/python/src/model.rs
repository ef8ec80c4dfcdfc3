//! Trained models.

use std::collections::BTreeMap;
use std::path::PathBuf;

use galerkin::device::Device;
use galerkin::reference;
use galerkin::run::{RunFolder, Snapshot};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{In, Out, given, taken};
use crate::error::{Result, wrong};
use crate::work::compute;

/// See `galerkin.Model`.
#[pyclass(frozen, module = "galerkin._galerkin")]
pub struct Model {
    model: galerkin::Model,
}

#[pymethods]
impl Model {
    /// From the folder of a run or from a weight file.
    #[staticmethod]
    fn load(py: Python, path: PathBuf, best: bool, symmetric: bool, allow_nan: bool) -> Result<Self> {
        let model = compute(py, || {
            let folder = RunFolder::new(&path);
            let model = match (path.is_dir(), best) {
                (true, true) => galerkin::Model::open(&folder, Snapshot::Best, &cpu())?,
                _ => galerkin::Model::load(&path)?,
            };
            let model = if symmetric { model.symmetric(&folder)? } else { model };
            Ok(model.allow_nan(allow_nan))
        })?;
        Ok(Self { model })
    }

    fn predict<'py>(&self, py: Python<'py>, inputs: In<'py>) -> Result<Out<'py>> {
        let inputs = taken(&inputs)?;
        let found = compute(py, || self.model.predict(inputs))?;
        given(py, found.shape, found.values)
    }

    /// Names and arrays.
    fn latents<'py>(&self, py: Python<'py>, inputs: In<'py>) -> Result<Vec<(String, Out<'py>)>> {
        let inputs = taken(&inputs)?;
        let found = compute(py, || self.model.latents(inputs))?;
        found.into_iter().map(|(name, array)| Ok((name, given(py, array.shape, array.values)?))).collect()
    }

    fn attention<'py>(&self, py: Python<'py>, inputs: In<'py>, layer: usize) -> Result<Out<'py>> {
        let inputs = taken(&inputs)?;
        let found = compute(py, || self.model.attention(inputs, layer))?;
        given(py, found.shape, found.values)
    }

    /// `[network]` as JSON.
    fn config(&self) -> Result<String> {
        serde_json::to_string(self.model.network().config()).map_err(|error| wrong(error.to_string()))
    }

    /// Weights by the names of the paper's code.
    fn parameters<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let arrays: BTreeMap<_, _> = compute(py, || Ok(reference::export(self.model.network())))?;
        let dict = PyDict::new(py);
        for (name, array) in arrays {
            dict.set_item(name, given(py, array.shape, array.values)?)?;
        }
        Ok(dict)
    }
}

/// The processor: nothing else is reached from Python.
pub fn cpu() -> Device {
    Device::flex()
}
