//! Bytes at positions, of a file or of memory.
//!
//! Files are read at positions rather than mapped: a mapping needs `unsafe`, and a file that is cut short while it is mapped kills the
//! process.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::memory::filled;
use crate::error::{Error, Result};

/// A file, or bytes in memory that stand for one.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: PathBuf,
    len: u64,
    bytes: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    File(Arc<std::fs::File>),
    Memory(Arc<[u8]>),
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Before it is opened: opening a pipe waits for a writer, and opening a device may do anything.
        regular(path, &std::fs::metadata(path).map_err(Error::io(path))?)?;
        let file = std::fs::File::open(path).map_err(Error::io(path))?;
        // And of what was opened, in case the name came to mean another file.
        let metadata = file.metadata().map_err(Error::io(path))?;
        regular(path, &metadata)?;
        Ok(Self { path: path.into(), len: metadata.len(), bytes: Bytes::File(Arc::new(file)) })
    }

    /// `path` is what errors call the bytes.
    pub(crate) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Self {
        Self { path: path.into(), len: bytes.len() as u64, bytes: Bytes::Memory(bytes.into()) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Fills `buffer` from `offset`; `place` is what the bytes belong to.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8], place: &str) -> Result<()> {
        self.check_range(offset, buffer.len() as u64, place)?;
        match &self.bytes {
            Bytes::File(file) => read_file_at(file, offset, buffer).map_err(Error::io(&self.path)),
            Bytes::Memory(bytes) => {
                // The range check keeps both ends inside the slice.
                buffer.copy_from_slice(&bytes[offset as usize..offset as usize + buffer.len()]);
                Ok(())
            }
        }
    }

    /// `len` bytes from `offset`, not allocated before they are known to exist.
    pub(crate) fn read_vec(&self, offset: u64, len: u64, place: &str) -> Result<Vec<u8>> {
        self.check_range(offset, len, place)?;
        // A length that exists in a file may still be more than this machine counts to.
        let count = usize::try_from(len).unwrap_or(usize::MAX);
        let mut buffer = filled(0, count, &self.path, place)?;
        self.read_at(offset, &mut buffer, place)?;
        Ok(buffer)
    }

    /// `Ok` if the file has `len` bytes from `offset` on.
    pub(crate) fn check_range(&self, offset: u64, len: u64, place: &str) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::content(
                &self.path,
                place,
                format!("{len} bytes from byte {offset} on"),
                format!("a file of {} bytes", self.len),
            )),
        }
    }

    /// The bytes from `offset` to `offset + len` as a stream, ending early where the file ends.
    pub(crate) fn window(&self, offset: u64, len: u64) -> Window<'_> {
        let start = offset.min(self.len);
        Window { source: self, start, end: start + len.min(self.len - start), at: start }
    }
}

/// The text of a file of at most `largest` bytes, e.g. of a config. What is no regular file, longer or no UTF-8 is an error that names it.
pub fn read_text(path: impl AsRef<Path>, largest: u64) -> Result<String> {
    let source = Source::open(path.as_ref())?;
    if source.len() > largest {
        let found = format!("{} bytes", source.len());
        return Err(Error::content(source.path(), "file", format!("at most {largest} bytes"), found));
    }
    let bytes = source.read_vec(0, source.len(), "file")?;
    String::from_utf8(bytes).map_err(|error| {
        let found = format!("others from byte {} on", error.utf8_error().valid_up_to());
        Error::content(source.path(), "file", "letters of UTF-8", found)
    })
}

/// An error for what has no length to judge by.
fn regular(path: &Path, metadata: &std::fs::Metadata) -> Result<()> {
    let found = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        _ => "a device or a pipe",
    };
    Err(Error::content(path, "path", "a file", found))
}

/// A stretch of a source as a stream.
pub(crate) struct Window<'a> {
    source: &'a Source,
    start: u64,
    end: u64,
    at: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = (buffer.len() as u64).min(self.end.saturating_sub(self.at)) as usize;
        match &self.source.bytes {
            Bytes::File(file) => read_file_at(file, self.at, &mut buffer[..len])?,
            Bytes::Memory(bytes) if len > 0 => {
                buffer[..len].copy_from_slice(&bytes[self.at as usize..self.at as usize + len])
            }
            Bytes::Memory(_) => {}
        }
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Window<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let at = match to {
            SeekFrom::Start(offset) => self.start.checked_add(offset),
            SeekFrom::End(offset) => self.end.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        match at {
            Some(at) if at >= self.start => {
                self.at = at;
                Ok(at - self.start)
            }
            _ => Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "seek before the first byte")),
        }
    }
}

#[cfg(unix)]
fn read_file_at(file: &std::fs::File, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_file_at(file: &std::fs::File, mut offset: u64, mut buffer: &mut [u8]) -> std::io::Result<()> {
    while !buffer.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
        offset += read as u64;
    }
    Ok(())
}
