//! Files of others as a dataset folder.
//!
//! Variables of one or several files become `inputs.npy` and `targets.npy`; files that hold the same variable follow each other. Of the
//! variables one at a time is in memory.

use std::ffi::OsString;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::domain::Grid;
use crate::error::{Error, Result};
use crate::folder::{self, INPUTS, TARGETS};
use crate::io::{self, File, Kind, npy};
use crate::meta::{FORMAT, Meta, channel_names};
use crate::values::{Description, Values};

/// What to take from which files.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The variable of the inputs; that of the problem if `None`.
    pub inputs: Option<String>,
    /// The variable of the targets; that of the problem if `None`.
    pub targets: Option<String>,
    /// The problem; told by the names of the variables if `None`.
    pub problem: Option<Known>,
    /// Every so many points are taken; 0 counts as 1.
    pub subsample: usize,
    /// How far compressed variables may grow.
    pub limits: io::Limits,
}

impl Import {
    /// Writes the dataset folder, complete or not at all. Everything is checked before the first value is read; a folder that exists
    /// is left alone.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Meta> {
        let folder = path.as_ref();
        if folder.exists() {
            return Err(Error::content(
                folder,
                "folder",
                "a name that is free",
                "an existing file or folder",
            ));
        }
        let plan = Plan::new(self)?;
        // Not the name under which a dataset is generated: that work can be resumed and must not be written over.
        let mut name = OsString::from(folder.file_name().unwrap_or_default());
        name.push(".importing");
        let partial = folder.with_file_name(name);
        let written = plan.write(&partial).and_then(|meta| {
            fs::rename(&partial, folder).map_err(Error::io(folder))?;
            Ok(meta)
        });
        if written.is_err() {
            // Only what is ours; the error that matters is the first one.
            for file in [folder::inputs_path(&partial), folder::targets_path(&partial)] {
                let _ = fs::remove_file(file);
            }
            let _ = fs::remove_dir(&partial);
        }
        written
    }
}

/// Problems whose published files are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Burgers' equation: `a` and `u`, (samples, n), on a periodic line, as in `burgers_data_R10.mat`.
    Burgers,
    /// Darcy's equation: `coeff` and `sol`, (samples, n, n), on a square with its boundary, as in
    /// `piececonst_r421_N1024_smooth1.mat`.
    Darcy,
}

impl Known {
    /// Whether its grid is periodic.
    pub fn periodic(self) -> bool {
        self == Known::Burgers
    }

    /// Axes of its grid.
    pub fn axes(self) -> usize {
        match self {
            Known::Burgers => 1,
            Known::Darcy => 2,
        }
    }

    /// Names of inputs and targets in the published files.
    pub fn variables(self) -> [&'static str; 2] {
        match self {
            Known::Burgers => ["a", "u"],
            Known::Darcy => ["coeff", "sol"],
        }
    }

    /// The problem whose variables are in one of the files.
    fn recognise(files: &[File]) -> Option<Self> {
        let has = |file: &File, name: &&str| file.variable(name).is_ok();
        [Known::Burgers, Known::Darcy]
            .into_iter()
            .find(|known| files.iter().any(|file| known.variables().iter().all(|name| has(file, name))))
    }
}

/// Files opened and checked, nothing read yet.
#[derive(Debug)]
struct Plan {
    files: Vec<File>,
    problem: Known,
    grid: Grid,
    samples: usize,
    inputs: Part,
    targets: Part,
    subsample: usize,
}

/// One of the two arrays to come.
#[derive(Debug)]
struct Part {
    variable: String,
    channels: usize,
    /// Which files have it.
    files: Vec<usize>,
}

impl Plan {
    /// Checks that everything fits before any value is read.
    fn new(import: &Import) -> Result<Self> {
        let files =
            import.files.iter().map(|file| io::open_with(file, import.limits)).collect::<Result<Vec<_>>>()?;
        let Some(first) = files.first() else {
            return Err(Error::setting("import", "no file was named"));
        };
        let Some(problem) = import.problem.or_else(|| Known::recognise(&files)) else {
            return Err(Error::content(
                first.path(),
                "variables",
                "`a` and `u` (Burgers) or `coeff` and `sol` (Darcy), or to be told the problem",
                files.iter().map(|file| io::known(file.variables())).collect::<Vec<_>>().join("; "),
            ));
        };
        let [inputs, targets] = problem.variables();
        let inputs = import.inputs.as_deref().unwrap_or(inputs);
        let targets = import.targets.as_deref().unwrap_or(targets);
        let (inputs, input_shape) = Part::find(&files, inputs, problem.axes())?;
        let (targets, target_shape) = Part::find(&files, targets, problem.axes())?;
        let points = |shape: &[usize]| shape[..=problem.axes()].to_vec();
        if points(&input_shape) != points(&target_shape) {
            let expected = format!("{:?} and channels, as `{}` has", points(&input_shape), inputs.variable);
            let what = format!("{}: {}", files[targets.files[0]].path().display(), targets.variable);
            return Err(Error::Shape { what, expected, found: target_shape });
        }
        let subsample = import.subsample.max(1);
        let grid = Grid::unit(&input_shape[1..=problem.axes()], problem.periodic());
        if !grid.strides().contains(&subsample) {
            let works: Vec<_> = grid.sizes().iter().map(ToString::to_string).collect();
            let asked = format!("every {subsample}th point");
            return Err(Error::Subsample { grid: grid.to_string(), asked, works: works.join(", ") });
        }
        Ok(Self { files, problem, grid, samples: input_shape[0], inputs, targets, subsample })
    }

