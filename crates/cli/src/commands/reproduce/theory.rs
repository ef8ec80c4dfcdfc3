//! The paper's theorems in numbers.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use anyhow::bail;
use burn::tensor::{Tensor, TensorData};
use galerkin::device::Device;
use galerkin::models::Field;
use galerkin::run::{RunFolder, Which};
use galerkin::theory::cea::{HeadCheck, LayerCheck, check_case, check_model};
use galerkin::theory::projection::{self, CASES, Case, Latents};
use galerkin::theory::stability::{self, Row, Setup, Stability};
use galerkin_data::io::write_whole;
use galerkin_data::pde::{self, Problem};

use super::report;
use crate::args::{Experiment, Reproduce, Scale};
use crate::figures::{Curve, Point, Scene, resolutions};
use crate::output::Table;

/// What attention may differ from the projection by; some 10⁻¹⁴ is rounding.
const PROJECTS: f64 = 1e-10;
/// The run whose layers are looked at, the model of the repository that stands in for it, and the seed of the functions and of its input.
const MODEL: &str = "burgers-gt-heads";
const PRETRAINED: &str = "pretrained/burgers";
const SEED: u64 = 1;

/// Checks everything, prints it and writes it down; what does not hold is an error.
pub(super) fn run(args: &Reproduce, device: &Device) -> anyhow::Result<()> {
    let (functions, powers, quick) = match args.scale {
        Scale::Quick => (400, 6..=12, true),
        Scale::Cpu | Scale::Paper => (4000, 6..=16, false),
    };
    let cases: Vec<Case> = CASES.into_iter().filter(|case| !quick || case.n <= 256).collect();
    let points: Vec<usize> = powers.map(|power| 1 << power).collect();

    let projections = projections(&cases)?;
    let stability = stability::measure(&Setup::default(), &points)?;
    let checks =
        cases.iter().map(|case| check_case(*case, functions)).collect::<galerkin::Result<Vec<_>>>()?;
    let folders = [args.runs.join(args.scale.name()).join(MODEL), PRETRAINED.into()].map(RunFolder::new);
    let trained = folders.iter().find(|folder| folder.weights_file(Which::Last).exists());
    let heads = match trained {
        Some(folder) => heads(folder, functions, device)?,
        None => Vec::new(),
    };
    for check in checks.iter().chain(heads.iter().map(|head| &head.check)) {
        check.verify()?;
    }
    let sections = [
        section(PROJECTION, &projections),
        section(STABILITY, &stability_table(&stability)),
        section(&format!("{CEA}{functions} functions each.\n"), &cea_table(&cases, &checks)),
        match trained {
            Some(folder) => section(&layers(folder), &head_table(&heads)),
            None => {
                let [run, pretrained] = folders.each_ref().map(|folder| folder.path().display());
                format!(
                    "### The layers of a model\n\nNot checked: neither {run} nor {pretrained} is there.\n"
                )
            }
        },
    ];
    let at = write(args, &sections.concat(), &stability)?;
    let mut out = io::stdout().lock();
    io::Write::write_all(&mut out, sections.concat().as_bytes())?;
    io::Write::write_all(&mut out, format!("wrote {}\n", at.display()).as_bytes())?;
    Ok(())
}

const PROJECTION: &str = "### Attention is the projection\n\n\
    Relative difference of attention with the updated matrices from the Petrov–Galerkin projection: from the saddle-point system solved by \
    LU, from the min-max problem by least squares; the same for the basis update of Theorem 4.4, and with its matrix as the paper \
    prints it, which is another.\n";
const STABILITY: &str = "### The lower bound does not depend on the number of points\n\n\
    c = min σ(B)/(c_V c_Q) of smooth functions on n points. Softmax over the points divides keys by n and with them both min σ(B) and c_V: \
    c stays. It falls like 1/n only where keys after the softmax are measured by their norm before it.\n";
const CEA: &str = "### Céa's inequality\n\n\
    The smallest slack (right minus left side, relative to the function; negative by rounding at most, or the command fails) of the \
    inequality as printed, of the one for the projection of f itself, and of quasi-optimality; the largest left side relative to its right \
    side; and the worst error relative to the best one. ";
fn projections(cases: &[Case]) -> anyhow::Result<Table> {
    let head =
        ["n", "d", "r", "latents", "update, LU", "update, min-max", "Theorem 4.4", "as printed", "condition"];
    let mut table = Table::new(&head);
    for case in cases {
        let found = projection::check(*case)?;
        if !(found.update < PROJECTS && found.min_max < PROJECTS && found.basis_update < PROJECTS) {
            bail!("attention is not the projection, which differs by more than {PROJECTS:e}: {found:?}");
        }
        let mut row = sizes(case);
        row.extend(
            [found.update, found.min_max, found.basis_update, found.basis_update_printed]
                .map(|v| format!("{v:.1e}")),
        );
        row.push(format!("{:.0}", found.condition));
        table.row(row);
    }
    Ok(table)
}

fn sizes(case: &Case) -> Vec<String> {
    let latents = match case.latents {
        Latents::Shared => "shared",
        Latents::Separate => "separate",
    };
    vec![case.n.to_string(), case.d.to_string(), case.r.to_string(), latents.into()]
}

