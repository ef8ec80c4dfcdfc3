//! The part of pickle that tensors are written in, on plain values.
//!
//! A pickle is a program for a machine with a stack and a memo. Values here are small and copied; what has parts (tuples, lists,
//! dictionaries, tensors) is a number into a pool, so fetching from the memo costs nothing, loops do no harm, and nothing is
//! recursive. Every operation adds at most one entry to a pool.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::Element;

/// What ran: the value it ended with, and the pools.
pub(super) struct Pickled<'a> {
    pub root: Value<'a>,
    pub tensors: Vec<TensorView<'a>>,
    items: Vec<Value<'a>>,
    /// What is in dictionaries and lists: first which one, by whose number they are sorted.
    entries: Vec<(u32, (Key<'a>, Value<'a>))>,
    elements: Vec<(u32, Value<'a>)>,
}

/// The key of an entry of a dictionary. Keys of other kinds name no tensor and are dropped with what they name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Key<'a> {
    Text(&'a str),
    Int(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Bytes,
    /// What is in a set matters to nobody and is dropped.
    Set,
    /// A function or type, by name only.
    Known(Known),
    Tuple(Tuple),
    List(u32),
    Dict(u32),
    Storage(u32),
    Tensor(usize),
}

/// A stretch of the pool of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    start: u32,
    len: u32,
}

/// The names that tensors and what lies beside them are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Known {
    OrderedDict,
    RebuildTensor,
    /// The same for the types that PyTorch got last, with the type as an argument.
    RebuildTensorOfType,
    RebuildParameter,
    Storage(Numbers),
    /// Bytes of any type.
    UntypedStorage,
    Type(Numbers),
    /// `torch.Size`, a tuple.
    Size,
    /// `torch.device`, whatever it is.
    Device,
    /// `_codecs.encode`: how older pickles spell bytes.
    Encode,
    Set,
}

/// Types of the numbers in a storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Numbers {
    Real(Element),
    /// Two of these per value.
    Complex(Element),
}

/// The values that one or more tensors show: entry `data/<key>` of the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    /// `None`: the tensor says it.
    pub numbers: Option<Numbers>,
    pub key: &'a str,
    /// How many values, or bytes where the type is not said.
    pub len: usize,
}

/// A tensor: which values of a storage, in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorView<'a> {
    pub key: &'a str,
    pub numbers: Numbers,
    /// Values of the storage.
    pub len: usize,
    pub offset: usize,
    pub shape: Tuple,
    pub strides: Tuple,
}

/// Runs a pickle of the file `path` to its end.
pub(super) fn run<'a>(pickle: &'a [u8], path: &'a Path) -> Result<Pickled<'a>> {
    // Numbers into pools are 32 bits wide.
    if u32::try_from(pickle.len()).is_err() {
        return Err(Error::content(path, "data.pkl", "less than 4 GiB", format!("{} bytes", pickle.len())));
    }
    let mut machine = Machine::new(pickle, path);
    let root = loop {
        if let Some(root) = machine.step()? {
            break root;
        }
    };
    let Machine { tensors, items, mut entries, mut elements, .. } = machine;
    entries.sort_by_key(|(dict, _)| *dict);
    elements.sort_by_key(|(list, _)| *list);
    Ok(Pickled { root, tensors, items, entries, elements })
}

impl<'a> Pickled<'a> {
    /// The entries of a dictionary.
    pub fn dict(&self, dict: u32) -> impl ExactSizeIterator<Item = (Key<'a>, Value<'a>)> {
        of(&self.entries, dict).iter().map(|(_, entry)| *entry)
    }

    pub fn list(&self, list: u32) -> impl ExactSizeIterator<Item = Value<'a>> {
        of(&self.elements, list).iter().map(|(_, value)| *value)
    }

    pub fn items(&self, Tuple { start, len }: Tuple) -> &[Value<'a>] {
        &self.items[start as usize..][..len as usize]
    }
}

/// The part of a pool that belongs to one number, by which the pool is sorted.
fn of<T>(pool: &[(u32, T)], number: u32) -> &[(u32, T)] {
    let start = pool.partition_point(|(of, _)| *of < number);
    let rest = &pool[start..];
    &rest[..rest.partition_point(|(of, _)| *of == number)]
}

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Text(text) => text.fmt(f),
            Key::Int(int) => int.fmt(f),
        }
    }
}

