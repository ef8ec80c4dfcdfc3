//! `.npy`: a magic word, a header in the syntax of a Python dictionary, then the values.
//!
//! Versions 1 to 3 of the format; real numbers in either byte order and either order of the axes.

use std::io::Read;
use std::path::Path;

use super::element::{ByteOrder, Element, Take, count};
use super::memory::room;
use super::source::Source;
use super::{Kind, Variable};
use crate::error::{Error, Result};

/// Where the values of one array start and how they lie.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) shape: Vec<usize>,
    pub(crate) element: Element,
    pub(crate) order: ByteOrder,
    /// The first axis is the fastest.
    pub(crate) fortran: bool,
    /// Bytes before the first value.
    pub(crate) offset: u64,
}

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// The header of `.npy` version 1 in front of little-endian `f32` values of this shape, row-major.
///
/// Padded as numpy pads it, to a multiple of 64 bytes.
pub fn header(shape: &[usize]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let axes = if shape.len() == 1 { axes.trim_end() } else { axes.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({axes}), }}");
    while !(MAGIC.len() + 4 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// The values of a `.npy` file, read run by run, so that a large one needs little memory.
#[derive(Debug)]
pub struct Runs {
    source: Source,
    header: Header,
    /// Of a file in Fortran's order, whose values lie far apart, all of them.
    whole: Option<Vec<f32>>,
}

impl Runs {
    /// Opens a file of real numbers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let header = Header::of_file(&source)?;
        let whole = match header.fortran {
            true => Some(super::open(path)?.read_first()?.values),
            false => None,
        };
        Ok(Self { source, header, whole })
    }

    /// Length of every axis.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Value `first` and following, `count` of them, row-major.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<f32>> {
        let all = self.header.count();
        if first.checked_add(count).is_none_or(|end| end > all) {
            let why = format!("{} has {all}", self.source.path().display());
            return Err(Error::setting(format!("{count} values from {first} on"), why));
        }
        if let Some(whole) = &self.whole {
            return Ok(whole[first..first + count].to_vec());
        }
        let size = self.header.element.size() as u64;
        let offset = self.header.offset + first as u64 * size;
        let bytes = self.source.read_vec(offset, count as u64 * size, "values")?;
        let mut values = room(count, self.source.path(), "values")?;
        self.header.element.decode(self.header.order, &bytes, &mut values);
        Ok(values)
    }
}

/// The one variable of the file, named after it.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Header)> {
    let header = Header::of_file(source)?;
    let name = source.path().file_stem().map_or("array".into(), |stem| stem.to_string_lossy().into_owned());
    let variable = Variable::new(name, header.shape.clone(), Kind::Numbers(header.element));
    let variable = if header.fortran { variable.column_major() } else { variable };
    Ok((vec![variable], header))
}

impl Header {
    /// Of a file that holds nothing else, whose length must be what the header says.
    pub(crate) fn of_file(source: &Source) -> Result<Self> {
        let header = Self::read(&mut source.window(0, source.len()), source, "header", source.len())?;
        // The product exists: `read` has counted.
        let bytes = (header.count() * header.element.size()) as u64;
        if header.offset + bytes != source.len() {
            return Err(Error::content(
                source.path(),
                "values",
                format!("{bytes} bytes for shape {:?} of {}", header.shape, header.element.name()),
                format!("{} bytes", source.len() - header.offset),
            ));
        }
        Ok(header)
    }

