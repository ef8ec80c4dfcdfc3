//! Fourier- and Galerkin-type transformers for partial differential equations, on Burn.

pub mod error;
pub mod init;
pub mod layers;
pub mod models;
pub mod ops;
pub mod reference;

pub use error::{Error, Result};
