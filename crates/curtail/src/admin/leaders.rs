//! Leader elections and reassignments of replicas.

use std::collections::BTreeMap;

use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
};
use messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, BrokerId,
    ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic},
    elect_leaders_request::TopicPartitions,
    list_partition_reassignments_request::ListPartitionReassignmentsTopics,
};

use super::{Admin, Call, Each, broker_error, partition_result, rounds::in_order, topics_of};
use crate::{Result, TopicPartition};

/// Type of a leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// Elects the first of the replicas, if it is in sync.
    Preferred,
    /// If no in-sync replica is alive, elects an out-of-sync one. The records that it lacks are lost.
    Unclean,
}

/// Outcome of a leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elected {
    /// The leader was elected now.
    Now,
    /// The right replica already led, so nothing changed.
    Already,
}

/// New replicas of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reassignment {
    /// On these brokers, the preferred leader first.
    To(Vec<i32>),
    /// Cancels a reassignment in progress.
    Cancel,
}

/// A reassignment in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OngoingReassignment {
    /// Broker ids of all replicas, including those being added and removed.
    pub replicas: Vec<i32>,
    /// Broker ids of replicas being added.
    pub adding: Vec<i32>,
    /// Broker ids of replicas being removed.
    pub removing: Vec<i32>,
}

