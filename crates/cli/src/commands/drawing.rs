//! Samples of datasets and runs as figures.

use galerkin_data::{Array, Dataset, Domain, Meta, PointSet};

use crate::figures::{Field, Panel, Place, SampleRow, Scene, samples};

/// A sample.
pub(super) struct Sample {
    pub title: String,
    /// (\[times,\] points…, channels), as the others.
    pub input: Array,
    pub target: Array,
    pub prediction: Option<Array>,
    /// Of samples that lie at points: those of the input and those of the target.
    pub points: [Option<PointSet>; 2],
}

/// What is drawn beside the samples: where inputs and targets lie, and what their channels are called.
pub(super) struct Legend {
    pub domains: [Domain; 2],
    pub names: [Vec<String>; 2],
}

impl Legend {
    /// Of a dataset, as it is read now.
    pub fn of(dataset: &Dataset) -> Self {
        let mut names = [dataset.input_channels(), dataset.target_channels()].map(<[String]>::to_vec);
        // A problem has a better name for its one channel.
        if let Some(problem) = dataset.meta().and_then(|meta| meta.problem.as_ref()) {
            let channels = problem.channels();
            for (channel, title) in channels.into_iter().zip(problem.equation().titles()) {
                names.iter_mut().filter(|names| **names == [channel]).for_each(|n| *n = vec![title.clone()]);
            }
        }
        Self { domains: [dataset.domain(), dataset.target_domain()], names }
    }
}

/// The dataset's own words for what it holds.
pub(super) fn describe(meta: &Meta) -> String {
    match &meta.problem {
        Some(problem) => problem.equation().describe(),
        None if meta.files.is_empty() => "of no known problem".into(),
        None => format!("imported from {}", meta.files.join(", ")),
    }
}

/// Curves or pictures, a row per sample.
pub(super) fn draw(title: &str, legend: &Legend, drawn: &[Sample]) -> Scene {
    let x = legend.domains.each_ref().map(line_points);
    let rows: Vec<SampleRow> = drawn
        .iter()
        .map(|sample| {
            let place = |side: usize| place(&legend.domains[side], sample.points[side].as_ref(), &x[side]);
            let [input, target] = [0, 1].map(|side| (place(side), &legend.names[side]));
            SampleRow {
                title: sample.title.clone(),
                input_place: input.0,
                inputs: panels(&sample.input, &legend.domains[0], input.1),
                target_place: target.0,
                targets: panels(&sample.target, &legend.domains[1], target.1),
                predictions: sample.prediction.as_ref().map(|p| panels(p, &legend.domains[1], target.1)),
            }
        })
        .collect();
    samples(title, &rows)
}

fn line_points(domain: &Domain) -> Vec<f64> {
    match domain {
        Domain::Grid(grid) if grid.axes.len() == 1 => grid.axes[0].coordinates(),
        _ => Vec::new(),
    }
}

fn place<'a>(domain: &'a Domain, points: Option<&'a PointSet>, x: &'a [f64]) -> Place<'a> {
    match (domain, points) {
        (Domain::Grid(grid), _) => match &grid.axes[..] {
            [axis] => Place::Line { x, ends: [axis.origin, axis.origin + axis.length], name: &axis.name },
            [one, two] => Place::Plane {
                points: [one.points, two.points],
                lengths: [one.length, two.length],
                names: [&one.name, &two.name],
            },
            axes => {
                let axis = |at: usize| &axes[at];
                Place::Volume {
                    points: [0, 1, 2].map(|at| axis(at).points),
                    lengths: [0, 1, 2].map(|at| axis(at).length),
                    names: [0, 1, 2].map(|at| axis(at).name.as_str()),
                }
            }
        },
        (Domain::Points(_), Some(points)) => Place::Points {
            coordinates: &points.coordinates.values,
            dimension: points.coordinates.shape[1],
            cells: &points.cells,
            corners: points.corners,
        },
        (Domain::Points(_), None) => Place::Points { coordinates: &[], dimension: 1, cells: &[], corners: 0 },
    }
}

/// The channels of a sample; of several times the last.
fn panels(array: &Array, domain: &Domain, names: &[String]) -> Vec<Panel> {
    let channels = names.len().max(1);
    let axes = match domain {
        Domain::Grid(grid) => grid.axes.len(),
        Domain::Points(_) => 1,
    };
    let len = array.shape.iter().rev().take(axes + 1).product::<usize>();
    let last = &array.values[array.values.len().saturating_sub(len)..];
    let panel = |(at, name): (usize, &String)| Panel {
        name: name.clone(),
        values: last.iter().copied().skip(at).step_by(channels).collect(),
    };
    names.iter().enumerate().map(panel).collect()
}

/// Values on a square, from those of the first channel.
pub(super) fn field<'a>(array: &Array, values: &'a [f32]) -> Field<'a> {
    Field { columns: array.shape.iter().rev().nth(1).copied().unwrap_or(1), values }
}

/// The samples of an array (samples, points…, channels).
pub(super) fn rows(array: &Array) -> Vec<Array> {
    let shape = array.shape[1..].to_vec();
    let len = shape.iter().product::<usize>().max(1);
    let row = |values: &[f32]| Array { shape: shape.clone(), values: values.to_vec() };
    array.values.chunks_exact(len).map(row).collect()
}

pub(super) fn first_channel(array: &Array) -> Vec<f32> {
    let channels = array.shape.last().copied().unwrap_or(1).max(1);
    array.values.iter().copied().step_by(channels).collect()
}
