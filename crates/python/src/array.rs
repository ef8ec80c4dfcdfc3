//! Arrays of numpy in and out.
//!
//! What comes in is copied before the interpreter's lock is given up, and what goes out is memory that Python has alone: no two sides ever see the same
//! memory, whatever else looks at the arrays of a caller (a tensor of PyTorch and two arrays made of it, say).

use galerkin_data::Array;
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::error::{Result, wrong};

/// An array of numpy that is to be read.
pub type In<'py, T = f32> = PyReadonlyArrayDyn<'py, T>;
/// An array of numpy that was made here.
pub type Out<'py, T = f32> = Bound<'py, PyArrayDyn<T>>;

/// The values, row by row; the array must lie so.
pub fn values<T: Element + Clone>(array: &In<T>) -> Result<Vec<T>> {
    let slice = array.as_slice().map_err(|_| wrong("expected an array that lies row by row in memory"))?;
    Ok(slice.to_vec())
}

/// As the library has arrays.
pub fn taken(array: &In) -> Result<Array> {
    Ok(Array { shape: array.shape().to_vec(), values: values(array)? })
}

/// As numpy has arrays, in the same memory.
pub fn given<T: Element>(py: Python, shape: Vec<usize>, values: Vec<T>) -> Result<Out<T>> {
    let flat = numpy::PyArray1::from_vec(py, values);
    Ok(flat.reshape(shape)?.to_dyn().clone())
}
