//! Elementwise loops at the width of the processor, and the exponential they need.
//!
//! `vectorize!` compiles an expression for the widest instruction set of the machine (AVX-512, AVX2 + FMA, NEON or plain)
//! and chooses at run time, so that a binary built for any x86-64 is fast on a new one. Loops inside are plain Rust over
//! slices; sums use [`sum`] and [`dot`], whose sixteen accumulators give the compiler a fixed order it may vectorise. `rows!` is for the few
//! loops over short rows that every point passes through: they name their registers.
//!
//! The environment variable `GALERKIN_SIMD` holds the choice down for the whole process: to `plain`, which every processor runs, or to `avx2`. It is
//! for tests, which then see the code of older machines, and is read once. It holds down the loops of this crate; the `gemm` crate chooses for its
//! products by itself, and nothing of its interface can hold that down.

use std::sync::OnceLock;

use pulp::Arch;

/// Evaluates an expression compiled for the best instruction set this machine has.
///
/// It must be inlined into each of the versions or it would be compiled once, for the oldest machine; so must the functions it
/// calls. Loop with `for` where an iterator chain does not vectorise.
macro_rules! vectorize {
    ($body:expr) => {
        $crate::simd::dispatch(
            #[inline(always)]
            || $body,
        )
    };
}
pub(crate) use vectorize;

#[inline(always)]
pub(crate) fn dispatch<R>(f: impl FnOnce() -> R) -> R {
    struct Op<F>(F);
    impl<R, F: FnOnce() -> R> pulp::NullaryFnOnce for Op<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            (self.0)()
        }
    }
    arch().dispatch(Op(f))
}

/// The instruction set of all loops of this process. A load and a branch, as `Arch::new` would be.
#[inline]
pub(crate) fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(|| chosen(std::env::var_os(VARIABLE).map(|word| word.to_string_lossy().into_owned())))
}

const VARIABLE: &str = "GALERKIN_SIMD";

/// The widest there is, or what the word says.
#[cold]
fn chosen(word: Option<String>) -> Arch {
    match word.as_deref() {
        None => Arch::new(),
        Some("plain") => Arch::Scalar,
        Some("avx2") => {
            avx2().unwrap_or_else(|| panic!("{VARIABLE}=avx2: this processor has no AVX2 with FMA"))
        }
        Some(word) => {
            panic!("{VARIABLE}: expected plain or avx2, or no such variable for the widest, found {word:?}")
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2() -> Option<Arch> {
    pulp::x86::V3::try_new().map(Arch::V3)
}

#[cfg(not(target_arch = "x86_64"))]
fn avx2() -> Option<Arch> {
    None
}

/// Accumulators of a sum: one AVX-512 register, two AVX2 registers, four of SSE or NEON.
const LANES: usize = 16;

/// Σ xᵢ in a fixed order.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let mut acc = [0.0f32; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for (a, v) in acc.iter_mut().zip(rest) {
        *a = *v;
    }
    for block in blocks {
        for (a, v) in acc.iter_mut().zip(block) {
            *a += v;
        }
    }
    fold(acc)
}

/// The largest of `least` and all xᵢ; a NaN among them is passed over.
#[inline(always)]
pub fn largest(least: f32, x: &[f32]) -> f32 {
    let mut acc = [least; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for (a, v) in acc.iter_mut().zip(block) {
            *a = if *v > *a { *v } else { *a };
        }
    }
    acc.iter().chain(rest).fold(least, |a, v| a.max(*v))
}

/// Σ xᵢ yᵢ in a fixed order.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut acc = [0.0f32; LANES];
    let ((bx, rx), (by, ry)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (a, (v, w)) in acc.iter_mut().zip(rx.iter().zip(ry)) {
        *a = v * w;
    }
    for (v, w) in bx.iter().zip(by) {
        for i in 0..LANES {
            acc[i] += v[i] * w[i];
        }
    }
    fold(acc)
}

#[inline(always)]
fn fold(mut acc: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] += acc[i + width];
        }
        width /= 2;
    }
    acc[0]
}

/// `y += a·x`
#[inline(always)]
pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    update(y, [x], |y, [x]| y + a * x);
}

/// `out = f(out, operands)`, value by value. The operands are as long as `out`, or longer.
#[inline(always)]
pub fn update<const N: usize>(out: &mut [f32], operands: [&[f32]; N], f: impl Fn(f32, [f32; N]) -> f32) {
    let len = out.len();
    // Cut to one length, so that no index needs a check.
    let operands = operands.map(|operand| &operand[..len]);
    for i in 0..len {
        out[i] = f(out[i], operands.map(|operand| operand[i]));
    }
}

