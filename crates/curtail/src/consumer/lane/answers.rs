//! Fetch responses: records go to the buffer, errors change positions or leaders.

use bytes::Bytes;
use curtail_proto::{
    TopicPartition,
    fetcher::{Answer, Answered, Ends, Records},
    later::Later,
    metadata::{Hint, Leader, Node},
    position::{FetchFrom, FetchVerdict},
};
use curtail_wire::{
    ApiKey, ErrorCode,
    fetch::{EpochEndOffset, FetchResponse, NodeEndpoint},
    header,
};
use tokio::time::Instant;

use super::{Lane, aside::Done, fetch_from};
use crate::{
    Error, Result,
    consumer::{
        credit::Lease,
        cursor::Cursor,
        shared::{Assigned, State, refused},
    },
    error::BatchProblem,
};

impl Lane {
    /// Processes a response to the session's fetch.
    pub(super) fn digest(&mut self, version: i16, frame: &Bytes) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let answer = header::response_body(frame, ApiKey::FETCH, version)
            .and_then(|body| FetchResponse::decode(version, &body))
            .map_err(|e| connection.protocol_error(e))?;
        let (entropy, now) = (&self.shared.env.entropy, Instant::now().into_std());
        self.fetcher.handle_response(answer, now, || entropy.unit());
        self.carry_out();
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
        let (entropy, now) = (&self.shared.env.entropy, Instant::now().into_std());
        self.fetcher.handle_sessionless_response(done.purpose, answer, now, || entropy.unit());
        self.carry_out();
        Ok(())
    }

    /// Buffers the response's records, moves positions forward and handles errors.
    pub(super) fn take_in(&mut self, results: Vec<Answered>, endpoints: &[NodeEndpoint]) {
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
            let endpoints: Vec<Node> = endpoints.iter().filter_map(Node::from_endpoint).collect();
            let taken = shared.metadata.apply_hints(&hints, &endpoints);
            refresh |= taken.len() < hints.len();
        }
        if refresh {
            shared.metadata.request_refresh(None);
        }
    }

    /// Processes one partition's result. Returns whether the metadata may be stale.
    fn take_in_one(&mut self, state: &mut State, result: Answered, hints: &mut Vec<Hint>) -> bool {
        let Answered { at, from, answer } = result;
        let Some(assigned) = state.partitions.get(&at) else { return false };
        if !assigned.position.is_current(from) || assigned.lane != Some(self.node) {
            return false;
        }
        match answer {
            Answer::Records(ends, records) => {
                self.store(state, at, from, ends, records);
                false
            }
            Answer::Diverged(ends, end) => {
                self.diverged(state, &at, from, ends, end);
                false
            }
            Answer::Follow(replica) => self.follow(state, &at, replica),
            Answer::Refused(verdict, _, _) if self.leave_follower(state, &at, verdict) => {
                verdict != FetchVerdict::OutOfRange
            }
            Answer::Refused(verdict, error, leader) => {
                self.refused_at(state, &at, from, verdict, error);
                is_stale(verdict, leader, &at, hints)
            }
        }
    }

    /// Buffers a partition's records, and moves its position.
    fn store(
        &mut self,
        state: &mut State,
        at: TopicPartition,
        from: FetchFrom,
        ends: Ends,
        records: Records,
    ) {
        let Some(assigned) = state.partitions.get_mut(&at) else { return };
        let failures = self.served(assigned, &at, ends);
        let Records { bytes, extent, aborted } = records;
        if assigned.position.on_fetched(from, extent.next) {
            let lease = Lease::take(&self.signal, &assigned.held, bytes.len());
            if let Some(next) = fetch_from(assigned) {
                self.fetcher.handle_stored(&at, next, || assigned.held.clone());
            }
            let cursor = Cursor::new(at, from.version, from.offset, bytes, aborted, lease)
                .arrived(self.arrival.clone());
            state.push(cursor, self.shared.config.prefetch_bytes);
        } else if let Some(reason) = extent.fault(&bytes) {
            let next_offset = extent.after_damage.filter(|&next| next > from.offset);
            let (topic, partition, offset) = (at.topic.clone(), at.partition, from.offset);
            let problem = extent.damage.as_ref().map_or(BatchProblem::Damaged, BatchProblem::of);
            let reason = reason.into();
            let error = Error::Corrupt { topic, partition, offset, next_offset, problem, reason };
            state.fail(&at, error);
            state.touch(&at);
        } else if !bytes.is_empty() {
            // Every record is before the position. The broker would return them again at once.
            assigned.failures = failures;
            self.retry_later(assigned);
            state.touch(&at);
        }
    }

    /// Records that the broker serves the partition. Returns the number of failures before.
    fn served(&mut self, assigned: &mut Assigned, at: &TopicPartition, ends: Ends) -> u32 {
        assigned.high_watermark = Some(ends.high_watermark);
        assigned.end = Some(ends.readable);
        self.fetcher.handle_end(at, ends.readable);
        std::mem::take(&mut assigned.failures)
    }

    /// Moves the position of a partition whose log was truncated.
    fn diverged(
        &mut self,
        state: &mut State,
        at: &TopicPartition,
        from: FetchFrom,
        ends: Ends,
        end: EpochEndOffset,
    ) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        self.served(assigned, at, ends);
        let policy = self.shared.policy();
        let misfit = assigned.position.on_diverging(from, end, policy, &mut state.versions);
        self.shared.misfit(state, at, misfit);
        state.touch(at);
    }

    /// Handles a partition's error.
    fn refused_at(
        &self,
        state: &mut State,
        at: &TopicPartition,
        from: FetchFrom,
        verdict: FetchVerdict,
        error: ErrorCode,
    ) {
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        match verdict {
            FetchVerdict::Good => {}
            FetchVerdict::OutOfRange => {
                let policy = self.shared.policy();
                let misfit = assigned.position.on_out_of_range(from, policy, &mut state.versions);
                self.shared.misfit(state, at, misfit);
            }
            FetchVerdict::Report => {
                self.retry_later(assigned);
                let error = match error {
                    ErrorCode::CORRUPT_MESSAGE => self.corrupt(at, from.offset),
                    code => refused(at, code),
                };
                state.fail(at, error);
            }
            FetchVerdict::Moved | FetchVerdict::Missing | FetchVerdict::Retry => {
                self.shared.pause_after(error, assigned);
            }
        }
        state.touch(at);
    }

    /// Makes a partition back off after a failure.
    pub(super) fn retry_later(&self, assigned: &mut Assigned) {
        self.shared.pause(assigned, self.shared.pauses());
    }

    /// The error for a log that is damaged on the broker. The broker sends no batch whose header could name the next
    /// offset.
    fn corrupt(&self, at: &TopicPartition, offset: i64) -> Error {
        let reason =
            format!("broker {} found a corrupt batch in its log (CORRUPT_MESSAGE)", self.node)
                .into();
        let (topic, partition) = (at.topic.clone(), at.partition);
        let problem = BatchProblem::DamagedInLog;
        Error::Corrupt { topic, partition, offset, next_offset: None, problem, reason }
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
}

/// Whether the metadata may be stale after an error. A leader that the response names goes to `hints`.
fn is_stale(
    verdict: FetchVerdict,
    leader: Option<Leader>,
    at: &TopicPartition,
    hints: &mut Vec<Hint>,
) -> bool {
    match (verdict, leader) {
        (FetchVerdict::Moved, Some(leader)) => {
            hints.push(Hint { topic: at.topic.clone(), partition: at.partition, leader });
            false
        }
        (FetchVerdict::Moved | FetchVerdict::Missing, _) => true,
        _ => false,
    }
}
