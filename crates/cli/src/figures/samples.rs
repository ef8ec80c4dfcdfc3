//! Samples of any dataset: several channels, on lines, planes, in space, at scattered points.

use super::axis::Axis;
use super::chart::{NORMAL, SMALL, Stroke, TITLE, legend};
use super::colour::{BLACK, Colours, LINES};
use super::font;
use super::image::{Field, FieldRow, fields};
use super::line::{LineRow, Lines, lines};
use super::scene::{Anchor, Scene};
use super::tile::{self, MOST_DOTS, Scale, Tile};

/// Where values lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place<'a> {
    /// On a line.
    Line {
        /// The grid.
        x: &'a [f64],
        /// From where to where the axis goes.
        ends: [f64; 2],
        /// What the axis is called.
        name: &'a str,
    },
    /// On a grid of a rectangle, row by row. The first axis is drawn upwards, the second across.
    Plane {
        /// Points of every axis.
        points: [usize; 2],
        /// Lengths of the sides, which give the picture its shape.
        lengths: [f64; 2],
        /// What the axes are called.
        names: [&'a str; 2],
    },
    /// On a grid of a box, of which three slices through the middle are drawn.
    Volume {
        /// Points of every axis.
        points: [usize; 3],
        /// Lengths of the sides.
        lengths: [f64; 3],
        /// What the axes are called.
        names: [&'a str; 3],
    },
    /// At scattered points: markers over x in one dimension, dots or filled cells in two, projected dots in three.
    Points {
        /// (points, dimension) coordinates.
        coordinates: &'a [f32],
        /// Coordinates of a point.
        dimension: usize,
        /// (cells, corners) indices of points, around every cell; may be empty.
        cells: &'a [u32],
        /// Corners of a cell.
        corners: usize,
    },
}

/// One channel of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it is called.
    pub name: String,
    /// A value per point.
    pub values: Vec<f32>,
}

/// Input, target and prediction of a sample.
#[derive(Clone, Debug)]
pub struct SampleRow<'a> {
    /// Above or beside the row.
    pub title: String,
    /// Where the inputs lie.
    pub input_place: Place<'a>,
    /// What a model is given, by channel.
    pub inputs: Vec<Panel>,
    /// Where the targets lie, and the predictions.
    pub target_place: Place<'a>,
    /// What it is to find, by channel.
    pub targets: Vec<Panel>,
    /// What it finds, channel by channel as the targets; drawn on their scales, with the differences beside.
    pub predictions: Option<Vec<Panel>>,
}

/// The most channels of a side that are drawn.
const MOST_CHANNELS: usize = 4;

/// A block of panels per sample, a line per channel and slice. What [`lines`] and [`fields`] can draw looks as they draw it:
/// one channel on one line, and one channel on a unit square whose axes are `["y", "x"]`.
pub fn samples(title: &str, rows: &[SampleRow]) -> Scene {
    if let Some(scene) = as_lines(title, rows).or_else(|| as_fields(title, rows)) {
        return scene;
    }
    let plain = rows.iter().all(|row| row.is_single() && row.names() == rows[0].names());
    let most = rows.iter().map(SampleRow::lines).max().unwrap_or(1);
    let side = [230.0, 180.0, 180.0].get(most - 1).copied().unwrap_or(140.0);
    let blocks: Vec<Block> = rows.iter().map(|row| block(row, plain, side)).collect();
    draw(title, &notes(rows), &blocks)
}

/// One channel each on the same line.
fn as_lines(title: &str, rows: &[SampleRow]) -> Option<Scene> {
    let first = rows.first()?;
    let Place::Line { x, ends, name } = first.input_place else { return None };
    let alike = |row: &SampleRow| {
        let places = [row.input_place, row.target_place];
        places == [first.input_place; 2] && row.is_single() && row.names() == first.names()
    };
    if !rows.iter().all(alike) {
        return None;
    }
    let rows = rows.iter().map(|row| LineRow {
        title: row.title.clone(),
        input: &row.inputs[0].values,
        target: &row.targets[0].values,
        prediction: row.predictions.as_ref().map(|panels| &panels[0].values[..]),
    });
    let names = first.names();
    Some(lines(&Lines { title, x_label: name, y_label: "u", names, ends, x, rows: rows.collect() }))
}

