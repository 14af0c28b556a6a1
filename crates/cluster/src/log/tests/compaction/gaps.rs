//! Reads, replication, truncation and time lookups in a log with gaps.

use super::*;
use curtail_wire::records::BatchHeader;

/// A log whose closed segments have gaps between batches, gaps within batches and empty batches.
fn with_gaps(config: &LogConfig) -> (MemDisk, PartitionLog) {
    let (disk, mut log) = fresh(config);
    for round in 0..12 {
        let own = format!("own{round}");
        put(&mut log, &[("a", Some("v")), (&own, Some("v")), ("b", Some("v"))]);
        put(&mut log, &[("a", Some("v"))]);
        put(&mut log, &[("b", Some("v")), ("c", Some("v"))]);
    }
    assert!(clean(&mut log, NOW, i64::MAX));
    (disk, log)
}

#[test]
fn read_from_any_offset_begins_with_the_next_batch() {
    let (_, log) = with_gaps(&compacted());
    let all = read_keyed(&log);
    assert!(all.len() < 30 && log.end_offset() == 72, "{} records", all.len());
    for from in 0..72 {
        for max_bytes in [1, 150, usize::MAX] {
            let bytes = log.read(from, max_bytes, i64::MAX, true).unwrap();
            let first = BatchHeader::parse(&bytes).unwrap();
            assert!(first.last_offset() >= from);
            let next = all.iter().find(|(offset, ..)| *offset >= from).unwrap().0;
            assert!(first.base_offset <= next, "no record is skipped");
        }
        // A reader's end within a gap or a batch.
        for up_to in from..72 {
            let bytes = log.read(from, usize::MAX, up_to, true).unwrap();
            assert!(batches(bytes).all(|batch| batch.unwrap().header.last_offset() < up_to));
        }
    }
}

#[test]
fn removed_batches_leave_the_tail_cache() {
    let (_, log) = with_gaps(&compacted());
    let cached = read_keyed(&log);
    let (_, log) = with_gaps(&LogConfig { tail_cache_bytes: 0, ..compacted() });
    assert_eq!(read_keyed(&log), cached);
}

#[test]
fn follower_copies_a_log_with_gaps_from_any_offset() {
    let (_, leader) = with_gaps(&compacted());
    let all = read_keyed(&leader);
    for start in 0..72 {
        let (disk, mut follower) = fresh(&compacted());
        follower.truncate_fully_and_start_at(start).unwrap();
        while follower.end_offset() < leader.end_offset() {
            let bytes = leader.read(follower.end_offset(), 200, i64::MAX, true).unwrap();
            follower.append_as_follower(bytes).unwrap();
        }
        let expected: Vec<_> =
            all.iter().filter(|(offset, ..)| *offset >= start).cloned().collect();
        assert_eq!(read_keyed(&follower), expected, "from {start}");
        follower.flush().unwrap();
        drop(follower);
        let (mut follower, recovery) = open(&disk, &compacted());
        assert_eq!((recovery.truncated_bytes, follower.end_offset()), (0, 72));
        assert_eq!(read_keyed(&follower), expected, "from {start}, reopened");
        follower.close().unwrap();
        drop(follower);
        let (mut follower, recovery) = open(&disk, &compacted());
        assert!(recovery.clean);
        assert_eq!(read_keyed(&follower), expected);
        // Its own cleaning keeps the records, at the same offsets.
        while clean(&mut follower, NOW, i64::MAX) {}
        assert_eq!(newest(&read_keyed(&follower)), newest(&expected));
    }
}

#[test]
fn truncated_log_ends_with_the_last_batch_before_the_offset() {
    for to in 0..72 {
        let (disk, mut log) = with_gaps(&compacted());
        let before = read_keyed(&log);
        let end = log.truncate_to(to).unwrap();
        assert!(end <= to);
        let kept: Vec<_> = before.iter().filter(|(offset, ..)| *offset < end).cloned().collect();
        assert_eq!(read_keyed(&log), kept, "truncated to {to}");
        assert_eq!(put(&mut log, &[("a", Some("new"))]), end);
        log.flush().unwrap();
        let expected = read_keyed(&log);
        drop(log);
        let (mut log, recovery) = open(&disk, &compacted());
        assert_eq!((recovery.truncated_bytes, log.end_offset()), (0, end + 1));
        assert_eq!(read_keyed(&log), expected);
        log.roll().unwrap();
        clean(&mut log, NOW, i64::MAX);
        assert_eq!(newest(&read_keyed(&log)), newest(&expected), "what follows is compared again");
    }
}

#[test]
fn deletion_may_begin_in_a_gap() {
    for to in 0..72 {
        let (disk, mut log) = with_gaps(&compacted());
        let before = read_keyed(&log);
        assert_eq!(log.delete_before(to).unwrap(), to);
        let expected: Vec<_> = before.into_iter().filter(|(offset, ..)| *offset >= to).collect();
        assert_eq!(read_keyed(&log), expected);
        drop(log);
        let (log, _) = open(&disk, &compacted());
        assert_eq!((log.start_offset(), read_keyed(&log)), (to, expected));
    }
}

