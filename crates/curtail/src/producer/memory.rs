//! `buffer.memory`: a budget in bytes, reserved per batch, and reuse of the buffers. Also the brokers' windows, which
//! count the bytes of the records.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use curtail_proto::{
    budget::{Budget, Ticket},
    later::Later,
    path::Gate,
};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use crate::{Error, Result};

/// Account of records whose partition has no leader or is not chosen yet.
pub(super) const NOWHERE: i32 = Budget::<Waiter>::NOWHERE;

/// Account of records whose topic is unknown so far.
pub(super) const WAITING_ROOM: i32 = Budget::<Waiter>::WAITING_ROOM;

/// Account of batches whose outcome the application has not taken yet.
pub(super) const ENDED: i32 = Budget::<Waiter>::ENDED;

/// Bytes of records that are charged to a broker's gate at a time, so that small batches do not write to a shared
/// cache line.
const STEP: usize = 1 << 10;

/// Least time between two looks of a waiter at the window.
const LOOK: Duration = Duration::from_millis(10);

/// Waiters that look within one [`LOOK`]. If more wait, they take turns: the looks of any number of waiters cost at
/// most a part of one CPU's time.
const LOOKERS: usize = 1000;

/// Returns how many times [`LOOK`] a waiter waits for its next look. A look serves all waiters of the broker, so it
/// does not matter which of them looks.
fn turns_until_look(waiting: usize, number: u64, is_first: bool) -> u32 {
    let groups = (1 + waiting / LOOKERS) as u64;
    let turns = if is_first { 1 + number % groups } else { groups };
    u32::try_from(turns).unwrap_or(u32::MAX)
}

/// A waiting caller.
#[derive(Debug)]
struct Waiter {
    tell: oneshot::Sender<Reservation>,
    /// Bytes of its record.
    record: usize,
    /// Whether it waits for its broker's window, and not for memory alone.
    for_window: bool,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) broker: i32,
    /// Bytes of the record.
    pub(super) size: usize,
    /// Whether the broker's window refused the record, and not memory.
    pub(super) for_window: bool,
    pub(super) deadline: Instant,
    pub(super) max_block: Duration,
}

/// The record bytes of a batch, charged to its broker's gate in steps.
#[derive(Debug, Default)]
struct Charge {
    /// `None` if the records wait for no broker.
    gate: Option<Arc<Gate>>,
    bytes: usize,
    charged: usize,
    /// Whether the batch waits for something else than its broker's pace, and so does not count.
    is_parked: bool,
}

impl Charge {
    fn to(gate: Option<Arc<Gate>>) -> Self {
        Self { gate, ..Self::default() }
    }

    fn counted(&self) -> Option<&Gate> {
        self.gate.as_deref().filter(|_| !self.is_parked)
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        let due = self.bytes - self.bytes % STEP;
        if due > self.charged {
            if let Some(gate) = self.counted() {
                gate.charge(due - self.charged);
            }
            self.charged = due;
        }
    }

    /// Charges a record that is not appended yet, exactly, so that not everyone who waits finds the same room.
    fn admit(&mut self, bytes: usize) {
        if let Some(gate) = self.counted() {
            gate.charge(bytes);
        }
        self.charged += bytes;
    }

    /// Adds another charge to the same gate to this one.
    fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        if other.is_parked == self.is_parked {
            self.charged += std::mem::take(&mut other.charged);
        }
    }

    fn move_to(&mut self, gate: Option<Arc<Gate>>) {
        if let Some(from) = self.counted() {
            from.release(self.charged);
        }
        self.gate = gate;
        if let Some(to) = self.counted() {
            to.charge(self.charged);
        }
    }

    fn set_parked(&mut self, is_parked: bool) {
        let gate = self.gate.clone();
        self.move_to(None);
        self.is_parked = is_parked;
        self.move_to(gate);
    }

    /// Moves up to this many bytes to another charge.
    fn split_off(&mut self, bytes: usize) -> Self {
        let (bytes, charged) = (bytes.min(self.bytes), bytes.min(self.charged));
        self.bytes -= bytes;
        self.charged -= charged;
        Self { gate: self.gate.clone(), bytes, charged, is_parked: self.is_parked }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.move_to(None);
    }
}

