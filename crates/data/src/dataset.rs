//! Pairs of input and target, read sample by sample.
//!
//! A dataset is a folder (`inputs.npy`, `targets.npy`, `meta.toml` and the points of a domain that is no grid) or two arrays in memory. Samples
//! of a folder are read when they are asked for, at their position in the file: a mapping of the file into memory would need `unsafe`, and
//! a file that is cut short while mapped kills the process.
//!
//! Views change what a sample is and cost nothing until it is read: [`subsample`](Dataset::subsample) takes a coarser grid,
//! [`inverse`](Dataset::inverse) asks for the input instead of the target, [`normalized`](Dataset::normalized) and
//! [`noisy`](Dataset::noisy) act on inputs.

use std::path::Path;
use std::sync::Arc;

use crate::Array;
use crate::domain::{Domain, Grid};
use crate::error::{Error, Result};
use crate::folder::{self, INPUTS, Side, TARGETS};
use crate::io::Summary;
use crate::io::source::Source;
use crate::meta::{Meta, channel_names};
use crate::normalize::{Fit, Normalizer};
use crate::pde::inverse;
use crate::places::{Places, PointSet};
use crate::values::{Description, Values};

/// Pairs of input and target.
#[derive(Clone, Debug)]
pub struct Dataset {
    inputs: Values,
    targets: Values,
    /// Of inputs and of targets that lie at points.
    places: [Option<Places>; 2],
    /// Of a dataset that is a folder.
    meta: Option<Arc<Meta>>,
    /// Files besides the two arrays, of a folder.
    others: Vec<Source>,
    normalizer: Option<Arc<Normalizer>>,
    noise: Option<Noise>,
}

/// Input and target of one sample, or of several along a first axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// (points…, channels)
    pub input: Array,
    /// (points…, channels)
    pub target: Array,
}

/// How the statistics of a [`Normalizer`] are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// At every point of the grid.
    Point,
    /// Over all points.
    Channel,
}

#[derive(Clone, Copy, Debug)]
struct Noise {
    strength: f64,
    seed: u64,
}

