//! Lookups of committed offsets: OffsetFetch to the group's coordinator.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use curtail_proto::{
    backoff::Backoff,
    later::Later,
    membership::Identity,
    metadata::Node,
    plant::{Plant, planted},
    position::{Policy, Version},
};
use curtail_wire::{ErrorCode, cold::messages};
use messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use tokio::time::{Instant, sleep};

use super::{Group, requests::text};
use crate::{
    Error, Result, TopicPartition,
    config::GroupProtocol,
    conn::{Connection, Idle},
    consumer::shared::Shared,
    transaction::OffsetAndMetadata,
};

/// Later versions name several groups.
const VERSIONS: RangeInclusive<i16> = 1..=7;
/// Version for members of the consumer protocol (KIP-848); version 10 names topics by id.
const WITH_EPOCHS: RangeInclusive<i16> = 9..=9;
/// First version in which the coordinator withholds offsets that an open transaction may replace (KIP-447).
const STABLE: i16 = 7;

/// Committed offsets, `None` if there is none. A missing partition must be requested again.
type Found = BTreeMap<TopicPartition, Option<OffsetAndMetadata>>;

/// Moves partitions to their committed offsets, or to where `auto.offset.reset` says, unless a seek comes first.
pub(in crate::consumer) fn place(
    shared: &Arc<Shared>,
    group: &Arc<Group>,
    wanted: Vec<(TopicPartition, Version)>,
) {
    if wanted.is_empty() {
        return;
    }
    let (keeper, group) = (shared.clone(), group.clone());
    shared.watch(async move { place_all(&keeper, &group, wanted).await });
}

async fn place_all(
    shared: &Arc<Shared>,
    group: &Group,
    mut wanted: Vec<(TopicPartition, Version)>,
) {
    let mut failures = 0;
    loop {
        wanted.retain(|(at, version)| shared.awaits(at, *version));
        if wanted.is_empty() {
            return;
        }
        let partitions: Vec<TopicPartition> = wanted.iter().map(|(at, _)| at.clone()).collect();
        let pause = match ask(shared, group, &partitions).await {
            Ok(found) => {
                let (known, open): (Vec<_>, Vec<_>) =
                    wanted.into_iter().partition(|(at, _)| found.contains_key(at));
                for (at, version) in known {
                    shared.place(&at, version, found.get(&at).and_then(Option::as_ref));
                }
                wanted = open;
                // An open transaction will end soon.
                backoff(shared).soon().after(1, shared.env.entropy.unit())
            }
            Err(error) => {
                failures += 1;
                if !is_passing(&error) {
                    shared.report(error);
                }
                shared.backoff(failures)
            }
        };
        shared.settled.notify_waiters();
        if !wanted.is_empty() {
            sleep(pause).await;
        }
    }
}

/// Returns committed offsets of partitions. Retries until all are known.
pub(super) async fn look_up(
    shared: &Arc<Shared>,
    group: &Group,
    partitions: &[TopicPartition],
) -> Result<Found> {
    let limit = shared.config.common.default_api_timeout;
    let deadline = Instant::now().later(limit);
    let (mut failures, mut last, mut all) = (0, None, Found::new());
    loop {
        let open: Vec<TopicPartition> =
            partitions.iter().filter(|at| !all.contains_key(*at)).cloned().collect();
        if open.is_empty() {
            return Ok(all);
        }
        match tokio::time::timeout_at(deadline, ask(shared, group, &open)).await {
            Ok(Ok(found)) => all.extend(found),
            Ok(Err(error)) if is_passing(&error) => last = Some(Arc::new(error)),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
        failures += 1;
        let pause = shared.backoff(failures);
        let complete = partitions.iter().all(|at| all.contains_key(at));
        if !complete && Instant::now().later(pause) >= deadline {
            let what = "OffsetFetch (default.api.timeout.ms)";
            return Err(Error::Timeout { what, limit, last });
        }
        if !complete {
            sleep(pause).await;
        }
    }
}

fn backoff(shared: &Shared) -> Backoff {
    let common = &shared.config.common;
    Backoff { initial: common.retry_backoff, max: common.retry_backoff_max }
}

fn is_passing(error: &Error) -> bool {
    match error {
        // The next heartbeat brings the member's new epoch, or makes it rejoin.
        Error::Broker { code, .. }
            if matches!(*code, ErrorCode::STALE_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID) =>
        {
            true
        }
        Error::Broker { code, .. } => code.is_retriable(),
        Error::UnsupportedVersion(_) => false,
        _ => true,
    }
}

/// Sends one request.
async fn ask(shared: &Shared, group: &Group, partitions: &[TopicPartition]) -> Result<Found> {
    ask_coordinator(shared, group, &group.idle, async |connection| {
        request(connection, group, partitions).await
    })
    .await
}

/// Sends one request to the coordinator, over the `idle` connection if it leads there. Leaves a reusable connection in
/// `idle`.
pub(super) async fn ask_coordinator<T>(
    shared: &Shared,
    group: &Group,
    idle: &Idle<i32>,
    request: impl AsyncFnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    let node = group.coordinator(shared).await?;
    let reusable = idle.take(&node.id);
    let reused = reusable.is_some();
    let exchange = async {
        let mut connection = match reusable {
            Some(open) => open,
            None => {
                let common = &shared.config.common;
                Connection::open(&shared.env, common, &node.host, node.port).await?
            }
        };
        let result = request(&mut connection).await;
        Ok((result, connection))
    };
    let answered = tokio::select! {
        biased;
        answered = exchange => answered,
        error = group.moved_from(shared, &node) => {
            lose(group, &node);
            return Err(error);
        }
    };
    let result = answered.and_then(|(result, connection)| {
        if !matches!(result, Err(Error::Connection { .. } | Error::Protocol { .. })) {
            idle.put_alone(node.id, connection);
        }
        result
    });
    if let Err(error) = &result
        && says_elsewhere(error, reused)
    {
        lose(group, &node);
    }
    result
}

/// Whether another broker may be the coordinator. A reused connection may have failed only because it was idle too
/// long.
fn says_elsewhere(error: &Error, reused: bool) -> bool {
    match error {
        Error::Broker { code, .. } => {
            matches!(*code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE)
        }
        Error::Connection { .. } => !reused,
        _ => false,
    }
}

fn lose(group: &Group, node: &Node) {
    group.change(|machine, _| machine.coordinator_lost(node));
}

async fn request(
    connection: &mut Connection,
    group: &Group,
    partitions: &[TopicPartition],
) -> Result<Found> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    let member = group.identity().filter(|_| group.protocol == GroupProtocol::Consumer);
    let (code, answered) = match member {
        Some(identity) => as_member(connection, group, &identity, topics).await?,
        None => as_anybody(connection, group, topics).await?,
    };
    let refused = |code| group.refused("OffsetFetch", code);
    if code.is_error() {
        return Err(refused(code));
    }
    let mut found = Found::new();
    for (at, code, committed) in answered {
        match code {
            ErrorCode::NONE => {}
            ErrorCode::UNSTABLE_OFFSET_COMMIT => continue,
            code => return Err(refused(code)),
        }
        found.insert(at, Some(committed).filter(|committed| committed.offset >= 0));
    }
    Ok(found)
}

