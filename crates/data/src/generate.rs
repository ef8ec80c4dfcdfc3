//! Writes a dataset folder: `inputs.npy` and `targets.npy` (float32, N × grid × 1), `meta.toml`, and `clock.json`, how long it took.
//!
//! The folder grows as `NAME.partial` and is renamed when it is complete, so a folder called NAME is whole. Every few samples
//! both arrays are synced and `progress.toml` is replaced; an interrupted run, killed or asked to stop, goes on from there, and the result
//! has the bytes of an uninterrupted one, but for the clock.

use crate::clock::{DatasetClock, Stopwatch};
use crate::error::{Error, Result};
use crate::folder::{self, INPUTS, TARGETS};
use crate::io::{FolderLock, npy, write_whole};
use crate::meta::{FORMAT, Meta, channel_names};
use crate::pde::{self, Problem};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// What a half-written folder was begun with, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    complete: u32,
    samples: u32,
    seed: u64,
    version: String,
    problem: Problem,
    /// Of the samples so far.
    #[serde(default)]
    clock: Option<DatasetClock>,
}

/// Samples between two records of progress: what a crash costs at the most.
const RECORD_EVERY: u32 = 32;

/// Writes samples 0 … `samples` − 1 of a problem to `folder`, or the rest of them if the folder was begun before.
///
/// `progress` is told how many samples are done, and may stop the work.
pub fn write_dataset(
    folder: &Path,
    problem: &Problem,
    seed: u64,
    samples: u32,
    mut progress: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Meta> {
    if folder.exists() {
        return Err(Error::Exists { path: folder.into() });
    }
    if i64::try_from(seed).is_err() {
        return Err(Error::setting(format!("seed {seed}"), format!("it is at most {}", i64::MAX)));
    }
    let partial = with_suffix(folder, ".partial");
    let mut lock = FolderLock::take(&partial)?;
    if folder.exists() {
        // Another process has finished it since.
        return Err(Error::Exists { path: folder.into() });
    }
    let version = env!("CARGO_PKG_VERSION").to_string();
    let new = Record { complete: 0, samples, seed, version, problem: problem.clone(), clock: None };
    let mut record = begin(&partial, new)?;
    let (begun, timed) = (record.complete, record.clock.map_or(0, |clock| clock.samples));
    let grid = problem.grid();
    let mut shape = vec![samples as usize];
    shape.extend(grid.points());
    shape.push(1);
    let mut inputs = ArrayFile::open(partial.join(INPUTS), &shape, record.complete)?;
    let mut targets = ArrayFile::open(partial.join(TARGETS), &shape, record.complete)?;

    let watch = record.clock.map_or_else(Stopwatch::start, |clock| Stopwatch::after(clock.spent));
    pde::generate(problem, seed, begun..samples, |index, sample| {
        inputs.append(&sample.input)?;
        targets.append(&sample.target)?;
        record.complete = index + 1;
        let stop = progress(record.complete).is_break() && record.complete < samples;
        if stop || record.complete.is_multiple_of(RECORD_EVERY) || record.complete == samples {
            inputs.sync()?;
            targets.sync()?;
            let timed = timed + record.complete - begun;
            record.clock = Some(DatasetClock { spent: watch.spent(), samples: timed });
            write_toml(&partial.join("progress.toml"), &record)?;
        }
        if stop {
            return Err(Error::Stopped { complete: record.complete, samples });
        }
        Ok(())
    })?;

    let meta = Meta {
        format: FORMAT,
        samples: samples as usize,
        version: record.version,
        seed: Some(seed),
        inputs: channel_names(problem.channels()[0], 1),
        targets: channel_names(problem.channels()[1], 1),
        files: Vec::new(),
        split: None,
        checksums: [(INPUTS, &inputs.path), (TARGETS, &targets.path)]
            .into_iter()
            .map(|(name, path)| Ok((name.to_string(), checksum(path)?)))
            .collect::<Result<_>>()?,
        domain: grid.into(),
        target_domain: None,
        time: None,
        problem: Some(problem.clone()),
    };
    if let Some(clock) = record.clock {
        clock.write(&partial)?;
    }
    folder::write_meta(&meta, &partial)?;
    fs::rename(&partial, folder).map_err(Error::io(folder))?;
    lock.renamed(folder);
    let record = folder.join("progress.toml");
    fs::remove_file(&record).map_err(Error::io(&record))?;
    Ok(meta)
}

/// CRC-32 of a whole file, in eight hexadecimal digits.
pub fn checksum(path: &Path) -> Result<String> {
    File::open(path).and_then(folder::checksum).map_err(Error::io(path))
}

/// The record of a folder begun before, if it has these settings, or that of a new one.
fn begin(partial: &Path, new: Record) -> Result<Record> {
    let path = partial.join("progress.toml");
    if !path.exists() {
        write_toml(&path, &new)?;
        return Ok(new);
    }
    let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
    let damaged = |reason: String| Error::Damaged { path: path.clone(), reason };
    let old: Record = toml::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let differences = [
        ("problem", format!("{:?}", new.problem), format!("{:?}", old.problem)),
        ("seed", new.seed.to_string(), old.seed.to_string()),
        ("number of samples", new.samples.to_string(), old.samples.to_string()),
        ("version", new.version, old.version.clone()),
    ];
    for (what, expected, found) in differences {
        if expected != found {
            return Err(Error::Begun { path: partial.into(), what, expected, found });
        }
    }
    if old.complete > old.samples {
        return Err(damaged(format!("{} of {} samples complete", old.complete, old.samples)));
    }
    Ok(old)
}

/// A float32 `.npy` file that grows sample by sample.
struct ArrayFile {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
}

impl ArrayFile {
    /// Opens a file of an array of this shape, of which so many samples are complete; what follows them is cut off.
    fn open(path: PathBuf, shape: &[usize], complete: u32) -> Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io(&path))?;
        let header = npy::header(shape);
        let sample = 4 * shape[1..].iter().product::<usize>() as u64;
        let len = header.len() as u64 + complete as u64 * sample;
        let found = file.metadata().map_err(Error::io(&path))?.len();
        if complete > 0 && found < len {
            let reason = format!("expected at least {len} bytes for {complete} samples, found {found}");
            return Err(Error::Damaged { path, reason });
        }
        let prepare = |file: &mut File| {
            file.set_len(len)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            file.seek(SeekFrom::End(0))
        };
        prepare(&mut file).map_err(Error::io(&path))?;
        Ok(Self { path, file, bytes: Vec::new() })
    }

    fn append(&mut self, values: &[f32]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.file.write_all(&self.bytes).map_err(Error::io(&self.path))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(Error::io(&self.path))
    }
}

fn write_toml(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = toml::to_string(value).map_err(|error| Error::setting("settings", error.to_string()))?;
    write_whole(path, text.as_bytes())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
