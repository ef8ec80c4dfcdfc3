//! The encoder layer: fraction of R, fourier against galerkin, growth with n, memory.

use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Input, Kind, Norm};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::encoder::{self, EncoderLayer};
use galerkin_kernels::par;

use crate::timing::{Machine, YARDSTICK_FLOPS, parallel_yardstick, race, values, yardstick};
use crate::unfused::Unfused;
use std::cell::RefCell;

pub fn layer(kind: Kind, batch: usize, n: usize) -> EncoderLayer {
    let attention = Attention {
        kind,
        batch,
        n,
        d: 96,
        heads: 1,
        coordinates: 1,
        projection: true,
        norm: Norm::Layer,
        eps: 1e-5,
        dropout: 0.0,
        key: Key::default(),
        keep: false,
    };
    EncoderLayer {
        attention,
        hidden: 192,
        activation: Activation::Relu,
        norm_after: false,
        eps: 1e-5,
        minus: false,
        residual_dropout: 0.0,
        hidden_dropout: 0.0,
    }
}

/// Parameters of a layer, and as many values again for their gradients.
pub struct Memory(encoder::Parameters<Vec<f32>>);

impl Memory {
    pub fn new(layer: &EncoderLayer, scale: f32) -> Self {
        Self(layer.lengths().map(|len| values(len).iter().map(|v| v * scale).collect()))
    }

    pub fn params(&self) -> encoder::Params<'_> {
        self.0.each_ref().map(|values| values.as_slice())
    }

    pub fn grads(&mut self) -> encoder::Grads<'_> {
        self.0.each_mut().map(|values| values.as_mut_slice())
    }
}

/// A layer with everything it works on.
pub struct Bench {
    layer: EncoderLayer,
    params: Memory,
    grads: Memory,
    x: Vec<f32>,
    dy: Vec<f32>,
    coordinates: Vec<f32>,
    out: Vec<f32>,
    dx: Vec<f32>,
    saved: Vec<f32>,
    workspace: Vec<f32>,
}

impl Bench {
    pub fn new(layer: EncoderLayer) -> Self {
        let points = layer.attention.batch * layer.attention.n;
        let len = points * layer.attention.d;
        Self {
            layer,
            params: Memory::new(&layer, 0.1),
            grads: Memory::new(&layer, 0.0),
            x: values(len),
            dy: values(len),
            coordinates: values(points * layer.attention.coordinates),
            out: vec![0.0; len],
            dx: vec![0.0; len],
            saved: vec![0.0; layer.saved_len()],
            workspace: vec![0.0; layer.workspace_len(par::threads())],
        }
    }

    pub fn forward(&mut self) {
        let input = Input { x: &self.x, coordinates: &self.coordinates, weights: None };
        self.layer.forward(&self.params.params(), input, &mut self.out, &mut self.saved, &mut self.workspace);
    }

    pub fn backward(&mut self) {
        let input = Input { x: &self.x, coordinates: &self.coordinates, weights: None };
        let (params, grads) = (self.params.params(), self.grads.grads());
        self.layer.backward(&params, input, &self.saved, &self.dy, &mut self.dx, grads, &mut self.workspace);
    }
}

/// FLOPs of the products that galerkin and fourier execute, in units of 2d² per point, with f = 2d and one head. Forward: K, V,
/// K̂ᵀV̂, apply, FFN 4. Backward: FFN 8, apply 2, dK̂ and dV̂ 2, projections 4; and unless they were kept apply and W₁ again 3, K and V again 2.
const FORWARD_UNITS: f64 = 8.0;
const BACKWARD_UNITS: f64 = 16.0;
const UNITS_AGAIN: f64 = 5.0;

pub fn run(machine: &Machine) {
    against_gemm(machine);
    against_separate_steps();
    growth();
    memory();
}

