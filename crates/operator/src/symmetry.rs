//! Symmetries: changes of input and target together that make another sample of the same problem out of one.
//!
//! A [`Symmetry`] is words, as configs and problems name it. A [`Group`] is several of them on the grids and channels of a dataset, an [`Element`] says
//! how far each one goes, and a [`Map`] is what comes of it for one array: a permutation of points and of channels, with signs. Nothing is interpolated.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use galerkin_data::random::Stream;
use galerkin_data::{Array, Dataset, Grid};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A change of the grid, and behind it what it does to channels: `shift x`, `flip x -u` (the sign of u changes), `transpose u~v` (u and v change
/// places), `transpose x y` of two axes of three.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Symmetry {
    operation: Operation,
    changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    Shift(String),
    Flip(String),
    /// Of the two axes that there are, or of those named.
    Transpose(Option<[String; 2]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Negate(String),
    Swap([String; 2]),
}

impl FromStr for Symmetry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let grammar = "expected `shift AXIS`, `flip AXIS` or `transpose [AXIS AXIS]`, and behind it `-CHANNEL` or `CHANNEL~CHANNEL`";
            Error::setting(format!("symmetry {text:?}"), format!("{why}; {grammar}"))
        };
        let mut words = text.split_whitespace().peekable();
        let operation = words.next().ok_or_else(|| wrong("it is empty"))?;
        let is_change = |word: &&str| word.starts_with('-') || word.contains('~');
        let mut axes = Vec::new();
        while let Some(axis) = words.next_if(|word| !is_change(word)) {
            axes.push(axis.to_string());
        }
        let operation = match (operation, <[String; 1]>::try_from(axes.clone()), &axes[..]) {
            ("shift", Ok([axis]), _) => Operation::Shift(axis),
            ("flip", Ok([axis]), _) => Operation::Flip(axis),
            ("transpose", _, []) => Operation::Transpose(None),
            ("transpose", _, [a, b]) if a != b => Operation::Transpose(Some([a.clone(), b.clone()])),
            ("shift" | "flip", ..) => return Err(wrong(&format!("it names {} axes", axes.len()))),
            ("transpose", ..) => return Err(wrong("it needs two different axes, or none")),
            (other, ..) => return Err(wrong(&format!("there is no {other:?}"))),
        };
        let mut changes = Vec::new();
        let mut seen = BTreeSet::new();
        for word in words {
            let (change, names) = match (word.strip_prefix('-'), word.split_once('~')) {
                (None, Some((a, b))) => (Change::Swap([a.into(), b.into()]), vec![a, b]),
                (Some(name), None) => (Change::Negate(name.into()), vec![name]),
                _ => return Err(wrong(&format!("there is no {word:?}"))),
            };
            for name in names {
                if name.is_empty() || name.contains('~') {
                    return Err(wrong(&format!("{word:?} names no channel")));
                }
                if !seen.insert(name) {
                    return Err(wrong(&format!("it changes {name} twice")));
                }
            }
            changes.push(change);
        }
        Ok(Self { operation, changes })
    }
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            Operation::Shift(axis) => write!(f, "shift {axis}")?,
            Operation::Flip(axis) => write!(f, "flip {axis}")?,
            Operation::Transpose(None) => write!(f, "transpose")?,
            Operation::Transpose(Some([a, b])) => write!(f, "transpose {a} {b}")?,
        }
        self.changes.iter().try_for_each(|change| match change {
            Change::Negate(name) => write!(f, " -{name}"),
            Change::Swap([a, b]) => write!(f, " {a}~{b}"),
        })
    }
}

impl TryFrom<String> for Symmetry {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Symmetry> for String {
    fn from(symmetry: Symmetry) -> Self {
        symmetry.to_string()
    }
}

impl Symmetry {
    /// Those that a problem declares.
    pub fn declared(texts: &[&str]) -> Result<Vec<Self>> {
        texts.iter().map(|text| text.parse()).collect()
    }

    /// Whether it is a shift.
    pub fn is_shift(&self) -> bool {
        matches!(self.operation, Operation::Shift(_))
    }

    /// Whether it is a flip.
    pub fn is_flip(&self) -> bool {
        matches!(self.operation, Operation::Flip(_))
    }

