//! Repairs of a log when it is opened after a crash.

use super::*;

const LOG: &str = "00000000000000000000.log";

fn reopened(disk: &MemDisk) -> (PartitionLog, Recovery) {
    let (log, recovery) = open(disk, &config());
    assert_eq!(log.start_offset(), 0);
    (log, recovery)
}

/// Returns a log of batches from an idempotent producer, with its size and end offset after each
/// batch.
fn log_of(count: usize) -> (MemDisk, Bytes, Vec<(usize, i64)>) {
    let (disk, mut log) = fresh(&config());
    let mut ends = vec![(0, 0)];
    for tag in 0..count {
        let batch = TestBatch::of(1 + tag % 3, tag).from(4, 0, log.end_offset() as i32);
        append(&mut log, &batch);
        ends.push((log.size_bytes() as usize, log.end_offset()));
    }
    log.flush().unwrap();
    let bytes = raw(&log);
    (disk, bytes, ends)
}

#[test]
fn a_log_cut_at_any_byte_ends_with_its_last_whole_batch() {
    let (disk, bytes, ends) = log_of(12);
    let path = dir().join(LOG);
    for cut in ends[9].0..=bytes.len() {
        disk.alter(&path, |content| *content = bytes[..cut].to_vec()).unwrap();
        let (mut log, recovery) = reopened(&disk);
        let &(size, end) = ends.iter().rev().find(|(size, _)| *size <= cut).unwrap();
        assert_eq!(recovery.truncated_bytes as usize, cut - size, "cut at {cut}");
        assert_eq!((log.end_offset(), log.size_bytes() as usize), (end, size), "cut at {cut}");
        assert_eq!(recovery.records_scanned as i64, end);
        assert_eq!(raw(&log), bytes.slice(..size));
        // The lost batch can be appended again; any other batch of this producer is refused.
        let late = TestBatch::of(1, 1).from(4, 0, end as i32 + 1);
        assert!(log.append_as_leader(late.build(), 0, NOW).is_err());
        assert_eq!(append(&mut log, &TestBatch::of(1, 1).from(4, 0, end as i32)), end);
        assert_eq!(read_all(&log).len() as i64, end + 1);
    }
}

#[test]
fn a_flipped_bit_in_the_tail_ends_the_log_before_it() {
    let (disk, bytes, ends) = log_of(8);
    let path = dir().join(LOG);
    for at in ends[6].0..bytes.len() {
        let batch = ends.iter().rposition(|(size, _)| *size <= at).unwrap();
        for bit in 0..8 {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << bit;
            disk.alter(&path, |content| content.clone_from(&flipped)).unwrap();
            let (log, _) = reopened(&disk);
            if log.end_offset() != ends[batch].1 {
                // Neither the checksum nor the checkpoint protects the epoch of the newest batches
                // against an increase.
                let in_batch = at - ends[batch].0;
                assert!(
                    (12..16).contains(&in_batch),
                    "byte {in_batch} of batch {batch}, bit {bit}"
                );
                assert_eq!(read_all(&log).len() as i64, log.end_offset());
                assert!(log.latest_epoch() > Some(0));
            }
            let epochs = dir().join("leader-epoch-checkpoint");
            disk.write_atomic(&epochs, b"0\n1\n0 0\n").unwrap();
        }
    }
}

#[test]
fn garbage_and_zeroes_after_the_log_are_cut_off() {
    let (disk, bytes, _) = log_of(5);
    let path = dir().join(LOG);
    let tails: [Vec<u8>; 5] = [
        vec![0; 5000],
        vec![0xff; 5000],
        vec![0x7f; 100],
        bytes[..200].to_vec(),
        // A header that claims two gigabytes.
        [&[0; 8][..], &i32::MAX.to_be_bytes(), &[0; 4], &[2], &[0; 300]].concat(),
    ];
    for tail in tails {
        disk.alter(&path, |content| *content = [&bytes[..], &tail].concat()).unwrap();
        let (log, recovery) = reopened(&disk);
        assert_eq!(recovery.truncated_bytes as usize, tail.len());
        assert_eq!(raw(&log), bytes);
    }
}

