//! Metrics of a consumer's group: commits, heartbeats, rebalances, and the listener's execution times.

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
use crate::span::Span;

/// Metrics of the consumer's group; times in nanoseconds, one value per event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GroupMetrics {
    /// From an OffsetCommit request, including the connection, to its response, even if that is a refusal.
    pub commit_latency: Distribution,
    /// From a heartbeat of either protocol, including the connection, to its response.
    pub heartbeat_latency: Distribution,
    /// From JoinGroup to its response: the coordinator's wait for other members. Classic protocol.
    pub join_time: Distribution,
    /// From SyncGroup to its response: the leader's time to assign. Classic protocol.
    pub sync_time: Distribution,
    /// From the moment when the member learned of a rebalance until the application had its new assignment.
    pub rebalance_latency: Distribution,
    /// Rebalances that ended the membership instead of with an assignment.
    pub failed_rebalance_total: u64,
    /// Execution time of the listener for revoked partitions.
    pub partition_revoked_latency: Distribution,
    /// Execution time of the listener for assigned partitions.
    pub partition_assigned_latency: Distribution,
    /// Execution time of the listener for lost partitions.
    pub partition_lost_latency: Distribution,
    /// Time since the last rebalance that ended with an assignment; `None` before the first one.
    pub since_rebalance: Option<Duration>,
    /// Time since the last heartbeat was sent; `None` before the first one.
    pub since_heartbeat: Option<Duration>,
}

impl GroupMetrics {
    /// Reduces the metrics to the time after `earlier`.
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
    pub(super) fn list(&self, group: &mut Group<'_>, assigned: usize) {
        let counted = |group: &mut Group<'_>, name: &str, time: &str, of: &Distribution| {
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

/// The recording side of a group's metrics.
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
    /// Start of the rebalance in progress.
    began: Option<Instant>,
    rebalanced: Option<Instant>,
    beat: Option<Instant>,
    /// The span of the rebalance in progress.
    span: Span,
}

impl Times {
    fn begin(&mut self, now: Instant, span: Span) {
        (self.began, self.span) = (Some(now), span);
    }

    fn end(&mut self) {
        (self.began, self.span) = (None, Span::NONE);
    }
}

impl GroupStats {
    /// Records the time since `from`.
    pub(crate) fn took(histogram: &Histogram, from: Instant) {
        histogram.record(nanos(from.elapsed()), 1);
    }

    /// Records that a heartbeat is being sent. Returns its time.
    pub(crate) fn beat(&self) -> Instant {
        let now = Instant::now();
        self.times.lock().beat = Some(now);
        now
    }

    /// Records the member's progress. Called in the order of the changes.
    pub(crate) fn is_at(&self, course: Course, now: Instant, span: impl FnOnce() -> Span) {
        let mut times = self.times.lock();
        let before = std::mem::replace(&mut times.course, course);
        if before == course {
            return;
        }
        match course {
            Course::Outside => times.end(),
            Course::Rebalancing => {
                if times.began.is_none() {
                    times.begin(now, span());
                }
            }
            Course::Losing | Course::Failed => {
                if before == Course::Rebalancing {
                    self.failed_rebalances.add(1);
                }
                times.span.broken_off("failed_rebalance");
                times.end();
                if course == Course::Losing {
                    times.begin(now, span());
                }
            }
            Course::Settled => {
                let began = times.began;
                times.end();
                if let Some(began) = began {
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
