//! 3 × 3 convolution (cross-correlation, as networks have it), stride 1, zero padding 1, channels last.
//!
//! ```text
//! z[b, i, j] = bias + Σ_{s,t ∈ 0..3} x[b, i + s − 1, j + t − 1] W[s, t]        y = act(drop(z))
//! ```
//!
//! B samples of n1 × n2 pixels with c = `inputs` and o = `outputs` channels; s is the kernel's row, t its column.
//!
//! **Two image rows are four products of half the size, not six** (Winograd's F(2, 3), down the columns). With the rows d₀ … d₃ of x
//! around rows 2i and 2i + 1 of z and W_s for the three taps of kernel row s:
//!
//! ```text
//! T₀ = d₀ − d₂    T₁ = d₁ + d₂             T₂ = d₂ − d₁             T₃ = d₁ − d₃
//! U₀ = W₀         U₁ = (W₀ + W₁ + W₂)/2    U₂ = (W₀ − W₁ + W₂)/2    U₃ = W₂
//! M_u = T_u U_u   z[2i] = M₀ + M₁ + M₂     z[2i + 1] = M₁ − M₂ − M₃
//! ```
//!
//! A third of the multiplications is saved for sums and differences of whole rows; rounding errors are 1.3 times those of the plain sum.
//!
//! **A tile is one product per u.** The rows T_u of a tile of p pairs are a *plane*: p lines of n2 + 2 = `wide` pixels, with zeros at both ends. The three taps
//! (s, 0..3) of a pixel are then 3c neighbouring values, so the windows of a plane are a matrix with 3c columns and a row stride of c,
//! overlapping in memory: nothing is copied three times, and the weights are used as they are stored. At the end of each line, two windows reach into
//! the next one; these 2/wide of the products are computed and thrown away, which costs less than one product per line would
//! in packing the weights anew.
//!
//! The gradients use the same planes: dU_u = windows_uᵀ dM_u, with zeros in dM for the two false windows, and dx is the
//! convolution of dz with W turned by 180° and transposed. Under an activation the backward pass needs z: with [`keep`](Conv3x3::keep) it waits in
//! `saved`, without it is computed again, to the same bits.

use std::ops::Range;

use crate::activation::Activation;
use crate::dims::{check_at_least, check_len, take};
use crate::dropout::Dropout;
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::{self, Parts, Pieces, Rows, equal, pieces};
use crate::parameters::parameters;
use crate::simd::{update, vectorize};

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
    /// Whether z waits for the backward pass, y's values once more, instead of being computed again: three products a training step instead of four.
    pub keep: bool,
}

