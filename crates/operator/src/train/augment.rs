//! Training samples, changed anew in every epoch: a random element of the config's symmetries, then normalisation, then noise.
//!
//! What happens to a sample is a function of (seed, epoch, index in the dataset), whatever batch it is in.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin_data::normalize::Normalizer;
use galerkin_data::random::{Purpose, Stream};
use galerkin_data::{Array, Dataset};

use crate::config::{Noise, RunConfig};
use crate::error::Result;
use crate::loss::LossTarget;
use crate::samples::{Batch, Samples, View, on_grid};
use crate::symmetry::{Group, Map};

/// The samples that a run is trained on.
#[derive(Debug)]
pub(super) struct TrainingSamples {
    /// Their inputs are neither normalised nor noisy if there is something to change.
    samples: Samples,
    changes: Option<Changes>,
}

/// What happens to samples when a batch is made of them.
#[derive(Debug)]
struct Changes {
    group: Group,
    /// On the grid of the inputs.
    normalizer: Option<Normalizer>,
    noise: Noise,
    seed: u64,
    /// Which samples of the dataset these are.
    indices: Vec<usize>,
}

impl TrainingSamples {
    /// The samples `indices`; the view says what validation samples look like.
    pub(super) fn load(
        config: &RunConfig,
        dataset: &Dataset,
        view: &View,
        indices: &[usize],
        device: &Device,
    ) -> Result<Self> {
        let noise = config.data.noise;
        let loss = Some(&config.loss);
        if config.train.augment.is_empty() && noise.range() == [0.0; 2] {
            return Ok(Self { samples: Samples::load(dataset, view, indices, loss, device)?, changes: None });
        }
        let plain = View { normalizer: None, noise: 0.0, ..*view };
        let samples = Samples::load(dataset, &plain, indices, loss, device)?;
        let normalizer = view.normalizer.map(|n| on_grid(n, &samples.input_grid, device)).transpose()?;
        let group = Group::of(&config.train.augment, &plain.plain(dataset)?)?;
        let changes =
            Changes { group, normalizer, noise, seed: config.train.seed, indices: indices.to_vec() };
        Ok(Self { samples, changes: Some(changes) })
    }

    /// The samples, their inputs perhaps without normalisation.
    pub(super) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The samples at these places, as they are in an epoch.
    pub(super) fn batch(&self, epoch: u32, places: &[usize], device: &Device) -> Result<Batch> {
        let Some(changes) = &self.changes else { return Ok(self.samples.batch(places, device)) };
        let Samples { inputs, targets, slopes, weights, .. } = &self.samples;
        let [mut x, mut u] = [inputs, targets].map(Rows::of);
        let [mut slopes, mut weights] = [slopes, weights].map(|array| array.as_ref().map(Rows::of));
        for place in places {
            let change = changes.draw(epoch, changes.indices[*place]);
            let [of_inputs, of_targets] = &change.maps;
            changes.finish(&change, x.push(*place, of_inputs))?;
            u.push(*place, of_targets);
            if let Some(slopes) = &mut slopes {
                slopes.push(*place, &of_targets.of_slopes());
            }
            if let Some(weights) = &mut weights {
                weights.push(*place, &of_targets.of_scalar());
            }
        }
        let tensor = |rows: Rows| rows.tensor(places.len(), device);
        let target =
            LossTarget { values: tensor(u), slopes: slopes.map(tensor), weight: weights.map(tensor) };
        Ok(Batch { input: tensor(x), target })
    }
}

/// What happens to one sample in one epoch.
struct Change {
    /// To its input and to its target.
    maps: [Map; 2],
    /// The level of noise.
    level: f64,
    epoch: u32,
    sample: u32,
}

impl Changes {
    fn draw(&self, epoch: u32, index: usize) -> Change {
        let sample = index as u32;
        let stream = Stream { seed: self.seed, purpose: Purpose::Augment, index: sample };
        // A number for every symmetry, and one for the level of noise.
        let count = self.group.len() as u64;
        let first = u64::from(epoch) * (count + 1);
        let element = self.group.draw(&stream, first);
        let level = self.noise.at(stream.uniform(first + count));
        Change { maps: [self.group.inputs(&element), self.group.targets(&element)], level, epoch, sample }
    }

    /// Normalisation and noise of an input that was transformed.
    fn finish(&self, change: &Change, input: &mut [f32]) -> Result<()> {
        if let Some(normalizer) = &self.normalizer {
            normalizer.apply(input)?;
        }
        if change.level > 0.0 {
            let stream = Stream { seed: self.seed, purpose: Purpose::TrainingNoise, index: change.sample };
            let mut normals = vec![0.0; input.len()];
            stream.normals_of(change.epoch, &mut normals);
            input.iter_mut().zip(normals).for_each(|(x, z)| *x += (change.level * z) as f32);
        }
        Ok(())
    }
}

/// Transformed rows of an array (samples, points…, channels).
struct Rows<'a> {
    array: &'a Array,
    values: Vec<f32>,
}

impl<'a> Rows<'a> {
    fn of(array: &'a Array) -> Self {
        Self { array, values: Vec::new() }
    }

    /// Appends one, and gives what was appended.
    fn push(&mut self, place: usize, map: &Map) -> &mut [f32] {
        let len: usize = self.array.shape[1..].iter().product();
        let start = self.values.len();
        map.apply(&self.array.values[place * len..(place + 1) * len], &mut self.values);
        &mut self.values[start..]
    }

