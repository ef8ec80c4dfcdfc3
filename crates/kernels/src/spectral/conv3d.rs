//! Spectral convolution of functions of three variables.

use std::ops::Range;

use super::layer::{Layer, Transform};
use super::slots::{Slots, add_apart, combine};
use super::{Grads, Parameters, Params, Plan3d};
use crate::activation::Activation;
use crate::dims::{check_len, mismatch, product, take};
use crate::dropout::{Dropout, Key, Site};
use crate::gemm::{Into, View, ViewMut, gemm};
use crate::par::Rows;

/// Points per tile, as far as whole planes of the grid allow.
const TILE: usize = 1024;

/// Shapes and options of a spectral convolution in 3D. The letters are those of the [module](super); n = n₁n₂n₃ points, the
/// third axis running fastest.
#[derive(Clone, Copy, Debug)]
pub struct SpectralConv3d {
    /// B, samples.
    pub batch: usize,
    /// n₁, planes of the grid.
    pub n1: usize,
    /// n₂, lines of a plane.
    pub n2: usize,
    /// n₃, points of a line: the axis of the half spectrum.
    pub n3: usize,
    /// i, channels of x.
    pub inputs: usize,
    /// o, channels of the output.
    pub outputs: usize,
    /// m, kept modes: the columns k₃ < m of the rows k₁ < m and k₁ ≥ n₁ − m, and of k₂ likewise. At least 1, at most n₁, n₂ and
    /// n₃/2 + 1.
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

impl SpectralConv3d {
    /// The plan that [`forward`](Self::forward) and [`backward`](Self::backward) take. Only n₁, n₂, n₃ and m matter to it.
    pub fn plan(&self) -> Plan3d {
        Plan3d::new(self.n1, self.n2, self.n3, self.modes)
    }

    /// Values of the spectral weights, (m, 2, m, 2, m, 2, i, o).
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

    /// x (B, n₁, n₂, n₃, i) → out (B, n₁, n₂, n₃, o).
    pub fn forward(
        &self,
        plan: &Plan3d,
        params: &Params,
        x: &[f32],
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        self.layer().forward(&self.volume(plan), params, x, out, saved, workspace);
    }

    /// dy (B, n₁, n₂, n₃, o) → dx (B, n₁, n₂, n₃, i) and the gradients of the parameters, all overwritten. `saved` is from the
    /// forward pass.
    pub fn backward(
        &self,
        plan: &Plan3d,
        params: &Params,
        x: &[f32],
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        grads: Grads,
        workspace: &mut [f32],
    ) {
        self.layer().backward(&self.volume(plan), params, x, saved, dy, dx, grads, workspace);
    }

    /// The mixed spectrum before the inverse transform, from `saved` to (B, o, n₁, n₂, n₃/2 + 1, 2) with zeros for the modes
    /// not kept.
    pub fn spectrum(&self, plan: &Plan3d, saved: &[f32], spectrum: &mut [f32]) {
        let (m, bins, o) = (self.modes, self.n3 / 2 + 1, self.outputs);
        let [first, second] = self.slots();
        check_len("saved", saved.len(), self.saved_len(), &self.sizes());
        let len = self.batch * o * self.n1 * self.n2 * bins * 2;
        check_len("spectrum", spectrum.len(), len, &self.sizes());
        let after = &saved[m * 4 * m * m * self.batch * 2 * self.inputs..];
        spectrum.fill(0.0);
        let slots = (0..2 * m).flat_map(|s1| (0..2 * m).map(move |s2| (s1, s2)));
        for (k3, (s1, s2)) in (0..m.min(bins)).flat_map(|k3| slots.clone().map(move |slots| (k3, slots))) {
            let (Some(k1), Some(k2)) = (first.frequency(s1), second.frequency(s2)) else { continue };
            for b in 0..self.batch {
                for c in 0..o {
                    for part in 0..2 {
                        let mode = (k3 * 2 * m + s1) * 2 * m + s2;
                        let value = after[((mode * self.batch + b) * 2 + part) * o + c];
                        let at = ((((b * o + c) * self.n1 + k1) * self.n2 + k2) * bins + k3) * 2 + part;
                        spectrum[at] = value / plan.columns.weight(k3);
                    }
                }
            }
        }
    }

