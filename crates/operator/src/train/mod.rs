//! Training: the schedule of the learning rate and the optimiser's step.

mod optimizer;
mod schedule;

pub use optimizer::{Optimizer, OptimizerConfig, ParameterState};
pub use schedule::{Pace, Schedule};
