//! One panel of a figure of samples: curves, markers, a picture or dots, with axes and a colour bar.

use super::axis::Axis;
use super::chart::{BAR, Frame, NORMAL, SMALL, Stroke, colour_bar};
use super::colour::{BACKDROP, BLACK, Colours, GREY, MISSING};
use super::font;
use super::samples::Place;
use super::scene::{Anchor, Cells, Colour, Scene};

/// A panel that does not know its place in the figure yet.
pub(super) struct Tile {
    /// Above it; may be empty.
    pub title: String,
    pub width: f64,
    pub height: f64,
    /// What is measured across and upwards; projections have neither.
    sides: Option<[Side; 2]>,
    content: Content,
}

/// An axis with its name, if it has one.
#[derive(Clone, PartialEq)]
struct Side {
    axis: Axis,
    name: String,
}

enum Content {
    Curves(Vec<Curve>),
    Picture(Cells, Scale),
    /// Dots over lines and words, at places of 0 … 1 from the lower left corner.
    Dots {
        dots: Vec<([f64; 2], Colour)>,
        edges: Vec<[[f64; 2]; 2]>,
        words: Vec<([f64; 2], &'static str)>,
        scale: Scale,
    },
}

struct Curve {
    points: Vec<(f64, f64)>,
    stroke: Stroke,
    /// Dots instead of a line.
    marked: bool,
}

/// Which number has which colour.
#[derive(Clone)]
pub(super) struct Scale {
    pub axis: Axis,
    pub colours: Colours,
}

impl Scale {
    fn at(&self, value: f32) -> Colour {
        self.axis.place(f64::from(value)).map_or(MISSING, |t| self.colours.at(t))
    }
}

/// The most points that are drawn as dots.
pub(super) const MOST_DOTS: usize = 2000;

/// Room between a panel and its colour bar.
const BESIDE: f64 = 10.0;

/// Whether values there are drawn as heights rather than as colours.
pub(super) fn is_curve(place: &Place) -> bool {
    matches!(place, Place::Line { .. } | Place::Points { dimension: 1, .. })
}

/// How many points there are, if not all of them are drawn.
pub(super) fn thinned(place: &Place) -> Option<usize> {
    match *place {
        Place::Points { dimension: 2, cells, corners, .. } if corners > 2 && cells.len() >= corners => None,
        Place::Points { coordinates, dimension, .. } => {
            coordinates.len().checked_div(dimension).filter(|points| *points > MOST_DOTS)
        }
        _ => None,
    }
}

/// Several functions on a line over each other; `side` is that of a square of a similar area.
pub(super) fn curves(place: &Place, title: &str, side: f64, functions: &[(&[f32], Stroke)]) -> Tile {
    let (x, ends, name, marked) = match *place {
        Place::Line { x, ends, name } => (x.to_vec(), Axis::exact(ends), name, false),
        Place::Points { coordinates, .. } => {
            let x: Vec<f64> = coordinates.iter().map(|x| f64::from(*x)).collect();
            let ends = Axis::roomy(x.iter().copied());
            (x, ends, "x", true)
        }
        _ => (Vec::new(), Axis::exact([0.0, 1.0]), "x", false),
    };
    let kept = marked.then(|| chosen(x.len()));
    let curves = functions.iter().map(|(values, stroke)| {
        let points = x.iter().copied().zip(values.iter().map(|v| f64::from(*v)));
        let points: Vec<_> = match &kept {
            Some(kept) => kept.iter().filter_map(|k| Some((x[*k], f64::from(*values.get(*k)?)))).collect(),
            None => points.collect(),
        };
        Curve { points, stroke: *stroke, marked }
    });
    let y = Axis::roomy(functions.iter().flat_map(|(values, _)| values.iter().map(|v| f64::from(*v))));
    Tile {
        title: title.into(),
        width: (2.2 * side).round(),
        height: (0.82 * side).round(),
        sides: Some([Side { axis: ends, name: name.into() }, Side { axis: y, name: String::new() }]),
        content: Content::Curves(curves.collect()),
    }
}

/// A function as colours: one panel, or one per slice.
pub(super) fn pictures(place: &Place, title: &str, side: f64, values: &[f32], scale: &Scale) -> Vec<Tile> {
    match *place {
        Place::Plane { points, lengths, names } => {
            vec![plane(title, side, points[1], values, lengths, names, scale)]
        }
        Place::Volume { points, lengths, names } => (0..3)
            .map(|normal| {
                let [up, across] = [[1, 2], [0, 2], [0, 1]][normal];
                let slice = slice(points, normal, [up, across], values);
                let middle = format!("middle of {}", names[normal]);
                let title = if title.is_empty() { middle } else { format!("{title}, {middle}") };
                let (lengths, names) = ([lengths[up], lengths[across]], [names[up], names[across]]);
                plane(&title, side, points[across], &slice, lengths, names, scale)
            })
            .collect(),
        Place::Points { coordinates, dimension: 2, cells, corners } => {
            let points = coordinates.as_chunks().0;
            if corners > 2 && cells.len() >= corners {
                vec![mesh(title, side, points, cells.chunks_exact(corners), values, scale)]
            } else {
                vec![dots(title, side, points, values, scale)]
            }
        }
        Place::Points { coordinates, dimension, .. } if dimension > 2 => {
            // Of more coordinates than can be seen, the first three.
            let points = coordinates.chunks_exact(dimension).map(|p| [p[0], p[1], p[2]]).collect::<Vec<_>>();
            vec![projected(title, side, &points, values, scale)]
        }
        Place::Line { .. } | Place::Points { .. } => vec![dots(title, side, &[], &[], scale)],
    }
}

fn plane(
    title: &str,
    side: f64,
    columns: usize,
    values: &[f32],
    lengths: [f64; 2],
    names: [&str; 2],
    scale: &Scale,
) -> Tile {
    let [y, x] = [0, 1].map(|k| Side { axis: Axis::exact([0.0, lengths[k]]), name: names[k].into() });
    let [width, height] = size(side, &x.axis, &y.axis);
    let whole = values.chunks_exact(columns.max(1));
    let rows = whole.len();
    let colours = whole.rev().flatten().map(|v| scale.at(*v)).collect();
    let cells = Cells { columns: columns.max(1), rows, colours };
    let content = Content::Picture(cells, scale.clone());
    Tile { title: title.into(), width, height, sides: Some([x, y]), content }
}

/// Values in the middle of the axis `normal`, row by row.
fn slice(points: [usize; 3], normal: usize, [up, across]: [usize; 2], values: &[f32]) -> Vec<f32> {
    let strides = [points[1] * points[2], points[2], 1];
    let start = points[normal] / 2 * strides[normal];
    let at = |i: usize, j: usize| values.get(start + i * strides[up] + j * strides[across]).copied();
    // Nothing at all is an empty picture, a missing rest a grey one.
    if values.is_empty() {
        return Vec::new();
    }
    let places = (0..points[up]).flat_map(|i| (0..points[across]).map(move |j| (i, j)));
    places.map(|(i, j)| at(i, j).unwrap_or(f32::NAN)).collect()
}

/// Dots in a plane.
fn dots(title: &str, side: f64, points: &[[f32; 2]], values: &[f32], scale: &Scale) -> Tile {
    let [x, y] = bounds(points, Axis::roomy);
    let [width, height] = size(side, &x.axis, &y.axis);
    let at = |[px, py]: [f32; 2]| Some([x.axis.place(f64::from(px))?, y.axis.place(f64::from(py))?]);
    let dots = chosen(points.len()).into_iter();
    let dots = dots.filter_map(|k| Some((at(points[k])?, scale.at(*values.get(k)?)))).collect();
    let content = Content::Dots { dots, edges: Vec::new(), words: Vec::new(), scale: scale.clone() };
    Tile { title: title.into(), width, height, sides: Some([x, y]), content }
}

/// Values between the corners of cells, linear in the triangles of a fan.
fn mesh<'a>(
    title: &str,
    side: f64,
    points: &[[f32; 2]],
    cells: impl Iterator<Item = &'a [u32]>,
    values: &[f32],
    scale: &Scale,
) -> Tile {
    let [x, y] = bounds(points, Axis::exact);
    let [width, height] = size(side, &x.axis, &y.axis);
    // Two by two to a pixel make smooth edges.
    let (columns, rows) = (2 * width as usize, 2 * height as usize);
    let mut picture = Cells { columns, rows, colours: Vec::new() };
    if !values.is_empty() && !points.is_empty() {
        picture.colours = vec![BACKDROP; columns * rows];
        let corner = |k: &u32| {
            let [px, py] = *points.get(*k as usize)?;
            let at = [x.axis.place(f64::from(px))?, 1.0 - y.axis.place(f64::from(py))?];
            let value = values.get(*k as usize).and_then(|v| scale.axis.place(f64::from(*v)));
            Some(([at[0] * columns as f64, at[1] * rows as f64], value))
        };
        for cell in cells {
            let Some(corners) = cell.iter().map(corner).collect::<Option<Vec<_>>>() else { continue };
            for pair in corners[1..].windows(2) {
                shade(&mut picture, [corners[0], pair[0], pair[1]], scale.colours);
            }
        }
    }
    let content = Content::Picture(picture, scale.clone());
    Tile { title: title.into(), width, height, sides: Some([x, y]), content }
}

