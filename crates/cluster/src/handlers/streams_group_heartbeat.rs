//! StreamsGroupHeartbeat, key 88, version 0 (KIP-1071).
//!
//! The response follows once the resulting change, or all earlier ones, are on all in-sync replicas. As in Kafka
//! the broker then creates the internal topics that the topology lacks, with the permissions of the member.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{
        StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse, Subtopology, TaskIds, Topology,
    },
};

use super::{Answer, Call, Item, MAX_STRING};
use crate::{
    acl::{Operation, Resource},
    controller::{TopicSpec, valid_name},
    coordinator::{
        Kind,
        consumer::LEFT_FOR_NOW,
        step::Refused,
        streams::{Beat, Heartbeat, Roles, Status, Tasks, summary},
    },
};

/// An unspecified value.
const NOT_TOLD: i32 = -1;
/// Subtopologies, topics and copartition groups of a topology.
const MOST_PARTS: usize = 4_000;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: StreamsGroupHeartbeatRequest = call.decode(body)?;
    let response = match beat(call, &request).await {
        Ok(beat) => respond(&request, beat),
        Err(Refused { code, reason }) => StreamsGroupHeartbeatResponse {
            error: code,
            error_message: Some(reason),
            ..StreamsGroupHeartbeatResponse::default()
        },
    };
    call.answer(&response, out)
}

async fn beat(call: &Call<'_>, request: &StreamsGroupHeartbeatRequest) -> Result<Beat, Refused> {
    let group = &request.group_id;
    call.require(Operation::Read, Resource::Group(group))?;
    call.injected(Item::Request)?;
    if let Some(topology) = &request.topology {
        check_topics(call, topology)?;
    }
    check_unsupported(request)?;
    check(request)?;
    let groups = call.groups(group)?;
    let heartbeat = heartbeat(call, request);
    let (mut beat, taken) =
        groups.run(call.broker, |groups, cx| groups.streams_beat(group, &heartbeat, cx))??;
    let timeout = call.broker.config.offsets_commit_timeout;
    groups.stored(call.broker, taken.as_ref(), timeout).await?;
    create_missing(call, &mut beat);
    Ok(beat)
}

/// Checks the names of a topology's topics, and the permission to describe them.
fn check_topics(call: &Call<'_>, topology: &Topology) -> Result<(), Refused> {
    let invalid = |reason| Err(Refused::new(ErrorCode::STREAMS_INVALID_TOPOLOGY, reason));
    let mut topics = BTreeSet::new();
    for of in &topology.subtopologies {
        let internal = of.repartition_source_topics.iter().chain(&of.state_changelog_topics);
        topics.extend(internal.map(|topic| topic.name.as_str()));
        topics
            .extend(of.source_topics.iter().chain(&of.repartition_sink_topics).map(String::as_str));
    }
    if let Some(topic) = topics.iter().find(|topic| Kind::of_topic(topic).is_some()) {
        return invalid(format!("a topology cannot use {topic}, a topic of the cluster itself"));
    }
    if let Some(topic) = topics.iter().find(|topic| !valid_name(topic)) {
        return invalid(format!("{topic:?} is not a valid name of a topic"));
    }
    for topic in topics {
        call.require(Operation::Describe, Resource::Topic(topic))?;
    }
    Ok(())
}

/// Refuses what the protocol defines and Apache Kafka 4.3 does not support.
fn check_unsupported(request: &StreamsGroupHeartbeatRequest) -> Result<(), Refused> {
    let subtopologies = request.topology.iter().flat_map(|topology| &topology.subtopologies);
    let unsupported = [
        (request.instance_id.is_some(), "static members of streams groups"),
        (request.task_offsets.is_some() || request.task_end_offsets.is_some(), "offsets of tasks"),
        (request.warmup_tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()), "warmup tasks"),
        (
            subtopologies.into_iter().any(|of| !of.source_topic_regex.is_empty()),
            "regular expressions for source topics",
        ),
    ];
    match unsupported.into_iter().find(|(used, _)| *used) {
        None => Ok(()),
        Some((_, what)) => {
            Err(Refused::new(ErrorCode::INVALID_REQUEST, format!("{what} are not supported yet")))
        }
    }
}

