//! Content of a request: a batch of each ready partition.

use std::{sync::Arc, time::Instant as StdInstant};

use curtail_proto::{
    accumulator::{Batch, BatchPolicy, Branch, Incarnation, Readiness, Share, Take, Target},
    link::Permit,
};
use curtail_wire::Uuid;
use tokio::time::Instant;

use super::{Lane, LaneLink, Sent};
use crate::producer::{
    delivery::Completion,
    partition::{Partition, PartitionState},
    shared::Shared,
    worklist::{Effect, Effects},
};

/// The reason why a partition has nothing to send now.
enum Wait {
    Until(StdInstant),
    /// A new producer id, because the epochs of this one are exhausted.
    ForAnotherId(i64),
    /// Records, an outcome, or the producer's identity: the task that provides it submits the partition again.
    ForNews,
}

impl Lane {
    /// Takes one batch from each ready partition, as far as the permit goes.
    ///
    /// A partition's lock is held from the check of its seat until its seat is settled. Otherwise it could move to
    /// another lane in between.
    pub(super) fn collect(
        &self,
        link: &mut LaneLink,
        shared: &Shared,
        mut permit: Permit,
        now: StdInstant,
        effects: &mut Effects,
    ) -> Vec<Sent> {
        let mut batches = Vec::new();
        let topics = shared.topics.load();
        let policy = if self.gate.is_full() { &shared.at_once } else { &shared.policy };
        while let Some(entry) = link.next_ready(&mut permit) {
            let partition = &entry.partition;
            let mut state = partition.state.lock();
            if !state.seat.holds(entry.ticket) {
                continue;
            }
            if state.queue.is_next_overdue(&shared.policy, now) {
                state.seat.leave();
                drop(state);
                effects.push(Effect::Expire(entry.partition));
                continue;
            }
            if !permit.admits(state.queue.next_len()) {
                drop(state);
                link.put_back(entry);
                break;
            }
            let topic = topics.get(&*partition.topic).map(|topic| topic.form);
            let topic_id = topic.map_or(Uuid::ZERO, |topic| topic.id);
            let incarnation = topic.map_or(Incarnation::FIRST, |topic| topic.incarnation);
            // Topic id and incarnation come from one table: the queue must know which topic the request names.
            let target = Target { broker: self.broker, branch: self.branch, incarnation };
            match next_batch(shared, policy, partition, &mut state, (target, now), effects) {
                Ok(mut batch) => {
                    if state.is_parked() && self.branch == Branch::Main {
                        state.set_parked(false);
                        batch.completion.set_parked(false);
                    }
                    permit.add(batch.payload().len());
                    state.sends(shared.age(Instant::from_std(batch.created)));
                    let leader = state.leader;
                    let has_more = !state.queue.is_drained();
                    if !has_more {
                        state.seat.leave();
                    }
                    drop(state);
                    if has_more {
                        link.handle_work(entry.clone(), Readiness::Now);
                    }
                    let (stats, partition) = (self.stats.clone(), entry.partition);
                    batches.push(Sent { stats, partition, batch, topic_id, leader });
                }
                Err(Wait::Until(at)) => {
                    state.seat.is_put_off();
                    drop(state);
                    link.handle_work(entry, Readiness::At(at));
                }
                Err(Wait::ForAnotherId(spent)) => {
                    state.seat.leave();
                    effects.push(Effect::AnotherId(spent));
                }
                Err(Wait::ForNews) => state.seat.leave(),
            }
        }
        // The request groups partitions by topic.
        batches.sort_by(|a: &Sent, b: &Sent| {
            (&a.partition.topic, a.partition.index).cmp(&(&b.partition.topic, b.partition.index))
        });
        batches
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
    effects: &mut Effects,
) -> Result<Batch<Completion>, Wait> {
    let idempotence = shared.identity.stamps(partition, state);
    let mut is_trial = shared.routing.policy.leaves_trials(partition);
    loop {
        return match state.queue.take(policy, idempotence, to, now) {
            Take::Trial(batch, parts) => {
                let shares: Vec<Share> = parts.shares().collect();
                state.queue.put_back(batch, parts, |completion| {
                    let (completions, whole) = completion.divide(&shares);
                    effects.push(Effect::Divided(whole));
                    completions
                });
                is_trial = true;
                continue;
            }
            Take::Batch(batch) => {
                if is_trial && !state.queue.is_drained() {
                    effects.push(Effect::Trial(partition.clone()));
                }
                Ok(batch)
            }
            Take::At(at) => Err(Wait::Until(at)),
            Take::AfterAnotherId(spent) => Err(Wait::ForAnotherId(spent)),
            Take::Empty | Take::AfterOutcome | Take::AfterIdentity => Err(Wait::ForNews),
        };
    }
}
