//! What can be wrong with the shapes and settings a caller hands in.

/// An input, a parameter or a setting that does not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
}

/// The result of everything that takes tensors from outside.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A [`Error::Setting`].
    pub(crate) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Setting { what: what.into(), why: why.into() }
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
