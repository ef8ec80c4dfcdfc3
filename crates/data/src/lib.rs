//! Problems and files: a dataset is two arrays, a grid and a seed.

pub mod array;
pub mod generate;
pub mod grid;
pub mod io;
pub mod meta;
pub mod pde;
pub mod random;
pub mod random_field;

pub use array::Array;
