//! The parts all charts have: frames with axes, curves, legends, colour bars.

use super::axis::{Axis, Ticks};
use super::colour::{BLACK, Colours, GREY, PALE};
use super::font;
use super::scene::{Anchor, Cells, Colour, Scene};

/// Sizes of text in pixels.
pub(super) const SMALL: f64 = 13.0;
pub(super) const NORMAL: f64 = 15.0;
pub(super) const TITLE: f64 = 18.0;

/// Heights of digits and of lower-case letters with respect to the size of a font, to centre text on a line.
const HALF_DIGIT: f64 = 0.365;

/// A rectangle with axes.
pub(super) struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Axis,
    pub y: Axis,
}

/// How a curve looks.
#[derive(Clone, Copy)]
pub(super) struct Stroke {
    pub colour: Colour,
    pub width: f64,
    pub dashed: bool,
}

impl Frame {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Where a point of the chart lies in the scene; `None` if it has no place on an axis.
    pub fn point(&self, x: f64, y: f64) -> Option<[f64; 2]> {
        Some([self.left + self.x.place(x)? * self.width, self.bottom() - self.y.place(y)? * self.height])
    }

    /// The four sides.
    pub fn outline(&self, scene: &mut Scene) {
        let (left, top, right, bottom) = (self.left, self.top, self.right(), self.bottom());
        // Half pixels make lines of one pixel sharp.
        let corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]];
        scene.line(corners.map(|corner| corner.map(|place| place.round() - 0.5)).to_vec(), GREY, 1.0);
    }

    /// Ticks, numbers and lines across for the horizontal axis; its label below, if any.
    pub fn draw_x(&self, scene: &mut Scene, ticks: &Ticks, label: Option<&str>, grid: bool) {
        let bottom = self.bottom();
        for (value, text) in &ticks.marks {
            let Some(place) = self.x.place(*value) else { continue };
            let x = (self.left + place * self.width).round() - 0.5;
            if grid {
                scene.line(vec![[x, self.top], [x, bottom]], PALE, 1.0);
            }
            scene.line(vec![[x, bottom], [x, bottom + 4.0]], GREY, 1.0);
            scene.text([x, bottom + 8.0 + SMALL], Anchor::Middle, SMALL, BLACK, text);
        }
        if let Some(factor) = &ticks.factor {
            scene.text([self.right(), bottom + 2.4 * SMALL + 8.0], Anchor::End, SMALL, BLACK, factor);
        }
        if let Some(label) = label {
            let at = [self.left + 0.5 * self.width, bottom + 2.4 * SMALL + 10.0];
            scene.text(at, Anchor::Middle, NORMAL, BLACK, label);
        }
    }

    /// The same for the vertical axis, on the left.
    pub fn draw_y(&self, scene: &mut Scene, ticks: &Ticks, label: Option<&str>, grid: bool) {
        let mut widest: f64 = 0.0;
        for (value, text) in &ticks.marks {
            let Some(place) = self.y.place(*value) else { continue };
            let y = (self.bottom() - place * self.height).round() - 0.5;
            if grid {
                scene.line(vec![[self.left, y], [self.right(), y]], PALE, 1.0);
            }
            scene.line(vec![[self.left - 4.0, y], [self.left, y]], GREY, 1.0);
            scene.text([self.left - 7.0, y + HALF_DIGIT * SMALL], Anchor::End, SMALL, BLACK, text);
            widest = widest.max(font::width(text, SMALL));
        }
        if let Some(factor) = &ticks.factor {
            scene.text([self.left, self.top - 5.0], Anchor::End, SMALL, BLACK, factor);
        }
        if let Some(label) = label {
            let at = [self.left - widest - 14.0, self.top + 0.5 * self.height];
            scene.upward_text(at, NORMAL, BLACK, label);
        }
    }

    /// A second vertical axis, on the right.
    pub fn draw_right(&self, scene: &mut Scene, axis: &Axis, ticks: &Ticks, label: &str, colour: Colour) {
        let mut widest: f64 = 0.0;
        for (value, text) in &ticks.marks {
            let Some(place) = axis.place(*value) else { continue };
            let y = (self.bottom() - place * self.height).round() - 0.5;
            scene.line(vec![[self.right(), y], [self.right() + 4.0, y]], GREY, 1.0);
            scene.text([self.right() + 7.0, y + HALF_DIGIT * SMALL], Anchor::Start, SMALL, colour, text);
            widest = widest.max(font::width(text, SMALL));
        }
        if let Some(factor) = &ticks.factor {
            scene.text([self.right(), self.top - 5.0], Anchor::Start, SMALL, colour, factor);
        }
        let at = [self.right() + widest + 14.0 + NORMAL, self.top + 0.5 * self.height];
        scene.upward_text(at, NORMAL, colour, label);
    }

    /// A curve through points in order, with gaps where there are no numbers.
    pub fn curve(&self, scene: &mut Scene, points: impl IntoIterator<Item = (f64, f64)>, stroke: Stroke) {
        let mut run = Vec::new();
        for (x, y) in points {
            match self.point(x, y) {
                Some(place) => run.push(place),
                None => stroke.draw(scene, std::mem::take(&mut run)),
            }
        }
        stroke.draw(scene, run);
    }
}

impl Stroke {
    pub fn solid(colour: Colour, width: f64) -> Self {
        Self { colour, width, dashed: false }
    }

    pub fn dashed(colour: Colour, width: f64) -> Self {
        Self { colour, width, dashed: true }
    }

