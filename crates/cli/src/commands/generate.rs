//! `galerkin generate`: a dataset of an equation.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use galerkin::config::DataConfig;
use galerkin_data::generate::write_dataset;
use galerkin_data::pde::{self, Coefficient, Problem};
use galerkin_data::random_field::FieldLaw;
use galerkin_data::{Dataset, Error, Meta};

use super::{Interrupted, interrupt};
use crate::args::{Burgers, Darcy, Equation, Law, Preset};
use crate::output;
use crate::progress::Progress;

/// Writes the dataset, or the rest of it.
pub(super) fn run(equation: Equation) -> anyhow::Result<()> {
    let (problem, samples) = match equation {
        Equation::Burgers(args) => (Problem::Burgers(burgers(&args)), args.samples),
        Equation::Darcy(args) => (Problem::Darcy(darcy(&args)), args.samples),
    };
    let count = match (samples.preset, samples.samples) {
        (Some(Preset::Paper), _) => PAPER,
        (None, count) => count.context("clap asks for --samples")?,
    };
    // Without a slash at the end, which would come before `.partial`.
    let folder: PathBuf = samples.out.components().collect();
    if folder.exists() {
        if !is_complete(&folder, &problem, samples.seed, count) {
            bail!(
                "{} exists and is not the dataset asked for; name another folder, or delete it",
                folder.display()
            );
        }
        writeln!(io::stdout(), "{} is complete already", folder.display())?;
        return Ok(());
    }
    let meta = write(&folder, &problem, samples.seed, count, samples.quiet)?;
    writeln!(io::stdout(), "wrote {}: {}", folder.display(), output::summary(&meta))?;
    Ok(())
}

/// Writes a dataset that is not there yet, or the rest of it, with its progress.
pub(super) fn write(
    folder: &Path,
    problem: &Problem,
    seed: u64,
    count: u32,
    quiet: bool,
) -> anyhow::Result<Meta> {
    let bytes = check_space(folder, problem, count)?;
    // Settings that cannot work shall leave no folder behind.
    problem.sample(seed, 0)?;
    if !quiet {
        let (grid, size) = (output::sizes(&problem.grid().points()), output::megabytes(bytes));
        writeln!(io::stderr(), "{count} samples on {grid} points, {size}, to {}", folder.display())?;
    }
    interrupt::catch("stopping when the samples in hand are done", quiet)?;
    let mut progress = Progress::new(u64::from(count), "samples", quiet);
    let written = write_dataset(folder, problem, seed, count, |complete| {
        progress.at(u64::from(complete));
        interrupt::asked()
    });
    progress.finish();
    match written {
        Ok(meta) => Ok(meta),
        Err(Error::Stopped { complete, samples }) => {
            let how = "run the same command again to go on from there";
            Err(Interrupted(format!("stopped after {complete} of {samples} samples; {how}")).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The samples that a run needs, with the seed that the command has by default.
pub(super) fn for_run(data: &DataConfig, problem: &Problem, quiet: bool) -> anyhow::Result<()> {
    let count = u32::try_from(data.train + data.validation + data.test)?;
    write(&data.folder, problem, 0, count, quiet).map(drop)
}

/// The paper's 1,024 training and 100 test samples, and 100 to validate: what `galerkin train` takes with its presets.
const PAPER: u32 = 1224;

fn burgers(args: &Burgers) -> pde::Burgers {
    let default = pde::Burgers::default();
    pde::Burgers {
        points: args.grid,
        viscosity: args.viscosity.unwrap_or(default.viscosity),
        time: args.time,
        tolerance: args.tolerance.unwrap_or(default.tolerance),
        initial: law(&args.law, default.initial),
    }
}

fn darcy(args: &Darcy) -> pde::Darcy {
    let default = pde::Darcy::default();
    let [above, below] = args.contrast;
    let coefficient = match args.lognormal {
        Some([location, scale]) => Coefficient::Lognormal { location, scale },
        None => Coefficient::Threshold { at: args.threshold, above, below },
    };
    pde::Darcy {
        points: args.grid,
        source: args.source,
        tolerance: args.tolerance.unwrap_or(default.tolerance),
        coefficient,
        field: law(&args.law, default.field),
    }
}

fn law(args: &Law, default: FieldLaw) -> FieldLaw {
    FieldLaw {
        smoothness: args.smoothness.unwrap_or(default.smoothness),
        tau: args.tau.unwrap_or(default.tau),
        sigma: args.sigma.unwrap_or(default.sigma),
        modes: args.modes.unwrap_or(default.modes),
    }
}

/// Whether the folder is the dataset that is asked for.
fn is_complete(folder: &Path, problem: &Problem, seed: u64, count: u32) -> bool {
    let dataset = Dataset::open(folder);
    dataset.as_ref().ok().and_then(Dataset::meta).is_some_and(|meta| {
        meta.problem.as_ref() == Some(problem) && (meta.seed, meta.samples) == (Some(seed), count as usize)
    })
}

/// The bytes of the dataset; an error if those not yet written do not fit on the disk.
fn check_space(folder: &Path, problem: &Problem, count: u32) -> anyhow::Result<u64> {
    // Two arrays of f32. What is too much to count is too much for any disk.
    let points = problem.grid().points();
    let bytes = points.iter().fold(8 * u64::from(count), |bytes, n| bytes.saturating_mul(*n as u64));
    let part = folder.with_added_extension("partial");
    let written =
        ["inputs.npy", "targets.npy"].map(|name| part.join(name).metadata().map_or(0, |file| file.len()));
    let missing = bytes.saturating_sub(written.iter().sum());
    if let Some(free) = free_bytes(folder)
        && free < missing
    {
        let [needed, free] = [missing, free].map(output::megabytes);
        bail!("{}: expected {needed} of free space, found {free}", folder.display());
    }
    Ok(bytes)
}

/// Free bytes on the disk that a path not there yet will be on; `None` if the system does not tell.
#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let absolute = std::path::absolute(path).ok()?;
    let there = absolute.ancestors().find(|folder| folder.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}
