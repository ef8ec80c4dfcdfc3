//! The words of `galerkin import`.

use std::path::PathBuf;

use clap::Args as Group;
use galerkin_data::import::Variables;

/// Files of others.
#[derive(Debug, Group)]
#[command(after_help = "\
Examples:
  galerkin import burgers_data_R10.mat --out datasets/burgers
  galerkin import smooth1.mat smooth2.mat --out datasets/darcy --subsample 3
  galerkin import darcy_train_16.pt --test-files darcy_test_16.pt --out datasets/small
  galerkin import x.npy y.npy --inputs x --targets y --layout samples,y,x --periodic y,x --out datasets/mine
  galerkin import flow.mat --inputs a --targets u --layout x,y,samples --length x=2,y=1 --out datasets/flow
  galerkin import waves.npz --inputs h,v --targets p --target-layout samples,time,x --out datasets/waves
  galerkin import split.mat --train f_train:u_train --test f_test:u_test --layout samples,x,t --coordinates x=x,t=t --out datasets/split
  galerkin import mesh.pt --inputs mu --targets u --points x,y --cells triangles --out datasets/mesh

`galerkin info FILE` lists the variables of a file; that of a .npy has its name. Files that hold the same variable follow each other.

A layout names the axes in their order: samples, channels, time (of targets), points, or any other name for an axis of the grid.
Channels are left out where there is one. Without a layout, samples are the first axis; what can be read in several ways is refused
with all of them. Inputs with the layout samples,channels are parameters: every point of a sample gets them. Axes are closed and go
from 0 to 1 unless said otherwise.

The published Burgers and Darcy files (a and u, coeff and sol) and those of neuraloperator (x and y) are known and need no flags.")]
pub struct Import {
    /// Files to read
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Variables of the inputs, side by side as channels
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "targets")]
    pub inputs: Vec<String>,
    /// Variables of the targets
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "inputs")]
    pub targets: Vec<String>,
    /// Take every so many points along every axis
    #[arg(long, value_name = "s", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub subsample: u32,
    /// Let compressed variables grow to so many times the size of their file
    #[arg(long, value_name = "FACTOR", default_value_t = 100)]
    pub expand: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub split: SplitArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub axes: AxesArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub points: PointsArgs,
}

/// Samples that are already meant for something.
#[derive(Debug, Group)]
#[command(next_help_heading = "A given split")]
pub struct SplitArgs {
    /// Variables of the training samples, instead of --inputs and --targets
    #[arg(long, value_name = "IN:OUT", value_parser = variables, conflicts_with_all = ["inputs", "targets"])]
    pub train: Option<Variables>,
    /// Variables of the validation samples
    #[arg(long, value_name = "IN:OUT", value_parser = variables, requires = "train")]
    pub validation: Option<Variables>,
    /// Variables of the test samples
    #[arg(long, value_name = "IN:OUT", value_parser = variables, requires = "train")]
    pub test: Option<Variables>,
    /// Files of the validation samples, with the variables of training unless --validation names others
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub validation_files: Vec<PathBuf>,
    /// Files of the test samples, with the variables of training unless --test names others
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub test_files: Vec<PathBuf>,
}

/// What axes are and where they lie.
#[derive(Debug, Group)]
#[command(next_help_heading = "Axes")]
pub struct AxesArgs {
    /// Axes of inputs and targets in their order, e.g. samples,y,x,channels or x,y,samples
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    pub layout: Vec<String>,
    /// Axes of inputs, where they differ; samples,channels: parameters, the same at all points
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    pub input_layout: Vec<String>,
    /// Axes of targets, where they differ
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    pub target_layout: Vec<String>,
    /// Axes whose end is their beginning
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    pub periodic: Vec<String>,
    /// Lengths of axes, from the first point to the last or, if periodic, once round [default: 1]
    #[arg(long, value_name = "AXIS=L,…", value_delimiter = ',', value_parser = number)]
    pub length: Vec<(String, f64)>,
    /// First points of axes [default: 0]
    #[arg(long, value_name = "AXIS=O,…", value_delimiter = ',', value_parser = number)]
    pub origin: Vec<(String, f64)>,
    /// Variables with the coordinates along axes, which tell origin and length; they must be uniform
    #[arg(long, value_name = "AXIS=NAME,…", value_delimiter = ',', value_parser = named)]
    pub coordinates: Vec<(String, String)>,
}

/// Where values lie that are on no grid.
#[derive(Debug, Group)]
#[command(next_help_heading = "Points instead of a grid")]
pub struct PointsArgs {
    /// Where points are: (points, dimension) or (samples, points, dimension), or a variable for each coordinate
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub points: Vec<String>,
    /// Axes of these variables, where lengths do not tell them, e.g. points,samples
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',', requires = "points")]
    pub points_layout: Vec<String>,
    /// Quadrature weights, one for each point
    #[arg(long, value_name = "NAME", requires = "points")]
    pub weights: Option<String>,
    /// (cells, corners): numbers of points, from 0 on; the same for all samples
    #[arg(long, value_name = "NAME", requires = "points")]
    pub cells: Option<String>,
    /// The number of the first point in the cells
    #[arg(long, value_name = "N", default_value_t = 0, requires = "cells")]
    pub cells_from: usize,
    /// (samples + 1): where the points of each sample begin, if those of all samples lie along one axis
    #[arg(long, value_name = "NAME", requires = "points")]
    pub offsets: Option<String>,
}

/// Names of inputs and of targets with a colon between them.
fn variables(text: &str) -> Result<Variables, String> {
    let names = |text: &str| text.split(',').map(|name| name.trim().to_string()).collect::<Vec<_>>();
    match text.split(':').collect::<Vec<_>>()[..] {
        [inputs, targets] if !inputs.is_empty() && !targets.is_empty() => {
            Ok(Variables { inputs: names(inputs), targets: names(targets) })
        }
        _ => Err("expected IN:OUT, variables of inputs and of targets".into()),
    }
}

/// An axis and a name.
fn named(text: &str) -> Result<(String, String), String> {
    let (axis, name) = text.split_once('=').ok_or("expected AXIS=NAME")?;
    Ok((axis.trim().into(), name.trim().into()))
}

/// An axis and a number.
fn number(text: &str) -> Result<(String, f64), String> {
    let (axis, number) = text.split_once('=').ok_or("expected AXIS=NUMBER")?;
    let number =
        number.trim().parse().map_err(|_| format!("expected a number, found `{}`", number.trim()))?;
    Ok((axis.trim().into(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_on_both_sides_of_a_colon() {
        let [inputs, targets] = [vec!["a".to_string(), "b".to_string()], vec!["u".to_string()]];
        assert_eq!(variables("a,b:u"), Ok(Variables { inputs, targets }));
        for wrong in ["a", "a:", ":u", "a:u:v"] {
            assert!(variables(wrong).is_err(), "{wrong}");
        }
        assert_eq!(number("x=-1.5"), Ok(("x".into(), -1.5)));
        assert!(number("x").is_err() && number("x=b").is_err());
    }
}
