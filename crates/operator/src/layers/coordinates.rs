//! Coordinates of the points of a grid.

use burn::tensor::{Device, Tensor, TensorData};

/// The coordinates of the points of a grid in the unit interval, square or cube, the last axis running fastest and its coordinate first.
/// (B, n, axes)
///
/// The j-th of n points of an axis lies at j/n if it is periodic, so that the points of n are among those of 2n, and at j/(n − 1) if it is closed.
pub fn coordinates(batch: usize, grid: &[usize], periodic: &[bool], device: &Device) -> Tensor<3> {
    let (points, axes) = (grid.iter().product::<usize>(), grid.len());
    let mut values = Vec::with_capacity(points * axes);
    for at in 0..points {
        let mut rest = at;
        for (n, periodic) in grid.iter().zip(periodic).rev() {
            let intervals = if *periodic { *n } else { n.saturating_sub(1).max(1) };
            values.push(((rest % n) as f64 / intervals as f64) as f32);
            rest /= n;
        }
    }
    let values = TensorData::new(values, [1, points, axes]);
    Tensor::<3>::from_data(values, device).expand([batch, points, axes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::to_vec;

    #[test]
    fn grids_have_their_points() {
        let device = Device::flex();
        assert_eq!(to_vec(coordinates(1, &[4], &[true], &device)), [0.0, 0.25, 0.5, 0.75]);
        assert_eq!(to_vec(coordinates(1, &[5], &[false], &device)), [0.0, 0.25, 0.5, 0.75, 1.0]);
        let grid = coordinates(2, &[2, 3], &[false; 2], &device);
        let one = [0.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0, 0.5, 1.0, 1.0, 1.0];
        assert_eq!(to_vec(grid), [one, one].concat());
        assert_eq!(to_vec(coordinates(1, &[1, 1], &[false; 2], &device)), [0.0, 0.0]);
        // A cylinder: the second axis goes round.
        let cylinder = to_vec(coordinates(1, &[2, 2], &[false, true], &device));
        assert_eq!(cylinder, [0.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.5, 1.0]);
        assert_eq!(to_vec(coordinates(1, &[1, 1, 2], &[false; 3], &device)), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    }
}
