//! The part of pickle that state dicts are written in, on plain values.
//!
//! A pickle is a program for a machine with a stack and a memo. Values here are small and copied; what has parts (tuples,
//! dictionaries, tensors) is a number into a pool, so fetching from the memo costs nothing, loops do no harm, and nothing is
//! recursive. Every operation adds at most one entry to a pool.

use std::collections::BTreeMap;

use super::Problem;

/// What ran: the value it ended with, and the pools.
pub(super) struct Pickled<'a> {
    pub root: Value<'a>,
    pub tensors: Vec<TensorView<'a>>,
    items: Vec<Value<'a>>,
    entries: Vec<(u32, &'a str, Value<'a>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool,
    Int(i64),
    Float,
    Text(&'a str),
    /// A function or type, by name only.
    Known(Known),
    Tuple(Tuple),
    /// What is in a list matters to no state dict and is dropped.
    List,
    Dict(u32),
    Storage(u32),
    Tensor(usize),
}

/// A stretch of the pool of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tuple {
    start: u32,
    len: u32,
}

/// The names that make up state dicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Known {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(Element),
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Element {
    F32,
    F64,
    F16,
    BF16,
    I32,
    I64,
}

/// The values that one or more tensors show: entry `data/<key>` of the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    pub element: Element,
    pub key: &'a str,
    /// How many values.
    pub len: usize,
}

/// A tensor: which values of a storage, in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorView<'a> {
    pub storage: Storage<'a>,
    pub offset: usize,
    pub shape: Tuple,
    pub strides: Tuple,
}

/// Runs a pickle to its end.
pub(super) fn run(pickle: &[u8]) -> Result<Pickled<'_>, Problem> {
    // Numbers into pools are 32 bits wide.
    if u32::try_from(pickle.len()).is_err() {
        return Err(Problem::Pickle { at: 0, why: "expected less than 4 GiB" });
    }
    let mut machine = Machine { pickle, ..Machine::default() };
    let root = loop {
        if let Some(root) = machine.step()? {
            break root;
        }
    };
    let Machine { tensors, items, entries, .. } = machine;
    Ok(Pickled { root, tensors, items, entries })
}

impl<'a> Pickled<'a> {
    /// The entries of a dictionary whose keys are text.
    pub fn dict(&self, dict: u32) -> Vec<(&'a str, Value<'a>)> {
        self.entries.iter().filter(|(of, ..)| *of == dict).map(|(_, key, value)| (*key, *value)).collect()
    }

    pub fn items(&self, Tuple { start, len }: Tuple) -> &[Value<'a>] {
        &self.items[start as usize..][..len as usize]
    }
}

impl Value<'_> {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool => "a truth value",
            Value::Int(_) | Value::Float => "a number",
            Value::Text(_) => "text",
            Value::Known(_) => "a function or type",
            Value::Tuple(_) => "a tuple",
            Value::List => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Storage(_) => "a storage",
            Value::Tensor(_) => "a tensor",
        }
    }
}

impl Element {
    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Element::F64 | Element::I64 => 8,
            Element::F32 | Element::I32 => 4,
            Element::F16 | Element::BF16 => 2,
        }
    }

    /// The value number `at`, rounded to f32.
    pub fn value(self, storage: &[u8], at: usize) -> f32 {
        let bytes = &storage[at * self.size()..][..self.size()];
        let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | *byte as u64);
        match self {
            Element::F32 => f32::from_bits(bits as u32),
            Element::F64 => f64::from_bits(bits) as f32,
            Element::F16 => half(bits as u16),
            Element::BF16 => f32::from_bits((bits as u32) << 16),
            Element::I32 => bits as u32 as i32 as f32,
            Element::I64 => bits as i64 as f32,
        }
    }
}

/// A value of 1 sign bit, 5 exponent bits (bias 15) and 10 fraction bits.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 31, (bits & 1023) as f32);
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent as i32 - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Python's own pickler never has more on the stack than about twice the thousand entries it writes at once.
const MOST_ON_STACK: usize = 1 << 16;

#[derive(Default)]
struct Machine<'a> {
    pickle: &'a [u8],
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
    entries: Vec<(u32, &'a str, Value<'a>)>,
    storages: Vec<Storage<'a>>,
    tensors: Vec<TensorView<'a>>,
}

