//! Spectral convolution in 1D, 2D and 3D against direct sums.

use galerkin_kernels::activation::Activation;
use galerkin_kernels::dropout::Key;
use galerkin_kernels::par::threads;
use galerkin_kernels::reference;
use galerkin_kernels::spectral::{Grads, Params, SpectralConv1d, SpectralConv2d, SpectralConv3d};
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use crate::support::{assert_close, assert_same_bits_with_any_threads, check_gradient, values, widen};

pub const LINE: SpectralConv1d = SpectralConv1d {
    batch: 2,
    n: 29,
    inputs: 3,
    outputs: 4,
    modes: 6,
    pointwise: true,
    activation: Activation::Silu,
    dropout: 0.0,
    key: Key { seed: 5, step: 2, layer: 1 },
};

pub const GRID: SpectralConv2d = SpectralConv2d {
    batch: 2,
    n1: 9,
    n2: 8,
    inputs: 3,
    outputs: 4,
    modes: 3,
    pointwise: true,
    activation: Activation::Silu,
    dropout: 0.0,
    key: Key { seed: 5, step: 2, layer: 1 },
};

pub const VOLUME: SpectralConv3d = SpectralConv3d {
    batch: 2,
    n1: 5,
    n2: 4,
    n3: 6,
    inputs: 3,
    outputs: 4,
    modes: 2,
    pointwise: true,
    activation: Activation::Silu,
    dropout: 0.0,
    key: Key { seed: 5, step: 2, layer: 1 },
};

/// Any of the convolutions, so that every test covers all.
#[derive(Clone, Copy, Debug)]
pub enum Conv {
    Line(SpectralConv1d),
    Grid(SpectralConv2d),
    Volume(SpectralConv3d),
}

/// The same expression of whichever convolution it is.
macro_rules! each {
    ($conv:expr, $c:ident => $body:expr) => {
        match $conv {
            Conv::Line($c) => $body,
            Conv::Grid($c) => $body,
            Conv::Volume($c) => $body,
        }
    };
}

/// Data of a case: weights, W, b, x and the gradient of the output.
struct Data {
    weights: Vec<f32>,
    w: Vec<f32>,
    b: Vec<f32>,
    x: Vec<f32>,
    dy: Vec<f32>,
}

/// What a forward and a backward pass give.
struct Results {
    out: Vec<f32>,
    spectrum: Vec<f32>,
    dx: Vec<f32>,
    dweights: Vec<f32>,
    dw: Vec<f32>,
    db: Vec<f32>,
}

impl Conv {
    fn grid(&self) -> Vec<usize> {
        match self {
            Conv::Line(c) => vec![c.n],
            Conv::Grid(c) => vec![c.n1, c.n2],
            Conv::Volume(c) => vec![c.n1, c.n2, c.n3],
        }
    }

    fn batch(&self) -> usize {
        each!(self, c => c.batch)
    }

    /// Values of the whole half spectrum of all samples.
    fn spectrum_len(&self) -> usize {
        let grid = self.grid();
        let (last, others) = grid.split_last().unwrap();
        self.batch() * each!(self, c => c.outputs) * others.iter().product::<usize>() * (last / 2 + 1) * 2
    }

    fn data(&self) -> Data {
        let (inputs, outputs, pointwise, weights) =
            each!(self, c => (c.inputs, c.outputs, c.pointwise, c.weights_len()));
        let points = self.batch() * self.grid().iter().product::<usize>();
        let w = if pointwise { inputs * outputs } else { 0 };
        Data {
            weights: values(1, weights),
            w: values(2, w),
            b: values(3, if pointwise { outputs } else { 0 }),
            x: values(4, points * inputs),
            dy: values(5, points * outputs),
        }
    }