impl Dataset {
    /// Opens a folder; the samples stay where they are. All files are read through and must have the checksums on record.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let dataset = Self::open_unverified(path.as_ref())?;
        dataset.verify()?;
        Ok(dataset)
    }

    fn open_unverified(path: &Path) -> Result<Self> {
        let meta = folder::read_meta(path)?;
        let open_places = |side: Side, domain: Option<&Domain>| match domain.and_then(Domain::points) {
            Some(points) => Places::open(path, side, points, meta.samples).map(Some),
            None => Ok(None),
        };
        let of_inputs = open_places(Side::Inputs, Some(&meta.domain))?;
        let of_targets = match meta.target_domain {
            None => of_inputs.clone(),
            Some(_) => open_places(Side::Targets, meta.target_domain.as_ref())?,
        };
        let offsets = |places: &Option<Places>| places.as_ref().and_then(|places| places.offsets.clone());
        let inputs = Description {
            name: "inputs",
            samples: meta.samples,
            times: None,
            domain: meta.domain.clone(),
            channels: meta.inputs.clone(),
            offsets: offsets(&of_inputs),
        };
        let targets = Description {
            name: "targets",
            samples: meta.samples,
            times: meta.time.as_ref().map(|axis| axis.points),
            domain: meta.target_domain().clone(),
            channels: meta.targets.clone(),
            offsets: offsets(&of_targets),
        };
        let inputs = Values::open(&folder::inputs_path(path), inputs)?;
        let targets = Values::open(&folder::targets_path(path), targets)?;
        let others = meta.checksums.keys().filter(|name| ![INPUTS, TARGETS].contains(&name.as_str()));
        let others: Result<_> = others
            .map(|name| match Path::new(name).file_name() == Some(name.as_ref()) {
                true => Source::open(&path.join(name)),
                false => Err(Error::content(
                    &path.join(folder::META),
                    "checksums",
                    "names of files",
                    name.as_str(),
                )),
            })
            .collect();
        Ok(Self {
            inputs,
            targets,
            places: [of_inputs, of_targets],
            others: others?,
            meta: Some(Arc::new(meta)),
            normalizer: None,
            noise: None,
        })
    }

    /// Writes a folder from arrays in memory, whole or not at all, and opens it: `meta` without checksums, and the arrays by the names of their
    /// files, `inputs.npy`, `targets.npy`, and of points `points.npy`, `weights.npy`, `cells.npy`, `offsets.npy` and `cell_offsets.npy`.
    pub fn write(path: impl AsRef<Path>, mut meta: Meta, arrays: &[(String, Array)]) -> Result<Self> {
        let path = path.as_ref();
        meta.check()?;
        folder::write_folder(path, |partial| {
            for (name, array) in arrays {
                meta.checksums.insert(name.clone(), folder::write_array(&partial.join(name), array)?);
            }
            folder::write_meta(&meta, partial)?;
            // What does not fit together leaves no folder behind.
            Self::open_unverified(partial)?;
            Ok(meta)
        })?;
        Self::open(path)
    }

    /// From arrays (samples, points…, channels) on one grid. Channels are called by their numbers.
    pub fn from_arrays(inputs: Array, targets: Array, grid: Grid) -> Result<Self> {
        let names = [("input", &inputs), ("target", &targets)]
            .map(|(one, array)| channel_names(one, array.shape.last().copied().unwrap_or(0)));
        Self::from_named_arrays([inputs, targets], [grid.clone(), grid], names)
    }

    /// From the arrays of inputs and of targets (samples, points…, channels), each with its grid and the names of its channels.
    pub fn from_named_arrays(
        [inputs, targets]: [Array; 2],
        [grid, target_grid]: [Grid; 2],
        [input_names, target_names]: [Vec<String>; 2],
    ) -> Result<Self> {
        grid.check()?;
        target_grid.check()?;
        let described = |name: &'static str, names: Vec<String>, grid: Grid, array: &Array| {
            let points = grid.points();
            let description = |samples: usize| Description {
                name,
                samples,
                times: None,
                domain: grid.into(),
                channels: names.clone(),
                offsets: None,
            };
            match &array.shape[..] {
                [samples, found @ .., channels]
                    if *found == points && *channels > 0 && *channels == names.len() =>
                {
                    Ok(description(*samples))
                }
                found => {
                    let points: Vec<_> = points.iter().map(ToString::to_string).collect();
                    let expected = format!("(samples, {}, channels)", points.join(", "));
                    Err(Error::Shape { what: name.into(), expected, found: found.to_vec() })
                }
            }
        };
        let of_inputs = described("inputs", input_names, grid, &inputs)?;
        let of_targets = described("targets", target_names, target_grid, &targets)?;
        if of_inputs.samples != of_targets.samples {
            let expected = format!("{} samples, as inputs have", of_inputs.samples);
            return Err(Error::Shape { what: "targets".into(), expected, found: targets.shape });
        }
        Ok(Self {
            inputs: Values::from_array(inputs, of_inputs)?,
            targets: Values::from_array(targets, of_targets)?,
            places: [None, None],
            others: Vec::new(),
            meta: None,
            normalizer: None,
            noise: None,
        })
    }

    /// What the folder says about itself, before any view; `None` of arrays in memory.
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_deref()
    }

    /// Compares the checksums of all files with those on record. A folder that somebody wrote by hand may have none, but not some.
    fn verify(&self) -> Result<()> {
        let Some(meta) = self.meta.as_ref().filter(|meta| !meta.checksums.is_empty()) else { return Ok(()) };
        let arrays = [&self.inputs, &self.targets].into_iter().filter_map(Values::source);
        for source in arrays.chain(&self.others) {
            let name = source.path().file_name().unwrap_or_default().to_string_lossy();
            let Some(expected) = meta.checksums.get(&*name) else {
                let path = source.path().with_file_name(folder::META);
                return Err(Error::content(&path, "checksums", format!("one of {name}"), "none"));
            };
            folder::verify(source, expected)?;
        }
        Ok(())
    }

    /// What tells a sample from any other of its grid: the checksums of its input and of its target, as sixteen hexadecimal digits.
    pub fn fingerprint(&self, index: usize) -> Result<String> {
        let pair = self.sample(index)?;
        let sum = |array: &Array| {
            // At once: four bytes at a time take the slow way through a checksum.
            let bytes: Vec<u8> = array.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes);
            folder::checksum_text(hasher)
        };
        Ok(sum(&pair.input) + &sum(&pair.target))
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.inputs.samples()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where inputs lie.
    pub fn domain(&self) -> Domain {
        self.inputs.domain()
    }

    /// Where targets lie.
    pub fn target_domain(&self) -> Domain {
        self.targets.domain()
    }

    /// The grid of the inputs; an error if they lie at points.
    pub fn grid(&self) -> Result<Grid> {
        of_grid(&self.inputs)
    }

    /// The grid of the targets; an error if they lie at points.
    pub fn target_grid(&self) -> Result<Grid> {
        of_grid(&self.targets)
    }

    /// Whether the targets of mirrored samples are the mirrored targets, along an axis: not where they are means over windows that lie otherwise at the
    /// two ends.
    pub fn mirrors_targets(&self, axis: usize) -> bool {
        self.targets.mirrors(axis)
    }

    /// Names of the channels of an input.
    pub fn input_channels(&self) -> &[String] {
        self.inputs.channels()
    }

    /// Names of the channels of a target.
    pub fn target_channels(&self) -> &[String] {
        self.targets.channels()
    }

    /// (points…, channels) of an input, of the first one where they differ.
    pub fn input_shape(&self) -> Vec<usize> {
        self.inputs.shape(0)
    }

    /// (\[times,\] points…, channels) of a target, of the first one where they differ.
    pub fn target_shape(&self) -> Vec<usize> {
        self.targets.shape(0)
    }

    /// Times of a target, where it has several.
    pub fn times(&self) -> Option<usize> {
        self.targets.times()
    }

    /// The points of an input; `None` on a grid.
    pub fn input_points(&self, index: usize) -> Result<Option<PointSet>> {
        self.places[0].as_ref().map(|places| places.of(index)).transpose()
    }

    /// The points of a target; `None` on a grid.
    pub fn target_points(&self, index: usize) -> Result<Option<PointSet>> {
        self.places[1].as_ref().map(|places| places.of(index)).transpose()
    }

    /// Sample `index`.
    pub fn sample(&self, index: usize) -> Result<Pair> {
        let mut pair = Pair { input: Array::default(), target: Array::default() };
        self.read_input(index, &mut pair.input.values)?;
        self.targets.read(index, &mut pair.target.values)?;
        (pair.input.shape, pair.target.shape) = (self.inputs.shape(index), self.targets.shape(index));
        Ok(pair)
    }

    /// Several samples of one shape, (batch, points…, channels).
    pub fn batch(&self, indices: &[usize]) -> Result<Pair> {
        let empty = |values: &Values| {
            if !values.is_even() {
                let why = "samples have different numbers of points; take them one by one";
                return Err(Error::setting(format!("{} samples at once", indices.len()), why));
            }
            let shape: Vec<usize> = [vec![indices.len()], values.shape(0)].concat();
            Ok(Array { values: Vec::with_capacity(shape.iter().product()), shape })
        };
        let mut pair = Pair { input: empty(&self.inputs)?, target: empty(&self.targets)? };
        for index in indices {
            self.read_input(*index, &mut pair.input.values)?;
            self.targets.read(*index, &mut pair.target.values)?;
        }
        Ok(pair)
    }

    /// The same samples on every `stride`-th point of every axis. The coarse grid must end as the fine one does: `stride` divides the
    /// intervals of every axis. Inputs and targets lie on one grid.
    pub fn subsample(mut self, stride: usize) -> Result<Self> {
        if stride == 1 {
            return Ok(self);
        }
        let grid = self.grid()?;
        let what = || format!("subsampling by {stride}");
        if self.normalizer.is_some() || self.targets.is_pooled() {
            return Err(Error::setting(
                what(),
                "it comes before normalisation and before the inverse problem",
            ));
        }
        if self.target_grid()? != grid {
            return Err(Error::setting(what(), "inputs and targets lie on different grids"));
        }
        if !grid.strides().contains(&stride) {
            let works: Vec<_> = grid.sizes().iter().map(ToString::to_string).collect();
            let asked = format!("every {stride}th point");
            return Err(Error::Subsample { grid: grid.to_string(), asked, works: works.join(", ") });
        }
        self.inputs.subsample(stride);
        self.targets.subsample(stride);
        Ok(self)
    }

    /// [`subsample`](Self::subsample) so that the first axis has `points` points.
    pub fn subsample_to(self, points: usize) -> Result<Self> {
        let stride = self.grid()?.stride_to(points)?;
        self.subsample(stride)
    }

    /// The inverse problem: from targets to inputs.
    ///
    /// On a square, inputs of one channel come on a grid of `points` points a side: targets are taken at points as before; inputs are averaged,
    /// first over the points that subsampling leaves out, then to that grid ([`inverse::pool`]). A dataset that is already subsampled
    /// stays so. Everywhere else inputs and targets change places as they are.
    pub fn inverse(self, points: Option<usize>) -> Result<Self> {
        let setting = || match points {
            Some(points) => format!("inverse problem on {points} points a side"),
            None => "inverse problem".to_string(),
        };
        if self.normalizer.is_some() || self.targets.is_pooled() {
            return Err(Error::setting(setting(), "it comes before normalisation, and once"));
        }
        if self.times().is_some() {
            return Err(Error::setting(setting(), "targets at several times cannot be inputs"));
        }
        let swap = |dataset: Self| {
            let [inputs, targets] = dataset.places;
            Self { inputs: dataset.targets, targets: dataset.inputs, places: [targets, inputs], ..dataset }
        };
        let grid = self.grid()?;
        let side = match grid.points()[..] {
            [rows, columns] if rows == columns && self.inputs.channels().len() == 1 => rows,
            _ if points.is_none_or(|points| points == grid.axes[0].points) => return Ok(swap(self)),
            _ => {
                let why = "averages need a square grid and inputs of one channel";
                return Err(Error::setting(setting(), why));
            }
        };
        let coarse = points.unwrap_or(side);
        let Some(window) = (1..=side).find(|w| inverse::pooled_len(side, *w) == coarse) else {
            let mut works: Vec<_> = (1..=side).map(|w| inverse::pooled_len(side, w).to_string()).collect();
            works.dedup();
            return Err(Error::Subsample {
                grid: grid.to_string(),
                asked: format!("averages at {coarse} points a side"),
                works: works.join(", "),
            });
        };
        let mut swapped = swap(self);
        swapped.targets.pool(window);
        Ok(swapped)
    }

    /// Inputs come normalised.
    pub fn normalized(mut self, normalizer: Normalizer) -> Result<Self> {
        normalizer.check_shape(&self.input_shape())?;
        self.normalizer = Some(Arc::new(normalizer));
        Ok(self)
    }

    /// Inputs come with noise: normal numbers of standard deviation `strength`, added after normalisation, drawn once and for all by
    /// (seed, sample).
    pub fn noisy(mut self, strength: f64, seed: u64) -> Self {
        self.noise = (strength != 0.0).then_some(Noise { strength, seed });
        self
    }

    /// A normaliser of the inputs of these samples, as they are without normalisation and noise.
    pub fn fit_inputs(&self, indices: &[usize], statistics: Statistics) -> Result<Normalizer> {
        fit(&self.inputs, indices, statistics)
    }

    /// A normaliser of the targets of these samples.
    pub fn fit_targets(&self, indices: &[usize], statistics: Statistics) -> Result<Normalizer> {
        fit(&self.targets, indices, statistics)
    }

    /// Range, mean and values that are no numbers, of inputs and of targets, without normalisation and noise.
    pub fn summaries(&self) -> Result<[Summary; 2]> {
        Ok([summary(&self.inputs)?.0, summary(&self.targets)?.0])
    }

    /// Whether all targets are zero on the boundary of their grid. A grid that is periodic along all axes has none, and the answer is no.
    pub fn is_zero_on_boundary(&self) -> Result<bool> {
        let Ok(grid) = self.target_grid() else { return Ok(false) };
        if grid.axes.iter().all(|axis| axis.periodic) || self.times().is_some() {
            return Ok(false);
        }
        let (ring, channels) = (boundary(&grid), self.target_channels().len());
        let mut sample = Vec::new();
        for index in 0..self.len() {
            sample.clear();
            self.targets.read(index, &mut sample)?;
            let on_ring = sample.chunks_exact(channels).zip(&ring).filter(|(_, on_ring)| **on_ring);
            if on_ring.flat_map(|(point, _)| point).any(|value| *value != 0.0) {
                return Ok(false);
            }
        }
        Ok(!self.is_empty())
    }

    /// An error if any value is not finite: nothing can be learned from such a dataset.
    pub fn check_finite(&self) -> Result<()> {
        for values in [&self.inputs, &self.targets] {
            let (summary, first) = summary(values)?;
            if let Some(sample) = first {
                let Summary { nan, infinite, .. } = summary;
                return Err(Error::NotFinite { what: values.name(), nan, infinite, sample });
            }
        }
        Ok(())
    }

    /// The same dataset with all its samples, as they are now on their grid, in memory.
    pub fn into_memory(self) -> Result<Self> {
        Ok(Self { inputs: self.inputs.into_memory()?, targets: self.targets.into_memory()?, ..self })
    }

    /// Appends input `index`.
    fn read_input(&self, index: usize, values: &mut Vec<f32>) -> Result<()> {
        let start = values.len();
        self.inputs.read(index, values)?;
        let input = &mut values[start..];
        if let Some(normalizer) = &self.normalizer {
            normalizer.apply(input)?;
        }
        if let Some(Noise { strength, seed }) = self.noise {
            let noise = inverse::noise(seed, index as u32, input.len(), strength);
            input.iter_mut().zip(noise).for_each(|(x, noise)| *x += noise);
        }
        Ok(())
    }
}