    /// Whether it does anything to a channel of this name.
    pub(crate) fn changes(&self, channel: &str) -> bool {
        self.changes.iter().any(|change| match change {
            Change::Negate(name) => name == channel,
            Change::Swap(names) => names.iter().any(|name| name == channel),
        })
    }

    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::setting(format!("symmetry \"{self}\""), why)
    }

    /// The number of an axis that inputs and targets share.
    fn axis(&self, name: &str, grids: [&Grid; 2]) -> Result<usize> {
        let [inputs, targets] = grids;
        let Some(at) = inputs.axes.iter().position(|axis| axis.name == name) else {
            let names: Vec<_> = inputs.axes.iter().map(|axis| axis.name.as_str()).collect();
            return Err(self.wrong(format!("there is no axis {name}; the axes are {}", names.join(", "))));
        };
        let place = |grid: &Grid| {
            let axis = grid.axes.get(at)?;
            Some((axis.name.clone(), axis.origin, axis.length, axis.periodic))
        };
        match place(inputs) == place(targets) {
            true => Ok(at),
            false => {
                Err(self
                    .wrong(format!("inputs lie on {inputs}, targets on {targets}: {name} is not the same")))
            }
        }
    }

    fn act(&self, grids: [&Grid; 2]) -> Result<Act> {
        let [inputs, targets] = grids;
        match &self.operation {
            Operation::Flip(name) => Ok(Act::Flip(self.axis(name, grids)?)),
            Operation::Shift(name) => {
                let axis = self.axis(name, grids)?;
                if !inputs.axes[axis].periodic {
                    return Err(
                        self.wrong(format!("{name} is closed, and only periodic axes can be shifted"))
                    );
                }
                let [from, to] = [inputs, targets].map(|grid| grid.axes[axis].points);
                let (least, most) = (from.min(to), from.max(to));
                if !most.is_multiple_of(least) {
                    let why = format!(
                        "inputs have {from} points along {name}, targets {to}: a whole point of one is none of the other"
                    );
                    return Err(self.wrong(why));
                }
                Ok(Act::Shift { axis, positions: least })
            }
            Operation::Transpose(names) => {
                let axes = match names {
                    Some([a, b]) => [self.axis(a, grids)?, self.axis(b, grids)?],
                    None => match &inputs.axes[..] {
                        [a, b] => [self.axis(&a.name, grids)?, self.axis(&b.name, grids)?],
                        axes => {
                            let why =
                                format!("there are {} axes; name two, as in `transpose x y`", axes.len());
                            return Err(self.wrong(why));
                        }
                    },
                };
                for grid in grids {
                    let [a, b] = axes.map(|axis| &grid.axes[axis]);
                    if (a.points, a.length, a.periodic) != (b.points, b.length, b.periodic) {
                        let why = format!(
                            "{} and {} must have the same points, length and kind; found {grid} of lengths {} and {}",
                            a.name, b.name, a.length, b.length
                        );
                        return Err(self.wrong(why));
                    }
                }
                Ok(Act::Transpose(axes))
            }
        }
    }

    /// What becomes of the channels of inputs and of targets.
    fn channels(&self, names: [&[String]; 2]) -> Result<[Vec<Channel>; 2]> {
        let mut channels =
            names.map(|names| (0..names.len()).map(|from| Channel { from, sign: 1.0 }).collect());
        let missing = |what: &str| {
            let [inputs, targets] = names.map(|names| names.join(", "));
            self.wrong(format!("{what}; inputs have {inputs}, targets {targets}"))
        };
        for change in &self.changes {
            let mut found = false;
            for (names, channels) in names.iter().zip(&mut channels) {
                let channels: &mut Vec<Channel> = channels;
                let at = |name: &String| names.iter().position(|known| known == name);
                match change {
                    Change::Negate(name) => {
                        if let Some(at) = at(name) {
                            channels[at].sign = -1.0;
                            found = true;
                        }
                    }
                    Change::Swap([a, b]) => match (at(a), at(b)) {
                        (Some(a), Some(b)) => {
                            channels.swap(a, b);
                            found = true;
                        }
                        (None, None) => {}
                        _ => return Err(missing(&format!("{a} and {b} are not channels of one array"))),
                    },
                }
            }
            if !found {
                return Err(missing(&match change {
                    Change::Negate(name) => format!("there is no channel {name}"),
                    Change::Swap([a, b]) => format!("there are no channels {a} and {b}"),
                }));
            }
        }
        Ok(channels)
    }
}

/// Where an array lies and what its channels are called.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The grid.
    pub grid: &'a Grid,
    /// Names of the channels.
    pub channels: &'a [String],
}

