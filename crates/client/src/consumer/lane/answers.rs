//! Fetch responses: records go to the buffer, errors change positions or leaders.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use curtail_proto::{
    fetch_session::{Naming, Outcome},
    later::Later,
    metadata::{Hint, Leader, Node},
    plant::{Plant, planted},
    position::{FetchVerdict, Spot, classify},
};
use curtail_wire::{
    ApiKey, ErrorCode,
    fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse},
    header,
    records::{RecordError, batches},
};
use tokio::time::Instant;

use super::{Lane, Reading, aside::Done, fetch_from};
use crate::{
    Error, IsolationLevel, Result, TopicPartition,
    consumer::{
        credit::Lease,
        cursor::Cursor,
        shared::{State, refused},
    },
};

/// The request that a response belongs to.
enum Asked {
    /// The session's fetch. Partitions that a sessionless fetch has overtaken are ignored.
    BySession,
    /// A sessionless fetch of these partitions.
    Beside(BTreeMap<TopicPartition, Reading>),
}

impl Lane {
    /// Processes a response to the session's fetch.
    pub(super) fn digest(&mut self, version: i16, frame: &Bytes) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let answer = header::response_body(frame, ApiKey::FETCH, version)
            .and_then(|body| FetchResponse::decode(version, &body))
            .map_err(|e| connection.protocol_error(e))?;
        let results = answer.topics.iter().map(|t| t.partitions.len()).sum();
        match self.session.on_answer(answer.error, answer.session_id, results) {
            Outcome::Results => {}
            Outcome::StartedOver => return Ok(()),
            Outcome::Refused(error) => {
                self.refused(error);
                return Ok(());
            }
        }
        self.worked();
        self.throttle(answer.throttle_time_ms);
        self.take_in(answer, &Asked::BySession);
        self.overtaken.clear();
        Ok(())
    }

    /// Processes a response to a sessionless fetch.
    pub(super) fn digest_beside(&mut self, done: Done) -> Result<()> {
        let (version, body) = done.answer?;
        self.arrival = self.stats.answered(done.begun, body.len());
        self.stats.beside();
        let peer = format!("broker {}", self.node).into();
        let answer = FetchResponse::decode(version, &body)
            .map_err(|e| crate::conn::protocol_error(&peer, e))?;
        if answer.error.is_error() {
            self.refused(answer.error);
            return Ok(());
        }
        self.throttle(answer.throttle_time_ms);
        // No records arrived at the assumed end: without this the lane would ask again at once.
        let empty = answer.topics.iter().flat_map(|t| &t.partitions).all(|p| p.records.is_empty());
        if empty {
            for at in done.asked.keys() {
                self.ends.remove(at);
            }
        }
        self.take_in(answer, &Asked::Beside(done.asked));
        Ok(())
    }

    fn refused(&mut self, error: ErrorCode) {
        tracing::debug!(node = self.node, %error, "fetch refused");
        self.failures += 1;
        if classify(error) == FetchVerdict::Report && !error.is_retriable() {
            self.shared.report(Error::Broker {
                what: format!("Fetch of broker {}", self.node).into(),
                code: error,
                message: Some(error.message().into()),
            });
        }
        self.shared.metadata.request_refresh(None);
        self.pause(self.shared.backoff(self.failures));
    }

    fn throttle(&mut self, throttle_time_ms: i32) {
        if let Ok(throttle @ 1..) = u64::try_from(throttle_time_ms) {
            let limit = self.shared.config.common.request_timeout;
            let throttle = Duration::from_millis(throttle).min(limit);
            self.stats.throttled(throttle);
            self.pause(throttle);
        }
    }

    /// Buffers the response's records, moves positions forward and handles errors.
    fn take_in(&mut self, answer: FetchResponse, asked: &Asked) {
        let results = self.results(answer.topics, asked);
        if results.is_empty() {
            return;
        }
        let mut hints = Vec::new();
        let mut refresh = false;
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        for result in results {
            refresh |= self.take_in_one(&mut state, result, &mut hints);
        }
        let waker = state.take_waker();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if !hints.is_empty() {
            let endpoints: Vec<Node> =
                answer.node_endpoints.iter().filter_map(Node::from_endpoint).collect();
            let taken = shared.metadata.apply_hints(&hints, &endpoints);
            refresh |= taken.len() < hints.len();
        }
        if refresh {
            shared.metadata.request_refresh(None);
        }
    }

    /// Returns the results for partitions that are still read from the position requested.
    fn results(&mut self, topics: Vec<FetchTopicResponse>, asked: &Asked) -> Vec<Answered> {
        let mut results = Vec::new();
        for topic in topics {
            let name = match self.session.naming() {
                Naming::Ids => self.topics.get(&topic.topic_id).cloned(),
                Naming::Names => Some(topic.name.as_str().into()),
            };
            let Some(name) = name else { continue };
            for partition in topic.partitions {
                let at = TopicPartition { topic: name.clone(), partition: partition.index };
                let Some((at, reading)) = self.reading.get_key_value(&at) else { continue };
                let current = match asked {
                    Asked::BySession => !self.overtaken.contains(at),
                    Asked::Beside(asked) => asked.get(at).is_some_and(|a| a.from == reading.from),
                };
                if current {
                    results.push(Answered {
                        at: at.clone(),
                        reading: *reading,
                        fetched: Fetched::of(&partition.records, reading.from.offset),
                        partition,
                    });
                }
            }
        }
        if let Asked::Beside(_) = asked
            && self.fetching
        {
            self.overtaken.extend(results.iter().map(|result| result.at.clone()));
        }
        results
    }

    /// Processes one partition's result. Returns whether the metadata may be stale.
    fn take_in_one(&mut self, state: &mut State, result: Answered, hints: &mut Vec<Hint>) -> bool {
        let Answered { at, reading, fetched, partition } = result;
        let from = reading.from;
        let Some(assigned) = state.partitions.get(&at) else { return false };
        if !assigned.position.is_current(from) || assigned.lane != Some(self.node) {
            return false;
        }
        let verdict = classify(partition.error);
        if verdict == FetchVerdict::Good && partition.preferred_read_replica >= 0 {
            return self.follow(state, &at, partition.preferred_read_replica);
        }
        if verdict != FetchVerdict::Good && self.leave_follower(state, &at, verdict) {
            return verdict != FetchVerdict::OutOfRange;
        }
        let Some(assigned) = state.partitions.get_mut(&at) else { return false };
        if verdict == FetchVerdict::Good {
            self.take_in_records(state, at, reading, &fetched, partition);
            return false;
        }
        match verdict {
            FetchVerdict::Good => {}
            FetchVerdict::OutOfRange => {
                let policy = self.shared.policy();
                let misfit = assigned.position.on_out_of_range(from, policy, &mut state.versions);
                self.shared.misfit(state, &at, misfit);
            }
            FetchVerdict::Report => {
                self.retry_later(assigned);
                let error = match partition.error {
                    ErrorCode::CORRUPT_MESSAGE => self.corrupt(&at, from.offset),
                    code => refused(&at, code),
                };
                state.fail(&at, error);
            }
            FetchVerdict::Moved | FetchVerdict::Missing | FetchVerdict::Retry => {
                self.shared.pause_after(partition.error, assigned);
            }
        }
        state.touch(&at);
        match (verdict, partition.current_leader) {
            (FetchVerdict::Moved, Some(leader)) if leader.leader_id >= 0 => {
                hints.push(Hint {
                    topic: at.topic.clone(),
                    partition: at.partition,
                    leader: Leader { id: leader.leader_id, epoch: leader.leader_epoch },
                });
                false
            }
            (FetchVerdict::Moved | FetchVerdict::Missing, _) => true,
            _ => false,
        }
    }

    /// The error for a log that is damaged on the broker. The broker sends no batch whose header could name the next
    /// offset.
    fn corrupt(&self, at: &TopicPartition, offset: i64) -> Error {
        let reason =
            format!("broker {} found a corrupt batch in its log (CORRUPT_MESSAGE)", self.node)
                .into();
        let (topic, partition) = (at.topic.clone(), at.partition);
        Error::Corrupt { topic, partition, offset, next_offset: None, reason }
    }

    /// Moves a partition to the replica that the leader named, for `metadata.max.age.ms`. Returns whether the
    /// metadata may be stale.
    fn follow(&self, state: &mut State, at: &TopicPartition, replica: i32) -> bool {
        let Some(assigned) = state.partitions.get_mut(at) else { return false };
        let known = self.shared.metadata.snapshot().node(replica).is_some();
        if !known || replica == self.node {
            self.retry_later(assigned);
            state.touch(at);
            return true;
        }
        let until = Instant::now().later(self.shared.config.common.metadata_max_age);
        assigned.preferred = Some((replica, until));
        self.shared.reroute(state, at);
        false
    }

    /// Returns a partition to the leader if its follower cannot serve it. A follower that only has to catch up is
    /// kept. Returns whether the partition has left the follower.
    fn leave_follower(
        &self,
        state: &mut State,
        at: &TopicPartition,
        verdict: FetchVerdict,
    ) -> bool {
        let Some(assigned) = state.partitions.get_mut(at) else { return false };
        if assigned.preferred.is_none() || verdict == FetchVerdict::Retry {
            return false;
        }
        assigned.preferred = None;
        self.shared.reroute(state, at);
        true
    }

    fn take_in_records(
        &mut self,
        state: &mut State,
        at: TopicPartition,
        reading: Reading,
        fetched: &Fetched,
        partition: FetchPartitionResponse,
    ) {
        let from = reading.from;
        let Some(assigned) = state.partitions.get_mut(&at) else { return };
        assigned.high_watermark = Some(partition.high_watermark);
        let end = match self.shared.config.isolation_level {
            IsolationLevel::ReadUncommitted => partition.high_watermark,
            IsolationLevel::ReadCommitted => partition.last_stable_offset,
        };
        assigned.end = Some(end);
        self.ends.insert(at.clone(), end);
        let failures = std::mem::take(&mut assigned.failures);
        if let Some(end) = partition.diverging_epoch {
            let policy = self.shared.policy();
            let misfit = assigned.position.on_diverging(from, end, policy, &mut state.versions);
            self.shared.misfit(state, &at, misfit);
            state.touch(&at);
            return;
        }
        let next = Spot { offset: fetched.next, epoch: fetched.epoch };
        if assigned.position.on_fetched(from, next) {
            let lease = Lease::take(&self.signal, &assigned.held, partition.records.len());
            self.loaded.entry(at.clone()).or_insert_with(|| assigned.held.clone());
            let aborted = match self.shared.config.isolation_level {
                IsolationLevel::ReadUncommitted => None,
                IsolationLevel::ReadCommitted => {
                    Some(partition.aborted_transactions.unwrap_or_default())
                }
            };
            if let Some(from) = fetch_from(assigned) {
                self.read(&at, Reading { from, ..reading });
            }
            let records = partition.records;
            let cursor = Cursor::new(at, from.version, from.offset, records, aborted, lease)
                .arrived(self.arrival.clone());
            state.push(cursor, self.shared.config.prefetch_bytes);
        } else if let Some(reason) = fetched.why_nothing(&partition.records) {
            let behind = fetched.behind.filter(|&next| next > from.offset);
            let (topic, partition) = (at.topic.clone(), at.partition);
            let error = Error::Corrupt {
                topic,
                partition,
                offset: from.offset,
                next_offset: behind,
                reason: reason.into(),
            };
            state.fail(&at, error);
            state.touch(&at);
        } else if !partition.records.is_empty() {
            // Every record is before the position. The broker would return them again at once.
            assigned.failures = failures;
            self.retry_later(assigned);
            state.touch(&at);
        }
    }
}

