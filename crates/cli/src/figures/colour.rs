//! Colours that people with any kind of colour vision tell apart, and maps from numbers to colours.

use super::scene::Colour;

pub(super) const BLACK: Colour = [38, 38, 38];
pub(super) const GREY: Colour = [110, 110, 110];
pub(super) const PALE: Colour = [228, 228, 228];
/// Where there is no number.
pub(super) const MISSING: Colour = [176, 176, 176];

/// Where there is nothing, behind dots and around cells: white is a colour of differences.
pub(super) const BACKDROP: Colour = [222, 222, 222];

/// Okabe and Ito's colours, but for yellow, which is too light for lines.
pub(super) const LINES: [Colour; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [90, 90, 90],
];

/// How numbers become colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// From dark to light in equal steps for the eye.
    Sequential,
    /// White at the middle of the range: for differences.
    Diverging,
}

/// Viridis (S. van der Walt, N. Smith; CC0) at 17 equal steps; between them the original is met within 6 of 255.
const VIRIDIS: [Colour; 17] = [
    [68, 1, 84],
    [72, 24, 106],
    [71, 45, 123],
    [66, 64, 134],
    [59, 82, 139],
    [51, 99, 141],
    [44, 114, 142],
    [38, 129, 142],
    [33, 144, 140],
    [31, 159, 136],
    [40, 174, 128],
    [62, 188, 116],
    [93, 201, 99],
    [130, 211, 76],
    [171, 220, 50],
    [213, 226, 26],
    [253, 231, 37],
];

/// Blue, white and red with the same lightness on both sides.
const BLUE_WHITE_RED: [Colour; 7] = [
    [22, 62, 122],
    [59, 126, 182],
    [164, 203, 226],
    [248, 248, 248],
    [242, 180, 148],
    [200, 92, 68],
    [122, 22, 40],
];

impl Colours {
    /// The colour at t of 0 … 1, ends repeated beyond; [`MISSING`] for NaN.
    pub(super) fn at(self, t: f64) -> Colour {
        if t.is_nan() {
            return MISSING;
        }
        let table: &[Colour] = match self {
            Colours::Sequential => &VIRIDIS,
            Colours::Diverging => &BLUE_WHITE_RED,
        };
        let place = t.clamp(0.0, 1.0) * (table.len() - 1) as f64;
        let below = (place as usize).min(table.len() - 2);
        let share = place - below as f64;
        std::array::from_fn(|k| {
            let (low, high) = (f64::from(table[below][k]), f64::from(table[below + 1][k]));
            (low + share * (high - low)).round() as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of WCAG, which grows with lightness.
    fn luminance(colour: Colour) -> f64 {
        let linear = colour.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { libm::pow((part + 0.055) / 1.055, 2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn lightness_tells_the_order_without_any_hue() {
        let along = |colours: Colours| (0..=100).map(move |t| luminance(colours.at(f64::from(t) / 100.0)));
        let sequential: Vec<f64> = along(Colours::Sequential).collect();
        assert!(sequential.windows(2).all(|pair| pair[0] < pair[1]));
        let diverging: Vec<f64> = along(Colours::Diverging).collect();
        assert!(diverging[..=50].windows(2).all(|pair| pair[0] < pair[1]));
        assert!(diverging[50..].windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn no_number_has_a_colour_that_no_number_has() {
        assert_eq!(Colours::Sequential.at(f64::NAN), MISSING);
        for t in 0..=1000 {
            assert_ne!(Colours::Sequential.at(f64::from(t) / 1000.0), MISSING);
            assert_ne!(Colours::Diverging.at(f64::from(t) / 1000.0), MISSING);
        }
        assert_eq!(Colours::Sequential.at(f64::INFINITY), [253, 231, 37]);
        assert_eq!(Colours::Sequential.at(-7.0), [68, 1, 84]);
    }
}