    /// From a stream of at most `len` bytes that starts with the magic word.
    pub(super) fn read(stream: &mut impl Read, source: &Source, place: &str, len: u64) -> Result<Self> {
        let wrong = |expected: &str, found: String| Error::content(source.path(), place, expected, found);
        let mut fill = |buffer: &mut [u8]| {
            stream.read_exact(buffer).map_err(|error| wrong("a header of .npy", format!("its end ({error})")))
        };
        let mut lead = [0; 8];
        fill(&mut lead)?;
        if &lead[..6] != MAGIC {
            return Err(wrong("the magic word of .npy", format!("{:02x?}", &lead[..6])));
        }
        let (text_len, lead_len) = match lead[6] {
            1 => {
                let mut bytes = [0; 2];
                fill(&mut bytes)?;
                (u16::from_le_bytes(bytes) as u64, 10)
            }
            2 | 3 => {
                let mut bytes = [0; 4];
                fill(&mut bytes)?;
                (u32::from_le_bytes(bytes) as u64, 12)
            }
            version => return Err(wrong("version 1, 2 or 3", version.to_string())),
        };
        let offset = lead_len + text_len;
        // Arrays of records may have long headers, arrays of numbers cannot.
        if offset > len || text_len > LONGEST {
            let expected = format!("a header of at most {} bytes", LONGEST.min(len.saturating_sub(lead_len)));
            return Err(wrong(&expected, text_len.to_string()));
        }
        let mut text = vec![0; text_len as usize];
        fill(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let fields = Fields::parse(&text).ok_or_else(|| {
            wrong("{'descr': …, 'fortran_order': …, 'shape': …}", text.chars().take(120).collect())
        })?;
        let (order, element) = element_of(fields.descr)
            .ok_or_else(|| wrong("a type of real numbers, such as '<f8'", format!("'{}'", fields.descr)))?;
        if count(&fields.shape, element).is_none() {
            return Err(wrong("a shape that memory can hold", format!("{:?}", fields.shape)));
        }
        Ok(Self { shape: fields.shape, element, order, fortran: fields.fortran, offset })
    }

    /// The number of values.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// All values from a stream that stands behind the header, in the order of the stream.
    pub(super) fn scan(
        &self,
        stream: &mut impl Read,
        source: &Source,
        name: &str,
        take: &mut Take<'_>,
    ) -> Result<()> {
        self.element.scan(self.order, stream, self.count(), source, name, take)
    }
}

/// More than any header of numbers needs: numpy allows 64 axes of at most 20 digits.
const LONGEST: u64 = 1 << 14;

/// The entries of the header's dictionary.
#[derive(Debug, PartialEq)]
struct Fields<'a> {
    descr: &'a str,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'a> Fields<'a> {
    /// The three entries in any order; anything else, a list of records for instance, is `None`.
    fn parse(text: &'a str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text);
                    after
                }
                "fortran_order" => {
                    let after = value.strip_prefix("True").or_else(|| value.strip_prefix("False"))?;
                    fortran = Some(value.starts_with("True"));
                    after
                }
                "shape" => {
                    let (inside, after) = value.strip_prefix('(')?.split_once(')')?;
                    let axes = inside.split(',').map(str::trim).filter(|axis| !axis.is_empty());
                    // Old writers put an L behind long integers.
                    let axes = axes.map(|axis| axis.trim_end_matches('L').parse().ok());
                    shape = Some(axes.collect::<Option<Vec<usize>>>()?);
                    after
                }
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        Some(Self { descr: descr?, fortran: fortran?, shape: shape? })
    }
}

/// A string in either kind of quotes, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// `<f8` and the like.
fn element_of(descr: &str) -> Option<(ByteOrder, Element)> {
    let order = match descr.chars().next()? {
        '<' | '|' => ByteOrder::Little,
        '=' if cfg!(target_endian = "little") => ByteOrder::Little,
        '>' | '=' => ByteOrder::Big,
        _ => return None,
    };
    let element = match &descr[1..] {
        "b1" => Element::Bool,
        "i1" => Element::I8,
        "u1" => Element::U8,
        "i2" => Element::I16,
        "u2" => Element::U16,
        "i4" => Element::I32,
        "u4" => Element::U32,
        "i8" => Element::I64,
        "u8" => Element::U64,
        "f2" => Element::F16,
        "f4" => Element::F32,
        "f8" => Element::F64,
        _ => return None,
    };
    (element.size() == 1 || !descr.starts_with('|')).then_some((order, element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_as_writers_spell_them() {
        let fields =
            Fields::parse("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!(fields, Fields { descr: "<f8", fortran: false, shape: vec![3, 4] });
        let fields = Fields::parse(r#"{"shape":(7L,),"fortran_order":True,"descr":"|b1"}"#).unwrap();
        assert_eq!(fields, Fields { descr: "|b1", fortran: true, shape: vec![7] });
        assert_eq!(
            Fields::parse("{'descr': '<f4', 'fortran_order': False, 'shape': ()}").unwrap().shape,
            Vec::<usize>::new()
        );
        for text in [
            "",
            "{",
            "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'é",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
        ] {
            assert_eq!(Fields::parse(text), None, "{text}");
        }
        assert_eq!(element_of("é"), None);
        assert_eq!(element_of("|f8"), None);
    }
}
