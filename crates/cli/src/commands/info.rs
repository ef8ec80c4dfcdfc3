//! `galerkin info`: what a dataset, a run or a file holds, in words and as a figure.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use galerkin::clock::{Reached, reaches};
use galerkin::config::DataConfig;
use galerkin::evaluate::Metrics;
use galerkin::layers::AttentionKind;
use galerkin::networks::NetworkConfig;
use galerkin::run::{RunFolder, Snapshot};
use galerkin::weights;
use galerkin_data::error::shown;
use galerkin_data::io::{self as files, Kind, Limits, Summary};
use galerkin_data::{Dataset, Domain, Meta};

use super::drawing::{self, Legend, Sample};
use crate::args::Info;
use crate::figures::Scene;
use crate::output::{Table, sizes};

/// Lists and draws.
pub(super) fn run(args: Info) -> anyhow::Result<()> {
    let folder = RunFolder::new(&args.path);
    if folder.config_file().exists() {
        if args.figure.is_some() {
            bail!("{0}: `galerkin plot {0}` draws the figures of a run", args.path.display());
        }
        return print_run(&folder, &args.reaches);
    }
    if !args.reaches.is_empty() && args.path.exists() {
        let (what, why) = ("--reaches".into(), format!("{} is no folder of a run", args.path.display()));
        bail!(galerkin::Error::Setting { what, why });
    }
    if args.path.is_dir() {
        let dataset = Dataset::open(&args.path)?;
        let meta = dataset.meta().context("a folder has a description")?;
        print_dataset(&args.path, &dataset, meta)?;
        if let Some(out) = args.figure {
            let out = if out.as_os_str().is_empty() { default_name(&args.path) } else { out };
            draw(&dataset, meta)?.save(&out)?;
            writeln!(io::stdout(), "drew {}", out.display())?;
        }
        return Ok(());
    }
    if args.figure.is_some() && args.path.is_file() {
        let path = args.path.display();
        bail!("{path}: figures are drawn of dataset folders; `galerkin import {path} --out DIR` makes one");
    }
    print_file(&args.path, Limits { expansion: args.expand })
}

const HEAD: [&str; 8] = ["variable", "shape", "type", "min", "max", "mean", "NaN", "infinite"];

fn print_dataset(path: &Path, dataset: &Dataset, meta: &Meta) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: dataset of {} samples", path.display(), dataset.len())?;
    writeln!(out, "  problem   {}", drawing::describe(meta))?;
    let place = |domain: &Domain| if domain.grid().is_some() { "grid  " } else { "points" };
    writeln!(out, "  {}    {}", place(&meta.domain), meta.domain)?;
    if let Some(domain) = &meta.target_domain {
        writeln!(out, "  targets   {domain}")?;
    }
    if let (Domain::Grid(grid), None) = (&meta.domain, &meta.target_domain) {
        let coarser: Vec<_> = grid.sizes().iter().map(ToString::to_string).collect();
        writeln!(out, "  sizes     {}", coarser.join(", "))?;
    }
    if let Some(time) = &meta.time {
        writeln!(out, "  times     {}, from {} to {}", time.points, time.origin, time.origin + time.length)?;
    }
    if meta.inputs.len() + meta.targets.len() > 2 {
        let [inputs, targets] = [&meta.inputs, &meta.targets].map(|names| names.join(", "));
        writeln!(out, "  channels  {} to {}", shown(&inputs), shown(&targets))?;
    }
    if let Some(split) = &meta.split {
        let [train, validation, test] = split.counts();
        writeln!(out, "  split     {train} to train, {validation} to validate, {test} to test")?;
    }
    if let Some(seed) = meta.seed {
        writeln!(out, "  seed      {seed}")?;
    }
    writeln!(out, "  version   {}", meta.version)?;
    let mut table = Table::new(&HEAD);
    let shapes = [dataset.input_shape(), dataset.target_shape()];
    for ((name, shape), summary) in ["inputs", "targets"].into_iter().zip(shapes).zip(dataset.summaries()?) {
        table.row(row(name, &[vec![dataset.len()], shape].concat(), "float32", Some(summary)));
    }
    Ok(table.write(&mut out)?)
}

fn print_run(folder: &RunFolder, errors: &[f64]) -> anyhow::Result<()> {
    // Everything is read before anything is said.
    let config = folder.config()?;
    let last = folder.weights_file(Snapshot::Last);
    let last = last.exists().then(|| weights::load(last)).transpose()?;
    let history = folder.history()?;
    let metrics = Metrics::read(folder)?;
    let reached = errors.iter().map(|error| reaches(folder, *error)).collect::<galerkin::Result<Vec<_>>>()?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}: run {}", folder.path().display(), shown(&config.name))?;
    let DataConfig { folder: data, grid, coarse, train, validation, test, noise, .. } = &config.data;
    let coarse = coarse.map_or(String::new(), |coarse| format!(", targets on {coarse}"));
    writeln!(out, "  network    {}, {} parameters", network(&config.network), config.network.parameters())?;
    writeln!(out, "  data       {}, grid {grid}{coarse}, noise {noise}", data.display())?;
    writeln!(out, "  samples    {train} to train, {validation} to validate, {test} to test")?;
    match last.and_then(|weights| weights.metadata.get("steps").cloned()) {
        Some(steps) => writeln!(out, "  trained    {steps} of {} steps", config.total_steps())?,
        None if history.epochs.is_empty() => writeln!(out, "  trained    elsewhere, or not at all")?,
        None => writeln!(out, "  trained    less than up to its first checkpoint")?,
    }
    if history.diverged {
        writeln!(out, "  diverged   at step {}", history.steps)?;
    }
    if let (Some(last), Some(best)) = (history.epochs.last(), history.best()) {
        writeln!(out, "  loss       {} in epoch {}", number(last.loss), last.epoch)?;
        writeln!(
            out,
            "  validation {} in epoch {}, best {} in epoch {}",
            number(last.validation.mean),
            last.epoch,
            number(best.validation.mean),
            best.epoch
        )?;
    }
    for (error, reached) in errors.iter().zip(reached) {
        writeln!(out, "  reaches    {error:e}: {}", when(reached))?;
    }
    if !history.damaged.is_empty() {
        let [lines, first] = [history.damaged.len(), history.damaged[0]];
        writeln!(out, "  damaged    {lines} lines of log.jsonl, the first one line {first}")?;
    }
    for evaluation in metrics.map_or(Vec::new(), |metrics| metrics.evaluations) {
        let (error, noise) = (number(evaluation.relative_l2.mean), evaluation.noise);
        let of = evaluation.label();
        writeln!(out, "  evaluated  {error} on grid {}, noise {noise}{of}", sizes(&evaluation.points))?;
    }
    Ok(())
}

