//! Loops over the rows of a tile that several kernels share. A tile is `rows × width`, row-major, in cache.

use crate::simd::{axpy, rows, update, vectorize};

/// `out_r = base_r + scale·(constant + Σ_a coordinates_ra table_a)`, the part of an affine map that is no GEMM.
///
/// `coordinates` is (rows, p) and `table` (p, width): p is so small that a product with it would waste a GEMM tile.
pub(crate) fn set_affine(
    out: &mut [f32],
    base: Option<&[f32]>,
    scale: f32,
    constant: &[f32],
    coordinates: &[f32],
    table: &[f32],
) {
    let width = constant.len();
    let p = table.len() / width.max(1);
    match (p, base) {
        // The forms that every point of a 1D problem passes through.
        (0, Some(base)) => {
            rows!(simd: S, { out: &'a mut [f32], base: &'a [f32], scale: f32, constant: &'a [f32] }, {
                let s = simd.splat_f32s(scale);
                let (constants, rest) = S::as_simd_f32s(constant);
                for (out, base) in out.chunks_exact_mut(constant.len()).zip(base.chunks_exact(constant.len())) {
                    let ((o, o_rest), (b, b_rest)) = (S::as_mut_simd_f32s(out), S::as_simd_f32s(base));
                    for ((o, b), c) in o.iter_mut().zip(b).zip(constants) {
                        *o = simd.add_f32s(*b, simd.mul_f32s(s, *c));
                    }
                    o_rest.iter_mut().zip(b_rest).zip(rest).for_each(|((o, b), c)| *o = b + scale * c);
                }
            })
        }
        (1, None) => rows!(simd: S, {
            out: &'a mut [f32], scale: f32, constant: &'a [f32], coordinates: &'a [f32], table: &'a [f32],
        }, {
            let s = simd.splat_f32s(scale);
            let ((constants, c_rest), (table, t_rest)) = (S::as_simd_f32s(constant), S::as_simd_f32s(table));
            for (out, x) in out.chunks_exact_mut(constant.len()).zip(coordinates) {
                let (o, o_rest) = S::as_mut_simd_f32s(out);
                let at = simd.splat_f32s(*x);
                for ((o, c), t) in o.iter_mut().zip(constants).zip(table) {
                    *o = simd.mul_f32s(s, simd.add_f32s(*c, simd.mul_f32s(at, *t)));
                }
                o_rest.iter_mut().zip(c_rest).zip(t_rest).for_each(|((o, c), t)| *o = scale * (c + x * t));
            }
        }),
        (1, Some(base)) => rows!(simd: S, {
            out: &'a mut [f32], base: &'a [f32], scale: f32, constant: &'a [f32], coordinates: &'a [f32], table: &'a [f32],
        }, {
            let s = simd.splat_f32s(scale);
            let ((constants, c_rest), (table, t_rest)) = (S::as_simd_f32s(constant), S::as_simd_f32s(table));
            let width = constant.len();
            for ((out, base), x) in out.chunks_exact_mut(width).zip(base.chunks_exact(width)).zip(coordinates) {
                let ((o, o_rest), (b, b_rest)) = (S::as_mut_simd_f32s(out), S::as_simd_f32s(base));
                let at = simd.splat_f32s(*x);
                for (((o, b), c), t) in o.iter_mut().zip(b).zip(constants).zip(table) {
                    *o = simd.add_f32s(*b, simd.mul_f32s(s, simd.add_f32s(*c, simd.mul_f32s(at, *t))));
                }
                for (((o, b), c), t) in o_rest.iter_mut().zip(b_rest).zip(c_rest).zip(t_rest) {
                    *o = b + scale * (c + x * t);
                }
            }
        }),
        _ => vectorize!({
            for (r, out) in out.chunks_exact_mut(width).enumerate() {
                match base {
                    None => update(out, [constant], |_, [c]| scale * c),
                    Some(base) => update(out, [&base[r * width..], constant], |_, [b, c]| b + scale * c),
                }
                for (x, table) in coordinates[r * p..][..p].iter().zip(table.chunks_exact(width)) {
                    axpy(scale * x, table, out);
                }
            }
        }),
    }
}

/// `out` (cols, rows) = the transpose of `a` (rows, cols): products with the transpose of a matrix that many tiles share read it
/// without packing it each time.
pub(crate) fn transpose(a: &[f32], rows: usize, cols: usize, out: &mut [f32]) {
    /// A block of both sides stays in the first-level cache. It is written row by row: rows of `out` are often a power of two long, and
    /// those of a block then share a set of that cache.
    const SIDE: usize = 32;
    for r0 in (0..rows).step_by(SIDE) {
        for c0 in (0..cols).step_by(SIDE) {
            for c in c0..(c0 + SIDE).min(cols) {
                for r in r0..(r0 + SIDE).min(rows) {
                    out[c * rows + r] = a[r * cols + c];
                }
            }
        }
    }
}

/// Columns summed at once: their sums stay in registers over all rows.
const BLOCK: usize = 64;

/// `sums += [coordinates | 1]ᵀ diag(weights) u`: (p + 1, width), one row per coordinate and the plain sum last.
pub(crate) fn add_moments(
    u: &[f32],
    coordinates: &[f32],
    weights: Option<&[f32]>,
    sums: &mut [f32],
    width: usize,
) {
    let p = sums.len() / width - 1;
    for a in 0..=p {
        let sums = &mut sums[a * width..][..width];
        if a == p && weights.is_none() {
            add_columns(u, |_| 1.0, sums);
        } else {
            add_columns(
                u,
                |r| {
                    let x = if a < p { coordinates[r * p + a] } else { 1.0 };
                    weights.map_or(x, |w| w[r] * x)
                },
                sums,
            );
        }
    }
}

