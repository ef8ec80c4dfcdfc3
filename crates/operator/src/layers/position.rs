//! Coordinates of the grids.

use burn::tensor::{Device, Tensor, TensorData};

/// n points of a line: x_j = j/n, so that the points of n are among those of 2n, or, of a closed line, j/(n − 1). (B, n, 1)
pub fn line(batch: usize, n: usize, closed: bool, device: &Device) -> Tensor<3> {
    let intervals = if closed { n.saturating_sub(1).max(1) } else { n };
    let values = (0..n).map(|j| (j as f64 / intervals as f64) as f32).collect::<Vec<_>>();
    Tensor::<3>::from_data(TensorData::new(values, [1, n, 1]), device).expand([batch, n, 1])
}

/// The grid of the unit square with its boundary: point (i, j) has the coordinates (j/(n₂ − 1), i/(n₁ − 1)), the first one
/// varying along the last axis. (B, n₁, n₂, 2)
pub fn square(batch: usize, [n1, n2]: [usize; 2], device: &Device) -> Tensor<4> {
    let place = |i: usize, n: usize| (i as f64 / n.saturating_sub(1).max(1) as f64) as f32;
    let values: Vec<f32> = (0..n1 * n2).flat_map(|at| [place(at % n2, n2), place(at / n2, n1)]).collect();
    Tensor::<4>::from_data(TensorData::new(values, [1, n1, n2, 2]), device).expand([batch, n1, n2, 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::to_vec;

    #[test]
    fn grids_have_their_points() {
        let device = Device::flex();
        assert_eq!(to_vec(line(1, 4, false, &device)), [0.0, 0.25, 0.5, 0.75]);
        assert_eq!(to_vec(line(1, 5, true, &device)), [0.0, 0.25, 0.5, 0.75, 1.0]);
        let grid = square(2, [2, 3], &device);
        let one = [0.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0, 0.5, 1.0, 1.0, 1.0];
        assert_eq!(to_vec(grid), [one, one].concat());
        assert_eq!(to_vec(square(1, [1, 1], &device)), [0.0, 0.0]);
    }
}
