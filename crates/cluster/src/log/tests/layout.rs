//! The bytes on disk, as Kafka's DumpLogSegments reads them.

use super::*;
use crate::disk::RealDisk;

/// Writes five batches of one record. A batch gets an index entry if it begins more than 100 bytes
/// after the last entry.
fn example(disk: &Arc<dyn Disk>, dir: PathBuf) -> PartitionLog {
    let config = LogConfig { index_interval_bytes: 100, segment_bytes: 300, ..config() };
    let (mut log, _) = PartitionLog::open(Arc::clone(disk), dir, config).unwrap();
    for (sequence, timestamp) in [3000, 1000, 5000, 2000, 4000].into_iter().enumerate() {
        let batch = TestBatch::of(1, 0).at(&[timestamp]).from(0x0102, 3, sequence as i32);
        assert_eq!(batch.build().len(), 72);
        log.append_as_leader(batch.build(), 6, NOW).unwrap();
    }
    log
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn files_are_named_and_laid_out_as_kafka_does() {
    let temporary = tempfile::tempdir().unwrap();
    let mem = MemDisk::new();
    let disks: [(Arc<dyn Disk>, PathBuf); 2] =
        [(Arc::new(RealDisk::new()), temporary.path().join("t-0")), (Arc::new(mem), dir())];
    for (disk, dir) in disks {
        let mut log = example(&disk, dir.clone());
        let bytes = raw(&log);
        log.close().unwrap();
        let names: Vec<String> = disk
            .list(&dir)
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            names,
            [
                "00000000000000000000.index",
                "00000000000000000000.log",
                "00000000000000000000.timeindex",
                "00000000000000000004.index",
                "00000000000000000004.log",
                "00000000000000000004.snapshot",
                "00000000000000000004.timeindex",
                "clean-shutdown",
                "leader-epoch-checkpoint",
            ]
        );
        let content = |name: &str| disk.read_all(&dir.join(name)).unwrap();
        assert_eq!(content(names[1].as_str()), bytes.slice(..288));
        assert_eq!(content(names[4].as_str()), bytes.slice(288..));
        // Relative offset 2 at position 144.
        assert_eq!(content(&names[0]), &[0, 0, 0, 2, 0, 0, 0, 144][..]);
        // The largest timestamp so far, 5000, and its relative offset.
        assert_eq!(content(&names[2]), &[0, 0, 0, 0, 0, 0, 0x13, 0x88, 0, 0, 0, 2][..]);
        assert!(content(&names[3]).is_empty() && content(&names[6]).is_empty());
        assert_eq!(content("leader-epoch-checkpoint"), &b"0\n1\n6 0\n"[..]);
        let snapshot = content(&names[5]);
        assert_eq!(snapshot[..2], [0, 1]);
        let body = joined(&[
            &1_i32.to_be_bytes(),
            &0x0102_i64.to_be_bytes(),
            &3_i16.to_be_bytes(),
            &3_i32.to_be_bytes(),
            &3_i64.to_be_bytes(),
            &0_i32.to_be_bytes(),
            &2000_i64.to_be_bytes(),
            &(-1_i32).to_be_bytes(),
            &(-1_i64).to_be_bytes(),
        ]);
        assert_eq!(snapshot[6..], body);
        assert_eq!(snapshot[2..6], crc32c::crc32c(&body).to_be_bytes());
    }
}

#[test]
fn a_log_on_the_real_disk_survives_closing_and_a_kill() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("deep/t-0");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let mut log = example(&disk, dir.clone());
    let config = log.config().clone();
    let reopen = || PartitionLog::open(Arc::clone(&disk), dir.clone(), config.clone()).unwrap();
    let all = read_all(&log);
    log.close().unwrap();
    let (log, recovery) = reopen();
    assert!(recovery.clean);
    assert_eq!(read_all(&log), all);
    // The log is dropped without closing, with a torn batch after the last one.
    drop(log);
    let mut file = disk.open_append(&dir.join("00000000000000000004.log")).unwrap();
    file.append(&[1; 40]).unwrap();
    let (mut log, recovery) = reopen();
    assert_eq!((recovery.clean, recovery.truncated_bytes), (false, 40));
    assert_eq!(read_all(&log), all);
    log.truncate_to(3).unwrap();
    let (log, _) = reopen();
    assert_eq!(read_all(&log), all[..3]);
}

#[test]
fn a_partition_log_is_send_and_sync() {
    fn shareable<T: Send + Sync>() {}
    shareable::<PartitionLog>();
}
