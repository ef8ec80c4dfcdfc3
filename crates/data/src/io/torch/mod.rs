//! Files of PyTorch (`.pt`, `.pth`): tensors, read without running anything.
//!
//! The file is a zip archive of uncompressed entries ([`torch.save`] since 1.6): `data.pkl`, a pickle that names the
//! tensors, and `data/0`, `data/1`, … with their values. Pickle is a language whose programs may call any Python function. Here
//! it is interpreted on plain values: the names of some functions and types that make up tensors and plain values are known, and
//! any other name or operation ends the reading with an error that says which.
//!
//! There are two ways to look at a file: as weights of a model ([`read`]: the state dict, its arrays in memory), and as data
//! ([`crate::io::open`]: every tensor at any depth is a variable, `outer/inner`, and its values come block by block).
//!
//! What a file can make the reader allocate is bounded by the file's own length: entries are stretches of it, an array, and with
//! [`read`] all arrays together, have at most as many values as the file has bytes (a view with stride 0 has any number), and the
//! interpreter never copies what has parts; the worst pickle that was found takes 39 times its length. (The reader of `burn-store` 0.22.1,
//! `pytorch-reader`, was tried first: a file of 88 kB with a compressed pickle made it allocate 18 GB, one of 478 bytes with
//! a stride of 0 gave an array of 400 MB, and calls of unknown functions are passed over in silence.)
//!
//! [`torch.save`]: https://docs.pytorch.org/docs/stable/generated/torch.save.html

mod archive;
mod pickle;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::element::{BLOCK, ByteOrder, Element, Places, Take, count, to_row_major};
use super::memory::room;
use super::source::Source;
use super::{Kind, MOST_OF_NAMES, Variable};
use crate::Array;
use crate::error::{Error, Result};
pub(super) use archive::has_pickle;
use archive::{Archive, Entry};
use pickle::{Key, Numbers, Pickled, TensorView, Tuple, Value};

/// Keys under which training scripts put the state dict, in the order of looking.
const UNDER: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// No array has more axes than this.
const MOST_AXES: usize = 16;
/// Dictionaries inside dictionaries; they may be in themselves.
const DEEPEST: usize = 16;
/// Things in lists and dictionaries that are followed; the memo may multiply them.
const MOST_NAMED: usize = 100_000;

/// The magic number of the format before PyTorch 1.6, as its pickle begins.
pub(super) const OLD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19";

/// The arrays of a state dict, also of one under `state_dict`, `model_state_dict` or `model`. Values are rounded to f32.
pub fn read(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    read_state_dict(&Source::open(path.as_ref())?)
}

/// The same from the bytes of a file; `name` is what errors call it.
pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<BTreeMap<String, Array>> {
    read_state_dict(&Source::from_bytes(name.as_ref(), bytes))
}

fn read_state_dict(source: &Source) -> Result<BTreeMap<String, Array>> {
    let archive = open_archive(source)?;
    let pickle = archive.get(source, "data.pkl")?.read(source, "data.pkl")?;
    let pickled = pickle::run(&pickle, source.path())?;
    let mut left = source.len();
    let mut checked = BTreeSet::new();
    let mut arrays = BTreeMap::new();
    for (name, value) in state_dict(source, &pickled)? {
        let fault = |expected: &str, found: &str| fault(source, name, expected, found);
        let Value::Tensor(tensor) = value else {
            return Err(fault("a tensor", value.kind()));
        };
        let view = &pickled.tensors[tensor];
        let tensor = Tensor::new(source, &pickled, view, name, &archive, left)?;
        left -= tensor.count as u64;
        let Numbers::Real(element) = tensor.numbers else {
            return Err(fault("real numbers", "complex ones"));
        };
        if checked.insert(view.key) {
            tensor.entry.check(source, &storage_name(view))?;
        }
        let mut values = room(tensor.count, source.path(), name)?;
        tensor.scan(source, element, &mut |_, block| {
            values.extend_from_slice(block);
            Ok(())
        })?;
        let values = to_row_major(values, &tensor.shape, &tensor.order, source.path(), name)?;
        if arrays.insert(name.to_string(), Array { shape: tensor.shape, values }).is_some() {
            return Err(fault("a name of one tensor", "it twice"));
        }
    }
    Ok(arrays)
}

/// A tensor that is not what it must be.
fn fault(source: &Source, name: &str, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::content(source.path(), format!("tensor `{name:.200}`"), expected, found)
}

