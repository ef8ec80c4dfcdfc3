//! Names of the axes of an array, and the readings of one whose axes nobody named.

use crate::domain::MOST_AXES;
use crate::error::{Error, Result};
use crate::folder::Side;

/// What an axis is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Samples,
    Channels,
    /// Of targets.
    Time,
    /// Points that are no grid.
    Points,
    /// An axis of a grid, by its name.
    Space(String),
}

/// The axes of an array in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout(pub(super) Vec<Word>);

/// The arrays of one side that lie along their samples one after the other, and what is known of their axes.
#[derive(Debug)]
pub(super) struct Asked {
    /// What messages call them.
    pub name: String,
    /// Of every array; all have as many axes as the first.
    pub shapes: Vec<Vec<usize>>,
    /// What the caller said, and the flag it was said by.
    pub layout: Option<(&'static str, Layout)>,
}

impl Word {
    fn parse(word: &str) -> Self {
        match word {
            "samples" => Word::Samples,
            "channels" => Word::Channels,
            "time" => Word::Time,
            "points" => Word::Points,
            name => Word::Space(name.into()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Word::Samples => "samples",
            Word::Channels => "channels",
            Word::Time => "time",
            Word::Points => "points",
            Word::Space(name) => name,
        }
    }

    fn is_place(&self) -> bool {
        matches!(self, Word::Points | Word::Space(_))
    }
}

impl Layout {
    /// From the words of a flag. Values at ragged points have an axis of points instead of samples.
    pub(super) fn parse(flag: &str, words: &[String], ragged: bool) -> Result<Option<Self>> {
        if words.is_empty() {
            return Ok(None);
        }
        let layout = Self(words.iter().map(|word| Word::parse(word.trim())).collect());
        let wrong = |why: String| Err(Error::setting(format!("{flag} {}", layout.text()), why));
        if let Some((_, twice)) =
            layout.0.iter().enumerate().find(|(at, word)| layout.0[..*at].contains(word))
        {
            return wrong(format!("two axes are called `{}`", twice.text()));
        }
        if layout.0.iter().any(|word| word.text().is_empty()) {
            return wrong("an axis has no name".into());
        }
        let has = |word: &Word| layout.0.contains(word);
        if ragged && (has(&Word::Samples) || has(&Word::Time) || !has(&Word::Points)) {
            return wrong(
                "with --offsets the points of all samples lie along one axis: points,channels".into(),
            );
        }
        if !ragged && !has(&Word::Samples) && flag != POINTS_FLAG {
            return wrong(
                "no axis is called `samples`; an array of one sample needs an axis of length 1".into(),
            );
        }
        let space = layout.0.iter().filter(|word| matches!(word, Word::Space(_))).count();
        if space > MOST_AXES {
            return wrong(format!("a grid has 1 to {MOST_AXES} axes, found {space}"));
        }
        if space > 0 && has(&Word::Points) {
            return wrong("values lie at points or on the axes of a grid, not both".into());
        }
        Ok(Some(layout))
    }

    /// As it is written behind a flag.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(Word::text).collect::<Vec<_>>().join(",")
    }

    /// Which axis is this one.
    pub(super) fn find(&self, word: &Word) -> Option<usize> {
        self.0.iter().position(|other| other == word)
    }

    /// Length of an axis; `None` if there is no such axis.
    pub(super) fn length(&self, word: &Word, shape: &[usize]) -> Option<usize> {
        self.find(word).map(|axis| shape[axis])
    }

    /// The axes along which values lie at different places, in order.
    pub(super) fn place(&self) -> impl Iterator<Item = &Word> {
        self.0.iter().filter(|word| word.is_place())
    }

    /// Lengths of the axes of [`place`](Self::place).
    pub(super) fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        self.0.iter().zip(shape).filter(|(word, _)| word.is_place()).map(|(_, n)| *n).collect()
    }

    /// Whether a sample has the same values everywhere.
    pub(super) fn is_everywhere(&self) -> bool {
        self.place().next().is_none()
    }

    /// Takes the names of the axes of a grid from another layout with as many.
    fn name_like(&mut self, other: &Self) {
        let is_space = |word: &&Word| matches!(word, Word::Space(_));
        if self.place().filter(is_space).count() == other.place().filter(is_space).count() {
            let mut names = other.place().filter(is_space);
            for word in self.0.iter_mut().filter(|word| matches!(word, Word::Space(_))) {
                if let Some(name) = names.next() {
                    *word = name.clone();
                }
            }
        }
    }

