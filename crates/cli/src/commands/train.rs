//! `galerkin train` and `galerkin import-weights`: folders of runs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use galerkin::config::{RunConfig, Task};
use galerkin::init::Builder;
use galerkin::models::Preset;
use galerkin::run::{RunFolder, Which};
use galerkin::train::{Event, Outcome, Pace, Start, train};
use galerkin::{device, weights};
use galerkin_data::io::write_whole;
use galerkin_data::pde::{self, Problem};

use super::{Interrupted, generate, interrupt};
use crate::args;
use crate::output;
use crate::progress::Progress;

/// Trains, or goes on.
pub(super) fn run(args: args::Train) -> anyhow::Result<()> {
    let config = config(&args)?;
    let device = device::parse(&args.device)?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(config.preset.name()));
    let folder = RunFolder::new(&out);
    if !config.data.folder.exists() {
        make_data(&config, &args)?;
    }
    interrupt::catch("stopping after this step, with a checkpoint", args.quiet)?;
    let start = if args.resume { Start::Resume } else { Start::Fresh };
    let mut display = Display::new(&config, args.quiet);
    let outcome = train(&config, &folder, start, &device, &mut |event| {
        display.show(event);
        interrupt::asked()
    });
    display.finish();
    match outcome? {
        Outcome::Finished => {
            let mut out = io::stdout().lock();
            writeln!(out, "trained {}: {}", folder.path().display(), display.summary())?;
            writeln!(out, "galerkin evaluate {} says how good it is", folder.path().display())?;
            Ok(())
        }
        Outcome::Interrupted => {
            let words = format!("stopped; the same command with --resume goes on: {}", display.summary());
            Err(Interrupted(words).into())
        }
    }
}

/// A run whose weights come from the authors' code.
pub(super) fn import(args: args::ImportWeights) -> anyhow::Result<()> {
    let config = RunConfig::preset(args.preset.parse()?).with(&args.set)?;
    let folder = RunFolder::new(&args.out);
    if folder.config_file().exists() {
        bail!("{}: a run is here already", args.out.display());
    }
    let model_config = config.model_config()?;
    let model = model_config.init(&mut Builder::new(config.train.seed, &device::parse("cpu")?))?;
    let model = weights::import_torch(model, &args.file)?;
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let from = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let more = BTreeMap::from([("imported_from".to_string(), from)]);
    for which in [Which::Best, Which::Last] {
        weights::save(&model, &model_config, &more, folder.weights_file(which))?;
    }
    write_whole(folder.config_file(), config.to_toml().as_bytes())?;
    writeln!(io::stdout(), "wrote {}: {} parameters", args.out.display(), model_config.parameters())?;
    Ok(())
}

/// The preset or the file, with the changes of the command.
fn config(args: &args::Train) -> anyhow::Result<RunConfig> {
    let mut sets = args.set.clone();
    if let Some(data) = &args.data {
        let data = data.to_str().with_context(|| format!("{}: no UTF-8", data.display()))?;
        sets.push(("data.folder".into(), format!("{data:?}")));
    }
    let path = Path::new(&args.what);
    if path.extension().is_some_and(|extension| extension == "toml") || path.is_file() {
        let text = std::fs::read_to_string(path).with_context(|| args.what.clone())?;
        return Ok(RunConfig::parse(&text, path, &sets)?);
    }
    let preset: Preset = args.what.parse()?;
    Ok(RunConfig::preset(preset).with(&sets)?)
}

/// The samples a run needs, on the grid of the paper's files.
fn make_data(config: &RunConfig, args: &args::Train) -> anyhow::Result<()> {
    if args.data.is_some() {
        bail!("{}: no such dataset; `galerkin generate` makes one", config.data.folder.display());
    }
    let problem = match config.data.task {
        Task::Burgers => Problem::Burgers(pde::Burgers::default()),
        Task::Darcy | Task::DarcyInverse => Problem::Darcy(pde::Darcy::default()),
    };
    let data = &config.data;
    let count = u32::try_from(data.train + data.validation + data.test)?;
    generate::write(&data.folder, &problem, DATA_SEED, count, args.quiet).map(drop)
}

/// Of generated data: that of `galerkin generate`.
const DATA_SEED: u64 = 0;

/// Progress of a training: a bar of steps, and a line per epoch.
struct Display<'a> {
    config: &'a RunConfig,
    quiet: bool,
    bar: Option<Progress>,
    started: Instant,
    /// Steps when this process began, and now.
    steps: [u64; 2],
    rate: f64,
    validation: Option<f64>,
}

impl<'a> Display<'a> {
    fn new(config: &'a RunConfig, quiet: bool) -> Self {
        Self { config, quiet, bar: None, started: Instant::now(), steps: [0; 2], rate: 0.0, validation: None }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Started { parameters, steps, total, memory } => {
                self.steps = [steps; 2];
                self.started = Instant::now();
                let grid = self.config.data.grid;
                self.line(format!(
                    "{}: {parameters} parameters, {total} steps of {} samples on grid {grid}, about {} of memory",
                    self.config.preset,
                    self.config.train.batch,
                    output::megabytes(memory)
                ));
                if steps > 0 {
                    self.line(format!("going on after step {steps}"));
                }
                self.bar = Some(Progress::new(total, "steps", self.quiet));
            }
            Event::Step { steps, pace: Pace { rate, .. }, .. } => {
                (self.steps[1], self.rate) = (steps, rate);
                if let Some(bar) = &mut self.bar {
                    bar.at(steps);
                }
            }
            Event::Epoch { epoch, loss, validation, best } => {
                self.validation = Some(validation.mean);
                self.line(format!(
                    "epoch {epoch}/{}  loss {loss:.5}  validation {:.5}{}  lr {:.1e}  {:.0} samples/s",
                    self.config.train.epochs,
                    validation.mean,
                    if best { " (best)" } else { "" },
                    self.rate,
                    self.samples_per_second()
                ));
            }
            _ => {}
        }
    }

    fn line(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.line(&text),
            None if self.quiet => {}
            // Work goes on when nobody listens.
            None => _ = writeln!(io::stderr(), "{text}"),
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }

    fn samples_per_second(&self) -> f64 {
        let samples = (self.steps[1] - self.steps[0]) * self.config.train.batch as u64;
        samples as f64 * self.config.train.accumulate as f64 / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    fn summary(&self) -> String {
        let error = self.validation.map_or(String::new(), |v| format!(", validation error {v:.5}"));
        format!("{} of {} steps{error}", self.steps[1], self.config.total_steps())
    }
}
