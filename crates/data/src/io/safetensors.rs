//! `.safetensors`: the length of a header, the header in JSON, then the values of all tensors.
//!
//! Files of ours hold f32 alone, in the order of names, and their own checksum. The same arrays and metadata give the same bytes; the crate's own writer
//! puts metadata in another order every time.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::{Map, Value, json};

use super::element::{ByteOrder, Element, Take};
use super::source::Source;
use super::{Kind, Variable, write_whole};
use crate::Array;
use crate::error::{Error, Result};
use crate::folder::checksum_text;

/// The content of a file of ours, or of another one that holds f32 alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    /// Arrays by name.
    pub arrays: BTreeMap<String, Array>,
    /// Text by key.
    pub metadata: BTreeMap<String, String>,
}

/// The metadata of a file of ours: what it is, the version of the format, and the checksum of all its bytes, computed with zeros in its place.
const FORMAT: (&str, &str) = ("format", "galerkin");
const VERSION: (&str, &str) = ("version", "3");
const CHECKSUM: (&str, &str) = ("checksum", "00000000");
/// Versions that are read too. They had no checksum.
const BEFORE: [&str; 2] = ["1", "2"];

impl Tensors {
    /// Writes a file, whole or not at all. Of metadata with the same key, format, version and checksum are ours.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write_whole(path, &self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let ours = [FORMAT, VERSION, CHECKSUM].map(|(key, value)| (key.to_string(), value.to_string()));
        let metadata: BTreeMap<_, _> = self.metadata.clone().into_iter().chain(ours).collect();
        let mut header = Map::from_iter([("__metadata__".to_string(), json!(metadata))]);
        let mut end = 0;
        for (name, Array { shape, values }) in &self.arrays {
            let begin = end;
            end += 4 * values.len();
            header
                .insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}));
        }
        let mut header = Value::Object(header).to_string();
        // Values begin at a multiple of 8 bytes.
        header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
        let mut bytes = Vec::with_capacity(8 + header.len() + end);
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(header.as_bytes());
        let values = self.arrays.values().flat_map(|array| &array.values);
        bytes.extend(values.flat_map(|value| value.to_le_bytes()));
        let place = place_of_checksum(&bytes[8..8 + header.len()]).expect("among the metadata") + 8;
        let checksum = checksum(&bytes, place);
        bytes[place..place + checksum.len()].copy_from_slice(checksum.as_bytes());
        bytes
    }

    /// Reads a file that holds f32 alone. One of ours must have its checksum.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let bytes = source.read_vec(0, source.len(), "file")?;
        let content =
            |place: &str, expected: String, found: String| Error::content(path, place, expected, found);
        let lead = bytes.first_chunk().map(|lead| u64::from_le_bytes(*lead));
        let Some(header_len) = lead.filter(|len| *len <= bytes.len() as u64 - 8) else {
            let expected = lead.map_or("8 bytes".into(), |len| format!("{len} bytes behind the first 8"));
            return Err(content("header", expected, format!("a file of {} bytes", bytes.len())));
        };
        let header = &bytes[8..8 + header_len as usize];
        let wrong = |error| match error {
            SafeTensorError::MetadataIncompleteBuffer => {
                let found = format!("a file of {} bytes", bytes.len());
                content("values", "as many bytes as the header describes".into(), found)
            }
            error => content("header", "a header of safetensors".into(), error.to_string()),
        };
        let stored = SafeTensors::deserialize(&bytes).map_err(&wrong)?;
        let (_, described) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
        let metadata: BTreeMap<_, _> = described.metadata().clone().unwrap_or_default().into_iter().collect();
        let (key, version) = VERSION;
        let found = metadata.get(key).map(String::as_str);
        let is_ours = metadata.get(FORMAT.0).is_some_and(|format| format == FORMAT.1);
        if is_ours && !found.is_some_and(|found| found == version || BEFORE.contains(&found)) {
            let found = found.map_or("none".into(), |found| format!("`{found:.40}`"));
            return Err(content("version of the format", format!("`{version}`"), found));
        }
        // Damage to one of the two keys is told by the other.
        let recorded = metadata.get(CHECKSUM.0);
        if found == Some(version) || recorded.is_some() {
            let place = place_of_checksum(header).map(|place| place + 8);
            let (Some(recorded), Some(place)) =
                (recorded, place.filter(|at| at + CHECKSUM.1.len() <= bytes.len()))
            else {
                return Err(content("metadata", "a checksum".into(), "none".into()));
            };
            let found = checksum(&bytes, place);
            if found != *recorded {
                let (path, expected) = (path.into(), recorded.escape_default().to_string());
                return Err(Error::Checksum { path, expected, found });
            }
        }
        let mut arrays = BTreeMap::new();
        for (name, view) in stored.iter() {
            if view.dtype() != Dtype::F32 {
                return Err(content(name, "values of type F32".into(), format!("type {:?}", view.dtype())));
            }
            let values = view.data().as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four));
            arrays.insert(name.to_string(), Array { shape: view.shape().to_vec(), values: values.collect() });
        }
        Ok(Self { arrays, metadata })
    }
}