impl<'a> Machine<'a> {
    /// One operation; the last one gives the result.
    fn step(&mut self) -> Result<Option<Value<'a>>, Problem> {
        self.begin = self.at;
        let opcode = self.number(1)? as u8;
        match opcode {
            // PROTO, FRAME
            0x80 => drop(self.number(1)?),
            0x95 => drop(self.bytes(8)?),
            b'.' => return self.pop().map(Some),
            b'(' => self.mark()?,
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool)?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let int = self.number(4)? as u32 as i32;
                self.push(Value::Int(int as i64))?;
            }
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            0x8a => self.long()?,
            b'G' => {
                self.bytes(8)?;
                self.push(Value::Float)?;
            }
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
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
            b']' => self.push(Value::List)?,
            b'a' => drop(self.pop()?),
            b'e' => {
                let from = self.since_mark()?;
                self.stack.truncate(from);
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
                _ => return Err(self.fault("expected two names")),
            },
            b'R' => self.reduce()?,
            // BUILD: what else a dictionary carries, such as the versions of modules.
            b'b' => match (self.pop()?, self.stack.last()) {
                (Value::Dict(_), Some(Value::Dict(_))) => {}
                _ => return Err(self.fault("expected a dictionary and its attributes")),
            },
            b'Q' => self.storage()?,
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            0x94 => self.keep(self.memo.len() as u32)?,
            b'h' => self.fetch(1)?,
            b'j' => self.fetch(4)?,
            _ => return Err(Problem::Opcode { at: self.begin, opcode }),
        }
        Ok(None)
    }

    /// A function or type, if it is one of those that make up state dicts.
    fn global(&mut self, module: &str, name: &str) -> Result<(), Problem> {
        let known = match (module, name) {
            ("collections", "OrderedDict") => Known::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2") => Known::RebuildTensor,
            ("torch._utils", "_rebuild_parameter") => Known::RebuildParameter,
            ("torch", "FloatStorage") => Known::Storage(Element::F32),
            ("torch", "DoubleStorage") => Known::Storage(Element::F64),
            ("torch", "HalfStorage") => Known::Storage(Element::F16),
            ("torch", "BFloat16Storage") => Known::Storage(Element::BF16),
            ("torch", "IntStorage") => Known::Storage(Element::I32),
            ("torch", "LongStorage") => Known::Storage(Element::I64),
            _ => {
                let name = format!("{module:.80}.{name:.80}");
                return Err(Problem::Global { at: self.begin, name });
            }
        };
        self.push(Value::Known(known))
    }

    /// The three calls of state dicts.
    fn reduce(&mut self) -> Result<(), Problem> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Known(function)) = (arguments, function) else {
            return Err(self.fault("expected a function and its arguments"));
        };
        match (function, self.arguments(arguments)) {
            (Known::OrderedDict, []) => self.dict(),
            // Values, whether it is trained, hooks.
            (Known::RebuildParameter, [tensor @ Value::Tensor(_), Value::Bool, _]) => {
                let tensor = *tensor;
                self.push(tensor)
            }
            // Storage, offset, shape, strides, whether it is trained, hooks, and metadata if there are any.
            (
                Known::RebuildTensor,
                [
                    Value::Storage(storage),
                    Value::Int(offset),
                    Value::Tuple(shape),
                    Value::Tuple(strides),
                    Value::Bool,
                    _,
                ]
                | [
                    Value::Storage(storage),
                    Value::Int(offset),
                    Value::Tuple(shape),
                    Value::Tuple(strides),
                    Value::Bool,
                    _,
                    _,
                ],
            ) => {
                let storage = self.storages[*storage as usize];
                let (shape, strides) = (*shape, *strides);
                let offset =
                    usize::try_from(*offset).map_err(|_| self.fault("expected an offset of at least 0"))?;
                self.tensors.push(TensorView { storage, offset, shape, strides });
                self.push(Value::Tensor(self.tensors.len() - 1))
            }
            _ => Err(self.fault("a function with arguments that it does not take")),
        }
    }

    /// BINPERSID: ("storage", type, key, device, number of values). The device does not matter.
    fn storage(&mut self) -> Result<(), Problem> {
        const WHY: &str = "expected a storage: its type, key, device and number of values";
        let Value::Tuple(id) = self.pop()? else { return Err(self.fault(WHY)) };
        let [
            Value::Text("storage"),
            Value::Known(Known::Storage(element)),
            Value::Text(key),
            Value::Text(_),
            Value::Int(len),
        ] = *self.arguments(id)
        else {
            return Err(self.fault(WHY));
        };
        let len = usize::try_from(len).map_err(|_| self.fault(WHY))?;
        self.storages.push(Storage { element, key, len });
        self.push(Value::Storage(self.storages.len() as u32 - 1))
    }

    fn arguments(&self, Tuple { start, len }: Tuple) -> &[Value<'a>] {
        &self.items[start as usize..][..len as usize]
    }

    fn dict(&mut self) -> Result<(), Problem> {
        self.dicts += 1;
        self.push(Value::Dict(self.dicts))
    }

    /// Pairs on the stack from `from` on go into the dictionary under them.
    fn set_items(&mut self, from: usize) -> Result<(), Problem> {
        let pairs = self.stack.split_off(from);
        let (Some(Value::Dict(dict)), true) = (self.stack.last(), pairs.len().is_multiple_of(2)) else {
            return Err(self.fault("expected a dictionary, keys and values"));
        };
        for pair in pairs.chunks_exact(2) {
            // Keys of other kinds, such as the numbers of an optimiser's state, name no tensor.
            if let Value::Text(key) = pair[0] {
                self.entries.push((*dict, key, pair[1]));
            }
        }
        Ok(())
    }

    /// What is on the stack from `from` on becomes a tuple.
    fn tuple(&mut self, from: usize) -> Result<(), Problem> {
        let start = self.items.len() as u32;
        self.items.extend(self.stack.drain(from..));
        self.push(Value::Tuple(Tuple { start, len: self.items.len() as u32 - start }))
    }

    fn mark(&mut self) -> Result<(), Problem> {
        if self.marks.len() >= MOST_ON_STACK {
            return Err(self.fault(FULL));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn since_mark(&mut self) -> Result<usize, Problem> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        mark.ok_or_else(|| self.fault("expected a mark"))
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), Problem> {
        if self.stack.len() >= MOST_ON_STACK {
            return Err(self.fault(FULL));
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value<'a>, Problem> {
        self.stack.pop().ok_or_else(|| self.fault(EMPTY))
    }

    fn put(&mut self, width: usize) -> Result<(), Problem> {
        let place = self.number(width)? as u32;
        self.keep(place)
    }

    fn keep(&mut self, place: u32) -> Result<(), Problem> {
        let value = *self.stack.last().ok_or_else(|| self.fault(EMPTY))?;
        self.memo.insert(place, value);
        Ok(())
    }

    fn fetch(&mut self, width: usize) -> Result<(), Problem> {
        let place = self.number(width)? as u32;
        let value = self.memo.get(&place).copied();
        self.push(value.ok_or_else(|| self.fault("expected a memo that was written before"))?)
    }

    fn int(&mut self, width: usize) -> Result<(), Problem> {
        let int = self.number(width)?;
        self.push(Value::Int(int as i64))
    }

    /// A length and as many bytes of a signed number.
    fn long(&mut self) -> Result<(), Problem> {
        let width = self.number(1)? as usize;
        if width > 8 {
            return Err(self.fault("expected a number of at most 64 bits"));
        }
        let unused = 64 - 8 * width as u32;
        let bits = self.number(width)?;
        self.push(Value::Int(bits.checked_shl(unused).unwrap_or(0) as i64 >> unused.min(63)))
    }

    fn text(&mut self, width: usize) -> Result<(), Problem> {
        let len = self.number(width)? as usize;
        let text = std::str::from_utf8(self.bytes(len)?).map_err(|_| self.fault("expected UTF-8"))?;
        self.push(Value::Text(text))
    }

    /// Up to the end of the line, which is passed over.
    fn line(&mut self) -> Result<&'a str, Problem> {
        let rest = &self.pickle[self.at..];
        let len = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| self.fault(SHORT))?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).map_err(|_| self.fault("expected UTF-8"))
    }

    fn number(&mut self, width: usize) -> Result<u64, Problem> {
        Ok(self.bytes(width)?.iter().rev().fold(0, |number, byte| number << 8 | *byte as u64))
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Problem> {
        let bytes = self.pickle[self.at..].get(..len).ok_or_else(|| self.fault(SHORT))?;
        self.at += len;
        Ok(bytes)
    }

    fn fault(&self, why: &'static str) -> Problem {
        Problem::Pickle { at: self.begin, why }
    }
}

