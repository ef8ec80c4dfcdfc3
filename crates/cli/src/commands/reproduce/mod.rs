//! `galerkin reproduce`: the paper's experiments as queues of runs that go on where they were. What the experiments are and what their
//! tables say is in the crate `galerkin_paper`; here they are trained, measured and drawn.

mod memory_speed;
mod pictures;
mod results_folder;
mod theory;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{anyhow, bail};
use galerkin::device::{self, Device};
use galerkin::run::RunFolder;
use galerkin::train::training_time;
use galerkin_paper::report::ErrorReport;
use galerkin_paper::runs::{RowOutcome, Stage};
use galerkin_paper::{Experiment, Protocol, Row, Table};

use super::generate;
use super::train::{Options, to_the_end};
use crate::args::{ExperimentChoice, Reproduce};
use crate::progress::duration;

/// Trains what is missing, evaluates it, and writes the tables.
pub(super) fn run(args: Reproduce) -> anyhow::Result<()> {
    let experiments = match args.name {
        ExperimentChoice::All => Experiment::ALL.to_vec(),
        ExperimentChoice::One(one) => vec![one],
    };
    let device = device::parse("cpu")?;
    for experiment in experiments {
        match (experiment.protocol(args.scale), experiment) {
            (Some(protocol), _) => reproduce(experiment, protocol, &args, &device)?,
            (None, Experiment::MemorySpeed) => memory_speed::run(&args)?,
            (None, _) => theory::run(&args, &device)?,
        }
    }
    Ok(())
}

fn reproduce(
    experiment: Experiment,
    protocol: Protocol,
    args: &Reproduce,
    device: &Device,
) -> anyhow::Result<()> {
    let chosen = choose(&protocol.rows, |row| &row.id, &args.only)?;
    if !args.report {
        if !args.quiet {
            plan(protocol.title, &chosen, args, device)?;
        }
        for row in &chosen {
            train(row, args, device)?;
        }
    }
    let outcomes = protocol
        .rows
        .iter()
        .map(|row| outcome(row, protocol.goal, args, device))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if outcomes.iter().all(Option::is_none) {
        bail!("{}: nothing was run at this scale yet", experiment.name());
    }
    let report = ErrorReport { protocol, outcomes };
    let at = results_folder::write(experiment, &report, args, device)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}; errors in units of {:e}", report.protocol.title, report.protocol.unit)?;
    report.table().write(&mut out)?;
    writeln!(out, "wrote {}", at.display())?;
    Ok(())
}

/// Rows by name, or all of them.
fn choose<'a, R>(rows: &'a [R], name: fn(&R) -> &str, only: &[String]) -> anyhow::Result<Vec<&'a R>> {
    for wanted in only {
        if !rows.iter().any(|row| name(row) == wanted) {
            let names: Vec<_> = rows.iter().map(name).collect();
            let (what, why) = (format!("--only {wanted}"), format!("the rows are {}", names.join(", ")));
            bail!(galerkin::Error::Setting { what, why });
        }
    }
    let chosen = |row: &&R| only.is_empty() || only.iter().any(|wanted| name(row) == wanted);
    Ok(rows.iter().filter(chosen).collect())
}

fn folder(row: &Row, args: &Reproduce) -> RunFolder {
    RunFolder::new(args.runs.join(args.scale.name()).join(&row.id))
}

/// How far a run is.
fn stage(row: &Row, folder: &RunFolder) -> anyhow::Result<Stage> {
    row.stage(folder).map_err(|error| match error {
        galerkin_paper::Error::OtherRun { .. } => {
            anyhow!("{error}; delete it, or name another folder by --runs")
        }
        error => error.into(),
    })
}

/// What there is to do, and how long it will take.
fn plan(title: &str, rows: &[&Row], args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let mut table = Table::new(&["row", "", "steps", "done", "time left"]);
    let mut sum = Duration::ZERO;
    for row in rows {
        let config = row.config()?;
        let total = config.total_steps();
        let grid = vec![config.data.grid; config.network.axes()];
        let (done, over) = match stage(row, &folder(row, args))? {
            Stage::Begun(steps) => (steps, false),
            Stage::Ended(history) => (history.steps, true),
        };
        let left = if over {
            Duration::ZERO
        } else {
            training_time(&config, &grid, total - done.min(total), device)?
        };
        sum += left;
        let left = if over { "-".into() } else { duration(left) };
        table.row(vec![row.id.clone(), row.label.clone(), total.to_string(), done.to_string(), left]);
    }
    let mut err = io::stderr().lock();
    writeln!(err, "{title}")?;
    table.write(&mut err)?;
    writeln!(err, "about {} of training", duration(sum))?;
    Ok(())
}

/// Trains a run to its end; one that diverged is at its end.
fn train(row: &Row, args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let folder = folder(row, args);
    if let Stage::Ended(_) = stage(row, &folder)? {
        return Ok(());
    }
    let config = row.config()?;
    if !config.data.folder.exists() {
        generate::for_run(&config.data, &row.problem(args.scale), args.quiet)?;
    }
    if !args.quiet {
        writeln!(io::stderr(), "{}: {}", row.id, row.label)?;
    }
    let options =
        Options { resume: true, limit: None, device: device.clone(), tensorboard: false, quiet: args.quiet };
    match to_the_end(&config, &folder, &options) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.downcast_ref(), Some(galerkin::Error::Diverged { .. })) => {
            if !args.quiet {
                writeln!(io::stderr(), "{}: {error}", row.id)?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The errors of a run that is over; `None` of others.
fn outcome(
    row: &Row,
    goal: Option<f64>,
    args: &Reproduce,
    device: &Device,
) -> anyhow::Result<Option<RowOutcome>> {
    let folder = folder(row, args);
    match stage(row, &folder)? {
        Stage::Begun(_) => Ok(None),
        Stage::Ended(history) => Ok(Some(row.outcome(&folder, history, goal, device)?)),
    }
}
