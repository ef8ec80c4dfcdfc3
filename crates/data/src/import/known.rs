//! Published files, told by their variables.

use crate::io::{File, Format};

/// What is known of a file.
#[derive(Debug)]
pub(super) struct Known {
    pub inputs: &'static str,
    pub targets: &'static str,
    pub input_layout: &'static [&'static str],
    pub target_layout: &'static [&'static str],
    pub periodic: &'static [&'static str],
}

/// The authors' Burgers' equation, `burgers_data_R10.mat`: a periodic line.
const BURGERS: Known = Known {
    inputs: "a",
    targets: "u",
    input_layout: &["samples", "x"],
    target_layout: &["samples", "x"],
    periodic: &["x"],
};

/// The authors' Darcy flow, `piececonst_r421_N1024_smooth1.mat`: a square with its boundary.
const DARCY: Known = Known {
    inputs: "coeff",
    targets: "sol",
    input_layout: &["samples", "y", "x"],
    target_layout: &["samples", "y", "x"],
    periodic: &[],
};

/// The Darcy flow that comes with the package neuraloperator, `darcy_train_16.pt`: a square.
const SMALL_DARCY: Known = Known { inputs: "x", targets: "y", ..DARCY };

/// The Burgers' equation that comes with the package neuraloperator, `burgers_train_16.pt`: a periodic line at several times. That it is
/// periodic is seen in the values: the step from the last point to the first is as large as those between.
const SMALL_BURGERS: Known = Known {
    inputs: "x",
    targets: "y",
    input_layout: &["samples", "x"],
    target_layout: &["samples", "time", "x"],
    periodic: &["x"],
};

/// What is known of the first file that is known.
pub(super) fn recognise(files: &[File]) -> Option<&'static Known> {
    files.iter().find_map(|file| {
        let shape = |name: &str| file.variable(name).ok().map(|variable| &variable.shape[..]);
        let pair = |known: &Known| shape(known.inputs).zip(shape(known.targets));
        let only = |names: &[&str]| {
            file.format() == Format::Torch
                && file.variables().len() == names.len()
                && names.iter().all(|name| shape(name).is_some())
        };
        let square = |shape: &[usize]| matches!(shape, [_, rows, columns] if rows == columns);
        if pair(&BURGERS).is_some_and(|(a, u)| a == u && a.len() == 2) {
            Some(&BURGERS)
        } else if pair(&DARCY).is_some_and(|(a, u)| a == u && square(a)) {
            Some(&DARCY)
        } else if only(&["x", "y"]) && pair(&SMALL_DARCY).is_some_and(|(x, y)| x == y && square(x)) {
            Some(&SMALL_DARCY)
        } else if only(&["x", "y", "visc"])
            && pair(&SMALL_BURGERS)
                .is_some_and(|(x, y)| matches!((x, y), ([s, n], [t, _, m]) if s == t && n == m))
        {
            Some(&SMALL_BURGERS)
        } else {
            None
        }
    })
}
