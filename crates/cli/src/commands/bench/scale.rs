//! `galerkin bench scale`: training steps on growing grids, and with more threads.

use anyhow::{Context, bail};
use galerkin::layers::AttentionKind;
use galerkin::models::Transformer2dConfig;

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
            let (Some(time), Some(peak)) = (Spread::of(measured.seconds()), Spread::of(measured.megabytes()))
            else {
                bail!("{}: nothing was measured", row.name);
            };
            let added = Spread::of(measured.reports.iter().map(|r| r.peak_mb - r.start_mb));
            let added = added.map_or(0.0, |added| added.median);
            times.push((points, time.median));
            memories.push((points, added));
            sizes.row(vec![
                row.name.clone(),
                row.points().to_string(),
                milliseconds(&measured),
                format!("{:.2}", 1e6 * time.median / points),
                format!("{:.0}", peak.median),
                format!("{:.2}", 1024.0 * added / points),
            ]);
        }
        let word = |points: &[(f64, f64)]| exponent(points).map_or("-".into(), |e| format!("{e:.3}"));
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

/// The slope of log y against log x by least squares; `None` with fewer than two points or a y that is not positive.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 2 || points.iter().any(|(_, y)| *y <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = (logs.iter().map(|l| l.0).sum::<f64>() / count, logs.iter().map(|l| l.1).sum::<f64>() / count);
    let above: f64 = logs.iter().map(|(x, y)| (x - mean.0) * (y - mean.1)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - mean.0) * (x - mean.0)).sum();
    Some(above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_powers_are_their_exponents() {
        let power = |p: f64| [8.0, 16.0, 64.0].map(|x: f64| (x, 3.0 * x.powf(p)));
        for p in [0.5, 1.0, 2.0] {
            // Logarithms are rounded, to sixteen digits.
            assert!((exponent(&power(p)).unwrap() - p).abs() < 1e-12);
        }
        assert_eq!(exponent(&power(1.0)[..1]), None);
        assert_eq!(exponent(&[(1.0, 1.0), (2.0, 0.0)]), None);
    }
}
