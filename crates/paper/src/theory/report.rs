//! All checks in one report: numbers, tables and the words around them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use burn::tensor::{Tensor, TensorData};
use galerkin::device::Device;
use galerkin_data::pde::{self, Problem};

use super::cea::{HeadCheck, LayerCheck, check_case, check_network};
use super::projection::{self, CASES, Case, LatentSource, ProjectionCheck};
use super::stability::{self, GridBounds, SmoothFunctions, Stability};
use crate::experiment::Scale;
use crate::runs::{is_trained, trained_network};
use crate::table::Table;
use crate::{Error, Result};

/// What attention may differ from the projection by; some 10⁻¹⁴ is rounding.
const PROJECTS: f64 = 1e-10;
/// The run whose layers are looked at, the model of the repository that stands in for it, and the seed of the functions and of its input.
const MODEL: &str = "burgers-gt-heads";
const PRETRAINED: &str = "pretrained/burgers";
const SEED: u64 = 1;

/// What was found of all theorems. They hold, or there would be no report.
#[derive(Clone, Debug, PartialEq)]
pub struct TheoryReport {
    /// Attention and the projection.
    pub projections: Vec<ProjectionCheck>,
    /// The lower bound on growing grids.
    pub stability: Stability,
    /// Functions that Céa's inequality was checked for, in each case.
    pub functions: usize,
    /// Céa's inequality on random matrices.
    pub cases: Vec<(Case, LayerCheck)>,
    /// Céa's inequality in the layers of a model.
    pub layers: ModelLayers,
}

/// The layers of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelLayers {
    /// Those of the run in this folder.
    Checked(PathBuf, Vec<HeadCheck>),
    /// There was no run in any of these folders.
    NotChecked([PathBuf; 2]),
}

impl TheoryReport {
    /// Checks everything; what does not hold is an error. The model is a run of Table 2a in the folder `runs`, or the one that comes with the
    /// repository.
    pub fn check(scale: Scale, runs: &Path, device: &Device) -> Result<Self> {
        let (functions, powers, quick) = match scale {
            Scale::Quick => (400, 6..=12, true),
            Scale::Cpu | Scale::Paper => (4000, 6..=16, false),
        };
        let cases: Vec<Case> = CASES.into_iter().filter(|case| !quick || case.n <= 256).collect();
        let points: Vec<usize> = powers.map(|power| 1 << power).collect();

        let projections = cases.iter().map(|case| projects(*case)).collect::<Result<_>>()?;
        let stability = stability::measure(&SmoothFunctions::default(), &points)?;
        let check = |case: Case| Ok((case, check_case(case, functions)?));
        let cases = cases.into_iter().map(check).collect::<Result<Vec<_>>>()?;
        let folders = [runs.join(MODEL), PRETRAINED.into()];
        let layers = match folders.iter().find(|folder| is_trained(folder)) {
            Some(folder) => ModelLayers::Checked(folder.clone(), heads(folder, functions, device)?),
            None => ModelLayers::NotChecked(folders),
        };
        let report = Self { projections, stability, functions, cases, layers };
        report.verify()?;
        Ok(report)
    }

    /// An error that names the inequality if one does not hold.
    fn verify(&self) -> Result<()> {
        let heads: &[HeadCheck] = match &self.layers {
            ModelLayers::Checked(_, heads) => heads,
            ModelLayers::NotChecked(_) => &[],
        };
        let mut checks =
            self.cases.iter().map(|(_, check)| check).chain(heads.iter().map(|head| &head.check));
        checks.try_for_each(LayerCheck::verify)
    }

    /// A section in Markdown for each theorem and for the layers of the model.
    pub fn sections(&self) -> String {
        let cea = format!("{CEA}{} functions each.\n", self.functions);
        let layers = match &self.layers {
            ModelLayers::Checked(folder, heads) => {
                let words = format!(
                    "### The layers of a trained model\n\n\
                     The same for the matrices of every encoder layer of {} as its products take them, for an input it was not trained on.\n",
                    folder.display()
                );
                section(&words, &head_table(heads))
            }
            ModelLayers::NotChecked(folders) => {
                let [run, pretrained] = folders.each_ref().map(|folder| folder.display());
                format!(
                    "### The layers of a model\n\nNot checked: neither {run} nor {pretrained} is there.\n"
                )
            }
        };
        [
            section(PROJECTION, &projection_table(&self.projections)),
            section(STABILITY, &stability_table(&self.stability)),
            section(&cea, &cea_table(&self.cases)),
            layers,
        ]
        .concat()
    }

