//! Records for topics whose metadata is unknown so far.
//!
//! [`super::Producer::try_send`] queues a record here if its topic is unknown. A task per topic fetches the metadata
//! and appends the queued records in order. The topic stays closed until the last of them is appended, so that no
//! later record overtakes them. Queued records hold at most half of `buffer.memory`, and wait no longer than
//! `max.block.ms`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use curtail_proto::later::Later;
use curtail_wire::records::{Header, RecordData, encoded_len_bound};
use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::Instant};

use super::{
    append::{Blocked, Entrance},
    claim::{Claim, Waited},
    delivery::{Delivery, Placement, Ticket},
    interceptor::{Failed, Outcome},
    memory::{ENDED, Reservation, WAITING_ROOM, Wanted},
    shared::Shared,
};
use crate::{Error, Record, Result};

/// Bytes of `buffer.memory` that a failure holds until its sink's receiver has taken it.
const FAILURE: usize = 256;

/// The waiting records of all topics.
#[derive(Default)]
pub(super) struct WaitingRoom {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    topics: BTreeMap<Arc<str>, Queue>,
    bytes: usize,
    closed: bool,
}

struct Queue {
    records: VecDeque<Waiting>,
    /// The record taken out last. Its batch may have to wait for memory, and no queue of a partition has it until then.
    placing: Option<Arc<Ticket>>,
    task: AbortHandle,
}

/// A waiting record.
struct Waiting {
    record: Owned,
    placement: Placement,
    since: Instant,
    deadline: Instant,
    bytes: usize,
    _memory: Reservation,
}

/// An owned copy of a record.
struct Owned {
    partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: i64,
}

impl Owned {
    fn new(record: &Record<'_>, timestamp: i64) -> Self {
        let header = |h: &Header<'_>| (h.key.to_owned(), h.value.map(<[u8]>::to_vec));
        Self {
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(header).collect(),
            timestamp,
        }
    }
}

impl Shared {
    /// Queues a record until its topic's metadata arrives. `None` if it has arrived in the meantime.
    pub(super) fn keep_waiting<C: Claim>(
        self: &Arc<Self>,
        record: &Record<'_>,
        claim: C,
    ) -> Result<Option<C::Receipt>> {
        self.runtime.check()?;
        let snapshot = self.metadata.snapshot();
        if let Some(known) = snapshot.topic(record.topic) {
            self.adopt(known)?;
        }
        if self.config.transactional_id.is_some() && self.open_topic(record.topic).is_none() {
            // The record would be appended later, possibly in another transaction.
            self.metadata.request_refresh(Some(record.topic));
            return Err(Error::IllegalState(
                "the topic's metadata has not arrived yet; call warm_up first, or send, which waits",
            ));
        }
        let timestamp = record.timestamp.unwrap_or_else(|| self.env.wall.now_ms());
        let (key, value, headers) = (record.key, record.value, record.headers);
        let size = encoded_len_bound(&RecordData { key, value, headers, timestamp });
        if size > self.config.max_request_size {
            return Err(Error::RecordTooLarge { size, limit: self.config.max_request_size });
        }
        let mut room = self.room.inner.lock();
        if room.closed {
            return Err(Error::Closed);
        }
        if self.open_topic(record.topic).is_some() {
            return Ok(None);
        }
        let room_left = self.room_limit().saturating_sub(room.bytes);
        let memory = (size <= room_left)
            .then(|| self.memory.try_reserve_exactly(WAITING_ROOM, size))
            .flatten();
        let Some(memory) = memory else { return Err(self.buffer_full()) };
        let (placement, receipt) = claim.waits(record.topic.into(), record.partition.unwrap_or(-1));
        let limit = self.config.max_block.min(self.config.delivery_timeout);
        let since = Instant::now();
        let waiting = Waiting {
            record: Owned::new(record, timestamp),
            placement,
            since,
            deadline: since.later(limit),
            bytes: size,
            _memory: memory,
        };
        room.bytes += size;
        match room.topics.get_mut(record.topic) {
            Some(queue) => queue.records.push_back(waiting),
            None => {
                let name: Arc<str> = record.topic.into();
                let task = self.runtime.spawn(serve(self.clone(), name.clone())).abort_handle();
                let records = VecDeque::from([waiting]);
                room.topics.insert(name, Queue { records, placing: None, task });
            }
        }
        Ok(Some(receipt))
    }

    /// Limit for waiting records: half of `buffer.memory`, and little enough that the first one's batch still fits.
    fn room_limit(&self) -> usize {
        let total = self.config.buffer_memory;
        (total / 2).min(total.saturating_sub(self.config.batch_size))
    }

    /// Fails a waiting record, after its interceptors.
    fn turn_away(&self, placement: Placement, cause: Error) {
        let error = placement.error(cause);
        let memory = placement.tag().and_then(|_| self.memory.try_reserve_exactly(ENDED, FAILURE));
        let failed = Failed { placement, error, memory };
        match &self.outcomes {
            // If the receiver is gone, the outcome is dropped, which reports it.
            Some(outcomes) => outcomes.send(Outcome::Record(Some(failed))),
            None => failed.report(),
        }
    }

    /// Fails all waiting and all later records with [`Error::Closed`].
    pub(super) fn close_room(&self) {
        let mut room = self.room.inner.lock();
        room.closed = true;
        let topics = std::mem::take(&mut room.topics);
        drop(room);
        for queue in topics.into_values() {
            queue.task.abort();
            for waiting in queue.records {
                self.turn_away(waiting.placement, Error::Closed);
            }
        }
    }
}

impl WaitingRoom {
    /// Runs `open` with whether records of the topic wait. That cannot change while it runs.
    pub(super) fn while_still<T>(&self, topic: &str, open: impl FnOnce(bool) -> T) -> T {
        let room = self.inner.lock();
        open(room.topics.contains_key(topic))
    }