/// One channel each on the unit square, or nothing at all.
fn as_fields(title: &str, rows: &[SampleRow]) -> Option<Scene> {
    let names = rows.first().map_or(["input", "target"], SampleRow::names);
    let columns = |place: &Place| match place {
        Place::Plane { points, lengths: [1.0, 1.0], names: ["y", "x"] } => Some(points[1]),
        _ => None,
    };
    let row = |row: &'_ SampleRow| {
        let (across, target) = (columns(&row.input_place)?, columns(&row.target_place)?);
        (row.is_single() && row.names() == names).then_some([across, target])
    };
    let columns = rows.iter().map(row).collect::<Option<Vec<_>>>()?;
    let rows: Vec<_> = rows
        .iter()
        .zip(columns)
        .map(|(row, [input, target])| FieldRow {
            title: row.title.clone(),
            input: Field { columns: input, values: &row.inputs[0].values },
            target: Field { columns: target, values: &row.targets[0].values },
            prediction: row
                .predictions
                .as_ref()
                .map(|panels| Field { columns: target, values: &panels[0].values }),
        })
        .collect();
    Some(fields(title, names, &rows))
}

impl SampleRow<'_> {
    /// Whether every side has one channel.
    fn is_single(&self) -> bool {
        let counts =
            [Some(self.inputs.len()), Some(self.targets.len()), self.predictions.as_ref().map(Vec::len)];
        counts.into_iter().flatten().all(|count| count == 1)
    }

    /// Of the first channels.
    fn names(&self) -> [&str; 2] {
        [&self.inputs, &self.targets].map(|panels| panels.first().map_or("", |panel| &panel.name))
    }

    /// Panels over each other.
    fn lines(&self) -> usize {
        let lines = |place: &Place, panels: &[Panel]| {
            let slices = if let Place::Volume { .. } = place { 3 } else { 1 };
            slices * panels.len().clamp(1, MOST_CHANNELS)
        };
        lines(&self.input_place, &self.inputs).max(lines(&self.target_place, &self.targets))
    }
}

/// What is not drawn, in words.
fn notes(rows: &[SampleRow]) -> String {
    let mut notes = Vec::new();
    let inputs = rows.iter().map(|row| row.inputs.len()).max();
    let targets = rows.iter().map(|row| row.targets.len()).max();
    for (side, channels) in [("input", inputs), ("target", targets)] {
        if let Some(channels) = channels.filter(|channels| *channels > MOST_CHANNELS) {
            notes.push(format!("{MOST_CHANNELS} of {channels} {side} channels"));
        }
    }
    let places = rows.iter().flat_map(|row| [row.input_place, row.target_place]);
    let thinned: Vec<usize> = places.filter_map(|place| tile::thinned(&place)).collect();
    if let (Some(least), Some(most)) = (thinned.iter().min(), thinned.iter().max()) {
        let up_to = if least < most { "up to " } else { "" };
        notes.push(format!("{MOST_DOTS} of {up_to}{most} points"));
    }
    if notes.is_empty() { String::new() } else { format!("drawn: {}", notes.join(", ")) }
}

/// The panels of a sample.
struct Block {
    title: String,
    columns: Vec<Column>,
    /// Whether a prediction is drawn over a target.
    overlaid: bool,
}

struct Column {
    header: String,
    tiles: Vec<Tile>,
}

const INPUT: Stroke = Stroke { colour: LINES[5], width: 1.8, dashed: false };
const TARGET: Stroke = Stroke { colour: LINES[0], width: 2.4, dashed: false };
const PREDICTION: Stroke = Stroke { colour: LINES[1], width: 1.8, dashed: true };
const DIFFERENCE: Stroke = Stroke { colour: LINES[1], width: 1.8, dashed: false };

