//! Content of a request: a batch of each ready partition.

use std::{sync::Arc, time::Instant as StdInstant};

use curtail_proto::accumulator::{Batch, BatchPolicy, Incarnation, Share, Take, Target};
use curtail_wire::Uuid;
use tokio::time::Instant;

use super::{Lane, Sent};
use crate::producer::{
    delivery::{Completion, Divided},
    partition::{Partition, PartitionState, Place},
    shared::Shared,
    turnstile::Work,
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

/// What a request can expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prospect {
    /// A response in the usual time.
    #[default]
    Fair,
    /// None before the replicas change: all its batches get stuck ([`PartitionState::gets_stuck`]). Kafka
    /// responds to a request for all its partitions at once, so no other batch should share it.
    Stuck,
}

impl Prospect {
    fn other(self) -> Self {
        match self {
            Self::Fair => Self::Stuck,
            Self::Stuck => Self::Fair,
        }
    }

    fn of(state: &PartitionState) -> Self {
        if state.gets_stuck() { Self::Stuck } else { Self::Fair }
    }
}

/// The content of one request, and the work to do after the locks are released.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) batches: Vec<Sent>,
    pub(super) prospect: Prospect,
    /// The prospect of the next request: both have their turns.
    pub(super) next: Prospect,
    /// The rest of each batch whose first record tries a leader; it moves elsewhere if possible.
    pub(super) trials: Vec<Trial>,
    /// Skipped partitions whose next batch must be expired.
    pub(super) overdue: Vec<Arc<Partition>>,
}

/// One call of [`Lane::collect`].
struct Turn {
    at: StdInstant,
    /// Most bytes of the request.
    most: usize,
    /// See [`Shared::next_turn`].
    number: u64,
}

impl Lane {
    /// Takes one batch from each ready partition with this prospect, up to `most` bytes; with the other one if there is
    /// none.
    pub(super) fn collect(
        self: &Arc<Self>,
        shared: &Shared,
        now: StdInstant,
        most: usize,
        first: Prospect,
    ) -> Collected {
        let mut collected = Collected::default();
        let turn = Turn { at: now, most, number: shared.next_turn() };
        let mut work = self.turnstile.work();
        work.promote(self, now);
        for prospect in [first, first.other()] {
            collected.prospect = prospect;
            let others = self.take_ready(&mut work, shared, &turn, &mut collected);
            collected.next = if others > 0 { prospect.other() } else { Prospect::Fair };
            let has_work = !collected.batches.is_empty() || !collected.overdue.is_empty();
            if has_work || others == 0 {
                break;
            }
        }
        drop(work);
        // The request groups partitions by topic.
        collected.batches.sort_by(|a, b| {
            (&a.partition.topic, a.partition.index).cmp(&(&b.partition.topic, b.partition.index))
        });
        collected
    }

    /// Takes the batches of the request's prospect. Returns the number of partitions whose batches have another one.
    ///
    /// A partition's lock is held from the check of its place until its place is settled. Otherwise it could move to
    /// another lane in between. Work that must not run under these locks is left to the caller.
    fn take_ready(
        self: &Arc<Self>,
        work: &mut Work<Arc<Partition>>,
        shared: &Shared,
        turn: &Turn,
        collected: &mut Collected,
    ) -> usize {
        let topics = shared.topics.load();
        let policy = if self.gate.is_full() { &shared.at_once } else { &shared.policy };
        let (mut bytes, mut others) = (0, 0);
        // A partition that stays ready goes to the end of the list, so each is visited once.
        for _ in 0..work.ready.len() {
            let Some(partition) = work.ready.pop_front() else { break };
            let mut state = partition.state.lock();
            if !state.is_in(self, Place::Ready) {
                continue;
            }
            if state.queue.is_next_overdue(&shared.policy, turn.at) {
                // The partition stays ready, for the batches after the overdue one.
                drop(state);
                work.ready.push_back(partition.clone());
                collected.overdue.push(partition);
                continue;
            }
            // A partition that left the lane and came back has two entries. A request carries one batch per
            // partition, because a response names only the partition. If the partition has more batches, it has
            // another entry further back.
            if state.was_taken_in(turn.number) {
                continue;
            }
            if Prospect::of(&state) != collected.prospect {
                drop(state);
                work.ready.push_back(partition);
                others += 1;
                continue;
            }
            let full = bytes + state.queue.next_len() > turn.most;
            if full && !collected.batches.is_empty() {
                drop(state);
                work.ready.push_front(partition);
                break;
            }
            let topic = topics.get(&*partition.topic).map(|topic| topic.form);
            let topic_id = topic.map_or(Uuid::ZERO, |topic| topic.id);
            let incarnation = topic.map_or(Incarnation::FIRST, |topic| topic.incarnation);
            // Topic id and incarnation come from one table: the queue must know which topic the request names.
            let to = (Target { broker: self.broker, incarnation }, turn.at);
            match next_batch(shared, policy, &partition, &mut state, to, &mut collected.trials) {
                Ok(mut batch) => {
                    if state.is_parked() {
                        state.set_parked(false);
                        batch.completion.set_parked(false);
                    }
                    bytes += batch.payload().len();
                    state.sends(shared.age(Instant::from_std(batch.created)));
                    let more = !state.queue.is_drained();
                    let leader = state.leader;
                    state.taken(turn.number);
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
        others
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