/// Bytes reserved for one batch, returned on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    pool: Arc<Pool>,
    broker: i32,
    bytes: usize,
    records: Charge,
}

impl Reservation {
    fn new(pool: Arc<Pool>, broker: i32, bytes: usize, gate: Option<Arc<Gate>>) -> Self {
        Self { pool, broker, bytes, records: Charge::to(gate) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the records, as the broker's gate counts them.
    pub(super) fn record_bytes(&self) -> usize {
        self.records.charged
    }

    /// Counts a record of the batch.
    pub(super) fn add_record(&mut self, bytes: usize) {
        self.records.add(bytes);
    }

    /// Begins a batch: clears the charge for the admitted record, which is counted again when it is appended.
    pub(super) fn begin_batch(&mut self) {
        self.records = Charge::to(self.records.gate.clone());
    }

    /// Whether the batch waits for something else than its broker's pace, and so does not count in the window.
    pub(super) fn set_parked(&mut self, is_parked: bool) {
        self.records.set_parked(is_parked);
        if is_parked {
            self.pool.change(|_| ());
        }
    }

    /// Merges another reservation into this one.
    pub(super) fn add(&mut self, mut other: Self) {
        other.charge_to(self.broker);
        self.bytes += std::mem::take(&mut other.bytes);
        self.records.merge(std::mem::take(&mut other.records));
    }

    /// Splits off a separate reservation of `bytes`, limited to the available bytes.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let (pool, records) = (self.pool.clone(), self.records.split_off(bytes));
        Self { pool, broker: self.broker, bytes, records }
    }

    /// Accounts the bytes to another broker, where the records now go.
    pub(super) fn charge_to(&mut self, broker: i32) {
        if self.broker == broker {
            return;
        }
        let from = std::mem::replace(&mut self.broker, broker);
        self.pool.change(|books| {
            books.budget.transfer(from, broker, self.bytes);
            self.records.move_to(books.gate(broker));
            books.tell(from);
            books.tell(broker);
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (broker, bytes) = (self.broker, self.bytes);
        // Before the waiters are granted what this frees.
        self.records.move_to(None);
        self.pool.change(|books| {
            books.budget.give_back(broker, bytes);
            books.tell(broker);
        });
    }
}

/// The budget and its mirrors. Innermost lock: no other lock is taken while it is held.
#[derive(Debug)]
struct Pool {
    books: Mutex<Books>,
    /// The producer's start.
    began: Instant,
}

#[derive(Debug)]
struct Books {
    budget: Budget<Waiter>,
    brokers: BTreeMap<i32, Broker>,
}

/// What others read about a broker without a lock.
#[derive(Debug)]
struct Broker {
    /// Bounds its record bytes; mirrors its reserved bytes and the number of callers that wait for its window.
    gate: Arc<Gate>,
    wait_for_window: usize,
}

impl Books {
    fn tell(&self, broker: i32) {
        let Some(known) = self.brokers.get(&broker) else { return };
        known.gate.set_held(self.budget.held(broker));
        known.gate.set_queued(known.wait_for_window);
    }

    /// Counts a caller that begins to wait for the broker's window, or ends it.
    fn count(&mut self, broker: i32, waiter: &Waiter, change: impl FnOnce(&mut usize)) {
        if let Some(known) = self.brokers.get_mut(&broker).filter(|_| waiter.for_window) {
            change(&mut known.wait_for_window);
        }
    }

    /// The broker's gate, if it has a window.
    fn gate(&self, broker: i32) -> Option<Arc<Gate>> {
        self.brokers.get(&broker)?.gate.if_bounded().cloned()
    }
}

impl Pool {
    fn is_open(&self, brokers: &BTreeMap<i32, Broker>, broker: i32) -> bool {
        brokers.get(&broker).is_none_or(|known| known.gate.is_open(|| self.age()))
    }

    /// Time since the producer's start.
    fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    fn grant_if_open(self: &Arc<Self>, gate: Option<&Gate>) {
        if gate.is_some_and(|gate| gate.is_open(|| self.age())) {
            self.change(|_| ());
        }
    }

    fn try_take(self: &Arc<Self>, broker: i32, bytes: usize) -> Option<Reservation> {
        let mut books = self.books.lock();
        let Books { budget, brokers } = &mut *books;
        if !budget.try_take(broker, bytes, |broker| self.is_open(brokers, broker)) {
            return None;
        }
        books.tell(broker);
        Some(Reservation::new(self.clone(), broker, bytes, books.gate(broker)))
    }

    /// Changes the books, then grants freed memory, and room in the windows, to waiting callers.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Books) -> T) -> T {
        let mut granted = Vec::new();
        let mut books = self.books.lock();
        let result = change(&mut books);
        loop {
            let Books { budget, brokers } = &mut *books;
            let Some(next) = budget.grant(|broker| self.is_open(brokers, broker)) else { break };
            let (gate, waiter) = (books.gate(next.broker), next.who);
            let mut memory = Reservation::new(self.clone(), next.broker, next.bytes, gate);
            memory.records.admit(waiter.record);
            books.count(next.broker, &waiter, |waiting| *waiting -= 1);
            books.tell(next.broker);
            granted.push((waiter.tell, memory));
        }
        drop(books);
        for (tell, memory) in granted {
            // A caller that no longer waits drops the reservation, which returns it.
            let _ = tell.send(memory);
        }
        result
    }
}

/// A place in the queue. Dropping it, however the wait ends, frees the place.
struct Queued<'a> {
    pool: &'a Arc<Pool>,
    ticket: Ticket,
    broker: i32,
}

impl<'a> Queued<'a> {
    fn up(pool: &'a Arc<Pool>, broker: i32, need: usize, who: Waiter) -> Self {
        let ticket = pool.change(|books| {
            books.count(broker, &who, |waiting| *waiting += 1);
            let ticket = books.budget.wait(broker, need, who);
            books.tell(broker);
            ticket
        });
        Self { pool, ticket, broker }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.pool.change(|books| {
            if let Some(waiter) = books.budget.leave(self.ticket) {
                books.count(self.broker, &waiter, |waiting| *waiting -= 1);
            }
            books.tell(self.broker);
        });
    }
}

/// The producer's memory.
#[derive(Debug)]
pub(super) struct Memory {
    pool: Arc<Pool>,
    total: usize,
    batch_size: usize,
    closed: AtomicBool,
    /// Spare buffers of `batch_size` bytes, of twice as many, and so on up to `batch.max.size`.
    spare: Box<[Mutex<Vec<Vec<u8>>>]>,
}

impl Memory {
    /// `percent` limits one broker's share of the free memory; see [`Budget`].
    pub(super) fn new(
        total: usize,
        batch_size: usize,
        batch_max_size: usize,
        percent: u32,
        began: Instant,
    ) -> Self {
        let batch_size = batch_size.max(1);
        let doublings = (batch_max_size / batch_size).max(1).ilog2();
        let spare = (0..=doublings).map(|_| Mutex::default()).collect();
        let books = Books { budget: Budget::new(total, percent), brokers: BTreeMap::new() };
        let pool = Arc::new(Pool { books: Mutex::new(books), began });
        Self { pool, total, batch_size, closed: AtomicBool::new(false), spare }
    }

