//! What can be wrong with the files, arrays and settings a caller hands in.

use std::path::{Path, PathBuf};

/// A file, an array or a setting that does not fit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file does not hold what its format or its own header says it must.
    #[error("{}: {place}: expected {expected}, found {found}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The variable or the part of the file.
        place: String,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A variable exists but is no array of real numbers.
    #[error("{}: variable `{variable}`: expected an array of real numbers, found {found}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The variable.
        variable: String,
        /// What it is instead.
        found: String,
    },
    /// A file has no variable of this name.
    #[error("{}: no variable `{variable}`; the file has {known}", path.display())]
    NoVariable {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        variable: String,
        /// The names there are.
        known: String,
    },
    /// Part of an HDF5 file cannot be decoded.
    #[error("{}: {place}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The variable or the part of the file.
        place: String,
        /// What the decoder found.
        source: Box<hdf5_reader::error::Error>,
    },
    /// Part of a zip archive cannot be decoded.
    #[error("{}: {place}: {source}", path.display())]
    Zip {
        /// The file.
        path: PathBuf,
        /// The entry or the part of the file.
        place: String,
        /// What the decoder found.
        source: Box<zip::result::ZipError>,
    },
    /// The bytes of a file are not those its checksum was computed from.
    #[error("{}: expected checksum {expected}, found {found}: the file was changed or damaged", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The checksum on record.
        expected: String,
        /// The checksum of the bytes.
        found: String,
    },
    /// An array has another shape than it must have.
    #[error("{what}: expected shape {expected}, found {found:?}")]
    Shape {
        /// The array.
        what: String,
        /// The shape it must have, sizes that are free as letters.
        expected: String,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// A grid has no sub-grid of the kind asked for.
    #[error("a {kind} grid of {points} points cannot be subsampled to {asked}; sizes that work: {works}")]
    Subsample {
        /// `periodic` or `vertices`.
        kind: &'static str,
        /// Points along an axis.
        points: usize,
        /// What was asked for.
        asked: String,
        /// Sizes that work, largest first.
        works: String,
    },
    /// Values that are not numbers or infinite, where numbers are needed.
    #[error(
        "{what}: expected finite values, found {nan} NaN and {infinite} infinite, first in sample {sample}"
    )]
    NotFinite {
        /// The array.
        what: String,
        /// How many are not numbers.
        nan: u64,
        /// How many are infinite.
        infinite: u64,
        /// The first sample with such a value.
        sample: usize,
    },
    /// A setting has no meaning.
    #[error("{what}: {why}")]
    Setting {
        /// The setting, with its value.
        what: String,
        /// The rule it breaks.
        why: String,
    },
}

/// The result of everything that takes files or settings from outside.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::Io`]; for `map_err`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Error::Io { path: path.into(), source }
    }

    /// An [`Error::Content`].
    pub(crate) fn content(
        path: &Path,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Error::Content {
            path: path.into(),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// An [`Error::Setting`].
    pub(crate) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Setting { what: what.into(), why: why.into() }
    }
}
