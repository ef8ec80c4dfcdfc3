//! `galerkin plot`: the figures of a run.

use std::io::{self, Write};

use anyhow::bail;
use galerkin::config::RunConfig;
use galerkin::device;
use galerkin::evaluate::{Among, Evaluation, Evaluator, Metrics};
use galerkin::run::{RunFolder, Snapshot};

use super::drawing::{Legend, Sample, draw, first_channel, rows};
use super::latents;
use crate::args;
use crate::figures::{Curve, Epoch, Field, Point, Scene, convergence, reconstructions, resolutions};

/// Draws what there is to draw.
pub(super) fn run(args: args::Plot) -> anyhow::Result<()> {
    let folder = RunFolder::new(&args.run);
    let snapshot = if args.best { Snapshot::Best } else { Snapshot::Last };
    folder.config()?;
    let device = device::parse(&args.device)?;
    let evaluator = Evaluator::open(&folder, snapshot, args.data.as_deref(), Among::Unseen, &device);
    let mut out = io::stdout().lock();
    let mut drawn = 0;
    let evaluator = match evaluator {
        Ok(evaluator) => Some(evaluator),
        // A dataset that was named must be there; that of the run may be gone.
        Err(error) if args.data.is_some() => return Err(error.into()),
        Err(error) => {
            writeln!(io::stderr(), "no samples are drawn: {error}")?;
            None
        }
    };
    for (name, scene) in figures(&folder, evaluator.as_ref(), args.samples as usize)? {
        scene.save_in(&folder.figures(), name)?;
        writeln!(out, "drew {}.png and .svg", folder.figures().join(name).display())?;
        drawn += 1;
    }
    if drawn == 0 {
        bail!("{}: nothing to draw: no log, no dataset, no evaluation on several grids", args.run.display());
    }
    Ok(())
}

/// All figures of a run, by name; those of samples need a model and its data.
pub(super) fn figures(
    folder: &RunFolder,
    evaluator: Option<&Evaluator>,
    samples: usize,
) -> anyhow::Result<Vec<(&'static str, Scene)>> {
    let config = folder.config()?;
    let mut figures = Vec::new();
    let history = folder.history()?;
    if !history.epochs.is_empty() {
        let epochs: Vec<Epoch> = history
            .epochs
            .iter()
            .map(|epoch| Epoch {
                epoch: f64::from(epoch.epoch),
                training: epoch.loss,
                validation: Some(epoch.validation.mean),
                learning_rate: epoch.rate,
            })
            .collect();
        let title = format!("{}: convergence", describe(&config));
        figures.push(("convergence", convergence(&title, "loss, relative L² error", &epochs)));
    }
    if let Some(evaluator) = evaluator {
        figures.extend(of_samples(evaluator, samples)?);
    }
    if let Some(Metrics { evaluations, .. }) = Metrics::read(folder)?
        && evaluations.iter().any(|evaluation| evaluation.grid != evaluations[0].grid)
    {
        figures.push(("resolutions", errors_on_grids(&config, &evaluations)));
    }
    Ok(figures)
}

/// Figures of test samples, by name: predictions, and what else the problem and the model have to show.
pub(super) fn of_samples(
    evaluator: &Evaluator,
    samples: usize,
) -> anyhow::Result<Vec<(&'static str, Scene)>> {
    let config = evaluator.config();
    let mut figures = vec![("samples", test_samples(evaluator, samples)?)];
    if config.data.inverse && config.network.axes() == 2 {
        figures.push(("noise", noise_levels(evaluator, samples)?));
    }
    let title = format!("{}: latent functions of test sample 0", describe(config));
    // Coefficients from a file of others may have no eigenfunctions; the other figures do not need them.
    match latents::draw(evaluator, &title) {
        Ok(scene) => figures.extend(scene.map(|scene| ("latents", scene))),
        Err(error) => writeln!(io::stderr(), "no latent functions are drawn: {error:#}")?,
    }
    Ok(figures)
}

