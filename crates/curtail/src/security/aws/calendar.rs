//! Dates in UTC, as AWS writes them.

const DAY_MS: i64 = 86_400_000;

/// Formats a time as `20150830T123600Z`.
pub(super) fn basic(ms: i64) -> String {
    let (year, month, day) = date(ms.div_euclid(DAY_MS));
    let seconds = ms.rem_euclid(DAY_MS) / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Reads a time such as `2015-08-30T12:36:00Z`, with or without a fraction of a second. Returns milliseconds since
/// the epoch.
pub(super) fn extended(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let time = time.split('.').next()?;
    let numbers = |text: &str, separator| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text.split(separator).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..61).contains(&second);
    let is_date =
        (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let ms = || days(year, month, day) * DAY_MS + (hour * 3600 + minute * 60 + second) * 1000;
    (is_time && is_date).then(ms)
}

/// Days of a 400-year cycle of the Gregorian calendar.
const CYCLE: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Days since the epoch. Years begin in March, so that the leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    cycle * CYCLE + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - EPOCH
}

/// Year, month and day of a day since the epoch.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (cycle, of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + cycle * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        for (ms, text, other) in [
            (0, "19700101T000000Z", "1970-01-01T00:00:00Z"),
            (951_782_400_000, "20000229T000000Z", "2000-02-29T00:00:00Z"),
            (1_440_938_160_000, "20150830T123600Z", "2015-08-30T12:36:00Z"),
            (4_107_542_399_000, "21000228T235959Z", "2100-02-28T23:59:59.000Z"),
        ] {
            assert_eq!(basic(ms), text);
            assert_eq!(extended(other), Some(ms));
        }
        for text in [
            "",
            "2015-08-30",
            "2015-13-30T12:36:00Z",
            "x-08-30T12:36:00Z",
            "2015-08-30T12:36:00",
            "2015-08-30T9223372036854775807:36:00Z",
            "9223372036854775807-08-30T12:36:00Z",
        ] {
            assert_eq!(extended(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_written() {
        for day in 0..CYCLE {
            let text = basic(day * DAY_MS);
            let text = format!("{}-{}-{}T00:00:00Z", &text[..4], &text[4..6], &text[6..8]);
            assert_eq!(extended(&text), Some(day * DAY_MS), "{text}");
        }
    }
}
