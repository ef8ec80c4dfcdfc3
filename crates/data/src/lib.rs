//! Problems and files: a dataset is two arrays, a grid and a seed.
//!
//! | module | what |
//! | --- | --- |
//! | [`random`], [`random_field`] | numbers and fields as functions of (seed, purpose, index) |
//! | [`pde`] | equations, their solvers, and the problems samples are made of |
//! | [`generate`], [`import`] | dataset folders, from problems and from the files of others |
//! | [`io`] | readers of numpy, MATLAB, HDF5, safetensors and PyTorch files |
//! | [`meta`], [`grid`] | what a dataset folder says about itself |
//! | [`dataset`], [`split`], [`normalize`] | samples one by one, who trains on them in which order, and their normaliser |

pub mod array;
pub mod dataset;
pub mod error;
mod field;
mod folder;
pub mod generate;
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
