//! Leader epochs: their start and end offsets, and truncation.

use super::*;
use crate::log::epochs::LeaderEpochs;

/// Returns a log with epochs 2 (0..4), 3 (4..4, nothing appended), 5 (4..8) and 6 (8..10).
fn log_with_epochs() -> (MemDisk, PartitionLog) {
    let (disk, mut log) = fresh(&config());
    let mut add = |epoch, batches| {
        for tag in 0..batches {
            log.append_as_leader(TestBatch::of(2, tag).build(), epoch, NOW).unwrap();
        }
    };
    add(2, 2);
    add(5, 2);
    add(6, 1);
    (disk, log)
}

#[test]
fn the_end_of_an_epoch_is_the_start_of_the_next() {
    let (disk, log) = log_with_epochs();
    let check = |log: &PartitionLog| {
        let table = [
            (-1, (-1, -1)),
            (0, (0, 0)),
            (1, (1, 0)),
            (2, (2, 4)),
            (3, (2, 4)),
            (4, (2, 4)),
            (5, (5, 8)),
            (6, (6, 10)),
            (7, (-1, -1)),
            (i32::MAX, (-1, -1)),
        ];
        for (epoch, expected) in table {
            assert_eq!(log.end_offset_for_epoch(epoch), expected, "epoch {epoch}");
        }
        let by_offset = [(0, Some(2)), (3, Some(2)), (4, Some(5)), (7, Some(5)), (8, Some(6))];
        for (offset, epoch) in by_offset {
            assert_eq!(log.epoch_for_offset(offset), epoch, "offset {offset}");
        }
    };
    check(&log);
    drop(log);
    check(&open(&disk, &config()).0);
    disk.remove_file(&dir().join("leader-epoch-checkpoint")).unwrap();
    check(&open(&disk, &config()).0);
}

#[test]
fn an_empty_log_knows_no_epoch() {
    let (_, log) = fresh(&config());
    assert_eq!(log.latest_epoch(), None);
    for epoch in [-1, 0, 5] {
        assert_eq!(log.end_offset_for_epoch(epoch), (-1, -1));
    }
}

#[test]
fn truncation_removes_the_epochs_after_it() {
    // The offset of the cut, the resulting end (the start of the batch there), and the latest
    // epoch.
    let table = [
        (12, 10, Some(6)),
        (10, 10, Some(6)),
        (9, 8, Some(5)),
        (8, 8, Some(5)),
        (7, 6, Some(5)),
        (5, 4, Some(2)),
        (4, 4, Some(2)),
        (2, 2, Some(2)),
        (1, 0, None),
        (0, 0, None),
    ];
    for (cut, end, latest) in table {
        let (disk, mut log) = log_with_epochs();
        assert_eq!(log.truncate_to(cut).unwrap(), end, "cut at {cut}");
        assert_eq!((log.end_offset(), log.latest_epoch()), (end, latest), "cut at {cut}");
        assert_eq!(read_all(&log).len() as i64, end);
        drop(log);
        let (log, recovery) = open(&disk, &config());
        assert_eq!(recovery.truncated_bytes, 0);
        assert_eq!((log.end_offset(), log.latest_epoch()), (end, latest), "reopened, cut at {cut}");
    }
}

#[test]
fn an_epoch_replaces_the_entries_it_contradicts() {
    let (_, mut log) = log_with_epochs();
    let add = |log: &mut PartitionLog, epoch| {
        log.append_as_leader(TestBatch::of(2, 1).build(), epoch, NOW).unwrap();
    };
    add(&mut log, 9);
    add(&mut log, 9);
    assert_eq!(log.end_offset_for_epoch(9), (9, 14));
    assert_eq!(log.end_offset_for_epoch(6), (6, 10));
    assert_eq!(log.epoch_for_offset(10), Some(9));
    // Epoch 10 starts where epoch 9 did, so nothing of epoch 9 remains.
    log.truncate_to(10).unwrap();
    add(&mut log, 10);
    assert_eq!(log.end_offset_for_epoch(9), (6, 10));
}

