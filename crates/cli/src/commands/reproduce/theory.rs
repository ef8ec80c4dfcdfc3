//! The paper's theorems in numbers.

use std::io::{self, Write};

use galerkin::device::Device;
use galerkin_data::io::write_whole;
use galerkin_paper::Experiment;
use galerkin_paper::theory::report::TheoryReport;
use galerkin_paper::theory::stability::{GridBounds, Stability};

use super::results_folder;
use crate::args::Reproduce;
use crate::figures::{Curve, Point, Scene, resolutions};

/// Checks everything, prints it and writes it down; what does not hold is an error.
pub(super) fn run(args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let report = TheoryReport::check(args.scale, &args.runs.join(args.scale.name()), device)?;
    let at = results_folder::place(Experiment::Theory, args);
    lower_bounds(&report.stability).save_in(&at.join("figures"), "lower-bound")?;
    let text = report.readme(&results_folder::origin(Experiment::Theory, args));
    write_whole(at.join("README.md"), text.as_bytes())?;
    write_whole(at.join("table.csv"), report.csv().as_bytes())?;
    let mut out = io::stdout().lock();
    out.write_all(report.sections().as_bytes())?;
    writeln!(out, "wrote {}", at.display())?;
    Ok(())
}

fn lower_bounds(stability: &Stability) -> Scene {
    let curve = |name: &str, of: &dyn Fn(&GridBounds) -> f64| Curve {
        name: name.into(),
        points: stability
            .grids
            .iter()
            .map(|grid| Point { resolution: grid.n as f64, error: of(grid), band: None })
            .collect(),
    };
    let curves = [
        curve("layer norm", &|grid| grid.layer_norm.c),
        curve("softmax over points", &|grid| grid.softmax.c),
        curve("softmax, keys measured before it", &|grid| grid.softmax_by_norm_before),
    ];
    resolutions("Lower bound of the bilinear form", "points n", "c", &curves)
}