/// Executed GEMM FLOPs over time, in units of R.
fn against_gemm(machine: &Machine) {
    let cases =
        [(Kind::Galerkin, false), (Kind::Fourier, false), (Kind::Galerkin, true), (Kind::Fourier, true)];
    for (kind, keep) in cases {
        let mut layer = layer(kind, 8, 2048);
        layer.attention.keep = keep;
        let backward_units = BACKWARD_UNITS + if keep { 0.0 } else { UNITS_AGAIN };
        let bench = RefCell::new(Bench::new(layer));
        let [gemm, all, forward, backward] = race(
            60,
            [
                &mut yardstick(),
                &mut parallel_yardstick(machine.threads),
                &mut || bench.borrow_mut().forward(),
                &mut || bench.borrow_mut().backward(),
            ],
        );
        let threads = machine.threads as f64;
        let (r, together) = (threads * YARDSTICK_FLOPS / gemm, threads * YARDSTICK_FLOPS / all);
        let unit = (2 * 8 * 2048 * 96 * 96) as f64;
        let both = (FORWARD_UNITS + backward_units) * unit / (forward + backward);
        println!(
            "{kind:?}{} b=8 n=2048: forward {:.2} ms = {:.2} R, backward {:.2} ms = {:.2} R, both {:.2} ms = {:.3} R \
             (R = {:.0} GFLOP/s; {:.3} of the {:.0} that all threads reach at once)",
            if keep { ", keeping" } else { "" },
            forward * 1e3,
            FORWARD_UNITS * unit / forward / r,
            backward * 1e3,
            backward_units * unit / backward / r,
            (forward + backward) * 1e3,
            both / r,
            r / 1e9,
            both / together,
            together / 1e9,
        );
    }
}

/// The same layer as whole-tensor steps.
fn against_separate_steps() {
    let fused = RefCell::new(Bench::new(layer(Kind::Galerkin, 8, 2048)));
    let mut steps = Unfused::new(2048);
    let [ours, theirs] = race(
        30,
        [
            &mut || {
                fused.borrow_mut().forward();
                fused.borrow_mut().backward();
            },
            &mut || {
                steps.forward();
                steps.backward();
            },
        ],
    );
    println!(
        "galerkin b=8 n=2048, forward + backward: fused {:.2} ms, separate whole-tensor steps {:.2} ms: {:.2} times faster",
        ours * 1e3,
        theirs * 1e3,
        theirs / ours
    );
}

/// Fourier against galerkin, and both against n.
fn growth() {
    let step = |kind, n| {
        let bench = RefCell::new(Bench::new(layer(kind, 1, n)));
        move || {
            bench.borrow_mut().forward();
            bench.borrow_mut().backward();
        }
    };
    for n in [2048, 65536] {
        let [g, f] = race(10, [&mut step(Kind::Galerkin, n), &mut step(Kind::Fourier, n)]);
        println!(
            "b=1 n={n}: galerkin {:.2} ms, fourier {:.2} ms: fourier / galerkin {:.2}",
            g * 1e3,
            f * 1e3,
            f / g
        );
    }
    for kind in [Kind::Galerkin, Kind::Fourier] {
        let [small, large] = race(10, [&mut step(kind, 8192), &mut step(kind, 65536)]);
        println!("{kind:?} b=1: time at n=65536 / time at n=8192 = {:.2} (8 is linear)", large / small);
    }
    for kind in [Kind::Linear, Kind::Softmax] {
        let [g, other] = race(3, [&mut step(Kind::Galerkin, 2048), &mut step(kind, 2048)]);
        println!("b=1 n=2048: {kind:?} {:.2} ms, {:.1} times galerkin", other * 1e3, other / g);
    }
}

/// Values beyond inputs, outputs, parameters and their gradients.
fn memory() {
    for (batch, n, keep) in [(8, 2048, false), (8, 2048, true), (1, 65536, false)] {
        let mut layer = layer(Kind::Galerkin, batch, n);
        layer.attention.keep = keep;
        let (d, one, two) = (96.0, layer.workspace_len(1) as f64, layer.workspace_len(2) as f64);
        let shared = layer.saved_len() as f64 + 2.0 * one - two;
        println!(
            "galerkin{} b={batch} n={n}: {:.2} n·d floats per sample and {:.0} d² per thread",
            if keep { ", keeping" } else { "" },
            shared / ((batch * n) as f64 * d),
            (two - one) / (d * d)
        );
    }
}
