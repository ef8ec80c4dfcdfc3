//! Axes of a grid, with origin and length as they were said or as coordinates tell them.

use super::Import;
use crate::domain::Axis;
use crate::error::{Error, Result};
use crate::io::File;

/// Where the axes lie.
pub(super) struct Axes<'a> {
    import: &'a Import,
    files: &'a [File],
    periodic: Vec<String>,
}

impl<'a> Axes<'a> {
    /// Checks that what was said of axes is said of axes there are.
    pub(super) fn new(
        import: &'a Import,
        files: &'a [File],
        periodic: Vec<String>,
        names: &[&str],
    ) -> Result<Self> {
        let axes = Self { import, files, periodic };
        let said = axes.periodic.iter().map(|name| ("--periodic", name));
        let said = said.chain(import.lengths.iter().map(|(name, _)| ("--length", name)));
        let said = said.chain(import.origins.iter().map(|(name, _)| ("--origin", name)));
        for (flag, name) in said.chain(import.coordinates.iter().map(|(name, _)| ("--coordinates", name))) {
            if !names.contains(&name.as_str()) {
                let why = match names {
                    [] => "there is no grid, values lie at points".to_string(),
                    names => format!("no axis has this name; there are {}", names.join(", ")),
                };
                return Err(Error::setting(format!("{flag} {name}"), why));
            }
            if flag == "--periodic" && name == "time" {
                return Err(Error::setting("--periodic time", "time does not come back"));
            }
        }
        for (name, _) in &import.coordinates {
            let told = import.lengths.iter().chain(&import.origins).any(|(other, _)| other == name);
            if told || import.coordinates.iter().filter(|(other, _)| other == name).count() > 1 {
                let why =
                    "origin and length are told by one variable of coordinates, or by --origin and --length";
                return Err(Error::setting(format!("axis {name}"), why));
            }
        }
        Ok(axes)
    }

    /// The axis of this name and so many points.
    pub(super) fn axis(&self, name: &str, points: usize) -> Result<Axis> {
        let mut axis = Axis::unit(name, points, self.periodic.iter().any(|other| other == name));
        let number =
            |said: &[(String, f64)]| said.iter().find(|(other, _)| other == name).map(|(_, number)| *number);
        axis.length = number(&self.import.lengths).unwrap_or(axis.length);
        axis.origin = number(&self.import.origins).unwrap_or(axis.origin);
        if let Some((_, variable)) = self.import.coordinates.iter().find(|(other, _)| other == name) {
            self.place(&mut axis, variable)?;
        }
        Ok(axis)
    }

    /// Origin and length from coordinates.
    fn place(&self, axis: &mut Axis, variable: &str) -> Result<()> {
        let array = super::points::read_same(self.files, variable)?;
        let what = format!("--coordinates {}={variable}", axis.name);
        let wrong = |why: String| Err(Error::setting(what.clone(), why));
        let n = array.values.len();
        // Vectors of MATLAB have an axis of length 1 more.
        if array.shape.iter().filter(|n| **n > 1).count() > 1 || n != axis.points {
            return wrong(format!(
                "expected {} coordinates, as many as there are points along {}, found shape {:?}",
                axis.points, axis.name, array.shape
            ));
        }
        let at = |j: usize| f64::from(array.values[j]);
        if array.values.iter().any(|value| !value.is_finite()) {
            return wrong("expected finite coordinates, found NaN or infinite ones".into());
        }
        axis.origin = at(0);
        if n == 1 {
            return Ok(());
        }
        let spacing = (at(n - 1) - at(0)) / (n - 1) as f64;
        if spacing <= 0.0 {
            return wrong(format!(
                "expected ascending coordinates, found {} at first and {} at last",
                at(0),
                at(n - 1)
            ));
        }
        // Coordinates that a program computed in f32, e.g. by adding up a spacing, are off by some 10⁻⁵ of it. What is rounded to f32 is
        // besides off by half a unit in its last place, and so are the two ends the spacing was taken from.
        let largest = at(0).abs().max(at(n - 1).abs());
        let allowed = 1e-4 * spacing + 2.0 * f64::from(f32::EPSILON) * largest;
        let off = (0..n).find(|j| (at(*j) - (at(0) + spacing * *j as f64)).abs() > allowed);
        if let Some(j) = off {
            let uniform = at(0) + spacing * j as f64;
            return wrong(format!(
                "expected a uniform grid, found {} where it would have {uniform} (point {j}); a grid that is not uniform is \
                 imported as points: --points {variable} --layout samples,points",
                at(j)
            ));
        }
        let intervals = if axis.periodic { n } else { n - 1 };
        axis.length = spacing * intervals as f64;
        Ok(())
    }
}
