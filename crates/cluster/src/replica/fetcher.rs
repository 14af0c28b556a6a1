//! Replication: a broker has one lane for every leader it follows. A lane is a task with a
//! connection and a fetch session for all partitions of that leader. It follows the rules of Apache
//! Kafka's `AbstractFetcherThread` and `AbstractFetcherManager` with `num.replica.fetchers=1`,
//! because clients wait for replication (decision 0054).
//!
//! # Invariants
//! - Only the end of its lane interrupts an outstanding fetch. A partition added to a lane waits
//!   until that fetch returns: for `replica.fetch.wait.max.ms` unless the leader has data.
//! - All partitions of one metadata version are added to their lanes together: no fetch has only
//!   some of them.
//! - A lane without partitions ends with the metadata version that removed the last one. The next
//!   partition of that leader gets a new lane, which fetches immediately.
//! - A new incarnation of the leader gets a new lane: the connections to the previous one are dead.
//!
//! # Locks
//! `Fetchers`, then `Lane::followed`, then a partition.

mod delays;
mod lane_session;
mod task;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::partition::{FollowerPosition, Partition};
use crate::image::{Image, NO_LEADER, PartitionKey};

pub(crate) use self::task::run;

/// The role that a metadata version gives a replica.
pub(crate) struct Role {
    pub(crate) partition: Arc<Partition>,
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
}

/// The lanes of one incarnation of a broker.
#[derive(Default)]
pub(crate) struct Fetchers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    lanes: BTreeMap<i32, Arc<Lane>>,
    /// Lanes without a task yet.
    new: Vec<Arc<Lane>>,
    /// Leader and leader epoch of every partition in a lane.
    following: BTreeMap<PartitionKey, (i32, i32)>,
}

/// The address and epoch of a leader's incarnation.
type Incarnation = Option<(SocketAddr, i64)>;

/// The partitions fetched from one incarnation of a leader.
pub(crate) struct Lane {
    leader: i32,
    incarnation: Incarnation,
    followed: Mutex<BTreeMap<PartitionKey, Followed>>,
    /// Notified when partitions were added; only a lane with nothing to fetch waits for it.
    added: Notify,
    ended: Notify,
}

#[derive(Clone)]
struct Followed {
    partition: Arc<Partition>,
    leader_epoch: i32,
}

impl Lane {
    fn new(
        leader: i32,
        incarnation: Incarnation,
        followed: BTreeMap<PartitionKey, Followed>,
    ) -> Self {
        let followed = Mutex::new(followed);
        Self { leader, incarnation, followed, added: Notify::new(), ended: Notify::new() }
    }

    fn is_empty(&self) -> bool {
        self.followed.lock().is_empty()
    }

    /// Returns the leader epoch in which a partition is followed now.
    fn leader_epoch(&self, key: PartitionKey) -> Option<i32> {
        self.followed.lock().get(&key).map(|followed| followed.leader_epoch)
    }

    /// Stops following a partition in this leader epoch.
    fn give_up(&self, key: PartitionKey, leader_epoch: i32) {
        let mut followed = self.followed.lock();
        if followed.get(&key).is_some_and(|followed| followed.leader_epoch == leader_epoch) {
            followed.remove(&key);
        }
    }
}

impl Fetchers {
    /// Follows the leaders of a metadata version. `roles` are the local replicas that it changed.
    pub(crate) fn apply(&self, me: i32, image: &Image, roles: Vec<Role>) {
        let mut inner = self.0.lock();
        inner.replace_incarnations(image);
        if roles.is_empty() {
            return;
        }
        let mut joining: BTreeMap<i32, Vec<Role>> = BTreeMap::new();
        for role in roles {
            let key = role.partition.key;
            let following = (role.leader, role.leader_epoch);
            if role.leader == me || role.leader == NO_LEADER {
                inner.leave(key);
            } else if inner.following.get(&key) != Some(&following) {
                inner.leave(key);
                inner.following.insert(key, following);
                joining.entry(role.leader).or_default().push(role);
            }
        }
        for (leader, roles) in joining {
            inner.join(leader, image, roles);
        }
        inner.end_empty_lanes();
    }

    /// Stops following a partition.
    pub(crate) fn remove(&self, key: PartitionKey) {
        self.0.lock().leave(key);
    }

    /// Returns the lanes that need a task.
    pub(crate) fn take_new(&self) -> Vec<Arc<Lane>> {
        std::mem::take(&mut self.0.lock().new)
    }
}

impl Inner {
    fn leave(&mut self, key: PartitionKey) {
        let Some((leader, _)) = self.following.remove(&key) else { return };
        if let Some(lane) = self.lanes.get(&leader) {
            lane.followed.lock().remove(&key);
        }
    }

    fn join(&mut self, leader: i32, image: &Image, roles: Vec<Role>) {
        let lane = match self.lanes.get(&leader) {
            Some(lane) => Arc::clone(lane),
            None => self.start(Lane::new(leader, incarnation(image, leader), BTreeMap::new())),
        };
        let followed = roles.into_iter().map(|Role { partition, leader_epoch, .. }| {
            (partition.key, Followed { partition, leader_epoch })
        });
        lane.followed.lock().extend(followed);
        lane.added.notify_one();
    }

    fn start(&mut self, lane: Lane) -> Arc<Lane> {
        let lane = Arc::new(lane);
        self.lanes.insert(lane.leader, Arc::clone(&lane));
        self.new.push(Arc::clone(&lane));
        lane
    }

    fn replace_incarnations(&mut self, image: &Image) {
        let outdated: Vec<_> = self
            .lanes
            .values()
            .filter_map(|lane| {
                let now = incarnation(image, lane.leader);
                (now.is_some() && now != lane.incarnation).then(|| (Arc::clone(lane), now))
            })
            .collect();
        for (lane, now) in outdated {
            let followed = std::mem::take(&mut *lane.followed.lock());
            lane.ended.notify_one();
            self.start(Lane::new(lane.leader, now, followed));
        }
    }

    fn end_empty_lanes(&mut self) {
        let empty: BTreeSet<i32> = self
            .lanes
            .iter()
            .filter_map(|(leader, lane)| lane.is_empty().then_some(*leader))
            .collect();
        for leader in empty {
            if let Some(lane) = self.lanes.remove(&leader) {
                lane.ended.notify_one();
            }
        }
    }
}

fn incarnation(image: &Image, leader: i32) -> Incarnation {
    image.brokers.get(&leader).map(|broker| (broker.inner, broker.epoch))
}
