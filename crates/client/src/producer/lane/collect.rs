//! Content of a request: a batch of each ready partition.

use std::{sync::Arc, time::Instant as StdInstant};

use curtail_proto::accumulator::{Batch, BatchPolicy, Branch, Incarnation, Share, Take, Target};
use curtail_wire::Uuid;
use tokio::time::Instant;

use super::{Lane, Sent};
use crate::producer::{
    delivery::{Completion, Divided},
    partition::{Partition, PartitionState, Place},
    shared::Shared,
};

/// The reason why a partition has nothing to send now.
enum Wait {
    Until(StdInstant),
    /// A new producer id, because the epochs of this one are exhausted.
    ForAnotherId(i64),
    /// Records, an outcome, or the producer's identity: the task that provides it submits the partition again.
    ForNews,
}

/// A batch whose first record tries a leader.
pub(super) struct Trial {
    pub(super) partition: Arc<Partition>,
    pub(super) whole: Divided,
}

/// The content of one request, and the work to do after the locks are released.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) batches: Vec<Sent>,
    /// The rest of each batch whose first record tries a leader; it moves elsewhere if possible.
    pub(super) trials: Vec<Trial>,
    /// Skipped partitions whose next batch must be expired.
    pub(super) overdue: Vec<Arc<Partition>>,
}

impl Lane {
    /// Takes one batch from each ready partition, up to `most` bytes.
    ///
    /// A partition's lock is held from the check of its place until its place is settled. Otherwise it could move to
    /// another lane in between. Work that must not run under these locks is left to the caller.
    pub(super) fn collect(
        self: &Arc<Self>,
        shared: &Shared,
        now: StdInstant,
        most: usize,
    ) -> Collected {
        let mut collected = Collected::default();
        let turn = shared.next_turn();
        let mut work = self.turnstile.work();
        work.promote(self, now);
        let topics = shared.topics.load();
        let policy = if self.gate.is_full() { &shared.at_once } else { &shared.policy };
        let mut bytes = 0;
        // A partition that stays ready goes to the end of the list, so each is visited once.
        for _ in 0..work.ready.len() {
            let Some(partition) = work.ready.pop_front() else { break };
            let mut state = partition.state.lock();
            if !state.is_in(self, Place::Ready) {
                continue;
            }
            if state.queue.is_next_overdue(&shared.policy, now) {
                // The partition stays ready, for the batches after the overdue one.
                drop(state);
                work.ready.push_back(partition.clone());
                collected.overdue.push(partition);
                continue;
            }
            // A partition that left the lane and came back has two entries. A request carries one batch per
            // partition, because a response names only the partition. If the partition has more batches, it has
            // another entry further back.
            if state.was_taken_in(turn) {
                continue;
            }
            let full = bytes + state.queue.next_len() > most;
            if full && !collected.batches.is_empty() {
                drop(state);
                work.ready.push_front(partition);
                break;
            }
            let topic = topics.get(&*partition.topic).map(|topic| topic.form);
            let topic_id = topic.map_or(Uuid::ZERO, |topic| topic.id);
            let incarnation = topic.map_or(Incarnation::FIRST, |topic| topic.incarnation);
            // Topic id and incarnation come from one table: the queue must know which topic the request names.
            let target = Target { broker: self.broker, branch: self.branch, incarnation };
            let to = (target, now);
            match next_batch(shared, policy, &partition, &mut state, to, &mut collected.trials) {
                Ok(mut batch) => {
                    if state.is_parked() && self.branch == Branch::Main {
                        state.set_parked(false);
                        batch.completion.set_parked(false);
                    }
                    bytes += batch.payload().len();
                    state.sends(shared.age(Instant::from_std(batch.created)));
                    let more = !state.queue.is_drained();
                    let leader = state.leader;
                    state.taken(turn);
                    state.place = if more { Place::Ready } else { Place::Idle };
                    drop(state);
                    if more {
                        work.ready.push_back(partition.clone());
                    }
                    let stats = self.stats.clone();
                    collected.batches.push(Sent { stats, partition, batch, topic_id, leader });
                }
                Err(Wait::Until(at)) => {
                    state.place = Place::Timed;
                    drop(state);
                    work.add_timed(at, partition);
                }
                Err(Wait::ForAnotherId(spent)) => {
                    state.place = Place::Idle;
                    drop(state);
                    shared.ask_for_another_id(spent);
                }
                Err(Wait::ForNews) => state.place = Place::Idle,
            }
        }
        drop(work);
        // The request groups partitions by topic.
        collected.batches.sort_by(|a, b| {
            (&a.partition.topic, a.partition.index).cmp(&(&b.partition.topic, b.partition.index))
        });
        collected
    }
}

/// Returns the next batch of a partition, or the reason to wait. A batch that tries a leader is reduced to its first
/// record.
fn next_batch(
    shared: &Shared,
    policy: &BatchPolicy,
    partition: &Arc<Partition>,
    state: &mut PartitionState,
    (to, now): (Target, StdInstant),
    trials: &mut Vec<Trial>,
) -> Result<Batch<Completion>, Wait> {
    let idempotence = shared.identity.stamps(partition, state);
    loop {
        return match state.queue.take(policy, idempotence, to, now) {
            Take::Trial(batch, parts) => {
                let shares: Vec<Share> = parts.shares().collect();
                state.queue.put_back(batch, parts, |completion| {
                    let (completions, whole) = completion.divide(&shares);
                    trials.push(Trial { partition: partition.clone(), whole });
                    completions
                });
                continue;
            }
            Take::Batch(batch) => Ok(batch),
            Take::At(at) => Err(Wait::Until(at)),
            Take::AfterAnotherId(spent) => Err(Wait::ForAnotherId(spent)),
            Take::Empty | Take::AfterOutcome | Take::AfterIdentity => Err(Wait::ForNews),
        };
    }
}
