//! Errors of runs beside the paper's: as numbers, as a table, as CSV and as the words around them.

use std::fmt::Write;

use crate::protocol::{Protocol, Row, Trial};
use crate::runs::RowOutcome;
use crate::table::Table;

/// A protocol and what came out of its runs.
#[derive(Clone, Debug)]
pub struct ErrorReport {
    /// What was to be run.
    pub protocol: Protocol,
    /// One per row; `None` of runs that are not over.
    pub outcomes: Vec<Option<RowOutcome>>,
}

/// A run in one of its trials. Errors are mean relative L² errors, in no unit.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The run.
    pub row: &'a Row,
    /// What came out of it.
    pub outcome: &'a RowOutcome,
    /// What it is evaluated on.
    pub trial: &'a Trial,
    /// After the last epoch; `None` if the run diverged.
    pub last: Option<f64>,
    /// After the epoch with the smallest error on the validation samples; `None` if there was none.
    pub best: Option<f64>,
    /// The paper's own.
    pub paper: Option<f64>,
}

impl ErrorReport {
    /// Rows whose runs are over, with their outcomes.
    pub fn ended(&self) -> impl Iterator<Item = (&Row, &RowOutcome)> {
        self.rows().filter_map(|(row, outcome)| Some((row, outcome?)))
    }

    /// Every trial of every run that is over.
    pub fn comparisons(&self) -> Vec<Comparison<'_>> {
        let unit = self.protocol.unit;
        let of_row = |(row, outcome): (_, _)| comparisons(row, outcome, unit);
        self.ended().flat_map(of_row).collect()
    }

    /// A row per run, errors in the unit of the protocol; of the best epoch too, unless there are too many to read.
    pub fn table(&self) -> Table {
        let columns = self.columns();
        let best_too = columns.len() <= 3;
        let mut head = vec!["".to_string()];
        for column in &columns {
            head.push(column_name(column));
            if best_too {
                head.push("best epoch's".into());
            }
            if self.has_paper(column) {
                head.push("paper".into());
            }
        }
        head.extend(["epochs", "best", "samples", "hours"].map(String::from));
        if let Some(goal) = self.protocol.goal {
            head.push(format!("minutes to {goal:e}"));
        }
        let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
        for (row, outcome) in self.rows() {
            let compared =
                outcome.map_or(Vec::new(), |outcome| comparisons(row, outcome, self.protocol.unit));
            let mut cells = vec![row.label.clone()];
            for column in &columns {
                let compared = compared.iter().find(|found| found.trial.is_like(column));
                cells.push(self.error(compared.map(|found| found.last)));
                if best_too {
                    cells.push(self.error(compared.map(|found| found.best)));
                }
                if self.has_paper(column) {
                    cells.push(paper(row, column).map_or("-".into(), |paper| format!("{paper:.3}")));
                }
            }
            cells.extend(match outcome {
                None => ["not run", "", "", ""].map(String::from),
                Some(RowOutcome { history, epochs, samples, seconds, .. }) => [
                    format!("{} of {epochs}", history.epochs.len()),
                    history.best().map_or("-".into(), |best| best.epoch.to_string()),
                    samples.to_string(),
                    // A run that came here from elsewhere has no clock.
                    seconds.map_or("-".into(), |seconds| format!("{:.2}", seconds / 3600.0)),
                ],
            });
            if self.protocol.goal.is_some() {
                cells.push(match outcome {
                    None => String::new(),
                    Some(outcome) => outcome
                        .seconds_to_goal()
                        .map_or("-".into(), |seconds| format!("{:.1}", seconds / 60.0)),
                });
            }
            table.row(cells);
        }
        table
    }

    /// All numbers.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "row,grid,noise,relative_l2_last,relative_l2_best,paper,best_epoch,epochs,samples,seconds,seconds_to_goal,diverged\n",
        );
        let word = |error: Option<f64>| error.map_or(String::new(), |error| format!("{error:e}"));
        let whole = |seconds: Option<f64>| seconds.map_or(String::new(), |seconds| format!("{seconds:.0}"));
        for Comparison { row, outcome, trial, last, best, paper } in self.comparisons() {
            let RowOutcome { history, samples, seconds, .. } = outcome;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{samples},{},{},{}",
                row.id,
                trial.grid,
                trial.noise,
                word(last),
                word(best),
                word(paper),
                history.best().map_or(0, |best| best.epoch),
                history.epochs.len(),
                whole(*seconds),
                whole(outcome.seconds_to_goal()),
                history.diverged
            );
        }
        text
    }

    /// In Markdown, for a folder with `table.csv`, `config/` and `figures/`: `convergence.svg` there, and the named pictures. `origin` says
    /// how and where the runs were made.
    pub fn readme(&self, origin: &str, pictures: &[String]) -> String {
        let mut text = format!("# {}\n\n", self.protocol.title);
        let unit = libm::log10(self.protocol.unit).round();
        let _ = writeln!(text, "{origin}");
        let _ = writeln!(
            text,
            "Mean relative L² errors of the test samples in units of 1e{unit}, after the last epoch and, here or in `table.csv`, after the epoch \
             with the smallest error on the validation samples, which are not test samples. Data are generated from the paper's law, not the paper's \
             files. Numbers of the paper are its own: the best epoch on its test samples, trained on the grid of its column heading in the \
             paper. Hours are those of training, on a machine that may have had other work.\n"
        );
        if let Some(goal) = self.protocol.goal {
            let _ = writeln!(
                text,
                "Minutes to {goal:e} are those until the end of the first epoch from which on the validation error is no larger.\n"
            );
        }
        text.push_str(&self.table().markdown());
        text.push_str("\n![validation errors](figures/convergence.svg)\n\n");
        for name in pictures {
            let _ = writeln!(text, "![{name}](figures/{name}.png)\n");
        }
        text.push_str("Configurations are in `config/`, all numbers in `table.csv`.\n");
        let missing: Vec<_> =
            self.rows().filter(|(_, outcome)| outcome.is_none()).map(|(row, _)| row.id.as_str()).collect();
        if !missing.is_empty() {
            let _ = writeln!(text, "Not run: {}.", missing.join(", "));
        }
        text
    }

    fn rows(&self) -> impl Iterator<Item = (&Row, Option<&RowOutcome>)> {
        self.protocol.rows.iter().zip(self.outcomes.iter().map(Option::as_ref))
    }

    /// Everything that some row is evaluated on.
    fn columns(&self) -> Vec<Trial> {
        let mut columns: Vec<Trial> = Vec::new();
        for trial in self.protocol.rows.iter().flat_map(|row| &row.trials) {
            if !columns.iter().any(|known| known.is_like(trial)) {
                columns.push(*trial);
            }
        }
        columns.sort_by(|a, b| a.grid.cmp(&b.grid).then(a.noise.total_cmp(&b.noise)));
        columns
    }

    fn has_paper(&self, column: &Trial) -> bool {
        self.protocol.rows.iter().any(|row| paper(row, column).is_some())
    }

    /// In the unit of the protocol; nothing of runs that are not over and of trials they do not have.
    fn error(&self, found: Option<Option<f64>>) -> String {
        match found {
            None => "-".into(),
            Some(None) => "diverged".into(),
            Some(Some(error)) => format!("{:.3}", error / self.protocol.unit),
        }
    }
}