    /// Both arrays and their description, into a folder of this name.
    fn write(&self, path: &Path) -> Result<Meta> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let checksums = [
            (INPUTS.to_string(), self.write_array(&self.inputs, &folder::inputs_path(path))?),
            (TARGETS.to_string(), self.write_array(&self.targets, &folder::targets_path(path))?),
        ];
        let name = |file: &File| file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let meta = Meta {
            format: FORMAT,
            samples: self.samples,
            version: env!("CARGO_PKG_VERSION").into(),
            seed: None,
            inputs: channel_names(&self.inputs.variable, self.inputs.channels),
            targets: channel_names(&self.targets.variable, self.targets.channels),
            files: self.files.iter().map(name).collect(),
            split: None,
            checksums: checksums.into(),
            domain: self.grid.every(self.subsample).into(),
            target_domain: None,
            time: None,
            problem: None,
        };
        folder::write_meta(&meta, path)?;
        Ok(meta)
    }

    /// Writes one array, sample by sample, and returns its checksum.
    fn write_array(&self, part: &Part, path: &Path) -> Result<String> {
        let mut output = BufWriter::new(fs::File::create(path).map_err(Error::io(path))?);
        let mut hasher = crc32fast::Hasher::new();
        let mut write = |bytes: &[u8]| {
            hasher.update(bytes);
            output.write_all(bytes).map_err(Error::io(path))
        };
        let points = self.grid.every(self.subsample).points();
        write(&npy::header(&[&[self.samples], &points[..], &[part.channels]].concat()))?;
        let (mut sample, mut bytes) = (Vec::new(), Vec::new());
        for file in part.files.iter().map(|at| &self.files[*at]) {
            let mut array = file.read(&part.variable)?;
            if array.shape.len() == self.problem.axes() + 1 {
                array.shape.push(1);
            }
            let description = Description {
                name: "variable",
                samples: array.shape[0],
                times: None,
                domain: self.grid.clone().into(),
                channels: channel_names(&part.variable, part.channels),
                offsets: None,
            };
            let mut values = Values::from_array(array, description)?;
            values.subsample(self.subsample);
            for index in 0..values.samples() {
                sample.clear();
                bytes.clear();
                values.read(index, &mut sample)?;
                bytes.extend(sample.iter().flat_map(|value| value.to_le_bytes()));
                write(&bytes)?;
            }
        }
        let file = output.into_inner().map_err(|error| Error::io(path)(error.into_error()))?;
        file.sync_all().map_err(Error::io(path))?;
        Ok(folder::checksum_text(hasher))
    }
}

impl Part {
    /// The variable in all files that have it, and its shape (samples, points…, channels) with the samples of all.
    fn find(files: &[File], variable: &str, axes: usize) -> Result<(Self, Vec<usize>)> {
        let mut found = Vec::new();
        let mut whole: Vec<usize> = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let Ok(entry) = file.variable(variable) else { continue };
            if let Kind::Other(words) = &entry.kind {
                let (path, variable) = (file.path().into(), variable.into());
                return Err(Error::Unsupported { path, variable, found: words.clone() });
            }
            let mut shape = entry.shape.clone();
            if shape.len() == axes + 1 {
                shape.push(1);
            }
            let what = || format!("{}: {variable}", file.path().display());
            if shape.len() != axes + 2 || shape[1..].contains(&0) {
                let points = ["n", "n, n"][axes - 1];
                let expected = format!("(samples, {points}) or (samples, {points}, channels)");
                return Err(Error::Shape { what: what(), expected, found: entry.shape.clone() });
            }
            if whole.is_empty() {
                whole = shape;
            } else if whole[1..] == shape[1..] {
                whole[0] += shape[0];
            } else {
                let expected = format!("(samples, …) with {:?}, as the first file has", &whole[1..]);
                return Err(Error::Shape { what: what(), expected, found: entry.shape.clone() });
            }
            found.push(at);
        }
        if found.is_empty() {
            // The error of the first file names what there is; `Plan::new` has seen that there is one.
            files[0].variable(variable)?;
        }
        Ok((Self { variable: variable.into(), channels: whole[axes + 1], files: found }, whole))
    }
}