/// With `plain`, names of channels are those of columns.
fn block(row: &SampleRow, plain: bool, side: f64) -> Block {
    let header = |name: &str, words: &str| if plain { name.into() } else { words.to_string() };
    let title = |panel: &Panel| if plain { String::new() } else { panel.name.clone() };
    // A side without channels has a panel that says so.
    let nothing = [Panel { name: String::new(), values: Vec::new() }];
    let drawn = |panels: &[Panel]| -> Vec<Panel> {
        if panels.is_empty() { &nothing } else { &panels[..panels.len().min(MOST_CHANNELS)] }.to_vec()
    };
    let [input_name, target_name] = row.names();

    let place = &row.input_place;
    let inputs = drawn(&row.inputs);
    let tiles = inputs.iter().flat_map(|panel| {
        if tile::is_curve(place) {
            return vec![tile::curves(place, &title(panel), side, &[(&panel.values, INPUT)])];
        }
        tile::pictures(place, &title(panel), side, &panel.values, &sequential(&[&panel.values]))
    });
    let mut columns = vec![Column { header: header(input_name, "input"), tiles: tiles.collect() }];

    let place = &row.target_place;
    let (targets, predictions) = (drawn(&row.targets), row.predictions.as_deref().map(drawn));
    let overlaid = tile::is_curve(place) && predictions.is_some();
    let mut column = |header: String| columns.push(Column { header, tiles: Vec::new() });
    column(header(target_name, "target"));
    if predictions.is_some() {
        if !overlaid {
            column("prediction".into());
        }
        column("prediction − target".into());
    }
    for (k, target) in targets.iter().enumerate() {
        let (name, values) = (title(target), &target.values[..]);
        let prediction = predictions.as_ref().and_then(|panels| panels.get(k)).map(|panel| &panel.values[..]);
        let difference: Option<Vec<f32>> =
            prediction.map(|found| found.iter().zip(values).map(|(p, u)| p - u).collect());
        if tile::is_curve(place) {
            let both: Vec<_> =
                [(values, TARGET)].into_iter().chain(prediction.map(|p| (p, PREDICTION))).collect();
            columns[1].tiles.push(tile::curves(place, &name, side, &both));
            let difference = difference.map(|d| tile::curves(place, &name, side, &[(&d, DIFFERENCE)]));
            columns.last_mut().expect("two columns").tiles.extend(difference);
            continue;
        }
        let scale = sequential(&[values, prediction.unwrap_or(&[])]);
        columns[1].tiles.extend(tile::pictures(place, &name, side, values, &scale));
        if let (Some(prediction), Some(difference)) = (prediction, difference) {
            columns[2].tiles.extend(tile::pictures(place, &name, side, prediction, &scale));
            let axis = Axis::symmetric(difference.iter().map(|v| f64::from(*v)));
            let scale = Scale { axis, colours: Colours::Diverging };
            columns[3].tiles.extend(tile::pictures(place, &name, side, &difference, &scale));
        }
    }
    Block { title: row.title.clone(), columns, overlaid }
}

/// One scale for all.
fn sequential(functions: &[&[f32]]) -> Scale {
    let values = functions.iter().flat_map(|values| values.iter().map(|v| f64::from(*v)));
    Scale { axis: Axis::exact(values), colours: Colours::Sequential }
}

const EDGE: f64 = 20.0;
const BETWEEN: f64 = 26.0;

