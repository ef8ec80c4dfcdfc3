//! State dicts of PyTorch (`.pt`, `.pth`): named arrays, read without running anything.
//!
//! The file is a zip archive of uncompressed entries ([`torch.save`] since 1.6): `data.pkl`, a pickle that names the
//! tensors, and `data/0`, `data/1`, … with their values. Pickle is a language whose programs may call any Python function. Here
//! it is interpreted on plain values: the names of a dozen functions and types that make up a state dict are known, and any
//! other name or operation ends the reading with an [`Error`] that says which.
//!
//! What a file can make the reader allocate is bounded by the file's own length: entries are slices of it, all arrays together
//! have at most as many values as the file has bytes (a view with stride 0 has any number), and the interpreter never
//! copies what has parts; the worst pickle that was found takes 39 times its length. (The reader of `burn-store` 0.22.1,
//! `pytorch-reader`, was tried first: a file of 88 kB with a compressed pickle made it allocate 18 GB, one of 478 bytes with
//! a stride of 0 gave an array of 400 MB, and calls of unknown functions are passed over in silence.)
//!
//! [`torch.save`]: https://docs.pytorch.org/docs/stable/generated/torch.save.html

mod archive;
mod pickle;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Array;
use archive::Archive;
use pickle::{Element, Pickled, TensorView, Value};

/// Why a file gives no state dict.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system refused.
    #[error("{0}")]
    Io(std::io::Error),
    /// The format of PyTorch before 1.6.
    #[error(
        "written in the format of PyTorch before 1.6; save it again with a newer one: \
         torch.save(torch.load(path, map_location=\"cpu\"), path)"
    )]
    Old,
    /// Not a zip archive, or a damaged one.
    #[error("zip archive, {place}: {why}")]
    Archive {
        /// The entry or the part of the archive.
        place: String,
        /// The rule it breaks.
        why: String,
    },
    /// The pickle has an operation that no state dict has.
    #[error("data.pkl, byte {at}: operation {opcode:#04x} has no place in a state dict")]
    Opcode {
        /// Where.
        at: usize,
        /// The operation.
        opcode: u8,
    },
    /// The pickle names a function or type that no state dict has. It was not called.
    #[error(
        "data.pkl, byte {at}: `{name}` has no place in a state dict; save the weights alone: \
         torch.save(model.state_dict(), path)"
    )]
    Global {
        /// Where.
        at: usize,
        /// Module and name.
        name: String,
    },
    /// The pickle breaks off or does not make sense.
    #[error("data.pkl, byte {at}: {why}")]
    Pickle {
        /// Where.
        at: usize,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A tensor does not fit the values that are there.
    #[error("tensor `{name}`: {why}")]
    Tensor {
        /// The tensor.
        name: String,
        /// The rule it breaks.
        why: String,
    },
    /// The pickle holds no dictionary of tensors, neither itself nor under a usual key.
    #[error("expected a state dict, or one under {UNDER:?}; found {found}")]
    NoStateDict {
        /// What is there instead.
        found: String,
    },
}

/// Keys under which training scripts put the state dict, in the order of looking.
const UNDER: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// No array has more axes than this.
const MOST_AXES: usize = 16;

