//! The files of a dataset folder: `inputs.npy`, `targets.npy` and `meta.toml`.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::{source::Source, write_whole};
use crate::meta::Meta;

/// Name of the description.
pub(crate) const META: &str = "meta.toml";

pub(crate) fn inputs_path(folder: &Path) -> PathBuf {
    folder.join("inputs.npy")
}

pub(crate) fn targets_path(folder: &Path) -> PathBuf {
    folder.join("targets.npy")
}

/// The description of a folder.
pub(crate) fn read_meta(folder: &Path) -> Result<Meta> {
    let path = folder.join(META);
    let source = Source::open(&path)?;
    if source.len() > LONGEST {
        let found = format!("{} bytes", source.len());
        return Err(Error::content(&path, "file", format!("at most {LONGEST} bytes"), found));
    }
    let text = source.read_vec(0, source.len(), "file")?;
    let wrong = |found: String| Error::content(&path, "file", "the description of a dataset", found);
    let text = String::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
    toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().into()))
}

/// Writes the description, complete or not at all.
pub(crate) fn write_meta(meta: &Meta, folder: &Path) -> Result<()> {
    let text = toml::to_string(meta).map_err(|error| Error::setting(META, error.to_string()))?;
    write_whole(folder.join(META), text.as_bytes())
}

/// A checksum as [`Checksums`](crate::meta::Checksums) spells it.
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
