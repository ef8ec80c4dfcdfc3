//! `galerkin bench scale`: training steps on growing grids, and with more threads.

use anyhow::bail;
use galerkin_paper::growth::exponent;

use super::process::{Cost, Measured, say};
use super::report::{self, Spread, milliseconds};
use super::rows::{KINDS, Row, choose, rows};
use super::training;
use crate::args::{BenchOptions, Pass, ScaleArgs};
use crate::output::Table;

/// Networks of one kind on growing grids.
struct Family {
    name: &'static str,
    rows: Vec<Row>,
}

/// A row with so many threads.
struct Job<'a> {
    row: &'a Row,
    threads: u32,
    measured: Measured,
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{} with {} thread{}", self.row.name, self.threads, if self.threads == 1 { "" } else { "s" })
    }
}

/// Rows that are measured with one thread and with all of them.
const THREADS: [&str; 2] = ["burgers-gt-8192", "darcy-141"];

pub(super) fn run(args: &ScaleArgs) -> anyhow::Result<()> {
    let how = &args.options;
    let families = families(args)?;
    let job = |row, threads| {
        let measured = Measured { side: "ours", pass: Pass::Train, reports: Vec::new() };
        Job { row, threads, measured }
    };
    let all = rows(how.tiny)?;
    let paired: Vec<&Row> = all.iter().filter(|row| THREADS.contains(&row.name.as_str())).collect();
    let mut jobs: Vec<Job> =
        families.iter().flat_map(|family| &family.rows).map(|row| job(row, how.threads)).collect();
    jobs.extend(paired.iter().flat_map(|row| [job(row, 1), job(row, how.threads)]));
    measure(&mut jobs, how)?;
    let mut csv = report::Csv::default();
    for job in &jobs {
        csv.add(&job.name(), std::slice::from_ref(&job.measured));
    }
    let mut jobs = jobs.into_iter();

    let mut sizes = Table::new(&["row", "points", "ms", "µs per point", "MB", "kB per point"]);
    let mut growth = Table::new(&["row", "exponent of time", "exponent of memory"]);
    for family in &families {
        let (mut times, mut memories) = (Vec::new(), Vec::new());
        for Job { row, measured, .. } in jobs.by_ref().take(family.rows.len()) {
            let points = row.points() as f64;
            let Some(cost) = Cost::of(&measured.reports) else { continue };
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
    while let (Some(one), Some(all)) = (jobs.next(), jobs.next()) {
        let (row, one, all) = (one.row, one.measured, all.measured);
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

/// All jobs in turn, as often as asked, so that a machine that changes its speed changes it for all of them.
fn measure(jobs: &mut [Job], how: &BenchOptions) -> anyhow::Result<()> {
    for round in 1..=how.repetitions {
        for job in jobs.iter_mut() {
            say(how, &format!("round {round} of {}: {}", how.repetitions, job.name()))?;
            let report = training(job.row, &BenchOptions { threads: job.threads, ..how.clone() })?;
            if !report.fitted() {
                bail!("{}: does not fit into memory; --upto names a smaller grid", job.row.name);
            }
            job.measured.reports.push(report);
        }
    }
    Ok(())
}

/// The chosen families up to the largest grid.
fn families(args: &ScaleArgs) -> anyhow::Result<Vec<Family>> {
    let tiny = args.options.tiny;
    let lines: Vec<usize> = if tiny { vec![64, 128] } else { (13..=20).map(|power| 1 << power).collect() };
    let coarse: &[usize] = if tiny { &[15, 22] } else { &[43, 71, 106, 141, 211] };
    let mut all: Vec<Row> = Vec::new();
    for (name, kind) in &KINDS[..2] {
        for &n in &lines {
            all.push(Row::burgers(format!("{name}-{n}"), *kind, 1, n)?);
        }
    }
    for &coarse in coarse {
        // Twice as fine, and by sizes: by factor some coarse grids are missed.
        let fine = 2 * coarse - 1;
        all.push(Row::square(format!("darcy-{fine}-{coarse}"), "darcy", (fine, coarse), false, 1)?);
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