/// A triangle in colours that are linear between its corners; grey if one of them has no number.
fn shade(picture: &mut Cells, corners: [([f64; 2], Option<f64>); 3], colours: Colours) {
    let [a, b, c] = corners.map(|(at, _)| at);
    let cross =
        |p: [f64; 2], q: [f64; 2], r: [f64; 2]| (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]);
    let area = cross(a, b, c);
    if area == 0.0 {
        return;
    }
    let range = |axis: usize, most: usize| {
        let (low, high) = (a[axis].min(b[axis]).min(c[axis]), a[axis].max(b[axis]).max(c[axis]));
        (low - 0.5).ceil().max(0.0) as usize..((high - 0.5).floor() + 1.0).clamp(0.0, most as f64) as usize
    };
    let values = corners.map(|(_, value)| value.unwrap_or(f64::NAN));
    for i in range(1, picture.rows) {
        for j in range(0, picture.columns) {
            let at = [j as f64 + 0.5, i as f64 + 0.5];
            let shares = [cross(b, c, at) / area, cross(c, a, at) / area, cross(a, b, at) / area];
            // A little over the edges, so that rounding leaves no gap between neighbours.
            if shares.iter().all(|share| *share > -1e-9) {
                let value = shares.iter().zip(values).map(|(share, value)| share * value).sum();
                picture.colours[i * picture.columns + j] = colours.at(value);
            }
        }
    }
}

