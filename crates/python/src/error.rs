//! Errors of the library as Python's exceptions, in the library's words.

use std::io;

use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyFileExistsError, PyFileNotFoundError, PyMemoryError, PyOSError, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    galerkin,
    Diverged,
    PyException,
    "A training whose loss or gradient is no longer a number."
);

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// An exception to be, or one that Python raised already.
#[derive(Debug)]
pub enum Error {
    Library(galerkin::Error),
    Python(PyErr),
}

impl From<galerkin::Error> for Error {
    fn from(error: galerkin::Error) -> Self {
        Self::Library(error)
    }
}

impl From<galerkin_data::Error> for Error {
    fn from(error: galerkin_data::Error) -> Self {
        Self::Library(error.into())
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let error = match error {
            Error::Python(error) => return error,
            Error::Library(error) => error,
        };
        let words = in_python(with_sources(&error));
        match &error {
            galerkin::Error::Diverged { .. } => Diverged::new_err(words),
            galerkin::Error::Data(galerkin_data::Error::Exists { .. }) => PyFileExistsError::new_err(words),
            galerkin::Error::Memory { .. } => PyMemoryError::new_err(words),
            _ => match system_error(&error).map(io::Error::kind) {
                Some(io::ErrorKind::NotFound) => PyFileNotFoundError::new_err(words),
                Some(io::ErrorKind::AlreadyExists) => PyFileExistsError::new_err(words),
                Some(_) => PyOSError::new_err(words),
                None => PyValueError::new_err(words),
            },
        }
    }
}

/// What an error says, and what the errors behind it say that it does not.
fn with_sources(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source()).map(ToString::to_string);
    behind.fold(
        error.to_string(),
        |words, more| if words.contains(&more) { words } else { format!("{words}: {more}") },
    )
}

/// The library names ways out by the flags of the command.
fn in_python(words: String) -> String {
    let flags = [
        ("--set", "settings"),
        ("--allow-nan", "allow_nan=True"),
        ("--include-training", "include_training=True"),
        ("--resume", "galerkin.resume"),
        ("--symmetric", "symmetric=True"),
        ("--data", "data=…"),
        ("--out", "out=…"),
        ("--grid", "grid=…"),
        ("--noise", "noise=…"),
    ];
    flags.iter().fold(words, |words, (flag, instead)| words.replace(flag, instead))
}

/// What the operating system said, if it was the one that refused.
fn system_error(error: &galerkin::Error) -> Option<&io::Error> {
    match error {
        galerkin::Error::Io { source, .. }
        | galerkin::Error::Data(galerkin_data::Error::Io { source, .. }) => Some(source),
        _ => None,
    }
}

/// A wrong value in the words of the caller.
pub fn wrong(words: impl Into<String>) -> Error {
    Error::Python(PyValueError::new_err(words.into()))
}
