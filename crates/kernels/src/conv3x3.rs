//! 3 × 3 convolution (cross-correlation, as networks have it), stride 1, zero padding 1, channels last.
//!
//! ```text
//! z[b, i, j] = bias + Σ_{s,t ∈ 0..3} x[b, i + s − 1, j + t − 1] W[s, t]        y = act(drop(z))
//! ```
//!
//! B samples of n1 × n2 pixels with c = `inputs` and o = `outputs` channels; s is the kernel's row, t its column.
//!
//! **One image row is one matrix product.** A *band* lays the three image rows around row i side by side, pixel by
//! pixel: band[j, s] = x[i + s − 1, j − 1], shaped (n2 + 2, 3, c), zero outside the image. The nine taps of pixel j
//! are then the 9c neighbouring values from band[j] on, so the n2 pixels are the rows of an n2 × 9c matrix with row stride 3c
//! that overlap in memory: three copies of x instead of the nine of an explicit patch matrix, and a band stays in
//! cache. The weights it multiplies are ordered (t, s, c, o).
//!
//! The gradients use the same bands: dW = bandᵀ dz, and dx is the convolution of dz with W turned by 180° and transposed.
//! Nothing is saved between forward and backward; with an activation or dropout the backward computes z again.

use std::ops::Range;

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, take};
use crate::dropout::Dropout;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, equal, pieces};
use crate::simd::vectorize;

/// Shapes and options of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv3x3 {
    /// B, samples.
    pub batch: usize,
    /// n1, rows of an image.
    pub n1: usize,
    /// n2, pixels of a row.
    pub n2: usize,
    /// c, channels of x.
    pub inputs: usize,
    /// o, channels of y.
    pub outputs: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Dropout between the convolution and the activation; channel q of pixel (b, i, j) lies at position
    /// ((b·n1 + i)·n2 + j)·o + q. `None` outside training.
    pub dropout: Option<Dropout>,
    /// The activation at the end.
    pub activation: Activation,
}

/// Parameters. `T` is f64 for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a, T = f32> {
    /// (3, 3, c, o): kernel row, kernel column, in, out.
    pub w: &'a [T],
    /// (o); empty without bias.
    pub b: &'a [T],
}

/// Gradients of [`Params`], field by field; they are overwritten.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Grads<'a> {
    pub w: &'a mut [f32],
    pub b: &'a mut [f32],
}

impl Conv3x3 {
    /// Values of x.
    pub fn x_len(&self) -> usize {
        self.rows() * self.n2 * self.inputs
    }

    /// Values of y.
    pub fn y_len(&self) -> usize {
        self.rows() * self.n2 * self.outputs
    }

    /// Values of the weights.
    pub fn w_len(&self) -> usize {
        9 * self.inputs * self.outputs
    }

    /// Values of the bias: o or 0.
    pub fn b_len(&self) -> usize {
        if self.bias { self.outputs } else { 0 }
    }

    /// Values of the workspace of [`forward`](Self::forward), for all threads of the current pool; one share less
    /// for every thread fewer also works.
    pub fn workspace_len(&self) -> usize {
        self.w_len() + par::threads() * self.share()
    }

    /// y = act(drop(conv(x))).
    pub fn forward(&self, x: &[f32], params: Params, y: &mut [f32], workspace: &mut [f32]) {
        self.check("conv3x3 x", x.len(), self.x_len());
        self.check("conv3x3 y", y.len(), self.y_len());
        self.check_params(["conv3x3 w", "conv3x3 b"], params.w.len(), params.b.len());
        check_at_least("conv3x3 workspace", workspace.len(), self.w_len() + self.share(), &self.sizes());
        let (w, scratch) = workspace.split_at_mut(self.w_len());
        order_taps(params.w, w);
        let params = Params { w, ..params };
        par::for_each(
            self.rows(),
            equal(y, self.n2 * self.outputs),
            scratch,
            self.share(),
            &|row, y, scratch| {
                let (band, z) = self.band_and_z(scratch);
                self.fill_band(x, self.inputs, row, band);
                if self.activation == Activation::None {
                    self.pre_activation(band, params, row, y);
                } else {
                    self.pre_activation(band, params, row, z);
                    self.activation.forward(z, y);
                }
            },
        );
    }

