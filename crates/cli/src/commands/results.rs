//! What every folder of results says about where and when it was made.

/// Processor and number of threads.
pub(super) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let threads = galerkin::device::threads();
    format!("{}, {threads} threads", model.map_or("unknown processor", |(_, name)| name))
}

/// `2026-11-16`, in universal time.
#[expect(clippy::disallowed_methods, reason = "the name of a folder; nothing is computed from it")]
pub(super) fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date(now.map_or(0, |time| time.as_secs() / 86_400))
}

/// Of a day counted from 1970-01-01.
fn date(mut day: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let dates = [0, 59, 11_016, 20_772, 20_773].map(date);
        assert_eq!(dates, ["1970-01-01", "1970-03-01", "2000-02-29", "2026-11-15", "2026-11-16"]);
    }
}