/// Checks the request independently of the group.
fn check(request: &StreamsGroupHeartbeatRequest) -> Result<(), Refused> {
    let invalid = |reason: &str| Err(Refused::new(ErrorCode::INVALID_REQUEST, reason));
    let empty = |value: &str| value.trim().is_empty();
    let strings = [&request.member_id, &request.group_id].into_iter().chain(&request.rack_id);
    if strings.clone().any(|value| empty(value)) {
        return invalid("the member id, the group id or the rack is empty");
    }
    if strings.chain(&request.process_id).any(|value| value.len() > MAX_STRING) {
        return invalid("an id or the rack is too long");
    }
    let owned = [&request.active_tasks, &request.standby_tasks, &request.warmup_tasks];
    match (request.member_epoch, &request.topology) {
        (0, None) => return invalid("a joining member must send its topology"),
        (0, Some(topology)) => {
            if request.rebalance_timeout_ms == NOT_TOLD {
                return invalid("a joining member must send its rebalance timeout");
            }
            if owned.iter().any(|tasks| tasks.as_ref().is_some_and(|tasks| !tasks.is_empty())) {
                return invalid("a joining member must not own tasks");
            }
            check_replay(topology)?;
            check_size(topology)?;
            check_changelogs(topology)?;
        }
        // A static member, which has been refused before, may leave for now.
        (..=LEFT_FOR_NOW, _) => return invalid("the member epoch is not valid"),
        (_, Some(_)) => return invalid("only a joining member sends its topology"),
        (_, None) => {}
    }
    match owned.iter().filter(|tasks| tasks.is_some()).count() {
        0 | 3 => Ok(()),
        _ => invalid("a member sends its tasks of all roles or of none"),
    }
}

/// Refuses a topology whose record Kafka's coordinator could not load.
fn check_replay(topology: &Topology) -> Result<(), Refused> {
    let mut ids = BTreeSet::new();
    let repeated = topology.subtopologies.iter().find(|of| !ids.insert(&of.subtopology_id));
    let reason = match (topology.epoch, repeated) {
        (..0, _) => "the topology's epoch is negative".to_owned(),
        (_, Some(of)) => format!("the subtopology {} is there twice", of.subtopology_id),
        (_, None) => return Ok(()),
    };
    Err(Refused::new(ErrorCode::UNKNOWN_SERVER_ERROR, reason))
}

/// Refuses topologies beyond any application's: configuring one takes time with the square of its parts, under the lock
/// of the partition's groups.
fn check_size(topology: &Topology) -> Result<(), Refused> {
    let parts_of = |of: &Subtopology| {
        let groups = of.copartition_groups.iter();
        let grouped = groups
            .map(|group| 1 + group.source_topics.len() + group.repartition_source_topics.len());
        let topics = of.source_topics.len()
            + of.repartition_source_topics.len()
            + of.repartition_sink_topics.len()
            + of.state_changelog_topics.len();
        1 + topics + grouped.sum::<usize>()
    };
    if topology.subtopologies.iter().map(parts_of).sum::<usize>() <= MOST_PARTS {
        return Ok(());
    }
    let reason = format!(
        "the topology has more than {MOST_PARTS} subtopologies, topics and copartition groups"
    );
    Err(Refused::new(ErrorCode::STREAMS_INVALID_TOPOLOGY, reason))
}

fn check_changelogs(topology: &Topology) -> Result<(), Refused> {
    let mut changelogs =
        topology.subtopologies.iter().flat_map(|subtopology| &subtopology.state_changelog_topics);
    match changelogs.find(|topic| topic.partitions != 0) {
        None => Ok(()),
        Some(topic) => {
            let reason = format!(
                "the changelog topic {} has {} partitions; the coordinator decides their number",
                topic.name, topic.partitions
            );
            Err(Refused::new(ErrorCode::STREAMS_INVALID_TOPOLOGY, reason))
        }
    }
}

