//! What the runs of an experiment look like: test samples, latent functions, and coefficients found from noisy solutions.

use std::io::{self, Write};
use std::path::Path;

use galerkin::device::Device;
use galerkin::evaluate::{Among, Evaluator};
use galerkin::run::Snapshot;
use galerkin_paper::report::ErrorReport;
use galerkin_paper::{Experiment, Row};

use super::folder;
use crate::args::Reproduce;
use crate::commands::drawing::{field, first_channel, rows};
use crate::commands::plot;
use crate::figures::{Picture, Scene, gallery};

/// Test samples per figure.
const SAMPLES: usize = 3;

/// Draws into a folder; gives the names of the figures.
pub(super) fn draw(
    experiment: Experiment,
    report: &ErrorReport,
    args: &Reproduce,
    device: &Device,
    at: &Path,
) -> anyhow::Result<Vec<String>> {
    let mut models = Vec::new();
    for (row, outcome) in report.ended() {
        // A run that diverged has no last weights.
        if outcome.last.is_empty() || !(row.pictured || experiment == Experiment::Noise) {
            continue;
        }
        // The tables need no data once they were made; only pictures do.
        match Evaluator::open(&folder(row, args), Snapshot::Last, None, Among::Unseen, device) {
            Ok(evaluator) => models.push((row, evaluator)),
            Err(error) => writeln!(io::stderr(), "no samples are drawn: {error}")?,
        }
    }
    let mut names = Vec::new();
    let mut save = |name: String, scene: &Scene| -> anyhow::Result<()> {
        scene.save_in(at, &name)?;
        names.push(name);
        Ok(())
    };
    for (row, evaluator) in models.iter().filter(|(row, _)| row.pictured) {
        for (name, scene) in plot::of_samples(evaluator, SAMPLES)? {
            save(format!("{}-{name}", row.id), &scene)?;
        }
    }
    if experiment == Experiment::Noise && !models.is_empty() {
        save("reconstructions".into(), &reconstructions(report.protocol.title, &models)?)?;
    }
    Ok(names)
}

/// The first test sample's solution with more and more noise, and the coefficients that every model finds from it.
fn reconstructions(title: &str, models: &[(&Row, Evaluator)]) -> anyhow::Result<Scene> {
    let mut measured = Vec::new();
    let mut found = Vec::new();
    for (k, (row, evaluator)) in models.iter().enumerate() {
        let mut coefficients = Vec::new();
        for trial in &row.trials {
            let shown = evaluator.show(trial.grid, trial.noise, 1)?;
            if k == 0 {
                measured
                    .extend(rows(&shown.inputs).into_iter().map(|u| (format!("u, ε = {}", trial.noise), u)));
            }
            for (a, error) in rows(&shown.predictions).into_iter().zip(&shown.errors) {
                coefficients.push((format!("ε = {}: error {:.3}", trial.noise, error), a));
            }
        }
        found.push((row.label.clone(), coefficients));
    }
    let mut arrays = vec![("solution with noise".to_string(), measured)];
    arrays.extend(found);
    let values: Vec<Vec<Vec<f32>>> =
        arrays.iter().map(|(_, row)| row.iter().map(|(_, array)| first_channel(array)).collect()).collect();
    let pictures = arrays.iter().zip(&values).map(|((title, row), values)| {
        let pictures = row.iter().zip(values).map(|((title, array), values)| Picture {
            title: title.clone(),
            field: field(array, values),
            signed: false,
        });
        (title.clone(), pictures.collect())
    });
    Ok(gallery(title, &pictures.collect::<Vec<_>>()))
}
