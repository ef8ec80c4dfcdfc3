//! Ranges of numbers and the ticks on them.

/// A range of numbers along a side of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

/// Places with their labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    pub marks: Vec<(f64, String)>,
    /// A power of ten that all labels are to be multiplied with.
    pub factor: Option<String>,
}

impl Axis {
    /// From the least to the greatest finite value, never empty.
    pub fn exact(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values.into_iter().filter(|v| v.is_finite())).unwrap_or((0.0, 1.0));
        // A range too short for f32 to have values inside counts as a point.
        let least = 1e-6 * low.abs().max(high.abs());
        if high - low > least {
            return Self { low, high, log: false };
        }
        let around = if low == 0.0 && high == 0.0 { 1.0 } else { 0.1 * low.abs().max(high.abs()) };
        Self { low: low - around, high: high + around, log: false }
    }

    /// [`exact`](Self::exact) with some room at both ends.
    pub fn roomy(values: impl IntoIterator<Item = f64>) -> Self {
        let Self { low, high, .. } = Self::exact(values);
        let room = 0.06 * (high - low);
        Self { low: low - room, high: high + room, log: false }
    }

    /// As far below as above zero.
    pub fn symmetric(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
        let most = if most > 0.0 { most } else { 1.0 };
        Self { low: -most, high: most, log: false }
    }

    /// A logarithmic range with some room at both ends; only positive values count.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = range(values).unwrap_or((0.1, 1.0));
        let (low, high) = (libm::log10(low), libm::log10(high));
        // One value alone is in the middle of a fifth of a decade.
        let room = (0.06 * (high - low)).max(0.1);
        Self { low: libm::pow(10.0, low - room), high: libm::pow(10.0, high + room), log: true }
    }

    /// 0 at the lower end, 1 at the upper; `None` for what is not on the axis at all.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log {
            let (low, high) = (libm::log10(self.low), libm::log10(self.high));
            (libm::log10(value) - low) / (high - low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.is_finite().then_some(place)
    }

    /// About `count` ticks at round numbers.
    pub fn ticks(&self, count: usize) -> Ticks {
        if self.log { self.log_ticks(count) } else { self.linear_ticks(count) }
    }

    /// As few as `count` ticks, but two: one number is no scale.
    pub fn few_ticks(&self, count: usize) -> Ticks {
        let all = (count..count + 4).map(|count| self.ticks(count));
        all.reduce(|few, more| if few.marks.len() < 2 { more } else { few }).expect("four counts")
    }

    fn linear_ticks(&self, count: usize) -> Ticks {
        let rough = (self.high - self.low) / count.max(1) as f64;
        let decade = exponent(rough);
        let unit = ten(decade);
        // The nearest of 1, 2, 5 and 10 units, by ratio: borders are their geometric means.
        let step = match rough / unit {
            small if small < 1.414 => unit,
            small if small < 3.162 => 2.0 * unit,
            large if large < 7.071 => 5.0 * unit,
            _ => 10.0 * unit,
        };
        let (first, last) =
            ((self.low / step - 1e-6).ceil() as i64, (self.high / step + 1e-6).floor() as i64);
        let values: Vec<f64> = (first..=last).map(|k| k as f64 * step).collect();
        let greatest = exponent(values.iter().fold(0.0, |most: f64, v| most.max(v.abs())));
        let shift = if (-2..4).contains(&greatest) { 0 } else { greatest };
        let decimals = (shift - exponent(step)).max(0) as usize;
        let label = |value: f64| minus(format!("{:.decimals$}", value / ten(shift)));
        let factor = (shift != 0).then(|| format!("×{}", power(shift)));
        Ticks { marks: values.into_iter().map(|value| (value, label(value))).collect(), factor }
    }

    fn log_ticks(&self, count: usize) -> Ticks {
        let (low, high) = (libm::log10(self.low), libm::log10(self.high));
        // So little of a decade has too few of its own numbers.
        if high - low < 0.35 {
            return self.linear_ticks(count);
        }
        let inside = |value: &f64| (self.low..=self.high).contains(value);
        let decades = low.floor() as i32..=high.floor() as i32;
        // Powers of ten alone if there are two, else a denser set.
        let dense: &[i32] = match high - low {
            wide if wide >= 2.0 => &[1],
            wide if wide >= 0.7 => &[1, 2, 5],
            _ => &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        };
        let every = ((high - low) / count.max(1) as f64).ceil().max(1.0) as i32;
        let marks = decades
            .filter(|decade| decade.rem_euclid(every) == 0)
            .flat_map(|decade| dense.iter().map(move |m| (decade, *m)))
            .map(|(decade, m)| {
                let value = f64::from(m) * ten(decade);
                (value, if m == 1 { power(decade) } else { format!("{m}×{}", power(decade)) })
            })
            .filter(|(value, _)| inside(value))
            .collect();
        Ticks { marks, factor: None }
    }
}

