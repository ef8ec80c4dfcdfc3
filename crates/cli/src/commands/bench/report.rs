//! Tables of measurements, on standard output and in a folder of results.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Context;
use galerkin_data::io::write_whole;

use super::measure::kilobytes;
use super::process::Measured;
use crate::args::BenchOptions;
use crate::commands::results::{machine, today};
use crate::output::Table;

/// Everything there is to say about some measurements.
pub(super) struct Results<'a> {
    /// The words behind `galerkin bench`.
    pub(super) kind: &'a str,
    pub(super) title: &'a str,
    /// What the columns mean.
    pub(super) notes: &'a str,
    pub(super) tables: &'a [Table],
    pub(super) csv: Csv,
}

/// Every process in a line.
#[derive(Default)]
pub(super) struct Csv(String);

/// Median, least and most of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// Prints the tables, and writes them to a folder if one was named.
pub(super) fn finish(results: &Results, how: &BenchOptions) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (i, table) in results.tables.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        table.write(&mut out)?;
    }
    let Some(folder) = &how.out else { return Ok(()) };
    let words: Vec<&str> = results.kind.split_whitespace().map(|word| word.trim_start_matches('-')).collect();
    let name = [&["bench"], words.as_slice()].concat().join("-");
    let at = folder.join(format!("{}-{name}", today()));
    std::fs::create_dir_all(&at).with_context(|| at.display().to_string())?;
    write_whole(at.join("table.csv"), format!("{HEAD}{}", results.csv.0).as_bytes())?;
    write_whole(at.join("README.md"), readme(results, how).as_bytes())?;
    Ok(writeln!(out, "wrote {}", at.display())?)
}

fn readme(results: &Results, how: &BenchOptions) -> String {
    let mut command = ["galerkin bench", results.kind].join(" ").trim_end().to_string();
    for row in &how.rows {
        let _ = write!(command, " {row}");
    }
    let _ = write!(
        command,
        " --threads {} --repetitions {} --seconds {}",
        how.threads, how.repetitions, how.seconds
    );
    let memory = kilobytes("/proc/meminfo", "MemTotal:") / 1024.0 / 1024.0;
    let mut text = format!(
        "# {}\n\n`{command}`, version {}, {}, {}, {memory:.0} GiB of memory.\n\n{}\n\n",
        results.title,
        env!("CARGO_PKG_VERSION"),
        today(),
        machine(),
        results.notes
    );
    for table in results.tables {
        text.push_str(&table.markdown());
        text.push('\n');
    }
    text.push_str("All processes are in `table.csv`.\n");
    text
}

const HEAD: &str = "row,pass,side,process,fastest_ms,steps,start_mb,peak_mb\n";

impl Csv {
    /// The processes of a row.
    pub(super) fn add(&mut self, row: &str, measured: &[Measured]) {
        for m in measured {
            for (process, (report, seconds)) in m.reports.iter().zip(m.seconds()).enumerate() {
                let (pass, steps) = (m.pass.name(), report.seconds.len());
                let side = m.side.replace(',', "");
                let (time, start, peak) = (1e3 * seconds, report.start_mb, report.peak_mb);
                let _ =
                    writeln!(self.0, "{row},{pass},{side},{process},{time:.4},{steps},{start:.1},{peak:.1}");
            }
        }
    }
}

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        let median = (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0;
        Some(Self { median, least, most })
    }

    /// `3.1 (2.9–3.3)`.
    pub(super) fn words(&self) -> String {
        let number = |value: f64| if value < 9.95 { format!("{value:.2}") } else { format!("{value:.1}") };
        format!("{} ({}–{})", number(self.median), number(self.least), number(self.most))
    }
}

/// The median time of a step.
pub(super) fn milliseconds(measured: &Measured) -> String {
    Spread::of(measured.seconds()).map_or("-".into(), |spread| format!("{:.1}", 1e3 * spread.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_median_least_and_most() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 10.0 });
        assert_eq!(spread.words(), "2.50 (1.00–10.0)");
        assert_eq!(Spread::of([4.0]).unwrap().median, 4.0);
    }
}
