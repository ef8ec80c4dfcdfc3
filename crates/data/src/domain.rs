//! Where the values of a dataset lie: on a uniform grid of one to three axes, or at points.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Most axes of a grid, and most coordinates of a point.
pub const MOST_AXES: usize = 3;

/// Most points along an axis: 16 GB of one channel on a line, more than anybody has in one sample.
const MOST_POINTS: usize = u32::MAX as usize;

/// Where values lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Domain {
    /// A uniform grid.
    Grid(Grid),
    /// Points anywhere.
    Points(Points),
}

/// A uniform grid of one to three axes; the last axis runs fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The axes in the order of the arrays.
    pub axes: Vec<Axis>,
}

/// An axis of a grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What it is called.
    pub name: String,
    /// Points n.
    pub points: usize,
    /// The first point.
    #[serde(default)]
    pub origin: f64,
    /// From the first point to the last, or, if periodic, once round.
    #[serde(default = "one")]
    pub length: f64,
    /// Whether the end is the beginning: n points have n intervals then, and n − 1 otherwise.
    pub periodic: bool,
}

/// Points of one to three coordinates. Their places are in `points.npy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Names of the coordinates.
    pub coordinates: Vec<String>,
    /// Who has which points.
    pub sharing: Sharing,
    /// Points of a sample; absent where samples have different numbers of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Whether there are quadrature weights, in `weights.npy`.
    #[serde(default)]
    pub weights: bool,
    /// Corners of a cell, in `cells.npy`: 2 of a line, 3 of a triangle, 4 of a tetrahedron; absent without cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corners: Option<usize>,
}

/// Who has which points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All samples have the same.
    Shared,
    /// Every sample has its own, as many as the others.
    PerSample,
    /// Every sample has its own number of points.
    Ragged,
}

fn one() -> f64 {
    1.0
}

impl Axis {
    /// From 0 to 1.
    pub fn unit(name: impl Into<String>, points: usize, periodic: bool) -> Self {
        Self { name: name.into(), points, origin: 0.0, length: 1.0, periodic }
    }

    /// Intervals between neighbours; 1 where there are none.
    pub fn intervals(&self) -> usize {
        if self.periodic { self.points.max(1) } else { self.points.saturating_sub(1).max(1) }
    }

    /// The distance of neighbours.
    pub fn spacing(&self) -> f64 {
        self.length / self.intervals() as f64
    }

    /// Where the points are.
    pub fn coordinates(&self) -> Vec<f64> {
        let intervals = self.intervals() as f64;
        (0..self.points).map(|j| self.origin + self.length * (j as f64 / intervals)).collect()
    }

    /// With every `stride`-th point.
    fn every(&self, stride: usize) -> Self {
        Self { points: self.points.div_ceil(stride), ..self.clone() }
    }

    /// `Ok` if it has a name, points and a length.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { name, points, origin, length, .. } = self;
        if name.is_empty() || *points == 0 {
            return Err(Error::setting(
                format!("axis `{name}` of {points} points"),
                "an axis has a name and points",
            ));
        }
        if *points > MOST_POINTS {
            let what = format!("axis `{name}` of {points} points");
            return Err(Error::setting(what, format!("an axis has at most {MOST_POINTS}")));
        }
        if !(length.is_finite() && *length > 0.0 && origin.is_finite()) {
            let what = format!("axis {name}: origin {origin}, length {length}");
            return Err(Error::setting(what, "both are finite, and the length is positive"));
        }
        Ok(())
    }
}

impl Grid {
    /// The unit interval, square or cube with so many points per axis, called x, y and z from the last on.
    pub fn unit(points: &[usize], periodic: bool) -> Self {
        let names = ["x", "y", "z"].into_iter().chain(std::iter::repeat("w"));
        let axes = points.iter().rev().zip(names).map(|(n, name)| Axis::unit(name, *n, periodic));
        Self { axes: axes.collect::<Vec<_>>().into_iter().rev().collect() }
    }

