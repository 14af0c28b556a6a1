//! Random operations and torn crashes: the log opens without repair by hand, and keeps all flushed
//! records.

use std::collections::BTreeMap;

use curtail_net::Entropy;

use super::*;

/// The expected content of a log.
#[derive(Default)]
struct Model {
    start: i64,
    end: i64,
    /// The newest value of each offset.
    values: BTreeMap<i64, Vec<u8>>,
    /// Records below this offset were flushed and not truncated since.
    flushed: i64,
    /// Whether truncated records may reappear.
    parted: bool,
}

impl Model {
    fn truncated(&mut self, end: i64) {
        self.end = end;
        self.flushed = self.flushed.min(end);
        self.parted = true;
    }
}

fn small() -> LogConfig {
    LogConfig { segment_bytes: 700, ..config() }
}

/// Runs one random operation.
fn operate(log: &mut PartitionLog, model: &mut Model, epoch: &mut i32, dice: &Entropy) {
    match dice.below(20) {
        0..=13 => {
            let count = 1 + dice.below(3) as usize;
            let batch = TestBatch::of(count, dice.below(1000) as usize);
            let base = log.append_as_leader(batch.build(), *epoch, NOW).unwrap().base_offset;
            assert_eq!(base, model.end);
            for (value, offset) in batch.values.iter().zip(base..) {
                model.values.insert(offset, value.clone());
            }
            model.end = log.end_offset();
        }
        14 | 15 => {
            log.flush().unwrap();
            model.flushed = model.end;
        }
        16 => {
            let to = model.start + dice.below((model.end - model.start + 1) as u64) as i64;
            model.start = log.delete_before(to).unwrap();
        }
        17 | 18 => {
            let to = model.start + dice.below((model.end - model.start + 1) as u64) as i64;
            model.truncated(log.truncate_to(to).unwrap());
            model.start = log.start_offset();
            *epoch += 1;
        }
        _ if dice.below(4) == 0 => {
            let offset = model.end + dice.below(30) as i64;
            log.truncate_fully_and_start_at(offset).unwrap();
            *model = Model { start: offset, end: offset, flushed: offset, ..Model::default() };
            model.parted = true;
            *epoch += 1;
        }
        _ => {}
    }
}

fn check(log: &PartitionLog, model: &mut Model, what: &str) {
    assert_eq!(log.start_offset(), model.start, "{what}: records before the start are lost");
    let least = model.flushed.max(model.start);
    assert!(log.end_offset() >= least, "{what}: ends at {}, not {least}", log.end_offset());
    let read = read_all(log);
    for (offset, value) in &read {
        let offset = *offset;
        let expected = model.values.get(&offset).map(Vec::as_slice);
        let known = expected == Some(value.as_ref()) || (model.parted && offset >= model.flushed);
        assert!(known, "{what}: offset {offset} has another value");
    }
    for (offset, value) in read {
        model.values.insert(offset, value.to_vec());
    }
    model.end = log.end_offset();
    model.flushed = model.flushed.max(model.start);
}

#[test]
fn a_log_recovers_from_torn_crashes_after_any_operations() {
    for seed in 0..400 {
        let dice = Entropy::from_seed(seed);
        let disk = MemDisk::new();
        let (mut log, _) = open(&disk, &small());
        // The broker that creates a log makes its directory entry durable.
        disk.sync_dir(&dir()).unwrap();
        let (mut model, mut epoch) = (Model::default(), 0);
        for life in 0..4 {
            for _ in 0..dice.below(40) {
                operate(&mut log, &mut model, &mut epoch, &dice);
            }
            if dice.below(4) == 0 {
                log.close().unwrap();
                model.flushed = model.end;
            }
            disk.crash_torn(|n| dice.below(n));
            (log, _) = open(&disk, &small());
            check(&log, &mut model, &format!("seed {seed}, life {life}"));
            epoch = epoch.max(log.latest_epoch().unwrap_or(0)) + 1;
        }
    }
}
