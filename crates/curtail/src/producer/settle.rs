//! Settles batches: from a response to the outcome of each batch.

use std::{sync::Arc, time::Instant as StdInstant};

use bytes::Bytes;
use curtail_proto::{
    accumulator::{Parts, Share},
    backoff::Backoff,
    classify::{Append, Context, Verdict, classify, may_have_been_written},
    later::Later,
    metadata::{Hint, Leader, Node},
    plant::{Plant, planted},
};
use curtail_wire::{
    ErrorCode, Report,
    produce::{ProducePartitionResponse, ProduceResponse, ProduceTopicResponse},
};
use tokio::time::Instant;

use super::{
    delivery::{Acknowledged, Timing},
    lane::{Overdue, Request, Sent},
    shared::{Shared, resubmit},
};
use crate::{Error, config::LeaderDiscovery, conn::protocol_error, error::one_line};

/// Settles every batch of a request to which `broker` has responded.
pub(super) fn answered(
    shared: &Shared,
    broker: i32,
    request: Request,
    answer: &ProduceResponse,
    acknowledged: Instant,
) {
    learn_leaders(shared, broker, &request, answer);
    let written = Instant::from_std(request.written);
    let version = request.envelope.version;
    for sent in request.batches {
        match find(answer, &sent) {
            Some(result) => {
                let append = Append::told(version, result.base_offset);
                settle(shared, sent, (result, append), written, acknowledged);
            }
            None => {
                let broker = format!("the leader of {}", sent.name()).into();
                let cause = protocol_error(&broker, "the response omits a batch of the request");
                lost(shared, sent, &cause, true);
            }
        }
    }
}

/// Settles requests whose connection to `broker` was lost: it is unknown whether they were written.
pub(super) fn connection_lost(shared: &Shared, broker: i32, requests: Vec<Request>, cause: &Error) {
    let mut asked: Option<Arc<str>> = None;
    for request in &requests {
        request.envelope.span.failed(cause);
    }
    for sent in requests.into_iter().flat_map(|request| request.batches) {
        if asked.as_ref() != Some(&sent.partition.topic) {
            shared.metadata.request_refresh_avoiding(Some(&sent.partition.topic), broker);
            asked = Some(sent.partition.topic.clone());
        }
        // For a batch that expires now, the broker's earlier error is the better reason.
        let over = is_over(shared, &sent, Instant::now());
        let said = over.then(|| sent.partition.state.lock().last_error().cloned()).flatten();
        let cause = said.unwrap_or_else(|| cause.clone());
        lost(shared, sent, &cause, true);
    }
}

/// The first error code for the batches of a request.
pub(super) fn refusal(answer: &ProduceResponse, batches: &[Sent]) -> Option<ErrorCode> {
    let codes = batches.iter().filter_map(|sent| Some(find(answer, sent)?.error));
    codes.into_iter().find(|code| code.is_error())
}

fn is_over(shared: &Shared, sent: &Sent, now: Instant) -> bool {
    Instant::from_std(sent.batch.created).later(shared.config.delivery_timeout) <= now
}

/// Fails batches that a lane has sent and that are past `delivery.timeout.ms`. Batches of one partition fail in
/// order.
pub(super) fn overdue(shared: &Shared, overdue: Overdue) {
    for (sent, is_begun) in overdue.batches {
        let unknown = is_begun || sent.batch.outcome_unknown();
        let said = sent.partition.state.lock().last_error().cloned();
        let cause = shared.delivery_timeout(said.as_ref());
        fail(shared, sent, &cause, unknown);
    }
}

/// Settles batches whose partition has a new leader while the previous one is unresponsive. They move to the new
/// leader with their sequence numbers, so that it can detect those that it already has.
///
/// Without idempotence no broker can detect them: batches that the previous leader had written are written twice. Any
/// retry without a response has that effect, also in Java, but here it happens before `request.timeout.ms`.
pub(super) fn follow_leader(shared: &Shared, moved: Vec<Sent>, cause: &Error) {
    for sent in moved {
        lost(shared, sent, cause, true);
    }
}

