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
    /// The rates and momenta are those that the paper's code gets from PyTorch's `OneCycleLR` with its own arguments, if there are `rise` steps
    /// before the peak.
    OneCycle {
        /// The share of the steps before the peak, in (0, 1).
        #[serde(default = "default_peak")]
        peak: f64,
        /// Steps that the way up to the largest rate takes at least. If fewer are before the peak, that is lower in proportion: the rate
        /// grows no faster, and training does not leave its path.
        #[serde(default)]
        rise: u64,
    },
    /// Linearly up, then along a half cosine down to zero; β₁ = 0.9.
    Cosine {
        /// The share of the steps on the way up, in [0, 1).
        #[serde(default = "default_warmup")]
        warmup: f64,
    },
    /// Always the largest rate; β₁ = 0.9.
    Constant,
}

fn default_peak() -> f64 {
    0.3
}

fn default_warmup() -> f64 {
    0.1
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
    /// Every setting of each kind with what it says of itself.
    pub(crate) const ONE_CYCLE: &'static [(&'static str, &'static str)] = &[
        ("peak", "share of the steps before the largest rate"),
        ("rise", "steps that the way up takes at least; a shorter one ends at a rate as much lower"),
    ];
    pub(crate) const COSINE: &'static [(&'static str, &'static str)] =
        &[("warmup", "share of the steps on the way up")];

    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        let (name, share, fits) = match *self {
            Schedule::OneCycle { peak, .. } => ("peak", peak, peak > 0.0 && peak < 1.0),
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
            Schedule::OneCycle { peak, rise } => {
                let top = peak * total - 1.0;
                let largest =
                    if rise > 0 { largest * (peak * total / rise as f64).min(1.0) } else { largest };
                let (first, last) = (largest / DIVISOR, largest / DIVISOR / DIVISOR);
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
    fn a_short_way_up_ends_lower_and_a_long_one_where_it_would() {
        let largest = |total: u64, rise: u64| {
            let schedule = Schedule::OneCycle { peak: 0.2, rise };
            (0..total).map(|step| schedule.at(step, total, 1e-3).rate).fold(0.0, f64::max)
        };
        assert_eq!(largest(100, 200), 1e-4);
        assert_eq!(largest(1000, 200), 1e-3);
        // With the same bits.
        for step in 0..2000 {
            let at = |rise| Schedule::OneCycle { peak: 0.2, rise }.at(step, 2000, 1e-3);
            assert_eq!(at(200), at(0));
        }
    }

    #[test]
    fn one_cycle_ends_where_it_should_for_any_length() {
        for total in [1, 2, 3, 7, 1000] {
            for peak in [0.1, 0.5, 0.9] {
                let schedule = Schedule::OneCycle { peak, rise: 0 };
                let paces: Vec<Rates> = (0..total).map(|step| schedule.at(step, total, 1e-3)).collect();
                assert!(paces.iter().all(|p| p.rate > 0.0 && p.rate <= 1e-3), "{total} {peak}: {paces:?}");
                assert!(paces.iter().all(|p| (0.85..=0.95).contains(&p.beta1)), "{total} {peak}");
            }
        }
        let schedule = Schedule::OneCycle { peak: 0.25, rise: 0 };
        assert!((schedule.at(24, 100, 1.0).rate - 1.0).abs() < 1e-15);
        assert!((schedule.at(99, 100, 1.0).rate - 1e-8).abs() < 1e-15);
        assert!(Schedule::OneCycle { peak: 1.0, rise: 0 }.check().is_err());
        assert!(Schedule::Cosine { warmup: f64::NAN }.check().is_err());
        assert!(schedule.check().is_ok());
    }
}