const EMPTY: &str = "expected a value on the stack, found none";
const FULL: &str = "expected less on the stack";
const SHORT: &str = "the pickle breaks off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type() {
        let value = |element: Element, bytes: &[u8]| element.value(bytes, bytes.len() / element.size() - 1);
        assert_eq!(value(Element::F32, &[[0; 4], 1.5f32.to_le_bytes()].concat()), 1.5);
        assert_eq!(value(Element::F64, &(-0.1f64).to_le_bytes()), -0.1f32);
        assert_eq!(value(Element::BF16, &[0x80, 0x3f]), 1.0);
        assert_eq!(value(Element::I32, &(-7i32).to_le_bytes()), -7.0);
        assert_eq!(value(Element::I64, &(-7i64).to_le_bytes()), -7.0);
        let halves = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 2f32.powi(-24)),
            (0x03ff, 1023.0 * 2f32.powi(-24)),
            (0x7bff, 65504.0),
            (0xfc00, f32::NEG_INFINITY),
        ];
        for (bits, expected) in halves {
            assert_eq!(value(Element::F16, &u16::to_le_bytes(bits)), expected, "{bits:#06x}");
        }
        assert!(value(Element::F16, &[0x01, 0x7c]).is_nan());
    }

    #[test]
    fn long_numbers_have_signs_and_any_length() {
        let root = |pickle: &'static [u8]| run(pickle).map(|pickled| pickled.root).unwrap();
        assert_eq!(root(b"\x8a\x00."), Value::Int(0));
        assert_eq!(root(b"\x8a\x01\xff."), Value::Int(-1));
        assert_eq!(root(b"\x8a\x02\xff\x00."), Value::Int(255));
        assert_eq!(root(b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), Value::Int(i64::MIN));
        assert!(run(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.").is_err());
    }
}
