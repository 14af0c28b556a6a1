//! `buffer.memory`: a budget in bytes, reserved per batch, and the buffers themselves, used again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::{Error, Result};

/// Bytes reserved for one batch, given back on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    permit: OwnedSemaphorePermit,
}

impl Reservation {
    /// Adds another one to this.
    pub(super) fn add(&mut self, other: Self) {
        self.permit.merge(other.permit);
    }
}

/// The producer's memory.
#[derive(Debug)]
pub(super) struct Memory {
    /// One permit a byte. Waiters are served in order, so that a large record is not starved by small ones.
    bytes: Arc<Semaphore>,
    total: usize,
    batch_size: usize,
    /// Buffers of `batch_size` bytes, of twice as many, and so on up to `batch.max.size`.
    spare: Box<[Mutex<Vec<Vec<u8>>>]>,
}

impl Memory {
    pub(super) fn new(total: usize, batch_size: usize, batch_max_size: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        let batch_size = batch_size.max(1);
        let doublings = (batch_max_size / batch_size).max(1).ilog2();
        let spare = (0..=doublings).map(|_| Mutex::default()).collect();
        Self { bytes: Arc::new(Semaphore::new(total)), total, batch_size, spare }
    }

    /// What a batch that begins with a record of `size` bytes reserves.
    fn need(&self, size: usize) -> u32 {
        size.max(self.batch_size).min(self.total) as u32
    }

    /// Reserves at once or not at all.
    pub(super) fn try_reserve(&self, size: usize) -> Option<Reservation> {
        let permit = self.bytes.clone().try_acquire_many_owned(self.need(size)).ok()?;
        Some(Reservation { permit })
    }

    /// Reserves `bytes` for a batch that grows, at once or not at all.
    pub(super) fn try_reserve_more(&self, bytes: usize) -> Option<Reservation> {
        let bytes = u32::try_from(bytes).ok()?;
        let permit = self.bytes.clone().try_acquire_many_owned(bytes).ok()?;
        Some(Reservation { permit })
    }

    /// Reserves, waiting until `deadline` for batches to be done.
    ///
    /// # Cancel safety
    /// Cancel safe; a dropped wait loses its place in the queue.
    pub(super) async fn reserve(
        &self,
        size: usize,
        deadline: Instant,
        max_block: Duration,
    ) -> Result<Reservation> {
        let acquire = self.bytes.clone().acquire_many_owned(self.need(size));
        match timeout_at(deadline, acquire).await {
            Ok(Ok(permit)) => Ok(Reservation { permit }),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::BufferFull { waited: max_block }),
        }
    }

    /// Bytes not reserved.
    pub(super) fn available(&self) -> usize {
        self.bytes.available_permits()
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
        self.bytes.close();
    }
}