    /// Mirrors the broker's reserved bytes in `gate`, which bounds its record bytes, from now on.
    pub(super) fn open(&self, broker: i32, gate: Arc<Gate>) {
        let mut books = self.pool.books.lock();
        books.budget.open(broker);
        books.brokers.insert(broker, Broker { gate, wait_for_window: 0 });
    }

    /// Bytes to reserve for a batch whose first record has `size` bytes.
    fn need(&self, size: usize) -> usize {
        size.max(self.batch_size).min(self.total)
    }

    /// Reserves without waiting, or returns `None`.
    pub(super) fn try_reserve(&self, broker: i32, size: usize) -> Option<Reservation> {
        self.pool.try_take(broker, self.need(size))
    }

    /// Reserves `bytes` without waiting, or returns `None`: for a batch that grows, or a record that waits.
    pub(super) fn try_reserve_exactly(&self, broker: i32, bytes: usize) -> Option<Reservation> {
        self.pool.try_take(broker, bytes)
    }

    /// Reserves memory for a record, and room for it in the broker's window. Waits until the request's deadline for
    /// batches to finish; then memory alone decides. `None` if another broker has room first.
    ///
    /// # Cancel safety
    /// Cancel safe; a dropped wait loses its place in the queue.
    pub(super) async fn reserve(
        &self,
        wanted: Wanted,
        has_room_elsewhere: impl Fn() -> bool,
    ) -> Result<Option<Reservation>> {
        let Wanted { broker, size, for_window, deadline, max_block } = wanted;
        let (tell, mut granted) = oneshot::channel();
        let need = self.need(size);
        let queued =
            Queued::up(&self.pool, broker, need, Waiter { tell, record: size, for_window });
        // Closing sets the flag before it dismisses the waiters: a later waiter sees the flag.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let gate = self.pool.books.lock().gate(broker);
        let number = queued.ticket.number();
        let mut is_first = true;
        loop {
            let look = gate.as_ref().map(|gate| self.next_look(gate, number, is_first));
            let look = look.map_or(deadline, |look| look.min(deadline));
            is_first = false;
            match timeout_at(look, &mut granted).await {
                Ok(Ok(reservation)) => return Ok(Some(reservation)),
                Ok(Err(_)) => return Err(Error::Closed),
                Err(_) if look >= deadline => break,
                Err(_) if has_room_elsewhere() => return Ok(None),
                Err(_) => self.pool.grant_if_open(gate.as_deref()),
            }
        }
        drop(queued);
        let late = granted.try_recv().ok();
        match late.or_else(|| self.pool.try_take(broker, need)) {
            Some(reservation) => Ok(Some(reservation)),
            None => Err(Error::BufferFull { waited: max_block }),
        }
    }

