//! Files opened and checked: what is written, and where it lies.

use std::fs;
use std::path::Path;

use super::Import;
use super::axes::Axes;
use super::described::Described;
use super::known::Known;
use super::layout::{self, Layout, Word};
use super::points::{self, Offsets, PointPlan};
use super::sources::{self, Layouts, Series};
use super::write::Target;
use crate::Array;
use crate::domain::{Axis, Domain, Grid};
use crate::error::{Error, Result};
use crate::folder::{self, INPUTS, Side, TARGETS};
use crate::io::File;
use crate::meta::{FORMAT, Meta};
use crate::split::Parts;

/// Most values of a sample that are the same at all points. They are written at every one: a file of few bytes, with many parameters and
/// many points, would fill a disk.
const MOST_PARAMETERS: usize = 1024;

/// Everything that is written. Of the files, all is known but the values.
#[derive(Debug)]
pub(super) struct Plan {
    files: Vec<File>,
    /// Without checksums.
    meta: Meta,
    /// Files by name, and how they come about.
    arrays: Vec<(String, Target)>,
    /// Files that are already in memory.
    small: Vec<(String, Array)>,
    memory: usize,
}

impl Plan {
    /// Checks that everything fits.
    pub(super) fn new(import: &Import) -> Result<Self> {
        let (files, parts, known) = sources::open(import)?;
        let inputs = sources::series(&files, &parts, |variables| &variables.inputs, "--inputs")?;
        let targets = sources::series(&files, &parts, |variables| &variables.targets, "--targets")?;
        let [here, there] = layouts(import, &files, known, &inputs, &targets)?;
        let inputs = Described::new(&files, &inputs, here, Side::Inputs, parts.len())?;
        let targets = Described::new(&files, &targets, there, Side::Targets, parts.len())?;
        inputs.check_samples(&targets)?;

        // Offsets of ragged points tell the samples, and otherwise the arrays do.
        let offsets = import.points.offsets.as_ref();
        let offsets = offsets.map(|name| Offsets::read(&files, &parts, name, &inputs.samples)).transpose()?;
        let samples = offsets.as_ref().map_or(&inputs.samples, |offsets| &offsets.samples).clone();
        let all: usize = samples.iter().sum();
        if all == 0 {
            return Err(Error::setting("import", "there is no sample"));
        }

        let place = Place::new(import, &files, known, &inputs, &targets)?;
        if place.everywhere && inputs.channels > MOST_PARAMETERS {
            let why = format!(
                "expected at most {MOST_PARAMETERS} parameters, which are written at every point of the targets, found {}",
                inputs.channels
            );
            return Err(Error::setting(format!("`{}`", inputs.name), why));
        }
        let point_plan = point_plan(import, &files, all, offsets.as_ref(), &inputs, &targets)?;
        let domain = |grid: &Option<Grid>| match (grid, &point_plan) {
            (Some(grid), _) => Ok(Domain::Grid(grid.clone())),
            (None, Some(plan)) => Ok(Domain::Points(plan.domain.clone())),
            (None, None) => Err(Error::setting("import", "values lie nowhere")),
        };
        let (here, there) = (domain(&place.inputs)?, domain(&place.targets)?);
        let mut arrays = Vec::new();
        for (file, described, domain, order, everywhere) in [
            (INPUTS, &inputs, &here, &place.input_order, place.everywhere),
            (TARGETS, &targets, &there, &place.target_order, false),
        ] {
            let shape = shape(domain, all, offsets.as_ref(), described)?;
            let target = described.target(&files, shape, order, place.subsample, everywhere);
            arrays.push((file.to_string(), target));
        }
        let mut small = Vec::new();
        if let Some(plan) = point_plan {
            // Points of targets alone have names of their own.
            let side = if place.inputs.is_none() { Side::Inputs } else { Side::Targets };
            arrays.extend(plan.targets.into_iter().map(|(name, target)| (side.file(name), target)));
            small.extend(plan.cells.map(|cells| (side.file("cells"), cells)));
            small.extend(offsets.map(|offsets| (side.file("offsets"), offsets.array())));
        }
        let name = |file: &File| file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let meta = Meta {
            format: FORMAT,
            samples: all,
            version: env!("CARGO_PKG_VERSION").into(),
            seed: None,
            inputs: inputs.names,
            targets: targets.names,
            files: files.iter().map(name).collect(),
            split: split(import, &samples),
            checksums: Default::default(),
            target_domain: (here != there).then_some(there),
            domain: here,
            time: place.time,
            problem: None,
        };
        meta.check()?;
        Ok(Self { files, meta, arrays, small, memory: import.memory })
    }

