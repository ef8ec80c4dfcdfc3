//! The paper's table of costs: memory, speed and operations of a training step with four kinds of attention.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use galerkin::theory::stability::exponent;
use galerkin_data::io::write_whole;

use super::{choose, report};
use crate::args::{BenchOptions, Experiment, Reproduce, Scale};
use crate::commands::bench::{Cost, KINDS, Report, Row, training};
use crate::figures::{Curve, Point, Scene, resolutions};
use crate::output::Table;
use crate::progress::duration;

/// Networks of one kind of attention on growing grids.
struct Family {
    /// As the rows' names begin.
    name: String,
    rows: Vec<Row>,
    /// Gigabytes, steps per second and GFLOP of the paper, at its 8192 points.
    paper: [f64; 3],
}

/// What is known of a row.
struct Found<'a> {
    row: &'a Row,
    processes: usize,
    /// `None` where nothing was measured or nothing fitted into memory.
    cost: Option<Cost>,
}

/// Rate at which times are estimated before they are measured, in operations per second: about that of softmax attention on two cores.
const RATE: f64 = 1e11;
/// The paper's samples per step.
const BATCH: usize = 4;

pub(super) fn run(args: &Reproduce) -> anyhow::Result<()> {
    let families = families(args.scale);
    let rows: Vec<Row> = families.iter().flat_map(|family| family.rows.clone()).collect();
    let chosen = choose(&rows, |row| &row.name, &args.only)?;
    let folder = args.runs.join(args.scale.name()).join("memory-speed");
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u32;
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
    let found: Vec<Vec<Report>> = rows.iter().map(|row| read(&folder, row)).collect::<Result<_, _>>()?;
    if found.iter().all(Vec::is_empty) {
        bail!("{}: nothing was measured at this scale yet", Experiment::MemorySpeed.name());
    }
    let found: Vec<Found> = rows.iter().zip(found).map(|(row, reports)| Found::new(row, &reports)).collect();
    let (costs, growth) = (table(&families, &found)?, growth(&families, &found));
    let at = write(args, &families, &found, &costs, &growth, &how)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{TITLE}")?;
    costs.write(&mut out)?;
    writeln!(out)?;
    growth.write(&mut out)?;
    writeln!(out, "wrote {}", at.display())?;
    Ok(())
}

const TITLE: &str = "Memory, speed and operations of a training step (Table 1)";

/// The network for Burgers' equation, and ten encoder layers alone.
fn families(scale: Scale) -> Vec<Family> {
    let (lines, encoders, layers): (&[usize], _, _) = match scale {
        Scale::Quick => (&[128, 256], 256, 2),
        Scale::Cpu | Scale::Paper => (&[512, 1024, 2048, 4096, 8192], 8192, 10),
    };
    let paper = |kind: &str| match kind {
        "st" => ([18.39, 5.02, 1393.0], [18.53, 4.12, 1876.0]),
        "ft" => ([10.05, 6.10, 1138.0], [10.80, 5.46, 1610.0]),
        "lt" => ([2.55, 12.70, 606.0], [2.73, 10.98, 773.0]),
        _ => ([2.36, 27.15, 275.0], [2.53, 19.20, 412.0]),
    };
    let models = KINDS.map(|(short, kind)| Family {
        name: format!("burgers-{short}"),
        rows: lines.iter().map(|&n| Row::burgers(format!("burgers-{short}-{n}"), kind, BATCH, n)).collect(),
        paper: paper(short).0,
    });
    let alone = KINDS.map(|(short, kind)| Family {
        name: format!("encoder-{short}"),
        rows: vec![Row::encoder(format!("encoder-{short}-{encoders}"), kind, layers, BATCH, encoders)],
        paper: paper(short).1,
    });
    models.into_iter().chain(alone).collect()
}

/// Seconds that a process of a row takes: one step to warm up, and two at least.
fn estimate(row: &Row, how: &BenchOptions) -> f64 {
    let step = gigaflops(row).unwrap_or(0.0) * 1e9 / RATE;
    step + how.seconds.max(2.0 * step)
}

