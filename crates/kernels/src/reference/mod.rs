//! The same operations as plain f64 loops, forward only: what the kernels mean, and what they are tested against.
//!
//! Nothing here is blocked, fused, re-associated or parallel. Each function is its formula, written for reading; sums run
//! in the order of the index. Shapes are row-major; wrong lengths panic by indexing.

mod adam;
mod attention;
mod encoder;
mod linear;
mod matrix;
mod norm;
mod resample;
mod spectral;

pub use adam::*;
pub use attention::*;
pub use encoder::*;
pub use linear::*;
pub use matrix::*;
pub use norm::*;
pub use resample::*;
pub use spectral::*;
