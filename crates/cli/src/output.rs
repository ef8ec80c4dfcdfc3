//! Words and tables for people.

use std::io::{self, Write};

use galerkin_data::{Domain, Meta};

/// Columns as wide as their widest cell.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With names of the columns.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).into()).collect()] }
    }

    /// One more row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// For a file in Markdown.
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let line = |row: &[String]| {
            let cells = (0..columns).map(|at| row.get(at).map_or("", String::as_str));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut lines = self.rows.iter().map(|row| line(row));
        let head = lines.next().unwrap_or_default();
        format!("{head}{}{}", line(&vec!["---".to_string(); columns]), lines.collect::<String>())
    }

    /// Two spaces before every line and between columns, none at the end.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let length = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
        let widths: Vec<_> =
            (0..columns).map(|at| self.rows.iter().map(|row| length(row, at)).max().unwrap_or(0)).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("  {cell:<width$}"));
            writeln!(out, "{}", cells.collect::<String>().trim_end())?;
        }
        Ok(())
    }
}

/// A dataset in a line.
pub fn summary(meta: &Meta) -> String {
    let channels = match (meta.inputs.len(), meta.targets.len()) {
        (1, 1) => String::new(),
        (inputs, targets) => format!(", {inputs} channels to {targets}"),
    };
    let place = match &meta.domain {
        Domain::Grid(grid) => format!("{} points", sizes(&grid.points())),
        points => points.to_string(),
    };
    format!("{} samples on {place}{channels}", meta.samples)
}

/// `421 × 421`.
pub fn sizes(points: &[usize]) -> String {
    points.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
}

/// Millions of bytes.
pub fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    let decimals = match megabytes {
        small if small < 0.995 => 2,
        some if some < 9.95 => 1,
        _ => 0,
    };
    format!("{megabytes:.decimals$} MB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "n"]);
        table.row(vec!["a".into(), "1024".into()]);
        table.row(vec!["π·τ".into()]);
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "  name  n\n  a     1024\n  π·τ\n");
        assert_eq!(table.markdown(), "| name | n |\n| --- | --- |\n| a | 1024 |\n| π·τ |  |\n");
    }

    #[test]
    fn megabytes_are_millions_of_bytes() {
        let shown = [81_920, 1_156_000, 73_662_464, 1_593_747_872].map(megabytes);
        assert_eq!(shown, ["0.08 MB", "1.2 MB", "74 MB", "1594 MB"]);
    }
}
