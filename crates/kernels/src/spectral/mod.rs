//! Spectral convolution in one, two and three dimensions, channels last, forward and backward.
//!
//! ```text
//! out = act( IDFT(mix(DFT(drop(x)))) + x W + b )
//! ```
//!
//! The DFT is orthonormal and keeps the first m modes of every axis (of either sign along every axis but the last); `mix`
//! multiplies the kept mode k by a complex i × o matrix of its own. Nothing here is a fast Fourier transform: with a
//! dozen modes the truncated DFT is a product with a thin real matrix ([`Plan`]), exact for any n, and as fast as `gemm` is.
//! Its cost grows with m: at n = 8192, a power of two, it takes half the time of a fast transform with 32 modes and one and a
//! half times with 128 (`cargo bench -- spectral`).
//!
//! Letters: B = `batch`, n points (n₁ × n₂ in 2D, n₁ × n₂ × n₃ in 3D), i = `inputs`, o = `outputs`, m = `modes`.
//!
//! # Weights and spectra
//!
//! A mode's weight is two real i × o matrices, re above im: the 2i × o matrix of the product
//! (Re Y, Im Y) = ((Re X, −Im X), (Im X, Re X)) · (Re w; Im w), one `gemm` over all samples. So the layout is
//!
//! | | 1D | 2D | 3D |
//! | --- | --- | --- | --- |
//! | weights | (m, 2, i, o) | (m, 2, m, 2, i, o) | (m, 2, m, 2, m, 2, i, o) |
//! | spectra in `saved` | (m, B, 2, i or o) | (m, 2, m, B, 2, i or o) | (m, 2, m, 2, m, B, 2, i or o) |
//!
//! from the left: the column, which is the frequency of the last axis; block and row of the first axis; in 3D block and row
//! of the second; re and im; channels.
//!
//! The row a of block 0 is the frequency k = a and that of block 1 is k = n − m + a, n being the points of the axis. Where the
//! blocks meet (2m > n) block 1 is used, and the weights of block 0 have no effect and gradient zero.
//! `weights_from_reference` and `weights_to_reference` convert from and to (i, o, m, 2), 2 × (i, o, m, m, 2) and
//! 4 × (i, o, m, m, m, 2).

mod conv1d;
mod conv2d;
mod conv3d;
mod layer;
mod plan;
mod slots;

pub use conv1d::SpectralConv1d;
pub use conv2d::SpectralConv2d;
pub use conv3d::SpectralConv3d;
pub use plan::{Plan, Plan2d, Plan3d};

use crate::parameters::parameters;

parameters! {
    /// Parameters, or one thing for each of them.
    pub struct Parameters {
        /// The complex matrix of every kept mode: (m, 2, i, o), in 2D (m, 2, m, 2, i, o), in 3D (m, 2, m, 2, m, 2, i, o).
        weights,
        /// W, (i, o); empty without pointwise path.
        w,
        /// b, (o); empty without pointwise path.
        b,
    }
}
