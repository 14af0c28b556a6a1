//! Ends of segments by `segment.jitter.ms` and `segment.index.bytes`.

use std::collections::BTreeSet;

use super::*;

#[test]
fn jitter_ends_segments_earlier_by_different_times() {
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 500, ..config() };
    let mut jitters = BTreeSet::new();
    for start in 0..50 {
        let (disk, mut log) = fresh(&config);
        log.truncate_fully_and_start_at(start).unwrap();
        let jitter = log.jitter_ms();
        assert!((0..500).contains(&jitter), "{jitter}");
        jitters.insert(jitter);
        append(&mut log, &TestBatch::of(1, 0).at(&[NOW]));
        drop(log);
        let (mut log, _) = open(&disk, &config);
        assert_eq!(log.jitter_ms(), jitter, "the same after a restart");
        append(&mut log, &TestBatch::of(1, 1).at(&[NOW + 1000 - jitter]));
        assert_eq!(log.segment_count(), 1);
        append(&mut log, &TestBatch::of(1, 2).at(&[NOW + 1001 - jitter]));
        assert_eq!(log.segment_count(), 2);
    }
    assert!(jitters.len() > 25, "{jitters:?}");
}

#[test]
fn jitter_is_at_most_the_age_of_a_segment() {
    let config = LogConfig { segment_ms: 10, segment_jitter_ms: i64::MAX, ..config() };
    for start in 0..50 {
        let (_, mut log) = fresh(&config);
        log.truncate_fully_and_start_at(start).unwrap();
        assert!((0..10).contains(&log.jitter_ms()));
    }
    let (_, log) = fresh(&LogConfig { segment_jitter_ms: 0, ..config });
    assert_eq!(log.jitter_ms(), 0);
}

#[test]
fn a_full_index_ends_a_segment() {
    let small = LogConfig { index_bytes: 48, index_interval_bytes: 0, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 40);
    let all = read_all(&log);
    assert!(log.segment_count() > 5);
    for segment in &log.segments {
        let (offsets, times) = segment.marks.entry_count();
        assert!(offsets <= 48 / 8 && times <= 48 / 12, "{offsets} and {times} entries");
    }
    let count = log.segment_count();
    log.close().unwrap();
    drop(log);
    let (log, recovery) = open(&disk, &small);
    assert!(recovery.clean);
    assert_eq!((log.segment_count(), read_all(&log)), (count, all));
}

#[test]
fn an_index_without_room_for_an_entry_leaves_a_batch_in_every_segment() {
    let (_, mut log) = fresh(&LogConfig { index_bytes: 4, ..config() });
    for tag in 0..5 {
        append(&mut log, &TestBatch::of(2, tag));
    }
    assert_eq!(log.segment_count(), 5);
    assert_eq!(read_all(&log).len(), 10);
}
