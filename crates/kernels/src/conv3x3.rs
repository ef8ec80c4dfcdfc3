//! 3 × 3 convolution (cross-correlation, as networks have it), stride 1, zero padding 1, channels last.
//!
//! ```text
//! z[b, i, j] = bias + Σ_{s,t ∈ 0..3} x[b, i + s − 1, j + t − 1] W[s, t]        y = act(drop(z))
//! ```
//!
//! B samples of n1 × n2 pixels with c = `inputs` and o = `outputs` channels; s is the kernel's row, t its column.
//!
//! **A tile of image rows is three matrix products.** A tile is copied into a *frame*: its r rows and the one above and
//! below, each with a pixel of zeros at both ends, n2 + 2 = `wide` pixels in all. The three taps (s, 0..3) of a pixel are then
//! 3c neighbouring values, so the windows of kernel row s are a matrix with 3c columns and a row stride of c, overlapping in
//! memory, and z = Σ_s windows_s W_s: nothing is copied nine times, and the weights are used as they are stored. At the end of
//! each row, two windows reach into the next one; these 2/wide of the products are computed and thrown away, which
//! costs less than one product per image row would in packing the weights anew.
//!
//! The gradients use the same frames: dW_s = windows_sᵀ dz, with zeros in dz for the two false windows, and dx is the
//! convolution of dz with W turned by 180° and transposed. Nothing is saved between forward and backward; with an activation
//! or dropout the backward computes z again.

