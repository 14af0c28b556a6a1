//! Random logs: cleaning keeps the newest record of each key, and a crash at any step loses none.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

use curtail_net::Entropy;
use curtail_wire::records::EndTxnMarker;

use super::transactions::{end, put_in};
use super::*;
use crate::disk::gated::GatedDisk;

/// Returns a disk that fails after a number of changes, as if the machine had stopped there.
fn limited(disk: &MemDisk, left: &Arc<AtomicI64>) -> GatedDisk {
    let left = Arc::clone(left);
    GatedDisk::new(disk.clone(), move |_| match left.fetch_sub(1, Ordering::Relaxed) {
        1.. => Ok(()),
        _ => Err(io::Error::other("the machine has stopped")),
    })
}

/// Appends random batches: alone or in transactions, records and tombstones.
fn grow(log: &mut PartitionLog, sequences: &mut [i32; 4], dice: &Entropy) {
    for _ in 0..10 + dice.below(30) {
        let count = 1 + dice.below(4);
        let records: Vec<(String, Option<&str>)> = (0..count)
            .map(|_| (format!("k{}", dice.below(12)), (dice.below(6) > 0).then_some("value")))
            .collect();
        let records: Vec<_> = records.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        if dice.below(3) > 0 {
            let codec = Codec::ALL[dice.below(5) as usize];
            let batch = keyed(&records, ProducerStamp::NONE, codec);
            log.append_as_leader(batch, 0, NOW).unwrap();
            continue;
        }
        let id = dice.below(4) as usize;
        put_in(log, id as i64, sequences[id], records[0].0);
        sequences[id] += 1;
        if dice.below(3) > 0 {
            let result = [EndTxnMarker::Abort, EndTxnMarker::Commit][dice.below(2) as usize];
            end(log, id as i64, result);
        }
    }
    log.committed_to(log.end_offset());
}

/// Returns the records that a `read_committed` reader gets below the last stable offset.
fn committed(log: &PartitionLog) -> Vec<Keyed> {
    let stable = log.first_unstable_offset().unwrap_or(log.end_offset());
    let mut all = read_keyed(log);
    all.retain(|(offset, ..)| *offset < stable);
    let mut from = log.start_offset();
    let mut is_visible: BTreeMap<i64, bool> = BTreeMap::new();
    while from < stable {
        let bytes = log.read(from, 300, stable, true).unwrap();
        let read: Vec<_> = batches(bytes).map(|batch| batch.unwrap()).collect();
        let Some(last) = read.last() else { break };
        let end = last.header.last_offset() + 1;
        let mut aborted = log.aborted_in(from, end);
        aborted.sort_by_key(|txn| txn.first_offset);
        let mut ahead = aborted.into_iter().peekable();
        let mut open: Vec<i64> = Vec::new();
        for batch in read {
            let header = batch.header;
            while let Some(txn) = ahead.next_if(|txn| txn.first_offset <= header.last_offset()) {
                open.push(txn.producer_id);
            }
            if header.is_control() {
                open.retain(|id| *id != header.producer_id);
                continue;
            }
            let hidden = header.is_transactional() && open.contains(&header.producer_id);
            for record in batch.records(&DecompressLimit::default()).unwrap() {
                is_visible.insert(record.unwrap().offset, !hidden);
            }
        }
        from = end;
    }
    all.retain(|(offset, ..)| is_visible.get(offset) == Some(&true));
    all
}

fn is_subsequence(part: &[Keyed], all: &[Keyed]) -> bool {
    let mut rest = all.iter();
    part.iter().all(|record| rest.any(|other| other == record))
}

/// Tombstones that have been removed, with their records, are no loss.
fn without_tombstones(records: &[Keyed]) -> BTreeMap<Vec<u8>, (i64, Option<Vec<u8>>)> {
    let mut newest = newest(records);
    newest.retain(|_, (_, value)| value.is_some());
    newest
}

