//! What responses mean.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    fetch::{
        AbortedTransaction, EpochEndOffset, FetchPartitionResponse, FetchResponse,
        FetchTopicResponse, IsolationLevel,
    },
};

use super::{Event, Extent, Fetcher, Main, Purpose, sessionless::Asked};
use crate::{
    TopicPartition,
    fetch_session::{Naming, Outcome},
    later::Later,
    metadata::Leader,
    position::{FetchFrom, FetchVerdict, classify},
};

/// A partition's result.
#[derive(Debug)]
pub struct Answered {
    /// The partition.
    pub at: TopicPartition,
    /// The position that was requested. The result counts only while the partition is still there.
    pub from: FetchFrom,
    /// The result.
    pub answer: Answer,
}

/// What a broker answered for a partition.
#[derive(Debug)]
pub enum Answer {
    /// Records, perhaps none.
    Records(Ends, Records),
    /// The log differs from the records read before.
    Diverged(Ends, EpochEndOffset),
    /// This replica is nearer (KIP-392). There are no records.
    Follow(i32),
    /// An error, and the leader if the broker names it.
    Refused(FetchVerdict, ErrorCode, Option<Leader>),
}

/// Ends of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// High watermark.
    pub high_watermark: i64,
    /// End of the records that this consumer may read.
    pub readable: i64,
}

/// Fetched records.
#[derive(Debug)]
pub struct Records {
    /// The batches, as fetched.
    pub bytes: Bytes,
    /// Their extent.
    pub extent: Extent,
    /// Aborted transactions; `None` unless they are hidden (`isolation.level=read_committed`).
    pub aborted: Option<Vec<AbortedTransaction>>,
}

/// The request that a response belongs to.
enum Request<'a> {
    /// The session's fetch. These partitions have been moved since.
    Session(&'a BTreeSet<TopicPartition>),
    /// A sessionless fetch of these positions.
    Sessionless(&'a Asked),
}

impl<H> Fetcher<H> {
    /// Applies the response to the session's fetch in flight. `unit` draws from `[0, 1)`.
    pub fn handle_response(
        &mut self,
        response: FetchResponse,
        now: Instant,
        unit: impl FnOnce() -> f64,
    ) {
        let Main::InFlight(flight) = &mut self.main else { return };
        let overtaken = std::mem::take(&mut flight.overtaken);
        self.path.exchanged(now.saturating_duration_since(flight.sent), flight.max_wait);
        let results = response.topics.iter().map(|topic| topic.partitions.len()).sum();
        let outcome = self.session.on_answer(response.error, response.session_id, results);
        self.main = self.unused();
        match outcome {
            Outcome::Results => {}
            Outcome::StartedOver => return,
            Outcome::Refused(error) => return self.refused(error, now, unit),
        }
        self.worked();
        self.throttle(response.throttle_time_ms, now);
        self.take_in(response, &Request::Session(&overtaken));
    }

    /// Applies the response to the sessionless fetch in flight for this purpose. `unit` draws from `[0, 1)`.
    pub fn handle_sessionless_response(
        &mut self,
        purpose: Purpose,
        response: FetchResponse,
        now: Instant,
        unit: impl FnOnce() -> f64,
    ) {
        let Some(asked) = self.sessionless.answered(purpose) else { return };
        if response.error.is_error() {
            return self.refused(response.error, now, unit);
        }
        self.throttle(response.throttle_time_ms, now);
        let mut results = response.topics.iter().flat_map(|topic| &topic.partitions);
        // No records arrived at the assumed end: without this the lane would ask again at once.
        if results.all(|result| result.records.is_empty()) {
            for at in asked.keys() {
                self.partitions.set_end(at, None);
            }
        }
        self.take_in(response, &Request::Sessionless(&asked));
    }

    fn refused(&mut self, error: ErrorCode, now: Instant, unit: impl FnOnce() -> f64) {
        self.failures += 1;
        self.events.push_back(Event::Refused(error));
        self.events.push_back(Event::Refresh);
        self.pause_until = Some(now.later(self.settings.retry.after(self.failures, unit())));
    }

    fn throttle(&mut self, throttle_time_ms: i32, now: Instant) {
        if let Ok(throttle @ 1..) = u64::try_from(throttle_time_ms) {
            let throttle = Duration::from_millis(throttle).min(self.settings.request_timeout);
            self.events.push_back(Event::Throttled(throttle));
            self.pause_until = Some(now.later(throttle));
        }
    }

    /// Passes on the results for partitions that are still read from the position requested.
    fn take_in(&mut self, response: FetchResponse, request: &Request<'_>) {
        let results = self.results(response.topics, request);
        if results.is_empty() {
            return;
        }
        if let (Request::Sessionless(_), Main::InFlight(flight)) = (request, &mut self.main) {
            flight.overtaken.extend(results.iter().map(|result| result.at.clone()));
        }
        self.events.push_back(Event::Store(results, response.node_endpoints));
    }

    fn results(&self, topics: Vec<FetchTopicResponse>, request: &Request<'_>) -> Vec<Answered> {
        let mut results = Vec::new();
        for topic in topics {
            let name = match self.session.naming() {
                Naming::Ids => self.topics.get(&topic.topic_id).cloned(),
                Naming::Names => Some(topic.name.as_str().into()),
            };
            let Some(name) = name else { continue };
            for partition in topic.partitions {
                let at = TopicPartition { topic: name.clone(), partition: partition.index };
                let Some((at, read)) = self.partitions.named_read(&at) else { continue };
                let is_current = match request {
                    Request::Session(overtaken) => !overtaken.contains(at),
                    Request::Sessionless(asked) => asked.get(at) == Some(&read.from),
                };
                if is_current {
                    let answer = self.answer(partition, read.from);
                    results.push(Answered { at: at.clone(), from: read.from, answer });
                }
            }
        }
        results
    }

    fn answer(&self, partition: FetchPartitionResponse, from: FetchFrom) -> Answer {
        let verdict = classify(partition.error);
        if verdict != FetchVerdict::Good {
            let named = partition.current_leader.filter(|leader| leader.leader_id >= 0);
            let leader =
                named.map(|leader| Leader { id: leader.leader_id, epoch: leader.leader_epoch });
            return Answer::Refused(verdict, partition.error, leader);
        }
        if partition.preferred_read_replica >= 0 {
            return Answer::Follow(partition.preferred_read_replica);
        }
        let (readable, aborted) = match self.settings.isolation {
            IsolationLevel::ReadUncommitted => (partition.high_watermark, None),
            IsolationLevel::ReadCommitted => (
                partition.last_stable_offset,
                Some(partition.aborted_transactions.unwrap_or_default()),
            ),
        };
        let ends = Ends { high_watermark: partition.high_watermark, readable };
        if let Some(end) = partition.diverging_epoch {
            return Answer::Diverged(ends, end);
        }
        let extent = Extent::of(&partition.records, from.offset);
        Answer::Records(ends, Records { bytes: partition.records, extent, aborted })
    }

    /// A result counted, and the partition's readable records end here.
    pub fn handle_end(&mut self, at: &TopicPartition, readable: i64) {
        self.partitions.set_end(at, Some(readable));
    }

    /// Records of a partition were stored: it is read from here on, and `held` returns the handle of its buffered
    /// bytes.
    pub fn handle_stored(
        &mut self,
        at: &TopicPartition,
        from: FetchFrom,
        held: impl FnOnce() -> H,
    ) {
        let Some(read) = self.partitions.advance(at, from) else { return };
        let params = self.params(from);
        self.session.want(super::session_key(at, read.topic_id), params);
        self.partitions.hold(at, held);
    }
}
