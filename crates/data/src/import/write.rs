//! From the order of a file to the order of a dataset.
//!
//! A variable is read from its beginning to its end, and its values are gathered sample by sample. Where samples lie one after the other in the
//! file, one reading is enough and some samples at a time are in memory. Otherwise every reading gathers as many samples as memory may
//! hold.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::folder;
use crate::io::memory::filled;
use crate::io::{File, npy};

/// Bytes that are gathered before they are written, where the order of the file allows it: few calls, and little memory.
const BLOCK: usize = 4 << 20;

/// Bytes in memory where it does not: a machine has so much to spare, and datasets of some gigabytes are read some ten times.
const MEMORY: usize = 256 << 20;

/// A `.npy` file to be written.
#[derive(Debug)]
pub(super) struct Target {
    /// In its header.
    pub shape: Vec<usize>,
    /// Places of a sample at which there are values: points, times the number of times.
    pub places: usize,
    /// Of all columns.
    pub channels: usize,
    /// Side by side in the last axis.
    pub columns: Vec<Column>,
}

/// A variable, in all files that have it.
#[derive(Debug)]
pub(super) struct Column {
    /// Its first channel in the target.
    pub first: usize,
    /// Its channels.
    pub channels: usize,
    /// Whether a sample has one value per channel, for all places.
    pub everywhere: bool,
    pub pieces: Vec<Piece>,
}

/// A variable in a file.
#[derive(Debug)]
pub(super) struct Piece {
    /// Which file.
    pub file: usize,
    pub variable: String,
    pub samples: usize,
    /// From the slowest to the fastest; one of them is that of the samples.
    pub axes: Vec<Along>,
}

/// An axis of a variable: where a step along it leads in a sample of the column, (places, channels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Samples {
        len: usize,
    },
    Sample {
        len: usize,
        /// From one value that is taken to the next.
        stride: usize,
        /// Every so many values are taken.
        every: usize,
    },
}

impl Along {
    fn len(self) -> usize {
        match self {
            Along::Samples { len } | Along::Sample { len, .. } => len,
        }
    }
}

impl Column {
    /// Values of a sample.
    fn sample_len(&self, places: usize) -> usize {
        self.channels * if self.everywhere { 1 } else { places }
    }
}

impl Piece {
    /// Without axes of length 1, and with axes joined that are neighbours in the sample as they are in the file.
    pub(super) fn new(file: usize, variable: &str, samples: usize, axes: &[Along]) -> Self {
        let mut joined: Vec<Along> = Vec::new();
        for axis in axes.iter().filter(|axis| axis.len() != 1 || matches!(axis, Along::Samples { .. })) {
            match (joined.last_mut(), *axis) {
                (
                    Some(Along::Sample { len: before, stride: far, every: 1 }),
                    Along::Sample { len, stride, every: 1 },
                ) if *far == stride * len => {
                    *before *= len;
                    *far = stride;
                }
                (_, axis) => joined.push(axis),
            }
        }
        // Samples of one value: there is always something inside of a sample.
        if let [Along::Samples { .. }] = joined[..] {
            joined.push(Along::Sample { len: 1, stride: 1, every: 1 });
        }
        Self { file, variable: variable.into(), samples, axes: joined }
    }

    /// Hands over all samples in their order, some at a time, each of `len` values: the number of the first, and the values.
    fn gather(
        &self,
        file: &File,
        len: usize,
        memory: usize,
        hand: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        if self.samples == 0 {
            return Ok(());
        }
        let in_order = matches!(self.axes[0], Along::Samples { .. });
        let bytes = if in_order { BLOCK.min(memory) } else { memory };
        let block = (bytes / (len * size_of::<f32>()).max(1)).clamp(1, self.samples);
        let passes = if in_order { 1 } else { self.samples.div_ceil(block) };
        let mut values = Vec::new();
        for pass in 0..passes {
            let mut first = pass * block;
            file.scan(&self.variable, &mut |at, some| {
                if values.is_empty() {
                    // Only now: the reader has compared the size of the variable with that of its file.
                    values = filled(0.0, block * len, file.path(), &self.variable)?;
                }
                self.scatter(at, some, len, &mut first, &mut values, in_order, hand)
            })?;
            let count = block.min(self.samples - first);
            hand(first, &values[..count * len])?;
        }
        Ok(())
    }

