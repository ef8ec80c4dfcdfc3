//! `.npz`: a zip archive of `.npy` files, stored or deflated.

use std::io::{Read, Seek, SeekFrom};

use zip::ZipArchive;

use super::element::{DEFLATE_RATIO, Take};
use super::npy::Header;
use super::source::Source;
use super::{Allowance, Kind, Variable, apart};
use crate::error::{Error, Result};

/// An archive whose directory was read once; a clone of it, which shares the directory, reads an entry.
#[derive(Debug)]
pub(super) struct Npz {
    archive: Archive,
    /// One per variable.
    entries: Vec<Entry>,
}

/// Where an array is.
#[derive(Debug)]
struct Entry {
    index: usize,
    /// `None` if the entry is no array of numbers.
    header: Option<Header>,
}

/// Every entry that ends in `.npy`, without the ending.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Npz)> {
    let mut archive = archive(source)?;
    let (mut variables, mut entries) = (Vec::new(), Vec::new());
    let mut lens = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| wrong(source, "directory", error))?;
        let full_name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        lens.push(entry.compressed_size());
        drop(entry);
        let Some(name) = full_name.strip_suffix(".npy") else { continue };
        let (shape, kind, header) = match read_header(source, &mut archive, index, name) {
            Ok(header) => (header.shape.clone(), Kind::Numbers(header.element), Some(header)),
            // Arrays of text or of objects may lie beside numbers; the message says what was found.
            Err(error) => (vec![], Kind::Other(format!("no array that can be read ({error})")), None),
        };
        let variable = Variable::new(name.into(), shape, kind);
        let fortran = header.as_ref().is_some_and(|header| header.fortran);
        variables.push(if fortran { variable.column_major() } else { variable });
        entries.push(Entry { index, header });
    }
    if entries.is_empty() {
        let found = format!("{} entries of other kinds", archive.len());
        return Err(Error::content(source.path(), "archive", "at least one .npy", found));
    }
    apart(source, lens.into_iter())?;
    Ok((variables, Npz { archive, entries }))
}

pub(super) fn scan(
    source: &Source,
    file: &Npz,
    at: usize,
    name: &str,
    allowance: Allowance,
    take: &mut Take<'_>,
) -> Result<()> {
    let entry = &file.entries[at];
    let Some(header) = &entry.header else { unreachable!("only arrays of numbers are read") };
    let mut archive = file.archive.clone();
    let mut stream = archive.by_index(entry.index).map_err(|error| wrong(source, name, error))?;
    if stream.compression() != zip::CompressionMethod::Stored {
        allowance.check(source, name, (header.count() * header.element.size()) as u64)?;
    }
    // The header again, to stand behind it.
    let again = Header::read(&mut stream, source, name, u64::MAX)?;
    if again != *header {
        return Err(Error::content(source.path(), name, "the header of the listing", "another header"));
    }
    header.scan(&mut stream, source, name, take)?;
    // Reading on to the end makes the archive's checksum speak.
    let after = std::io::copy(&mut std::io::Read::take(&mut stream, 1), &mut std::io::sink())
        .map_err(|error| Error::content(source.path(), name, "an undamaged entry", error.to_string()))?;
    if after > 0 {
        return Err(Error::content(source.path(), name, format!("{} values", header.count()), "more bytes"));
    }
    Ok(())
}

/// The header of an entry, checked against what its bytes can become.
fn read_header(source: &Source, archive: &mut Archive, index: usize, name: &str) -> Result<Header> {
    let mut stream = archive.by_index(index).map_err(|error| wrong(source, name, error))?;
    let compressed = stream.compressed_size().min(source.len());
    let most = match stream.compression() {
        zip::CompressionMethod::Stored => compressed,
        _ => compressed.saturating_mul(DEFLATE_RATIO),
    };
    let header = Header::read(&mut stream, source, name, u64::MAX)?;
    let bytes = (header.count() * header.element.size()) as u64;
    if bytes > most {
        let expected = format!("{bytes} bytes for shape {:?} of {}", header.shape, header.element.name());
        let found = format!("{compressed} bytes, which hold at most {most}");
        return Err(Error::content(source.path(), name, expected, found));
    }
    Ok(header)
}

type Archive = ZipArchive<Reader>;

fn archive(source: &Source) -> Result<Archive> {
    ZipArchive::new(Reader { source: source.clone(), at: 0 })
        .map_err(|error| wrong(source, "directory", error))
}

/// A place in the file. It shares the file with its clones and has no buffer: the decoder of the archive has one.
#[derive(Clone, Debug)]
struct Reader {
    source: Source,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.window(self.at, u64::MAX).read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let to = match to {
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset).map(SeekFrom::Start),
            to => Some(to),
        };
        let before = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "seek before the first byte");
        self.at = self.source.window(0, u64::MAX).seek(to.ok_or_else(before)?)?;
        Ok(self.at)
    }
}

fn wrong(source: &Source, place: &str, error: zip::result::ZipError) -> Error {
    Error::Zip { path: source.path().into(), place: place.into(), why: error.to_string() }
}