#[test]
fn cleaning_any_log_keeps_the_newest_committed_record_of_each_key() {
    let mut removed = 0;
    for seed in 0..100 {
        let dice = Entropy::from_seed(seed);
        let (disk, mut log) = fresh(&compacted());
        let mut sequences = [0; 4];
        let mut now = NOW;
        for life in 0..4 {
            let what = format!("seed {seed}, life {life}");
            grow(&mut log, &mut sequences, &dice);
            let before = committed(&log);
            let unstable = log.first_unstable_offset();
            let stable = unstable.unwrap_or(log.end_offset());
            clean(&mut log, now, stable);
            let after = committed(&log);
            assert!(is_subsequence(&after, &before), "{what}");
            assert_eq!(without_tombstones(&after), without_tombstones(&before), "{what}");
            assert_eq!(log.first_unstable_offset(), unstable, "{what}");
            removed += before.len() - after.len();
            log.flush().unwrap();
            drop(log);
            (log, _) = open(&disk, &compacted());
            log.committed_to(log.end_offset());
            assert_eq!(committed(&log), after, "{what}, reopened");
            assert_eq!(log.first_unstable_offset(), unstable, "{what}, reopened");
            now += dice.below(2) as i64 * 24 * 3600 * 1000;
        }
    }
    assert!(removed > 3000, "{removed} records removed");
}

/// Runs a cleaning on a disk that stops after some changes. Returns whether it came to its end.
fn clean_until(disk: &MemDisk, left: i64) -> bool {
    let budget = Arc::new(AtomicI64::new(i64::MAX));
    let limited = limited(disk, &budget);
    let (mut log, _) = PartitionLog::open(Arc::new(limited), dir(), compacted()).unwrap();
    log.committed_to(log.end_offset());
    let stable = log.first_unstable_offset().unwrap_or(log.end_offset());
    let Some(mut cleaning) = log.clean(NOW, stable).unwrap() else { return true };
    budget.store(left, Ordering::Relaxed);
    loop {
        match cleaning.step() {
            Ok(Step::More) => {}
            Ok(Step::Swap(cleaned)) => match log.swap(*cleaned) {
                Ok(version) => cleaning.swapped(version.unwrap()),
                Err(_) => return false,
            },
            Ok(Step::Done) => return log.finish_cleaning(&cleaning).is_ok(),
            Err(_) => return false,
        }
    }
}

#[test]
fn crash_at_any_change_of_a_cleaning_loses_no_surviving_record() {
    let mut stops = 0;
    for seed in 0..6 {
        for left in 0.. {
            let dice = Entropy::from_seed(seed);
            let (disk, mut log) = fresh(&compacted());
            disk.sync_dir(&dir()).unwrap();
            grow(&mut log, &mut [0; 4], &dice);
            log.flush().unwrap();
            let before = committed(&log);
            drop(log);
            let is_done = clean_until(&disk, left);
            for after in 0..3 {
                let what = format!("seed {seed}, stopped after {left} changes, crash {after}");
                disk.crash_torn(|n| dice.below(n));
                let (mut log, _) = open(&disk, &compacted());
                log.committed_to(log.end_offset());
                let now = committed(&log);
                assert!(is_subsequence(&now, &before), "{what}");
                assert_eq!(without_tombstones(&now), without_tombstones(&before), "{what}");
                let is_left = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "cleaned");
                assert!(!disk.list(&dir()).unwrap().iter().any(is_left), "{what}");
                let stable = log.first_unstable_offset().unwrap_or(log.end_offset());
                clean(&mut log, NOW, stable);
                let again = without_tombstones(&committed(&log));
                assert_eq!(again, without_tombstones(&before), "{what}, cleaned again");
            }
            stops += 1;
            if is_done {
                break;
            }
        }
    }
    assert!(stops > 50, "{stops} crashes");
}

/// Nothing is flushed: the segment with the newer record is not durable when the cleaning begins.
#[test]
fn record_goes_only_after_its_replacement_is_durable() {
    let small = LogConfig { segment_bytes: 100, ..compacted() };
    let mut swaps = 0;
    for stop_after in 0..8 {
        let (disk, mut log) = fresh(&small);
        for _ in 0..8 {
            put(&mut log, &[("a", Some("v"))]);
        }
        let newest_closed = log.active().base_offset - 1;
        let mut cleaning = log.clean(NOW, i64::MAX).unwrap().unwrap();
        for _ in 0..=stop_after {
            let swapped = loop {
                match cleaning.step().unwrap() {
                    Step::More => {}
                    Step::Swap(cleaned) => break log.swap(*cleaned).unwrap(),
                    Step::Done => break None,
                }
            };
            let Some(version) = swapped else { break };
            cleaning.swapped(version);
            swaps += 1;
        }
        drop((log, cleaning));
        disk.crash(false);
        let (log, _) = open(&disk, &small);
        assert_eq!(offsets(&log).last(), Some(&newest_closed), "after {stop_after} swaps");
    }
    assert!(swaps > 20, "{swaps} swaps");
}