    /// When a waiter should look whether the window has opened without an event, because the broker pauses.
    fn next_look(&self, gate: &Gate, number: u64, is_first: bool) -> Instant {
        let turns = turns_until_look(gate.queued(), number, is_first);
        let soonest = Instant::now().later(LOOK.saturating_mul(turns));
        let opens_at = gate.opens_at().unwrap_or_default();
        self.pool.began.later(opens_at).max(soonest)
    }

    /// Bytes that are not reserved.
    pub(super) fn available(&self) -> usize {
        self.pool.books.lock().budget.free()
    }

    /// Returns an empty buffer for a batch.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffer_of(self.batch_size)
    }

    /// Returns an empty buffer for a batch of up to `size` bytes, one of the reusable sizes.
    pub(super) fn buffer_of(&self, size: usize) -> Vec<u8> {
        let spare = self.spares(size).and_then(|spare| spare.lock().pop());
        spare.unwrap_or_else(|| Vec::with_capacity(size))
    }

    /// Returns the spare buffers of exactly this capacity.
    fn spares(&self, capacity: usize) -> Option<&Mutex<Vec<Vec<u8>>>> {
        let times = capacity / self.batch_size;
        let kept = capacity.is_multiple_of(self.batch_size) && times.is_power_of_two();
        if kept { self.spare.get(times.ilog2() as usize) } else { None }
    }

    /// Recovers a batch's buffer, if there is no other reference. A socket that still writes it holds a reference, so
    /// no buffer is refilled during a write (compare CVE-2026-35554).
    pub(super) fn recycle(&self, payload: Bytes) {
        let Ok(mut unique) = payload.try_into_mut() else { return };
        unique.clear();
        self.keep(Vec::from(unique));
    }

    /// Keeps an unused buffer for another batch, if it has a reusable size. Each size keeps at most its share of
    /// `buffer.memory`.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        let Some(spare) = self.spares(buffer.capacity()) else { return };
        let mut spare = spare.lock();
        if spare.len() * buffer.capacity() < self.total / self.spare.len() {
            spare.push(buffer);
        }
    }

    /// Makes every waiter fail with [`Error::Closed`].
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let dismissed = self.pool.books.lock().budget.dismiss();
        drop(dismissed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_take_turns_to_look_at_the_window() {
        for (waiting, groups) in [(1, 1), (999, 1), (1000, 2), (10_500, 11)] {
            let mut looks = vec![0; groups];
            for number in 7..7 + waiting {
                let first = turns_until_look(waiting as usize, number, true);
                looks[first as usize - 1] += 1;
                assert_eq!(turns_until_look(waiting as usize, number, false) as usize, groups);
            }
            assert!(looks.iter().all(|&looks| looks > 0 && looks <= LOOKERS), "{looks:?}");
        }
    }
}
