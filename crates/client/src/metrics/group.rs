//! What a consumer measures of its group: commits, heartbeats, rebalances, and how long its listener takes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use curtail_proto::membership::Course;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Distribution,
    histogram::Histogram,
    named::{Group, NANOS_IN_MS},
    stats::{Counter, nanos},
};

/// What concerns the consumer's group; times in nanoseconds, one value for each event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GroupMetrics {
    /// From an OffsetCommit request, connecting included, to its answer, also one that refuses.
    pub commit_latency: Distribution,
    /// From a heartbeat of either protocol, connecting included, to its answer.
    pub heartbeat_latency: Distribution,
    /// From JoinGroup to its answer: how long the coordinator waited for others. Of the classic protocol.
    pub join_time: Distribution,
    /// From SyncGroup to its answer: how long the leader took to assign. Of the classic protocol.
    pub sync_time: Distribution,
    /// From the moment at which a rebalance was known here until the application had what it is given.
    pub rebalance_latency: Distribution,
    /// Rebalances that ended with the membership and not with an assignment.
    pub failed_rebalance_total: u64,
    /// How long the listener took over partitions that were revoked.
    pub partition_revoked_latency: Distribution,
    /// Over partitions that were assigned.
    pub partition_assigned_latency: Distribution,
    /// Over partitions that were lost.
    pub partition_lost_latency: Distribution,
    /// Time since the last rebalance ended with an assignment; `None` before the first one.
    pub since_rebalance: Option<Duration>,
    /// Time since the last heartbeat was sent; `None` before the first one.
    pub since_heartbeat: Option<Duration>,
}

impl GroupMetrics {
    /// What happened after `earlier`.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        let mut earlier = earlier.clone();
        for (now, then) in self.distributions().into_iter().zip(earlier.distributions()) {
            *now = now.since(then);
        }
        self.failed_rebalance_total =
            self.failed_rebalance_total.saturating_sub(earlier.failed_rebalance_total);
    }

    fn distributions(&mut self) -> [&mut Distribution; 8] {
        [
            &mut self.commit_latency,
            &mut self.heartbeat_latency,
            &mut self.join_time,
            &mut self.sync_time,
            &mut self.rebalance_latency,
            &mut self.partition_revoked_latency,
            &mut self.partition_assigned_latency,
            &mut self.partition_lost_latency,
        ]
    }

    /// Names, groups and units are those of Java's `ConsumerCoordinatorMetrics` and `AbstractCoordinator`.
    pub(super) fn list(&self, group: &mut Group, assigned: usize) {
        let counted = |group: &mut Group, name: &str, time: &str, of: &Distribution| {
            group.figures(time, of, NANOS_IN_MS);
            group.rate(name, of.count());
        };
        counted(group, "commit", "commit-latency", &self.commit_latency);
        counted(group, "heartbeat", "heartbeat-response-time", &self.heartbeat_latency);
        counted(group, "join", "join-time", &self.join_time);
        counted(group, "sync", "sync-time", &self.sync_time);
        group.figures("rebalance-latency", &self.rebalance_latency, NANOS_IN_MS);
        let rebalances = self.rebalance_latency.count();
        let total = self.rebalance_latency.mean() * rebalances as f64 / NANOS_IN_MS;
        group.put("rebalance-latency-total", total);
        group.rate_per_hour("rebalance", rebalances);
        group.rate_per_hour("failed-rebalance", self.failed_rebalance_total);
        for (name, time) in [
            ("partition-revoked-latency", &self.partition_revoked_latency),
            ("partition-assigned-latency", &self.partition_assigned_latency),
            ("partition-lost-latency", &self.partition_lost_latency),
        ] {
            group.figures(name, time, NANOS_IN_MS);
        }
        for (name, since) in [
            ("last-rebalance-seconds-ago", self.since_rebalance),
            ("last-heartbeat-seconds-ago", self.since_heartbeat),
        ] {
            if let Some(since) = since {
                group.put(name, since.as_secs_f64());
            }
        }
        group.put("assigned-partitions", assigned as f64);
    }
}

/// What a consumer records of its group.
#[derive(Debug, Default)]
pub(crate) struct GroupStats {
    pub(crate) commits: Histogram,
    pub(crate) heartbeats: Histogram,
    pub(crate) joins: Histogram,
    pub(crate) syncs: Histogram,
    pub(crate) revoked: Histogram,
    pub(crate) assigned: Histogram,
    pub(crate) lost: Histogram,
    rebalances: Histogram,
    failed_rebalances: Counter,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    course: Course,
    /// When the rebalance under way began.
    began: Option<Instant>,
    rebalanced: Option<Instant>,
    beat: Option<Instant>,
}

impl GroupStats {
    /// Notes a time that began at `from`.
    pub(crate) fn took(histogram: &Histogram, from: Instant) {
        histogram.record(nanos(from.elapsed()), 1);
    }

    /// A heartbeat goes out. When that is.
    pub(crate) fn beat(&self) -> Instant {
        let now = Instant::now();
        self.times.lock().beat = Some(now);
        now
    }

    /// How far the member is. Called in the order in which that changes.
    pub(crate) fn is_at(&self, course: Course, now: Instant) {
        let mut times = self.times.lock();
        let before = std::mem::replace(&mut times.course, course);
        if before == course {
            return;
        }
        match course {
            Course::Outside => times.began = None,
            Course::Rebalancing => {
                times.began.get_or_insert(now);
            }
            Course::Losing | Course::Failed => {
                if before == Course::Rebalancing {
                    self.failed_rebalances.add(1);
                }
                times.began = (course == Course::Losing).then_some(now);
            }
            Course::Settled => {
                if let Some(began) = times.began.take() {
                    self.rebalances.record(nanos(now.saturating_duration_since(began)), 1);
                    times.rebalanced = Some(now);
                }
            }
        }
    }

    pub(crate) fn snapshot(&self, now: Instant) -> GroupMetrics {
        let times = self.times.lock();
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        let (since_rebalance, since_heartbeat) = (since(times.rebalanced), since(times.beat));
        drop(times);
        GroupMetrics {
            commit_latency: self.commits.snapshot(),
            heartbeat_latency: self.heartbeats.snapshot(),
            join_time: self.joins.snapshot(),
            sync_time: self.syncs.snapshot(),
            rebalance_latency: self.rebalances.snapshot(),
            failed_rebalance_total: self.failed_rebalances.get(),
            partition_revoked_latency: self.revoked.snapshot(),
            partition_assigned_latency: self.assigned.snapshot(),
            partition_lost_latency: self.lost.snapshot(),
            since_rebalance,
            since_heartbeat,
        }
    }
}
