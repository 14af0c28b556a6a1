use jiff::{Timestamp, tz::TimeZone};

use super::{DEFAULT, Pattern};

fn show(pattern: &str, ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap().to_zoned(TimeZone::UTC);
    Pattern::parse(pattern).unwrap().show(&time)
}

#[test]
fn dates_look_as_in_java() {
    let ms = 1_763_718_191_007;
    assert_eq!(show(DEFAULT, ms), "2025-11-21 09:43:11:007");
    assert_eq!(show("yy/M/d H:m:s.S", ms), "25/11/21 9:43:11.7");
    assert_eq!(show("yyyy-MM-dd'T'HH 'o''clock' ''", ms), "2025-11-21T09 o'clock '");
}

#[test]
fn patterns_not_understood_are_refused() {
    assert!(Pattern::parse("EEE yyyy").unwrap_err().contains('E'));
    assert!(Pattern::parse("'open").is_err());
}
