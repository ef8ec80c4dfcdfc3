//! `galerkin evaluate`: errors of a trained model.

use std::io::{self, Write};

use galerkin::device;
use galerkin::evaluate::{Among, Evaluation, Evaluator, Interpolated, Metrics, Subject, milliseconds};
use galerkin::metrics::Summary;
use galerkin::run::{RunFolder, Snapshot};

use super::plot;
use crate::args;
use crate::output::{Table, sizes};

/// Evaluates on all grids with all levels of noise.
pub(super) fn run(args: args::Evaluate) -> anyhow::Result<()> {
    let folder = RunFolder::new(&args.run);
    let snapshot = if args.best { Snapshot::Best } else { Snapshot::Last };
    let among = if args.include_training { Among::All } else { Among::Unseen };
    let device = device::parse(&args.device)?;
    let mut evaluator = Evaluator::open(&folder, snapshot, args.data.as_deref(), among, &device)?;
    if args.symmetric {
        evaluator = evaluator.symmetric(&folder)?;
    }
    if args.break_even {
        let trained = evaluator.config().data.noise.levels();
        evaluator.check_break_even(if args.noise.is_empty() { &trained } else { &args.noise })?;
    }
    let grids = if args.resolutions { evaluator.resolutions()? } else { args.grid };
    let mut metrics = evaluator.on_grids(&folder, &grids, &args.noise, args.resolutions)?;
    if args.break_even {
        for evaluation in &mut metrics.evaluations {
            evaluation.break_even = Some(evaluator.break_even(evaluation, &folder)?);
        }
    }
    let clear = |metrics: &mut Metrics| metrics.evaluations.iter_mut().for_each(|e| e.per_sample.clear());
    if !args.per_sample {
        clear(&mut metrics);
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&metrics)?)?;
    } else {
        match args.resolutions {
            true => by_resolution(&metrics.evaluations, evaluator.config().data.grid).write(&mut out)?,
            false => table(&metrics.evaluations).write(&mut out)?,
        }
        if args.break_even {
            writeln!(out)?;
            break_even(&metrics.evaluations).write(&mut out)?;
            for found in metrics.evaluations.iter().filter_map(|evaluation| evaluation.break_even.as_ref()) {
                writeln!(out, "{}", found.sentence())?;
            }
        }
        if args.per_sample {
            per_sample(&metrics.evaluations).write(&mut out)?;
        }
    }
    out.flush()?;
    let mut err = io::stderr();
    for note in notes(&metrics.evaluations) {
        writeln!(err, "{note}")?;
    }
    clear(&mut metrics);
    if args.resolutions {
        let figure = plot::errors_on_grids(evaluator.config(), &metrics.evaluations);
        match figure.save_in(&folder.figures(), "resolutions") {
            Ok(()) => writeln!(err, "drew {}.png and .svg", folder.figures().join("resolutions").display())?,
            Err(error) => writeln!(err, "not drawn: {error:#}")?,
        }
    }
    if let Err(error) = metrics.add_to(&folder) {
        // What was asked for was printed; a folder that cannot be written is no reason to fail.
        writeln!(err, "not recorded: {error}")?;
    }
    Ok(())
}

/// What the numbers of a table do not say of the samples behind them.
fn notes(evaluations: &[Evaluation]) -> Vec<String> {
    let Some(Evaluation { subject, .. }) = evaluations.first() else { return Vec::new() };
    let mut notes = Vec::new();
    if subject.left_out > 0 {
        notes.push(format!(
            "{} samples of {} are left out: the run was trained or validated with them",
            subject.left_out,
            subject.dataset.display()
        ));
    }
    if subject.includes_training {
        notes.push("training samples are included: these are no test errors".into());
    }
    let zero = evaluations.iter().map(|evaluation| evaluation.zero_targets).max().unwrap_or(0);
    if zero > 0 {
        notes.push(format!("{zero} samples count in no relative error: their targets are zero everywhere"));
    }
    let interpolated = |what: Interpolated| evaluations.iter().any(|e| e.interpolated == what);
    if interpolated(Interpolated::Targets) {
        notes.push("* the targets are interpolated from the dataset's own grid".into());
    }
    if interpolated(Interpolated::Both) {
        notes.push("** inputs and targets are interpolated from the dataset's own grid".into());
    }
    notes
}

/// Errors of every sample, a column for each evaluation.
fn per_sample(evaluations: &[Evaluation]) -> Table {
    let heads = evaluations.iter().map(|e| format!("grid {}, noise {}", sizes(&e.points), e.noise));
    let heads: Vec<String> = ["sample".to_string()].into_iter().chain(heads).collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for sample in 0..evaluations.iter().map(|e| e.per_sample.len()).max().unwrap_or(0) {
        let errors =
            evaluations.iter().map(|e| e.per_sample.get(sample).map_or("-".into(), |e| format!("{e:.3e}")));
        table.row([sample.to_string()].into_iter().chain(errors).collect());
    }
    table
}

