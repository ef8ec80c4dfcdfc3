//! Datasets from arrays and folders: samples, coarser grids, the inverse problem, normalisers.

use galerkin_data::dataset::Statistics;
use galerkin_data::meta::FORMAT;
use galerkin_data::normalize::{Fit, Normalizer};
use galerkin_data::pde::inverse;
use galerkin_data::{Array, Dataset, Error, Grid, Meta};

/// Every value tells its place: 10000·sample + place in the sample, targets negative.
fn numbered(periodic: bool, shape: &[usize]) -> Dataset {
    let len: usize = shape[1..].iter().product();
    let values: Vec<f32> = (0..shape[0] * len).map(|at| (at / len * 10000 + at % len) as f32).collect();
    let targets = Array { shape: shape.to_vec(), values: values.iter().map(|v| -v).collect() };
    Dataset::from_arrays(
        Array { shape: shape.to_vec(), values },
        targets,
        Grid::unit(&shape[1..shape.len() - 1], periodic),
    )
    .unwrap()
}

#[test]
fn samples_and_batches() {
    let dataset = numbered(true, &[3, 4, 2]);
    assert_eq!((dataset.len(), dataset.input_shape(), dataset.target_shape()), (3, vec![4, 2], vec![4, 2]));
    let pair = dataset.sample(1).unwrap();
    assert_eq!(pair.input.shape, [4, 2]);
    assert_eq!(pair.input.values[..3], [10000.0, 10001.0, 10002.0]);
    let batch = dataset.batch(&[2, 0]).unwrap();
    assert_eq!(batch.target.shape, [2, 4, 2]);
    assert_eq!((batch.target.values[0], batch.target.values[8]), (-20000.0, -0.0));
    let error = dataset.sample(3).unwrap_err().to_string();
    assert_eq!(error, "sample 3: inputs has 3 samples");
}

#[test]
fn fingerprints_tell_samples_apart() {
    let dataset = numbered(true, &[3, 4, 2]);
    let fingerprints: Vec<_> = (0..3).map(|index| dataset.fingerprint(index).unwrap()).collect();
    assert!(fingerprints.iter().all(|text| text.len() == 16));
    assert!(fingerprints[0] != fingerprints[1] && fingerprints[1] != fingerprints[2]);
    let more = numbered(true, &[9, 4, 2]);
    assert_eq!(more.fingerprint(2).unwrap(), fingerprints[2]);
}

#[test]
fn any_damage_to_a_file_of_ours_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("normalizer.safetensors");
    let array = |first: f32| Array { shape: vec![2, 1], values: vec![first, 2.5] };
    let normalizer = Normalizer::new(array(-1.0), array(0.5)).unwrap();
    normalizer.save(&path).unwrap();
    assert_eq!(Normalizer::open(&path).unwrap(), normalizer);
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut damaged = good.clone();
            damaged[at] ^= 1 << bit;
            std::fs::write(&path, &damaged).unwrap();
            let error = Normalizer::open(&path).expect_err(&format!("bit {bit} of byte {at}")).to_string();
            assert!(error.contains("normalizer.safetensors"), "{error}");
        }
    }
}

#[test]
fn a_folder_from_arrays_in_memory_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine");
    let meta = Meta {
        format: FORMAT,
        samples: 3,
        version: "test".into(),
        seed: None,
        inputs: vec!["a".into(), "b".into()],
        targets: vec!["u".into()],
        files: Vec::new(),
        split: None,
        checksums: Default::default(),
        domain: Grid::unit(&[4], true).into(),
        target_domain: None,
        time: None,
        problem: None,
    };
    let array = |channels| {
        let shape = vec![3, 4, channels];
        Array { values: (0..12 * channels).map(|at| at as f32).collect(), shape }
    };
    let arrays =
        |channels| [("inputs.npy".to_string(), array(channels)), ("targets.npy".to_string(), array(1))];
    // Three channels where two have names.
    assert!(Dataset::write(&path, meta.clone(), &arrays(3)).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let dataset = Dataset::write(&path, meta.clone(), &arrays(2)).unwrap();
    assert_eq!(dataset.sample(2).unwrap().input.values, [16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0]);
    assert_eq!(dataset.meta().unwrap().checksums.len(), 2);
    assert!(matches!(Dataset::write(&path, meta, &arrays(2)), Err(Error::Exists { .. })));
    std::fs::write(path.join("targets.npy"), std::fs::read(path.join("inputs.npy")).unwrap()).unwrap();
    assert!(matches!(Dataset::open(&path), Err(Error::Shape { .. } | Error::Checksum { .. })));
}

