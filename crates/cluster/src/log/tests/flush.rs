//! Syncs after a number of records or a time (`flush.messages`, `flush.ms`).

use super::*;

/// Returns the end offset after a crash of the machine.
fn end_after_crash(disk: &MemDisk, config: &LogConfig) -> i64 {
    disk.crash(false);
    open(disk, config).0.end_offset()
}

#[test]
fn a_log_is_synced_once_it_has_enough_records_without_a_sync() {
    for (batches, kept) in [(2, 0), (3, 3), (5, 3), (6, 6), (8, 6)] {
        let config = LogConfig { flush_messages: 3, ..config() };
        let (disk, mut log) = fresh(&config);
        for tag in 0..batches {
            append(&mut log, &TestBatch::of(1, tag));
        }
        assert_eq!(end_after_crash(&disk, &config), kept, "{batches} batches");
    }
}

#[test]
fn records_of_a_batch_count_one_by_one() {
    let config = LogConfig { flush_messages: 3, ..config() };
    let (disk, mut log) = fresh(&config);
    append(&mut log, &TestBatch::of(2, 0));
    append(&mut log, &TestBatch::of(5, 1));
    append(&mut log, &TestBatch::of(2, 2));
    assert_eq!(end_after_crash(&disk, &config), 7);
}

#[test]
fn a_sync_includes_earlier_segments() {
    let config = LogConfig { flush_messages: 10, segment_bytes: 200, ..config() };
    let (disk, mut log) = fresh(&config);
    for tag in 0..12 {
        append(&mut log, &TestBatch::of(1, tag));
    }
    assert!(log.segment_count() > 4);
    assert_eq!(end_after_crash(&disk, &config), 10);
}

#[test]
fn records_after_a_truncation_count_from_its_end() {
    let config = LogConfig { flush_messages: 3, ..config() };
    let (disk, mut log) = fresh(&config);
    for tag in 0..3 {
        append(&mut log, &TestBatch::of(1, tag));
    }
    log.truncate_to(1).unwrap();
    for tag in 0..3 {
        append(&mut log, &TestBatch::of(1, tag));
    }
    assert_eq!(end_after_crash(&disk, &config), 4);
}

#[test]
fn a_changed_setting_applies_to_earlier_records() {
    let lazy = config();
    let (disk, mut log) = fresh(&lazy);
    for tag in 0..3 {
        append(&mut log, &TestBatch::of(1, tag));
    }
    log.roll().unwrap();
    log.set_config(LogConfig { flush_messages: 1, ..lazy.clone() });
    append(&mut log, &TestBatch::of(1, 3));
    assert_eq!(end_after_crash(&disk, &lazy), 4);
}

#[test]
fn a_follower_syncs_after_as_many_records() {
    let config = LogConfig { flush_messages: 3, ..config() };
    let (_, mut leader) = fresh(&config);
    let (disk, mut follower) = fresh(&config);
    for tag in 0..5 {
        append(&mut leader, &TestBatch::of(1, tag));
        let next = leader.read(follower.end_offset(), 1 << 20, i64::MAX, true).unwrap();
        follower.append_as_follower(next).unwrap();
    }
    assert_eq!(end_after_crash(&disk, &config), 3);
}

#[test]
fn a_log_is_synced_once_its_flush_time_has_passed() {
    let config = LogConfig { flush_ms: 100, ..config() };
    let (disk, mut log) = fresh(&config);
    assert!(!log.flush_if_due(NOW).unwrap(), "the time begins here");
    append(&mut log, &TestBatch::of(1, 0));
    assert!(!log.flush_if_due(NOW + 99).unwrap());
    assert!(log.flush_if_due(NOW + 100).unwrap());
    append(&mut log, &TestBatch::of(1, 1));
    assert!(!log.flush_if_due(NOW + 199).unwrap());
    assert_eq!(end_after_crash(&disk, &config), 1);
    let (_, mut never) = fresh(&super::config());
    assert!(!never.flush_if_due(0).unwrap());
    assert!(!never.flush_if_due(i64::MAX - 1).unwrap());
}
