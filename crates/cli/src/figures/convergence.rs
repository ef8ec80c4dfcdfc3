//! Errors over epochs and over resolutions.

use super::axis::{Axis, Ticks};
use super::chart::{Frame, NORMAL, Stroke, TITLE, legend};
use super::colour::{BLACK, GREY, LINES};
use super::font;
use super::scene::{Anchor, Scene};

/// What is known after an epoch of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number.
    pub epoch: f64,
    /// The error on the training data.
    pub training: f64,
    /// The error on the validation data, where it was computed.
    pub validation: Option<f64>,
    /// The learning rate.
    pub learning_rate: f64,
}

/// The error of one model on several grids.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// For the legend.
    pub name: String,
    /// From coarse to fine.
    pub points: Vec<Point>,
}

/// An error on a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Points along an axis.
    pub resolution: f64,
    /// The error; of several seeds, their mean.
    pub error: f64,
    /// The least and the greatest of several seeds.
    pub band: Option<[f64; 2]>,
}

const LEFT: f64 = 100.0;
const TOP: f64 = 96.0;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const BOTTOM: f64 = 70.0;

/// Training and validation error on a logarithmic axis, the learning rate on a second one.
pub fn convergence(title: &str, error_label: &str, history: &[Epoch]) -> Scene {
    let mut scene = sheet(title, 110.0);
    let errors = history.iter().flat_map(|e| [Some(e.training), e.validation]).flatten();
    let frame = frame(Axis::exact(history.iter().map(|e| e.epoch)), Axis::log(errors));
    let rates = Axis::roomy(history.iter().map(|e| e.learning_rate).chain([0.0]));
    frame.draw_x(&mut scene, &frame.x.ticks(8), Some("epoch"), true);
    frame.draw_y(&mut scene, &frame.y.ticks(6), Some(error_label), true);
    frame.draw_right(&mut scene, &rates, &rates.ticks(5), "learning rate", GREY);

    let rate = Stroke::dashed(GREY, 1.4);
    let training = Stroke::solid(LINES[0], 2.0);
    let validation = Stroke::solid(LINES[1], 2.0);
    let right = Frame { y: rates, x: frame.x.clone(), ..frame };
    right.curve(&mut scene, history.iter().map(|e| (e.epoch, e.learning_rate)), rate);
    frame.curve(&mut scene, history.iter().map(|e| (e.epoch, e.training)), training);
    // Epochs without a validation are no gaps: the curve joins those that have one.
    let validated = history.iter().filter_map(|e| Some((e.epoch, e.validation?)));
    frame.curve(&mut scene, validated.clone(), validation);
    frame.outline(&mut scene);
    let mut entries = vec![("training", training)];
    if validated.count() > 0 {
        entries.push(("validation", validation));
    }
    entries.push(("learning rate (right axis)", rate));
    legend(&mut scene, [LEFT, 66.0], &entries);
    note_if_empty(&mut scene, history.is_empty(), "no epochs");
    scene
}

/// Errors against resolutions, both logarithmic; ticks at the resolutions there are.
pub fn resolutions(title: &str, resolution_label: &str, error_label: &str, curves: &[Curve]) -> Scene {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let frame = frame(Axis::log(points().map(|p| p.resolution)), errors(curves));
    let ticks = grids(&frame, points());
    draw(title, [resolution_label, error_label], &frame, &ticks, 8.0, curves)
}

/// Errors of several runs over epochs, which stand in place of resolutions.
pub fn histories(title: &str, error_label: &str, curves: &[Curve]) -> Scene {
    let epochs = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.resolution));
    let frame = frame(Axis::exact(epochs), errors(curves));
    let ticks = frame.x.ticks(8);
    draw(title, ["epoch", error_label], &frame, &ticks, 0.0, curves)
}

/// The axis of all errors and their bands.
fn errors(curves: &[Curve]) -> Axis {
    let points = curves.iter().flat_map(|curve| &curve.points);
    Axis::log(points.flat_map(|p| [Some(p.error), p.band.map(|b| b[0]), p.band.map(|b| b[1])]).flatten())
}