fn stability_table(stability: &Stability) -> Table {
    let head = ["n", "layer norm", "best constant", "softmax", "best constant", "softmax, norm before"];
    let mut table = Table::new(&head);
    let cells = |row: &Row| {
        let Row { layer_norm, softmax, softmax_by_norm_before, .. } = row;
        [layer_norm.c, layer_norm.best, softmax.c, softmax.best, *softmax_by_norm_before]
    };
    for row in &stability.rows {
        let mut line = vec![row.n.to_string()];
        line.extend(cells(row).map(|v| format!("{v:.3e}")));
        table.row(line);
    }
    let slopes = &stability.slopes;
    let mut line = vec!["slope".to_string()];
    let values = [
        slopes.layer_norm,
        slopes.layer_norm_best,
        slopes.softmax,
        slopes.softmax_best,
        slopes.softmax_by_norm_before,
    ];
    line.extend(values.map(|v| format!("{v:+.4}")));
    table.row(line);
    table
}

const SLACKS: [&str; 7] =
    ["c", "printed", "projection", "quasi-optimal", "rounding", "left / right", "worst ratio"];

fn slacks(check: &LayerCheck) -> Vec<String> {
    let cea = &check.cea;
    let mut cells = vec![format!("{:.4}", cea.c)];
    cells.extend([cea.printed, cea.projection, cea.quasi_optimal, cea.rounding].map(|v| format!("{v:.1e}")));
    cells.extend([cea.tightest, cea.worst_ratio].map(|v| format!("{v:.3}")));
    cells
}

fn cea_table(cases: &[Case], checks: &[LayerCheck]) -> Table {
    let mut table = Table::new(&[&["n", "d", "r", "latents"][..], &SLACKS].concat());
    for (case, check) in cases.iter().zip(checks) {
        let mut row = sizes(case);
        row.extend(slacks(check));
        table.row(row);
    }
    table
}

fn layers(folder: &RunFolder) -> String {
    format!(
        "### The layers of a trained model\n\n\
         The same for the matrices of every encoder layer of {} as its products take them, for an input it was not trained on.\n",
        folder.path().display()
    )
}

/// On initial values of the law it was trained for, from another seed than its data.
fn heads(folder: &RunFolder, functions: usize, device: &Device) -> anyhow::Result<Vec<HeadCheck>> {
    let (model, _) = folder.model(Which::Last, device)?;
    let (grid, law) = (folder.config()?.data.grid, pde::Burgers::default());
    let every = (law.points / grid).max(1);
    let sample = Problem::Burgers(law).sample(SEED, 0)?;
    let values: Vec<f32> = sample.input.into_iter().step_by(every).collect();
    let shape = [1, values.len(), 1];
    let input = Field::Line(Tensor::from_data(TensorData::new(values, shape), device));
    Ok(check_model(&model, &input, functions, SEED)?)
}

fn head_table(heads: &[HeadCheck]) -> Table {
    let mut table = Table::new(&[&["layer", "head", "values", "keys"][..], &SLACKS].concat());
    for HeadCheck { layer, head, check } in heads {
        let mut row = vec![
            layer.to_string(),
            head.to_string(),
            check.cea.values.to_string(),
            check.cea.keys.to_string(),
        ];
        row.extend(slacks(check));
        table.row(row);
    }
    table
}

fn section(words: &str, table: &Table) -> String {
    format!("{words}\n{}\n", table.markdown())
}

fn write(args: &Reproduce, sections: &str, stability: &Stability) -> anyhow::Result<PathBuf> {
    let at = report::place(Experiment::Theory, args);
    lower_bounds(stability).save_in(&at.join("figures"), "lower-bound")?;
    let mut text =
        format!("# The paper's theorems in numbers\n\n{}\n", report::origin(Experiment::Theory, args));
    let _ = writeln!(text, "{sections}\n![lower bound](figures/lower-bound.svg)");
    write_whole(at.join("README.md"), text.as_bytes())?;
    let mut csv = String::from("n,layer_norm,layer_norm_best,softmax,softmax_best,softmax_by_norm_before\n");
    for row in &stability.rows {
        let Row { n, layer_norm, softmax, softmax_by_norm_before } = row;
        let _ = writeln!(
            csv,
            "{n},{:e},{:e},{:e},{:e},{softmax_by_norm_before:e}",
            layer_norm.c, layer_norm.best, softmax.c, softmax.best
        );
    }
    write_whole(at.join("table.csv"), csv.as_bytes())?;
    Ok(at)
}

fn lower_bounds(stability: &Stability) -> Scene {
    let curve = |name: &str, of: &dyn Fn(&Row) -> f64| Curve {
        name: name.into(),
        points: stability
            .rows
            .iter()
            .map(|row| Point { resolution: row.n as f64, error: of(row), band: None })
            .collect(),
    };
    let curves = [
        curve("layer norm", &|row| row.layer_norm.c),
        curve("softmax over points", &|row| row.softmax.c),
        curve("softmax, keys measured before it", &|row| row.softmax_by_norm_before),
    ];
    resolutions("Lower bound of the bilinear form", "points n", "c", &curves)
}