/// Every tensor as a variable, and everything else in words.
pub(super) fn open(source: &Source) -> Result<(Vec<Variable>, Tensors)> {
    let archive = open_archive(source)?;
    let pickle = archive.get(source, "data.pkl")?.read(source, "data.pkl")?;
    let pickled = pickle::run(&pickle, source.path())?;
    let stem = source.path().file_stem().map_or("tensor".into(), |stem| stem.to_string_lossy().into_owned());
    let mut listing =
        Listing { source, pickled: &pickled, named: 0, bytes: 0, parts: HashMap::new(), found: Vec::new() };
    match pickled.root {
        root @ (Value::Dict(_) | Value::List(_) | Value::Tuple(_)) if listing.has_parts(root) => {
            listing.follow(root, "", 0)?;
        }
        root => listing.found.push((stem, root)),
    }
    let (mut variables, mut tensors) = (Vec::new(), Vec::new());
    // Tensors that show parts of one storage share the knowledge that it is sound.
    let mut checked: HashMap<&str, Arc<OnceLock<()>>> = HashMap::new();
    for (name, value) in listing.found {
        let Value::Tensor(tensor) = value else {
            variables.push(Variable::new(name, vec![], Kind::Other(value.words())));
            tensors.push(None);
            continue;
        };
        let view = &pickled.tensors[tensor];
        let mut tensor = Tensor::new(source, &pickled, view, &name, &archive, source.len())?;
        tensor.checked = checked.entry(view.key).or_default().clone();
        let kind = match tensor.numbers {
            Numbers::Real(element) => Kind::Numbers(element),
            Numbers::Complex(_) => Kind::Other("an array of complex numbers".into()),
        };
        let mut variable = Variable::new(name, tensor.shape.clone(), kind);
        variable.order = tensor.order.clone();
        variables.push(variable);
        tensors.push(Some(tensor));
    }
    Ok((variables, Tensors(tensors)))
}

fn open_archive(source: &Source) -> Result<Archive> {
    let head = source.read_vec(0, source.len().min(OLD.len() as u64), "first bytes")?;
    if head == OLD {
        let found = "that of PyTorch before 1.6; save it again with a newer one: \
                     torch.save(torch.load(path, map_location=\"cpu\"), path)";
        return Err(Error::content(source.path(), "format", "that of PyTorch since 1.6", found));
    }
    let archive = Archive::open(source)?;
    if let Some(entry) = archive.find("byteorder") {
        // No order has a longer name; a longer entry is not read.
        let order = if entry.len > 16 { vec![b'?'] } else { entry.read(source, "byteorder")? };
        if order != b"little" {
            let found = format!("`{:.16}`", String::from_utf8_lossy(&order));
            return Err(archive::broken(source, "byteorder", "`little`", found));
        }
    }
    Ok(archive)
}

fn storage_name(view: &TensorView) -> String {
    format!("data/{}", view.key)
}

/// The entries of the dictionary that holds the tensors.
fn state_dict<'p>(source: &Source, pickled: &Pickled<'p>) -> Result<Vec<(&'p str, Value<'p>)>> {
    let none = |found: String| {
        let expected = format!("a state dict, or one under {UNDER:?}");
        Error::content(source.path(), "data.pkl", expected, found)
    };
    let Value::Dict(root) = pickled.root else {
        return Err(none(pickled.root.kind().into()));
    };
    // Keys of other kinds, such as the numbers of an optimiser's state, name no tensor of a model.
    let named = |dict| -> Vec<_> {
        let text = |(key, value)| if let Key::Text(key) = key { Some((key, value)) } else { None };
        pickled.dict(dict).filter_map(text).collect()
    };
    let entries = named(root);
    if entries.iter().any(|(_, value)| matches!(value, Value::Tensor(_))) {
        return Ok(entries);
    }
    for key in UNDER {
        if let Some((_, Value::Dict(dict))) = entries.iter().find(|(name, _)| *name == key) {
            return Ok(named(*dict));
        }
    }
    let mut found = format!("a dictionary of {} entries", entries.len());
    for (name, value) in entries.iter().take(4) {
        found += &format!(", `{name:.40}`: {}", value.kind());
    }
    Err(none(found))
}

/// A walk through lists and dictionaries.
struct Listing<'p, 'a> {
    source: &'p Source,
    pickled: &'p Pickled<'a>,
    /// Things seen, with and without a name of their own.
    named: usize,
    /// Bytes of all names.
    bytes: usize,
    /// Which lists and tuples are looked into. One may be met many times, and is looked through once.
    parts: HashMap<Parts, bool>,
    found: Vec<(String, Value<'a>)>,
}

/// A list or a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Parts {
    List(u32),
    Tuple(Tuple),
}

