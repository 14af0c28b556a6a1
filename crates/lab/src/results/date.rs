//! Dates of the Gregorian calendar, in UTC.

const DAY_MS: u64 = 24 * 3600 * 1000;

/// `2026-11-24` of milliseconds since 1970-01-01 UTC.
pub(super) fn day(ms: u64) -> String {
    let (year, month, day) = civil(ms / DAY_MS);
    format!("{year}-{month:02}-{day:02}")
}

/// `2026-11-24T08-58-21Z`: a moment as a part of a file name.
pub(super) fn moment(ms: u64) -> String {
    let seconds = ms % DAY_MS / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}-{minute:02}-{second:02}Z", day(ms))
}

/// Year, month and day of days since 1970-01-01, with years that begin in March so that leap days come last
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_around_leap_days_are_right() {
        // Seen with `date -u -d @SECONDS`.
        for (seconds, expected) in [
            (0, "1970-01-01T00-00-00Z"),
            (951_782_399, "2000-02-28T23-59-59Z"),
            (951_782_400, "2000-02-29T00-00-00Z"),
            (1_709_251_200, "2024-03-01T00-00-00Z"),
            (1_767_225_599, "2025-12-31T23-59-59Z"),
            (1_795_511_101, "2026-11-24T09-05-01Z"),
            (4_107_542_400, "2100-03-01T00-00-00Z"),
        ] {
            assert_eq!(moment(seconds * 1000), expected);
        }
    }
}
