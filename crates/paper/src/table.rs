//! Tables of words.

use galerkin_data::error::shown;
use std::io::{self, Write};

/// Columns as wide as their widest cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With names of the columns.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).into()).collect()] }
    }

    /// One more row. Its words may come from files, and a terminal would obey some of them.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| shown(cell).into_owned()).collect());
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
}