    /// All files and their description, into a folder of this name.
    pub(super) fn write(&self, path: &Path) -> Result<Meta> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let mut meta = self.meta.clone();
        for (name, target) in &self.arrays {
            let checksum = target.write(&self.files, &path.join(name), self.memory)?;
            meta.checksums.insert(name.clone(), checksum);
        }
        for (name, array) in &self.small {
            let checksum = folder::write_array(&path.join(name), array)?;
            meta.checksums.insert(name.clone(), checksum);
        }
        folder::write_meta(&meta, path)?;
        Ok(meta)
    }
}

/// The layouts of inputs and targets.
fn layouts(
    import: &Import,
    files: &[File],
    known: Option<&Known>,
    inputs: &[Series],
    targets: &[Series],
) -> Result<[Layout; 2]> {
    let ragged = import.points.offsets.is_some();
    let mut said = Layouts::parse(import, ragged)?;
    if let Some(known) = known {
        said.complete(known, ragged)?;
    }
    if ragged {
        return Ok([said.inputs, said.targets].map(|said| {
            // The points of all samples take the place of the samples.
            let words = said.map_or(vec![Word::Points, Word::Channels], |(_, layout)| layout.0);
            let instead = |word| if word == Word::Points { Word::Samples } else { word };
            Layout(words.into_iter().map(instead).collect())
        }));
    }
    let counts = points::likely_counts(files, &import.points)?;
    let inputs = sources::asked(files, inputs, said.inputs)?;
    let targets = sources::asked(files, targets, said.targets)?;
    layout::choose(&inputs, &targets, counts.as_deref())
}

/// Where values lie on grids, and in which order.
struct Place {
    /// Axes of places, in the order of the dataset.
    input_order: Vec<Word>,
    target_order: Vec<Word>,
    /// The grid; `None` at points.
    inputs: Option<Grid>,
    targets: Option<Grid>,
    time: Option<Axis>,
    /// Whether inputs are the same at all places of their targets.
    everywhere: bool,
    subsample: usize,
}

