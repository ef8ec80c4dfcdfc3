//! How good a prediction is: errors per sample in f64, and their mean, median and maximum.
//!
//! Values are f32 slices of shape (samples, points…), row-major, as read back from a tensor. Sums are in f64 and in the order of
//! the values, so that the same values give the same bits. A target that is 0 everywhere has no relative error, `None`, and counts in no
//! summary. A value that is NaN makes every error it is part of NaN, and every summary of that.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::loss::{check_grid, check_spacing};
use galerkin_data::Grid;

/// Errors of many samples in three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The arithmetic mean; of relative L² errors, the number the paper reports.
    pub mean: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of those that are defined; NaN if none is.
    pub fn of_defined(errors: &[Option<f64>]) -> Result<Self> {
        let defined: Vec<f64> = errors.iter().flatten().copied().collect();
        match defined.is_empty() && !errors.is_empty() {
            true => Self::of(&[f64::NAN]),
            false => Self::of(&defined),
        }
    }

    /// Of at least one error.
    pub fn of(errors: &[f64]) -> Result<Self> {
        Error::check_filled("errors", &[errors.len()])?;
        if errors.iter().any(|e| e.is_nan()) {
            return Ok(Summary { mean: f64::NAN, median: f64::NAN, max: f64::NAN });
        }
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        Ok(Summary {
            mean: errors.iter().sum::<f64>() / n as f64,
            median: 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]),
            max: sorted[n - 1],
        })
    }
}

/// ‖p − u‖ / ‖u‖ of every sample, in the Euclidean norm of its values.
pub fn relative_l2(prediction: &[f32], target: &[f32], samples: usize) -> Result<Vec<Option<f64>>> {
    per_sample(prediction, target, samples, |p, u| {
        let (mut error, mut whole) = (0.0, 0.0);
        for (p, u) in p.iter().zip(u) {
            let (p, u) = (*p as f64, *u as f64);
            error += (p - u) * (p - u);
            whole += u * u;
        }
        relative(error, whole)
    })
}

/// max |p − u| of every sample.
pub fn l_infinity(prediction: &[f32], target: &[f32], samples: usize) -> Result<Vec<f64>> {
    per_sample(prediction, target, samples, |p, u| {
        let errors = p.iter().zip(u).map(|(p, u)| (*p as f64 - *u as f64).abs());
        // f64::max would drop a NaN.
        errors.fold(0.0, |most, e| if e > most || e.is_nan() { e } else { most })
    })
}

/// ‖p − u‖ / ‖u‖ of every sample in one channel of several, whose values lie beside each other.
pub fn relative_l2_of_channel(
    prediction: &[f32],
    target: &[f32],
    samples: usize,
    channels: usize,
    channel: usize,
) -> Result<Vec<Option<f64>>> {
    let of_channel =
        |values: &[f32]| values.iter().copied().skip(channel).step_by(channels.max(1)).collect::<Vec<_>>();
    relative_l2(&of_channel(prediction), &of_channel(target), samples)
}

/// |p − u| / |u| of every sample in the H¹-seminorm, √ Σ (D v)² over axes, channels and points, with central differences D of both.
///
/// Values are (samples, points…, channels) on `grid`. Differences are taken at points with a neighbour on either side along every axis. Unlike the
/// regulariser of [`loss`](crate::loss), this compares differences with differences on one grid, at the same points above and below.
pub fn relative_h1(
    prediction: &[f32],
    target: &[f32],
    samples: usize,
    grid: &Grid,
    channels: usize,
) -> Result<Vec<Option<f64>>> {
    let (sizes, spacing) = (grid.points(), grid.spacing());
    check_grid(&sizes)?;
    check_spacing(&spacing)?;
    let points = grid.len();
    Error::check_shape("prediction", &[prediction.len()], &[samples * points * channels])?;
    // Points and their distance in the slice, axis by axis.
    let strides = (0..sizes.len()).map(|axis| sizes[axis + 1..].iter().product::<usize>());
    let axes: Vec<(usize, usize)> = sizes.iter().copied().zip(strides).collect();
    let periodic = grid.periodic();
    per_sample(prediction, target, samples, |p, u| {
        let (mut error, mut whole) = (0.0, 0.0);
        for at in 0..points {
            let inside = |((n, s), periodic): (&(usize, usize), &bool)| {
                *periodic || (1..n - 1).contains(&(at / s % n))
            };
            if !axes.iter().zip(&periodic).all(inside) {
                continue;
            }
            for ((n, s), h) in axes.iter().zip(&spacing) {
                let i = at / s % n;
                let line = at - i * s;
                let (next, previous) = (line + (i + 1) % n * s, line + (i + n - 1) % n * s);
                for channel in 0..channels {
                    let value = |v: &[f32], point: usize| v[point * channels + channel] as f64;
                    let slope = |v: &[f32]| (value(v, next) - value(v, previous)) / (2.0 * h);
                    let (of_p, of_u) = (slope(p), slope(u));
                    error += (of_p - of_u) * (of_p - of_u);
                    whole += of_u * of_u;
                }
            }
        }
        relative(error, whole)
    })
}

