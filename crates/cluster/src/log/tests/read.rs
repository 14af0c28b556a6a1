//! Reading by offset and by time, from memory and from files.

use curtail_wire::records::Codec;
use proptest::prelude::*;

use super::*;
use crate::log::ReadError;

/// Returns two logs with the same content: the first reads from memory, the second from files.
fn cached_and_not(batches: usize) -> ([PartitionLog; 2], Vec<i64>) {
    let config = LogConfig { segment_bytes: 2000, ..config() };
    let (_, mut cached) = fresh(&config);
    let (_, mut plain) = fresh(&LogConfig { tail_cache_bytes: 0, ..config });
    let bounds = fill(&mut cached, batches);
    assert_eq!(fill(&mut plain, batches), bounds);
    ([cached, plain], bounds)
}

#[test]
fn every_offset_can_be_read_and_begins_with_its_batch() {
    let (logs, bounds) = cached_and_not(200);
    for log in &logs {
        assert!(log.segments.iter().any(|segment| segment.marks.offsets.last().is_some()));
        for offset in 0..log.end_offset() {
            let bytes = log.read(offset, 1, i64::MAX, true).unwrap();
            let got = records(bytes);
            let start = bounds.iter().rev().find(|&&bound| bound <= offset).unwrap();
            let end = bounds.iter().find(|&&bound| bound > offset).unwrap();
            let expected: Vec<i64> = (*start..*end).collect();
            assert_eq!(got.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
        }
    }
    assert_eq!(read_all(&logs[0]), read_all(&logs[1]));
}

#[test]
fn reads_respect_their_limits() {
    let (logs, bounds) = cached_and_not(30);
    for log in &logs {
        let end = log.end_offset();
        for &from in &bounds {
            for up_to in 0..=end {
                let got = records(log.read(from, usize::MAX, up_to, true).unwrap());
                assert!(got.iter().all(|(offset, _)| *offset < up_to));
                // Only whole batches, and all that the limits allow.
                let next = got.last().map_or(from, |(offset, _)| offset + 1);
                assert!(bounds.contains(&next), "{from} up to {up_to}");
                let following = bounds.iter().find(|&&bound| bound > next);
                let rolled = log.segments.iter().any(|segment| segment.base_offset == next);
                assert!(following.is_none_or(|&bound| bound > up_to) || (rolled && next > from));
            }
            if from == end {
                continue;
            }
            let first = log.read(from, 1, i64::MAX, true).unwrap();
            assert!(log.read(from, first.len() - 1, i64::MAX, false).unwrap().is_empty());
            for max_bytes in first.len()..first.len() + 400 {
                let got = log.read(from, max_bytes, i64::MAX, false).unwrap();
                assert!(got.len() <= max_bytes && got.starts_with(&first));
                records(got);
            }
        }
    }
}

#[test]
fn reads_outside_the_log_are_refused() {
    let (logs, _) = cached_and_not(30);
    for mut log in logs {
        log.delete_before(7).unwrap();
        let end = log.end_offset();
        for offset in [-1, 0, 6, end + 1, i64::MAX, i64::MIN] {
            let error = log.read(offset, 100, i64::MAX, true).unwrap_err();
            assert!(matches!(error, ReadError::OffsetOutOfRange { start: 7, .. }), "{error}");
        }
        assert!(log.read(end, 100, i64::MAX, true).unwrap().is_empty());
        assert_eq!(records(log.read(7, 1, i64::MAX, true).unwrap())[0].0, 7);
    }
}

#[test]
fn the_newest_batches_need_no_file() {
    let (disk, mut log) = fresh(&LogConfig { tail_cache_bytes: 2000, ..config() });
    let bounds = fill(&mut log, 100);
    let path = dir().join("00000000000000000000.log");
    let real = disk.read_all(&path).unwrap();
    disk.alter(&path, |bytes| bytes.fill(0)).unwrap();
    let late = bounds[bounds.len() - 6];
    let got = log.read(late, usize::MAX, i64::MAX, true).unwrap();
    assert_eq!(got, real.slice(real.len() - got.len()..));
    assert!(log.read(0, 100, i64::MAX, true).is_err());
    // Truncated records are not served from memory either.
    disk.alter(&path, |bytes| bytes.copy_from_slice(&real)).unwrap();
    log.truncate_to(late).unwrap();
    append(&mut log, &TestBatch::of(1, 999));
    let got = records(log.read(late, usize::MAX, i64::MAX, true).unwrap());
    assert_eq!((got.len(), got[0].0), (1, late));
    assert!(got[0].1.starts_with(b"999:"));
}

#[test]
fn a_batch_larger_than_any_buffer_is_read() {
    let (logs, _) = cached_and_not(5);
    let config = LogConfig { tail_cache_bytes: 0, ..config() };
    drop(logs);
    let (disk, mut log) = fresh(&config);
    let mut batch = TestBatch::of(1, 1);
    batch.values[0] = vec![b'v'; 1_000_000];
    append(&mut log, &batch);
    append(&mut log, &TestBatch::of(1, 2));
    append(&mut log, &batch);
    let small_read = records(log.read(0, 10, i64::MAX, true).unwrap());
    assert_eq!(small_read[0].1.len(), 1_000_000);
    assert!(log.read(0, 10, i64::MAX, false).unwrap().is_empty());
    assert_eq!(log.offset_for_timestamp(NOW).unwrap(), Some((NOW, 0)));
    let expected = read_all(&log);
    drop(log);
    assert_eq!(read_all(&open(&disk, &config).0), expected);
}

proptest! {
    /// Time lookups agree with a scan of all records, for timestamps in any order.
    #[test]
    fn time_lookups_are_exact(
        batches in prop::collection::vec(prop::collection::vec(0_i64..40, 1..5), 0..60),
        start in 0_i64..20,
        cut in 0.5_f64..1.5,
        compressed in any::<bool>(),
    ) {
        let config = LogConfig { segment_bytes: 1200, index_interval_bytes: 150, ..config() };
        let (disk, mut log) = fresh(&config);
        let mut all = Vec::new();
        for (tag, times) in batches.iter().enumerate() {
            let codec = if compressed { Codec::Lz4 } else { Codec::None };
            let base = append(&mut log, &TestBatch::of(times.len(), tag).at(times).codec(codec));
            all.extend(times.iter().zip(base..).map(|(&time, offset)| (time, offset)));
        }
        let end = log.truncate_to((log.end_offset() as f64 * cut) as i64).unwrap();
        all.retain(|&(_, offset)| offset < end);
        let start = log.delete_before(start).unwrap();
        all.retain(|&(_, offset)| offset >= start);
        let largest = all.iter().map(|&(time, _)| time).max();
        let newest = all.iter().find(|&&(time, _)| Some(time) == largest).copied();
        let check = |log: &PartitionLog| {
            for time in -1..42 {
                let expected = all.iter().find(|(at, _)| *at >= time).copied();
                prop_assert_eq!(log.offset_for_timestamp(time).unwrap(), expected, "time {}", time);
            }
            prop_assert_eq!(log.max_timestamp_offset().unwrap(), newest);
            Ok(())
        };
        check(&log)?;
        log.close().unwrap();
        let (log, recovery) = open(&disk, &config);
        prop_assert!(recovery.clean);
        check(&log)?;
        drop(log);
        check(&open(&disk, &config).0)?;
    }

    /// A log behaves like a list under any sequence of appends, truncations, deletions and
    /// restarts.
    #[test]
    fn a_log_behaves_as_a_list(
        steps in prop::collection::vec((0_u8..10, 0.0_f64..1.0, 1_usize..5), 1..120),
        cache in prop::sample::select(vec![0_usize, 500, 1 << 20]),
    ) {
        let config = LogConfig { segment_bytes: 600, tail_cache_bytes: cache, ..config() };
        let (disk, mut log) = fresh(&config);
        // The batches' first offsets, and the values by offset.
        let mut bounds: Vec<i64> = Vec::new();
        let mut values: Vec<(i64, Bytes)> = Vec::new();
        for (tag, (action, place, count)) in steps.into_iter().enumerate() {
            let span = log.end_offset() - log.start_offset();
            let offset = log.start_offset() + (span as f64 * place) as i64;
            match action {
                0 => {
                    let end = log.truncate_to(offset).unwrap();
                    let expected = bounds.iter().rev().find(|&&bound| bound <= offset).copied();
                    if span > 0 && offset > log.start_offset() {
                        prop_assert_eq!(Some(end), expected);
                    }
                    bounds.retain(|&bound| bound < end);
                    values.retain(|(at, _)| *at < end);
                }
                1 => {
                    let start = log.delete_before(offset).unwrap();
                    prop_assert_eq!(start, offset);
                    values.retain(|(at, _)| *at >= start);
                }
                2 => {
                    drop(log);
                    let (opened, recovery) = open(&disk, &config);
                    prop_assert_eq!((recovery.truncated_bytes, recovery.clean), (0, false));
                    log = opened;
                }
                3 => {
                    log.close().unwrap();
                    let (opened, recovery) = open(&disk, &config);
                    prop_assert!(recovery.clean);
                    log = opened;
                }
                _ => {
                    let batch = TestBatch::of(count, tag);
                    let base = append(&mut log, &batch);
                    bounds.push(base);
                    values.extend((base..).zip(batch.values.into_iter().map(Bytes::from)));
                }
            }
            prop_assert_eq!(&read_all(&log), &values);
        }
    }
}
