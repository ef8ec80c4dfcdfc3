//! One of the two arrays of a dataset, and how a sample is taken from it.

use std::path::Path;
use std::sync::Arc;

use crate::Array;
use crate::domain::{Domain, Grid, Sharing};
use crate::error::{Error, Result};
use crate::io::memory::room;
use crate::io::npy::Header;
use crate::io::source::Source;
use crate::pde::inverse::{mirrors, pool, pooled_len};

/// (samples, \[times,\] points…, channels), in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    name: &'static str,
    store: Store,
    /// Where the values lie as they are stored.
    domain: Domain,
    samples: usize,
    /// Length of the axis of times, where there is one.
    times: Option<usize>,
    channels: Vec<String>,
    /// Where the points of a sample begin, if samples have different numbers of them.
    offsets: Option<Arc<Vec<usize>>>,
    /// Every `stride`-th point of every axis is taken.
    stride: usize,
    /// Instead of points, means over windows of `stride` and then of this many points.
    window: Option<usize>,
}

/// What an array is expected to be.
pub(crate) struct Description {
    pub name: &'static str,
    pub samples: usize,
    pub times: Option<usize>,
    pub domain: Domain,
    pub channels: Vec<String>,
    pub offsets: Option<Arc<Vec<usize>>>,
}

#[derive(Clone, Debug)]
enum Store {
    Memory(Arc<Vec<f32>>),
    File(Arc<(Source, Header)>),
}

impl Description {
    /// The shape of the whole array.
    fn shape(&self) -> Vec<usize> {
        let mut shape = match &self.offsets {
            Some(offsets) => vec![offsets.last().copied().unwrap_or(0)],
            None => {
                let mut shape = vec![self.samples];
                shape.extend(self.times);
                match &self.domain {
                    Domain::Grid(grid) => shape.extend(grid.points()),
                    Domain::Points(points) => shape.extend(points.count),
                }
                shape
            }
        };
        shape.push(self.channels.len());
        shape
    }
}