impl<'a> Listing<'_, 'a> {
    /// Whether it is looked into: dictionaries always, lists and tuples where tensors or dictionaries lie in them. A list of numbers
    /// is one thing.
    fn has_parts(&mut self, value: Value<'a>) -> bool {
        let part = |value: &Value| matches!(value, Value::Tensor(_) | Value::Dict(_));
        let pickled = self.pickled;
        match value {
            Value::Dict(_) => true,
            Value::List(list) => {
                let looked = || pickled.list(list).any(|value| part(&value));
                *self.parts.entry(Parts::List(list)).or_insert_with(looked)
            }
            Value::Tuple(tuple) => {
                let looked = || pickled.items(tuple).iter().any(part);
                *self.parts.entry(Parts::Tuple(tuple)).or_insert_with(looked)
            }
            _ => false,
        }
    }

    fn follow(&mut self, value: Value<'a>, prefix: &str, depth: usize) -> Result<()> {
        let wrong = |expected: String| Error::content(self.source.path(), "data.pkl", expected, "more");
        let numbered = |at: usize, value| (Key::Int(at as i64), value);
        let parts: Vec<_> = match value {
            Value::Dict(dict) => self.pickled.dict(dict).take(MOST_NAMED + 1).collect(),
            Value::List(list) => {
                let values = self.pickled.list(list).take(MOST_NAMED + 1);
                values.enumerate().map(|(at, value)| numbered(at, value)).collect()
            }
            Value::Tuple(tuple) => {
                let values = self.pickled.items(tuple).iter().take(MOST_NAMED + 1);
                values.enumerate().map(|(at, value)| numbered(at, *value)).collect()
            }
            _ => Vec::new(),
        };
        self.named += parts.len();
        if self.named > MOST_NAMED {
            return Err(wrong(format!("at most {MOST_NAMED} things in lists and dictionaries")));
        }
        for (key, value) in parts {
            let name = format!("{prefix}{key}");
            self.bytes += name.len();
            if name.len() > LONGEST_NAME || self.bytes > MOST_OF_NAMES {
                let together = format!("of at most {MOST_OF_NAMES} together");
                return Err(wrong(format!("names of at most {LONGEST_NAME} bytes, {together}")));
            }
            if depth < DEEPEST && self.has_parts(value) {
                self.follow(value, &format!("{name}/"), depth + 1)?;
            } else {
                self.found.push((name, value));
            }
        }
        Ok(())
    }
}

/// Bytes of a name with those it lies under.
const LONGEST_NAME: usize = 4096;

/// What is kept of a file to read its tensors, one item per variable.
#[derive(Debug)]
pub(super) struct Tensors(Vec<Option<Tensor>>);

impl Tensors {
    pub(super) fn scan(&self, source: &Source, at: usize, take: &mut Take<'_>) -> Result<()> {
        let Some(tensor) = &self.0[at] else { unreachable!("only tensors are read") };
        let Numbers::Real(element) = tensor.numbers else { unreachable!("only real numbers are read") };
        // Values are handed over as they are read, so that damage must be found before. Once is enough.
        if tensor.checked.get().is_none() {
            tensor.entry.check(source, &tensor.storage)?;
            let _ = tensor.checked.set(());
        }
        tensor.scan(source, element, take)
    }
}

/// A tensor whose values are known to lie inside its storage.
#[derive(Debug)]
struct Tensor {
    /// The storage's name and place.
    storage: String,
    entry: Entry,
    numbers: Numbers,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// Axes by their strides, the longest first: so values are met in the order of the file.
    order: Vec<usize>,
    offset: usize,
    count: usize,
    /// Set when the bytes of the storage agreed with their checksum.
    checked: Arc<OnceLock<()>>,
}

