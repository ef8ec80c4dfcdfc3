//! Points with weights and cells.

use super::PointVariables;
use super::described::piece;
use super::layout::{Layout, POINTS_FLAG, Word};
use super::sources::{Given, holders};
use super::write::{Column, Target};
use crate::Array;
use crate::domain::{MOST_AXES, Points, Sharing};
use crate::error::{Error, Result};
use crate::io::File;

/// Beyond, a f32 does not count, and files of a dataset are read as f32.
const MOST_COUNTED: usize = 1 << 24;

/// The files that say where points are.
#[derive(Debug)]
pub(super) struct PointPlan {
    pub domain: Points,
    /// By their names in a folder.
    pub targets: Vec<(&'static str, Target)>,
    pub cells: Option<Array>,
}

/// Where the points of a sample begin.
#[derive(Debug)]
pub(super) struct Offsets {
    values: Vec<usize>,
    /// Samples of each part.
    pub samples: Vec<usize>,
}

/// Lengths the axis of points may have; `None` on a grid.
pub(super) fn likely_counts(files: &[File], points: &PointVariables) -> Result<Option<Vec<usize>>> {
    let Some(name) = points.coordinates.first() else { return Ok(None) };
    let all: Vec<_> = (0..files.len()).collect();
    let held = holders(files, &all, name, "--points")?;
    let shape = &files[held[0]].variable(name)?.shape;
    if let Some(layout) = Layout::parse(POINTS_FLAG, &points.layout, false)?
        && layout.0.len() == shape.len()
    {
        return Ok(Some(layout.length(&Word::Points, shape).into_iter().collect()));
    }
    Ok(Some(match shape[..] {
        // All coordinates in one variable.
        [n, dimension] | [_, n, dimension] if points.coordinates.len() == 1 && dimension <= MOST_AXES => {
            vec![n]
        }
        _ => shape.clone(),
    }))
}

/// The values of a variable that several files may have, if all of them have the same.
pub(super) fn read_same(files: &[File], name: &str) -> Result<Array> {
    let all: Vec<_> = (0..files.len()).collect();
    let held = holders(files, &all, name, "variable")?;
    let array = files[held[0]].read(name)?;
    for at in &held[1..] {
        if files[*at].read(name)? != array {
            let [first, other] = [held[0], *at].map(|at| files[at].path().display());
            let why = format!("{first} and {other} have different ones, and all samples share it");
            return Err(Error::setting(format!("variable `{name}`"), why));
        }
    }
    Ok(array)
}

impl PointPlan {
    /// `count` points of each of all samples, or ragged ones with offsets. Where lengths do not tell the axes, they are in the order of
    /// `like`.
    pub(super) fn new(
        points: &PointVariables,
        files: &[File],
        samples: usize,
        count: Option<usize>,
        offsets: Option<&Offsets>,
        like: &Layout,
    ) -> Result<Self> {
        if points.coordinates.is_empty() {
            let why = "values lie at points; --points NAME says where these are";
            return Err(Error::setting(format!("layout {}", like.text()), why));
        }
        let mut target = Target { shape: Vec::new(), places: 0, channels: 0, columns: Vec::new() };
        let mut layout = None;
        for name in &points.coordinates {
            let (column, found) =
                column(points, files, name, "--points", [samples, count.unwrap_or(0)], offsets, like)?;
            let column = Column { first: target.channels, ..column };
            let shared = |layout: &Layout| layout.find(&Word::Samples).is_none();
            if layout.as_ref().is_some_and(|layout| shared(layout) != shared(&found)) {
                let why = "some coordinates are shared by all samples and others not";
                return Err(Error::setting(format!("--points {}", points.coordinates.join(",")), why));
            }
            layout = Some(found);
            target.channels += column.channels;
            target.columns.push(column);
        }
        let shared = layout.is_some_and(|layout| layout.find(&Word::Samples).is_none());
        let sharing = match (offsets, shared) {
            (Some(_), _) => Sharing::Ragged,
            (None, true) => Sharing::Shared,
            (None, false) => Sharing::PerSample,
        };
        let coordinates = match &points.coordinates[..] {
            [_] => ["x", "y", "z"].iter().take(target.channels).map(ToString::to_string).collect(),
            names => names.to_vec(),
        };
        let mut shape = match (sharing, offsets) {
            (Sharing::Ragged, Some(offsets)) => vec![offsets.points()],
            (Sharing::PerSample, _) => vec![samples, count.unwrap_or(0)],
            _ => vec![count.unwrap_or(0)],
        };
        target.places = if sharing == Sharing::Ragged { 1 } else { count.unwrap_or(0) };
        let mut targets = Vec::new();
        if let Some(name) = &points.weights {
            let (weights, found) =
                column(points, files, name, "--weights", [samples, count.unwrap_or(0)], offsets, like)?;
            if found.find(&Word::Samples).is_none() != shared || weights.channels != 1 {
                let expected = if shared {
                    "(points), as points are shared by all samples"
                } else {
                    "(samples, points), as points have"
                };
                return Err(Error::setting(
                    format!("--weights {name}"),
                    format!("expected the axes {expected}"),
                ));
            }
            let places = target.places;
            targets.push((
                "weights",
                Target { shape: shape.clone(), places, channels: 1, columns: vec![weights] },
            ));
        }
        shape.push(target.channels);
        target.shape = shape;
        targets.push(("points", target));
        let cells = match &points.cells {
            None => None,
            Some(name) if offsets.is_some() => {
                let why = "cells are imported where all samples have the same number of points";
                return Err(Error::setting(format!("--cells {name}"), why));
            }
            Some(name) => Some(cells(files, name, points.cells_from, count.unwrap_or(0))?),
        };
        let domain = Points {
            coordinates,
            sharing,
            count: if sharing == Sharing::Ragged { None } else { count },
            weights: points.weights.is_some(),
            corners: cells.as_ref().map(|cells| cells.shape[1]),
        };
        domain.check()?;
        Ok(Self { domain, targets, cells })
    }
}

/// A variable with coordinates or weights of `[samples, count]` points, in all files that have it, and its axes.
fn column(
    points: &PointVariables,
    files: &[File],
    name: &str,
    flag: &str,
    [samples, count]: [usize; 2],
    offsets: Option<&Offsets>,
    like: &Layout,
) -> Result<(Column, Layout)> {
    use Word::{Channels, Points as At, Samples};
    let all: Vec<_> = (0..files.len()).collect();
    let held = holders(files, &all, name, flag)?;
    let shape = files[held[0]].variable(name)?.shape.clone();
    let along = |axis: usize| {
        let lens = held.iter().filter_map(|at| files[*at].variable(name).ok()?.shape.get(axis).copied());
        lens.fold(0, usize::saturating_add)
    };
    let fits = |layout: &Layout| {
        layout.0.len() == shape.len()
            && layout.0.iter().enumerate().all(|(axis, word)| match (word, offsets) {
                (Samples, Some(offsets)) => along(axis) == offsets.points(),
                (Samples, None) => along(axis) == samples,
                (At, _) => shape[axis] == count,
                _ => shape[axis] <= MOST_AXES,
            })
    };
    let said = Layout::parse(POINTS_FLAG, &points.layout, false)?;
    let coordinates = flag == "--points" && points.coordinates.len() == 1;
    let mut readings = match (said, offsets) {
        (Some(said), _) => {
            // The points of all samples take the place of the samples, if they are ragged.
            let ragged = |word: &Word| if offsets.is_some() && *word == At { Samples } else { word.clone() };
            let said = Layout(said.0.iter().map(ragged).collect());
            let single = Layout(said.0.iter().filter(|word| **word != Channels).cloned().collect());
            if coordinates { vec![said, single] } else { vec![single] }
        }
        (None, Some(_)) => vec![Layout(vec![Samples, Channels]), Layout(vec![Samples])],
        (None, None) => {
            let mut readings = vec![vec![At], vec![Samples, At], vec![At, Samples]];
            if coordinates {
                readings.extend([
                    vec![At, Channels],
                    vec![Samples, At, Channels],
                    vec![At, Samples, Channels],
                ]);
            }
            readings.into_iter().map(Layout).collect()
        }
    };
    readings.retain(fits);
    if readings.len() > 1 {
        let order = |layout: &Layout| layout.find(&Samples) < layout.find(&At);
        if let Some(alike) = readings.iter().position(|layout| order(layout) == order(like)) {
            readings = vec![readings.swap_remove(alike)];
        }
    }
    let [layout] = &readings[..] else {
        let shapes: Vec<_> = held
            .iter()
            .filter_map(|at| files[*at].variable(name).ok())
            .map(|variable| format!("{:?}", variable.shape))
            .collect();
        let expected = match offsets {
            Some(offsets) => format!("{} points", offsets.points()),
            None => format!("{count} points, or {samples} samples of them"),
        };
        let why = format!(
            "expected {expected}, found shape {}; {POINTS_FLAG} names the axes",
            shapes.join(" and ")
        );
        return Err(Error::setting(format!("{flag} {name}"), why));
    };
    let shared = layout.find(&Samples).is_none();
    if shared {
        read_same(files, name)?;
    }
    let mut pieces = Vec::new();
    // A shared array is there once, however many files have it.
    for at in if shared { &held[..1] } else { &held[..] } {
        let variable = files[*at].variable(name)?;
        let same = variable.shape.len() == shape.len()
            && (0..shape.len()).all(|axis| layout.0[axis] == Samples || variable.shape[axis] == shape[axis]);
        let summary = files[*at].summary(name)?;
        if !same || summary.nan + summary.infinite > 0 {
            let what = format!("{}: {flag} {name}", files[*at].path().display());
            let why = match same {
                false => format!(
                    "expected the axes {} as {shape:?} has them, found shape {:?}",
                    layout.text(),
                    variable.shape
                ),
                true => format!(
                    "expected finite values, found {} NaN and {} infinite",
                    summary.nan, summary.infinite
                ),
            };
            return Err(Error::setting(what, why));
        }
        pieces.push(piece(*at, variable, layout, &[At], 1));
    }
    let channels = layout.length(&Channels, &shape).unwrap_or(1);
    Ok((Column { first: 0, channels, everywhere: false, pieces }, layout.clone()))
}

/// (cells, corners), numbers of points from 0 on.
fn cells(files: &[File], name: &str, from: usize, count: usize) -> Result<Array> {
    let mut cells = read_same(files, name)?;
    let wrong = |why: String| Err(Error::setting(format!("--cells {name}"), why));
    if count > MOST_COUNTED {
        return wrong(format!("points of cells are numbered up to {MOST_COUNTED}, found {count}"));
    }
    if !matches!(cells.shape[..], [_, 2..=4]) {
        return wrong(format!(
            "expected shape (cells, corners) with 2 to 4 corners, found {:?}",
            cells.shape
        ));
    }
    if let Some(value) = cells.values.iter().find(|value| !(**value >= 0.0 && value.fract() == 0.0)) {
        return wrong(format!("expected numbers of points, found {value}"));
    }
    let least = cells.values.iter().fold(f32::INFINITY, |least, value| least.min(*value));
    let most = cells.values.iter().fold(0.0f32, |most, value| most.max(*value));
    if cells.values.is_empty() {
        return wrong("there are no cells".into());
    }
    if least < from as f32 || most >= from.saturating_add(count) as f32 {
        let mut why = format!("expected numbers of {count} points from {from} on, found {least} to {most}");
        if from == 0 && least == 1.0 && most == count as f32 {
            why += "; if points are counted from 1: --cells-from 1";
        }
        return wrong(why);
    }
    cells.values.iter_mut().for_each(|value| *value -= from as f32);
    Ok(cells)
}

impl Offsets {
    /// Those of every part, one after the other; `along` are the points of each part.
    pub(super) fn read(files: &[File], parts: &[Given], name: &str, along: &[usize]) -> Result<Self> {
        let wrong = |why: String| Err(Error::setting(format!("--offsets {name}"), why));
        let mut offsets = Self { values: vec![0], samples: Vec::new() };
        for (part, points) in parts.iter().zip(along) {
            if !part.own {
                return wrong(
                    "samples with different numbers of points are split by files: --test-files".into(),
                );
            }
            let (before, samples) = (offsets.points(), offsets.values.len());
            for at in holders(files, &part.files, name, "--offsets")? {
                let values = files[at].read(name)?.values;
                let whole =
                    |value: &f32| *value >= 0.0 && *value < MOST_COUNTED as f32 && value.fract() == 0.0;
                let ascending = values.windows(2).all(|pair| pair[0] <= pair[1]);
                if values.first() != Some(&0.0) || !ascending || !values.iter().all(whole) {
                    let expected = "whole numbers from 0 on, none less than the one before";
                    return wrong(format!(
                        "{}: expected {expected}, less than {MOST_COUNTED}",
                        files[at].path().display()
                    ));
                }
                let start = offsets.points();
                offsets.values.extend(values[1..].iter().map(|value| start + *value as usize));
            }
            let found = offsets.points() - before;
            if found != *points || offsets.points() >= MOST_COUNTED {
                return wrong(format!(
                    "expected them to end at the number of points, {points}, found {found}"
                ));
            }
            offsets.samples.push(offsets.values.len() - samples);
        }
        Ok(offsets)
    }

    /// Points of all samples.
    pub(super) fn points(&self) -> usize {
        self.values.last().copied().unwrap_or(0)
    }

    pub(super) fn array(&self) -> Array {
        Array {
            shape: vec![self.values.len()],
            values: self.values.iter().map(|value| *value as f32).collect(),
        }
    }
}
