//! HDF5, and MATLAB 7.3, which is HDF5 behind a header of 512 bytes with all axes reversed.

use std::sync::Arc;

use hdf5_reader::group::Group;
use hdf5_reader::{
    BytesStorage, Datatype, FileStorage, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem, Storage,
};

use super::element::{ByteOrder, DEFLATE_RATIO, Element, from_column_major};
use super::source::{Bytes, Source};
use super::{Format, Kind, Variable};
use crate::error::{Error, Result};

/// An open file.
pub(super) struct Hdf5(Hdf5File);

impl std::fmt::Debug for Hdf5 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hdf5")
    }
}

/// Whether HDF5 starts at this byte.
pub(super) fn signature_at(head: &[u8], at: usize) -> bool {
    head.get(at..at + 8) == Some(b"\x89HDF\r\n\x1a\n")
}

/// All datasets at any depth, those of MATLAB's own bookkeeping left out.
pub(super) fn open(source: &Source, format: Format) -> Result<(Vec<Variable>, Hdf5)> {
    let storage: Arc<dyn Storage> = match source.bytes() {
        Bytes::File(file) => {
            let file = file.try_clone().map_err(Error::io(source.path()))?;
            Arc::new(FileStorage::from_file(file).map_err(|error| wrong(source, "file", error))?)
        }
        Bytes::Memory(bytes) => Arc::new(BytesStorage::from_shared(bytes.clone())),
    };
    let most = usize::try_from(most_bytes(source)).unwrap_or(usize::MAX);
    let options = OpenOptions::default()
        .with_max_chunk_bytes(most)
        .with_max_read_bytes(most)
        .with_max_object_header_bytes(usize::try_from(source.len()).unwrap_or(usize::MAX));
    let file = Hdf5File::from_storage_with_options(storage, options)
        .map_err(|error| wrong(source, "superblock", error))?;
    let mut variables = Vec::new();
    let root = file.root_group().map_err(|error| wrong(source, "root group", error))?;
    list(source, format, &root, "", 0, &mut variables)?;
    Ok((variables, Hdf5(file)))
}

pub(super) fn read(
    source: &Source,
    Hdf5(file): &Hdf5,
    variable: &Variable,
    format: Format,
    count: usize,
) -> Result<Vec<f32>> {
    let name = &variable.name;
    let dataset = file.dataset(name).map_err(|error| wrong(source, name, error))?;
    let Some((element, order)) = element_of(dataset.dtype()) else { unreachable!("only numbers are read") };
    let bytes = (count * element.size()) as u64;
    // Only chunks can be compressed. Those that were never written take no bytes of the file at all; beyond what deflate can grow
    // they are refused too.
    let most = if dataset.chunks().is_some() { most_bytes(source) } else { source.len() };
    if bytes > most {
        let expected = format!("{bytes} bytes for shape {:?} of {}", variable.shape, element.name());
        return Err(Error::content(
            source.path(),
            name,
            expected,
            format!("a file of {} bytes", source.len()),
        ));
    }
    let mut values = Vec::new();
    let shape = dataset.shape();
    // The decoder has slices of the number types of Rust only.
    if count == 0 || shape.is_empty() || matches!(element, Element::Bool | Element::F16) {
        let raw = dataset.read_raw_bytes().map_err(|error| wrong(source, name, error))?;
        element.decode(order, &raw, &mut values);
    } else {
        // In slabs of the first axis, so that beside the result only a slab is in memory; along the borders of chunks, so that
        // every chunk is decoded once.
        let rows = shape[0];
        let row_bytes = (bytes / rows).max(1);
        let chunk_rows = dataset.chunks().and_then(|chunk| chunk.first().copied()).unwrap_or(1).max(1) as u64;
        let slab = (SLAB / row_bytes).max(1).next_multiple_of(chunk_rows);
        let mut start = 0;
        while start < rows {
            let end = rows.min(start.saturating_add(slab));
            let selection = slab_of(start, end, shape.len());
            read_slab(&dataset, element, &selection, &mut values)
                .map_err(|error| wrong(source, name, error))?;
            start = end;
        }
    }
    if values.len() != count {
        return Err(Error::content(source.path(), name, format!("{count} values"), values.len().to_string()));
    }
    Ok(if format == Format::Mat73 { from_column_major(values, &variable.shape) } else { values })
}

/// Bytes read at once, at least a chunk.
const SLAB: u64 = 16 << 20;
/// Groups inside groups; links may go in circles.
const DEEPEST: usize = 16;
/// Variables of one file; links may multiply them.
const MOST_VARIABLES: usize = 100_000;

/// More than all bytes of the file can become.
fn most_bytes(source: &Source) -> u64 {
    source.len().saturating_mul(DEFLATE_RATIO)
}

