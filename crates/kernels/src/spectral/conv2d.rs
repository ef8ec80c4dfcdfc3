//! Spectral convolution of functions of two variables.

use std::ops::Range;

use super::layer::{Layer, Transform};
use super::slots::{Slots, add_apart, combine};
use super::{Grads, Parameters, Params, Plan2d};
use crate::activation::Activation;
use crate::dims::{check_len, mismatch, product};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::Rows;

/// Points per tile, as far as whole lines of the grid allow.
const TILE: usize = 1024;

/// Shapes and options of a spectral convolution in 2D. The letters are those of the [module](super); n = n₁n₂ points, the
/// second axis running fastest.
#[derive(Clone, Copy, Debug)]
pub struct SpectralConv2d {
    /// B, samples.
    pub batch: usize,
    /// n₁, lines of the grid.
    pub n1: usize,
    /// n₂, points of a line: the axis of the half spectrum.
    pub n2: usize,
    /// i, channels of x.
    pub inputs: usize,
    /// o, channels of the output.
    pub outputs: usize,
    /// m, kept modes: the columns k₂ < m of the rows k₁ < m and k₁ ≥ n₁ − m. At least 1, at most n₁ and n₂/2 + 1.
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

impl SpectralConv2d {
    /// The plan that [`forward`](Self::forward) and [`backward`](Self::backward) take. Only n₁, n₂ and m matter to it.
    pub fn plan(&self) -> Plan2d {
        Plan2d::new(self.n1, self.n2, self.modes)
    }

    /// Values of the spectral weights, (m, 2, m, 2, i, o).
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

    /// x (B, n₁, n₂, i) → out (B, n₁, n₂, o).
    pub fn forward(
        &self,
        plan: &Plan2d,
        params: &Params,
        x: &[f32],
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.layer().forward(&self.grid(plan), params, x, out, saved, workspace);
    }

    /// dy (B, n₁, n₂, o) → dx (B, n₁, n₂, i) and the gradients of the parameters, all overwritten. `saved` is from the forward
    /// pass.
    pub fn backward(
        &self,
        plan: &Plan2d,
        params: &Params,
        x: &[f32],
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.layer().backward(&self.grid(plan), params, x, saved, dy, dx, grads, workspace);
    }

    /// The mixed spectrum before the inverse transform, from `saved` to (B, o, n₁, n₂/2 + 1, 2) with zeros for the modes not
    /// kept.
    pub fn spectrum(&self, plan: &Plan2d, saved: &[f32], spectrum: &mut [f32]) {
        let (m, bins, o) = (self.modes, self.n2 / 2 + 1, self.outputs);
        check_len("saved", saved.len(), self.saved_len(), &self.sizes());
        check_len("spectrum", spectrum.len(), self.batch * o * self.n1 * bins * 2, &self.sizes());
        let after = &saved[m * 2 * m * self.batch * 2 * self.inputs..];
        spectrum.fill(0.0);
        for (k2, slot) in (0..m.min(bins)).flat_map(|k2| (0..2 * m).map(move |slot| (k2, slot))) {
            let Some(k1) = self.slots().frequency(slot) else { continue };
            for b in 0..self.batch {
                for c in 0..o {
                    for part in 0..2 {
                        let value = after[(((k2 * 2 * m + slot) * self.batch + b) * 2 + part) * o + c];
                        let at = (((b * o + c) * self.n1 + k1) * bins + k2) * 2 + part;
                        spectrum[at] = value / plan.columns.weight(k2);
                    }
                }
            }
        }
    }

    /// The reference's weights, one (i, o, m, m, 2) per block, in the layout (m, 2, m, 2, i, o).
    pub fn weights_from_reference<T: Copy>(&self, reference: [&[T]; 2], weights: &mut [T]) {
        self.check_weights(reference.map(|block| block.len()), weights.len());
        self.for_each_weight(|own, (block, theirs)| weights[own] = reference[block][theirs]);
    }

