//! Problems and files: a dataset is two arrays and where their values lie.
//!
//! | module | what |
//! | --- | --- |
//! | [`random`], [`random_field`] | numbers and fields as functions of (seed, purpose, index) |
//! | [`pde`] | equations, their solvers, and the problems samples are made of |
//! | [`generate`], [`import`] | dataset folders, from problems and from the files of others |
//! | [`clock`] | how long work took |
//! | [`io`] | readers of numpy, MATLAB, HDF5, safetensors and PyTorch files |
//! | [`domain`], [`meta`] | where values lie, and what a dataset folder says about itself |
//! | [`dataset`], [`split`], [`normalize`] | samples one by one, who trains on them in which order, and their normaliser |

pub mod array;
pub mod clock;
pub mod dataset;
pub mod domain;
pub mod error;
mod folder;
pub mod generate;
pub mod import;
pub mod io;
pub mod meta;
pub mod normalize;
pub mod pde;
mod places;
pub mod random;
pub mod random_field;
pub mod split;
mod values;

pub use array::Array;
pub use dataset::Dataset;
pub use domain::{Axis, Domain, Grid};
pub use error::{Error, Result};
pub use meta::Meta;
pub use places::PointSet;