#[test]
fn flushed_records_survive_a_crash_of_the_machine() {
    for torn in 0..6 {
        let small = LogConfig { segment_bytes: 500, ..config() };
        let (disk, mut log) = fresh(&small);
        let mut flushed = Vec::new();
        for tag in 0..40 {
            append(&mut log, &TestBatch::of(2, tag));
            if tag == 25 {
                log.flush().unwrap();
                flushed = read_all(&log);
            }
        }
        let all = read_all(&log);
        disk.crash_with(|_, unsynced| unsynced * torn / 5);
        let (log, recovery) = open(&disk, &small);
        let kept = read_all(&log);
        assert!(kept.len() >= flushed.len() && all.starts_with(&kept), "{torn}/5 kept");
        assert_eq!(torn == 5, kept.len() == all.len());
        assert!(!recovery.clean);
        let (again, recovery) = open(&disk, &small);
        assert_eq!((recovery.truncated_bytes, again.end_offset()), (0, log.end_offset()));
    }
}

#[test]
fn a_log_that_flushes_each_append_loses_nothing() {
    let config = LogConfig { flush_messages: 1, ..config() };
    let (disk, mut log) = fresh(&config);
    fill(&mut log, 20);
    let all = read_all(&log);
    disk.crash(false);
    assert_eq!(read_all(&open(&disk, &config).0), all);
}

#[test]
fn a_damaged_segment_in_the_middle_ends_the_log_there() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 40);
    let all = read_all(&log);
    let third = log.segments[2].base_offset;
    drop(log);
    let path = dir().join(format!("{third:020}.log"));
    disk.alter(&path, |bytes| bytes[70] ^= 1).unwrap();
    let (log, recovery) = open(&disk, &small);
    assert_eq!((log.end_offset(), log.segment_count()), (third, 3));
    assert!(recovery.truncated_bytes > 500);
    assert_eq!(read_all(&log), all[..third as usize]);
    let files = disk.list(&dir()).unwrap();
    let later = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.split_once('.')
            .and_then(|(stem, _)| stem.parse().ok())
            .is_some_and(|at: i64| at > third)
    };
    assert_eq!(files.iter().find(later), None);
}

#[test]
fn a_missing_segment_ends_the_log_before_it() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 40);
    let missing = log.segments[3].base_offset;
    log.close().unwrap();
    disk.remove_file(&dir().join(format!("{missing:020}.log"))).unwrap();
    let (log, recovery) = open(&disk, &small);
    assert_eq!((log.end_offset(), log.segment_count(), recovery.clean), (missing, 3, false));
}

#[test]
fn a_log_without_log_start_offset_keeps_the_segments_its_epochs_begin_in() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    for (closed, within) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let (disk, mut log) = fresh(&small);
        fill(&mut log, 40);
        let start = log.segments[2].base_offset;
        log.delete_before(start + within).unwrap();
        log.append_as_leader(TestBatch::of(1, 1).build(), 3, NOW).unwrap();
        log.flush().unwrap();
        let end = log.end_offset();
        if closed {
            log.close().unwrap();
        }
        drop(log);
        // Apache Kafka stores the start of all logs in one file of the data directory.
        disk.remove_file(&dir().join("log-start-offset")).unwrap();
        for _ in 0..2 {
            let (log, recovery) = open(&disk, &small);
            assert_eq!((log.start_offset(), log.end_offset()), (start, end));
            assert_eq!(recovery.truncated_bytes, 0);
            assert_eq!(read_all(&log).len() as i64, end - start);
            drop(log);
        }
        // The start is now recorded and no longer depends on the epochs.
        disk.remove_file(&dir().join("leader-epoch-checkpoint")).unwrap();
        assert_eq!(open(&disk, &small).0.start_offset(), start);
    }
}

#[test]
fn a_log_whose_epochs_begin_before_its_first_segment_has_lost_records() {
    let small = LogConfig { segment_bytes: 500, ..config() };
    for without_epochs in [false, true] {
        let (disk, mut log) = fresh(&small);
        fill(&mut log, 40);
        log.flush().unwrap();
        drop(log);
        disk.remove_file(&dir().join(LOG)).unwrap();
        if without_epochs {
            disk.remove_file(&dir().join("leader-epoch-checkpoint")).unwrap();
        }
        let (log, _) = open(&disk, &small);
        assert_eq!((log.start_offset(), log.end_offset()), (0, 0));
    }
}

