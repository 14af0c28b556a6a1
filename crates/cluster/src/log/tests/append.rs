//! Appends by a leader and a follower, and their refusals.

use bytes::{Bytes, BytesMut};
use curtail_wire::ErrorCode;
use curtail_wire::records::{
    BatchHeader, Codec, TimestampType, set_log_append_time, set_max_timestamp,
};

use super::*;

#[test]
fn a_leader_assigns_offsets_and_epoch_and_keeps_the_records() {
    let (_, mut log) = fresh(&config());
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let before = log.end_offset();
        let batch = TestBatch::of(3, 40).codec(codec);
        let appended = log.append_as_leader(batch.build(), 7, NOW).unwrap();
        assert_eq!((appended.base_offset, appended.last_offset), (before, before + 2));
        assert_eq!((appended.log_append_time_ms, appended.duplicate), (-1, false));
        let bytes = log.read(before, usize::MAX, i64::MAX, true).unwrap();
        assert_eq!(BatchHeader::parse(&bytes).unwrap().partition_leader_epoch, 7);
        let expected: Vec<_> = (before..)
            .zip(batch.values.iter().map(|value| Bytes::copy_from_slice(value)))
            .collect();
        assert_eq!(records(bytes), expected);
    }
    assert_eq!(log.latest_epoch(), Some(7));
}

#[test]
fn a_batch_gets_the_codec_of_the_topic() {
    for wanted in Codec::ALL {
        let (_, mut log) = fresh(&LogConfig { compression: Some(wanted.into()), ..config() });
        for codec in Codec::ALL {
            let before = log.end_offset();
            let sequence = i32::try_from(before).unwrap();
            // The latest timestamp is not the last one, and the producer's header may have it wrong.
            let batch =
                TestBatch::of(3, 40).at(&[NOW, NOW + 2, NOW + 1]).codec(codec).from(1, 0, sequence);
            let mut bytes = BytesMut::from(&batch.build()[..]);
            set_max_timestamp(&mut bytes, NOW + 9);
            let bytes = bytes.freeze();
            log.append_as_leader(bytes.clone(), 7, NOW).unwrap();
            let kept = log.read(before, usize::MAX, i64::MAX, true).unwrap();
            let header = BatchHeader::parse(&kept).unwrap();
            assert_eq!(header.compression().unwrap(), wanted);
            assert_eq!((header.max_timestamp, header.base_sequence), (NOW + 2, sequence));
            let expected: Vec<_> = (before..)
                .zip(batch.values.iter().map(|value| Bytes::copy_from_slice(value)))
                .collect();
            assert_eq!(records(kept), expected);
            assert!(log.append_as_leader(bytes, 7, NOW).unwrap().duplicate);
        }
    }
}

/// As in Kafka the limit is for the batch as it is stored.
#[test]
fn a_batch_that_is_too_large_without_its_codec_is_refused() {
    let batch = TestBatch { values: vec![vec![0; 4000]], ..TestBatch::of(1, 1) }.codec(Codec::Gzip);
    let config = LogConfig { max_message_bytes: 1000, ..config() };
    fresh(&config).1.append_as_leader(batch.build(), 0, NOW).unwrap();
    let uncompressed = LogConfig { compression: Some(Codec::None.into()), ..config };
    let refused = fresh(&uncompressed).1.append_as_leader(batch.build(), 0, NOW).unwrap_err();
    assert_eq!(refused.code, ErrorCode::MESSAGE_TOO_LARGE);
}

#[test]
fn a_shared_buffer_is_not_changed() {
    let (_, mut log) = fresh(&config());
    append(&mut log, &TestBatch::of(2, 1));
    let batch = TestBatch::of(2, 2).build();
    let copy = Bytes::copy_from_slice(&batch);
    log.append_as_leader(batch.clone(), 3, NOW).unwrap();
    assert_eq!(batch, copy);
}