impl Value<'_> {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::Bytes => "bytes",
            Value::Set => "a set",
            Value::Known(_) => "a function or type",
            Value::Tuple(_) => "a tuple",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Storage(_) => "a storage",
            Value::Tensor(_) => "a tensor",
        }
    }

    /// What it is, with its value where that is short.
    pub fn words(&self) -> String {
        match self {
            Value::Bool(value) => format!("the truth value {value}"),
            Value::Int(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            // Of a text that may be long and be here many times, no more than this is looked at.
            Value::Text(text) if text.chars().nth(40).is_none() => format!("the text {text:?}"),
            other => other.kind().into(),
        }
    }
}

impl Numbers {
    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Numbers::Real(element) => element.size(),
            Numbers::Complex(element) => 2 * element.size(),
        }
    }

    /// Of a storage by its name, such as `FloatStorage`.
    fn of_storage(name: &str) -> Option<Self> {
        Some(Numbers::Real(match name {
            "FloatStorage" => Element::F32,
            "DoubleStorage" => Element::F64,
            "HalfStorage" => Element::F16,
            "BFloat16Storage" => Element::Bf16,
            "BoolStorage" => Element::Bool,
            "CharStorage" => Element::I8,
            "ByteStorage" => Element::U8,
            "ShortStorage" => Element::I16,
            "IntStorage" => Element::I32,
            "LongStorage" => Element::I64,
            "ComplexFloatStorage" => return Some(Numbers::Complex(Element::F32)),
            "ComplexDoubleStorage" => return Some(Numbers::Complex(Element::F64)),
            _ => return None,
        }))
    }

    /// Of a type by its name, such as `float32`.
    fn of_type(name: &str) -> Option<Self> {
        Some(Numbers::Real(match name {
            "float32" => Element::F32,
            "float64" => Element::F64,
            "float16" => Element::F16,
            "bfloat16" => Element::Bf16,
            "bool" => Element::Bool,
            "int8" => Element::I8,
            "uint8" => Element::U8,
            "int16" => Element::I16,
            "uint16" => Element::U16,
            "int32" => Element::I32,
            "uint32" => Element::U32,
            "int64" => Element::I64,
            "uint64" => Element::U64,
            "complex64" => return Some(Numbers::Complex(Element::F32)),
            "complex128" => return Some(Numbers::Complex(Element::F64)),
            _ => return None,
        }))
    }
}

/// Python's own pickler never has more on the stack than about twice the thousand entries it writes at once.
const MOST_ON_STACK: usize = 1 << 16;

/// Bytes of the key of a storage, which is a number. Every tensor has its storage's.
const LONGEST_KEY: usize = 64;

struct Machine<'a> {
    pickle: &'a [u8],
    /// The file, for messages.
    path: &'a Path,
    /// Next byte.
    at: usize,
    /// First byte of the running operation.
    begin: usize,
    stack: Vec<Value<'a>>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Value<'a>>,
    items: Vec<Value<'a>>,
    dicts: u32,
    entries: Vec<(u32, (Key<'a>, Value<'a>))>,
    lists: u32,
    elements: Vec<(u32, Value<'a>)>,
    storages: Vec<Storage<'a>>,
    tensors: Vec<TensorView<'a>>,
}

