//! Files of the field: variables with name, shape and type of number. Each is read as an [`Array`] in the order numpy shows it, or
//! block by block in the order of the file, so that a variable larger than memory is no trouble.
//!
//! | format | axes | what is read |
//! | --- | --- | --- |
//! | [`Format::Npy`] | as numpy | one array, named after the file |
//! | [`Format::Npz`] | as numpy | every `.npy` inside, stored or deflated |
//! | [`Format::Mat5`] | MATLAB's | numeric and logical arrays, plain or compressed, either byte order |
//! | [`Format::Mat73`] | MATLAB's | the same, from HDF5, where the axes lie reversed |
//! | [`Format::Hdf5`] | as h5py | numeric datasets at any depth, contiguous or chunked, gzip and shuffle |
//! | [`Format::Safetensors`] | as stored | everything but 8-bit and smaller floats and complex numbers |
//! | [`Format::Torch`] | as PyTorch | tensors alone, in lists and in dictionaries of any depth, with any strides |
//!
//! State dicts of PyTorch, as weights of a model, have a way of their own: [`torch::read`].
//!
//! All numbers become `f32`, rounded to nearest; doubles beyond its range become infinite, and [`Summary`] counts them.
//!
//! A file is not trusted. Every declared size is compared with the bytes there are before memory is taken or a loop begins; what is
//! compressed is inflated block by block, never beyond what its declared shape needs, and shapes that need more than deflate can grow,
//! or more than [`Limits`] allow, are refused at once. Memory that the system does not have is an error. Names are kept as they are in
//! the file: [`crate::error::shown`] makes them fit for a terminal.

mod element;
mod hdf5;
mod mat5;
pub(crate) mod memory;
pub mod npy;
mod npz;
mod safetensors;
pub(crate) mod source;
mod summary;
pub mod torch;
mod write;

use std::path::Path;

pub use element::Element;
pub use safetensors::Tensors;
pub use source::read_text;
pub use summary::Summary;

use crate::Array;
use crate::error::{Error, Result, shown};
use element::{DEFLATE_RATIO, Take};
use source::Source;
pub use write::{FolderLock, Output, write_whole};

/// Opens a file and lists its variables. The format is told by the first bytes, else by the extension.
pub fn open(path: impl AsRef<Path>) -> Result<File> {
    open_with(path, Limits::default())
}

/// The same, with other limits.
pub fn open_with(path: impl AsRef<Path>, limits: Limits) -> Result<File> {
    File::new(Source::open(path.as_ref())?, limits)
}

/// How far a file is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Times the length of its file that a compressed variable may have. Whatever the factor, 64 MB are allowed: small files of
    /// plain data are compressed a thousandfold at times, and that much memory is there.
    pub expansion: u64,
}

impl Default for Limits {
    /// A factor of 100: fields of real data compress by less than ten, fields of few different values by some tens.
    fn default() -> Self {
        Self { expansion: 100 }
    }
}

/// A file whose variables are known.
#[derive(Debug)]
pub struct File {
    source: Source,
    format: Format,
    variables: Vec<Variable>,
    /// Numbers of the variables by their names, those of the same name in the order of the file.
    by_name: Vec<usize>,
    reader: Reader,
    allowance: Allowance,
}

/// A variable of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name; in HDF5 the path from the root without the leading slash.
    pub name: String,
    /// Length of every axis, in the order [`File::read`] gives.
    pub shape: Vec<usize>,
    /// What it holds.
    pub kind: Kind,
    /// The axes from the slowest to the fastest, as [`File::scan`] gives the values: 0, 1, 2 is row-major, 2, 1, 0 is column-major
    /// (MATLAB, `fortran_order`), and tensors of PyTorch have any order.
    pub order: Vec<usize>,
}

