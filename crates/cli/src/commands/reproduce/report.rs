//! What a study found: a table beside the paper's, as text, CSV and figures.

use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use galerkin::device::Device;
use galerkin_data::io::write_whole;

use super::experiments::{Row, Setting, Study};
use super::{Outcome, pictures};
use crate::args::{Experiment, Reproduce};
use crate::commands::results::{machine, today};
use crate::figures::{Curve, Point, Scene, histories};
use crate::output::Table;

/// Writes `DATE-NAME/` with everything; gives its place.
pub(super) fn write(
    experiment: Experiment,
    study: &Study,
    found: &[Option<Outcome>],
    args: &Reproduce,
    device: &Device,
) -> anyhow::Result<PathBuf> {
    let at = place(experiment, args);
    let folder = at.join("config");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (row, _) in study.rows.iter().zip(found).filter(|(_, outcome)| outcome.is_some()) {
        write_whole(config_file(&folder, &row.id), row.config.to_toml().as_bytes())?;
    }
    write_whole(at.join("table.csv"), csv(study, found).as_bytes())?;
    convergence(study, found).save_in(&at.join("figures"), "convergence")?;
    let pictures = pictures::draw(experiment, study, found, args, device, &at.join("figures"))?;
    let text = readme(experiment, study, found, args, &pictures) + &notes(&at)?;
    write_whole(at.join("README.md"), text.as_bytes())?;
    Ok(at)
}

/// The file of a run's settings. Names of runs may have dots, which begin no extension.
pub(super) fn config_file(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.toml"))
}

