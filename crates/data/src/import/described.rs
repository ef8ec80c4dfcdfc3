//! One side of a dataset: its variables, and what their axes are.

use super::layout::{Layout, Word};
use super::sources::{Series, unfit};
use super::write::{Along, Column, Piece, Target};
use crate::error::{Error, Result};
use crate::folder::Side;
use crate::io::{File, Variable};
use crate::meta::{MOST_CHANNELS, channel_names};

/// One side of the dataset: variables, and what their axes are.
#[derive(Debug)]
pub(super) struct Described<'a> {
    pub name: String,
    pub layout: Layout,
    side: Side,
    /// Every variable with the number of its channels.
    series: Vec<(&'a Series, usize)>,
    /// Samples of each part.
    pub samples: Vec<usize>,
    /// Axes along which values lie at different places, without subsampling.
    sizes: Vec<usize>,
    pub times: Option<usize>,
    pub channels: usize,
    pub names: Vec<String>,
}

impl<'a> Described<'a> {
    /// Checks the shapes of all arrays.
    pub(super) fn new(
        files: &[File],
        series: &'a [Series],
        layout: Layout,
        side: Side,
        parts: usize,
    ) -> Result<Self> {
        let mut described = Self {
            name: series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>().join(","),
            layout,
            side,
            series: Vec::new(),
            samples: Vec::new(),
            sizes: Vec::new(),
            times: None,
            channels: 0,
            names: Vec::new(),
        };
        for series in series {
            let mut samples = vec![0; parts];
            let mut channels = None;
            for (part, file, name) in &series.arrays {
                let file = &files[*file];
                let shape = &file.variable(name)?.shape;
                let wrong = |expected: &str| {
                    let expected = format!("{expected} with the axes {}", described.layout.text());
                    Err(unfit(file, name, &expected, shape))
                };
                let Some(fitted) = described.layout.fit(shape.len(), side) else {
                    return wrong(&format!("{} axes", described.layout.0.len()));
                };
                let axis = fitted.find(&Word::Samples).unwrap_or(0);
                if shape.iter().enumerate().any(|(at, n)| *n == 0 && at != axis) {
                    return wrong("values");
                }
                let (sizes, times) = (fitted.sizes(shape), fitted.length(&Word::Time, shape));
                let count = fitted.length(&Word::Channels, shape).unwrap_or(1);
                if described.sizes.is_empty() {
                    (described.sizes, described.times) = (sizes.clone(), times);
                }
                if described.sizes != sizes || described.times != times {
                    let sizes: Vec<_> = described.sizes.iter().map(ToString::to_string).collect();
                    let times = described.times.map_or(String::new(), |times| format!(" at {times} times"));
                    return wrong(&format!("{} points{times}, as the arrays before,", sizes.join(" × ")));
                }
                if *channels.get_or_insert(count) != count {
                    return wrong(&format!("{} channels, as the arrays before,", channels.unwrap_or(1)));
                }
                samples[*part] += shape[axis];
            }
            let Some(channels) = channels else { continue };
            // Without samples a file of few bytes has any number of channels, and every one is given a name.
            if samples.iter().all(|n| *n == 0) {
                return Err(Error::setting(format!("`{}`", series.name), "there is no sample"));
            }
            if described.channels + channels > MOST_CHANNELS {
                let why = format!(
                    "expected at most {MOST_CHANNELS} channels, found {} with the axes {}",
                    described.channels + channels,
                    described.layout.text()
                );
                return Err(Error::setting(format!("`{}`", series.name), why));
            }
            if described.samples.is_empty() {
                described.samples = samples;
            } else if described.samples != samples {
                let why = format!(
                    "expected {:?} samples, as `{}` has, found {samples:?}",
                    described.samples, described.series[0].0.name
                );
                return Err(Error::setting(format!("`{}`", series.name), why));
            }
            described.series.push((series, channels));
            described.channels += channels;
            described.names.extend(channel_names(&series.name, channels));
        }
        Ok(described)
    }

    pub(super) fn check_samples(&self, targets: &Self) -> Result<()> {
        if self.samples == targets.samples {
            return Ok(());
        }
        let words =
            |samples: &[usize]| samples.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
        let what = format!("inputs `{}` and targets `{}`", self.name, targets.name);
        let why = format!(
            "expected as many samples, found {} with the axes {} and {} with the axes {}; --input-layout and --target-layout name the axes",
            words(&self.samples),
            self.layout.text(),
            words(&targets.samples),
            targets.layout.text()
        );
        Err(Error::setting(what, why))
    }

    /// Axes along which values lie at different places, with their lengths.
    pub(super) fn place(&self) -> Vec<(Word, usize)> {
        self.layout.place().cloned().zip(self.sizes.iter().copied()).collect()
    }

    /// The file of this side. `order` are its axes of places.
    pub(super) fn target(
        &self,
        files: &[File],
        shape: Vec<usize>,
        order: &[Word],
        subsample: usize,
        everywhere: bool,
    ) -> Target {
        let mut target = Target {
            places: shape[1..shape.len() - 1].iter().product(),
            channels: self.channels,
            shape,
            columns: Vec::new(),
        };
        let mut first = 0;
        for (series, channels) in &self.series {
            let pieces = series.arrays.iter().filter_map(|(_, file, name)| {
                let variable = files[*file].variable(name).ok()?;
                // Some may have left out their one channel.
                let layout = self.layout.fit(variable.shape.len(), self.side)?;
                Some(piece(*file, variable, &layout, order, subsample))
            });
            target.columns.push(Column { first, channels: *channels, everywhere, pieces: pieces.collect() });
            first += channels;
        }
        target
    }
}

/// How the values of a variable come to lie as (samples, \[time,\] `order`…, channels).
pub(super) fn piece(
    file: usize,
    variable: &Variable,
    layout: &Layout,
    order: &[Word],
    subsample: usize,
) -> Piece {
    let every = |word: &Word| if matches!(word, Word::Space(_)) { subsample } else { 1 };
    let mut strides = vec![0; layout.0.len()];
    let inside = [Word::Time].into_iter().chain(order.iter().cloned()).chain([Word::Channels]);
    let mut stride = 1;
    for word in inside.collect::<Vec<_>>().iter().rev() {
        if let Some(axis) = layout.find(word) {
            strides[axis] = stride;
            stride *= variable.shape[axis].div_ceil(every(word));
        }
    }
    let samples = layout.length(&Word::Samples, &variable.shape);
    let mut axes = Vec::new();
    if samples.is_none() {
        axes.push(Along::Samples { len: 1 });
    }
    axes.extend(variable.order.iter().map(|axis| match &layout.0[*axis] {
        Word::Samples => Along::Samples { len: variable.shape[*axis] },
        word => Along::Sample { len: variable.shape[*axis], stride: strides[*axis], every: every(word) },
    }));
    Piece::new(file, &variable.name, samples.unwrap_or(1), &axes)
}
