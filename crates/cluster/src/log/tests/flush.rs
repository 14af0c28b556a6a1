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

/// After a failed sync the system may have dropped the records, and the next one would succeed without them.
#[test]
fn a_failed_sync_of_accepted_records_takes_the_log_offline() {
    for (flush_messages, is_offline) in [(3, true), (1, false)] {
        let (disk, mut log) = fresh(&LogConfig { flush_messages, ..config() });
        append(&mut log, &TestBatch::of(1, 0));
        append(&mut log, &TestBatch::of(1, 1));
        disk.fail_syncs(true);
        log.append_as_leader(TestBatch::of(1, 2).build(), 0, NOW).unwrap_err();
        assert_eq!((log.is_offline(), log.end_offset()), (is_offline, 2));
        disk.fail_syncs(false);
        let next = log.append_as_leader(TestBatch::of(1, 2).build(), 0, NOW);
        assert_eq!(next.is_err(), is_offline, "flush.messages={flush_messages}");
    }
}

#[test]
fn a_failed_periodic_sync_takes_the_log_offline() {
    let (disk, mut log) = fresh(&LogConfig { flush_ms: 100, ..config() });
    assert!(!log.flush_if_due(NOW).unwrap());
    append(&mut log, &TestBatch::of(1, 0));
    disk.fail_syncs(true);
    log.flush_if_due(NOW + 100).unwrap_err();
    assert!(log.is_offline());
}

#[test]
fn a_sync_after_enough_records_begins_the_flush_time_again() {
    let (_, mut log) = fresh(&LogConfig { flush_ms: 100, flush_messages: 1, ..config() });
    assert!(!log.flush_if_due(NOW).unwrap());
    append(&mut log, &TestBatch::of(1, 0));
    assert!(!log.flush_if_due(NOW + 100).unwrap());
    assert!(log.flush_if_due(NOW + 200).unwrap());
}
