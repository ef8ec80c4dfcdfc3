//! Fields on a square: tables of pictures with colour bars.

use super::axis::Axis;
use super::chart::{BAR, Frame, NORMAL, SMALL, TITLE, colour_bar};
use super::colour::{BLACK, Colours};
use super::scene::{Anchor, Cells, Scene};

/// Values on a grid of the unit square, row by row; rows are drawn upwards.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Points of the second axis, drawn across.
    pub columns: usize,
    /// The values; as many as make whole rows.
    pub values: &'a [f32],
}

/// Input, target and prediction of a sample.
#[derive(Clone, Debug)]
pub struct FieldRow<'a> {
    /// Beside the row.
    pub title: String,
    /// What a model is given.
    pub input: Field<'a>,
    /// What it is to find.
    pub target: Field<'a>,
    /// What it finds; drawn in the colours of the target, with the difference beside.
    pub prediction: Option<Field<'a>>,
}

/// A row per sample with the panels input, target and, where there is one, prediction and error.
pub fn fields(title: &str, names: [&str; 2], rows: &[FieldRow]) -> Scene {
    let mut columns: Vec<String> = names.map(String::from).to_vec();
    if rows.iter().any(|row| row.prediction.is_some()) {
        columns.extend(["prediction".into(), "prediction − target".into()]);
    }
    let errors: Vec<Vec<f32>> = rows.iter().map(difference).collect();
    let rows = rows.iter().zip(&errors).map(|(row, error)| {
        let solution = Axis::exact(finite([Some(row.target), row.prediction].into_iter().flatten()));
        let panel = |field, axis, colours| Panel { title: None, field, axis, colours };
        let mut panels = vec![
            panel(row.input, Axis::exact(finite([row.input])), Colours::Sequential),
            panel(row.target, solution.clone(), Colours::Sequential),
        ];
        if let Some(field) = row.prediction {
            panels.push(panel(field, solution, Colours::Sequential));
            let field = Field { columns: row.target.columns, values: error };
            panels.push(panel(field, Axis::symmetric(finite([field])), Colours::Diverging));
        }
        Row { title: row.title.clone(), panels }
    });
    table(title, &columns, &rows.collect::<Vec<_>>(), Bars::Each)
}

/// Pictures in rows and named columns, one range of colours and one bar per row: a truth and its reconstructions at several
/// levels of noise.
pub fn reconstructions(title: &str, columns: &[String], rows: &[(String, Vec<Field>)]) -> Scene {
    let rows = rows.iter().map(|(title, fields)| {
        let axis = Axis::exact(finite(fields.iter().copied()));
        let panel = |field| Panel { title: None, field, axis: axis.clone(), colours: Colours::Sequential };
        let panels = fields.iter().copied().map(panel);
        Row { title: title.clone(), panels: panels.collect() }
    });
    table(title, columns, &rows.collect::<Vec<_>>(), Bars::Last)
}

/// A picture with words above it.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// The words.
    pub title: String,
    /// What it shows.
    pub field: Field<'a>,
    /// Whether it has two signs: zero is the middle of its colours then, and white.
    pub signed: bool,
}

/// Rows of pictures, each with its own words, range of colours and bar: functions that share a grid and nothing else.
pub fn gallery(title: &str, rows: &[(String, Vec<Picture>)]) -> Scene {
    let rows = rows.iter().map(|(title, pictures)| Row {
        title: title.clone(),
        panels: pictures.iter().map(Picture::panel).collect(),
    });
    table(title, &[], &rows.collect::<Vec<_>>(), Bars::Each)
}

struct Row<'a> {
    title: String,
    panels: Vec<Panel<'a>>,
}

struct Panel<'a> {
    /// Where the name of the column does not say it.
    title: Option<String>,
    field: Field<'a>,
    axis: Axis,
    colours: Colours,
}

/// Which panels have a colour bar.
#[derive(Clone, Copy, PartialEq)]
enum Bars {
    Each,
    Last,
}

const LEFT: f64 = 92.0;
const SIDE: f64 = 230.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 62.0;
const DOWN: f64 = 30.0;

