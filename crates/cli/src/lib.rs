//! What the `galerkin` command is made of; a library so that tests can draw its figures and others can use them.

pub mod args;
pub mod commands;
pub mod figures;
pub mod output;
pub mod progress;
pub mod tensorboard;
