//! Training: the loop, samples changed in every epoch, its estimates of time and memory, checkpoints.

mod augment;
mod checkpoint;
mod estimate;
mod trainer;

pub use checkpoint::{Checkpoint, RunState};
pub use estimate::training_time;
pub use trainer::{Event, Outcome, Trainer};
