//! Samples on a line: input, target and prediction over x.

use super::axis::Axis;
use super::chart::{Frame, NORMAL, SMALL, Stroke, TITLE, legend};
use super::colour::{BLACK, LINES};
use super::scene::{Anchor, Scene};

/// Curves of some samples over a grid.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// Above everything.
    pub title: &'a str,
    /// What the horizontal axis shows.
    pub x_label: &'a str,
    /// What the curves show.
    pub y_label: &'a str,
    /// Names of the input and of the target, for the legend.
    pub names: [&'a str; 2],
    /// From where to where the horizontal axis goes.
    pub ends: [f64; 2],
    /// The grid.
    pub x: &'a [f64],
    /// The samples, from top to bottom.
    pub rows: Vec<LineRow<'a>>,
}

/// Values of a sample at the points of the grid.
#[derive(Clone, Debug)]
pub struct LineRow<'a> {
    /// Above the row.
    pub title: String,
    /// What a model is given.
    pub input: &'a [f32],
    /// What it is to find.
    pub target: &'a [f32],
    /// What it finds; a panel with the difference stands beside.
    pub prediction: Option<&'a [f32]>,
}

const LEFT: f64 = 86.0;
const WIDE: f64 = 820.0;
const NARROW: f64 = 560.0;
const ROW: f64 = 190.0;
const GAP: f64 = 56.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 66.0;

/// A row of panels per sample.
pub fn lines(figure: &Lines) -> Scene {
    let errors = figure.rows.iter().any(|row| row.prediction.is_some());
    let main = if errors { NARROW } else { WIDE };
    let width = LEFT + main + if errors { LEFT + 20.0 + main } else { 0.0 } + 30.0;
    let rows = figure.rows.len().max(1) as f64;
    let mut scene = Scene::new(width, TOP + rows * ROW + (rows - 1.0) * GAP + BOTTOM);
    scene.short_text([LEFT, 34.0], Anchor::Start, TITLE, BLACK, figure.title, width - LEFT - 10.0);
    let [input, target, prediction] = strokes();
    let mut entries = vec![(figure.names[0], input), (figure.names[1], target)];
    if errors {
        entries.push(("prediction", prediction));
    }
    legend(&mut scene, [LEFT, 64.0], &entries);
    if figure.rows.is_empty() {
        scene.text([LEFT, TOP + 40.0], Anchor::Start, NORMAL, BLACK, "no samples");
    }
    for (at, row) in figure.rows.iter().enumerate() {
        let top = TOP + at as f64 * (ROW + GAP);
        let last = at + 1 == figure.rows.len();
        draw_row(&mut scene, figure, row, top, main, last);
    }
    scene
}

fn strokes() -> [Stroke; 3] {
    [Stroke::solid(LINES[5], 1.8), Stroke::solid(LINES[0], 2.4), Stroke::dashed(LINES[1], 1.8)]
}

fn draw_row(scene: &mut Scene, figure: &Lines, row: &LineRow, top: f64, width: f64, last: bool) {
    let x_axis = Axis::exact(figure.ends);
    let all = [Some(row.input), Some(row.target), row.prediction].into_iter().flatten().flatten();
    let y_axis = Axis::roomy(all.map(|v| f64::from(*v)));
    let x_label = last.then_some(figure.x_label);
    let main = Frame { left: LEFT, top, width, height: ROW, x: x_axis.clone(), y: y_axis };
    main.draw_x(scene, &main.x.ticks(6), x_label, true);
    main.draw_y(scene, &main.y.ticks(4), Some(figure.y_label), true);
    scene.short_text([main.left + 4.0, top - 7.0], Anchor::Start, SMALL, BLACK, &row.title, width - 4.0);
    let curves = [Some(row.input), Some(row.target), row.prediction];
    for (values, stroke) in curves.into_iter().zip(strokes()) {
        let values = values.unwrap_or(&[]);
        main.curve(scene, figure.x.iter().copied().zip(values.iter().map(|v| f64::from(*v))), stroke);
    }
    main.outline(scene);

    let Some(prediction) = row.prediction else { return };
    let error: Vec<f64> =
        prediction.iter().zip(row.target).map(|(p, u)| f64::from(*p) - f64::from(*u)).collect();
    let y_axis = Axis::roomy(error.iter().copied());
    let side = Frame { left: main.right() + LEFT + 20.0, top, width, height: ROW, x: x_axis, y: y_axis };
    side.draw_x(scene, &side.x.ticks(6), x_label, true);
    side.draw_y(scene, &side.y.ticks(4), None, true);
    scene.text([side.left + 4.0, top - 7.0], Anchor::Start, SMALL, BLACK, "prediction − target");
    side.curve(scene, figure.x.iter().copied().zip(error), Stroke::solid(LINES[1], 1.8));
    side.outline(scene);
}
