//! A sparse matrix that acts on rows of values: what each row of its product reads, and with which weights.

use crate::simd::axpy;

/// A matrix by its rows.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    /// The entries of row i: `entries[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    entries: Vec<Entry>,
}

/// A column, and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub column: usize,
    pub weight: f32,
}

impl Sparse {
    /// Of (row, entry) in any order; the entries of a row stay in theirs, which is the order of its sum.
    pub fn new(rows: usize, mut entries: Vec<(usize, Entry)>) -> Self {
        entries.sort_by_key(|&(row, _)| row);
        let starts = (0..=rows).map(|i| entries.partition_point(|&(row, _)| row < i)).collect();
        Self { starts, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
    }

    #[inline(always)]
    pub fn row(&self, i: usize) -> &[Entry] {
        &self.entries[self.starts[i]..self.starts[i + 1]]
    }

    /// The transposed matrix, of so many rows.
    pub fn transposed(&self, rows: usize) -> Self {
        let of_row = |i: usize| {
            self.row(i).iter().map(move |entry| (entry.column, Entry { column: i, weight: entry.weight }))
        };
        Self::new(rows, (0..self.starts.len() - 1).flat_map(of_row).collect())
    }
}

/// out = Σ weight·row over the rows that `entries` name, each as long as `out`, in their order; zero for none.
#[inline(always)]
pub(crate) fn combine(entries: &[Entry], rows: &[f32], out: &mut [f32]) {
    /// Values summed before going on: they stay in L1 however long the rows are.
    const BLOCK: usize = 1024;
    let Some((first, others)) = entries.split_first() else {
        out.fill(0.0);
        return;
    };
    let row_len = out.len();
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let start = block * BLOCK;
        let row = &rows[first.column * row_len + start..][..out.len()];
        for (out, v) in out.iter_mut().zip(row) {
            *out = first.weight * v;
        }
        for other in others {
            axpy(other.weight, &rows[other.column * row_len + start..][..out.len()], out);
        }
    }
}
