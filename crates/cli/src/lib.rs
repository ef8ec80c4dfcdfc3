//! What the `galerkin` command is made of; a library so that tests and later pages can draw the same figures.

pub mod figures;
