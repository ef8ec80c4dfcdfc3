//! Spectral convolution of functions of one variable.

use std::ops::Range;

use super::layer::{Layer, Transform};
use super::{Grads, Parameters, Params, Plan};
use crate::activation::Activation;
use crate::dims::{check_len, mismatch};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::Rows;
use crate::simd::{axpy, vectorize};

/// Points per tile: a tile of a hundred channels, its transform matrix and its output together fit the L2 cache.
const TILE: usize = 256;

/// Shapes and options of a spectral convolution in 1D. The letters are those of the [module](super).
#[derive(Clone, Copy, Debug)]
pub struct SpectralConv1d {
    /// B, samples.
    pub batch: usize,
    /// n, points per sample.
    pub n: usize,
    /// i, channels of x.
    pub inputs: usize,
    /// o, channels of the output.
    pub outputs: usize,
    /// m, kept modes; at least 1 and at most n/2 + 1.
    pub modes: usize,
    /// Whether x W + b is added.
    pub pointwise: bool,
    /// The activation.
    pub activation: Activation,
    /// Dropout rate on the input of the Fourier path alone; 0 outside training.
    pub dropout: f32,
    /// The stream of the masks.
    pub key: Key,
}

impl SpectralConv1d {
    /// The plan that [`forward`](Self::forward) and [`backward`](Self::backward) take. Only n and m matter to it.
    pub fn plan(&self) -> Plan {
        Plan::new(self.n, self.modes)
    }

    /// Values of the spectral weights, (m, 2, i, o).
    pub fn weights_len(&self) -> usize {
        self.lengths().weights
    }

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        self.layer().lengths()
    }

    /// Values that the forward pass keeps for the backward pass: the spectra before and after the mixing.
    pub fn saved_len(&self) -> usize {
        self.layer().saved_len()
    }

    /// Workspace of [`forward`](Self::forward) and [`backward`](Self::backward), for at most `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        self.layer().workspace_len(threads)
    }

    /// Workspace of [`forward`](Self::forward) alone.
    pub fn forward_workspace_len(&self, threads: usize) -> usize {
        self.layer().forward_workspace_len(threads)
    }

    /// x (B, n, i) → out (B, n, o).
    pub fn forward(
        &self,
        plan: &Plan,
        params: &Params,
        x: &[f32],
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.layer().forward(&self.line(plan), params, x, out, saved, workspace);
    }

    /// dy (B, n, o) → dx (B, n, i) and the gradients of the parameters, all overwritten. `saved` is from the forward pass.
    pub fn backward(
        &self,
        plan: &Plan,
        params: &Params,
        x: &[f32],
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.layer().backward(&self.line(plan), params, x, saved, dy, dx, grads, workspace);
    }

    /// The mixed spectrum before the inverse transform, from `saved` to (B, o, n/2 + 1, 2) with zeros for the modes not kept.
    pub fn spectrum(&self, plan: &Plan, saved: &[f32], spectrum: &mut [f32]) {
        let (modes, bins, o) = (self.modes, self.n / 2 + 1, self.outputs);
        check_len("saved", saved.len(), self.saved_len(), &self.sizes());
        check_len("spectrum", spectrum.len(), self.batch * o * bins * 2, &self.sizes());
        let after = &saved[modes * self.batch * 2 * self.inputs..];
        spectrum.fill(0.0);
        for k in 0..modes.min(bins) {
            for b in 0..self.batch {
                for c in 0..o {
                    for part in 0..2 {
                        let value = after[((k * self.batch + b) * 2 + part) * o + c];
                        spectrum[((b * o + c) * bins + k) * 2 + part] = value / plan.weight(k);
                    }
                }
            }
        }
    }

    /// The reference's weights (i, o, m, 2) in the layout (m, 2, i, o).
    pub fn weights_from_reference<T: Copy>(&self, reference: &[T], weights: &mut [T]) {
        self.check_weights(reference.len(), weights.len());
        self.for_each_weight(|own, theirs| weights[own] = reference[theirs]);
    }

    /// The inverse of [`weights_from_reference`](Self::weights_from_reference), for gradients as well.
    pub fn weights_to_reference<T: Copy>(&self, weights: &[T], reference: &mut [T]) {
        self.check_weights(reference.len(), weights.len());
        self.for_each_weight(|own, theirs| reference[theirs] = weights[own]);
    }

    /// Dropout of the Fourier path's input; the value of sample b, point j, channel c lies at position (b·n + j)·i + c.
    pub fn input_dropout(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Spectral }
    }

    /// Calls `f(index in (m, 2, i, o), index in (i, o, m, 2))` for every weight.
    fn for_each_weight(&self, mut f: impl FnMut(usize, usize)) {
        let pairs = self.inputs * self.outputs;
        for mode in 0..2 * self.modes {
            for pair in 0..pairs {
                f(mode * pairs + pair, pair * 2 * self.modes + mode);
            }
        }
    }

    fn check_weights(&self, reference: usize, own: usize) {
        check_len("reference weights", reference, self.weights_len(), &self.sizes());
        check_len("spectral weights", own, self.weights_len(), &self.sizes());
    }

    fn sizes(&self) -> [(&'static str, usize); 5] {
        [
            ("batch", self.batch),
            ("n", self.n),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("modes", self.modes),
        ]
    }

    fn line<'a>(&self, plan: &'a Plan) -> Line<'a> {
        if plan.n() != self.n || plan.modes() != self.modes {
            let sizes =
                [("n", self.n), ("modes", self.modes), ("plan.n", plan.n()), ("plan.modes", plan.modes())];
            mismatch("spectral convolution and its plan", &sizes);
        }
        Line { plan, rows: self.rows() }
    }

    fn rows(&self) -> Rows {
        Rows::new(self.batch, self.n, TILE)
    }

    fn layer(&self) -> Layer {
        Layer {
            rows: self.rows(),
            points: 1,
            inputs: self.inputs,
            outputs: self.outputs,
            columns: self.modes,
            slots: 1,
            zero_slot: 0,
            partial_per_row: false,
            partial: 2 * self.modes,
            comb: 2 * self.modes,
            zero_in_comb: 0,
            scratch: 0,
            pointwise: self.pointwise,
            activation: self.activation,
            dropout: self.input_dropout(),
        }
    }
}

