//! Groups of consumers, of both protocols, and what they have committed.

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

use super::{Admin, BrokerDescription, Each, broker_error, rounds::Outcome, text, topics_of};
use crate::{Error, OffsetAndMetadata, Result, TopicPartition, coordinator::Coordinators};

/// Which protocol the members of a group speak.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupKind {
    /// The members share the partitions out among themselves.
    Classic,
    /// The coordinator shares them out (KIP-848).
    Consumer,
    /// Another one, by Kafka's name, such as `share`; empty where the broker does not say.
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

/// What a group is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupState {
    /// It has no members.
    Empty,
    /// Every member has its partitions.
    Stable,
    /// Members are awaited (classic).
    PreparingRebalance,
    /// The assignment is awaited (classic).
    CompletingRebalance,
    /// The assignment is being made (consumer).
    Assigning,
    /// Members are on their way to their assignment (consumer).
    Reconciling,
    /// It is gone.
    Dead,
    /// Another one, by Kafka's name; empty where the broker does not say.
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
    /// What its members are to each other: `consumer` for consumers, empty for one that only has offsets.
    pub protocol_type: String,
    /// What it is about.
    pub state: GroupState,
    /// Which protocol its members speak.
    pub kind: GroupKind,
}

/// A group described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// `group.id`.
    pub group_id: String,
    /// Which protocol its members speak.
    pub kind: GroupKind,
    /// What it is about.
    pub state: GroupState,
    /// Who assigns: the strategy that the members agreed on, or the coordinator's assignor. Empty for none.
    pub assignor: String,
    /// The broker that coordinates it.
    pub coordinator: BrokerDescription,
    /// Epoch of the group (consumer protocol).
    pub epoch: Option<i32>,
    /// Epoch of the assignment that members are on their way to (consumer protocol).
    pub assignment_epoch: Option<i32>,
    /// Members, in the coordinator's order.
    pub members: Vec<MemberDescription>,
}

/// A member of a group described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// Id that the coordinator or the member has made.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// `client.rack`, where the protocol tells.
    pub rack: Option<String>,
    /// Epoch of the member (consumer protocol).
    pub epoch: Option<i32>,
    /// Topics it wants to read.
    pub topics: Vec<String>,
    /// Expression for the topics it wants to read (consumer protocol).
    pub topic_regex: Option<String>,
    /// Partitions it has.
    pub assignment: Vec<TopicPartition>,
    /// Partitions it is to have in the end (consumer protocol).
    pub target: Option<Vec<TopicPartition>>,
}

/// What a group has committed, by partition.
pub type GroupOffsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

impl Admin {
    /// The groups that each broker coordinates, with a result for each broker.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list_groups(&self) -> Result<Each<i32, Vec<GroupListing>>> {
        let ids = self.broker_ids("listing groups (default.api.timeout.ms)").await?;
        self.rounds("listing groups (default.api.timeout.ms)", &ids, |open, _| {
            self.at_brokers(open, |admin, broker| async move {
                let answer: ListGroupsResponse =
                    admin.ask(&broker, 0..=5, |_| ListGroupsRequest::default()).await?;
                ErrorCode(answer.error_code)
                    .ok()
                    .map_err(|code| broker_error(&format!("broker {}", broker.id), code, None))?;
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
    }

    /// Groups of either protocol with their members, each with a result of its own.
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
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn describe_groups(&self, groups: &[&str]) -> Result<Each<String, GroupDescription>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("describing groups (default.api.timeout.ms)", &groups, |open, _| {
            self.at_coordinators(Coordinators::OfGroups, open, describe)
        })
        .await
    }

    /// Deletes groups without members, and all that they have committed, each with a result of its own.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn delete_groups(&self, groups: &[&str]) -> Result<Each<String, ()>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("deleting groups (default.api.timeout.ms)", &groups, |open, _| {
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
        .await
    }

    /// All offsets that groups have committed, each group with a result of its own; a group that does not exist has
    /// none.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`; brokers before Kafka 3.0 cannot be asked.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list_group_offsets(&self, groups: &[&str]) -> Result<Each<String, GroupOffsets>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rounds("listing a group's offsets (default.api.timeout.ms)", &groups, |open, _| {
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
        .await
    }