/// The response for one partition.
type Answered = (TopicPartition, ErrorCode, OffsetAndMetadata);

/// Extracts the partitions from the two response types, which have the same fields.
macro_rules! answered {
    ($topics:expr) => {{
        let topics = $topics.into_iter().flat_map(|topic| {
            let name: Arc<str> = topic.name.as_str().into();
            topic.partitions.into_iter().map(move |partition| {
                let epoch = partition.committed_leader_epoch;
                let committed = OffsetAndMetadata {
                    offset: partition.committed_offset,
                    leader_epoch: Some(epoch).filter(|epoch| *epoch >= 0),
                    metadata: partition.metadata.map(|text| text.to_string()).unwrap_or_default(),
                };
                let at =
                    TopicPartition { topic: name.clone(), partition: partition.partition_index };
                (at, ErrorCode(partition.error_code), committed)
            })
        });
        topics.collect::<Vec<Answered>>()
    }};
}

async fn as_anybody(
    connection: &mut Connection,
    group: &Group,
    topics: BTreeMap<&str, Vec<i32>>,
) -> Result<(ErrorCode, Vec<Answered>)> {
    let topics = topics.into_iter().map(|(name, indexes)| {
        OffsetFetchRequestTopic::default()
            .with_name(text(name).into())
            .with_partition_indexes(indexes)
    });
    let answer: messages::OffsetFetchResponse = connection
        .request(VERSIONS, |version| {
            messages::OffsetFetchRequest::default()
                .with_group_id(text(&group.id).into())
                .with_topics(Some(topics.collect()))
                .with_require_stable(version >= STABLE && !planted(Plant::UnstableOffsets))
        })
        .await?;
    Ok((ErrorCode(answer.error_code), answered!(answer.topics)))
}

async fn as_member(
    connection: &mut Connection,
    group: &Group,
    identity: &Identity,
    topics: BTreeMap<&str, Vec<i32>>,
) -> Result<(ErrorCode, Vec<Answered>)> {
    let topics = topics.into_iter().map(|(name, indexes)| {
        OffsetFetchRequestTopics::default()
            .with_name(text(name).into())
            .with_partition_indexes(indexes)
    });
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(text(&group.id).into())
        .with_member_id(Some(text(&identity.member)))
        .with_member_epoch(identity.generation)
        .with_topics(Some(topics.collect()));
    let answer: messages::OffsetFetchResponse = connection
        .request(WITH_EPOCHS, |_| {
            messages::OffsetFetchRequest::default()
                .with_groups(vec![asked])
                .with_require_stable(true)
        })
        .await?;
    let Some(answer) = answer.groups.into_iter().next() else {
        return Err(connection.protocol_error("the OffsetFetch response omits the group"));
    };
    Ok((ErrorCode(answer.error_code), answered!(answer.topics)))
}

impl Shared {
    /// Whether the position is still the one of `version`.
    fn awaits(&self, at: &TopicPartition, version: Version) -> bool {
        let state = self.state.lock();
        state.partitions.get(at).is_some_and(|assigned| assigned.position.version() == version)
    }

    /// Sets an awaited position: the committed offset, or the policy's.
    fn place(&self, at: &TopicPartition, version: Version, committed: Option<&OffsetAndMetadata>) {
        let policy = self.policy();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(assigned) = state.partitions.get_mut(at) else { return };
        if assigned.position.version() != version {
            return;
        }
        assigned.committed = committed.map(|committed| committed.offset);
        match (committed.map(OffsetAndMetadata::spot), policy) {
            (Some(spot), _) => assigned.position.seek_to(spot, &mut state.versions),
            (None, Policy::None) => state.unplaced(at),
            (None, policy) => assigned.position.begin(policy, &mut state.versions),
        }
        state.touch(at);
    }
}