impl<'a> Machine<'a> {
    fn new(pickle: &'a [u8], path: &'a Path) -> Self {
        Self {
            pickle,
            path,
            at: 0,
            begin: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
            items: Vec::new(),
            dicts: 0,
            entries: Vec::new(),
            lists: 0,
            elements: Vec::new(),
            storages: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// One operation; the last one gives the result.
    fn step(&mut self) -> Result<Option<Value<'a>>> {
        self.begin = self.at;
        let opcode = self.number(1)? as u8;
        match opcode {
            // PROTO, FRAME
            0x80 => drop(self.number(1)?),
            0x95 => drop(self.bytes(8)?),
            b'.' => return self.pop().map(Some),
            b'(' => self.mark()?,
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool(opcode == 0x88))?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let int = self.number(4)? as u32 as i32;
                self.push(Value::Int(int as i64))?;
            }
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            0x8a => self.long()?,
            b'G' => {
                // The one number of pickle that begins with its highest byte.
                let bits = self.number(8)?.swap_bytes();
                self.push(Value::Float(f64::from_bits(bits)))?;
            }
            // BINUNICODE, SHORT_BINUNICODE, BINBYTES, SHORT_BINBYTES
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            b'B' => self.raw(4)?,
            b'C' => self.raw(1)?,
            b')' => self.tuple(self.stack.len())?,
            // TUPLE1, TUPLE2, TUPLE3, TUPLE
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub((opcode - 0x84) as usize);
                self.tuple(from.ok_or_else(|| self.fault(EMPTY))?)?;
            }
            b't' => {
                let from = self.since_mark()?;
                self.tuple(from)?;
            }
            // EMPTY_LIST, APPEND, APPENDS
            b']' => self.list()?,
            b'a' => {
                let from = self.stack.len().checked_sub(1).ok_or_else(|| self.fault(EMPTY))?;
                self.append(from)?;
            }
            b'e' => {
                let from = self.since_mark()?;
                self.append(from)?;
            }
            // EMPTY_SET, ADDITEMS, FROZENSET
            0x8f => self.push(Value::Set)?,
            0x90 => {
                let from = self.since_mark()?;
                self.stack.truncate(from);
                if self.stack.last() != Some(&Value::Set) {
                    return Err(self.fault("a set and what is in it"));
                }
            }
            0x91 => {
                let from = self.since_mark()?;
                self.stack.truncate(from);
                self.push(Value::Set)?;
            }
            // EMPTY_DICT, SETITEM, SETITEMS
            b'}' => self.dict()?,
            b's' => {
                let from = self.stack.len().checked_sub(2).ok_or_else(|| self.fault(EMPTY))?;
                self.set_items(from)?;
            }
            b'u' => {
                let from = self.since_mark()?;
                self.set_items(from)?;
            }
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.global(module, name)?,
                _ => return Err(self.fault("two names")),
            },
            b'R' => self.reduce()?,
            // BUILD: what else a dictionary carries, such as the versions of modules.
            b'b' => match (self.pop()?, self.stack.last()) {
                (Value::Dict(_), Some(Value::Dict(_))) => {}
                _ => return Err(self.fault("a dictionary and its attributes")),
            },
            b'Q' => self.storage()?,
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            0x94 => self.keep(self.memo.len() as u32)?,
            b'h' => self.fetch(1)?,
            b'j' => self.fetch(4)?,
            _ => {
                let found = format!("operation {opcode:#04x}, which has no place in a file of tensors");
                return Err(self.wrong("an operation of tensors and plain values", &found));
            }
        }
        Ok(None)
    }

    /// A function or type, if it is one of those that tensors and plain values are made of.
    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let known = match (module, name) {
            ("collections", "OrderedDict") => Some(Known::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Known::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Known::RebuildTensorOfType),
            ("torch._utils", "_rebuild_parameter") => Some(Known::RebuildParameter),
            ("torch.storage" | "torch", "UntypedStorage") => Some(Known::UntypedStorage),
            ("torch", "Size") => Some(Known::Size),
            ("torch", "device") => Some(Known::Device),
            ("_codecs", "encode") => Some(Known::Encode),
            ("builtins" | "__builtin__", "set" | "frozenset") => Some(Known::Set),
            ("torch", name) => Numbers::of_storage(name)
                .map(Known::Storage)
                .or_else(|| Numbers::of_type(name).map(Known::Type)),
            _ => None,
        };
        match known {
            Some(known) => self.push(Value::Known(known)),
            None => {
                let found = format!(
                    "`{module:.80}.{name:.80}`, which has no place in a file of tensors and was not called; save the weights alone: \
                     torch.save(model.state_dict(), path), or data as a dictionary: torch.save({{\"x\": x, \"y\": y}}, path)"
                );
                Err(self.wrong("a function or type of tensors and plain values", &found))
            }
        }
    }

    /// The calls that make tensors and plain values.
    fn reduce(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Known(function)) = (arguments, function) else {
            return Err(self.fault("a function and its arguments"));
        };
        match (function, self.arguments(arguments)) {
            (Known::OrderedDict, []) => self.dict(),
            (Known::Size, [tuple @ Value::Tuple(_)]) => {
                let tuple = *tuple;
                self.push(tuple)
            }
            (Known::Device, [device @ Value::Text(_)] | [device @ Value::Text(_), Value::Int(_)]) => {
                let device = *device;
                self.push(device)
            }
            (Known::Encode, [Value::Text(_), Value::Text(_)]) => self.push(Value::Bytes),
            (Known::Set, [] | [Value::List(_)]) => self.push(Value::Set),
            // Values, whether it is trained, hooks.
            (Known::RebuildParameter, [tensor @ Value::Tensor(_), Value::Bool(_), _]) => {
                let tensor = *tensor;
                self.push(tensor)
            }
            // Storage, offset, shape, strides, whether it is trained, hooks, the type in the later form, and metadata if there are any.
            (
                Known::RebuildTensor | Known::RebuildTensorOfType,
                [
                    Value::Storage(storage),
                    Value::Int(offset),
                    Value::Tuple(shape),
                    Value::Tuple(strides),
                    Value::Bool(_),
                    _,
                    rest @ ..,
                ],
            ) => {
                let storage = self.storages[*storage as usize];
                let (offset, shape, strides) = (*offset, *shape, *strides);
                let (numbers, len) = match (function, storage.numbers, rest) {
                    (Known::RebuildTensor, Some(numbers), [] | [_]) => (numbers, storage.len),
                    (
                        Known::RebuildTensorOfType,
                        None,
                        [Value::Known(Known::Type(numbers))] | [Value::Known(Known::Type(numbers)), _],
                    ) => {
                        if !storage.len.is_multiple_of(numbers.size()) {
                            return Err(self.fault("a storage of whole values"));
                        }
                        (*numbers, storage.len / numbers.size())
                    }
                    _ => return Err(self.fault(ARGUMENTS)),
                };
                let offset = usize::try_from(offset).map_err(|_| self.fault("an offset of at least 0"))?;
                self.tensors.push(TensorView { key: storage.key, numbers, len, offset, shape, strides });
                self.push(Value::Tensor(self.tensors.len() - 1))
            }
            _ => Err(self.fault(ARGUMENTS)),
        }
    }

    /// BINPERSID: ("storage", type, key, device, number of values). The device does not matter.
    fn storage(&mut self) -> Result<()> {
        const WHY: &str = "a storage: its type, key, device and number of values";
        let Value::Tuple(id) = self.pop()? else { return Err(self.fault(WHY)) };
        let [Value::Text("storage"), Value::Known(known), Value::Text(key), Value::Text(_), Value::Int(len)] =
            *self.arguments(id)
        else {
            return Err(self.fault(WHY));
        };
        let numbers = match known {
            Known::Storage(numbers) => Some(numbers),
            Known::UntypedStorage => None,
            _ => return Err(self.fault(WHY)),
        };
        let len = usize::try_from(len).map_err(|_| self.fault(WHY))?;
        if key.len() > LONGEST_KEY {
            let expected = format!("a storage whose key has at most {LONGEST_KEY} bytes");
            return Err(self.wrong(&expected, &key.len().to_string()));
        }
        self.storages.push(Storage { numbers, key, len });
        self.push(Value::Storage(self.storages.len() as u32 - 1))
    }

    fn arguments(&self, Tuple { start, len }: Tuple) -> &[Value<'a>] {
        &self.items[start as usize..][..len as usize]
    }

    fn dict(&mut self) -> Result<()> {
        self.dicts += 1;
        self.push(Value::Dict(self.dicts))
    }

    /// Pairs on the stack from `from` on go into the dictionary under them.
    fn set_items(&mut self, from: usize) -> Result<()> {
        let pairs = self.stack.split_off(from);
        let (Some(Value::Dict(dict)), true) = (self.stack.last(), pairs.len().is_multiple_of(2)) else {
            return Err(self.fault("a dictionary, keys and values"));
        };
        for pair in pairs.chunks_exact(2) {
            let key = match pair[0] {
                Value::Text(key) => Key::Text(key),
                Value::Int(key) => Key::Int(key),
                _ => continue,
            };
            self.entries.push((*dict, (key, pair[1])));
        }
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        self.lists += 1;
        self.push(Value::List(self.lists))
    }

    /// What is on the stack from `from` on goes into the list under it.
    fn append(&mut self, from: usize) -> Result<()> {
        let Some(Value::List(list)) = from.checked_sub(1).and_then(|under| self.stack.get(under)) else {
            return Err(self.fault("a list and what is in it"));
        };
        let list = *list;
        self.elements.extend(self.stack.drain(from..).map(|value| (list, value)));
        Ok(())
    }

    /// What is on the stack from `from` on becomes a tuple.
    fn tuple(&mut self, from: usize) -> Result<()> {
        let start = self.items.len() as u32;
        self.items.extend(self.stack.drain(from..));
        self.push(Value::Tuple(Tuple { start, len: self.items.len() as u32 - start }))
    }

    fn mark(&mut self) -> Result<()> {
        if self.marks.len() >= MOST_ON_STACK {
            return Err(self.wrong("less on the stack", "more"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn since_mark(&mut self) -> Result<usize> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        mark.ok_or_else(|| self.fault("a mark"))
    }

    fn push(&mut self, value: Value<'a>) -> Result<()> {
        if self.stack.len() >= MOST_ON_STACK {
            return Err(self.wrong("less on the stack", "more"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value<'a>> {
        self.stack.pop().ok_or_else(|| self.fault(EMPTY))
    }

    fn put(&mut self, width: usize) -> Result<()> {
        let place = self.number(width)? as u32;
        self.keep(place)
    }

    fn keep(&mut self, place: u32) -> Result<()> {
        let value = *self.stack.last().ok_or_else(|| self.fault(EMPTY))?;
        self.memo.insert(place, value);
        Ok(())
    }

    fn fetch(&mut self, width: usize) -> Result<()> {
        let place = self.number(width)? as u32;
        let value = self.memo.get(&place).copied();
        self.push(value.ok_or_else(|| self.fault("a memo that was written before"))?)
    }

    fn int(&mut self, width: usize) -> Result<()> {
        let int = self.number(width)?;
        self.push(Value::Int(int as i64))
    }

    /// A length and as many bytes of a signed number.
    fn long(&mut self) -> Result<()> {
        let width = self.number(1)? as usize;
        if width > 8 {
            return Err(self.fault("a number of at most 64 bits"));
        }
        let unused = 64 - 8 * width as u32;
        let bits = self.number(width)?;
        self.push(Value::Int(bits.checked_shl(unused).unwrap_or(0) as i64 >> unused.min(63)))
    }

    fn text(&mut self, width: usize) -> Result<()> {
        let len = self.number(width)? as usize;
        let text = std::str::from_utf8(self.bytes(len)?)
            .map_err(|_| self.wrong("letters of UTF-8", "other bytes"))?;
        self.push(Value::Text(text))
    }

    fn raw(&mut self, width: usize) -> Result<()> {
        let len = self.number(width)? as usize;
        self.bytes(len)?;
        self.push(Value::Bytes)
    }

    /// Up to the end of the line, which is passed over.
    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.pickle[self.at..];
        let len = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(|| self.wrong("more bytes", "a pickle that breaks off"))?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).map_err(|_| self.wrong("letters of UTF-8", "other bytes"))
    }

    fn number(&mut self, width: usize) -> Result<u64> {
        Ok(self.bytes(width)?.iter().rev().fold(0, |number, byte| number << 8 | *byte as u64))
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let bytes = self.pickle[self.at..]
            .get(..len)
            .ok_or_else(|| self.wrong("more bytes", "a pickle that breaks off"))?;
        self.at += len;
        Ok(bytes)
    }

    /// The running operation has not what it needs.
    fn fault(&self, expected: &str) -> Error {
        let opcode = self.pickle.get(self.begin).copied().unwrap_or(0);
        self.wrong(expected, &format!("operation {opcode:#04x} without"))
    }

    fn wrong(&self, expected: &str, found: &str) -> Error {
        Error::content(self.path, format!("data.pkl, byte {}", self.begin), expected, found)
    }
}

const ARGUMENTS: &str = "a function with arguments that it takes";
const EMPTY: &str = "a value on the stack";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_have_signs_and_any_length() {
        let path = Path::new("x.pt");
        let root = |pickle: &'static [u8]| run(pickle, path).map(|pickled| pickled.root).unwrap();
        assert_eq!(root(b"\x8a\x00."), Value::Int(0));
        assert_eq!(root(b"\x8a\x01\xff."), Value::Int(-1));
        assert_eq!(root(b"\x8a\x02\xff\x00."), Value::Int(255));
        assert_eq!(root(b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), Value::Int(i64::MIN));
        assert!(run(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", path).is_err());
    }
}
