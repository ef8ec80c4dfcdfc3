//! The Fourier neural operator: the spectral decoder, put on the input itself.

use serde::{Deserialize, Serialize};

use super::{Boundary, OutputGrid, SpectralConfig};
use crate::layers::SpectralDecoderConfig;
use crate::settings::settings;

settings! {
    /// \[input | coordinates\] to channels, spectral convolutions with a pointwise path, a two-layer network: the operators of Li et al., without
    /// batch normalisation, as the paper trains them.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct FnoConfig {
        /// values per point of an input
        pub inputs: usize,
        /// values per point of an output
        pub outputs: usize,
        /// whether each axis of the grid is periodic
        pub periodic: Vec<bool>,
        /// input: on the grid of the input | { resized = { from = [..], to = [..] } }: on another, in this ratio
        #[serde(default)]
        pub output: OutputGrid,
        /// points along each axis of the grid that it computes on, which inputs of other grids are brought to; []: that of the input
        #[serde(default)]
        pub native: Vec<usize>,
        /// free | zero: outputs on the ends of closed axes are set to zero
        pub boundary: Boundary,
        /// the convolutions
        pub spectral: SpectralConfig,
    }
}

impl FnoConfig {
    /// The decoder that it is.
    pub(crate) fn decoder(&self) -> SpectralDecoderConfig {
        self.spectral.decoder(self.periodic.len(), self.inputs, self.outputs)
    }
}
