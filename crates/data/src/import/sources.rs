//! Files, what they are for, and the variables to take from them.

use std::path::PathBuf;

use super::known::{self, Known};
use super::layout::{Asked, Layout, Word};
use super::{Import, Variables};
use crate::error::{Error, Result, shown};
use crate::io::{self, File};

/// Samples that are for one thing.
#[derive(Debug)]
pub(super) struct Given {
    /// Which of the files.
    pub files: Vec<usize>,
    pub variables: Variables,
    /// Whether the files are its own.
    pub own: bool,
}

/// A variable of the dataset and the arrays that hold it, one after the other.
#[derive(Debug)]
pub(super) struct Series {
    pub name: String,
    /// Which part, which file, and its name there.
    pub arrays: Vec<(usize, usize, String)>,
}

/// Opens the files and says which are for what, with which variables.
pub(super) fn open(import: &Import) -> Result<(Vec<File>, Vec<Given>, Option<&'static Known>)> {
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
    let words =
        variables.iter().take(MOST).map(|variable| format!("{} {:?}", shown(&variable.name), variable.shape));
    let mut words = words.collect::<Vec<_>>().join(", ");
    if variables.len() > MOST {
        words += &format!(" and {} more", variables.len() - MOST);
    }
    words
}

/// The variables of one side, each in all files of all parts that have it.
pub(super) fn series(
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
        if files[at].variable(name).is_err() {
            continue;
        }
        // Lengths are compared with the file before anything goes along them.
        files[at].check(name)?;
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
pub(super) fn asked(
    files: &[File],
    series: &[Series],
    layout: Option<(&'static str, Layout)>,
) -> Result<Asked> {
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

pub(super) fn unfit(file: &File, variable: &str, expected: &str, found: &[usize]) -> Error {
    Error::setting(
        format!("{}: {variable}", file.path().display()),
        format!("expected {expected}, found shape {found:?}"),
    )
}

/// What was said of the axes, each with the flag that said it.
pub(super) struct Layouts {
    pub inputs: Option<(&'static str, Layout)>,
    pub targets: Option<(&'static str, Layout)>,
}

impl Layouts {
    pub(super) fn parse(import: &Import, ragged: bool) -> Result<Self> {
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
    pub(super) fn complete(&mut self, known: &Known, ragged: bool) -> Result<()> {
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
