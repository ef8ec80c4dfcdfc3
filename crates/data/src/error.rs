//! What can be wrong with the files, arrays, settings and equations a caller hands in.
//!
//! Messages hold words of files that nobody trusts. They go through [`shown`] and its like where a message is put together, so that
//! no file writes to a terminal what moves its cursor, and none fills it.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A file, an array, a setting or an equation that does not fit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", shown_path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file does not hold what its format or its own header says it must.
    #[error(
        "{}: {}: expected {}, found {}",
        shown_path(path),
        shown(place),
        shown_text(expected),
        shown_text(found)
    )]
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
    #[error(
        "{}: variable `{}`: expected an array of real numbers, found {}",
        shown_path(path),
        shown(variable),
        shown_text(found)
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The variable.
        variable: String,
        /// What it is instead.
        found: String,
    },
    /// A file has no variable of this name.
    #[error("{}: no variable `{}`; the file has {}", shown_path(path), shown(variable), shown_text(known))]
    NoVariable {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        variable: String,
        /// The names there are.
        known: String,
    },
    /// Part of an HDF5 file cannot be decoded.
    #[error("{}: {}: {}", shown_path(path), shown(place), shown_text(why))]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The variable or the part of the file.
        place: String,
        /// What the decoder found. Its words may be those of the file: as a cause it would be shown as it is.
        why: String,
    },
    /// Part of a zip archive cannot be decoded.
    #[error("{}: {}: {}", shown_path(path), shown(place), shown_text(why))]
    Zip {
        /// The file.
        path: PathBuf,
        /// The entry or the part of the file.
        place: String,
        /// What the decoder found.
        why: String,
    },
    /// The system has not the memory that a file needs.
    #[error("{}: {}: {bytes} bytes of memory are needed and cannot be had", shown_path(path), shown(place))]
    Memory {
        /// The file.
        path: PathBuf,
        /// The variable or the part of the file.
        place: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A compressed variable is larger than its file makes likely.
    #[error(
        "{}: variable `{}`: {bytes} bytes out of a file of {file}; more than 64 MB and more than {factor} times the file is \
         taken only from a file that is trusted: then allow a factor of {needed} (--expand {needed})",
        shown_path(path),
        shown(variable)
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
    #[error(
        "{}: expected checksum {}, found {found}: the file was changed or damaged",
        shown_path(path),
        shown(expected)
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The checksum on record.
        expected: String,
        /// The checksum of the bytes.
        found: String,
    },
    /// An array has another shape than it must have.
    #[error("{}: expected shape {expected}, found {found:?}", shown_text(what))]
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
        "{}: expected finite values, found {nan} NaN and {infinite} infinite, first in sample {sample}",
        shown_text(what)
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
    #[error("{}: {}", shown_text(what), shown_text(why))]
    Setting {
        /// The setting, with its value.
        what: String,
        /// The rule it breaks.
        why: String,
    },
    /// A folder that is to be written is there already.
    #[error("{} exists already", shown_path(path))]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that another process is writing.
    #[error("{} is being written by {by}; wait for it, or choose another folder", path.display())]
    Held {
        /// The folder.
        path: PathBuf,
        /// Who writes it.
        by: String,
    },
    /// A half-written dataset belongs to other settings.
    #[error(
        "{} was begun with another {what}: expected {expected}, found {found}; finish it as it was begun, or delete it",
        shown_path(path)
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
    #[error("{} is damaged: {}; delete the folder to begin again", shown_path(path), shown_text(reason))]
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

/// Words of a file as a line of a terminal shows them: control characters, and those that turn the direction of writing or show
/// nothing, by their numbers; at most 200 characters.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, MOST_OF_A_NAME, false)
}

/// The same for a message of several lines.
pub fn shown_text(text: &str) -> Cow<'_, str> {
    escaped(text, MOST_OF_A_TEXT, true)
}

/// The same for a path, which the system keeps short.
fn shown_path(path: &Path) -> String {
    escaped(&path.to_string_lossy(), usize::MAX, false).into_owned()
}

/// Characters of a name: longer than any that people give, and no more than a few lines.
const MOST_OF_A_NAME: usize = 200;
/// Characters of a message, which may list what there is.
const MOST_OF_A_TEXT: usize = 8000;

fn escaped(text: &str, most: usize, lines: bool) -> Cow<'_, str> {
    let hidden = |c: char| {
        let invisible = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
        (c.is_control() && !(lines && c == '\n'))
            || invisible.iter().any(|range| range.contains(&c))
            || matches!(c, '\u{61c}' | '\u{feff}')
    };
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    if end == text.len() && !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut words = String::new();
    for c in text[..end].chars() {
        if hidden(c) {
            words.extend(c.escape_default());
        } else {
            words.push(c);
        }
    }
    if end < text.len() {
        words += &format!("… ({} bytes in all)", text.len());
    }
    Cow::Owned(words)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_by_its_number() {
        assert_eq!(shown("u_0 [π] \"x\" \\"), "u_0 [π] \"x\" \\");
        assert!(matches!(shown("plain"), Cow::Borrowed("plain")));
        assert_eq!(shown("\u{1b}[2Ja\r\n\u{202e}b\0"), "\\u{1b}[2Ja\\r\\n\\u{202e}b\\u{0}");
        assert_eq!(shown_text("two\nlines\u{7}"), "two\nlines\\u{7}");
        let long = "é".repeat(201);
        assert_eq!(shown(&long), format!("{}… (402 bytes in all)", "é".repeat(200)));
        assert_eq!(shown(&long[2..]), long[2..]);
    }

    #[test]
    fn every_message_of_a_file_is_harmless() {
        let evil = || "\u{1b}]0;x\u{7}".to_string();
        let path = || PathBuf::from(evil());
        let errors = [
            Error::content(&path(), evil(), evil(), evil()),
            Error::Unsupported { path: path(), variable: evil(), found: evil() },
            Error::NoVariable { path: path(), variable: evil(), known: evil() },
            Error::Expansion { path: path(), variable: evil(), bytes: 1, file: 1, factor: 1, needed: 1 },
            Error::Memory { path: path(), place: evil(), bytes: 1 },
            Error::Hdf5 { path: path(), place: evil(), why: evil() },
            Error::Zip { path: path(), place: evil(), why: evil() },
            Error::Checksum { path: path(), expected: evil(), found: "0".into() },
            Error::setting(evil(), evil()),
        ];
        for error in errors {
            // A cause would be printed behind it, as it is.
            assert!(std::error::Error::source(&error).is_none(), "{error}");
            let message = error.to_string();
            assert!(
                message.contains("\\u{1b}]0;x\\u{7}") && !message.contains(char::is_control),
                "{message}"
            );
        }
    }
}
