//! Memory: what a pass allocates, and what it asks its caller for.
//!
//! A test target of its own, because it replaces the global allocator: one that counts what the thread it watches allocates, and notes
//! from where.
//!
//! `unsafe` is the price of implementing `GlobalAlloc`: every method hands its arguments on to [`System`] unchanged, so the
//! caller's promises are exactly those `System` asks for, and what it returns is returned.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;

use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Input, Kind, Norm};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::encoder::EncoderLayer;

struct Watch;

#[global_allocator]
static WATCH: Watch = Watch;

thread_local! {
    /// Whether allocations of this thread are counted.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Bytes that are allocated now, and the most there ever were, since the watch began.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Call stacks of the watched allocations.
static STACKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

// SAFETY: all methods forward to `System` with the arguments they were given.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if WATCHED.get() {
            LIVE.set((LIVE.get().0 - layout.size() as isize, LIVE.get().1));
        }
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn note(size: isize) {
    // Off while taking notes: that allocates too.
    if WATCHED.replace(false) {
        let (live, most) = LIVE.get();
        LIVE.set((live + size, most.max(live + size)));
        STACKS.lock().unwrap().push(Backtrace::force_capture().to_string());
        WATCHED.set(true);
    }
}

/// The call stacks of what `f` allocates on this thread, and the most bytes it held at a time.
fn watch(f: impl FnOnce()) -> (Vec<String>, isize) {
    LIVE.set((0, 0));
    WATCHED.set(true);
    f();
    WATCHED.set(false);
    (std::mem::take(&mut STACKS.lock().unwrap()), LIVE.get().1)
}

fn layer(batch: usize, n: usize, d: usize) -> EncoderLayer {
    let attention = Attention {
        kind: Kind::Galerkin,
        batch,
        n,
        d,
        heads: 1,
        coordinates: 1,
        projection: true,
        norm: Norm::Layer,
        eps: 1e-5,
        dropout: 0.1,
        key: Key::default(),
        keep: false,
    };
    EncoderLayer {
        attention,
        hidden: 2 * d,
        activation: Activation::Gelu,
        norm_after: false,
        eps: 1e-5,
        minus: false,
        residual_dropout: 0.1,
        hidden_dropout: 0.1,
    }
}

/// What forward and backward of a layer allocate on one thread, after a first time that warms up.
fn watch_layer(layer: EncoderLayer) -> (Vec<String>, isize) {
    let points = layer.attention.batch * layer.attention.n;
    let values = layer.lengths().map(|len| vec![0.1; len]);
    let mut gradients = values.clone();
    let (x, coordinates) = (vec![0.5; points * layer.attention.d], vec![0.5; points]);
    let input = Input { x: &x, coordinates: &coordinates, weights: None };
    let params = values.each_ref().map(|values| values.as_slice());
    let (mut y, mut dx) = (x.clone(), x.clone());
    let mut saved = vec![0.0; layer.saved_len()];
    let mut workspace = vec![0.0; layer.workspace_len(1)];
    let mut pass = || {
        let grads = gradients.each_mut().map(|values| values.as_mut_slice());
        layer.forward(&params, input, &mut y, &mut saved, &mut workspace);
        layer.backward(&params, input, &saved, &x, &mut dx, grads, &mut workspace);
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        pass();
        watch(pass)
    })
}

/// `gemm` allocates small buffers in every product: flags, and room to pack operands into. They are its own, freed at its end, and
/// as large as its blocks, whatever the number of points. Nothing else allocates.
#[test]
fn only_gemm_allocates_and_no_more_for_more_points() {
    let (stacks, most) = watch(|| drop(std::hint::black_box(vec![0u8; 100])));
    assert!(stacks.len() == 1 && most == 100 && !of_gemm(&stacks[0]), "the watch sees what is there");

    for keep in [false, true] {
        let with_points = |n| {
            let mut layer = layer(2, n, 24);
            layer.attention.keep = keep;
            watch_layer(layer)
        };
        let (stacks, most) = with_points(1024);
        for stack in &stacks {
            assert!(of_gemm(stack), "an allocation outside of gemm:\n{stack}");
        }
        let (_, most_of_many) = with_points(8192);
        assert_eq!(
            most, most_of_many,
            "bytes held at a time, for 1024 and for 8192 points in tiles of the same size"
        );
    }
}

fn of_gemm(stack: &str) -> bool {
    stack.contains("gemm_common::")
}

/// Beyond inputs, outputs, parameters and their gradients, in floats: 1.14·B·n·d, nearly all of it partial sums of parameter
/// gradients, one set per 1024 points; and 35.0·d² per thread, the tiles it works on.
#[test]
fn a_layer_asks_for_less_than_it_is_given() {
    let (batch, n, d) = (8, 2048, 96);
    let layer = layer(batch, n, d);
    let of = |threads| layer.saved_len() + layer.workspace_len(threads);
    let per_thread = of(2) - of(1);
    let shared = of(1) - per_thread;
    assert!(per_thread <= 36 * d * d, "{:.2} d² per thread", per_thread as f64 / (d * d) as f64);
    assert!(10 * shared <= 12 * batch * n * d, "{:.2} B n d", shared as f64 / (batch * n * d) as f64);
}
