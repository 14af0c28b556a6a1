//! The append path: from a record to its partition's open batch.

use std::{sync::Arc, time::Duration};

use curtail_proto::{
    accumulator::{Placed, Readiness},
    later::Later,
    link::Ticket,
    path::Gate,
};
use curtail_wire::records::{RecordData, encoded_len_bound};
use tokio::time::Instant;

use super::{
    claim::Claim,
    delivery::Completion,
    interceptor::Interception,
    lane::Lane,
    memory::{NOWHERE, Reservation},
    partition::{Partition, PartitionState, StateGuard},
    routing,
    shared::Shared,
    topic::{Choice, TopicState},
};
use crate::{Error, Record, Result};

/// What an append needs first.
pub(super) enum Blocked {
    /// Memory for a new batch.
    Memory { size: usize, broker: i32 },
    /// Room in the broker's window.
    Window { size: usize, broker: i32, is_standing: bool, may_move: bool },
    /// The topic's metadata, or the end of the records that wait for it.
    Topic,
}

/// Origin of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// The application: admitted only while the topic is open.
    Application,
    /// The records that wait for the topic to open, since this time.
    Waiting(Instant),
}

impl Shared {
    /// Whether the window of the partition's broker admits a record.
    fn has_room(&self, state: &PartitionState) -> bool {
        let gate = state.gate().filter(|_| !state.is_parked());
        gate.is_none_or(|gate| gate.admits(|| self.age(Instant::now())))
    }

    /// The error of a call that does not wait when `buffer.memory` is full.
    pub(super) fn buffer_full(&self) -> Error {
        self.stats.buffer_exhausted.add(1);
        Error::BufferFull { waited: Duration::ZERO }
    }

    /// The append path. With a reservation, memory does not block it; an unused reservation is returned.
    pub(super) fn append<C: Claim>(
        &self,
        record: &Record<'_>,
        claim: C,
        mut memory: Option<Reservation>,
        entrance: Entrance,
    ) -> Result<std::result::Result<C::Receipt, Blocked>> {
        let shared = self;
        let topics = shared.topics.load();
        let Some(topic) = topics.get(record.topic) else { return Ok(Err(Blocked::Topic)) };
        if !topic.door.enter() && entrance == Entrance::Application {
            return Ok(Err(Blocked::Topic));
        }
        let (mut partition, choice) = topic.pick(record, &shared.config)?;
        let data = RecordData {
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp.unwrap_or_else(|| shared.env.wall.now_ms()),
        };
        let size = encoded_len_bound(&data);
        if size > shared.config.max_request_size {
            return Err(Error::RecordTooLarge { size, limit: shared.config.max_request_size });
        }
        // A caller that has waited has its room. Records that wait for their topic were accepted before.
        let needs_room = memory.is_none() && entrance == Entrance::Application;
        let mut tries = if choice == Choice::Sticky { routing::TRIES } else { 0 };
        let mut passed = routing::Passed::default();
        let ends = topic.kept.ends();
        loop {
            let may_leave = tries > 0;
            let target = Target { topic, partition, choice, may_leave, entrance, needs_room };
            match target.append(shared, &data, claim, size, &mut memory) {
                Ok(receipt) => {
                    if choice == Choice::Sticky && tries == 0 {
                        routing::keep(shared, topic, partition, ends);
                    }
                    return Ok(Ok(receipt));
                }
                Err(Refused::Blocked(blocked)) => return Ok(Err(blocked)),
                Err(Refused::BetterElsewhere)
                    if routing::leave(shared, topic, partition, &mut passed) =>
                {
                    tries = tries.saturating_sub(1);
                }
                Err(Refused::BetterElsewhere) => tries = 0,
                Err(Refused::MovedOn) => tries = tries.saturating_sub(1),
            }
            let current = topic.current().get(topic.sticky.current() as usize);
            if let Some(current) = current.filter(|_| choice == Choice::Sticky) {
                partition = current;
            }
        }
    }
}

