//! Offsets by time: ListOffsets to the partitions' leaders.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use curtail_proto::{
    backoff::Backoff,
    later::Later,
    metadata::Snapshot,
    position::{FetchVerdict, Reset, classify},
};
use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
    fetch::IsolationLevel,
};
use messages::{
    ListOffsetsRequest, ListOffsetsResponse,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::shared::Shared;
use crate::{Error, Result, TopicPartition, conn::Connection};

/// Later versions only add special timestamps that are not used here.
const VERSIONS: RangeInclusive<i16> = 1..=10;

/// Requests the first offset.
pub(super) const EARLIEST: i64 = -2;
/// Requests the end.
pub(super) const LATEST: i64 = -1;

/// An offset lookup for a partition.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The partition.
    pub(super) at: TopicPartition,
    /// The known leader epoch; -1 for none.
    pub(super) leader_epoch: i32,
    /// A timestamp in milliseconds, [`EARLIEST`] or [`LATEST`].
    pub(super) timestamp: i64,
}

/// A broker's response for a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The error of the partition.
    pub(super) error: ErrorCode,
    /// The offset; -1 if no record has the timestamp or a later one.
    pub(super) offset: i64,
    /// Timestamp of the record found; -1 for none.
    pub(super) timestamp: i64,
}

/// Returns the timestamp that stands for a reset.
pub(super) fn timestamp_of(reset: Reset) -> i64 {
    match reset {
        Reset::Earliest => EARLIEST,
        Reset::Latest => LATEST,
        Reset::Timestamp(ms) => ms,
    }
}

/// Sends the lookups to one broker. The result lacks the partitions that the response leaves out.
pub(super) async fn ask(
    connection: &mut Connection,
    questions: &[Question],
    isolation: IsolationLevel,
) -> Result<BTreeMap<TopicPartition, Found>> {
    let answer: ListOffsetsResponse =
        connection.request(VERSIONS, |version| request(version, questions, isolation)).await?;
    // Topic names are shared with the lookups instead of allocated again.
    let names: BTreeMap<&str, &Arc<str>> =
        questions.iter().map(|q| (&*q.at.topic, &q.at.topic)).collect();
    let mut found = BTreeMap::new();
    for topic in &answer.topics {
        let Some(&name) = names.get(topic.name.as_str()) else { continue };
        for partition in &topic.partitions {
            let at = TopicPartition { topic: name.clone(), partition: partition.partition_index };
            let result = Found {
                error: ErrorCode(partition.error_code),
                offset: partition.offset,
                timestamp: partition.timestamp,
            };
            found.insert(at, result);
        }
    }
    Ok(found)
}

fn request(version: i16, questions: &[Question], isolation: IsolationLevel) -> ListOffsetsRequest {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for question in questions {
        let mut partition = ListOffsetsPartition::default()
            .with_partition_index(question.at.partition)
            .with_timestamp(question.timestamp);
        if version >= 4 {
            partition = partition.with_current_leader_epoch(question.leader_epoch);
        }
        topics.entry(&question.at.topic).or_default().push(partition);
    }
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| {
            let name = StrBytes::from_string(name.to_owned());
            ListOffsetsTopic::default().with_name(name.into()).with_partitions(partitions)
        })
        .collect();
    let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(topics);
    match isolation {
        IsolationLevel::ReadCommitted if version >= 2 => request.with_isolation_level(1),
        _ => request,
    }
}

/// Looks up every offset, at all leaders in parallel. Retries within `default.api.timeout.ms` where that may help.
pub(super) async fn ask_all(
    shared: &Arc<Shared>,
    wanted: BTreeMap<TopicPartition, i64>,
) -> Result<BTreeMap<TopicPartition, Found>> {
    let limit = shared.config.common.default_api_timeout;
    let deadline = Instant::now().later(limit);
    let common = &shared.config.common;
    let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
    let mut open = wanted;
    let mut answered = BTreeMap::new();
    let mut failures = 0;
    let mut last = None;
    while !open.is_empty() {
        let pause = backoff.after(failures, shared.env.entropy.unit());
        if Instant::now().later(pause) >= deadline {
            return Err(Error::Timeout {
                what: "ListOffsets (default.api.timeout.ms)",
                limit,
                last,
            });
        }
        sleep_until(Instant::now().later(pause)).await;
        let round = ask_leaders(shared, &open, deadline).await?;
        for (at, outcome) in round {
            match outcome {
                Ok(found) if found.error.is_none() => {
                    open.remove(&at);
                    answered.insert(at, found);
                }
                Ok(found) => {
                    let error = partition_error(&at, found.error);
                    match classify(found.error) {
                        FetchVerdict::Report | FetchVerdict::OutOfRange => return Err(error),
                        _ => shared.metadata.request_refresh(Some(&at.topic)),
                    }
                    last = Some(Arc::new(error));
                }
                Err(error) => {
                    shared.metadata.request_refresh(Some(&at.topic));
                    last = Some(Arc::new(error));
                }
            }
        }
        failures += 1;
    }
    Ok(answered)
}

