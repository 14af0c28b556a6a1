//! Deleting old records, and restarting a log at an offset.

use curtail_wire::Uuid;

use super::*;
use crate::log::{read_partition_metadata, write_partition_metadata};

fn segmented() -> (MemDisk, PartitionLog, LogConfig) {
    let config = LogConfig { segment_bytes: 500, retention_ms: None, ..config() };
    let (disk, mut log) = fresh(&config);
    for tag in 0..40 {
        append(&mut log, &TestBatch::of(2, tag).at(&[tag as i64 * 10; 2]));
    }
    (disk, log, config)
}

#[test]
fn deletion_moves_the_start_and_frees_whole_segments() {
    for offset in [1, 5, 17, 40, 79, 80, 1000] {
        let (disk, mut log, config) = segmented();
        let all = read_all(&log);
        let start = log.delete_before(offset).unwrap();
        assert_eq!(start, offset.min(80));
        assert_eq!(log.delete_before(offset - 1).unwrap(), start, "never back");
        assert_eq!(read_all(&log), all[start as usize..]);
        assert!(log.segments.get(1).is_none_or(|second| second.base_offset > start));
        drop(log);
        let (mut log, recovery) = open(&disk, &config);
        assert_eq!((log.start_offset(), recovery.truncated_bytes), (start, 0));
        assert_eq!(read_all(&log), all[start as usize..]);
        assert_eq!(append(&mut log, &TestBatch::of(1, 1)), 80);
    }
}

#[test]
fn retention_by_size_keeps_at_least_that_much() {
    let (_, mut log, config) = segmented();
    let all = log.size_bytes();
    for kept in (0..=all).rev().step_by(100) {
        log.set_config(LogConfig { retention_bytes: Some(kept), ..config.clone() });
        log.apply_retention(NOW, i64::MAX).unwrap();
        assert!(log.size_bytes() >= kept);
        assert!(log.segment_count() == 1 || log.size_bytes() - log.segments[0].size() < kept);
    }
    log.set_config(LogConfig { retention_bytes: Some(0), ..config });
    log.apply_retention(NOW, i64::MAX).unwrap();
    assert_eq!((log.size_bytes(), log.start_offset(), log.end_offset()), (0, 80, 80));
}

#[test]
fn retention_by_time_deletes_segments_that_are_all_old() {
    let (_, mut log, config) = segmented();
    log.set_config(LogConfig { retention_ms: Some(1000), ..config });
    assert_eq!(log.apply_retention(1000, i64::MAX).unwrap(), 0);
    let first_newest = log.segments[0].marks.max_timestamp;
    assert_eq!(log.apply_retention(1000 + first_newest, i64::MAX).unwrap(), 0);
    assert_eq!(log.apply_retention(1001 + first_newest, i64::MAX).unwrap(), 1);
    let bound = log.segments[2].base_offset;
    assert_eq!(log.apply_retention(i64::MAX, bound).unwrap(), 2, "not beyond the high watermark");
    assert!(log.apply_retention(i64::MAX, i64::MAX).unwrap() > 0);
    assert_eq!((log.start_offset(), log.size_bytes()), (80, 0));
    assert_eq!(log.apply_retention(i64::MAX, i64::MAX).unwrap(), 0);
    assert_eq!(append(&mut log, &TestBatch::of(1, 1)), 80);
}

#[test]
fn a_follower_can_restart_its_log_at_any_offset() {
    for offset in [0, 33, 80, 5000] {
        let (disk, mut log, config) = segmented();
        log.truncate_fully_and_start_at(offset).unwrap();
        assert_eq!((log.start_offset(), log.end_offset()), (offset, offset));
        assert_eq!((log.size_bytes(), log.latest_epoch(), log.producer_count()), (0, None, 0));
        drop(log);
        let (mut log, _) = open(&disk, &config);
        assert_eq!((log.start_offset(), log.end_offset()), (offset, offset));
        assert_eq!(append(&mut log, &TestBatch::of(2, 1)), offset);
        assert_eq!(read_all(&log).len(), 2);
        assert_eq!(log.truncate_to(offset - 10).unwrap(), offset - 10);
    }
}

#[test]
fn the_topic_id_is_stored_in_kafkas_format() {
    let disk = MemDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    assert_eq!(read_partition_metadata(&disk, &dir()).unwrap(), None);
    let id: Uuid = "AAECAwQFBgcICQoLDA0ODw".parse().unwrap();
    write_partition_metadata(&disk, &dir(), id).unwrap();
    assert_eq!(read_partition_metadata(&disk, &dir()).unwrap(), Some(id));
    let path = dir().join("partition.metadata");
    let content = disk.read_all(&path).unwrap();
    assert_eq!(content, &b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"[..]);
    disk.write_atomic(&path, b"version: 0\n").unwrap();
    assert!(read_partition_metadata(&disk, &dir()).is_err());
}