    /// Points along each axis.
    pub fn points(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.points).collect()
    }

    /// Points in all.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.points).product()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The distance of neighbours along each axis.
    pub fn spacing(&self) -> Vec<f64> {
        self.axes.iter().map(Axis::spacing).collect()
    }

    /// Which axes are periodic.
    pub fn periodic(&self) -> Vec<bool> {
        self.axes.iter().map(|axis| axis.periodic).collect()
    }

    /// With other numbers of points along the same axes.
    pub fn with_points(&self, points: &[usize]) -> Self {
        let axes = self.axes.iter().zip(points);
        Self { axes: axes.map(|(axis, n)| Axis { points: *n, ..axis.clone() }).collect() }
    }

    /// The grid of every `stride`-th point.
    pub fn every(&self, stride: usize) -> Self {
        Self { axes: self.axes.iter().map(|axis| axis.every(stride.max(1))).collect() }
    }

    /// Strides whose coarse grids end where this one does, along every axis; the least first.
    pub fn strides(&self) -> Vec<usize> {
        // A single closed point has no interval; 1 is then the only stride.
        let intervals = |axis: &Axis| if axis.periodic { axis.points } else { axis.points.saturating_sub(1) };
        let common = self.axes.iter().map(intervals).reduce(greatest_common_divisor).unwrap_or(0).max(1);
        // Divisors come in pairs, the smaller of which is at most the root: lengths come from files.
        let low = (1..).take_while(|n: &usize| n.checked_mul(*n).is_some_and(|square| square <= common));
        let low: Vec<_> = low.filter(|n| common.is_multiple_of(*n)).collect();
        let high = low.iter().rev().map(|n| common / n).filter(|n| low.last() < Some(n));
        low.iter().copied().chain(high).collect()
    }

    /// Points of the first axis on the grids that [`strides`](Self::strides) leave, most first.
    pub fn sizes(&self) -> Vec<usize> {
        let points = self.axes.first().map_or(0, |axis| axis.points);
        self.strides().into_iter().map(|stride| points.div_ceil(stride)).collect()
    }

    /// The stride after which the first axis has so many points, or an error that lists the sizes that work.
    pub fn stride_to(&self, points: usize) -> Result<usize> {
        let (strides, sizes) = (self.strides(), self.sizes());
        let found = sizes.iter().position(|size| *size == points).map(|at| strides[at]);
        found.ok_or_else(|| {
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            Error::Subsample {
                grid: self.to_string(),
                asked: format!("{points} points along {}", self.axes.first().map_or("x", |axis| &axis.name)),
                works: sizes.join(", "),
            }
        })
    }

    /// `Ok` if it is a grid of one to three axes with different names.
    pub fn check(&self) -> Result<()> {
        if !(1..=MOST_AXES).contains(&self.axes.len()) {
            let what = format!("grid of {} axes", self.axes.len());
            return Err(Error::setting(what, format!("a grid has 1 to {MOST_AXES}")));
        }
        for (at, axis) in self.axes.iter().enumerate() {
            axis.check()?;
            if self.axes[..at].iter().any(|other| other.name == axis.name) {
                return Err(Error::setting(format!("axis {}", axis.name), "two axes have this name"));
            }
        }
        let bytes = self.axes.iter().try_fold(size_of::<f64>(), |bytes, axis| bytes.checked_mul(axis.points));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::setting(self.to_string(), "a grid has no more points than memory can hold"));
        }
        Ok(())
    }
}

/// `85 × 85 points, y and x closed`.
impl std::fmt::Display for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<_> = self.axes.iter().map(|axis| axis.points.to_string()).collect();
        write!(f, "{} points", sizes.join(" × "))?;
        for (words, periodic) in [("periodic", true), ("closed", false)] {
            let names: Vec<_> = self.axes.iter().filter(|axis| axis.periodic == periodic).collect();
            let names: Vec<_> = names.iter().map(|axis| axis.name.as_str()).collect();
            if !names.is_empty() {
                write!(f, ", {} {words}", names.join(" and "))?;
            }
        }
        Ok(())
    }
}

impl Points {
    /// Coordinates of a point.
    pub fn dimension(&self) -> usize {
        self.coordinates.len()
    }

    /// `Ok` if it describes points that can be stored.
    pub fn check(&self) -> Result<()> {
        if !(1..=MOST_AXES).contains(&self.dimension()) {
            let what = format!("points of {} coordinates", self.dimension());
            return Err(Error::setting(what, format!("points have 1 to {MOST_AXES}")));
        }
        if self.count.is_none() != (self.sharing == Sharing::Ragged) {
            return Err(Error::setting("points", "a number of points is given unless samples differ in it"));
        }
        Ok(())
    }
}

impl Domain {
    /// The grid, if it is one.
    pub fn grid(&self) -> Option<&Grid> {
        match self {
            Domain::Grid(grid) => Some(grid),
            Domain::Points(_) => None,
        }
    }

    /// The points, if it is no grid.
    pub fn points(&self) -> Option<&Points> {
        match self {
            Domain::Grid(_) => None,
            Domain::Points(points) => Some(points),
        }
    }

