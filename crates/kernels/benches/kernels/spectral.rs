//! Spectral convolution against the same computation through fast Fourier transforms.

use std::sync::Arc;

use galerkin_kernels::activation::Activation;
use galerkin_kernels::dropout::Key;
use galerkin_kernels::gemm::{Into, View, ViewMut, gemm};
use galerkin_kernels::spectral::{Grads, Params, SpectralConv1d, SpectralConv2d};
use rayon::prelude::*;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

use crate::timing::{Machine, best_of, values};

/// Rows per product of the pointwise path, and per partial sum of its gradients, in the layer by fast transforms.
const SHARE: usize = 256;
const LANE: usize = 16 * SHARE;

pub fn run(machine: &Machine) {
    println!("GEMM share: the products our kernel executes, per second, as a fraction of R.");
    println!("| layer | pass | ours ms | FFT ms | ours/FFT | GEMM share |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let (activation, key) = (Activation::Silu, Key::default());
    let line = SpectralConv1d {
        batch: 4,
        n: 8192,
        inputs: 96,
        outputs: 48,
        modes: 16,
        pointwise: true,
        activation,
        dropout: 0.0,
        key,
    };
    compare(machine, "1D 8192, 16 modes, 96 → 48, batch 4", Conv::Line(line));
    let grid = SpectralConv2d {
        batch: 4,
        n1: 141,
        n2: 141,
        inputs: 32,
        outputs: 32,
        modes: 12,
        pointwise: true,
        activation,
        dropout: 0.0,
        key,
    };
    compare(machine, "2D 141×141, 12 modes, 32 → 32, batch 4", Conv::Grid(grid));
    // Where a fast transform is at its best: a power of two, and many modes.
    for (name, modes) in
        [("1D 8192, 32 modes, 32 → 32, batch 4", 32), ("1D 8192, 128 modes, 32 → 32, batch 4", 128)]
    {
        compare(machine, name, Conv::Line(SpectralConv1d { inputs: 32, outputs: 32, modes, ..line }));
    }
    let grid = SpectralConv2d { n1: 128, n2: 128, ..grid };
    compare(machine, "2D 128×128, 12 modes, 32 → 32, batch 4", Conv::Grid(grid));
}

#[derive(Clone, Copy)]
enum Conv {
    Line(SpectralConv1d),
    Grid(SpectralConv2d),
}

fn compare(machine: &Machine, name: &str, conv: Conv) {
    let fft = FftConv::new(conv);
    let (points, i, o) = (fft.batch * fft.n1 * fft.n2, fft.inputs, fft.outputs);
    let (weights, w, b) = (values(fft.slots.len() * fft.modes * 2 * i * o), values(i * o), values(o));
    let (x, dy) = (values(points * i), values(points * o));
    let params = Params { weights: &weights, w: &w, b: &b };

    let (saved, workspace) = match conv {
        Conv::Line(c) => (c.saved_len(), c.workspace_len(machine.threads)),
        Conv::Grid(c) => (c.saved_len(), c.workspace_len(machine.threads)),
    };
    let (mut out, mut saved, mut workspace) = (vec![0.0; points * o], vec![0.0; saved], vec![0.0; workspace]);
    let (mut dx, mut dweights, mut dw, mut db) =
        (vec![0.0; x.len()], vec![0.0; weights.len()], vec![0.0; w.len()], vec![0.0; o]);
    let mut ours = |backward: bool| match conv {
        Conv::Line(c) => {
            let plan = c.plan();
            best_of(4, || {
                c.forward(&plan, &params, &x, &mut out, &mut saved, &mut workspace);
                if backward {
                    let grads = Grads { weights: &mut dweights, w: &mut dw, b: &mut db };
                    c.backward(&plan, &params, &x, &saved, &dy, &mut dx, grads, &mut workspace);
                }
            })
        }
        Conv::Grid(c) => {
            let plan = c.plan();
            best_of(4, || {
                c.forward(&plan, &params, &x, &mut out, &mut saved, &mut workspace);
                if backward {
                    let grads = Grads { weights: &mut dweights, w: &mut dw, b: &mut db };
                    c.backward(&plan, &params, &x, &saved, &dy, &mut dx, grads, &mut workspace);
                }
            })
        }
    };

    let mut memory = fft.memory();
    let (mut out_fft, mut dx_fft) = (vec![0.0; points * o], vec![0.0; x.len()]);
    let (mut dweights_fft, mut dw_fft, mut db_fft) =
        (vec![0.0; weights.len()], vec![0.0; w.len()], vec![0.0; o]);
    let mut theirs = |backward: bool| {
        best_of(4, || {
            fft.forward(&params, &x, &mut out_fft, &mut memory);
            if backward {
                let grads = Grads { weights: &mut dweights_fft, w: &mut dw_fft, b: &mut db_fft };
                fft.backward(&params, &x, &dy, &mut dx_fft, grads, &mut memory);
            }
        })
    };
    // Both in turn, so that a machine that changes its pace does so for both.
    let mut best = [[f64::INFINITY; 2]; 2];
    for _ in 0..8 {
        for (pass, best) in best.iter_mut().enumerate() {
            *best = [best[0].min(ours(pass == 1)), best[1].min(theirs(pass == 1))];
        }
    }
    for (what, a, b) in [
        ("out", &out, &out_fft),
        ("dx", &dx, &dx_fft),
        ("dweights", &dweights, &dweights_fft),
        ("dw", &dw, &dw_fft),
        ("db", &db, &db_fft),
    ] {
        let scale = b.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let error = a.iter().zip(b.iter()).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        // Only to make sure that both compute the same; the tests have the tight tolerances.
        assert!(error < 1e-4 * scale, "{name}: {what} differs by {error} of {scale}");
    }
    for (pass, [ours, theirs]) in ["forward", "forward + backward"].into_iter().zip(best) {
        let flops = fft.gemm_flops(pass != "forward");
        println!(
            "| {name} | {pass} | {:.2} | {:.2} | {:.2} | {:.2} |",
            ours * 1e3,
            theirs * 1e3,
            ours / theirs,
            flops / ours / machine.r()
        );
    }
}

/// The layer by fast transforms: channels first, one transform per channel and line, only kept columns across the lines. It keeps
/// z for the backward pass instead of computing it again.
struct FftConv {
    batch: usize,
    /// 1 for a line.
    n1: usize,
    n2: usize,
    inputs: usize,
    outputs: usize,
    modes: usize,
    /// k₁ of every kept row.
    slots: Vec<usize>,
    activation: Activation,
    real: Arc<dyn RealToComplex<f32>>,
    inverse_real: Arc<dyn ComplexToReal<f32>>,
    across: Arc<dyn Fft<f32>>,
    inverse_across: Arc<dyn Fft<f32>>,
}

/// Everything the passes write to besides their results.
struct Memory {
    /// Channels first, of the wider side.
    planes: Vec<f32>,
    /// Points first.
    points: Vec<f32>,
    z: Vec<f32>,
    dz: Vec<f32>,
    /// (B, channels, m, slots)
    modes: Vec<Complex32>,
    /// (m, slots, B, 2, channels), as ours
    before: Vec<f32>,
    after: Vec<f32>,
    dmodes: Vec<f32>,
    /// dW and db of every lane.
    sums: Vec<f32>,
}

impl FftConv {
    fn new(conv: Conv) -> Self {
        let (batch, n1, n2, inputs, outputs, modes, activation) = match conv {
            Conv::Line(c) => (c.batch, 1, c.n, c.inputs, c.outputs, c.modes, c.activation),
            Conv::Grid(c) => (c.batch, c.n1, c.n2, c.inputs, c.outputs, c.modes, c.activation),
        };
        let slots = match conv {
            Conv::Line(_) => vec![0],
            Conv::Grid(_) => (0..modes).chain(n1 - modes..n1).collect(),
        };
        let (mut real, mut complex) = (RealFftPlanner::new(), FftPlanner::new());
        Self {
            batch,
            n1,
            n2,
            inputs,
            outputs,
            modes,
            slots,
            activation,
            real: real.plan_fft_forward(n2),
            inverse_real: real.plan_fft_inverse(n2),
            across: complex.plan_fft_forward(n1),
            inverse_across: complex.plan_fft_inverse(n1),
        }
    }

    /// FLOPs of the products that our kernel executes: both transforms along n₂ and n₁, the pointwise path, and once more in the
    /// backward pass with z computed again. Mixing is left out; it is below two in a hundred.
    fn gemm_flops(&self, backward: bool) -> f64 {
        let (points, m) = ((self.batch * self.n1 * self.n2) as f64, self.modes as f64);
        let (i, o) = (self.inputs as f64, self.outputs as f64);
        let h = if self.n1 == 1 { 0.0 } else { m + 1.0 };
        let across = 2.0 * (self.batch * self.n1) as f64 * 2.0 * h * 2.0 * m;
        let transform = |w: f64| (2.0 * points * 2.0 * m + across) * w;
        let pointwise = 2.0 * points * i * o;
        let forward = transform(i) + transform(o) + pointwise;
        if !backward {
            return forward;
        }
        forward + (transform(o) + pointwise) + transform(o) + transform(i) + 2.0 * pointwise
    }

    fn n(&self) -> usize {
        self.n1 * self.n2
    }

    fn memory(&self) -> Memory {
        let (points, widest) = (self.batch * self.n(), self.inputs.max(self.outputs));
        let modes = self.batch * self.slots.len() * self.modes;
        Memory {
            planes: vec![0.0; points * widest],
            points: vec![0.0; points * widest],
            z: vec![0.0; points * self.outputs],
            dz: vec![0.0; points * self.outputs],
            modes: vec![Complex32::default(); modes * widest],
            before: vec![0.0; 2 * modes * self.inputs],
            after: vec![0.0; 2 * modes * widest],
            dmodes: vec![0.0; 2 * modes * self.outputs],
            sums: vec![0.0; points.div_ceil(LANE) * (self.inputs + 1) * self.outputs],
        }
    }

    fn forward(&self, params: &Params, x: &[f32], out: &mut [f32], memory: &mut Memory) {
        let (rows, i, o) = (2 * self.batch, self.inputs, self.outputs);
        self.analyze(x, i, &mut memory.planes, &mut memory.modes);
        self.by_mode(&memory.modes, i, &mut memory.before);
        let weights = params.weights.par_chunks(2 * i * o);
        memory.after.par_chunks_mut(rows * o).zip(memory.before.par_chunks(rows * i)).zip(weights).for_each(
            |((y, x), w)| {
                let x = expanded(x, i);
                let w = View::new(w, 2 * i, o);
                gemm(Into::Set, 1.0, View::new(&x, rows, 2 * i), w, ViewMut::new(y, rows, o));
            },
        );
        self.by_sample(&memory.after, o, &mut memory.modes);
        self.synthesize(&memory.modes, o, &mut memory.planes, &mut memory.points);
        out.par_chunks_mut(SHARE * o)
            .zip(memory.z.par_chunks_mut(SHARE * o))
            .zip(memory.points.par_chunks(SHARE * o))
            .zip(x.par_chunks(SHARE * i))
            .for_each(|(((out, z), y), x)| {
                let rows = z.len() / o;
                for (z, y) in z.chunks_exact_mut(o).zip(y.chunks_exact(o)) {
                    z.iter_mut().zip(y).zip(params.b).for_each(|((z, y), b)| *z = y + b);
                }
                let w = View::new(params.w, i, o);
                gemm(Into::Add, 1.0, View::new(x, rows, i), w, ViewMut::new(z, rows, o));
                self.activation.forward(z, out);
            });
    }

    fn backward(
        &self,
        params: &Params,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        memory: &mut Memory,
    ) {
        let (rows, i, o) = (2 * self.batch, self.inputs, self.outputs);
        self.pointwise_backward(x, dy, grads.w, grads.b, memory);
        self.analyze(&memory.dz, o, &mut memory.planes, &mut memory.modes);
        self.by_mode(&memory.modes, o, &mut memory.dmodes);
        // The adjoint of the transform has no c_k, which the fast inverse brings with it: C dY without C is what it takes.
        memory
            .after
            .par_chunks_mut(rows * i)
            .zip(grads.weights.par_chunks_mut(2 * i * o))
            .zip(params.weights.par_chunks(2 * i * o))
            .zip(memory.before.par_chunks(rows * i))
            .zip(memory.dmodes.par_chunks(rows * o))
            .enumerate()
            .for_each(|(mode, ((((dx, dw), w), x), dy))| {
                let k2 = mode / self.slots.len();
                let c = if k2 == 0 || 2 * k2 == self.n2 { 1.0 } else { 2.0 };
                let (x, dy, w) = (expanded(x, i), View::new(dy, rows, o), View::new(w, 2 * i, o));
                gemm(Into::Set, c, View::new(&x, rows, 2 * i).t(), dy, ViewMut::new(dw, 2 * i, o));
                let mut d = vec![0.0; 2 * rows * i];
                gemm(Into::Set, 1.0, dy, w.t(), ViewMut::new(&mut d, rows, 2 * i));
                for (dx, d) in dx.chunks_exact_mut(2 * i).zip(d.chunks_exact(4 * i)) {
                    for c in 0..i {
                        dx[c] = d[c] + d[3 * i + c];
                        dx[i + c] = d[2 * i + c] - d[i + c];
                    }
                }
            });
        self.by_sample(&memory.after, i, &mut memory.modes);
        self.synthesize(&memory.modes, i, &mut memory.planes, &mut memory.points);
        dx.par_chunks_mut(SHARE * i)
            .zip(memory.points.par_chunks(SHARE * i))
            .zip(memory.dz.par_chunks(SHARE * o))
            .for_each(|((dx, points), dz)| {
                dx.copy_from_slice(points);
                let (rows, w) = (dx.len() / i, View::new(params.w, i, o));
                gemm(Into::Add, 1.0, View::new(dz, rows, o), w.t(), ViewMut::new(dx, rows, i));
            });
    }

    /// dz, and dW and db by partial sums.
    fn pointwise_backward(&self, x: &[f32], dy: &[f32], dw: &mut [f32], db: &mut [f32], memory: &mut Memory) {
        let (i, o) = (self.inputs, self.outputs);
        memory
            .dz
            .par_chunks_mut(LANE * o)
            .zip(memory.sums.par_chunks_mut((i + 1) * o))
            .zip(memory.z.par_chunks(LANE * o))
            .zip(dy.par_chunks(LANE * o))
            .zip(x.par_chunks(LANE * i))
            .for_each(|((((dz, sums), z), dy), x)| {
                sums.fill(0.0);
                let (dw, db) = sums.split_at_mut(i * o);
                let inputs = z.chunks(SHARE * o).zip(dy.chunks(SHARE * o)).zip(x.chunks(SHARE * i));
                for (dz, ((z, dy), x)) in dz.chunks_mut(SHARE * o).zip(inputs) {
                    dz.copy_from_slice(dy);
                    self.activation.backward(z, dz);
                    let rows = dz.len() / o;
                    let (x, d) = (View::new(x, rows, i), View::new(dz, rows, o));
                    gemm(Into::Add, 1.0, x.t(), d, ViewMut::new(dw, i, o));
                    for dz in dz.chunks_exact(o) {
                        db.iter_mut().zip(dz).for_each(|(s, v)| *s += v);
                    }
                }
            });
        dw.fill(0.0);
        db.fill(0.0);
        for sums in memory.sums.chunks_exact((i + 1) * o) {
            dw.iter_mut().zip(sums).for_each(|(s, v)| *s += v);
            db.iter_mut().zip(&sums[i * o..]).for_each(|(s, v)| *s += v);
        }
    }

    /// Kept modes of every sample and channel, (B, w, m, slots), not yet scaled.
    fn analyze(&self, x: &[f32], w: usize, planes: &mut [f32], modes: &mut [Complex32]) {
        let (n, n1, n2) = (self.n(), self.n1, self.n2);
        transpose(x, planes, n, w);
        let buffers =
            || (self.real.make_output_vec(), vec![Complex32::default(); n1 * self.modes], self.scratch());
        planes[..x.len()]
            .par_chunks_mut(n)
            .zip(modes.par_chunks_mut(self.modes * self.slots.len()))
            .for_each_init(buffers, |(line, columns, scratch), (plane, modes)| {
                for (p, x) in plane.chunks_exact_mut(n2).enumerate() {
                    self.real.process_with_scratch(x, line, scratch).unwrap();
                    (0..self.modes).for_each(|k2| columns[k2 * n1 + p] = line[k2]);
                }
                if n1 > 1 {
                    self.across.process_with_scratch(columns, scratch);
                }
                for (k2, modes) in modes.chunks_exact_mut(self.slots.len()).enumerate() {
                    modes.iter_mut().zip(&self.slots).for_each(|(m, k1)| *m = columns[k2 * n1 + k1]);
                }
            });
    }

    /// Points (B, n, w) of kept modes (B, w, m, slots).
    fn synthesize(&self, modes: &[Complex32], w: usize, planes: &mut [f32], x: &mut [f32]) {
        let (n, n1, n2) = (self.n(), self.n1, self.n2);
        let buffers = || {
            (self.inverse_real.make_input_vec(), vec![Complex32::default(); n1 * self.modes], self.scratch())
        };
        let len = self.batch * n * w;
        planes[..len].par_chunks_mut(n).zip(modes.par_chunks(self.modes * self.slots.len())).for_each_init(
            buffers,
            |(line, columns, scratch), (plane, modes)| {
                columns.fill(Complex32::default());
                for (k2, modes) in modes.chunks_exact(self.slots.len()).enumerate() {
                    modes.iter().zip(&self.slots).for_each(|(m, k1)| columns[k2 * n1 + k1] = *m);
                }
                if n1 > 1 {
                    self.inverse_across.process_with_scratch(columns, scratch);
                }
                for (p, x) in plane.chunks_exact_mut(n2).enumerate() {
                    line.fill(Complex32::default());
                    (0..self.modes).for_each(|k2| line[k2] = columns[k2 * n1 + p]);
                    // The imaginary part at frequency zero has no effect, and the transform insists that it be absent.
                    line[0].im = 0.0;
                    self.inverse_real.process_with_scratch(line, x, scratch).unwrap();
                }
            },
        );
        transpose_back(planes, &mut x[..len], n, w);
    }

    fn scratch(&self) -> Vec<Complex32> {
        let lens = [
            self.real.get_scratch_len(),
            self.inverse_real.get_scratch_len(),
            self.across.get_inplace_scratch_len(),
            self.inverse_across.get_inplace_scratch_len(),
        ];
        vec![Complex32::default(); lens.into_iter().max().unwrap()]
    }

    /// (B, w, modes) → (modes, B, 2, w), scaled.
    fn by_mode(&self, modes: &[Complex32], w: usize, out: &mut [f32]) {
        let (count, scale) = (self.slots.len() * self.modes, 1.0 / (self.n() as f32).sqrt());
        out.par_chunks_mut(self.batch * 2 * w).enumerate().take(count).for_each(|(mode, out)| {
            for (b, out) in out.chunks_exact_mut(2 * w).enumerate() {
                for c in 0..w {
                    let value = modes[(b * w + c) * count + mode] * scale;
                    (out[c], out[w + c]) = (value.re, value.im);
                }
            }
        });
    }

    /// (modes, B, 2, w) → (B, w, modes), scaled.
    fn by_sample(&self, from: &[f32], w: usize, modes: &mut [Complex32]) {
        let (count, scale) = (self.slots.len() * self.modes, 1.0 / (self.n() as f32).sqrt());
        modes[..self.batch * w * count].par_chunks_mut(count).enumerate().for_each(|(bc, modes)| {
            let (b, c) = (bc / w, bc % w);
            for (mode, value) in modes.iter_mut().enumerate() {
                let at = (mode * self.batch + b) * 2 * w + c;
                *value = Complex32::new(from[at], from[at + w]) * scale;
            }
        });
    }
}

/// A mode of all samples, (B, 2, i), as the real matrix of complex multiplication, (2B, 2i).
fn expanded(mode: &[f32], i: usize) -> Vec<f32> {
    let rows = mode.chunks_exact(2 * i).flat_map(|x| {
        let (re, im) = x.split_at(i);
        re.iter().copied().chain(im.iter().map(|v| -v)).chain(im.iter().copied()).chain(re.iter().copied())
    });
    rows.collect()
}

/// Samples (n, w) → (w, n); threads take 16 channels, which share the cache lines they read.
fn transpose(x: &[f32], planes: &mut [f32], n: usize, w: usize) {
    for (x, planes) in x.chunks_exact(n * w).zip(planes.chunks_exact_mut(n * w)) {
        planes.par_chunks_mut(16 * n).enumerate().for_each(|(block, planes)| {
            for j in (0..n).step_by(16) {
                for (c, plane) in planes.chunks_exact_mut(n).enumerate() {
                    for (j, v) in (j..).zip(&mut plane[j..n.min(j + 16)]) {
                        *v = x[j * w + block * 16 + c];
                    }
                }
            }
        });
    }
}

/// Samples (w, n) → (n, w), by blocks of points.
fn transpose_back(planes: &[f32], x: &mut [f32], n: usize, w: usize) {
    for (planes, x) in planes.chunks_exact(n * w).zip(x.chunks_exact_mut(n * w)) {
        x.par_chunks_mut(16 * w).enumerate().for_each(|(block, x)| {
            for c in 0..w {
                let plane = &planes[c * n + block * 16..];
                x[c..].iter_mut().step_by(w).zip(plane).for_each(|(x, v)| *x = *v);
            }
        });
    }
}
