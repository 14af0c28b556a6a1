//! Phase timestamps of the record in flight, inside the brokers.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use curtail::RecordMetadata;
use curtail_cluster::Observer;

/// The last events of the leaders of one topic.
///
/// With one record in flight at a time, the last event of a partition belongs to that record.
#[derive(Debug)]
pub(crate) struct Leaders {
    topic: String,
    last: Mutex<BTreeMap<i32, Last>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    appended: Option<Appended>,
    committed: Option<(i64, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Appended {
    leader: i32,
    base_offset: i64,
    last_offset: i64,
    at: Instant,
}

/// Phase timestamps of one record inside the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) leader: i32,
    pub(super) appended: Instant,
    pub(super) committed: Instant,
}

impl Leaders {
    pub(crate) fn new(topic: &str) -> Self {
        Self { topic: topic.to_owned(), last: Mutex::default() }
    }

    /// The timestamps of this record; `None` if unknown, or if another record followed.
    pub(super) fn seen(&self, written: &RecordMetadata) -> Option<Seen> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *last.get(&written.partition)?;
        let offset = written.offset?;
        let of_record = |a: &Appended| (a.base_offset..=a.last_offset).contains(&offset);
        let Appended { leader, at: appended, .. } = last.appended.filter(of_record)?;
        let (_, committed) = last.committed.filter(|(high, _)| *high > offset)?;
        Some(Seen { leader, appended, committed })
    }

    fn update(&self, topic: &str, partition: i32, update: impl FnOnce(&mut Last)) {
        if topic == self.topic {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            update(last.entry(partition).or_default());
        }
    }
}

impl Observer for Leaders {
    fn appended(
        &self,
        leader: i32,
        topic: &str,
        partition: i32,
        base_offset: i64,
        last_offset: i64,
        at: tokio::time::Instant,
    ) {
        let at = at.into_std();
        self.update(topic, partition, |last| {
            last.appended = Some(Appended { leader, base_offset, last_offset, at });
        });
    }

    fn committed(
        &self,
        _broker: i32,
        topic: &str,
        partition: i32,
        high_watermark: i64,
        at: tokio::time::Instant,
    ) {
        self.update(topic, partition, |last| {
            // The first pass of the high watermark counts.
            if last.committed.is_none_or(|(before, _)| before < high_watermark) {
                last.committed = Some((high_watermark, at.into_std()));
            }
        });
    }
}