    /// `Ok` if it is described without contradiction.
    pub fn check(&self) -> Result<()> {
        match self {
            Domain::Grid(grid) => grid.check(),
            Domain::Points(points) => points.check(),
        }
    }
}

impl From<Grid> for Domain {
    fn from(grid: Grid) -> Self {
        Domain::Grid(grid)
    }
}

/// In words.
impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Domain::Grid(grid) => grid.fmt(f),
            Domain::Points(points) => {
                let count = points.count.map_or("any number of".to_string(), |count| count.to_string());
                write!(f, "{count} points in {}D", points.dimension())?;
                match points.sharing {
                    Sharing::Shared => write!(f, ", the same for all samples")?,
                    Sharing::PerSample | Sharing::Ragged => write!(f, ", others for every sample")?,
                }
                write!(f, ", {} weights", if points.weights { "with" } else { "without" })?;
                match points.corners {
                    Some(corners) => write!(f, ", cells of {corners} corners"),
                    None => write!(f, ", without cells"),
                }
            }
        }
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_grids_are_every_other_point_of_fine_ones() {
        for (periodic, fine, coarse, step) in [(true, 8192, 512, 16), (false, 421, 141, 3)] {
            let [fine, coarse] = [fine, coarse].map(|n| Axis::unit("x", n, periodic));
            let every: Vec<f64> = fine.coordinates().into_iter().step_by(step).collect();
            let own = coarse.coordinates();
            assert_eq!(own.len(), every.len());
            // Two divisions round the same number: at most one ulp of 1.
            assert!(own.iter().zip(&every).all(|(a, b)| (a - b).abs() <= f64::EPSILON));
            assert!((coarse.spacing() - own[1]).abs() <= f64::EPSILON);
        }
        assert_eq!(Axis::unit("x", 1, false).coordinates(), [0.0]);
        assert!(Axis::unit("x", 0, true).coordinates().is_empty());
    }

    #[test]
    fn an_axis_lies_where_it_says() {
        let axis = Axis { name: "t".into(), points: 5, origin: -1.0, length: 2.0, periodic: false };
        assert_eq!(axis.coordinates(), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        let round = Axis { periodic: true, points: 4, ..axis };
        assert_eq!(round.coordinates(), [-1.0, -0.5, 0.0, 0.5]);
    }

    #[test]
    fn rectangles_are_subsampled_along_both_axes_or_not_at_all() {
        let mut grid = Grid::unit(&[13, 8], false);
        grid.axes[1].periodic = true;
        // 12 and 8 intervals: every 1, 2 or 4.
        assert_eq!(grid.sizes(), [13, 7, 4]);
        assert_eq!(grid.every(4).points(), [4, 2]);
        assert_eq!(grid.stride_to(7).unwrap(), 2);
        let error = grid.stride_to(5).unwrap_err().to_string();
        let expected = "a grid of 13 × 8 points, x periodic, y closed cannot be subsampled to 5 points along y; sizes that work: 13, 7, 4";
        assert_eq!(error, expected);
    }

    #[test]
    fn strides_are_the_divisors_of_all_intervals() {
        for intervals in (1..200).chain([1 << 20, 999_983, 46_225, 30_030]) {
            let expected: Vec<_> = (1..=intervals).filter(|n| intervals % n == 0).collect();
            assert_eq!(Grid::unit(&[intervals], true).strides(), expected, "{intervals}");
        }
        assert_eq!(Grid::unit(&[1], false).strides(), [1]);
        // As many as a description may name: 65,536 steps and not four billion.
        assert_eq!(Grid::unit(&[MOST_POINTS], true).strides().len(), 32);
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        assert!(Grid::unit(&[MOST_POINTS + 1], true).check().is_err());
        assert!(Grid::unit(&[MOST_POINTS; 3], true).check().is_err());
        assert!(Grid::unit(&[MOST_POINTS], true).check().is_ok());
        assert!(Grid::unit(&[], true).check().is_err());
        assert!(Grid::unit(&[2, 2, 2, 2], true).check().is_err());
        assert!(Grid::unit(&[2, 0], true).check().is_err());
        let mut grid = Grid::unit(&[4, 4], true);
        grid.axes[1].name = "y".into();
        assert!(grid.check().is_err());
        grid.axes[1] = Axis { length: f64::NAN, ..Axis::unit("x", 4, true) };
        assert!(grid.check().is_err());
    }
}
