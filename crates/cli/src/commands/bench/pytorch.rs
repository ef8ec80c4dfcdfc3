//! `galerkin bench pytorch`: the same networks in PyTorch, in turn with ours.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use galerkin::layers::AttentionKind;
use galerkin_data::io::write_whole;
use serde::Deserialize;

use super::measure::kilobytes;
use super::prepare::{self, Files};
use super::process::{Measured, Side, gradient_difference, interleave, output_difference, say};
use super::report::{self, Spread, milliseconds};
use super::rows::{Row, choose, rows};
use crate::args::{BenchOptions, Pass, PytorchArgs};
use crate::output::Table;

/// PyTorch's half, which needs nothing but a folder and a Python.
const SCRIPTS: [(&str, &str); 3] = [
    ("models.py", include_str!("../../../../../benches/pytorch/models.py")),
    ("measure.py", include_str!("../../../../../benches/pytorch/measure.py")),
    ("train.py", include_str!("../../../../../benches/pytorch/train.py")),
];

/// Outputs differ by the rounding of f32 through tens of layers: some 10⁻⁶. A part that is missing or wrong shows at 10⁻².
const OUTPUTS: f64 = 1e-4;
/// A ReLU whose input is rounded to the other side of zero moves a gradient by some 10⁻⁴: on the grid of `--tiny`, that of PyTorch in f32 is
/// 1.2·10⁻⁴ away from that in f64 for Darcy flow.
const GRADIENTS: f64 = 1e-3;

const PYTORCH: &str = "PyTorch";
const REASSOCIATED: &str = "PyTorch, K by V first";
const AUTHORS: &str = "PyTorch, as the authors' code";

/// What the other half runs on.
#[derive(Debug, Deserialize)]
pub(super) struct Versions {
    pub(super) python: String,
    pub(super) torch: String,
}

/// How far the halves are apart; `None` where PyTorch does not fit into memory.
struct Agreement {
    side: &'static str,
    outputs: Option<f64>,
    gradients: Option<f64>,
}

pub(super) fn run(args: &PytorchArgs) -> anyhow::Result<()> {
    let how = &args.options;
    let chosen = choose(rows(how.tiny)?, &how.rows)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    write_scripts(folder.path())?;
    let script = folder.path().join("measure.py");
    let versions = versions(&args.python, &script)?;
    say(how, &format!("Python {}, torch {}", versions.python, versions.torch))?;

    let mut table = Table::new(&[
        "row",
        "pass",
        "beside",
        "ours ms",
        "theirs ms",
        "x time",
        "ours MB",
        "theirs MB",
        "x memory",
        "apart",
    ]);
    let mut csv = report::Csv::default();
    for row in &chosen {
        let sides = sides(row, args, &script)?;
        let files = prepare::write(row, folder.path())?;
        let agreements = agree(row, &sides, &files, folder.path(), how)?;
        let measured = interleave(&sides, row.passes, &files, folder.path(), how)?;
        csv.add(&row.name, &measured);
        for &pass in row.passes {
            for agreement in &agreements {
                table.row(compare(&row.name, pass, agreement, &measured));
            }
        }
    }
    let mut command = String::from("pytorch");
    if args.compile {
        command.push_str(" --compile");
    }
    let notes = format!(
        "Python {}, torch {}{}. Times are the fastest step of a process, median over {} processes; `x time` and `x memory` are theirs divided \
         by ours of processes that ran one after the other: median, least and most. Memory is the peak of the whole process and, in brackets, what \
         it was before the first step, libraries included. A training step is forward pass, mean square, backward pass and Adam, with the paper's dropout; ours clips the \
         gradient's norm too. `as the authors' code` goes through all n × n weights step by step and drops half of them in training, as that code does whatever its \
         settings say; ours drops none, as the paper's settings for these networks. `apart`: largest difference of the outputs relative to the largest value, and of the gradients in norm.",
        versions.python,
        versions.torch,
        if args.compile { ", compiled" } else { "" },
        how.repetitions
    );
    report::finish(
        &report::Results { kind: &command, title: "Beside PyTorch", notes: &notes, tables: &[table], csv },
        how,
    )
}

/// Ours, theirs, and theirs once more in other ways where attention has n × n weights.
fn sides(row: &Row, args: &PytorchArgs, script: &Path) -> anyhow::Result<Vec<Side>> {
    let mut more = vec!["--threads".to_string(), args.options.threads.to_string()];
    // Nine tenths of what is free: a process that asks for more is told so, instead of another one being killed.
    let free = 0.9 * kilobytes("/proc/meminfo", "MemAvailable:") / 1024.0;
    more.extend(["--memory".to_string(), (free as u64).to_string()]);
    if args.compile {
        more.push("--compile".into());
    }
    let mut sides = vec![Side::ours()?, Side::other(PYTORCH, &args.python, script, more.clone())];
    let ways: &[_] = match row.network.attention() {
        Some(AttentionKind::Fourier) => &[(REASSOCIATED, "reassociated"), (AUTHORS, "authors")],
        Some(AttentionKind::Softmax) => &[(AUTHORS, "authors")],
        _ => &[],
    };
    for &(name, way) in ways {
        let more = more.iter().cloned().chain(["--attention".to_string(), way.to_string()]);
        sides.push(Side::other(name, &args.python, script, more.collect()));
    }
    Ok(sides)
}

