//! Writing files that are complete or not there at all.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes under a temporary name beside `path`, waits for the disk, and renames.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = (|| {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    })();
    written.map_err(|error| {
        // The error that matters is the first one.
        let _ = fs::remove_file(&partial);
        Error::io(path)(error)
    })
}