#[test]
fn log_append_time_replaces_the_timestamps() {
    let config = LogConfig { timestamp_type: TimestampType::LogAppendTime, ..config() };
    let (_, mut log) = fresh(&config);
    let batch = TestBatch::of(2, 1).at(&[5, i64::MAX]).from(1, 0, 0);
    let appended = log.append_as_leader(batch.build(), 0, NOW).unwrap();
    assert_eq!(appended.log_append_time_ms, NOW);
    let again = log.append_as_leader(batch.build(), 0, NOW + 9).unwrap();
    assert_eq!((again.log_append_time_ms, again.duplicate), (NOW, true));
    let bytes = log.read(0, usize::MAX, i64::MAX, true).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!(
        (header.timestamp_type(), header.max_timestamp),
        (TimestampType::LogAppendTime, NOW)
    );
    assert_eq!(records(bytes).len(), 2);
    assert_eq!(log.offset_for_timestamp(NOW).unwrap(), Some((NOW, 0)));
}

fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Returns a batch changed at one position, with its checksum corrected if `sealed`.
fn altered(at: usize, bytes: &[u8], sealed: bool) -> Bytes {
    let mut batch = BytesMut::from(&TestBatch::of(2, 1).build()[..]);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    if sealed {
        seal(&mut batch);
    }
    batch.freeze()
}

/// Returns a batch with the counts of `header` and another payload in place of its compressed
/// records.
fn with_payload(header: &Bytes, payload: &[u8]) -> Bytes {
    let mut batch = [&header[..61], payload].concat();
    let length = (batch.len() - 12) as u32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    seal(&mut batch);
    batch.into()
}

#[test]
fn compressed_payload_that_is_not_the_records_is_refused() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let compress = |records: &[u8]| {
            let mut out = Vec::new();
            Compression { codec, ..Compression::default() }.compress(records, &mut out).unwrap();
            out
        };
        let plain = TestBatch::of(2, 30).build();
        let records = &plain[61..];
        let good = TestBatch::of(2, 30).codec(codec).build();
        let cut = compress(records);
        let cases: [(&str, Vec<u8>, ErrorCode); 7] = [
            ("no payload of the codec", vec![0x99; 40], ErrorCode::UNKNOWN_SERVER_ERROR),
            ("a cut payload", cut[..cut.len() - 5].to_vec(), ErrorCode::UNKNOWN_SERVER_ERROR),
            ("too few records", compress(&records[..records.len() / 2]), ErrorCode::INVALID_RECORD),
            ("too many records", compress(&[records, records].concat()), ErrorCode::INVALID_RECORD),
            (
                "bytes after the records",
                compress(&[records, &[1, 2]].concat()),
                ErrorCode::INVALID_RECORD,
            ),
            ("a record length too large", compress(&[0x7e; 20]), ErrorCode::INVALID_RECORD),
            (
                "records that do not count up",
                compress(&[&records[..records.len() / 2], &records[..records.len() / 2]].concat()),
                ErrorCode::INVALID_RECORD,
            ),
        ];
        for (what, payload, code) in cases {
            let (_, mut log) = fresh(&config());
            let error = log.append_as_leader(with_payload(&good, &payload), 0, NOW).unwrap_err();
            assert_eq!(error.code, code, "{codec}, {what}: {error}");
            assert_eq!((log.end_offset(), raw(&log).len()), (0, 0), "{codec}, {what}");
        }
        let (_, mut log) = fresh(&config());
        log.append_as_leader(with_payload(&good, &compress(records)), 0, NOW).unwrap();
    }
}

#[test]
fn records_too_far_in_the_future_are_named_for_any_header_timestamp() {
    let (_, mut log) = fresh(&config());
    for codec in Codec::ALL {
        let late = TestBatch::of(3, 1).at(&[NOW, NOW + 3_600_001, NOW + 3_600_000]).codec(codec);
        let mut understated = BytesMut::from(&late.build()[..]);
        set_max_timestamp(&mut understated, NOW);
        for batch in [late.build(), understated.freeze()] {
            let error = log.append_as_leader(batch, 0, NOW).unwrap_err();
            assert_eq!(error.code, ErrorCode::INVALID_TIMESTAMP, "{codec}");
            assert_eq!(error.records.len(), 1, "{codec}");
            assert_eq!(error.records[0].batch_index, 1, "{codec}");
        }
    }
}