/// What a variable holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Real numbers, which can be read.
    Numbers(Element),
    /// Anything else, in words; it is listed and cannot be read.
    Other(String),
}

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One array of numpy.
    Npy,
    /// Several arrays of numpy in a zip archive.
    Npz,
    /// MATLAB 5 to 7.2.
    Mat5,
    /// MATLAB 7.3, which is HDF5 behind a header of 512 bytes.
    Mat73,
    /// HDF5.
    Hdf5,
    /// Safetensors.
    Safetensors,
    /// PyTorch since 1.6.
    Torch,
}

impl File {
    /// A file whose bytes are in memory; `name` gives its extension and is what errors call it.
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes_with(name, bytes, Limits::default())
    }

    /// The same, with other limits.
    pub fn from_bytes_with(name: impl AsRef<Path>, bytes: Vec<u8>, limits: Limits) -> Result<Self> {
        Self::new(Source::from_bytes(name.as_ref(), bytes), limits)
    }

    /// The path or name it was opened with.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// All variables, also those that cannot be read, in the order of the file.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Result<&Variable> {
        self.find(name).map(|at| &self.variables[at])
    }

    /// The values of the first variable.
    pub(crate) fn read_first(&self) -> Result<Array> {
        let first = self.variables.first().map_or("", |variable| &variable.name);
        self.read(first)
    }

    /// The values of a variable, row-major, all in memory.
    pub fn read(&self, name: &str) -> Result<Array> {
        let variable = self.variable(name)?;
        let mut values = Vec::new();
        self.scan(name, &mut |_, block| {
            let count = variable.len();
            if values.capacity() < values.len() + block.len() {
                // The memory doubles with what has been read and stops at the count: a header that promises too much costs little.
                let more = (count - values.len()).min(values.len().max(block.len()));
                memory::grow(&mut values, more, self.path(), name)?;
            }
            values.extend_from_slice(block);
            Ok(())
        })?;
        debug_assert_eq!(values.len(), variable.len());
        let values = element::to_row_major(values, &variable.shape, &variable.order, self.path(), name)?;
        Ok(Array { shape: variable.shape.clone(), values })
    }

    /// The values of a variable in the order of the file ([`Variable::order`]), in blocks of at most 256 kB, each with the index of
    /// its first value. An error of `take` ends the reading and is returned.
    ///
    /// However large the variable, a few megabytes are in memory; where HDF5 is chunked, two chunks at least.
    pub fn scan(&self, name: &str, take: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        let at = self.find(name)?;
        let variable = &self.variables[at];
        let (element, count) = self.numbers(variable)?;
        let (source, allowance) = (&self.source, self.allowance);
        let take: &mut Take<'_> = take;
        match &self.reader {
            Reader::Npy(header) => {
                header.scan(&mut source.window(header.offset, u64::MAX), source, name, take)
            }
            Reader::Npz(file) => npz::scan(source, file, at, name, allowance, take),
            Reader::Mat5(places) => mat5::scan(source, &places[at], variable, count, allowance, take),
            Reader::Hdf5(file) => hdf5::scan(source, file, at, variable, count, allowance, take),
            Reader::Safetensors(places) => safetensors::scan(source, places[at], element, count, name, take),
            Reader::Torch(tensors) => tensors.scan(source, at, take),
        }
    }

    /// `Ok` if the bytes of the file can become as many numbers as the shape of a variable says. Nothing is read. Who goes along an axis
    /// without reading values calls this first; [`read`](Self::read) and [`scan`](Self::scan) compare more closely.
    pub fn check(&self, name: &str) -> Result<()> {
        let variable = self.variable(name)?;
        let (element, count) = self.numbers(variable)?;
        let len = self.source.len();
        let compresses = matches!(self.format, Format::Npz | Format::Mat5 | Format::Mat73 | Format::Hdf5);
        // A number takes a byte at least, and views of tensors have no more values than their file has bytes.
        let most = if compresses { len.saturating_mul(DEFLATE_RATIO) } else { len };
        if count as u64 > most {
            let expected = format!("at most {most} values, which {len} bytes can hold");
            return Err(Error::content(self.path(), name, expected, format!("shape {:?}", variable.shape)));
        }
        if count as u64 > self.allowance.most {
            return self.allowance.check(&self.source, name, (count * element.size()) as u64);
        }
        Ok(())
    }

    /// Range and mean of a variable, which is not held in memory.
    pub fn summary(&self, name: &str) -> Result<Summary> {
        let mut summary = Summary::default();
        self.scan(name, &mut |_, values| {
            summary.add(values);
            Ok(())
        })?;
        Ok(summary)
    }

    fn new(source: Source, limits: Limits) -> Result<Self> {
        let allowance = Allowance::new(&source, limits);
        let format = Format::of(&source)?;
        let (variables, reader) = match format {
            Format::Npy => npy::open(&source).map(|(variables, header)| (variables, Reader::Npy(header)))?,
            Format::Npz => {
                npz::open(&source).map(|(variables, file)| (variables, Reader::Npz(Box::new(file))))?
            }
            Format::Mat5 => {
                mat5::open(&source).map(|(variables, places)| (variables, Reader::Mat5(places)))?
            }
            Format::Mat73 | Format::Hdf5 => hdf5::open(&source, format, allowance)
                .map(|(variables, file)| (variables, Reader::Hdf5(Box::new(file))))?,
            Format::Safetensors => safetensors::open(&source).and_then(|(variables, places)| {
                apart(&source, places.iter().map(|(_, len)| *len))?;
                Ok((variables, Reader::Safetensors(places)))
            })?,
            Format::Torch => {
                torch::open(&source).map(|(variables, tensors)| (variables, Reader::Torch(tensors)))?
            }
        };
        let mut by_name: Vec<_> = (0..variables.len()).collect();
        by_name.sort_by(|a, b| variables[*a].name.cmp(&variables[*b].name));
        Ok(Self { source, format, variables, by_name, reader, allowance })
    }

    fn find(&self, name: &str) -> Result<usize> {
        let first = self.by_name.partition_point(|at| *self.variables[*at].name < *name);
        let found = self.by_name.get(first).copied().filter(|at| self.variables[*at].name == name);
        found.ok_or_else(|| Error::NoVariable {
            path: self.path().into(),
            variable: name.into(),
            known: known(&self.variables),
        })
    }

    /// The type of a variable's numbers and how many there are.
    fn numbers(&self, variable: &Variable) -> Result<(Element, usize)> {
        let name = &variable.name;
        let element = match &variable.kind {
            Kind::Numbers(element) => *element,
            Kind::Other(found) => {
                let (path, found) = (self.path().into(), found.clone());
                return Err(Error::Unsupported { path, variable: name.clone(), found });
            }
        };
        let count = element::count(&variable.shape, element).ok_or_else(|| {
            let found = format!("shape {:?}", variable.shape);
            Error::content(self.path(), name, "a shape that memory can hold", found)
        })?;
        Ok((element, count))
    }
}