/// Why a partition did not take a record.
enum Refused {
    Blocked(Blocked),
    /// Another partition is better.
    BetterElsewhere,
    /// It is the turn of another partition.
    MovedOn,
}

/// Target of an append.
struct Target<'a> {
    topic: &'a TopicState,
    partition: &'a Arc<Partition>,
    choice: Choice,
    /// Whether another partition is acceptable.
    may_leave: bool,
    entrance: Entrance,
    /// Whether the record must find room in the window of the partition's broker.
    needs_room: bool,
}

impl Target<'_> {
    fn append<C: Claim>(
        &self,
        shared: &Shared,
        data: &RecordData<'_>,
        claim: C,
        size: usize,
        memory: &mut Option<Reservation>,
    ) -> std::result::Result<C::Receipt, Refused> {
        let partition = self.partition;
        let mut guard = partition.state.lock();
        let state = &mut *guard;
        // Read under the lock: a task that marks a partition moves the records that were appended before.
        let around = self.may_leave && shared.routing.policy.around_trouble;
        if around && routing::avoids(shared, self.topic, partition, state) {
            return Err(Refused::BetterElsewhere);
        }
        if self.needs_room && !shared.has_room(state) {
            return Err(self.finds_no_room(shared, guard, size));
        }
        let is_parked = state.is_parked();
        let placed = match state.queue.try_append(&shared.policy, data) {
            Some(placed) => placed,
            None => {
                let now = Instant::now();
                if self.may_leave && routing::is_slow(shared, self.topic, state, now) {
                    return Err(Refused::BetterElsewhere);
                }
                let bytes = self.topic.compressed(u32::try_from(size).unwrap_or(u32::MAX));
                if self.may_leave && self.ends_turn(shared, state, data, bytes) {
                    self.end_turn(shared, guard, bytes);
                    return Err(Refused::MovedOn);
                }
                self.place(shared, state, data, (size, now), memory)?
            }
        };
        placed.completion.joined(data.timestamp, placed.bytes);
        if is_parked && placed.index == 0 {
            placed.completion.set_parked(true);
        }
        let receipt = claim.joined(placed.completion, placed.index, data.timestamp);
        let (bytes, readiness, is_complete) =
            (placed.bytes as u32, placed.readiness, placed.is_complete);
        let waits_for_leader = placed.index == 0 && state.lane.is_none();
        if self.choice == Choice::Fixed {
            state.queue.bind();
        }
        if let Entrance::Waiting(since) = self.entrance {
            state.queue.backdate(since.into_std());
            let expires = since.later(shared.config.delivery_timeout).into_std();
            shared.deadlines.announce(expires, state);
        }
        // An incomplete batch would linger, even behind complete ones. A complete one that cannot leave may grow
        // (decision 0100).
        let batch_leaves = is_complete && !state.is_blocked();
        let handover = hand_over(state, readiness);
        drop(guard);

        if waits_for_leader {
            // The metadata may lack the partition: a lagging broker may have sent it.
            shared.metadata.request_refresh(Some(&partition.topic));
        }
        if let Some((lane, ticket)) = handover {
            lane.submit(partition, ticket, readiness);
        }
        if self.choice == Choice::Sticky {
            let index = partition.index as u32;
            let next = |probe_due| routing::next(shared, self.topic, probe_due);
            self.topic.sticky.sent(index, self.topic.compressed(bytes), batch_leaves, next);
        }
        Ok(receipt)
    }

    /// The window of the partition's broker is full.
    fn finds_no_room(&self, shared: &Shared, state: StateGuard<'_>, size: usize) -> Refused {
        if self.may_leave && routing::admits(shared, self.topic) {
            return Refused::BetterElsewhere;
        }
        let is_standing = state.gate().is_some_and(Gate::is_standing);
        let (broker, lane) = (state.account(), state.lane.clone());
        drop(state);
        if let Some(lane) = lane {
            lane.hurry();
        }
        let may_move = self.choice == Choice::Sticky;
        Refused::Blocked(Blocked::Window { size, broker, is_standing, may_move })
    }

    /// Whether a record that fits no open batch goes to another partition: this one has had its share, and its batch
    /// does not grow.
    fn ends_turn(
        &self,
        shared: &Shared,
        state: &PartitionState,
        data: &RecordData<'_>,
        bytes: u32,
    ) -> bool {
        self.topic.sticky.ends_before(self.partition.index as u32, bytes)
            && state.queue.growth(&shared.policy, data, state.is_blocked()).is_none()
    }

    /// Sends the open batch and moves the choice on.
    fn end_turn(&self, shared: &Shared, mut state: StateGuard<'_>, bytes: u32) {
        state.queue.seal_now(&shared.policy);
        let is_ready = !state.queue.is_drained();
        let lane = if is_ready { hand_over(&mut state, Readiness::Now) } else { None };
        drop(state);
        if let Some((lane, ticket)) = lane {
            lane.submit(self.partition, ticket, Readiness::Now);
        }
        let next = |probe_due| routing::next(shared, self.topic, probe_due);
        self.topic.sticky.end(self.partition.index as u32, bytes, next);
    }

    /// Makes room for the record: in the open batch, or in a new one.
    fn place<'s>(
        &self,
        shared: &Shared,
        state: &'s mut PartitionState,
        data: &RecordData<'_>,
        (size, now): (usize, Instant),
        memory: &mut Option<Reservation>,
    ) -> std::result::Result<Placed<'s, Completion>, Refused> {
        let broker = state.account();
        if grow(shared, state, data).is_none() {
            let memory = self.memory_for(shared, broker, size, memory)?;
            let interception = shared.outcomes.clone().map(Interception::new);
            let result = state.new_result(self.partition, &shared.awake);
            let completion = Completion::new(result, memory, interception);
            let buffer = shared.memory.buffer();
            let (ratio, now) = (self.topic.ratio.clone(), now.into_std());
            return Ok(state.queue.open(&shared.policy, data, buffer, completion, ratio, now));
        }
        // The batch has just grown for it.
        state.queue.try_append(&shared.policy, data).ok_or(Refused::BetterElsewhere)
    }

    /// Returns memory for a new batch: the caller's reservation, or free memory.
    fn memory_for(
        &self,
        shared: &Shared,
        broker: i32,
        size: usize,
        reserved: &mut Option<Reservation>,
    ) -> std::result::Result<Reservation, Refused> {
        if let Some(mut memory) = reserved.take() {
            memory.charge_to(broker);
            memory.begin_batch();
            return Ok(memory);
        }
        match (shared.memory.try_reserve(broker, size), self.choice) {
            (Some(memory), _) => Ok(memory),
            (None, _) if self.may_leave => Err(Refused::BetterElsewhere),
            // The first broker with free memory will do.
            (None, Choice::Sticky) => {
                Err(Refused::Blocked(Blocked::Memory { size, broker: NOWHERE }))
            }
            (None, Choice::Fixed) => Err(Refused::Blocked(Blocked::Memory { size, broker })),
        }
    }
}

/// Takes the partition's seat for a batch. Returns the lane and the ticket if the partition must be queued there.
fn hand_over(state: &mut PartitionState, readiness: Readiness) -> Option<(Arc<Lane>, Ticket)> {
    state.step_aside();
    let lane = state.lane.as_ref()?;
    state.seat.take(readiness).map(|ticket| (lane.clone(), ticket))
}

/// Makes room in the open batch, if it waits anyway and there is memory.
fn grow(shared: &Shared, state: &mut PartitionState, record: &RecordData<'_>) -> Option<()> {
    let growth = state.queue.growth(&shared.policy, record, state.is_blocked())?;
    let memory = shared.memory.try_reserve_exactly(state.account(), growth.more)?;
    let (former, completion) = state.queue.grow(growth, shared.memory.buffer_of(growth.room))?;
    completion.hold(memory);
    shared.memory.keep(former);
    Some(())
}