/// Dots in space, seen from the front, the right and above, in the box that holds them.
fn projected(title: &str, side: f64, points: &[[f32; 3]], values: &[f32], scale: &Scale) -> Tile {
    let finite = || points.iter().filter(|point| point.iter().all(|x| x.is_finite()));
    let sides: [Axis; 3] = std::array::from_fn(|k| Axis::exact(finite().map(|point| f64::from(point[k]))));
    let corner = |bits: usize| -> [f64; 3] {
        std::array::from_fn(|k| if bits >> k & 1 == 0 { sides[k].low } else { sides[k].high })
    };
    let shadows: Vec<[f64; 2]> = (0..8).map(|bits| look(corner(bits)).0).collect();
    let [x, y] = [0, 1].map(|k| Axis::roomy(shadows.iter().map(|shadow| shadow[k])));
    // Room for a letter on the left.
    let x = Axis::roomy([x.low, x.high]);
    let [width, height] = size(side, &x, &y);
    let at = |[px, py]: [f64; 2]| Some([x.place(px)?, y.place(py)?]);

    let pairs = (0..8).flat_map(|bits| (0..3).map(move |k| (bits, bits | 1 << k))).filter(|(p, q)| p != q);
    let edges = pairs.filter_map(|(p, q)| Some([at(shadows[p])?, at(shadows[q])?])).collect();
    // Beside the middles of three edges that nothing is in front of.
    let words = [(0, 1, "x"), (1, 3, "y"), (0, 4, "z")].into_iter().filter_map(|(p, q, name)| {
        let ([p, q], middle) = ([shadows[p], shadows[q]], |a: f64, b: f64| 0.5 * (a + b));
        Some((at([middle(p[0], q[0]), middle(p[1], q[1])])?, name))
    });
    let mut seen: Vec<(f64, [f64; 2], Colour)> = chosen(points.len())
        .into_iter()
        .filter_map(|k| {
            let (shadow, far) = look(points[k].map(f64::from));
            Some((far, at(shadow)?, scale.at(*values.get(k)?)))
        })
        .collect();
    // Near ones cover far ones.
    seen.sort_by(|a, b| b.0.total_cmp(&a.0));
    let dots = seen.into_iter().map(|(_, at, colour)| (at, colour)).collect();
    let content = Content::Dots { dots, edges, words: words.collect(), scale: scale.clone() };
    Tile { title: title.into(), width, height, sides: None, content }
}