    /// In Markdown, for a folder with `figures/lower-bound.svg`. `origin` says how and where it was checked.
    pub fn readme(&self, origin: &str) -> String {
        let mut text = format!("# The paper's theorems in numbers\n\n{origin}\n");
        let _ = writeln!(text, "{}\n![lower bound](figures/lower-bound.svg)", self.sections());
        text
    }

    /// The lower bounds.
    pub fn csv(&self) -> String {
        let mut csv =
            String::from("n,layer_norm,layer_norm_best,softmax,softmax_best,softmax_by_norm_before\n");
        for grid in &self.stability.grids {
            let GridBounds { n, layer_norm, softmax, softmax_by_norm_before } = grid;
            let _ = writeln!(
                csv,
                "{n},{:e},{:e},{:e},{:e},{softmax_by_norm_before:e}",
                layer_norm.c, layer_norm.best, softmax.c, softmax.best
            );
        }
        csv
    }
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

fn projects(case: Case) -> Result<ProjectionCheck> {
    let found = projection::check(case)?;
    if !(found.update < PROJECTS && found.min_max < PROJECTS && found.basis_update < PROJECTS) {
        return Err(Error::NotTheProjection { tolerance: PROJECTS, found: format!("{found:?}") });
    }
    Ok(found)
}

/// On initial values of the law it was trained for, from another seed than its data.
fn heads(folder: &Path, functions: usize, device: &Device) -> Result<Vec<HeadCheck>> {
    let (network, grid) = trained_network(folder, device)?;
    let law = pde::Burgers::default();
    let every = (law.points / grid).max(1);
    let sample = Problem::Burgers(law).sample(SEED, 0)?;
    let values: Vec<f32> = sample.input.into_iter().step_by(every).collect();
    let shape = [1, values.len(), 1];
    let input = Tensor::from_data(TensorData::new(values, shape), device);
    check_network(&network, &input, &[shape[1]], functions, SEED)
}

fn projection_table(checks: &[ProjectionCheck]) -> Table {
    let head =
        ["n", "d", "r", "latents", "update, LU", "update, min-max", "Theorem 4.4", "as printed", "condition"];
    let mut table = Table::new(&head);
    for found in checks {
        let mut row = sizes(&found.case);
        row.extend(
            [found.update, found.min_max, found.basis_update, found.basis_update_printed]
                .map(|v| format!("{v:.1e}")),
        );
        row.push(format!("{:.0}", found.condition));
        table.row(row);
    }
    table
}

fn sizes(case: &Case) -> Vec<String> {
    let latents = match case.latents {
        LatentSource::Shared => "shared",
        LatentSource::Separate => "separate",
    };
    vec![case.n.to_string(), case.d.to_string(), case.r.to_string(), latents.into()]
}

fn stability_table(stability: &Stability) -> Table {
    let head = ["n", "layer norm", "best constant", "softmax", "best constant", "softmax, norm before"];
    let mut table = Table::new(&head);
    for grid in &stability.grids {
        let GridBounds { n, layer_norm, softmax, softmax_by_norm_before } = grid;
        let values = [layer_norm.c, layer_norm.best, softmax.c, softmax.best, *softmax_by_norm_before];
        let mut line = vec![n.to_string()];
        line.extend(values.map(|v| format!("{v:.3e}")));
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

fn cea_table(cases: &[(Case, LayerCheck)]) -> Table {
    let mut table = Table::new(&[&["n", "d", "r", "latents"][..], &SLACKS].concat());
    for (case, check) in cases {
        let mut row = sizes(case);
        row.extend(slacks(check));
        table.row(row);
    }
    table
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
