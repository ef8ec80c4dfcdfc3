//! Anybody's operators, from arrays to predictions: known answers that the tests write themselves, on every kind of grid.
//!
//! Each training is small and must beat what knows nothing of the operator by a stated factor: zero, the mean of the training targets, the
//! input itself where it fits, and linear regression where the operator is not linear.

use std::f64::consts::{PI, TAU};

use crate::Desk;
use crate::import::{npy, stored};

/// Numbers in (−1, 1) from a counter.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64 * 2.0 - 1.0
    }

    fn take(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Inputs and targets of samples, (samples, points…, channels) each.
struct Arrays {
    samples: usize,
    inputs: (Vec<usize>, Vec<f32>),
    targets: (Vec<usize>, Vec<f32>),
}

impl Arrays {
    /// Of one sample.
    fn len(values: &(Vec<usize>, Vec<f32>)) -> usize {
        values.0[1..].iter().product()
    }

    fn sample(values: &(Vec<usize>, Vec<f32>), index: usize) -> &[f32] {
        let len = Self::len(values);
        &values.1[index * len..(index + 1) * len]
    }

    fn write_npz(&self, desk: &Desk, name: &str) {
        let [inputs, targets] =
            [&self.inputs, &self.targets].map(|(shape, values)| npy(shape, false, values));
        let archive = stored(&[("f.npy", &inputs), ("u.npy", &targets)]);
        std::fs::write(desk.path(name), archive).unwrap();
    }

    /// Mean relative L² error over the test samples, the last ones, of predictions from what came before.
    fn error(&self, tests: usize, predict: impl Fn(usize) -> Vec<f32>) -> f64 {
        let first = self.samples - tests;
        let of = |index: usize| {
            let target = Self::sample(&self.targets, index);
            galerkin::metrics::relative_l2(&predict(index), target, 1).unwrap()[0].unwrap()
        };
        (first..self.samples).map(of).sum::<f64>() / tests as f64
    }

    /// The mean of the targets that are no tests.
    fn mean_error(&self, tests: usize) -> f64 {
        let (train, len) = (self.samples - tests, Self::len(&self.targets));
        let mut mean = vec![0.0f32; len];
        for index in 0..train {
            let target = Self::sample(&self.targets, index);
            mean.iter_mut().zip(target).for_each(|(mean, u)| *mean += u / train as f32);
        }
        self.error(tests, |_| mean.clone())
    }

    /// Linear regression with a small ridge, by the Gram matrix of the samples that are no tests.
    fn regression_error(&self, tests: usize) -> f64 {
        let train = self.samples - tests;
        let product = |a: &[f32], b: &[f32]| {
            1.0 + a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
        };
        let inputs: Vec<&[f32]> = (0..train).map(|index| Self::sample(&self.inputs, index)).collect();
        let mut gram: Vec<Vec<f64>> =
            inputs.iter().map(|a| inputs.iter().map(|b| product(a, b)).collect()).collect();
        let trace: f64 = (0..train).map(|i| gram[i][i]).sum();
        (0..train).for_each(|i| gram[i][i] += 1e-6 * trace / train as f64);
        let len = Self::len(&self.targets);
        let mut right: Vec<Vec<f64>> = (0..train)
            .map(|index| Self::sample(&self.targets, index).iter().map(|u| f64::from(*u)).collect())
            .collect();
        solve(&mut gram, &mut right);
        self.error(tests, |index| {
            let input = Self::sample(&self.inputs, index);
            let mut found = vec![0.0; len];
            for (known, weights) in inputs.iter().zip(&right) {
                let near = product(known, input);
                found.iter_mut().zip(weights).for_each(|(found, weight)| *found += near * weight);
            }
            found.into_iter().map(|u| u as f32).collect()
        })
    }
}

/// Gaussian elimination with pivots: `right` becomes the solutions.
fn solve(matrix: &mut [Vec<f64>], right: &mut [Vec<f64>]) {
    let n = matrix.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|a, b| matrix[*a][k].abs().total_cmp(&matrix[*b][k].abs())).unwrap();
        matrix.swap(k, pivot);
        right.swap(k, pivot);
        for i in (0..n).filter(|i| *i != k) {
            let factor = matrix[i][k] / matrix[k][k];
            let (row, pivot) = (matrix[k].clone(), right[k].clone());
            matrix[i].iter_mut().zip(&row).for_each(|(m, r)| *m -= factor * r);
            right[i].iter_mut().zip(&pivot).for_each(|(m, r)| *m -= factor * r);
        }
    }
    for k in 0..n {
        let by = matrix[k][k];
        right[k].iter_mut().for_each(|r| *r /= by);
    }
}

