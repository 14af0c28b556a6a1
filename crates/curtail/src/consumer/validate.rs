//! Validation of positions after leader changes: OffsetsForLeaderEpoch to the leaders (KIP-320).
//!
//! One task validates for the whole consumer, over separate connections: a leader that is slow to validate delays no
//! fetch of another partition. A leader has one request in flight, for all its positions that need validation.
//!
//! # Invariants
//! - A response counts only for the position it was asked for: the machine discards it after a seek or a newer leader
//!   epoch.
//!
//! # Locks
//! [`Shared::state`], never across an `await`.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    ops::RangeInclusive,
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use curtail_proto::position::{FetchVerdict, Misfit, Validation, classify};
use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
    fetch::EpochEndOffset,
};
use messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
};
use tokio::time::{Instant, sleep_until};

use super::shared::{Shared, State, refused};
use crate::{
    Error, Result, TopicPartition,
    conn::{Connection, Idle},
};

/// Since version 3 a consumer needs no permission on the cluster.
const VERSIONS: RangeInclusive<i16> = 3..=4;

type Questions = BTreeMap<TopicPartition, Validation>;
type Answers = BTreeMap<(String, i32), (ErrorCode, EpochEndOffset)>;
type Exchange = Pin<Box<dyn Future<Output = Result<(Connection, Answers)>> + Send>>;

/// A request in flight.
struct Asking {
    asked: Questions,
    exchange: Exchange,
}

struct Validator {
    shared: Arc<Shared>,
    /// By broker id.
    asking: BTreeMap<i32, Asking>,
    /// Connections without a request, by broker id.
    idle: Idle<i32>,
}

/// Runs until it is aborted, with the consumer.
pub(super) async fn run(shared: Arc<Shared>) {
    let wake = shared.state.lock().validator.clone();
    let idle = Idle::new(&shared.runtime);
    let mut validator = Validator { shared, asking: BTreeMap::new(), idle };
    loop {
        let retry_at = validator.ask();
        tokio::select! {
            biased;
            () = wake.notified() => {}
            (node, asked, answer) = validator.answered() => validator.digest(node, asked, answer),
            () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {}
        }
    }
}

impl Validator {
    /// Asks each leader without a request in flight for its positions. Returns when the next backoff ends.
    fn ask(&mut self) -> Option<Instant> {
        let (by_leader, retry_at) = self.due();
        for (node, asked) in by_leader {
            let idle = self.idle.take(&node);
            let exchange = exchange(self.shared.clone(), node, idle, asked.clone());
            self.asking.insert(node, Asking { asked, exchange: Box::pin(exchange) });
        }
        retry_at
    }

    fn due(&self) -> (BTreeMap<i32, Questions>, Option<Instant>) {
        let now = Instant::now();
        let (mut by_leader, mut retry_at) = (BTreeMap::<i32, Questions>::new(), None::<Instant>);
        let mut state = self.shared.state.lock();
        let snapshot = self.shared.metadata.snapshot();
        let State { unvalidated, partitions, .. } = &mut *state;
        unvalidated.retain(|at| {
            let Some(assigned) = partitions.get(at).filter(|assigned| !assigned.halted) else {
                return false;
            };
            let Some(asked) = assigned.position.validation() else { return false };
            if let Some(pause) = assigned.retry_at.filter(|retry_at| *retry_at > now) {
                retry_at = Some(retry_at.map_or(pause, |first| first.min(pause)));
                return true;
            }
            let leaders = snapshot.topic(&at.topic).map(|topic| &topic.leaders);
            let index = usize::try_from(at.partition).unwrap_or(usize::MAX);
            let leader = leaders.and_then(|leaders| leaders.get(index)).map(|leader| leader.id);
            if let Some(leader @ 0..) = leader
                && !self.asking.contains_key(&leader)
            {
                by_leader.entry(leader).or_default().insert(at.clone(), asked);
            }
            true
        });
        (by_leader, retry_at)
    }