    fn draw(self, scene: &mut Scene, points: Vec<[f64; 2]>) {
        let points = thinned(points);
        if points.is_empty() {
            return;
        }
        if !self.dashed {
            return scene.line(points, self.colour, self.width);
        }
        for dash in dashes(&points, 4.0 * self.width, 3.0 * self.width) {
            scene.line(dash, self.colour, self.width);
        }
    }
}

/// A row of names, each behind a piece of its curve; returns where it ends.
pub(super) fn legend(scene: &mut Scene, at: [f64; 2], entries: &[(&str, Stroke)]) -> f64 {
    const SAMPLE: f64 = 28.0;
    let [mut x, y] = at;
    for (name, stroke) in entries {
        let level = y - 0.35 * NORMAL;
        stroke.draw(scene, vec![[x, level], [x + SAMPLE, level]]);
        scene.text([x + SAMPLE + 7.0, y], Anchor::Start, NORMAL, BLACK, name);
        x += SAMPLE + 7.0 + font::width(name, NORMAL) + 22.0;
    }
    x
}

/// Width that a colour bar takes, with its numbers.
pub(super) const BAR: f64 = 14.0 + 52.0;

/// A colour bar with its numbers, upwards from low to high.
pub(super) fn colour_bar(
    scene: &mut Scene,
    [left, top]: [f64; 2],
    height: f64,
    axis: &Axis,
    colours: Colours,
) {
    const STEPS: usize = 128;
    let steps = (0..STEPS).map(|k| colours.at(1.0 - (k as f64 + 0.5) / STEPS as f64)).collect();
    scene.picture([left, top], [14.0, height], Cells { columns: 1, rows: STEPS, colours: steps });
    let frame = Frame { left, top, width: 14.0, height, x: Axis::exact([0.0, 1.0]), y: axis.clone() };
    frame.outline(scene);
    let ticks = if height < 150.0 { axis.few_ticks(2) } else { axis.ticks(4) };
    for (value, text) in &ticks.marks {
        let Some(place) = axis.place(*value) else { continue };
        let y = (frame.bottom() - place * height).round() - 0.5;
        scene.line(vec![[frame.right(), y], [frame.right() + 4.0, y]], GREY, 1.0);
        scene.text([frame.right() + 7.0, y + HALF_DIGIT * SMALL], Anchor::Start, SMALL, BLACK, text);
    }
    if let Some(factor) = &ticks.factor {
        scene.text([left, top - 6.0], Anchor::Start, SMALL, BLACK, factor);
    }
}

/// At most four points per column of pixels: first, lowest, highest, last. The picture stays the same.
fn thinned(points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let mut kept: Vec<[f64; 2]> = Vec::new();
    for column in points.chunk_by(|p, q| p[0].floor() == q[0].floor()) {
        if column.len() <= 4 {
            kept.extend(column);
            continue;
        }
        let extreme = |sign: f64| {
            (0..column.len())
                .fold(0, |best, k| if sign * column[k][1] > sign * column[best][1] { k } else { best })
        };
        let mut places = [0, extreme(1.0), extreme(-1.0), column.len() - 1];
        places.sort_unstable();
        kept.extend(places.map(|place| column[place]));
    }
    kept
}

/// A line cut into dashes along its length.
fn dashes(points: &[[f64; 2]], dash: f64, gap: f64) -> Vec<Vec<[f64; 2]>> {
    let mut pieces = Vec::new();
    let (mut on, mut left) = (true, dash);
    let mut piece = vec![points[0]];
    for pair in points.windows(2) {
        let ([x, y], [to_x, to_y]) = (pair[0], pair[1]);
        let length = ((to_x - x) * (to_x - x) + (to_y - y) * (to_y - y)).sqrt();
        let mut done = 0.0;
        while length - done > left {
            done += left;
            let at = [x + done / length * (to_x - x), y + done / length * (to_y - y)];
            if on {
                piece.push(at);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![at];
            }
            on = !on;
            left = if on { dash } else { gap };
        }
        left -= length - done;
        if on {
            piece.push([to_x, to_y]);
        }
    }
    if on && piece.len() > 1 {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_cover_their_share_of_the_length() {
        let line = [[0.0, 0.0], [3.0, 4.0], [3.0, 104.0]];
        let pieces = dashes(&line, 6.0, 4.0);
        let length = |piece: &Vec<[f64; 2]>| -> f64 {
            piece.windows(2).map(|p| (p[1][0] - p[0][0]).abs().hypot(p[1][1] - p[0][1])).sum()
        };
        // 105 pixels are ten and a half periods of 10 with 6 on, the half one with 5 of its 6.
        let total: f64 = pieces.iter().map(length).sum();
        assert!((total - 65.0).abs() < 1e-9, "{total}");
        assert_eq!(pieces.len(), 11);
    }

    #[test]
    fn thinning_keeps_ends_and_extremes() {
        let points: Vec<[f64; 2]> =
            (0..100).map(|k| [f64::from(k) * 0.001, f64::from((k * 37) % 101)]).collect();
        let thin = thinned(points.clone());
        assert_eq!(thin.len(), 4);
        assert_eq!((thin[0], thin[3]), (points[0], points[99]));
        assert!(thin.iter().any(|p| p[1] == 100.0) && thin.iter().any(|p| p[1] == 0.0));
        let apart: Vec<[f64; 2]> = (0..100).map(|k| [f64::from(k), 0.0]).collect();
        assert_eq!(thinned(apart.clone()), apart);
    }
}
