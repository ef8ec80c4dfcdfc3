//! The `galerkin` command: parse, run, report.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use galerkin_cli::args::Args;
use galerkin_cli::commands::{self, Interrupted};

/// Tensors of megabytes come and go with every operation. The system's allocator gives them back to the system, which clears their pages
/// again: a quarter of the time of a prediction on Darcy flow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Wrong arguments end here, with code 2.
    let args = Args::parse();
    match galerkin::device::on_pool(|| commands::run(args.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
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
    let _ = writeln!(out, "error: {said}");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some messages end with that of their cause.
        if !said.ends_with(&cause) {
            let _ = writeln!(out, "  caused by: {cause}");
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