#[test]
fn times_are_looked_up_among_the_records_that_stay() {
    let (disk, mut log) = fresh(&compacted());
    for at in 0..60 {
        let key = ["a", "b", "own"][at % 3];
        let own = format!("{key}{}", at % 7);
        let batch = keyed_at(&[(&own, Some("v"))], NOW + at as i64);
        log.append_as_leader(batch, 0, NOW).unwrap();
    }
    assert!(clean(&mut log, NOW, i64::MAX));
    let check = |log: &PartitionLog| {
        let all = offsets(log);
        assert!(all.len() < 40);
        for at in 0..60 {
            let next = all.iter().copied().find(|offset| *offset >= at);
            let found = log.offset_for_timestamp(NOW + at).unwrap();
            assert_eq!(found, next.map(|offset| (NOW + offset, offset)), "at {at}");
        }
        assert_eq!(log.offset_for_timestamp(NOW + 60).unwrap(), None);
        assert_eq!(log.max_timestamp_offset().unwrap(), Some((NOW + 59, 59)));
    };
    check(&log);
    log.flush().unwrap();
    drop(log);
    check(&open(&disk, &compacted()).0);
}

#[test]
fn leader_epochs_survive_the_removal_of_their_first_batches() {
    let (disk, mut log) = fresh(&compacted());
    for epoch in 0..8 {
        for _ in 0..3 {
            let batch = keyed(&[("a", Some("v"))], ProducerStamp::NONE, Codec::None);
            log.append_as_leader(batch, epoch, NOW).unwrap();
        }
    }
    let ends: Vec<_> = (0..8).map(|epoch| log.end_offset_for_epoch(epoch)).collect();
    assert!(clean(&mut log, NOW, i64::MAX));
    log.flush().unwrap();
    let check = |log: &PartitionLog| {
        let now: Vec<_> = (0..8).map(|epoch| log.end_offset_for_epoch(epoch)).collect();
        assert_eq!(now, ends);
    };
    check(&log);
    drop(log);
    check(&open(&disk, &compacted()).0);
}

#[test]
fn a_segment_lost_from_a_log_with_gaps_ends_it() {
    let (disk, log) = with_gaps(&compacted());
    assert!(log.segment_count() > 2);
    let missing = log.segments[1].base_offset;
    drop(log);
    disk.remove_file(&dir().join(format!("{missing:020}.log"))).unwrap();
    assert_eq!(open(&disk, &compacted()).0.end_offset(), missing);
}

#[test]
fn a_cleaning_ends_without_effect_if_the_log_was_cut() {
    type Change = fn(&mut PartitionLog);
    let changes: [Change; 3] = [
        |log| assert!(log.truncate_to(10).unwrap() <= 10),
        |log| assert_eq!(log.delete_before(20).unwrap(), 20),
        |log| log.truncate_fully_and_start_at(100).unwrap(),
    ];
    for change in changes {
        let (disk, mut log) = fresh(&compacted());
        for _ in 0..30 {
            put(&mut log, &[("a", Some("v"))]);
        }
        let mut cleaning = log.clean(NOW, i64::MAX).unwrap().unwrap();
        change(&mut log);
        let before = read_keyed(&log);
        loop {
            match cleaning.step() {
                Ok(Step::More) => {}
                Ok(Step::Swap(cleaned)) => assert_eq!(log.swap(*cleaned).unwrap(), None),
                Ok(Step::Done) | Err(_) => break,
            }
        }
        assert_eq!(read_keyed(&log), before);
        let is_left = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "cleaned");
        assert!(!disk.list(&dir()).unwrap().iter().any(is_left));
        // Appends do not disturb a cleaning.
        let end = put(&mut log, &[("b", Some("v"))]);
        assert_eq!(offsets(&log).last(), Some(&end));
    }
}

/// No checksum covers the base offset.
#[test]
fn a_corrupt_batch_ends_the_cleaning() {
    for (byte, expected) in [(65, "checksum"), (3, "out of place"), (7, "out of place")] {
        let (disk, mut log) = fresh(&compacted());
        for _ in 0..30 {
            put(&mut log, &[("a", Some("v"))]);
        }
        let path = log.segments[1].path.clone();
        disk.alter(&path, |bytes| bytes[byte] ^= 0x40).unwrap();
        let bytes = raw(&log);
        let mut cleaning = log.clean(NOW, i64::MAX).unwrap().unwrap();
        let error = loop {
            match cleaning.step() {
                Ok(Step::More) => {}
                Ok(_) => panic!("byte {byte} was not noticed"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(raw(&log), bytes);
        assert!(!log.is_offline());
    }
}
