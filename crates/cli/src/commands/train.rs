//! `galerkin train` and `galerkin import-weights`: folders of runs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use galerkin::config::RunConfig;
use galerkin::device::{self, Device};
use galerkin::networks::NetworkConfig;
use galerkin::propose::{NetworkKind, propose};
use galerkin::run::{RunFolder, Snapshot};
use galerkin::schedule::Rates;
use galerkin::train::{Event, Outcome, Trainer};
use galerkin::{presets, weights};
use galerkin_data::Dataset;
use galerkin_data::io::{FolderLock, read_text, write_whole};

use super::{Interrupted, generate, interrupt};
use crate::args;
use crate::output;
use crate::progress::{Progress, duration};
use crate::tensorboard::EventFile;

/// Trains, or goes on.
pub(super) fn run(args: args::Train) -> anyhow::Result<()> {
    let device = device::parse(&args.device)?;
    let config = config(&args)?;
    if !config.data.folder.exists() {
        // Only a preset's own data can be made; a folder that somebody named must be there.
        let named = args.data.is_some() || args.set.iter().any(|(key, _)| key == "data.folder");
        match args.what.as_deref().filter(|what| !named && presets::names().any(|name| name == *what)) {
            Some(preset) => generate::for_run(&config.data, &presets::problem(preset)?, args.quiet)?,
            None => return Err(missing(&config.data.folder)),
        }
    }
    let out = args.out.unwrap_or_else(|| PathBuf::from("runs").join(&config.name));
    let options = Options {
        resume: args.resume,
        limit: args.hours,
        device,
        tensorboard: args.tensorboard,
        quiet: args.quiet,
    };
    let summary = to_the_end(&config, &RunFolder::new(&out), &options)?;
    let mut words = io::stdout().lock();
    writeln!(words, "trained {}: {summary}", out.display())?;
    writeln!(words, "galerkin evaluate {} says how good it is", out.display())?;
    Ok(())
}

/// What a training does not depend on.
pub(super) struct Options {
    /// Whether a run in the folder goes on.
    pub resume: bool,
    pub limit: Option<Duration>,
    pub device: Device,
    pub tensorboard: bool,
    pub quiet: bool,
}

/// Trains with a display of its progress; gives a summary. An interrupt leaves a checkpoint and is an error.
pub(super) fn to_the_end(
    config: &RunConfig,
    folder: &RunFolder,
    options: &Options,
) -> anyhow::Result<String> {
    interrupt::catch("stopping after this step, with a checkpoint", options.quiet)?;
    let mut display = Display::new(config, options.quiet);
    let mut board = options.tensorboard.then(|| Board::new(folder.path().join("tensorboard")));
    let trainer = Trainer::new(config).out(folder.path()).resume(options.resume);
    let outcome = trainer.limit(options.limit).device(&options.device).run(&mut |event| {
        if let Some(board) = &mut board {
            board.show(&event);
        }
        display.show(event);
        // What cannot be shown on the board stops the run, which can go on without it.
        if board.as_ref().is_some_and(|board| board.failed.is_some()) {
            return ControlFlow::Break(());
        }
        interrupt::asked()
    });
    display.finish();
    let outcome = outcome?;
    if let Some(Board { folder, failed: Some(error), .. }) = board {
        let words = format!("{}: event files cannot be written; {}", folder.display(), display.summary());
        return Err(anyhow::Error::from(error).context(words));
    }
    match outcome {
        Outcome::Finished => Ok(display.summary()),
        Outcome::Interrupted => {
            let words = format!("stopped; the same command with --resume goes on: {}", display.summary());
            Err(Interrupted(words).into())
        }
    }
}

/// A run whose weights come from the authors' code.
pub(super) fn import(args: args::ImportWeights) -> anyhow::Result<()> {
    let mut config = presets::get(&args.preset)?;
    if let NetworkConfig::Transformer(network) = &mut config.network {
        // As these weights were trained.
        network.closed_coordinates = network.periodic.contains(&true);
    }
    let set: Vec<String> = args.set.iter().map(|(key, _)| key.clone()).collect();
    let config = config.with(&args.set)?.with_grids(&set)?;
    let folder = RunFolder::new(&args.out);
    let _lock = FolderLock::take(&args.out)?;
    if folder.config_file().exists() {
        bail!("{}: a run is here already", args.out.display());
    }
    let network = config.network.init(config.train.seed, &device::parse("cpu")?)?;
    let network = weights::import_torch(network, &args.file)?;
    let from = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let more = BTreeMap::from([("imported_from".to_string(), from)]);
    for snapshot in [Snapshot::Best, Snapshot::Last] {
        weights::save(&network, &more, folder.weights_file(snapshot))?;
    }
    write_whole(folder.config_file(), config.to_toml().as_bytes())?;
    writeln!(io::stdout(), "wrote {}: {} parameters", args.out.display(), config.network.parameters())?;
    Ok(())
}

