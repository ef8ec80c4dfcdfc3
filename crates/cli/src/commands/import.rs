//! `galerkin import`: files of others as a dataset.

use std::io::{self, Write};

use galerkin_data::import::{Import, Part, PointVariables, Variables};
use galerkin_data::io::Limits;
use galerkin_data::{Axis, Dataset, Domain};

use crate::args;
use crate::output;

/// Writes the dataset and says what it became.
pub(super) fn run(args: args::Import) -> anyhow::Result<()> {
    let part = |files: Vec<_>, variables: Option<Variables>| {
        let variables = variables.unwrap_or_default();
        let part = Part { files, variables };
        (part != Part::default()).then_some(part)
    };
    let (split, axes, points) = (args.split, args.axes, args.points);
    let import = Import {
        files: args.files,
        variables: split.train.unwrap_or(Variables { inputs: args.inputs, targets: args.targets }),
        validation: part(split.validation_files, split.validation),
        test: part(split.test_files, split.test),
        layout: axes.layout,
        input_layout: axes.input_layout,
        target_layout: axes.target_layout,
        periodic: axes.periodic,
        lengths: axes.length,
        origins: axes.origin,
        coordinates: axes.coordinates,
        points: PointVariables {
            coordinates: points.points,
            layout: points.points_layout,
            weights: points.weights,
            cells: points.cells,
            cells_from: points.cells_from,
            offsets: points.offsets,
        },
        subsample: args.subsample as usize,
        limits: Limits { expansion: args.expand },
        memory: 0,
    };
    let meta = import.write(&args.out)?;
    let mut out = io::stdout().lock();
    writeln!(out, "wrote {}: {}", args.out.display(), output::summary(&meta))?;
    writeln!(out, "  inputs   {}: {}", meta.inputs.join(", "), place(&meta.domain))?;
    write!(out, "  targets  {}: {}", meta.targets.join(", "), place(meta.target_domain()))?;
    match &meta.time {
        Some(time) => writeln!(out, "; {} times, {}", time.points, span(time))?,
        None => writeln!(out)?,
    }
    if let Some(parts) = &meta.split {
        let [train, validation, test] =
            [parts.train, parts.validation, parts.test].map(|[start, end]| end - start);
        writeln!(out, "  split    {train} to train, {validation} to validate, {test} to test")?;
    }
    // Training refuses them; whoever imports may want to know and look.
    for (name, summary) in ["inputs", "targets"].into_iter().zip(Dataset::open(&args.out)?.summaries()?) {
        if summary.nan + summary.infinite > 0 {
            let (nan, infinite) = (summary.nan, summary.infinite);
            writeln!(
                out,
                "  warning  {name} have {nan} NaN and {infinite} infinite values; training refuses them"
            )?;
        }
    }
    Ok(())
}

/// Where values lie, with the ends of the axes.
fn place(domain: &Domain) -> String {
    match domain {
        Domain::Grid(grid) => {
            let spans: Vec<_> =
                grid.axes.iter().map(|axis| format!("{} {}", axis.name, span(axis))).collect();
            format!("{grid}; {}", spans.join(", "))
        }
        points => points.to_string(),
    }
}

fn span(axis: &Axis) -> String {
    // Coordinates come as f32: more digits would not be theirs.
    format!("from {} to {}", axis.origin as f32, (axis.origin + axis.length) as f32)
}