    /// Commits offsets for a group without members, each partition with a result of its own. A group that does not
    /// exist begins so.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<Each<TopicPartition, ()>> {
        let partitions: Vec<TopicPartition> = offsets.iter().map(|(at, _)| at.clone()).collect();
        let offsets: BTreeMap<&TopicPartition, &OffsetAndMetadata> =
            offsets.iter().map(|(at, offset)| (at, offset)).collect();
        let offsets = &offsets;
        let what = "changing a group's offsets (default.api.timeout.ms)";
        self.rounds(what, &partitions, |open, _| self.commit_once(group, offsets, open)).await
    }

    async fn commit_once(
        &self,
        group: &str,
        offsets: &BTreeMap<&TopicPartition, &OffsetAndMetadata>,
        open: BTreeSet<TopicPartition>,
    ) -> Result<Outcome<TopicPartition, ()>> {
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
                // As no member of no generation.
                OffsetCommitRequest::default()
                    .with_group_id(text(group).into())
                    .with_generation_id_or_member_epoch(-1)
                    .with_topics(topics.collect())
            })
            .await?;
        let mut outcome = Outcome::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = offset_result(group, &at, partition.error_code);
                outcome.insert(at, result);
            }
        }
        Ok(outcome)
    }

    /// Forgets offsets that a group has committed, each partition with a result of its own. Topics that members of the
    /// group read are refused.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`, or there is no such group.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, ()>> {
        let what = "deleting a group's offsets (default.api.timeout.ms)";
        self.rounds(what, partitions, |open, _| self.delete_offsets_once(group, open)).await
    }

    async fn delete_offsets_once(
        &self,
        group: &str,
        open: BTreeSet<TopicPartition>,
    ) -> Result<Outcome<TopicPartition, ()>> {
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
        let mut outcome = Outcome::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = offset_result(group, &at, partition.error_code);
                outcome.insert(at, result);
            }
        }
        Ok(outcome)
    }

    async fn group_coordinator(&self, group: &str) -> Result<BrokerDescription> {
        let found = self.coordinators(Coordinators::OfGroups, &[group]).await?;
        found
            .into_iter()
            .next()
            .unwrap_or(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE))
            .map_err(|code| broker_error(&Coordinators::OfGroups.name(group), code, None))
    }
}

/// Asks as for groups of the consumer protocol, and then for those that are none as for classic ones.
async fn describe(
    admin: Admin,
    broker: BrokerDescription,
    part: Vec<String>,
) -> Result<Outcome<String, GroupDescription>> {
    let ids = part.iter().map(|id| text(id).into()).collect();
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(ids);
    let asked: Result<ConsumerGroupDescribeResponse> = admin.ask(&broker, 0..=1, |_| request).await;
    let mut outcome = Outcome::new();
    let classic: Vec<String> = match asked {
        // A broker before Kafka 4.0, or one that has the protocol switched off.
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
                        outcome.insert(id, result);
                    }
                }
            }
            others
        }
    };
    if classic.is_empty() {
        return Ok(outcome);
    }
    let ids = classic.iter().map(|id| text(id).into()).collect();
    let request = DescribeGroupsRequest::default().with_groups(ids);
    let answer: DescribeGroupsResponse = admin.ask(&broker, 0..=6, |_| request).await?;
    for group in answer.groups {
        let id = group.group_id.to_string();
        let code = match ErrorCode(group.error_code) {
            // Before version 6 a group that does not exist is a dead one.
            ErrorCode::NONE if group.group_state.as_str() == "Dead" => {
                ErrorCode::GROUP_ID_NOT_FOUND
            }
            code => code,
        };
        let error = |code| group_error(&id, code, group.error_message.as_deref());
        let result = code.ok().map_err(error).map(|()| of_classic(&group, &broker));
        outcome.insert(id, result);
    }
    Ok(outcome)
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
    /// What members of groups of consumers tell each other; others, such as Kafka Connect, have their own.
    const CONSUMERS: &str = "consumer";
    let consumers = group.protocol_type.as_str() == CONSUMERS;
    let members = group.members.iter().map(|member| {
        // What a member has written that makes no sense is its own business: the group can still be described.
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

fn group_result(id: &str, code: i16) -> Result<()> {
    ErrorCode(code).ok().map_err(|code| group_error(id, code, None))
}

fn offset_result(id: &str, at: &TopicPartition, code: i16) -> Result<()> {
    let code = ErrorCode(code);
    // What the coordinator says to an outsider: it does not know the member that commits.
    let message = (code == ErrorCode::UNKNOWN_MEMBER_ID)
        .then_some("The group has members; stop them before changing its offsets.");
    let what = || format!("{} {at}", Coordinators::OfGroups.name(id));
    code.ok().map_err(|code| broker_error(&what(), code, message))
}