    fn run(&self, data: &Data) -> Results {
        let params = Params { weights: &data.weights, w: &data.w, b: &data.b };
        // Memory starts as NaN: whatever is read before it is written shows.
        let nan = |len: usize| vec![f32::NAN; len];
        let (saved, forward, both) = each!(self, c => {
            (c.saved_len(), c.forward_workspace_len(threads()), c.workspace_len(threads()))
        });
        let mut saved = nan(saved);
        let mut r = Results {
            out: nan(data.dy.len()),
            spectrum: nan(self.spectrum_len()),
            dx: nan(data.x.len()),
            dweights: nan(data.weights.len()),
            dw: nan(data.w.len()),
            db: nan(data.b.len()),
        };
        let grads = Grads { weights: &mut r.dweights, w: &mut r.dw, b: &mut r.db };
        each!(self, c => {
            let plan = c.plan();
            c.forward(&plan, &params, &data.x, &mut r.out, &mut saved, &mut nan(forward));
            c.spectrum(&plan, &saved, &mut r.spectrum);
            c.backward(&plan, &params, &data.x, &saved, &data.dy, &mut r.dx, grads, &mut nan(both));
        });
        r
    }

    /// Output and spectrum in f64.
    fn reference(&self, weights: &[f64], w: &[f64], b: &[f64], x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let params = Params { weights, w, b };
        match self {
            Conv::Line(c) => reference::spectral_conv1d(c, &params, x),
            Conv::Grid(c) => reference::spectral_conv2d(c, &params, x),
            Conv::Volume(c) => reference::spectral_conv3d(c, &params, x),
        }
    }

    /// Forward parity, and the gradients where `gradients`.
    #[track_caller]
    pub fn check(&self, gradients: bool) {
        let data = self.data();
        let got = self.run(&data);
        let [weights, w, b, x] = [&data.weights, &data.w, &data.b, &data.x].map(|v| widen(v));
        let (out, spectrum) = self.reference(&weights, &w, &b, &x);
        // Two sums over points or modes and two over channels in a row, of a few hundred terms at most: some ten
        // roundings in the largest value, and a margin of a few.
        assert_close(&format!("out of {self:?}"), &got.out, &out, 40.0);
        assert_close(&format!("spectrum of {self:?}"), &got.spectrum, &spectrum, 40.0);
        if !gradients {
            return;
        }
        let loss = |weights: &[f64], w: &[f64], b: &[f64], x: &[f64]| -> f64 {
            let (out, _) = self.reference(weights, w, b, x);
            out.iter().zip(&data.dy).map(|(o, d)| o * *d as f64).sum()
        };
        let name = |what| format!("{what} of {self:?}");
        check_gradient(&name("dx"), &got.dx, &x, |x| loss(&weights, &w, &b, x), 60.0);
        check_gradient(&name("dweights"), &got.dweights, &weights, |v| loss(v, &w, &b, &x), 60.0);
        check_gradient(&name("dw"), &got.dw, &w, |w| loss(&weights, w, &b, &x), 60.0);
        check_gradient(&name("db"), &got.db, &b, |b| loss(&weights, &w, b, &x), 60.0);
    }
}

#[test]
fn lines_of_any_length_match_direct_sums() {
    for n in [1, 2, 3, 5, 8, 29, 32, 64, 97, 300, 1031] {
        for modes in [1, 6, 17, n / 2 + 1] {
            if modes <= n / 2 + 1 {
                Conv::Line(SpectralConv1d { n, modes, ..LINE }).check(n <= 32);
            }
        }
    }
    // Several chunks and lanes, and the last tile of a chunk shorter than the others.
    Conv::Line(SpectralConv1d { n: 2500, modes: 4, inputs: 5, ..LINE }).check(false);
    Conv::Line(SpectralConv1d { n: 1100, modes: 3, batch: 3, inputs: 2, outputs: 2, ..LINE }).check(true);
}

