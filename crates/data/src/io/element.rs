//! The types of number files hold, and their way to `f32`.

use std::io::Read;
use std::path::Path;

use super::memory::room;
use super::source::Source;
use crate::error::{Error, Result};

/// Type of the numbers of a variable, as the file declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `bool`, one byte.
    Bool,
    /// `i8`
    I8,
    /// `u8`
    U8,
    /// `i16`
    I16,
    /// `u16`
    U16,
    /// `i32`
    I32,
    /// `u32`
    U32,
    /// `i64`
    I64,
    /// `u64`
    U64,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

impl Element {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Element::Bool | Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// The name numpy gives it.
    pub fn name(self) -> &'static str {
        match self {
            Element::Bool => "bool",
            Element::I8 => "int8",
            Element::U8 => "uint8",
            Element::I16 => "int16",
            Element::U16 => "uint16",
            Element::I32 => "int32",
            Element::U32 => "uint32",
            Element::I64 => "int64",
            Element::U64 => "uint64",
            Element::F16 => "float16",
            Element::Bf16 => "bfloat16",
            Element::F32 => "float32",
            Element::F64 => "float64",
        }
    }

    /// Appends the numbers in `bytes`, rounded to the nearest `f32`. What is left after the last whole number is ignored.
    pub(crate) fn decode(self, order: ByteOrder, bytes: &[u8], values: &mut Vec<f32>) {
        macro_rules! each {
            ($size:literal, $from_le:expr, $from_be:expr, $to_f32:expr) => {{
                let chunks = bytes.as_chunks::<$size>().0;
                match order {
                    ByteOrder::Little => values.extend(chunks.iter().map(|b| $to_f32($from_le(*b)))),
                    ByteOrder::Big => values.extend(chunks.iter().map(|b| $to_f32($from_be(*b)))),
                }
            }};
        }
        match self {
            Element::Bool => values.extend(bytes.iter().map(|b| (*b != 0) as u8 as f32)),
            Element::I8 => values.extend(bytes.iter().map(|b| *b as i8 as f32)),
            Element::U8 => values.extend(bytes.iter().map(|b| *b as f32)),
            Element::I16 => each!(2, i16::from_le_bytes, i16::from_be_bytes, |v| v as f32),
            Element::U16 => each!(2, u16::from_le_bytes, u16::from_be_bytes, |v| v as f32),
            Element::I32 => each!(4, i32::from_le_bytes, i32::from_be_bytes, |v| v as f32),
            Element::U32 => each!(4, u32::from_le_bytes, u32::from_be_bytes, |v| v as f32),
            Element::I64 => each!(8, i64::from_le_bytes, i64::from_be_bytes, |v| v as f32),
            Element::U64 => each!(8, u64::from_le_bytes, u64::from_be_bytes, |v| v as f32),
            Element::F16 => each!(2, half::f16::from_le_bytes, half::f16::from_be_bytes, half::f16::to_f32),
            Element::Bf16 => {
                each!(2, half::bf16::from_le_bytes, half::bf16::from_be_bytes, half::bf16::to_f32)
            }
            Element::F32 => each!(4, f32::from_le_bytes, f32::from_be_bytes, |v| v),
            Element::F64 => each!(8, f64::from_le_bytes, f64::from_be_bytes, |v| v as f32),
        }
    }

    /// Hands over `count` numbers from a stream, block by block; a header that promises too much costs one block.
    pub(crate) fn scan(
        self,
        order: ByteOrder,
        stream: &mut impl Read,
        count: usize,
        source: &Source,
        variable: &str,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let mut values = Vec::with_capacity(count.min(BLOCK));
        let mut block = vec![0; count.min(BLOCK) * self.size()];
        let mut done = 0;
        while done < count {
            let bytes = &mut block[..(count - done).min(BLOCK) * self.size()];
            let read = read_full(stream, bytes).map_err(|error| {
                let found = format!("{done} and then a damaged stream ({error})");
                Error::content(source.path(), variable, format!("{count} values"), found)
            })?;
            values.clear();
            self.decode(order, &bytes[..read], &mut values);
            if read < bytes.len() {
                let found = (done + values.len()).to_string();
                return Err(Error::content(source.path(), variable, format!("{count} values"), found));
            }
            take(done, &values)?;
            done += values.len();
        }
        Ok(())
    }
}

/// What takes the values of a variable: the index of the first one in the order of the file, and some.
pub(crate) type Take<'a> = dyn FnMut(usize, &[f32]) -> Result<()> + 'a;

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// The most that deflate can grow: 1032 bytes out of one.
pub(crate) const DEFLATE_RATIO: u64 = 1032;

/// Numbers read and handed over at once: 256 kB, so that they and their bytes stay in a cache.
pub(crate) const BLOCK: usize = 1 << 16;