/// Trains the proposal for a dataset with settings, and gives its error on the test samples with the JSON it stands in.
fn trained(desk: &Desk, data: &str, words: &str) -> (f64, serde_json::Value) {
    desk.works(&format!("train --data {data} --out run-{data} {words} -q"));
    let said = desk.works(&format!("evaluate run-{data} --json"));
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let mean = json["evaluations"][0]["relative_l2"]["mean"].as_f64().unwrap();
    (mean, json)
}

#[track_caller]
fn beats(error: f64, factor: f64, others: &[(&str, f64)]) {
    for (name, other) in others {
        assert!(factor * error < *other, "{error:.3e}, and {name} has {other:.3e}");
    }
}

/// u(x) = ∫₀ˣ (f + 2g) on a closed line of 65 points.
#[test]
fn antiderivative_of_two_channels_on_a_closed_line() {
    let (samples, n, tests) = (100, 65, 10);
    let mut draws = Draws(1);
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let [f, g] = [draws.take(4), draws.take(4)];
        for j in 0..n {
            let x = j as f64 / (n - 1) as f64;
            let mode = |c: &[f64], of: &dyn Fn(f64) -> f64| {
                c.iter().enumerate().map(|(k, c)| c * of(PI * (k as f64 + 0.5))).sum::<f64>()
            };
            let value = |c: &[f64]| mode(c, &|w| (w * x).cos());
            let integral = |c: &[f64]| mode(c, &|w| (w * x).sin() / w);
            inputs.extend([value(&f) as f32, value(&g) as f32]);
            targets.push((integral(&f) + 2.0 * integral(&g)) as f32);
        }
    }
    let arrays =
        Arrays { samples, inputs: (vec![samples, n, 2], inputs), targets: (vec![samples, n, 1], targets) };
    let desk = Desk::new();
    arrays.write_npz(&desk, "line.npz");
    desk.works("import line.npz --inputs f --targets u --layout samples,x,channels --out line");
    let settings = "--set train.epochs=60 --set network.encoder.width=32 --set network.encoder.hidden=64 \
        --set network.encoder.layers=2";
    let (error, json) = trained(&desk, "line", settings);
    assert_eq!(json["evaluations"][0]["channels"][0]["name"], "u");
    beats(error, 10.0, &[("zero", 1.0), ("the mean", arrays.mean_error(tests))]);
    // The Fourier operator too, whose periodic convolutions have to get over the ends.
    desk.works("train --data line --network fno --set train.epochs=40 --set network.spectral.channels=32 --out fno -q");
    let said = desk.works("evaluate fno --json");
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    beats(json["evaluations"][0]["relative_l2"]["mean"].as_f64().unwrap(), 10.0, &[("zero", 1.0)]);
}

/// Heat flow for a time of its own in every sample, on a rectangle of 2 × 1 that is round along x and insulated at the ends of y: u and v
/// and the field of the time go in, u and v come out.
#[test]
fn heat_flow_on_a_cylinder_with_three_channels_in_and_two_out() {
    let (samples, [rows, columns], tests) = (100, [13, 24], 10);
    let mut draws = Draws(2);
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let time = 0.02 + 0.018 * draws.next();
        let [u, v] = [draws.take(18), draws.take(18)];
        // Products of cosines of y and of 1, cos and sin of x.
        let flow = |c: &[f64], x: f64, y: f64, t: f64| {
            let mut sum = 0.0;
            for (at, c) in c.iter().enumerate() {
                let (k, l) = ((at / 6) as f64, at % 6);
                let wave = TAU * (l / 2) as f64 / 2.0;
                let along = if l % 2 == 0 { (wave * x).cos() } else { (wave * x).sin() };
                sum += c * (PI * k * y).cos() * along * (-(wave * wave + PI * PI * k * k) * t).exp();
            }
            sum as f32
        };
        for point in 0..rows * columns {
            let (x, y) = (
                2.0 * (point % columns) as f64 / columns as f64,
                (point / columns) as f64 / (rows - 1) as f64,
            );
            inputs.extend([flow(&u, x, y, 0.0), flow(&v, x, y, 0.0), (50.0 * time) as f32]);
            targets.extend([flow(&u, x, y, time), flow(&v, x, y, time)]);
        }
    }
    let shape = |channels| vec![samples, rows, columns, channels];
    let arrays = Arrays { samples, inputs: (shape(3), inputs), targets: (shape(2), targets) };
    let desk = Desk::new();
    arrays.write_npz(&desk, "heat.npz");
    let axes = "--layout samples,y,x,channels --periodic x --length x=2,y=1";
    let said = desk.works(&format!("import heat.npz --inputs f --targets u {axes} --out heat"));
    assert!(said.contains("x periodic") && said.contains("y closed"), "{said}");
    let settings = "--set train.epochs=40 --set network.encoder.width=32 --set network.encoder.hidden=64 \
        --set network.encoder.layers=2 --set network.decoder.channels=16";
    let (error, json) = trained(&desk, "heat", settings);
    let channels = json["evaluations"][0]["channels"].as_array().unwrap();
    assert_eq!(channels.iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>(), ["u0", "u1"]);
    let input = |index: usize| {
        let pairs = Arrays::sample(&arrays.inputs, index).chunks_exact(3);
        pairs.flat_map(|values| [values[0], values[1]]).collect::<Vec<f32>>()
    };
    let others = [
        ("zero", 1.0),
        ("the mean", arrays.mean_error(tests)),
        ("the input", arrays.error(tests, input)),
        ("linear regression", arrays.regression_error(tests)),
    ];
    beats(error, 2.0, &others);
    let drawn = desk.works("plot run-heat");
    assert!(drawn.contains("samples.png"), "{drawn}");
    desk.works("info heat --figure heat.png");
}

