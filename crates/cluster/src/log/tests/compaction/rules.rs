//! Which records stay, and when a log is cleaned.

use super::*;

/// Appends one-record batches of these keys, then closes the segment.
fn segment(log: &mut PartitionLog, keys: &[&str]) {
    for key in keys {
        put(log, &[(key, Some("v"))]);
    }
    log.roll().unwrap();
}

#[test]
fn newest_record_of_each_key_stays_below_the_active_segment() {
    let table: [(&[&[&str]], &[i64]); 6] = [
        (&[&["a", "b", "a"], &["b", "c"]], &[2, 3, 4]),
        (&[&["a"], &["a"], &["a"]], &[2]),
        (&[&["a", "b"], &["c", "d"]], &[0, 1, 2, 3]),
        (&[&["a", "a", "a", "b"]], &[2, 3]),
        (&[&["a", "b"], &["b", "a"], &["c"]], &[2, 3, 4]),
        (&[&["a", "b", "c"], &["c", "b", "a"], &["x", "x"]], &[3, 4, 5, 7]),
    ];
    for codec in [Codec::None, Codec::Zstd] {
        for (segments, expected) in table {
            let (disk, mut log) = fresh(&compacted());
            for keys in segments {
                let records: Vec<_> = keys.iter().map(|key| (*key, Some("v"))).collect();
                let batch = keyed(&records, ProducerStamp::NONE, codec);
                log.append_as_leader(batch, 0, NOW).unwrap();
                log.roll().unwrap();
            }
            // The active segment has newer records of all keys.
            let end = put(&mut log, &[("a", None), ("b", Some("w")), ("x", Some("w"))]);
            assert!(clean(&mut log, NOW, i64::MAX));
            let expected: Vec<i64> = expected.iter().copied().chain(end..end + 3).collect();
            assert_eq!(offsets(&log), expected, "{segments:?}");
            assert!(!clean(&mut log, NOW, i64::MAX), "nothing is dirty");
            drop(log);
            let (log, recovery) = open(&disk, &compacted());
            assert_eq!(recovery.truncated_bytes, 0);
            assert_eq!(offsets(&log), expected, "{segments:?} reopened");
        }
    }
}

#[test]
fn small_segments_are_merged_up_to_the_segment_size() {
    let (disk, mut log) = fresh(&compacted());
    for _ in 0..40 {
        segment(&mut log, &["a", "b"]);
    }
    let before = log.segment_count();
    while clean(&mut log, NOW, i64::MAX) {
        put(&mut log, &[("c", Some("v"))]);
        log.roll().unwrap();
        if log.segment_count() < 5 {
            break;
        }
    }
    assert!(log.segment_count() < before / 4, "{} segments", log.segment_count());
    assert!(log.segments.iter().all(|segment| segment.size() <= 400));
    let records = read_keyed(&log);
    assert_eq!(newest(&records).len(), 3);
    let names = disk.list(&dir()).unwrap();
    assert!(names.iter().all(|path| path.extension().is_none_or(|ext| ext != "cleaned")));
    let logs = names.iter().filter(|path| path.extension().is_some_and(|ext| ext == "log"));
    assert_eq!(logs.count(), log.segment_count());
}

#[test]
fn nothing_from_the_last_stable_offset_on_is_cleaned() {
    for last_stable in 0..12 {
        let (_, mut log) = fresh(&compacted());
        for _ in 0..4 {
            segment(&mut log, &["a", "b", "a"]);
        }
        clean(&mut log, NOW, last_stable);
        // Whole segments of three records below it: only their newest records stay.
        let closed = last_stable / 3 * 3;
        let expected: Vec<i64> = (0..12).filter(|at| *at >= closed || *at >= closed - 2).collect();
        assert_eq!(offsets(&log), expected, "last stable offset {last_stable}");
    }
}

#[test]
fn ratio_and_lags_decide_whether_a_log_is_cleaned() {
    let with = |compaction| LogConfig { compaction, ..compacted() };
    let usual = Compaction::default();
    let ratio = |min_dirty_ratio| Compaction { min_dirty_ratio, ..usual };
    let late = |max_lag_ms| Compaction { max_lag_ms, ..ratio(1.0) };
    let early = |min_lag_ms| Compaction { min_lag_ms, ..ratio(0.0) };
    // The first half is clean already, and the other half is as large.
    let table = [
        (ratio(0.4), NOW, true),
        (ratio(0.5), NOW, false),
        (ratio(0.6), NOW, false),
        (late(1000), NOW + 1000, false),
        (late(1000), NOW + 1001, true),
        (early(1000), NOW + 999, false),
        (early(1000), NOW + 1000, true),
    ];
    for (compaction, now, expected) in table {
        let (_, mut log) = fresh(&compacted());
        segment(&mut log, &["a", "b"]);
        assert!(clean(&mut log, NOW, i64::MAX));
        segment(&mut log, &["a", "b"]);
        log.set_config(with(compaction));
        assert_eq!(clean(&mut log, now, i64::MAX), expected, "{compaction:?} at {now}");
        assert_eq!(offsets(&log).len(), if expected { 2 } else { 4 });
    }
    let (_, mut log) = fresh(&LogConfig { compacted: false, ..compacted() });
    segment(&mut log, &["a", "a"]);
    assert!(!clean(&mut log, NOW, i64::MAX), "the policy is not compact");
}

#[test]
fn a_tombstone_stays_for_delete_retention_ms_after_the_first_cleaning() {
    let (disk, mut log) = fresh(&compacted());
    let retention = log.config().compaction.delete_retention_ms;
    put(&mut log, &[("a", Some("1")), ("b", Some("1"))]);
    put(&mut log, &[("a", None), ("c", None)]);
    log.roll().unwrap();
    let clean_at = |log: &mut PartitionLog, now| {
        // Something must be dirty.
        put(log, &[("z", Some("1"))]);
        log.roll().unwrap();
        assert!(clean(log, now, i64::MAX));
        newest(&read_keyed(log)).into_keys().map(|key| String::from_utf8(key).unwrap()).collect()
    };
    let keys: String = clean_at(&mut log, NOW);
    assert_eq!(keys, "abcz");
    let keys: String = clean_at(&mut log, NOW + retention - 1);
    assert_eq!(keys, "abcz", "the horizon counts from the first cleaning");
    drop(log);
    let (mut log, _) = open(&disk, &compacted());
    let keys: String = clean_at(&mut log, NOW + retention);
    assert_eq!(keys, "bz");
}

#[test]
fn age_of_the_first_batch_ends_a_segment() {
    let compaction = |max_lag_ms| Compaction { max_lag_ms, ..Compaction::default() };
    let table = [
        (LogConfig { segment_ms: 100, ..config() }, 3),
        (LogConfig { segment_ms: 99, ..config() }, 4),
        (LogConfig { compaction: compaction(99), ..config() }, 1),
        (LogConfig { compacted: true, compaction: compaction(99), ..config() }, 4),
        (config(), 1),
    ];
    for (config, expected) in table {
        let (disk, mut log) = fresh(&config);
        for after in [0, 50, 100, 150, 201, 300, 302] {
            let batch = keyed_at(&[("k", Some("v"))], NOW + after);
            log.append_as_leader(batch, 0, NOW).unwrap();
        }
        assert_eq!(log.segment_count(), expected, "{config:?}");
        drop(log);
        assert_eq!(open(&disk, &config).0.segment_count(), expected);
    }
}
