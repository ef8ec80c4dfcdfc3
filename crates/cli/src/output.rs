//! Words and tables for people.

use galerkin_data::{Domain, Meta};

pub use galerkin_paper::Table;

/// A dataset in a line.
pub fn summary(meta: &Meta) -> String {
    let channels = match (meta.inputs.len(), meta.targets.len()) {
        (1, 1) => String::new(),
        (inputs, targets) => format!(", {inputs} channels to {targets}"),
    };
    let place = match &meta.domain {
        Domain::Grid(grid) => format!("{} points", sizes(&grid.points())),
        points => points.to_string(),
    };
    format!("{} samples on {place}{channels}", meta.samples)
}

/// `421 × 421`.
pub fn sizes(points: &[usize]) -> String {
    points.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
}

/// Millions of bytes.
pub fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    let decimals = match megabytes {
        small if small < 0.995 => 2,
        some if some < 9.95 => 1,
        _ => 0,
    };
    format!("{megabytes:.decimals$} MB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megabytes_are_millions_of_bytes() {
        let shown = [81_920, 1_156_000, 73_662_464, 1_593_747_872].map(megabytes);
        assert_eq!(shown, ["0.08 MB", "1.2 MB", "74 MB", "1594 MB"]);
    }
}