impl Values {
    pub(crate) fn from_array(array: Array, expected: Description) -> Result<Self> {
        let Array { shape, values } = array;
        if shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n)) != Some(values.len()) {
            let words = format!("{} values", values.len());
            return Err(Error::Shape { what: expected.name.into(), expected: words, found: shape });
        }
        Self::new(Store::Memory(Arc::new(values)), &shape, expected)
    }

    /// A `.npy` file; any type of number is taken, in row-major order.
    pub(crate) fn open(path: &Path, expected: Description) -> Result<Self> {
        let source = Source::open(path)?;
        let header = Header::of_file(&source)?;
        if header.fortran {
            let expected = "samples one after the other (fortran_order False)";
            return Err(Error::content(path, "header", expected, "fortran_order True"));
        }
        let shape = header.shape.clone();
        Self::new(Store::File(Arc::new((source, header))), &shape, expected)
    }

    fn new(store: Store, shape: &[usize], expected: Description) -> Result<Self> {
        let wanted = expected.shape();
        if shape != wanted {
            let what = match &store {
                Store::Memory(_) => expected.name.to_string(),
                Store::File(file) => file.0.path().display().to_string(),
            };
            return Err(Error::Shape { what, expected: format!("{wanted:?}"), found: shape.to_vec() });
        }
        let Description { name, samples, times, domain, channels, offsets } = expected;
        Ok(Self { name, store, domain, samples, times, channels, offsets, stride: 1, window: None })
    }

    /// What errors call it: the file where there is one.
    pub(crate) fn name(&self) -> String {
        match &self.store {
            Store::Memory(_) => self.name.into(),
            Store::File(file) => file.0.path().display().to_string(),
        }
    }

    /// The file, where there is one.
    pub(crate) fn source(&self) -> Option<&Source> {
        match &self.store {
            Store::Memory(_) => None,
            Store::File(file) => Some(&file.0),
        }
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    pub(crate) fn channels(&self) -> &[String] {
        &self.channels
    }

    pub(crate) fn times(&self) -> Option<usize> {
        self.times
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.window.is_some()
    }

    /// Whether a value of the mirror image along an axis is the mirror image of a value: points are, means only over windows that are.
    pub(crate) fn mirrors(&self, axis: usize) -> bool {
        let (Some(window), Domain::Grid(grid)) = (self.window, &self.domain) else { return true };
        let Some(axis) = grid.axes.get(axis) else { return true };
        let points = pooled_len(axis.points, self.stride);
        mirrors(axis.points, self.stride, axis.periodic) && mirrors(points, window, axis.periodic)
    }

    /// Where the values of a sample lie as it is read.
    pub(crate) fn domain(&self) -> Domain {
        match &self.domain {
            Domain::Grid(grid) => Domain::Grid(self.coarse(grid)),
            points => points.clone(),
        }
    }

    fn coarse(&self, grid: &Grid) -> Grid {
        let window = self.window.unwrap_or(1);
        let points: Vec<_> =
            grid.points().iter().map(|n| pooled_len(n.div_ceil(self.stride), window)).collect();
        grid.with_points(&points)
    }

    /// (\[times,\] points…, channels) of sample `index` as it is read.
    pub(crate) fn shape(&self, index: usize) -> Vec<usize> {
        let mut shape: Vec<usize> = self.times.into_iter().collect();
        match (&self.domain, &self.offsets) {
            (Domain::Grid(grid), _) => shape.extend(self.coarse(grid).points()),
            (Domain::Points(_), Some(offsets)) => shape.push(offsets[index + 1] - offsets[index]),
            (Domain::Points(points), None) => shape.extend(points.count),
        }
        shape.push(self.channels.len());
        shape
    }

    /// Whether all samples have one shape.
    pub(crate) fn is_even(&self) -> bool {
        !matches!(&self.domain, Domain::Points(points) if points.sharing == Sharing::Ragged)
    }

    /// Every `stride`-th of the points taken so far; of a grid.
    pub(crate) fn subsample(&mut self, stride: usize) {
        self.stride *= stride;
    }

    /// Means instead of points, over windows of `window` points of the grid so far; for one channel on two axes.
    pub(crate) fn pool(&mut self, window: usize) {
        self.window = Some(window);
    }

    /// Appends sample `index`.
    pub(crate) fn read(&self, index: usize, values: &mut Vec<f32>) -> Result<()> {
        if index >= self.samples {
            let why = format!("{} has {} samples", self.name(), self.samples);
            return Err(Error::setting(format!("sample {index}"), why));
        }
        let channels = self.channels.len();
        let grid = match (&self.domain, &self.offsets) {
            (Domain::Grid(grid), _) => grid,
            (Domain::Points(_), Some(offsets)) => {
                let (first, end) = (offsets[index], offsets[index + 1]);
                return self.read_run(first * channels, (end - first) * channels, values);
            }
            (Domain::Points(points), None) => {
                let len = self.times.unwrap_or(1) * points.count.unwrap_or(0) * channels;
                return self.read_run(index * len, len, values);
            }
        };
        let points = grid.points();
        let of_time = grid.len() * channels;
        let len = self.times.unwrap_or(1) * of_time;
        let start = index * len;
        if let (Some(window), &[rows, columns]) = (self.window, &points[..]) {
            let mut fine = Vec::with_capacity(len);
            self.read_run(start, len, &mut fine)?;
            let middle = pool(&fine, rows, columns, self.stride);
            let (rows, columns) = (pooled_len(rows, self.stride), pooled_len(columns, self.stride));
            values.extend(pool(&middle, rows, columns, window));
            return Ok(());
        }
        if self.stride == 1 {
            return self.read_run(start, len, values);
        }
        for time in 0..self.times.unwrap_or(1) {
            self.read_coarse(start + time * of_time, &points, values)?;
        }
        Ok(())
    }

    /// Appends every `stride`-th point of the grid that begins at a place. Only lines along the last axis that hold such a point are read.
    fn read_coarse(&self, start: usize, points: &[usize], values: &mut Vec<f32>) -> Result<()> {
        let channels = self.channels.len();
        let (last, before) = points.split_last().expect("a grid has axes");
        let line_len = last * channels;
        let mut line = Vec::with_capacity(line_len);
        for number in 0..before.iter().product() {
            // The index along every axis but the last, the later ones running faster.
            let mut rest = number;
            let taken = before.iter().rev().all(|n| {
                let along = rest % n;
                rest /= n;
                along.is_multiple_of(self.stride)
            });
            if !taken {
                continue;
            }
            line.clear();
            self.read_run(start + number * line_len, line_len, &mut line)?;
            let points = line.chunks_exact(channels).step_by(self.stride);
            points.for_each(|point| values.extend_from_slice(point));
        }
        Ok(())
    }

    /// All samples as they are read now, in memory.
    pub(crate) fn into_memory(self) -> Result<Self> {
        let lens = (0..self.samples).map(|index| self.shape(index).iter().product::<usize>());
        let path = self.source().map_or(Path::new(self.name), Source::path);
        let mut values = room(lens.sum(), path, self.name)?;
        for index in 0..self.samples {
            self.read(index, &mut values)?;
        }
        Ok(Self {
            store: Store::Memory(Arc::new(values)),
            domain: self.domain(),
            stride: 1,
            // Windows of one point: the means are already taken.
            window: self.window.map(|_| 1),
            ..self
        })
    }

    /// Appends `count` stored values from number `first` on.
    fn read_run(&self, first: usize, count: usize, values: &mut Vec<f32>) -> Result<()> {
        match &self.store {
            Store::Memory(all) => values.extend_from_slice(&all[first..first + count]),
            Store::File(file) => {
                let (source, header) = &**file;
                let size = header.element.size();
                let offset = header.offset + (first * size) as u64;
                let bytes = source.read_vec(offset, (count * size) as u64, self.name)?;
                header.element.decode(header.order, &bytes, values);
            }
        }
        Ok(())
    }
}
