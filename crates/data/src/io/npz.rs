//! `.npz`: a zip archive of `.npy` files, stored or deflated.

use std::io::BufReader;

use zip::ZipArchive;

use super::element::{DEFLATE_RATIO, Take};
use super::npy::Header;
use super::source::{Source, Window};
use super::{Allowance, Kind, Variable};
use crate::error::{Error, Result};

/// Where an array is.
#[derive(Debug)]
pub(super) struct Entry {
    index: usize,
    /// `None` if the entry is no array of numbers.
    header: Option<Header>,
}

/// Every entry that ends in `.npy`, without the ending.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Vec<Entry>)> {
    let mut archive = archive(source)?;
    let (mut variables, mut entries) = (Vec::new(), Vec::new());
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| wrong(source, "directory", error))?;
        let full_name = String::from_utf8_lossy(entry.name_raw()).into_owned();
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
    Ok((variables, entries))
}

pub(super) fn scan(
    source: &Source,
    entry: &Entry,
    name: &str,
    allowance: Allowance,
    take: &mut Take<'_>,
) -> Result<()> {
    let Some(header) = &entry.header else { unreachable!("only arrays of numbers are read") };
    let mut archive = archive(source)?;
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
fn read_header(source: &Source, archive: &mut Archive<'_>, index: usize, name: &str) -> Result<Header> {
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

type Archive<'a> = ZipArchive<BufReader<Window<'a>>>;

fn archive(source: &Source) -> Result<Archive<'_>> {
    ZipArchive::new(BufReader::new(source.window(0, source.len())))
        .map_err(|error| wrong(source, "directory", error))
}

fn wrong(source: &Source, place: &str, error: zip::result::ZipError) -> Error {
    Error::Zip { path: source.path().into(), place: place.into(), source: Box::new(error) }
}
