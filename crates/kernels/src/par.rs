//! The only place that splits work across threads.
//!
//! Work is a list of items whose number and borders depend on sizes alone. Workers take contiguous runs of items and
//! every item writes to memory of its own, so the result is the same bits with any number of threads: a thread
//! count only decides who computes an item. Each worker has scratch of its own; the number of workers is what
//! the caller's scratch has room for, and never more than rayon's current pool.

use std::ops::Range;

use crate::dims::product;

/// The number of threads of the current pool, to size a workspace with.
///
/// Under Miri there is one thread and no pool: it stops in rayon's pool as soon as that starts, before any kernel, and what it is to watch is
/// the kernels.
pub fn threads() -> usize {
    if cfg!(miri) { 1 } else { rayon::current_num_threads() }
}

/// Makes the pool, of so many threads, if nobody has used it yet. Without it the first operation makes one as the environment says.
pub fn make_pool(threads: usize) {
    // A pool that is there already stays.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// Runs `f` on a thread of the pool.
///
/// Called from elsewhere, every operation wakes a thread of the pool, waits for it, and leaves its data in the cache of
/// another core. A program does well to do all its work in here: a training step on Burgers' equation took a sixth less
/// time on two threads.
pub fn on_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    if cfg!(miri) { f() } else { rayon::scope(|_| f()) }
}

/// Threads of its own, for a program that changes their number.
#[derive(Debug)]
pub struct Pool(rayon::ThreadPool);

impl Pool {
    /// So many threads; `None` if the system has not so many left.
    pub fn new(threads: usize) -> Option<Self> {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok().map(Self)
    }

    /// Runs `f` on a thread of this pool, which is the current one there.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.0.install(f)
    }

    /// The number of its threads.
    pub fn threads(&self) -> usize {
        self.0.current_num_threads()
    }
}

/// Buffers that can be cut between two items.
pub trait Parts: Send + Sized {
    /// What one item sees.
    type Item;
    /// The parts of the items before `item`, and those from `item` on (counted from the first of all).
    fn split_at(self, item: usize) -> (Self, Self);
    /// The buffers themselves.
    fn into_item(self) -> Self::Item;
}

/// A slice cut by item: item i owns `offset(i)..offset(i + 1)`, offsets counted in the whole slice.
pub struct Pieces<'a, F, T = f32> {
    data: &'a mut [T],
    start: usize,
    offset: F,
}

/// A slice in which item i owns the range from `offset(i)` to `offset(i + 1)`.
#[inline]
pub fn pieces<T, F: Fn(usize) -> usize>(data: &mut [T], offset: F) -> Pieces<'_, F, T> {
    Pieces { data, start: 0, offset }
}

/// A slice in which every item owns `len` values.
#[inline]
pub fn equal<T>(data: &mut [T], len: usize) -> Pieces<'_, impl Fn(usize) -> usize + Copy + Send + use<T>, T> {
    pieces(data, move |item| item * len)
}

impl<'a, T: Send, F: Fn(usize) -> usize + Copy + Send> Parts for Pieces<'a, F, T> {
    type Item = &'a mut [T];

    #[inline]
    fn split_at(self, item: usize) -> (Self, Self) {
        let cut = (self.offset)(item);
        let (head, tail) = self.data.split_at_mut(cut - self.start);
        (
            Pieces { data: head, start: self.start, offset: self.offset },
            Pieces { data: tail, start: cut, offset: self.offset },
        )
    }

    #[inline]
    fn into_item(self) -> Self::Item {
        self.data
    }
}

macro_rules! parts_of_tuples {
    ($(($($name:ident),+))+) => {$(
        impl<$($name: Parts),+> Parts for ($($name,)+) {
            type Item = ($($name::Item,)+);
            #[inline]
            #[allow(non_snake_case)]
            fn split_at(self, item: usize) -> (Self, Self) {
                let ($($name,)+) = self;
                $(let $name = $name.split_at(item);)+
                (($($name.0,)+), ($($name.1,)+))
            }
            #[inline]
            #[allow(non_snake_case)]
            fn into_item(self) -> Self::Item {
                let ($($name,)+) = self;
                ($($name.into_item(),)+)
            }
        }
    )+};
}
parts_of_tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) }