/// `from epoch 61 on, after 35.2 minutes (33.9 of CPU time on each of 2 threads)`.
fn when(reached: Option<Reached>) -> String {
    let Some(Reached { epoch, spent, .. }) = reached else { return "not reached".into() };
    let Some(spent) = spent else { return format!("from epoch {epoch} on; the run has no clock of it") };
    let minutes = |seconds: f64| number(seconds / 60.0);
    let undisturbed = spent.undisturbed().map_or(String::new(), |seconds| {
        format!(" ({} of CPU time on each of {} threads)", minutes(seconds), spent.threads)
    });
    format!("from epoch {epoch} on, after {} minutes{undisturbed}", minutes(spent.seconds))
}

/// `galerkin attention, 4 layers of 96`.
fn network(config: &NetworkConfig) -> String {
    match config {
        NetworkConfig::Transformer(config) => {
            let encoder = &config.encoder;
            let attention = match encoder.attention {
                AttentionKind::Galerkin => "galerkin",
                AttentionKind::Fourier => "fourier",
                AttentionKind::Linear => "linear",
                AttentionKind::Softmax => "softmax",
            };
            format!("{attention} attention, {} layers of {}", encoder.layers, encoder.width)
        }
        NetworkConfig::Fno(config) => {
            format!("Fourier operator, {} layers of {}", config.spectral.layers, config.spectral.channels)
        }
        NetworkConfig::Multilevel(config) => format!("multilevel, channels {:?}", config.channels),
        _ => "another kind".into(),
    }
}

fn print_file(path: &Path, limits: Limits) -> anyhow::Result<()> {
    let file = files::open_with(path, limits)?;
    let mut table = Table::new(&HEAD);
    for variable in file.variables() {
        let summary = match variable.kind {
            Kind::Numbers(_) => Some(file.summary(&variable.name)?),
            Kind::Other(_) => None,
        };
        table.row(row(&variable.name, &variable.shape, variable.kind.name(), summary));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}", path.display(), file.format().name())?;
    Ok(table.write(&mut out)?)
}

fn row(name: &str, shape: &[usize], kind: &str, summary: Option<Summary>) -> Vec<String> {
    let mut cells = vec![name.into(), format!("{shape:?}"), kind.into()];
    let Some(Summary { count, min, max, mean, nan, infinite }) = summary else { return cells };
    if nan + infinite < count {
        cells.extend([number(f64::from(min)), number(f64::from(max)), number(mean)]);
    } else {
        cells.extend(["-", "-", "-"].map(String::from));
    }
    cells.extend([nan.to_string(), infinite.to_string()]);
    cells
}

/// At most five digits, plain where that is short.
fn number(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if (1e-3..1e5).contains(&value.abs()) {
        let before = libm::log10(value.abs()).floor() as i32;
        let text = format!("{value:.*}", (4 - before).max(0) as usize);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
    } else {
        format!("{value:.4e}")
    }
}

fn default_name(dataset: &Path) -> PathBuf {
    // `.` and `..` have a name only once they are resolved.
    let resolved = dataset.canonicalize().unwrap_or_else(|_| dataset.into());
    let mut name = resolved.file_name().unwrap_or("dataset".as_ref()).to_os_string();
    name.push(".png");
    name.into()
}

/// How many samples a figure shows.
const DRAWN: usize = 4;

/// The first samples, as curves or as pictures.
fn draw(dataset: &Dataset, meta: &Meta) -> anyhow::Result<Scene> {
    let samples: Vec<Sample> = (0..dataset.len().min(DRAWN))
        .map(|index| {
            let pair = dataset.sample(index)?;
            Ok(Sample {
                title: format!("sample {index}"),
                input: pair.input,
                target: pair.target,
                prediction: None,
                points: [dataset.input_points(index)?, dataset.target_points(index)?],
            })
        })
        .collect::<galerkin_data::Result<_>>()?;
    let place = match dataset.domain() {
        Domain::Grid(grid) => format!("{} points", sizes(&grid.points())),
        points => points.to_string(),
    };
    let title = format!("{}, {place}", drawing::describe(meta));
    Ok(drawing::draw(&title, &Legend::of(dataset), &samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_five_digits_at_most() {
        let shown = [0.0, 12.0, -0.25, 1234.56, 99999.4, 100.0, 1e-7, f64::from(f32::MAX)].map(number);
        assert_eq!(shown, ["0", "12", "-0.25", "1234.6", "99999", "100", "1.0000e-7", "3.4028e38"]);
    }
}