    /// Puts values of the file, from number `at` on, to their places in the samples from `first` on. Where samples come in order, those that
    /// are complete are handed over.
    #[allow(clippy::too_many_arguments)]
    fn scatter(
        &self,
        mut at: usize,
        mut some: &[f32],
        len: usize,
        first: &mut usize,
        values: &mut [f32],
        in_order: bool,
        hand: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let block = values.len() / len;
        let Some((fastest, slower)) = self.axes.split_last() else { return Ok(()) };
        // A run along the fastest axis at a time.
        while !some.is_empty() {
            let along = at % fastest.len();
            let (run, after) = some.split_at(some.len().min(fastest.len() - along));
            let (mut rest, mut sample, mut place, mut taken) = (at / fastest.len(), 0, 0, true);
            (at, some) = (at + run.len(), after);
            for axis in slower.iter().rev() {
                let index = rest % axis.len();
                rest /= axis.len();
                match *axis {
                    Along::Samples { .. } => sample = index,
                    Along::Sample { stride, every, .. } => {
                        taken &= index.is_multiple_of(every);
                        place += index / every * stride;
                    }
                }
            }
            if !taken {
                continue;
            }
            match *fastest {
                Along::Samples { .. } => {
                    let end = (*first + block).min(along + run.len());
                    for sample in (*first).max(along)..end {
                        values[(sample - *first) * len + place] = run[sample - along];
                    }
                }
                Along::Sample { stride, every, .. } => {
                    while in_order && sample >= *first + block {
                        hand(*first, values)?;
                        *first += block;
                    }
                    if !(*first..*first + block).contains(&sample) {
                        continue;
                    }
                    let start = (sample - *first) * len + place;
                    if stride == 1 && every == 1 {
                        values[start + along..start + along + run.len()].copy_from_slice(run);
                        continue;
                    }
                    let before = along.next_multiple_of(every);
                    for (k, value) in run.iter().skip(before - along).step_by(every).enumerate() {
                        values[start + (before / every + k) * stride] = *value;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Target {
    /// Writes the file and returns its checksum.
    pub(super) fn write(&self, files: &[File], path: &Path, memory: usize) -> Result<String> {
        let memory = if memory == 0 { MEMORY } else { memory };
        let open = fs::File::options().read(true).write(true).create(true).truncate(true).open(path);
        let mut output = open.map_err(Error::io(path))?;
        let header = npy::header(&self.shape);
        output.write_all(&header).map_err(Error::io(path))?;
        for column in &self.columns {
            let len = column.sample_len(self.places);
            let mut before = 0;
            for piece in &column.pieces {
                piece.gather(&files[piece.file], len, memory, &mut |first, values| {
                    self.put(&mut output, header.len(), column, before + first, values)
                        .map_err(Error::io(path))
                })?;
                before += piece.samples;
            }
        }
        output.sync_all().map_err(Error::io(path))?;
        output.rewind().map_err(Error::io(path))?;
        folder::checksum(output).map_err(Error::io(path))
    }

    /// Writes the values of some samples of a column, from sample `first` on.
    fn put(
        &self,
        output: &mut fs::File,
        header: usize,
        column: &Column,
        first: usize,
        values: &[f32],
    ) -> std::io::Result<()> {
        let (len, whole) = (column.sample_len(self.places), self.places * self.channels);
        // Samples at once: values that are the same at all places become many.
        let count = (BLOCK / (whole * size_of::<f32>()).max(1)).max(1);
        let mut bytes = Vec::new();
        for (k, some) in values.chunks(count * len).enumerate() {
            let start = (header + (first + k * count) * whole * size_of::<f32>()) as u64;
            bytes.clear();
            if len == whole {
                bytes.extend(some.iter().flat_map(|value| value.to_le_bytes()));
            } else {
                bytes.resize(some.len() / len * whole * size_of::<f32>(), 0);
                if column.first > 0 {
                    // Columns before this one are there already.
                    output.seek(SeekFrom::Start(start))?;
                    output.read_exact(&mut bytes)?;
                }
                let rows = bytes.chunks_exact_mut(self.channels * size_of::<f32>()).enumerate();
                for (row, bytes) in rows {
                    let from = if column.everywhere { row / self.places } else { row } * column.channels;
                    let own = &mut bytes[column.first * size_of::<f32>()..];
                    for (value, bytes) in
                        some[from..from + column.channels].iter().zip(own.chunks_exact_mut(4))
                    {
                        bytes.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            output.seek(SeekFrom::Start(start))?;
            output.write_all(&bytes)?;
        }
        Ok(())
    }
}