/// Calls `work(item, its part, scratch)` once for every item, on as many threads as `scratch` has room for.
///
/// `scratch` holds at least one share of `share` values (which may be zero); a share keeps whatever the worker's previous item
/// left in it.
pub fn for_each<P, W>(items: usize, parts: P, scratch: &mut [f32], share: usize, work: &W)
where
    P: Parts,
    W: Fn(usize, P::Item, &mut [f32]) + Sync,
{
    let room = scratch.len().checked_div(share).unwrap_or(usize::MAX);
    assert!(room > 0, "scratch of {} values has no room for one share of {share}", scratch.len());
    let workers = threads().min(room).min(items).max(1);
    run(0..items, workers, parts, scratch, share, work);
}

fn run<P, W>(items: Range<usize>, workers: usize, mut parts: P, scratch: &mut [f32], share: usize, work: &W)
where
    P: Parts,
    W: Fn(usize, P::Item, &mut [f32]) + Sync,
{
    if workers > 1 {
        let left = workers / 2;
        let middle = items.start + items.len() * left / workers;
        let (head, tail) = parts.split_at(middle);
        let (scratch_head, scratch_tail) = scratch.split_at_mut(left * share);
        rayon::join(
            || run(items.start..middle, left, head, scratch_head, share, work),
            || run(middle..items.end, workers - left, tail, scratch_tail, share, work),
        );
        return;
    }
    for item in items {
        let (own, rest) = parts.split_at(item + 1);
        work(item, own.into_item(), &mut scratch[..share]);
        parts = rest;
    }
}

/// Rows of several samples, cut for work and for sums.
///
/// A *tile* is what stays in cache; a *chunk* is a run of tiles of one sample with its own partial sums over points; a *lane* is
/// a run of chunks with its own partial sums of parameter gradients, and the item handed to a worker. All borders are functions
/// of the sizes, which is what makes sums independent of the thread count.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Samples.
    pub samples: usize,
    /// Rows (points) per sample.
    pub n: usize,
    /// Rows per tile at most.
    pub tile: usize,
    /// Chunks per sample.
    pub chunks: usize,
    /// Lanes over all samples.
    pub lanes: usize,
}

/// A lane is worth about this many rows: enough that its partial sums are small beside the rows themselves.
const LANE_ROWS: usize = 1024;
/// More lanes than this would only cost memory; it also bounds how many threads one call can use.
const MOST_LANES: usize = 32;

impl Rows {
    /// Cuts `samples` runs of `n` rows into tiles of at most `tile` rows. Panics where their number is none that a `usize` can hold.
    pub fn new(samples: usize, n: usize, tile: usize) -> Self {
        let total = product("rows", &[("samples", samples), ("n", n)]);
        let chunks = n.div_ceil(LANE_ROWS).clamp(1, MOST_LANES);
        // A power of two is shared evenly by the usual numbers of threads.
        let lanes = total.div_ceil(LANE_ROWS).next_power_of_two().min(MOST_LANES);
        let lanes = lanes.min((samples * chunks).max(1));
        Self { samples, n, tile, chunks, lanes }
    }

    /// Rows of all samples.
    pub fn total(&self) -> usize {
        self.samples * self.n
    }

    /// The chunks of a lane, counted over all samples.
    #[inline]
    pub fn lane(&self, lane: usize) -> Range<usize> {
        self.lane_start(lane)..self.lane_start(lane + 1)
    }

    /// The first chunk of a lane.
    #[inline]
    pub fn lane_start(&self, lane: usize) -> usize {
        self.samples * self.chunks * lane / self.lanes
    }

    /// The first row of a chunk, counted over all samples; also for the chunk after the last.
    #[inline]
    pub fn chunk_start(&self, chunk: usize) -> usize {
        chunk / self.chunks * self.n + self.n * (chunk % self.chunks) / self.chunks
    }

    /// The first row of a lane.
    #[inline]
    pub fn row_of_lane(&self, lane: usize) -> usize {
        self.chunk_start(self.lane_start(lane))
    }

    /// The tiles of a chunk as ranges of rows counted over all samples.
    #[inline]
    pub fn tiles(&self, chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (start, end) = (self.chunk_start(chunk), self.chunk_start(chunk + 1));
        let tiles = (end - start).div_ceil(self.tile).max(1);
        // Equal tiles, of a multiple of 12 rows where that fits: gemm's micro-kernels take 6 or 4 rows at a time.
        let step = (end - start).div_ceil(tiles).next_multiple_of(12).clamp(1, self.tile);
        (start..end).step_by(step).map(move |first| first..(first + step).min(end))
    }
}

