//! The paper that this project began with, "Choose a Transformer: Fourier or Galerkin": its experiments, its tables with its
//! numbers beside ours, and its theorems in numbers. The library in `crates/operator` knows nothing of it.
//!
//! An [`Experiment`] at a [`Scale`] is a [`Protocol`], a list of [`Row`]s. A row is a preset of the library with some settings changed,
//! and what its run is evaluated on:
//!
//! ```
//! use galerkin_paper::{Experiment, Scale};
//!
//! let protocol = Experiment::Burgers.protocol(Scale::Cpu).expect("a list of runs");
//! let row = protocol.rows.iter().find(|row| row.id == "burgers-gt-heads").expect("a row of Table 2a");
//! assert_eq!((row.preset, row.trials[0].paper), ("burgers", Some(1.203)));
//! assert!(row.settings.contains(&("optimizer.beta2", "0.999".into())));
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`experiment`] | names of the experiments and of the scales |
//! | [`protocol`] | the rows of an experiment, with the paper's numbers |
//! | [`runs`] | rows as runs of the library: configs, data, how far they are, what came out |
//! | [`report`] | errors beside the paper's: comparisons, table, CSV, words |
//! | [`costs`] | memory, speed and operations of training steps beside the paper's |
//! | [`theory`] | the theorems, on random matrices and on the layers of a model, and their report |
//! | [`table`], [`growth`] | tables as Markdown and in columns; exponents of growth |
//! | [`error`] | what can go wrong |
//!
//! Nothing here prints, trains or draws: that is the command's.

pub mod costs;
pub mod error;
pub mod experiment;
pub mod growth;
pub mod protocol;
pub mod report;
pub mod runs;
pub mod table;
pub mod theory;

pub use error::{Error, Result};
pub use experiment::{Experiment, Scale};
pub use protocol::{Protocol, Row, Trial};
pub use table::Table;
