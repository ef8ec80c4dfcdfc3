//! `.safetensors`: the length of a header, the header in JSON, then the values of all tensors.

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::element::{ByteOrder, Element, Take};
use super::source::Source;
use super::{Kind, Variable};
use crate::error::{Error, Result};

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
