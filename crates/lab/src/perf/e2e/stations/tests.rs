use std::time::{Duration, Instant};

use curtail::RecordMetadata;
use curtail_cluster::Observer;

use super::{Leaders, Seen};

fn written(offset: i64) -> RecordMetadata {
    RecordMetadata {
        topic: "t".into(),
        partition: 3,
        offset: Some(offset),
        timestamp: 0,
        log_append_time: None,
    }
}

#[test]
fn the_first_commit_of_a_record_counts() {
    let leaders = Leaders::new("t");
    let start = Instant::now();
    let after = |us| start + Duration::from_micros(us);
    let at = |us| tokio::time::Instant::from_std(after(us));
    leaders.appended(1, "t", 3, 7, 7, at(50));
    leaders.committed(1, "t", 3, 8, at(90));
    leaders.committed(1, "t", 3, 8, at(95));
    leaders.appended(1, "other", 3, 9, 9, at(60));
    let expected = Seen { leader: 1, appended: after(50), committed: after(90) };
    assert_eq!(leaders.seen(&written(7)), Some(expected));
}

#[test]
fn another_record_has_no_timestamps() {
    let leaders = Leaders::new("t");
    let now = tokio::time::Instant::now();
    assert_eq!(leaders.seen(&written(0)), None);
    leaders.appended(1, "t", 3, 0, 0, now);
    assert_eq!(leaders.seen(&written(0)), None, "not committed");
    leaders.committed(1, "t", 3, 1, now);
    assert!(leaders.seen(&written(0)).is_some());
    assert_eq!(leaders.seen(&written(1)), None);
}
