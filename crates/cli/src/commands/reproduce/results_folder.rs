//! The folder of an experiment's results: words, numbers, configurations and figures.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use galerkin::device::Device;
use galerkin_data::io::write_whole;
use galerkin_paper::report::ErrorReport;
use galerkin_paper::runs::RowOutcome;
use galerkin_paper::{Experiment, Row};

use super::pictures;
use crate::args::Reproduce;
use crate::commands::results::{machine, today};
use crate::figures::{Curve, Point, Scene, histories};

/// Writes `DATE-NAME-SCALE/` with everything; gives its place.
pub(super) fn write(
    experiment: Experiment,
    report: &ErrorReport,
    args: &Reproduce,
    device: &Device,
) -> anyhow::Result<PathBuf> {
    let at = place(experiment, args);
    let folder = at.join("config");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (row, _) in report.ended() {
        write_whole(row.config_file(&folder), row.config()?.to_toml().as_bytes())?;
    }
    write_whole(at.join("table.csv"), report.csv().as_bytes())?;
    convergence(report).save_in(&at.join("figures"), "convergence")?;
    let pictures = pictures::draw(experiment, report, args, device, &at.join("figures"))?;
    let text = report.readme(&origin(experiment, args), &pictures) + &notes(&at)?;
    write_whole(at.join("README.md"), text.as_bytes())?;
    Ok(at)
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

/// Validation errors of all runs over epochs; of runs that differ by their seed alone, their mean and range.
fn convergence(report: &ErrorReport) -> Scene {
    let mut groups: Vec<(&Row, Vec<&RowOutcome>)> = Vec::new();
    for (row, outcome) in report.ended() {
        match groups.iter_mut().find(|(first, _)| row.is_same_but_for_seed(first)) {
            Some((_, outcomes)) => outcomes.push(outcome),
            None => groups.push((row, vec![outcome])),
        }
    }
    let curves: Vec<Curve> = groups
        .into_iter()
        .map(|(row, outcomes)| {
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
            let name = match outcomes.len() {
                1 => row.label.clone(),
                seeds => format!("{seeds} seeds"),
            };
            Curve { name, points: (0..epochs).map(point).collect() }
        })
        .collect();
    histories(report.protocol.title, "validation error", &curves)
}