/// Where a point in space is seen, and how far behind; turned by 30° about z, then from 25° above.
fn look([x, y, z]: [f64; 3]) -> ([f64; 2], f64) {
    const TURN: [f64; 2] = [0.866_025_403_784_438_6, 0.5];
    const ABOVE: [f64; 2] = [0.906_307_787_036_65, 0.422_618_261_740_699_4];
    let (right, back) = (TURN[0] * x + TURN[1] * y, TURN[0] * y - TURN[1] * x);
    ([right, ABOVE[0] * z + ABOVE[1] * back], ABOVE[0] * back - ABOVE[1] * z)
}

fn bounds(points: &[[f32; 2]], range: fn(Vec<f64>) -> Axis) -> [Side; 2] {
    let finite = || points.iter().filter(|point| point.iter().all(|x| x.is_finite()));
    [(0, "x"), (1, "y")].map(|(k, name)| {
        let values = finite().map(|point| f64::from(point[k])).collect();
        Side { axis: range(values), name: name.into() }
    })
}

/// Pixels across and down in the ratio of the axes, within 1 : 4 and 4 : 1.
fn size(side: f64, x: &Axis, y: &Axis) -> [f64; 2] {
    let ratio = (x.high - x.low) / (y.high - y.low);
    let ratio = if ratio.is_nan() { 1.0 } else { ratio.clamp(0.25, 4.0) };
    // The area of the square, but no more than 1.6 of its sides.
    let root = ratio.sqrt();
    let side = side * (1.6 / root.max(1.0 / root)).min(1.0);
    [(side * root).round(), (side / root).round()]
}

/// All indices, or as many as are drawn. A rule would make stripes where points lie in rows; a hash of the index does not.
fn chosen(count: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..count).collect();
    if count > MOST_DOTS {
        indices.select_nth_unstable_by_key(MOST_DOTS, |k| (mixed(*k as u64), *k));
        indices.truncate(MOST_DOTS);
        indices.sort_unstable();
    }
    indices
}