use std::ops::Range;

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, take};
use crate::dropout::Dropout;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Rows, equal, pieces};
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
        self.batch * self.n1 * self.n2 * self.inputs
    }

    /// Values of y.
    pub fn y_len(&self) -> usize {
        self.batch * self.n1 * self.n2 * self.outputs
    }

    /// Values of the weights.
    pub fn w_len(&self) -> usize {
        9 * self.inputs * self.outputs
    }

    /// Values of the bias: o or 0.
    pub fn b_len(&self) -> usize {
        if self.bias { self.outputs } else { 0 }
    }

    /// Values of workspace that [`forward`](Self::forward) needs for `threads` threads.
    pub fn forward_workspace_len(&self, threads: usize) -> usize {
        threads.max(1) * self.share()
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        self.backward_shared_len() + threads.max(1) * self.share()
    }

    /// y = act(drop(conv(x))).
    pub fn forward(&self, x: &[f32], params: Params, y: &mut [f32], workspace: &mut [f32]) {
        self.check("conv3x3 x", x.len(), self.x_len());
        self.check("conv3x3 y", y.len(), self.y_len());
        self.check_params(["conv3x3 w", "conv3x3 b"], params.w.len(), params.b.len());
        check_at_least("conv3x3 workspace", workspace.len(), self.forward_workspace_len(1), &self.sizes());
        self.each_tile(y, self.outputs, workspace, &|tile, y, mut scratch| {
            let frame = self.frame(x, self.inputs, &tile, &mut scratch);
            let z = take(&mut scratch, tile.len() * self.wide() * self.outputs);
            self.pre_activation(frame, params, &tile, z);
            self.unframe(z, self.outputs, self.activation, y);
        });
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
        check_at_least("conv3x3 workspace", workspace.len(), self.workspace_len(1), &self.sizes());

        let (mut rest, lanes) = (workspace, self.tiles().lanes);
        let partial = take(&mut rest, lanes * self.lane_len());
        let dz = take(&mut rest, self.dz_len());
        let turned = take(&mut rest, self.w_len());

        // 1. dz = dy·act'(z)·mask, and the lanes' sums of dW and db while the frame of x is at hand.
        self.backward_lanes(x, params, dy, dz, partial, rest);
        par::sum_lanes(partial, lanes, 0, grads.w);
        par::sum_lanes(partial, lanes, self.w_len(), grads.b);

        // 2. dx = conv(dz) with the turned weights: c and o change places.
        let Some(dx) = dx else { return };
        self.check("conv3x3 dx", dx.len(), self.x_len());
        let dz: &[f32] = if self.saves_dz() { dz } else { dy };
        turn(params.w, self.inputs, self.outputs, turned);
        let turned = Params { w: turned, b: &[] };
        self.each_tile(dx, self.inputs, rest, &|tile, dx, mut scratch| {
            let frame = self.frame(dz, self.outputs, &tile, &mut scratch);
            let sum = take(&mut scratch, tile.len() * self.wide() * self.inputs);
            self.correlate(frame, [self.outputs, self.inputs], turned, tile.len(), sum);
            self.unframe(sum, self.inputs, Activation::None, dx);
        });
    }

    /// Step 1 of the backward: every lane sums its tiles in order, into memory of its own.
    fn backward_lanes(
        &self,
        x: &[f32],
        params: Params,
        dy: &[f32],
        dz: &mut [f32],
        partial: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (tiles, o) = (self.tiles(), self.outputs);
        let row_len = self.n2 * o;
        let dz_len = dz.len();
        let dz = pieces(dz, |lane| (tiles.row_of_lane(lane) * row_len).min(dz_len));
        let parts = (dz, equal(partial, self.lane_len()));
        par::for_each(tiles.lanes, parts, scratch, self.share(), &|lane, (mut dz, partial), scratch| {
            partial.fill(0.0);
            let (dw, db) = partial.split_at_mut(self.w_len());
            for tile in tiles.lane(lane).flat_map(|chunk| tiles.tiles(chunk)) {
                let mut scratch = &mut *scratch;
                let frame = self.frame(x, self.inputs, &tile, &mut scratch);
                let framed_dz = take(&mut scratch, tile.len() * self.wide() * o);
                if self.saves_dz() {
                    let z = take(&mut scratch, framed_dz.len());
                    self.pre_activation(frame, params, &tile, z);
                    let dz = take(&mut dz, tile.len() * row_len);
                    self.through_activation(z, &tile, dy, dz);
                    self.frame_gradient(dz, framed_dz);
                } else {
                    self.frame_gradient(&dy[tile.start * row_len..tile.end * row_len], framed_dz);
                }
                self.add_outer(frame, framed_dz, tile.len(), dw);
                if self.bias {
                    add_rows(framed_dz, db);
                }
            }
        });
    }

    /// z = drop(conv(x)) of a tile, rows `wide` pixels apart.
    fn pre_activation(&self, frame: &[f32], params: Params, tile: &Range<usize>, z: &mut [f32]) {
        self.correlate(frame, [self.inputs, self.outputs], params, tile.len(), z);
        let Some(dropout) = self.dropout else { return };
        let row_len = self.n2 * self.outputs;
        for (line, row) in z.chunks_exact_mut((self.wide() * self.outputs).max(1)).zip(tile.clone()) {
            dropout.apply((row * row_len) as u64, &mut line[..row_len]);
        }
    }

    /// z = Σ_s windows_s W[s] + bias for the windows of r image rows, from `c` to `o` channels.
    fn correlate(&self, frame: &[f32], [c, o]: [usize; 2], params: Params, r: usize, z: &mut [f32]) {
        let m = self.windows(r);
        if !params.b.is_empty() {
            z.chunks_exact_mut(o).for_each(|z| z.copy_from_slice(params.b));
        }
        for s in 0..3 {
            let into = if s == 0 && params.b.is_empty() { Into::Set } else { Into::Add };
            let windows = View::strided(&frame[s * self.wide() * c..], m, 3 * c, c);
            let w = View::new(&params.w[3 * s * c * o..][..3 * c * o], 3 * c, o);
            gemm(into, 1.0, windows, w, ViewMut::new(z, m, o));
        }
    }

    /// dW[s] += windows_sᵀ dz, summing over the windows of r image rows.
    fn add_outer(&self, frame: &[f32], dz: &[f32], r: usize, dw: &mut [f32]) {
        let (c, o, m) = (self.inputs, self.outputs, self.windows(r));
        for s in 0..3 {
            let windows = View::strided(&frame[s * self.wide() * c..], m, 3 * c, c);
            let dw = ViewMut::new(&mut dw[3 * s * c * o..][..3 * c * o], 3 * c, o);
            gemm(Into::Add, 1.0, windows.t(), View::new(dz, m, o), dw);
        }
    }

    /// Copies a tile of an image into a frame cut off the scratch: (r + 2, wide, channels), zero outside the image.
    fn frame<'a>(
        &self,
        x: &[f32],
        channels: usize,
        tile: &Range<usize>,
        scratch: &mut &'a mut [f32],
    ) -> &'a [f32] {
        let (row_len, c) = (self.n2 * channels, channels);
        let frame = take(scratch, (tile.len() + 2) * self.wide() * c);
        let top = tile.start % self.n1;
        for (k, line) in frame.chunks_exact_mut((self.wide() * c).max(1)).enumerate() {
            // Line k holds row top + k − 1 of its image.
            if (1..=self.n1).contains(&(top + k)) {
                line[..c].fill(0.0);
                line[c..c + row_len].copy_from_slice(&x[(tile.start + k - 1) * row_len..][..row_len]);
                line[c + row_len..].fill(0.0);
            } else {
                line.fill(0.0);
            }
        }
        frame
    }

    /// out = act(framed) without the false windows.
    fn unframe(&self, framed: &[f32], channels: usize, activation: Activation, out: &mut [f32]) {
        for (from, to) in self.rows(framed, channels).zip(out.chunks_exact_mut((self.n2 * channels).max(1))) {
            activation.forward(from, to);
        }
    }

    /// dz = dy·act'(z)·mask for the rows of a tile; those of z lie `wide` pixels apart.
    fn through_activation(&self, z: &[f32], tile: &Range<usize>, dy: &[f32], dz: &mut [f32]) {
        let row_len = self.n2 * self.outputs;
        dz.copy_from_slice(&dy[tile.start * row_len..tile.end * row_len]);
        for (z, dz) in self.rows(z, self.outputs).zip(dz.chunks_exact_mut(row_len.max(1))) {
            self.activation.backward(z, dz);
        }
        if let Some(dropout) = self.dropout {
            dropout.apply((tile.start * row_len) as u64, dz);
        }
    }

    /// The gradient of a tile with rows `wide` pixels apart, and zeros for the two false windows between them.
    fn frame_gradient(&self, dz: &[f32], framed: &mut [f32]) {
        let row_len = self.n2 * self.outputs;
        let lines = framed.chunks_exact_mut((self.wide() * self.outputs).max(1));
        for (line, dz) in lines.zip(dz.chunks_exact(row_len.max(1))) {
            line[..row_len].copy_from_slice(dz);
            line[row_len..].fill(0.0);
        }
    }

    /// Calls `work(tile, its rows of `out`, scratch)` for every tile.
    fn each_tile<W>(&self, out: &mut [f32], channels: usize, scratch: &mut [f32], work: &W)
    where
        W: Fn(Range<usize>, &mut [f32], &mut [f32]) + Sync,
    {
        let (tiles, row_len) = (self.tiles(), self.n2 * channels);
        let out = pieces(out, |chunk| tiles.chunk_start(chunk) * row_len);
        par::for_each(tiles.samples * tiles.chunks, out, scratch, self.share(), &|chunk, out, scratch| {
            tiles.tiles(chunk).for_each(|tile| work(tile, &mut *out, &mut *scratch));
        });
    }

    /// Image rows of all samples cut into tiles, which are chunks of one tile each, and lanes of partial sums of dW.
    fn tiles(&self) -> Rows {
        /// Windows per tile: enough to pay for packing the weights, few enough that frame, z and dz stay in L2 (at 128
        /// channels about 160 kB each).
        const TILE: usize = 320;
        /// A lane is worth so many pixels that writing and reading its 9·c·o sums is lost in the products that make them.
        const LANE: usize = 2048;
        const MOST_LANES: usize = 32;
        // Rows without pixels are no rows.
        let (samples, n) = (self.batch, if self.n2 == 0 { 0 } else { self.n1 });
        let tile = (TILE / self.wide()).min(n).max(1);
        let chunks = n.div_ceil(tile).max(1);
        // A power of two is shared evenly by the usual numbers of threads.
        let lanes = (samples * n * self.n2).div_ceil(LANE).next_power_of_two().min(MOST_LANES);
        Rows { samples, n, tile, chunks, lanes: lanes.min((samples * chunks).max(1)) }
    }

    /// Pixels of a row of a frame.
    fn wide(&self) -> usize {
        self.n2 + 2
    }

    /// Windows of r image rows, the false ones between them included.
    fn windows(&self, r: usize) -> usize {
        r * self.wide() - 2
    }

    /// The true rows of values that lie `wide` pixels apart.
    fn rows<'a>(&self, framed: &'a [f32], channels: usize) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let row_len = self.n2 * channels;
        framed.chunks_exact((self.wide() * channels).max(1)).map(move |line| &line[..row_len])
    }

    /// Whether dz differs from dy and is kept in the workspace.
    fn saves_dz(&self) -> bool {
        self.activation != Activation::None || self.dropout.is_some_and(|d| d.active())
    }

    /// Partial sums of a lane: dW, then db.
    fn lane_len(&self) -> usize {
        self.w_len() + self.b_len()
    }

    fn dz_len(&self) -> usize {
        if self.saves_dz() { self.y_len() } else { 0 }
    }

    /// Scratch of one thread: a frame, and z and dz of a tile; the gradient's frame and dx take no more.
    fn share(&self) -> usize {
        (3 * self.tiles().tile + 2) * self.wide() * self.inputs.max(self.outputs)
    }

    fn backward_shared_len(&self) -> usize {
        self.w_len() + self.tiles().lanes * self.lane_len() + self.dz_len()
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

/// The weights of dx: turned[s, t, o, c] = w[2 − s, 2 − t, c, o].
fn turn(w: &[f32], inputs: usize, outputs: usize, turned: &mut [f32]) {
    let tap = (inputs * outputs).max(1);
    for (from, to) in w.chunks_exact(tap).rev().zip(turned.chunks_exact_mut(tap)) {
        for (q, to) in to.chunks_exact_mut(inputs).enumerate() {
            to.iter_mut().enumerate().for_each(|(c, to)| *to = from[c * outputs + q]);
        }
    }
}

/// `sum += ` every row of `rows`.
fn add_rows(rows: &[f32], sum: &mut [f32]) {
    vectorize!({
        for row in rows.chunks_exact(sum.len().max(1)) {
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
        }
    });
}