/// Symmetries on the grids and channels of inputs and targets.
#[derive(Clone, Debug)]
pub struct Group {
    /// Points and, for every axis, whether it is periodic; of inputs and of targets.
    grids: [Vec<(usize, bool)>; 2],
    counts: [usize; 2],
    generators: Vec<Generator>,
}

#[derive(Clone, Debug)]
struct Generator {
    act: Act,
    channels: [Vec<Channel>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// By one of so many steps, each a whole number of points of both grids.
    Shift {
        axis: usize,
        positions: usize,
    },
    Flip(usize),
    Transpose([usize; 2]),
}

/// How far each symmetry of a group goes: steps of a shift; 0 or 1 of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element(Vec<usize>);

/// Where a channel comes from, and with which sign.
#[derive(Clone, Copy, Debug)]
struct Channel {
    from: usize,
    sign: f32,
}

/// What an element does with arrays (points…, channels).
#[derive(Clone, Debug)]
pub struct Map {
    axes: Vec<AxisMap>,
    channels: Vec<Channel>,
}

/// An axis of the result.
#[derive(Clone, Debug)]
struct AxisMap {
    /// The axis it comes from.
    from: usize,
    /// For every point of it, how many points of the array come before its source.
    offsets: Vec<usize>,
    /// −1 if it runs the other way.
    sign: f32,
}

impl Group {
    /// Symmetries of the samples of a dataset as they are now on their grids; an error if one of them is none.
    pub fn of(symmetries: &[Symmetry], dataset: &Dataset) -> Result<Self> {
        let (inputs, targets) = (dataset.grid()?, dataset.target_grid()?);
        let group = Self::new(
            symmetries,
            [
                Side { grid: &inputs, channels: dataset.input_channels() },
                Side { grid: &targets, channels: dataset.target_channels() },
            ],
        )?;
        for (symmetry, generator) in symmetries.iter().zip(&group.generators) {
            if let Act::Flip(axis) = generator.act
                && !dataset.mirrors_targets(axis)
            {
                let why = "the windows that targets are averaged over are not their own mirror image; take a data.coarse whose windows are";
                return Err(symmetry.wrong(why));
            }
        }
        Ok(group)
    }

    /// Symmetries of inputs and targets; an error if their axes or channels are not there or do not fit.
    pub fn new(symmetries: &[Symmetry], sides: [Side; 2]) -> Result<Self> {
        let generator = |symmetry: &Symmetry| {
            let act = symmetry.act(sides.map(|side| side.grid))?;
            Ok(Generator { act, channels: symmetry.channels(sides.map(|side| side.channels))? })
        };
        let axes = |side: Side| side.grid.axes.iter().map(|axis| (axis.points, axis.periodic)).collect();
        Ok(Self {
            grids: sides.map(axes),
            counts: sides.map(|side| side.channels.len()),
            generators: symmetries.iter().map(generator).collect::<Result<_>>()?,
        })
    }

    /// The number of symmetries.
    pub fn len(&self) -> usize {
        self.generators.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.generators.is_empty()
    }

    /// A random element, from as many numbers of a stream as there are symmetries: shifts are uniform, the others come every other time.
    pub fn draw(&self, stream: &Stream, first: u64) -> Element {
        let far = |(generator, position): (&Generator, u64)| {
            let number = stream.uniform(position);
            match generator.act {
                Act::Shift { positions, .. } => ((number * positions as f64) as usize).min(positions - 1),
                Act::Flip(_) | Act::Transpose(_) => usize::from(number < 0.5),
            }
        };
        Element(self.generators.iter().zip(first..).map(far).collect())
    }

    /// All combinations of flips and transpositions, that of none first.
    pub fn reflections(&self) -> Vec<Element> {
        let mut all = vec![Vec::new()];
        for generator in &self.generators {
            let most = if matches!(generator.act, Act::Shift { .. }) { 0 } else { 1 };
            all = (0..=most).flat_map(|far| all.iter().map(move |e| [&e[..], &[far]].concat())).collect();
        }
        all.into_iter().map(Element).collect()
    }

    /// What an element does with inputs.
    pub fn inputs(&self, element: &Element) -> Map {
        self.map(0, self.generators.iter().zip(element.0.iter().copied()))
    }

