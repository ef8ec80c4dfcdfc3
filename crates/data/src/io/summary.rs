//! What `info` says about the values of a variable.

/// Range, mean and the values that are no numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Values in all.
    pub count: u64,
    /// Least finite value; infinite if there is none.
    pub min: f32,
    /// Largest finite value; negatively infinite if there is none.
    pub max: f32,
    /// Mean of the finite values, summed in f64; NaN if there is none.
    pub mean: f64,
    /// Values that are not numbers.
    pub nan: u64,
    /// Infinite values.
    pub infinite: u64,
}

impl Summary {
    /// Of all `values`.
    pub fn of(values: &[f32]) -> Self {
        let mut summary = Self::default();
        summary.add(values);
        summary
    }

    /// As if `values` followed those already counted.
    pub fn add(&mut self, values: &[f32]) {
        let finite = self.count - self.nan - self.infinite;
        let mut sum = if finite == 0 { 0.0 } else { self.mean * finite as f64 };
        for value in values {
            if value.is_nan() {
                self.nan += 1;
            } else if value.is_infinite() {
                self.infinite += 1;
            } else {
                self.min = self.min.min(*value);
                self.max = self.max.max(*value);
                sum += *value as f64;
            }
        }
        self.count += values.len() as u64;
        self.mean = sum / (self.count - self.nan - self.infinite) as f64;
    }
}

impl Default for Summary {
    /// Of nothing.
    fn default() -> Self {
        let (min, max) = (f32::INFINITY, f32::NEG_INFINITY);
        Self { count: 0, min, max, mean: f64::NAN, nan: 0, infinite: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_no_number_and_leaves_it_out_of_the_rest() {
        let mut summary = Summary::of(&[1.0, f32::NAN, -3.0]);
        summary.add(&[f32::INFINITY, f32::NEG_INFINITY, 8.0]);
        assert_eq!(summary, Summary { count: 6, min: -3.0, max: 8.0, mean: 2.0, nan: 1, infinite: 2 });
        assert!(Summary::of(&[f32::NAN]).mean.is_nan());
    }
}
