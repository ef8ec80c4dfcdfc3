//! Scenes as SVG.

use std::fmt::Write;

use super::font::FAMILY;
use super::raster;
use super::scene::{Anchor, Cells, Colour, Mark, Scene};

/// The text of an SVG file.
pub(super) fn svg(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for mark in &scene.marks {
        write_mark(&mut svg, mark).expect("a string takes any text");
    }
    svg.push_str("</svg>\n");
    svg
}

fn write_mark(svg: &mut String, mark: &Mark) -> std::fmt::Result {
    match mark {
        Mark::Fill { corners, colour, opacity } => {
            write!(svg, "<polygon fill=\"{}\"", hex(*colour))?;
            if *opacity < 1.0 {
                write!(svg, " fill-opacity=\"{opacity}\"")?;
            }
            writeln!(svg, " points=\"{}\"/>", list(corners))
        }
        Mark::Line { points, colour, width } => match points[..] {
            [[x, y]] => {
                let (x, y, r) = (number(x), number(y), number(0.5 * width));
                writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{}\"/>", hex(*colour))
            }
            _ => writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linecap=\"round\" \
                 stroke-linejoin=\"round\" points=\"{}\"/>",
                hex(*colour),
                number(*width),
                list(points)
            ),
        },
        Mark::Text { at, text, size, colour, anchor, upwards } => {
            let [x, y] = at.map(number);
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            write!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{anchor}\"",
                number(*size)
            )?;
            if *upwards {
                write!(svg, " transform=\"rotate(-90 {x} {y})\"")?;
            }
            writeln!(svg, " fill=\"{}\">{}</text>", hex(*colour), escaped(text))
        }
        Mark::Picture { at, size, cells } => write_picture(svg, *at, *size, cells),
    }
}

/// The most cells of an embedded picture along a side: finer ones would not be seen and weigh megabytes.
const MOST_CELLS: usize = 256;

fn write_picture(svg: &mut String, at: [f64; 2], size: [f64; 2], cells: &Cells) -> std::fmt::Result {
    if cells.colours.is_empty() {
        return Ok(());
    }
    let cells = cells.shrunk(MOST_CELLS, MOST_CELLS);
    let png = raster::encode(cells.columns as u32, cells.rows as u32, &cells.colours);
    let ([x, y], [width, height]) = (at.map(number), size.map(number));
    writeln!(
        svg,
        "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
         image-rendering=\"pixelated\" href=\"data:image/png;base64,{}\"/>",
        base64(&png)
    )
}

fn hex([r, g, b]: Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Hundredths of a pixel, without zeros at the end.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

fn list(points: &[[f64; 2]]) -> String {
    let points: Vec<_> = points.iter().map(|[x, y]| format!("{},{}", number(*x), number(*y))).collect();
    points.join(" ")
}

/// XML has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            if digit <= three.len() {
                text.push(char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, 0.5, -0.001, 12.345, 100.0].map(number), ["1", "0.5", "0", "12.35", "100"]);
    }
}