/// −Δu = f in a cube of 16³ points, u zero on its faces.
#[test]
fn poisson_in_a_cube() {
    let (samples, n, tests) = (60, 16, 6);
    let mut draws = Draws(3);
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let c = draws.take(27);
        for point in 0..n * n * n {
            let x = [point / (n * n), point / n % n, point % n].map(|i| i as f64 / (n - 1) as f64);
            let (mut f, mut u) = (0.0, 0.0);
            for (at, c) in c.iter().enumerate() {
                let k = [at / 9, at / 3 % 3, at % 3].map(|k| PI * (k + 1) as f64);
                let wave = k.iter().zip(x).map(|(k, x)| (k * x).sin()).product::<f64>();
                f += c * wave;
                u += c * wave / k.iter().map(|k| k * k).sum::<f64>();
            }
            // Sines of whole multiples of π are zero but for rounding.
            let inside = x.iter().all(|x| *x > 0.0 && *x < 1.0);
            inputs.push(f as f32);
            targets.push(if inside { u as f32 } else { 0.0 });
        }
    }
    let arrays = Arrays {
        samples,
        inputs: (vec![samples, n, n, n], inputs),
        targets: (vec![samples, n, n, n], targets),
    };
    let desk = Desk::new();
    arrays.write_npz(&desk, "cube.npz");
    desk.works("import cube.npz --inputs f --targets u --layout samples,z,y,x --out cube");
    let config = desk.works("config --data cube --network fno");
    assert!(
        config.contains("boundary = \"zero\"") && config.contains("periodic = [false, false, false]"),
        "{config}"
    );
    let settings = "--set train.epochs=12 --set network.encoder.width=24 --set network.encoder.hidden=48 \
        --set network.encoder.layers=1 --set network.decoder.channels=8 --set network.decoder.modes=4 --set train.batch=2 --set train.lr=4e-3";
    let (error, _) = trained(&desk, "cube", settings);
    beats(error, 3.0, &[("zero", 1.0), ("the mean", arrays.mean_error(tests))]);
    let said = desk.works("predict run-cube --input cube/inputs.npy --output y.npy -q");
    assert!(said.contains("60 × 16 × 16 × 16 × 1"), "{said}");
    let file = galerkin_data::io::open(desk.path("y.npy")).unwrap();
    let y = file.read(&file.variables()[0].name).unwrap().values;
    assert!(y[..n * n].iter().all(|u| *u == 0.0), "the face of a cube is not zero");
    desk.works("plot run-cube");
}

/// A circle of 64 points smoothed to one of 32: a Gaussian takes e^(−k²/20) of every frequency k.
#[test]
fn smoothing_from_one_grid_to_another() {
    let (samples, fine, coarse, tests) = (80, 64, 32, 8);
    let mut draws = Draws(4);
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let c = draws.take(24);
        let wave = |x: f64, smooth: bool| {
            let mut sum = 0.0;
            for (at, c) in c.iter().enumerate() {
                let k = (at / 2 + 1) as f64;
                let factor = if smooth { (-k * k / 20.0).exp() } else { 1.0 };
                sum += c * factor * if at % 2 == 0 { (TAU * k * x).cos() } else { (TAU * k * x).sin() };
            }
            sum as f32
        };
        inputs.extend((0..fine).map(|j| wave(j as f64 / fine as f64, false)));
        targets.extend((0..coarse).map(|j| wave(j as f64 / coarse as f64, true)));
    }
    let arrays =
        Arrays { samples, inputs: (vec![samples, fine], inputs), targets: (vec![samples, coarse], targets) };
    let desk = Desk::new();
    arrays.write_npz(&desk, "smooth.npz");
    let said =
        desk.works("import smooth.npz --inputs f --targets u --layout samples,x --periodic x --out smooth");
    assert!(said.contains("64 points") && said.contains("32 points"), "{said}");
    let settings = "--set train.epochs=60 --set network.encoder.width=32 --set network.encoder.hidden=64 \
        --set network.encoder.layers=2 --set network.decoder.channels=32";
    let (error, _) = trained(&desk, "smooth", settings);
    let input = |index: usize| Arrays::sample(&arrays.inputs, index).iter().copied().step_by(2).collect();
    let others =
        [("zero", 1.0), ("the mean", arrays.mean_error(tests)), ("the input", arrays.error(tests, input))];
    beats(error, 4.0, &others);
}