/// Settles a request with acks=0 once the socket has accepted it.
pub(super) fn written_without_answer(shared: &Shared, request: Request) {
    let (written, now) = (Instant::from_std(request.written), Instant::now());
    for sent in request.batches {
        acknowledge(shared, sent, None, None, written, now);
    }
}

/// Applies the leaders named in the response, in one step, before any batch returns to its queue (KIP-951).
fn learn_leaders(shared: &Shared, broker: i32, request: &Request, answer: &ProduceResponse) {
    if shared.config.leader_discovery != LeaderDiscovery::Hint {
        return;
    }
    let mut hints = Vec::new();
    for sent in &request.batches {
        let Some(leader) = find(answer, sent).and_then(|result| result.current_leader) else {
            continue;
        };
        hints.push(Hint {
            topic: sent.partition.topic.clone(),
            partition: sent.partition.index,
            leader: Leader { id: leader.leader_id, epoch: leader.leader_epoch },
        });
    }
    if hints.is_empty() {
        return;
    }
    let endpoints: Vec<Node> =
        answer.node_endpoints.iter().filter_map(Node::from_endpoint).collect();
    let taken = shared.metadata.apply_hints(&hints, &endpoints);
    // Leaders rarely move alone, and this broker knows of the other moves, too. Batches sent to the previous leaders
    // would be refused.
    let mut topics: Vec<Arc<str>> = taken.into_iter().map(|hint| hint.topic).collect();
    topics.dedup();
    for topic in topics {
        shared.metadata.request_refresh_from(&topic, broker);
    }
}

pub(super) fn find<'a>(
    answer: &'a ProduceResponse,
    sent: &Sent,
) -> Option<&'a ProducePartitionResponse> {
    let same_topic = |topic: &&ProduceTopicResponse| {
        if topic.name.is_empty() {
            topic.topic_id == sent.topic_id
        } else {
            *topic.name == *sent.partition.topic
        }
    };
    let topic = answer.topics.iter().find(same_topic)?;
    topic.partitions.iter().find(|partition| partition.index == sent.partition.index)
}

fn settle(
    shared: &Shared,
    sent: Sent,
    (result, append): (&ProducePartitionResponse, Append),
    written: Instant,
    acknowledged: Instant,
) {
    let unknown = may_have_been_written(result.error, append);
    let context = Context {
        sequenced: shared.identity.sequenced(),
        is_next: sent.partition.state.lock().queue.is_next(&sent.batch),
        records: sent.batch.records,
    };
    let verdict = classify(result.error, context);
    if !matches!(verdict, Verdict::Written | Verdict::WrittenBefore) {
        sent.stats.batch_refused();
    }
    match verdict {
        Verdict::Written | Verdict::WrittenBefore => {
            let offset = (result.base_offset >= 0).then_some(result.base_offset);
            let append_time = (result.log_append_time_ms >= 0).then_some(result.log_append_time_ms);
            acknowledge(shared, sent, offset, append_time, written, acknowledged);
        }
        Verdict::Moved => {
            let cause = broker_error(&sent, result);
            // The elected leader has not applied its election yet; this takes milliseconds. Its epoch may already be
            // known here.
            lost_with(shared, sent, &cause, unknown, shared.backoff.soon());
        }
        Verdict::Retry { refresh_metadata } => {
            if refresh_metadata {
                shared.metadata.request_refresh(Some(&sent.partition.topic));
            }
            let cause = broker_error(&sent, result);
            // After some of these errors the broker has appended the batch, or may have.
            lost(shared, sent, &cause, unknown);
        }
        // The retry would repair what these plants break, and no test could detect them.
        Verdict::RetryInNextEpoch
            if !planted(Plant::NoGapOnExpiry) && !planted(Plant::SequenceRestarted) =>
        {
            let cause = broker_error(&sent, result);
            comes_back(shared, sent, &cause, Comeback::InNextEpoch, shared.backoff);
        }
        Verdict::Split => {
            let cause = broker_error(&sent, result);
            split(shared, sent, &cause);
        }
        Verdict::Fail | Verdict::FailAndBumpEpoch | Verdict::RetryInNextEpoch => {
            let cause = broker_error(&sent, result);
            let unknown = sent.batch.outcome_unknown() || unknown;
            fail(shared, sent, &cause, unknown);
        }
    }
}

