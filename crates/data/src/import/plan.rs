//! Files opened and checked: what is written, and where it lies.

use std::fs;
use std::path::{Path, PathBuf};

use super::axes::Axes;
use super::known::{self, Known};
use super::layout::{self, Asked, Layout, Word};
use super::points::{self, Offsets, PointPlan};
use super::write::{Along, Column, Piece, Target, write_small};
use super::{Import, Variables};
use crate::Array;
use crate::domain::{Domain, Grid};
use crate::error::{Error, Result};
use crate::folder::{self, INPUTS, Side, TARGETS};
use crate::io::{self, File, Kind, Variable};
use crate::meta::{FORMAT, Meta, channel_names};
use crate::split::Parts;

/// Everything that is written. Of the files, all is known but the values.
#[derive(Debug)]
pub(super) struct Plan {
    files: Vec<File>,
    /// Without checksums.
    meta: Meta,
    /// Files by name.
    targets: Vec<(String, Target)>,
    /// Files that are already in memory.
    small: Vec<(String, Array)>,
    memory: usize,
}

/// Samples that are for one thing.
#[derive(Debug)]
struct Given {
    /// Which of the files.
    files: Vec<usize>,
    variables: Variables,
    /// Whether the files are its own.
    own: bool,
}

/// A variable of the dataset and the arrays that hold it, one after the other.
#[derive(Debug)]
struct Series {
    name: String,
    /// Which part, which file, and its name there.
    arrays: Vec<(usize, usize, String)>,
}

