//! One module per verb.

mod bench;
mod demo;
mod drawing;
mod evaluate;
mod generate;
mod import;
mod info;
mod interrupt;
mod latents;
mod plot;
mod predict;
mod reproduce;
mod results;
mod train;

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
        Command::Demo(args) => demo::run(args),
        Command::Generate(equation) => generate::run(equation),
        Command::Import(args) => import::run(*args),
        Command::Info(args) => info::run(args),
        Command::Config(args) => train::print_config(args),
        Command::Train(args) => train::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Plot(args) => plot::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Bench(args) => bench::run(args),
        Command::ImportWeights(args) => train::import(args),
        Command::Completions { shell } => {
            // The generator panics where it cannot write; memory always takes it.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "galerkin", &mut script);
            Ok(io::stdout().write_all(&script)?)
        }
    }
}
