//! The paper's table of costs: memory, speed and operations of a training step with four kinds of attention.

use std::fmt::Write;

use galerkin::layers::AttentionKind;

use crate::experiment::Scale;
use crate::growth::exponent;
use crate::table::Table;

/// What stands above the table.
pub const TITLE: &str = "Memory, speed and operations of a training step (Table 1)";

/// The paper's samples per step.
pub const BATCH: usize = 4;

/// The paper's points, where its numbers stand beside ours.
const PAPER_POINTS: usize = 8192;

/// Networks of one kind of attention on growing grids.
#[derive(Clone, Debug, PartialEq)]
pub struct CostFamily {
    /// As the names of its rows begin.
    pub name: String,
    /// The attention.
    pub kind: AttentionKind,
    /// What is trained.
    pub part: Part,
    /// A row for each.
    pub points: Vec<usize>,
    /// On 8192 points.
    pub paper: PaperCost,
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The network for Burgers' equation.
    Network,
    /// So many of its encoder layers alone.
    EncoderLayers(usize),
}

/// What the paper printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperCost {
    /// Memory.
    pub gigabytes: f64,
    /// Speed.
    pub steps_per_second: f64,
    /// 10⁹ operations of a step.
    pub gigaflop: f64,
}

/// What a training step takes, by processes that measured it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Of the fastest step.
    pub seconds: f64,
    /// The peak of the process, in megabytes.
    pub peak_mb: f64,
    /// What the steps added to it.
    pub added_mb: f64,
}

/// What is known of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowCost {
    /// 10⁹ operations of a step, counted.
    pub gigaflop: f64,
    /// How many processes measured it.
    pub processes: usize,
    /// `None` where nothing was measured or nothing fitted into memory.
    pub cost: Option<StepCost>,
}

/// Families with what is known of their rows, one for each number of points.
#[derive(Clone, Debug, PartialEq)]
pub struct CostReport {
    /// In the order of the table.
    pub families: Vec<(CostFamily, Vec<RowCost>)>,
}

/// The network for Burgers' equation, and ten encoder layers alone, with each kind of attention.
pub fn families(scale: Scale) -> Vec<CostFamily> {
    let (lines, encoders, layers): (&[usize], _, _) = match scale {
        Scale::Quick => (&[128, 256], 256, 2),
        Scale::Cpu | Scale::Paper => (&[512, 1024, 2048, 4096, PAPER_POINTS], PAPER_POINTS, 10),
    };
    // Gigabytes, steps per second and GFLOP of the network and of the encoder layers.
    let kinds = [
        ("gt", AttentionKind::Galerkin, [2.36, 27.15, 275.0], [2.53, 19.20, 412.0]),
        ("ft", AttentionKind::Fourier, [10.05, 6.10, 1138.0], [10.80, 5.46, 1610.0]),
        ("lt", AttentionKind::Linear, [2.55, 12.70, 606.0], [2.73, 10.98, 773.0]),
        ("st", AttentionKind::Softmax, [18.39, 5.02, 1393.0], [18.53, 4.12, 1876.0]),
    ];
    let paper = |[gigabytes, steps_per_second, gigaflop]: [f64; 3]| PaperCost {
        gigabytes,
        steps_per_second,
        gigaflop,
    };
    let networks = kinds.map(|(short, kind, numbers, _)| CostFamily {
        name: format!("burgers-{short}"),
        kind,
        part: Part::Network,
        points: lines.to_vec(),
        paper: paper(numbers),
    });
    let alone = kinds.map(|(short, kind, _, numbers)| CostFamily {
        name: format!("encoder-{short}"),
        kind,
        part: Part::EncoderLayers(layers),
        points: vec![encoders],
        paper: paper(numbers),
    });
    networks.into_iter().chain(alone).collect()
}

impl CostFamily {
    /// Of the row with so many points.
    pub fn row_name(&self, points: usize) -> String {
        format!("{}-{points}", self.name)
    }

    /// Whether growth can be seen.
    fn grows(&self) -> bool {
        self.points.len() > 1
    }
}

impl CostReport {
    /// A row each, with the paper's numbers where it has some.
    pub fn table(&self) -> Table {
        let head = ["row", "n", "MB", "steps/s", "ms", "GFLOP", "paper GB", "paper steps/s", "paper GFLOP"];
        let mut table = Table::new(&head);
        for (family, points, RowCost { gigaflop, processes, cost }) in self.rows() {
            let mut cells = vec![family.row_name(points), points.to_string()];
            cells.extend(match cost {
                None if *processes == 0 => ["not run", "", ""].map(String::from),
                None => ["does not fit", "", ""].map(String::from),
                Some(cost) => [
                    format!("{:.0}", cost.peak_mb),
                    format!("{:.2}", 1.0 / cost.seconds),
                    format!("{:.1}", 1e3 * cost.seconds),
                ],
            });
            cells.push(format!("{gigaflop:.1}"));
            let PaperCost { gigabytes, steps_per_second, gigaflop } = family.paper;
            cells.extend(match points {
                PAPER_POINTS => [gigabytes, steps_per_second, gigaflop].map(|number| number.to_string()),
                _ => ["-", "-", "-"].map(String::from),
            });
            table.row(cells);
        }
        table
    }

