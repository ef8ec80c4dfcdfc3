//! Layers: a config with its fields explained, the module it makes, its forward pass.
//!
//! Channels are last, and the points of a grid come one after the other, its last axis running fastest: (batch, points, channels). Layers that
//! look at neighbours are told the grid. Parameters are stored as the kernels want them; [`crate::reference`] knows how the PyTorch code stores them.

mod attention;
mod coordinates;
mod decoder;
mod encoder_layer;
mod feed_forward;
mod grid_conv;
mod linear;
mod normalizer;
mod resample;
mod spectral_conv;

pub use attention::{Affine, Attention, AttentionConfig, AttentionKind, HeadNorm};
pub use coordinates::coordinates;
pub use decoder::{PointwiseDecoder, PointwiseDecoderConfig, SpectralDecoder, SpectralDecoderConfig};
pub use encoder_layer::{EncoderLayer, EncoderLayerConfig};
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use grid_conv::{GridConv, GridConvConfig, SquareTaps, Taps};
pub use linear::{Linear, LinearConfig};
pub use normalizer::TargetNormalizer;
pub use resample::{
    Convolution, Downsampler, DownsamplerConfig, ScalerSizes, Upsampler, UpsamplerConfig, local_means,
    resized,
};
pub(crate) use resample::{cropped, padded};
pub use spectral_conv::{SpectralConv, SpectralConvConfig, SpectralLaw};

use galerkin_kernels::activation as kernel;
use galerkin_kernels::dropout::{Dropout, Key, Site};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No dropout.
    Evaluate,
    /// Dropout with masks that are a function of seed, step, layer and position.
    Train {
        /// The seed of the run.
        seed: u64,
        /// The training step.
        step: u32,
    },
}

impl Mode {
    /// The rate that is in force.
    fn rate(self, rate: f64) -> f32 {
        match self {
            Mode::Evaluate => 0.0,
            Mode::Train { .. } => rate as f32,
        }
    }

    fn key(self, layer: u32) -> Key {
        match self {
            Mode::Evaluate => Key { layer, ..Key::default() },
            Mode::Train { seed, step } => Key { seed, step, layer },
        }
    }

    /// The dropout of a layer outside the kernels' own sites.
    pub(crate) fn dropout(self, rate: f64, layer: u32) -> Dropout {
        Dropout { rate: self.rate(rate), key: self.key(layer), site: Site::Outside }
    }
}

/// An elementwise activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// z
    None,
    /// max(z, 0)
    Relu,
    /// z·σ(z)
    Silu,
    /// z·Φ(z), Φ the exact normal distribution function
    Gelu,
}

impl From<Activation> for kernel::Activation {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::None => kernel::Activation::None,
            Activation::Relu => kernel::Activation::Relu,
            Activation::Silu => kernel::Activation::Silu,
            Activation::Gelu => kernel::Activation::Gelu,
        }
    }
}

/// `Ok` if every rate is a probability below one.
pub(crate) fn check_rates(what: &str, rates: &[f64]) -> Result<()> {
    match rates.iter().find(|rate| !(0.0..1.0).contains(*rate)) {
        None => Ok(()),
        Some(rate) => Err(Error::setting(format!("{what}: dropout = {rate}"), "a rate lies in [0, 1)")),
    }
}

/// Widths, layers and points a side of a network, at the most: more are a slip of the pen, and products of such sizes can be counted.
const LARGEST: usize = 1 << 16;

/// `Ok` if no size is zero, or so large that nobody means it.
pub(crate) fn check_sizes(what: &str, sizes: &[(&str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
        None => Ok(()),
        Some((name, size)) => {
            let rule = format!("it must be at least 1 and at most {LARGEST}");
            Err(Error::setting(format!("{what}: {name} = {size}"), rule))
        }
    }
}