fn list(
    source: &Source,
    format: Format,
    group: &Group,
    prefix: &str,
    depth: usize,
    variables: &mut Vec<Variable>,
) -> Result<()> {
    let place = if prefix.is_empty() { "root group" } else { prefix };
    let (groups, datasets) = group.member_names().map_err(|error| wrong(source, place, error))?;
    for name in datasets {
        if variables.len() == MOST_VARIABLES {
            let found = "more";
            return Err(Error::content(
                source.path(),
                place,
                format!("at most {MOST_VARIABLES} variables"),
                found,
            ));
        }
        let full_name = format!("{prefix}{name}");
        let (shape, kind) = match group.dataset(&name) {
            Ok(dataset) => {
                let mut shape = dataset.shape().iter().map(|n| *n as usize).collect::<Vec<_>>();
                if format == Format::Mat73 {
                    shape.reverse();
                }
                let class = dataset.attribute("MATLAB_class").ok().and_then(|class| class.read_string().ok());
                (shape, kind_of(dataset.dtype(), class.as_deref()))
            }
            // One dataset of a kind the decoder does not know must not hide the others.
            Err(error) => (vec![], Kind::Other(format!("a dataset that cannot be decoded ({error})"))),
        };
        variables.push(Variable { name: full_name, shape, kind });
    }
    for name in groups {
        // MATLAB keeps the cells of cell arrays and its objects here.
        let private = format == Format::Mat73 && name.starts_with('#');
        if private || depth == DEEPEST {
            continue;
        }
        let child = group.group(&name).map_err(|error| wrong(source, &name, error))?;
        list(source, format, &child, &format!("{prefix}{name}/"), depth + 1, variables)?;
    }
    Ok(())
}

/// What a dataset holds; MATLAB says so in an attribute, because text and logical values are stored as integers.
fn kind_of(dtype: &Datatype, class: Option<&str>) -> Kind {
    match class {
        Some("char") => return Kind::Other("text".into()),
        Some("cell") => return Kind::Other("a cell array".into()),
        Some("struct") => return Kind::Other("a struct".into()),
        Some("function_handle") => return Kind::Other("a function".into()),
        _ => {}
    }
    match (element_of(dtype), dtype) {
        (Some((Element::U8, _)), _) if class == Some("logical") => Kind::Numbers(Element::Bool),
        (Some((element, _)), _) => Kind::Numbers(element),
        (None, Datatype::String { .. } | Datatype::VarLen { .. }) => Kind::Other("text or lists".into()),
        (None, Datatype::Compound { .. }) => Kind::Other("an array of records or complex numbers".into()),
        (None, Datatype::Reference { .. }) => Kind::Other("an array of references".into()),
        (None, _) => Kind::Other("an array of another type".into()),
    }
}

fn element_of(dtype: &Datatype) -> Option<(Element, ByteOrder)> {
    let order = |order: &hdf5_reader::ByteOrder| match order {
        hdf5_reader::ByteOrder::LittleEndian => ByteOrder::Little,
        hdf5_reader::ByteOrder::BigEndian => ByteOrder::Big,
    };
    match dtype {
        Datatype::FixedPoint { size, signed, byte_order } => {
            let element = match (size, signed) {
                (1, true) => Element::I8,
                (1, false) => Element::U8,
                (2, true) => Element::I16,
                (2, false) => Element::U16,
                (4, true) => Element::I32,
                (4, false) => Element::U32,
                (8, true) => Element::I64,
                (8, false) => Element::U64,
                _ => return None,
            };
            Some((element, order(byte_order)))
        }
        Datatype::FloatingPoint { size: 2, byte_order } => Some((Element::F16, order(byte_order))),
        Datatype::FloatingPoint { size: 4, byte_order } => Some((Element::F32, order(byte_order))),
        Datatype::FloatingPoint { size: 8, byte_order } => Some((Element::F64, order(byte_order))),
        // h5py writes numpy's bool as an enumeration of one byte, FALSE and TRUE.
        Datatype::Enum { base, members } if members.len() == 2 => match element_of(base)? {
            (Element::I8 | Element::U8, order) => Some((Element::Bool, order)),
            _ => None,
        },
        _ => None,
    }
}

/// Rows `start` to `end` of the first axis and all of the others.
fn slab_of(start: u64, end: u64, rank: usize) -> SliceInfo {
    let mut selection = SliceInfo::all(rank);
    selection.selections[0] = SliceInfoElem::Slice { start, end, step: 1 };
    selection
}

/// Appends a slab. The decoder turns bytes into numbers of the stored type, in native order.
fn read_slab(
    dataset: &hdf5_reader::Dataset,
    element: Element,
    selection: &SliceInfo,
    values: &mut Vec<f32>,
) -> hdf5_reader::error::Result<()> {
    macro_rules! slab {
        ($type:ty) => {
            values.extend(dataset.read_slice::<$type>(selection)?.iter().map(|value| *value as f32))
        };
    }
    match element {
        Element::I8 => slab!(i8),
        Element::U8 => slab!(u8),
        Element::I16 => slab!(i16),
        Element::U16 => slab!(u16),
        Element::I32 => slab!(i32),
        Element::U32 => slab!(u32),
        Element::I64 => slab!(i64),
        Element::U64 => slab!(u64),
        Element::F32 => slab!(f32),
        Element::F64 => slab!(f64),
        Element::Bool | Element::F16 | Element::Bf16 => unreachable!("read as a whole"),
    }
    Ok(())
}

fn wrong(source: &Source, place: &str, error: hdf5_reader::error::Error) -> Error {
    Error::Hdf5 { path: source.path().into(), place: place.into(), source: Box::new(error) }
}
