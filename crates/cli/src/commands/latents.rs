//! Latent functions of a transformer on a square, beside the eigenfunctions of the operator whose problem it learns.

use galerkin::evaluate::{Evaluator, SampleLatents};
use galerkin_data::Array;
use galerkin_data::pde::eigen::eigenfunctions;

use super::drawing::first_channel;
use crate::figures::{Field, Picture, Scene, gallery};

const EIGENFUNCTIONS: usize = 2;
/// Of every layer that is shown.
const CHANNELS: usize = 4;
/// The correlation from which on two channels show the same.
const ALIKE: f64 = 0.9;

/// For the first test sample, on the coarse grid: the coefficient a with the first eigenfunctions of −∇·(a∇·), and some
/// channels of the first and of the last encoder layer. `None` of models that are no transformers on a square.
pub(super) fn draw(evaluator: &Evaluator, title: &str) -> anyhow::Result<Option<Scene>> {
    let Some(SampleLatents { coefficient, layers }) = evaluator.latents()? else { return Ok(None) };
    let columns = coefficient.shape[1];
    let mut rows = vec![("operator −∇·(a∇·)", of_operator(&coefficient)?)];
    match &layers[..] {
        [] => {}
        [only] => rows.push(("encoder layer", of_layer(only))),
        [first, .., last] => {
            rows.push(("first encoder layer", of_layer(first)));
            rows.push(("last encoder layer", of_layer(last)));
        }
    }
    let pictures = rows.iter().map(|(words, functions)| {
        let picture = functions.iter().map(|function| Picture {
            title: function.title.clone(),
            field: Field { columns, values: &function.values },
            signed: function.signed,
        });
        (words.to_string(), picture.collect())
    });
    Ok(Some(gallery(title, &pictures.collect::<Vec<_>>())))
}

struct Function {
    title: String,
    values: Vec<f32>,
    signed: bool,
}

fn of_operator(coefficient: &Array) -> galerkin_data::Result<Vec<Function>> {
    let values = first_channel(coefficient);
    let a: Vec<f64> = values.iter().map(|a| f64::from(*a)).collect();
    let pairs = eigenfunctions(&a, coefficient.shape[0], EIGENFUNCTIONS)?;
    let mut functions = vec![Function { title: "coefficient a".into(), values, signed: false }];
    functions.extend(pairs.iter().enumerate().map(|(k, pair)| Function {
        title: format!("eigenfunction {}, λ = {:.1}", k + 1, pair.value),
        values: pair.function.iter().map(|u| *u as f32).collect(),
        signed: true,
    }));
    Ok(functions)
}

fn of_layer((name, latent): &(String, Array)) -> Vec<Function> {
    let features = latent.shape[2];
    let function = |channel: usize| Function {
        title: format!("{name}: channel {channel}"),
        values: latent.values.iter().copied().skip(channel).step_by(features).collect(),
        signed: true,
    };
    telling(&latent.values, features).into_iter().map(function).collect()
}

/// The channels, of values (points, features), that vary most over the points, most varied first. A channel is passed over if it is
/// [`ALIKE`] one taken before, with the same or the opposite sign; so are constant ones and such that are no numbers.
fn telling(values: &[f32], features: usize) -> Vec<usize> {
    // Every channel less its mean, over its norm, with the norm.
    let normal = |channel: usize| {
        let values = values.iter().skip(channel).step_by(features).map(|v| f64::from(*v));
        let mean = values.clone().sum::<f64>() / values.clone().count() as f64;
        let norm = values.clone().map(|v| (v - mean) * (v - mean)).sum::<f64>().sqrt();
        (channel, norm, values.map(|v| (v - mean) / norm).collect::<Vec<_>>())
    };
    let mut channels: Vec<(usize, f64, Vec<f64>)> = (0..features).map(normal).collect();
    channels.retain(|(_, norm, _)| *norm > 0.0 && norm.is_finite());
    // Stable: of equal ones the first comes first.
    channels.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
    let mut taken: Vec<(usize, Vec<f64>)> = Vec::new();
    for (channel, _, values) in channels {
        let correlation = |other: &[f64]| values.iter().zip(other).map(|(v, w)| v * w).sum::<f64>();
        if taken.len() < CHANNELS && taken.iter().all(|(_, other)| correlation(other).abs() < ALIKE) {
            taken.push((channel, values));
        }
    }
    taken.into_iter().map(|(channel, _)| channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_taken_by_variance_and_not_twice() {
        let points = 64;
        let wave = |frequency: usize, at: usize| {
            let turn = std::f64::consts::TAU * (frequency * at) as f64 / points as f64;
            libm::sin(turn) as f32
        };
        let channels: [&dyn Fn(usize) -> f32; 8] = [
            &|at| 1.0 * wave(1, at),
            // Large, and constant.
            &|_| 1000.0,
            &|at| 5.0 * wave(2, at),
            // The first again, turned round, moved and with a little of another: a correlation of −0.97.
            &|at| 100.0 - 4.0 * wave(1, at) + wave(5, at),
            &|at| if at == 3 { f32::NAN } else { 1e6 * wave(7, at) },
            &|at| 0.1 * wave(3, at),
            &|at| 0.2 * wave(4, at),
            &|at| 0.01 * wave(6, at),
        ];
        let values: Vec<f32> =
            (0..points).flat_map(|at| channels.iter().map(move |channel| channel(at))).collect();
        assert_eq!(telling(&values, 8), [2, 3, 6, 5]);
        assert_eq!(telling(&values[..8], 8), [0; 0]);
        assert_eq!(telling(&[], 8), [0; 0]);
    }
}