    /// The reference's weights, one (i, o, m, m, m, 2) per pair of blocks, in the layout (m, 2, m, 2, m, 2, i, o). The pairs
    /// (block of k₁, block of k₂) come in the order 00, 10, 01, 11, as Li et al. have them.
    pub fn weights_from_reference<T: Copy>(&self, reference: [&[T]; 4], weights: &mut [T]) {
        self.check_weights(reference.map(|block| block.len()), weights.len());
        self.for_each_weight(|own, (block, theirs)| weights[own] = reference[block][theirs]);
    }

    /// The inverse of [`weights_from_reference`](Self::weights_from_reference), for gradients as well.
    pub fn weights_to_reference<T: Copy>(&self, weights: &[T], reference: [&mut [T]; 4]) {
        self.check_weights(reference.each_ref().map(|block| block.len()), weights.len());
        self.for_each_weight(|own, (block, theirs)| reference[block][theirs] = weights[own]);
    }

    /// Dropout of the Fourier path's input; the value of sample b, point j, channel c lies at position (b·n + j)·i + c.
    pub fn input_dropout(&self) -> Dropout {
        Dropout { rate: self.dropout, key: self.key, site: Site::Spectral }
    }

    /// Slots of the first and of the second axis.
    fn slots(&self) -> [Slots; 2] {
        [self.n1, self.n2].map(|n| Slots { n, modes: self.modes })
    }

    /// Calls `f(index in (m, 2, m, 2, m, 2, i, o), (block, index in (i, o, m, m, m, 2)))` for every weight.
    fn for_each_weight(&self, mut f: impl FnMut(usize, (usize, usize))) {
        let (m, pairs) = (self.modes, self.inputs * self.outputs);
        let mut own = 0;
        for mode in 0..m * 2 * m * 2 * m {
            let (k3, s1, s2) = (mode / (4 * m * m), mode / (2 * m) % (2 * m), mode % (2 * m));
            let (block, row_1, row_2) = (s1 / m + 2 * (s2 / m), s1 % m, s2 % m);
            for part in 0..2 {
                for pair in 0..pairs {
                    f(own, (block, (((pair * m + row_1) * m + row_2) * m + k3) * 2 + part));
                    own += 1;
                }
            }
        }
    }

    fn check_weights(&self, reference: [usize; 4], own: usize) {
        for block in reference {
            check_len("a block of reference weights", block, self.weights_len() / 4, &self.sizes());
        }
        check_len("spectral weights", own, self.weights_len(), &self.sizes());
    }

    fn sizes(&self) -> [(&'static str, usize); 7] {
        [
            ("batch", self.batch),
            ("n1", self.n1),
            ("n2", self.n2),
            ("n3", self.n3),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("modes", self.modes),
        ]
    }

    fn volume<'a>(&self, plan: &'a Plan3d) -> Volume<'a> {
        let (found, own) =
            ([&plan.planes, &plan.lines, &plan.columns].map(|p| p.n()), [self.n1, self.n2, self.n3]);
        let empty = own.contains(&0) && found.contains(&0);
        if !empty && found != own || plan.columns.modes() != self.modes {
            let [p1, p2, p3] = found;
            let sizes =
                [("plan.n1", p1), ("plan.n2", p2), ("plan.n3", p3), ("plan.modes", plan.columns.modes())];
            mismatch("spectral convolution and its plan", &[&self.sizes()[..], &sizes].concat());
        }
        Volume { plan, conv: *self }
    }

    /// Planes of the grid, cut so that lanes and tiles have about as many points as in 1D.
    fn rows(&self) -> Rows {
        let n = product("points of a grid", &[("n1", self.n1), ("n2", self.n2), ("n3", self.n3)]);
        let by_points = Rows::new(self.batch, n, TILE);
        let chunks = by_points.chunks.min(self.n1).max(1);
        Rows {
            n: self.n1,
            tile: (TILE / (self.n2 * self.n3).max(1)).max(1),
            chunks,
            lanes: by_points.lanes.min((self.batch * chunks).max(1)),
            ..by_points
        }
    }

