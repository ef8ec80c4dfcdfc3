//! The kernels as plain loops in f64: the specification, and what every test compares with.

mod spectral;

pub use spectral::*;