impl Plan {
    /// Checks that everything fits.
    pub(super) fn new(import: &Import) -> Result<Self> {
        let (files, parts, known) = open(import)?;
        let ragged = import.points.offsets.is_some();
        let mut layouts = Layouts::parse(import, ragged)?;
        if let Some(known) = known {
            layouts.complete(known, ragged)?;
        }
        let inputs = series(&files, &parts, |variables| &variables.inputs, "--inputs")?;
        let targets = series(&files, &parts, |variables| &variables.targets, "--targets")?;
        let [of_inputs, of_targets] = if ragged {
            [(&inputs, layouts.inputs), (&targets, layouts.targets)].map(|(series, said)| {
                // The points of all samples take the place of the samples.
                let said = said.map_or(vec![Word::Points, Word::Channels], |(_, layout)| layout.0);
                let said =
                    said.into_iter().map(|word| if word == Word::Points { Word::Samples } else { word });
                (series, Layout(said.collect()))
            })
        } else {
            let counts = points::likely_counts(&files, &import.points)?;
            let asked = |series: &[Series], layout| asked(&files, series, layout);
            let [here, there] = [asked(&inputs, layouts.inputs)?, asked(&targets, layouts.targets)?];
            let [here, there] = layout::choose(&here, &there, counts.as_deref())?;
            [(&inputs, here), (&targets, there)]
        };
        let inputs = Described::new(&files, of_inputs.0, of_inputs.1, Side::Inputs, parts.len())?;
        let targets = Described::new(&files, of_targets.0, of_targets.1, Side::Targets, parts.len())?;
        inputs.check_samples(&targets)?;

        // Offsets of ragged points tell the samples, and otherwise the arrays do.
        let offsets = match &import.points.offsets {
            Some(variable) => Some(Offsets::read(
                &files,
                &parts.iter().map(|part| (part.own, &part.files[..])).collect::<Vec<_>>(),
                variable,
                &inputs.samples,
            )?),
            None => None,
        };
        let samples = offsets.as_ref().map_or(&inputs.samples, |offsets| &offsets.samples).clone();
        let all: usize = samples.iter().sum();
        if all == 0 {
            return Err(Error::setting("import", "there is no sample"));
        }

        let everywhere = inputs.layout.is_everywhere() && !ragged;
        if targets.layout.is_everywhere() && !ragged {
            let why =
                format!("layout {}: targets need an axis of a grid or of points", targets.layout.text());
            return Err(Error::setting(targets.name, why));
        }
        let (of_inputs, of_targets) = (inputs.place(), targets.place());
        // Axes of the same names are put into the order of the inputs.
        let same = !everywhere
            && of_targets.iter().all(|(word, _)| of_inputs.iter().any(|(other, _)| other == word));
        let order = |of: &[(Word, usize)]| of.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>();
        let target_order =
            if same && of_inputs.len() == of_targets.len() { order(&of_inputs) } else { order(&of_targets) };
        let input_order = if everywhere { target_order.clone() } else { order(&of_inputs) };

        let subsample = import.subsample.max(1);
        let periodic = match known {
            Some(known) if import.periodic.is_empty() => {
                known.periodic.iter().map(ToString::to_string).collect()
            }
            _ => import.periodic.clone(),
        };
        let mut names: Vec<&str> = Vec::new();
        for (word, _) in of_inputs.iter().chain(&of_targets) {
            if let Word::Space(name) = word
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names.extend(targets.times.map(|_| "time"));
        let axes = Axes::new(import, &files, periodic, &names)?;
        let time = targets.times.map(|times| axes.axis("time", times)).transpose()?;
        let grid = |of: &[(Word, usize)], order: &[Word]| -> Result<Option<Grid>> {
            let mut grid = Grid { axes: Vec::new() };
            for word in order {
                let Word::Space(name) = word else { return Ok(None) };
                let points = of.iter().find(|(other, _)| other == word).map_or(0, |(_, n)| *n);
                grid.axes.push(axes.axis(name, points)?);
            }
            Ok((!order.is_empty()).then_some(grid))
        };
        let target_grid = grid(&of_targets, &target_order)?;
        let input_grid = if everywhere { target_grid.clone() } else { grid(&of_inputs, &input_order)? };
        check_subsample(&input_grid, &target_grid, subsample)?;

        // Points of targets alone have files of their own.
        let count = |of: &[(Word, usize)]| of.iter().find(|(word, _)| *word == Word::Points).map(|(_, n)| *n);
        let side = if input_grid.is_none() { Side::Inputs } else { Side::Targets };
        let counts = [count(&of_inputs), count(&of_targets)];
        if let [Some(here), Some(there)] = counts
            && here != there
        {
            let why = format!("inputs have {here} points and targets {there}; the two share their points");
            return Err(Error::setting("import", why));
        }
        let count = counts[1].or(counts[0]);
        let point_plan = match (count, ragged) {
            (None, false) if import.points.coordinates.is_empty() => None,
            (None, false) => {
                let what = format!("--points {}", import.points.coordinates.join(","));
                let why = format!(
                    "no axis of inputs ({}) and targets ({}) is called `points`; say which with --layout, e.g. samples,points",
                    inputs.layout.text(),
                    targets.layout.text()
                );
                return Err(Error::setting(what, why));
            }
            _ => Some(PointPlan::new(
                &import.points,
                &files,
                all,
                count,
                offsets.as_ref(),
                if counts[0].is_some() { &inputs.layout } else { &targets.layout },
            )?),
        };
        let domain = |grid: Option<Grid>| match (grid, &point_plan) {
            (Some(grid), _) => Ok(Domain::Grid(grid.every(subsample))),
            (None, Some(plan)) => Ok(Domain::Points(plan.domain.clone())),
            (None, None) => Err(Error::setting("import", "values lie nowhere")),
        };
        let (here, there) = (domain(input_grid)?, domain(target_grid)?);

        let header = |domain: &Domain, times: Option<usize>, channels: usize| {
            let mut shape = vec![all];
            if let Some(offsets) = &offsets {
                return vec![offsets.points(), channels];
            }
            shape.extend(times);
            match domain {
                Domain::Grid(grid) => shape.extend(grid.points()),
                Domain::Points(points) => shape.extend(points.count),
            }
            shape.push(channels);
            shape
        };
        let arrays = [
            (INPUTS, &inputs, &here, input_order, everywhere),
            (TARGETS, &targets, &there, target_order, false),
        ];
        let mut outputs = Vec::new();
        for (file, described, domain, order, everywhere) in arrays {
            let shape = header(domain, described.times, described.channels);
            let bytes = shape.iter().try_fold(size_of::<f32>(), |product, n| product.checked_mul(*n));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
                return Err(Error::setting(file, format!("shape {shape:?} is more than a file can hold")));
            }
            let target = described.target(&files, shape, &order, subsample, everywhere);
            outputs.push((file.to_string(), target));
        }
        let mut small = Vec::new();
        if let Some(plan) = point_plan {
            outputs.extend(plan.targets.into_iter().map(|(name, target)| (side.file(name), target)));
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
            time,
            problem: None,
        };
        meta.check()?;
        Ok(Self { files, meta, targets: outputs, small, memory: import.memory })
    }

    /// All files and their description, into a folder of this name.
    pub(super) fn write(&self, path: &Path) -> Result<Meta> {
        fs::create_dir_all(path).map_err(Error::io(path))?;
        let mut meta = self.meta.clone();
        for (name, target) in &self.targets {
            let checksum = target.write(&self.files, &path.join(name), self.memory)?;
            meta.checksums.insert(name.clone(), checksum);
        }
        for (name, array) in &self.small {
            let checksum = write_small(&path.join(name), &array.shape, &array.values)?;
            meta.checksums.insert(name.clone(), checksum);
        }
        folder::write_meta(&meta, path)?;
        Ok(meta)
    }
}