/// `galerkin config`: the config of a preset, or one for a dataset.
pub(super) fn print_config(args: args::Config) -> anyhow::Result<()> {
    let config = match (&args.preset, &args.data) {
        (Some(preset), data) => of_preset(preset, data.as_deref(), &[])?,
        (None, Some(data)) => proposed(data, args.network.unwrap_or_default(), &[])?,
        (None, None) => bail!(galerkin::Error::Setting {
            what: "galerkin config".into(),
            why: "it needs a preset or --data DIR".into(),
        }),
    };
    Ok(io::stdout().write_all(config.to_commented_toml().as_bytes())?)
}

/// The preset, the file or the proposal for a dataset, with the changes of the command.
fn config(args: &args::Train) -> anyhow::Result<RunConfig> {
    let Some(what) = &args.what else {
        let why = "it needs a preset, a CONFIG.toml or --data DIR".to_string();
        let data =
            args.data.as_deref().ok_or(galerkin::Error::Setting { what: "galerkin train".into(), why })?;
        // A proposal depends on the memory that is free; a run that goes on keeps what was proposed when it began.
        let begun = args.out.as_ref().map(RunFolder::new).filter(|run| run.config_file().exists());
        if let Some(run) = begun.filter(|_| args.resume) {
            let mut config = run.config()?.with(&args.set)?;
            config.data.folder = data.into();
            return Ok(config);
        }
        return proposed(data, args.network.unwrap_or_default(), &args.set);
    };
    if args.network.is_some() {
        let (what, why) = ("--network".to_string(), format!("{what} says which network it is"));
        bail!(galerkin::Error::Setting { what, why });
    }
    let path = Path::new(what);
    if path.extension().is_some_and(|extension| extension == "toml") || path.is_file() {
        let text = read_text(path, LONGEST)?;
        let mut sets = args.set.clone();
        if let Some(data) = &args.data {
            sets.push(("data.folder".into(), folder_setting(data)?));
        }
        return Ok(RunConfig::parse(&text, path, &sets)?);
    }
    of_preset(what, args.data.as_deref(), &args.set)
}

/// A preset that takes from a dataset what nobody said.
fn of_preset(name: &str, data: Option<&Path>, sets: &[(String, String)]) -> anyhow::Result<RunConfig> {
    let mut config = presets::get(name)?.with(sets)?;
    if let Some(data) = data {
        config.data.folder = data.into();
    }
    let set: Vec<String> = sets.iter().map(|(key, _)| key.clone()).collect();
    match (Dataset::open(&config.data.folder), data) {
        (Ok(dataset), _) => Ok(config.fitted_to(&dataset, &set)?),
        (Err(_), Some(data)) if !data.exists() => Err(missing(data)),
        (Err(error), Some(_)) => Err(error.into()),
        (Err(_), None) => Ok(config.with_grids(&set)?),
    }
}

/// A run for a dataset.
fn proposed(data: &Path, kind: args::NetworkWord, sets: &[(String, String)]) -> anyhow::Result<RunConfig> {
    if !data.exists() {
        return Err(missing(data));
    }
    let kind = match kind {
        args::NetworkWord::Transformer => NetworkKind::Transformer,
        args::NetworkWord::Fno => NetworkKind::Fno,
        args::NetworkWord::Multilevel => NetworkKind::Multilevel,
    };
    let set: Vec<String> = sets.iter().map(|(key, _)| key.clone()).collect();
    Ok(propose(&Dataset::open(data)?, data, kind)?.with(sets)?.with_grids(&set)?)
}

fn missing(data: &Path) -> anyhow::Error {
    let why = "no such dataset; `galerkin import` or `galerkin generate` makes one".to_string();
    galerkin::Error::Setting { what: data.display().to_string(), why }.into()
}

/// Bytes of a config; some thousand are needed.
const LONGEST: u64 = 1 << 20;

/// A folder as `--set` takes it.
fn folder_setting(data: &Path) -> anyhow::Result<String> {
    let data = data.to_str().with_context(|| format!("{}: no UTF-8", data.display()))?;
    Ok(format!("{data:?}"))
}