fn draw(title: &str, notes: &str, blocks: &[Block]) -> Scene {
    let tile = |block: usize, line: usize, column: usize| -> Option<&Tile> {
        blocks.get(block)?.columns.get(column)?.tiles.get(line)
    };
    let lines = |block: usize| blocks[block].columns.iter().map(|c| c.tiles.len()).max().unwrap_or(0);
    // Axes are drawn where the neighbour does not have the same.
    let with_x = |block: usize, line: usize, column: usize| {
        let below =
            if line + 1 < lines(block) { tile(block, line + 1, column) } else { tile(block + 1, 0, column) };
        tile(block, line, column).is_some_and(|t| t.has_x() && !below.is_some_and(|below| t.shares_x(below)))
    };
    let with_y = |block: usize, line: usize, column: usize| {
        let left = column.checked_sub(1).and_then(|left| tile(block, line, left));
        tile(block, line, column).is_some_and(|t| !left.is_some_and(|left| t.shares_y(left)))
    };

    // Across: room for vertical axes, then panels.
    let count = blocks.iter().map(|block| block.columns.len()).max().unwrap_or(0);
    let mut lefts = Vec::new();
    let mut right = EDGE;
    for column in 0..count {
        let (mut room, mut width): (f64, f64) = (0.0, 0.0);
        for (b, block) in blocks.iter().enumerate() {
            for (line, tile) in block.columns.get(column).map_or(&[][..], |c| &c.tiles).iter().enumerate() {
                room = room.max(if with_y(b, line, column) { tile.left_room() } else { 0.0 });
                width = width.max(tile.whole_width());
            }
        }
        lefts.push(right + room);
        right += room + width + BETWEEN;
    }
    let left = lefts.first().copied().unwrap_or(EDGE);
    let overlaid = blocks.iter().any(|block| block.overlaid);
    let width = right.max(left + font::width(notes, SMALL) + EDGE);

    // Downwards: words, then every line with room for its title, and for its axes if it has any.
    let mut top = 34.0;
    let notes_at = top + 23.0;
    top += if notes.is_empty() { 0.0 } else { 23.0 };
    let legend_at = top + 28.0;
    top += if overlaid { 28.0 } else { 0.0 };
    let header_at = top + 34.0;
    top = header_at + 8.0;
    let mut tops = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        top += 22.0;
        let title_at = top;
        let mut places = Vec::new();
        for line in 0..lines(b) {
            let there = || (0..count).filter_map(|column| tile(b, line, column));
            let titled = there().any(|tile| !tile.title.is_empty());
            top += if titled { 42.0 } else { 24.0 } + if titled && line == 0 { 6.0 } else { 0.0 };
            places.push(top);
            let axes = (0..count).any(|column| with_x(b, line, column));
            let numbers = there().any(|tile| tile.has_numbers());
            top += there().fold(0.0, |most: f64, tile| most.max(tile.height));
            top += if axes {
                50.0
            } else if numbers {
                26.0
            } else {
                0.0
            };
        }
        tops.push((title_at, places));
        top += if b + 1 < blocks.len() && !block.title.is_empty() { 14.0 } else { 4.0 };
    }

    let mut scene = Scene::new(width, top + 16.0);
    scene.short_text([left, 34.0], Anchor::Start, TITLE, BLACK, title, width - left - 10.0);
    scene.text([left, notes_at], Anchor::Start, SMALL, BLACK, notes);
    if overlaid {
        legend(&mut scene, [left, legend_at], &[("target", TARGET), ("prediction", PREDICTION)]);
    }
    for (column, x) in lefts.iter().enumerate() {
        let Some(first) = blocks.iter().find_map(|block| block.columns.get(column)) else { continue };
        let most = first.tiles.iter().map(Tile::whole_width).fold(0.0, f64::max) + 12.0;
        scene.short_text([*x, header_at], Anchor::Start, NORMAL, BLACK, &first.header, most);
    }
    for (b, (block, (title_at, places))) in blocks.iter().zip(&tops).enumerate() {
        let most = width - left - 10.0;
        scene.short_text([left, *title_at], Anchor::Start, NORMAL, BLACK, &block.title, most);
        for (line, top) in places.iter().enumerate() {
            for (column, left) in lefts.iter().enumerate() {
                let Some(tile) = tile(b, line, column) else { continue };
                tile.draw(&mut scene, [*left, *top], with_x(b, line, column), with_y(b, line, column));
            }
        }
    }
    scene
}