    /// What an element does with targets.
    pub fn targets(&self, element: &Element) -> Map {
        self.map(1, self.generators.iter().zip(element.0.iter().copied()))
    }

    /// What undoes [`targets`](Self::targets).
    pub fn targets_back(&self, element: &Element) -> Map {
        let back = self.generators.iter().zip(&element.0).rev();
        self.map(
            1,
            back.map(|(generator, far)| match generator.act {
                Act::Shift { positions, .. } => (generator, (positions - far) % positions),
                Act::Flip(_) | Act::Transpose(_) => (generator, *far),
            }),
        )
    }

    /// The mean over [`reflections`](Self::reflections) of what `predict` says of the transformed inputs (samples, points…, channels), transformed
    /// back.
    pub fn average(
        &self,
        inputs: &Array,
        mut predict: impl FnMut(Array) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        let elements = self.reflections();
        let samples = inputs.shape[0];
        let mut sums: Vec<f64> = Vec::new();
        for element in &elements {
            let predicted = predict(self.inputs(element).apply_to_all(inputs))?;
            let shape = [&[samples], &self.shape(1)[..]].concat();
            let back = self.targets_back(element).apply_to_all(&Array { shape, values: predicted }).values;
            sums.resize(back.len(), 0.0);
            sums.iter_mut().zip(back).for_each(|(sum, value)| *sum += f64::from(value));
        }
        Ok(sums.into_iter().map(|sum| (sum / elements.len() as f64) as f32).collect())
    }

    /// (points…, channels)
    fn shape(&self, side: usize) -> Vec<usize> {
        self.grids[side].iter().map(|(points, _)| *points).chain([self.counts[side]]).collect()
    }

    /// Symmetries one after the other, each as far as it says.
    fn map<'a>(&self, side: usize, steps: impl Iterator<Item = (&'a Generator, usize)>) -> Map {
        let grid = &self.grids[side];
        let apart = |axis: usize| grid[axis + 1..].iter().map(|(points, _)| points).product::<usize>();
        let axis = |from| AxisMap {
            from,
            offsets: (0..grid[from].0).map(|at| at * apart(from)).collect(),
            sign: 1.0,
        };
        let mut axes: Vec<_> = (0..grid.len()).map(axis).collect();
        let mut channels: Vec<_> = (0..self.counts[side]).map(|from| Channel { from, sign: 1.0 }).collect();
        for (generator, far) in steps.filter(|(_, far)| *far > 0) {
            match generator.act {
                Act::Shift { axis, positions } => {
                    let points = grid[axis].0;
                    axes[axis].offsets.rotate_right(far * (points / positions) % points);
                }
                Act::Flip(axis) => {
                    axes[axis].sign = -axes[axis].sign;
                    axes[axis].offsets.reverse();
                    if grid[axis].1 {
                        // Round an axis the first point stays: j → (n − j) mod n.
                        axes[axis].offsets.rotate_right(1);
                    }
                }
                Act::Transpose([a, b]) => axes.swap(a, b),
            }
            let after = |Channel { from, sign }: &Channel| Channel {
                sign: sign * channels[*from].sign,
                ..channels[*from]
            };
            channels = generator.channels[side].iter().map(after).collect();
        }
        Map { axes, channels }
    }
}

impl Map {
    /// The same for one channel that keeps its sign.
    pub fn of_scalar(&self) -> Self {
        Self { axes: self.axes.clone(), channels: vec![Channel { from: 0, sign: 1.0 }] }
    }

    /// The same for derivatives, (points…, channels · axes).
    pub fn of_slopes(&self) -> Self {
        let count = self.axes.len();
        let slopes = |channel: &Channel| {
            let Channel { from, sign } = *channel;
            self.axes
                .iter()
                .map(move |axis| Channel { from: from * count + axis.from, sign: sign * axis.sign })
        };
        Self { axes: self.axes.clone(), channels: self.channels.iter().flat_map(slopes).collect() }
    }

    /// Appends what it makes of one sample.
    pub fn apply(&self, values: &[f32], out: &mut Vec<f32>) {
        let count = self.channels.len();
        let (last, before) = self.axes.split_last().expect("a grid has axes");
        let mut lines = vec![0];
        for axis in before {
            lines = lines.iter().flat_map(|line| axis.offsets.iter().map(move |at| line + at)).collect();
        }
        if let [Channel { sign, .. }] = self.channels[..] {
            for line in lines {
                out.extend(last.offsets.iter().map(|at| sign * values[line + at]));
            }
            return;
        }
        for line in lines {
            for at in &last.offsets {
                let point = &values[(line + at) * count..][..count];
                out.extend(self.channels.iter().map(|channel| channel.sign * point[channel.from]));
            }
        }
    }

