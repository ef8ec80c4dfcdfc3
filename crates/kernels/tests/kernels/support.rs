//! Data, comparisons and central differences for all tests.

use galerkin_kernels::random::philox;

/// Values in [−1, 1), a function of `tag` and the index alone.
pub fn values(tag: u32, len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| philox([i, tag, 0, 0], [0x5eed, 0])[0] as f32 / 2_147_483_648.0 - 1.0).collect()
}

/// The same values in f64.
pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| v as f64).collect()
}

/// Asserts max |got − want| ≤ roundings · ε_f32 · max |want|.
///
/// `roundings` is how many units of rounding the computation may pile up, relative to its largest value: about the square
/// root of the longest sum times the number of sums in a row, with a margin of a few.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f64], roundings: f64) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs())).max(1e-6);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (*g as f64 - w).abs();
        assert!(
            error <= roundings * f32::EPSILON as f64 * scale,
            "{what}[{i}]: found {g}, expected {w}; off by {:.1} roundings of {scale:.3e}, allowed {roundings}",
            error / (f32::EPSILON as f64 * scale)
        );
    }
}

/// Entries of a gradient that are compared with differences. Miri is to watch the kernels, and would spend its time on the reference.
const ENTRIES: usize = if cfg!(miri) { 3 } else { 60 };

/// Compares a gradient with central differences of a scalar function in f64, at up to [`ENTRIES`] entries spread over the vector.
///
/// The step 1e-5 leaves an error of about 1e-9 relative, far below the f32 roundings that are allowed.
#[track_caller]
pub fn check_gradient(what: &str, gradient: &[f32], at: &[f64], f: impl Fn(&[f64]) -> f64, roundings: f64) {
    assert_eq!(gradient.len(), at.len(), "{what}: lengths");
    let scale = gradient.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64)).max(1e-6);
    let mut point = at.to_vec();
    let stride = at.len().div_ceil(ENTRIES).max(1);
    for i in (0..at.len()).step_by(stride) {
        let step = 1e-5 * at[i].abs().max(1.0);
        point[i] = at[i] + step;
        let above = f(&point);
        point[i] = at[i] - step;
        let below = f(&point);
        point[i] = at[i];
        let want = (above - below) / (2.0 * step);
        let error = (gradient[i] as f64 - want).abs();
        assert!(
            error <= roundings * f32::EPSILON as f64 * scale + 1e-8 * scale,
            "{what}[{i}]: found {}, central difference {want}; off by {:.1} roundings of {scale:.3e}, allowed {roundings}",
            gradient[i],
            error / (f32::EPSILON as f64 * scale)
        );
    }
}

/// Compares the gradients of a list of parameters, a weight and its bias in turn, with central differences of a scalar function of
/// the whole list.
///
/// A weight and its bias are one vector here: some biases have gradient zero by symmetry (that of K under softmax), and
/// what is left of them is rounding of values as large as in the weight's gradient.
#[track_caller]
pub fn check_pairs(
    what: &str,
    names: &[&str],
    (list, grads): (&[Vec<f32>], &[Vec<f32>]),
    f: impl Fn(&[Vec<f64>]) -> f64,
    roundings: f64,
) {
    let at: Vec<Vec<f64>> = list.iter().map(|values| widen(values)).collect();
    for slot in (0..list.len()).step_by(2) {
        let of_pair = |pair: &[f64]| {
            let mut moved = at.clone();
            let (first, second) = pair.split_at(at[slot].len());
            moved[slot] = first.to_vec();
            moved[slot + 1] = second.to_vec();
            f(&moved)
        };
        let name = format!("{what}: {} and {}", names[slot], names[slot + 1]);
        let gradient = [grads[slot].as_slice(), &grads[slot + 1]].concat();
        check_gradient(&name, &gradient, &[at[slot].as_slice(), &at[slot + 1]].concat(), of_pair, roundings);
    }
}

/// Runs `f` with 1, 2, 3 and 7 threads and asserts the same bits.
#[track_caller]
pub fn assert_same_bits_with_any_threads(what: &str, f: impl Fn() -> Vec<Vec<f32>> + Sync) {
    let run = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&f);
    let one = run(1);
    for threads in [2, 3, 7] {
        for (i, (a, b)) in one.iter().zip(run(threads)).enumerate() {
            let same = a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && a.len() == b.len(), "{what}: array {i} differs between 1 and {threads} threads");
        }
    }
}