    /// The inverse of [`weights_from_reference`](Self::weights_from_reference), for gradients as well.
    pub fn weights_to_reference<T: Copy>(&self, weights: &[T], reference: [&mut [T]; 2]) {
        self.check_weights([reference[0].len(), reference[1].len()], weights.len());
        self.for_each_weight(|own, (block, theirs)| reference[block][theirs] = weights[own]);
    }

    /// Dropout of the Fourier path's input; the value of sample b, point j, channel c lies at position (b·n + j)·i + c.
    pub fn input_dropout(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Spectral }
    }

    /// Slots of the first axis.
    fn slots(&self) -> Slots {
        Slots { n: self.n1, modes: self.modes }
    }

    /// Calls `f(index in (m, 2, m, 2, i, o), (block, index in (i, o, m, m, 2)))` for every weight.
    fn for_each_weight(&self, mut f: impl FnMut(usize, (usize, usize))) {
        let (m, pairs) = (self.modes, self.inputs * self.outputs);
        let mut own = 0;
        for (k2, block, row) in (0..m).flat_map(|k2| (0..2 * m).map(move |s| (k2, s / m, s % m))) {
            for part in 0..2 {
                for pair in 0..pairs {
                    f(own, (block, ((pair * m + row) * m + k2) * 2 + part));
                    own += 1;
                }
            }
        }
    }

    fn check_weights(&self, reference: [usize; 2], own: usize) {
        for block in reference {
            check_len("a block of reference weights", block, self.weights_len() / 2, &self.sizes());
        }
        check_len("spectral weights", own, self.weights_len(), &self.sizes());
    }

    fn sizes(&self) -> [(&'static str, usize); 6] {
        [
            ("batch", self.batch),
            ("n1", self.n1),
            ("n2", self.n2),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("modes", self.modes),
        ]
    }

    fn grid<'a>(&self, plan: &'a Plan2d) -> Grid<'a> {
        let (p1, p2) = (plan.rows.n(), plan.columns.n());
        let empty = self.n1 * self.n2 == 0 && p1 * p2 == 0;
        if !empty && (p1 != self.n1 || p2 != self.n2) || plan.columns.modes() != self.modes {
            let sizes = [("plan.n1", p1), ("plan.n2", p2), ("plan.modes", plan.columns.modes())];
            mismatch("spectral convolution and its plan", &[&self.sizes()[..], &sizes].concat());
        }
        Grid { plan, conv: *self }
    }

    /// Lines of the grid, cut so that lanes and tiles have about as many points as in 1D.
    fn rows(&self) -> Rows {
        let n = product("points of a grid", &[("n1", self.n1), ("n2", self.n2)]);
        let by_points = Rows::new(self.batch, n, TILE);
        let chunks = by_points.chunks.min(self.n1).max(1);
        Rows {
            n: self.n1,
            tile: (TILE / self.n2.max(1)).max(1),
            chunks,
            lanes: by_points.lanes.min((self.batch * chunks).max(1)),
            ..by_points
        }
    }

    fn layer(&self) -> Layer {
        let (rows, slots) = (self.rows(), self.slots());
        let h = slots.frequencies();
        Layer {
            rows,
            points: self.n2,
            inputs: self.inputs,
            outputs: self.outputs,
            columns: self.modes,
            slots: slots.count(),
            zero_slot: slots.zero(),
            partial_per_row: true,
            partial: 2 * self.modes,
            comb: 2 * h * 2 * self.modes,
            zero_in_comb: 0,
            scratch: (2 * h * 2).max(rows.tile.min(self.n1) * 2 * self.modes),
            pointwise: self.pointwise,
            activation: self.activation,
            dropout: self.input_dropout(),
        }
    }
}