impl Tensor {
    /// Checks that it has at most `most` values and that all lie inside its storage.
    fn new(
        source: &Source,
        pickled: &Pickled,
        view: &TensorView,
        name: &str,
        archive: &Archive,
        most: u64,
    ) -> Result<Self> {
        let entry = archive.get(source, &storage_name(view))?;
        let wrong = |expected: &str, found: String| fault(source, name, expected, found);
        let size = view.numbers.size();
        if Some(entry.len) != (view.len as u64).checked_mul(size as u64) {
            let expected = format!("a storage of {} values of {size} bytes", view.len);
            return Err(wrong(&expected, format!("{} bytes", entry.len)));
        }
        let sizes = |what: &str, tuple| -> Result<Vec<usize>> {
            let items = pickled.items(tuple);
            if items.len() > MOST_AXES {
                return Err(wrong(&format!("at most {MOST_AXES} axes"), items.len().to_string()));
            }
            let expected = format!("lengths from 0 on in its {what}");
            let size = |item: &Value| match item {
                Value::Int(size) => usize::try_from(*size).map_err(|_| wrong(&expected, size.to_string())),
                other => Err(wrong(&expected, other.kind().into())),
            };
            items.iter().map(size).collect()
        };
        let (shape, strides) = (sizes("shape", view.shape)?, sizes("strides", view.strides)?);
        if shape.len() != strides.len() {
            return Err(wrong("a stride per axis", format!("shape {shape:?} with strides {strides:?}")));
        }
        let (Numbers::Real(element) | Numbers::Complex(element)) = view.numbers;
        let Some(count) = count(&shape, element).filter(|count| *count as u64 <= most) else {
            let expected = format!("at most {most} values, which the file can account for");
            return Err(wrong(&expected, format!("shape {shape:?}")));
        };
        let last = shape.iter().zip(&strides).try_fold(view.offset, |last, (size, stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
        });
        if count > 0 && last.is_none_or(|last| last >= view.len) {
            let (offset, len) = (view.offset, view.len);
            return Err(wrong(
                &format!("values inside a storage of {len}"),
                format!("shape {shape:?} with strides {strides:?} from {offset} on"),
            ));
        }
        let mut order: Vec<_> = (0..shape.len()).collect();
        // The strides of axes with one point say nothing; such axes stay in front. The sort keeps the order of equal ones.
        order.sort_by_key(|axis| if shape[*axis] > 1 { usize::MAX - strides[*axis] } else { 0 });
        Ok(Self {
            storage: storage_name(view),
            entry,
            numbers: view.numbers,
            shape,
            strides,
            order,
            offset: view.offset,
            count,
            checked: Arc::default(),
        })
    }

    /// Its values, block by block in the order of its axes' strides.
    fn scan(&self, source: &Source, element: Element, take: &mut Take<'_>) -> Result<()> {
        // The place of the first value was compared with the storage only if there is one.
        if self.count == 0 {
            return Ok(());
        }
        let size = element.size();
        let shape: Vec<_> = self.order.iter().map(|axis| self.shape[*axis]).collect();
        let strides: Vec<_> = self.order.iter().map(|axis| self.strides[*axis]).collect();
        let dense = shape
            .iter()
            .zip(&strides)
            .rev()
            .try_fold(1, |dense, (n, stride)| (*n == 1 || *stride == dense).then(|| dense * n));
        if dense.is_some() {
            let (start, len) = (self.entry.start + (self.offset * size) as u64, (self.count * size) as u64);
            let mut stream = source.window(start, len);
            return element.scan(ByteOrder::Little, &mut stream, self.count, source, &self.storage, take);
        }
        let mut places = Places::new(&shape, &strides);
        let mut window = Window { source, tensor: self, size, bytes: Vec::new(), start: 0, next: LEAST };
        let mut raw = Vec::with_capacity(self.count.min(BLOCK) * size);
        let mut values = Vec::with_capacity(self.count.min(BLOCK));
        let mut done = 0;
        while done < self.count {
            raw.clear();
            values.clear();
            for _ in 0..(self.count - done).min(BLOCK) {
                raw.extend_from_slice(window.value(self.offset + places.next_place())?);
            }
            element.decode(ByteOrder::Little, &raw, &mut values);
            take(done, &values)?;
            done += values.len();
        }
        Ok(())
    }
}

/// A stretch of a storage that moves with the values asked for. As long as they come one after the other the stretches grow; after a
/// jump they are small again, so that a tensor whose values are far apart is not read many times over.
struct Window<'a> {
    source: &'a Source,
    tensor: &'a Tensor,
    size: usize,
    bytes: Vec<u8>,
    /// The byte of the storage it begins with.
    start: u64,
    next: usize,
}

/// Bytes of the least and the longest stretch.
const LEAST: usize = 1 << 12;
const LONGEST: usize = 1 << 20;

impl Window<'_> {
    /// The bytes of value number `at` of the storage.
    fn value(&mut self, at: usize) -> Result<&[u8]> {
        let byte = (at * self.size) as u64;
        let end = self.start + self.bytes.len() as u64;
        if byte < self.start || byte + self.size as u64 > end {
            let follows = byte >= self.start && byte < end.saturating_add(self.bytes.len() as u64);
            self.next = if follows { (2 * self.next).min(LONGEST) } else { LEAST };
            let len = (self.next as u64).min(self.tensor.entry.len - byte);
            self.bytes.resize(len as usize, 0);
            self.source.read_at(self.tensor.entry.start + byte, &mut self.bytes, &self.tensor.storage)?;
            self.start = byte;
        }
        let from = (byte - self.start) as usize;
        Ok(&self.bytes[from..from + self.size])
    }
}
