//! How long work took, for the record: no result depends on it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use galerkin_kernels::par;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::io::{read_text, write_whole};

/// Time that work took, summed over all its parts if it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// By the clock on the wall.
    pub seconds: f64,
    /// Of the process, on all its threads; absent where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Threads of the last part.
    pub threads: usize,
}

impl Spent {
    /// Seconds on the wall of a machine without other work, if all threads are at work all the time.
    pub fn undisturbed(&self) -> Option<f64> {
        Some(self.cpu_seconds? / self.threads.max(1) as f64)
    }
}

/// Measures what work takes, from now on.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    before: Spent,
    begun: Instant,
    cpu: Option<f64>,
}

impl Stopwatch {
    /// For work that begins now.
    pub fn start() -> Self {
        Self::after(Spent { seconds: 0.0, cpu_seconds: Some(0.0), threads: 0 })
    }

    /// For work that goes on now.
    pub fn after(before: Spent) -> Self {
        Self { before, begun: Instant::now(), cpu: process_cpu_seconds() }
    }

    /// What was spent so far, what was before included.
    pub fn spent(&self) -> Spent {
        let cpu_seconds = match (self.before.cpu_seconds, self.cpu, process_cpu_seconds()) {
            (Some(before), Some(start), Some(now)) => Some(before + now - start),
            _ => None,
        };
        let seconds = self.before.seconds + self.begun.elapsed().as_secs_f64();
        Spent { seconds, cpu_seconds, threads: par::threads() }
    }
}

/// `clock.json` of a generated dataset.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetClock {
    /// What it took to make the samples.
    #[serde(flatten)]
    pub spent: Spent,
    /// How many samples were made in this time: all, unless an earlier version had begun the dataset.
    pub samples: u32,
}

impl DatasetClock {
    /// That of a dataset's folder; `None` if there is none that can be read.
    pub fn read(folder: &Path) -> Option<Self> {
        /// Bytes; a hundred are needed.
        const LONGEST: u64 = 1 << 12;
        serde_json::from_str(&read_text(path(folder), LONGEST).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string(self).expect("numbers");
        write_whole(path(folder), text.as_bytes())
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join("clock.json")
}

/// Time that all threads of this process together have worked.
#[cfg(unix)]
fn process_cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64)
}

#[cfg(not(unix))]
fn process_cpu_seconds() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_to_what_was_before() {
        let before = Spent { seconds: 100.0, cpu_seconds: Some(300.0), threads: 7 };
        let watch = Stopwatch::after(before);
        let begun = Instant::now();
        let mut sum = 0u64;
        while begun.elapsed().as_secs_f64() < 0.02 {
            sum = std::hint::black_box(sum + 1);
        }
        let spent = watch.spent();
        assert!(spent.seconds >= 100.02, "{spent:?}");
        assert_eq!(spent.cpu_seconds.is_some(), cfg!(unix));
        // Other tests of the process may work beside this one, and another process may take the core meanwhile.
        assert!(spent.cpu_seconds.is_none_or(|cpu| cpu > 300.0), "{spent:?}");
        assert_eq!(spent.threads, par::threads());

        let unknown = Stopwatch::after(Spent { cpu_seconds: None, ..before }).spent();
        assert_eq!(unknown.cpu_seconds, None, "a sum with a part that nobody knows is not known");
        assert_eq!(before.undisturbed(), Some(300.0 / 7.0));
    }
}
