//! Training: samples, the loop, the schedule of the learning rate, the optimiser, checkpoints.

mod checkpoint;
mod optimizer;
mod samples;
mod schedule;
mod trainer;

pub use checkpoint::{Checkpoint, Progress};
pub use optimizer::{Optimizer, OptimizerConfig, ParameterState};
pub use samples::{Batch, Samples, View, on_grid};
pub(crate) use samples::{field, resized};
pub use schedule::{Pace, Schedule};
pub use trainer::{Event, Outcome, Start, estimate, train};
