//! `galerkin bench scale`: training steps on growing grids, and with more threads.

use anyhow::{Context, bail};
use galerkin::layers::AttentionKind;
use galerkin::models::Transformer2dConfig;
use galerkin::theory::stability::exponent;

use super::prepare;
use super::process::{Measured, Side, interleave, say};
use super::report::{self, Spread, milliseconds};
use super::rows::{KINDS, Row, choose, rows};
use crate::args::{BenchOptions, Pass, ScaleArgs};
use crate::output::Table;

/// Networks of one kind on growing grids.
struct Family {
    name: &'static str,
    rows: Vec<Row>,
}

/// Rows that are measured with one thread and with all of them.
const THREADS: [&str; 2] = ["burgers-gt-8192", "darcy-141"];

pub(super) fn run(args: &ScaleArgs) -> anyhow::Result<()> {
    let how = &args.options;
    let families = families(args)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let sides = [Side::ours()?];
    let mut csv = report::Csv::default();
    let mut measure = |row: &Row, how: &BenchOptions, name: &str| -> anyhow::Result<Option<Measured>> {
        say(how, name)?;
        let files = prepare::write(row, folder.path())?;
        let measured = interleave(&sides, &[Pass::Train], &files, folder.path(), how)?;
        csv.add(name, &measured);
        Ok(measured.into_iter().next())
    };

    let mut sizes = Table::new(&["row", "points", "ms", "µs per point", "MB", "kB per point"]);
    let mut growth = Table::new(&["row", "exponent of time", "exponent of memory"]);
    for family in &families {
        let (mut times, mut memories) = (Vec::new(), Vec::new());
        for row in &family.rows {
            let Some(measured) = measure(row, how, &row.name)? else { continue };
            let points = row.points() as f64;
            let Some(cost) = measured.cost() else { bail!("{}: nothing was measured", row.name) };
            times.push([points, cost.seconds]);
            memories.push([points, cost.added_mb]);
            sizes.row(vec![
                row.name.clone(),
                row.points().to_string(),
                milliseconds(&measured),
                format!("{:.2}", 1e6 * cost.seconds / points),
                format!("{:.0}", cost.peak_mb),
                format!("{:.2}", 1024.0 * cost.added_mb / points),
            ]);
        }
        let word = |points: &[[f64; 2]]| exponent(points).map_or("-".into(), |e| format!("{e:.3}"));
        growth.row(vec![family.name.into(), word(&times), word(&memories)]);
    }

    let many = format!("{} threads ms", how.threads);
    let mut threads = Table::new(&["row", "1 thread ms", many.as_str(), "x"]);
    for row in rows(how.tiny).iter().filter(|row| THREADS.contains(&row.name.as_str())) {
        let one = BenchOptions { threads: 1, ..how.clone() };
        let one = measure(row, &one, &format!("{} with 1 thread", row.name))?;
        let all = measure(row, how, &format!("{} with {} threads", row.name, how.threads))?;
        let (Some(one), Some(all)) = (one, all) else { continue };
        let ratio = Spread::of(one.seconds().into_iter().zip(all.seconds()).map(|(one, all)| one / all));
        let ratio = ratio.map_or("-".into(), |ratio| ratio.words());
        threads.row(vec![row.name.clone(), milliseconds(&one), milliseconds(&all), ratio]);
    }

    let notes = format!(
        "One training step of one sample: forward pass, mean square, backward pass, Adam. Times are the fastest step of a process, median over \
         {} processes. MB is the peak of the process; memory per point and its exponent are of what a step adds to the network, its \
         gradients and Adam's moments included. Points of a Darcy row are those of the fine grid; the attention's grid has a quarter of them.",
        how.repetitions
    );
    let upto = format!("scale --upto {}", args.upto);
    let tables = [sizes, growth, threads];
    report::finish(
        &report::Results { kind: &upto, title: "Growing grids", notes: &notes, tables: &tables, csv },
        how,
    )
}

/// The chosen families up to the largest grid.
fn families(args: &ScaleArgs) -> anyhow::Result<Vec<Family>> {
    let tiny = args.options.tiny;
    let lines: Vec<usize> = if tiny { vec![64, 128] } else { (13..=20).map(|power| 1 << power).collect() };
    let coarse: &[usize] = if tiny { &[15, 22] } else { &[43, 71, 106, 141, 211] };
    let mut all: Vec<Row> = Vec::new();
    for (name, kind) in &KINDS[..2] {
        all.extend(lines.iter().map(|&n| Row::burgers(format!("{name}-{n}"), *kind, 1, n)));
    }
    for &coarse in coarse {
        // Twice as fine, and by sizes: by factor some coarse grids are missed.
        let mut config = Transformer2dConfig::darcy(AttentionKind::Galerkin, 2 * coarse - 1, coarse);
        config.resampling.by_factor = false;
        all.push(Row::darcy(format!("darcy-{}-{coarse}", 2 * coarse - 1), config, 1));
    }
    let mut chosen = choose(all, &args.options.rows)?;
    chosen.retain(|row| row.points() <= args.upto);
    let family = |name: &'static str| Family {
        name,
        rows: chosen.iter().filter(|row| row.name.starts_with(&format!("{name}-"))).cloned().collect(),
    };
    let mut families: Vec<_> = ["gt", "ft", "darcy"].map(family).into();
    families.retain(|family| !family.rows.is_empty());
    if families.is_empty() {
        let (what, why) = (format!("--upto {}", args.upto), "no row has so few points".into());
        bail!(galerkin::Error::Setting { what, why });
    }
    Ok(families)
}