/// √ of a quotient of squares, which has no meaning where the target is zero.
fn relative(error: f64, whole: f64) -> Option<f64> {
    (whole != 0.0).then(|| (error / whole).sqrt())
}

fn per_sample<E>(
    prediction: &[f32],
    target: &[f32],
    samples: usize,
    error: impl Fn(&[f32], &[f32]) -> E,
) -> Result<Vec<E>> {
    Error::check_shape("target", &[target.len()], &[prediction.len()])?;
    Error::check_filled("prediction", &[samples, prediction.len()])?;
    if !prediction.len().is_multiple_of(samples) {
        return Err(Error::Shape {
            what: "prediction".into(),
            expected: format!("a multiple of {samples} samples"),
            found: vec![prediction.len()],
        });
    }
    let points = prediction.len() / samples;
    Ok(prediction.chunks_exact(points).zip(target.chunks_exact(points)).map(|(p, u)| error(p, u)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors() {
        let u = [3.0, 4.0, 0.0, -2.0];
        let p = [3.0, 3.0, 1.5, -2.0];
        assert_eq!(relative_l2(&p, &u, 2).unwrap(), [Some(0.2), Some(0.75)]);
        assert_eq!(relative_l2(&[1.0, 0.0, 1.0], &[0.0, 0.0, 2.0], 3).unwrap(), [None, None, Some(0.5)]);
        assert_eq!(l_infinity(&p, &u, 2).unwrap(), [1.0, 1.5]);
        assert!(l_infinity(&[f32::NAN, 1.0], &[0.0, 0.0], 1).unwrap()[0].is_nan());
        assert!(relative_l2(&p, &u[..3], 1).is_err());
        assert!(relative_l2(&p, &u, 3).is_err());
        assert!(relative_l2(&p, &u, 0).is_err());
    }

    #[test]
    fn known_summaries() {
        let three = Summary::of(&[4.0, 1.0, 1.0]).unwrap();
        assert_eq!(three, Summary { mean: 2.0, median: 1.0, max: 4.0 });
        let four = Summary::of(&[4.0, 1.0, 3.0, 0.0]).unwrap();
        assert_eq!(four, Summary { mean: 2.0, median: 2.0, max: 4.0 });
        assert!(Summary::of(&[1.0, f64::NAN]).unwrap().max.is_nan());
        assert!(Summary::of(&[]).is_err());
        assert_eq!(Summary::of_defined(&[Some(4.0), None, Some(1.0), Some(1.0)]).unwrap(), three);
        assert!(Summary::of_defined(&[None]).unwrap().mean.is_nan());
    }

    #[test]
    fn channels_have_errors_of_their_own() {
        // Two points of two channels: (3, 1), (4, 2) and a prediction that is off in the first alone.
        let (u, p) = ([3.0, 1.0, 4.0, 2.0], [3.0, 1.0, 3.0, 2.0]);
        assert_eq!(relative_l2_of_channel(&p, &u, 1, 2, 0).unwrap(), [Some(0.2)]);
        assert_eq!(relative_l2_of_channel(&p, &u, 1, 2, 1).unwrap(), [Some(0.0)]);
    }

    #[test]
    fn seminorm_on_one_axis() {
        // Slopes inside: of u 1 and 2, of p 1 and 4; round the ends of u −2 and −1, of p −4 and −1.
        let (u, p) = ([0.0, 1.0, 2.0, 5.0], [0.0, 1.0, 2.0, 9.0]);
        let h1 = |periodic| relative_h1(&p, &u, 1, &Grid::unit(&[4], periodic), 1).unwrap()[0].unwrap();
        assert!((h1(false) - (4.0f64 / 5.0).sqrt()).abs() < 1e-15);
        assert!((h1(true) - (8.0f64 / 10.0).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn seminorm_on_two_axes() {
        // u = x + 2y and p = 3x + 2y on 3 x 4 points with different spacings: |2|/|(1, 2)| at every inner point, in each of two channels.
        let mut grid = Grid::unit(&[3, 4], false);
        (grid.axes[0].length, grid.axes[1].length) = (1.0, 0.75);
        let values = |a: f64, b: f64| {
            let at = |at: usize| (a * (at / 4) as f64 * 0.5 + b * (at % 4) as f64 * 0.25) as f32;
            (0..12).flat_map(|point| [at(point); 2]).collect::<Vec<_>>()
        };
        let (u, p) = (values(1.0, 2.0), values(3.0, 2.0));
        let found = relative_h1(&p, &u, 1, &grid, 2).unwrap();
        assert!((found[0].unwrap() - (4.0f64 / 5.0).sqrt()).abs() < 1e-15);
        assert!(relative_h1(&p, &u, 1, &Grid::unit(&[2, 6], false), 2).is_err());
        assert!(relative_h1(&p, &u, 2, &grid, 2).is_err());
    }
}
