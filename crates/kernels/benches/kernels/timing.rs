//! The clock, the yardstick R and test data.

use std::time::Instant;

use galerkin_kernels::gemm::{Into, View, ViewMut, gemm};

/// What this machine can do, measured in this run.
pub struct Machine {
    pub threads: usize,
    /// FLOP/s of one thread on a 240 × 96 × 96 product.
    pub gemm_rate: f64,
}

impl Machine {
    pub fn measure() -> Self {
        let seconds = best_of(100, yardstick());
        Self { threads: galerkin_kernels::par::threads(), gemm_rate: YARDSTICK_FLOPS / seconds }
    }

    /// R: threads × the single-thread rate.
    pub fn r(&self) -> f64 {
        self.threads as f64 * self.gemm_rate
    }
}

/// FLOPs of one call of a [`yardstick`].
pub const YARDSTICK_FLOPS: f64 = 100.0 * (2 * 240 * 96 * 96) as f64;

/// A hundred products 240 × 96 × 96 on one thread, which is what R is measured with.
pub fn yardstick() -> impl FnMut() {
    let (m, n, k) = (240, 96, 96);
    let (a, b, mut c) = (values(m * k), values(k * n), vec![0.0; m * n]);
    move || {
        for _ in 0..100 {
            gemm(Into::Set, 1.0, View::new(&a, m, k), View::new(&b, k, n), ViewMut::new(&mut c, m, n));
        }
    }
}

/// The yardstick on every thread at once: what the machine has to give to a parallel kernel at this moment.
pub fn parallel_yardstick(threads: usize) -> impl FnMut() {
    let each: Vec<_> = (0..threads).map(|_| std::sync::Mutex::new(yardstick())).collect();
    move || {
        galerkin_kernels::par::for_each(
            threads,
            galerkin_kernels::par::equal(&mut vec![0.0f32; threads], 1),
            &mut [],
            0,
            &|i, _, _| (each[i].lock().expect("one thread per yardstick"))(),
        );
    }
}

/// Runs the contestants in turn, `rounds` times, and gives the shortest time of each, in seconds.
///
/// A shared machine changes its speed from second to second; contestants that take turns meet the same weather.
pub fn race<const N: usize>(rounds: usize, mut contestants: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for round in 0..=rounds {
        for (contestant, best) in contestants.iter_mut().zip(&mut best) {
            let start = Instant::now();
            contestant();
            // The first round warms up.
            if round > 0 {
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
    }
    best
}

/// The shortest of `times` runs, in seconds, after one that warms up.
pub fn best_of(times: usize, mut f: impl FnMut()) -> f64 {
    f();
    (0..times)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Some values in (−1, 1) that are no pattern.
pub fn values(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32) - 1.0).collect()
}