#[test]
fn an_epoch_begins_without_a_file() {
    let checkpoint = dir().join("leader-epoch-checkpoint");
    let written = |disk: &MemDisk| disk.read_all(&checkpoint).ok();
    let all = b"0\n3\n2 0\n5 4\n6 8\n";
    let (disk, log) = log_with_epochs();
    assert_eq!(written(&disk), None);
    drop(log);

    let (disk, mut log) = log_with_epochs();
    log.flush().unwrap();
    assert_eq!(written(&disk).as_deref(), Some(&all[..]));
    disk.remove_file(&checkpoint).unwrap();
    log.append_as_leader(TestBatch::of(2, 1).build(), 6, NOW).unwrap();
    log.flush().unwrap();
    assert_eq!(written(&disk), None, "written although nothing had changed");

    let (disk, mut log) = log_with_epochs();
    log.set_config(LogConfig { segment_bytes: 1, ..config() });
    log.append_as_leader(TestBatch::of(2, 1).build(), 7, NOW).unwrap_err();
    log.set_config(LogConfig { segment_bytes: log.size_bytes(), ..config() });
    log.append_as_leader(TestBatch::of(2, 1).build(), 6, NOW).unwrap();
    assert_eq!(written(&disk).as_deref(), Some(&all[..]), "with a new segment");

    let (disk, mut log) = log_with_epochs();
    log.truncate_to(8).unwrap();
    assert_eq!(written(&disk).as_deref(), Some(&b"0\n2\n2 0\n5 4\n"[..]));
}

#[test]
fn epochs_begun_since_the_checkpoint_survive_a_crash() {
    let (disk, mut log) = fresh(&config());
    for (epoch, flushed) in [(2, false), (5, true), (6, false), (9, false)] {
        log.append_as_leader(TestBatch::of(2, 1).build(), epoch, NOW).unwrap();
        if flushed {
            log.flush().unwrap();
        }
    }
    drop(log);
    disk.crash(true);
    let (log, recovery) = open(&disk, &config());
    assert!(!recovery.clean);
    for (epoch, end) in [(2, 2), (5, 4), (6, 6), (9, 8)] {
        assert_eq!(log.end_offset_for_epoch(epoch), (epoch, end));
    }
}

#[test]
fn deletion_moves_the_first_epoch_forward() {
    let table = [(2, Some(2), (2, 4)), (4, None, (2, 4)), (5, None, (2, 5)), (9, None, (2, 9))];
    for (start, of_two, end_of_two) in table {
        let (_, mut log) = log_with_epochs();
        log.delete_before(start).unwrap();
        assert_eq!(log.epoch_for_offset(start - 1), None, "start {start}");
        assert_eq!(log.epoch_for_offset(start).filter(|&epoch| epoch == 2), of_two);
        assert_eq!(log.end_offset_for_epoch(2), end_of_two, "start {start}");
        assert_eq!(log.latest_epoch(), Some(6));
    }
}

#[test]
fn a_malformed_epoch_checkpoint_is_ignored() {
    let contents = [
        "",
        "0",
        "0\n1\n",
        "1\n1\n0 0\n",
        "0\n1\n0 0 0\n",
        "0\n1\nx 0\n",
        "0\n2\n1 5\n1 6\n",
        "0\n2\n1 5\n2 5\n",
        "0\n1\n-1 0\n",
        "0\n1\n99999999999 0\n",
        "\u{ff}",
    ];
    let disk = MemDisk::new();
    disk.create_dir_all(&dir()).unwrap();
    for content in contents {
        let path = dir().join("leader-epoch-checkpoint");
        disk.write_atomic(&path, content.as_bytes()).unwrap();
        let epochs = LeaderEpochs::load(&disk, &dir()).unwrap();
        assert_eq!(epochs.latest(), None, "{content:?}");
    }
}