    /// Values of the workspace of [`backward`](Self::backward), for all threads of the current pool.
    pub fn backward_workspace_len(&self) -> usize {
        self.backward_shared_len() + par::threads() * self.share()
    }

    /// The gradients of Σ dy·y: dx (if wanted; the first layer of a network needs none), dW and db.
    pub fn backward(
        &self,
        x: &[f32],
        params: Params,
        dy: &[f32],
        dx: Option<&mut [f32]>,
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.check("conv3x3 x", x.len(), self.x_len());
        self.check("conv3x3 dy", dy.len(), self.y_len());
        self.check_params(["conv3x3 w", "conv3x3 b"], params.w.len(), params.b.len());
        self.check_params(["conv3x3 dw", "conv3x3 db"], grads.w.len(), grads.b.len());
        let needed = self.backward_shared_len() + self.share();
        check_at_least("conv3x3 backward workspace", workspace.len(), needed, &self.sizes());

        let mut rest = workspace;
        let w = take(&mut rest, self.w_len());
        let dw = take(&mut rest, self.lanes() * self.w_len());
        let db = take(&mut rest, self.lanes() * self.b_len());
        let dz = take(&mut rest, self.dz_len());

        // 1. dz = dy·act'(z)·mask, and the lanes' sums of dW and db, while the band of x is at hand.
        order_taps(params.w, w);
        self.backward_lanes(x, Params { w, ..params }, dy, dz, dw, db, rest);
        par::sum_lanes(dw, self.lanes(), grads.w);
        swap_taps(grads.w);
        par::sum_lanes(db, self.lanes(), grads.b);

        // 2. dx = conv(dz) with the turned weights: c and o change places.
        let Some(dx) = dx else { return };
        self.check("conv3x3 dx", dx.len(), self.x_len());
        let dz: &[f32] = if self.saves_dz() { dz } else { dy };
        turn_taps(params.w, self.inputs, self.outputs, w);
        let (w, band_len) = (&*w, self.band_len(self.outputs));
        par::for_each(
            self.rows(),
            equal(dx, self.n2 * self.inputs),
            rest,
            self.share(),
            &|row, dx, scratch| {
                let band = &mut scratch[..band_len];
                self.fill_band(dz, self.outputs, row, band);
                let w = View::new(w, 9 * self.outputs, self.inputs);
                gemm(
                    Into::Set,
                    1.0,
                    self.taps(band, self.outputs),
                    w,
                    ViewMut::new(dx, self.n2, self.inputs),
                );
            },
        );
    }

    /// Step 1 of the backward: every lane sums its image rows in order, into memory of its own.
    fn backward_lanes(
        &self,
        x: &[f32],
        params: Params,
        dy: &[f32],
        dz: &mut [f32],
        dw: &mut [f32],
        db: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (c, o) = (self.inputs, self.outputs);
        let row_len = self.n2 * o;
        let dz = pieces(dz, |lane| if self.saves_dz() { self.lane(lane).start * row_len } else { 0 });
        let parts = (dz, equal(dw, self.w_len()), equal(db, self.b_len()));
        par::for_each(self.lanes(), parts, scratch, self.share(), &|lane, (dz, dw, db), scratch| {
            let (band, z) = self.band_and_z(scratch);
            dw.fill(0.0);
            db.fill(0.0);
            let rows = self.lane(lane);
            for row in rows.clone() {
                let dy = &dy[row * row_len..][..row_len];
                self.fill_band(x, c, row, band);
                let dz = if self.saves_dz() {
                    let dz = &mut dz[(row - rows.start) * row_len..][..row_len];
                    self.pre_activation(band, params, row, z);
                    dz.copy_from_slice(dy);
                    self.activation.backward(z, dz);
                    self.drop(row, dz);
                    dz
                } else {
                    dy
                };
                let taps = self.taps(band, c).t();
                gemm(Into::Add, 1.0, taps, View::new(dz, self.n2, o), ViewMut::new(dw, 9 * c, o));
                if self.bias {
                    add_rows(dz, db);
                }
            }
        });
    }

