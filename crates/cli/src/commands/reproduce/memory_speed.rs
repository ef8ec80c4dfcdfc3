//! Processes that measure the paper's table of costs, and its figures.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use galerkin_data::io::write_whole;
use galerkin_paper::costs::{self, BATCH, CostFamily, CostReport, Part, RowCost, StepCost, TITLE};
use galerkin_paper::{Experiment, Scale};

use super::{choose, results_folder};
use crate::args::{BenchOptions, Reproduce};
use crate::commands::bench::{Cost, Report, Row, training};
use crate::figures::{Curve, Point, Scene, resolutions};
use crate::progress::duration;

/// Rate at which times are estimated before they are measured, in operations per second: about that of softmax attention on two cores.
const RATE: f64 = 1e11;

pub(super) fn run(args: &Reproduce) -> anyhow::Result<()> {
    let families = costs::families(args.scale);
    let rows = families.iter().map(networks).collect::<anyhow::Result<Vec<_>>>()?.concat();
    let chosen = choose(&rows, |row| &row.name, &args.only)?;
    let folder = args.runs.join(args.scale.name()).join("memory-speed");
    let threads = galerkin::device::threads() as u32;
    let how = BenchOptions {
        rows: Vec::new(),
        threads,
        repetitions: 3,
        seconds: if args.scale == Scale::Quick { 0.2 } else { 2.0 },
        out: None,
        quiet: true,
        tiny: false,
    };
    if !args.report {
        measure(&chosen, &folder, &how, args.quiet)?;
    }
    let known = |row: &Row| known(&folder, row);
    let of_family = |family: CostFamily| {
        let rows = networks(&family)?.iter().map(known).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((family, rows))
    };
    let families = families.into_iter().map(of_family).collect::<anyhow::Result<Vec<_>>>()?;
    if families.iter().flat_map(|(_, rows)| rows).all(|row| row.processes == 0) {
        bail!("{}: nothing was measured at this scale yet", Experiment::MemorySpeed.name());
    }
    let report = CostReport { families };
    let at = write(args, &report, &how)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{TITLE}")?;
    report.table().write(&mut out)?;
    writeln!(out)?;
    report.growth().write(&mut out)?;
    writeln!(out, "wrote {}", at.display())?;
    Ok(())
}

/// The networks of a family, one for each number of points.
fn networks(family: &CostFamily) -> anyhow::Result<Vec<Row>> {
    let network = |&n: &usize| match family.part {
        Part::Network => Row::burgers(family.row_name(n), family.kind, BATCH, n),
        Part::EncoderLayers(layers) => Row::encoder(family.row_name(n), family.kind, layers, BATCH, n),
    };
    Ok(family.points.iter().map(network).collect::<galerkin::Result<_>>()?)
}

/// What earlier processes found of a row.
fn known(folder: &Path, row: &Row) -> anyhow::Result<RowCost> {
    let reports = read(folder, row)?;
    let cost =
        Cost::of(&reports).map(|Cost { seconds, peak_mb, added_mb }| StepCost { seconds, peak_mb, added_mb });
    Ok(RowCost { gigaflop: gigaflops(row)?, processes: reports.len(), cost })
}

/// Seconds that a process of a row takes: one step to warm up, and two at least.
fn estimate(row: &Row, how: &BenchOptions) -> f64 {
    let step = gigaflops(row).unwrap_or(0.0) * 1e9 / RATE;
    step + how.seconds.max(2.0 * step)
}

fn gigaflops(row: &Row) -> anyhow::Result<f64> {
    Ok(row.batch as f64 * row.network.training_flops(&row.grid)? as f64 / 1e9)
}

fn file(folder: &Path, row: &Row) -> PathBuf {
    folder.join(format!("{}.json", row.name))
}

/// The processes that are missing, every row in turn: a machine that changes its speed changes it for all of them.
fn measure(rows: &[&Row], folder: &Path, how: &BenchOptions, quiet: bool) -> anyhow::Result<()> {
    let mut missing: Vec<(u32, &Row)> = Vec::new();
    for &row in rows {
        let reports = read(folder, row)?;
        if reports.iter().all(|report| report.fitted()) {
            missing.extend((reports.len() as u32..how.repetitions).map(|round| (round, row)));
        }
    }
    missing.sort_by_key(|(round, _)| *round);
    if !quiet {
        let time: f64 = missing.iter().map(|(_, row)| estimate(row, how)).sum();
        let (count, time) = (missing.len(), duration(Duration::from_secs_f64(time)));
        writeln!(io::stderr(), "{TITLE}\n{count} processes to measure, about {time}")?;
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (round, row) in missing {
        let mut reports = read(folder, row)?;
        if !reports.iter().all(|report| report.fitted()) {
            continue;
        }
        if !quiet {
            writeln!(io::stderr(), "round {} of {}: {}", round + 1, how.repetitions, row.name)?;
        }
        reports.push(training(row, how)?);
        write_whole(file(folder, row), serde_json::to_string(&reports)?.as_bytes())?;
    }
    Ok(())
}

/// What a row's file holds; nothing if there is none.
fn read(folder: &Path, row: &Row) -> anyhow::Result<Vec<Report>> {
    let path = file(folder, row);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

fn figure(title: &str, unit: &str, report: &CostReport, of: fn(&StepCost) -> f64) -> Scene {
    let point = |[n, value]: [f64; 2]| Point { resolution: n, error: value, band: None };
    let curves = report
        .curves(of)
        .into_iter()
        .map(|(name, points)| Curve { name: name.into(), points: points.into_iter().map(point).collect() });
    resolutions(title, "points n", unit, &curves.collect::<Vec<_>>())
}

fn write(args: &Reproduce, report: &CostReport, how: &BenchOptions) -> anyhow::Result<PathBuf> {
    let at = results_folder::place(Experiment::MemorySpeed, args);
    let folder = at.join("config");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (family, _) in &report.families {
        let config = serde_json::to_string_pretty(&networks(family)?[0].network.to_json()?)?;
        write_whole(folder.join(&family.name).with_extension("json"), config.as_bytes())?;
    }
    for (name, title, unit, of) in [
        ("time", "Time of a training step", "seconds", (|cost| cost.seconds) as fn(&StepCost) -> f64),
        ("memory", "Memory that training steps add", "megabytes", |cost| cost.added_mb),
    ] {
        figure(title, unit, report, of).save_in(&at.join("figures"), name)?;
    }
    write_whole(at.join("table.csv"), report.csv().as_bytes())?;
    let origin = results_folder::origin(Experiment::MemorySpeed, args);
    let text = report.readme(&origin, how.threads, how.repetitions) + &results_folder::notes(&at)?;
    write_whole(at.join("README.md"), text.as_bytes())?;
    Ok(at)
}
