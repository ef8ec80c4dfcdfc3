//! Fourier- and Galerkin-type transformers for partial differential equations, on Burn.
//!
//! A model is a config, made into a Burn module by a [`Builder`](init::Builder) that draws every weight from a seed, and run
//! with a [`Mode`](layers::Mode) that says whether dropout is on:
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use galerkin::{init::Builder, layers::{AttentionKind, Mode}, models::Transformer1dConfig};
//!
//! let device = Device::flex();
//! let model = Transformer1dConfig::burgers(AttentionKind::Galerkin).init(&mut Builder::new(1, &device))?;
//! let u0 = Tensor::<3>::zeros([2, 512, 1], &device);
//! let u1 = model.forward(u0, Mode::Evaluate)?;
//! assert_eq!(u1.dims(), [2, 512, 1]);
//! # Ok::<(), galerkin::Error>(())
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`models`] | the paper's networks in 1D and 2D and the Fourier operators, one [`Model`](models::Model) by name or config |
//! | [`layers`] | what they are made of: encoder layer, spectral convolution, interpolation network, decoders, normaliser |
//! | [`ops`] | what layers are made of: operations on tensors, fused on the CPU and composed elsewhere |
//! | [`loss`] | relative L² loss with the H¹-seminorm regulariser, 1D and 2D |
//! | [`metrics`] | relative L², H¹ and maximum errors per sample, and their mean, median and maximum |
//! | [`config`], [`train`], [`run`] | what a run is told, the training loop with its schedules and optimiser, the folder of a run |
//! | [`evaluate`], [`predict`] | errors on any grid beside the classical solver, predictions for files |
//! | [`inspect`] | latent representations, attention matrices, parameters, operations and memory per part |
//! | [`init`] | initial weights as a function of seed and place |
//! | [`device`] | names of devices: the processor, and with the features `wgpu` and `cuda` graphics cards |
//! | [`mod@reference`] | names and layouts of the paper's PyTorch weights |
//! | [`weights`] | weight files: safetensors both ways, PyTorch's `.pt` in |
//! | [`error`] | what can be wrong with shapes and settings |
//!
//! Channels are last everywhere: (batch, points, channels) and (batch, n₁, n₂, channels). Tensors are on a [`Device`]
//! (`burn::tensor`); on `Device::flex().autodiff()` parameters are tracked and `backward` runs the kernels' own gradients.
//!
//! [`Device`]: burn::tensor::Device

pub mod config;
pub mod device;
pub mod error;
pub mod evaluate;
pub mod init;
pub mod inspect;
pub mod layers;
pub mod loss;
pub mod metrics;
pub mod models;
pub mod ops;
pub mod predict;
pub mod reference;
pub mod run;
pub mod train;
pub mod weights;

pub use error::{Error, Result};