/// Which points of a grid lie at an end of a closed axis, in the order of the points.
pub fn boundary(grid: &Grid) -> Vec<bool> {
    (0..grid.len())
        .map(|point| {
            let mut rest = point;
            grid.axes.iter().rev().any(|axis| {
                let along = rest % axis.points;
                rest /= axis.points;
                !axis.periodic && (along == 0 || along + 1 == axis.points)
            })
        })
        .collect()
}

fn of_grid(values: &Values) -> Result<Grid> {
    match values.domain() {
        Domain::Grid(grid) => Ok(grid),
        Domain::Points(_) => {
            let why = "expected a grid, found points; no network of this version takes points";
            Err(Error::setting(values.name(), why))
        }
    }
}

/// In the order of `indices`, one sample in memory at a time.
fn fit(values: &Values, indices: &[usize], statistics: Statistics) -> Result<Normalizer> {
    let shape = match statistics {
        Statistics::Point => values.shape(0),
        Statistics::Channel => vec![values.channels().len()],
    };
    let len: usize = shape.iter().product();
    let mut fit = Fit::new(&shape);
    let mut sample = Vec::new();
    for index in indices {
        sample.clear();
        values.read(*index, &mut sample)?;
        sample.chunks_exact(len.max(1)).try_for_each(|values| fit.add(values))?;
    }
    fit.finish()
}

/// The summary of an array and the first sample with a value that is not finite.
fn summary(values: &Values) -> Result<(Summary, Option<usize>)> {
    let (mut summary, mut first) = (Summary::default(), None);
    let mut sample = Vec::new();
    for index in 0..values.samples() {
        sample.clear();
        values.read(index, &mut sample)?;
        summary.add(&sample);
        if first.is_none() && summary.nan + summary.infinite > 0 {
            first = Some(index);
        }
    }
    Ok((summary, first))
}
