//! Fourier- and Galerkin-type transformers and Fourier neural operators for partial differential equations, on Burn.
//!
//! A network is a config, made into a Burn module with weights that are a function of a seed, and run with a [`Mode`](layers::Mode) that says
//! whether dropout is on. Inputs are (batch, points…, channels) on a grid of one to three axes:
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use galerkin::layers::Mode;
//!
//! let device = Device::flex();
//! let network = galerkin::presets::get("burgers")?.network.init(1, &device)?;
//! let u0 = Tensor::<3>::zeros([2, 512, 1], &device);
//! let u1 = network.forward(u0, Mode::Evaluate)?;
//! assert_eq!(u1.dims(), [2, 512, 1]);
//! # Ok::<(), galerkin::Error>(())
//! ```
//!
//! A module uses those above it in this list:
//!
//! | module | what |
//! | --- | --- |
//! | [`error`] | what can go wrong |
//! | [`device`] | names of devices: the processor, and with the features `wgpu` and `cuda` graphics cards |
//! | [`ops`] | operations on tensors, fused on the CPU and composed elsewhere |
//! | [`init`] | initial weights as a function of seed and place |
//! | [`mod@reference`] | names and layouts of the paper's PyTorch weights |
//! | [`layers`] | encoder layer, spectral convolution, interpolation network, decoders, normaliser |
//! | [`networks`] | the transformer and the Fourier neural operator: one [`Network`](networks::Network), one config |
//! | [`weights`] | weight files: safetensors both ways, PyTorch's `.pt` in |
//! | [`cost`], [`inspect`] | parameters, operations and memory per part; latent representations, attention matrices |
//! | [`loss`], [`metrics`] | the loss on a grid; errors per sample and their mean, median and maximum |
//! | [`schedule`], [`optimizer`] | the learning rate over a run; Adam on a network's parameters |
//! | [`symmetry`] | changes of a sample that make another one |
//! | [`config`], [`presets`] | what a run is told; runs by name |
//! | [`samples`], [`propose`] | datasets become tensors; a run for any dataset |
//! | [`seen`] | which samples a run has seen |
//! | [`run`], [`clock`], [`train`] | the folder of a run; how long it took; the training loop |
//! | [`evaluate`], [`model`] | errors on any grid beside the classical solver; predictions in memory and for files |
//!
//! Tensors are on a [`Device`](burn::tensor::Device); on `Device::flex().autodiff()` parameters are tracked and `backward` runs the kernels' own
//! gradients.

pub mod clock;
pub mod config;
pub mod cost;
pub mod device;
pub mod error;
pub mod evaluate;
pub mod init;
pub mod inspect;
pub mod layers;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod networks;
pub mod ops;
pub mod optimizer;
pub mod presets;
pub mod propose;
pub mod reference;
pub mod run;
pub mod samples;
pub mod schedule;
pub mod seen;
mod settings;
pub mod symmetry;
pub mod train;
pub mod weights;

pub use error::{Error, Result};
pub use model::Model;

/// The README's example in Rust, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
