//! The `galerkin` command: parse, run, report.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use galerkin_cli::args::Args;
use galerkin_cli::commands::{self, Interrupted};
use galerkin_data::error::shown_text;

/// Tensors of megabytes come and go with every operation. The system's allocator gives them back to the system, which clears their pages
/// again: a quarter of the time of a prediction on Darcy flow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Wrong arguments end here, with code 2.
    let args = Args::parse();
    bound_threads();
    match galerkin::device::on_pool(|| commands::run(args.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Threads for each core, at the most. Some machines hang when ten thousand are begun.
const MOST_THREADS: usize = 16;

/// Makes a smaller pool of threads than RAYON_NUM_THREADS says, if that is a slip of the pen. Any other value is left to rayon.
fn bound_threads() {
    let Ok(asked) = std::env::var("RAYON_NUM_THREADS") else { return };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let most = MOST_THREADS * cores;
    if asked.parse::<u128>().is_ok_and(|asked| asked > most as u128) {
        let words = format!(
            "RAYON_NUM_THREADS = {asked}: going on with {most} threads, {MOST_THREADS} for each core"
        );
        let _ = writeln!(io::stderr(), "{words}");
        galerkin::device::make_pool(most);
    }
}

/// 2 for wrong usage, 130 after an interrupt, 1 for anything else.
fn report(error: &anyhow::Error) -> ExitCode {
    // Whoever reads our output has seen enough, as in `galerkin info … | head`.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    // A standard error that is closed cannot be told so.
    let mut out = io::stderr().lock();
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        let _ = writeln!(out, "{interrupted}");
        return ExitCode::from(130);
    }
    let mut said = error.to_string();
    // Messages name what files say, and a terminal obeys some of it.
    let _ = writeln!(out, "error: {}", shown_text(&said));
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some messages end with that of their cause.
        if !said.ends_with(&cause) {
            let _ = writeln!(out, "  caused by: {}", shown_text(&cause));
            said = cause;
        }
    }
    ExitCode::from(if error.chain().any(is_usage) { 2 } else { 1 })
}

/// Whether something that was asked for cannot be, whoever found out.
fn is_usage(cause: &(dyn std::error::Error + 'static)) -> bool {
    // An error that only passes another one on does not name it as its source.
    cause.downcast_ref().is_some_and(galerkin::Error::is_usage)
        || cause.downcast_ref().is_some_and(galerkin_data::Error::is_usage)
        || cause.downcast_ref().is_some_and(galerkin_paper::Error::is_usage)
}
