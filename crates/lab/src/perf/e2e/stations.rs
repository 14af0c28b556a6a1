//! Where the time of a record goes: the client's stamps and the brokers' put together.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use curtail::RecordMetadata;
use curtail_cluster::Observer;

use crate::{
    latency::Latencies,
    perf::{PhasesReport, report::summary},
};

/// What the leaders of one topic did last.
///
/// With one record under way at a time the last event of a partition is that of the record.
#[derive(Debug)]
pub(super) struct Stations {
    topic: String,
    last: Mutex<BTreeMap<i32, Last>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    appended: Option<(i64, i64, Instant)>,
    committed: Option<(i64, Instant)>,
}

impl Stations {
    pub(super) fn new(topic: &str) -> Self {
        Self { topic: topic.to_owned(), last: Mutex::default() }
    }

    /// The phases of a record from the times of its send, of its way into the socket, of the consumer's arrival
    /// at its offset, and of the poll that returned it. `None` where the brokers' part is not known.
    pub(super) fn phases(&self, written: &RecordMetadata, times: [Instant; 4]) -> Option<Phases> {
        let [sent, to_socket, caught_up, read] = times;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *last.get(&written.partition)?;
        let offset = written.offset?;
        let (_, _, appended) = last.appended.filter(|a| (a.0..=a.1).contains(&offset))?;
        let (_, committed) = last.committed.filter(|c| c.0 > offset)?;
        // Each phase ends no earlier than the one before: together they make up the latency.
        let to_socket = to_socket.max(sent);
        let appended = appended.max(to_socket);
        let committed = committed.max(appended);
        let caught_up = caught_up.max(committed);
        Some(Phases {
            produce: to_socket - sent,
            publish: appended - to_socket,
            commit: committed - appended,
            catch_up: caught_up - committed,
            fetch: read.saturating_duration_since(caught_up),
        })
    }

    fn update(&self, topic: &str, partition: i32, update: impl FnOnce(&mut Last)) {
        if topic == self.topic {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            update(last.entry(partition).or_default());
        }
    }
}

impl Observer for Stations {
    fn appended(
        &self,
        _broker: i32,
        topic: &str,
        partition: i32,
        base_offset: i64,
        last_offset: i64,
        at: tokio::time::Instant,
    ) {
        self.update(topic, partition, |last| {
            last.appended = Some((base_offset, last_offset, at.into_std()));
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
            // The first time that it passed the record counts.
            if last.committed.is_none_or(|(before, _)| before < high_watermark) {
                last.committed = Some((high_watermark, at.into_std()));
            }
        });
    }
}

/// How long each phase of one record took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phases {
    pub(super) produce: Duration,
    pub(super) publish: Duration,
    pub(super) commit: Duration,
    pub(super) catch_up: Duration,
    pub(super) fetch: Duration,
}

/// The phases of many records.
#[derive(Default)]
pub(super) struct Tally {
    produce: Latencies,
    publish: Latencies,
    commit: Latencies,
    catch_up: Latencies,
    fetch: Latencies,
}

impl Tally {
    pub(super) fn add(&mut self, phases: Phases) {
        self.produce.record(phases.produce);
        self.publish.record(phases.publish);
        self.commit.record(phases.commit);
        self.catch_up.record(phases.catch_up);
        self.fetch.record(phases.fetch);
    }

    pub(super) fn report(&self) -> PhasesReport {
        PhasesReport {
            produce: summary(&self.produce),
            publish: summary(&self.publish),
            commit: summary(&self.commit),
            catch_up: summary(&self.catch_up),
            fetch: summary(&self.fetch),
            ..PhasesReport::default()
        }
    }
}