#[test]
fn coarser_grids_are_every_so_many_points() {
    let line = numbered(true, &[2, 12, 2]).subsample(3).unwrap();
    assert_eq!(line.grid().unwrap().points(), [4]);
    assert_eq!(
        line.sample(1).unwrap().input.values,
        [0, 1, 6, 7, 12, 13, 18, 19].map(|v| 10000.0 + v as f32)
    );
    // Twice in a row is once by the product.
    let twice = numbered(true, &[2, 12, 2]).subsample(3).unwrap().subsample(2).unwrap();
    assert_eq!(
        twice.sample(0).unwrap(),
        numbered(true, &[2, 12, 2]).subsample_to(2).unwrap().sample(0).unwrap()
    );

    let square = numbered(false, &[2, 7, 7, 1]).subsample_to(3).unwrap();
    assert_eq!(
        (square.grid().unwrap().points(), square.grid().unwrap().spacing()),
        (vec![3, 3], vec![0.5, 0.5])
    );
    assert_eq!(square.sample(0).unwrap().input.values, [0.0, 3.0, 6.0, 21.0, 24.0, 27.0, 42.0, 45.0, 48.0]);
    let memory = square.clone().into_memory().unwrap();
    assert_eq!(memory.batch(&[1, 0]).unwrap(), square.batch(&[1, 0]).unwrap());
    assert_eq!(memory.subsample(2).unwrap().grid().unwrap().points(), [2, 2]);
}

#[test]
fn grids_that_do_not_nest_are_refused_with_those_that_do() {
    let message = |dataset: galerkin_data::Result<Dataset>| dataset.unwrap_err().to_string();
    assert_eq!(
        message(numbered(true, &[1, 12, 1]).subsample(5)),
        "a grid of 12 points, x periodic cannot be subsampled to every 5th point; sizes that work: 12, 6, 4, 3, 2, 1"
    );
    assert_eq!(
        message(numbered(false, &[1, 13, 13, 1]).subsample_to(6)),
        "a grid of 13 × 13 points, y and x closed cannot be subsampled to 6 points along y; sizes that work: 13, 7, 5, 4, 3, 2"
    );
    // Both axes must end with the grid: 12 and 8 intervals have strides 1, 2 and 4 in common.
    assert_eq!(numbered(false, &[1, 13, 9, 1]).grid().unwrap().sizes(), [13, 7, 4]);
    assert!(numbered(true, &[1, 12, 1]).subsample(0).is_err());
    assert_eq!(numbered(false, &[1, 421, 421, 1]).grid().unwrap().sizes()[..6], [421, 211, 141, 106, 85, 71]);
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let array = |shape: &[usize], len: usize| Array { shape: shape.to_vec(), values: vec![0.0; len] };
    let grid = || Grid::unit(&[3], true);
    let message = |inputs, targets| Dataset::from_arrays(inputs, targets, grid()).unwrap_err().to_string();
    assert_eq!(
        message(array(&[2, 3, 1], 6), array(&[2, 4, 1], 8)),
        "targets: expected shape (samples, 3, channels), found [2, 4, 1]"
    );
    assert_eq!(
        message(array(&[2, 3], 6), array(&[2, 3], 6)),
        "inputs: expected shape (samples, 3, channels), found [2, 3]"
    );
    assert_eq!(
        message(array(&[2, 3, 1], 5), array(&[2, 3, 1], 6)),
        "inputs: expected shape 5 values, found [2, 3, 1]"
    );
    assert_eq!(
        message(array(&[2, 3, 1], 6), array(&[1, 3, 1], 3)),
        "targets: expected shape 2 samples, as inputs have, found [1, 3, 1]"
    );
    assert!(Dataset::from_arrays(array(&[0, 3, 1], 0), array(&[0, 3, 2], 0), grid()).unwrap().is_empty());
}

