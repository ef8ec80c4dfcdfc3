//! Convolution, resize and the optimiser's step.

use galerkin_kernels::activation::Activation;
use galerkin_kernels::adam::{Adam, Slot, Step};
use galerkin_kernels::conv3x3::{Conv3x3, Grads, Params};
use galerkin_kernels::dropout::{Dropout, Key, Site};
use galerkin_kernels::resize::Resize;

use crate::timing::{Machine, best_of, values};

/// Convolutions of the Darcy network, as fractions of R: products of the plain sum over nine taps, of which a third is saved, over time. As in the
/// network's training z is kept, but for the first convolution's.
pub fn conv(machine: &Machine) {
    let shape = |n: usize, inputs, outputs, activation| Conv3x3 {
        batch: 4,
        n1: n,
        n2: n,
        inputs,
        outputs,
        bias: false,
        dropout: None,
        activation,
        keep: inputs > 1,
    };
    for activation in [Activation::None, Activation::Silu] {
        conv_rows(machine, &shape(77, 128, 128, activation), true);
        conv_rows(machine, &shape(78, 128, 42, activation), true);
        conv_rows(machine, &shape(78, 42, 42, activation), true);
        conv_rows(machine, &shape(141, 1, 128, activation), false);
    }
    conv_rows(machine, &shape(50, 42, 42, Activation::Silu), true);
    conv_rows(machine, &shape(141, 1, 128, Activation::None), true);
}

fn conv_rows(machine: &Machine, shape: &Conv3x3, wants_dx: bool) {
    let (x, w, dy) = (values(shape.x_len()), values(shape.lengths().w), values(shape.y_len()));
    let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
    let (mut saved, mut workspace) =
        (vec![0.0; shape.saved_len()], vec![0.0; shape.workspace_len(machine.threads)]);
    let params = Params { w: &w, b: &[] };
    let forward = best_of(10, || shape.forward(&x, params, &mut y, &mut saved, &mut workspace));
    let backward = best_of(10, || {
        let dx = if wants_dx { Some(&mut dx[..]) } else { None };
        shape.backward(&x, params, &saved, &dy, dx, Grads { w: &mut dw, b: &mut [] }, &mut workspace);
    });
    let product = 2.0 * (shape.y_len() * 9 * shape.inputs) as f64;
    // dW, dx if wanted, and z again under an activation if it was not kept.
    let again = shape.activation != Activation::None && !shape.keep;
    let products = 1.0 + wants_dx as u8 as f64 + again as u8 as f64;
    println!(
        "{}x{} {}→{} {:?}{}",
        shape.n1,
        shape.n2,
        shape.inputs,
        shape.outputs,
        shape.activation,
        if wants_dx { "" } else { ", no dx" }
    );
    for (name, products, seconds) in [
        ("forward", 1.0, forward),
        ("backward", products, backward),
        ("both", 1.0 + products, forward + backward),
    ] {
        let rate = products * product / seconds;
        println!("  {name:<9}{:7.2} ms  {:.2} R", 1e3 * seconds, rate / machine.r());
    }
}

/// Resizes of the Darcy network as bytes read and written per second, beside a copy of as many bytes.
pub fn resize(machine: &Machine) {
    for (n, m) in [(43, 77), (77, 141), (141, 78), (78, 43)] {
        for activation in [Activation::None, Activation::Silu] {
            let plan = Resize::new([n, n], [m, m], 128, activation);
            let (x, dy) = (values(plan.x_len(4)), values(plan.y_len(4)));
            let (mut y, mut dx) = (dy.clone(), x.clone());
            let mut workspace = vec![0.0; plan.workspace_len(4, machine.threads)];
            let forward = best_of(10, || plan.forward(4, &x, &mut y, &mut workspace));
            let backward = best_of(10, || plan.backward(4, &x, &dy, &mut dx, &mut workspace));
            let values = x.len() + y.len();
            let copy = copy_rate(machine, values / 2);
            println!("{n}→{m}, 128 channels {activation:?} (copy {:.1} GB/s)", copy / 1e9);
            for (name, seconds) in [("forward", forward), ("backward", backward)] {
                let rate = 4.0 * values as f64 / seconds;
                println!(
                    "  {name:<9}{:7.2} ms  {:5.1} GB/s  {:.2} of a copy",
                    1e3 * seconds,
                    rate / 1e9,
                    rate / copy
                );
            }
        }
    }
}

/// A step over 2.2 million parameters in a hundred slots.
pub fn adam(machine: &Machine) {
    // Sizes of a network: many small ones, some middling, few large.
    let lens: Vec<usize> =
        (0..100).map(|i| [96, 96, 9216, 96, 18_432, 96, 9216, 192, 9216, 175_000][i % 10]).collect();
    let total: usize = lens.iter().sum();
    let all = || lens.iter().map(|&len| values(len)).collect::<Vec<_>>();
    let (mut params, mut grads, mut m, mut v) = (all(), all(), all(), all());
    v.iter_mut().flatten().for_each(|v| *v = v.abs());
    let adam = Adam { beta2: 0.999, eps: 1e-8, weight_decay: 0.0, max_norm: 0.99 };
    let mut t = 0;
    let seconds = best_of(20, || {
        t += 1;
        let state = m.iter_mut().zip(&mut v);
        let slots = params.iter_mut().zip(&mut grads).zip(state);
        let mut slots: Vec<Slot> = slots.map(|((param, grad), (m, v))| Slot { param, grad, m, v }).collect();
        adam.step(Step { lr: 1e-3, beta1: 0.9, t }, &mut slots);
    });
    // g is read twice (norm, step); p, g, m, v are read and written.
    let bytes = 4.0 * 9.0 * total as f64;
    let copy = copy_rate(machine, 4 * total);
    println!(
        "{total} parameters in {} slots: {:.2} ms  {:.1} GB/s  {:.2} of a copy at {:.1} GB/s",
        lens.len(),
        1e3 * seconds,
        bytes / seconds / 1e9,
        bytes / seconds / copy,
        copy / 1e9
    );
}

/// Bytes read and written per second by a copy of `len` values on all threads.
fn copy_rate(machine: &Machine, len: usize) -> f64 {
    let (from, mut to) = (values(len), vec![0.0f32; len]);
    let share = len.div_ceil(machine.threads).max(1);
    let offset = |i: usize| (i * share).min(len);
    let seconds = best_of(10, || {
        let to = galerkin_kernels::par::pieces(&mut to, offset);
        galerkin_kernels::par::for_each(machine.threads, to, &mut [], 0, &|i, to: &mut [f32], _| {
            to.copy_from_slice(&from[offset(i)..][..to.len()]);
        });
    });
    8.0 * len as f64 / seconds
}

/// Masks, in nanoseconds per value, from the start of a group of positions and from within one.
pub fn dropout(_: &Machine) {
    let dropout = Dropout { rate: 0.05, key: Key::default(), site: Site::Outside };
    let mut values = values(1 << 20);
    for row in [128, 2100] {
        let seconds = best_of(10, || {
            for (i, row_of_values) in values.chunks_mut(row).enumerate() {
                dropout.apply((i * row) as u64, row_of_values);
            }
        });
        println!("rows of {row}: {:.2} ns a value", 1e9 * seconds / values.len() as f64);
    }
}
