//! `buffer.memory`: a budget in bytes, reserved per batch, and the buffers themselves, used again.

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

/// Account of records whose partition has no leader or is still to be chosen.
pub(super) const NOWHERE: i32 = Budget::<Waiter>::NOWHERE;

/// Account of records whose topic is not known yet.
pub(super) const WAITING_ROOM: i32 = Budget::<Waiter>::WAITING_ROOM;

/// How one who waits is told.
type Waiter = oneshot::Sender<Reservation>;

/// Bytes reserved for one batch, given back on drop.
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

    /// Adds another one to this.
    pub(super) fn add(&mut self, mut other: Self) {
        other.charge_to(self.broker);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives a part of the bytes to a reservation of its own, at most as many as there are.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { pool: self.pool.clone(), broker: self.broker, bytes }
    }

    /// Counts the bytes for another broker from now on: the records go there.
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

/// The budget and its mirrors. Its lock is the innermost: nothing else is locked while it is held.
#[derive(Debug)]
struct Pool {
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    budget: Budget<Waiter>,
    /// Where what a broker holds is to be read without a lock.
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
    /// Changes the books, then hands out what that has set free.
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
            // One that no longer waits drops it, and so gives it back.
            let _ = next.who.send(Reservation { pool: self.clone(), broker, bytes });
        }
        result
    }
}

/// A place in the queue, given up on drop: when the wait ends, for whatever reason.
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
    /// Buffers of `batch_size` bytes, of twice as many, and so on up to `batch.max.size`.
    spare: Box<[Mutex<Vec<Vec<u8>>>]>,
}

impl Memory {
    /// `percent` is what one broker may hold of what is free; see [`Budget`].
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

    /// From now on `load` shows what the broker holds.
    pub(super) fn open(&self, broker: i32, load: Arc<Load>) {
        let mut books = self.pool.books.lock();
        books.budget.open(broker);
        books.loads.insert(broker, load);
    }

    /// What a batch that begins with a record of `size` bytes reserves.
    fn need(&self, size: usize) -> usize {
        size.max(self.batch_size).min(self.total)
    }

    /// Reserves at once or not at all.
    pub(super) fn try_reserve(&self, broker: i32, size: usize) -> Option<Reservation> {
        self.try_take(broker, self.need(size))
    }

    /// Reserves so many bytes at once or not at all: for a batch that grows, for a record that waits.
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

    /// Reserves, waiting until `deadline` for batches to be done.
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
        // Closing marks first and dismisses then: whoever queues up after that sees the mark.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        match timeout_at(deadline, granted).await {
            Ok(Ok(reservation)) => Ok(reservation),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::BufferFull { waited: max_block }),
        }
    }

    /// Bytes not reserved.
    pub(super) fn available(&self) -> usize {
        self.pool.books.lock().budget.free()
    }

    /// An empty buffer for a batch.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffer_of(self.batch_size)
    }

    /// An empty buffer for a batch of up to `size` bytes, one of the sizes that are kept.
    pub(super) fn buffer_of(&self, size: usize) -> Vec<u8> {
        let spare = self.spares(size).and_then(|spare| spare.lock().pop());
        spare.unwrap_or_else(|| Vec::with_capacity(size))
    }

    /// Where buffers of exactly this capacity are kept.
    fn spares(&self, capacity: usize) -> Option<&Mutex<Vec<Vec<u8>>>> {
        let times = capacity / self.batch_size;
        let kept = capacity.is_multiple_of(self.batch_size) && times.is_power_of_two();
        if kept { self.spare.get(times.ilog2() as usize) } else { None }
    }

    /// Takes a batch's buffer back, if nobody else holds it. A socket that still writes it does, so a buffer is
    /// never filled anew under a write (compare CVE-2026-35554).
    pub(super) fn recycle(&self, payload: Bytes) {
        let Ok(mut unique) = payload.try_into_mut() else { return };
        unique.clear();
        self.keep(Vec::from(unique));
    }

    /// Keeps a buffer that nobody uses for another batch, if it has one of the sizes that are kept. Each size keeps at
    /// most its share of `buffer.memory`.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        let Some(spare) = self.spares(buffer.capacity()) else { return };
        let mut spare = spare.lock();
        if spare.len() * buffer.capacity() < self.total / self.spare.len() {
            spare.push(buffer);
        }
    }

    /// Lets every waiter fail with [`Error::Closed`].
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let dismissed = self.pool.books.lock().budget.dismiss();
        drop(dismissed);
    }
}
