//! Files of others as a dataset folder.
//!
//! | where | what |
//! | --- | --- |
//! | here | what to take from which files |
//! | `layout.rs` | names of axes; readings of arrays whose axes nobody named |
//! | `known.rs` | published files, told by their variables |
//! | `sources.rs` | files, what they are for, and the variables to take |
//! | `described.rs` | variables of one side and what their axes are |
//! | `plan.rs` | everything checked: what is written, and where it lies |
//! | `axes.rs` `points.rs` | axes of grids with origin and length; points with weights and cells |
//! | `write.rs` | from the order of a file to the order of a dataset, in little memory |

mod axes;
mod described;
mod known;
mod layout;
mod plan;
mod points;
mod sources;
mod write;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::folder;
use crate::io;
use crate::meta::Meta;
use plan::Plan;

/// What to take from which files. What is left at its default is told by the arrays, or refused with all its readings.
///
/// Files that hold the same variable follow each other. Lists of variables lie side by side as channels. The words of a layout are
/// `samples`, `channels`, `time` (of targets), `points`, or the name of an axis of the grid.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The files; those of the training samples if others are named for validation or test.
    pub files: Vec<PathBuf>,
    /// The variables; those of a published file if none is named.
    pub variables: Variables,
    /// Samples to choose between epochs and settings.
    pub validation: Option<Part>,
    /// Samples to report.
    pub test: Option<Part>,
    /// The axes of inputs and targets in their order.
    pub layout: Vec<String>,
    /// The axes of inputs, where they differ. Without an axis of the grid, a sample has the same values at all points of its target.
    pub input_layout: Vec<String>,
    /// The axes of targets, where they differ.
    pub target_layout: Vec<String>,
    /// Axes whose end is their beginning; all others are closed.
    pub periodic: Vec<String>,
    /// Lengths of axes; 1 for the others.
    pub lengths: Vec<(String, f64)>,
    /// First points of axes; 0 for the others.
    pub origins: Vec<(String, f64)>,
    /// Variables with the coordinates along an axis, which tell origin and length.
    pub coordinates: Vec<(String, String)>,
    /// Where values lie that are on no grid.
    pub points: PointVariables,
    /// Every so many points are taken along every axis of a grid; 0 counts as 1.
    pub subsample: usize,
    /// How far compressed variables may grow.
    pub limits: io::Limits,
    /// Bytes of samples in memory at once where a file has another order than the dataset; 0 counts as 256 MB. A variable is read once for
    /// every time that its samples fill them. Files with samples first need a few megabytes.
    pub memory: usize,
}

/// Variables of inputs and targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those of inputs.
    pub inputs: Vec<String>,
    /// Those of targets.
    pub targets: Vec<String>,
}

/// Samples that are for something else than training.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Their files; those of the training samples if none is named.
    pub files: Vec<PathBuf>,
    /// Their variables; called as those of the training samples if none is named.
    pub variables: Variables,
}

/// Variables that say where points are.
#[derive(Clone, Debug, Default)]
pub struct PointVariables {
    /// One with all coordinates as its last axis, or one for each coordinate. None on a grid.
    pub coordinates: Vec<String>,
    /// Their axes; told by their lengths if empty. Points are shared by all samples if no axis is called `samples`.
    pub layout: Vec<String>,
    /// Quadrature weights, with the axes of the points.
    pub weights: Option<String>,
    /// (cells, corners): numbers of points.
    pub cells: Option<String>,
    /// The number of the first point.
    pub cells_from: usize,
    /// (samples + 1): where the points of a sample begin, if the points of all samples lie along one axis.
    pub offsets: Option<String>,
}

impl Import {
    /// Writes the dataset folder, complete or not at all. Everything is checked before the first value is written; a folder that exists
    /// is left alone.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Meta> {
        let folder = path.as_ref();
        folder::check_free(folder)?;
        let plan = Plan::new(self)?;
        folder::write_folder(folder, |partial| plan.write(partial))
    }
}
