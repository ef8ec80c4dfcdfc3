//! What can be wrong with the files, arrays, settings and equations a caller hands in.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A file, an array, a setting or an equation that does not fit.
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
    /// A file of PyTorch cannot be read.
    #[error(transparent)]
    Torch(#[from] crate::io::torch::Error),
    /// A compressed variable is larger than its file makes likely.
    #[error(
        "{}: variable `{variable}`: {bytes} bytes out of a file of {file}; more than 64 MB and more than {factor} times the file is \
         taken only from a file that is trusted: then allow a factor of {needed} (--expand {needed})",
        path.display()
    )]
    Expansion {
        /// The file.
        path: PathBuf,
        /// The variable.
        variable: String,
        /// Bytes it would have.
        bytes: u64,
        /// Bytes of the file.
        file: u64,
        /// The factor that is allowed.
        factor: u64,
        /// The factor it would need.
        needed: u64,
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
    #[error("a grid of {grid} cannot be subsampled to {asked}; sizes that work: {works}")]
    Subsample {
        /// The grid in words.
        grid: String,
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
    /// A folder that is to be written is there already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A half-written dataset belongs to other settings.
    #[error(
        "{} was begun with another {what}: expected {expected}, found {found}; finish it as it was begun, or delete it",
        path.display()
    )]
    Begun {
        /// The half-written folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What was asked for now.
        expected: String,
        /// What the folder was begun with.
        found: String,
    },
    /// A half-written dataset does not hold what its record says.
    #[error("{} is damaged: {reason}; delete the folder to begin again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller asked to stop; what is done is kept.
    #[error("stopped after {complete} of {samples} samples; the same call goes on from there")]
    Stopped {
        /// Samples written.
        complete: u32,
        /// Samples asked for.
        samples: u32,
    },
    /// A sample could not be made.
    #[error("sample {index} of seed {seed}")]
    Sample {
        /// The sample.
        index: u32,
        /// The seed of the dataset.
        seed: u64,
        /// What went wrong.
        source: Box<Error>,
    },
    /// An argument of a solver is out of range.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A spectrum did not fit the greatest grid allowed.
    #[error(
        "Burgers' equation with viscosity {viscosity} is not resolved by {points} points, the most allowed"
    )]
    Unresolved {
        /// Points of that grid.
        points: usize,
        /// The viscosity.
        viscosity: f64,
    },
    /// Time steps shrank to nothing.
    #[error("Burgers' equation with viscosity {viscosity}: no time step is short enough at time {time}")]
    Step {
        /// Where the march stopped.
        time: f64,
        /// The viscosity.
        viscosity: f64,
    },
    /// Cole and Hopf's transform lost the digits of its result.
    #[error(
        "Cole and Hopf's form with viscosity {viscosity} cancels: the transform falls to {smallest:e} of its maximum"
    )]
    Cancellation {
        /// The viscosity.
        viscosity: f64,
        /// The smallest value of the transform, relative to its greatest initial one.
        smallest: f64,
    },
    /// Conjugate gradients ran into the limit of iterations.
    #[error(
        "Darcy's equation: relative residual {residual:e} after {iterations} iterations, expected at most {tolerance:e}"
    )]
    NotConverged {
        /// Iterations allowed.
        iterations: usize,
        /// The relative residual reached.
        residual: f64,
        /// The relative residual asked for.
        tolerance: f64,
    },
    /// Inverse iteration ran into the limit of iterations, or into vectors that roundings made dependent.
    #[error(
        "eigenfunctions: relative residual {residual:e} after at most {iterations} iterations, expected at most {tolerance:e}"
    )]
    NoEigenfunctions {
        /// Iterations allowed.
        iterations: usize,
        /// The relative residual reached.
        residual: f64,
        /// The relative residual asked for.
        tolerance: f64,
    },
}

/// The result of everything that takes files or settings from outside.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether what was asked for cannot be done, whatever the files hold.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Invalid { .. } | Error::Setting { .. } | Error::Subsample { .. } => true,
            Error::Sample { source, .. } => source.is_usage(),
            _ => false,
        }
    }

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

    /// An [`Error::Invalid`].
    pub(crate) fn invalid(what: &'static str, expected: impl Display, found: impl Display) -> Self {
        Error::Invalid { what, expected: expected.to_string(), found: found.to_string() }
    }

    /// An [`Error::Setting`].
    pub(crate) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Setting { what: what.into(), why: why.into() }
    }
}