/// Errors on the grids of `--resolutions`, each beside that on the grid of the training.
fn by_resolution(found: &[Evaluation], trained: usize) -> Table {
    let mut table =
        Table::new(&["", "grid", "noise", "samples", "rel. L2 mean", "to training grid", "ms/sample"]);
    for evaluation in found {
        let Evaluation { points, noise, samples, relative_l2, .. } = evaluation;
        let mark = match evaluation.interpolated {
            Interpolated::Nothing => "",
            Interpolated::Targets => " *",
            Interpolated::Both => " **",
        };
        let base = found.iter().find(|base| base.grid == trained && base.noise == *noise);
        let ratio = base.map(|base| relative_l2.mean / base.relative_l2.mean);
        let mut row = |name: &str, noise: f64, mean: f64, ratio: Option<f64>, seconds: f64| {
            table.row(vec![
                name.into(),
                format!("{}{mark}", sizes(points)),
                noise.to_string(),
                samples.to_string(),
                format!("{mean:.3e}"),
                ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
                format!("{:.2}", 1e3 * seconds),
            ]);
        };
        row("model", *noise, relative_l2.mean, ratio, evaluation.seconds_per_sample);
        if let Some(solver) = &evaluation.solver {
            row("solver", 0.0, solver.relative_l2.mean, None, solver.seconds_per_sample);
        }
    }
    table
}

/// Network and classical solver of the same accuracy.
fn break_even(evaluations: &[Evaluation]) -> Table {
    let mut table = Table::new(&[
        "grid",
        "error",
        "solver's grid",
        "its error",
        "its ms/sample",
        "model's",
        "data, min",
        "training, min",
        "queries to pay",
    ]);
    let minutes = |seconds: Option<f64>| seconds.map_or("unknown".into(), |s| format!("{:.1}", s / 60.0));
    for evaluation in evaluations {
        let Some(found) = &evaluation.break_even else { continue };
        table.row(vec![
            sizes(&evaluation.points),
            format!("{:.3e}", evaluation.relative_l2.mean),
            sizes(&found.points),
            format!("{:.3e}", found.solver_error),
            milliseconds(found.solver_seconds),
            milliseconds(found.network_seconds),
            minutes(found.data_seconds),
            minutes(found.training_seconds),
            found.queries.map_or("-".into(), |queries| format!("{:.0}", queries.ceil())),
        ]);
    }
    table
}

/// A row of the model, and one of the solver where there is one.
pub(super) fn table(found: &[Evaluation]) -> Table {
    let mut table = Table::new(&[
        "",
        "grid",
        "noise",
        "samples",
        "rel. L2 mean",
        "median",
        "max",
        "rel. H1",
        "max error",
        "ms/sample",
    ]);
    for evaluation in found {
        let summary = |s: &Summary| [s.mean, s.median, s.max].map(|v| format!("{v:.3e}"));
        let mean = |s: Option<&Summary>| s.map_or("-".to_string(), |s| format!("{:.3e}", s.mean));
        let start = |name: &str| {
            let Evaluation { points, noise, samples, .. } = evaluation;
            vec![name.to_string(), sizes(points), noise.to_string(), samples.to_string()]
        };
        let Subject { includes_training, symmetric, .. } = evaluation.subject;
        let mut row = start(match (includes_training, symmetric) {
            (false, false) => "model",
            (false, true) => "model, mean over symmetries",
            (true, false) => "model, training samples included",
            (true, true) => "model, mean over symmetries, training samples included",
        });
        row.extend(summary(&evaluation.relative_l2));
        row.extend([mean(evaluation.relative_h1.as_ref()), mean(Some(&evaluation.l_infinity))]);
        row.push(format!("{:.2}", 1e3 * evaluation.seconds_per_sample));
        table.row(row);
        if evaluation.channels.len() > 1 {
            for channel in &evaluation.channels {
                let mut row = start(&format!("  {}", channel.name));
                row.extend(summary(&channel.relative_l2));
                row.extend(["-", "-", "-"].map(String::from));
                table.row(row);
            }
        }
        if let Some(solver) = &evaluation.solver {
            let mut row = start("solver");
            row[2] = "0".into();
            row.extend(summary(&solver.relative_l2));
            row.extend(["-".into(), "-".into(), format!("{:.2}", 1e3 * solver.seconds_per_sample)]);
            table.row(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use galerkin::evaluate::SolverRow;

    #[test]
    fn a_table_has_a_row_for_the_solver() {
        let summary = |mean: f64| Summary { mean, median: 0.9 * mean, max: 3.0 * mean };
        let mut evaluation = Evaluation {
            subject: Subject::default(),
            zero_targets: 0,
            grid: 512,
            points: vec![512],
            noise: 0.01,
            interpolated: Interpolated::Nothing,
            samples: 100,
            relative_l2: summary(1.5e-3),
            channels: Vec::new(),
            relative_h1: Some(summary(7e-3)),
            l_infinity: summary(5e-4),
            per_sample: Vec::new(),
            seconds_per_sample: 4.9e-3,
            solver: Some(SolverRow { relative_l2: summary(4e-5), seconds_per_sample: 0.055 }),
            break_even: None,
        };
        let fine = evaluation.clone();
        (evaluation.points, evaluation.relative_h1, evaluation.solver) = (vec![85, 85], None, None);
        let mut text = Vec::new();
        table(&[fine, evaluation]).write(&mut text).unwrap();
        let expected = "          grid     noise  samples  rel. L2 mean  median    max       rel. H1   max error  ms/sample
  model   512      0.01   100      1.500e-3      1.350e-3  4.500e-3  7.000e-3  5.000e-4   4.90
  solver  512      0      100      4.000e-5      3.600e-5  1.200e-4  -         -          55.00
  model   85 × 85  0.01   100      1.500e-3      1.350e-3  4.500e-3  -         5.000e-4   4.90
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
