//! Which samples train, and in which order: functions of seeds.

use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};
use serde::{Deserialize, Serialize};

/// Samples by what they are for, each list ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// To fit weights and normalisers.
    pub train: Vec<usize>,
    /// To choose between epochs and settings.
    pub validation: Vec<usize>,
    /// To report.
    pub test: Vec<usize>,
}

/// Which samples a dataset means for what: half-open ranges of indices, some of them perhaps empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// To fit weights and normalisers.
    pub train: [usize; 2],
    /// To choose between epochs and settings; drawn from `train` where it is empty.
    #[serde(default)]
    pub validation: [usize; 2],
    /// To report; taken from the end of `train` where it is empty.
    #[serde(default)]
    pub test: [usize; 2],
}

impl Parts {
    /// How many samples are to train, to validate and to test, if nobody says otherwise: the parts that were given, and of the training samples a
    /// twentieth to validate and a tenth to test where these have none.
    pub fn counts(&self) -> [usize; 3] {
        let [mut train, mut validation, mut test] = [self.train, self.validation, self.test].map(length);
        for (part, share) in [(&mut validation, train.div_ceil(20)), (&mut test, train.div_ceil(10))] {
            if *part == 0 {
                *part = share;
                train = train.saturating_sub(share);
            }
        }
        [train, validation, test]
    }

    pub(crate) fn check(&self, samples: usize) -> Result<()> {
        let mut parts = [self.train, self.validation, self.test];
        parts.sort_unstable();
        let ordered = parts.iter().all(|[start, end]| start <= end && *end <= samples);
        let filled: Vec<_> = parts.into_iter().filter(|part| length(*part) > 0).collect();
        match ordered && filled.windows(2).all(|pair| pair[0][1] <= pair[1][0]) {
            true => Ok(()),
            false => Err(Error::setting(
                format!("split {parts:?} of {samples} samples"),
                "parts are ranges [first, end] of the samples, and no two share one",
            )),
        }
    }
}

fn length([start, end]: [usize; 2]) -> usize {
    end.saturating_sub(start)
}

impl Split {
    /// Like [`new`](Self::new), each from its own part of the dataset. Validation samples are drawn from the training part if they have none of
    /// their own, and test samples are the last of it.
    pub fn within(parts: &Parts, counts: [usize; 3], seed: u64) -> Result<Self> {
        let [train, validation, test] = counts;
        let own = [parts.train, parts.validation, parts.test].map(|part| length(part) > 0);
        let mut pool: Vec<usize> = (parts.train[0]..parts.train[1]).collect();
        let short = |what: &str, asked: usize, len: usize| {
            Error::setting(format!("{asked} {what} samples"), format!("the dataset means {len} for that"))
        };
        let test = match own[2] {
            true if test > length(parts.test) => return Err(short("test", test, length(parts.test))),
            true => (parts.test[1] - test..parts.test[1]).collect(),
            false if test > pool.len() => return Err(short("test", test, pool.len())),
            false => pool.split_off(pool.len() - test),
        };
        let draw = |from: &[usize], index: u32, count: usize| {
            let order = Stream { seed, purpose: Purpose::Split, index }.permutation(from.len());
            order.into_iter().take(count).map(|at| from[at]).collect::<Vec<_>>()
        };
        let mut validation = if own[1] {
            if validation > length(parts.validation) {
                return Err(short("validation", validation, length(parts.validation)));
            }
            let from: Vec<usize> = (parts.validation[0]..parts.validation[1]).collect();
            draw(&from, 1, validation)
        } else {
            let drawn = draw(&pool, 1, validation);
            pool.retain(|index| !drawn.contains(index));
            drawn
        };
        if train > pool.len() {
            return Err(short("training", train, pool.len()));
        }
        let mut train = draw(&pool, 0, train);
        train.sort_unstable();
        validation.sort_unstable();
        Ok(Self { train, validation, test })
    }

    /// `test` are the last samples, whatever the seed, so that runs with different seeds are tested on the same; `train` and `validation`
    /// are drawn from the others by the seed. What is left over is not used.
    pub fn new(len: usize, train: usize, validation: usize, test: usize, seed: u64) -> Result<Self> {
        let asked = train.checked_add(validation).and_then(|sum| sum.checked_add(test));
        if asked.is_none_or(|asked| asked > len) {
            return Err(Error::setting(
                format!("split into {train} + {validation} + {test} samples"),
                format!("the dataset has {len}"),
            ));
        }
        let drawn = Stream { seed, purpose: Purpose::Split, index: 0 }.permutation(len - test);
        let ascending = |part: &[usize]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part
        };
        Ok(Self {
            train: ascending(&drawn[..train]),
            validation: ascending(&drawn[train..train + validation]),
            test: (len - test..len).collect(),
        })
    }
}

