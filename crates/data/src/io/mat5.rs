//! MATLAB's file format of versions 5 to 7.2: a header of 128 bytes, then one element per variable.
//!
//! An element is a tag (type and number of bytes) and its bytes, padded to eight. A variable is an element of type *matrix* that holds
//! further elements: flags with its class, dimensions, name, and its values, first axis fastest. Values may be stored in a narrower
//! type than the class says. From version 7 on the matrix element as a whole may be a zlib stream.

use std::io::{BufReader, Read};

use flate2::read::ZlibDecoder;

use super::element::{ByteOrder, DEFLATE_RATIO, Element, Take};
use super::source::{Source, Window};
use super::{Allowance, Kind, Variable};
use crate::error::{Error, Result};

/// Where the element of a variable is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    order: ByteOrder,
    /// First byte behind the tag.
    start: u64,
    len: u64,
    compressed: bool,
}

/// Whether a file starts with the header of this format, in either byte order.
pub(super) fn is_header(head: &[u8]) -> bool {
    head.len() >= HEADER && matches!(&head[124..128], [0, 1, b'I', b'M'] | [1, 0, b'M', b'I'])
}

/// All variables with a name. What MATLAB keeps for itself has none.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Vec<Place>)> {
    let mut head = [0; HEADER];
    source.read_at(0, &mut head, "header of MATLAB 5")?;
    if !is_header(&head) {
        let found = format!("{:02x?} at byte 124", &head[124..]);
        return Err(Error::content(source.path(), "header", "version and byte order of MATLAB 5", found));
    }
    let order = if head[126] == b'I' { ByteOrder::Little } else { ByteOrder::Big };
    let (mut variables, mut places) = (Vec::new(), Vec::new());
    let mut at = HEADER as u64;
    while at < source.len() {
        let what = format!("variable {}", variables.len() + 1);
        let mut tag = [0; 8];
        source.read_at(at, &mut tag, &format!("{what}, tag"))?;
        let (kind, len) = (order.u32(&tag[..4]), order.u32(&tag[4..]) as u64);
        source.check_range(at + 8, len, &what)?;
        if kind == MATRIX || kind == COMPRESSED {
            let place = Place { order, start: at + 8, len, compressed: kind == COMPRESSED };
            if let Some(variable) = Matrix::open(source, &place, &what)?.variable {
                variables.push(variable);
                places.push(place);
            }
        } else if kind != 0 {
            let found = format!("an element of type {kind}");
            return Err(Error::content(source.path(), what, "a matrix, plain or compressed", found));
        }
        // A compressed element is not padded; the bytes of a plain one are counted with their padding.
        at += 8 + len;
    }
    Ok((variables, places))
}

pub(super) fn scan(
    source: &Source,
    place: &Place,
    variable: &Variable,
    count: usize,
    allowance: Allowance,
    take: &mut Take<'_>,
) -> Result<()> {
    let name = &variable.name;
    let mut matrix = Matrix::open(source, place, name)?;
    let tag = matrix.tag("tag of the values")?;
    let stored = element_of(tag.kind).ok_or_else(|| matrix.wrong("numbers", format!("type {}", tag.kind)))?;
    if tag.len != (count * stored.size()) as u64 {
        let expected = format!("{count} values of {} for shape {:?}", stored.name(), variable.shape);
        return Err(matrix.wrong(&expected, format!("{} bytes", tag.len)));
    }
    let mut small;
    match tag.small {
        Some(bytes) => {
            small = &bytes[..tag.len as usize];
            stored.scan(place.order, &mut small, count, source, name, take)
        }
        None => {
            // Nothing is read before it is known that the bytes can become this many.
            let most = if place.compressed { place.len.saturating_mul(DEFLATE_RATIO) } else { place.len };
            if tag.len > most {
                let expected = format!("{} bytes of values", tag.len);
                return Err(matrix.wrong(&expected, format!("{} bytes in the file", place.len)));
            }
            if place.compressed {
                allowance.check(source, name, tag.len)?;
            }
            stored.scan(place.order, &mut matrix.stream, count, source, name, take)
        }
    }
}

/// A variable opened up to its values.
struct Matrix<'a> {
    source: &'a Source,
    order: ByteOrder,
    place: String,
    stream: Stream<'a>,
    /// `None` if it has no name.
    variable: Option<Variable>,
}