    /// z = drop(band W + bias), the n2 pixels of one image row. Weights in the order of the band.
    fn pre_activation(&self, band: &[f32], params: Params, row: usize, z: &mut [f32]) {
        let (c, o) = (self.inputs, self.outputs);
        if self.bias {
            z.chunks_exact_mut(o.max(1)).for_each(|z| z.copy_from_slice(params.b));
        }
        let into = if self.bias { Into::Add } else { Into::Set };
        gemm(into, 1.0, self.taps(band, c), View::new(params.w, 9 * c, o), ViewMut::new(z, self.n2, o));
        self.drop(row, z);
    }

    /// Multiplies one image row of o channels by its dropout mask.
    fn drop(&self, row: usize, values: &mut [f32]) {
        if let Some(dropout) = self.dropout {
            dropout.apply((row * self.n2 * self.outputs) as u64, values);
        }
    }

    /// band[j, s] = x[i + s − 1, j − 1] of the image that `row` belongs to, zero outside of it.
    fn fill_band(&self, x: &[f32], channels: usize, row: usize, band: &mut [f32]) {
        let (i, c) = (row % self.n1, channels);
        let row_len = self.n2 * c;
        band[..3 * c].fill(0.0);
        band[(self.n2 + 1) * 3 * c..].fill(0.0);
        let body = &mut band[3 * c..][..3 * row_len];
        for s in 0..3 {
            let inside = (1..=self.n1).contains(&(i + s));
            let from = if inside { &x[(row + s - 1) * row_len..][..row_len] } else { &[] };
            spread(from, c, s, body);
        }
    }

    /// The nine taps of every pixel: n2 × 9c, rows overlapping.
    fn taps<'a>(&self, band: &'a [f32], channels: usize) -> View<'a> {
        View::strided(band, self.n2, 9 * channels, 3 * channels)
    }

    /// Image rows of all samples: the items of work.
    fn rows(&self) -> usize {
        self.batch * self.n1
    }

    /// Partial sums of dW. A lane is worth enough pixels that writing and reading its 9·c·o values is lost in the products that
    /// make them; the number of lanes, a function of sizes alone, bounds the threads of step 1 of the backward.
    fn lanes(&self) -> usize {
        const LANE_PIXELS: usize = 1536;
        const MOST_LANES: usize = 32;
        (self.rows() * self.n2 / LANE_PIXELS).clamp(1, MOST_LANES)
    }

    /// The image rows of a lane.
    fn lane(&self, lane: usize) -> Range<usize> {
        self.rows() * lane / self.lanes()..self.rows() * (lane + 1) / self.lanes()
    }

    /// Whether dz differs from dy and is kept in the workspace.
    fn saves_dz(&self) -> bool {
        self.activation != Activation::None || self.dropout.is_some_and(|d| d.active())
    }

    fn dz_len(&self) -> usize {
        if self.saves_dz() { self.y_len() } else { 0 }
    }

    fn band_len(&self, channels: usize) -> usize {
        (self.n2 + 2) * 3 * channels
    }

    /// Scratch of one thread: the wider of the two bands, and a row of z.
    fn share(&self) -> usize {
        self.band_len(self.inputs.max(self.outputs)) + self.n2 * self.outputs
    }

    /// The band of x and the row of z in one thread's scratch.
    fn band_and_z<'a>(&self, scratch: &'a mut [f32]) -> (&'a mut [f32], &'a mut [f32]) {
        let (band, rest) = scratch.split_at_mut(self.band_len(self.inputs));
        (band, &mut rest[..self.n2 * self.outputs])
    }

    fn backward_shared_len(&self) -> usize {
        self.w_len() + self.lanes() * (self.w_len() + self.b_len()) + self.dz_len()
    }

    #[track_caller]
    fn check_params(&self, what: [&str; 2], w: usize, b: usize) {
        self.check(what[0], w, self.w_len());
        self.check(what[1], b, self.b_len());
    }

    #[track_caller]
    fn check(&self, what: &str, len: usize, expected: usize) {
        check_len(what, len, expected, &self.sizes());
    }

    fn sizes(&self) -> [(&'static str, usize); 6] {
        [
            ("batch", self.batch),
            ("n1", self.n1),
            ("n2", self.n2),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("bias", self.bias as usize),
        ]
    }
}

