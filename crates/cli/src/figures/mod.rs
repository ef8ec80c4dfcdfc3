//! Figures from plain arrays, as PNG or SVG: the same numbers give the same bytes on any machine.
//!
//! A figure is a [`Scene`], shapes and words at places, which becomes a file without asking the system for anything, not even
//! for a font. Values that are not finite are left out of curves and grey in pictures; constant and empty data have
//! a figure too.

mod axis;
mod chart;
mod colour;
mod convergence;
mod font;
mod image;
mod line;
mod raster;
mod samples;
mod scene;
mod svg;
mod tile;

use std::path::{Path, PathBuf};

use galerkin_data::io::write_whole;

pub use convergence::{Curve, Epoch, Point, convergence, histories, resolutions};
pub use image::{Field, FieldRow, Picture, fields, gallery, reconstructions};
pub use line::{LineRow, Lines, lines};
pub use samples::{Panel, Place, SampleRow, samples};
pub use scene::Scene;

/// Why a figure was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name does not say a format that can be drawn.
    #[error("{}: expected a name that ends in .png or .svg", .0.display())]
    Format(PathBuf),
    /// The folder could not be made.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] galerkin_data::Error),
}

impl Scene {
    /// The bytes of a PNG file.
    pub fn png(&self) -> Vec<u8> {
        raster::png(self)
    }

    /// The text of an SVG file.
    pub fn svg(&self) -> String {
        svg::svg(self)
    }

    /// Writes the file, complete or not at all, in the format its name ends in.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let bytes = match format(path)? {
            Format::Png => self.png(),
            Format::Svg => self.svg().into_bytes(),
        };
        Ok(write_whole(path, &bytes)?)
    }

    /// Writes it in both formats to a folder, which is made if it is not there.
    pub fn save_in(&self, folder: &Path, name: &str) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(|source| Error::Folder { path: folder.into(), source })?;
        ["png", "svg"].into_iter().try_for_each(|end| self.save(&folder.join(format!("{name}.{end}"))))
    }
}

/// An error now rather than after the figure is drawn, if [`Scene::save`] would refuse the name.
pub fn check_name(path: &Path) -> Result<(), Error> {
    format(path).map(drop)
}

enum Format {
    Png,
    Svg,
}

fn format(path: &Path) -> Result<Format, Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => Ok(Format::Png),
        Some("svg") => Ok(Format::Svg),
        _ => Err(Error::Format(path.into())),
    }
}
