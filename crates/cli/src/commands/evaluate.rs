//! `galerkin evaluate`: errors of a trained model.

use std::io::{self, Write};

use anyhow::bail;
use galerkin::device;
use galerkin::evaluate::{Evaluation, Setting, evaluate};
use galerkin::metrics::Summary;
use galerkin::run::{RunFolder, Which};
use galerkin_data::Dataset;
use galerkin_data::io::write_whole;
use galerkin_data::split::Split;
use serde_json::json;

use crate::args;
use crate::output::{Table, sizes};

/// Evaluates on all grids with all levels of noise.
pub(super) fn run(args: args::Evaluate) -> anyhow::Result<()> {
    let folder = RunFolder::new(&args.run);
    let config = folder.config()?;
    let device = device::parse(&args.device)?;
    let (model, _) = folder.model(if args.best { Which::Best } else { Which::Last }, &device)?;
    let normalizer = folder.normalizer()?;
    let dataset = Dataset::open(args.data.as_ref().unwrap_or(&config.data.folder))?;
    let indices = match args.data {
        Some(_) => (0..dataset.len()).collect(),
        None => {
            let data = &config.data;
            Split::new(dataset.len(), data.train, data.validation, data.test, config.train.seed)?.test
        }
    };
    if indices.is_empty() {
        bail!("{}: no samples to evaluate; the run has data.test = 0", args.run.display());
    }
    let problem = dataset.meta().and_then(|meta| meta.problem.problem());
    let or = |given: &[usize], default: usize| if given.is_empty() { vec![default] } else { given.to_vec() };
    let noises = if args.noise.is_empty() { vec![config.data.noise] } else { args.noise.clone() };
    let mut found = Vec::new();
    for grid in or(&args.grid, config.data.grid) {
        for &noise in &noises {
            let setting =
                Setting { dataset: &dataset, indices: &indices, grid, noise, problem: problem.as_ref() };
            found.push(evaluate(&config, &model, normalizer.as_ref(), setting, &device)?);
        }
    }
    if !args.per_sample {
        found.iter_mut().for_each(|evaluation| evaluation.per_sample.clear());
    }
    let json = json!({ "run": args.run, "preset": config.preset, "evaluations": found });
    write_whole(args.run.join("metrics.json"), format!("{json:#}\n").as_bytes())?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{json}")?,
        false => table(&found).write(&mut out)?,
    }
    Ok(())
}

fn table(found: &[Evaluation]) -> Table {
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