/// Curves with their bands, and a dot at every point that wide.
fn draw(title: &str, labels: [&str; 2], frame: &Frame, ticks: &Ticks, dot: f64, curves: &[Curve]) -> Scene {
    let strokes = |k: usize| match k < LINES.len() {
        true => Stroke::solid(LINES[k], 2.0),
        false => Stroke::dashed(LINES[k % LINES.len()], 2.0),
    };
    let entries: Vec<_> = curves.iter().enumerate().map(|(k, c)| (c.name.as_str(), strokes(k))).collect();
    // Names above the curves, or beside them where they are too many for a row.
    let widths = entries.iter().map(|(name, _)| 57.0 + font::width(name, NORMAL));
    let beside = widths.clone().sum::<f64>() > WIDTH;
    let right = if beside { widths.fold(30.0, f64::max) } else { 30.0 };
    let mut scene = sheet(title, right);
    match beside {
        true => entries.iter().enumerate().for_each(|(k, entry)| {
            legend(&mut scene, [LEFT + WIDTH + 20.0, TOP + 14.0 + 24.0 * k as f64], &[*entry]);
        }),
        false => _ = legend(&mut scene, [LEFT, 66.0], &entries),
    }
    frame.draw_x(&mut scene, ticks, Some(labels[0]), true);
    frame.draw_y(&mut scene, &frame.y.ticks(6), Some(labels[1]), true);
    for (k, curve) in curves.iter().enumerate() {
        band(&mut scene, frame, curve, strokes(k));
    }
    for (k, curve) in curves.iter().enumerate() {
        frame.curve(&mut scene, curve.points.iter().map(|p| (p.resolution, p.error)), strokes(k));
        for place in curve.points.iter().filter_map(|p| frame.point(p.resolution, p.error)) {
            if dot > 0.0 {
                scene.line(vec![place], strokes(k).colour, dot);
            }
        }
    }
    frame.outline(&mut scene);
    note_if_empty(&mut scene, curves.iter().all(|curve| curve.points.is_empty()), "no errors");
    scene
}

fn sheet(title: &str, right: f64) -> Scene {
    let mut scene = Scene::new(LEFT + WIDTH + right, TOP + HEIGHT + BOTTOM);
    scene.short_text([LEFT, 34.0], Anchor::Start, TITLE, BLACK, title, WIDTH);
    scene
}

fn frame(x: Axis, y: Axis) -> Frame {
    Frame { left: LEFT, top: TOP, width: WIDTH, height: HEIGHT, x, y }
}

/// A tick at every resolution, but for those whose numbers would touch the one before.
fn grids<'a>(frame: &Frame, points: impl Iterator<Item = &'a Point>) -> Ticks {
    let mut sizes: Vec<f64> = points.map(|p| p.resolution).filter(|n| *n > 0.0 && n.is_finite()).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let mut marks = Vec::new();
    let mut free = f64::NEG_INFINITY;
    for size in sizes {
        let (label, at) = (format!("{size}"), frame.x.place(size).unwrap_or(0.0) * WIDTH);
        let half = 0.5 * font::width(&label, NORMAL) + 3.0;
        if at - half >= free {
            free = at + half;
            marks.push((size, label));
        }
    }
    Ticks { marks, factor: None }
}

/// The area between the least and the greatest error.
fn band(scene: &mut Scene, frame: &Frame, curve: &Curve, stroke: Stroke) {
    let side = |k: usize| {
        curve.points.iter().filter_map(move |p| frame.point(p.resolution, p.band?[k])).collect::<Vec<_>>()
    };
    let (mut corners, mut upper) = (side(0), side(1));
    upper.reverse();
    corners.append(&mut upper);
    if corners.len() > 3 {
        scene.fill(corners, stroke.colour, 0.2);
    }
}

fn note_if_empty(scene: &mut Scene, empty: bool, note: &str) {
    if empty {
        scene.text([LEFT + 0.5 * WIDTH, TOP + 0.5 * HEIGHT], Anchor::Middle, NORMAL, GREY, note);
    }
}
