//! Problems and files: a dataset is two arrays, a grid and a seed.

pub mod array;
pub mod dataset;
pub mod error;
mod field;
mod folder;
pub mod grid;
pub mod import;
pub mod io;
pub mod meta;
pub mod normalize;
pub mod pde;
pub mod random;
pub mod random_field;
pub mod split;

pub use array::Array;
pub use dataset::Dataset;
pub use error::{Error, Result};
pub use meta::Meta;