/// SplitMix64.
fn mixed(index: u64) -> u64 {
    let z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Tile {
    /// Pixels across with the colour bar.
    pub fn whole_width(&self) -> f64 {
        let bar = if let Content::Curves(_) = self.content { 0.0 } else { BESIDE + BAR };
        self.width + bar
    }

    /// Whether the horizontal axis of `below` says what that of this one would.
    pub fn shares_x(&self, below: &Tile) -> bool {
        let x = |tile: &Tile| tile.sides.as_ref().map(|[x, _]| x.clone());
        self.width == below.width && x(self) == x(below)
    }

    /// The same for the vertical axis of the one on the left.
    pub fn shares_y(&self, left: &Tile) -> bool {
        let colours = |tile: &Tile| !matches!(tile.content, Content::Curves(_));
        let y = |tile: &Tile| tile.sides.as_ref().map(|[_, y]| y.clone());
        colours(self) && colours(left) && self.height == left.height && y(self) == y(left)
    }

    /// Whether there is a horizontal axis to draw.
    pub fn has_x(&self) -> bool {
        self.sides.is_some()
    }

    /// Whether it has numbers below even where the axis has no name: curves are not read without.
    pub fn has_numbers(&self) -> bool {
        matches!(self.content, Content::Curves(_))
    }

    /// Room for the numbers and the name of the vertical axis.
    pub fn left_room(&self) -> f64 {
        let Some([_, y]) = &self.sides else { return 0.0 };
        let ticks = self.y_ticks(y);
        let widest = ticks.marks.iter().fold(0.0, |most: f64, mark| most.max(font::width(&mark.1, SMALL)));
        let factor = ticks.factor.map_or(0.0, |factor| font::width(&factor, SMALL));
        (widest + 14.0 + if y.name.is_empty() { 0.0 } else { NORMAL + 4.0 }).max(factor + 4.0)
    }

    /// Draws it with its upper left corner there.
    pub fn draw(&self, scene: &mut Scene, [left, top]: [f64; 2], with_x: bool, with_y: bool) {
        let (width, height) = (self.width, self.height);
        let [x, y] = self
            .sides
            .clone()
            .unwrap_or_else(|| [0, 1].map(|_| Side { axis: Axis::exact([0.0, 1.0]), name: String::new() }));
        let frame = Frame { left, top, width, height, x: x.axis.clone(), y: y.axis.clone() };
        let curves = matches!(self.content, Content::Curves(_));
        let axes = |scene: &mut Scene| {
            let names = [&x, &y].map(|side| Some(side.name.as_str()).filter(|name| !name.is_empty()));
            if self.sides.is_some() && (with_x || curves) {
                let count = (width / 100.0).round().clamp(1.0, 6.0) as usize;
                frame.draw_x(scene, &frame.x.few_ticks(count), names[0].filter(|_| with_x), curves);
            }
            if self.sides.is_some() && with_y {
                frame.draw_y(scene, &self.y_ticks(&y), names[1], curves);
            }
        };
        let empty = match &self.content {
            Content::Curves(curves) => {
                axes(scene);
                curves.iter().for_each(|curve| curve.draw(scene, &frame));
                curves.iter().all(|curve| curve.points.is_empty())
            }
            Content::Picture(cells, _) => {
                scene.picture([left, top], [width, height], cells.clone());
                axes(scene);
                cells.colours.is_empty()
            }
            Content::Dots { dots, edges, words, .. } => {
                let at = |[x, y]: [f64; 2]| [left + x * width, top + (1.0 - y) * height];
                let corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]].map(at);
                scene.fill(corners.to_vec(), BACKDROP, 1.0);
                axes(scene);
                edges.iter().for_each(|edge| scene.line(edge.map(at).to_vec(), GREY, 0.7));
                // A little less than what one of them has for itself.
                let across = 0.9 * (width * height / dots.len().max(1) as f64).sqrt();
                for (place, colour) in dots {
                    scene.line(vec![at(*place)], *colour, across.clamp(2.5, 8.0));
                }
                for (place, word) in words {
                    let [x, y] = at(*place);
                    // Away from the box: z to the left of its edge, the others below.
                    let moved =
                        if *word == "z" { [(x - 9.0).max(left + 6.0), y] } else { [x + 4.0, y + 13.0] };
                    scene.text(moved, Anchor::Middle, SMALL, BLACK, word);
                }
                dots.is_empty()
            }
        };
        frame.outline(scene);
        if empty {
            let at = [left + 0.5 * width, top + 0.5 * height];
            scene.text(at, Anchor::Middle, SMALL, BLACK, "no values");
        }
        if let Content::Picture(_, scale) | Content::Dots { scale, .. } = &self.content {
            colour_bar(scene, [frame.right() + BESIDE, top], height, &scale.axis, scale.colours);
        }
        // Factors of axes and bars are between a title and its panel.
        let at = [left, top - 22.0];
        scene.short_text(at, Anchor::Start, SMALL, BLACK, &self.title, self.whole_width() + 12.0);
    }

    fn y_ticks(&self, y: &Side) -> super::axis::Ticks {
        let curves = matches!(self.content, Content::Curves(_));
        let apart = if curves { 45.0 } else { 100.0 };
        y.axis.few_ticks((self.height / apart).round().clamp(1.0, 4.0) as usize)
    }
}

impl Curve {
    fn draw(&self, scene: &mut Scene, frame: &Frame) {
        if !self.marked {
            return frame.curve(scene, self.points.iter().copied(), self.stroke);
        }
        let across = if self.stroke.dashed { 2.8 } else { 4.6 };
        for place in self.points.iter().filter_map(|(x, y)| frame.point(*x, *y)) {
            scene.line(vec![place], self.stroke.colour, across);
        }
    }
}
