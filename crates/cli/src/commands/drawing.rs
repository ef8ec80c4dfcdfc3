//! Samples of datasets and runs as figures.

use galerkin_data::Array;
use galerkin_data::grid::GridKind;
use galerkin_data::meta::{Meta, Origin};

use crate::figures::{Field, FieldRow, LineRow, Lines, Scene, fields, lines};

/// A sample, of several channels the first.
pub(super) struct Sample {
    pub title: String,
    /// (points…, channels), as the others.
    pub input: Array,
    pub target: Array,
    pub prediction: Option<Array>,
}

/// Curves or pictures, a row per sample.
pub(super) fn draw(title: &str, names: [&str; 2], kind: GridKind, samples: &[Sample]) -> Scene {
    let channels = |array: &Array| first_channel(array);
    let values: Vec<[Vec<f32>; 3]> = samples
        .iter()
        .map(|s| [channels(&s.input), channels(&s.target), s.prediction.as_ref().map_or(vec![], channels)])
        .collect();
    let rows = samples.iter().zip(&values);
    match samples.first().map_or(&[][..], |sample| &sample.input.shape) {
        [points, _] => {
            let rows = rows.map(|(sample, [input, target, prediction])| LineRow {
                title: sample.title.clone(),
                input,
                target,
                prediction: sample.prediction.as_ref().map(|_| &prediction[..]),
            });
            lines(&Lines {
                title,
                x_label: "x",
                y_label: "u",
                names,
                ends: [0.0, 1.0],
                x: &kind.coordinates(*points),
                rows: rows.collect(),
            })
        }
        _ => {
            let rows: Vec<_> = rows
                .map(|(sample, [input, target, prediction])| FieldRow {
                    title: sample.title.clone(),
                    input: field(&sample.input, input),
                    target: field(&sample.target, target),
                    prediction: sample.prediction.as_ref().map(|array| field(array, prediction)),
                })
                .collect();
            fields(title, names, &rows)
        }
    }
}

/// What input and target are called.
pub(super) fn names(meta: &Meta) -> [String; 2] {
    match &meta.problem {
        Origin::Burgers(p) => ["u(x, 0)".into(), format!("u(x, {})", p.time)],
        Origin::Darcy(_) => ["coefficient a(x, y)".into(), "solution u(x, y)".into()],
        Origin::Imported(_) => ["input", "target"].map(String::from),
    }
}

/// The samples of an array (samples, points…, channels).
pub(super) fn rows(array: &Array) -> Vec<Array> {
    let shape = array.shape[1..].to_vec();
    let len = shape.iter().product::<usize>().max(1);
    let row = |values: &[f32]| Array { shape: shape.clone(), values: values.to_vec() };
    array.values.chunks_exact(len).map(row).collect()
}

/// Values on a square, from those of the first channel.
pub(super) fn field<'a>(array: &Array, values: &'a [f32]) -> Field<'a> {
    Field { columns: array.shape.iter().rev().nth(1).copied().unwrap_or(1), values }
}

pub(super) fn first_channel(array: &Array) -> Vec<f32> {
    let channels = array.shape.last().copied().unwrap_or(1).max(1);
    array.values.iter().copied().step_by(channels).collect()
}
