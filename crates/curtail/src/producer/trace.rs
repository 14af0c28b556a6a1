//! Trace events of the producer's requests.
//!
//! One event per request, response and connection. Producer epoch and first sequence number identify a batch over all
//! attempts; broker, branch (`Main` or `Side`) and correlation id identify a request. A disabled event costs one load and a
//! branch.

use std::fmt;

use curtail_wire::produce::ProduceResponse;

use super::{
    lane::{Lane, LaneLink, Request, Sent},
    settle::find,
};
use crate::TRACE_TARGET;

/// A request is queued for the socket, after `ahead` other requests in flight.
pub(super) fn sent(lane: &Lane, link: &LaneLink, batches: &[Sent]) {
    tracing::trace!(
        target: TRACE_TARGET,
        event = "sent",
        broker = lane.broker,
        branch = ?lane.branch,
        correlation_id = link.next_correlation_id(),
        ahead = link.in_flight().len(),
        batches = %Batches(batches),
    );
}

/// A response was read.
pub(super) fn answered(
    lane: &Lane,
    correlation_id: i32,
    request: &Request,
    answer: &ProduceResponse,
) {
    tracing::trace!(
        target: TRACE_TARGET,
        event = "answered",
        broker = lane.broker,
        branch = ?lane.branch,
        correlation_id,
        results = %Results(&request.batches, answer),
    );
}

/// The lane's connection opened, or was lost with `error`.
pub(super) fn connection(lane: &Lane, error: Option<&crate::Error>) {
    let (broker, branch) = (lane.broker, lane.branch);
    match error {
        None => {
            tracing::trace!(target: TRACE_TARGET, event = "connected", broker, ?branch);
        }
        Some(error) => {
            tracing::trace!(target: TRACE_TARGET, event = "disconnected", broker, ?branch, error = %error.report());
        }
    }
}

/// `topic-partition leader-epoch producer-epoch:sequence records attempt`, separated by semicolons.
struct Batches<'a>(&'a [Sent]);

impl fmt::Display for Batches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, sent) in self.0.iter().enumerate() {
            let separator = if place > 0 { ";" } else { "" };
            let Sent { partition, batch, leader, .. } = sent;
            let (topic, index) = (&partition.topic, partition.index);
            let (epoch, sequence) = batch.first_sequence().unwrap_or((-1, -1));
            let (records, attempts) = (batch.records, batch.attempts);
            write!(
                f,
                "{separator}{topic}-{index} {} {epoch}:{sequence} {records} {attempts}",
                leader.epoch
            )?;
        }
        Ok(())
    }
}

/// `topic-partition error base-offset leader leader-epoch`, separated by semicolons; the last two are -1 if the
/// broker names no other leader.
struct Results<'a>(&'a [Sent], &'a ProduceResponse);

impl fmt::Display for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(batches, answer) = self;
        let found = batches.iter().filter_map(|sent| Some((sent, find(answer, sent)?)));
        for (place, (sent, result)) in found.enumerate() {
            let separator = if place > 0 { ";" } else { "" };
            let (topic, index) = (&sent.partition.topic, sent.partition.index);
            let leader = result.current_leader.as_ref();
            let (id, epoch) = leader.map_or((-1, -1), |of| (of.leader_id, of.leader_epoch));
            write!(
                f,
                "{separator}{topic}-{index} {} {} {id} {epoch}",
                result.error.name(),
                result.base_offset
            )?;
        }
        Ok(())
    }
}
