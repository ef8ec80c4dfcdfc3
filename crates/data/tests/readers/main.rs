//! Readers of files: what scipy, h5py, numpy and safetensors wrote, what these tests write, and what nobody should have written.

mod bounds;
mod fixtures;
mod hostile;
mod mat5;
#[path = "../pickle/mod.rs"]
mod pickle;
mod scan;
mod support;
