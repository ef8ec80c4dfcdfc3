//! Proposals, training, evaluation: what the folder of a run begins with, gets and is asked.

use std::path::{Path, PathBuf};

use galerkin::config::RunConfig;
use galerkin::evaluate::{Among, Evaluator};
use galerkin::layers::TargetNormalizer;
use galerkin::propose::{NetworkKind, propose as proposal};
use galerkin::run::{RunFolder, Snapshot};
use galerkin::train::{Event, Outcome, Trainer};
use galerkin::{reference, weights};
use galerkin_data::Dataset;
use galerkin_data::io::{FolderLock, write_whole};
use galerkin_data::normalize::Normalizer;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::array::{In, taken};
use crate::error::{Result, wrong};
use crate::model::cpu;
use crate::work::{compute, watched};

/// Keys and values of settings, as `--set` takes them.
type Settings = Vec<(String, String)>;

/// The names of all presets.
#[pyfunction]
pub fn presets() -> Vec<&'static str> {
    galerkin::presets::names().collect()
}

/// The config of a preset as TOML, fitted to a dataset if there is one.
#[pyfunction]
pub fn preset(py: Python, name: &str, data: Option<PathBuf>, settings: Settings) -> Result<String> {
    compute(py, || {
        let mut config = galerkin::presets::get(name)?.with(&settings)?;
        let set: Vec<String> = settings.iter().map(|(key, _)| key.clone()).collect();
        let Some(data) = data else { return Ok(config.with_grids(&set)?.to_toml()) };
        config.data.folder = data;
        let dataset = Dataset::open(&config.data.folder)?;
        Ok(config.fitted_to(&dataset, &set)?.to_toml())
    })
}

/// A run for a dataset, as TOML.
#[pyfunction]
pub fn propose(py: Python, data: PathBuf, network: &str, settings: Settings) -> Result<String> {
    let kind = match network {
        "transformer" => NetworkKind::Transformer,
        "fno" => NetworkKind::Fno,
        "multilevel" => NetworkKind::Multilevel,
        name => {
            return Err(wrong(format!(
                "network {name:?}: expected transformer, fno, multilevel or a preset"
            )));
        }
    };
    compute(py, || {
        let set: Vec<String> = settings.iter().map(|(key, _)| key.clone()).collect();
        let config = proposal(&Dataset::open(&data)?, &data, kind)?;
        Ok(config.with(&settings)?.with_grids(&set)?.to_toml())
    })
}

fn parsed(config: &str, settings: &Settings) -> Result<RunConfig> {
    Ok(RunConfig::parse(config, Path::new("config"), settings)?)
}

/// Trains the run of a config, which is TOML, and says whether it came to its end. `hear` is told what happens, in dictionaries, and says whether to go on.
#[pyfunction]
pub fn train(py: Python, config: &str, out: PathBuf, resume: bool, hear: Py<PyAny>) -> Result<bool> {
    let config = parsed(config, &Vec::new())?;
    let outcome = watched(
        py,
        |tell| Trainer::new(&config).out(&out).resume(resume).run(&mut |event| tell(event)),
        |py, event: Event| hear.call1(py, (told(py, event)?,))?.is_truthy(py),
    )?;
    Ok(outcome == Outcome::Finished)
}

/// An event in words.
fn told(py: Python, event: Event) -> PyResult<Bound<PyDict>> {
    let dict = PyDict::new(py);
    match event {
        Event::Started { parameters, steps, total, memory, time } => {
            dict.set_item("event", "started")?;
            dict.set_item("parameters", parameters)?;
            dict.set_item("step", steps)?;
            dict.set_item("steps", total)?;
            dict.set_item("memory", memory)?;
            dict.set_item("seconds", time.as_secs_f64())?;
        }
        Event::Step { steps, loss, rates, norm } => {
            dict.set_item("event", "step")?;
            dict.set_item("step", steps)?;
            dict.set_item("loss", loss)?;
            dict.set_item("lr", rates.rate)?;
            dict.set_item("gradient_norm", norm)?;
        }
        Event::Epoch { epoch, step, loss, validation, best } => {
            dict.set_item("event", "epoch")?;
            dict.set_item("epoch", epoch)?;
            dict.set_item("step", step)?;
            dict.set_item("loss", loss)?;
            dict.set_item("validation", validation.mean)?;
            dict.set_item("best", best)?;
        }
        Event::Damaged { why } => {
            dict.set_item("event", "damaged")?;
            dict.set_item("why", why)?;
        }
        Event::ClockLost { why } => {
            dict.set_item("event", "clock_lost")?;
            dict.set_item("why", why)?;
        }
        Event::Saved { path } => {
            dict.set_item("event", "saved")?;
            dict.set_item("path", path)?;
        }
        _ => dict.set_item("event", "other")?,
    }
    Ok(dict)
}

