//! `galerkin reproduce`: the paper's experiments as queues of runs that go on where they were.

mod experiments;
mod memory_speed;
mod pictures;
mod report;
mod theory;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use galerkin::device::{self, Device};
use galerkin::evaluate::{Evaluation, Evaluator};
use galerkin::run::{self, History, RunFolder, Which};
use galerkin::train::{Start, estimate};
use galerkin_data::io::write_whole;
use serde::{Deserialize, Serialize};

use self::experiments::{Row, Study, problem, study};
use super::generate;
use super::train::{How, to_the_end};
use crate::args::{Experiment, Reproduce};
use crate::output::Table;
use crate::progress::duration;

/// Trains what is missing, evaluates it, and writes the tables.
pub(super) fn run(args: Reproduce) -> anyhow::Result<()> {
    let experiments = match args.name {
        Experiment::All => Experiment::ALL.to_vec(),
        one => vec![one],
    };
    let device = device::parse("cpu")?;
    for experiment in experiments {
        match (study(experiment, args.scale), experiment) {
            (Some(study), _) => reproduce(experiment, &study, &args, &device)?,
            (None, Experiment::MemorySpeed) => memory_speed::run(&args)?,
            (None, _) => theory::run(&args, &device)?,
        }
    }
    Ok(())
}

fn reproduce(experiment: Experiment, study: &Study, args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let chosen = choose(&study.rows, |row| &row.id, &args.only)?;
    if !args.report {
        if !args.quiet {
            plan(study, &chosen, args, device)?;
        }
        for row in &chosen {
            train(row, args, device)?;
        }
    }
    let mut found = Vec::new();
    for row in &study.rows {
        found.push(result(row, &folder(row, args), device)?);
    }
    if found.iter().all(Option::is_none) {
        bail!("{}: nothing was run at this scale yet", experiment.name());
    }
    let at = report::write(experiment, study, &found, args, device)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", study.title)?;
    report::table(study, &found).write(&mut out)?;
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

/// What there is to do, and how long it will take.
fn plan(study: &Study, rows: &[&Row], args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let mut table = Table::new(&["row", "", "steps", "done", "time left"]);
    let mut sum = Duration::ZERO;
    for row in rows {
        let folder = folder(row, args);
        let total = row.config.total_steps();
        let (done, over) = match progress(row, &folder)? {
            Progress::Steps(steps) => (steps, false),
            Progress::Ended(history) => (history.steps, true),
        };
        let left =
            if over { Duration::ZERO } else { estimate(&row.config, total - done.min(total), device)? };
        sum += left;
        let left = if over { "-".into() } else { duration(left) };
        table.row(vec![row.id.clone(), row.label.clone(), total.to_string(), done.to_string(), left]);
    }
    let mut err = io::stderr().lock();
    writeln!(err, "{}", study.title)?;
    table.write(&mut err)?;
    writeln!(err, "about {} of training", duration(sum))?;
    Ok(())
}

/// How far a run is.
enum Progress {
    /// It can go on after so many.
    Steps(u64),
    /// It is over, perhaps because it diverged.
    Ended(History),
}

fn progress(row: &Row, folder: &RunFolder) -> anyhow::Result<Progress> {
    if !folder.config_file().exists() {
        return Ok(Progress::Steps(0));
    }
    if folder.config()? != row.config {
        bail!(
            "{}: a run with other settings is here; delete it, or name another folder by --runs",
            folder.path().display()
        );
    }
    let history = folder.history()?;
    let trained = history.steps >= row.config.total_steps() && folder.weights_file(Which::Last).exists();
    Ok(if history.diverged || trained { Progress::Ended(history) } else { Progress::Steps(history.steps) })
}

/// Trains a run to its end; one that diverged is at its end.
fn train(row: &Row, args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let folder = folder(row, args);
    if let Progress::Ended(_) = progress(row, &folder)? {
        return Ok(());
    }
    let data = &row.config.data;
    if !data.folder.exists() {
        generate::for_run(data, &problem(&row.config, args.scale), args.quiet)?;
    }
    if !args.quiet {
        writeln!(io::stderr(), "{}: {}", row.id, row.label)?;
    }
    let how = How {
        start: Start::Resume,
        limit: None,
        device: device.clone(),
        tensorboard: false,
        quiet: args.quiet,
    };
    let start = Instant::now();
    let ended = to_the_end(&row.config, &folder, &how);
    if folder.path().exists() {
        let clock = Clock { seconds: Clock::read(&folder)?.seconds + start.elapsed().as_secs_f64() };
        clock.write(&folder)?;
    }
    match ended {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.downcast_ref(), Some(run::Error::Diverged { .. })) => {
            if !args.quiet {
                writeln!(io::stderr(), "{}: {error}", row.id)?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// `clock.json` of a run: how long it was trained, over all its parts.
#[derive(Default, Serialize, Deserialize)]
struct Clock {
    seconds: f64,
}

impl Clock {
    fn path(folder: &RunFolder) -> PathBuf {
        folder.path().join("clock.json")
    }

    fn read(folder: &RunFolder) -> anyhow::Result<Self> {
        let path = Self::path(folder);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    fn write(&self, folder: &RunFolder) -> anyhow::Result<()> {
        Ok(write_whole(Self::path(folder), serde_json::to_string(self)?.as_bytes())?)
    }
}

/// What came out of a run.
struct Outcome {
    history: History,
    seconds: f64,
    /// With the weights of the last step, for every setting of the row; nothing if the run diverged.
    last: Vec<Evaluation>,
    /// With those of the smallest validation error.
    best: Vec<Evaluation>,
}

/// Evaluations of a run, kept in its folder.
#[derive(Serialize, Deserialize)]
struct Evaluated {
    which: String,
    evaluation: Evaluation,
}

/// The errors of a run that is over; `None` of others.
fn result(row: &Row, folder: &RunFolder, device: &Device) -> anyhow::Result<Option<Outcome>> {
    let Progress::Ended(history) = progress(row, folder)? else { return Ok(None) };
    let path = folder.path().join("evaluations.json");
    let mut known: Vec<Evaluated> = match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string())?,
        Err(_) => Vec::new(),
    };
    let mut evaluations = |which: Which, name: &str| -> anyhow::Result<Vec<Evaluation>> {
        let mut evaluator = None;
        let mut found = Vec::new();
        for setting in &row.settings {
            let same = |e: &&Evaluated| {
                e.which == name && (e.evaluation.grid, e.evaluation.noise) == (setting.grid, setting.noise)
            };
            if let Some(evaluated) = known.iter().find(same) {
                found.push(evaluated.evaluation.clone());
                continue;
            }
            let evaluator = match &evaluator {
                Some(evaluator) => evaluator,
                None => evaluator.insert(Evaluator::open(folder, which, None, device)?),
            };
            let evaluation = evaluator.evaluate(setting.grid, setting.noise)?;
            known.push(Evaluated { which: name.into(), evaluation: evaluation.clone() });
            write_whole(&path, serde_json::to_string(&known)?.as_bytes())?;
            found.push(evaluation);
        }
        Ok(found)
    };
    let last = if history.diverged { Vec::new() } else { evaluations(Which::Last, "last")? };
    // A run that diverged in its first epoch has none.
    let best = match folder.weights_file(Which::Best).exists() {
        true => evaluations(Which::Best, "best")?,
        false => Vec::new(),
    };
    Ok(Some(Outcome { history, seconds: Clock::read(folder)?.seconds, last, best }))
}