/// What somebody wrote to `notes.md` in the folder, to stand below the tables.
pub(super) fn notes(at: &Path) -> anyhow::Result<String> {
    let path = at.join("notes.md");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(format!("\n{text}")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// The folder of today's results.
pub(super) fn place(experiment: Experiment, args: &Reproduce) -> PathBuf {
    args.out.join(format!("{}-{}-{}", today(), experiment.name(), args.scale.name()))
}

/// Command, version and machine.
pub(super) fn origin(experiment: Experiment, args: &Reproduce) -> String {
    format!(
        "`galerkin reproduce {} --scale {}`, version {}, {}.\n",
        experiment.name(),
        args.scale.name(),
        env!("CARGO_PKG_VERSION"),
        machine()
    )
}

/// A row per run, errors in the unit of the study; of the best epoch too, unless there are too many to read.
pub(super) fn table(study: &Study, found: &[Option<Outcome>]) -> Table {
    let columns = columns(study);
    let best_too = columns.len() <= 3;
    let mut head = vec!["".to_string()];
    for column in &columns {
        head.push(column_name(column));
        if best_too {
            head.push("best epoch's".into());
        }
        if study.rows.iter().any(|row| paper(row, column).is_some()) {
            head.push("paper".into());
        }
    }
    head.extend(["epochs", "best", "samples", "hours"].map(String::from));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, outcome) in study.rows.iter().zip(found) {
        let mut cells = vec![row.label.clone()];
        for column in &columns {
            cells.push(error(study, row, outcome, column, false));
            if best_too {
                cells.push(error(study, row, outcome, column, true));
            }
            if study.rows.iter().any(|row| paper(row, column).is_some()) {
                cells.push(paper(row, column).map_or("-".into(), |paper| format!("{paper:.3}")));
            }
        }
        cells.extend(match outcome {
            None => ["not run", "", "", ""].map(String::from),
            Some(outcome) => [
                format!("{} of {}", outcome.history.epochs.len(), row.config.train.epochs),
                outcome.history.best().map_or("-".into(), |best| best.epoch.to_string()),
                row.config.data.train.to_string(),
                // A run that came here from elsewhere has no clock.
                if outcome.seconds > 0.0 { format!("{:.2}", outcome.seconds / 3600.0) } else { "-".into() },
            ],
        });
        table.row(cells);
    }
    table
}

/// Everything that some row is evaluated on.
fn columns(study: &Study) -> Vec<Setting> {
    let mut columns: Vec<Setting> = Vec::new();
    for setting in study.rows.iter().flat_map(|row| &row.settings) {
        if !columns.iter().any(|known| same(known, setting)) {
            columns.push(*setting);
        }
    }
    columns.sort_by(|a, b| a.grid.cmp(&b.grid).then(a.noise.total_cmp(&b.noise)));
    columns
}

fn same(a: &Setting, b: &Setting) -> bool {
    (a.grid, a.noise) == (b.grid, b.noise)
}

fn column_name(setting: &Setting) -> String {
    match setting.noise {
        0.0 => format!("n = {}", setting.grid),
        noise => format!("n = {}, ε = {noise}", setting.grid),
    }
}

fn paper(row: &Row, column: &Setting) -> Option<f64> {
    row.settings.iter().find(|setting| same(setting, column)).and_then(|setting| setting.paper)
}

/// In the unit of the study, with the weights of the last epoch or of the best one.
fn error(study: &Study, row: &Row, outcome: &Option<Outcome>, column: &Setting, best: bool) -> String {
    let Some(outcome) = outcome else { return "-".into() };
    let Some(at) = row.settings.iter().position(|setting| same(setting, column)) else { return "-".into() };
    let evaluations = if best { &outcome.best } else { &outcome.last };
    match evaluations.get(at) {
        Some(evaluation) => format!("{:.3}", evaluation.relative_l2.mean / study.unit),
        None => "diverged".into(),
    }
}

fn csv(study: &Study, found: &[Option<Outcome>]) -> String {
    let mut text = String::from(
        "row,grid,noise,relative_l2_last,relative_l2_best,paper,best_epoch,epochs,samples,seconds,diverged\n",
    );
    for (row, outcome) in study.rows.iter().zip(found) {
        let Some(outcome) = outcome else { continue };
        for (at, setting) in row.settings.iter().enumerate() {
            let mean = |evaluations: &[galerkin::evaluate::Evaluation]| {
                evaluations.get(at).map_or(String::new(), |e| format!("{:e}", e.relative_l2.mean))
            };
            let paper = setting.paper.map_or(String::new(), |paper| format!("{:e}", paper * study.unit));
            let _ = writeln!(
                text,
                "{},{},{},{},{},{paper},{},{},{},{:.0},{}",
                row.id,
                setting.grid,
                setting.noise,
                mean(&outcome.last),
                mean(&outcome.best),
                outcome.history.best().map_or(0, |best| best.epoch),
                outcome.history.epochs.len(),
                row.config.data.train,
                outcome.seconds,
                outcome.history.diverged
            );
        }
    }
    text
}

/// Validation errors of all runs over epochs; of runs that differ by their seed alone, their mean and range.
fn convergence(study: &Study, found: &[Option<Outcome>]) -> Scene {
    let mut groups: Vec<(String, String, Vec<&Outcome>)> = Vec::new();
    for (row, outcome) in study.rows.iter().zip(found) {
        let Some(outcome) = outcome else { continue };
        let mut config = row.config.clone();
        config.train.seed = 0;
        let key = config.to_toml();
        match groups.iter_mut().find(|(known, ..)| *known == key) {
            Some((_, label, outcomes)) => {
                outcomes.push(outcome);
                *label = format!("{} seeds", outcomes.len());
            }
            None => groups.push((key, row.label.clone(), vec![outcome])),
        }
    }
    let curves: Vec<Curve> = groups
        .into_iter()
        .map(|(_, name, outcomes)| {
            let epochs = outcomes.iter().map(|outcome| outcome.history.epochs.len()).min().unwrap_or(0);
            let point = |at: usize| {
                let errors = || outcomes.iter().map(|outcome| outcome.history.epochs[at].validation.mean);
                let band = [errors().fold(f64::INFINITY, f64::min), errors().fold(0.0, f64::max)];
                Point {
                    resolution: (at + 1) as f64,
                    error: errors().sum::<f64>() / outcomes.len() as f64,
                    band: (outcomes.len() > 1).then_some(band),
                }
            };
            Curve { name, points: (0..epochs).map(point).collect() }
        })
        .collect();
    histories(study.title, "validation error", &curves)
}

fn readme(
    experiment: Experiment,
    study: &Study,
    found: &[Option<Outcome>],
    args: &Reproduce,
    pictures: &[String],
) -> String {
    let mut text = format!("# {}\n\n", study.title);
    let unit = libm::log10(study.unit).round();
    let _ = writeln!(text, "{}", origin(experiment, args));
    let _ = writeln!(
        text,
        "Mean relative L² errors of the test samples in units of 1e{unit}, after the last epoch and, here or in `table.csv`, after the epoch \
         with the smallest error on the validation samples, which are not test samples. Data are generated from the paper's law, not the paper's \
         files. Numbers of the paper are its own: the best epoch on its test samples, trained on the grid of its column heading in the \
         paper. Hours are those of training, on a machine that may have had other work.\n"
    );
    text.push_str(&table(study, found).markdown());
    text.push_str("\n![validation errors](figures/convergence.svg)\n\n");
    for name in pictures {
        let _ = writeln!(text, "![{name}](figures/{name}.png)\n");
    }
    text.push_str("Configurations are in `config/`, all numbers in `table.csv`.\n");
    let missing: Vec<_> =
        study.rows.iter().zip(found).filter(|(_, f)| f.is_none()).map(|(row, _)| row.id.as_str()).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "Not run: {}.", missing.join(", "));
    }
    text
}
