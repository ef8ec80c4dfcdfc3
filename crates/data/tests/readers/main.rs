//! Readers of files: what scipy, h5py, numpy and safetensors wrote, what these tests write, and what nobody should have written.

mod fixtures;
mod hostile;
mod mat5;
mod scan;
mod support;
