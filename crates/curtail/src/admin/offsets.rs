//! Offsets of partitions, and deletion of records.

use std::{collections::BTreeMap, sync::Arc};

use curtail_wire::{cold::messages, fetch::IsolationLevel};
use messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
};

use super::{Admin, Call, Each, partition_result, topics_of};
use crate::TopicPartition;

/// A position in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OffsetSpec {
    /// First offset.
    Earliest,
    /// End: the high watermark, or the last stable offset with `ReadCommitted`.
    Latest,
    /// Record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// First record with this timestamp or a later one, in milliseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// First offset on the leader's local disk (KIP-405).
    EarliestLocal,
    /// Last offset in tiered storage (KIP-1005).
    LatestTiered,
}

impl OffsetSpec {
    /// ListOffsets' code, and the first version that supports it.
    fn wire(self) -> (i64, i16) {
        match self {
            Self::Earliest => (-2, 1),
            Self::Latest => (-1, 1),
            Self::MaxTimestamp => (-3, 7),
            Self::Timestamp(at) => (at, 1),
            Self::EarliestLocal => (-4, 8),
            Self::LatestTiered => (-5, 9),
        }
    }
}

/// An offset from a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedOffset {
    /// The offset; `None` if no record has the timestamp or a later one.
    pub offset: Option<i64>,
    /// Timestamp of that record, in milliseconds since 1970-01-01 UTC, for a lookup by timestamp.
    pub timestamp: Option<i64>,
    /// Leader epoch of that record, if the broker reports it.
    pub leader_epoch: Option<i32>,
}

impl Admin {
    /// Returns offsets of partitions, with a result for each. With `ReadCommitted` a partition ends before the first
    /// open transaction.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::{TopicPartition, admin::OffsetSpec, config::IsolationLevel};
    ///
    /// let wanted = [(TopicPartition::new("payments", 0), OffsetSpec::MaxTimestamp)];
    /// for (partition, found) in admin.list_offsets(&wanted, IsolationLevel::ReadUncommitted).await? {
    ///     println!("{partition}: {:?}", found?.offset);
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
    pub fn list_offsets<'a>(
        &'a self,
        wanted: &'a [(TopicPartition, OffsetSpec)],
        isolation: IsolationLevel,
    ) -> Call<'a, Each<TopicPartition, ListedOffset>> {
        let partitions: Vec<TopicPartition> = wanted.iter().map(|(at, _)| at.clone()).collect();
        let specs: Arc<BTreeMap<TopicPartition, OffsetSpec>> =
            Arc::new(wanted.iter().cloned().collect());
        self.rounds(
            "listing offsets (default.api.timeout.ms)",
            partitions,
            move |open, timeout_ms| {
                let specs = specs.clone();
                self.at_leaders(open, move |admin, leader, part| {
                    let specs = specs.clone();
                    async move {
                        let mut first = 1;
                        let topics = topics_of(&part, |index, at| {
                            let (timestamp, since) = specs[at].wire();
                            first = first.max(since);
                            ListOffsetsPartition::default()
                                .with_partition_index(index)
                                .with_timestamp(timestamp)
                        });
                        let topics = topics.into_iter().map(|(name, partitions)| {
                            ListOffsetsTopic::default().with_name(name).with_partitions(partitions)
                        });
                        let request = ListOffsetsRequest::default()
                            .with_replica_id((-1).into())
                            .with_topics(topics.collect());
                        let committed = isolation == IsolationLevel::ReadCommitted;
                        let first = if committed { first.max(2) } else { first };
                        let answer: ListOffsetsResponse = admin
                            .ask(&leader, first..=10, |version| {
                                let request = match version {
                                    ..10 => request,
                                    _ => request.with_timeout_ms(timeout_ms),
                                };
                                if committed { request.with_isolation_level(1) } else { request }
                            })
                            .await?;
                        Ok(listed(&answer))
                    }
                })
            },
        )
    }

    /// Deletes the records before an offset of each partition; all of them for -1. Returns the first remaining offset
    /// of each.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_records<'a>(
        &'a self,
        before: &'a [(TopicPartition, i64)],
    ) -> Call<'a, Each<TopicPartition, i64>> {
        let partitions: Vec<TopicPartition> = before.iter().map(|(at, _)| at.clone()).collect();
        let offsets: Arc<BTreeMap<TopicPartition, i64>> =
            Arc::new(before.iter().cloned().collect());
        self.rounds(
            "deleting records (default.api.timeout.ms)",
            partitions,
            move |open, timeout_ms| {
                let offsets = offsets.clone();
                self.at_leaders(open, move |admin, leader, part| {
                    let offsets = offsets.clone();
                    async move {
                        let topics = topics_of(&part, |index, at| {
                            DeleteRecordsPartition::default()
                                .with_partition_index(index)
                                .with_offset(offsets[at])
                        });
                        let topics = topics.into_iter().map(|(name, partitions)| {
                            DeleteRecordsTopic::default()
                                .with_name(name)
                                .with_partitions(partitions)
                        });
                        let request = DeleteRecordsRequest::default()
                            .with_topics(topics.collect())
                            .with_timeout_ms(timeout_ms);
                        let answer: DeleteRecordsResponse =
                            admin.ask(&leader, 0..=2, |_| request).await?;
                        let mut results = Each::new();
                        for topic in answer.topics {
                            for partition in topic.partitions {
                                let at = TopicPartition::new(
                                    topic.name.as_str(),
                                    partition.partition_index,
                                );
                                let result = partition_result(&at, partition.error_code, None);
                                results.push((at, result.map(|()| partition.low_watermark)));
                            }
                        }
                        Ok(results)
                    }
                })
            },
        )
    }
}

fn listed(answer: &ListOffsetsResponse) -> Each<TopicPartition, ListedOffset> {
    let mut results = Each::new();
    for topic in &answer.topics {
        for partition in &topic.partitions {
            let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            let result = partition_result(&at, partition.error_code, None);
            let found = ListedOffset {
                offset: (partition.offset >= 0).then_some(partition.offset),
                timestamp: (partition.timestamp >= 0).then_some(partition.timestamp),
                leader_epoch: (partition.leader_epoch >= 0).then_some(partition.leader_epoch),
            };
            results.push((at, result.map(|()| found)));
        }
    }
    results
}
