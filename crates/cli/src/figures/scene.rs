//! What a figure consists of: shapes, words and pictures at places in pixels, x to the right and y downwards.

use super::font;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Marks on a white sheet, the first one lowest.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    pub(super) marks: Vec<Mark>,
}

/// Everything that can be drawn.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// The inside of a polygon.
    Fill { corners: Vec<[f64; 2]>, colour: Colour, opacity: f64 },
    /// A line with round ends through points; a dot if there is one point.
    Line { points: Vec<[f64; 2]>, colour: Colour, width: f64 },
    /// Words whose baseline is at `at`.
    Text { at: [f64; 2], text: String, size: f64, colour: Colour, anchor: Anchor, upwards: bool },
    /// Cells of colour from the top left corner at `at`, row by row.
    Picture { at: [f64; 2], size: [f64; 2], cells: Cells },
}

/// Which point of a text is its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A table of colours.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    pub columns: usize,
    pub rows: usize,
    pub colours: Vec<Colour>,
}

impl Scene {
    /// An empty sheet.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width: width.ceil() as u32, height: height.ceil() as u32, marks: Vec::new() }
    }

    pub(super) fn line(&mut self, points: Vec<[f64; 2]>, colour: Colour, width: f64) {
        self.marks.push(Mark::Line { points, colour, width });
    }

    pub(super) fn fill(&mut self, corners: Vec<[f64; 2]>, colour: Colour, opacity: f64) {
        self.marks.push(Mark::Fill { corners, colour, opacity });
    }

    pub(super) fn picture(&mut self, at: [f64; 2], size: [f64; 2], cells: Cells) {
        self.marks.push(Mark::Picture { at, size, cells });
    }

    pub(super) fn text(&mut self, at: [f64; 2], anchor: Anchor, size: f64, colour: Colour, text: &str) {
        self.marks.push(Mark::Text { at, text: text.into(), size, colour, anchor, upwards: false });
    }

    /// Text that is read from below.
    pub(super) fn upward_text(&mut self, at: [f64; 2], size: f64, colour: Colour, text: &str) {
        let anchor = Anchor::Middle;
        self.marks.push(Mark::Text { at, text: text.into(), size, colour, anchor, upwards: true });
    }

    /// Text that is cut with an ellipsis where it would be wider than `most`.
    pub(super) fn short_text(
        &mut self,
        at: [f64; 2],
        anchor: Anchor,
        size: f64,
        colour: Colour,
        text: &str,
        most: f64,
    ) {
        if font::width(text, size) <= most {
            return self.text(at, anchor, size, colour, text);
        }
        let mut short: String = text.into();
        while !short.is_empty() && font::width(&short, size) + font::width("…", size) > most {
            short.pop();
        }
        self.text(at, anchor, size, colour, &format!("{}…", short.trim_end()));
    }
}

impl Anchor {
    /// How far the start of a text lies before its place, as a part of its width.
    pub fn share(self) -> f64 {
        match self {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        }
    }
}

impl Cells {
    /// The same picture with at most `columns` and `rows` cells, each the mean of those it covers, weighted by area.
    pub fn shrunk(&self, columns: usize, rows: usize) -> Cells {
        let (columns, rows) = (columns.min(self.columns), rows.min(self.rows));
        if (columns, rows) == (self.columns, self.rows) {
            return self.clone();
        }
        let across: Vec<_> = (0..columns).map(|j| cover(j, columns, self.columns)).collect();
        let mut colours = Vec::with_capacity(columns * rows);
        for i in 0..rows {
            let down = cover(i, rows, self.rows);
            colours.extend(across.iter().map(|across| self.mean(&down, across)));
        }
        Cells { columns, rows, colours }
    }

    /// The mean colour over parts of rows and columns.
    pub fn mean(&self, down: &[(usize, f64)], across: &[(usize, f64)]) -> Colour {
        let (mut sum, mut area) = ([0.0; 3], 0.0);
        for &(i, height) in down {
            for &(j, width) in across {
                let colour = self.colours[i * self.columns + j];
                for (sum, part) in sum.iter_mut().zip(colour) {
                    *sum += height * width * f64::from(part);
                }
                area += height * width;
            }
        }
        sum.map(|sum| (sum / area).round() as u8)
    }
}

/// Which of `there` cells the interval k/of … (k + 1)/of touches, with the lengths.
pub(super) fn cover(k: usize, of: usize, there: usize) -> Vec<(usize, f64)> {
    let cells = there as f64 / of as f64;
    covered(k as f64 * cells, (k + 1) as f64 * cells, there)
}

/// Which of `there` unit cells the interval touches, with the lengths; at least one.
pub(super) fn covered(start: f64, end: f64, there: usize) -> Vec<(usize, f64)> {
    let last = there - 1;
    let first = (start.max(0.0) as usize).min(last);
    let touched = first..=(end.max(0.0).ceil() as usize).saturating_sub(1).clamp(first, last);
    let mut parts: Vec<_> = touched
        .map(|cell| (cell, end.min(cell as f64 + 1.0) - start.max(cell as f64)))
        .filter(|(_, length)| *length > 0.0)
        .collect();
    if parts.is_empty() {
        parts.push((first, 1.0));
    }
    parts
}
