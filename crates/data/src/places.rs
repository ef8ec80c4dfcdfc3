//! The points of a domain that is no grid: coordinates, weights and cells of every sample.

use std::path::Path;
use std::sync::Arc;

use crate::Array;
use crate::domain::{Points, Sharing};
use crate::error::{Error, Result};
use crate::folder::Side;
use crate::io;

/// Points of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct PointSet {
    /// (n, dimension)
    pub coordinates: Array,
    /// n quadrature weights.
    pub weights: Option<Vec<f32>>,
    /// Numbers of points, `corners` of every cell.
    pub cells: Vec<u32>,
    /// Corners of a cell; 0 without cells.
    pub corners: usize,
}

/// Points of all samples, in memory: they are few beside the values.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    points: Points,
    coordinates: Arc<Array>,
    weights: Option<Arc<Array>>,
    cells: Option<Arc<Array>>,
    /// Where the points of a sample begin, of ragged ones.
    pub(crate) offsets: Option<Arc<Vec<usize>>>,
    cell_offsets: Option<Arc<Vec<usize>>>,
}

impl Places {
    /// From the files of a folder.
    pub(crate) fn open(folder: &Path, side: Side, points: &Points, samples: usize) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(side.file(name));
            let file = io::open(&path)?;
            let variable = file.variables().first().map(|variable| variable.name.clone()).unwrap_or_default();
            Ok::<_, Error>((path, file.read(&variable)?))
        };
        let offsets = |name: &str| -> Result<Arc<Vec<usize>>> {
            let (path, array) = read(name)?;
            let offsets: Vec<usize> = array.values.iter().map(|v| *v as usize).collect();
            let ascending = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
            // Beyond 2²⁴ a f32 does not count.
            let exact = array.values.iter().all(|v| *v >= 0.0 && *v < 16_777_216.0 && v.fract() == 0.0);
            if offsets.len() != samples + 1 || offsets[0] != 0 || !ascending || !exact {
                let expected =
                    format!("{} whole numbers from 0 on, none less than the one before", samples + 1);
                return Err(Error::content(&path, "values", expected, format!("shape {:?}", array.shape)));
            }
            Ok(Arc::new(offsets))
        };
        let ragged = points.sharing == Sharing::Ragged;
        let of_points = if ragged { Some(offsets("offsets")?) } else { None };
        let mut shape: Vec<usize> = match points.sharing {
            Sharing::Shared => points.count.into_iter().collect(),
            Sharing::PerSample => std::iter::once(samples).chain(points.count).collect(),
            Sharing::Ragged => of_points.iter().filter_map(|offsets| offsets.last().copied()).collect(),
        };
        let of_shape = |name: &str, shape: &[usize]| {
            let (path, array) = read(name)?;
            if array.shape != shape {
                let what = path.display().to_string();
                return Err(Error::Shape { what, expected: format!("{shape:?}"), found: array.shape });
            }
            Ok(Arc::new(array))
        };
        let weights = if points.weights { Some(of_shape("weights", &shape)?) } else { None };
        shape.push(points.dimension());
        let coordinates = of_shape("points", &shape)?;
        let cell_offsets =
            if ragged && points.corners.is_some() { Some(offsets("cell_offsets")?) } else { None };
        let cells = match points.corners {
            None => None,
            Some(corners) => {
                let (path, array) = read("cells")?;
                if array.shape.len() != 2 || array.shape[1] != corners {
                    let what = path.display().to_string();
                    let expected = format!("(cells, {corners})");
                    return Err(Error::Shape { what, expected, found: array.shape });
                }
                Some(Arc::new(array))
            }
        };
        Ok(Self { points: points.clone(), coordinates, weights, cells, offsets: of_points, cell_offsets })
    }

    /// Those of sample `index`.
    pub(crate) fn of(&self, index: usize) -> Result<PointSet> {
        let (first, count) = match (self.points.sharing, &self.offsets, self.points.count) {
            (Sharing::Ragged, Some(offsets), _) => (offsets[index], offsets[index + 1] - offsets[index]),
            (Sharing::PerSample, _, Some(count)) => (index * count, count),
            (_, _, count) => (0, count.unwrap_or(0)),
        };
        let dimension = self.points.dimension();
        let part =
            |array: &Array, width: usize| array.values[first * width..(first + count) * width].to_vec();
        let corners = self.points.corners.unwrap_or(0);
        let cells = match (&self.cells, &self.cell_offsets) {
            (None, _) => Vec::new(),
            (Some(cells), None) => cells.values.clone(),
            (Some(cells), Some(offsets)) => {
                cells.values[offsets[index] * corners..offsets[index + 1] * corners].to_vec()
            }
        };
        if corners > 0 && count > 1 << 24 {
            let why = "numbers of points are read as f32, which count to 16,777,216";
            return Err(Error::setting(format!("cells of {count} points"), why));
        }
        if let Some(corner) = cells.iter().find(|corner| !(**corner >= 0.0 && (**corner as usize) < count)) {
            let why = format!("sample {index} has {count} points, counted from 0");
            return Err(Error::setting(format!("cell with corner {corner}"), why));
        }
        Ok(PointSet {
            coordinates: Array { shape: vec![count, dimension], values: part(&self.coordinates, dimension) },
            weights: self.weights.as_ref().map(|weights| part(weights, 1)),
            cells: cells.into_iter().map(|corner| corner as u32).collect(),
            corners,
        })
    }
}
