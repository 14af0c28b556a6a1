//! `buffer.memory`: a budget in bytes, reserved per batch, and reuse of the buffers.

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
    load::Load,
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

/// Notifies a waiting caller.
type Waiter = oneshot::Sender<Reservation>;

/// Bytes reserved for one batch, returned on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    pool: Arc<Pool>,
    broker: i32,
    bytes: usize,
}

impl Reservation {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Merges another reservation into this one.
    pub(super) fn add(&mut self, mut other: Self) {
        other.charge_to(self.broker);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Splits off a separate reservation of `bytes`, limited to the available bytes.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { pool: self.pool.clone(), broker: self.broker, bytes }
    }

    /// Accounts the bytes to another broker, where the records now go.
    pub(super) fn charge_to(&mut self, broker: i32) {
        if self.broker == broker {
            return;
        }
        let from = std::mem::replace(&mut self.broker, broker);
        self.pool.change(|books| {
            books.budget.transfer(from, broker, self.bytes);
            books.tell(from);
            books.tell(broker);
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (broker, bytes) = (self.broker, self.bytes);
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
}

#[derive(Debug)]
struct Books {
    budget: Budget<Waiter>,
    /// Each broker's reserved bytes, readable without a lock.
    loads: BTreeMap<i32, Arc<Load>>,
}

impl Books {
    fn tell(&self, broker: i32) {
        if let Some(load) = self.loads.get(&broker) {
            load.set_held(self.budget.held(broker));
        }
    }
}

impl Pool {
    /// Changes the books, then grants freed memory to waiting callers.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Books) -> T) -> T {
        let mut granted = Vec::new();
        let mut books = self.books.lock();
        let result = change(&mut books);
        while let Some(next) = books.budget.grant() {
            books.tell(next.broker);
            granted.push(next);
        }
        drop(books);
        for next in granted {
            let (broker, bytes) = (next.broker, next.bytes);
            // A caller that no longer waits drops the reservation, which returns it.
            let _ = next.who.send(Reservation { pool: self.clone(), broker, bytes });
        }
        result
    }
}

/// A place in the queue. Dropping it, however the wait ends, frees the place.
struct Queued<'a> {
    pool: &'a Arc<Pool>,
    ticket: Ticket,
}

impl<'a> Queued<'a> {
    fn up(pool: &'a Arc<Pool>, broker: i32, need: usize, who: Waiter) -> Self {
        let ticket = pool.change(|books| books.budget.wait(broker, need, who));
        Self { pool, ticket }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.pool.change(|books| books.budget.leave(self.ticket));
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
    ) -> Self {
        let batch_size = batch_size.max(1);
        let doublings = (batch_max_size / batch_size).max(1).ilog2();
        let spare = (0..=doublings).map(|_| Mutex::default()).collect();
        let books = Books { budget: Budget::new(total, percent), loads: BTreeMap::new() };
        let pool = Arc::new(Pool { books: Mutex::new(books) });
        Self { pool, total, batch_size, closed: AtomicBool::new(false), spare }
    }

    /// Mirrors the broker's reserved bytes in `load` from now on.
    pub(super) fn open(&self, broker: i32, load: Arc<Load>) {
        let mut books = self.pool.books.lock();
        books.budget.open(broker);
        books.loads.insert(broker, load);
    }

    /// Bytes to reserve for a batch whose first record has `size` bytes.
    fn need(&self, size: usize) -> usize {
        size.max(self.batch_size).min(self.total)
    }

    /// Reserves without waiting, or returns `None`.
    pub(super) fn try_reserve(&self, broker: i32, size: usize) -> Option<Reservation> {
        self.try_take(broker, self.need(size))
    }

    /// Reserves `bytes` without waiting, or returns `None`: for a batch that grows, or a record that waits.
    pub(super) fn try_reserve_exactly(&self, broker: i32, bytes: usize) -> Option<Reservation> {
        self.try_take(broker, bytes)
    }

    fn try_take(&self, broker: i32, bytes: usize) -> Option<Reservation> {
        let mut books = self.pool.books.lock();
        if !books.budget.try_take(broker, bytes) {
            return None;
        }
        books.tell(broker);
        Some(Reservation { pool: self.pool.clone(), broker, bytes })
    }

    /// Reserves memory. Waits until `deadline` for batches to finish.
    ///
    /// # Cancel safety
    /// Cancel safe; a dropped wait loses its place in the queue.
    pub(super) async fn reserve(
        &self,
        broker: i32,
        size: usize,
        deadline: Instant,
        max_block: Duration,
    ) -> Result<Reservation> {
        let (who, granted) = oneshot::channel();
        let _queued = Queued::up(&self.pool, broker, self.need(size), who);
        // Closing sets the flag before it dismisses the waiters: a later waiter sees the flag.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        match timeout_at(deadline, granted).await {
            Ok(Ok(reservation)) => Ok(reservation),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::BufferFull { waited: max_block }),
        }
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