    fn layer(&self) -> Layer {
        let (rows, [first, second]) = (self.rows(), self.slots());
        let [h1, h2] = [first, second].map(|slots| slots.frequencies());
        // Per channel: the lines that are left of a plane, their spectra, and the spectrum of the plane.
        let (lines, spectra, plane) = (2 * h2 * self.n3, 2 * h2 * 2 * self.modes, self.plane_len());
        Layer {
            rows,
            points: self.n2 * self.n3,
            inputs: self.inputs,
            outputs: self.outputs,
            columns: self.modes,
            slots: first.count() * second.count(),
            zero_slot: first.zero() * second.count() + second.zero(),
            partial_per_row: true,
            partial: plane,
            comb: 2 * h1 * plane,
            zero_in_comb: second.zero() * 2,
            scratch: (2 * h1 * second.count() * 2).max(rows.tile.min(self.n1) * plane + spectra + lines),
            pointwise: self.pointwise,
            activation: self.activation,
            dropout: self.input_dropout(),
        }
    }

    /// Values of the spectrum of a plane per channel, (m, slots, 2).
    fn plane_len(&self) -> usize {
        self.modes * 2 * self.modes * 2
    }
}

/// The transform of a volume: E₂ᵀ across the lines of a plane and E₃ᵀ on the few lines that leaves, which is all of a plane's
/// transform; then E₁ᵀ across the planes. E₃ᵀ first would be a small product per line of the plane.
///
/// The spectrum of a plane is (m, slots of k₂, 2, w), the signs of k₂ combined. A comb, (h₁, 2, m, slots of k₂, 2, w), is what
/// E₁ takes to the spectra of the planes: the adjoint of how [`Slots`] combines the signs of k₁.
struct Volume<'a> {
    plan: &'a Plan3d,
    conv: SpectralConv3d,
}

