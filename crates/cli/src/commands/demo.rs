//! `galerkin demo`: the whole job, small.

use std::io::{self, Write};

use galerkin::config::RunConfig;
use galerkin::evaluate::{Among, Evaluator};
use galerkin::run::{RunFolder, Snapshot};
use galerkin::{device, presets};
use galerkin_data::pde::{Burgers, Problem};

use super::train::{Options, to_the_end};
use super::{evaluate, generate, plot};
use crate::args;

/// Points of the data; the network is trained on every eighth of them.
const FINE: usize = 1024;

/// Generates, trains, evaluates and draws; what is there already is not made again.
pub(super) fn run(args: args::Demo) -> anyhow::Result<()> {
    let (data, run) = (args.out.join("data"), args.out.join("run"));
    let config = config(&data)?;
    let say = |words: &str| match args.quiet {
        true => Ok(()),
        false => writeln!(io::stderr(), "{words}"),
    };
    if !data.exists() {
        say("1. samples of Burgers' equation, solved")?;
        let problem = Problem::Burgers(Burgers { points: FINE, ..Burgers::default() });
        generate::for_run(&config.data, &problem, args.quiet)?;
    }
    say("2. a Galerkin transformer learns to go from u(x, 0) to u(x, 1)")?;
    let folder = RunFolder::new(&run);
    let device = device::parse("cpu")?;
    let options = Options { resume: true, limit: None, device, tensorboard: false, quiet: args.quiet };
    let summary = to_the_end(&config, &folder, &options)?;
    say("3. it meets samples it has not seen, on its own grid and on a finer one, beside the solver")?;
    let evaluator = Evaluator::open(&folder, Snapshot::Last, None, Among::Unseen, &options.device)?;
    let metrics = evaluator.on_grids(&folder, &[config.data.grid, FINE], &[], false)?;
    metrics.add_to(&folder)?;
    for (name, scene) in plot::figures(&folder, Some(&evaluator), 3)? {
        scene.save_in(&folder.figures(), name)?;
    }

    let mut out = io::stdout().lock();
    writeln!(out, "trained {}: {summary}", run.display())?;
    evaluate::table(&metrics.evaluations).write(&mut out)?;
    writeln!(out, "dataset  {}", data.display())?;
    writeln!(out, "weights  {}", folder.weights_file(Snapshot::Last).display())?;
    writeln!(out, "errors   {}", folder.metrics_file().display())?;
    writeln!(out, "figures  {}", folder.figures().display())?;
    writeln!(out, "next     galerkin train burgers, the same on 512 points, for 100 epochs")?;
    Ok(())
}

/// The preset on fewer points, for fewer epochs.
fn config(data: &std::path::Path) -> anyhow::Result<RunConfig> {
    let mut config = presets::get("burgers")?;
    config.data.folder = data.into();
    config.data.grid = FINE / 8;
    (config.data.validation, config.data.test) = (50, 50);
    config.train.epochs = 13;
    config.check()?;
    Ok(config)
}