/// An error if parts of a file have more bytes than the file: each would be read as if it were its own.
fn apart(source: &Source, lens: impl Iterator<Item = u64>) -> Result<()> {
    let total = lens.fold(0u64, u64::saturating_add);
    if total > source.len() {
        let expected = format!("variables that do not overlap, of at most {} bytes together", source.len());
        return Err(Error::content(source.path(), "file", expected, total.to_string()));
    }
    Ok(())
}

impl Variable {
    /// Row-major.
    fn new(name: String, shape: Vec<usize>, kind: Kind) -> Self {
        let order = (0..shape.len()).collect();
        Self { name, shape, kind, order }
    }

    fn column_major(mut self) -> Self {
        self.order = (0..self.shape.len()).rev().collect();
        self
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.shape.iter().fold(1, |product: usize, n| product.saturating_mul(*n))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

impl Kind {
    /// In words: numpy's name of the type, or what else it is.
    pub fn name(&self) -> &str {
        match self {
            Kind::Numbers(element) => element.name(),
            Kind::Other(words) => words,
        }
    }
}

impl Format {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Format::Npy => "numpy array",
            Format::Npz => "numpy archive",
            Format::Mat5 => "MATLAB 5",
            Format::Mat73 => "MATLAB 7.3",
            Format::Hdf5 => "HDF5",
            Format::Safetensors => "safetensors",
            Format::Torch => "PyTorch",
        }
    }

