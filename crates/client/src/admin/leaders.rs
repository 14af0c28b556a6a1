//! Where partitions live and who leads them.

use std::collections::BTreeMap;

use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
};
use messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersRequest,
    ElectLeadersResponse,
    alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic},
    elect_leaders_request::TopicPartitions,
};

use super::{Admin, Each, broker_error, topics::each};
use crate::{Result, TopicPartition};

/// ElectLeaders: the preferred replica, in sync.
const PREFERRED: i8 = 0;

impl Admin {
    /// Gives partitions other replicas, the first of each list being the preferred leader (KIP-455), each with a result
    /// of its own. Replicas that are new are filled after this returns; the leader changes only if it is no
    /// longer among them, see [`Admin::elect_preferred_leaders`].
    ///
    /// # Errors
    /// If the controller does not answer within `default.api.timeout.ms`, or refuses the whole request.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn alter_partition_reassignments(
        &self,
        replicas: &[(TopicPartition, Vec<i32>)],
    ) -> Result<Each<TopicPartition, ()>> {
        let mut attempts = self.attempts("reassigning partitions (default.api.timeout.ms)");
        let answer = loop {
            match attempts.run(self.reassign_once(replicas, attempts.timeout_ms())).await {
                Ok(answer) => break answer,
                Err(error) => attempts.again(error).await?,
            }
        };
        let mut outcome = BTreeMap::new();
        for topic in answer.responses {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = result_of(&at, partition.error_code, partition.error_message.as_ref());
                outcome.insert(at, result);
            }
        }
        Ok(each(replicas.iter().map(|(at, _)| at.clone()), outcome))
    }

    async fn reassign_once(
        &self,
        replicas: &[(TopicPartition, Vec<i32>)],
        timeout_ms: i32,
    ) -> Result<AlterPartitionReassignmentsResponse> {
        let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
        for (at, ids) in replicas {
            let partition = ReassignablePartition::default()
                .with_partition_index(at.partition)
                .with_replicas(Some(ids.iter().map(|id| (*id).into()).collect()));
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            let name = StrBytes::from_string(name.to_owned());
            ReassignableTopic::default().with_name(name.into()).with_partitions(partitions)
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

    /// Makes the preferred replica of each partition its leader (KIP-460), each with a result of its own. Where it
    /// leads already nothing happens, which is no error. Brokers learn of it in their own time.
    ///
    /// # Errors
    /// If the controller does not answer within `default.api.timeout.ms`, or refuses the whole request.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn elect_preferred_leaders(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, ()>> {
        let mut attempts = self.attempts("electing leaders (default.api.timeout.ms)");
        let answer = loop {
            match attempts.run(self.elect_once(partitions, attempts.timeout_ms())).await {
                Ok(answer) => break answer,
                Err(error) => attempts.again(error).await?,
            }
        };
        let mut outcome = BTreeMap::new();
        for topic in answer.replica_election_results {
            for partition in topic.partition_result {
                let at = TopicPartition::new(topic.topic.as_str(), partition.partition_id);
                let result = match ErrorCode(partition.error_code) {
                    ErrorCode::ELECTION_NOT_NEEDED => Ok(()),
                    code => result_of(&at, code.0, partition.error_message.as_ref()),
                };
                outcome.insert(at, result);
            }
        }
        Ok(each(partitions.iter().cloned(), outcome))
    }

    async fn elect_once(
        &self,
        partitions: &[TopicPartition],
        timeout_ms: i32,
    ) -> Result<ElectLeadersResponse> {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for at in partitions {
            topics.entry(&at.topic).or_default().push(at.partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            let name = StrBytes::from_string(name.to_owned());
            TopicPartitions::default().with_topic(name.into()).with_partitions(partitions)
        });
        let request = ElectLeadersRequest::default()
            .with_election_type(PREFERRED)
            .with_topic_partitions(Some(topics.collect()))
            .with_timeout_ms(timeout_ms);
        let answer: ElectLeadersResponse = self.ask_controller(1..=2, |_| request).await?;
        match ErrorCode(answer.error_code).ok() {
            Ok(()) => Ok(answer),
            Err(code) => Err(broker_error("election", code, None)),
        }
    }
}

fn result_of(at: &TopicPartition, code: i16, message: Option<&StrBytes>) -> Result<()> {
    let message = message.map(StrBytes::as_str);
    ErrorCode(code).ok().map_err(|code| broker_error(&at.to_string(), code, message))
}
