//! The `galerkin` command.

fn main() {}