/// The first test samples with their predictions.
fn test_samples(evaluator: &Evaluator, count: usize) -> anyhow::Result<Scene> {
    let config = evaluator.config();
    let shown = evaluator.show(config.data.grid, config.data.noise.mean(), count)?;
    let arrays = rows(&shown.inputs).into_iter().zip(rows(&shown.targets)).zip(rows(&shown.predictions));
    let samples: Vec<Sample> = arrays
        .zip(&shown.errors)
        .enumerate()
        .map(|(k, (((input, target), prediction), error))| {
            let title = format!("test sample {k}, error {:.2} %", 100.0 * error);
            Sample { title, input, target, prediction: Some(prediction), points: [None, None] }
        })
        .collect();
    let legend = Legend::of(&evaluator.seen(config.data.grid)?);
    let title = format!("{}: test samples", describe(config));
    Ok(draw(&title, &legend, &samples))
}

/// Of the paper's figures.
const NOISES: [f64; 3] = [0.0, 0.01, 0.1];

/// Coefficients found from solutions with more and more noise.
fn noise_levels(evaluator: &Evaluator, count: usize) -> anyhow::Result<Scene> {
    let config = evaluator.config();
    let legend = Legend::of(&evaluator.seen(config.data.grid)?);
    let mut columns = vec![legend.names[1].first().cloned().unwrap_or_default()];
    let mut pictures: Vec<Vec<Vec<f32>>> = Vec::new();
    let mut side = 1;
    for noise in NOISES {
        let shown = evaluator.show(config.data.grid, noise, count)?;
        if pictures.is_empty() {
            pictures = rows(&shown.targets).iter().map(|target| vec![first_channel(target)]).collect();
            side = shown.grid.points().last().copied().unwrap_or(1);
        }
        for (row, prediction) in pictures.iter_mut().zip(rows(&shown.predictions)) {
            row.push(first_channel(&prediction));
        }
        let mean = shown.errors.iter().sum::<f64>() / shown.errors.len().max(1) as f64;
        columns.push(format!("ε = {noise}: error {:.1} %", 100.0 * mean));
    }
    let rows: Vec<(String, Vec<Field>)> = pictures
        .iter()
        .enumerate()
        .map(|(k, row)| {
            let fields = row.iter().map(|values| Field { columns: side, values });
            (format!("test sample {k}"), fields.collect())
        })
        .collect();
    let title = format!("{}: reconstructions from noisy solutions", describe(config));
    Ok(reconstructions(&title, &columns, &rows))
}

/// A curve per dataset, weights and level of noise, and one of the solver per dataset.
pub(super) fn errors_on_grids(config: &RunConfig, evaluations: &[Evaluation]) -> Scene {
    let mut curves: Vec<Curve> = Vec::new();
    let mut add = |name: String, grid: usize, error: f64| {
        let point = Point { resolution: grid as f64, error, band: None };
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name, points: vec![point] }),
        }
    };
    // What all have in common says nothing.
    let differ = |of: &dyn Fn(&Evaluation) -> String| {
        evaluations.iter().any(|evaluation| of(evaluation) != of(&evaluations[0]))
    };
    let label = |e: &Evaluation| e.label();
    let noise = |e: &Evaluation| format!(", noise {}", e.noise);
    let (labels, noises) = (differ(&label), differ(&noise));
    for evaluation in evaluations {
        let label = if labels { label(evaluation) } else { String::new() };
        let noise = if noises { noise(evaluation) } else { String::new() };
        add(format!("model{noise}{label}"), evaluation.grid, evaluation.relative_l2.mean);
        if let Some(solver) = evaluation.solver.as_ref().filter(|_| evaluation.noise == evaluations[0].noise)
        {
            add(format!("classical solver{label}"), evaluation.grid, solver.relative_l2.mean);
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.resolution.total_cmp(&b.resolution));
    }
    let title = format!("{}: errors against resolution", describe(config));
    resolutions(&title, "points along an axis", "mean relative L² error", &curves)
}

fn describe(config: &RunConfig) -> String {
    format!("{}, trained on grid {}", config.name, config.data.grid)
}
