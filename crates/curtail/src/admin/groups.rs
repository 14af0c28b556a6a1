//! Consumer groups of both protocols, and their committed offsets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_wire::{
    ErrorCode,
    cold::messages,
    consumer_protocol::{Assignment, Subscription},
};
use messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest,
    DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse,
    consumer_group_describe_response, describe_groups_response,
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
    offset_fetch_request::OffsetFetchRequestGroup,
    offset_fetch_response::OffsetFetchResponseGroup,
};

use super::{
    Admin, BrokerDescription, Call, Each, broker_error, rounds::leader_in, text, topics_of,
};
use crate::{
    Error, Result, TopicPartition, coordinator::Coordinators, transaction::OffsetAndMetadata,
};

/// Group type: the protocol of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupKind {
    /// The members compute the assignment (classic protocol).
    Classic,
    /// The coordinator computes the assignment (KIP-848).
    Consumer,
    /// Another type, by Kafka's name, such as `share`; empty if the broker does not report it.
    Other(String),
}

impl GroupKind {
    fn from_name(name: &str) -> Self {
        match name {
            "classic" | "Classic" => Self::Classic,
            "consumer" | "Consumer" => Self::Consumer,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Kafka's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Classic => "classic",
            Self::Consumer => "consumer",
            Self::Other(name) => name,
        }
    }
}

/// State of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupState {
    /// The group has no members.
    Empty,
    /// Every member has its partitions.
    Stable,
    /// The coordinator waits for members to join (classic).
    PreparingRebalance,
    /// The coordinator waits for the leader's assignment (classic).
    CompletingRebalance,
    /// The coordinator computes the assignment (consumer).
    Assigning,
    /// Members are moving to their target assignment (consumer).
    Reconciling,
    /// The group no longer exists.
    Dead,
    /// Another state, by Kafka's name; empty if the broker does not report it.
    Other(String),
}

impl GroupState {
    fn from_name(name: &str) -> Self {
        match name {
            "Empty" => Self::Empty,
            "Stable" => Self::Stable,
            "PreparingRebalance" => Self::PreparingRebalance,
            "CompletingRebalance" => Self::CompletingRebalance,
            "Assigning" => Self::Assigning,
            "Reconciling" => Self::Reconciling,
            "Dead" => Self::Dead,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Kafka's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Empty => "Empty",
            Self::Stable => "Stable",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Dead => "Dead",
            Self::Other(name) => name,
        }
    }
}

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupListing {
    /// `group.id`.
    pub group_id: String,
    /// Protocol type: `consumer` for consumers, empty for a group that only has offsets.
    pub protocol_type: String,
    /// State.
    pub state: GroupState,
    /// Group type.
    pub kind: GroupKind,
}

/// A group described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// `group.id`.
    pub group_id: String,
    /// Group type.
    pub kind: GroupKind,
    /// State.
    pub state: GroupState,
    /// Assignor: the strategy that the members agreed on, or the coordinator's assignor. Empty for none.
    pub assignor: String,
    /// The broker that coordinates the group.
    pub coordinator: BrokerDescription,
    /// Epoch of the group (consumer protocol).
    pub epoch: Option<i32>,
    /// Epoch of the target assignment (consumer protocol).
    pub assignment_epoch: Option<i32>,
    /// Members, in the coordinator's order.
    pub members: Vec<MemberDescription>,
}

/// A member of a group described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// Id from the coordinator or the member.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// Client address.
    pub host: String,
    /// `client.rack`, if the protocol reports it.
    pub rack: Option<String>,
    /// Epoch of the member (consumer protocol).
    pub epoch: Option<i32>,
    /// Subscribed topics.
    pub topics: Vec<String>,
    /// Regular expression for subscribed topics (consumer protocol).
    pub topic_regex: Option<String>,
    /// Assigned partitions.
    pub assignment: Vec<TopicPartition>,
    /// Partitions of the target assignment (consumer protocol).
    pub target: Option<Vec<TopicPartition>>,
}

