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
    _permit: OwnedSemaphorePermit,
}

/// The producer's memory.
#[derive(Debug)]
pub(super) struct Memory {
    /// One permit a byte. Waiters are served in order, so that a large record is not starved by small ones.
    bytes: Arc<Semaphore>,
    total: usize,
    batch_size: usize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Memory {
    pub(super) fn new(total: usize, batch_size: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self { bytes: Arc::new(Semaphore::new(total)), total, batch_size, spare: Mutex::default() }
    }

    /// What a batch that begins with a record of `size` bytes reserves.
    fn need(&self, size: usize) -> u32 {
        size.max(self.batch_size).min(self.total) as u32
    }

    /// Reserves at once or not at all.
    pub(super) fn try_reserve(&self, size: usize) -> Option<Reservation> {
        let permit = self.bytes.clone().try_acquire_many_owned(self.need(size)).ok()?;
        Some(Reservation { _permit: permit })
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
            Ok(Ok(permit)) => Ok(Reservation { _permit: permit }),
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
        self.spare.lock().pop().unwrap_or_else(|| Vec::with_capacity(self.batch_size))
    }

    /// Takes a batch's buffer back, if nobody else holds it. A socket that still writes it does, so a buffer is
    /// never filled anew under a write (compare CVE-2026-35554).
    pub(super) fn recycle(&self, payload: Bytes) {
        let Ok(mut unique) = payload.try_into_mut() else { return };
        unique.clear();
        let buffer = Vec::from(unique);
        if buffer.capacity() != self.batch_size {
            return;
        }
        let mut spare = self.spare.lock();
        if spare.len() * self.batch_size < self.total {
            spare.push(buffer);
        }
    }

    /// Lets every waiter fail with [`Error::Closed`].
    pub(super) fn close(&self) {
        self.bytes.close();
    }
}
