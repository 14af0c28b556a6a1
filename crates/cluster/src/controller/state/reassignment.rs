//! Reassignment of partitions to other brokers (KIP-455).
//!
//! The new replicas are added first and fetch from the leader like any follower. The old ones stay
//! until all others are in sync, so that no acknowledged record depends on an empty replica. Then
//! they leave together, in one change of the partition and a new leader epoch.

use curtail_wire::ErrorCode;

use super::{Refusal, State};
use crate::image::{NO_LEADER, PartitionImage, PartitionKey};

/// A requested reassignment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Assigns these replicas, the preferred leader first.
    To {
        replicas: Vec<i32>,
        /// Whether the number of replicas may change (KIP-860).
        another_number: bool,
    },
    /// Cancels the reassignment.
    Back,
}

/// A reassignment in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) topic: String,
    pub(crate) index: i32,
    pub(crate) partition: PartitionImage,
}

/// Returns the `ids` that are not among the `others`.
fn without(ids: &[i32], others: &[i32]) -> Vec<i32> {
    ids.iter().copied().filter(|id| !others.contains(id)).collect()
}

/// Ends a reassignment whose replicas are all in sync.
pub(super) fn end(p: &mut PartitionImage) {
    if !p.is_reassigned() {
        return;
    }
    let (replicas, isr) = (without(&p.replicas, &p.removing), without(&p.isr, &p.removing));
    if replicas.iter().all(|id| isr.contains(id)) {
        stay(p, replicas, isr);
    }
}

/// Sets the replicas and ends the reassignment.
fn stay(p: &mut PartitionImage, replicas: Vec<i32>, isr: Vec<i32>) {
    (p.replicas, p.isr) = (replicas.into(), isr.into());
    (p.adding, p.removing) = ([].into(), [].into());
}

/// If replicas have left, ensures that none of them leads, and starts a new leader epoch that
/// fences their requests.
pub(super) fn take_leave(
    before: &PartitionImage,
    after: &mut PartitionImage,
    live: impl Fn(i32) -> bool,
) {
    if without(&before.replicas, &after.replicas).is_empty() {
        return;
    }
    let eligible = |id: i32| after.isr.contains(&id) && live(id);
    if !eligible(after.leader) {
        let next = after.replicas.iter().copied().find(|id| eligible(*id));
        after.leader = next.unwrap_or(NO_LEADER);
    }
    after.leader_epoch = after.leader_epoch.max(before.leader_epoch + 1);
}

impl State {
    /// Starts, changes or cancels the reassignment of a partition.
    pub(in crate::controller) fn reassign(
        &mut self,
        name: &str,
        index: i32,
        to: &Move,
    ) -> Result<(), Refusal> {
        let unknown = |reason| (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, reason);
        let topic = self.image.topic(name);
        let topic =
            topic.ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
        let key = PartitionKey { topic: topic.id, index };
        let partition = self.partition(key);
        let partition = partition
            .ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
        match to {
            Move::To { replicas, another_number } => {
                self.check_move(partition, replicas, *another_number)?;
                let removing = without(&partition.replicas, replicas);
                let mut adding = partition.adding.to_vec();
                adding.extend(without(replicas, &partition.replicas));
                let replicas = [&replicas[..], &removing].concat();
                self.change_partition(key, |p| {
                    p.replicas = replicas.into();
                    (p.adding, p.removing) = (adding.into(), removing.into());
                });
            }
            Move::Back => {
                let (replicas, isr) = way_back(name, index, partition)?;
                self.change_partition(key, |p| stay(p, replicas, isr));
            }
        }
        Ok(())
    }

    fn check_move(
        &self,
        partition: &PartitionImage,
        to: &[i32],
        another_number: bool,
    ) -> Result<(), Refusal> {
        let refuse = |reason: String| Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason));
        if to.is_empty() {
            return refuse(
                "The manual partition assignment includes an empty replica list.".into(),
            );
        }
        for (id, at) in to.iter().zip(0..) {
            if !self.image.brokers.contains_key(id) {
                return refuse(format!(
                    "The manual partition assignment includes broker {id}, but no such broker is registered."
                ));
            }
            if to[..at].contains(id) {
                return refuse(format!(
                    "The manual partition assignment includes the broker {id} more than once."
                ));
            }
        }
        let there = without(&partition.replicas, &partition.adding).len();
        if !another_number && there != to.len() {
            let reason = format!("The replication factor is changed from {there} to {}", to.len());
            return Err((ErrorCode::INVALID_REPLICATION_FACTOR, reason));
        }
        Ok(())
    }

    /// Returns the reassignments in progress, of these partitions or of all. Unknown partitions are
    /// skipped.
    pub(in crate::controller) fn reassignments(
        &self,
        of: Option<&[(String, Vec<i32>)]>,
    ) -> Vec<Moving> {
        let asked = match of {
            Some(asked) => asked.to_vec(),
            None => self.all_partitions().into_iter().collect(),
        };
        let mut found = Vec::new();
        for (name, indexes) in asked {
            let Some(topic) = self.image.topic(&name) else { continue };
            for index in indexes {
                let key = PartitionKey { topic: topic.id, index };
                let partition = self.partition(key).filter(|p| p.is_reassigned());
                found.extend(partition.map(|partition| Moving {
                    topic: name.clone(),
                    index,
                    partition: partition.clone(),
                }));
            }
        }
        found
    }
}

/// Returns the replicas and the in-sync replicas without those that the reassignment adds.
fn way_back(
    name: &str,
    index: i32,
    partition: &PartitionImage,
) -> Result<(Vec<i32>, Vec<i32>), Refusal> {
    if !partition.is_reassigned() {
        let code = ErrorCode::NO_REASSIGNMENT_IN_PROGRESS;
        return Err((code, code.message().to_owned()));
    }
    let isr = without(&partition.isr, &partition.adding);
    if isr.is_empty() {
        let reason = format!(
            "Unable to revert partition assignment for {name}:{index} because it would require an unclean \
             leader election."
        );
        return Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason));
    }
    Ok((without(&partition.replicas, &partition.adding), isr))
}