/// Committed offsets of a group, by partition.
pub type GroupOffsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

impl Admin {
    /// Returns the groups that each broker coordinates, with a result for each broker.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_groups(&self) -> Call<'_, Each<i32, Vec<GroupListing>>> {
        Box::pin(async move {
            let ids = self.broker_ids("listing groups (default.api.timeout.ms)").await?;
            self.rounds("listing groups (default.api.timeout.ms)", ids, |open, _| {
                self.at_brokers(open, |admin, broker| async move {
                    let answer: ListGroupsResponse =
                        admin.ask(&broker, 0..=5, |_| ListGroupsRequest::default()).await?;
                    ErrorCode(answer.error_code).ok().map_err(|code| {
                        broker_error(&format!("broker {}", broker.id), code, None)
                    })?;
                    let groups = answer.groups.into_iter().map(|group| GroupListing {
                        group_id: group.group_id.to_string(),
                        protocol_type: group.protocol_type.to_string(),
                        state: GroupState::from_name(&group.group_state),
                        kind: GroupKind::from_name(&group.group_type),
                    });
                    Ok(groups.collect())
                })
            })
            .await
        })
    }

    /// Returns groups of either protocol with their members, with a result for each group.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// for (group, described) in admin.describe_groups(&["billing"]).await? {
    ///     println!("{group} is {}", described?.state.name());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_groups<'a>(
        &'a self,
        groups: &'a [&'a str],
    ) -> Call<'a, Each<String, GroupDescription>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("describing groups (default.api.timeout.ms)", groups, move |open, _| {
            self.at_coordinators(Coordinators::OfGroups, open, describe)
        })
    }

    /// Deletes groups without members and all their committed offsets, with a result for each group.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_groups<'a>(&'a self, groups: &'a [&'a str]) -> Call<'a, Each<String, ()>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("deleting groups (default.api.timeout.ms)", groups, move |open, _| {
            self.at_coordinators(Coordinators::OfGroups, open, |admin, broker, part| async move {
                let names = part.iter().map(|id| text(id).into()).collect();
                let request = DeleteGroupsRequest::default().with_groups_names(names);
                let answer: DeleteGroupsResponse = admin.ask(&broker, 0..=2, |_| request).await?;
                let results = answer.results.into_iter().map(|group| {
                    let id = group.group_id.to_string();
                    let result = group_result(&id, group.error_code);
                    (id, result)
                });
                Ok(results.collect())
            })
        })
    }

    /// Returns all committed offsets of groups, with a result for each group. A group that does not exist has none.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`; brokers before Kafka 3.0 do not support the request.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_group_offsets<'a>(
        &'a self,
        groups: &'a [&'a str],
    ) -> Call<'a, Each<String, GroupOffsets>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("listing a group's offsets (default.api.timeout.ms)", groups, move |open, _| {
            self.at_coordinators(Coordinators::OfGroups, open, |admin, broker, part| async move {
                let all = |id: &String| {
                    OffsetFetchRequestGroup::default()
                        .with_group_id(text(id).into())
                        .with_topics(None)
                };
                let request =
                    OffsetFetchRequest::default().with_groups(part.iter().map(all).collect());
                let answer: OffsetFetchResponse = admin.ask(&broker, 8..=9, |_| request).await?;
                let results = answer.groups.into_iter().map(|group| {
                    let id = group.group_id.to_string();
                    let offsets = offsets_of(&id, group);
                    (id, offsets)
                });
                Ok(results.collect())
            })
        })
    }

    /// Commits offsets for a group without members, with a result for each partition. Creates the group if it does
    /// not exist.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn alter_group_offsets<'a>(
        &'a self,
        group: &'a str,
        offsets: &'a [(TopicPartition, OffsetAndMetadata)],
    ) -> Call<'a, Each<TopicPartition, ()>> {
        let partitions: Vec<TopicPartition> = offsets.iter().map(|(at, _)| at.clone()).collect();
        let offsets: Arc<BTreeMap<&TopicPartition, &OffsetAndMetadata>> =
            Arc::new(offsets.iter().map(|(at, offset)| (at, offset)).collect());
        let what = "changing a group's offsets (default.api.timeout.ms)";
        self.rounds(what, partitions, move |open, _| self.commit_once(group, offsets.clone(), open))
    }

    async fn commit_once(
        &self,
        group: &str,
        offsets: Arc<BTreeMap<&TopicPartition, &OffsetAndMetadata>>,
        open: BTreeSet<TopicPartition>,
    ) -> Result<Each<TopicPartition, ()>> {
        let broker = self.group_coordinator(group).await?;
        let partitions: Vec<TopicPartition> = open.into_iter().collect();
        let answer: OffsetCommitResponse = self
            .ask(&broker, 2..=9, |version| {
                let topics = topics_of(&partitions, |index, at| {
                    let offset = offsets[at];
                    let partition = OffsetCommitRequestPartition::default()
                        .with_partition_index(index)
                        .with_committed_offset(offset.offset)
                        .with_committed_metadata(Some(text(&offset.metadata)));
                    match version {
                        ..6 => partition,
                        _ => {
                            partition.with_committed_leader_epoch(offset.leader_epoch.unwrap_or(-1))
                        }
                    }
                });
                let topics = topics.into_iter().map(|(name, partitions)| {
                    OffsetCommitRequestTopic::default().with_name(name).with_partitions(partitions)
                });
                // No member id and no generation.
                OffsetCommitRequest::default()
                    .with_group_id(text(group).into())
                    .with_generation_id_or_member_epoch(-1)
                    .with_topics(topics.collect())
            })
            .await?;
        let mut results = Each::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = offset_result(group, &at, partition.error_code);
                results.push((at, result));
            }
        }
        self.name_unknown(results).await
    }

    /// Deletes committed offsets of a group, with a result for each partition. Refuses topics to which members of the
    /// group subscribe.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the group does not exist.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_group_offsets<'a>(
        &'a self,
        group: &'a str,
        partitions: &'a [TopicPartition],
    ) -> Call<'a, Each<TopicPartition, ()>> {
        let what = "deleting a group's offsets (default.api.timeout.ms)";
        self.rounds(what, partitions, move |open, _| self.delete_offsets_once(group, open))
    }

    async fn delete_offsets_once(
        &self,
        group: &str,
        open: BTreeSet<TopicPartition>,
    ) -> Result<Each<TopicPartition, ()>> {
        let broker = self.group_coordinator(group).await?;
        let partitions: Vec<TopicPartition> = open.into_iter().collect();
        let topics = topics_of(&partitions, |index, _| {
            OffsetDeleteRequestPartition::default().with_partition_index(index)
        });
        let topics = topics.into_iter().map(|(name, partitions)| {
            OffsetDeleteRequestTopic::default().with_name(name).with_partitions(partitions)
        });
        let request = OffsetDeleteRequest::default()
            .with_group_id(text(group).into())
            .with_topics(topics.collect());
        let answer: OffsetDeleteResponse = self.ask(&broker, 0..=0, |_| request).await?;
        group_result(group, answer.error_code)?;
        let mut results = Each::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = offset_result(group, &at, partition.error_code);
                results.push((at, result));
            }
        }
        self.name_unknown(results).await
    }

    /// Replaces the coordinator's error for partitions that do not exist by one that says so. That error is final, as
    /// in Java. A partition that exists keeps the retriable error: its creation has not reached the coordinator yet.
    async fn name_unknown(
        &self,
        mut results: Each<TopicPartition, ()>,
    ) -> Result<Each<TopicPartition, ()>> {
        let unknown = results.iter().filter(|(_, result)| is_unknown(result));
        let names: BTreeSet<&str> = unknown.map(|(at, _)| &*at.topic).collect();
        let names: Vec<&str> = names.into_iter().collect();
        if names.is_empty() {
            return Ok(results);
        }
        let metadata = self.metadata(Some(&names)).await?;
        for (at, result) in results.iter_mut().filter(|(_, result)| is_unknown(result)) {
            if let Err(error @ (Error::UnknownTopic(_) | Error::UnknownPartition { .. })) =
                leader_in(&metadata, at)
            {
                *result = Err(error);
            }
        }
        Ok(results)
    }

    pub(super) async fn group_coordinator(&self, group: &str) -> Result<BrokerDescription> {
        let found = self.coordinators(Coordinators::OfGroups, &[group]).await?;
        found
            .into_iter()
            .next()
            .unwrap_or(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE))
            .map_err(|code| broker_error(&Coordinators::OfGroups.name(group), code, None))
    }
}

