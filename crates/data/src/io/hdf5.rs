//! HDF5, and MATLAB 7.3, which is HDF5 behind a header of 512 bytes with all axes reversed.

use std::collections::HashMap;
use std::sync::Arc;

use hdf5_reader::group::Group;
use hdf5_reader::{
    BytesStorage, Dataset, Datatype, FileStorage, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem,
    Storage,
};

use super::element::{BLOCK, ByteOrder, DEFLATE_RATIO, Element, Take};
use super::source::{Bytes, Source};
use super::{Allowance, Format, Kind, MOST_OF_NAMES, Variable};
use crate::error::{Error, Result, shown};

/// The datasets of an open file, one per variable; `None` if it could not be decoded. They are found once, when the file is listed.
pub(super) struct Hdf5(Vec<Option<Dataset>>);

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
pub(super) fn open(source: &Source, format: Format, allowance: Allowance) -> Result<(Vec<Variable>, Hdf5)> {
    let storage: Arc<dyn Storage> = match source.bytes() {
        Bytes::File(file) => {
            let file = file.try_clone().map_err(Error::io(source.path()))?;
            Arc::new(FileStorage::from_file(file).map_err(|error| wrong(source, "file", error))?)
        }
        Bytes::Memory(bytes) => Arc::new(BytesStorage::from_shared(bytes.clone())),
    };
    let most = usize::try_from(most_bytes(source).min(allowance.most)).unwrap_or(usize::MAX);
    let options = OpenOptions::default()
        .with_chunk_cache_bytes(CACHE)
        .with_max_chunk_bytes(most)
        .with_max_read_bytes(most)
        .with_max_object_header_bytes(usize::try_from(source.len()).unwrap_or(usize::MAX));
    let file = Hdf5File::from_storage_with_options(storage, options)
        .map_err(|error| wrong(source, "superblock", error))?;
    let root = file.root_group().map_err(|error| wrong(source, "root group", error))?;
    let mut listing = Listing {
        source,
        format,
        variables: Vec::new(),
        datasets: Vec::new(),
        entered: HashMap::new(),
        names: 0,
    };
    listing.follow(&root, "", &mut Vec::new())?;
    Ok((listing.variables, Hdf5(listing.datasets)))
}

/// Slab by slab. A chunk is decoded as a whole, whatever its size: the decoder has no smaller parts.
pub(super) fn scan(
    source: &Source,
    Hdf5(datasets): &Hdf5,
    at: usize,
    variable: &Variable,
    count: usize,
    allowance: Allowance,
    take: &mut Take<'_>,
) -> Result<()> {
    let name = &variable.name;
    let Some(dataset) = &datasets[at] else { unreachable!("only datasets are read") };
    let Some((element, _)) = element_of(dataset.dtype()) else { unreachable!("only numbers are read") };
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
    if count == 0 {
        return Ok(());
    }
    if let Some(chunk) = dataset.chunks() {
        allowance.check(source, name, bytes)?;
        // A chunk that was written takes bytes of the file, if only to say where it is, and every one is looked for.
        let along = dataset.shape().iter().zip(&chunk).map(|(n, of)| n.div_ceil(u64::from(*of).max(1)));
        let chunks = along.fold(1, u64::saturating_mul);
        if chunks > source.len() {
            let expected = format!("at most {} chunks, as many as the file has bytes", source.len());
            return Err(Error::content(source.path(), name, expected, chunks.to_string()));
        }
    }
    let mut done = 0;
    let mut block = Vec::with_capacity(count.min(BLOCK));
    for slab in slabs(dataset.shape(), dataset.chunks().as_deref(), element.size() as u64) {
        let values = dataset.read_slice::<Single>(&slab).map_err(|error| wrong(source, name, error))?;
        if values.len() > count - done {
            return Err(Error::content(source.path(), name, format!("{count} values"), "more"));
        }
        let mut values = values.iter().map(|Single(value)| *value);
        loop {
            block.clear();
            block.extend(values.by_ref().take(BLOCK));
            if block.is_empty() {
                break;
            }
            take(done, &block)?;
            done += block.len();
        }
    }
    if done != count {
        return Err(Error::content(source.path(), name, format!("{count} values"), done.to_string()));
    }
    Ok(())
}

/// Bytes read at once; four times as many where the borders of chunks ask for it.
const SLAB: u64 = 8 << 20;
/// Bytes of chunks that the decoder keeps. A chunk that reaches over several slabs is decoded once if it fits.
const CACHE: usize = 64 << 20;
/// Groups inside groups.
const DEEPEST: usize = 16;
/// Names that links may give to one group. What is in it is listed under each.
const MOST_ENTERED: usize = 16;
/// Variables of one file; links may multiply them.
const MOST_VARIABLES: usize = 100_000;

/// More than all bytes of the file can become.
fn most_bytes(source: &Source) -> u64 {
    source.len().saturating_mul(DEFLATE_RATIO)
}

/// A walk through the groups of a file.
struct Listing<'a> {
    source: &'a Source,
    format: Format,
    variables: Vec<Variable>,
    datasets: Vec<Option<Dataset>>,
    /// How many times each group was entered, by its address.
    entered: HashMap<u64, usize>,
    /// Bytes of all names.
    names: usize,
}

