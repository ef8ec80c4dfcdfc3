//! One of the two arrays of a dataset, and how a sample is taken from it.

use std::path::Path;
use std::sync::Arc;

use crate::Array;
use crate::error::{Error, Result};
use crate::grid::{Grid, GridKind};
use crate::io::npy::Header;
use crate::io::source::Source;
use crate::pde::inverse::{pool, pooled_len};

/// (samples, points…, channels), in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    name: &'static str,
    store: Store,
    kind: GridKind,
    samples: usize,
    /// Points of every axis as they are stored.
    points: Vec<usize>,
    channels: usize,
    /// Every `stride`-th point of every axis is taken.
    stride: usize,
    /// Instead of points, means over windows of `stride` and then of this many points.
    window: Option<usize>,
}

#[derive(Clone, Debug)]
enum Store {
    Memory(Arc<Vec<f32>>),
    File(Arc<(Source, Header)>),
}

impl Field {
    pub(crate) fn from_array(name: &'static str, array: Array, kind: GridKind) -> Result<Self> {
        let Array { shape, values } = array;
        if shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n)) != Some(values.len()) {
            let expected = format!("{} values", values.len());
            return Err(Error::Shape { what: name.into(), expected, found: shape });
        }
        Self::new(name, Store::Memory(Arc::new(values)), &shape, kind)
    }

    /// A `.npy` file; any type of number is taken, in row-major order.
    pub(crate) fn open(name: &'static str, path: &Path, kind: GridKind) -> Result<Self> {
        let source = Source::open(path)?;
        let header = Header::of_file(&source)?;
        if header.fortran {
            let expected = "samples one after the other (fortran_order False)";
            return Err(Error::content(path, "header", expected, "fortran_order True"));
        }
        let shape = header.shape.clone();
        Self::new(name, Store::File(Arc::new((source, header))), &shape, kind)
    }

    fn new(name: &'static str, store: Store, shape: &[usize], kind: GridKind) -> Result<Self> {
        let [samples, points @ .., channels] = shape else { return Err(bad_shape(name, shape)) };
        if !(1..=2).contains(&points.len()) || points.contains(&0) || *channels == 0 {
            return Err(bad_shape(name, shape));
        }
        let (samples, channels, points) = (*samples, *channels, points.to_vec());
        Ok(Self { name, store, kind, samples, points, channels, stride: 1, window: None })
    }

    /// What errors call it: the file where there is one.
    pub(crate) fn name(&self) -> String {
        match &self.store {
            Store::Memory(_) => self.name.into(),
            Store::File(file) => file.0.path().display().to_string(),
        }
    }

    /// Whether it is the array of the inputs as stored.
    pub(crate) fn is_inputs(&self) -> bool {
        self.name == "inputs"
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

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.window.is_some()
    }

    /// The grid of a sample as it is read.
    pub(crate) fn grid(&self) -> Grid {
        let window = self.window.unwrap_or(1);
        let points: Vec<_> =
            self.points.iter().map(|n| pooled_len(n.div_ceil(self.stride), window)).collect();
        Grid::new(self.kind, &points)
    }

    /// (points…, channels) of a sample as it is read.
    pub(crate) fn shape(&self) -> Vec<usize> {
        let mut shape = self.grid().points;
        shape.push(self.channels);
        shape
    }

    /// Every `stride`-th of the points taken so far.
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
        let len = self.points.iter().product::<usize>() * self.channels;
        let start = index * len;
        if let (Some(window), [rows, columns]) = (self.window, &self.points[..]) {
            let mut fine = Vec::with_capacity(len);
            self.read_run(start, len, &mut fine)?;
            let middle = pool(&fine, *rows, *columns, self.stride);
            let (rows, columns) = (pooled_len(*rows, self.stride), pooled_len(*columns, self.stride));
            values.extend(pool(&middle, rows, columns, window));
            return Ok(());
        }
        if self.stride == 1 {
            return self.read_run(start, len, values);
        }
        // Only rows that hold a point of the coarse grid are read; one axis is one row.
        let columns = self.points[self.points.len() - 1];
        let rows = if self.points.len() == 2 { self.points[0] } else { 1 };
        let row_len = columns * self.channels;
        let mut row = Vec::with_capacity(row_len);
        for i in (0..rows).step_by(self.stride) {
            row.clear();
            self.read_run(start + i * row_len, row_len, &mut row)?;
            let points = row.chunks_exact(self.channels).step_by(self.stride);
            points.for_each(|point| values.extend_from_slice(point));
        }
        Ok(())
    }

    /// All samples as they are read now, in memory.
    pub(crate) fn into_memory(self) -> Result<Self> {
        let mut values = Vec::with_capacity(self.samples * self.shape().iter().product::<usize>());
        for index in 0..self.samples {
            self.read(index, &mut values)?;
        }
        let points = self.grid().points;
        Ok(Self {
            store: Store::Memory(Arc::new(values)),
            points,
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

/// Strides whose coarse grids end where the fine one does, on every axis; the least first.
pub(crate) fn strides(grid: &Grid) -> Vec<usize> {
    let intervals = |n: &usize| match grid.kind {
        GridKind::Periodic => *n,
        GridKind::Vertices => n - 1,
    };
    // A single vertex has no interval; 1 is then the only stride.
    let common = grid.points.iter().map(intervals).reduce(greatest_common_divisor).unwrap_or(0).max(1);
    (1..=common).filter(|s| common.is_multiple_of(*s)).collect()
}

/// The stride that satisfies `wanted`, or an error that lists the sizes that work.
pub(crate) fn check_subsample(
    grid: &Grid,
    wanted: impl Fn(usize) -> bool,
    asked: impl Fn() -> String,
) -> Result<usize> {
    let strides = strides(grid);
    let points = grid.points.first().copied().unwrap_or(0);
    strides.iter().copied().find(|s| wanted(*s)).ok_or_else(|| {
        let works: Vec<_> = strides.iter().map(|s| points.div_ceil(*s).to_string()).collect();
        let kind = match grid.kind {
            GridKind::Periodic => "periodic",
            GridKind::Vertices => "vertices",
        };
        Error::Subsample { kind, points, asked: asked(), works: works.join(", ") }
    })
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn bad_shape(name: &str, found: &[usize]) -> Error {
    let expected = "(samples, n, channels) or (samples, n, n, channels), without empty axis".into();
    Error::Shape { what: name.into(), expected, found: found.to_vec() }
}