impl Admin {
    /// Reassigns replicas of partitions (KIP-455) or cancels reassignments, with a result for each partition. New
    /// replicas fetch their records after this call returns, see [`Admin::list_partition_reassignments`]. The leader
    /// changes only if its replica is removed, see [`Admin::elect_leaders`].
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`, or refuses the whole request.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn alter_partition_reassignments<'a>(
        &'a self,
        reassignments: &'a [(TopicPartition, Reassignment)],
    ) -> Call<'a, Each<TopicPartition, ()>> {
        Box::pin(async move {
            let what = "reassigning partitions (default.api.timeout.ms)";
            let once = |timeout_ms| self.reassign_once(reassignments, timeout_ms);
            let answer = self.retried(what, once).await?;
            let mut answered = Each::new();
            for topic in answer.responses {
                for partition in topic.partitions {
                    let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                    let message = partition.error_message.as_deref();
                    let result = partition_result(&at, partition.error_code, message);
                    answered.push((at, result));
                }
            }
            let asked: Vec<TopicPartition> =
                reassignments.iter().map(|(at, _)| at.clone()).collect();
            Ok(in_order(&asked, answered))
        })
    }

    async fn reassign_once(
        &self,
        reassignments: &[(TopicPartition, Reassignment)],
        timeout_ms: i32,
    ) -> Result<AlterPartitionReassignmentsResponse> {
        let wanted: BTreeMap<&TopicPartition, &Reassignment> =
            reassignments.iter().map(|(at, to)| (at, to)).collect();
        let partitions: Vec<TopicPartition> = wanted.keys().map(|at| (*at).clone()).collect();
        let topics = topics_of(&partitions, |index, at| {
            let replicas = match wanted[at] {
                Reassignment::To(ids) => Some(ids.iter().map(|id| (*id).into()).collect()),
                Reassignment::Cancel => None,
            };
            ReassignablePartition::default().with_partition_index(index).with_replicas(replicas)
        });
        let topics = topics.into_iter().map(|(name, partitions)| {
            ReassignableTopic::default().with_name(name).with_partitions(partitions)
        });
        let request = AlterPartitionReassignmentsRequest::default()
            .with_topics(topics.collect())
            .with_timeout_ms(timeout_ms);
        let answer: AlterPartitionReassignmentsResponse =
            self.ask_controller(0..=0, |_| request).await?;
        let message = answer.error_message.as_ref().map(StrBytes::as_str);
        match ErrorCode(answer.error_code).ok() {
            Ok(()) => Ok(answer),
            Err(code) => Err(broker_error("reassignment", code, message)),
        }
    }

    /// Returns the reassignments in progress: of all partitions, or of the given ones.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`, or refuses the request.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_partition_reassignments<'a>(
        &'a self,
        partitions: Option<&'a [TopicPartition]>,
    ) -> Call<'a, BTreeMap<TopicPartition, OngoingReassignment>> {
        Box::pin(async move {
            let what = "listing reassignments (default.api.timeout.ms)";
            let once = |timeout_ms| self.reassignments_once(partitions, timeout_ms);
            let answer = self.retried(what, once).await?;
            let ids = |ids: Vec<BrokerId>| ids.into_iter().map(|id| id.0).collect();
            let mut ongoing = BTreeMap::new();
            for topic in answer.topics {
                for partition in topic.partitions {
                    let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                    let found = OngoingReassignment {
                        replicas: ids(partition.replicas),
                        adding: ids(partition.adding_replicas),
                        removing: ids(partition.removing_replicas),
                    };
                    ongoing.insert(at, found);
                }
            }
            Ok(ongoing)
        })
    }

    async fn reassignments_once(
        &self,
        partitions: Option<&[TopicPartition]>,
        timeout_ms: i32,
    ) -> Result<ListPartitionReassignmentsResponse> {
        let topics = partitions.map(|partitions| {
            let topics = topics_of(partitions, |index, _| index).into_iter();
            let topics = topics.map(|(name, indexes)| {
                ListPartitionReassignmentsTopics::default()
                    .with_name(name)
                    .with_partition_indexes(indexes)
            });
            topics.collect()
        });
        let request = ListPartitionReassignmentsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(timeout_ms);
        let answer: ListPartitionReassignmentsResponse =
            self.ask_controller(0..=0, |_| request).await?;
        match ErrorCode(answer.error_code).ok() {
            Ok(()) => Ok(answer),
            Err(code) => Err(broker_error("reassignments", code, answer.error_message.as_deref())),
        }
    }

    /// Elects leaders of partitions (KIP-460), with a result for each partition. If the right replica already leads,
    /// nothing changes and the result is [`Elected::Already`]. Brokers may learn the result with a delay.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`, or refuses the whole request.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn elect_leaders<'a>(
        &'a self,
        election: Election,
        partitions: &'a [TopicPartition],
    ) -> Call<'a, Each<TopicPartition, Elected>> {
        Box::pin(async move {
            let what = "electing leaders (default.api.timeout.ms)";
            let once = |timeout_ms| self.elect_once(election, partitions, timeout_ms);
            let answer = self.retried(what, once).await?;
            let mut answered = Each::new();
            for topic in answer.replica_election_results {
                for partition in topic.partition_result {
                    let at = TopicPartition::new(topic.topic.as_str(), partition.partition_id);
                    let message = partition.error_message.as_deref();
                    let result = match ErrorCode(partition.error_code) {
                        ErrorCode::ELECTION_NOT_NEEDED => Ok(Elected::Already),
                        code => partition_result(&at, code.0, message).map(|()| Elected::Now),
                    };
                    answered.push((at, result));
                }
            }
            Ok(in_order(partitions, answered))
        })
    }

    async fn elect_once(
        &self,
        election: Election,
        partitions: &[TopicPartition],
        timeout_ms: i32,
    ) -> Result<ElectLeadersResponse> {
        let topics = topics_of(partitions, |index, _| index).into_iter().map(|(name, indexes)| {
            TopicPartitions::default().with_topic(name).with_partitions(indexes)
        });
        let request = ElectLeadersRequest::default()
            .with_election_type(match election {
                Election::Preferred => 0,
                Election::Unclean => 1,
            })
            .with_topic_partitions(Some(topics.collect()))
            .with_timeout_ms(timeout_ms);
        let answer: ElectLeadersResponse = self.ask_controller(1..=2, |_| request).await?;
        match ErrorCode(answer.error_code).ok() {
            Ok(()) => Ok(answer),
            Err(code) => Err(broker_error("election", code, None)),
        }
    }
}