    /// Returns the next response. Pending while no request is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn answered(&mut self) -> (i32, Questions, Result<Answers>) {
        let (node, result) = poll_fn(|cx| {
            for (node, asking) in &mut self.asking {
                if let Poll::Ready(result) = asking.exchange.as_mut().poll(cx) {
                    return Poll::Ready((*node, result));
                }
            }
            Poll::Pending
        })
        .await;
        let asked = self.asking.remove(&node).map(|asking| asking.asked).unwrap_or_default();
        let answer = result.map(|(connection, answers)| {
            self.idle.put(node, connection);
            answers
        });
        (node, asked, answer)
    }

    fn digest(&self, node: i32, asked: Questions, answer: Result<Answers>) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        match answer {
            Ok(mut answers) => {
                for (at, asked) in asked {
                    let key = (at.topic.to_string(), at.partition);
                    let answer = answers.remove(&key);
                    shared.validated(&mut state, &at, asked, answer);
                }
            }
            Err(Error::UnsupportedVersion(reason)) => {
                tracing::debug!(node, %reason, "positions are not validated");
                for (at, asked) in asked {
                    if let Some(assigned) = state.partitions.get_mut(&at) {
                        assigned.position.on_unsupported(asked);
                    }
                    state.touch(&at);
                }
            }
            Err(error) => {
                tracing::debug!(node, error = %error.report(), "positions are not validated yet");
                for (at, asked) in asked {
                    if let Some(assigned) = state.partitions.get_mut(&at)
                        && assigned.position.validation() == Some(asked)
                    {
                        shared.pause(assigned, shared.pauses());
                        state.touch(&at);
                    }
                }
                drop(state);
                shared.report_refusal(&error);
                shared.metadata.request_refresh_avoiding(None, node);
                return;
            }
        }
        drop(state);
        shared.settled.notify_waiters();
    }
}

impl Shared {
    /// Applies the leader's response for one position.
    fn validated(
        &self,
        state: &mut State,
        at: &TopicPartition,
        asked: Validation,
        answer: Option<(ErrorCode, EpochEndOffset)>,
    ) {
        let missing = EpochEndOffset { epoch: -1, end_offset: -1 };
        let (error, end) = answer.unwrap_or((ErrorCode::UNKNOWN_SERVER_ERROR, missing));
        let policy = self.policy();
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        if assigned.position.validation() != Some(asked) {
            return;
        }
        match classify(error) {
            FetchVerdict::Good => {
                let versions = &mut state.versions;
                match assigned.position.on_validated(asked, end, policy, versions) {
                    Ok(()) => {
                        assigned.failures = 0;
                        assigned.refused_since = None;
                        assigned.retry_at = None;
                    }
                    Err(misfit) => {
                        let (spot, diverges) = (asked.spot, end.end_offset);
                        if misfit != Misfit::NotYet {
                            tracing::warn!(
                                topic = &*at.topic,
                                partition = at.partition,
                                offset = spot.offset,
                                epoch = spot.epoch,
                                diverges,
                                "the log was truncated before the position"
                            );
                        }
                        self.misfit(state, at, misfit);
                    }
                }
            }
            FetchVerdict::Report | FetchVerdict::OutOfRange => {
                self.pause(assigned, self.pauses());
                state.fail(at, refused(at, error));
            }
            FetchVerdict::Moved | FetchVerdict::Missing | FetchVerdict::Retry => {
                self.pause_after(error, assigned);
                self.metadata.request_refresh(Some(&at.topic));
                let limit = self.config.common.default_api_timeout;
                let since = *assigned.refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= limit {
                    // The epoch may be one that no leader ever had.
                    assigned.refused_since = None;
                    let what = "OffsetsForLeaderEpoch (default.api.timeout.ms)";
                    let last = Some(Arc::new(refused(at, error)));
                    state.fail(at, Error::Timeout { what, limit, last });
                }
            }
        }
        state.touch(at);
    }
}

/// Sends the request to one leader. The broker may have closed an idle connection: then over a new one.
async fn exchange(
    shared: Arc<Shared>,
    node: i32,
    idle: Option<Connection>,
    asked: Questions,
) -> Result<(Connection, Answers)> {
    let exchange = async {
        if let Some(connection) = idle
            && let Ok(answered) = request(connection, &asked).await
        {
            return Ok(answered);
        }
        request(shared.connect(node).await?, &asked).await
    };
    shared.suspecting(node, shared.patience(), exchange).await
}

async fn request(mut connection: Connection, asked: &Questions) -> Result<(Connection, Answers)> {
    let response: OffsetForLeaderEpochResponse =
        connection.request(VERSIONS, |_| question(asked)).await?;
    let mut answers = Answers::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let key = (topic.topic.to_string(), partition.partition);
            let end =
                EpochEndOffset { epoch: partition.leader_epoch, end_offset: partition.end_offset };
            answers.insert(key, (ErrorCode(partition.error_code), end));
        }
    }
    Ok((connection, answers))
}

fn question(asked: &Questions) -> OffsetForLeaderEpochRequest {
    let mut topics: BTreeMap<&str, Vec<OffsetForLeaderPartition>> = BTreeMap::new();
    for (at, asked) in asked {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(at.partition)
            .with_current_leader_epoch(asked.leader_epoch)
            .with_leader_epoch(asked.spot.epoch);
        topics.entry(&at.topic).or_default().push(partition);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        OffsetForLeaderTopic::default()
            .with_topic(StrBytes::from_string(name.to_owned()).into())
            .with_partitions(partitions)
    });
    OffsetForLeaderEpochRequest::default()
        .with_replica_id((-1).into())
        .with_topics(topics.collect())
}
