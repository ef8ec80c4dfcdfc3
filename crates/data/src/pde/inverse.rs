//! What the inverse problem needs beside forward pairs: coefficients on a coarse grid and noisy measurements.

use crate::random::{Purpose, Stream};

/// Points of an axis after pooling by windows of `window`.
pub fn pooled_len(points: usize, window: usize) -> usize {
    points.div_ceil(window.max(1))
}

/// Whether the windows over so many points are their own mirror image: as many points are missing before the first as behind the last. Round an axis
/// windows begin at the point that a reflection keeps, and only single points are.
pub fn mirrors(points: usize, window: usize, periodic: bool) -> bool {
    match periodic {
        true => window <= 1,
        false => (pooled_len(points, window) * window.max(1) - points).is_multiple_of(2),
    }
}

/// Means over windows of window × window values of a (rows, columns) array: (⌈rows/window⌉, ⌈columns/window⌉) values.
///
/// Windows cover the array with as much room before as behind, one more behind if it is odd; what lies outside, and any
/// NaN inside, does not count. A window with nothing to count is NaN.
///
/// # Panics
///
/// If there are not rows × columns values.
pub fn pool(values: &[f32], rows: usize, columns: usize, window: usize) -> Vec<f32> {
    assert_eq!(values.len(), rows * columns, "pool: {} values for {rows} rows of {columns}", values.len());
    let ranges = |points: usize| {
        let len = pooled_len(points, window);
        let before = (len * window.max(1) - points) / 2;
        let at = move |i: usize| (i * window.max(1)).saturating_sub(before).min(points);
        (0..len).map(move |i| at(i)..at(i + 1))
    };
    let mean = |(down, across): (std::ops::Range<usize>, std::ops::Range<usize>)| {
        let cells = down.flat_map(|i| &values[i * columns..][across.clone()]).filter(|v| !v.is_nan());
        let (sum, count) = cells.fold((0.0, 0), |(sum, count), v| (sum + *v as f64, count + 1));
        (sum / count as f64) as f32
    };
    ranges(rows)
        .flat_map(|down| ranges(columns).map(move |across| (down.clone(), across)))
        .map(mean)
        .collect()
}

/// Measurement noise of one sample: `len` independent normal numbers of standard deviation `strength`, to be added to the normalised
/// input. Drawn once and for all by (seed, sample).
pub fn noise(seed: u64, sample: u32, len: usize, strength: f64) -> Vec<f32> {
    let mut values = vec![0.0; len];
    Stream { seed, purpose: Purpose::Noise, index: sample }.normals(&mut values);
    values.into_iter().map(|z| (strength * z) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fine rows of every coarse row, read off pooled row numbers: means of consecutive numbers tell first and last.
    fn windows(points: usize, window: usize) -> Vec<f32> {
        let values: Vec<f32> = (0..points * points).map(|i| (i / points) as f32).collect();
        let pooled = pool(&values, points, points, window);
        pooled.chunks(pooled_len(points, window)).map(|row| row[0]).collect()
    }

    #[test]
    fn windows_lie_as_in_the_published_experiments() {
        // 421 by 3: window i covers 3i − 1 … 3i + 1, the first and the last have two.
        let rows = windows(421, 3);
        assert_eq!(rows.len(), 141);
        assert_eq!((rows[0], rows[1], rows[70], rows[140]), (0.5, 3.0, 210.0, 419.5));
        // 141 by 4: one before, two behind.
        let rows = windows(141, 4);
        assert_eq!(rows.len(), 36);
        assert_eq!((rows[0], rows[1], rows[35]), (1.0, 4.5, 139.5));
        // 211 by 3: one before, one behind.
        let rows = windows(211, 3);
        assert_eq!((rows.len(), rows[0], rows[1], rows[70]), (71, 0.5, 3.0, 209.5));
        // 141 by 2: none before, one behind.
        let rows = windows(141, 2);
        assert_eq!((rows.len(), rows[0], rows[1], rows[70]), (71, 0.5, 2.5, 140.0));
        // Nothing left over, and nothing to do.
        assert_eq!(windows(6, 3), [1.0, 4.0]);
        assert_eq!(windows(5, 1), [0.0, 1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn windows_that_mirror_give_the_mirror_image() {
        let mut both = [false; 2];
        for points in 1..12 {
            for window in 1..=points {
                let row: Vec<f32> = (0..points).map(|i| (i * i) as f32).collect();
                let pooled = |row: &[f32]| pool(&row.repeat(points), points, points, window);
                let mut back = pooled(&row);
                back.reverse();
                let reversed: Vec<f32> = row.iter().rev().copied().collect();
                // Sums of a few whole numbers are exact.
                let equal = back == pooled(&reversed);
                assert_eq!(equal, mirrors(points, window, false), "{points} by {window}");
                both[usize::from(equal)] = true;
            }
        }
        assert_eq!(both, [true; 2]);
        assert!(mirrors(8, 1, true) && !mirrors(8, 2, true));
    }

    #[test]
    fn both_axes_are_pooled_and_nan_does_not_count() {
        let values = [1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0];
        // Rows 2, columns 3, window 2: columns {0, 1} and {2}.
        assert_eq!(pool(&values, 2, 3, 2), [8.0 / 3.0, 4.5]);
        assert!(pool(&[f32::NAN], 1, 1, 1)[0].is_nan());
    }

    #[test]
    fn noise_belongs_to_the_sample() {
        let first = noise(5, 0, 1000, 0.1);
        assert_eq!(noise(5, 0, 1000, 0.1), first);
        assert_ne!(noise(5, 1, 1000, 0.1), first);
        assert_ne!(noise(6, 0, 1000, 0.1), first);
        let variance = first.iter().map(|v| (*v as f64).powi(2)).sum::<f64>() / 1000.0;
        // Variance of a squared normal number is 2; five standard errors.
        assert!((variance / 0.01 - 1.0).abs() < 5.0 * (2.0f64 / 1000.0).sqrt(), "{variance}");
        assert!(noise(5, 0, 3, 0.0).iter().all(|v| *v == 0.0));
    }
}