/// Describes groups by the consumer protocol, and then those of another type by the classic protocol.
async fn describe(
    admin: Admin,
    broker: BrokerDescription,
    part: Vec<String>,
) -> Result<Each<String, GroupDescription>> {
    let ids = part.iter().map(|id| text(id).into()).collect();
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(ids);
    let asked: Result<ConsumerGroupDescribeResponse> = admin.ask(&broker, 0..=1, |_| request).await;
    let mut results = Each::new();
    let classic: Vec<String> = match asked {
        // A broker before Kafka 4.0, or one with the protocol disabled.
        Err(Error::UnsupportedVersion(_)) => part,
        Err(error) => return Err(error),
        Ok(answer) => {
            let mut others = Vec::new();
            for group in answer.groups {
                let id = group.group_id.to_string();
                match ErrorCode(group.error_code) {
                    ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION => {
                        others.push(id);
                    }
                    code => {
                        let error = |code| group_error(&id, code, group.error_message.as_deref());
                        let result = code.ok().map_err(error);
                        let result = result.map(|()| of_consumers(&group, &broker));
                        results.push((id, result));
                    }
                }
            }
            others
        }
    };
    if classic.is_empty() {
        return Ok(results);
    }
    let ids = classic.iter().map(|id| text(id).into()).collect();
    let request = DescribeGroupsRequest::default().with_groups(ids);
    let answer: DescribeGroupsResponse = admin.ask(&broker, 0..=6, |_| request).await?;
    for group in answer.groups {
        let id = group.group_id.to_string();
        let code = match ErrorCode(group.error_code) {
            // Before version 6 a group that does not exist is reported as dead.
            ErrorCode::NONE if group.group_state.as_str() == "Dead" => {
                ErrorCode::GROUP_ID_NOT_FOUND
            }
            code => code,
        };
        let error = |code| group_error(&id, code, group.error_message.as_deref());
        let result = code.ok().map_err(error).map(|()| of_classic(&group, &broker));
        results.push((id, result));
    }
    Ok(results)
}

