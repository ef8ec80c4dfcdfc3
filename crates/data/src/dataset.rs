//! Pairs of input and target on a grid, read sample by sample.
//!
//! A dataset is a folder (`inputs.npy`, `targets.npy`, `meta.toml`) or two arrays in memory. Samples of a folder are read when they
//! are asked for, at their position in the file: a mapping of the file into memory would need `unsafe`, and a file that is cut
//! short while mapped kills the process.
//!
//! Views change what a sample is and cost nothing until it is read: [`subsample`](Dataset::subsample) takes a coarser grid,
//! [`inverse`](Dataset::inverse) asks for the coefficient instead of the solution, [`normalized`](Dataset::normalized) and
//! [`noisy`](Dataset::noisy) act on inputs.

use std::path::Path;
use std::sync::Arc;

use crate::Array;
use crate::error::{Error, Result};
use crate::field::{Field, check_subsample, strides};
use crate::folder;
use crate::grid::{Grid, GridKind};
use crate::io::Summary;
use crate::meta::Meta;
use crate::normalize::{Fit, Normalizer};
use crate::pde::inverse;

/// Pairs of input and target.
#[derive(Clone, Debug)]
pub struct Dataset {
    inputs: Field,
    targets: Field,
    /// Of a dataset that is a folder.
    meta: Option<Arc<Meta>>,
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

#[derive(Clone, Copy, Debug)]
struct Noise {
    strength: f64,
    seed: u64,
}

impl Dataset {
    /// Opens a folder; the samples stay where they are.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let meta = folder::read_meta(path)?;
        let inputs = Field::open("inputs", &folder::inputs_path(path), meta.grid.kind)?;
        let targets = Field::open("targets", &folder::targets_path(path), meta.grid.kind)?;
        for (field, channels) in [(&inputs, meta.input_channels), (&targets, meta.target_channels)] {
            let expected = [vec![meta.samples], meta.grid.points.clone(), vec![channels]].concat();
            let found = [vec![field.samples()], field.shape()].concat();
            if found != expected {
                let expected = format!("{expected:?}, as {} says", folder::META);
                return Err(Error::Shape { what: field.name(), expected, found });
            }
        }
        Ok(Self { meta: Some(Arc::new(meta)), ..Self::new(inputs, targets)? })
    }

    /// From arrays (samples, points…, channels) on one grid of one or two axes.
    pub fn from_arrays(inputs: Array, targets: Array, kind: GridKind) -> Result<Self> {
        Self::new(Field::from_array("inputs", inputs, kind)?, Field::from_array("targets", targets, kind)?)
    }

    /// Both fields have one grid and as many samples.
    fn new(inputs: Field, targets: Field) -> Result<Self> {
        if (inputs.samples(), inputs.grid()) != (targets.samples(), targets.grid()) {
            let mut expected = vec![inputs.samples()];
            expected.extend(&inputs.grid().points);
            let mut found = vec![targets.samples()];
            found.extend(targets.shape());
            let expected = format!("{expected:?} and channels, as inputs have");
            return Err(Error::Shape { what: targets.name(), expected, found });
        }
        Ok(Self { inputs, targets, meta: None, normalizer: None, noise: None })
    }