/// Compares outputs and gradients of all sides with ours, which are the first; a difference is an error.
fn agree(
    row: &Row,
    sides: &[Side],
    files: &Files,
    folder: &Path,
    how: &BenchOptions,
) -> anyhow::Result<Vec<Agreement>> {
    let once = BenchOptions { seconds: 0.0, ..how.clone() };
    let difference = |pass, name, other: &Side, compare: fn(&Path, &Path) -> anyhow::Result<f64>, most| {
        let [one, two] = ["one", "two"].map(|side| folder.join(side).with_extension(name));
        for (side, output) in [(&sides[0], &one), (other, &two)] {
            if side.measure(pass, files, output, &once)?.is_none() {
                return Ok(None);
            }
        }
        let apart = compare(&one, &two)?;
        if apart.is_nan() || apart > most {
            let what = if pass == Pass::Infer { "outputs" } else { "gradients" };
            bail!(
                "{}: {what} of {} are {apart:.1e} away from ours, more than {most:.0e}",
                row.name,
                other.name
            );
        }
        Ok(Some(apart))
    };
    let mut agreements = Vec::new();
    for other in &sides[1..] {
        let outputs = difference(Pass::Infer, "npy", other, output_difference, OUTPUTS)?;
        let gradients = match row.passes.contains(&Pass::Train) {
            true => difference(Pass::Gradients, "safetensors", other, gradient_difference, GRADIENTS)?,
            false => None,
        };
        let agreement = Agreement { side: other.name, outputs, gradients };
        let [outputs, gradients] = agreement.words();
        say(how, &format!("{}: {}: outputs {outputs} apart, gradients {gradients}", row.name, other.name))?;
        agreements.push(agreement);
    }
    Ok(agreements)
}

impl Agreement {
    fn words(&self) -> [String; 2] {
        [self.outputs, self.gradients].map(|apart| apart.map_or("-".into(), |apart| format!("{apart:.1e}")))
    }
}

/// Ours and theirs in one line.
fn compare(name: &str, pass: Pass, agreement: &Agreement, measured: &[Measured]) -> Vec<String> {
    let of = |side: &str| measured.iter().find(|m| m.pass == pass && m.side == side);
    let (Some(ours), Some(theirs)) = (of("ours"), of(agreement.side)) else { return Vec::new() };
    let ratio = |ours: Vec<f64>, theirs: Vec<f64>| -> Option<Spread> {
        Spread::of(ours.into_iter().zip(theirs).map(|(ours, theirs)| theirs / ours))
    };
    let words = |spread: Option<Spread>| spread.map_or("does not fit".into(), |spread| spread.words());
    let megabytes = |m: &Measured| match (Spread::of(m.megabytes()), Spread::of(m.starts())) {
        (Some(peak), Some(start)) => format!("{:.0} ({:.0})", peak.median, start.median),
        _ => "-".into(),
    };
    let [outputs, gradients] = agreement.words();
    vec![
        name.into(),
        pass.name().into(),
        agreement.side.into(),
        milliseconds(ours),
        milliseconds(theirs),
        words(ratio(ours.seconds(), theirs.seconds())),
        megabytes(ours),
        megabytes(theirs),
        words(ratio(ours.megabytes(), theirs.megabytes())),
        if pass == Pass::Infer { outputs } else { gradients },
    ]
}

/// Puts all scripts into a folder.
pub(super) fn write_scripts(folder: &Path) -> anyhow::Result<()> {
    for (name, text) in SCRIPTS {
        write_whole(folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Of a Python that has all it needs; anything else is wrong usage.
pub(super) fn versions(python: &Path, script: &Path) -> anyhow::Result<Versions> {
    let wrong = |why: String| {
        let why = format!(
            "{why}; benches/pytorch/README.md says how to get a Python with torch, numpy and safetensors"
        );
        galerkin::Error::Setting { what: format!("--python {}", python.display()), why }
    };
    let output = Command::new(python).arg(script).arg("versions").output();
    let output = output.map_err(|error| wrong(error.to_string()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = error.trim_end().lines().last().unwrap_or("it failed without a word");
        bail!(wrong(last.to_string()));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let parsed = serde_json::from_str(said.trim());
    parsed.map_err(|_| wrong(format!("expected versions as JSON, found {:?}", said.trim())).into())
}
