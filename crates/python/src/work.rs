//! Work without the interpreter's lock, on a pool of threads, that an interrupt ends.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use galerkin::device::{self, Pool};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::{Error, Result, wrong};

/// The pool of [`set_num_threads`], and the process that it is in; before that, everything runs on the pool that the environment asks for.
static POOL: RwLock<Option<(u32, Arc<Pool>)>> = RwLock::new(None);

/// The process that first asked for a pool.
static FIRST: OnceLock<u32> = OnceLock::new();

/// `None`: the one that the environment asks for.
///
/// A process that was forked has none of the threads that its parent began, and would wait for them for ever: it gets a pool of its own.
fn pool() -> Option<Arc<Pool>> {
    let me = std::process::id();
    let own = *FIRST.get_or_init(|| me) == me;
    let chosen = POOL.read().expect("nothing panics with the lock").clone();
    match chosen {
        Some((process, pool)) if process == me => Some(pool),
        None if own => None,
        chosen => {
            let threads = chosen.map_or_else(default_threads, |(_, pool)| pool.threads());
            let pool = Arc::new(Pool::new(threads).or_else(|| Pool::new(1))?);
            *POOL.write().expect("nothing panics with the lock") = Some((me, pool.clone()));
            Some(pool)
        }
    }
}

/// As the pool of the environment has them.
fn default_threads() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|words| words.parse().ok());
    asked.filter(|threads| *threads > 0).unwrap_or_else(cores)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Threads for each core, at the most. Some machines hang when ten thousand are begun.
const MOST_THREADS: usize = 16;

/// Threads that everything computes with. No result depends on it.
#[pyfunction]
pub fn set_num_threads(threads: usize) -> Result<()> {
    let most = MOST_THREADS * cores();
    if !(1..=most).contains(&threads) {
        return Err(wrong(format!(
            "threads = {threads}: expected 1 to {most}, {MOST_THREADS} for each core"
        )));
    }
    let pool = Pool::new(threads)
        .ok_or_else(|| wrong(format!("threads = {threads}: the system has not so many left")))?;
    *POOL.write().expect("nothing panics with the lock") = Some((std::process::id(), Arc::new(pool)));
    Ok(())
}

/// Threads that everything computes with.
#[pyfunction]
pub fn num_threads(py: Python) -> usize {
    py.detach(|| on_pool(device::threads))
}

/// Runs `f` on the pool, without the interpreter's lock.
pub fn compute<R: Send>(py: Python, f: impl FnOnce() -> galerkin::Result<R> + Send) -> Result<R> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(|| on_pool(f))));
    match done {
        Ok(result) => Ok(result?),
        Err(panic) => Err(panicked(panic)),
    }
}

/// A panic is a mistake of ours. As pyo3 would pass it on it is no `Exception`, which no `except` of a user expects.
fn panicked(panic: Box<dyn Any + Send>) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let words = format!("a mistake in galerkin, please report it: {}", said.unwrap_or("no words"));
    Error::Python(PyRuntimeError::new_err(words))
}

fn on_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    match pool() {
        Some(pool) => pool.run(f),
        None => device::on_pool(f),
    }
}

/// How long an interrupt may wait to be noticed.
const LATEST: Duration = Duration::from_millis(50);

/// Runs `f` as [`compute`] does. What it tells its argument is handed to `hear` on the thread of the caller, with the interpreter's lock.
///
/// Where `hear` says false, `f` is answered `Break` from then on. So it is where `hear` fails or the interpreter has an interrupt to handle, and the
/// result is that error once `f` has ended.
pub fn watched<T, E>(
    py: Python,
    f: impl FnOnce(&mut dyn FnMut(E) -> ControlFlow<()>) -> galerkin::Result<T> + Send,
    mut hear: impl FnMut(Python, E) -> PyResult<bool> + Send,
) -> Result<T>
where
    T: Send,
    E: Send,
{
    // What is told waits for its answer: a training never takes a step after one that ended it.
    let (tell, told) = sync_channel::<E>(0);
    let (answer, answered) = sync_channel::<ControlFlow<()>>(1);
    let (result, failed) = py.detach(move || {
        std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                on_pool(move || {
                    f(&mut |event| {
                        // Whoever listens has gone only after a panic.
                        let heard = tell.send(event).ok().and_then(|()| answered.recv().ok());
                        heard.unwrap_or(ControlFlow::Break(()))
                    })
                })
            });
            let (mut go_on, mut failed) = (true, None);
            loop {
                let event = match told.recv_timeout(LATEST) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                let asked = event.is_some();
                if go_on {
                    let heard = Python::attach(|py| {
                        let go_on = event.map_or(Ok(true), |event| hear(py, event))?;
                        py.check_signals().map(|()| go_on)
                    });
                    go_on = matches!(heard, Ok(true));
                    failed = heard.err();
                }
                if asked {
                    // It fails only if the work has panicked, and then there is nobody to answer.
                    let _ =
                        answer.send(if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) });
                }
            }
            (work.join(), failed)
        })
    });
    match (result, failed) {
        (Err(panic), _) => Err(panicked(panic)),
        (_, Some(error)) => Err(Error::Python(error)),
        (Ok(result), None) => Ok(result?),
    }
}
