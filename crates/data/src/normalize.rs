//! Normalisers: mean and deviation over samples, at every point of the grid or over all points.

use std::path::Path;

use crate::Array;
use crate::error::{Error, Result};
use crate::io::Tensors;

/// (x − mean)/(deviation + ε) and back, at every value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalizer {
    /// Mean over samples, of the shape of a sample (points…, channels), or over samples and points, (channels).
    pub mean: Array,
    /// Population deviation, of the same shape.
    pub deviation: Array,
}

impl Normalizer {
    /// ε: keeps points where all samples agree from dividing by nothing.
    pub const EPS: f32 = 1e-5;

    /// From mean and deviation of one shape.
    pub fn new(mean: Array, deviation: Array) -> Result<Self> {
        let sound = |array: &Array| array.shape.iter().product::<usize>() == array.values.len();
        if deviation.shape != mean.shape || mean.values.is_empty() || !sound(&mean) || !sound(&deviation) {
            return Err(Error::Shape {
                what: "deviation of a normaliser".into(),
                expected: format!("{:?}, that of the mean", mean.shape),
                found: deviation.shape,
            });
        }
        Ok(Self { mean, deviation })
    }

    /// x becomes (x − mean)/(deviation + ε).
    pub fn apply(&self, sample: &mut [f32]) -> Result<()> {
        self.each(sample, |x, mean, scale| (x - mean) / scale)
    }

    /// x becomes x·(deviation + ε) + mean, the inverse of [`apply`](Self::apply).
    pub fn invert(&self, sample: &mut [f32]) -> Result<()> {
        self.each(sample, |x, mean, scale| x * scale + mean)
    }

    /// Writes `mean` and `std` as safetensors, complete or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let arrays = [("mean", &self.mean), ("std", &self.deviation)];
        let arrays = arrays.map(|(name, array)| (name.to_string(), array.clone()));
        let metadata = [("eps".to_string(), Self::EPS.to_string())];
        Tensors { arrays: arrays.into(), metadata: metadata.into() }.save(path)
    }

    /// Reads what [`save`](Self::save) wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Tensors { mut arrays, .. } = Tensors::open(path)?;
        let mut take = |name: &str| {
            let known = arrays.keys().cloned().collect::<Vec<_>>().join(", ");
            let missing = || Error::NoVariable { path: path.into(), variable: name.into(), known };
            arrays.remove(name).ok_or_else(missing)
        };
        Self::new(take("mean")?, take("std")?)
    }

    /// `Ok` if it takes samples of this shape (points…, channels).
    pub(crate) fn check_shape(&self, sample: &[usize]) -> Result<()> {
        if self.mean.shape == sample || (self.is_by_channel() && self.mean.shape.last() == sample.last()) {
            return Ok(());
        }
        Err(Error::Shape {
            what: "normaliser of the inputs".into(),
            expected: format!("{sample:?}, that of an input"),
            found: self.mean.shape.clone(),
        })
    }

    /// Whether it has one mean and one deviation per channel.
    pub fn is_by_channel(&self) -> bool {
        self.mean.shape.len() == 1
    }

    fn each(&self, sample: &mut [f32], f: impl Fn(f32, f32, f32) -> f32) -> Result<()> {
        let len = self.mean.values.len();
        let fits = if self.is_by_channel() { sample.len().is_multiple_of(len) } else { sample.len() == len };
        if !fits {
            return Err(Error::Shape {
                what: "sample for a normaliser".into(),
                expected: format!("{:?}", self.mean.shape),
                found: vec![sample.len()],
            });
        }
        for part in sample.chunks_exact_mut(len) {
            let statistics = self.mean.values.iter().zip(&self.deviation.values);
            for (x, (mean, deviation)) in part.iter_mut().zip(statistics) {
                *x = f(*x, *mean, deviation + Self::EPS);
            }
        }
        Ok(())
    }
}

/// Mean and deviation of samples that come one by one, in f64 (Welford's recurrence: no difference of large sums).
///
/// Memory is that of two samples in f64, however many come.
#[derive(Clone, Debug)]
pub struct Fit {
    shape: Vec<usize>,
    samples: u64,
    mean: Vec<f64>,
    /// Sums of squared differences from the mean.
    squares: Vec<f64>,
}

impl Fit {
    /// For samples of this shape.
    pub fn new(shape: &[usize]) -> Self {
        let len = shape.iter().product();
        Self { shape: shape.to_vec(), samples: 0, mean: vec![0.0; len], squares: vec![0.0; len] }
    }

    /// One more sample.
    pub fn add(&mut self, sample: &[f32]) -> Result<()> {
        if sample.len() != self.mean.len() {
            return Err(Error::Shape {
                what: "sample for a normaliser".into(),
                expected: format!("{:?}", self.shape),
                found: vec![sample.len()],
            });
        }
        self.samples += 1;
        for ((x, mean), squares) in sample.iter().zip(&mut self.mean).zip(&mut self.squares) {
            let difference = *x as f64 - *mean;
            *mean += difference / self.samples as f64;
            *squares += difference * (*x as f64 - *mean);
        }
        Ok(())
    }

    /// The statistics of all samples so far; at least one.
    pub fn finish(self) -> Result<Normalizer> {
        if self.samples == 0 {
            return Err(Error::setting("normaliser", "there is no sample to fit it to"));
        }
        let array = |values: Vec<f32>| Array { shape: self.shape.clone(), values };
        let deviations = self.squares.iter().map(|sum| (sum / self.samples as f64).sqrt() as f32);
        Normalizer::new(array(self.mean.iter().map(|v| *v as f32).collect()), array(deviations.collect()))
    }
}