/// The transform of a line: A = Eᵀ, summed in partial sums over chunks of points; a comb is the spectrum of one sample.
struct Line<'a> {
    plan: &'a Plan,
    rows: Rows,
}

impl Line<'_> {
    /// The rows of E that belong to a tile, (points, 2m).
    fn basis(&self, tile: &Range<usize>) -> View<'_> {
        let first = tile.start % self.rows.n;
        View::new(self.plan.basis(first, first + tile.len()), tile.len(), 2 * self.plan.modes())
    }
}

impl Transform for Line<'_> {
    fn analyze(
        &self,
        chunk: usize,
        tile: Range<usize>,
        w: usize,
        x: &[f32],
        partial: &mut [f32],
        _: &mut [f32],
    ) {
        let into = if tile.start == chunk { Into::Set } else { Into::Add };
        let sum = ViewMut::new(partial, 2 * self.plan.modes(), w);
        gemm(into, 1.0, self.basis(&tile).t(), View::new(x, tile.len(), w), sum);
    }

    fn collect(&self, k: usize, w: usize, partial: &[f32], spectrum: &mut [f32], _: &mut [f32]) {
        let of_chunk = 2 * self.plan.modes() * w;
        for (b, sum) in spectrum.chunks_exact_mut(2 * w).enumerate() {
            sum.fill(0.0);
            for chunk in b * self.rows.chunks..(b + 1) * self.rows.chunks {
                let from = &partial[chunk * of_chunk + k * 2 * w..][..2 * w];
                vectorize!(axpy(1.0, from, sum));
            }
        }
    }

    fn spread(&self, b: usize, w: usize, spectra: &[f32], comb: &mut [f32]) {
        for (k, pair) in comb.chunks_exact_mut(2 * w).enumerate() {
            pair.copy_from_slice(&spectra[(k * self.rows.samples + b) * 2 * w..][..2 * w]);
        }
    }

    fn synthesize(&self, tile: Range<usize>, w: usize, comb: &[f32], out: &mut [f32], _: &mut [f32]) {
        let comb = View::new(comb, 2 * self.plan.modes(), w);
        gemm(Into::Set, 1.0, self.basis(&tile), comb, ViewMut::new(out, tile.len(), w));
    }

    fn weight(&self, k: usize) -> f32 {
        self.plan.weight(k)
    }
}