/// Opens the files and says which are for what, with which variables.
fn open(import: &Import) -> Result<(Vec<File>, Vec<Given>, Option<&'static Known>)> {
    if import.files.is_empty() {
        return Err(Error::setting("import", "no file was named"));
    }
    let mut files = Vec::new();
    let mut add = |paths: &[PathBuf]| -> Result<Vec<usize>> {
        let first = files.len();
        for path in paths {
            files.push(io::open_with(path, import.limits)?);
        }
        Ok((first..files.len()).collect())
    };
    let of_train = add(&import.files)?;
    let mut parts = vec![Given { files: of_train.clone(), variables: import.variables.clone(), own: true }];
    for part in [&import.validation, &import.test].into_iter().flatten() {
        let own = !part.files.is_empty();
        let files = if own { add(&part.files)? } else { of_train.clone() };
        parts.push(Given { files, variables: part.variables.clone(), own });
    }
    let unnamed = |variables: &Variables| variables.inputs.is_empty() && variables.targets.is_empty();
    let mut known = None;
    if unnamed(&parts[0].variables) && import.points.coordinates.is_empty() {
        known = known::recognise(&files);
    }
    if let Some(known) = known {
        parts[0].variables =
            Variables { inputs: vec![known.inputs.into()], targets: vec![known.targets.into()] };
    }
    let of_train = parts[0].variables.clone();
    for part in &mut parts {
        if unnamed(&part.variables) {
            if !part.own {
                let why = "samples for validation or test have variables or files of their own";
                return Err(Error::setting("split", why));
            }
            part.variables = of_train.clone();
        }
        for (flag, names) in [("--inputs", &part.variables.inputs), ("--targets", &part.variables.targets)] {
            if names.is_empty() {
                let why = format!("say which variable it is: {flag} NAME; the files have {}", list(&files));
                return Err(Error::setting(&flag[2..], why));
            }
        }
        let counts = |variables: &Variables| [variables.inputs.len(), variables.targets.len()];
        if counts(&part.variables) != counts(&of_train) {
            let [inputs, targets] = counts(&of_train);
            let why =
                format!("all parts have as many variables: {inputs} of inputs and {targets} of targets");
            return Err(Error::setting("split", why));
        }
    }
    Ok((files, parts, known))
}

/// `a [4, 16], u [4, 16]`.
fn list(files: &[File]) -> String {
    const MOST: usize = 20;
    let variables: Vec<_> = files.iter().flat_map(File::variables).collect();
    let words = variables.iter().take(MOST).map(|variable| format!("{} {:?}", variable.name, variable.shape));
    let mut words = words.collect::<Vec<_>>().join(", ");
    if variables.len() > MOST {
        words += &format!(" and {} more", variables.len() - MOST);
    }
    words
}

/// What was said of the axes, each with the flag that said it.
struct Layouts {
    inputs: Option<(&'static str, Layout)>,
    targets: Option<(&'static str, Layout)>,
}

impl Layouts {
    fn parse(import: &Import, ragged: bool) -> Result<Self> {
        let said = |flag: &'static str, words: &[String]| -> Result<_> {
            Ok(Layout::parse(flag, words, ragged)?.map(|layout| (flag, layout)))
        };
        let both = said("--layout", &import.layout)?;
        let inputs = said("--input-layout", &import.input_layout)?;
        if let Some((flag, layout)) = &inputs
            && layout.find(&Word::Time).is_some()
        {
            let why = "time is an axis of targets; of inputs it is one more axis of the grid: call it t";
            return Err(Error::setting(format!("{flag} {}", layout.text()), why));
        }
        let targets = said("--target-layout", &import.target_layout)?;
        Ok(Self { inputs: inputs.or_else(|| both.clone()), targets: targets.or(both) })
    }

    /// What a published file says where nobody else did.
    fn complete(&mut self, known: &Known, ragged: bool) -> Result<()> {
        for (said, words) in
            [(&mut self.inputs, known.input_layout), (&mut self.targets, known.target_layout)]
        {
            if said.is_none() {
                let words: Vec<_> = words.iter().map(ToString::to_string).collect();
                *said = Layout::parse("--layout", &words, ragged)?.map(|layout| ("--layout", layout));
            }
        }
        Ok(())
    }
}

/// The variables of one side, each in all files of all parts that have it.
fn series(
    files: &[File],
    parts: &[Given],
    of: fn(&Variables) -> &Vec<String>,
    flag: &str,
) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (k, name) in of(&parts[0].variables).iter().enumerate() {
        let mut arrays = Vec::new();
        for (part, given) in parts.iter().enumerate() {
            let name = &of(&given.variables)[k];
            let held = holders(files, &given.files, name, flag)?;
            arrays.extend(held.into_iter().map(|file| (part, file, name.clone())));
        }
        all.push(Series { name: name.clone(), arrays });
    }
    Ok(all)
}

