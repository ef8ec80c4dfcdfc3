//! What can go wrong: with tensors and settings, with files, with a run.

use std::fmt;
use std::path::{Path, PathBuf};

use galerkin_data::error::{shown, shown_text};

/// The error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor has another shape than it must have.
    #[error("{what}: expected shape {expected}, found {found:?}")]
    Shape {
        /// The tensor.
        what: String,
        /// The shape it must have, sizes that are free as letters.
        expected: String,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// A grid has too few points for the frequencies a layer keeps.
    #[error("{what}: {modes} modes need a larger grid than {grid:?}, which has {most}")]
    Modes {
        /// The layer.
        what: String,
        /// Modes of the layer.
        modes: usize,
        /// Most modes of this grid.
        most: usize,
        /// Points along each axis.
        grid: Vec<usize>,
    },
    /// A config that cannot be read.
    #[error("{origin}: {why}")]
    Config {
        /// The file, or where else it came from.
        origin: String,
        /// What is wrong, and where.
        why: String,
    },
    /// A setting has no meaning.
    #[error("{what}: {why}")]
    Setting {
        /// The setting, with its value.
        what: String,
        /// The rule it breaks.
        why: String,
    },
    /// A dataset that cannot be read or does not fit, or a classical solver that gave up.
    #[error(transparent)]
    Data(#[from] galerkin_data::Error),
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file has other content than it must have.
    #[error("{}: {}: expected {}, found {}", path.display(), shown(place), shown_text(expected), shown_text(found))]
    Content {
        /// The file.
        path: PathBuf,
        /// The array, the metadata or the part of the file.
        place: String,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The arrays of a weight file are not those of the network.
    #[error("{}: {source}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// All differences.
        source: Mismatch,
    },
    /// A folder that is no run, a run that is there already, or one that was begun with other settings.
    #[error("{}: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The loss or its gradient is no longer a number.
    #[error(
        "training diverged at step {step}: loss {loss}, learning rate {rate:.3e}, gradient norm {norm}; {state}"
    )]
    Diverged {
        /// The step, counted from 1.
        step: u64,
        /// The loss of its batch.
        loss: f32,
        /// Its learning rate.
        rate: f64,
        /// The norm of its gradient.
        norm: f64,
        /// Where the last good state is.
        state: String,
    },
    /// A run would take longer than it may.
    #[error("training would take about {needed:.2} h and {allowed:.2} h are allowed; {suggestion}")]
    Time {
        /// Hours.
        needed: f64,
        /// Hours.
        allowed: f64,
        /// What would take less.
        suggestion: String,
    },
    /// The memory a run needs is not there.
    #[error("training needs about {needed} MB and {available} MB are free; {suggestion}")]
    Memory {
        /// Megabytes.
        needed: u64,
        /// Megabytes.
        available: u64,
        /// What would need less.
        suggestion: String,
    },
}

/// The result of everything that can go wrong here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether what was asked for cannot be done, whatever the files hold.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Modes { .. } | Error::Config { .. } | Error::Setting { .. } => true,
            Error::Data(error) => error.is_usage(),
            _ => false,
        }
    }

    /// A [`Error::Setting`].
    pub(crate) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Setting { what: what.into(), why: why.into() }
    }

    /// A [`Error::Io`]; for `map_err`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Error::Io { path: path.into(), source }
    }

    /// The same error of what was read from a file.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        let named = |what: String| format!("{}: {what}", path.display());
        match self {
            Error::Shape { what, expected, found } => Error::Shape { what: named(what), expected, found },
            Error::Setting { what, why } => Error::Setting { what: named(what), why },
            error => error,
        }
    }

    /// `Ok` if `found` is `expected`, which is also how the message spells it.
    pub(crate) fn check_shape(what: &str, found: &[usize], expected: &[usize]) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(Error::Shape { what: what.into(), expected: format!("{expected:?}"), found: found.to_vec() })
    }

    /// `Ok` if there is at least one value.
    pub(crate) fn check_filled(what: &str, found: &[usize]) -> Result<()> {
        if found.iter().all(|size| *size > 0) {
            return Ok(());
        }
        Err(Error::Shape { what: what.into(), expected: "without empty axis".into(), found: found.to_vec() })
    }
}

/// What keeps a state dict from being loaded: all of it, not the first find.
///
/// The message names the first few of each kind; the lists have them all.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Names the model needs and the file does not have.
    pub missing: Vec<String>,
    /// Names the file has and the model does not.
    pub extra: Vec<String>,
    /// Name, expected shape, found shape.
    pub misshapen: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let shown_all =
            |names: &[String]| names.iter().map(|name| shown(name).into_owned()).collect::<Vec<_>>();
        let misshapen = self.misshapen.iter();
        let misshapen = misshapen.map(|(name, expected, found)| {
            format!("{}: expected {expected:?}, found {found:?}", shown(name))
        });
        write!(f, "weights do not fit the model")?;
        list(f, "missing", &self.missing)?;
        list(f, "not known", &shown_all(&self.extra))?;
        list(f, "misshapen", &misshapen.collect::<Vec<_>>())
    }
}

/// The first few names, and how many more there are.
fn list(f: &mut fmt::Formatter, what: &str, names: &[String]) -> fmt::Result {
    const SHOWN: usize = 4;
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    match (shown, more.len()) {
        ([], _) => Ok(()),
        (_, 0) => write!(f, "; {what}: {}", shown.join(", ")),
        (_, more) => write!(f, "; {what}: {} and {more} more", shown.join(", ")),
    }
}