/// Where the digits of the checksum stand in a header. A quotation mark inside a text is escaped, so that this is the key.
fn place_of_checksum(header: &[u8]) -> Option<usize> {
    let key = format!("\"{}\":\"", CHECKSUM.0);
    Some(header.windows(key.len()).position(|window| window == key.as_bytes())? + key.len())
}

/// Of all bytes of a file, with zeros for the digits of the checksum at `place`.
fn checksum(bytes: &[u8], place: usize) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..place]);
    hasher.update(CHECKSUM.1.as_bytes());
    hasher.update(&bytes[place + CHECKSUM.1.len()..]);
    checksum_text(hasher)
}

/// The variables in the order of their bytes, and from which to which byte of the file each reaches.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Vec<(u64, u64)>)> {
    let mut lead = [0; 8];
    source.read_at(0, &mut lead, "length of the header")?;
    let header_len = u64::from_le_bytes(lead);
    let header = source.read_vec(8, header_len, "header")?;
    let wrong = |found: String| Error::content(source.path(), "header", "a header of safetensors", found);
    // The crate's own way from the bytes of a file to this wants the whole file in memory.
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| wrong(error.to_string()))?;
    let mut variables: Vec<_> = metadata.tensors().into_iter().collect();
    variables.sort_by(|(a, one), (b, other)| one.data_offsets.cmp(&other.data_offsets).then(a.cmp(b)));
    let mut places = Vec::with_capacity(variables.len());
    for (name, info) in &variables {
        let (from, to) = info.data_offsets;
        let place = (from as u64, (to - from) as u64);
        let start = (8 + header_len).checked_add(place.0).ok_or_else(|| wrong(format!("offset {from}")))?;
        source.check_range(start, place.1, name)?;
        places.push((start, place.1));
    }
    let end = places.last().map_or(8 + header_len, |(start, len)| start + len);
    if end != source.len() {
        let found = format!("{} bytes", source.len());
        return Err(Error::content(source.path(), "file", format!("{end} bytes, as its header says"), found));
    }
    let variables = variables.into_iter().map(|(name, info)| {
        let kind = match element_of(info.dtype) {
            Some(element) => Kind::Numbers(element),
            None => Kind::Other(format!("{:?}", info.dtype)),
        };
        Variable::new(name, info.shape.clone(), kind)
    });
    Ok((variables.collect(), places))
}

pub(super) fn scan(
    source: &Source,
    (start, len): (u64, u64),
    element: Element,
    count: usize,
    name: &str,
    take: &mut Take<'_>,
) -> Result<()> {
    if len != (count * element.size()) as u64 {
        let expected = format!("{count} values of {}", element.name());
        return Err(Error::content(source.path(), name, expected, format!("{len} bytes")));
    }
    element.scan(ByteOrder::Little, &mut source.window(start, len), count, source, name, take)
}

fn element_of(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::BOOL => Element::Bool,
        Dtype::I8 => Element::I8,
        Dtype::U8 => Element::U8,
        Dtype::I16 => Element::I16,
        Dtype::U16 => Element::U16,
        Dtype::I32 => Element::I32,
        Dtype::U32 => Element::U32,
        Dtype::I64 => Element::I64,
        Dtype::U64 => Element::U64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        _ => return None,
    })
}