impl<'a> Matrix<'a> {
    /// Reads flags, dimensions and name; `what` is what the variable is called until its name is known.
    fn open(source: &'a Source, place: &Place, what: &str) -> Result<Self> {
        let window = BufReader::new(source.window(place.start, place.len));
        let stream = match place.compressed {
            true => Stream::Compressed(Box::new(ZlibDecoder::new(window))),
            false => Stream::Plain(window),
        };
        let mut matrix = Self { source, order: place.order, place: what.into(), stream, variable: None };
        if place.compressed {
            let tag = matrix.tag("tag of the matrix")?;
            if tag.kind != MATRIX {
                return Err(
                    matrix.wrong("a matrix inside the compressed element", format!("type {}", tag.kind))
                );
            }
        }
        if !place.compressed && place.len == 0 {
            return Ok(matrix);
        }
        let (kind, flags) = matrix.bytes("array flags", 16)?;
        if kind != UINT32 || flags.len() != 8 {
            return Err(matrix.wrong("array flags", format!("{} bytes of type {kind}", flags.len())));
        }
        let flags = place.order.u32(&flags[..4]);
        let (class, complex, logical) = (flags & 0xff, flags & 0x800 != 0, flags & 0x200 != 0);
        if class == OPAQUE {
            // Objects of MATLAB's newer classes have no dimensions; their name comes at once.
            let (_, name) = matrix.bytes("name", LONGEST_NAME)?;
            return Ok(matrix.named(name, vec![], Kind::Other("an object".into())));
        }
        let (kind, dimensions) = matrix.bytes("dimensions", 4 * MOST_AXES)?;
        if kind != INT32 || !dimensions.len().is_multiple_of(4) {
            return Err(matrix.wrong("dimensions", format!("{} bytes of type {kind}", dimensions.len())));
        }
        let shape = dimensions.chunks(4).map(|bytes| place.order.u32(bytes) as i32);
        let Ok(shape) = shape.clone().map(usize::try_from).collect::<std::result::Result<Vec<_>, _>>() else {
            return Err(matrix.wrong("dimensions from 0 on", format!("{:?}", shape.collect::<Vec<_>>())));
        };
        let (_, name) = matrix.bytes("name", LONGEST_NAME)?;
        let kind = match class_name(class) {
            _ if complex => Kind::Other("an array of complex numbers".into()),
            Ok(_) if logical => Kind::Numbers(Element::Bool),
            Ok(element) => Kind::Numbers(element),
            Err(words) => Kind::Other(words),
        };
        Ok(matrix.named(name, shape, kind))
    }

    fn named(mut self, name: Vec<u8>, shape: Vec<usize>, kind: Kind) -> Self {
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        if !name.is_empty() {
            self.place = name.clone();
            self.variable = Some(Variable::new(name, shape, kind).column_major());
        }
        self
    }

    /// The next element as a whole, its type first; at most `most` bytes.
    fn bytes(&mut self, what: &str, most: usize) -> Result<(u32, Vec<u8>)> {
        let tag = self.tag(what)?;
        if tag.len > most as u64 {
            return Err(self.wrong(&format!("at most {most} bytes of {what}"), tag.len.to_string()));
        }
        if let Some(small) = tag.small {
            return Ok((tag.kind, small[..tag.len as usize].to_vec()));
        }
        let mut bytes = vec![0; tag.len.next_multiple_of(8) as usize];
        self.fill(&mut bytes, what)?;
        bytes.truncate(tag.len as usize);
        Ok((tag.kind, bytes))
    }

    /// The next tag. Elements of up to four bytes may lie inside theirs.
    fn tag(&mut self, what: &str) -> Result<Tag> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes, what)?;
        let (first, second) = (self.order.u32(&bytes[..4]), self.order.u32(&bytes[4..]));
        if first >> 16 == 0 {
            return Ok(Tag { kind: first, len: second as u64, small: None });
        }
        let len = (first >> 16) as u64;
        if len > 4 {
            return Err(self.wrong(&format!("at most 4 bytes inside the {what}"), len.to_string()));
        }
        Ok(Tag { kind: first & 0xffff, len, small: Some([bytes[4], bytes[5], bytes[6], bytes[7]]) })
    }

    fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        let len = buffer.len();
        let filled = self.stream.read_exact(buffer);
        filled.map_err(|error| self.wrong(&format!("{len} bytes of {what}"), error.to_string()))
    }

    fn wrong(&self, expected: &str, found: String) -> Error {
        Error::content(self.source.path(), &self.place, expected, found)
    }
}

struct Tag {
    kind: u32,
    len: u64,
    small: Option<[u8; 4]>,
}

/// The bytes of an element, inflated where they must be.
enum Stream<'a> {
    Plain(BufReader<Window<'a>>),
    Compressed(Box<ZlibDecoder<BufReader<Window<'a>>>>),
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Compressed(stream) => stream.read(buffer),
        }
    }
}

impl ByteOrder {
    /// Of the first four bytes.
    fn u32(self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }
}

const HEADER: usize = 128;
/// MATLAB stops at 63 letters; others do not.
const LONGEST_NAME: usize = 4096;
/// As many as numpy allows.
const MOST_AXES: usize = 64;

// Types of elements.
const INT32: u32 = 5;
const UINT32: u32 = 6;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;

/// Class of objects without dimensions.
const OPAQUE: u32 = 17;

/// The type of stored numbers.
fn element_of(kind: u32) -> Option<Element> {
    Some(match kind {
        1 => Element::I8,
        2 => Element::U8,
        3 => Element::I16,
        4 => Element::U16,
        5 => Element::I32,
        6 => Element::U32,
        7 => Element::F32,
        9 => Element::F64,
        12 => Element::I64,
        13 => Element::U64,
        _ => return None,
    })
}

/// The class of an array: a type of number, or words for what it is instead.
fn class_name(class: u32) -> std::result::Result<Element, String> {
    let words = match class {
        6 => return Ok(Element::F64),
        7 => return Ok(Element::F32),
        8 => return Ok(Element::I8),
        9 => return Ok(Element::U8),
        10 => return Ok(Element::I16),
        11 => return Ok(Element::U16),
        12 => return Ok(Element::I32),
        13 => return Ok(Element::U32),
        14 => return Ok(Element::I64),
        15 => return Ok(Element::U64),
        1 => "a cell array",
        2 => "a struct",
        3 => "an object",
        4 => "text",
        5 => "a sparse matrix",
        16 => "a function",
        _ => return Err(format!("an array of the unknown class {class}")),
    };
    Err(words.into())
}