    /// What the folder says about itself, before any view; `None` of arrays in memory.
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_deref()
    }

    /// Reads both files through and compares their checksums with those on record. Arrays in memory have none.
    pub fn verify(&self) -> Result<()> {
        let Some(meta) = &self.meta else { return Ok(()) };
        // The inverse problem has exchanged the two.
        for field in [&self.inputs, &self.targets] {
            let expected = if field.is_inputs() { &meta.checksums.inputs } else { &meta.checksums.targets };
            if let Some(source) = field.source() {
                folder::verify(source, expected)?;
            }
        }
        Ok(())
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.inputs.samples()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The grid of the inputs.
    pub fn grid(&self) -> Grid {
        self.inputs.grid()
    }

    /// The grid of the targets: that of the inputs but for the [`inverse`](Self::inverse) problem.
    pub fn target_grid(&self) -> Grid {
        self.targets.grid()
    }

    /// (points…, channels) of an input.
    pub fn input_shape(&self) -> Vec<usize> {
        self.inputs.shape()
    }

    /// (points…, channels) of a target.
    pub fn target_shape(&self) -> Vec<usize> {
        self.targets.shape()
    }

    /// Sample `index`.
    pub fn sample(&self, index: usize) -> Result<Pair> {
        let mut pair = self.batch(&[index])?;
        pair.input.shape.remove(0);
        pair.target.shape.remove(0);
        Ok(pair)
    }

    /// Several samples, (batch, points…, channels).
    pub fn batch(&self, indices: &[usize]) -> Result<Pair> {
        let empty = |field: &Field| {
            let shape: Vec<usize> = [vec![indices.len()], field.shape()].concat();
            Array { values: Vec::with_capacity(shape.iter().product()), shape }
        };
        let mut pair = Pair { input: empty(&self.inputs), target: empty(&self.targets) };
        for index in indices {
            self.read_input(*index, &mut pair.input.values)?;
            self.targets.read(*index, &mut pair.target.values)?;
        }
        Ok(pair)
    }

    /// The same samples on every `stride`-th point of every axis. Both axes of the coarse grid must end as those of the fine one
    /// do: `stride` divides n points of a periodic axis and n − 1 of one with vertices.
    pub fn subsample(mut self, stride: usize) -> Result<Self> {
        if self.normalizer.is_some() || self.targets.is_pooled() {
            return Err(Error::setting(
                format!("subsampling by {stride}"),
                "it comes before normalisation and before the inverse problem",
            ));
        }
        check_subsample(&self.grid(), |s| s == stride, || format!("every {stride}th point"))?;
        self.inputs.subsample(stride);
        self.targets.subsample(stride);
        Ok(self)
    }

    /// [`subsample`](Self::subsample) so that the first axis has `points` points.
    pub fn subsample_to(self, points: usize) -> Result<Self> {
        let grid = self.grid();
        let reaches = |s: usize| grid.points.first().is_some_and(|n| n.div_ceil(s) == points);
        let stride = check_subsample(&grid, reaches, || format!("{points} points"))?;
        self.subsample(stride)
    }

    /// The points of the first axis that [`subsample_to`](Self::subsample_to) can reach, most first.
    pub fn sizes(&self) -> Vec<usize> {
        let grid = self.grid();
        let points = grid.points.first().copied().unwrap_or(0);
        strides(&grid).into_iter().map(|s| points.div_ceil(s)).collect()
    }

    /// The inverse problem on a square: from the solution to the coefficient on a grid of `coarse` points a side.
    ///
    /// Solutions are taken at points as before; coefficients are averaged, first over the points that subsampling leaves out, then to
    /// the coarse grid ([`inverse::pool`]). A dataset that is already subsampled stays so.
    pub fn inverse(self, coarse: usize) -> Result<Self> {
        let grid = self.grid();
        let setting = || format!("inverse problem on {coarse} points a side");
        let [rows, columns] = grid.points[..] else {
            return Err(Error::setting(
                setting(),
                format!("the grid has {} axes and not 2", grid.points.len()),
            ));
        };
        if rows != columns
            || self.inputs.channels() != 1
            || self.normalizer.is_some()
            || self.targets.is_pooled()
        {
            return Err(Error::setting(
                setting(),
                "it needs a square grid, inputs of one channel, and to come before normalisation",
            ));
        }
        let Some(window) = (1..=rows).find(|w| inverse::pooled_len(rows, *w) == coarse) else {
            let mut works: Vec<_> = (1..=rows).map(|w| inverse::pooled_len(rows, w).to_string()).collect();
            works.dedup();
            return Err(Error::Subsample {
                kind: "pooled",
                points: rows,
                asked: format!("{coarse} points"),
                works: works.join(", "),
            });
        };
        let (solutions, mut coefficients) = (self.targets, self.inputs);
        coefficients.pool(window);
        Ok(Self { inputs: solutions, targets: coefficients, ..self })
    }

    /// Inputs come normalised.
    pub fn normalized(mut self, normalizer: Normalizer) -> Result<Self> {
        if normalizer.mean.shape != self.input_shape() {
            return Err(Error::Shape {
                what: "normaliser of the inputs".into(),
                expected: format!("{:?}, that of an input", self.input_shape()),
                found: normalizer.mean.shape,
            });
        }
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
    pub fn fit_inputs(&self, indices: &[usize]) -> Result<Normalizer> {
        fit(&self.inputs, indices)
    }

    /// A normaliser of the targets of these samples.
    pub fn fit_targets(&self, indices: &[usize]) -> Result<Normalizer> {
        fit(&self.targets, indices)
    }

    /// Range, mean and values that are no numbers, of inputs and of targets, without normalisation and noise.
    pub fn summaries(&self) -> Result<[Summary; 2]> {
        Ok([summary(&self.inputs)?.0, summary(&self.targets)?.0])
    }

    /// An error if any value is not finite: nothing can be learned from such a dataset.
    pub fn check_finite(&self) -> Result<()> {
        for field in [&self.inputs, &self.targets] {
            let (summary, first) = summary(field)?;
            if let Some(sample) = first {
                let Summary { nan, infinite, .. } = summary;
                return Err(Error::NotFinite { what: field.name(), nan, infinite, sample });
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

/// In the order of `indices`, one sample in memory at a time.
fn fit(field: &Field, indices: &[usize]) -> Result<Normalizer> {
    let mut fit = Fit::new(&field.shape());
    let mut sample = Vec::new();
    for index in indices {
        sample.clear();
        field.read(*index, &mut sample)?;
        fit.add(&sample)?;
    }
    fit.finish()
}

/// The summary of a field and the first sample with a value that is not finite.
fn summary(field: &Field) -> Result<(Summary, Option<usize>)> {
    let (mut summary, mut first) = (Summary::default(), None);
    let mut sample = Vec::new();
    for index in 0..field.samples() {
        sample.clear();
        field.read(index, &mut sample)?;
        summary.add(&sample);
        if first.is_none() && summary.nan + summary.infinite > 0 {
            first = Some(index);
        }
    }
    Ok((summary, first))
}
