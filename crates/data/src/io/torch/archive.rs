//! A zip archive of uncompressed entries, the only kind that PyTorch writes.
//!
//! Entries are stretches of the file. Together they are no longer than the file, so that work, too, is bounded by its length.

use std::collections::BTreeMap;
use std::io::Read;

use crate::error::{Error, Result};
use crate::io::source::Source;

/// The entries of an archive by name, without the folder they all lie in.
#[derive(Debug)]
pub(super) struct Archive(BTreeMap<String, Entry>);

/// A stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub start: u64,
    pub len: u64,
    checksum: u32,
}

/// An error in an entry or another part of the archive.
pub(super) fn broken(
    source: &Source,
    place: &str,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    Error::content(source.path(), format!("zip archive, {place}"), expected, found)
}

/// Whether it is an archive with an entry `data.pkl`, in a folder or not; whatever else may be wrong with it.
pub(in crate::io) fn has_pickle(source: &Source) -> bool {
    let Ok(directory) = Directory::read(source) else { return false };
    let mut at = 0;
    // A damaged record ends the search: the reader that gets the file says what is wrong.
    while let Ok(record) = directory.record(source, at) {
        if record.name == "data.pkl" || record.name.ends_with("/data.pkl") {
            return true;
        }
        at = record.next;
    }
    false
}

impl Archive {
    pub fn open(source: &Source) -> Result<Self> {
        let directory = Directory::read(source)?;
        let mut entries = BTreeMap::new();
        let (mut at, mut total) = (0, 0u64);
        for _ in 0..directory.count {
            let record = directory.record(source, at)?;
            let entry = record.entry(source)?;
            total = total.saturating_add(entry.len);
            if total > source.len() {
                let found = "more bytes than the file has";
                return Err(broken(source, record.name, "entries that do not overlap", found));
            }
            if entries.insert(record.name.to_string(), entry).is_some() {
                return Err(broken(source, record.name, "such an entry once", "it twice"));
            }
            at = record.next;
        }
        let Some(folder) = entries.keys().find_map(|name| name.strip_suffix("data.pkl")) else {
            return Err(broken(source, "directory", "an entry `data.pkl`", "none"));
        };
        let folder = folder.to_string();
        let inside = |(name, entry): (String, Entry)| Some((name.strip_prefix(&folder)?.to_string(), entry));
        Ok(Archive(entries.into_iter().filter_map(inside).collect()))
    }

    pub fn find(&self, name: &str) -> Option<Entry> {
        self.0.get(name).copied()
    }

    pub fn get(&self, source: &Source, name: &str) -> Result<Entry> {
        self.find(name).ok_or_else(|| broken(source, name, "such an entry", "none"))
    }
}

impl Entry {
    /// All its bytes, which agree with its checksum.
    pub fn read(&self, source: &Source, name: &str) -> Result<Vec<u8>> {
        let bytes = source.read_vec(self.start, self.len, name)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes);
        self.agree(hasher, source, name)?;
        Ok(bytes)
    }

    /// `Ok` if its bytes, which are read once and not kept, agree with its checksum.
    pub fn check(&self, source: &Source, name: &str) -> Result<()> {
        let mut stream = source.window(self.start, self.len);
        let mut hasher = crc32fast::Hasher::new();
        let mut block = vec![0; self.len.min(1 << 18) as usize];
        loop {
            match stream.read(&mut block).map_err(Error::io(source.path()))? {
                0 => return self.agree(hasher, source, name),
                read => hasher.update(&block[..read]),
            }
        }
    }

    fn agree(&self, hasher: crc32fast::Hasher, source: &Source, name: &str) -> Result<()> {
        if hasher.finalize() == self.checksum {
            return Ok(());
        }
        let found = "others: the file is damaged, or was saved with set_crc32_options(False)";
        Err(broken(source, name, "bytes that agree with their checksum", found))
    }
}

/// The central directory: one record per entry.
struct Directory {
    bytes: Vec<u8>,
    /// Where it begins in the file.
    begin: u64,
    count: u64,
}

/// One entry, as the directory has it.
struct Record<'a> {
    name: &'a str,
    method: u16,
    flags: u16,
    checksum: u32,
    plain: u64,
    packed: u64,
    /// Where its local header is.
    local: u64,
    /// Where the next record is.
    next: usize,
}