fn heartbeat(call: &Call<'_>, request: &StreamsGroupHeartbeatRequest) -> Heartbeat {
    let tags = request
        .client_tags
        .as_ref()
        .map(|tags| tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect());
    let roles = |active: &Vec<TaskIds>| Roles {
        active: tasks(active),
        standby: tasks(request.standby_tasks.as_deref().unwrap_or_default()),
        warmup: tasks(request.warmup_tasks.as_deref().unwrap_or_default()),
    };
    Heartbeat {
        member_id: request.member_id.clone(),
        epoch: request.member_epoch,
        endpoint_epoch: request.endpoint_information_epoch,
        rack_id: request.rack_id.clone(),
        client_id: call.header.client_id.unwrap_or_default().to_owned(),
        client_host: format!("/{}", call.peer),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|ms| *ms != NOT_TOLD),
        topology: request.topology.clone(),
        owned: request.active_tasks.as_ref().map(roles),
        process_id: request.process_id.clone(),
        user_endpoint: request.user_endpoint.clone(),
        client_tags: tags,
        shutdown: request.shutdown_application,
    }
}

fn tasks(of: &[TaskIds]) -> Tasks {
    let one =
        |task: &TaskIds| (task.subtopology_id.clone(), task.partitions.iter().copied().collect());
    of.iter().map(one).collect()
}

/// Returns tasks as the messages have them.
pub(super) fn task_ids(of: &Tasks) -> Vec<TaskIds> {
    let one = |(id, partitions): (&String, &BTreeSet<i32>)| TaskIds {
        subtopology_id: id.clone(),
        partitions: partitions.iter().copied().collect(),
    };
    of.iter().map(one).collect()
}

/// Creates the internal topics that are missing, and adds the outcome to the status. The members' next heartbeats
/// find the topics.
fn create_missing(call: &Call<'_>, beat: &mut Beat) {
    let missing = std::mem::take(&mut beat.missing);
    if missing.is_empty() {
        return;
    }
    let may_create_any = call.may(Operation::Create, Resource::Cluster);
    let may = |topic: &&TopicSpec| call.may(Operation::Create, Resource::Topic(&topic.name));
    let refused: Vec<&str> = match may_create_any {
        true => Vec::new(),
        false => missing.iter().filter(|topic| !may(topic)).map(|topic| &*topic.name).collect(),
    };
    let detail = if refused.is_empty() {
        create(call, &missing)
    } else {
        Some(format!("; no permission to create {}.", refused.join(", ")))
    };
    let status = beat.status.iter_mut().find(|status| Status::MissingInternalTopics.is(status));
    if let (Some(status), Some(detail)) = (status, detail) {
        status.detail += &detail;
    }
}

/// Creates topics. Returns what has failed.
fn create(call: &Call<'_>, topics: &[TopicSpec]) -> Option<String> {
    let created = topics.iter().map(|topic| (topic, call.broker.controller.create_topic(topic)));
    let failed = created.filter_map(|(topic, created)| match created {
        // Another member's heartbeat may have created it.
        Ok(_) | Err((ErrorCode::TOPIC_ALREADY_EXISTS, _)) => None,
        Err((code, reason)) => {
            let (topic, code) = (&topic.name, code.name());
            tracing::warn!(topic, code, reason, "internal topic of a streams group not created");
            Some(format!("{topic} ({reason})"))
        }
    });
    let failed: Vec<String> = failed.collect();
    (!failed.is_empty()).then(|| format!("; creation failed: {}.", summary(&failed)))
}

fn respond(request: &StreamsGroupHeartbeatRequest, beat: Beat) -> StreamsGroupHeartbeatResponse {
    let interval = beat.heartbeat_interval.unwrap_or_default().as_millis();
    let response = StreamsGroupHeartbeatResponse {
        member_id: request.member_id.clone(),
        member_epoch: beat.epoch,
        heartbeat_interval_ms: i32::try_from(interval).unwrap_or(i32::MAX),
        status: Some(beat.status),
        endpoint_information_epoch: beat.endpoint_epoch,
        partitions_by_user_endpoint: beat.endpoints,
        ..StreamsGroupHeartbeatResponse::default()
    };
    let Some(assigned) = beat.assignment else { return response };
    StreamsGroupHeartbeatResponse {
        active_tasks: Some(task_ids(&assigned.active)),
        standby_tasks: Some(task_ids(&assigned.standby)),
        warmup_tasks: Some(task_ids(&assigned.warmup)),
        ..response
    }
}
