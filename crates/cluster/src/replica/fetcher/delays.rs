//! Which partitions of a lane are not fetched for now: pure, the time is passed in.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::PartitionKey;

/// Partitions whose last fetch failed. A delay belongs to a leader epoch: a newer one is fetched at once.
#[derive(Debug, Default)]
pub(super) struct Delays(BTreeMap<PartitionKey, Delay>);

#[derive(Debug)]
struct Delay {
    until: Instant,
    leader_epoch: i32,
}

impl Delays {
    /// Whether a partition is not fetched yet in this leader epoch.
    pub(super) fn has(&self, key: PartitionKey, leader_epoch: i32, now: Instant) -> bool {
        let delay = self.0.get(&key);
        delay.is_some_and(|delay| delay.leader_epoch == leader_epoch && delay.until > now)
    }

    /// Delays a partition. A delay that has not ended stays as it is.
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

    /// Forgets the delays that have ended.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, delay| delay.until > now);
    }
}
