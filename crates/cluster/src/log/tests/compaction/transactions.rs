//! Transactions and idempotent producers in a compacted log.

use curtail_wire::records::{BatchHeader, EndTxnMarker};

use super::*;
use crate::log::{Origin, TxnMarker};

/// All batches fit into one segment.
fn roomy() -> LogConfig {
    LogConfig { segment_bytes: 1 << 20, ..compacted() }
}

fn stamp_of(id: i64, sequence: i32) -> ProducerStamp {
    ProducerStamp { producer_id: id, producer_epoch: 0, base_sequence: sequence }
}

/// Appends one record of a transaction.
pub(super) fn put_in(log: &mut PartitionLog, id: i64, sequence: i32, key: &str) -> i64 {
    let mut batch = keyed(&[(key, Some("t"))], ProducerStamp::NONE, Codec::None).to_vec();
    set_transactional(&mut batch);
    stamp(&mut batch, stamp_of(id, sequence));
    let guard = log.begin_verification(&batch, NOW);
    log.append_from(Origin::Client, batch.into(), guard, 0, NOW).unwrap().base_offset
}

pub(super) fn end(log: &mut PartitionLog, id: i64, result: EndTxnMarker) -> i64 {
    let marker = TxnMarker {
        producer_id: id,
        producer_epoch: 0,
        result,
        coordinator_epoch: 1,
        bumped: false,
    };
    log.append_marker(&marker, 0, NOW).unwrap().base_offset
}

/// Returns the batches of a log: base offset, whether it is a control batch, and its number of records.
fn layout(log: &PartitionLog) -> Vec<(i64, bool, i32)> {
    let headers = batches(raw(log)).map(|batch| batch.unwrap().header);
    headers.map(|h: BatchHeader| (h.base_offset, h.is_control(), h.record_count)).collect()
}

fn stable(log: &PartitionLog) -> i64 {
    log.first_unstable_offset().unwrap_or(log.end_offset())
}

#[test]
fn aborted_records_go_first_and_their_marker_after_its_horizon() {
    let (disk, mut log) = fresh(&roomy());
    let retention = log.config().compaction.delete_retention_ms;
    put(&mut log, &[("a", Some("old"))]);
    put_in(&mut log, 1, 0, "a");
    put_in(&mut log, 1, 1, "b");
    end(&mut log, 1, EndTxnMarker::Abort);
    put_in(&mut log, 2, 0, "c");
    end(&mut log, 2, EndTxnMarker::Commit);
    log.committed_to(log.end_offset());
    log.roll().unwrap();
    let clean_at = |log: &mut PartitionLog, now| {
        put(log, &[("z", Some("1"))]);
        log.roll().unwrap();
        assert!(clean(log, now, stable(log)));
        let of_txns = layout(log).into_iter().filter(|(offset, ..)| *offset < 6);
        (of_txns.collect::<Vec<_>>(), log.aborted_in(0, i64::MAX).len())
    };
    // The aborted record at 2 is the last of producer 1: its batch stays, empty, for the sequence.
    let first = [(0, false, 1), (2, false, 0), (3, true, 1), (4, false, 1), (5, true, 1)];
    assert_eq!(clean_at(&mut log, NOW), (first.to_vec(), 1));
    assert_eq!(newest(&read_keyed(&log)).len(), 3);
    assert_eq!(clean_at(&mut log, NOW + 1), (first.to_vec(), 1));
    // Once the producers have expired, the batches of aborted records go, and the marker can follow.
    log.expire_producers(i64::MAX);
    let second = [(0, false, 1), (3, true, 1), (4, false, 1), (5, true, 1)];
    assert_eq!(clean_at(&mut log, NOW + 2), (second.to_vec(), 1));
    assert_eq!(clean_at(&mut log, NOW + 3), (second.to_vec(), 0));
    assert_eq!(clean_at(&mut log, NOW + 2 + retention), (second.to_vec(), 0));
    let third = [(0, false, 1), (4, false, 1), (5, true, 1)];
    assert_eq!(clean_at(&mut log, NOW + 3 + retention), (third.to_vec(), 0));
    log.flush().unwrap();
    drop(log);
    let (mut log, _) = open(&disk, &roomy());
    log.committed_to(log.end_offset());
    assert_eq!(log.first_unstable_offset(), None);
}