    /// For an array of `rank` axes: channels may be left out where there is one, and inputs have no time.
    pub(super) fn fit(&self, rank: usize, side: Side) -> Option<Self> {
        let without = |layout: &Self, left_out: Word| {
            Self(layout.0.iter().filter(|word| **word != left_out).cloned().collect())
        };
        let whole = if side == Side::Inputs { without(self, Word::Time) } else { self.clone() };
        let single = without(&whole, Word::Channels);
        [whole, single].into_iter().find(|layout| layout.0.len() == rank)
    }

    /// `64 samples on 33 × 33 points with 3 channels`.
    fn describe(&self, samples: usize, shape: &[usize]) -> String {
        let mut words = format!("{samples} samples");
        if !self.is_everywhere() {
            let sizes: Vec<_> = self.sizes(shape).iter().map(ToString::to_string).collect();
            words += &format!(" on {} points", sizes.join(" × "));
        }
        if let Some(times) = self.length(&Word::Time, shape) {
            words += &format!(" at {times} times");
        }
        match (self.length(&Word::Channels, shape), self.is_everywhere()) {
            (Some(1), false) | (None, false) => {}
            (channels, true) => {
                words += &format!(" of {} parameters, the same at all points", channels.unwrap_or(1));
            }
            (Some(channels), false) => words += &format!(" with {channels} channels"),
        }
        words
    }
}

/// The flag of the layout of points, which need no axis of samples.
pub(super) const POINTS_FLAG: &str = "--points-layout";

impl Asked {
    fn shape(&self) -> &[usize] {
        &self.shapes[0]
    }

    /// Samples of all arrays.
    fn samples(&self, layout: &Layout) -> usize {
        self.along(layout.find(&Word::Samples).unwrap_or(0))
    }

    fn along(&self, axis: usize) -> usize {
        // Arrays without values have axes of any length.
        self.shapes.iter().fold(0, |sum: usize, shape| sum.saturating_add(shape[axis]))
    }

    fn describe(&self, layout: &Layout) -> String {
        layout.describe(self.samples(layout), self.shape())
    }

    fn readings(&self, side: Side, other: &Self, points: Option<&[usize]>) -> Result<Vec<Layout>> {
        match &self.layout {
            Some((flag, layout)) => {
                let fitted = layout.fit(self.shape().len(), side);
                let shape = self.shape();
                let fitted = fitted.ok_or_else(|| {
                    let what = format!("{flag} {}", layout.text());
                    let mut why = format!(
                        "expected an array of {} axes, found {} of shape {shape:?}",
                        layout.0.len(),
                        self.name
                    );
                    if side == Side::Inputs && layout.0.contains(&Word::Time) {
                        why += "; time is an axis of targets; if inputs have it too, it is one more axis of the \
                                grid: call it t";
                    }
                    Error::setting(what, why)
                })?;
                Ok(vec![fitted])
            }
            None => {
                let mut readings = readings(self.shape(), side, points);
                if let Some((_, other)) = &other.layout {
                    readings.iter_mut().for_each(|layout| layout.name_like(other));
                }
                Ok(readings)
            }
        }
    }
}

/// The layouts of inputs and targets, as they were said or as only they can be. With points, an axis of points has one of the lengths
/// `points`.
pub(super) fn choose(inputs: &Asked, targets: &Asked, points: Option<&[usize]>) -> Result<[Layout; 2]> {
    let of_inputs = inputs.readings(Side::Inputs, targets, points)?;
    let of_targets = targets.readings(Side::Targets, inputs, points)?;
    if let ([input], [target]) = (&of_inputs[..], &of_targets[..]) {
        return Ok([input.clone(), target.clone()]);
    }
    let open = inputs.layout.is_none() && targets.layout.is_none();
    let alike = open && inputs.shape().len() == targets.shape().len();
    let pairs: Vec<[&Layout; 2]> = of_inputs
        .iter()
        .flat_map(|input| of_targets.iter().map(move |target| [input, target]))
        .filter(|[input, target]| inputs.samples(input) == targets.samples(target))
        // Arrays with as many axes are read alike; channels are before the points in both or behind them in both.
        .filter(|[input, target]| !alike || input == target || input.is_everywhere())
        .filter(|[input, target]| {
            !open
                || channels_last(input)
                    .is_none_or(|last| channels_last(target).is_none_or(|other| last == other))
        })
        .collect();
    let same = |[input, target]: &&[&Layout; 2]| input.sizes(inputs.shape()) == target.sizes(targets.shape());
    let mut likely: Vec<_> = pairs.iter().filter(same).copied().collect();
    if likely.is_empty() && points.is_some() {
        // Points are those of the targets; inputs on a grid of their own would be said to be.
        likely = pairs.iter().filter(|[input, _]| input.is_everywhere()).copied().collect();
    }
    if likely.is_empty() {
        likely = pairs;
    }
    match likely[..] {
        [[input, target]] => Ok([input.clone(), target.clone()]),
        _ => Err(refusal(inputs, targets, &likely, points.is_some())),
    }
}