    /// (B, points, channels)
    fn tensor(self, samples: usize, device: &Device) -> Tensor<3> {
        let channels = self.array.shape.last().copied().unwrap_or(1).max(1);
        let points = self.array.shape[1..].iter().product::<usize>() / channels;
        Tensor::from_data(TensorData::new(self.values, [samples, points, channels]), device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::propose::{NetworkKind, propose};
    use crate::reference::to_vec;
    use galerkin_data::Grid;

    /// Sines of different waves on 16 points, their square as target, with a network proposed for them.
    fn dataset() -> (Dataset, RunConfig) {
        let (samples, n) = (6, 16);
        let wave = |at: usize| {
            let (sample, j) = (at / n, at % n);
            (std::f32::consts::TAU * j as f32 / n as f32 + sample as f32).sin() + 0.1 * sample as f32
        };
        let inputs: Vec<f32> = (0..samples * n).map(wave).collect();
        let targets = inputs.iter().map(|x| x * x * x).collect();
        let array = |values| Array { shape: vec![samples, n, 1], values };
        let dataset = Dataset::from_arrays(array(inputs), array(targets), Grid::unit(&[n], true)).unwrap();
        let mut config = propose(&dataset, std::path::Path::new("waves"), NetworkKind::Fno).unwrap();
        config.loss.gamma = 0.1;
        (dataset, config)
    }

    fn values(batch: &Batch) -> [Vec<f32>; 3] {
        let LossTarget { values, slopes, .. } = batch.target.clone();
        [to_vec(batch.input.clone()), to_vec(values), to_vec(slopes.unwrap())]
    }

    #[test]
    fn a_sample_depends_on_seed_epoch_and_index_and_not_on_its_batch() {
        let (dataset, mut config) = dataset();
        config.train.augment = ["shift x", "flip x -input -target"].map(|s| s.parse().unwrap()).to_vec();
        config.data.noise = Noise::Range([0.0, 0.1]);
        let device = Device::flex();
        let load = |config: &RunConfig, indices: &[usize]| {
            let view = View::of(&config.data, config.train.seed, None);
            TrainingSamples::load(config, &dataset, &view, indices, &device).unwrap()
        };
        let of = |samples: &TrainingSamples, epoch, place| {
            values(&samples.batch(epoch, &[place], &device).unwrap())
        };
        let all = load(&config, &[0, 1, 2, 3, 4, 5]);
        let some = load(&config, &[4, 2]);
        assert_eq!(of(&all, 3, 4), of(&some, 3, 0));
        let pair = values(&all.batch(3, &[2, 4], &device).unwrap());
        for ((pair, a), b) in pair.iter().zip(of(&all, 3, 2)).zip(of(&all, 3, 4)) {
            assert_eq!(*pair, [a, b].concat());
        }
        let first = of(&all, 0, 4);
        let differs = |other: [Vec<f32>; 3]| other[0] != first[0];
        assert!(differs(of(&all, 1, 4)));
        config.train.seed += 1;
        assert!(differs(of(&load(&config, &[4]), 0, 0)));
    }

    #[test]
    fn input_target_and_slopes_change_together() {
        let (dataset, mut config) = dataset();
        config.train.augment = ["shift x", "flip x -input -target"].map(|s| s.parse().unwrap()).to_vec();
        let device = Device::flex();
        let plain = dataset.clone();
        let normalizer = plain.fit_inputs(&[0, 1, 2], galerkin_data::dataset::Statistics::Point).unwrap();
        let view = View::of(&config.data, 1, Some(&normalizer));
        let samples = TrainingSamples::load(&config, &dataset, &view, &[0, 1, 2], &device).unwrap();
        let mut flipped = 0;
        for epoch in 0..20 {
            let [mut x, u, slopes] = values(&samples.batch(epoch, &[1], &device).unwrap());
            normalizer.invert(&mut x).unwrap();
            let h = 1.0 / 16.0;
            for j in 0..16 {
                // The target is the input's cube, whatever was done to both; normalisation and back rounds a few times.
                assert!((x[j].powi(3) - u[j]).abs() < 1e-5, "{epoch}, {j}");
                // Differences of the transformed are the transformed differences: one rounding of values near 6.
                let slope = (u[(j + 1) % 16] - u[(j + 15) % 16]) / (2.0 * h);
                assert!((slopes[j] - slope).abs() < 1e-5, "{epoch}, {j}: {} {slope}", slopes[j]);
            }
            flipped += u32::from(x.iter().sum::<f32>() < 0.0);
        }
        // The mean 0.1 of the wave changes sign with the flip: every other time, and 2 of 2²⁰ times never or always.
        assert!((1..20).contains(&flipped), "{flipped}");
    }

    #[test]
    fn levels_of_a_range_follow_their_law() {
        let noise = Noise::Range([0.02, 0.1]);
        let n = 1000;
        let levels: Vec<f64> = (0..n).map(|i| noise.at((i as f64 + 0.5) / n as f64)).collect();
        assert!(levels.iter().all(|level| (0.02..=0.1).contains(level)));
        let mean = levels.iter().sum::<f64>() / n as f64;
        // The midpoint rule is off by (high − low)/(12 n²).
        assert!((mean - noise.mean()).abs() < 1e-8, "{mean}");
    }
}