impl Listing<'_> {
    /// Adds what is in a group; `path` are the addresses of the groups it lies in.
    fn follow(&mut self, group: &Group, prefix: &str, path: &mut Vec<u64>) -> Result<()> {
        let (source, format) = (self.source, self.format);
        let place = if prefix.is_empty() { "root group" } else { prefix };
        let address = group.address();
        // A circle has nothing new.
        if path.contains(&address) || path.len() > DEEPEST {
            return Ok(());
        }
        let entered = self.entered.entry(address).or_default();
        *entered += 1;
        if *entered > MOST_ENTERED {
            let expected = format!("a group under at most {MOST_ENTERED} names");
            return Err(Error::content(source.path(), place, expected, "more"));
        }
        let (groups, datasets) = group.member_names().map_err(|error| wrong(source, place, error))?;
        for name in datasets {
            let full_name = format!("{prefix}{name}");
            self.count(&full_name, place)?;
            let (shape, kind, dataset) = match group.dataset(&name) {
                Ok(dataset) => {
                    let mut shape = dataset.shape().iter().map(|n| *n as usize).collect::<Vec<_>>();
                    if format == Format::Mat73 {
                        shape.reverse();
                    }
                    let class = dataset.attribute("MATLAB_class").ok();
                    let class = class.and_then(|class| class.read_string().ok());
                    (shape, kind_of(dataset.dtype(), class.as_deref()), Some(dataset))
                }
                // One dataset of a kind the decoder does not know must not hide the others.
                Err(error) => {
                    let words = format!("a dataset that cannot be decoded ({})", shown(&error.to_string()));
                    (vec![], Kind::Other(words), None)
                }
            };
            let variable = Variable::new(full_name, shape, kind);
            self.variables.push(if format == Format::Mat73 { variable.column_major() } else { variable });
            self.datasets.push(dataset);
        }
        path.push(address);
        for name in groups {
            // MATLAB keeps the cells of cell arrays and its objects here.
            if format == Format::Mat73 && name.starts_with('#') {
                continue;
            }
            let full_name = format!("{prefix}{name}/");
            self.count(&full_name, place)?;
            let child = group.group(&name).map_err(|error| wrong(source, &name, error))?;
            self.follow(&child, &full_name, path)?;
        }
        path.pop();
        Ok(())
    }

    /// An error if there are too many variables, or too long names.
    fn count(&mut self, name: &str, place: &str) -> Result<()> {
        self.names += name.len();
        let wrong = |expected: String| Err(Error::content(self.source.path(), place, expected, "more"));
        if self.variables.len() == MOST_VARIABLES {
            return wrong(format!("at most {MOST_VARIABLES} variables"));
        }
        if self.names > MOST_OF_NAMES {
            return wrong(format!("names of at most {MOST_OF_NAMES} bytes together"));
        }
        Ok(())
    }
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

/// The whole of a shape in parts that follow each other in row-major order: runs along one axis, all of the axes behind it, one
/// index at a time of those before it. Along the borders of chunks, so that every chunk is decoded once.
fn slabs(shape: &[u64], chunk: Option<&[u32]>, element_size: u64) -> impl Iterator<Item = SliceInfo> {
    let behind = |axis: usize| shape[axis + 1..].iter().product::<u64>().max(1) * element_size;
    let rank = shape.len();
    let axis = (0..rank).find(|axis| behind(*axis) <= SLAB).unwrap_or(0);
    let (rows, row_bytes) = if rank == 0 { (1, element_size) } else { (shape[axis], behind(axis)) };
    let most_rows = (SLAB / row_bytes).max(1);
    let chunk_rows = chunk.and_then(|chunk| chunk.get(axis).copied()).unwrap_or(1).max(1) as u64;
    let aligned = most_rows.next_multiple_of(chunk_rows);
    let slab = if aligned.saturating_mul(row_bytes) <= 4 * SLAB { aligned } else { most_rows };
    let before: Vec<u64> = shape[..axis].to_vec();
    let parts = rows.div_ceil(slab);
    (0..before.iter().product::<u64>() * parts).map(move |number| {
        let mut selection = SliceInfo::all(rank);
        if rank > 0 {
            let start = number % parts * slab;
            selection.selections[axis] = SliceInfoElem::Slice { start, end: rows.min(start + slab), step: 1 };
        }
        let mut rest = number / parts;
        for (axis, n) in before.iter().enumerate().rev() {
            selection.selections[axis] = SliceInfoElem::Slice { start: rest % n, end: rest % n + 1, step: 1 };
            rest /= n;
        }
        selection
    })
}

/// A number of any type on its way to `f32`: the decoder's own numbers are those of Rust, without halves and truth values.
#[derive(Clone, Copy)]
struct Single(f32);

impl H5Type for Single {
    fn hdf5_type() -> Datatype {
        f32::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], dtype: &Datatype) -> hdf5_reader::error::Result<Self> {
        let values = Self::decode_vec(bytes, dtype, 1).unwrap_or_else(|| Ok(Vec::new()))?;
        values.first().copied().ok_or_else(|| {
            hdf5_reader::error::Error::InvalidData(format!("expected a number, found {} bytes", bytes.len()))
        })
    }

    fn element_size(dtype: &Datatype) -> usize {
        element_of(dtype).map_or(1, |(element, _)| element.size())
    }

    fn decode_vec(
        raw: &[u8],
        dtype: &Datatype,
        count: usize,
    ) -> Option<hdf5_reader::error::Result<Vec<Self>>> {
        let (element, order) = element_of(dtype)?;
        let bytes = raw.get(..count.checked_mul(element.size())?)?;
        let mut values = Vec::with_capacity(count);
        element.decode(order, bytes, &mut values);
        Some(Ok(values.into_iter().map(Single).collect()))
    }
}

fn wrong(source: &Source, place: &str, error: hdf5_reader::error::Error) -> Error {
    Error::Hdf5 { path: source.path().into(), place: place.into(), why: error.to_string() }
}