/// `sums += Σ_r u_r`
pub(crate) fn add_column_sums(u: &[f32], sums: &mut [f32]) {
    add_columns(u, |_| 1.0, sums);
}

/// `sums += Σ_r u_r ∘ v_r`
pub(crate) fn add_column_dots(u: &[f32], v: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    vectorize!({
        for (u, v) in u.chunks_exact(width).zip(v.chunks_exact(width)) {
            update(sums, [u, v], |s, [u, v]| s + u * v);
        }
    });
}

#[inline(always)]
fn add_columns(u: &[f32], factor: impl Fn(usize) -> f32, sums: &mut [f32]) {
    let width = sums.len();
    vectorize!({
        let mut start = 0;
        while start + BLOCK <= width {
            add_block::<BLOCK>(u, width, start, &factor, sums);
            start += BLOCK;
        }
        while start + 16 <= width {
            add_block::<16>(u, width, start, &factor, sums);
            start += 16;
        }
        for (c, sum) in sums.iter_mut().enumerate().skip(start) {
            *sum += u.iter().skip(c).step_by(width).enumerate().map(|(r, v)| factor(r) * v).sum::<f32>();
        }
    });
}

#[inline(always)]
fn add_block<const N: usize>(
    u: &[f32],
    width: usize,
    start: usize,
    factor: &impl Fn(usize) -> f32,
    sums: &mut [f32],
) {
    let mut acc = [0.0f32; N];
    for (r, row) in u.chunks_exact(width).enumerate() {
        let f = factor(r);
        let row: &[f32; N] = row[start..start + N].try_into().expect("a block lies inside the row");
        for i in 0..N {
            acc[i] += f * row[i];
        }
    }
    for (s, a) in sums[start..start + N].iter_mut().zip(acc) {
        *s += a;
    }
}

/// `u_r *= weights_r`
pub(crate) fn scale_rows(u: &mut [f32], weights: &[f32]) {
    let width = u.len().checked_div(weights.len()).unwrap_or(0).max(1);
    vectorize!({
        for (row, w) in u.chunks_exact_mut(width).zip(weights) {
            update(row, [], |v, []| v * w);
        }
    });
}

/// `u_r += bias`
pub(crate) fn add_bias(u: &mut [f32], bias: &[f32]) {
    vectorize!({
        for row in u.chunks_exact_mut(bias.len().max(1)) {
            update(row, [bias], |u, [b]| u + b);
        }
    });
}

/// `out_r = gamma ∘ u_r + beta`
pub(crate) fn set_scaled(out: &mut [f32], u: &[f32], gamma: &[f32], beta: &[f32]) {
    let width = gamma.len().max(1);
    vectorize!({
        for (out, u) in out.chunks_exact_mut(width).zip(u.chunks_exact(width)) {
            update(out, [u, gamma, beta], |_, [u, g, b]| g * u + b);
        }
    });
}

/// `out = scale·u`
pub(crate) fn set_scaled_by(out: &mut [f32], u: &[f32], scale: f32) {
    vectorize!(update(out, [u], |_, [u]| scale * u));
}

/// `u += v`, and `out = scale·u` of the sum.
pub(crate) fn add_and_scale(u: &mut [f32], v: &[f32], scale: f32, out: &mut [f32]) {
    vectorize!({
        // In runs that stay in the first-level cache, so that the second sweep costs no memory.
        let run = 1024;
        for ((u, v), out) in u.chunks_mut(run).zip(v.chunks(run)).zip(out.chunks_mut(run)) {
            update(u, [v], |u, [v]| u + v);
            update(out, [u], |_, [u]| scale * u);
        }
    });
}

/// `u_r *= gamma`
pub(crate) fn scale_columns(u: &mut [f32], gamma: &[f32]) {
    vectorize!({
        for row in u.chunks_exact_mut(gamma.len().max(1)) {
            update(row, [gamma], |u, [g]| u * g);
        }
    });
}

/// `out += u`
pub(crate) fn add(out: &mut [f32], u: &[f32]) {
    vectorize!(update(out, [u], |o, [u]| o + u));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_match_loops_for_widths_of_any_remainder() {
        for width in [1, 15, 16, 31, 64, 97, 145] {
            let (rows, p) = (5, 2);
            let u: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32).collect();
            let x: Vec<f32> = (0..rows * p).map(|i| i as f32).collect();
            let w: Vec<f32> = (0..rows).map(|i| 1.0 + i as f32).collect();
            let mut sums = vec![1.0; (p + 1) * width];
            add_moments(&u, &x, Some(&w), &mut sums, width);
            for a in 0..=p {
                for c in 0..width {
                    let want: f32 = (0..rows)
                        .map(|r| w[r] * if a < p { x[r * p + a] } else { 1.0 } * u[r * width + c])
                        .sum();
                    assert_eq!(sums[a * width + c], 1.0 + want, "width {width}, row {a}, column {c}");
                }
            }
        }
    }

    #[test]
    fn affine_part_adds_base_constant_and_coordinates() {
        let mut out = vec![0.0; 4];
        set_affine(&mut out, Some(&[1.0, 2.0, 3.0, 4.0]), -1.0, &[10.0, 20.0], &[1.0, 2.0], &[0.5, 0.25]);
        assert_eq!(out, [1.0 - 10.5, 2.0 - 20.25, 3.0 - 11.0, 4.0 - 20.5]);
    }
}