fn of_consumers(
    group: &consumer_group_describe_response::DescribedGroup,
    coordinator: &BrokerDescription,
) -> GroupDescription {
    let partitions = |assignment: &consumer_group_describe_response::Assignment| {
        let topics = assignment.topic_partitions.iter().flat_map(|topic| {
            let name: Arc<str> = topic.topic_name.as_str().into();
            let one = move |index: &i32| TopicPartition::new(name.clone(), *index);
            topic.partitions.iter().map(one)
        });
        let mut all: Vec<TopicPartition> = topics.collect();
        all.sort_unstable();
        all
    };
    let members = group.members.iter().map(|member| MemberDescription {
        member_id: member.member_id.to_string(),
        group_instance_id: member.instance_id.as_ref().map(ToString::to_string),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        rack: member.rack_id.as_ref().map(ToString::to_string),
        epoch: Some(member.member_epoch),
        topics: member.subscribed_topic_names.iter().map(|topic| topic.to_string()).collect(),
        topic_regex: member
            .subscribed_topic_regex
            .as_ref()
            .map(ToString::to_string)
            .filter(|regex| !regex.is_empty()),
        assignment: partitions(&member.assignment),
        target: Some(partitions(&member.target_assignment)),
    });
    GroupDescription {
        group_id: group.group_id.to_string(),
        kind: GroupKind::Consumer,
        state: GroupState::from_name(&group.group_state),
        assignor: group.assignor_name.to_string(),
        coordinator: coordinator.clone(),
        epoch: Some(group.group_epoch),
        assignment_epoch: Some(group.assignment_epoch),
        members: members.collect(),
    }
}

