//! `galerkin info`: what a dataset or a file holds, in words and as a figure.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use galerkin_data::grid::GridKind;
use galerkin_data::io::{self as files, Kind, Summary, torch};
use galerkin_data::meta::{Meta, Origin};
use galerkin_data::pde::Coefficient;
use galerkin_data::{Array, Dataset};

use crate::args::Info;
use crate::figures::{Field, FieldRow, LineRow, Lines, Scene, fields, lines};
use crate::output::{Table, sizes};

/// Lists and draws.
pub(super) fn run(args: Info) -> anyhow::Result<()> {
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
    match args.path.extension().and_then(|extension| extension.to_str()) {
        Some("pt" | "pth") => print_checkpoint(&args.path),
        _ => print_file(&args.path),
    }
}

const HEAD: [&str; 8] = ["variable", "shape", "type", "min", "max", "mean", "NaN", "infinite"];

fn print_dataset(path: &Path, dataset: &Dataset, meta: &Meta) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let grid = dataset.grid();
    let kind = match grid.kind {
        GridKind::Periodic => "periodic",
        GridKind::Vertices => "with boundary",
    };
    writeln!(out, "{}: dataset of {} samples", path.display(), dataset.len())?;
    writeln!(out, "  problem   {}", describe(meta))?;
    writeln!(out, "  grid      {} points, {kind}", sizes(&grid.points))?;
    let coarser: Vec<_> = dataset.sizes().iter().map(ToString::to_string).collect();
    writeln!(out, "  sizes     {}", coarser.join(", "))?;
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

fn print_file(path: &Path) -> anyhow::Result<()> {
    let file = files::open(path)?;
    let mut table = Table::new(&HEAD);
    for variable in file.variables() {
        // One variable is in memory at a time.
        let summary = match variable.kind {
            Kind::Numbers(_) => Some(Summary::of(&file.read(&variable.name)?.values)),
            Kind::Other(_) => None,
        };
        table.row(row(&variable.name, &variable.shape, variable.kind.name(), summary));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}", path.display(), file.format().name())?;
    Ok(table.write(&mut out)?)
}

fn print_checkpoint(path: &Path) -> anyhow::Result<()> {
    let mut table = Table::new(&HEAD);
    for (name, Array { shape, values }) in torch::read(path)? {
        table.row(row(&name, &shape, "as float32", Some(Summary::of(&values))));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}: PyTorch", path.display())?;
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

/// The problem with its parameters.
fn describe(meta: &Meta) -> String {
    match &meta.problem {
        Origin::Burgers(p) => format!("Burgers, viscosity {:.6}, time {}", p.viscosity, p.time),
        Origin::Darcy(p) => match p.coefficient {
            Coefficient::Threshold { at, above, below } => {
                format!("Darcy, coefficient {above} above and {below} below {at}")
            }
            Coefficient::Lognormal { location, scale } => {
                format!("Darcy, coefficient exp({location} + {scale}·g)")
            }
        },
        Origin::Imported(imported) => format!("imported from {}", imported.files.join(", ")),
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

/// The first samples, as curves or as pictures; of several channels the first.
fn draw(dataset: &Dataset, meta: &Meta) -> anyhow::Result<Scene> {
    let grid = dataset.grid();
    let samples: Vec<[Vec<f32>; 2]> = (0..dataset.len().min(DRAWN))
        .map(|index| {
            dataset.sample(index).map(|pair| [first_channel(pair.input), first_channel(pair.target)])
        })
        .collect::<Result<_, _>>()?;
    let names = match &meta.problem {
        Origin::Burgers(p) => ["u(x, 0)".into(), format!("u(x, {})", p.time)],
        Origin::Darcy(_) => ["coefficient a(x, y)".into(), "solution u(x, y)".into()],
        Origin::Imported(_) => ["input", "target"].map(String::from),
    };
    let names = [names[0].as_str(), names[1].as_str()];
    let title = format!("{}, {} points", describe(meta), sizes(&grid.points));
    if let [points] = grid.points[..] {
        let x = grid.kind.coordinates(points);
        let rows = samples.iter().enumerate().map(|(k, [input, target])| LineRow {
            title: format!("sample {k}"),
            input,
            target,
            prediction: None,
        });
        let rows = rows.collect();
        return Ok(lines(&Lines {
            title: &title,
            x_label: "x",
            y_label: "u",
            names,
            ends: [0.0, 1.0],
            x: &x,
            rows,
        }));
    }
    let columns = grid.points.last().copied().unwrap_or(1);
    let rows: Vec<_> = samples
        .iter()
        .enumerate()
        .map(|(k, [input, target])| FieldRow {
            title: format!("sample {k}"),
            input: Field { columns, values: input },
            target: Field { columns, values: target },
            prediction: None,
        })
        .collect();
    Ok(fields(&title, names, &rows))
}

fn first_channel(array: Array) -> Vec<f32> {
    let channels = array.shape.last().copied().unwrap_or(1).max(1);
    array.values.into_iter().step_by(channels).collect()
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