#[test]
fn grids_of_any_shape_match_direct_sums() {
    for (n1, n2) in
        [(1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (5, 8), (8, 3), (8, 8), (9, 9), (16, 7), (21, 20)]
    {
        for modes in 1..=n1.min(n2 / 2 + 1) {
            // From modes = n1/2 + 1 on the blocks overlap; at modes = n1 block 0 is gone.
            Conv::Grid(SpectralConv2d { n1, n2, modes, ..GRID }).check(n1 * n2 <= 25);
        }
    }
    Conv::Grid(SpectralConv2d { n1: 5, n2: 9, modes: 5, ..GRID }).check(true);
    Conv::Grid(SpectralConv2d { n1: 8, n2: 14, modes: 5, ..GRID }).check(true);
    // Several lanes; lines longer and shorter than a tile.
    Conv::Grid(SpectralConv2d { n1: 3, n2: 1200, modes: 2, inputs: 2, outputs: 2, ..GRID }).check(false);
    Conv::Grid(SpectralConv2d { n1: 600, n2: 4, modes: 2, inputs: 2, outputs: 2, ..GRID }).check(false);
    Conv::Grid(SpectralConv2d { n1: 43, n2: 41, modes: 3, inputs: 2, outputs: 2, ..GRID }).check(false);
}

#[test]
fn volumes_of_any_shape_match_direct_sums() {
    // Points of an axis: one, two, odd, prime, even; all three different in turn.
    for (n1, n2, n3) in
        [(1, 1, 1), (1, 2, 3), (2, 2, 2), (3, 2, 5), (2, 5, 3), (4, 4, 4), (3, 4, 6), (6, 3, 4), (5, 7, 8)]
    {
        for modes in 1..=n1.min(n2).min(n3 / 2 + 1) {
            // Among these are 2m = n1, 2m > n in one axis and in both, m = n1, and m = n2, where frequency zero and with it the bias
            // are in the second block.
            Conv::Volume(SpectralConv3d { n1, n2, n3, modes, ..VOLUME }).check(n1 * n2 * n3 <= 80);
        }
    }
    // Several planes in a tile, several lanes, and planes larger than a tile.
    let narrow = SpectralConv3d { batch: 1, inputs: 2, outputs: 2, ..VOLUME };
    Conv::Volume(SpectralConv3d { n1: 43, n2: 5, n3: 11, ..narrow }).check(false);
    Conv::Volume(SpectralConv3d { n1: 3, n2: 37, n3: 31, ..narrow }).check(false);
}

#[test]
fn every_option_matches_direct_sums() {
    for activation in [Activation::None, Activation::Relu, Activation::Silu, Activation::Gelu] {
        for pointwise in [false, true] {
            for dropout in [0.0, 0.4] {
                Conv::Line(SpectralConv1d { activation, pointwise, dropout, ..LINE }).check(true);
                Conv::Grid(SpectralConv2d { activation, pointwise, dropout, ..GRID }).check(true);
                Conv::Volume(SpectralConv3d { activation, pointwise, dropout, ..VOLUME }).check(true);
            }
        }
    }
}

#[test]
fn widths_from_one_channel_up_match_direct_sums() {
    for (inputs, outputs) in [(1, 1), (1, 7), (9, 2), (33, 17)] {
        Conv::Line(SpectralConv1d { inputs, outputs, ..LINE }).check(true);
        Conv::Grid(SpectralConv2d { inputs, outputs, modes: 2, n1: 5, n2: 4, ..GRID }).check(true);
        Conv::Volume(SpectralConv3d { inputs, outputs, n1: 3, n2: 2, n3: 3, ..VOLUME }).check(true);
    }
}

#[test]
fn nothing_in_gives_nothing_out_and_zero_gradients() {
    for (batch, n) in [(0, 29), (2, 0), (0, 0)] {
        for activation in [Activation::None, Activation::Silu] {
            for conv in [
                Conv::Line(SpectralConv1d { batch, n, activation, ..LINE }),
                Conv::Grid(SpectralConv2d { batch, n1: n, n2: 29, activation, ..GRID }),
                Conv::Grid(SpectralConv2d { batch, n1: 29, n2: n, activation, ..GRID }),
                Conv::Volume(SpectralConv3d { batch, n1: n, activation, ..VOLUME }),
                Conv::Volume(SpectralConv3d { batch, n2: n, activation, ..VOLUME }),
                Conv::Volume(SpectralConv3d { batch, n3: n, activation, ..VOLUME }),
            ] {
                let r = conv.run(&conv.data());
                assert!(r.out.is_empty() && r.dx.is_empty());
                for gradient in [r.dweights, r.dw, r.db] {
                    assert!(!gradient.is_empty() && gradient.iter().all(|&g| g == 0.0), "{conv:?}");
                }
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let line = SpectralConv1d { n: 3333, batch: 3, inputs: 10, outputs: 7, dropout: 0.1, ..LINE };
    let grid = SpectralConv2d { n1: 71, n2: 70, modes: 5, batch: 2, dropout: 0.1, ..GRID };
    let volume = SpectralConv3d { n1: 19, n2: 17, n3: 18, modes: 4, dropout: 0.1, ..VOLUME };
    for conv in [Conv::Line(line), Conv::Grid(grid), Conv::Volume(volume)] {
        let data = conv.data();
        assert_same_bits_with_any_threads(&format!("{conv:?}"), || {
            let r = conv.run(&data);
            vec![r.out, r.spectrum, r.dx, r.dweights, r.dw, r.db]
        });
    }
}

#[test]
fn weights_go_to_the_reference_layout_and_back() {
    let (i, o, m) = (LINE.inputs, LINE.outputs, LINE.modes);
    let theirs = values(9, LINE.weights_len());
    let (mut own, mut back) = (vec![0.0; theirs.len()], vec![0.0; theirs.len()]);
    LINE.weights_from_reference(&theirs, &mut own);
    let (c, d, k, part) = (1, 2, 4, 1);
    assert_eq!(own[((k * 2 + part) * i + c) * o + d], theirs[((c * o + d) * m + k) * 2 + part]);
    LINE.weights_to_reference(&own, &mut back);
    assert_eq!(back, theirs);

    let m = GRID.modes;
    let blocks = [values(9, GRID.weights_len() / 2), values(10, GRID.weights_len() / 2)];
    let mut own = vec![0.0; GRID.weights_len()];
    GRID.weights_from_reference([&blocks[0], &blocks[1]], &mut own);
    let (k1, k2) = (2, 1);
    for block in 0..2 {
        assert_eq!(
            own[((((k2 * 2 + block) * m + k1) * 2 + part) * i + c) * o + d],
            blocks[block][(((c * o + d) * m + k1) * m + k2) * 2 + part]
        );
    }
    let mut back = [vec![0.0; blocks[0].len()], vec![0.0; blocks[0].len()]];
    let [first, second] = &mut back;
    GRID.weights_to_reference(&own, [first, second]);
    assert_eq!(back, blocks);

    let m = VOLUME.modes;
    let blocks = [9, 10, 11, 12].map(|tag| values(tag, VOLUME.weights_len() / 4));
    let mut own = vec![0.0; VOLUME.weights_len()];
    VOLUME.weights_from_reference(blocks.each_ref().map(|block| block.as_slice()), &mut own);
    let (k1, k2, k3) = (1, 0, 1);
    for (block, (b1, b2)) in [(0, 0), (1, 0), (0, 1), (1, 1)].into_iter().enumerate() {
        let mode = (((k3 * 2 + b1) * m + k1) * 2 + b2) * m + k2;
        assert_eq!(
            own[((mode * 2 + part) * i + c) * o + d],
            blocks[block][((((c * o + d) * m + k1) * m + k2) * m + k3) * 2 + part]
        );
    }
    let mut back = blocks.each_ref().map(|block| vec![0.0; block.len()]);
    VOLUME.weights_to_reference(&own, back.each_mut().map(|block| block.as_mut_slice()));
    assert_eq!(back, blocks);
}

/// A convolution of one channel with the pointwise path off, whose weights are complex numbers.
fn one_channel(n: usize, modes: usize) -> SpectralConv1d {
    let (batch, activation) = (1, Activation::None);
    SpectralConv1d { n, modes, batch, inputs: 1, outputs: 1, pointwise: false, activation, ..LINE }
}

#[test]
fn the_reference_agrees_with_a_fast_transform() {
    for (n, modes) in [(1, 1), (2, 2), (7, 3), (8, 5), (29, 15), (64, 12)] {
        let conv = one_channel(n, modes);
        let (x, weights) = (widen(&values(1, n)), widen(&values(2, 2 * modes)));
        let (out, spectrum) =
            reference::spectral_conv1d(&conv, &Params { weights: &weights, w: &[], b: &[] }, &x);

        let mut planner = RealFftPlanner::<f64>::new();
        let (mut input, mut bins) = (x.clone(), vec![Complex::default(); n / 2 + 1]);
        planner.plan_fft_forward(n).process(&mut input, &mut bins).unwrap();
        for (k, bin) in bins.iter_mut().enumerate() {
            let w =
                if k < modes { Complex::new(weights[2 * k], weights[2 * k + 1]) } else { Complex::default() };
            *bin = *bin / (n as f64).sqrt() * w;
        }
        for (k, bin) in bins.iter().enumerate() {
            assert!((spectrum[2 * k] - bin.re).abs() < 1e-12 && (spectrum[2 * k + 1] - bin.im).abs() < 1e-12);
        }
        // The fast inverse insists that the bins without partner be real; by definition their imaginary part is ignored.
        bins[0].im = 0.0;
        if n % 2 == 0 {
            bins[n / 2].im = 0.0;
        }
        let mut inverse = vec![0.0; n];
        planner.plan_fft_inverse(n).process(&mut bins, &mut inverse).unwrap();
        for (found, want) in out.iter().zip(&inverse) {
            assert!((found - want / (n as f64).sqrt()).abs() < 1e-12, "n = {n}: {found}, {want}");
        }
    }
}

#[test]
fn a_grid_of_plane_waves_is_mixed_mode_by_mode() {
    // x = cos(2π(k₁p/n₁ + k₂q/n₂)) has the one kept mode (k₁, k₂) with 0 < k₂ < n₂/2, so that multiplying by w = i r turns
    // it into −r sin(…); k₁ = −1 is row 2 of block 1 when m = 3.
    let conv = SpectralConv2d {
        batch: 1,
        inputs: 1,
        outputs: 1,
        pointwise: false,
        activation: Activation::None,
        ..GRID
    };
    for (k1, block, row) in [(2, 0, 2), (conv.n1 - 1, 1, 2)] {
        let phase = |j: usize| {
            let (p, q) = ((j / conv.n2) as f64, (j % conv.n2) as f64);
            2.0 * std::f64::consts::PI * (k1 as f64 * p / conv.n1 as f64 + q / conv.n2 as f64)
        };
        let x: Vec<f64> = (0..conv.n1 * conv.n2).map(|j| phase(j).cos()).collect();
        let mut weights = vec![0.0; conv.weights_len()];
        weights[((2 + block) * conv.modes + row) * 2 + 1] = 0.7;
        let (out, _) = reference::spectral_conv2d(&conv, &Params { weights: &weights, w: &[], b: &[] }, &x);
        for (j, found) in out.iter().enumerate() {
            assert!((found + 0.7 * phase(j).sin()).abs() < 1e-12, "k1 = {k1}, point {j}: {found}");
        }
    }
}

#[test]
fn a_volume_of_plane_waves_is_mixed_mode_by_mode() {
    // As for a grid, with one mode of every pair of signs of k₁ and k₂; −1 is row 1 of block 1 when m = 2.
    let conv = SpectralConv3d {
        batch: 1,
        inputs: 1,
        outputs: 1,
        pointwise: false,
        activation: Activation::None,
        ..VOLUME
    };
    let m = conv.modes;
    for (k1, s1) in [(1.0, 1), (-1.0, 2 * m - 1)] {
        for (k2, s2) in [(1.0, 1), (-1.0, 2 * m - 1)] {
            let phase = |j: usize| {
                let [p, q, r] =
                    [j / (conv.n2 * conv.n3), j / conv.n3 % conv.n2, j % conv.n3].map(|v| v as f64);
                let turns = k1 * p / conv.n1 as f64 + k2 * q / conv.n2 as f64 + r / conv.n3 as f64;
                2.0 * std::f64::consts::PI * turns
            };
            let x: Vec<f64> = (0..conv.n1 * conv.n2 * conv.n3).map(|j| phase(j).cos()).collect();
            let mut weights = vec![0.0; conv.weights_len()];
            weights[((2 * m + s1) * 2 * m + s2) * 2 + 1] = 0.7;
            let (out, _) =
                reference::spectral_conv3d(&conv, &Params { weights: &weights, w: &[], b: &[] }, &x);
            for (j, found) in out.iter().enumerate() {
                assert!((found + 0.7 * phase(j).sin()).abs() < 1e-12, "({k1}, {k2}), point {j}: {found}");
            }
        }
    }
}

fn forward_with(conv: SpectralConv1d, x: usize, out: usize, saved: usize, workspace: usize) {
    let data = Conv::Line(conv).data();
    let params = Params { weights: &data.weights, w: &data.w, b: &data.b };
    let mut memory = [out, saved, workspace].map(|len| vec![0.0; len]);
    let [out, saved, workspace] = &mut memory;
    conv.forward(&LINE.plan(), &params, &values(1, x), out, saved, workspace);
}

#[test]
#[should_panic(expected = "x: expected 174 values, found 173 (batch = 2, rows = 29")]
fn a_short_input_is_refused_with_its_sizes() {
    forward_with(LINE, 173, 232, LINE.saved_len(), LINE.workspace_len(1));
}

#[test]
#[should_panic(expected = "saved: expected 168 values, found 167")]
fn a_short_save_is_refused() {
    forward_with(LINE, 174, 232, LINE.saved_len() - 1, LINE.workspace_len(1));
}

#[test]
#[should_panic(expected = "workspace: needs at least")]
fn a_short_workspace_is_refused() {
    forward_with(LINE, 174, 232, LINE.saved_len(), LINE.forward_workspace_len(1) - 1);
}

#[test]
#[should_panic(expected = "n = 28, modes = 6, plan.n = 29, plan.modes = 6")]
fn a_plan_for_another_size_is_refused() {
    forward_with(SpectralConv1d { n: 28, ..LINE }, 168, 224, LINE.saved_len(), LINE.workspace_len(1));
}

#[test]
#[should_panic(expected = "without channels: sizes do not fit (batch = 2, rows = 29")]
fn no_channels_are_refused() {
    forward_with(SpectralConv1d { inputs: 0, ..LINE }, 0, 232, 0, 0);
}

#[test]
#[should_panic(expected = "n = 10, modes = 7, most modes = 6")]
fn more_modes_than_a_line_has_are_refused() {
    SpectralConv1d { n: 10, modes: 7, ..LINE }.plan();
}

#[test]
#[should_panic(expected = "n1 = 9, n2 = 4, modes = 4, most modes = 3")]
fn more_modes_than_a_grid_has_are_refused() {
    SpectralConv2d { n2: 4, modes: 4, ..GRID }.plan();
}

#[test]
#[should_panic(expected = "n1 = 5, n2 = 4, n3 = 6, modes = 5, most modes = 4")]
fn more_modes_than_a_volume_has_are_refused() {
    SpectralConv3d { modes: 5, ..VOLUME }.plan();
}

fn volume_forward_with(conv: SpectralConv3d, x: usize, weights: usize, workspace: usize) {
    let data = Conv::Volume(VOLUME).data();
    let params = Params { weights: &data.weights[..weights], w: &data.w, b: &data.b };
    let [mut out, mut saved, mut workspace] =
        [data.dy.len(), VOLUME.saved_len(), workspace].map(|len| vec![0.0; len]);
    conv.forward(&VOLUME.plan(), &params, &data.x[..x], &mut out, &mut saved, &mut workspace);
}

#[test]
#[should_panic(expected = "x: expected 720 values, found 719 (batch = 2, rows = 5, points per row = 24")]
fn a_short_volume_is_refused_with_its_sizes() {
    volume_forward_with(VOLUME, 719, VOLUME.weights_len(), VOLUME.workspace_len(1));
}

#[test]
#[should_panic(expected = "spectral weights: expected 768 values, found 767")]
fn short_weights_of_a_volume_are_refused() {
    volume_forward_with(VOLUME, 720, VOLUME.weights_len() - 1, VOLUME.workspace_len(1));
}

#[test]
#[should_panic(expected = "workspace: needs at least")]
fn a_short_workspace_of_a_volume_is_refused() {
    volume_forward_with(VOLUME, 720, VOLUME.weights_len(), VOLUME.forward_workspace_len(1) - 1);
}

#[test]
#[should_panic(
    expected = "n3 = 7, inputs = 3, outputs = 4, modes = 2, plan.n1 = 5, plan.n2 = 4, plan.n3 = 6"
)]
fn a_plan_for_another_volume_is_refused() {
    let other = SpectralConv3d { n3: 7, ..VOLUME };
    volume_forward_with(other, 720, VOLUME.weights_len(), other.workspace_len(1));
}