    /// What it makes of all samples of (samples, points…, channels).
    fn apply_to_all(&self, array: &Array) -> Array {
        let len: usize = array.shape[1..].iter().product();
        let mut values = Vec::with_capacity(array.values.len());
        array.values.chunks_exact(len.max(1)).for_each(|sample| self.apply(sample, &mut values));
        Array { shape: array.shape.clone(), values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use galerkin_data::random::Purpose;

    fn parsed(texts: &[&str]) -> Vec<Symmetry> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    /// On one grid for inputs and targets.
    fn group(texts: &[&str], grid: &Grid, channels: &[&str]) -> Result<Group> {
        let channels = names(channels);
        Group::new(&parsed(texts), [Side { grid, channels: &channels }; 2])
    }

    fn applied(map: &Map, values: &[f32]) -> Vec<f32> {
        let mut out = Vec::new();
        map.apply(values, &mut out);
        out
    }

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|v| v as f32 + 1.0).collect()
    }

    #[test]
    fn words_go_both_ways_and_what_is_none_is_refused() {
        for text in ["shift x", "flip y -u -v", "transpose", "transpose u~v", "transpose x z u~w -p"] {
            assert_eq!(text.parse::<Symmetry>().unwrap().to_string(), text);
        }
        assert_eq!("  flip   x  ".parse::<Symmetry>().unwrap().to_string(), "flip x");
        for (text, why) in [
            ("", "it is empty"),
            ("turn x", "there is no \"turn\""),
            ("flip", "it names 0 axes"),
            ("shift x y", "it names 2 axes"),
            ("transpose x", "it needs two different axes, or none"),
            ("transpose x x", "it needs two different axes, or none"),
            ("flip x -", "\"-\" names no channel"),
            ("flip x u~", "\"u~\" names no channel"),
            ("flip x u~v~w", "\"u~v~w\" names no channel"),
            ("flip x -u~v", "there is no \"-u~v\""),
            ("flip x -u y", "there is no \"y\""),
            ("flip x -u u~v", "it changes u twice"),
        ] {
            let error = text.parse::<Symmetry>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_closed_axis_turns_round_its_middle_and_a_periodic_one_round_its_first_point() {
        let line = |texts: &[&str], periodic: bool| {
            let group = group(texts, &Grid::unit(&[5], periodic), &["u"]).unwrap();
            applied(&group.targets(&Element(vec![1])), &[1.0, 2.0, 3.0, 4.0, 5.0])
        };
        assert_eq!(line(&["flip x"], false), [5.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(line(&["flip x"], true), [1.0, 5.0, 4.0, 3.0, 2.0]);
        assert_eq!(line(&["flip x -u"], true), [-1.0, -5.0, -4.0, -3.0, -2.0]);
        assert_eq!(line(&["shift x"], true), [5.0, 1.0, 2.0, 3.0, 4.0]);
        let square = group(&["transpose u~v"], &Grid::unit(&[2, 2], false), &["u", "v"]).unwrap();
        let values = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0];
        let expected = [-1.0, 1.0, -3.0, 3.0, -2.0, 2.0, -4.0, 4.0];
        assert_eq!(applied(&square.inputs(&Element(vec![1])), &values), expected);
    }

    /// Grids of one to three axes with their symmetries.
    fn cases() -> Vec<(Grid, Vec<&'static str>)> {
        let mut mixed = Grid::unit(&[4, 6], true);
        mixed.axes[0].periodic = false;
        vec![
            (Grid::unit(&[6], true), vec!["shift x", "flip x -u"]),
            (Grid::unit(&[7], false), vec!["flip x -v"]),
            (mixed, vec!["flip y", "shift x", "flip x -u"]),
            (Grid::unit(&[5, 5], false), vec!["flip x -u", "flip y -v", "transpose u~v"]),
            (Grid::unit(&[4, 3, 4], true), vec!["transpose z x u~v", "shift y", "flip z -u", "shift x"]),
        ]
    }

    #[test]
    fn flips_and_transpositions_twice_and_shifts_all_round_are_nothing() {
        for (grid, texts) in cases() {
            let values = numbers(grid.len() * 2);
            for text in texts {
                let group = group(&[text], &grid, &["u", "v"]).unwrap();
                let times = match group.generators[0].act {
                    Act::Shift { positions, .. } => positions,
                    _ => 2,
                };
                let map = group.inputs(&Element(vec![1]));
                let mut moved = applied(&map, &values);
                assert_ne!(moved, values, "{text} on {grid}");
                for _ in 1..times {
                    moved = applied(&map, &moved);
                }
                assert_eq!(moved, values, "{text} on {grid}");
            }
        }
    }

    #[test]
    fn every_element_has_a_way_back() {
        for (grid, texts) in cases() {
            let values = numbers(grid.len() * 2);
            let group = group(&texts, &grid, &["u", "v"]).unwrap();
            for index in 0..40 {
                let element = group.draw(&Stream { seed: 1, purpose: Purpose::Augment, index }, 0);
                let there = applied(&group.targets(&element), &values);
                assert_eq!(applied(&group.targets_back(&element), &there), values, "{element:?} on {grid}");
            }
        }
    }

    #[test]
    fn the_square_has_eight_and_each_of_them_comes_up() {
        let group = group(&["flip x", "flip y", "transpose"], &Grid::unit(&[3, 3], false), &["u"]).unwrap();
        let images: BTreeSet<String> = group
            .reflections()
            .iter()
            .map(|element| format!("{:?}", applied(&group.targets(element), &numbers(9))))
            .collect();
        assert_eq!(images.len(), 8);
        assert_eq!(group.reflections()[0], Element(vec![0; 3]));
        let mut counts = std::collections::BTreeMap::new();
        for index in 0..8000 {
            let element = group.draw(&Stream { seed: 5, purpose: Purpose::Augment, index }, 0);
            *counts.entry(element.0).or_insert(0.0f64) += 1.0;
        }
        // Chi-square with 7 degrees of freedom passes 41 once in a million.
        let chi_square: f64 = counts.values().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
        assert!(counts.len() == 8 && chi_square < 41.0, "{counts:?}");
    }

    /// ∇ of the transformed function against the transformed ∇, both from formulas, on axes of different lengths.
    #[test]
    fn slopes_of_the_transformed_are_the_transformed_slopes() {
        let function = |x: [f64; 3]| [(x[0] + 2.0 * x[1]).sin() + x[2] * x[2], (x[0] * x[2]).cos() - x[1]];
        let gradient = |x: [f64; 3]| {
            let (wave, product) = ((x[0] + 2.0 * x[1]).cos(), -(x[0] * x[2]).sin());
            [[wave, 2.0 * wave, 2.0 * x[2]], [product * x[2], -1.0, product * x[0]]]
        };
        let mut grid = Grid::unit(&[5, 4, 5], false);
        grid.axes[1].length = 3.0;
        // z and x change places, and y is turned round: u'(z, y, x) = (v, −u)(x, 3 − y, z) after a swap and a sign.
        let group = group(&["transpose x z u~v", "flip y -v"], &grid, &["u", "v"]).unwrap();
        let element = Element(vec![1, 1]);
        let [mut values, mut slopes] = [const { Vec::new() }; 2];
        let [mut expected, mut expected_slopes] = [const { Vec::new() }; 2];
        for point in 0..100 {
            let h = grid.spacing();
            let at = [point / 20, point / 5 % 4, point % 5];
            let x: [f64; 3] = std::array::from_fn(|axis| at[axis] as f64 * h[axis]);
            values.extend(function(x).map(|v| v as f32));
            slopes.extend(gradient(x).as_flattened().iter().map(|v| *v as f32));
            let from = [x[2], 3.0 - x[1], x[0]];
            let ([u, v], [du, dv]) = (function(from), gradient(from));
            expected.extend([v as f32, -u as f32]);
            // The chain rule by hand.
            expected_slopes.extend([dv[2], -dv[1], dv[0], -du[2], du[1], -du[0]].map(|v| v as f32));
        }
        let map = group.targets(&element);
        let close = |found: Vec<f32>, expected: Vec<f32>| {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                // The coordinates of the two ways differ by roundings of f64, and the values are rounded to f32 once.
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
        };
        close(applied(&map, &values), expected);
        close(applied(&map.of_slopes(), &slopes), expected_slopes);
        assert_eq!(applied(&map.of_scalar(), &numbers(100)).len(), 100);
    }

    #[test]
    fn inputs_and_targets_move_by_the_same_distance() {
        let [fine, coarse] = [12, 4].map(|n| Grid::unit(&[n], true));
        let channel = names(&["u"]);
        let sides = [Side { grid: &fine, channels: &channel }, Side { grid: &coarse, channels: &channel }];
        let group = Group::new(&parsed(&["shift x"]), sides).unwrap();
        let element = Element(vec![1]);
        assert_eq!(applied(&group.inputs(&element), &numbers(12))[..4], [10.0, 11.0, 12.0, 1.0]);
        assert_eq!(applied(&group.targets(&element), &numbers(4)), [4.0, 1.0, 2.0, 3.0]);
        let other = Grid::unit(&[5], true);
        let sides = [Side { grid: &fine, channels: &channel }, Side { grid: &other, channels: &channel }];
        let error = Group::new(&parsed(&["shift x"]), sides).unwrap_err().to_string();
        assert!(error.contains("a whole point of one is none of the other"), "{error}");
        assert!(Group::new(&parsed(&["flip x"]), sides).is_ok());
    }

    #[test]
    fn what_a_grid_or_its_channels_do_not_have_is_refused() {
        let refused = |text: &str, grid: &Grid, why: &str| {
            let error = group(&[text], grid, &["u", "v"]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("symmetry \"{text}\": ")) && error.contains(why), "{error}");
        };
        let square = Grid::unit(&[4, 4], false);
        refused("shift x", &square, "x is closed");
        refused("flip z", &square, "the axes are y, x");
        refused("flip x -w", &square, "there is no channel w; inputs have u, v, targets u, v");
        refused("flip x u~w", &square, "u and w are not channels of one array");
        refused("flip x p~w", &square, "there are no channels p and w");
        refused("transpose", &Grid::unit(&[4, 5], false), "the same points");
        refused("transpose", &Grid::unit(&[4], false), "there are 1 axes");
        refused("transpose", &Grid::unit(&[4, 4, 4], false), "name two");
        let mut long = square.clone();
        long.axes[0].length = 2.0;
        refused("transpose", &long, "lengths 2 and 1");
        let channels = names(&["u", "v"]);
        let sides = [&square, &long].map(|grid| Side { grid, channels: &channels });
        let error = Group::new(&parsed(&["flip y"]), sides).unwrap_err().to_string();
        assert!(error.contains("y is not the same"), "{error}");
    }

    #[test]
    fn the_mean_over_the_square_is_equivariant() {
        let grid = Grid::unit(&[4, 4], false);
        let group = group(&["flip x -u", "flip y -v", "transpose u~v"], &grid, &["u", "v"]).unwrap();
        // Anything that knows no symmetry: every value with a factor of its place, added to its neighbour's square.
        let predict = |inputs: Array| -> Result<Vec<f32>> {
            let v = &inputs.values;
            Ok((0..v.len()).map(|at| v[at] * (at % 7) as f32 + v[(at + 1) % v.len()].powi(2)).collect())
        };
        let inputs = Array { shape: vec![1, 4, 4, 2], values: (0..32).map(|v| (v as f32).sin()).collect() };
        let mean = group.average(&inputs, predict).unwrap();
        for element in group.reflections() {
            let moved = group.inputs(&element).apply_to_all(&inputs);
            let found = group.average(&moved, predict).unwrap();
            let expected = applied(&group.targets(&element), &mean);
            for (found, expected) in found.iter().zip(expected) {
                // Eight terms below 10 in another order, in f64, rounded to f32 once.
                assert!((found - expected).abs() < 2e-6, "{element:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn means_over_windows_that_lie_otherwise_at_the_ends_are_not_turned() {
        let array = |n: usize| Array { shape: vec![1, n, n, 1], values: numbers(n * n) };
        let pooled = |n: usize, coarse: usize| {
            let dataset = Dataset::from_arrays(array(n), array(n), Grid::unit(&[n, n], false)).unwrap();
            dataset.inverse(Some(coarse)).unwrap()
        };
        let symmetries = parsed(&["transpose", "flip x"]);
        assert!(Group::of(&symmetries, &pooled(13, 5)).is_ok());
        let error = Group::of(&symmetries, &pooled(14, 5)).unwrap_err().to_string();
        assert!(error.contains("not their own mirror image"), "{error}");
        assert!(Group::of(&symmetries[..1], &pooled(14, 5)).is_ok());
    }
}