/// The config of a run's folder, as TOML and as JSON.
#[pyfunction]
pub fn run_config(run: PathBuf) -> Result<(String, String)> {
    let config = RunFolder::new(run).config()?;
    let json = serde_json::to_string(&config).map_err(|error| wrong(error.to_string()))?;
    Ok((config.to_toml(), json))
}

/// The epochs of a run, as JSON.
#[pyfunction]
pub fn history(run: PathBuf) -> Result<String> {
    let history = RunFolder::new(run).history()?;
    let epoch = |e: &galerkin::run::Epoch| json!({ "epoch": e.epoch, "step": e.step, "loss": e.loss, "lr": e.rate, "validation": e.validation.mean });
    let epochs: Vec<_> = history.epochs.iter().map(epoch).collect();
    Ok(json!({ "epochs": epochs, "steps": history.steps, "diverged": history.diverged }).to_string())
}

/// Evaluations of a run as JSON; they are added to its `metrics.json`, as the command does.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn evaluate(
    py: Python,
    run: PathBuf,
    data: Option<PathBuf>,
    grids: Vec<usize>,
    noises: Vec<f64>,
    best: bool,
    symmetric: bool,
    include_training: bool,
) -> Result<String> {
    compute(py, || {
        let folder = RunFolder::new(&run);
        let snapshot = if best { Snapshot::Best } else { Snapshot::Last };
        let among = if include_training { Among::All } else { Among::Unseen };
        let mut evaluator = Evaluator::open(&folder, snapshot, data.as_deref(), among, &cpu())?;
        if symmetric {
            evaluator = evaluator.symmetric(&folder)?;
        }
        let mut metrics = evaluator.on_grids(&folder, &grids, &noises, false)?;
        let text = serde_json::to_string(&metrics).expect("numbers and words");
        metrics.evaluations.iter_mut().for_each(|evaluation| evaluation.per_sample.clear());
        // A folder that cannot be written is no reason to fail.
        let _ = metrics.add_to(&folder);
        Ok(text)
    })
}

/// Mean and deviation.
type Statistics<'py> = Option<(In<'py>, In<'py>)>;

/// Makes the folder of a run: a config as TOML, weights by the names of the paper's code, and the normalisers of inputs and of targets.
#[pyfunction]
pub fn save_run(
    py: Python,
    config: &str,
    names: Vec<String>,
    arrays: Vec<In>,
    inputs: Statistics,
    targets: Statistics,
    out: PathBuf,
) -> Result<()> {
    let config = parsed(config, &Vec::new())?;
    let arrays = names.into_iter().zip(&arrays).map(|(name, array)| Ok((name, taken(array)?)));
    let arrays = arrays.collect::<Result<_>>()?;
    let [inputs, targets] =
        [inputs, targets].map(|statistics| statistics.as_ref().map(normalizer).transpose());
    let (inputs, targets) = (inputs?, targets?);
    compute(py, || {
        let network = config.network.init(0, &cpu())?;
        let mut network = reference::import(network, &arrays)
            .map_err(|why| galerkin::Error::Setting { what: "weights".into(), why: why.to_string() })?;
        if let Some(targets) = &targets {
            network = network.with_normalizer(TargetNormalizer::new(targets, &cpu())?);
        }
        let folder = RunFolder::new(&out);
        let _lock = FolderLock::take(&out)?;
        if folder.config_file().exists() {
            return Err(galerkin::Error::Folder { path: out.clone(), why: "a run is here already".into() });
        }
        for snapshot in [Snapshot::Best, Snapshot::Last] {
            weights::save(&network, &Default::default(), folder.weights_file(snapshot))?;
        }
        if let Some(inputs) = &inputs {
            inputs.save(folder.normalizer_file())?;
        }
        Ok(write_whole(folder.config_file(), config.to_toml().as_bytes())?)
    })
}

fn normalizer((mean, deviation): &(In, In)) -> Result<Normalizer> {
    Ok(Normalizer::new(taken(mean)?, taken(deviation)?)?)
}
