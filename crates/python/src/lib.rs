//! The compiled half of the Python package `galerkin`: library calls for arrays and words of Python. What users see is in `python/galerkin`.
//!
//! | module | what |
//! | --- | --- |
//! | `error` | errors of the library as exceptions |
//! | `array` | arrays in and out |
//! | `work` | work without the interpreter's lock, on a pool of threads, that an interrupt ends |
//! | `model` | trained models |
//! | `data` | datasets: open, write, generate; classical solvers |
//! | `run` | proposals, training, evaluation |
//! | `fused` | layers and networks with weights from outside, forward and backward: what `galerkin.torch` is made of |

mod array;
mod data;
mod error;
mod fused;
mod model;
mod run;
mod work;

use pyo3::prelude::*;

/// Tensors of megabytes come and go with every call; see ARCHITECTURE.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule]
mod _galerkin {
    #[pymodule_export]
    use super::data::{Dataset, generate, problem, solve_burgers, solve_darcy};
    #[pymodule_export]
    use super::error::Diverged;
    #[pymodule_export]
    use super::fused::{Fused, Tape, grids, load_weights, with_network};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::run::{evaluate, history, preset, presets, propose, run_config, save_run, train};
    #[pymodule_export]
    use super::work::{num_threads, set_num_threads};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
