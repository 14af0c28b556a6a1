//! Snapshots of a consumer's metrics.

use curtail_proto::position::Position;
use tokio::time::Instant;

use super::shared::{Assigned, Shared};
use crate::{
    TopicPartition,
    consumer::ConsumerHandle,
    metrics::{ConsumerMetrics, PartitionLag},
    telemetry::{self, Snapshot, Source},
};

impl Shared {
    /// Returns the metrics. `not_counted` records were returned since the position was saved.
    pub(super) fn metrics(
        &self,
        not_counted: u64,
        lag: impl Fn(&TopicPartition) -> Option<i64>,
    ) -> ConsumerMetrics {
        let stats = &self.stats;
        let taken = Instant::now();
        let held: Vec<(TopicPartition, usize)> = {
            let state = self.state.lock();
            let held =
                |(at, assigned): (&TopicPartition, &Assigned)| (at.clone(), assigned.held.bytes());
            state.partitions.iter().map(held).collect()
        };
        let partition = |(at, buffered_bytes)| {
            let lag = lag(&at);
            (at, PartitionLag { lag, buffered_bytes })
        };
        ConsumerMetrics {
            client_id: self.config.common.client_id.clone(),
            taken,
            period: taken.saturating_duration_since(stats.started),
            records_consumed_total: stats.records.get() + not_counted,
            bytes_consumed_total: stats.bytes.get(),
            connection_creation_total: stats.connections.get(),
            poll_idle_time: stats.idle.so_far(taken),
            certificates_outdated: self.config.common.security.certificates_outdated().is_some(),
            brokers: stats.snapshot(),
            group: self.group.as_ref().map(|group| group.stats.snapshot(taken)),
            partitions: held.into_iter().map(partition).collect(),
        }
    }

    /// Records of a partition that polls have not returned. Those that the application is reading count as returned once
    /// the consumer looks for more.
    fn lag(&self, at: &TopicPartition) -> Option<i64> {
        let state = self.state.lock();
        let assigned = state.partitions.get(at)?;
        let position = Position::consumed(&assigned.position)?;
        Some(assigned.end?.saturating_sub(position.offset).max(0))
    }
}

impl ConsumerHandle {
    /// As [`crate::Consumer::metrics`]; `None` once the consumer is closed. Records of streams, and of
    /// [`crate::Consumer::poll_batch`], count once all of their response are returned and the consumer looks for more.
    pub fn metrics(&self) -> Option<ConsumerMetrics> {
        let shared = self.shared().ok()?;
        Some(shared.metrics(0, |at| shared.lag(at)))
    }
}

impl Source for Shared {
    fn snapshot(&self) -> Snapshot {
        Snapshot::Consumer(self.metrics(0, |at| self.lag(at)).into())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = telemetry::common_attributes(&self.config.common);
        let Some(group) = &self.group else { return attributes };
        let metadata = group.metadata();
        attributes.push(("group_id", metadata.group_id));
        attributes.extend(metadata.group_instance_id.map(|id| ("group_instance_id", id)));
        // The terminating push follows the departure.
        let member = group.last_member();
        attributes.extend(member.map(|id| ("group_member_id", id.to_string())));
        attributes
    }
}