fn broker_error(sent: &Sent, result: &ProducePartitionResponse) -> Error {
    Error::Broker {
        what: sent.name().into(),
        code: result.error,
        message: result.error_message.as_deref().map(|m| one_line(m).into()),
    }
}

fn acknowledge(
    shared: &Shared,
    sent: Sent,
    base_offset: Option<i64>,
    log_append_time: Option<i64>,
    written: Instant,
    acknowledged: Instant,
) {
    let Sent { stats, partition, batch, leader, .. } = sent;
    let mut state = partition.state.lock();
    let is_first = state.leader == leader && partition.standing.prove();
    let was_doubtful = state.queue.is_doubtful();
    state.queue.written(&batch);
    partition.counts.add(batch.records, batch.payload().len());
    state.set_last_error(None);
    if state.is_apart() && state.leader == leader && !state.is_avoided() {
        state.rejoin();
    }
    if was_doubtful || is_first {
        // Older batches of other partitions may move here. Before the partition is queued: an idle connection takes what
        // waits at once.
        drop(state);
        shared.reconsider(&partition, is_first);
        state = partition.state.lock();
    }
    resubmit(state, &partition);
    let created = Instant::from_std(batch.created);
    let first_written = batch.first_taken.map_or(written, Instant::from_std);
    stats.batch_acknowledged(acknowledged.saturating_duration_since(created), batch.records);
    let (records, attempts) = (batch.records, batch.attempts);
    let (payload, completion) = batch.into_parts();
    completion.acknowledge(Acknowledged {
        base_offset,
        log_append_time,
        records,
        bytes: payload.len(),
        attempts,
        timing: Timing { created, first_written, written, acknowledged },
    });
    shared.memory.recycle(payload);
    shared.let_rest(&partition);
}

/// Returns a batch to its queue after a failure that a retry may fix.
fn lost(shared: &Shared, sent: Sent, cause: &Error, outcome_unknown: bool) {
    let backoff = if is_concurrent(cause) { shared.backoff.soon() } else { shared.backoff };
    lost_with(shared, sent, cause, outcome_unknown, backoff);
}

fn lost_with(shared: &Shared, sent: Sent, cause: &Error, outcome_unknown: bool, backoff: Backoff) {
    comes_back(shared, sent, cause, Comeback::WithItsSequence { outcome_unknown }, backoff);
}

/// How a batch is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comeback {
    WithItsSequence {
        outcome_unknown: bool,
    },
    /// Its sequence number is lost, and the batch is not written.
    InNextEpoch,
}

