//! The files of a dataset folder.
//!
//! | file | what |
//! | --- | --- |
//! | `meta.toml` | [`Meta`] |
//! | `inputs.npy` | (samples, points…, channels); ragged points: (all points, channels) |
//! | `targets.npy` | (samples, \[times,\] points…, channels); ragged points: (all points, channels) |
//! | `offsets.npy` | (samples + 1), of ragged points: where those of a sample begin |
//! | `points.npy` | (n, dimension), (samples, n, dimension) or, ragged, (all points, dimension) |
//! | `weights.npy` | (n), (samples, n) or, ragged, (all points) |
//! | `cells.npy` | (cells, corners), shared by all samples; ragged: of all samples, with `cell_offsets.npy` (samples + 1) |
//!
//! Of targets at other points than the inputs, names begin with `target_`.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Array;
use crate::error::{Error, Result};
use crate::io::{FolderLock, npy, read_text, source::Source, write_whole};
use crate::meta::Meta;

/// Name of the description.
pub(crate) const META: &str = "meta.toml";
/// Names of the two arrays.
pub(crate) const INPUTS: &str = "inputs.npy";
pub(crate) const TARGETS: &str = "targets.npy";

/// Which of the two domains of a folder: its points have files of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Inputs,
    Targets,
}

impl Side {
    /// The file of what is called `name`, e.g. `points`.
    pub(crate) fn file(self, name: &str) -> String {
        match self {
            Side::Inputs => format!("{name}.npy"),
            Side::Targets => format!("target_{name}.npy"),
        }
    }
}

pub(crate) fn inputs_path(folder: &Path) -> PathBuf {
    folder.join(INPUTS)
}

pub(crate) fn targets_path(folder: &Path) -> PathBuf {
    folder.join(TARGETS)
}

/// The description of a folder.
pub(crate) fn read_meta(folder: &Path) -> Result<Meta> {
    let path = folder.join(META);
    if !path.exists() {
        let found = if folder.is_dir() { "none" } else { "no folder" };
        return Err(Error::content(folder, META, "the description of a dataset", found));
    }
    let wrong = |found: String| Error::content(&path, "file", "the description of a dataset", found);
    Meta::parse(&read_text(&path, LONGEST)?).map_err(wrong)
}

/// Writes the description, complete or not at all.
pub(crate) fn write_meta(meta: &Meta, folder: &Path) -> Result<()> {
    let text = toml::to_string(meta).map_err(|error| Error::setting(META, error.to_string()))?;
    write_whole(folder.join(META), text.as_bytes())
}

/// An error if the folder is there.
pub(crate) fn check_free(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => Err(Error::Exists { path: folder.into() }),
        false => Ok(()),
    }
}

/// A folder that is whole or not there: `write` fills another one, which is then renamed. A folder that exists is left alone.
pub(crate) fn write_folder(folder: &Path, write: impl FnOnce(&Path) -> Result<Meta>) -> Result<Meta> {
    check_free(folder)?;
    // Not the name under which a dataset is generated: that work can be resumed and must not be written over.
    let mut name = OsString::from(folder.file_name().unwrap_or_default());
    name.push(".importing");
    let partial = folder.with_file_name(name);
    let mut lock = FolderLock::take(&partial)?;
    // Another process may have finished it since.
    check_free(folder)?;
    // What was left by a process that was killed.
    remove_ours(&partial);
    let written = write(&partial).and_then(|meta| {
        fs::rename(&partial, folder).map_err(Error::io(folder))?;
        lock.renamed(folder);
        Ok(meta)
    });
    if written.is_err() {
        remove_ours(&partial);
    }
    written
}

/// Removes the files of a dataset. What cannot be removed is found out by whoever writes it next.
fn remove_ours(folder: &Path) {
    let places = ["points", "weights", "cells", "offsets", "cell_offsets"];
    let places = places.iter().flat_map(|name| [Side::Inputs, Side::Targets].map(|side| side.file(name)));
    for name in places.chain([INPUTS, TARGETS, META].map(String::from)) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Writes an array that is in memory, and returns its checksum.
pub(crate) fn write_array(path: &Path, array: &Array) -> Result<String> {
    let mut bytes = npy::header(&array.shape);
    bytes.extend(array.values.iter().flat_map(|value| value.to_le_bytes()));
    write_whole(path, &bytes)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes);
    Ok(checksum_text(hasher))
}

/// A checksum as [`Meta::checksums`] spells it.
pub(crate) fn checksum_text(hasher: crc32fast::Hasher) -> String {
    format!("{:08x}", hasher.finalize())
}

/// The checksum of a whole file.
pub(crate) fn checksum(mut file: impl Read) -> std::io::Result<String> {
    let mut hasher = crc32fast::Hasher::new();
    let mut block = vec![0; 1 << 18];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(checksum_text(hasher)),
            read => hasher.update(&block[..read]),
        }
    }
}

/// An error if the bytes of a file have another checksum.
pub(crate) fn verify(source: &Source, expected: &str) -> Result<()> {
    let found = checksum(source.window(0, source.len())).map_err(Error::io(source.path()))?;
    if found != expected {
        return Err(Error::Checksum { path: source.path().into(), expected: expected.into(), found });
    }
    Ok(())
}

/// Bytes of a description; a few hundred are needed.
const LONGEST: u64 = 1 << 20;