/// The transform of a grid: E₂ᵀ on every line, then E₁ᵀ across the lines.
///
/// A comb, (h, 2, m, 2, w), is what E₁ takes to the spectra of the lines: the adjoint of how [`Slots`] combines signs.
struct Grid<'a> {
    plan: &'a Plan2d,
    conv: SpectralConv2d,
}

impl Transform for Grid<'_> {
    fn analyze(
        &self,
        chunk: usize,
        tile: Range<usize>,
        w: usize,
        x: &[f32],
        partial: &mut [f32],
        _: &mut [f32],
    ) {
        let (n2, m) = (self.conv.n2, self.conv.modes);
        let basis = View::new(self.plan.columns.basis(0, n2), n2, 2 * m);
        let partial = &mut partial[(tile.start - chunk) * 2 * m * w..];
        for (x, s) in x.chunks_exact(n2 * w).zip(partial.chunks_exact_mut(2 * m * w)) {
            gemm(Into::Set, 1.0, basis.t(), View::new(x, n2, w), ViewMut::new(s, 2 * m, w));
        }
    }

    fn collect(&self, k: usize, w: usize, partial: &[f32], spectrum: &mut [f32], scratch: &mut [f32]) {
        let SpectralConv2d { batch, n1, modes: m, .. } = self.conv;
        let h = self.plan.rows.modes();
        let basis = View::new(self.plan.rows.basis(0, n1), n1, 2 * h);
        let t = &mut scratch[..2 * h * 2 * w];
        // Slots that another has overwritten stay zero, and so do their products and gradients.
        spectrum.fill(0.0);
        for b in 0..batch {
            let lines = &partial[b * n1 * 2 * m * w + k * 2 * w..];
            let lines = View::strided(lines, n1, 2 * w, 2 * m * w);
            gemm(Into::Set, 1.0, basis.t(), lines, ViewMut::new(t, 2 * h, 2 * w));
            for (slot, k1, sign) in self.conv.slots().in_use() {
                let (cos, sin) = t[k1 * 4 * w..][..4 * w].split_at(2 * w);
                combine(sign, cos, sin, &mut spectrum[(slot * batch + b) * 2 * w..][..2 * w]);
            }
        }
    }

    fn spread(&self, b: usize, w: usize, spectra: &[f32], comb: &mut [f32]) {
        let SpectralConv2d { batch, modes: m, .. } = self.conv;
        comb.fill(0.0);
        for (slot, k1, sign) in self.conv.slots().in_use() {
            let (cos, sin) = comb[k1 * 4 * m * w..][..4 * m * w].split_at_mut(2 * m * w);
            for k2 in 0..m {
                let mode = &spectra[((k2 * 2 * m + slot) * batch + b) * 2 * w..][..2 * w];
                add_apart(sign, mode, &mut cos[k2 * 2 * w..], &mut sin[k2 * 2 * w..]);
            }
        }
    }

    fn synthesize(&self, tile: Range<usize>, w: usize, comb: &[f32], out: &mut [f32], scratch: &mut [f32]) {
        let SpectralConv2d { n1, n2, modes: m, .. } = self.conv;
        let (h, first) = (self.plan.rows.modes(), tile.start % n1);
        let lines = &mut scratch[..tile.len() * 2 * m * w];
        gemm(
            Into::Set,
            1.0,
            View::new(self.plan.rows.basis(first, first + tile.len()), tile.len(), 2 * h),
            View::new(comb, 2 * h, 2 * m * w),
            ViewMut::new(lines, tile.len(), 2 * m * w),
        );
        let basis = View::new(self.plan.columns.basis(0, n2), n2, 2 * m);
        for (s, out) in lines.chunks_exact(2 * m * w).zip(out.chunks_exact_mut(n2 * w)) {
            gemm(Into::Set, 1.0, basis, View::new(s, 2 * m, w), ViewMut::new(out, n2, w));
        }
    }

    fn weight(&self, k: usize) -> f32 {
        self.plan.columns.weight(k)
    }
}