#[test]
fn values_that_are_no_numbers_are_found() {
    let mut values = vec![1.0; 12];
    let targets = Array { shape: vec![4, 3, 1], values: values.clone() };
    values[7] = f32::NAN;
    values[10] = f32::NEG_INFINITY;
    let inputs = Array { shape: vec![4, 3, 1], values };
    let dataset = Dataset::from_arrays(inputs, targets, Grid::unit(&[3], true)).unwrap();
    let [inputs, targets] = dataset.summaries().unwrap();
    assert_eq!((inputs.nan, inputs.infinite, targets.nan, targets.infinite), (1, 1, 0, 0));
    let error = dataset.check_finite().unwrap_err();
    assert!(matches!(error, Error::NotFinite { sample: 2, .. }));
    assert_eq!(
        error.to_string(),
        "inputs: expected finite values, found 1 NaN and 1 infinite, first in sample 2"
    );
    // The last sample is the only other bad one, and a coarser grid may miss both.
    numbered(true, &[2, 4, 1]).check_finite().unwrap();
}

#[test]
fn the_inverse_problem_asks_for_pooled_coefficients() {
    let forward = numbered(false, &[2, 13, 13, 1]);
    let fine = forward.sample(1).unwrap();
    let dataset = forward.clone().subsample(3).unwrap().inverse(Some(3)).unwrap();
    assert_eq!(
        (dataset.grid().unwrap().points(), dataset.target_grid().unwrap().points()),
        (vec![5, 5], vec![3, 3])
    );
    let pair = dataset.sample(1).unwrap();
    // Inputs are solutions at points, targets coefficients averaged twice: 13 → 5 by 3, 5 → 3 by 2.
    assert_eq!(pair.input, forward.clone().subsample(3).unwrap().sample(1).unwrap().target);
    let middle = inverse::pool(&fine.input.values, 13, 13, 3);
    assert_eq!(pair.target, Array { shape: vec![3, 3, 1], values: inverse::pool(&middle, 5, 5, 2) });
    // In memory it is the same.
    assert_eq!(dataset.clone().into_memory().unwrap().sample(1).unwrap(), pair);
    // Once is enough.
    assert!(dataset.clone().inverse(Some(3)).is_err());
    assert!(dataset.subsample(2).is_err());
    // Sizes of the published experiments: 421 → 141 by points, 141 → 36 by means.
    let sizes = numbered(false, &[1, 421, 421, 1]).subsample_to(141).unwrap().inverse(Some(36)).unwrap();
    assert_eq!(
        (sizes.grid().unwrap().points(), sizes.target_grid().unwrap().points()),
        (vec![141, 141], vec![36, 36])
    );
    let error = forward.inverse(Some(6)).unwrap_err().to_string();
    assert!(error.ends_with("averages at 6 points a side; sizes that work: 13, 7, 5, 4, 3, 2, 1"), "{error}");
    let line = numbered(true, &[2, 12, 1]);
    let error = line.clone().inverse(Some(3)).unwrap_err().to_string();
    assert!(error.ends_with("averages need a square grid and inputs of one channel"), "{error}");
    let (before, after) = (line.sample(1).unwrap(), line.inverse(None).unwrap().sample(1).unwrap());
    assert_eq!((before.input, before.target), (after.target, after.input));
}

#[test]
fn inputs_come_normalised_and_then_noisy() {
    let plain = numbered(true, &[5, 6, 1]);
    let normalizer = plain.fit_inputs(&[0, 1, 2], Statistics::Point).unwrap();
    let noisy = plain.clone().noisy(0.1, 9).normalized(normalizer.clone()).unwrap();
    let mut expected = plain.sample(4).unwrap().input.values;
    normalizer.apply(&mut expected).unwrap();
    let noise = inverse::noise(9, 4, 6, 0.1);
    expected.iter_mut().zip(&noise).for_each(|(x, noise)| *x += noise);
    assert_eq!(noisy.sample(4).unwrap().input.values, expected);
    // The same sample always has the same noise; targets and statistics have none.
    assert_eq!(
        noisy.batch(&[4, 4]).unwrap().input.values[..6],
        noisy.batch(&[0, 4]).unwrap().input.values[6..]
    );
    assert_eq!(noisy.sample(4).unwrap().target, plain.sample(4).unwrap().target);
    assert_eq!(noisy.fit_inputs(&[0, 1, 2], Statistics::Point).unwrap(), normalizer);
    let wrong = plain.subsample(2).unwrap().normalized(normalizer).unwrap_err().to_string();
    assert_eq!(wrong, "normaliser of the inputs: expected shape [3, 1], that of an input, found [6, 1]");
}

#[test]
fn grids_of_three_axes_are_subsampled_along_all() {
    let fine = numbered(true, &[2, 4, 6, 2, 1]);
    let coarse = fine.clone().subsample(2).unwrap();
    assert_eq!(coarse.grid().unwrap().points(), [2, 3, 1]);
    // Point (i, j, k) has the number 12 i + 2 j + k.
    assert_eq!(coarse.sample(0).unwrap().input.values, [0.0, 4.0, 8.0, 24.0, 28.0, 32.0]);
}