/// All readings, each with its flag.
fn refusal(inputs: &Asked, targets: &Asked, likely: &[[&Layout; 2]], points: bool) -> Error {
    let [here, there] = [inputs.shape(), targets.shape()];
    let mut lines = Vec::new();
    let open = inputs.layout.is_none() && targets.layout.is_none();
    if open && !likely.is_empty() && likely.iter().all(|[input, target]| input == target) {
        lines.extend(
            likely.iter().map(|[both, _]| (format!("--layout {}", both.text()), inputs.describe(both))),
        );
    } else {
        for (at, flag, asked) in [(0, "--input-layout", inputs), (1, "--target-layout", targets)] {
            let mut layouts: Vec<&Layout> = Vec::new();
            for pair in likely {
                if !layouts.contains(&pair[at]) {
                    layouts.push(pair[at]);
                }
            }
            if asked.layout.is_none() {
                let line = |layout: &&Layout| (format!("{flag} {}", layout.text()), asked.describe(layout));
                lines.extend(layouts.iter().map(line));
            }
        }
    }
    // Samples are the last axis in many files of MATLAB.
    let last = here.len() - 1;
    let even = |asked: &Asked| asked.shapes.iter().all(|shape| shape[..last] == asked.shape()[..last]);
    if open
        && !points
        && (1..=MOST_AXES).contains(&last)
        && here.len() == there.len()
        && inputs.along(last) == targets.along(last)
        && even(inputs)
        && even(targets)
        && (likely.is_empty() || here[..last] == there[..last])
    {
        let mut words = space(last);
        words.push(Word::Samples);
        let layout = Layout(words);
        lines.push((format!("--layout {}", layout.text()), inputs.describe(&layout)));
    }
    let what = format!("{} of shape {here:?} and {} of shape {there:?}", inputs.name, targets.name);
    let why = match (likely.is_empty(), lines.is_empty()) {
        (true, true) => {
            let [here, there] = [inputs.along(0), targets.along(0)];
            let why = format!(
                "expected as many samples, found {here} and {there} along the first axes; if samples lie along others, or if these \
                 lengths are the same, name the axes with --input-layout and --target-layout, e.g. samples,y,x,channels"
            );
            return Error::setting(what, why);
        }
        (true, false) => {
            "they do not have as many samples along their first axes; they fit together if they are:"
        }
        (false, _) => "their axes can be read in several ways; say which:",
    };
    let width = lines.iter().map(|(flag, _)| flag.len()).max().unwrap_or(0);
    let lines: String = lines.iter().map(|(flag, words)| format!("\n  {flag:<width$}  {words}")).collect();
    Error::setting(what, format!("{why}{lines}"))
}

/// Whether channels follow the points; `None` without channels or without points.
fn channels_last(layout: &Layout) -> Option<bool> {
    let channels = layout.find(&Word::Channels)?;
    let place = layout.0.iter().position(Word::is_place)?;
    Some(channels > place)
}