/// Progress of a training: a bar per epoch, and a line after it.
struct Display<'a> {
    config: &'a RunConfig,
    quiet: bool,
    bar: Option<Progress>,
    started: Instant,
    /// Steps when this process began, and now.
    steps: [u64; 2],
    /// Mean loss of the last epoch.
    loss: Option<f64>,
    rate: f64,
    validation: Option<f64>,
}

impl<'a> Display<'a> {
    fn new(config: &'a RunConfig, quiet: bool) -> Self {
        let started = Instant::now();
        Self { config, quiet, bar: None, started, steps: [0; 2], loss: None, rate: 0.0, validation: None }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Started { parameters, steps, total, memory, time } => {
                self.steps = [steps; 2];
                self.started = Instant::now();
                let grid = self.config.data.grid;
                self.line(format!(
                    "{}: {parameters} parameters, {total} steps of {} samples on grid {grid}; about {} and {} of memory",
                    self.config.name,
                    self.config.train.batch,
                    duration(time),
                    output::megabytes(memory)
                ));
                if steps > 0 {
                    self.line(format!("going on after step {steps}"));
                }
                self.bar = Some(Progress::new(total, "steps", self.quiet));
            }
            // Said even where nothing else is.
            Event::Damaged { why } => {
                _ = writeln!(io::stderr(), "passed over a damaged checkpoint: {why}");
            }
            Event::ClockLost { why } => self.line(format!("the run is timed from here on: {why}")),
            Event::Step { steps, loss, rates: Rates { rate, .. }, .. } => {
                (self.steps[1], self.rate) = (steps, rate);
                let (epoch, part) = self.epoch(steps);
                let validation = self.validation.map_or(String::new(), |v| format!("  validation {v:.5}"));
                let (epochs, speed) = (self.config.train.epochs, self.samples_per_second());
                if let Some(bar) = &mut self.bar {
                    bar.in_part(steps, part, |left| {
                        format!(
                            "steps of epoch {epoch}/{epochs}  loss {loss:.5}{validation}  lr {rate:.1e}  {speed:.0} samples/s  {left} left"
                        )
                    });
                }
            }
            Event::Epoch { epoch, loss, validation, best, .. } => {
                (self.loss, self.validation) = (Some(loss), Some(validation.mean));
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

    /// The epoch that a step belongs to, and its place there.
    fn epoch(&self, steps: u64) -> (u64, [u64; 2]) {
        let per_epoch = self.config.steps_per_epoch();
        let before = steps.saturating_sub(1) / per_epoch;
        (before + 1, [steps - before * per_epoch, per_epoch])
    }

    fn line(&mut self, text: String) {
        match &mut self.bar {
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

    fn steps_per_second(&self) -> f64 {
        (self.steps[1] - self.steps[0]) as f64 / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    fn samples_per_second(&self) -> f64 {
        let train = &self.config.train;
        self.steps_per_second() * train.batch as f64 * train.accumulate as f64
    }

    fn summary(&self) -> String {
        let mut words = format!("{} of {} steps", self.steps[1], self.config.total_steps());
        if self.steps[1] > self.steps[0] {
            let elapsed = duration(self.started.elapsed());
            words.push_str(&format!(", {:.1} steps/s, {elapsed}", self.steps_per_second()));
        }
        if let Some(loss) = self.loss {
            words.push_str(&format!(", loss {loss:.5}"));
        }
        if let Some(validation) = self.validation {
            words.push_str(&format!(", validation error {validation:.5}"));
        }
        words
    }
}

/// Event files of a training.
struct Board {
    folder: PathBuf,
    file: Option<EventFile>,
    failed: Option<io::Error>,
}

impl Board {
    fn new(folder: PathBuf) -> Self {
        Self { folder, file: None, failed: None }
    }

    fn show(&mut self, event: &Event) {
        if let Err(error) = self.write(event) {
            self.failed = Some(error);
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        match (event, &mut self.file) {
            (Event::Started { steps, .. }, file) => *file = Some(EventFile::create(&self.folder, *steps)?),
            (Event::Step { steps, loss, rates, norm }, Some(file)) => {
                let values = [
                    ("train/loss", f64::from(*loss)),
                    ("train/learning_rate", rates.rate),
                    ("train/gradient_norm", *norm),
                ];
                file.scalars(*steps, &values)?;
            }
            (Event::Epoch { step, loss, validation, .. }, Some(file)) => {
                let values = [("train/loss_of_epoch", *loss), ("validation/relative_l2", validation.mean)];
                file.scalars(*step, &values)?;
                file.flush()?;
            }
            _ => {}
        }
        Ok(())
    }
}
