//! Batches that the leaders of one topic have appended and committed.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Instant};

use curtail_cluster::Observer;
use parking_lot::Mutex;

use super::since;

/// Records every batch while the brokers run, 32 bytes each, up to a limit.
#[derive(Debug)]
pub(super) struct Journal {
    topic: String,
    began: Instant,
    limit: usize,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    partitions: BTreeMap<i32, Log>,
    entries: usize,
}

/// One partition's batches in the order of their offsets.
#[derive(Debug, Default)]
struct Log {
    /// Id and epoch of the newest known leader.
    leader: Option<(i32, i32)>,
    batches: Vec<Batch>,
    /// Number of committed batches, counted from the first.
    committed: usize,
}

/// Time of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// Times are nanoseconds since the journal began.
#[derive(Clone, Copy, Debug)]
struct Batch {
    base: i64,
    records: u32,
    leader: i32,
    appended: u64,
    committed: u64,
}

impl Batch {
    fn last(&self) -> i64 {
        self.base + i64::from(self.records) - 1
    }
}

impl Journal {
    pub(super) fn new(topic: &str, limit: usize) -> Self {
        let topic = topic.to_owned();
        // Tokio's clock is virtual time in the simulation.
        let began = tokio::time::Instant::now().into_std();
        Self { topic, began, limit, books: Mutex::default() }
    }

    /// Takes the recorded batches and stops recording. Times become relative to `start`.
    pub(super) fn take(&self, start: Instant) -> Journals {
        let books = std::mem::take(&mut *self.books.lock());
        Journals { partitions: books.partitions, start: since(self.began, start) }
    }
}

impl Observer for Journal {
    fn appended(
        &self,
        broker: i32,
        topic: &str,
        partition: i32,
        base_offset: i64,
        last_offset: i64,
        at: tokio::time::Instant,
    ) {
        if topic != self.topic {
            return;
        }
        let books = &mut *self.books.lock();
        let log = books.partitions.entry(partition).or_default();
        if log.leader.is_some_and(|(_, leader)| leader != broker) {
            return;
        }
        // A newly elected leader appends again where the previous leader's log was truncated.
        let kept = log.batches.partition_point(|batch| batch.last() < base_offset);
        books.entries -= log.batches.len() - kept;
        log.batches.truncate(kept);
        log.committed = log.committed.min(kept);
        if books.entries >= self.limit {
            return;
        }
        books.entries += 1;
        log.batches.push(Batch {
            base: base_offset,
            records: u32::try_from(last_offset - base_offset + 1).unwrap_or(u32::MAX),
            leader: broker,
            appended: since(self.began, at.into_std()),
            committed: NEVER,
        });
    }

    fn leads(
        &self,
        broker: i32,
        topic: &str,
        partition: i32,
        leader_epoch: i32,
        _at: tokio::time::Instant,
    ) {
        if topic == self.topic {
            let mut books = self.books.lock();
            let log = books.partitions.entry(partition).or_default();
            log.leader = log.leader.max(Some((leader_epoch, broker)));
        }
    }

    fn committed(
        &self,
        _broker: i32,
        topic: &str,
        partition: i32,
        high_watermark: i64,
        at: tokio::time::Instant,
    ) {
        if topic != self.topic {
            return;
        }
        let mut books = self.books.lock();
        let Some(log) = books.partitions.get_mut(&partition) else { return };
        let at = since(self.began, at.into_std());
        for batch in log.batches.iter_mut().skip(log.committed) {
            if batch.last() >= high_watermark {
                break;
            }
            batch.committed = at;
            log.committed += 1;
        }
    }
}

/// Leader's times for a batch, in nanoseconds since the start of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) leader: i32,
    pub(super) appended: u64,
    pub(super) committed: Option<u64>,
}

/// Recorded batches of all partitions.
#[derive(Debug)]
pub(super) struct Journals {
    partitions: BTreeMap<i32, Log>,
    /// Start of the load, since the journal began.
    start: u64,
}

impl Journals {
    /// The entry of the batch with this offset.
    pub(super) fn find(&self, partition: i32, offset: i64) -> Option<Entry> {
        let batches = &self.partitions.get(&partition)?.batches;
        let at = batches.partition_point(|batch| batch.last() < offset);
        let batch = batches.get(at).filter(|batch| batch.base <= offset)?;
        let since_start = |at: u64| at.saturating_sub(self.start);
        Some(Entry {
            leader: batch.leader,
            appended: since_start(batch.appended),
            committed: (batch.committed != NEVER).then(|| since_start(batch.committed)),
        })
    }
}