/// Our (3, 3, in, out) from PyTorch's `Conv2d.weight` (out, in, 3, 3).
pub fn weights_from_torch(torch: &[f32], inputs: usize, outputs: usize, ours: &mut [f32]) {
    check_layouts(torch.len(), ours.len(), inputs, outputs);
    layouts(inputs, outputs).for_each(|(t, o)| ours[o] = torch[t]);
}

/// PyTorch's (out, in, 3, 3) from our (3, 3, in, out).
pub fn weights_to_torch(ours: &[f32], inputs: usize, outputs: usize, torch: &mut [f32]) {
    check_layouts(torch.len(), ours.len(), inputs, outputs);
    layouts(inputs, outputs).for_each(|(t, o)| torch[t] = ours[o]);
}

/// The places of every weight in PyTorch's layout and in ours.
fn layouts(inputs: usize, outputs: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..9 * inputs * outputs).map(move |ours| {
        let (tap, c, q) = (ours / outputs / inputs, ours / outputs % inputs, ours % outputs);
        ((q * inputs + c) * 9 + tap, ours)
    })
}

fn check_layouts(torch: usize, ours: usize, inputs: usize, outputs: usize) {
    let (len, sizes) = (9 * inputs * outputs, [("inputs", inputs), ("outputs", outputs)]);
    check_len("conv3x3 torch weights", torch, len, &sizes);
    check_len("conv3x3 weights", ours, len, &sizes);
}

/// Weights in the order of a band: (s, t, c, o) becomes (t, s, c, o).
fn order_taps(w: &[f32], ordered: &mut [f32]) {
    ordered.copy_from_slice(w);
    swap_taps(ordered);
}

/// Exchanges kernel rows and columns in place.
fn swap_taps(w: &mut [f32]) {
    let tap = w.len() / 9;
    for (s, t) in [(0, 1), (0, 2), (1, 2)] {
        let (head, tail) = w.split_at_mut((3 * t + s) * tap);
        head[(3 * s + t) * tap..][..tap].swap_with_slice(&mut tail[..tap]);
    }
}

/// The weights of dx in the order of a band: turned[t, s, o, c] = w[2 − s, 2 − t, c, o].
fn turn_taps(w: &[f32], inputs: usize, outputs: usize, turned: &mut [f32]) {
    let tap = inputs * outputs;
    for (s, t) in (0..9).map(|k| (k / 3, k % 3)) {
        let from = &w[(3 * (2 - s) + (2 - t)) * tap..][..tap];
        let to = &mut turned[(3 * t + s) * tap..][..tap];
        for (q, to) in to.chunks_exact_mut(inputs.max(1)).enumerate() {
            to.iter_mut().enumerate().for_each(|(c, to)| *to = from[c * outputs + q]);
        }
    }
}

/// Copies an image row into place s of every pixel of a band; an empty row stands for zeros.
fn spread(from: &[f32], c: usize, s: usize, body: &mut [f32]) {
    let pixels = body.chunks_exact_mut(3 * c.max(1));
    if from.is_empty() {
        pixels.for_each(|to| to[s * c..(s + 1) * c].fill(0.0));
    } else {
        pixels.zip(from.chunks_exact(c)).for_each(|(to, from)| to[s * c..(s + 1) * c].copy_from_slice(from));
    }
}

/// `sum += ` every row of `rows`.
fn add_rows(rows: &[f32], sum: &mut [f32]) {
    vectorize(|| {
        for row in rows.chunks_exact(sum.len().max(1)) {
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
        }
    });
}