impl Transform for Volume<'_> {
    fn analyze(
        &self,
        chunk: usize,
        tile: Range<usize>,
        w: usize,
        x: &[f32],
        partial: &mut [f32],
        mut scratch: &mut [f32],
    ) {
        let SpectralConv3d { n2, n3, modes: m, .. } = self.conv;
        let ([_, slots], h, plane) = (self.conv.slots(), self.plan.lines.modes(), self.conv.plane_len() * w);
        let along = View::new(self.plan.columns.basis(0, n3), n3, 2 * m);
        let across = View::new(self.plan.lines.basis(0, n2), n2, 2 * h);
        let lines = take(&mut scratch, 2 * h * n3 * w);
        let t = take(&mut scratch, 2 * h * 2 * m * w);
        let partial = &mut partial[(tile.start - chunk) * plane..];
        for (x, spectrum) in x.chunks_exact(n2 * n3 * w).zip(partial.chunks_exact_mut(plane)) {
            let plane = View::new(x, n2, n3 * w);
            gemm(Into::Set, 1.0, across.t(), plane, ViewMut::new(lines, 2 * h, n3 * w));
            for (line, t) in lines.chunks_exact(n3 * w).zip(t.chunks_exact_mut(2 * m * w)) {
                gemm(Into::Set, 1.0, along.t(), View::new(line, n3, w), ViewMut::new(t, 2 * m, w));
            }
            // Slots that another has overwritten are zero, and so are their products and gradients.
            spectrum.fill(0.0);
            for (slot, k2, sign) in slots.in_use() {
                let (cos, sin) = t[k2 * 4 * m * w..][..4 * m * w].split_at(2 * m * w);
                for k3 in 0..m {
                    let mode = &mut spectrum[(k3 * slots.count() + slot) * 2 * w..][..2 * w];
                    combine(sign, &cos[k3 * 2 * w..], &sin[k3 * 2 * w..], mode);
                }
            }
        }
    }

    fn collect(&self, k: usize, w: usize, partial: &[f32], spectrum: &mut [f32], scratch: &mut [f32]) {
        let SpectralConv3d { batch, n1, .. } = self.conv;
        let ([slots, inner], h, plane) =
            (self.conv.slots(), self.plan.planes.modes(), self.conv.plane_len() * w);
        let basis = View::new(self.plan.planes.basis(0, n1), n1, 2 * h);
        // A column of the spectrum of a plane.
        let column = inner.count() * 2 * w;
        let t = &mut scratch[..2 * h * column];
        spectrum.fill(0.0);
        for b in 0..batch {
            let planes = View::strided(&partial[b * n1 * plane + k * column..], n1, column, plane);
            gemm(Into::Set, 1.0, basis.t(), planes, ViewMut::new(t, 2 * h, column));
            for (s1, k1, sign) in slots.in_use() {
                let (cos, sin) = t[k1 * 2 * column..][..2 * column].split_at(column);
                for s2 in 0..inner.count() {
                    let mode = &mut spectrum[((s1 * inner.count() + s2) * batch + b) * 2 * w..][..2 * w];
                    combine(sign, &cos[s2 * 2 * w..], &sin[s2 * 2 * w..], mode);
                }
            }
        }
    }

    fn spread(&self, b: usize, w: usize, spectra: &[f32], comb: &mut [f32]) {
        let SpectralConv3d { batch, modes: m, .. } = self.conv;
        let ([slots, inner], plane) = (self.conv.slots(), self.conv.plane_len() * w);
        comb.fill(0.0);
        for (s1, k1, sign) in slots.in_use() {
            let (cos, sin) = comb[k1 * 2 * plane..][..2 * plane].split_at_mut(plane);
            for (k3, s2) in (0..m).flat_map(|k3| (0..inner.count()).map(move |s2| (k3, s2))) {
                let mode = (k3 * slots.count() + s1) * inner.count() + s2;
                let at = (k3 * inner.count() + s2) * 2 * w;
                add_apart(
                    sign,
                    &spectra[(mode * batch + b) * 2 * w..][..2 * w],
                    &mut cos[at..],
                    &mut sin[at..],
                );
            }
        }
    }

    fn synthesize(
        &self,
        tile: Range<usize>,
        w: usize,
        comb: &[f32],
        out: &mut [f32],
        mut scratch: &mut [f32],
    ) {
        let SpectralConv3d { n1, n2, n3, modes: m, .. } = self.conv;
        let ([_, slots], plane) = (self.conv.slots(), self.conv.plane_len() * w);
        let (h1, h2, first) = (self.plan.planes.modes(), self.plan.lines.modes(), tile.start % n1);
        let planes = take(&mut scratch, tile.len() * plane);
        let t = take(&mut scratch, 2 * h2 * 2 * m * w);
        let lines = take(&mut scratch, 2 * h2 * n3 * w);
        gemm(
            Into::Set,
            1.0,
            View::new(self.plan.planes.basis(first, first + tile.len()), tile.len(), 2 * h1),
            View::new(comb, 2 * h1, plane),
            ViewMut::new(planes, tile.len(), plane),
        );
        let along = View::new(self.plan.columns.basis(0, n3), n3, 2 * m);
        let across = View::new(self.plan.lines.basis(0, n2), n2, 2 * h2);
        for (spectrum, out) in planes.chunks_exact(plane).zip(out.chunks_exact_mut(n2 * n3 * w)) {
            t.fill(0.0);
            for (slot, k2, sign) in slots.in_use() {
                let (cos, sin) = t[k2 * 4 * m * w..][..4 * m * w].split_at_mut(2 * m * w);
                for k3 in 0..m {
                    let mode = &spectrum[(k3 * slots.count() + slot) * 2 * w..][..2 * w];
                    add_apart(sign, mode, &mut cos[k3 * 2 * w..], &mut sin[k3 * 2 * w..]);
                }
            }
            for (t, line) in t.chunks_exact(2 * m * w).zip(lines.chunks_exact_mut(n3 * w)) {
                gemm(Into::Set, 1.0, along, View::new(t, 2 * m, w), ViewMut::new(line, n3, w));
            }
            let lines = View::new(lines, 2 * h2, n3 * w);
            gemm(Into::Set, 1.0, across, lines, ViewMut::new(out, n2, n3 * w));
        }
    }

    fn weight(&self, k: usize) -> f32 {
        self.plan.columns.weight(k)
    }
}
