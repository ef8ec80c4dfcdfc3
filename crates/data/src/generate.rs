//! Writes a dataset folder: `inputs.npy` and `targets.npy` (float32, N × grid × 1) and `meta.toml`.
//!
//! The folder grows as `NAME.partial` and is renamed when it is complete, so a folder called NAME is whole. Every few samples
//! both arrays are synced and `progress.toml` is replaced; an interrupted run, killed or asked to stop, goes on from there, and the result
//! has the bytes of an uninterrupted one.

use crate::folder::{self, META};
use crate::io::{npy, write_whole};
use crate::meta::{Checksums, Meta};
use crate::pde::{self, Problem, SampleError};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Why a dataset was not written.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A file could not be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The dataset is there already.
    #[error("{path} exists already")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A half-written folder belongs to other settings.
    #[error(
        "{path} was begun with another {what}: expected {expected}, found {found}; finish it as it was begun, or delete it"
    )]
    OtherSettings {
        /// The half-written folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What was asked for now.
        expected: String,
        /// What the folder was begun with.
        found: String,
    },
    /// A half-written folder does not hold what its record says.
    #[error("{path} is damaged: {reason}; delete the folder to begin again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings cannot be written to a file.
    #[error("settings: {0}")]
    Settings(String),
    /// A description or a record could not be written.
    #[error(transparent)]
    Write(#[from] crate::Error),
    /// A sample could not be made.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The caller asked to stop; what is done is kept.
    #[error("stopped after {complete} of {samples} samples; the same call goes on from there")]
    Stopped {
        /// Samples written.
        complete: u32,
        /// Samples asked for.
        samples: u32,
    },
}

/// What a half-written folder was begun with, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Progress {
    complete: u32,
    samples: u32,
    seed: u64,
    version: String,
    problem: Problem,
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
) -> Result<Meta, GenerateError> {
    if folder.exists() {
        return Err(GenerateError::Exists { path: folder.into() });
    }
    if i64::try_from(seed).is_err() {
        return Err(GenerateError::Settings(format!("seed: expected at most {}, found {seed}", i64::MAX)));
    }
    let partial = with_suffix(folder, ".partial");
    let version = env!("CARGO_PKG_VERSION").to_string();
    let mut record =
        begin(&partial, Progress { complete: 0, samples, seed, version, problem: problem.clone() })?;
    let grid = problem.grid();
    let mut shape = vec![samples as usize];
    shape.extend(&grid.points);
    shape.push(1);
    let mut inputs = ArrayFile::open(partial.join("inputs.npy"), &shape, record.complete)?;
    let mut targets = ArrayFile::open(partial.join("targets.npy"), &shape, record.complete)?;

    pde::generate(problem, seed, record.complete..samples, |index, sample| {
        inputs.append(&sample.input)?;
        targets.append(&sample.target)?;
        record.complete = index + 1;
        let stop = progress(record.complete).is_break() && record.complete < samples;
        if stop || record.complete.is_multiple_of(RECORD_EVERY) || record.complete == samples {
            inputs.sync()?;
            targets.sync()?;
            write_toml(&partial.join("progress.toml"), &record)?;
        }
        if stop {
            return Err(GenerateError::Stopped { complete: record.complete, samples });
        }
        Ok(())
    })?;

    let meta = Meta {
        samples: samples as usize,
        input_channels: 1,
        target_channels: 1,
        seed: Some(seed),
        version: record.version,
        checksums: Checksums { inputs: checksum(&inputs.path)?, targets: checksum(&targets.path)? },
        grid,
        problem: problem.clone().into(),
    };
    write_toml(&partial.join(META), &meta)?;
    fs::rename(&partial, folder).map_err(at(folder))?;
    let record = folder.join("progress.toml");
    fs::remove_file(&record).map_err(at(&record))?;
    Ok(meta)
}

/// CRC-32 of a whole file, in eight hexadecimal digits.
pub fn checksum(path: &Path) -> Result<String, GenerateError> {
    File::open(path).and_then(folder::checksum).map_err(at(path))
}

/// The record of a folder begun before, if it has these settings, or that of a new one.
fn begin(partial: &Path, new: Progress) -> Result<Progress, GenerateError> {
    let path = partial.join("progress.toml");
    if !path.exists() {
        fs::create_dir_all(partial).map_err(at(partial))?;
        write_toml(&path, &new)?;
        return Ok(new);
    }
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    let damaged = |reason: String| GenerateError::Damaged { path: path.clone(), reason };
    let old: Progress = toml::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let differences = [
        ("problem", format!("{:?}", new.problem), format!("{:?}", old.problem)),
        ("seed", new.seed.to_string(), old.seed.to_string()),
        ("number of samples", new.samples.to_string(), old.samples.to_string()),
        ("version", new.version, old.version.clone()),
    ];
    for (what, expected, found) in differences {
        if expected != found {
            return Err(GenerateError::OtherSettings { path: partial.into(), what, expected, found });
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
    fn open(path: PathBuf, shape: &[usize], complete: u32) -> Result<Self, GenerateError> {
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
        let header = npy::header(shape);
        let sample = 4 * shape[1..].iter().product::<usize>() as u64;
        let len = header.len() as u64 + complete as u64 * sample;
        let found = file.metadata().map_err(at(&path))?.len();
        if complete > 0 && found < len {
            let reason = format!("expected at least {len} bytes for {complete} samples, found {found}");
            return Err(GenerateError::Damaged { path, reason });
        }
        let prepare = |file: &mut File| {
            file.set_len(len)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            file.seek(SeekFrom::End(0))
        };
        prepare(&mut file).map_err(at(&path))?;
        Ok(Self { path, file, bytes: Vec::new() })
    }

    fn append(&mut self, values: &[f32]) -> Result<(), GenerateError> {
        self.bytes.clear();
        self.bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.file.write_all(&self.bytes).map_err(at(&self.path))
    }

    fn sync(&self) -> Result<(), GenerateError> {
        self.file.sync_data().map_err(at(&self.path))
    }
}

fn write_toml(path: &Path, value: &impl Serialize) -> Result<(), GenerateError> {
    let text = toml::to_string(value).map_err(|error| GenerateError::Settings(error.to_string()))?;
    Ok(write_whole(path, text.as_bytes())?)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn at(path: &Path) -> impl Fn(io::Error) -> GenerateError {
    move |source| GenerateError::File { path: path.to_owned(), source }
}
