//! Which samples train, and in which order: functions of seeds.

use crate::error::{Error, Result};
use crate::random::{Purpose, Stream};

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

impl Split {
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