#[test]
fn commit_marker_goes_once_all_records_of_its_transaction_are_replaced() {
    let (_, mut log) = fresh(&roomy());
    let retention = log.config().compaction.delete_retention_ms;
    put_in(&mut log, 2, 0, "c");
    end(&mut log, 2, EndTxnMarker::Commit);
    put(&mut log, &[("c", Some("newer"))]);
    log.roll().unwrap();
    log.expire_producers(i64::MAX);
    let clean_at = |log: &mut PartitionLog, now| {
        put(log, &[("z", Some("1"))]);
        log.roll().unwrap();
        assert!(clean(log, now, i64::MAX));
        layout(log).iter().filter(|(offset, ..)| *offset < 2).count()
    };
    let counts =
        [NOW, NOW + 1, NOW + retention, NOW + 1 + retention].map(|now| clean_at(&mut log, now));
    assert_eq!(counts, [1, 1, 1, 0]);
}

#[test]
fn open_transaction_keeps_everything_after_it() {
    let (disk, mut log) = fresh(&roomy());
    put(&mut log, &[("a", Some("1"))]);
    put(&mut log, &[("a", Some("2"))]);
    log.roll().unwrap();
    put_in(&mut log, 1, 0, "a");
    log.roll().unwrap();
    put(&mut log, &[("a", Some("3"))]);
    log.roll().unwrap();
    let last_stable = stable(&log);
    assert!(clean(&mut log, NOW, last_stable));
    assert_eq!(offsets(&log), [1, 2, 3]);
    log.flush().unwrap();
    drop(log);
    let (log, _) = open(&disk, &roomy());
    assert_eq!(log.first_unstable_offset(), Some(2));
}

#[test]
fn sequences_continue_after_cleaning_and_restart() {
    let (disk, mut log) = fresh(&roomy());
    let send = |log: &mut PartitionLog, id: i64, sequence: i32| {
        let batch = keyed(&[("a", Some("v"))], stamp_of(id, sequence), Codec::None);
        log.append_as_leader(batch, 0, NOW)
    };
    for sequence in 0..6 {
        send(&mut log, 1, sequence).unwrap();
        send(&mut log, 2, sequence).unwrap();
    }
    put(&mut log, &[("a", Some("last"))]);
    log.roll().unwrap();
    assert!(clean(&mut log, NOW, i64::MAX));
    assert_eq!(offsets(&log), [12]);
    assert_eq!(layout(&log), [(10, false, 0), (11, false, 0), (12, false, 1)]);
    log.flush().unwrap();
    drop(log);
    // Without snapshots all is read again.
    for path in disk.list(&dir()).unwrap() {
        if path.extension().is_some_and(|extension| extension == "snapshot") {
            disk.remove_file(&path).unwrap();
        }
    }
    let (mut log, _) = open(&disk, &roomy());
    for id in [1, 2] {
        assert!(send(&mut log, id, 5).unwrap().duplicate);
        assert!(send(&mut log, id, 7).is_err(), "a sequence is missing");
        assert!(!send(&mut log, id, 6).unwrap().duplicate);
    }
}

/// The snapshot at the start of the second segment has an open transaction. Its marker is removed from the
/// segments after it.
#[test]
fn snapshot_does_not_reopen_a_transaction_whose_marker_was_removed() {
    let (disk, mut log) = fresh(&roomy());
    let retention = log.config().compaction.delete_retention_ms;
    put_in(&mut log, 1, 0, "a");
    log.roll().unwrap();
    end(&mut log, 1, EndTxnMarker::Abort);
    log.roll().unwrap();
    log.expire_producers(i64::MAX);
    for now in [NOW, NOW + 1, NOW + 1 + retention] {
        put(&mut log, &[("z", Some("1"))]);
        log.roll().unwrap();
        assert!(clean(&mut log, now, i64::MAX));
    }
    assert!(layout(&log).iter().all(|(_, is_control, _)| !is_control));
    log.flush().unwrap();
    let active = log.active().base_offset;
    drop(log);
    // The newest snapshot is lost; recovery would use an older one.
    disk.remove_file(&dir().join(format!("{active:020}.snapshot"))).unwrap();
    let (mut log, _) = open(&disk, &roomy());
    assert_eq!(log.first_unstable_offset(), None);
    log.close().unwrap();
    drop(log);
    let (log, recovery) = open(&disk, &roomy());
    assert!(recovery.clean);
    assert_eq!(log.first_unstable_offset(), None);
}
