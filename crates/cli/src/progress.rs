//! How far work is and how long it will take: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of work in equal steps, on standard error.
pub struct Progress {
    total: u64,
    what: &'static str,
    started: Instant,
    /// Steps that were done before this process began, known at the first report.
    before: Option<u64>,
    display: Display,
}

enum Display {
    Nothing,
    Lines { last: Instant },
    Bar(ProgressBar),
}

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

impl Progress {
    /// Nothing is done yet.
    pub fn new(total: u64, what: &'static str, quiet: bool) -> Self {
        let started = Instant::now();
        let display = if quiet {
            Display::Nothing
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} {wide_msg}");
            bar.set_style(style.expect("a template of known words").progress_chars("━━─"));
            bar.set_message(what);
            bar.enable_steady_tick(Duration::from_millis(200));
            Display::Bar(bar)
        } else {
            Display::Lines { last: started }
        };
        Self { total, what, started, before: None, display }
    }

    /// So many steps are done, at least one of them by this process.
    pub fn at(&mut self, done: u64) {
        let (total, what) = (self.total, self.what);
        self.in_part(done, [done, total], |left| format!("{what}, {left} left"));
    }

    /// As [`at`](Self::at), of work in parts, of which the bar shows the one at hand: so many of its steps are done of so many.
    /// `words` say the rest, from the time that is left.
    pub fn in_part(&mut self, done: u64, [at, of]: [u64; 2], words: impl FnOnce(&str) -> String) {
        let before = *self.before.get_or_insert(done.saturating_sub(1));
        let left = time_left(self.started.elapsed(), done - before, self.total.saturating_sub(done));
        let left = duration(left);
        match &mut self.display {
            Display::Nothing => {}
            Display::Bar(bar) => {
                bar.set_length(of);
                bar.set_position(at);
                bar.set_message(words(&left));
            }
            Display::Lines { last } => {
                if last.elapsed() >= INTERVAL && done < self.total {
                    *last = Instant::now();
                    // Work goes on when nobody listens.
                    let _ = writeln!(io::stderr(), "{at} of {of} {}", words(&left));
                }
            }
        }
    }

    /// Says something beside the progress.
    pub fn line(&mut self, text: &str) {
        match &mut self.display {
            Display::Nothing => {}
            Display::Bar(bar) => bar.println(text),
            Display::Lines { last } => {
                *last = Instant::now();
                // Work goes on when nobody listens.
                let _ = writeln!(io::stderr(), "{text}");
            }
        }
    }

    /// Clears the bar.
    pub fn finish(self) {
        if let Display::Bar(bar) = self.display {
            bar.finish_and_clear();
        }
    }
}

/// If the rest goes as fast as what is done.
fn time_left(elapsed: Duration, done: u64, left: u64) -> Duration {
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done.max(1) as f64 * left as f64)
        .unwrap_or(Duration::MAX)
}

/// Two units at the most: `2 h 05 min`, `3 min 20 s`, `12 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_its_share() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(10 * second, 5, 15), 30 * second);
        assert_eq!(time_left(10 * second, 0, 3), 30 * second);
        assert_eq!(time_left(second, 1, 0), Duration::ZERO);
    }

    #[test]
    fn times_have_two_units() {
        let shown = [0, 59, 60, 3599, 7500].map(|s| duration(Duration::from_secs(s)));
        assert_eq!(shown, ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "2 h 05 min"]);
    }
}