fn table(title: &str, columns: &[String], rows: &[Row], bars: Bars) -> Scene {
    // Without bars between them, panels stand apart by the numbers at the ends of their axes.
    let across = SIDE + if bars == Bars::Each { 26.0 + BAR } else { 34.0 };
    let most = rows.iter().map(|row| row.panels.len()).fold(columns.len().max(1), usize::max);
    let width = LEFT + most as f64 * across + if bars == Bars::Last { BAR } else { 0.0 };
    let count = rows.len().max(1) as f64;
    let mut scene = Scene::new(width, TOP + count * SIDE + (count - 1.0) * DOWN + BOTTOM);
    scene.short_text([LEFT, 34.0], Anchor::Start, TITLE, BLACK, title, width - LEFT - 10.0);
    if rows.is_empty() {
        scene.text([LEFT, TOP + 40.0], Anchor::Start, NORMAL, BLACK, "no samples");
    }
    for (at, name) in columns.iter().enumerate() {
        let middle = LEFT + at as f64 * across + 0.5 * SIDE;
        scene.short_text([middle, TOP - 20.0], Anchor::Middle, NORMAL, BLACK, name, across - 4.0);
    }
    for (i, row) in rows.iter().enumerate() {
        let top = TOP + i as f64 * (SIDE + DOWN);
        scene.upward_text([22.0, top + 0.5 * SIDE], NORMAL, BLACK, &row.title);
        for (j, panel) in row.panels.iter().enumerate() {
            let left = LEFT + j as f64 * across;
            draw_panel(&mut scene, panel, [left, top], j == 0, i + 1 == rows.len());
            if let Some(title) = &panel.title {
                let at = [left + 0.5 * SIDE, top - 9.0];
                scene.short_text(at, Anchor::Middle, SMALL, BLACK, title, SIDE);
            }
            if bars == Bars::Each || j + 1 == row.panels.len() {
                colour_bar(&mut scene, [left + SIDE + 10.0, top], SIDE, &panel.axis, panel.colours);
            }
        }
    }
    scene
}

fn draw_panel(scene: &mut Scene, panel: &Panel, [left, top]: [f64; 2], first: bool, last: bool) {
    let unit = Axis::exact([0.0, 1.0]);
    let frame = Frame { left, top, width: SIDE, height: SIDE, x: unit.clone(), y: unit };
    scene.picture([left, top], [SIDE, SIDE], panel.cells());
    frame.outline(scene);
    let ticks = frame.x.ticks(2);
    if last {
        frame.draw_x(scene, &ticks, Some("x"), false);
    }
    if first {
        frame.draw_y(scene, &ticks, Some("y"), false);
    }
    if panel.field.values.is_empty() {
        scene.text([left + 0.5 * SIDE, top + 0.5 * SIDE], Anchor::Middle, SMALL, BLACK, "no values");
    }
}

impl<'a> Picture<'a> {
    fn panel(&self) -> Panel<'a> {
        let values = finite([self.field]);
        let (axis, colours) = match self.signed {
            true => (Axis::symmetric(values), Colours::Diverging),
            false => (Axis::exact(values), Colours::Sequential),
        };
        Panel { title: Some(self.title.clone()), field: self.field, axis, colours }
    }
}

impl Panel<'_> {
    fn cells(&self) -> Cells {
        let columns = self.field.columns.max(1);
        let whole = self.field.values.chunks_exact(columns);
        let rows = whole.len();
        let colour = |v: &f32| self.colours.at(self.axis.place(f64::from(*v)).unwrap_or(f64::NAN));
        Cells { columns, rows, colours: whole.rev().flatten().map(colour).collect() }
    }
}

fn finite<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> impl Iterator<Item = f64> {
    fields.into_iter().flat_map(|field| field.values.iter().map(|v| f64::from(*v)))
}

fn difference(row: &FieldRow) -> Vec<f32> {
    let prediction = row.prediction.map_or(&[][..], |field| field.values);
    prediction.iter().zip(row.target.values).map(|(p, u)| p - u).collect()
}