/// One partition's result, with its request.
struct Answered {
    at: TopicPartition,
    reading: Reading,
    fetched: Fetched,
    partition: FetchPartitionResponse,
}

/// Extent of a partition's records, from the batch headers alone.
struct Fetched {
    /// The offset after the last whole batch.
    next: i64,
    /// Leader epoch of that batch.
    epoch: i32,
    /// Whether there is a complete batch.
    whole: bool,
    /// Why no batch was found after it, if the bytes are no batches.
    damage: Option<RecordError>,
    /// First offset of the batch after that damage, if the response contains it.
    behind: Option<i64>,
}

impl Fetched {
    fn of(records: &Bytes, asked: i64) -> Self {
        let mut fetched = Self { next: asked, epoch: -1, whole: false, damage: None, behind: None };
        let mut rest = batches(records.clone());
        while let Some(batch) = rest.next() {
            match batch {
                Ok(batch) => {
                    fetched.whole = true;
                    let is_empty = batch.header.record_count == 0;
                    if is_empty && planted(Plant::EmptiedBatchNotPassed) {
                        continue;
                    }
                    fetched.next = fetched.next.max(batch.header.last_offset().saturating_add(1));
                    fetched.epoch = batch.header.partition_leader_epoch;
                }
                Err(error) => {
                    fetched.damage = Some(error);
                    fetched.behind = rest.offset_behind_next();
                    break;
                }
            }
        }
        fetched
    }
    /// Returns the fault in records that do not move the position, if there is one. Since KIP-74 a broker returns the
    /// first batch complete, whatever its size.
    fn why_nothing(&self, records: &Bytes) -> Option<String> {
        match &self.damage {
            Some(error) => Some(error.to_string()),
            None if !self.whole && !records.is_empty() => {
                Some(format!("the {} fetched bytes hold no complete batch", records.len()))
            }
            None => None,
        }
    }
}
