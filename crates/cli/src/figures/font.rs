//! The one font of all figures, which comes with the program.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};

/// What an SVG asks its viewer for; the widths in this module are those of the first.
pub(super) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

static FONT: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("../../fonts/DejaVuSans-subset.ttf"))
        .expect("the font in this crate")
});

/// Pixels from the start of a text to its end.
pub(super) fn width(text: &str, size: f64) -> f64 {
    glyphs(text, size).1
}

/// Calls `each(x, y, coverage)` for the pixels of a text whose baseline starts at the origin.
pub(super) fn draw(text: &str, size: f64, mut each: impl FnMut(i32, i32, f64)) {
    for glyph in glyphs(text, size).0 {
        let Some(outline) = FONT.outline_glyph(glyph) else { continue };
        let corner = outline.px_bounds().min;
        outline.draw(|x, y, coverage| {
            let (x, y) = (x as i32 + corner.x as i32, y as i32 + corner.y as i32);
            each(x, y, f64::from(coverage).clamp(0.0, 1.0));
        });
    }
}

/// The glyphs of a line of text in their places, and where the next one would be.
fn glyphs(text: &str, size: f64) -> (Vec<Glyph>, f64) {
    // The scale of `ab_glyph` is the height from descender to ascender; a size is that of the em square.
    let units = FONT.units_per_em().unwrap_or(2048.0);
    let scale = PxScale::from(size as f32 * FONT.height_unscaled() / units);
    let scaled = FONT.as_scaled(scale);
    let mut x = 0.0;
    let mut glyphs = Vec::new();
    for letter in text.chars() {
        let id = scaled.glyph_id(letter);
        glyphs.push(id.with_scale_and_position(scale, point(x, 0.0)));
        x += scaled.h_advance(id);
    }
    (glyphs, f64::from(x))
}
