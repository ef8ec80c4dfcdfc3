//! Writing files that are complete or not there at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes under a temporary name beside `path`, waits for the disk, and renames: a reader sees the old file or the new one, whole.
pub fn write_whole(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let partial = beside(path);
    let written = (|| {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        sync_folder(path)
    })();
    written.map_err(|error| {
        // The error that matters is the first one.
        let _ = fs::remove_file(&partial);
        Error::io(path)(error)
    })
}

/// The name a file has until it is complete.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// A new name is on disk when its folder is; only Unix opens folders.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}
