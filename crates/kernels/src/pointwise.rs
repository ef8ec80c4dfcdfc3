//! Dropout and activation of every value by itself: y = act(drop(x)).

use crate::activation::Activation;
use crate::dims::check_len;
use crate::dropout::Dropout;
use crate::par::{self, pieces};

/// Length and options.
#[derive(Clone, Copy, Debug)]
pub struct Pointwise {
    /// Values.
    pub len: usize,
    /// Dropout before the activation; a value lies at its own index.
    pub dropout: Dropout,
    /// The activation.
    pub activation: Activation,
}

/// Values of an item of work: they stay in L1 between the steps they go through.
const BLOCK: usize = 4096;

impl Pointwise {
    /// y = act(drop(x)).
    pub fn forward(&self, x: &[f32], y: &mut [f32]) {
        self.check(["pointwise x", "pointwise y"], [x.len(), y.len()]);
        self.each_block(y, &|at, y, z| {
            z.copy_from_slice(&x[at..at + y.len()]);
            self.dropout.apply(at as u64, z);
            self.activation.forward(z, y);
        });
    }

    /// dx = drop(dy·act'(drop(x))).
    pub fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        self.check(["pointwise x", "pointwise dy"], [x.len(), dy.len()]);
        self.check(["pointwise x", "pointwise dx"], [x.len(), dx.len()]);
        self.each_block(dx, &|at, dx, z| {
            z.copy_from_slice(&x[at..at + dx.len()]);
            self.dropout.apply(at as u64, z);
            dx.copy_from_slice(&dy[at..at + dx.len()]);
            self.activation.backward(z, dx);
            self.dropout.apply(at as u64, dx);
        });
    }

    /// Calls `work(first index, block of out, as much scratch)`.
    fn each_block(&self, out: &mut [f32], work: &(impl Fn(usize, &mut [f32], &mut [f32]) + Sync)) {
        let (len, blocks) = (self.len, self.len.div_ceil(BLOCK));
        par::for_each(blocks, pieces(out, move |i| (i * BLOCK).min(len)), &mut [], 0, &|i, out, _| {
            let mut scratch = [0.0; BLOCK];
            work(i * BLOCK, out, &mut scratch[..out.len()]);
        });
    }

    #[track_caller]
    fn check(&self, what: [&str; 2], lens: [usize; 2]) {
        for (what, len) in what.into_iter().zip(lens) {
            check_len(what, len, self.len, &[("len", self.len)]);
        }
    }
}
