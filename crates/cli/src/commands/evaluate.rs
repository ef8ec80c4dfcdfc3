//! `galerkin evaluate`: errors of a trained model.

use std::io::{self, Write};

use galerkin::device;
use galerkin::evaluate::{Evaluation, Evaluator, Metrics};
use galerkin::metrics::Summary;
use galerkin::run::{RunFolder, Snapshot};
use galerkin_data::io::write_whole;

use crate::args;
use crate::output::{Table, sizes};

/// Evaluates on all grids with all levels of noise.
pub(super) fn run(args: args::Evaluate) -> anyhow::Result<()> {
    let folder = RunFolder::new(&args.run);
    let snapshot = if args.best { Snapshot::Best } else { Snapshot::Last };
    let evaluator = Evaluator::open(&folder, snapshot, args.data.as_deref(), &device::parse(&args.device)?)?;
    let mut metrics = on_grids(&evaluator, &folder, &args.grid, &args.noise)?;
    if !args.per_sample {
        metrics.evaluations.iter_mut().for_each(|evaluation| evaluation.per_sample.clear());
    }
    write(&folder, &metrics)?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&metrics)?)?,
        false => table(&metrics.evaluations).write(&mut out)?,
    }
    Ok(())
}

/// On these grids with these levels of noise, or those that the model was trained with.
pub(super) fn on_grids(
    evaluator: &Evaluator,
    folder: &RunFolder,
    grids: &[usize],
    noises: &[f64],
) -> anyhow::Result<Metrics> {
    let config = evaluator.config();
    let (grid, noise) = ([evaluator.grid()?], [config.data.noise]);
    let grids = if grids.is_empty() { &grid } else { grids };
    let noises = if noises.is_empty() { &noise } else { noises };
    let mut evaluations = Vec::new();
    for grid in grids {
        for noise in noises {
            evaluations.push(evaluator.evaluate(*grid, *noise)?);
        }
    }
    Ok(Metrics { run: folder.path().into(), name: config.name.clone(), evaluations })
}

/// To `metrics.json`.
pub(super) fn write(folder: &RunFolder, metrics: &Metrics) -> anyhow::Result<()> {
    let text = format!("{}\n", serde_json::to_string_pretty(metrics)?);
    Ok(write_whole(folder.metrics_file(), text.as_bytes())?)
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
        let mut row = start("model");
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
            grid: 512,
            points: vec![512],
            noise: 0.01,
            samples: 100,
            relative_l2: summary(1.5e-3),
            channels: Vec::new(),
            relative_h1: Some(summary(7e-3)),
            l_infinity: summary(5e-4),
            per_sample: Vec::new(),
            seconds_per_sample: 4.9e-3,
            solver: Some(SolverRow { relative_l2: summary(4e-5), seconds_per_sample: 0.055 }),
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
