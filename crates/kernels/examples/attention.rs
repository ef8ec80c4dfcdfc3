//! Galerkin attention sees a function, not its samples: the same layer on n, 2n, 4n … points of one smooth function.
//!
//! `cargo run --release -p galerkin-kernels --example attention`
//!
//! Each line: the largest difference, at the points both grids share, to the output on the grid before, relative to the output, and
//! the time per point. The sum over points is a quadrature, so differences shrink as the grid is refined; and the cost per
//! point stays what it is, because the attention is linear in n.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use galerkin_kernels::attention::{Attention, Input, Kind, Norm, Params};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::par;
use galerkin_kernels::random::philox;

const D: usize = 64;
const HEADS: usize = 4;

fn main() {
    // Weights of variance 1/d, the same for all grids.
    let draw = |tag: u32, len: usize| -> Vec<f32> {
        let unit = |i| philox([i, tag, 0, 0], [1, 2])[0] as f32 / 2_147_483_648.0 - 1.0;
        (0..len as u32).map(|i| unit(i) * (3.0 / D as f32).sqrt()).collect()
    };
    let (w_q, w_k, w_v) = (draw(0, D * D), draw(1, D * D), draw(2, D * D));
    let (w_o, b) = (draw(3, (D + HEADS) * D), draw(4, D));
    let (gamma, beta) = (vec![1.0; D], vec![0.0; D]);
    #[rustfmt::skip]
    let params = Params {
        w_q: &w_q, b_q: &b, w_k: &w_k, b_k: &b, w_v: &w_v, b_v: &b, w_o: &w_o, b_o: &b,
        gamma_k: &gamma, beta_k: &beta, gamma_qv: &gamma, beta_qv: &beta,
    };

    println!("{:>8} {:>12} {:>12}", "points", "difference", "ns/point");
    let mut coarse: Vec<f32> = Vec::new();
    for n in [256, 512, 1024, 2048, 4096, 8192, 16384] {
        let (y, seconds) = attend(&params, n);
        let shared = coarse.chunks_exact(D).zip(y.chunks_exact(2 * D));
        let difference =
            shared.flat_map(|(a, b)| a.iter().zip(b)).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        let largest = y.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let difference = if coarse.is_empty() { "-".into() } else { format!("{:.2e}", difference / largest) };
        println!("{n:>8} {difference:>12} {:>12.0}", seconds / n as f64 * 1e9);
        coarse = y;
    }
}

/// The layer's output on the grid x_j = j/n, and the shortest of several runs in seconds.
fn attend(params: &Params, n: usize) -> (Vec<f32>, f64) {
    let layer = Attention {
        kind: Kind::Galerkin,
        batch: 1,
        n,
        d: D,
        heads: HEADS,
        coordinates: 1,
        projection: true,
        norm: Norm::Layer,
        eps: 1e-5,
        dropout: 0.0,
        key: Key::default(),
        keep: false,
    };
    let coordinates: Vec<f32> = (0..n).map(|j| j as f32 / n as f32).collect();
    // Feature c is a smooth function of the coordinate, not periodic: an endpoint error of O(1/n) remains.
    let feature = |t: f32, c: usize| (1.0 + c as f32 / 9.0 + t * (1.0 + (c % 7) as f32)).sin() * t.exp();
    let x: Vec<f32> = coordinates.iter().flat_map(|&t| (0..D).map(move |c| feature(t, c))).collect();
    let mut y = vec![0.0; n * D];
    let mut saved = vec![0.0; layer.saved_len()];
    let mut workspace = vec![0.0; layer.workspace_len(par::threads())];
    let input = Input { x: &x, coordinates: &coordinates, weights: None };
    let mut seconds = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        layer.forward(params, input, &mut y, &mut saved, &mut workspace);
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    (y, seconds)
}