type Round = Vec<(TopicPartition, Result<Found>)>;

/// Sends one request to each leader.
async fn ask_leaders(
    shared: &Arc<Shared>,
    open: &BTreeMap<TopicPartition, i64>,
    deadline: Instant,
) -> Result<Round> {
    let mut by_leader: BTreeMap<i32, Vec<Question>> = BTreeMap::new();
    let mut round = Round::new();
    for (at, &timestamp) in open {
        let topic = shared.metadata.topic(&at.topic, deadline).await?;
        let leader = usize::try_from(at.partition).ok().and_then(|i| topic.leaders.get(i));
        let Some(leader) = leader else {
            return Err(Error::UnknownPartition {
                topic: at.topic.clone(),
                partition: at.partition,
                partitions: topic.leaders.len(),
            });
        };
        if leader.id < 0 {
            let error = partition_error(at, ErrorCode::LEADER_NOT_AVAILABLE);
            round.push((at.clone(), Err(error)));
            continue;
        }
        let question = Question { at: at.clone(), leader_epoch: leader.epoch, timestamp };
        by_leader.entry(leader.id).or_default().push(question);
    }
    let mut asking = JoinSet::new();
    for (leader, questions) in by_leader {
        let shared = shared.clone();
        asking.spawn(async move { ask_leader(&shared, leader, questions, deadline).await });
    }
    while let Some(part) = asking.join_next().await {
        // The result of a task that panicked is missing: its partitions stay open, and the deadline ends the wait.
        round.extend(part.unwrap_or_default());
    }
    Ok(round)
}

async fn ask_leader(
    shared: &Shared,
    leader: i32,
    questions: Vec<Question>,
    deadline: Instant,
) -> Round {
    let exchange = async {
        let mut connection = shared.connect(leader).await?;
        ask(&mut connection, &questions, shared.config.isolation_level).await
    };
    let exchange = timeout_at(deadline, shared.suspecting(leader, shared.patience(), exchange));
    let result = tokio::select! {
        biased;
        result = exchange => result.unwrap_or_else(|_| {
            let limit = shared.config.common.default_api_timeout;
            Err(Error::Timeout { what: "ListOffsets (default.api.timeout.ms)", limit, last: None })
        }),
        moved = until_moved(shared, leader, &questions) => {
            Err(partition_error(&moved, ErrorCode::NOT_LEADER_OR_FOLLOWER))
        }
    };
    match result {
        Ok(mut found) => questions
            .into_iter()
            .filter_map(|q| found.remove(&q.at).map(|f| (q.at, Ok(f))))
            .collect(),
        Err(error) => questions.into_iter().map(|q| (q.at, Err(error.clone()))).collect(),
    }
}

/// Returns a partition once metadata names another leader for it. A dead leader would delay the lookup by
/// `request.timeout.ms`.
async fn until_moved(shared: &Shared, leader: i32, questions: &[Question]) -> TopicPartition {
    let moved = |snapshot: &Snapshot| {
        let is_elsewhere = |at: &&TopicPartition| {
            let now = snapshot.leader(&at.topic, at.partition).id;
            now >= 0 && now != leader
        };
        questions.iter().map(|question| &question.at).find(is_elsewhere).cloned()
    };
    shared.metadata.find(moved).await
}

/// A broker's error for a partition.
pub(super) fn partition_error(at: &TopicPartition, code: ErrorCode) -> Error {
    Error::Broker { what: at.to_string().into(), code, message: Some(code.message().into()) }
}
