//! `galerkin import`: files of others as a dataset.

use std::io::{self, Write};

use galerkin_data::import::{Import, Known};
use galerkin_data::io::Limits;

use crate::args::{self, Problem};
use crate::output;

/// Writes the dataset.
pub(super) fn run(args: args::Import) -> anyhow::Result<()> {
    let import = Import {
        files: args.files,
        inputs: args.inputs,
        targets: args.targets,
        problem: args.problem.map(|problem| match problem {
            Problem::Burgers => Known::Burgers,
            Problem::Darcy => Known::Darcy,
        }),
        subsample: args.subsample as usize,
        limits: Limits { expansion: args.expand },
    };
    let meta = import.write(&args.out)?;
    writeln!(io::stdout(), "wrote {}: {}", args.out.display(), output::summary(&meta))?;
    Ok(())
}