    /// By content; a file too damaged to tell goes to the reader its extension names, whose error says more.
    fn of(source: &Source) -> Result<Self> {
        let head = source.read_vec(0, source.len().min(HEAD), "first bytes")?;
        if head.starts_with(npy::MAGIC) {
            return Ok(Format::Npy);
        }
        if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            let named = matches!(extension(source), Some("pt" | "pth"));
            return Ok(if named || torch::has_pickle(source) { Format::Torch } else { Format::Npz });
        }
        if head.starts_with(torch::OLD) {
            return Ok(Format::Torch);
        }
        if hdf5::signature_at(&head, 0) {
            return Ok(Format::Hdf5);
        }
        if mat5::is_header(&head) {
            return Ok(Format::Mat5);
        }
        // The user block of an HDF5 file may have any power of two bytes; MATLAB's has 512 and says so.
        if hdf5::signature_at(&head, 512) {
            return Ok(if head.starts_with(b"MATLAB 7.3") { Format::Mat73 } else { Format::Hdf5 });
        }
        if hdf5::signature_at(&head, 1024) || hdf5::signature_at(&head, 2048) {
            return Ok(Format::Hdf5);
        }
        if head.len() > 8 && head[8] == b'{' && head[4..8] == [0; 4] {
            return Ok(Format::Safetensors);
        }
        match extension(source) {
            Some("npy") => Ok(Format::Npy),
            Some("npz") => Ok(Format::Npz),
            Some("mat") => Ok(Format::Mat5),
            Some("h5" | "hdf5") => Ok(Format::Hdf5),
            Some("safetensors") => Ok(Format::Safetensors),
            Some("pt" | "pth") => Ok(Format::Torch),
            _ => Err(Error::content(
                source.path(),
                "first bytes",
                "a file of numpy, MATLAB 5 to 7.3, HDF5, safetensors or PyTorch",
                format!("{:02x?}", &head[..head.len().min(8)]),
            )),
        }
    }
}

/// What a reader keeps between listing and reading, one item per variable where there are several.
#[derive(Debug)]
enum Reader {
    Npy(npy::Header),
    Npz(Box<npz::Npz>),
    Mat5(Vec<mat5::Place>),
    Hdf5(Box<hdf5::Hdf5>),
    Safetensors(Vec<(u64, u64)>),
    Torch(torch::Tensors),
}

/// What compressed variables of one file may take.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Bytes of one variable.
    most: u64,
    factor: u64,
}

impl Allowance {
    fn new(source: &Source, Limits { expansion }: Limits) -> Self {
        Self { most: source.len().saturating_mul(expansion).max(64 << 20), factor: expansion }
    }

    /// `Ok` if a compressed variable may have so many bytes.
    fn check(&self, source: &Source, variable: &str, bytes: u64) -> Result<()> {
        if bytes <= self.most {
            return Ok(());
        }
        Err(Error::Expansion {
            path: source.path().into(),
            variable: variable.into(),
            bytes,
            file: source.len(),
            factor: self.factor,
            needed: bytes.div_ceil(source.len().max(1)),
        })
    }
}

fn extension(source: &Source) -> Option<&str> {
    source.path().extension().and_then(|extension| extension.to_str())
}

/// Enough for the farthest place a signature is looked for.
const HEAD: u64 = 2048 + 8;

/// Bytes of the names of all variables of a file in which links, or names that are used again, may multiply them.
const MOST_OF_NAMES: usize = 16 << 20;

/// The names there are, for a message.
pub(crate) fn known(variables: &[Variable]) -> String {
    const MOST: usize = 20;
    if variables.is_empty() {
        return "none".into();
    }
    let names: Vec<_> = variables.iter().take(MOST).map(|variable| shown(&variable.name)).collect();
    match variables.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
