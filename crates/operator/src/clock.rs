//! How long a run was trained: `clock.jsonl`, for the record. No result depends on it, and a run without it goes on.
//!
//! A line at the end of every epoch and at every checkpoint. Times are sums over all sittings, of steps, validation and writing, without the
//! set-up before the first step, and without what was done after the last checkpoint and had to be done again.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use galerkin_data::clock::{Spent, Stopwatch};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::run::{RunFolder, read};

/// A line of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockLine {
    /// Steps taken.
    pub step: u64,
    /// At the end of an epoch: which, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// What these steps took.
    #[serde(flatten)]
    pub spent: Spent,
    /// After how many steps the clock began: 0, unless an earlier one was lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
}

/// What the training of a run took so far; `None` of runs whose clock is not there, damaged or not there from the beginning.
pub fn training_spent(folder: &RunFolder) -> Option<Spent> {
    let (last, _) = *lines(folder).ok()?.last()?;
    (last.since == 0).then_some(last.spent)
}

/// When a run reached an error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Counted from 1.
    pub epoch: u32,
    /// Steps taken at its end.
    pub step: u64,
    /// What they took; `None` if the run has no clock of them.
    pub spent: Option<Spent>,
}

/// The first epoch from which on the mean validation error of a run is no larger than `error`; `None` if there is none, and of a run that diverged.
pub fn reaches(folder: &RunFolder, error: f64) -> Result<Option<Reached>> {
    let history = folder.history()?;
    let good = |epoch: &&crate::run::Epoch| epoch.validation.mean <= error;
    let Some(first) = history.epochs.iter().rev().take_while(good).last().filter(|_| !history.diverged)
    else {
        return Ok(None);
    };
    let lines = lines(folder).unwrap_or_default();
    let at_its_end = lines.iter().find(|(line, _)| line.epoch == Some(first.epoch) && line.since == 0);
    let spent = at_its_end.map(|(line, _)| line.spent);
    Ok(Some(Reached { epoch: first.epoch, step: first.step, spent }))
}

/// The clock of a run under way.
#[derive(Debug)]
pub(crate) struct RunClock {
    path: PathBuf,
    file: File,
    watch: Stopwatch,
    since: u64,
}

impl RunClock {
    /// Goes on now, after so many steps. The words say why the earlier clock is lost, if it is.
    pub(crate) fn go_on(folder: &RunFolder, steps: u64) -> Result<(Self, Option<String>)> {
        let path = folder.clock_file();
        let kept = match lines(folder) {
            _ if steps == 0 => Ok(None),
            Ok(lines) => match lines.into_iter().take_while(|(line, _)| line.step <= steps).last() {
                Some(last) if last.0.step == steps => Ok(Some(last)),
                last => {
                    let last = last.map_or(0, |(line, _)| line.step);
                    Err(format!("it has no times between step {last} and step {steps}"))
                }
            },
            Err(why) => Err(why),
        };
        let (kept, lost) = match kept {
            Ok(kept) => (kept, None),
            Err(why) => (None, Some(format!("{}: {why}", path.display()))),
        };
        let (watch, since, bytes) = match kept {
            Some((last, end)) => (Stopwatch::after(last.spent), last.since, end),
            None => (Stopwatch::start(), steps, 0),
        };
        let begin = || {
            let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(&path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes)).map(|_| file)
        };
        let file = begin().map_err(Error::io(&path))?;
        Ok((Self { path, file, watch, since }, lost))
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, step: u64, epoch: Option<u32>) -> Result<()> {
        let line = ClockLine { step, epoch, spent: self.watch.spent(), since: self.since };
        let line = serde_json::to_string(&line).expect("numbers");
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(Error::io(&self.path))
    }

    /// Writes a line that a checkpoint can rely on.
    pub(crate) fn write_through(&mut self, step: u64) -> Result<()> {
        self.write(step, None)?;
        self.file.sync_data().map_err(Error::io(&self.path))
    }
}

