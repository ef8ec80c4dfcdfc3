//! Problems and files: a dataset is two arrays, a grid and a seed.

pub mod array;
pub mod error;
pub mod io;

pub use array::Array;
pub use error::{Error, Result};