#[test]
fn indexes_that_are_missing_or_wrong_are_rebuilt() {
    let small = LogConfig { segment_bytes: 1500, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 80);
    let all = read_all(&log);
    log.close().unwrap();
    let indexes: Vec<PathBuf> = disk
        .list(&dir())
        .unwrap()
        .into_iter()
        .filter(|path| path.to_str().unwrap().ends_with("index"))
        .collect();
    assert!(indexes.len() > 4);
    let contents: Vec<Bytes> = indexes.iter().map(|path| disk.read_all(path).unwrap()).collect();
    let damage: [fn(&mut Vec<u8>); 4] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len().saturating_sub(1)),
        |bytes| bytes.reverse(),
        |bytes| bytes.extend_from_slice(&[0xff; 24]),
    ];
    for damage in damage {
        for path in &indexes {
            disk.alter(path, damage).unwrap();
        }
        let (mut log, recovery) = open(&disk, &small);
        assert!(!recovery.clean);
        assert_eq!(recovery.truncated_bytes, 0);
        assert!(recovery.indexes_rebuilt as usize >= log.segment_count() - 1);
        assert_eq!(read_all(&log), all);
        for offset in 0..log.end_offset() {
            assert!(!log.read(offset, 1, i64::MAX, true).unwrap().is_empty());
        }
        log.close().unwrap();
        for (path, content) in indexes.iter().zip(&contents) {
            assert_eq!(disk.read_all(path).unwrap(), content, "{}", path.display());
        }
    }
    for path in &indexes {
        disk.remove_file(path).unwrap();
    }
    let (log, _) = open(&disk, &small);
    assert_eq!(read_all(&log), all);
}

#[test]
fn a_clean_shutdown_is_opened_by_its_indexes() {
    let small = LogConfig { segment_bytes: 2000, ..config() };
    let (disk, mut log) = fresh(&small);
    fill(&mut log, 100);
    let all = read_all(&log);
    let active_base = log.segments.last().unwrap().base_offset;
    log.close().unwrap();
    assert!(log.append_as_leader(TestBatch::of(1, 1).build(), 0, NOW).is_err());
    let (log, recovery) = open(&disk, &small);
    assert!(recovery.clean);
    assert_eq!(recovery.records_scanned as i64, log.end_offset() - active_base);
    assert_eq!(read_all(&log), all);
    // Opening the log removes the mark of a clean shutdown.
    drop(log);
    assert!(!open(&disk, &small).1.clean);
}

#[test]
fn a_clean_mark_that_does_not_match_is_ignored() {
    let (disk, bytes, ends) = log_of(12);
    let path = dir().join(LOG);
    let (mut log, _) = reopened(&disk);
    log.close().unwrap();
    disk.alter(&path, |content| *content = bytes[..ends[10].0].to_vec()).unwrap();
    let (log, recovery) = reopened(&disk);
    assert_eq!((log.end_offset(), recovery.clean), (ends[10].1, false));
}

#[test]
fn leftovers_of_interrupted_changes_are_removed() {
    let (disk, bytes, _) = log_of(5);
    let strays = ["00000000000000000077.index", "00000000000000000077.timeindex", "x.tmp"];
    for stray in strays {
        disk.write_atomic(&dir().join(stray), b"stray").unwrap();
    }
    disk.write_atomic(&dir().join("notes.txt"), b"not ours").unwrap();
    let (log, _) = reopened(&disk);
    assert_eq!(raw(&log), bytes);
    for stray in strays {
        assert!(!disk.exists(&dir().join(stray)));
    }
    assert!(disk.exists(&dir().join("notes.txt")));
}

#[test]
fn a_leader_epoch_that_the_checkpoint_contradicts_ends_the_log() {
    let (disk, mut log) = fresh(&config());
    let bounds: Vec<usize> = (0..6)
        .map(|tag| {
            let start = log.size_bytes() as usize;
            log.append_as_leader(TestBatch::of(1, tag).build(), 3 + tag as i32 / 2, NOW).unwrap();
            start
        })
        .collect();
    let bytes = raw(&log);
    log.flush().unwrap();
    drop(log);
    let checkpoint = dir().join("leader-epoch-checkpoint");
    let epochs = disk.read_all(&checkpoint).unwrap();
    // Epochs 3, 3, 4, 4, 5, 5; those before the last one are known exactly.
    let table = [(0, 2), (0, 4), (1, 4), (1, 5), (2, 3), (2, 5), (3, 3), (3, 9), (4, 4), (5, 4)];
    for (batch, epoch) in table {
        let mut altered = bytes.to_vec();
        let at = bounds[batch] + 12;
        altered[at..at + 4].copy_from_slice(&i32::to_be_bytes(epoch));
        disk.alter(&dir().join(LOG), |content| content.clone_from(&altered)).unwrap();
        disk.write_atomic(&checkpoint, &epochs).unwrap();
        let (log, _) = reopened(&disk);
        assert_eq!(log.end_offset(), batch as i64, "batch {batch} with epoch {epoch}");
    }
}
