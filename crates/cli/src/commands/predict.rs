//! `galerkin predict`: predictions for a file.

use std::io::{self, Write};
use std::path::Path;

use galerkin::device;
use galerkin::model::Model;
use galerkin::run::{RunFolder, Snapshot};

use super::{Interrupted, interrupt};
use crate::args;
use crate::output::sizes;
use crate::progress::Progress;

/// Reads, predicts and writes, batch by batch.
pub(super) fn run(args: args::Predict) -> anyhow::Result<()> {
    let snapshot = if args.best { Snapshot::Best } else { Snapshot::Last };
    let folder = RunFolder::new(&args.run);
    let mut model = Model::open(&folder, snapshot, &device::parse(&args.device)?)?.allow_nan(args.allow_nan);
    if args.symmetric {
        model = model.symmetric(&folder)?;
    }
    interrupt::catch("stopping, without an output", args.quiet)?;
    let mut progress = None;
    let shape = model.predict_file(&args.input, &args.output, &mut |done, total| {
        let progress = progress.get_or_insert_with(|| Progress::new(total as u64, "samples", args.quiet));
        progress.at(done as u64);
        interrupt::asked()
    });
    progress.into_iter().for_each(Progress::finish);
    match shape? {
        // The standard output has the array.
        Some(_) if args.output == Path::new("-") => Ok(()),
        Some(shape) => Ok(writeln!(io::stdout(), "wrote {}: {}", args.output.display(), sizes(&shape))?),
        None => Err(Interrupted("stopped; nothing was written".into()).into()),
    }
}
