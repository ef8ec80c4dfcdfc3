//! From inputs to the features that the encoder takes: at every point, or by an interpolation network to a coarser grid and back.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::layers::{Activation, ScalerSizes, check_rates, check_sizes};
use crate::settings::settings;

/// How inputs become features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LiftConfig {
    /// A linear layer at every point.
    Pointwise(PointwiseLiftConfig),
    /// Convolutions and resizes to a coarse grid, on which the encoder works, and back; for two axes.
    Interpolation(InterpolationConfig),
}

settings! {
    /// A linear layer at every point.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PointwiseLiftConfig {
        /// whether the first layer takes the coordinates of its point too
        #[serde(default)]
        pub coordinates: bool,
    }
}

settings! {
    /// The interpolation network. Its grids are given by the fine and the coarse one it was made for; an input of another size keeps their ratio.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct InterpolationConfig {
        /// points along the first axis of the grid it is made for; others keep the ratio
        pub fine: usize,
        /// points along the first axis of the encoder's grid
        pub coarse: usize,
        /// whether sizes go by factor, as in the paper's runs, which may miss the coarse grid by a point
        pub by_factor: bool,
        /// on the way down: none | relu | silu | gelu
        pub activation: Activation,
        /// dropout rate on the way down
        pub dropout: f64,
        /// on the way up: none | relu | silu | gelu
        pub up_activation: Activation,
        /// dropout rate on the way up
        pub up_dropout: f64,
    }
}

/// Sizes after each of the two resizes on either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResampledSizes {
    /// Of the downsampler; the second is the grid of the encoder.
    pub down: [[usize; 2]; 2],
    /// Of the upsampler; the second is the grid of the output.
    pub up: [[usize; 2]; 2],
}

impl InterpolationConfig {
    /// The sizes for an input of n₁ × n₂ points, with the output on the grid of the encoder if it is coarse.
    pub fn sizes(&self, input: [usize; 2], coarse_output: bool) -> Result<ResampledSizes> {
        let factor = ScalerSizes::between(self.fine, self.coarse)?;
        let axis = |n: usize| -> Result<[[usize; 2]; 2]> {
            let coarse = self.coarse_for(n);
            let middle = ScalerSizes::between(n, coarse)?.middle;
            let down = if self.by_factor { factor.by_factor(n) } else { [middle, coarse] };
            Ok([down, if coarse_output { [down[1]; 2] } else { [middle, n] }])
        };
        let [one, two] = [axis(input[0])?, axis(input[1])?];
        let pair = |way: usize, step: usize| [one[way][step], two[way][step]];
        Ok(ResampledSizes { down: [pair(0, 0), pair(0, 1)], up: [pair(1, 0), pair(1, 1)] })
    }

    /// `Ok` if its numbers have a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        check_rates("network.lift", &[self.dropout, self.up_dropout])?;
        check_sizes("network.lift", &[("fine", self.fine), ("coarse", self.coarse)])?;
        ScalerSizes::between(self.fine, self.coarse).map(drop)
    }

    /// n_c for n points: the intervals keep their ratio, rounded, so that the coarse grids of nested grids nest.
    fn coarse_for(&self, n: usize) -> usize {
        resized_points(n, self.fine, self.coarse, false)
    }
}

/// Points that keep the ratio of intervals: as many for n as `to` are for `from`.
pub(crate) fn resized_points(n: usize, from: usize, to: usize, periodic: bool) -> usize {
    let less = usize::from(!periodic);
    let (n, from, to) = (n.saturating_sub(less), from.saturating_sub(less).max(1), to.saturating_sub(less));
    (2 * n * to + from) / (2 * from) + less
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_papers_runs() {
        let config = InterpolationConfig {
            fine: 141,
            coarse: 43,
            by_factor: true,
            activation: Activation::Relu,
            dropout: 0.0,
            up_activation: Activation::Silu,
            up_dropout: 0.0,
        };
        let sizes = config.sizes([141; 2], false).unwrap();
        assert_eq!(sizes, ResampledSizes { down: [[78; 2], [43; 2]], up: [[77; 2], [141; 2]] });
        let by_sizes = InterpolationConfig { by_factor: false, ..config.clone() };
        assert_eq!(by_sizes.sizes([141; 2], false).unwrap().down, [[77; 2], [43; 2]]);
        let inverse = InterpolationConfig { coarse: 36, ..config };
        assert_eq!(inverse.sizes([141; 2], true).unwrap().up, [[36; 2]; 2]);
    }

    #[test]
    fn other_grids_keep_the_ratio_of_intervals() {
        assert_eq!(resized_points(141, 85, 29, false), 48);
        assert_eq!(resized_points(128, 64, 16, true), 32);
        assert_eq!(resized_points(1, 2, 2, false), 1);
    }
}