/// Least and greatest.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((low, high)) => Some((v.min(low), v.max(high))),
    })
}

/// Of the greatest power of ten that is not greater; 0 for 0.
fn exponent(value: f64) -> i32 {
    // Twelve digits round 0.999… of a sum of roundings to 1.
    if value == 0.0 { 0 } else { (libm::log10(value.abs()) + 1e-12).floor() as i32 }
}

fn ten(exponent: i32) -> f64 {
    // The literal is rounded once, whatever the power.
    format!("1e{exponent}").parse().expect("a number")
}

/// 10ⁿ
pub(super) fn power(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = exponent
        .to_string()
        .chars()
        .map(|c| c.to_digit(10).map_or('⁻', |d| DIGITS[d as usize]))
        .collect::<String>();
    format!("10{raised}")
}

/// A true minus sign, and none before zero.
fn minus(number: String) -> String {
    match number.strip_prefix('-') {
        Some(digits) if digits.chars().all(|c| c == '0' || c == '.') => digits.into(),
        Some(digits) => format!("−{digits}"),
        None => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &Ticks) -> Vec<&str> {
        ticks.marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let ticks = Axis { low: -0.31, high: 1.02, log: false }.ticks(5);
        assert_eq!(labels(&ticks), ["−0.2", "0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let ticks = Axis { low: -1.0, high: 1.0, log: false }.ticks(4);
        assert_eq!(labels(&ticks), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
        let ticks = Axis { low: 0.0, high: 500.0, log: false }.ticks(5);
        assert_eq!(labels(&ticks), ["0", "100", "200", "300", "400", "500"]);
    }

    #[test]
    fn small_and_large_numbers_share_a_factor() {
        let ticks = Axis { low: 0.0, high: 0.0042, log: false }.ticks(4);
        assert_eq!((labels(&ticks), ticks.factor.as_deref()), (vec!["0", "1", "2", "3", "4"], Some("×10⁻³")));
        let ticks = Axis { low: 0.0, high: 30_000.0, log: false }.ticks(3);
        assert_eq!((labels(&ticks), ticks.factor.as_deref()), (vec!["0", "1", "2", "3"], Some("×10⁴")));
    }

    #[test]
    fn decades_have_powers_and_less_has_more() {
        assert_eq!(labels(&Axis { low: 2e-4, high: 0.3, log: true }.ticks(5)), ["10⁻³", "10⁻²", "10⁻¹"]);
        assert_eq!(labels(&Axis { low: 0.9, high: 9.0, log: true }.ticks(5)), ["10⁰", "2×10⁰", "5×10⁰"]);
        assert_eq!(
            labels(&Axis { low: 0.15, high: 0.28, log: true }.ticks(5)),
            ["0.16", "0.18", "0.20", "0.22", "0.24", "0.26", "0.28"]
        );
        assert_eq!(labels(&Axis { low: 1e-12, high: 1.0, log: true }.ticks(4)).len(), 5);
    }

    #[test]
    fn a_scale_has_two_numbers() {
        assert_eq!(labels(&Axis { low: -1.9, high: 1.9, log: false }.ticks(1)), ["0"]);
        for k in 1..100 {
            for count in 1..4 {
                let axis = Axis { low: -0.037 * f64::from(k), high: 1.9, log: false };
                assert!((2..8).contains(&axis.few_ticks(count).marks.len()), "{axis:?}");
            }
        }
    }

    #[test]
    fn whatever_the_data_there_is_a_range_and_a_tick() {
        let nothing: [f64; 0] = [];
        let hostile: [&[f64]; 8] = [
            &nothing,
            &[f64::NAN, f64::INFINITY],
            &[0.0, 0.0],
            &[7.25],
            &[1.0, 1.0 + 1e-9],
            &[-1e38, 1e38],
            &[1e-38, 2e-38],
            &[-3.0, -1.0],
        ];
        for values in hostile {
            for axis in
                [Axis::exact, Axis::roomy, Axis::symmetric, Axis::log].map(|make| make(values.to_vec()))
            {
                assert!(axis.low < axis.high, "{values:?} {axis:?}");
                let ticks = axis.ticks(4);
                assert!((1..12).contains(&ticks.marks.len()), "{values:?} {axis:?} {ticks:?}");
                for (value, _) in &ticks.marks {
                    // Ticks may lie a hair outside, as the slack in their choice allows.
                    assert!(
                        (-1e-4..1.0001).contains(&axis.place(*value).unwrap()),
                        "{values:?} {axis:?} {ticks:?}"
                    );
                }
            }
        }
        assert_eq!(Axis::log([1.0]).place(-1.0), None);
        assert_eq!(Axis::log([1.0]).place(0.0), None);
        assert_eq!(Axis::exact([1.0, 2.0]).place(f64::NAN), None);
    }
}
