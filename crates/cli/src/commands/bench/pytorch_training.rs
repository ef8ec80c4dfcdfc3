//! `galerkin bench pytorch --train`: a run of ours, trained by PyTorch.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use galerkin::device::Device;
use galerkin::run::RunFolder;
use galerkin::samples::split_of;
use galerkin::train::{Outcome, Trainer};
use galerkin::{presets, weights};
use galerkin_data::Dataset;
use galerkin_data::io::write_whole;
use galerkin_data::split::batches;
use serde_json::json;

use super::process::say;
use super::pytorch::{versions, write_scripts};
use crate::args::PytorchArgs;

/// What the authors' code has, and the preset has otherwise.
const AUTHORS: [(&str, &str); 4] =
    [("optimizer.kind", "adam"), ("optimizer.beta2", "0.999"), ("train.lr", "1e-3"), ("train.augment", "[]")];

/// Makes the folder of a run of the preset with the authors' training, with all that the other half needs to take the same steps, and calls it.
pub(super) fn run(args: &PytorchArgs, data: &Path, run: &Path) -> anyhow::Result<()> {
    if RunFolder::new(run).config_file().exists() {
        let (what, why) = (format!("--run {}", run.display()), "a run is here already".into());
        bail!(galerkin::Error::Setting { what, why });
    }
    let scripts = tempfile::tempdir().context("a temporary folder")?;
    write_scripts(scripts.path())?;
    let versions = versions(&args.python, &scripts.path().join("measure.py"))?;
    say(&args.options, &format!("Python {}, torch {}", versions.python, versions.torch))?;

    let sets = AUTHORS.map(|(key, value)| (key.to_string(), value.to_string()));
    let mut config = presets::get("burgers")?.with(&sets)?;
    config.data.folder = data.into();
    config.train.epochs = args.epochs.unwrap_or(config.train.epochs);
    let mut set: Vec<String> = sets.into_iter().map(|(key, _)| key).collect();
    if let Some(grid) = args.grid {
        config.data.grid = grid;
        set.push("data.grid".to_string());
    }
    let dataset = Dataset::open(data)?;
    let config = config.fitted_to(&dataset, &set)?;

    // A run that is stopped before its first step has all files but those of the training.
    let device = Device::flex();
    let begun = Trainer::new(&config).out(run).device(&device).run(&mut |_| ControlFlow::Break(()))?;
    if begun != Outcome::Interrupted {
        bail!("{}: a training without steps", run.display());
    }
    let own = run.join("pytorch");
    std::fs::create_dir_all(&own).with_context(|| own.display().to_string())?;
    write_scripts(&own)?;
    let network = config.network.init(config.train.seed, &device)?;
    weights::save(&network, &BTreeMap::new(), own.join("initial.safetensors"))?;
    let split = split_of(&config, &dataset)?;
    let order = |epoch| -> Vec<Vec<usize>> {
        batches(config.train.seed, epoch, split.train.len(), config.train.batch, true).collect()
    };
    let order = json!({
        "train": split.train,
        "validation": split.validation,
        "batches": (0..config.train.epochs).map(order).collect::<Vec<_>>(),
    });
    write_whole(own.join("order.json"), order.to_string().as_bytes())?;

    let mut command = Command::new(&args.python);
    command.arg(own.join("train.py")).arg(run).args(["--threads", &args.options.threads.to_string()]);
    if args.options.quiet {
        command.arg("--quiet");
    }
    let status = command.status().with_context(|| args.python.display().to_string())?;
    if !status.success() {
        bail!("{}: PyTorch's training failed", run.display());
    }
    let history = RunFolder::new(run).history()?;
    let last = history
        .epochs
        .last()
        .map_or(String::new(), |epoch| format!(", validation error {:.5}", epoch.validation.mean));
    writeln!(io::stdout(), "trained {}: {} steps{last}", run.display(), history.steps)?;
    Ok(())
}
