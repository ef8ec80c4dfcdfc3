//! Scenes as PNG.

use super::font;
use super::scene::{Anchor, Cells, Colour, Mark, Scene, cover, covered};

/// The bytes of a PNG file.
pub(super) fn png(scene: &Scene) -> Vec<u8> {
    let mut sheet = Sheet::new(scene.width as usize, scene.height as usize);
    for mark in &scene.marks {
        match mark {
            Mark::Fill { corners, colour, opacity } => sheet.fill(corners, *colour, *opacity),
            Mark::Line { points, colour, width } => sheet.line(points, *colour, *width),
            Mark::Text { at, text, size, colour, anchor, upwards } => {
                sheet.text(*at, text, *size, *colour, *anchor, *upwards)
            }
            Mark::Picture { at, size, cells } => sheet.picture(*at, *size, cells),
        }
    }
    encode(scene.width, scene.height, &sheet.pixels)
}

/// RGB pixels as PNG.
pub(super) fn encode(width: u32, height: u32, pixels: &[Colour]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    let written =
        encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels.as_flattened()));
    written.expect("memory takes as many bytes as the header says");
    bytes
}

struct Sheet {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

/// Lines of samples per row of pixels in a polygon.
const SAMPLES: usize = 4;

impl Sheet {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[255; 3]; width * height] }
    }

    fn blend(&mut self, x: usize, y: usize, colour: Colour, share: f64) {
        let pixel = &mut self.pixels[y * self.width + x];
        for (old, new) in pixel.iter_mut().zip(colour) {
            *old = (f64::from(*old) + share * (f64::from(new) - f64::from(*old))).round() as u8;
        }
    }

    /// Even-odd rule; exact along rows, sampled between them.
    fn fill(&mut self, corners: &[[f64; 2]], colour: Colour, opacity: f64) {
        let low = corners.iter().fold(f64::INFINITY, |low, [_, y]| low.min(*y)).max(0.0) as usize;
        let high = corners.iter().fold(0.0, |high: f64, [_, y]| high.max(*y)).ceil() as usize;
        let mut coverage = vec![0.0; self.width];
        for y in low..high.min(self.height) {
            coverage.fill(0.0);
            for sample in 0..SAMPLES {
                let at = y as f64 + (sample as f64 + 0.5) / SAMPLES as f64;
                let mut crossings: Vec<f64> = (0..corners.len())
                    .filter_map(|k| crossing(corners[k], corners[(k + 1) % corners.len()], at))
                    .collect();
                crossings.sort_by(f64::total_cmp);
                for pair in crossings.chunks_exact(2) {
                    let (start, end) = (pair[0].max(0.0), pair[1].min(self.width as f64));
                    if start < end {
                        for (x, length) in covered(start, end, self.width) {
                            coverage[x] += length / SAMPLES as f64;
                        }
                    }
                }
            }
            for (x, coverage) in coverage.iter().enumerate() {
                if *coverage > 0.0 {
                    self.blend(x, y, colour, opacity * coverage.min(1.0));
                }
            }
        }
    }

    /// Coverage of a pixel falls from 1 to 0 within a pixel around the edge of the line. All segments are joined before they are
    /// blended, so that joints are not darker.
    fn line(&mut self, points: &[[f64; 2]], colour: Colour, width: f64) {
        let reach = 0.5 * width + 1.0;
        let bounds = |axis: usize, most: usize| {
            let values = || points.iter().map(move |point| point[axis]);
            let low = values().fold(f64::INFINITY, f64::min) - reach;
            let high = values().fold(f64::NEG_INFINITY, f64::max) + reach;
            ((low.max(0.0) as usize).min(most), (high.max(0.0).ceil() as usize).min(most))
        };
        let ((left, right), (top, bottom)) = (bounds(0, self.width), bounds(1, self.height));
        let across = right - left;
        let mut coverage = vec![0.0_f32; across * (bottom - top)];
        let segments = points.windows(2).map(|pair| [pair[0], pair[1]]);
        let dot = (points.len() == 1).then(|| [points[0], points[0]]);
        for [p, q] in segments.chain(dot) {
            let rows = span(p[1], q[1], reach, top, bottom);
            let columns = span(p[0], q[0], reach, left, right);
            for y in rows {
                for x in columns.clone() {
                    let far = distance([x as f64 + 0.5, y as f64 + 0.5], p, q);
                    let covers = (0.5 * width + 0.5 - far).clamp(0.0, 1.0).min(width) as f32;
                    let cell = &mut coverage[(y - top) * across + x - left];
                    *cell = cell.max(covers);
                }
            }
        }
        for y in top..bottom {
            for x in left..right {
                let covers = coverage[(y - top) * across + x - left];
                if covers > 0.0 {
                    self.blend(x, y, colour, f64::from(covers));
                }
            }
        }
    }

    fn text(&mut self, at: [f64; 2], text: &str, size: f64, colour: Colour, anchor: Anchor, upwards: bool) {
        let back = anchor.share() * font::width(text, size);
        let start = if upwards { [at[0], at[1] + back] } else { [at[0] - back, at[1]] };
        let [x0, y0] = start.map(|place| place.round() as i32);
        let (width, height) = (self.width as i32, self.height as i32);
        font::draw(text, size, |x, y, coverage| {
            // A quarter turn to the left takes (right, down) to (up, right).
            let (x, y) = if upwards { (x0 + y, y0 - 1 - x) } else { (x0 + x, y0 + y) };
            if (0..width).contains(&x) && (0..height).contains(&y) {
                self.blend(x as usize, y as usize, colour, coverage);
            }
        });
    }

    /// Every pixel takes the mean of the cells under it: edges of coarse cells stay sharp, fine grids do not alias.
    fn picture(&mut self, at: [f64; 2], size: [f64; 2], cells: &Cells) {
        let [left, top] = at.map(|place| place.round().max(0.0) as usize);
        let [width, height] = size.map(|length| length.round().max(1.0) as usize);
        if cells.colours.is_empty() {
            return;
        }
        let across: Vec<_> = (0..width).map(|j| cover(j, width, cells.columns)).collect();
        for i in 0..height.min(self.height.saturating_sub(top)) {
            let down = cover(i, height, cells.rows);
            for (j, across) in across.iter().enumerate().take(self.width.saturating_sub(left)) {
                self.pixels[(top + i) * self.width + left + j] = cells.mean(&down, across);
            }
        }
    }
}

/// Where the edge from `p` to `q` meets the horizontal line at `y`.
fn crossing(p: [f64; 2], q: [f64; 2], y: f64) -> Option<f64> {
    ((p[1] <= y) != (q[1] <= y)).then(|| p[0] + (y - p[1]) / (q[1] - p[1]) * (q[0] - p[0]))
}

/// The pixels within `reach` of an interval.
fn span(a: f64, b: f64, reach: f64, low: usize, high: usize) -> std::ops::Range<usize> {
    let start = (a.min(b) - reach).max(low as f64) as usize;
    let end = ((a.max(b) + reach).max(0.0).ceil() as usize).min(high);
    start..end
}

/// Of a point from the segment between `p` and `q`.
fn distance(at: [f64; 2], p: [f64; 2], q: [f64; 2]) -> f64 {
    let along = [q[0] - p[0], q[1] - p[1]];
    let from = [at[0] - p[0], at[1] - p[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let t = if length > 0.0 { (from[0] * along[0] + from[1] * along[1]) / length } else { 0.0 };
    let t = t.clamp(0.0, 1.0);
    let (x, y) = (from[0] - t * along[0], from[1] - t * along[1]);
    (x * x + y * y).sqrt()
}
