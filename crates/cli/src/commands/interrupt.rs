//! Ctrl-C: the first one asks the work to stop where it can go on later, the second one ends the process at once.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

static ASKED: AtomicBool = AtomicBool::new(false);
/// What the first interrupt says; `None` until it is caught, and empty where nothing is to be said.
static WORDS: Mutex<Option<&str>> = Mutex::new(None);

/// From now on interrupts are caught, and the first one says these words. What follows with other words may call it again.
pub(super) fn catch(words: &'static str, quiet: bool) -> anyhow::Result<()> {
    let mut current = WORDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let first = current.is_none();
    *current = Some(if quiet { "" } else { words });
    drop(current);
    if !first {
        return Ok(());
    }
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        let words = WORDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).unwrap_or("");
        if !words.is_empty() {
            let _ = writeln!(io::stderr(), "\n{words}; once more to stop at once");
        }
    };
    ctrlc::set_handler(handler).context("signals cannot be caught")
}

/// Whether there was an interrupt.
pub(super) fn asked() -> ControlFlow<()> {
    if ASKED.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
