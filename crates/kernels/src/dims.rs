//! Length checks, and the cold functions that word their panics.

/// Panics unless a slice has the expected length; the message carries every size that led to it.
#[inline]
#[track_caller]
pub(crate) fn check_len(what: &str, len: usize, expected: usize, sizes: &[(&str, usize)]) {
    if len != expected {
        wrong_len(what, len, expected, sizes);
    }
}

/// As [`check_len`] for one of many parameters.
#[inline]
pub(crate) fn check_field(what: &str, field: &str, len: usize, expected: usize, sizes: &[(&str, usize)]) {
    if len != expected {
        wrong_len(&format!("{what} {field}"), len, expected, sizes);
    }
}

/// As [`check_len`] for memory that may be larger than needed.
#[inline]
#[track_caller]
pub(crate) fn check_at_least(what: &str, len: usize, needed: usize, sizes: &[(&str, usize)]) {
    if len < needed {
        too_short(what, len, needed, sizes);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn wrong_len(what: &str, len: usize, expected: usize, sizes: &[(&str, usize)]) -> ! {
    panic!("{what}: expected {expected} values, found {len} ({})", listed(sizes));
}

#[cold]
#[inline(never)]
#[track_caller]
fn too_short(what: &str, len: usize, needed: usize, sizes: &[(&str, usize)]) -> ! {
    panic!("{what}: needs at least {needed} values, found {len} ({})", listed(sizes));
}

/// Panics because sizes do not fit together.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn mismatch(what: &str, sizes: &[(&str, usize)]) -> ! {
    panic!("{what}: sizes do not fit ({})", listed(sizes));
}

/// The product of sizes. Panics where it does not fit: it would wrap to a length that some slice has.
#[inline]
#[track_caller]
pub(crate) fn product(what: &str, sizes: &[(&str, usize)]) -> usize {
    // A zero anywhere makes nothing of any size.
    if sizes.iter().any(|&(_, size)| size == 0) {
        return 0;
    }
    match sizes.iter().try_fold(1usize, |product, &(_, size)| product.checked_mul(size)) {
        Some(product) => product,
        None => mismatch(what, sizes),
    }
}

fn listed(sizes: &[(&str, usize)]) -> String {
    sizes.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

/// Cuts a run of values into parts of the given lengths; what is left over is not used.
#[inline]
pub(crate) fn cut<const N: usize>(values: &[f32], lengths: [usize; N]) -> [&[f32]; N] {
    let mut rest = values;
    lengths.map(|len| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        head
    })
}

/// Cuts `len` values off the front of a workspace.
#[inline]
pub(crate) fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (head, tail) = std::mem::take(rest).split_at_mut(len);
    *rest = tail;
    head
}

/// Cuts runs of values off the front of a workspace, one for every length it is asked for.
#[inline]
pub(crate) fn taking<'a>(mut rest: &'a mut [f32]) -> impl FnMut(usize) -> &'a mut [f32] {
    move |len| take(&mut rest, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_sizes() {
        assert_eq!(product("points", &[("n1", 3), ("n2", 5), ("n3", 7)]), 105);
        assert_eq!(product("points", &[("n1", usize::MAX), ("n2", usize::MAX), ("n3", 0)]), 0);
    }

    #[test]
    #[should_panic(expected = "points: sizes do not fit (n1 = 9223372036854775808, n2 = 2)")]
    fn a_product_that_wraps_is_refused() {
        product("points", &[("n1", 1 << 63), ("n2", 2)]);
    }
}