/// Places 0..len in the order of an epoch, `batch` at a time: a function of (seed, epoch), whatever was drawn before.
///
/// The last batch may be shorter; `drop_last` leaves it out then. A batch of 0 counts as 1.
pub fn batches(
    seed: u64,
    epoch: u32,
    len: usize,
    batch: usize,
    drop_last: bool,
) -> impl Iterator<Item = Vec<usize>> {
    let order = Stream { seed, purpose: Purpose::Order, index: epoch }.permutation(len);
    let batch = batch.max(1);
    let count = if drop_last { len / batch } else { len.div_ceil(batch) };
    (0..count).map(move |at| order[at * batch..len.min((at + 1) * batch)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_disjoint_and_tests_do_not_move() {
        let split = Split::new(100, 60, 20, 10, 7).unwrap();
        assert_eq!((split.train.len(), split.validation.len()), (60, 20));
        assert_eq!(split.test, (90..100).collect::<Vec<_>>());
        let mut all = [&split.train[..], &split.validation].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 80);
        assert!(all.iter().all(|at| *at < 90));
        assert_eq!(Split::new(100, 60, 20, 10, 7).unwrap(), split);
        let other = Split::new(100, 60, 20, 10, 8).unwrap();
        assert_ne!(other.train, split.train);
        assert_eq!(other.test, split.test);
        let error = Split::new(100, 60, 40, 10, 7).unwrap_err().to_string();
        assert_eq!(error, "split into 60 + 40 + 10 samples: the dataset has 100");
        assert!(Split::new(1, usize::MAX, 2, 0, 7).is_err());
    }

    #[test]
    fn given_parts_are_kept() {
        let parts = Parts { train: [0, 50], validation: [50, 60], test: [60, 80] };
        parts.check(80).unwrap();
        assert_eq!(parts.counts(), [50, 10, 20]);
        let split = Split::within(&parts, [40, 10, 15], 3).unwrap();
        assert_eq!(split.train.len(), 40);
        assert!(split.train.iter().all(|at| *at < 50));
        assert_eq!(split.validation, (50..60).collect::<Vec<_>>());
        assert_eq!(split.test, (65..80).collect::<Vec<_>>());
        let error = Split::within(&parts, [51, 1, 1], 3).unwrap_err().to_string();
        assert_eq!(error, "51 training samples: the dataset means 50 for that");
        // Without validation samples of their own they come from the training part, and are not trained on.
        let parts = Parts { validation: [0; 2], test: [50, 80], ..parts };
        assert_eq!(parts.counts(), [47, 3, 30]);
        let split = Split::within(&parts, [45, 5, 30], 3).unwrap();
        assert!(split.validation.iter().all(|at| *at < 50 && !split.train.contains(at)));
        assert_eq!(split, Split::within(&parts, [45, 5, 30], 3).unwrap());
        for wrong in [[[0, 81], [0, 0], [0, 0]], [[0, 10], [9, 12], [0, 0]], [[5, 4], [0, 0], [0, 0]]] {
            let [train, validation, test] = wrong;
            assert!(Parts { train, validation, test }.check(80).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_epoch_has_every_place_once_in_an_order_of_its_own() {
        let epoch = |seed, epoch| batches(seed, epoch, 10, 4, false).collect::<Vec<_>>();
        let first = epoch(3, 0);
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        let mut places = first.concat();
        places.sort_unstable();
        assert_eq!(places, (0..10).collect::<Vec<_>>());
        assert_eq!(epoch(3, 0), first);
        assert_ne!(epoch(3, 1), first);
        assert_ne!(epoch(4, 0), first);
        let whole: Vec<_> = batches(3, 0, 10, 4, true).collect();
        assert_eq!(whole, first[..2]);
        assert_eq!(batches(3, 0, 10, 16, true).count(), 0);
        assert_eq!(batches(3, 0, 0, 16, false).count(), 0);
        assert_eq!(batches(3, 0, 2, 0, false).count(), 2);
    }
}
