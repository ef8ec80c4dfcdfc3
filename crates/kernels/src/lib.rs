//! Softmax-free attention, spectral convolution and resampling on plain `f32` slices, forward and backward.
//!
//! A kernel is a small `Copy` struct of shapes and options (or a plan, where tables depend on sizes) with `forward`, `backward` and
//! the lengths of the buffers these want. There are no tensors here, no framework, no files and no errors to handle.
//!
//! # Conventions
//!
//! **Layout.** Row-major and channels last: (B, n, d), or (B, n₁, n₂, c) on images. A weight is stored (in, out), so that y = x W + b.
//!
//! **Letters.** B samples, n points per sample, d features per point, H heads, e = d/H features per head, p coordinates in front of every
//! head, D = e + p, f the width of the hidden layer. In spectral layers m modes are kept per axis; i and o are channels in and out.
//!
//! **Memory.** The caller owns all of it. `workspace_len(threads)` and `saved_len()` beside a kernel say how much it wants: the
//! workspace is scratch between calls, `saved` goes unchanged from forward to backward. Neither needs to be cleared. A workspace
//! sized for more threads allows that many ([`par::threads`] asks the current rayon pool); any that is large enough for one thread
//! will do. Outputs and gradients are overwritten, never added to. A kernel allocates nothing, but the `gemm` crate beneath allocates its
//! packing buffers; what is meant for looking ([`Attention::weights`](attention::Attention::weights)) allocates too.
//!
//! **Panics.** A slice of the wrong length panics before anything is computed, and the message names every size that led to the
//! expected one. Sizes that make no sense together (heads that do not divide d) panic likewise. No samples and no points are
//! fine: sums over nothing are zero.
//!
//! **Determinism.** Work and sums are cut by sizes alone, so the same input gives the same bits with any number of threads ([`par`]).
//! Between machines with different instruction sets the last bits may differ.
//!
//! **Dropout.** A mask is a function of (seed, step, layer, site, position); the backward pass draws it again. Outside of training
//! set the rates to zero.
//!
//! # Modules
//!
//! - [`attention`]: galerkin, fourier, linear and softmax attention with any number of heads, coordinates, norms inside the heads and
//!   quadrature weights; the weights can be returned for inspection.
//! - [`encoder`]: the layer around it, in one pass over tiles: attention, residual, feed-forward network, residual.
//! - [`linear`], [`feed_forward`], [`norm`], [`activation`], [`pointwise`]: the pointwise parts, also on their own.
//! - [`spectral`]: spectral convolution in one, two and three dimensions through a truncated DFT, for any n.
//! - [`conv3x3`], [`resize`], [`local_means`]: convolution with padding 1, bilinear resize with aligned corners, and means over the cells of
//!   another grid.
//! - [`adam`]: the optimiser's step with clipping by the global norm; [`soap`] and [`muon`]: what they do with matrices instead.
//! - [`dropout`]: masks from a counter; [`random`]: the generator, Philox.
//! - [`reference`](mod@reference): the same operations as plain f64 loops. This is the specification; every kernel is tested against it.
//! - [`gemm`](mod@gemm), [`par`], [`simd`]: the only doors to matrix products, threads and vector instructions.
//!
//! # Example
//!
//! One layer of galerkin attention on a sample of 100 points with one coordinate:
//!
//! ```
//! use galerkin_kernels::attention::{self, Attention, Input, Kind, Norm};
//! use galerkin_kernels::encoder::{self, EncoderLayer};
//! use galerkin_kernels::{activation::Activation, dropout::Key, feed_forward, par};
//!
//! let (n, d, f) = (100, 16, 32);
//! let attention = Attention {
//!     kind: Kind::Galerkin, batch: 1, n, d, heads: 4, coordinates: 1, projection: true,
//!     norm: Norm::Layer, eps: 1e-5, dropout: 0.0, key: Key::default(), keep: false,
//! };
//! let layer = EncoderLayer {
//!     attention, hidden: f, activation: Activation::Gelu, norm_after: false, eps: 1e-5,
//!     minus: false, residual_dropout: 0.0, hidden_dropout: 0.0,
//! };
//!
//! // A real network has weights of its own.
//! let (w, b, w_o, w_f, b_f) = ([0.1; 16 * 16], [0.0; 16], [0.1; 20 * 16], [0.1; 16 * 32], [0.0; 32]);
//! let (gamma, beta) = ([1.0; 16], [0.0; 16]);
//! let params = encoder::Params {
//!     attention: attention::Params {
//!         w_q: &w, b_q: &b, w_k: &w, b_k: &b, w_v: &w, b_v: &b, w_o: &w_o, b_o: &b,
//!         gamma_k: &gamma, beta_k: &beta, gamma_qv: &gamma, beta_qv: &beta,
//!     },
//!     feed_forward: feed_forward::Params { w_1: &w_f, b_1: &b_f, w_2: &w_f, b_2: &b },
//!     ..Default::default() // no norms after the residuals
//! };
//!
//! let coordinates: Vec<f32> = (0..n).map(|j| j as f32 / n as f32).collect();
//! let x: Vec<f32> = (0..n * d).map(|i| (0.1 * i as f32).sin()).collect();
//! let mut y = vec![0.0; n * d];
//! let mut saved = vec![0.0; layer.saved_len()];
//! let mut workspace = vec![0.0; layer.workspace_len(par::threads())];
//! let input = Input { x: &x, coordinates: &coordinates, weights: None };
//! layer.forward(&params, input, &mut y, &mut saved, &mut workspace);
//! assert!(y.iter().all(|v| v.is_finite()) && y != x);
//! ```

pub mod activation;
pub mod adam;
pub mod attention;
mod basis;
pub mod conv3x3;
mod dims;
pub mod dropout;
pub mod encoder;
pub mod feed_forward;
pub mod gemm;
pub mod linear;
pub mod local_means;
pub mod muon;
pub mod norm;
pub mod par;
mod parameters;
pub mod pointwise;
pub mod random;
pub mod reference;
pub mod resize;
pub mod simd;
pub mod soap;
mod sparse;
pub mod spectral;
mod tile;
