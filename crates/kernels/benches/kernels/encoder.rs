//! The encoder layer: fraction of R, fourier against galerkin, growth with n, memory.

use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{self, Attention, Input, Kind, Norm};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::encoder::{self, EncoderLayer};
use galerkin_kernels::par;

use crate::timing::{Machine, best_of, values};

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
pub struct Memory {
    attention: Vec<Vec<f32>>,
    own: Vec<Vec<f32>>,
}

impl Memory {
    pub fn new(layer: &EncoderLayer, scale: f32) -> Self {
        let fill = |len: &usize| values(*len).iter().map(|v| v * scale).collect();
        Self { attention: layer.attention.lengths().iter().map(fill).collect(), own: layer.lengths().iter().map(fill).collect() }
    }

    pub fn params(&self) -> encoder::Params<'_> {
        let a: Vec<&[f32]> = self.attention.iter().map(|v| v.as_slice()).collect();
        let o: Vec<&[f32]> = self.own.iter().map(|v| v.as_slice()).collect();
        let attention = attention::Params {
            w_q: a[0], b_q: a[1], w_k: a[2], b_k: a[3], w_v: a[4], b_v: a[5], gamma_k: a[6], beta_k: a[7],
            gamma_qv: a[8], beta_qv: a[9], w_o: a[10], b_o: a[11],
        };
        encoder::Params {
            attention, w_1: o[0], b_1: o[1], w_2: o[2], b_2: o[3], gamma_1: o[4], beta_1: o[5], gamma_2: o[6],
            beta_2: o[7],
        }
    }

    pub fn grads(&mut self) -> encoder::Grads<'_> {
        let [w_q, b_q, w_k, b_k, w_v, b_v, gamma_k, beta_k, gamma_qv, beta_qv, w_o, b_o] =
            self.attention.each_mut_array();
        let [w_1, b_1, w_2, b_2, gamma_1, beta_1, gamma_2, beta_2] = self.own.each_mut_array();
        let attention = attention::Grads {
            w_q, b_q, w_k, b_k, w_v, b_v, gamma_k, beta_k, gamma_qv, beta_qv, w_o, b_o,
        };
        encoder::Grads { attention, w_1, b_1, w_2, b_2, gamma_1, beta_1, gamma_2, beta_2 }
    }
}

trait EachMut {
    fn each_mut_array<const N: usize>(&mut self) -> [&mut [f32]; N];
}

impl EachMut for Vec<Vec<f32>> {
    fn each_mut_array<const N: usize>(&mut self) -> [&mut [f32]; N] {
        let slices: Vec<&mut [f32]> = self.iter_mut().map(|v| v.as_mut_slice()).collect();
        slices.try_into().expect("one slice per field")
    }
}

/// Seconds of forward and of backward, each the best of `times`.
pub fn time(layer: &EncoderLayer, times: usize) -> (f64, f64) {
    let len = layer.attention.batch * layer.attention.n * layer.attention.d;
    let (memory, mut grads) = (Memory::new(layer, 0.1), Memory::new(layer, 0.0));
    let (x, dy) = (values(len), values(len));
    let coordinates = values(layer.attention.batch * layer.attention.n * layer.attention.coordinates);
    let (mut out, mut dx) = (vec![0.0; len], vec![0.0; len]);
    let mut saved = vec![0.0; layer.saved_len()];
    let mut workspace = vec![0.0; layer.workspace_len(par::threads())];
    let input = Input { x: &x, coordinates: &coordinates, weights: None };
    let params = memory.params();
    let forward = best_of(times, || layer.forward(&params, input, &mut out, &mut saved, &mut workspace));
    let backward = best_of(times, || {
        layer.backward(&params, input, &saved, &dy, &mut dx, grads.grads(), &mut workspace)
    });
    (forward, backward)
}

pub fn run(machine: &Machine) {
    // FLOPs of products executed, in units of 2d² per point, with f = 2d and one head:
    // forward K, V, K̂ᵀV̂, apply, FFN 4 = 8; backward apply, W₁ again 3, FFN 8, apply 2, K, V again 2, dK̂, dV̂ 2, projections 4 = 21.
    let unit = |layer: &EncoderLayer| {
        (2 * layer.attention.batch * layer.attention.n * layer.attention.d * layer.attention.d) as f64
    };
    let main = layer(Kind::Galerkin, 8, 2048);
    for kind in [Kind::Galerkin, Kind::Fourier] {
        let l = layer(kind, 8, 2048);
        let (forward, backward) = time(&l, 30);
        println!(
            "{kind:?} b=8 n=2048: forward {:.2} ms ({:.2} R), backward {:.2} ms ({:.2} R), both {:.2} ms = {:.3} R",
            forward * 1e3,
            8.0 * unit(&l) / forward / machine.r(),
            backward * 1e3,
            21.0 * unit(&l) / backward / machine.r(),
            (forward + backward) * 1e3,
            29.0 * unit(&l) / (forward + backward) / machine.r(),
        );
    }
    let _ = main;
}