/// The lines of a run's clock with the places in the file where they end, or why they cannot be relied on.
fn lines(folder: &RunFolder) -> std::result::Result<Vec<(ClockLine, u64)>, String> {
    let text = match read(&folder.clock_file()) {
        Ok(Some(text)) => text,
        Ok(None) => return Err("it is not there".into()),
        Err(error) => return Err(error.to_string()),
    };
    let (mut lines, mut end) = (Vec::<(ClockLine, u64)>::new(), 0);
    for (at, text) in text.split_inclusive('\n').enumerate() {
        if !text.ends_with('\n') {
            // Of a run that was killed.
            break;
        }
        end += text.len() as u64;
        let line = serde_json::from_str::<ClockLine>(text).ok();
        let later = |line: &ClockLine| {
            let (step, seconds) = lines.last().map_or((0, 0.0), |(last, _)| (last.step, last.spent.seconds));
            line.step >= step && line.spent.seconds >= seconds
        };
        let line = line.filter(later).ok_or_else(|| format!("line {} makes no sense", at + 1))?;
        lines.push((line, end));
    }
    Ok(lines)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A folder with the log of a run with these validation errors, an epoch every 10 steps.
    fn log(folder: &Path, errors: &[f64]) -> RunFolder {
        let lines = errors.iter().zip(1..).map(|(error, epoch)| {
            let validation = serde_json::json!({ "mean": error, "median": error, "max": error });
            let line = serde_json::json!({ "epoch": epoch, "step": 10 * epoch, "train_loss": 1.0, "validation": validation });
            format!("{line}\n")
        });
        std::fs::write(folder.join("log.jsonl"), lines.collect::<String>()).unwrap();
        RunFolder::new(folder)
    }

    #[test]
    fn an_error_is_reached_where_it_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = log(place.path(), &[0.5, 0.1, 0.3, 0.2, 0.1, 0.15]);
        let epoch = |error: f64| reaches(&folder, error).unwrap().map(|reached| reached.epoch);
        // Epoch 2 dips below 0.2, and epoch 3 comes back.
        assert_eq!(epoch(0.2), Some(4));
        assert_eq!(epoch(0.15), Some(5));
        assert_eq!(epoch(0.3), Some(2));
        assert_eq!(epoch(1.0), Some(1));
        assert_eq!(epoch(0.1), None, "reached twice and not kept");
        assert_eq!(reaches(&folder, 0.2).unwrap(), Some(Reached { epoch: 4, step: 40, spent: None }));

        let clock = |seconds: &[f64], since: u64| {
            let lines = seconds.iter().zip(1..).map(|(seconds, epoch)| {
                let spent = Spent { seconds: *seconds, cpu_seconds: Some(1.5 * seconds), threads: 2 };
                let line = ClockLine { step: 10 * u64::from(epoch), epoch: Some(epoch), spent, since };
                serde_json::to_string(&line).unwrap() + "\n"
            });
            std::fs::write(folder.clock_file(), lines.collect::<String>()).unwrap();
        };
        clock(&[1.0, 2.0, 3.0, 5.0, 8.0], 0);
        let spent = reaches(&folder, 0.2).unwrap().unwrap().spent;
        assert_eq!(spent, Some(Spent { seconds: 5.0, cpu_seconds: Some(7.5), threads: 2 }));
        assert_eq!(training_spent(&folder).unwrap().seconds, 8.0);
        // A clock that began later does not know.
        clock(&[1.0, 2.0, 3.0, 5.0, 8.0], 5);
        assert_eq!(reaches(&folder, 0.2).unwrap().unwrap().spent, None);
        assert_eq!(training_spent(&folder), None);
        // Nor does one whose times go back.
        clock(&[1.0, 2.0, 3.0, 2.0, 8.0], 0);
        assert_eq!(reaches(&folder, 0.2).unwrap().unwrap().spent, None);

        let text = std::fs::read_to_string(folder.log_file()).unwrap();
        std::fs::write(folder.log_file(), text + "{\"step\":61,\"diverged\":true}\n").unwrap();
        assert_eq!(reaches(&folder, 1.0).unwrap(), None, "it diverged");
    }

    #[test]
    fn a_clock_goes_on_from_the_checkpoint_or_begins_anew() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(place.path());
        let (mut clock, lost) = RunClock::go_on(&folder, 0).unwrap();
        assert_eq!(lost, None);
        clock.write(3, Some(1)).unwrap();
        clock.write_through(4).unwrap();
        clock.write(6, Some(2)).unwrap();
        drop(clock);
        let text = std::fs::read_to_string(folder.clock_file()).unwrap();
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let keys: Vec<_> = first.as_object().unwrap().keys().map(String::as_str).collect();
        let expected: &[&str] = match cfg!(unix) {
            true => &["cpu_seconds", "epoch", "seconds", "step", "threads"],
            false => &["epoch", "seconds", "step", "threads"],
        };
        assert_eq!(keys, expected);

        // Lines after the checkpoint are cut, half a line too, and the others keep their bytes.
        std::fs::write(folder.clock_file(), text.clone() + "{\"step\": 7").unwrap();
        let (mut clock, lost) = RunClock::go_on(&folder, 4).unwrap();
        assert_eq!(lost, None);
        clock.write(6, Some(2)).unwrap();
        drop(clock);
        let again = std::fs::read_to_string(folder.clock_file()).unwrap();
        let kept = text.split_inclusive('\n').take(2).collect::<String>();
        assert!(again.starts_with(&kept) && again.lines().count() == 3, "{again}");
        let seconds = |text: &str| -> Vec<f64> {
            let lines = text.lines().map(|line| serde_json::from_str::<ClockLine>(line).unwrap());
            lines.map(|line| line.spent.seconds).collect()
        };
        let found = seconds(&again);
        assert!(found[2] > found[1] && training_spent(&folder).unwrap().seconds == found[2], "{found:?}");

        for (text, why) in [
            (Some("{}\n"), "line 1 makes no sense"),
            (Some(&*kept.replace("\"step\":4", "\"step\":2")), "line 2 makes no sense"),
            (Some(kept.lines().next().unwrap()), "no times between step 0 and step 4"),
            (Some(&*format!("{}\n", kept.lines().next().unwrap())), "no times between step 3 and step 4"),
            (None, "it is not there"),
        ] {
            match text {
                Some(text) => std::fs::write(folder.clock_file(), text).unwrap(),
                None => std::fs::remove_file(folder.clock_file()).unwrap(),
            }
            let (mut clock, lost) = RunClock::go_on(&folder, 4).unwrap();
            let lost = lost.unwrap();
            assert!(lost.contains("clock.jsonl") && lost.contains(why), "{lost}");
            clock.write(6, Some(2)).unwrap();
            let text = std::fs::read_to_string(folder.clock_file()).unwrap();
            assert!(text.lines().count() == 1 && text.contains("\"since\":4"), "{text}");
            assert_eq!(training_spent(&folder), None);
        }
    }
}
