//! Spectral convolution against the same computation through fast Fourier transforms.

use std::sync::Arc;

use galerkin_kernels::activation::Activation;
use galerkin_kernels::dropout::Key;
use galerkin_kernels::gemm::{Into, View, ViewMut, gemm};
use galerkin_kernels::spectral::{Grads, Params, SpectralConv1d, SpectralConv2d, SpectralConv3d};
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
    let volume = SpectralConv3d {
        batch: 2,
        n1: 64,
        n2: 64,
        n3: 40,
        inputs: 20,
        outputs: 20,
        modes: 8,
        pointwise: true,
        activation,
        dropout: 0.0,
        key,
    };
    compare(machine, "3D 64×64×40, 8 modes, 20 → 20, batch 2", Conv::Volume(volume));
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

fn compare(machine: &Machine, name: &str, conv: Conv) {
    let fft = FftConv::new(conv);
    let (points, i, o) = (fft.batch * fft.n(), fft.inputs, fft.outputs);
    let (weights, w, b) = (values(fft.kept() * 2 * i * o), values(i * o), values(o));
    let (x, dy) = (values(points * i), values(points * o));
    let params = Params { weights: &weights, w: &w, b: &b };

    let (saved, workspace) = each!(conv, c => (c.saved_len(), c.workspace_len(machine.threads)));
    let (mut out, mut saved, mut workspace) = (vec![0.0; points * o], vec![0.0; saved], vec![0.0; workspace]);
    let (mut dx, mut dweights, mut dw, mut db) =
        (vec![0.0; x.len()], vec![0.0; weights.len()], vec![0.0; w.len()], vec![0.0; o]);
    let mut ours = |backward: bool| {
        each!(conv, c => {
            let plan = c.plan();
            best_of(4, || {
                c.forward(&plan, &params, &x, &mut out, &mut saved, &mut workspace);
                if backward {
                    let grads = Grads { weights: &mut dweights, w: &mut dw, b: &mut db };
                    c.backward(&plan, &params, &x, &saved, &dy, &mut dx, grads, &mut workspace);
                }
            })
        })
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

/// The layer by fast transforms: channels first, one transform per channel and line, only kept columns across the lines, and
/// only kept rows of these across the planes. It keeps z for the backward pass instead of computing it again.
struct FftConv {
    batch: usize,
    /// 1 for a line and a grid.
    n1: usize,
    /// 1 for a line.
    n2: usize,
    /// The half axis.
    n3: usize,
    inputs: usize,
    outputs: usize,
    modes: usize,
    /// k₁ and k₂ of every kept row.
    slots: [Vec<usize>; 2],
    activation: Activation,
    real: Arc<dyn RealToComplex<f32>>,
    inverse_real: Arc<dyn ComplexToReal<f32>>,
    /// Along n₁ and n₂.
    across: [Arc<dyn Fft<f32>>; 2],
    inverse_across: [Arc<dyn Fft<f32>>; 2],
}

/// What a thread transforms in.
struct Buffers {
    /// The half spectrum of a line.
    line: Vec<Complex32>,
    /// (m, n₁, n₂)
    lines: Vec<Complex32>,
    /// (m, kept k₂, n₁)
    planes: Vec<Complex32>,
    scratch: Vec<Complex32>,
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
        let [n1, n2, n3] = match conv {
            Conv::Line(c) => [1, 1, c.n],
            Conv::Grid(c) => [1, c.n1, c.n2],
            Conv::Volume(c) => [c.n1, c.n2, c.n3],
        };
        let (batch, inputs, outputs, modes, activation) =
            each!(conv, c => (c.batch, c.inputs, c.outputs, c.modes, c.activation));
        let (mut real, mut complex) = (RealFftPlanner::new(), FftPlanner::new());
        Self {
            batch,
            n1,
            n2,
            n3,
            inputs,
            outputs,
            modes,
            slots: [n1, n2].map(|n| if n == 1 { vec![0] } else { (0..modes).chain(n - modes..n).collect() }),
            activation,
            real: real.plan_fft_forward(n3),
            inverse_real: real.plan_fft_inverse(n3),
            across: [n1, n2].map(|n| complex.plan_fft_forward(n)),
            inverse_across: [n1, n2].map(|n| complex.plan_fft_inverse(n)),
        }
    }

    /// FLOPs of the products that our kernel executes: both transforms along all axes, the pointwise path, and once more in the
    /// backward pass with z computed again. Mixing is left out; it is below two in a hundred.
    fn gemm_flops(&self, backward: bool) -> f64 {
        let (points, m) = ((self.batch * self.n()) as f64, self.modes as f64);
        let (i, o) = (self.inputs as f64, self.outputs as f64);
        let (planes, h) = ((self.batch * self.n1) as f64, m + 1.0);
        // Per channel, along n₃ and across lines; in 3D across lines first, and then across planes.
        let products = match (self.n1, self.n2) {
            (1, 1) => points * 2.0 * m,
            (1, n2) => points * 2.0 * m + planes * n2 as f64 * 2.0 * h * 2.0 * m,
            _ => points * 2.0 * h + planes * 2.0 * h * (self.n3 as f64 * 2.0 * m + 4.0 * m * m),
        };
        let transform = |w: f64| 2.0 * products * w;
        let pointwise = 2.0 * points * i * o;
        let forward = transform(i) + transform(o) + pointwise;
        if !backward {
            return forward;
        }
        forward + (transform(o) + pointwise) + transform(o) + transform(i) + 2.0 * pointwise
    }

    fn n(&self) -> usize {
        self.n1 * self.n2 * self.n3
    }

    /// Kept modes.
    fn kept(&self) -> usize {
        self.modes * self.rows()
    }

    /// Kept modes of a column.
    fn rows(&self) -> usize {
        self.slots[0].len() * self.slots[1].len()
    }

    fn memory(&self) -> Memory {
        let (points, widest) = (self.batch * self.n(), self.inputs.max(self.outputs));
        let modes = self.batch * self.kept();
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
                let k3 = mode / self.rows();
                let c = if k3 == 0 || 2 * k3 == self.n3 { 1.0 } else { 2.0 };
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
        transpose(x, planes, self.n(), w);
        let of_lines = self.n1 * self.n2;
        planes[..x.len()].par_chunks_mut(self.n()).zip(modes.par_chunks_mut(self.kept())).for_each_init(
            || self.buffers(),
            |buffers, (x, modes)| {
                let Buffers { line, lines, planes, scratch } = buffers;
                for (j, x) in x.chunks_exact_mut(self.n3).enumerate() {
                    self.real.process_with_scratch(x, line, scratch).unwrap();
                    (0..self.modes).for_each(|k3| lines[k3 * of_lines + j] = line[k3]);
                }
                if self.n2 > 1 {
                    self.across[1].process_with_scratch(lines, scratch);
                }
                self.for_each_row(|of_planes, of_lines| planes[of_planes] = lines[of_lines]);
                if self.n1 > 1 {
                    self.across[0].process_with_scratch(planes, scratch);
                }
                self.for_each_mode(|mode, of_planes| modes[mode] = planes[of_planes]);
            },
        );
    }

    /// Points (B, n, w) of kept modes (B, w, m, slots).
    fn synthesize(&self, modes: &[Complex32], w: usize, planes: &mut [f32], x: &mut [f32]) {
        let (len, of_lines) = (self.batch * self.n() * w, self.n1 * self.n2);
        planes[..len].par_chunks_mut(self.n()).zip(modes.par_chunks(self.kept())).for_each_init(
            || self.buffers(),
            |buffers, (x, modes)| {
                let Buffers { line, lines, planes, scratch } = buffers;
                planes.fill(Complex32::default());
                self.for_each_mode(|mode, of_planes| planes[of_planes] = modes[mode]);
                if self.n1 > 1 {
                    self.inverse_across[0].process_with_scratch(planes, scratch);
                }
                lines.fill(Complex32::default());
                self.for_each_row(|of_planes, of_lines| lines[of_lines] = planes[of_planes]);
                if self.n2 > 1 {
                    self.inverse_across[1].process_with_scratch(lines, scratch);
                }
                for (j, x) in x.chunks_exact_mut(self.n3).enumerate() {
                    line.fill(Complex32::default());
                    (0..self.modes).for_each(|k3| line[k3] = lines[k3 * of_lines + j]);
                    // The imaginary part at frequency zero has no effect, and the transform insists that it be absent.
                    line[0].im = 0.0;
                    self.inverse_real.process_with_scratch(line, x, scratch).unwrap();
                }
            },
        );
        transpose_back(planes, &mut x[..len], self.n(), w);
    }

    /// Calls `f(index in (m, kept k₂, n₁), index in (m, n₁, n₂))` for all that is kept of the transforms along n₂.
    fn for_each_row(&self, mut f: impl FnMut(usize, usize)) {
        for k3 in 0..self.modes {
            for (s2, k2) in self.slots[1].iter().enumerate() {
                for p in 0..self.n1 {
                    let of_planes = (k3 * self.slots[1].len() + s2) * self.n1 + p;
                    f(of_planes, (k3 * self.n1 + p) * self.n2 + k2);
                }
            }
        }
    }

    /// Calls `f(index in (m, slots), index in (m, kept k₂, n₁))` for every kept mode.
    fn for_each_mode(&self, mut f: impl FnMut(usize, usize)) {
        let [first, second] = &self.slots;
        for k3 in 0..self.modes {
            for (s1, k1) in first.iter().enumerate() {
                for s2 in 0..second.len() {
                    let mode = (k3 * first.len() + s1) * second.len() + s2;
                    f(mode, (k3 * second.len() + s2) * self.n1 + k1);
                }
            }
        }
    }

    fn buffers(&self) -> Buffers {
        let zeros = |len: usize| vec![Complex32::default(); len];
        let across = self.across.iter().chain(&self.inverse_across).map(|fft| fft.get_inplace_scratch_len());
        let lens = across.chain([self.real.get_scratch_len(), self.inverse_real.get_scratch_len()]);
        Buffers {
            line: self.real.make_output_vec(),
            lines: zeros(self.modes * self.n1 * self.n2),
            planes: zeros(self.modes * self.slots[1].len() * self.n1),
            scratch: zeros(lens.max().unwrap()),
        }
    }

    /// (B, w, modes) → (modes, B, 2, w), scaled.
    fn by_mode(&self, modes: &[Complex32], w: usize, out: &mut [f32]) {
        let (count, scale) = (self.kept(), 1.0 / (self.n() as f32).sqrt());
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
        let (count, scale) = (self.kept(), 1.0 / (self.n() as f32).sqrt());
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
