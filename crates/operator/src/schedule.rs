//! Learning rate and momentum as functions of the step.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the learning rate moves over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Up from 10⁻⁴ of the largest rate and down to 10⁻⁸ of it along two half cosines, β₁ from 0.95 to 0.85 and back.
    ///
    /// The rates and momenta are those that the paper's code gets from PyTorch's `OneCycleLR` with its own arguments.
    OneCycle {
        /// The share of the steps before the peak, in (0, 1).
        peak: f64,
    },
    /// Linearly up, then along a half cosine down to zero; β₁ = 0.9.
    Cosine {
        /// The share of the steps on the way up, in [0, 1).
        warmup: f64,
    },
    /// Always the largest rate; β₁ = 0.9.
    Constant,
}

/// What a step is taken with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The learning rate.
    pub rate: f64,
    /// β₁, Adam's first decay.
    pub beta1: f64,
}

/// The first rate of the one-cycle schedule is the largest divided by this, the last one the first divided by this.
const DIVISOR: f64 = 1e4;
/// Least and most momentum of the one-cycle schedule.
const MOMENTA: [f64; 2] = [0.85, 0.95];

impl Schedule {
    /// Every setting with what it says of itself.
    pub(crate) const SETTINGS: &'static [(&'static str, &'static str)] = &[
        ("peak", "share of the steps before the largest rate"),
        ("warmup", "share of the steps on the way up"),
    ];

    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        let (name, share, fits) = match *self {
            Schedule::OneCycle { peak } => ("peak", peak, peak > 0.0 && peak < 1.0),
            Schedule::Cosine { warmup } => ("warmup", warmup, (0.0..1.0).contains(&warmup)),
            Schedule::Constant => return Ok(()),
        };
        if fits {
            return Ok(());
        }
        Err(Error::setting(format!("schedule: {name} = {share}"), "it is a share of the steps, below 1"))
    }

    /// At `step` of `total`, counted from 0, with the largest rate `largest`.
    pub fn at(&self, step: u64, total: u64, largest: f64) -> Rates {
        let (step, total) = (step as f64, total as f64);
        match *self {
            Schedule::OneCycle { peak } => {
                let (first, last) = (largest / DIVISOR, largest / DIVISOR / DIVISOR);
                let top = peak * total - 1.0;
                let [low, high] = MOMENTA;
                if step <= top {
                    let part = if top > 0.0 { step / top } else { 1.0 };
                    Rates { rate: cosine(first, largest, part), beta1: cosine(high, low, part) }
                } else {
                    let part = ((step - top) / (total - 1.0 - top)).min(1.0);
                    Rates { rate: cosine(largest, last, part), beta1: cosine(low, high, part) }
                }
            }
            Schedule::Cosine { warmup } => {
                let rising = (warmup * total).round();
                let rate = match step < rising {
                    true => largest * (step + 1.0) / rising,
                    false => cosine(largest, 0.0, ((step - rising) / (total - rising).max(1.0)).min(1.0)),
                };
                Rates { rate, beta1: 0.9 }
            }
            Schedule::Constant => Rates { rate: largest, beta1: 0.9 },
        }
    }
}

/// From `a` to `b` along a half cosine.
fn cosine(a: f64, b: f64, part: f64) -> f64 {
    b + (a - b) / 2.0 * (1.0 + libm::cos(PI * part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_rises_and_falls() {
        let rates: Vec<f64> =
            (0..10).map(|step| Schedule::Cosine { warmup: 0.2 }.at(step, 10, 1.0).rate).collect();
        assert_eq!(rates[..3], [0.5, 1.0, 1.0]);
        assert!(rates[2..].is_sorted_by(|a, b| a > b) && rates[9] > 0.0);
        assert_eq!(Schedule::Constant.at(7, 10, 0.3), Rates { rate: 0.3, beta1: 0.9 });
    }

    #[test]
    fn one_cycle_ends_where_it_should_for_any_length() {
        for total in [1, 2, 3, 7, 1000] {
            for peak in [0.1, 0.5, 0.9] {
                let schedule = Schedule::OneCycle { peak };
                let paces: Vec<Rates> = (0..total).map(|step| schedule.at(step, total, 1e-3)).collect();
                assert!(paces.iter().all(|p| p.rate > 0.0 && p.rate <= 1e-3), "{total} {peak}: {paces:?}");
                assert!(paces.iter().all(|p| (0.85..=0.95).contains(&p.beta1)), "{total} {peak}");
            }
        }
        let schedule = Schedule::OneCycle { peak: 0.25 };
        assert!((schedule.at(24, 100, 1.0).rate - 1.0).abs() < 1e-15);
        assert!((schedule.at(99, 100, 1.0).rate - 1e-8).abs() < 1e-15);
        assert!(Schedule::OneCycle { peak: 1.0 }.check().is_err());
        assert!(Schedule::Cosine { warmup: f64::NAN }.check().is_err());
        assert!(schedule.check().is_ok());
    }
}
