//! A zip archive of uncompressed entries, the only kind that PyTorch writes.
//!
//! Entries are slices of the file. Together they are no longer than the file, so that work, too, is bounded by its length.

use std::collections::BTreeMap;

use super::Problem;

/// The entries of an archive by name, without the folder they all lie in; every checksum has been checked.
pub(super) struct Archive<'a>(BTreeMap<&'a str, &'a [u8]>);

/// A [`Problem::Archive`].
pub(super) fn broken(place: impl Into<String>, why: impl Into<String>) -> Problem {
    Problem::Archive { place: place.into(), why: why.into() }
}

impl<'a> Archive<'a> {
    pub fn open(file: &'a [u8]) -> Result<Self, Problem> {
        let (mut at, count) = directory(file)?;
        let mut entries = BTreeMap::new();
        let mut total = 0usize;
        for _ in 0..count {
            let entry = Entry::read(file, at)?;
            total = total.saturating_add(entry.bytes.len());
            if total > file.len() {
                return Err(broken(entry.name, "entries overlap"));
            }
            if checksum(entry.bytes) != entry.checksum {
                return Err(broken(
                    entry.name,
                    "the checksum is wrong: the file is damaged, or was saved with set_crc32_options(False)",
                ));
            }
            if entries.insert(entry.name, entry.bytes).is_some() {
                return Err(broken(entry.name, "the entry is there twice"));
            }
            at = entry.next;
        }
        let Some(folder) = entries.keys().find_map(|name| name.strip_suffix("data.pkl")) else {
            return Err(broken("directory", "expected an entry `data.pkl`, found none"));
        };
        let inside = |(name, bytes): (&'a str, &'a [u8])| Some((name.strip_prefix(folder)?, bytes));
        Ok(Archive(entries.into_iter().filter_map(inside).collect()))
    }

    pub fn find(&self, name: &str) -> Option<&'a [u8]> {
        self.0.get(name).copied()
    }

    pub fn get(&self, name: &str) -> Result<&'a [u8], Problem> {
        self.find(name).ok_or_else(|| broken(name, "expected such an entry, found none"))
    }
}

/// One entry, from its record in the central directory.
struct Entry<'a> {
    name: &'a str,
    bytes: &'a [u8],
    checksum: u32,
    /// Where the next record is.
    next: usize,
}

impl<'a> Entry<'a> {
    /// The record: signature 0, flags 8, method 10, checksum 16, sizes packed 20 and plain 24, lengths of name 28,
    /// extra fields 30 and comment 32, place of the local header 42, name 46. In the local header, which is repeated
    /// in front of the values: lengths of name 26 and extra fields 28, end 30.
    fn read(file: &'a [u8], at: usize) -> Result<Self, Problem> {
        let short = || broken(format!("directory, byte {at}"), "the record is cut short");
        let record = file.get(at..).filter(|record| record.len() >= 46).ok_or_else(short)?;
        if !record.starts_with(b"PK\x01\x02") {
            return Err(broken(format!("directory, byte {at}"), "expected a record of an entry"));
        }
        let [name_len, extra_len, comment_len] = [28, 30, 32].map(|field| u16_at(record, field) as usize);
        let end = 46 + name_len + extra_len + comment_len;
        let texts = record.get(46..end).ok_or_else(short)?;
        let name = std::str::from_utf8(&texts[..name_len])
            .map_err(|_| broken(format!("directory, byte {at}"), "the name is no UTF-8"))?;
        let (flags, method) = (u16_at(record, 8), u16_at(record, 10));
        if method != 0 || flags & 1 != 0 {
            return Err(broken(name, "compressed or encrypted, which PyTorch does not do"));
        }
        let mut fields = [24, 20, 42].map(|field| u32_at(record, field) as u64);
        widen(&mut fields, &texts[name_len..name_len + extra_len]);
        let [plain, packed, local] = fields;
        let bytes = (plain == packed).then(|| values(file, local, plain)).flatten();
        let bytes = bytes.ok_or_else(|| broken(name, "its values are not where the directory says"))?;
        Ok(Entry { name, bytes, checksum: u32_at(record, 16), next: at + end })
    }
}

/// The bytes behind the local header at `local`.
fn values(file: &[u8], local: u64, len: u64) -> Option<&[u8]> {
    let header = file.get(usize::try_from(local).ok()?..)?;
    if header.len() < 30 || !header.starts_with(b"PK\x03\x04") {
        return None;
    }
    let start = 30 + u16_at(header, 26) as usize + u16_at(header, 28) as usize;
    header.get(start..)?.get(..usize::try_from(len).ok()?)
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

/// Where the central directory begins, and how many entries it has.
///
/// The last record of the file: signature, 6 bytes, count 10, 4 bytes, begin 16, length of comment 20. In front of it, if sizes did
/// not fit (PyTorch: always), a pointer of 20 bytes with the place of a wider record at 8: count 32, begin 48, end 56.
fn directory(file: &[u8]) -> Result<(usize, usize), Problem> {
    let lost = || {
        broken(
            "end",
            "expected a zip archive with its directory at the end; the file is cut short or no archive",
        )
    };
    let tail = file.len().saturating_sub(22 + u16::MAX as usize);
    let end = file[tail..].windows(4).rposition(|four| four == b"PK\x05\x06").ok_or_else(lost)? + tail;
    let record = file.get(end..end + 22).ok_or_else(lost)?;
    let (mut begin, mut count) = (u32_at(record, 16) as u64, u16_at(record, 10) as u64);
    let pointer = end.checked_sub(20).map(|at| &file[at..end]).filter(|p| p.starts_with(b"PK\x06\x07"));
    if let Some(pointer) = pointer {
        let place = usize::try_from(u64_at(pointer, 8)).map_err(|_| lost())?;
        let wide = file.get(place..).filter(|wide| wide.len() >= 56 && wide.starts_with(b"PK\x06\x06"));
        let wide = wide.ok_or_else(lost)?;
        (count, begin) = (u64_at(wide, 32), u64_at(wide, 48));
    }
    Ok((usize::try_from(begin).map_err(|_| lost())?, usize::try_from(count).map_err(|_| lost())?))
}

/// CRC-32 of the zip format.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

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
    fn the_checksum_is_crc_32() {
        // The check value that catalogues of CRCs give for this polynomial.
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

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