/// How many numbers a shape has, if their bytes can be counted at all. Also where an axis is empty, those of the others can be: whoever
/// multiplies some lengths of a shape that was counted gets a number.
pub(crate) fn count(shape: &[usize], element: Element) -> Option<usize> {
    let product = shape.iter().filter(|n| **n > 0).try_fold(1usize, |product, n| product.checked_mul(*n))?;
    let bytes = product.checked_mul(element.size().max(size_of::<f32>()))?;
    isize::try_from(bytes).ok()?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// The values of an array row-major, from the order in which they are stored; `axes` are the axes from the slowest to the fastest.
/// `path` and `variable` are who needs the memory of a second copy.
pub(crate) fn to_row_major(
    values: Vec<f32>,
    shape: &[usize],
    axes: &[usize],
    path: &Path,
    variable: &str,
) -> Result<Vec<f32>> {
    // Axes of length 1 may be anywhere.
    let long: Vec<_> = axes.iter().copied().filter(|axis| shape[*axis] > 1).collect();
    if long.is_sorted() || values.is_empty() {
        return Ok(values);
    }
    let mut result = room(values.len(), path, variable)?;
    if long.is_sorted_by(|a, b| a > b) {
        result.resize(values.len(), 0.0);
        from_column_major(&values, shape, &mut result);
        return Ok(result);
    }
    let mut strides = vec![0; shape.len()];
    axes.iter().rev().fold(1, |stride, axis| {
        strides[*axis] = stride;
        stride * shape[*axis]
    });
    let mut places = Places::new(shape, &strides);
    result.extend((0..values.len()).map(|_| values[places.next_place()]));
    Ok(result)
}

/// Places Σ index·stride, the last index running fastest.
#[derive(Clone, Debug)]
pub(crate) struct Places<'a> {
    shape: &'a [usize],
    strides: &'a [usize],
    index: Vec<usize>,
    at: usize,
}

impl<'a> Places<'a> {
    pub(crate) fn new(shape: &'a [usize], strides: &'a [usize]) -> Self {
        Self { shape, strides, index: vec![0; shape.len()], at: 0 }
    }

    /// The next one; after the last comes the first again.
    pub(crate) fn next_place(&mut self) -> usize {
        let place = self.at;
        for axis in (0..self.shape.len()).rev() {
            if self.index[axis] + 1 < self.shape[axis] {
                self.index[axis] += 1;
                self.at += self.strides[axis];
                break;
            }
            self.at -= self.strides[axis] * self.index[axis];
            self.index[axis] = 0;
        }
        place
    }
}

/// The values of an array that is stored with its first axis fastest, with its last axis fastest; of two axes or more.
///
/// Works on the plane of the first and the last axis, in squares that fit a cache, for every choice of the axes between.
fn from_column_major(values: &[f32], shape: &[usize], result: &mut [f32]) {
    const SIDE: usize = 32;
    let rank = shape.len();
    let (first, last) = (shape[0], shape[rank - 1]);
    let middle = &shape[1..rank - 1];
    let between: usize = middle.iter().product();
    for m in 0..between {
        // m counts the middle axes with the last fastest; `mirrored` is the same place counted with the first fastest.
        let (mut rest, mut mirrored, mut weight) = (m, 0, between);
        for n in middle.iter().rev() {
            weight /= n;
            mirrored += rest % n * weight;
            rest /= n;
        }
        for i0 in (0..first).step_by(SIDE) {
            for j0 in (0..last).step_by(SIDE) {
                for i in i0..first.min(i0 + SIDE) {
                    for j in j0..last.min(j0 + SIDE) {
                        result[(i * between + m) * last + j] = values[(j * between + mirrored) * first + i];
                    }
                }
            }
        }
    }
}

/// Fills `buffer` as far as the stream goes and says how far that was.
fn read_full(stream: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_axes_are_reversed() {
        for shape in
            [vec![5], vec![3, 4], vec![33, 65], vec![2, 3, 4], vec![3, 1, 2, 5], vec![2, 0, 3], vec![1, 7, 1]]
        {
            let len: usize = shape.iter().product();
            let axes: Vec<_> = (0..shape.len()).rev().collect();
            let stored = (0..len).map(|v| v as f32).collect();
            let found = to_row_major(stored, &shape, &axes, Path::new("x"), "x").unwrap();
            for (at, value) in found.iter().enumerate() {
                // The place of a row-major index, counted column-major.
                let (mut rest, mut place) = (at, 0);
                for (axis, n) in shape.iter().enumerate().rev() {
                    place += rest % n * shape[..axis].iter().product::<usize>();
                    rest /= n;
                }
                assert_eq!(*value, place as f32, "{shape:?} at {at}");
            }
        }
    }

    #[test]
    fn any_order_of_the_axes_is_put_right() {
        let shape = [2, 3, 1, 4];
        for axes in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 1, 0], [1, 3, 0, 2], [3, 0, 2, 1], [0, 3, 1, 2]] {
            // Value number `place` of the file has the row-major index its axes say.
            let sizes = axes.map(|axis| shape[axis]);
            let mut stored = vec![0.0; 24];
            for (place, value) in stored.iter_mut().enumerate() {
                let (mut rest, mut index) = (place, [0; 4]);
                for (axis, n) in axes.iter().zip(sizes).rev() {
                    index[*axis] = rest % n;
                    rest /= n;
                }
                *value = index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i) as f32;
            }
            let expected: Vec<_> = (0..24).map(|v| v as f32).collect();
            let found = to_row_major(stored, &shape, &axes, Path::new("x"), "x").unwrap();
            assert_eq!(found, expected, "{axes:?}");
        }
    }

    #[test]
    fn counting_never_overflows() {
        assert_eq!(count(&[0, 9], Element::F64), Some(0));
        // What is empty and cannot be counted along its other axes is no array of anybody.
        assert_eq!(count(&[0, usize::MAX], Element::U8), None);
        assert_eq!(count(&[1 << 40, 0, 1 << 40], Element::F64), None);
        assert_eq!(count(&[usize::MAX, 2], Element::U8), None);
        assert_eq!(count(&[usize::MAX / 2], Element::F64), None);
        assert_eq!(count(&[], Element::F64), Some(1));
    }
}