/// A `.mat` file of MATLAB 5 with column-major arrays, samples last.
fn mat(variables: &[(&str, &[usize], Vec<f32>)]) -> Vec<u8> {
    let mut file = [b"MATLAB 5.0 MAT-file".as_slice(), &[b' '; 105]].concat();
    file.extend([0, 1, b'I', b'M']);
    let element = |kind: u32, bytes: &[u8]| {
        let mut element = [kind.to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        element.extend(bytes);
        element.resize(element.len().next_multiple_of(8), 0);
        element
    };
    for (name, shape, values) in variables {
        let dims: Vec<u8> = shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        // Class 7: single precision.
        let parts = [
            element(6, &[7, 0, 0, 0, 0, 0, 0, 0]),
            element(5, &dims),
            element(1, name.as_bytes()),
            element(7, &bytes),
        ];
        file.extend(element(14, &parts.concat()));
    }
    file
}

/// The README's path for people with a `.mat` file: four commands to a figure of predictions. The one for a `.npz` is above.
#[test]
fn four_commands_from_a_matlab_file_to_a_figure() {
    let (samples, n) = (30, 32);
    // The same draws for inputs and targets, which are shifted.
    let wave = |shift: f64| {
        let (mut values, mut draws) = (vec![0.0f32; samples * n], Draws(5));
        for sample in 0..samples {
            let [a, b] = [draws.next(), draws.next()];
            for j in 0..n {
                let x = TAU * (j as f64 / n as f64 + shift);
                values[j + n * sample] = (a * x.cos() + b * (2.0 * x).sin()) as f32;
            }
        }
        values
    };
    let variables = [("a", &[n, samples][..], wave(0.0)), ("u", &[n, samples], wave(0.25))];
    let desk = Desk::new();
    std::fs::write(desk.path("mine.mat"), mat(&variables)).unwrap();
    desk.works("import mine.mat --inputs a --targets u --layout x,samples --periodic x --out datasets/mine");
    desk.works("train --data datasets/mine --out runs/mine --set train.epochs=3 -q");
    let said = desk.works("evaluate runs/mine");
    assert!(said.contains("rel. L2 mean"), "{said}");
    desk.works("plot runs/mine");
    assert!(desk.path("runs/mine/figures/samples.png").exists());
}

/// Exit code 2 and nothing written, whoever finds the wrong setting.
#[test]
fn wrong_settings_for_a_dataset_are_found_before_anything_is_written() {
    let desk = Desk::new();
    let values: Vec<f32> = (0..20 * 16 * 16).map(|v| ((v * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let array = npy(&[20, 16, 16], false, &values);
    std::fs::write(desk.path("a.npz"), stored(&[("f.npy", &array), ("u.npy", &array)])).unwrap();
    desk.works("import a.npz --inputs f --targets u --layout samples,y,x --out d");
    let before = desk.names();
    for (words, message) in [
        ("--set network.inputs=2", "network.inputs = 2"),
        ("--set network.boundary=zero", "take \"free\""),
        ("--set network.decoder.modes=30", "30 modes"),
        ("--set loss.weight=f", "not negative"),
        ("--set loss.weight=g", "the inputs have the channels f"),
        ("--set data.grid=7", "sizes that work"),
        ("--set data.train=19", "20"),
        ("--set network.periodic=[true,true]", "[false, false]"),
        ("--set network.kind=magic", "magic"),
        ("--set train.batch=0", "train.batch = 0"),
    ] {
        let error = desk.fails(&format!("train --data d --out run -q {words}"), 2);
        assert!(error.contains(message), "{words}: {error}");
        assert_eq!(desk.names(), before, "{words}");
    }
    assert!(desk.fails("train --out run", 2).contains("--data DIR"));
    assert!(desk.fails("train --data nothing --out run", 2).contains("no such dataset"));
    assert!(desk.fails("config", 2).contains("--data DIR"));
    // Signed inputs train: nothing weighs by them unless it is said.
    desk.works("train --data d --out run --set train.epochs=1 --set network.encoder.layers=1 -q");
}