/// The arrays of a state dict, also of one under `state_dict`, `model_state_dict` or `model`. Values are rounded to f32.
pub fn read(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>, Error> {
    let path = path.as_ref();
    let file = match std::fs::metadata(path) {
        // A device or a pipe has no length to judge by.
        Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("not a file")),
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    let arrays = file.map_err(Problem::Io).and_then(|file| parse(&file));
    arrays.map_err(|problem| Error { path: path.into(), problem })
}

/// The same from the bytes of a file.
pub fn parse(file: &[u8]) -> Result<BTreeMap<String, Array>, Problem> {
    // The magic number of the old format, as its pickle begins.
    if file.starts_with(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19") {
        return Err(Problem::Old);
    }
    let archive = Archive::open(file)?;
    if let Some(order) = archive.find("byteorder").filter(|order| *order != b"little") {
        let found = String::from_utf8_lossy(order);
        return Err(archive::broken("byteorder", format!("expected `little`, found `{found:.16}`")));
    }
    let pickled = pickle::run(archive.get("data.pkl")?)?;
    let mut left = file.len();
    let mut arrays = BTreeMap::new();
    for (name, value) in state_dict(&pickled)? {
        let fault = |why: String| Problem::Tensor { name: name.into(), why };
        let Value::Tensor(tensor) = value else {
            return Err(fault(format!("expected a tensor, found {}", value.kind())));
        };
        let view = &pickled.tensors[tensor];
        let storage = archive.get(&format!("data/{}", view.storage.key))?;
        let array = array(&pickled, view, storage, &mut left).map_err(fault)?;
        if arrays.insert(name.to_string(), array).is_some() {
            return Err(fault("is there twice".into()));
        }
    }
    Ok(arrays)
}

/// The entries of the dictionary that holds the tensors.
fn state_dict<'p>(pickled: &'p Pickled) -> Result<Vec<(&'p str, Value<'p>)>, Problem> {
    let Value::Dict(root) = pickled.root else {
        return Err(Problem::NoStateDict { found: pickled.root.kind().into() });
    };
    let entries = pickled.dict(root);
    if entries.iter().any(|(_, value)| matches!(value, Value::Tensor(_))) {
        return Ok(entries);
    }
    for key in UNDER {
        if let Some((_, Value::Dict(dict))) = entries.iter().find(|(name, _)| *name == key) {
            return Ok(pickled.dict(*dict));
        }
    }
    let mut found = format!("a dictionary of {} entries", entries.len());
    for (name, value) in entries.iter().take(4) {
        found += &format!(", `{name:.40}`: {}", value.kind());
    }
    Err(Problem::NoStateDict { found })
}

/// The values a tensor shows of its storage, row-major. Takes as many from `left`.
fn array(pickled: &Pickled, view: &TensorView, storage: &[u8], left: &mut usize) -> Result<Array, String> {
    let size = view.storage.element.size();
    if Some(storage.len()) != view.storage.len.checked_mul(size) {
        let (declared, bytes) = (view.storage.len, storage.len());
        return Err(format!("expected a storage of {declared} values of {size} bytes, found {bytes} bytes"));
    }
    let sizes = |what: &str, tuple| -> Result<Vec<usize>, String> {
        let items = pickled.items(tuple);
        if items.len() > MOST_AXES {
            return Err(format!("expected at most {MOST_AXES} axes, found {}", items.len()));
        }
        let size = |item: &Value| match item {
            Value::Int(size) => usize::try_from(*size).map_err(|_| format!("found {size} in its {what}")),
            other => Err(format!("found {} in its {what}", other.kind())),
        };
        items.iter().map(size).collect()
    };
    let (shape, strides) = (sizes("shape", view.shape)?, sizes("strides", view.strides)?);
    if shape.len() != strides.len() {
        return Err(format!("shape {shape:?} with strides {strides:?}"));
    }
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
    let Some(count) = count.filter(|count| *count <= *left) else {
        return Err(format!("shape {shape:?} is larger than the file can account for"));
    };
    *left -= count;
    let last = shape.iter().zip(&strides).try_fold(view.offset, |last, (size, stride)| {
        last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
    });
    if count > 0 && last.is_none_or(|last| last >= view.storage.len) {
        let (offset, len) = (view.offset, view.storage.len);
        return Err(format!(
            "shape {shape:?} with strides {strides:?} from {offset} runs out of a storage of {len} values"
        ));
    }
    let values = gather(view.storage.element, storage, view.offset, &shape, &strides, count);
    Ok(Array { shape, values })
}

/// Values at `offset` + Σ index·stride, the last index running fastest.
fn gather(
    element: Element,
    storage: &[u8],
    offset: usize,
    shape: &[usize],
    strides: &[usize],
    count: usize,
) -> Vec<f32> {
    let mut index = vec![0; shape.len()];
    let mut at = offset;
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        values.push(element.value(storage, at));
        for axis in (0..shape.len()).rev() {
            if index[axis] + 1 < shape[axis] {
                index[axis] += 1;
                at += strides[axis];
                break;
            }
            at -= strides[axis] * index[axis];
            index[axis] = 0;
        }
    }
    values
}