/// A row as whole registers and a rest, for the loops that are short enough to be worth writing by hand: the compiler's own
/// vector loop over a hundred values spends more time on overlap checks and remainders than on the values.
///
/// [`rows!`](crate::simd::rows) runs such a loop; inside it `simd` is the instruction set.
macro_rules! rows {
    ($simd:ident: $set:ident, { $($field:ident: $type:ty),* $(,)? }, $body:block) => {{
        struct Rows<'a> {
            $($field: $type,)*
            lifetime: std::marker::PhantomData<&'a ()>,
        }
        impl<'a> pulp::WithSimd for Rows<'a> {
            type Output = ();
            #[inline(always)]
            fn with_simd<$set: pulp::Simd>(self, $simd: $set) {
                let Self { $($field,)* .. } = self;
                $body
            }
        }
        $crate::simd::arch().dispatch(Rows { $($field,)* lifetime: std::marker::PhantomData })
    }};
}
pub(crate) use rows;

/// eˣ without branches, so that loops over it vectorise; within 2 ulp of the true value where that is a normal number.
/// Below −87.3 it is flushed to zero, above 88.7 it is infinite, and NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // x = k·ln 2 + r with |r| ≤ ln 2 / 2; adding and taking away 1.5·2²³ rounds to the nearest integer, and ln 2
    // is cut in two so that k·LN2_HIGH is exact.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.336_54, 88.722_83);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (clamped - k * LN2_HIGH) - k * LN2_LOW;
    // Taylor's series of e^r to r⁷: the next term is below 2⁻²⁶ on |r| ≤ 0.347.
    let mut s = 1.0 / 5040.0;
    s = s * r + 1.0 / 720.0;
    s = s * r + 1.0 / 120.0;
    s = s * r + 1.0 / 24.0;
    s = s * r + 1.0 / 6.0;
    s = s * r + 0.5;
    let e_r = (s * r) * r + r + 1.0;
    // 2^k in two factors, because k = 128 has no exponent of its own.
    let k = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = k >> 1;
    let scale = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    let value = e_r * scale(half) * scale(k.wrapping_sub(half));
    if x > 88.722_83 {
        f32::INFINITY
    } else if x < -87.336_54 {
        0.0
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::discriminant;
    use std::process::Command;

    /// Fails in a process whose variable did not act, and with an unknown word.
    #[test]
    fn the_instruction_set_is_the_one_the_variable_names() {
        let expected = match std::env::var(VARIABLE).as_deref() {
            Ok("plain") => Arch::Scalar,
            Ok("avx2") => avx2().expect("the tests were told to use AVX2"),
            _ => Arch::new(),
        };
        assert_eq!(discriminant(&arch()), discriminant(&expected), "{:?} instead of {expected:?}", arch());
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts processes")]
    fn the_variable_holds_down_the_instruction_set_of_a_process() {
        let test = "simd::tests::the_instruction_set_is_the_one_the_variable_names";
        let run = |word: &str| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", test, "--nocapture"]).env(VARIABLE, word).output().unwrap();
            let says = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (output.status.success(), says(output.stdout), says(output.stderr))
        };
        for (word, there) in [("plain", true), ("avx2", avx2().is_some())] {
            let (passed, out, err) = run(word);
            assert!(passed == there && out.contains("running 1 test"), "{word}: {out}{err}");
        }
        let (passed, _, err) = run("sse2");
        let words =
            "GALERKIN_SIMD: expected plain or avx2, or no such variable for the widest, found \"sse2\"";
        assert!(!passed && err.contains(words), "{err}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "two million values")]
    fn exponential_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in 0..=2_000_000 {
            let x = -87.3 + 176.0 * (i as f32 / 2_000_000.0);
            let exact = (x as f64).exp();
            let ulp = (exact as f32).next_up() as f64 - exact as f32 as f64;
            worst = worst.max((exp(x) as f64 - exact).abs() / ulp);
        }
        assert!(worst <= 2.0, "worst error {worst} ulp");
        assert_eq!((exp(0.0), exp(-1e9), exp(f32::NEG_INFINITY), exp(1e9)), (1.0, 0.0, 0.0, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_have_one_order_and_keep_every_term() {
        for len in [0, 1, 15, 16, 17, 96, 97] {
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let total: usize = (0..len).sum();
            assert_eq!(sum(&x), total as f32);
            assert_eq!(vectorize!(dot(&x, &vec![2.0; len])), 2.0 * total as f32);
            assert_eq!(largest(-1.0, &x), len as f32 - 1.0);
            assert_eq!(largest(1e3, &x), 1e3);
        }
    }
}
