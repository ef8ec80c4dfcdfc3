//! Uniform grids of the unit interval and the unit square.

use serde::{Deserialize, Serialize};

/// Where the points of an axis lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridKind {
    /// x_j = j/n, j = 0 … n − 1, of a periodic axis: the end is the beginning.
    Periodic,
    /// x_j = j/(n − 1), j = 0 … n − 1: both ends belong to the grid.
    Vertices,
}

impl GridKind {
    /// The distance of neighbours on an axis of n points; 1 where an axis has no neighbours.
    pub fn spacing(self, n: usize) -> f64 {
        match self {
            Self::Periodic => 1.0 / n.max(1) as f64,
            Self::Vertices => 1.0 / n.saturating_sub(1).max(1) as f64,
        }
    }

    /// The points of an axis of n points.
    pub fn coordinates(self, n: usize) -> Vec<f64> {
        let intervals = match self {
            Self::Periodic => n,
            Self::Vertices => n.saturating_sub(1).max(1),
        };
        (0..n).map(|j| j as f64 / intervals as f64).collect()
    }
}

/// A grid with one or two axes, as a dataset describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Where the points of every axis lie.
    pub kind: GridKind,
    /// Points of every axis.
    pub points: Vec<usize>,
    /// The distance of neighbours, along every axis.
    pub spacing: Vec<f64>,
}

impl Grid {
    /// A grid of the unit interval or square with so many points per axis.
    pub fn new(kind: GridKind, points: &[usize]) -> Self {
        Self { kind, points: points.to_vec(), spacing: points.iter().map(|&n| kind.spacing(n)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_grids_are_every_other_point_of_fine_ones() {
        for (kind, fine, coarse, step) in
            [(GridKind::Periodic, 8192, 512, 16), (GridKind::Vertices, 421, 141, 3)]
        {
            let every: Vec<f64> = kind.coordinates(fine).into_iter().step_by(step).collect();
            let own = kind.coordinates(coarse);
            assert_eq!(own.len(), every.len());
            // Two divisions round the same number: at most one ulp of 1.
            assert!(own.iter().zip(&every).all(|(a, b)| (a - b).abs() <= f64::EPSILON));
            assert!((kind.spacing(coarse) - own[1]).abs() <= f64::EPSILON);
        }
        assert_eq!(GridKind::Vertices.coordinates(1), [0.0]);
        assert!(GridKind::Periodic.coordinates(0).is_empty());
    }
}