/// Which of some files have a variable of numbers.
pub(super) fn holders(files: &[File], among: &[usize], name: &str, flag: &str) -> Result<Vec<usize>> {
    let mut held = Vec::new();
    for at in among.iter().copied() {
        let Ok(variable) = files[at].variable(name) else { continue };
        if let Kind::Other(found) = &variable.kind {
            let (path, variable) = (files[at].path().into(), name.into());
            return Err(Error::Unsupported { path, variable, found: found.clone() });
        }
        // Far beyond every file; products of lengths stay numbers.
        if variable.len() > isize::MAX as usize / size_of::<f64>() {
            let found = format!("shape {:?}", variable.shape);
            return Err(Error::content(files[at].path(), name, "a shape that memory can hold", found));
        }
        held.push(at);
    }
    if held.is_empty() {
        let paths: Vec<_> = among.iter().map(|at| files[*at].path().display().to_string()).collect();
        let known: Vec<_> = among.iter().map(|at| io::known(files[*at].variables())).collect();
        let what = format!("{flag} {name}");
        let why = format!("{}: no variable `{name}`; there are {}", paths.join(", "), known.join("; "));
        return Err(Error::setting(what, why));
    }
    Ok(held)
}

/// The shapes layouts are told by: those of the variable with most axes, whose channels are not left out.
fn asked(files: &[File], series: &[Series], layout: Option<(&'static str, Layout)>) -> Result<Asked> {
    let rank = |series: &Series| {
        let (_, file, name) = &series.arrays[0];
        files[*file].variable(name).map_or(0, |variable| variable.shape.len())
    };
    // The first of those with most axes.
    let widest = series.iter().rev().max_by_key(|series| rank(series));
    let widest = widest.ok_or_else(|| Error::setting("import", "no variable was named"))?;
    let mut shapes = Vec::new();
    for (_, file, name) in &widest.arrays {
        let shape = files[*file].variable(name)?.shape.clone();
        if shape.len() != rank(widest) || shape.is_empty() {
            let expected = match shape.is_empty() {
                true => "an array with an axis of samples".to_string(),
                false => format!("{} axes, as the first file has", rank(widest)),
            };
            return Err(unfit(&files[*file], name, &expected, &shape));
        }
        shapes.push(shape);
    }
    Ok(Asked { name: format!("`{}`", widest.name), shapes, layout })
}

fn unfit(file: &File, variable: &str, expected: &str, found: &[usize]) -> Error {
    Error::setting(
        format!("{}: {variable}", file.path().display()),
        format!("expected {expected}, found shape {found:?}"),
    )
}

/// One side of the dataset: variables, and what their axes are.
#[derive(Debug)]
struct Described<'a> {
    name: String,
    layout: Layout,
    /// The layout of every variable, of which some may have left out their one channel.
    series: Vec<(&'a Series, Layout, usize)>,
    /// Samples of each part.
    samples: Vec<usize>,
    /// Axes along which values lie at different places, without subsampling.
    sizes: Vec<usize>,
    times: Option<usize>,
    channels: usize,
    names: Vec<String>,
}

impl<'a> Described<'a> {
    /// Checks the shapes of all arrays.
    fn new(files: &[File], series: &'a [Series], layout: Layout, side: Side, parts: usize) -> Result<Self> {
        let mut described = Self {
            name: series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>().join(","),
            layout,
            series: Vec::new(),
            samples: Vec::new(),
            sizes: Vec::new(),
            times: None,
            channels: 0,
            names: Vec::new(),
        };
        for series in series {
            let mut samples = vec![0; parts];
            let mut channels = None;
            let mut layout = None;
            for (part, file, name) in &series.arrays {
                let file = &files[*file];
                let shape = &file.variable(name)?.shape;
                let wrong = |expected: &str| {
                    let expected = format!("{expected} with the axes {}", described.layout.text());
                    Err(unfit(file, name, &expected, shape))
                };
                let Some(fitted) = described.layout.fit(shape.len(), side) else {
                    return wrong(&format!("{} axes", described.layout.0.len()));
                };
                let axis = fitted.find(&Word::Samples).unwrap_or(0);
                if shape.iter().enumerate().any(|(at, n)| *n == 0 && at != axis) {
                    return wrong("values");
                }
                let (sizes, times) = (fitted.sizes(shape), fitted.length(&Word::Time, shape));
                let count = fitted.length(&Word::Channels, shape).unwrap_or(1);
                if described.sizes.is_empty() {
                    (described.sizes, described.times) = (sizes.clone(), times);
                }
                if described.sizes != sizes || described.times != times {
                    let sizes: Vec<_> = described.sizes.iter().map(ToString::to_string).collect();
                    let times = described.times.map_or(String::new(), |times| format!(" at {times} times"));
                    return wrong(&format!("{} points{times}, as the arrays before,", sizes.join(" × ")));
                }
                if *channels.get_or_insert(count) != count {
                    return wrong(&format!("{} channels, as the arrays before,", channels.unwrap_or(1)));
                }
                samples[*part] += shape[axis];
                layout = Some(fitted);
            }
            let (Some(layout), Some(channels)) = (layout, channels) else { continue };
            if described.samples.is_empty() {
                described.samples = samples;
            } else if described.samples != samples {
                let why = format!(
                    "expected {:?} samples, as `{}` has, found {samples:?}",
                    described.samples, described.series[0].0.name
                );
                return Err(Error::setting(format!("`{}`", series.name), why));
            }
            described.series.push((series, layout, channels));
            described.channels += channels;
            described.names.extend(channel_names(&series.name, channels));
        }
        Ok(described)
    }

    fn check_samples(&self, targets: &Self) -> Result<()> {
        if self.samples == targets.samples {
            return Ok(());
        }
        let words =
            |samples: &[usize]| samples.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
        let what = format!("inputs `{}` and targets `{}`", self.name, targets.name);
        let why = format!(
            "expected as many samples, found {} with the axes {} and {} with the axes {}; --input-layout and --target-layout name the axes",
            words(&self.samples),
            self.layout.text(),
            words(&targets.samples),
            targets.layout.text()
        );
        Err(Error::setting(what, why))
    }

    /// Axes along which values lie at different places, with their lengths.
    fn place(&self) -> Vec<(Word, usize)> {
        self.layout.place().cloned().zip(self.sizes.iter().copied()).collect()
    }

    /// The file of this side. `order` are its axes of places.
    fn target(
        &self,
        files: &[File],
        shape: Vec<usize>,
        order: &[Word],
        subsample: usize,
        everywhere: bool,
    ) -> Target {
        let mut target = Target {
            places: shape[1..shape.len() - 1].iter().product(),
            channels: self.channels,
            shape,
            columns: Vec::new(),
        };
        let mut first = 0;
        for (series, layout, channels) in &self.series {
            let pieces = series.arrays.iter().filter_map(|(_, file, name)| {
                let variable = files[*file].variable(name).ok()?;
                Some(piece(*file, variable, layout, order, subsample))
            });
            target.columns.push(Column { first, channels: *channels, everywhere, pieces: pieces.collect() });
            first += channels;
        }
        target
    }
}

/// How the values of a variable come to lie as (samples, \[time,\] `order`…, channels).
pub(super) fn piece(
    file: usize,
    variable: &Variable,
    layout: &Layout,
    order: &[Word],
    subsample: usize,
) -> Piece {
    let every = |word: &Word| if matches!(word, Word::Space(_)) { subsample } else { 1 };
    let mut strides = vec![0; layout.0.len()];
    let inside = [Word::Time].into_iter().chain(order.iter().cloned()).chain([Word::Channels]);
    let mut stride = 1;
    for word in inside.collect::<Vec<_>>().iter().rev() {
        if let Some(axis) = layout.find(word) {
            strides[axis] = stride;
            stride *= variable.shape[axis].div_ceil(every(word));
        }
    }
    let samples = layout.length(&Word::Samples, &variable.shape);
    let mut axes = Vec::new();
    if samples.is_none() {
        axes.push(Along::Samples { len: 1 });
    }
    axes.extend(variable.order.iter().map(|axis| match &layout.0[*axis] {
        Word::Samples => Along::Samples { len: variable.shape[*axis] },
        word => Along::Sample { len: variable.shape[*axis], stride: strides[*axis], every: every(word) },
    }));
    Piece::new(file, &variable.name, samples.unwrap_or(1), &axes)
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