#[test]
fn stated_latest_timestamp_is_corrected() {
    for codec in Codec::ALL {
        let (_, mut log) = fresh(&config());
        for stated in [NOW - 9, NOW + 9, i64::MAX] {
            let mut batch =
                BytesMut::from(&TestBatch::of(2, 1).at(&[NOW + 1, NOW]).codec(codec).build()[..]);
            set_max_timestamp(&mut batch, stated);
            let at = log.append_as_leader(batch.freeze(), 0, NOW).unwrap().base_offset;
            let bytes = log.read(at, usize::MAX, i64::MAX, true).unwrap();
            assert_eq!(BatchHeader::parse(&bytes).unwrap().max_timestamp, NOW + 1, "{codec}");
            assert_eq!(records(bytes).len(), 2, "{codec}");
        }
        assert_eq!(log.offset_for_timestamp(NOW + 1).unwrap(), Some((NOW + 1, 0)));
        assert_eq!(log.offset_for_timestamp(NOW + 2).unwrap(), None);
    }
}

#[test]
fn a_bad_batch_is_refused_and_changes_nothing() {
    let good = TestBatch::of(2, 1).build();
    let two = [&good[..], &good[..]].concat();
    let mut stamped = BytesMut::from(&good[..]);
    set_log_append_time(&mut stamped, NOW);
    let late = TestBatch::of(1, 1).at(&[NOW + 3_600_001]).build();
    let cases: [(&str, Bytes, ErrorCode); 17] = [
        ("nothing", Bytes::new(), ErrorCode::INVALID_RECORD),
        ("a header cut off", good.slice(..60), ErrorCode::INVALID_RECORD),
        ("records cut off", good.slice(..good.len() - 1), ErrorCode::INVALID_RECORD),
        ("two batches", two.into(), ErrorCode::INVALID_RECORD),
        (
            "a negative length",
            altered(8, &(-5_i32).to_be_bytes(), true),
            ErrorCode::CORRUPT_MESSAGE,
        ),
        ("magic 1", altered(16, &[1], true), ErrorCode::INVALID_RECORD),
        ("a wrong checksum", altered(17, &[1, 2, 3, 4], false), ErrorCode::CORRUPT_MESSAGE),
        ("a flipped bit", altered(70, b"?", false), ErrorCode::CORRUPT_MESSAGE),
        ("a base offset", altered(0, &9_i64.to_be_bytes(), true), ErrorCode::INVALID_RECORD),
        ("no records", altered(57, &0_i32.to_be_bytes(), true), ErrorCode::INVALID_RECORD),
        ("a count too large", altered(57, &3_i32.to_be_bytes(), true), ErrorCode::INVALID_RECORD),
        ("a delta too large", altered(23, &9_i32.to_be_bytes(), true), ErrorCode::INVALID_RECORD),
        ("a control batch", altered(22, &[0x20], true), ErrorCode::INVALID_RECORD),
        ("an unknown codec", altered(22, &[7], true), ErrorCode::UNKNOWN_SERVER_ERROR),
        ("a producer without sequence", altered(43, &[0; 10], true), ErrorCode::INVALID_RECORD),
        ("log append time", stamped.freeze(), ErrorCode::INVALID_TIMESTAMP),
        ("a time in the future", late, ErrorCode::INVALID_TIMESTAMP),
    ];
    let (_, mut log) = fresh(&config());
    append(&mut log, &TestBatch::of(1, 0));
    let before = raw(&log);
    for (what, batch, code) in cases {
        let error = log.append_as_leader(batch, 0, NOW).unwrap_err();
        assert_eq!(error.code, code, "{what}: {error}");
        assert_eq!((log.end_offset(), raw(&log)), (1, before.clone()), "{what}");
    }
    log.append_as_leader(good, 0, NOW).unwrap();
}

#[test]
fn records_with_non_consecutive_offsets_are_refused() {
    // The second record's offset delta follows its length, attributes and timestamp delta.
    let good = TestBatch::of(2, 0).build();
    let first_len = usize::from(good[61] >> 1) + 1;
    let at = 61 + first_len + 3;
    assert_eq!(good[at], 2, "zigzag of 1");
    let (_, mut log) = fresh(&config());
    let mut bad = BytesMut::from(&good[..]);
    bad[at] = 0;
    let crc = crc32c::crc32c(&bad[21..]);
    bad[17..21].copy_from_slice(&crc.to_be_bytes());
    let error = log.append_as_leader(bad.freeze(), 0, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_RECORD);
}

#[test]
fn a_batch_larger_than_the_limit_is_refused() {
    let batch = TestBatch::of(10, 49).build();
    let small = LogConfig { max_message_bytes: batch.len() - 1, ..config() };
    let error = fresh(&small).1.append_as_leader(batch.clone(), 0, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::MESSAGE_TOO_LARGE);
    let small = LogConfig { segment_bytes: batch.len() as u64 - 1, ..config() };
    let error = fresh(&small).1.append_as_leader(batch, 0, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::RECORD_LIST_TOO_LARGE);
}