#[test]
fn statistics_by_channel_are_over_all_points() {
    let values = vec![1.0, 10.0, 3.0, 30.0, 5.0, 50.0, 7.0, 70.0];
    let array = Array { shape: vec![2, 2, 2], values };
    let dataset = Dataset::from_arrays(array.clone(), array, Grid::unit(&[2], false)).unwrap();
    let normalizer = dataset.fit_inputs(&[0, 1], Statistics::Channel).unwrap();
    assert_eq!((&normalizer.mean.shape[..], &normalizer.mean.values[..]), (&[2][..], &[4.0, 40.0][..]));
    let deviation = 5.0f32.sqrt();
    assert_eq!(normalizer.deviation.values, [deviation, 10.0 * deviation]);
    let sample = dataset.normalized(normalizer).unwrap().sample(0).unwrap().input.values;
    // (1 − 4)/√5 and (10 − 40)/(10√5), ε aside.
    assert!(sample[..2].iter().all(|x| (x + 3.0 / deviation).abs() < 1e-5), "{sample:?}");
}

#[test]
fn a_boundary_is_that_of_closed_axes() {
    let mut grid = Grid::unit(&[3, 4], false);
    grid.axes[1].periodic = true;
    let ring = |value: f32, inside: f32| {
        let values = (0..12).map(|at| if at / 4 == 1 { inside } else { value }).collect();
        Array { shape: vec![1, 3, 4, 1], values }
    };
    let zero = |array: Array| Dataset::from_arrays(array.clone(), array, grid.clone()).unwrap();
    assert!(zero(ring(0.0, 1.0)).is_zero_on_boundary().unwrap());
    assert!(!zero(ring(1e-9, 1.0)).is_zero_on_boundary().unwrap());
    let round = Dataset::from_arrays(ring(0.0, 0.0), ring(0.0, 0.0), Grid::unit(&[3, 4], true)).unwrap();
    assert!(!round.is_zero_on_boundary().unwrap(), "a torus has no boundary");
}

#[test]
fn normalisers_fit_invert_and_survive_a_file() {
    // Two samples of two points: means 2 and −1, population deviations 1 and 3.
    let mut fit = Fit::new(&[2, 1]);
    fit.add(&[1.0, 2.0]).unwrap();
    fit.add(&[3.0, -4.0]).unwrap();
    assert!(fit.add(&[0.0]).is_err());
    let normalizer = fit.finish().unwrap();
    assert_eq!(
        (&normalizer.mean.values[..], &normalizer.deviation.values[..]),
        (&[2.0, -1.0][..], &[1.0, 3.0][..])
    );
    let mut sample = [3.0, 8.0];
    normalizer.apply(&mut sample).unwrap();
    assert_eq!(sample, [1.0 / (1.0 + 1e-5), 9.0 / (3.0 + 1e-5)]);
    normalizer.invert(&mut sample).unwrap();
    // A division and a product, and a sum with the mean: one rounding each of values below 16.
    assert!((sample[0] - 3.0).abs() <= 2e-6 && (sample[1] - 8.0).abs() <= 2e-6, "{sample:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("normalizer.safetensors");
    normalizer.save(&path).unwrap();
    assert_eq!(Normalizer::open(&path).unwrap(), normalizer);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing temporary stays");
    std::fs::write(&path, &std::fs::read(&path).unwrap()[..50]).unwrap();
    assert!(Normalizer::open(&path).unwrap_err().to_string().contains("normalizer.safetensors"));
    assert!(normalizer.save(folder.path().join("no/such/folder")).is_err());
    assert!(Fit::new(&[2]).finish().is_err());
}

/// A large mean must not eat the deviation: 10⁴ ± 10⁻², where sums of squares in f32 would leave nothing.
#[test]
fn small_deviations_around_large_means_are_kept() {
    let mut fit = Fit::new(&[1]);
    for step in 0..1000 {
        fit.add(&[10000.0 + if step % 2 == 0 { 0.01 } else { -0.01 }]).unwrap();
    }
    let found = fit.finish().unwrap().deviation.values[0];
    // f32 has steps of 2⁻¹⁰ there: ±0.01 is stored as ±10/1024.
    assert!((found - 10.0 / 1024.0).abs() < 1e-8, "{found}");
}