/// Readings with samples first, on grids or at points; at points also with samples second. Those with few channels come first.
fn readings(shape: &[usize], side: Side, points: Option<&[usize]>) -> Vec<Layout> {
    let mut found = Vec::new();
    let rest = shape.len().saturating_sub(1);
    if side == Side::Inputs && rest == 0 {
        found.push(Layout(vec![Word::Samples]));
    }
    match points {
        None => found.extend(on_grids(rest, side)),
        Some(_) => found.extend(at_points(shape.len(), side)),
    }
    if side == Side::Inputs && rest == 1 {
        found.push(Layout(vec![Word::Samples, Word::Channels]));
    }
    if let Some(allowed) = points {
        found.retain(|layout| layout.length(&Word::Points, shape).is_none_or(|n| allowed.contains(&n)));
    }
    // One point is no grid, and one time no course of time: an axis of length 1 is one channel.
    let short: Vec<_> = (1..shape.len()).filter(|axis| shape[*axis] == 1).collect();
    if let [short] = short[..]
        && points.is_none()
    {
        found.retain(|layout| layout.0[short] == Word::Channels);
    }
    found
}

fn on_grids(rest: usize, side: Side) -> Vec<Layout> {
    let mut found = Vec::new();
    for channels in [None, Some(true), Some(false)] {
        for time in [None, Some(false), Some(true)] {
            if time.is_some() && side == Side::Inputs {
                continue;
            }
            let axes = rest.saturating_sub(usize::from(channels.is_some()) + usize::from(time.is_some()));
            if !(1..=MOST_AXES).contains(&axes)
                || axes + usize::from(channels.is_some()) + usize::from(time.is_some()) != rest
            {
                continue;
            }
            let mut words = space(axes);
            for (word, last) in [(Word::Time, time), (Word::Channels, channels)] {
                match last {
                    Some(true) => words.push(word),
                    Some(false) => words.insert(0, word),
                    None => {}
                }
            }
            words.insert(0, Word::Samples);
            found.push(Layout(words));
        }
    }
    found
}

fn at_points(rank: usize, side: Side) -> Vec<Layout> {
    use Word::{Channels, Points, Samples, Time};
    let all = [
        vec![Samples, Points],
        vec![Points, Samples],
        vec![Samples, Points, Channels],
        vec![Samples, Channels, Points],
        vec![Points, Samples, Channels],
        vec![Samples, Time, Points],
        vec![Samples, Points, Time],
        vec![Samples, Time, Points, Channels],
    ];
    let fits = |words: &Vec<Word>| words.len() == rank && (side == Side::Targets || !words.contains(&Time));
    all.into_iter().filter(fits).map(Layout).collect()
}

/// Names of the axes of a grid nobody named: x is the last.
fn space(axes: usize) -> Vec<Word> {
    ["z", "y", "x"][MOST_AXES - axes..].iter().map(|name| Word::Space((*name).into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(shape: &[usize], side: Side) -> Vec<String> {
        readings(shape, side, None).iter().map(Layout::text).collect()
    }

    #[test]
    fn arrays_of_few_axes_have_one_reading() {
        assert_eq!(texts(&[9, 4], Side::Targets), ["samples,x"]);
        assert_eq!(texts(&[9, 4, 1], Side::Inputs), ["samples,x,channels"]);
        assert_eq!(texts(&[9, 1, 4], Side::Inputs), ["samples,channels,x"]);
        assert_eq!(texts(&[9, 1], Side::Inputs), ["samples,channels"]);
        assert_eq!(texts(&[9], Side::Inputs), ["samples"]);
        assert!(texts(&[9], Side::Targets).is_empty());
    }

    #[test]
    fn arrays_of_more_axes_have_several() {
        let inputs = texts(&[9, 4, 4], Side::Inputs);
        assert_eq!(inputs, ["samples,y,x", "samples,x,channels", "samples,channels,x"]);
        let targets = texts(&[9, 4, 4], Side::Targets);
        assert!(["samples,time,x", "samples,x,time"].iter().all(|text| targets.contains(&text.to_string())));
        assert!(texts(&[9, 4, 4, 4, 4], Side::Inputs).contains(&"samples,z,y,x,channels".to_string()));
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        let message = |text: &str| {
            let words: Vec<String> = text.split(',').map(String::from).collect();
            Layout::parse("--layout", &words, false).unwrap_err().to_string()
        };
        assert!(message("x,y").contains("no axis is called `samples`"));
        assert!(message("samples,x,x").contains("two axes are called `x`"));
        assert!(message("samples,x,points").contains("not both"));
        assert!(message("samples,a,b,c,d").contains("1 to 3 axes"));
        assert!(message("samples,").contains("no name"));
    }
}
