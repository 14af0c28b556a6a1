//! The partitions of a lane whose fetch is delayed. Pure: the caller passes the time in.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::PartitionKey;

/// Partitions whose last fetch failed. A delay belongs to a leader epoch: a newer epoch is fetched
/// immediately.
#[derive(Debug, Default)]
pub(super) struct Delays(BTreeMap<PartitionKey, Delay>);

#[derive(Debug)]
struct Delay {
    until: Instant,
    leader_epoch: i32,
}

impl Delays {
    /// Returns whether a partition is delayed in this leader epoch.
    pub(super) fn has(&self, key: PartitionKey, leader_epoch: i32, now: Instant) -> bool {
        let delay = self.0.get(&key);
        delay.is_some_and(|delay| delay.leader_epoch == leader_epoch && delay.until > now)
    }

    /// Delays a partition. A running delay stays unchanged.
    pub(super) fn add(
        &mut self,
        key: PartitionKey,
        leader_epoch: i32,
        backoff: Duration,
        now: Instant,
    ) {
        if !self.has(key, leader_epoch, now) {
            self.0.insert(key, Delay { until: now + backoff, leader_epoch });
        }
    }

    /// Removes expired delays.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, delay| delay.until > now);
    }
}
