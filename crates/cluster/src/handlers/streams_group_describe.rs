//! StreamsGroupDescribe, key 89, version 0: streams groups (KIP-1071). For other groups the response is
//! GROUP_ID_NOT_FOUND.
//!
//! All described state is on all in-sync replicas. A group is described only to clients that may describe all
//! topics of its topology.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{
        DescribedStreamsGroup, DescribedStreamsMember, DescribedSubtopology, DescribedTopology,
        KeyValue, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, Subtopology,
        TasksByRole, TopicInfo, Topology,
    },
};

use super::{
    Answer, Call,
    describe_groups::{ALL_GROUP_OPERATIONS, NOT_ASKED},
    streams_group_heartbeat::task_ids,
};
use crate::{
    acl::{Operation, Resource},
    coordinator::{
        step::Refused,
        streams::{Configured, ConfiguredSubtopology, Member, Roles, StreamsGroup},
    },
};

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: StreamsGroupDescribeRequest = call.decode(body)?;
    call.concerns(request.group_ids.len());
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for id in &request.group_ids {
        let described = describe(call, id).await;
        groups.push(match described {
            Ok(group) => {
                let allowed = request
                    .include_authorized_operations
                    .then(|| call.operations(ALL_GROUP_OPERATIONS, Resource::Group(id)));
                let authorized_operations = allowed.unwrap_or(NOT_ASKED);
                DescribedStreamsGroup { group_id: id.clone(), authorized_operations, ..group }
            }
            Err(Refused { code, reason }) => DescribedStreamsGroup {
                error: code,
                error_message: Some(reason),
                group_id: id.clone(),
                ..DescribedStreamsGroup::default()
            },
        });
    }
    call.answer(&StreamsGroupDescribeResponse { throttle_time_ms: 0, groups }, out)
}

async fn describe(call: &Call<'_>, id: &str) -> Result<DescribedStreamsGroup, Refused> {
    call.require(Operation::Describe, Resource::Group(id))?;
    let groups = call.members_groups(id)?;
    let described = groups.run(call.broker, |groups, _| {
        groups.streams(id).map(described).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)
    })??;
    groups.settled(call.broker, call.broker.config.offsets_commit_timeout).await?;
    let topology = described.topology.as_ref().and_then(|topology| topology.subtopologies.as_ref());
    for topic in topology.into_iter().flatten().flat_map(topics) {
        if call.require(Operation::Describe, Resource::Topic(topic)).is_err() {
            let reason = "the group uses topics that the client may not describe";
            return Err(Refused::new(ErrorCode::TOPIC_AUTHORIZATION_FAILED, reason));
        }
    }
    Ok(described)
}

fn topics(of: &DescribedSubtopology) -> impl Iterator<Item = &str> {
    let internal = of.repartition_source_topics.iter().chain(&of.state_changelog_topics);
    let named = of.source_topics.iter().chain(&of.repartition_sink_topics);
    named.chain(internal.map(|topic| &topic.name)).map(String::as_str)
}

fn described(group: &StreamsGroup) -> DescribedStreamsGroup {
    let members =
        group.members().map(|(id, member)| described_member(id, member, &group.target(id)));
    let epoch = group.topology().map_or(0, |topology| topology.epoch);
    let subtopologies = match (group.configured(), group.topology()) {
        (Some(configured), _) if configured.is_ready() => of_configured(configured),
        (_, topology) => topology.map(of_topology).unwrap_or_default(),
    };
    DescribedStreamsGroup {
        group_state: group.state().name().to_owned(),
        group_epoch: group.epoch(),
        assignment_epoch: group.assignment_epoch(),
        topology: Some(DescribedTopology { epoch, subtopologies: Some(subtopologies) }),
        members: members.collect(),
        ..DescribedStreamsGroup::default()
    }
}

/// Returns the subtopologies with their topics' numbers of partitions.
fn of_configured(configured: &Configured) -> Vec<DescribedSubtopology> {
    let one = |(id, of): (&String, &ConfiguredSubtopology)| DescribedSubtopology {
        subtopology_id: id.clone(),
        source_topics: of.source_topics.iter().cloned().collect(),
        repartition_sink_topics: of.repartition_sinks.iter().cloned().collect(),
        state_changelog_topics: of.changelogs.values().map(sorted).collect(),
        repartition_source_topics: of.repartition_sources.values().map(sorted).collect(),
    };
    configured.subtopologies.iter().map(one).collect()
}

/// Returns the subtopologies as the members describe them.
fn of_topology(topology: &Topology) -> Vec<DescribedSubtopology> {
    let by_name = |topics: &[TopicInfo]| -> Vec<TopicInfo> {
        let topics = topics.iter().map(|topic| (topic.name.clone(), topic.clone()));
        topics.collect::<BTreeMap<_, _>>().into_values().collect()
    };
    let names = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    let one = |of: &Subtopology| DescribedSubtopology {
        subtopology_id: of.subtopology_id.clone(),
        source_topics: names(&of.source_topics),
        repartition_sink_topics: names(&of.repartition_sink_topics),
        state_changelog_topics: by_name(&of.state_changelog_topics),
        repartition_source_topics: by_name(&of.repartition_source_topics),
    };
    let mut subtopologies: Vec<_> = topology.subtopologies.iter().map(one).collect();
    subtopologies.sort_unstable_by(|a, b| a.subtopology_id.cmp(&b.subtopology_id));
    subtopologies
}

fn sorted(topic: &TopicInfo) -> TopicInfo {
    let mut topic = topic.clone();
    topic.topic_configs.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    topic
}

fn described_member(id: &str, member: &Member, target: &Roles) -> DescribedStreamsMember {
    let profile = &member.profile;
    let tags = profile.client_tags.iter();
    DescribedStreamsMember {
        member_id: id.to_owned(),
        member_epoch: member.current.epoch,
        instance_id: profile.instance_id.clone(),
        rack_id: profile.rack_id.clone(),
        client_id: profile.client_id.clone(),
        client_host: profile.client_host.clone(),
        topology_epoch: profile.topology_epoch,
        process_id: profile.process_id.clone(),
        user_endpoint: profile.user_endpoint.clone(),
        client_tags: tags
            .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() })
            .collect(),
        assignment: by_role(&member.current.assigned.roles()),
        target_assignment: by_role(target),
        ..DescribedStreamsMember::default()
    }
}

fn by_role(roles: &Roles) -> TasksByRole {
    TasksByRole {
        active_tasks: task_ids(&roles.active),
        standby_tasks: task_ids(&roles.standby),
        warmup_tasks: task_ids(&roles.warmup),
    }
}