impl Directory {
    /// The last record of the file: signature, 6 bytes, count 10, 4 bytes, begin 16, length of comment 20. In front of it, if sizes
    /// did not fit (PyTorch: always), a pointer of 20 bytes with the place of a wider record at 8: count 32, begin 48, end 56.
    fn read(source: &Source) -> Result<Self> {
        let lost = || {
            let found = "a file that is cut short or no archive";
            broken(source, "end", "a zip archive with its directory at the end", found)
        };
        let tail_at = source.len().saturating_sub(22 + 20 + u64::from(u16::MAX));
        let tail = source.read_vec(tail_at, source.len() - tail_at, "end of the archive")?;
        let end = tail.windows(4).rposition(|four| four == b"PK\x05\x06").ok_or_else(lost)?;
        let record = tail.get(end..end + 22).ok_or_else(lost)?;
        let (mut begin, mut count) = (u32_at(record, 16) as u64, u16_at(record, 10) as u64);
        let mut stop = tail_at + end as u64;
        let pointer = end.checked_sub(20).map(|at| &tail[at..end]).filter(|p| p.starts_with(b"PK\x06\x07"));
        if let Some(pointer) = pointer {
            let place = u64_at(pointer, 8);
            let wide = source.read_vec(place, 56, "end of the archive").map_err(|_| lost())?;
            if !wide.starts_with(b"PK\x06\x06") {
                return Err(lost());
            }
            (count, begin) = (u64_at(&wide, 32), u64_at(&wide, 48));
            stop = stop.min(place);
        }
        let len = stop.checked_sub(begin).ok_or_else(lost)?;
        if len > LONGEST_DIRECTORY {
            let expected = format!("at most {LONGEST_DIRECTORY} bytes");
            return Err(broken(source, "directory", expected, len.to_string()));
        }
        Ok(Self { bytes: source.read_vec(begin, len, "directory of the archive")?, begin, count })
    }

    /// The record: signature 0, flags 8, method 10, checksum 16, sizes packed 20 and plain 24, lengths of name 28,
    /// extra fields 30 and comment 32, place of the local header 42, name 46.
    fn record(&self, source: &Source, at: usize) -> Result<Record<'_>> {
        let wrong = |expected: &str, found: &str| {
            broken(source, &format!("directory, byte {}", self.begin + at as u64), expected, found)
        };
        let short = || wrong("a record of an entry", "one that is cut short");
        let record = self.bytes.get(at..).filter(|record| record.len() >= 46).ok_or_else(short)?;
        if !record.starts_with(b"PK\x01\x02") {
            return Err(wrong("a record of an entry", &format!("{:02x?}", &record[..4])));
        }
        let [name_len, extra_len, comment_len] = [28, 30, 32].map(|field| u16_at(record, field) as usize);
        let end = 46 + name_len + extra_len + comment_len;
        let texts = record.get(46..end).ok_or_else(short)?;
        let name =
            std::str::from_utf8(&texts[..name_len]).map_err(|_| wrong("a name in UTF-8", "other bytes"))?;
        let mut fields = [24, 20, 42].map(|field| u32_at(record, field) as u64);
        widen(&mut fields, &texts[name_len..name_len + extra_len]);
        let [plain, packed, local] = fields;
        let (flags, method) = (u16_at(record, 8), u16_at(record, 10));
        Ok(Record { name, method, flags, checksum: u32_at(record, 16), plain, packed, local, next: at + end })
    }
}

impl Record<'_> {
    /// Its bytes lie behind its local header: lengths of name 26 and extra fields 28, end 30.
    fn entry(&self, source: &Source) -> Result<Entry> {
        if self.method != 0 || self.flags & 1 != 0 {
            let found = format!("method {} and flags {:#x}", self.method, self.flags);
            return Err(broken(source, self.name, "an entry that is not compressed or encrypted", found));
        }
        let place = || -> Option<u64> {
            let mut header = [0; 30];
            source.read_at(self.local, &mut header, self.name).ok()?;
            let start = 30 + u16_at(&header, 26) as u64 + u16_at(&header, 28) as u64;
            let start = self.local.checked_add(start)?;
            source.check_range(start, self.plain, self.name).ok()?;
            (header.starts_with(b"PK\x03\x04") && self.plain == self.packed).then_some(start)
        };
        let start = place()
            .ok_or_else(|| broken(source, self.name, "its bytes where the directory says", "none there"))?;
        Ok(Entry { start, len: self.plain, checksum: self.checksum })
    }
}

/// Replaces the fields that did not fit 32 bits by those of the extra field 1, which has them in the same order.
fn widen(fields: &mut [u64; 3], mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (kind, len) = (u16_at(extra, 0), u16_at(extra, 2) as usize);
        let Some(body) = extra.get(4..4 + len) else { return };
        if kind == 1 {
            let wide = body.chunks_exact(8).map(|wide| u64_at(wide, 0));
            fields.iter_mut().filter(|field| **field == u32::MAX as u64).zip(wide).for_each(|(f, w)| *f = w);
        }
        extra = &extra[4 + len..];
    }
}

/// Bytes of a directory; that of a million entries has some tens of them each.
const LONGEST_DIRECTORY: u64 = 64 << 20;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) as u32 | (u16_at(bytes, at + 2) as u32) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) as u64 | (u32_at(bytes, at + 4) as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_fields_replace_those_that_did_not_fit() {
        let mut fields = [7, u32::MAX as u64, u32::MAX as u64];
        let mut extra = vec![9, 0, 1, 0, 42];
        extra.extend([1, 0, 16, 0]);
        extra.extend(5_000_000_000u64.to_le_bytes());
        extra.extend(6_000_000_000u64.to_le_bytes());
        widen(&mut fields, &extra);
        assert_eq!(fields, [7, 5_000_000_000, 6_000_000_000]);
        widen(&mut fields, &[1, 0, 200, 0, 1]);
        assert_eq!(fields, [7, 5_000_000_000, 6_000_000_000]);
    }
}
