//! Event files that TensorBoard reads.
//!
//! A file is a row of records, each a length and bytes with a checksum behind either; the bytes are a message `Event` in the
//! encoding of protocol buffers, of which a few fields are needed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file of scalars over steps.
#[derive(Debug)]
pub struct EventFile {
    out: BufWriter<File>,
}

impl EventFile {
    /// A new file in a folder. Of older files in it, what comes after `step` is no longer shown.
    pub fn create(folder: &Path, step: u64) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let now = seconds();
        // Files are read in the order of their names.
        let path = folder.join(format!("events.out.tfevents.{:010}.galerkin.{step:010}", now as u64));
        let mut file = Self { out: BufWriter::new(File::create(path)?) };
        file.write(&event(now, 0, |event| bytes(event, field::FILE_VERSION, b"brain.Event:2")))?;
        file.write(&event(now, step, |event| {
            let mut start = Vec::new();
            tag(&mut start, field::STATUS, VARINT);
            varint(&mut start, 1);
            bytes(event, field::SESSION_LOG, &start);
        }))?;
        file.flush()?;
        Ok(file)
    }

    /// Some values at a step, under names such as `train/loss`.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        let mut summary = Vec::new();
        for (name, scalar) in values {
            let mut value = Vec::new();
            bytes(&mut value, field::TAG, name.as_bytes());
            tag(&mut value, field::SIMPLE_VALUE, FIXED32);
            value.extend((*scalar as f32).to_le_bytes());
            bytes(&mut summary, field::VALUE, &value);
        }
        self.write(&event(seconds(), step, |event| bytes(event, field::SUMMARY, &summary)))
    }

    /// Whoever looks now sees all values.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked_checksum(&length).to_le_bytes())?;
        self.out.write_all(record)?;
        self.out.write_all(&masked_checksum(record).to_le_bytes())
    }
}

/// Numbers of the fields in `Event`, its `Summary` with `Value`s, and its `SessionLog`.
mod field {
    pub const WALL_TIME: u64 = 1;
    pub const STEP: u64 = 2;
    pub const FILE_VERSION: u64 = 3;
    pub const SUMMARY: u64 = 5;
    pub const SESSION_LOG: u64 = 7;
    pub const VALUE: u64 = 1;
    pub const TAG: u64 = 1;
    pub const SIMPLE_VALUE: u64 = 2;
    pub const STATUS: u64 = 1;
}

// How the bytes of a field are to be read.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

fn event(time: f64, step: u64, what: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut event = Vec::new();
    tag(&mut event, field::WALL_TIME, FIXED64);
    event.extend(time.to_le_bytes());
    tag(&mut event, field::STEP, VARINT);
    varint(&mut event, step);
    what(&mut event);
    event
}

fn tag(out: &mut Vec<u8>, field: u64, kind: u64) {
    varint(out, field << 3 | kind);
}

fn bytes(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    tag(out, field, LENGTH);
    varint(out, content.len() as u64);
    out.extend(content);
}

/// Seven bits a byte, the lowest first.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// As the format has it, so that a checksum of bytes with checksums in them is no special case.
fn masked_checksum(content: &[u8]) -> u32 {
    crc32c::crc32c(content).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[expect(clippy::disallowed_methods, reason = "every event has its time; nothing is computed from it")]
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_the_format_says() {
        let encoded = |value| {
            let mut out = Vec::new();
            varint(&mut out, value);
            out
        };
        // 150 is the example of the format's own description.
        assert_eq!(
            (encoded(1), encoded(150), encoded(1 << 14)),
            (vec![1], vec![0x96, 1], vec![0x80, 0x80, 1])
        );
        // The checksum of 32 zeros is 8a9136aa (RFC 3720, B.4); turned by 15 bits and moved on.
        let turned = 0x8a91_36aa_u32.rotate_right(15);
        assert_eq!(masked_checksum(&[0; 32]), turned.wrapping_add(0xa282_ead8));
    }

    #[test]
    fn records_follow_each_other_with_their_checksums() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(folder.path(), 7).unwrap();
        file.scalars(8, &[("train/loss", 0.5)]).unwrap();
        file.flush().unwrap();
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let mut rest = &std::fs::read(path).unwrap()[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (head, more) = rest.split_at(12);
            let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
            assert_eq!(head[8..], masked_checksum(&head[..8]).to_le_bytes());
            assert_eq!(more[length..length + 4], masked_checksum(&more[..length]).to_le_bytes());
            records.push(more[..length].to_vec());
            rest = &more[length + 4..];
        }
        assert_eq!(records.len(), 3);
        assert!(records[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        // Step 7, session log of two bytes, its status 1.
        assert!(records[1].ends_with(&[0x10, 7, 0x3a, 2, 8, 1]));
        let value = [b"\x0a\x0atrain/loss\x15".as_slice(), &0.5f32.to_le_bytes()].concat();
        let summary = [&[0x0a, value.len() as u8], &value[..]].concat();
        assert!(records[2].ends_with(&[&[0x10, 8, 0x2a, summary.len() as u8], &summary[..]].concat()));
    }
}