fn of_classic(
    group: &describe_groups_response::DescribedGroup,
    coordinator: &BrokerDescription,
) -> GroupDescription {
    /// Protocol type of consumers. Others, such as Kafka Connect, have their own formats.
    const CONSUMERS: &str = "consumer";
    let consumers = group.protocol_type.as_str() == CONSUMERS;
    let members = group.members.iter().map(|member| {
        // A member's malformed metadata must not make the group's description fail.
        let assigned = Assignment::decode(&member.member_assignment).ok().filter(|_| consumers);
        let wanted = Subscription::decode(&member.member_metadata).ok().filter(|_| consumers);
        let partitions = assigned.map(|assigned| assigned.partitions).unwrap_or_default();
        let partitions = partitions.into_iter().flat_map(|(topic, indexes)| {
            indexes.into_iter().map(move |index| TopicPartition::new(topic.clone(), index))
        });
        let mut assignment: Vec<TopicPartition> = partitions.collect();
        assignment.sort_unstable();
        let topics = wanted.as_ref().map(|wanted| wanted.topics.as_slice()).unwrap_or_default();
        MemberDescription {
            member_id: member.member_id.to_string(),
            group_instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            rack: wanted.as_ref().and_then(|w| w.rack.as_deref()).map(str::to_owned),
            epoch: None,
            topics: topics.iter().map(|topic| (**topic).to_owned()).collect(),
            topic_regex: None,
            assignment,
            target: None,
        }
    });
    GroupDescription {
        group_id: group.group_id.to_string(),
        kind: GroupKind::Classic,
        state: GroupState::from_name(&group.group_state),
        assignor: group.protocol_data.to_string(),
        coordinator: coordinator.clone(),
        epoch: None,
        assignment_epoch: None,
        members: members.collect(),
    }
}

fn offsets_of(id: &str, group: OffsetFetchResponseGroup) -> Result<GroupOffsets> {
    group_result(id, group.error_code)?;
    let mut offsets = GroupOffsets::new();
    for topic in group.topics {
        for partition in topic.partitions {
            let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            offset_result(id, &at, partition.error_code)?;
            if partition.committed_offset < 0 {
                continue;
            }
            let epoch = partition.committed_leader_epoch;
            let offset = OffsetAndMetadata {
                offset: partition.committed_offset,
                leader_epoch: (epoch >= 0).then_some(epoch),
                metadata: partition.metadata.map(|text| text.to_string()).unwrap_or_default(),
            };
            offsets.insert(at, offset);
        }
    }
    Ok(offsets)
}

fn group_error(id: &str, code: ErrorCode, message: Option<&str>) -> Error {
    broker_error(&Coordinators::OfGroups.name(id), code, message)
}

pub(super) fn group_result(id: &str, code: i16) -> Result<()> {
    ErrorCode(code).ok().map_err(|code| group_error(id, code, None))
}

fn offset_result(id: &str, at: &TopicPartition, code: i16) -> Result<()> {
    let code = ErrorCode(code);
    // The coordinator's error for a commit from outside the group: the member is unknown.
    let message = (code == ErrorCode::UNKNOWN_MEMBER_ID)
        .then_some("The group has members; stop them before changing its offsets.");
    let what = || format!("{} {at}", Coordinators::OfGroups.name(id));
    code.ok().map_err(|code| broker_error(&what(), code, message))
}

/// Whether the coordinator does not know the partition.
fn is_unknown(result: &Result<()>) -> bool {
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    matches!(result, Err(Error::Broker { code, .. }) if *code == unknown)
}