    /// Exponents of families that grow.
    pub fn growth(&self) -> Table {
        let mut table = Table::new(&["", "exponent of time", "exponent of memory", "exponent of operations"]);
        for (family, rows) in self.families.iter().filter(|(family, _)| family.grows()) {
            let operations: Vec<[f64; 2]> =
                family.points.iter().zip(rows).map(|(&n, row)| [n as f64, row.gigaflop]).collect();
            let [time, memory] = [series(family, rows, |c| c.seconds), series(family, rows, |c| c.added_mb)];
            let word = |points: &[[f64; 2]]| exponent(points).map_or("-".into(), |e| format!("{e:.2}"));
            table.row(vec![family.name.clone(), word(&time), word(&memory), word(&operations)]);
        }
        table
    }

    /// Of families that grow, their name and (n, value) of what was measured, if anything was.
    pub fn curves(&self, of: fn(&StepCost) -> f64) -> Vec<(&str, Vec<[f64; 2]>)> {
        let growing = self.families.iter().filter(|(family, _)| family.grows());
        let curves = growing.map(|(family, rows)| (family.name.as_str(), series(family, rows, of)));
        curves.filter(|(_, points)| !points.is_empty()).collect()
    }

    /// All numbers that were measured.
    pub fn csv(&self) -> String {
        let mut csv = String::from("row,points,batch,seconds,peak_mb,added_mb,gigaflop\n");
        for (family, points, RowCost { gigaflop, cost, .. }) in self.rows() {
            if let Some(StepCost { seconds, peak_mb, added_mb }) = cost {
                let name = family.row_name(points);
                let _ = writeln!(
                    csv,
                    "{name},{points},{BATCH},{seconds:e},{peak_mb:.1},{added_mb:.1},{gigaflop:.2}"
                );
            }
        }
        csv
    }

    /// In Markdown, for a folder with `table.csv`, `config/` and `figures/time.svg` and `memory.svg`. `origin` says how and where it was
    /// measured.
    pub fn readme(&self, origin: &str, threads: u32, processes: u32) -> String {
        format!(
            "# {TITLE}\n\n{origin}\nTraining steps of {BATCH} samples in processes of their own, {threads} threads: forward pass, mean square, backward pass, Adam. A time is the \
             fastest step of a process, the median over {processes} of them, which took turns with those of the other rows; memory is the peak of the process. Exponents of memory are of what the steps \
             add to the network. GFLOP are the multiplications and additions of the products of a step in the order in which we multiply, which \
             for Fourier attention is K by V first; what the backward pass computes again is not counted. The paper's numbers are of \
             PyTorch on a graphics card, with Fourier attention through matrices of n × n.\n\n{}\n{}\n\
             ![time](figures/time.svg)\n\n![memory](figures/memory.svg)\n\nNetworks are in `config/`, all numbers in `table.csv`.\n",
            self.table().markdown(),
            self.growth().markdown(),
        )
    }

    fn rows(&self) -> impl Iterator<Item = (&CostFamily, usize, &RowCost)> {
        self.families.iter().flat_map(|(family, rows)| {
            family.points.iter().zip(rows).map(move |(&points, row)| (family, points, row))
        })
    }
}

/// (n, value) of what was measured of a family.
fn series(family: &CostFamily, rows: &[RowCost], of: fn(&StepCost) -> f64) -> Vec<[f64; 2]> {
    let points = family.points.iter().zip(rows);
    points.filter_map(|(&n, row)| Some([n as f64, of(row.cost.as_ref()?)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times and memories of the first family grow like n and n², the second did not fit, and the others were not measured.
    fn report() -> CostReport {
        let families = families(Scale::Cpu).into_iter().enumerate().map(|(at, family)| {
            let row = |n: f64| {
                let cost = StepCost { seconds: n / 4096.0, peak_mb: 100.0, added_mb: n * n };
                RowCost { gigaflop: n / 8.0, processes: usize::from(at < 2), cost: (at == 0).then_some(cost) }
            };
            let rows = family.points.iter().map(|&n| row(n as f64)).collect();
            (family, rows)
        });
        CostReport { families: families.collect() }
    }

    #[test]
    fn costs_stand_beside_the_papers() {
        let report = report();
        let text = report.table().markdown();
        for line in [
            "| burgers-gt-4096 | 4096 | 100 | 1.00 | 1000.0 | 512.0 | - | - | - |",
            "| burgers-gt-8192 | 8192 | 100 | 0.50 | 2000.0 | 1024.0 | 2.36 | 27.15 | 275 |",
            "| burgers-ft-512 | 512 | does not fit |  |  | 64.0 | - | - | - |",
            "| encoder-st-8192 | 8192 | not run |  |  | 1024.0 | 18.53 | 4.12 | 1876 |",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(report.csv().lines().count(), 1 + 5);
        assert!(report.growth().markdown().contains("| burgers-gt | 1.00 | 2.00 | 1.00 |"));
        assert!(report.growth().markdown().contains("| burgers-st | - | - | 1.00 |"));
        let curves = report.curves(|cost| cost.seconds);
        assert!(curves.len() == 1 && curves[0].0 == "burgers-gt" && curves[0].1.len() == 5, "{curves:?}");
    }
}