fn comes_back(shared: &Shared, sent: Sent, cause: &Error, how: Comeback, backoff: Backoff) {
    let now = Instant::now();
    let doubt = Comeback::WithItsSequence { outcome_unknown: true };
    let unknown = how == doubt || sent.batch.outcome_unknown();
    if is_over(shared, &sent, now) {
        let cause = shared.delivery_timeout(Some(cause));
        return fail(shared, sent, &cause, unknown);
    }
    if sent.batch.attempts > shared.config.retries {
        return fail(shared, sent, cause, unknown);
    }
    let Sent { stats, partition, mut batch, leader: former, .. } = sent;
    stats.batch_retried(batch.records);
    let mut state = partition.state.lock();
    let leader = state.leader;
    // A new leader is asked at once; the same leader only after a backoff (KIP-951).
    let is_new = state.has_new_leader_since(former) || planted(Plant::NoBackoff);
    let moved = shared.may_retry_at_once() && is_new;
    let not_before: Option<StdInstant> = (!moved).then(|| {
        let failures = state.queue.failures() + 1;
        now.later(backoff.after(failures, shared.env.entropy.unit())).into_std()
    });
    tracing::debug!(partition = partition.index, to = leader.id, cause = %cause.report(), moved, "batch goes back");
    shared.keeps_deadline_of(&batch, &state);
    // The leader may have changed while the batch was in flight.
    batch.completion.charge_to(state.account());
    batch.completion.set_parked(state.is_parked());
    let refused = match how {
        Comeback::WithItsSequence { outcome_unknown } => {
            state.queue.retry(batch, outcome_unknown, not_before).into_iter().collect()
        }
        Comeback::InNextEpoch => state.queue.renumber(batch, not_before),
    };
    state.set_parked(true);
    state.set_last_error(Some(cause.clone()));
    partition.standing.doubt(shared.age(now));
    let left_behind = leader.id != former.id && state.queue.is_regrouping();
    drop(state);
    // Before the partition is queued at its leader: an idle connection takes the batch at once, and then it cannot move.
    shared.came_back(&partition);
    resubmit(partition.state.lock(), &partition);
    if left_behind {
        shared.train_has_left_broker(former.id);
    }
    if !moved {
        shared.metadata.request_refresh(Some(&partition.topic));
    }
    for batch in refused {
        stats.batch_failed(batch.records);
        shared.stats.record_errors.add(u64::from(batch.records));
        shared.identity.batch_fails(&batch, cause);
        batch.into_parts().1.fail(cause.clone(), true);
    }
}

/// Whether the previous transaction has not quite ended; this takes milliseconds.
fn is_concurrent(cause: &Error) -> bool {
    matches!(cause, Error::Broker { code: ErrorCode::CONCURRENT_TRANSACTIONS, .. })
}

/// Splits a batch that is too large for the broker: smaller batches take its place (KAFKA-3995).
fn split(shared: &Shared, sent: Sent, cause: &Error) {
    let parts = match Parts::of(&sent.batch, &shared.policy) {
        Ok(parts) => parts,
        Err(error) => {
            tracing::error!(partition = sent.name(), error = %Report::new(&error), "a batch cannot be split");
            let unknown = sent.batch.outcome_unknown();
            return fail(shared, sent, cause, unknown);
        }
    };
    let Sent { stats, partition, batch, .. } = sent;
    tracing::debug!(partition = partition.index, parts = parts.shares().len(), cause = %cause.report(), "split");
    let payload = batch.payload().clone();
    let mut divided = None;
    let mut state = partition.state.lock();
    shared.keeps_deadline_of(&batch, &state);
    let shares: Vec<Share> = parts.shares().collect();
    let refused = state.queue.split(batch, parts, |completion| {
        let (completions, whole) = completion.divide(&shares);
        divided = Some(whole);
        completions
    });
    resubmit(state, &partition);
    if let Some(divided) = divided {
        divided.tell();
    }
    match refused {
        None => {
            stats.batch_split();
            shared.memory.recycle(payload);
        }
        Some(batch) => {
            stats.batch_failed(batch.records);
            shared.stats.record_errors.add(u64::from(batch.records));
            shared.identity.batch_fails(&batch, cause);
            let unknown = batch.outcome_unknown();
            batch.into_parts().1.fail(cause.clone(), unknown);
        }
    }
}

fn fail(shared: &Shared, sent: Sent, cause: &Error, unknown: bool) {
    let Sent { stats, partition, batch, .. } = sent;
    shared.identity.batch_fails(&batch, cause);
    let mut state = partition.state.lock();
    let lost = state.queue.fail(&batch);
    resubmit(state, &partition);
    let records = batch.records + lost.iter().map(|batch| batch.records).sum::<u32>();
    stats.batch_failed(records);
    shared.stats.record_errors.add(u64::from(records));
    let (payload, completion) = batch.into_parts();
    completion.fail(cause.clone(), unknown);
    shared.memory.recycle(payload);
    for batch in lost {
        let (payload, completion): (Bytes, _) = batch.into_parts();
        completion.fail(cause.clone(), true);
        shared.memory.recycle(payload);
    }
    shared.let_rest(&partition);
}