parameters! {
    /// Parameters, or one thing for each of them.
    pub struct Parameters {
        /// (3, 3, c, o): kernel row, kernel column, in, out.
        w,
        /// (o); empty without bias.
        b,
    }
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

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        Parameters { w: 9 * self.inputs * self.outputs, b: if self.bias { self.outputs } else { 0 } }
    }

    /// Values that wait for the backward pass.
    pub fn saved_len(&self) -> usize {
        if self.keep && self.activation != Activation::None { self.y_len() } else { 0 }
    }

    /// Values of workspace that [`forward`](Self::forward) needs for `threads` threads.
    pub fn forward_workspace_len(&self, threads: usize) -> usize {
        self.mixed_len() + threads.max(1) * self.share()
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        self.backward_shared_len() + threads.max(1) * self.share()
    }

    /// y = act(drop(conv(x))), and what waits for the backward pass.
    pub fn forward(
        &self,
        x: &[f32],
        params: Params,
        y: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.check("conv3x3 x", x.len(), self.x_len());
        self.check("conv3x3 y", y.len(), self.y_len());
        self.check("conv3x3 saved", saved.len(), self.saved_len());
        params.check("conv3x3", self.lengths(), &self.sizes());
        check_at_least("conv3x3 workspace", workspace.len(), self.forward_workspace_len(1), &self.sizes());
        let (mixed, rest) = workspace.split_at_mut(self.mixed_len());
        let weights = Weights::new(params.w, self.inputs, self.outputs, mixed);
        let row_len = self.n2 * self.outputs;
        let saved_row_len = if saved.is_empty() { 0 } else { row_len };
        let outputs = (self.by_tile(y, row_len), self.by_tile(saved, saved_row_len));
        self.each_tile(outputs, rest, &|tile, (y, saved), mut scratch| {
            let planes = self.planes(x, self.inputs, &tile, &mut scratch);
            let z = self.pre_activation(planes, weights, params.b, &tile, &mut scratch);
            for (k, y) in y.chunks_exact_mut(row_len.max(1)).enumerate() {
                let z = self.line(z, self.outputs, k);
                self.activation.forward(z, y);
                if !saved.is_empty() {
                    saved[k * row_len..][..row_len].copy_from_slice(z);
                }
            }
        });
    }

    /// The gradients of Σ dy·y: dx (if wanted; the first layer of a network needs none), dW and db.
    pub fn backward(
        &self,
        x: &[f32],
        params: Params,
        saved: &[f32],
        dy: &[f32],
        dx: Option<&mut [f32]>,
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.check("conv3x3 x", x.len(), self.x_len());
        self.check("conv3x3 saved", saved.len(), self.saved_len());
        self.check("conv3x3 dy", dy.len(), self.y_len());
        params.check("conv3x3", self.lengths(), &self.sizes());
        grads.check("gradient of conv3x3", self.lengths(), &self.sizes());
        check_at_least("conv3x3 workspace", workspace.len(), self.workspace_len(1), &self.sizes());

        let (mut rest, lanes) = (workspace, self.tiles().lanes);
        let partial = take(&mut rest, lanes * self.lane_len());
        let dz = take(&mut rest, self.dz_len());
        let turned = take(&mut rest, self.lengths().w);
        let mixed = take(&mut rest, self.mixed_len());

        // 1. dz = dy·act'(z)·mask, and the lanes' sums of dU and db while the planes of x are at hand.
        let weights = Weights::new(params.w, self.inputs, self.outputs, mixed);
        self.backward_lanes(x, weights, params.b, saved, dy, dz, partial, rest);
        self.sum_weights(partial, mixed, grads.w);
        par::sum_lanes(partial, lanes, 4 * self.tap_len(), grads.b);

        // 2. dx = conv(dz) with the turned weights: c and o change places.
        let Some(dx) = dx else { return };
        self.check("conv3x3 dx", dx.len(), self.x_len());
        let dz: &[f32] = if self.saves_dz() { dz } else { dy };
        turn(params.w, self.inputs, self.outputs, turned);
        let turned = Weights::new(turned, self.outputs, self.inputs, mixed);
        let row_len = self.n2 * self.inputs;
        self.each_tile((self.by_tile(dx, row_len),), rest, &|tile, (dx,), mut scratch| {
            let planes = self.planes(dz, self.outputs, &tile, &mut scratch);
            let sum = self.correlate(planes, turned, &[], &tile, &mut scratch);
            for (k, dx) in dx.chunks_exact_mut(row_len.max(1)).enumerate() {
                dx.copy_from_slice(self.line(sum, self.inputs, k));
            }
        });
    }

    /// Step 1 of the backward: every lane sums its tiles in order, into memory of its own.
    #[allow(clippy::too_many_arguments)]
    fn backward_lanes(
        &self,
        x: &[f32],
        weights: Weights,
        bias: &[f32],
        saved: &[f32],
        dy: &[f32],
        dz: &mut [f32],
        partial: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (tiles, row_len) = (self.tiles(), self.n2 * self.outputs);
        let dz_len = dz.len();
        let dz = pieces(dz, |lane| (self.first_row(tiles.row_of_lane(lane)) * row_len).min(dz_len));
        let parts = (dz, equal(partial, self.lane_len()));
        par::for_each(tiles.lanes, parts, scratch, self.share(), &|lane, (mut dz, partial), scratch| {
            partial.fill(0.0);
            let (du, db) = partial.split_at_mut(4 * self.tap_len());
            for tile in tiles.lane(lane).flat_map(|chunk| tiles.tiles(chunk)).map(|pairs| self.tile(pairs)) {
                let mut scratch = &mut *scratch;
                let planes = self.planes(x, self.inputs, &tile, &mut scratch);
                let values = tile.rows.start * row_len..tile.rows.end * row_len;
                let mut dz_tile = &dy[values.clone()];
                if self.saves_dz() {
                    let own = take(&mut dz, dz_tile.len());
                    own.copy_from_slice(dz_tile);
                    if !saved.is_empty() {
                        self.activation.backward(&saved[values], own);
                    } else if self.activation != Activation::None {
                        // z and the planes of dz take turns in the same memory.
                        let z = self.pre_activation(planes, weights, bias, &tile, &mut &mut *scratch);
                        for (k, dz) in own.chunks_exact_mut(row_len.max(1)).enumerate() {
                            self.activation.backward(self.line(z, self.outputs, k), dz);
                        }
                    }
                    if let Some(dropout) = self.dropout {
                        dropout.apply((tile.rows.start * row_len) as u64, own);
                    }
                    dz_tile = own;
                }
                self.add_outer(planes, dz_tile, &tile, du, scratch);
                if self.bias {
                    add_rows(dz_tile, db);
                }
            }
        });
    }

    /// z = drop(conv(x)) of a tile, as two planes: its even rows, then its odd ones.
    fn pre_activation<'a>(
        &self,
        planes: &[f32],
        weights: Weights,
        bias: &[f32],
        tile: &Tile,
        scratch: &mut &'a mut [f32],
    ) -> &'a [f32] {
        let z = self.correlate(planes, weights, bias, tile, scratch);
        if let Some(dropout) = self.dropout {
            let row_len = self.n2 * self.outputs;
            for (k, row) in tile.rows.clone().enumerate() {
                let line = self.line_start(z.len(), self.outputs, k);
                dropout.apply((row * row_len) as u64, &mut z[line..line + row_len]);
            }
        }
        z
    }

    /// z = Σ_s windows_s W[s] + bias of a tile as two planes.
    fn correlate<'a>(
        &self,
        planes: &[f32],
        Weights { taps: [c, o], u }: Weights,
        bias: &[f32],
        tile: &Tile,
        scratch: &mut &'a mut [f32],
    ) -> &'a mut [f32] {
        let (windows, len) = (self.windows(tile.pairs), tile.pairs * self.wide() * o);
        let z = take(scratch, 2 * len);
        let (even, odd) = z.split_at_mut(len);
        let sums = take(scratch, 2 * len);
        let (m1, m2) = sums.split_at_mut(len);
        let product = |k: usize, alpha, m: &mut [f32]| {
            let plane = &planes[k * tile.pairs * self.wide() * c..];
            let windows_k = View::strided(plane, windows, 3 * c, c);
            gemm(Into::Set, alpha, windows_k, View::new(u[k], 3 * c, o), ViewMut::new(m, windows, o));
        };
        product(0, 1.0, even);
        product(1, 1.0, m1);
        product(2, 1.0, m2);
        product(3, -1.0, odd);
        let true_len = windows * o;
        vectorize!({
            let (even, odd) = (&mut even[..true_len], &mut odd[..true_len]);
            let (m1, m2) = (&m1[..true_len], &m2[..true_len]);
            for i in 0..true_len {
                even[i] += m1[i] + m2[i];
                odd[i] += m1[i] - m2[i];
            }
        });
        if !bias.is_empty() {
            for pixel in even[..true_len].chunks_exact_mut(o).chain(odd[..true_len].chunks_exact_mut(o)) {
                pixel.iter_mut().zip(bias).for_each(|(z, b)| *z += b);
            }
        }
        z
    }

    /// dU_u += windows_uᵀ dM_u over the windows of a tile.
    fn add_outer(&self, planes: &[f32], dz: &[f32], tile: &Tile, du: &mut [f32], mut scratch: &mut [f32]) {
        let (c, o, windows) = (self.inputs, self.outputs, self.windows(tile.pairs));
        let (row_len, line) = (self.n2 * o, self.wide() * o);
        let len = tile.pairs * line;
        let [even, odd, sum, difference] = [0; 4].map(|_| take(&mut scratch, len));
        for pair in 0..tile.pairs {
            let row = |k: usize| dz.get(k * row_len..(k + 1) * row_len);
            let at = pair * line..(pair + 1) * line;
            let planes =
                [&mut *even, &mut *odd, &mut *sum, &mut *difference].map(|plane| &mut plane[at.clone()]);
            let [even, odd, sum, difference] = planes.map(|plane| {
                let (row, false_windows) = plane.split_at_mut(row_len);
                false_windows.fill(0.0);
                row
            });
            even.copy_from_slice(row(2 * pair).expect("the first row of a pair"));
            match row(2 * pair + 1) {
                Some(row) => odd.copy_from_slice(row),
                None => odd.fill(0.0),
            }
            vectorize!({
                update(sum, [even, odd], |_, [even, odd]| even + odd);
                update(difference, [even, odd], |_, [even, odd]| even - odd);
            });
        }
        let dm: [(f32, &[f32]); 4] = [(1.0, even), (1.0, sum), (1.0, difference), (-1.0, odd)];
        for (k, (alpha, dm)) in dm.into_iter().enumerate() {
            let windows_k = View::strided(&planes[k * tile.pairs * self.wide() * c..], windows, 3 * c, c);
            let du = ViewMut::new(&mut du[k * self.tap_len()..][..self.tap_len()], 3 * c, o);
            gemm(Into::Add, alpha, windows_k.t(), View::new(dm, windows, o), du);
        }
    }

    /// dW from the lanes' sums of dU.
    fn sum_weights(&self, partial: &[f32], mixed: &mut [f32], dw: &mut [f32]) {
        let (lanes, len) = (self.tiles().lanes, self.tap_len());
        let (du1, du2) = mixed.split_at_mut(len);
        let (dw0, rest) = dw.split_at_mut(len);
        let (dw1, dw2) = rest.split_at_mut(len);
        for (k, sum) in [&mut *dw0, &mut *du1, &mut *du2, &mut *dw2].into_iter().enumerate() {
            par::sum_lanes(partial, lanes, k * len, sum);
        }
        vectorize!({
            update(dw0, [du1, du2], |dw0, [du1, du2]| dw0 + 0.5 * (du1 + du2));
            update(dw1, [du1, du2], |_, [du1, du2]| 0.5 * (du1 - du2));
            update(dw2, [du1, du2], |dw2, [du1, du2]| dw2 + 0.5 * (du1 + du2));
        });
    }

    /// The planes T₀ … T₃ of a tile, cut off the scratch: (4, p, wide, channels).
    fn planes<'a>(&self, x: &[f32], channels: usize, tile: &Tile, scratch: &mut &'a mut [f32]) -> &'a [f32] {
        let (row_len, c, line_len) = (self.n2 * channels, channels, self.wide() * channels);
        let planes = take(scratch, 4 * tile.pairs * line_len);
        let image = tile.rows.start / self.n1 * self.n1;
        // Row k of the image; outside of it there are zeros.
        let row = |k: usize| (1..=self.n1).contains(&k).then(|| &x[(image + k - 1) * row_len..][..row_len]);
        let plane_len = (tile.pairs * line_len).max(1);
        for (u, plane) in planes.chunks_exact_mut(plane_len).enumerate() {
            for (pair, line) in plane.chunks_exact_mut(line_len.max(1)).enumerate() {
                let first = tile.rows.start - image + 2 * pair;
                let (from, other, sign) = match u {
                    0 => (row(first), row(first + 2), -1.0),
                    1 => (row(first + 1), row(first + 2), 1.0),
                    2 => (row(first + 2), row(first + 1), -1.0),
                    _ => (row(first + 1), row(first + 3), -1.0),
                };
                line[..c].fill(0.0);
                line[c + row_len..].fill(0.0);
                let line = &mut line[c..c + row_len];
                match (from, other) {
                    (Some(from), Some(other)) => {
                        vectorize!(update(line, [from, other], |_, [from, other]| from + sign * other))
                    }
                    (Some(from), None) => line.copy_from_slice(from),
                    (None, Some(other)) => vectorize!(update(line, [other], |_, [other]| sign * other)),
                    (None, None) => line.fill(0.0),
                }
            }
        }
        planes
    }

    /// Row k of a tile within two planes of even and odd rows.
    fn line<'a>(&self, planes: &'a [f32], channels: usize, k: usize) -> &'a [f32] {
        &planes[self.line_start(planes.len(), channels, k)..][..self.n2 * channels]
    }

    fn line_start(&self, planes_len: usize, channels: usize, k: usize) -> usize {
        k % 2 * (planes_len / 2) + k / 2 * self.wide() * channels
    }

    /// Rows of `row_len` values, one for every image row, cut by tile.
    fn by_tile<'a>(
        &self,
        rows: &'a mut [f32],
        row_len: usize,
    ) -> Pieces<'a, impl Fn(usize) -> usize + Copy + Send + use<'_, 'a>> {
        let tiles = self.tiles();
        pieces(rows, move |chunk| self.first_row(tiles.chunk_start(chunk)) * row_len)
    }

    /// Calls `work(tile, its parts, scratch)` for every tile; a chunk is one tile.
    fn each_tile<P: Parts, W>(&self, parts: P, scratch: &mut [f32], work: &W)
    where
        W: Fn(Tile, P::Item, &mut [f32]) + Sync,
    {
        let tiles = self.tiles();
        par::for_each(
            tiles.samples * tiles.chunks,
            parts,
            scratch,
            self.share(),
            &|chunk, parts, scratch| {
                if let Some(pairs) = tiles.tiles(chunk).next() {
                    work(self.tile(pairs), parts, scratch);
                }
            },
        );
    }

    /// Pairs of image rows of all samples cut into tiles, which are chunks of one tile each, and lanes of partial sums of dU.
    fn tiles(&self) -> Rows {
        /// Windows of a plane: enough to pay for packing the weights, few enough that the planes stay in cache (at 128
        /// channels about 160 kB each).
        const TILE: usize = 320;
        /// A lane is worth so many pixels that writing and reading its 12·c·o sums is lost in the products that make them.
        const LANE: usize = 2048;
        const MOST_LANES: usize = 32;
        // Rows without pixels are no rows.
        let (samples, n) = (self.batch, if self.n2 == 0 { 0 } else { self.n1.div_ceil(2) });
        let tile = (TILE / self.wide()).min(n).max(1);
        let chunks = n.div_ceil(tile).max(1);
        // A power of two is shared evenly by the usual numbers of threads.
        let lanes = (samples * self.n1 * self.n2).div_ceil(LANE).next_power_of_two().min(MOST_LANES);
        Rows { samples, n, tile, chunks, lanes: lanes.min((samples * chunks).max(1)) }
    }

    fn tile(&self, pairs: Range<usize>) -> Tile {
        Tile { rows: self.first_row(pairs.start)..self.first_row(pairs.end), pairs: pairs.len() }
    }

    /// The first image row of a pair, both counted over all samples; of an odd image the last pair has one row.
    fn first_row(&self, pair: usize) -> usize {
        let pairs = self.n1.div_ceil(2).max(1);
        pair / pairs * self.n1 + 2 * (pair % pairs)
    }

    /// Pixels of a line of a plane.
    fn wide(&self) -> usize {
        self.n2 + 2
    }

    /// Windows of a plane of p lines, the false ones between them included.
    fn windows(&self, p: usize) -> usize {
        p * self.wide() - 2
    }

    /// Whether dz differs from dy and is kept in the workspace.
    fn saves_dz(&self) -> bool {
        self.activation != Activation::None || self.dropout.is_some_and(|d| d.active())
    }

    /// Partial sums of a lane: dU₀ … dU₃, then db.
    fn lane_len(&self) -> usize {
        4 * self.tap_len() + self.lengths().b
    }

    /// Values of one W_s or U_u.
    fn tap_len(&self) -> usize {
        3 * self.inputs * self.outputs
    }

    /// Values of U₁ and U₂, the two that are no part of W.
    fn mixed_len(&self) -> usize {
        2 * self.tap_len()
    }

    fn dz_len(&self) -> usize {
        if self.saves_dz() { self.y_len() } else { 0 }
    }

    /// Scratch of one thread: four planes of what is convolved and four of what comes out.
    fn share(&self) -> usize {
        4 * self.tiles().tile * self.wide() * (self.inputs + self.outputs)
    }

    fn backward_shared_len(&self) -> usize {
        self.lengths().w + self.mixed_len() + self.tiles().lanes * self.lane_len() + self.dz_len()
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

/// Image rows, counted over all samples, that are computed at once; the last of `pairs` may have one row only.
struct Tile {
    rows: Range<usize>,
    pairs: usize,
}

/// U₀ … U₃ for `taps` = [c, o] channels, (3c, o) each.
#[derive(Clone, Copy)]
struct Weights<'a> {
    taps: [usize; 2],
    u: [&'a [f32]; 4],
}

impl<'a> Weights<'a> {
    /// U₁ and U₂ are put into `mixed`.
    fn new(w: &'a [f32], c: usize, o: usize, mixed: &'a mut [f32]) -> Self {
        let len = 3 * c * o;
        let [w0, w1, w2] = [0, 1, 2].map(|s| &w[s * len..][..len]);
        let (u1, u2) = mixed.split_at_mut(len);
        vectorize!({
            update(u1, [w0, w1, w2], |_, [w0, w1, w2]| 0.5 * (w0 + w2 + w1));
            update(u2, [w0, w1, w2], |_, [w0, w1, w2]| 0.5 * (w0 + w2 - w1));
        });
        Self { taps: [c, o], u: [w0, u1, u2, w2] }
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