impl<'a> Found<'a> {
    fn new(row: &'a Row, reports: &[Report]) -> Self {
        Self { row, processes: reports.len(), cost: Cost::of(reports) }
    }
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

fn table(families: &[Family], found: &[Found]) -> anyhow::Result<Table> {
    let head = ["row", "n", "MB", "steps/s", "ms", "GFLOP", "paper GB", "paper steps/s", "paper GFLOP"];
    let mut table = Table::new(&head);
    for Found { row, processes, cost } in found {
        let mut cells = vec![row.name.clone(), row.points().to_string()];
        cells.extend(match cost {
            None if *processes == 0 => ["not run", "", ""].map(String::from),
            None => ["does not fit", "", ""].map(String::from),
            Some(cost) => [
                format!("{:.0}", cost.peak_mb),
                format!("{:.2}", 1.0 / cost.seconds),
                format!("{:.1}", 1e3 * cost.seconds),
            ],
        });
        cells.push(format!("{:.1}", gigaflops(row)?));
        let family = families.iter().find(|family| row.name.starts_with(&format!("{}-", family.name)));
        cells.extend(match family {
            Some(family) if row.points() == 8192 => family.paper.map(|v| v.to_string()),
            _ => ["-", "-", "-"].map(String::from),
        });
        table.row(cells);
    }
    Ok(table)
}

/// (n, value) of what was measured of a family.
fn series(family: &Family, found: &[Found], of: fn(&Cost) -> f64) -> Vec<[f64; 2]> {
    let own = found.iter().filter(|found| family.rows.iter().any(|mine| mine.name == found.row.name));
    own.filter_map(|found| Some([found.row.points() as f64, of(found.cost.as_ref()?)])).collect()
}

fn growth(families: &[Family], found: &[Found]) -> Table {
    let mut table = Table::new(&["", "exponent of time", "exponent of memory", "exponent of operations"]);
    for family in families.iter().filter(|family| family.rows.len() > 1) {
        let operations: Vec<[f64; 2]> =
            family.rows.iter().filter_map(|row| Some([row.points() as f64, gigaflops(row).ok()?])).collect();
        let [time, memory] = [series(family, found, |c| c.seconds), series(family, found, |c| c.added_mb)];
        let word = |points: &[[f64; 2]]| exponent(points).map_or("-".into(), |e| format!("{e:.2}"));
        table.row(vec![family.name.clone(), word(&time), word(&memory), word(&operations)]);
    }
    table
}

fn figure(title: &str, unit: &str, families: &[Family], found: &[Found], of: fn(&Cost) -> f64) -> Scene {
    let curve = |family: &Family| Curve {
        name: family.name.clone(),
        points: series(family, found, of)
            .into_iter()
            .map(|[n, value]| Point { resolution: n, error: value, band: None })
            .collect(),
    };
    let curves: Vec<Curve> = families
        .iter()
        .filter(|family| family.rows.len() > 1)
        .map(curve)
        .filter(|curve| !curve.points.is_empty())
        .collect();
    resolutions(title, "points n", unit, &curves)
}

fn write(
    args: &Reproduce,
    families: &[Family],
    found: &[Found],
    costs: &Table,
    growth: &Table,
    how: &BenchOptions,
) -> anyhow::Result<PathBuf> {
    let at = report::place(Experiment::MemorySpeed, args);
    let folder = at.join("config");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for family in families {
        let config = serde_json::to_string_pretty(&family.rows[0].network.to_json()?)?;
        write_whole(folder.join(&family.name).with_extension("json"), config.as_bytes())?;
    }
    for (name, title, unit, of) in [
        ("time", "Time of a training step", "seconds", (|cost| cost.seconds) as fn(&Cost) -> f64),
        ("memory", "Memory that training steps add", "megabytes", |cost| cost.added_mb),
    ] {
        figure(title, unit, families, found, of).save_in(&at.join("figures"), name)?;
    }
    let mut csv = String::from("row,points,batch,seconds,peak_mb,added_mb,gigaflop\n");
    for Found { row, cost, .. } in found {
        if let Some(Cost { seconds, peak_mb, added_mb }) = cost {
            let (name, points, batch, flops) = (&row.name, row.points(), row.batch, gigaflops(row)?);
            let _ =
                writeln!(csv, "{name},{points},{batch},{seconds:e},{peak_mb:.1},{added_mb:.1},{flops:.2}");
        }
    }
    write_whole(at.join("table.csv"), csv.as_bytes())?;
    let text = format!(
        "# {TITLE}\n\n{}\nTraining steps of {BATCH} samples in processes of their own, {} threads: forward pass, mean square, backward pass, Adam. A time is the \
         fastest step of a process, the median over {} of them, which took turns with those of the other rows; memory is the peak of the process. Exponents of memory are of what the steps \
         add to the network. GFLOP are the multiplications and additions of the products of a step in the order in which we multiply, which \
         for Fourier attention is K by V first; what the backward pass computes again is not counted. The paper's numbers are of \
         PyTorch on a graphics card, with Fourier attention through matrices of n × n.\n\n{}\n{}\n\
         ![time](figures/time.svg)\n\n![memory](figures/memory.svg)\n\nNetworks are in `config/`, all numbers in `table.csv`.\n",
        report::origin(Experiment::MemorySpeed, args),
        how.threads,
        how.repetitions,
        costs.markdown(),
        growth.markdown(),
    );
    let text = text + &report::notes(&at)?;
    write_whole(at.join("README.md"), text.as_bytes())?;
    Ok(at)
}