/// Runs of items that cost about the same, cut by the costs alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// How many runs there are.
    pub count: usize,
    starts: [usize; MOST_LANES + 1],
}

impl Lanes {
    /// The first item of a run; also of the one after the last.
    pub fn start(&self, lane: usize) -> usize {
        self.starts[lane]
    }
}

/// Cuts items into at most 32 runs. An item belongs to the run in which its cost begins.
pub(crate) fn lanes_by_cost<T>(items: &[T], cost: impl Fn(&T) -> usize) -> Lanes {
    let count = items.len().clamp(1, MOST_LANES);
    let total: usize = items.iter().map(&cost).sum();
    let (mut starts, mut before, mut lane) = ([items.len(); MOST_LANES + 1], 0, 0);
    for (i, item) in items.iter().enumerate() {
        while lane < count && before >= total * lane / count {
            starts[lane] = i;
            lane += 1;
        }
        before += cost(item);
    }
    Lanes { count, starts }
}

/// Sums one field over the partial results of all lanes, in their order, into `out`.
///
/// `partial` is `lanes` equal runs of values; the field starts at `at` in each of them.
pub fn sum_lanes(partial: &[f32], lanes: usize, at: usize, out: &mut [f32]) {
    /// Values per item: small enough to share among threads, large enough to be worth a task.
    const BLOCK: usize = 4096;
    let (len, stride) = (out.len(), partial.len() / lanes);
    assert!(at + len <= stride, "a field of {len} values at {at} in partial sums of {stride}");
    for_each(len.div_ceil(BLOCK), pieces(out, move |i| (i * BLOCK).min(len)), &mut [], 0, &|i, out, _| {
        let at = at + i * BLOCK;
        out.copy_from_slice(&partial[at..at + out.len()]);
        for lane in 1..lanes {
            let more = &partial[lane * stride + at..];
            crate::simd::vectorize!(out.iter_mut().zip(more).for_each(|(o, v)| *o += v));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_chunks_and_tiles_cover_every_row_once_in_order() {
        for (samples, n, tile) in
            [(1, 1, 8), (0, 5, 8), (3, 0, 8), (8, 2048, 256), (5, 4099, 100), (40, 70, 64), (1, 100_000, 256)]
        {
            let rows = Rows::new(samples, n, tile);
            let mut next = 0;
            for lane in 0..rows.lanes {
                assert_eq!(rows.row_of_lane(lane), next);
                for chunk in rows.lane(lane) {
                    for range in rows.tiles(chunk) {
                        assert_eq!(range.start, next);
                        assert!(!range.is_empty() && range.len() <= tile);
                        assert_eq!(range.start / n, (range.end - 1) / n, "a tile stays in its sample");
                        next = range.end;
                    }
                }
            }
            assert_eq!(next, samples * n, "{rows:?}");
        }
    }

    #[test]
    fn items_are_cut_by_their_cost() {
        let lanes = lanes_by_cost(&[1, 1, 1, 1, 4, 4, 12, 1], |cost| *cost);
        let starts: Vec<usize> = (0..=lanes.count).map(|lane| lanes.start(lane)).collect();
        assert_eq!((starts[0], starts[lanes.count]), (0, 8));
        assert!(starts.is_sorted(), "{starts:?}");
        // The dear one is alone with what begins after it.
        assert!(starts.contains(&6), "{starts:?}");
        assert_eq!(lanes_by_cost(&[] as &[usize], |cost| *cost).start(1), 0);
        let many = lanes_by_cost(&[3; 1000], |cost| *cost);
        assert!((0..many.count).all(|lane| many.start(lane + 1) - many.start(lane) <= 32));
    }

    #[test]
    fn every_item_runs_once_with_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut data = vec![0.0; 37];
            let mut scratch = vec![0.0; 2 * threads];
            pool.install(|| {
                for_each(12, pieces(&mut data, |i| i * 37 / 12), &mut scratch, 2, &|i, part, scratch| {
                    assert_eq!(scratch.len(), 2);
                    part.iter_mut().for_each(|v| *v += 1.0 + i as f32);
                })
            });
            for i in 0..12 {
                assert!(data[i * 37 / 12..(i + 1) * 37 / 12].iter().all(|&v| v == 1.0 + i as f32));
            }
        }
    }
}
