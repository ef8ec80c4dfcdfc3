//! One module per verb.

mod generate;
mod import;
mod info;

use std::io::{self, Write};

use clap::CommandFactory;

use crate::args::{Args, Command};

/// Work that was stopped and can go on; the message says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Interrupted(String);

/// Does what the words say.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Generate(equation) => generate::run(equation),
        Command::Import(args) => import::run(args),
        Command::Info(args) => info::run(args),
        Command::Completions { shell } => {
            // The generator panics where it cannot write; memory always takes it.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "galerkin", &mut script);
            Ok(io::stdout().write_all(&script)?)
        }
    }
}
