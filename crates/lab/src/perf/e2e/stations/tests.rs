use std::time::{Duration, Instant};

use curtail::RecordMetadata;
use curtail_cluster::Observer;

use super::{Phases, Stations};

fn written(offset: i64) -> RecordMetadata {
    RecordMetadata {
        topic: "t".into(),
        partition: 3,
        offset: Some(offset),
        timestamp: 0,
        log_append_time: None,
    }
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[test]
fn phases_follow_each_other_and_make_up_the_whole() {
    let stations = Stations::new("t");
    let start = Instant::now();
    let at = |micros| tokio::time::Instant::from_std(start + us(micros));
    stations.appended(1, "t", 3, 7, 7, at(50));
    stations.committed(1, "t", 3, 8, at(90));
    stations.committed(1, "t", 3, 8, at(95));
    stations.appended(1, "other", 3, 9, 9, at(60));
    let times = [start, start + us(10), start, start + us(130)];
    let phases = stations.phases(&written(7), times).unwrap();
    let expected =
        Phases { produce: us(10), publish: us(40), commit: us(40), catch_up: us(0), fetch: us(40) };
    assert_eq!(phases, expected);
    let late = [start, start + us(10), start + us(100), start + us(130)];
    let phases = stations.phases(&written(7), late).unwrap();
    assert_eq!((phases.catch_up, phases.fetch), (us(10), us(30)));
}

#[test]
fn another_record_has_no_phases() {
    let stations = Stations::new("t");
    let now = Instant::now();
    assert_eq!(stations.phases(&written(0), [now; 4]), None);
    stations.appended(1, "t", 3, 0, 0, tokio::time::Instant::from_std(now));
    assert_eq!(stations.phases(&written(0), [now; 4]), None, "not committed");
    stations.committed(1, "t", 3, 1, tokio::time::Instant::from_std(now));
    assert!(stations.phases(&written(0), [now; 4]).is_some());
    assert_eq!(stations.phases(&written(1), [now; 4]), None);
}
