//! The same mathematics in f64 and plain loops: specification, and oracle of the tests.

mod adam;
mod resample;

pub use adam::*;
pub use resample::*;