    /// Whether records of the topic wait.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.inner.lock().topics.contains_key(topic)
    }

    /// Tickets of all records that are in no batch yet, for flush.
    pub(super) fn tickets(&self) -> Vec<Arc<Ticket>> {
        let room = self.inner.lock();
        let of_queue = |queue: &Queue| {
            let waiting = queue.records.iter().map(|waiting| waiting.placement.ticket().clone());
            queue.placing.iter().cloned().chain(waiting).collect::<Vec<_>>()
        };
        room.topics.values().flat_map(of_queue).collect()
    }

    fn first_deadline(&self, topic: &str) -> Option<Instant> {
        let room = self.inner.lock();
        room.topics.get(topic)?.records.front().map(|waiting| waiting.deadline)
    }

    /// Takes the topic's first record. If there is none, runs `open` before another can arrive.
    fn next(&self, topic: &str, open: impl FnOnce()) -> Option<Waiting> {
        let mut room = self.inner.lock();
        let next = room.topics.get_mut(topic).and_then(|queue| {
            let next = queue.records.pop_front()?;
            queue.placing = Some(next.placement.ticket().clone());
            Some(next)
        });
        match &next {
            Some(waiting) => room.bytes -= waiting.bytes,
            None => {
                room.topics.remove(topic);
                open();
            }
        }
        next
    }

    /// Takes the records that have failed: the overdue ones, or all after a permanent error.
    fn take_failed(&self, topic: &str) -> Vec<Waiting> {
        let now = Instant::now();
        let mut failed = Vec::new();
        let mut room = self.inner.lock();
        if let Some(queue) = room.topics.get_mut(topic) {
            // Before the first deadline only a permanent error can be the cause.
            let all = queue.records.front().is_some_and(|first| first.deadline > now);
            while queue.records.front().is_some_and(|first| all || first.deadline <= now) {
                failed.extend(queue.records.pop_front());
            }
        }
        room.bytes -= failed.iter().map(|waiting| waiting.bytes).sum::<usize>();
        failed
    }
}

/// Fetches the topic's metadata and appends its waiting records. Ends when none waits any longer.
async fn serve(shared: Arc<Shared>, topic: Arc<str>) {
    while let Some(deadline) = shared.room.first_deadline(&topic) {
        let known = shared.metadata.topic(&topic, deadline).await;
        match known.and_then(|known| shared.adopt(&known)) {
            Ok(_) => break,
            Err(error) => {
                for waiting in shared.room.take_failed(&topic) {
                    shared.turn_away(waiting.placement, error.clone());
                }
            }
        }
    }
    while let Some(waiting) = shared.room.next(&topic, || shared.open(&topic)) {
        let Waiting { record, placement, since, deadline, _memory: memory, .. } = waiting;
        // The batch reserves its own memory.
        drop(memory);
        let claim = Waited(placement.tag());
        match append(&shared, &topic, &record, claim, since, deadline).await {
            Ok(delivery) => placement.placed(&delivery),
            Err(error) => shared.turn_away(placement, error),
        }
    }
}

async fn append(
    shared: &Arc<Shared>,
    topic: &str,
    owned: &Owned,
    claim: Waited<'_>,
    since: Instant,
    deadline: Instant,
) -> Result<Delivery> {
    let headers: Vec<Header<'_>> =
        owned.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
    let record = Record {
        topic,
        partition: owned.partition,
        key: owned.key.as_deref(),
        value: owned.value.as_deref(),
        headers: &headers,
        timestamp: Some(owned.timestamp),
    };
    let mut memory = None;
    loop {
        match shared.append(&record, claim, memory.take(), Entrance::Waiting(since))? {
            Ok(delivery) => return Ok(delivery),
            Err(Blocked::Memory { size, broker } | Blocked::Window { size, broker, .. }) => {
                let max_block = shared.config.max_block;
                let wanted = Wanted { broker, size, for_window: false, deadline, max_block };
                memory = shared.memory.reserve(wanted, || false).await?;
            }
            Err(Blocked::Topic) => return Err(Error::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::memory::Memory;
    use super::*;

    const NAME: &str = "later";

    fn waiting(memory: &Memory) -> Waiting {
        let since = Instant::now();
        Waiting {
            record: Owned::new(&Record::to(NAME).value("v"), 0),
            placement: Placement::new(NAME.into(), -1, None),
            since,
            deadline: since + Duration::from_secs(1),
            bytes: 100,
            _memory: memory.try_reserve_exactly(WAITING_ROOM, 100).expect("there is memory"),
        }
    }

    #[tokio::test]
    async fn flush_waits_for_a_record_whose_batch_waits_for_memory() {
        let memory = Memory::new(1 << 20, 1 << 10, 1 << 10, 100, Instant::now());
        let room = WaitingRoom::default();
        let records = VecDeque::from([waiting(&memory), waiting(&memory)]);
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let mut inner = room.inner.lock();
        inner.bytes = 200;
        inner.topics.insert(NAME.into(), Queue { records, placing: None, task });
        drop(inner);

        let first = room.next(NAME, || ()).expect("the first record");
        assert_eq!(room.tickets().len(), 2, "the first record is in no batch yet");
        let error = first.placement.error(Error::Closed);
        first.placement.fail(error, None);
        let second = room.next(NAME, || ()).expect("the second record");
        let tickets = room.tickets();
        assert_eq!(tickets.len(), 1);
        assert!(Arc::ptr_eq(&tickets[0], second.placement.ticket()));
        let error = second.placement.error(Error::Closed);
        second.placement.fail(error, None);
        assert!(room.next(NAME, || ()).is_none());
        assert!(room.tickets().is_empty());
    }
}
