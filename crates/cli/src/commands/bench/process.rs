//! Measurements in processes of their own: ours, and others that speak the same words.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use galerkin_data::io::npy;

use super::measure::Report;
use super::prepare::Files;
use super::report::Spread;
use crate::args::{BenchOptions, Pass};

/// A program that measures.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// As tables call it.
    pub(super) name: &'static str,
    program: PathBuf,
    /// Words before those of a measurement.
    lead: Vec<String>,
    /// Words behind them.
    more: Vec<String>,
}

/// All that one side measured of one pass of a row.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) side: &'static str,
    pub(super) pass: Pass,
    /// One per process; none if the pass does not fit into memory.
    pub(super) reports: Vec<Report>,
}

/// What passes of a network take: medians over processes.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Cost {
    /// Of the fastest pass of a process.
    pub(in crate::commands) seconds: f64,
    /// The peak of the process, in megabytes.
    pub(in crate::commands) peak_mb: f64,
    /// What the passes added to it.
    pub(in crate::commands) added_mb: f64,
}

impl Side {
    /// This program.
    pub(super) fn ours() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let lead = ["bench", "measure"].map(String::from).to_vec();
        Ok(Self { name: "ours", program, lead, more: Vec::new() })
    }

    /// Another one, `lead` before the words of a measurement and `more` behind them.
    pub(super) fn other(name: &'static str, program: &Path, lead: &Path, more: Vec<String>) -> Self {
        Self { name, program: program.into(), lead: vec![lead.display().to_string()], more }
    }

    /// One process; `None` if there is too little memory for it.
    pub(super) fn measure(
        &self,
        pass: Pass,
        files: &Files,
        output: &Path,
        how: &BenchOptions,
    ) -> anyhow::Result<Option<Report>> {
        let mut command = Command::new(&self.program);
        command.args(&self.lead).arg(pass.name());
        for (word, value) in [("--weights", &files.weights), ("--input", &files.input)] {
            command.arg(word).arg(value);
        }
        command.arg("--target").arg(&files.target).arg("--output").arg(output);
        command.arg("--seconds").arg(how.seconds.to_string()).args(&self.more);
        for variable in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, how.threads.to_string());
        }
        let output = command.output().with_context(|| self.program.display().to_string())?;
        // Killed, most likely by a system that has no more memory.
        if output.status.code().is_none() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{} {}: {}\n{}", self.name, pass.name(), output.status, error.trim_end());
        }
        let last = said.lines().last().unwrap_or_default();
        let report: Report = serde_json::from_str(last)
            .with_context(|| format!("{} {}: expected JSON, found {last:?}", self.name, pass.name()))?;
        Ok(report.fitted().then_some(report))
    }
}

impl Measured {
    /// The fastest step of every process, in seconds.
    pub(super) fn seconds(&self) -> Vec<f64> {
        self.reports.iter().map(Report::fastest).collect()
    }

    /// The largest memory of every process before its first step, in megabytes.
    pub(super) fn starts(&self) -> Vec<f64> {
        self.reports.iter().map(|report| report.start_mb).collect()
    }

    /// The largest memory of every process, in megabytes.
    pub(super) fn megabytes(&self) -> Vec<f64> {
        self.reports.iter().map(|report| report.peak_mb).collect()
    }
}

impl Cost {
    /// `None` if nothing fitted into memory.
    pub(in crate::commands) fn of(reports: &[Report]) -> Option<Self> {
        let fitted = || reports.iter().filter(|report| report.fitted());
        let median = |number: fn(&Report) -> f64| Some(Spread::of(fitted().map(number))?.median);
        Some(Self {
            seconds: median(Report::fastest)?,
            peak_mb: median(|report| report.peak_mb)?,
            added_mb: median(|report| report.peak_mb - report.start_mb)?,
        })
    }
}

/// Every pass of every side in turn, as often as asked.
pub(super) fn interleave(
    sides: &[Side],
    passes: &[Pass],
    files: &Files,
    folder: &Path,
    how: &BenchOptions,
) -> anyhow::Result<Vec<Measured>> {
    let mut found: BTreeMap<(Pass, usize), Vec<Report>> = BTreeMap::new();
    let mut does_not_fit = Vec::new();
    for repetition in 0..how.repetitions {
        for &pass in passes {
            // Who begins changes, so that neither always has the warmer machine.
            let turn = (0..sides.len()).map(|at| (at + repetition as usize) % sides.len());
            for at in turn.filter(|at| !does_not_fit.contains(&(pass, *at))).collect::<Vec<_>>() {
                match sides[at].measure(pass, files, &folder.join("output.npy"), how)? {
                    Some(report) => found.entry((pass, at)).or_default().push(report),
                    None => does_not_fit.push((pass, at)),
                }
            }
        }
    }
    let cell = |pass, at: usize| Measured {
        side: sides[at].name,
        pass,
        reports: found.get(&(pass, at)).cloned().unwrap_or_default(),
    };
    Ok(passes
        .iter()
        .flat_map(|&pass| (0..sides.len()).map(move |at| (pass, at)))
        .map(|(p, at)| cell(p, at))
        .collect())
}

/// Largest difference of two outputs, relative to the largest value of the first.
pub(super) fn output_difference(one: &Path, other: &Path) -> anyhow::Result<f64> {
    let (one, other) = (npy::Runs::open(one)?, npy::Runs::open(other)?);
    if one.shape() != other.shape() {
        bail!("outputs have the shapes {:?} and {:?}", one.shape(), other.shape());
    }
    let (mut most, mut difference) = (0.0f64, 0.0f64);
    let [samples, rest @ ..] = one.shape() else { bail!("outputs have no axis") };
    let len: usize = rest.iter().product();
    for at in 0..*samples {
        for (a, b) in one.read(at * len, len)?.into_iter().zip(other.read(at * len, len)?) {
            most = most.max(f64::from(a).abs());
            // A value that is no number must not pass: f64::max would drop it.
            let apart = (f64::from(a) - f64::from(b)).abs();
            difference = if apart.is_nan() { f64::INFINITY } else { difference.max(apart) };
        }
    }
    Ok(difference / most)
}

/// Norm of the difference of two gradients, all parameters together, relative to the norm of the first.
pub(super) fn gradient_difference(one: &Path, other: &Path) -> anyhow::Result<f64> {
    let [one, other] =
        [galerkin::weights::load(one)?, galerkin::weights::load(other)?].map(|file| file.arrays);
    let names = |arrays: &BTreeMap<String, galerkin_data::Array>| arrays.keys().cloned().collect::<Vec<_>>();
    if names(&one) != names(&other) {
        bail!("gradients are of other parameters: {:?} and {:?}", names(&one), names(&other));
    }
    let (mut whole, mut difference) = (0.0, 0.0);
    for (name, a) in &one {
        let b = &other[name];
        if a.shape != b.shape {
            bail!("gradients of {name} have the shapes {:?} and {:?}", a.shape, b.shape);
        }
        for (a, b) in a.values.iter().zip(&b.values).map(|(a, b)| (f64::from(*a), f64::from(*b))) {
            whole += a * a;
            difference += (a - b) * (a - b);
        }
    }
    Ok((difference / whole).sqrt())
}

/// A line on standard error.
pub(super) fn say(how: &BenchOptions, line: &str) -> io::Result<()> {
    if how.quiet { Ok(()) } else { writeln!(io::stderr(), "{line}") }
}
