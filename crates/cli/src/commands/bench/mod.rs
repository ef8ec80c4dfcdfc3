//! `galerkin bench`: time and memory of training steps and predictions.

mod measure;
mod network;
mod prepare;
mod process;
mod pytorch;
mod pytorch_training;
mod report;
mod rows;
mod scale;

use anyhow::Context;

pub(super) use self::measure::Report;
pub(super) use self::process::Cost;
pub(super) use self::rows::Row;

use self::process::{Side, interleave, say};
use self::report::{Spread, milliseconds};
use self::rows::{choose, rows};
use crate::args::{Bench, BenchKind, BenchOptions, Pass};
use crate::output::Table;

pub(super) fn run(args: Bench) -> anyhow::Result<()> {
    match args.kind {
        None => alone(&args.options),
        Some(BenchKind::Pytorch(args)) => match (&args.train, &args.run) {
            (Some(data), Some(run)) => pytorch_training::run(&args, data, run),
            _ => pytorch::run(&args),
        },
        Some(BenchKind::Scale(args)) => scale::run(&args),
        Some(BenchKind::Measure(args)) => measure::run(&args),
    }
}

/// Training steps of a network in a process of its own.
pub(super) fn training(row: &Row, how: &BenchOptions) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let files = prepare::write(row, folder.path())?;
    let report = Side::ours()?.measure(Pass::Train, &files, &folder.path().join("output.npy"), how)?;
    Ok(report.unwrap_or(Report { out_of_memory: true, ..Report::default() }))
}

/// Our own numbers.
fn alone(how: &BenchOptions) -> anyhow::Result<()> {
    let chosen = choose(rows(how.tiny)?, &how.rows)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let sides = [Side::ours()?];
    let mut table = Table::new(&["row", "pass", "batch", "ms", "spread", "MB"]);
    let mut csv = report::Csv::default();
    for row in &chosen {
        say(how, &row.name)?;
        let files = prepare::write(row, folder.path())?;
        let measured = interleave(&sides, row.passes, &files, folder.path(), how)?;
        csv.add(&row.name, &measured);
        for m in &measured {
            let spread = Spread::of(m.seconds());
            let spread = spread.map_or("-".into(), |s| format!("{:.1}–{:.1}", 1e3 * s.least, 1e3 * s.most));
            let megabytes = Spread::of(m.megabytes()).map_or("-".into(), |s| format!("{:.0}", s.median));
            let (name, pass) = (row.name.clone(), m.pass.name().into());
            table.row(vec![name, pass, row.batch.to_string(), milliseconds(m), spread, megabytes]);
        }
    }
    let notes = format!(
        "Times are the fastest step of a process: median, least and most over {} processes. Memory is the peak of the whole process. A \
         training step is forward pass, mean square, backward pass and Adam with clipping, with the paper's dropout.",
        how.repetitions
    );
    let results =
        report::Results { kind: "", title: "Time and memory", notes: &notes, tables: &[table], csv };
    report::finish(&results, how)
}