fn comparisons<'a>(row: &'a Row, outcome: &'a RowOutcome, unit: f64) -> Vec<Comparison<'a>> {
    let compare = |(at, trial): (usize, &'a Trial)| Comparison {
        row,
        outcome,
        trial,
        last: outcome.last.get(at).copied(),
        best: outcome.best.get(at).copied(),
        paper: trial.paper.map(|paper| paper * unit),
    };
    row.trials.iter().enumerate().map(compare).collect()
}

/// In the unit of the protocol.
fn paper(row: &Row, column: &Trial) -> Option<f64> {
    row.trials.iter().find(|trial| trial.is_like(column)).and_then(|trial| trial.paper)
}

fn column_name(trial: &Trial) -> String {
    match trial.noise {
        0.0 => format!("n = {}", trial.grid),
        noise => format!("n = {}, ε = {noise}", trial.grid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Scale};
    use galerkin::clock::Reached;
    use galerkin_data::clock::Spent;

    /// One run that is over, one that diverged in its first epoch, and the others not run.
    fn report() -> ErrorReport {
        let mut protocol = Experiment::Burgers.protocol(Scale::Quick).unwrap();
        protocol.rows.truncate(3);
        let diverged = RowOutcome {
            history: Default::default(),
            epochs: 6,
            samples: 128,
            seconds: None,
            reached: None,
            last: vec![],
            best: vec![],
        };
        let ended = RowOutcome {
            seconds: Some(1800.0),
            reached: Some(Reached {
                epoch: 4,
                step: 64,
                spent: Some(Spent { seconds: 1230.0, cpu_seconds: None, threads: 2 }),
            }),
            last: vec![2e-3, 3e-3],
            best: vec![1e-3, 4e-3],
            ..diverged.clone()
        };
        ErrorReport { protocol, outcomes: vec![Some(ended), Some(diverged), None] }
    }

    #[test]
    fn errors_stand_beside_the_papers() {
        let report = report();
        let expected = "\
|  | n = 128 | best epoch's | paper | n = 512 | best epoch's | epochs | best | samples | hours | minutes to 1.2e-3 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| FNO1d | 2.000 | 1.000 | 4.373 | 3.000 | 4.000 | 0 of 6 | - | 128 | 0.50 | 20.5 |
| FT, regular norm | diverged | diverged | 1.400 | diverged | diverged | 0 of 6 | - | 128 | - | - |
| GT, regular norm | - | - | 2.181 | - | - | not run |  |  |  |  |
";
        assert_eq!(report.table().markdown(), expected);
        let csv = report.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 2 + 2, "{csv}");
        assert_eq!(lines[2], "burgers-fno,512,0,3e-3,4e-3,,0,0,128,1800,1230,false");
        assert!(lines[3].starts_with("burgers-ft-residual,128,0,,,1.4e-3,"), "{csv}");
        let text = report.readme("By hand.\n", &["samples".into()]);
        assert!(text.contains("in units of 1e-3,") && text.contains("![samples](figures/samples.png)"));
        assert!(text.ends_with("Not run: burgers-gt-residual.\n"), "{text}");
    }
}
