//! What can go wrong with an experiment or a check.

use std::path::PathBuf;

/// A theorem that does not hold in numbers, or something in the way of finding out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An inequality does not hold in numbers.
    #[error(
        "{what} does not hold: right minus left side is {slack:.3e}, and rounding explains {rounding:.1e}"
    )]
    Violated {
        /// The inequality.
        what: String,
        /// Right minus left side, relative.
        slack: f64,
        /// As much below zero as rounding can bring it.
        rounding: f64,
    },
    /// Attention with the updated matrices gives something else than the projection.
    #[error("attention is not the projection, which differs by more than {tolerance:e}: {found}")]
    NotTheProjection {
        /// What rounding can explain, and more.
        tolerance: f64,
        /// All that was measured.
        found: String,
    },
    /// A matrix has another shape than it must have.
    #[error("{what}: expected shape {expected}, found {found:?}")]
    Shape {
        /// The matrix.
        what: String,
        /// The shape it must have, sizes that are free as letters.
        expected: String,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// Something that a theorem says nothing about, or that cannot be computed.
    #[error("{what}: {why}")]
    Setting {
        /// What was asked for.
        what: String,
        /// The rule it breaks.
        why: String,
    },
    /// The folder of a row holds a run with other settings.
    #[error("{}: a run with other settings is here", path.display())]
    OtherRun {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file beside a run is not what an experiment wrote there.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A setting or a config that the library refuses, or a run that cannot be read or evaluated.
    #[error(transparent)]
    Operator(#[from] galerkin::Error),
    /// A file that cannot be written, or a solver that gave up.
    #[error(transparent)]
    Data(#[from] galerkin_data::Error),
}

/// The result of everything that reads runs or checks theorems.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether what was asked for cannot be done, whatever the files hold.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Setting { .. } => true,
            Error::Operator(error) => error.is_usage(),
            Error::Data(error) => error.is_usage(),
            _ => false,
        }
    }

    /// A [`Error::Setting`].
    pub(crate) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Setting { what: what.into(), why: why.into() }
    }
}