#[test]
fn an_old_leader_is_fenced() {
    let (_, mut log) = fresh(&config());
    log.append_as_leader(TestBatch::of(1, 1).build(), 5, NOW).unwrap();
    let error = log.append_as_leader(TestBatch::of(1, 1).build(), 4, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(log.end_offset(), 1);
}

#[test]
fn a_follower_becomes_equal_to_its_leader() {
    let small = LogConfig { segment_bytes: 700, ..config() };
    let (_, mut leader) = fresh(&small);
    for tag in 0..60 {
        let epoch = (tag / 20) as i32;
        let batch = TestBatch::of(1 + tag % 4, tag).from(9, 0, leader.end_offset() as i32);
        leader.append_as_leader(batch.build(), epoch, NOW).unwrap();
    }
    assert!(leader.segment_count() > 5);
    // The responses may be cut anywhere, even within batches.
    for fetch_bytes in [1, 100, 500, 1000, 100_000] {
        let other_roll = LogConfig { segment_bytes: 900, ..config() };
        let (_, mut follower) = fresh(&other_roll);
        while follower.end_offset() < leader.end_offset() {
            let from = follower.end_offset();
            let answer = leader.read(from, fetch_bytes * 2, i64::MAX, true).unwrap();
            let cut = answer.slice(..answer.len().min(fetch_bytes.max(400)));
            let appended = follower.append_as_follower(cut).unwrap();
            assert_eq!((appended.base_offset, appended.end_offset), (from, follower.end_offset()));
            assert!(appended.batches > 0);
        }
        assert_eq!(raw(&follower), raw(&leader));
        assert_eq!(follower.producers, leader.producers);
        for epoch in -1..4 {
            assert_eq!(follower.end_offset_for_epoch(epoch), leader.end_offset_for_epoch(epoch));
        }
    }
}

#[test]
fn a_follower_refuses_batches_that_do_not_continue_its_log() {
    let (_, mut leader) = fresh(&config());
    let bounds = fill(&mut leader, 6);
    let all = leader.read(0, usize::MAX, i64::MAX, true).unwrap();
    let from = |offset| leader.read(offset, usize::MAX, i64::MAX, true).unwrap();
    let (_, mut follower) = fresh(&config());
    // A corrupt batch in the middle: the preceding batches are appended, it and the following are
    // not.
    let mut corrupt = BytesMut::from(&all[..]);
    let third = all.len() - from(bounds[3]).len();
    corrupt[third + 65] ^= 1;
    let error = follower.append_as_follower(corrupt.freeze()).unwrap_err();
    assert_eq!((error.code, follower.end_offset()), (ErrorCode::CORRUPT_MESSAGE, bounds[3]));
    assert_eq!(follower.append_as_follower(Bytes::new()).unwrap().batches, 0);
    let again = follower.append_as_follower(all).unwrap_err();
    assert_eq!(again.code, ErrorCode::OFFSET_OUT_OF_RANGE);
    follower.append_as_follower(from(bounds[3])).unwrap();
    assert_eq!(raw(&follower), raw(&leader));
}

/// DeleteRecords may move the leader's start into a batch, and the leader sends that batch whole.
#[test]
fn a_follower_that_starts_within_a_batch_appends_the_batch_whole() {
    let (_, mut leader) = fresh(&config());
    for tag in 0..3 {
        append(&mut leader, &TestBatch::of(4, tag));
    }
    for (start, first) in [(5, 4), (7, 4), (8, 8), (11, 8)] {
        let (disk, mut follower) = fresh(&config());
        fill(&mut follower, 1);
        follower.truncate_fully_and_start_at(start).unwrap();
        let behind = leader.read(0, usize::MAX, i64::MAX, true).unwrap();
        let refused = follower.append_as_follower(behind).unwrap_err();
        assert_eq!(refused.code, ErrorCode::OFFSET_OUT_OF_RANGE, "{start}");
        let answer = leader.read(start, usize::MAX, i64::MAX, true).unwrap();
        let appended = follower.append_as_follower(answer.clone()).unwrap();
        assert_eq!((appended.base_offset, appended.end_offset), (first, 12), "{start}");
        assert_eq!((follower.start_offset(), follower.end_offset()), (start, 12));
        // Only an empty log may move its start.
        let again = follower.append_as_follower(answer).unwrap_err();
        assert_eq!((again.code, follower.end_offset()), (ErrorCode::OFFSET_OUT_OF_RANGE, 12));
        drop(follower);
        let (follower, _) = open(&disk, &config());
        assert_eq!((follower.start_offset(), follower.end_offset()), (start, 12));
    }
}

#[test]
fn a_full_disk_refuses_the_batch_and_keeps_the_log_whole() {
    let small = LogConfig { segment_bytes: 600, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 10);
    let batch = TestBatch::of(2, 30).from(5, 0, 0);
    let size = batch.build().len() as u64;
    // Enough space for every part of the batch, up to all but its last byte.
    for room in 0..size {
        let before = (raw(&log), log.end_offset(), log.producers.clone());
        disk.set_capacity(Some(disk.used() + room));
        let error = log.append_as_leader(batch.build(), 0, NOW).unwrap_err();
        assert_eq!(error.code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!((raw(&log), log.end_offset(), log.producers.clone()), before);
        assert!(!log.is_offline());
    }
    disk.set_capacity(None);
    let appended = log.append_as_leader(batch.build(), 0, NOW).unwrap();
    assert!(!appended.duplicate);
    let expected = read_all(&log);
    drop(log);
    let (log, recovery) = open(&disk, &small);
    assert_eq!(recovery.truncated_bytes, 0);
    assert_eq!(read_all(&log), expected);
}

#[test]
fn a_log_whose_disk_is_gone_goes_offline() {
    let (disk, mut log) = fresh(&config());
    fill(&mut log, 3);
    disk.crash(true);
    for _ in 0..2 {
        let error = log.append_as_leader(TestBatch::of(1, 1).build(), 0, NOW).unwrap_err();
        assert_eq!(error.code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(log.end_offset(), 6);
    }
    assert!(log.is_offline());
    assert_eq!(open(&disk, &config()).0.end_offset(), 6);
}

#[test]
fn segments_roll_before_they_would_grow_too_large() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 50);
    assert!(log.segment_count() > 5);
    for segment in &log.segments {
        assert!(segment.size() > 0 && segment.size() <= 500);
        let path = dir().join(format!("{:020}.log", segment.base_offset));
        assert!(disk.exists(&path), "{}", path.display());
    }
    let sizes: Vec<u64> = log.segments.iter().map(super::super::segment::Segment::size).collect();
    let total: u64 = sizes.iter().sum();
    assert_eq!(log.size_bytes(), total);
    assert_eq!(read_all(&log).len() as i64, log.end_offset());
}

#[test]
fn a_followers_cache_respects_its_limit() {
    let (_, mut leader) = fresh(&config());
    let bounds = fill(&mut leader, 40);
    let all = leader.read(0, usize::MAX, i64::MAX, true).unwrap();
    for tail_cache_bytes in [0, 100, 1000, 1 << 20] {
        let (disk, mut follower) = fresh(&LogConfig { tail_cache_bytes, ..config() });
        append(&mut follower, &TestBatch::of(1, 0));
        follower.append_as_follower(all.slice(first_len(&all)..)).unwrap();
        assert_eq!(raw(&follower), all);
        for &offset in &bounds {
            let (got, expected) = (
                follower.read(offset, usize::MAX, i64::MAX, true).unwrap(),
                leader.read(offset, usize::MAX, i64::MAX, true).unwrap(),
            );
            assert_eq!(got, expected);
        }
        // Without its file the log can serve only the batches in memory.
        let path = dir().join("00000000000000000000.log");
        disk.alter(&path, |bytes| bytes.fill(0)).unwrap();
        let kept = |offset: &i64| follower.read(*offset, usize::MAX, i64::MAX, true).is_ok();
        let in_memory = bounds[..40].iter().filter(|offset| kept(offset)).count();
        let expected = match tail_cache_bytes {
            0 => 0..1,
            100 => 0..2,
            1000 => 5..20,
            _ => 40..41,
        };
        assert!(expected.contains(&in_memory), "{in_memory} with {tail_cache_bytes} bytes");
    }
}

fn first_len(bytes: &[u8]) -> usize {
    BatchHeader::parse(bytes).unwrap().size_in_bytes()
}
