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
        let (m, n, k) = (240, 96, 96);
        let (a, b, mut c) = (values(m * k), values(k * n), vec![0.0; m * n]);
        let seconds = best_of(20, || {
            for _ in 0..200 {
                gemm(Into::Set, 1.0, View::new(&a, m, k), View::new(&b, k, n), ViewMut::new(&mut c, m, n));
            }
        });
        let threads = galerkin_kernels::par::threads();
        Self { threads, gemm_rate: 200.0 * (2 * m * n * k) as f64 / seconds }
    }

    /// R: threads × the single-thread rate.
    pub fn r(&self) -> f64 {
        self.threads as f64 * self.gemm_rate
    }
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