impl Place {
    fn new(
        import: &Import,
        files: &[File],
        known: Option<&Known>,
        inputs: &Described<'_>,
        targets: &Described<'_>,
    ) -> Result<Self> {
        let ragged = import.points.offsets.is_some();
        let everywhere = inputs.layout.is_everywhere() && !ragged;
        if targets.layout.is_everywhere() && !ragged {
            let why =
                format!("layout {}: targets need an axis of a grid or of points", targets.layout.text());
            return Err(Error::setting(format!("`{}`", targets.name), why));
        }
        let (here, there) = (inputs.place(), targets.place());
        let order = |of: &[(Word, usize)]| of.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>();
        let (mut input_order, mut target_order) = (order(&here), order(&there));
        if everywhere {
            input_order = target_order.clone();
        } else if here.len() == there.len() && target_order.iter().all(|word| input_order.contains(word)) {
            // Axes of the same names are put into the order of the inputs.
            target_order = input_order.clone();
        }

        let mut names: Vec<&str> = Vec::new();
        for word in input_order.iter().chain(&target_order) {
            if let Word::Space(name) = word
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names.extend(targets.times.map(|_| "time"));
        let periodic = match known {
            Some(known) if import.periodic.is_empty() => {
                known.periodic.iter().map(ToString::to_string).collect()
            }
            _ => import.periodic.clone(),
        };
        let axes = Axes::new(import, files, periodic, &names)?;
        let subsample = import.subsample.max(1);
        let grid = |of: &[(Word, usize)], order: &[Word]| -> Result<Option<Grid>> {
            let mut grid = Grid { axes: Vec::new() };
            for word in order {
                let Word::Space(name) = word else { return Ok(None) };
                let points = of.iter().find(|(other, _)| other == word).map_or(0, |(_, n)| *n);
                grid.axes.push(axes.axis(name, points)?);
            }
            Ok((!order.is_empty()).then_some(grid))
        };
        let of_targets = grid(&there, &target_order)?;
        let of_inputs = if everywhere { of_targets.clone() } else { grid(&here, &input_order)? };
        check_subsample(&of_inputs, &of_targets, subsample)?;
        Ok(Self {
            input_order,
            target_order,
            inputs: of_inputs.map(|grid| grid.every(subsample)),
            targets: of_targets.map(|grid| grid.every(subsample)),
            time: targets.times.map(|times| axes.axis("time", times)).transpose()?,
            everywhere,
            subsample,
        })
    }
}

/// The points, if inputs or targets lie at points.
fn point_plan(
    import: &Import,
    files: &[File],
    samples: usize,
    offsets: Option<&Offsets>,
    inputs: &Described<'_>,
    targets: &Described<'_>,
) -> Result<Option<PointPlan>> {
    let counts = [inputs, targets].map(|described| {
        let place = described.place();
        place.iter().find(|(word, _)| *word == Word::Points).map(|(_, n)| *n)
    });
    if let [Some(here), Some(there)] = counts
        && here != there
    {
        let what = format!("inputs `{}` and targets `{}`", inputs.name, targets.name);
        let why = format!("expected as many points, found {here} and {there}: the two share their points");
        return Err(Error::setting(what, why));
    }
    let count = counts[0].or(counts[1]);
    if count.is_none() && offsets.is_none() {
        if import.points.coordinates.is_empty() {
            return Ok(None);
        }
        let what = format!("--points {}", import.points.coordinates.join(","));
        let (here, there) = (inputs.layout.text(), targets.layout.text());
        let why = format!(
            "no axis of inputs ({here}) and targets ({there}) is called `points`; say which with --layout, e.g. samples,points"
        );
        return Err(Error::setting(what, why));
    }
    let like = if counts[0].is_some() { &inputs.layout } else { &targets.layout };
    PointPlan::new(&import.points, files, samples, count, offsets, like).map(Some)
}

/// The shape of an array of the dataset.
fn shape(
    domain: &Domain,
    samples: usize,
    offsets: Option<&Offsets>,
    described: &Described<'_>,
) -> Result<Vec<usize>> {
    let mut shape = Vec::new();
    match (offsets, domain) {
        (Some(offsets), _) => shape.push(offsets.points()),
        (None, Domain::Grid(grid)) => {
            shape.push(samples);
            shape.extend(described.times);
            shape.extend(grid.points());
        }
        (None, Domain::Points(points)) => {
            shape.push(samples);
            shape.extend(described.times);
            shape.extend(points.count);
        }
    }
    shape.push(described.channels);
    let bytes = shape.iter().try_fold(size_of::<f32>(), |product, n| product.checked_mul(*n));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(shape),
        _ => {
            let why = format!("shape {shape:?} is more than a file can hold");
            Err(Error::setting(format!("`{}`", described.name), why))
        }
    }
}

fn check_subsample(inputs: &Option<Grid>, targets: &Option<Grid>, subsample: usize) -> Result<()> {
    if subsample == 1 {
        return Ok(());
    }
    for grid in [inputs, targets] {
        let Some(grid) = grid else {
            let why = "values lie at points, of which no coarser ones can be taken";
            return Err(Error::setting(format!("--subsample {subsample}"), why));
        };
        if !grid.strides().contains(&subsample) {
            let works: Vec<_> = grid.sizes().iter().map(ToString::to_string).collect();
            let asked = format!("every {subsample}th point");
            return Err(Error::Subsample { grid: grid.to_string(), asked, works: works.join(", ") });
        }
    }
    Ok(())
}

/// The parts one after the other, if there are several.
fn split(import: &Import, samples: &[usize]) -> Option<Parts> {
    let mut at = 0;
    let mut rest = samples.iter();
    let mut next = |there: bool| {
        let len = if there { rest.next().copied().unwrap_or(0) } else { 0 };
        at += len;
        [at - len, at]
    };
    let (train, validation, test) =
        (next(true), next(import.validation.is_some()), next(import.test.is_some()));
    (samples.len() > 1).then_some(Parts { train, validation, test })
}
