//! Records on their way from the event loop's thread to the runtime.
//!
//! `send` copies a record into one arena. The feeder takes the whole arena: it holds the lock for a
//! swap only. The stage wakes the feeder only if the arena was empty.
//!
//! Rows of `send_arrow` and records of a pipeline wait for room ([`Stage::room`]) in a part of the stage: sends, which
//! cannot wait, have the rest.

use std::{
    mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use curtail::{Error, Header, Record, producer::CompletionSink};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::{counted::Count, port::Core};

/// Bytes of staged records beyond which a send fails.
pub(crate) const CAPACITY: usize = 32 << 20;
/// Bytes of staged records beyond which rows of columns and records of a pipeline wait.
const BULK: usize = 8 << 20;
/// Bytes of staged records at which waiting rows continue: enough work for the feeder until the next ones.
const BULK_RESUMED: usize = BULK / 2;
/// Largest value of `max.request.size`.
const LARGEST: usize = i32::MAX as usize;
/// Bytes that a record takes beside its content.
const OVERHEAD: usize = 96;
/// An arena with more capacity is not kept for reuse.
const REUSED: usize = 1 << 20;

/// Where outcomes go.
pub(crate) struct Outlet {
    pub(crate) refusals: Refusals,
    pub(crate) sink: CompletionSink,
}

/// Where errors of records go that were not appended.
pub(crate) enum Refusals {
    /// One event loop's port.
    Port(Arc<Core>),
    /// Counts of outcomes.
    Counts(Arc<dyn Count>),
}

impl Outlet {
    /// Reports a record that was not appended.
    pub(crate) fn fail(&self, tag: u64, error: Error) {
        match &self.refusals {
            Refusals::Port(core) => core.fail(tag, error),
            Refusals::Counts(counts) => counts.refuse(tag, error),
        }
    }
}

/// A record to stage.
pub(crate) struct NewRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [(&'a str, Option<&'a [u8]>)],
    pub(crate) timestamp: i64,
    pub(crate) tag: u64,
}

impl NewRecord<'_> {
    /// Bytes that count for it.
    pub(crate) fn size(&self) -> usize {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let headers = self.headers.iter().map(|(name, value)| name.len() + length(*value) + 32);
        let content = self.topic.len() + length(self.key) + length(self.value);
        content + headers.sum::<usize>() + OVERHEAD
    }
}

/// Completes once every record staged before it is appended or failed.
pub(crate) struct Barrier(Option<oneshot::Sender<()>>);

impl Drop for Barrier {
    fn drop(&mut self) {
        if let Some(passed) = self.0.take() {
            let _ = passed.send(());
        }
    }
}

pub(crate) enum Item {
    Record(Entry),
    Barrier(Arc<Barrier>),
}

type Span = Range<u32>;

/// A record of an arena.
pub(crate) struct Entry {
    topic: Span,
    pub(crate) partition: Option<i32>,
    key: Option<Span>,
    value: Option<Span>,
    headers: Span,
    timestamp: i64,
    pub(crate) tag: u64,
    outlet: u32,
    /// Bytes counted for it.
    pub(crate) size: usize,
}

/// Staged records and their bytes.
#[derive(Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    headers: Vec<(Span, Option<Span>)>,
    pub(crate) items: Vec<Item>,
    outlets: Vec<Arc<Outlet>>,
}

impl Arena {
    fn add(&mut self, bytes: &[u8]) -> Span {
        // At most `CAPACITY` bytes and one record, of less than 4 GiB, are in an arena.
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len() as u32
    }

    fn push(&mut self, record: &NewRecord<'_>, outlet: u32, size: usize) {
        let topic = self.add(record.topic.as_bytes());
        let key = record.key.map(|key| self.add(key));
        let value = record.value.map(|value| self.add(value));
        let first = self.headers.len() as u32;
        for (name, value) in record.headers {
            let header = (self.add(name.as_bytes()), value.map(|value| self.add(value)));
            self.headers.push(header);
        }
        let headers = first..self.headers.len() as u32;
        let NewRecord { partition, timestamp, tag, .. } = *record;
        self.items.push(Item::Record(Entry {
            topic,
            partition,
            key,
            value,
            headers,
            timestamp,
            tag,
            outlet,
            size,
        }));
    }

    /// A copy of one record, with its outlet.
    pub(crate) fn alone(&self, entry: &Entry) -> Self {
        let mut alone = Self::default();
        let topic = alone.add(self.slice(&entry.topic));
        let key = entry.key.as_ref().map(|key| alone.add(self.slice(key)));
        let value = entry.value.as_ref().map(|value| alone.add(self.slice(value)));
        for (name, value) in &self.headers[entry.headers.start as usize..entry.headers.end as usize]
        {
            let name = alone.add(self.slice(name));
            let value = value.as_ref().map(|value| alone.add(self.slice(value)));
            alone.headers.push((name, value));
        }
        let headers = 0..alone.headers.len() as u32;
        let outlet = alone.outlet_index(&self.outlets[entry.outlet as usize]);
        let Entry { partition, timestamp, tag, size, .. } = *entry;
        let record = Entry { topic, partition, key, value, headers, timestamp, tag, outlet, size };
        alone.items.push(Item::Record(record));
        alone
    }

    fn outlet_index(&mut self, outlet: &Arc<Outlet>) -> u32 {
        let known = self.outlets.iter().rposition(|other| Arc::ptr_eq(other, outlet));
        let index = known.unwrap_or_else(|| {
            self.outlets.push(outlet.clone());
            self.outlets.len() - 1
        });
        index as u32
    }

    fn slice(&self, span: &Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    fn text(&self, span: &Span) -> &str {
        // Staged from a `&str`.
        std::str::from_utf8(self.slice(span)).unwrap_or_default()
    }

    pub(crate) fn outlet(&self, entry: &Entry) -> &Outlet {
        &self.outlets[entry.outlet as usize]
    }

    pub(crate) fn topic(&self, entry: &Entry) -> &str {
        self.text(&entry.topic)
    }

    pub(crate) fn key(&self, entry: &Entry) -> Option<&[u8]> {
        entry.key.as_ref().map(|key| self.slice(key))
    }

    pub(crate) fn headers(&self, entry: &Entry) -> Vec<Header<'_>> {
        let spans = &self.headers[entry.headers.start as usize..entry.headers.end as usize];
        let header = |(key, value): &(Span, Option<Span>)| Header {
            key: self.text(key),
            value: value.as_ref().map(|value| self.slice(value)),
        };
        spans.iter().map(header).collect()
    }

    pub(crate) fn record<'a>(&'a self, entry: &Entry, headers: &'a [Header<'a>]) -> Record<'a> {
        let mut record = Record::to(self.topic(entry)).headers(headers).timestamp(entry.timestamp);
        if let Some(partition) = entry.partition {
            record = record.partition(partition);
        }
        if let Some(key) = self.key(entry) {
            record = record.key(key);
        }
        if let Some(value) = &entry.value {
            record = record.value(self.slice(value));
        }
        record
    }

    /// Empties the arena, and keeps its memory unless it is large.
    pub(crate) fn cleared(mut self) -> Self {
        if self.bytes.capacity() > REUSED || self.items.capacity() > REUSED / OVERHEAD {
            return Self::default();
        }
        self.bytes.clear();
        self.headers.clear();
        self.items.clear();
        self.outlets.clear();
        self
    }
}

#[derive(Default)]
struct Open {
    arena: Arena,
    closed: bool,
    /// Whether the feeder has ended.
    ended: bool,
}

/// Why a record was not staged.
pub(crate) enum Refused {
    Closed,
    Full,
}

/// The records of one producer that the feeder has not taken.
#[derive(Default)]
pub(crate) struct Stage {
    open: Mutex<Open>,
    wake: Notify,
    /// Bytes of the records that are not in a batch yet.
    bytes: AtomicUsize,
    /// Number of calls of [`Self::room`].
    waiting: AtomicUsize,
    freed: Notify,
}

/// A call that waits for room.
struct Waiting<'a>(&'a Stage);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Stage {
    /// Copies a record into the arena.
    pub(crate) fn push(&self, record: &NewRecord<'_>, outlet: &Arc<Outlet>) -> Result<(), Refused> {
        self.push_within(CAPACITY, record, outlet)
    }

    /// Copies a record into the arena, if [`BULK`] has room. Otherwise returns its size, for [`Self::room`]. The outlet
    /// receives the error of a record that is larger than any request.
    pub(crate) fn push_bulk(
        &self,
        record: &NewRecord<'_>,
        outlet: &Arc<Outlet>,
    ) -> Result<Option<usize>, Refused> {
        let size = record.size();
        if size > LARGEST {
            outlet.fail(record.tag, Error::RecordTooLarge { size, limit: LARGEST });
            return Ok(None);
        }
        match self.push_within(BULK, record, outlet) {
            Ok(()) => Ok(None),
            Err(Refused::Full) => Ok(Some(size)),
            Err(Refused::Closed) => Err(Refused::Closed),
        }
    }

    /// Copies a record into the arena, if the staged records then have at most this many bytes.
    fn push_within(
        &self,
        capacity: usize,
        record: &NewRecord<'_>,
        outlet: &Arc<Outlet>,
    ) -> Result<(), Refused> {
        let size = record.size();
        let mut open = self.open.lock();
        if open.closed {
            return Err(Refused::Closed);
        }
        // A record that is larger than the capacity is staged alone, so that its own limit can refuse it.
        let staged = self.bytes.load(Ordering::Relaxed);
        if (staged > 0 && staged + size > capacity) || size > u32::MAX as usize {
            return Err(Refused::Full);
        }
        self.bytes.fetch_add(size, Ordering::Relaxed);
        let was_empty = open.arena.items.is_empty();
        let index = open.arena.outlet_index(outlet);
        open.arena.push(record, index, size);
        drop(open);
        if was_empty {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Returns a receiver for the time when every record staged so far is appended or failed.
    pub(crate) fn barrier(&self) -> oneshot::Receiver<()> {
        let (passed, receiver) = oneshot::channel();
        let barrier = Arc::new(Barrier(Some(passed)));
        let mut open = self.open.lock();
        // Without a feeder no record is staged: the barrier is dropped, which completes it.
        if !open.ended {
            open.arena.items.push(Item::Barrier(barrier));
            self.wake.notify_one();
        }
        receiver
    }

    /// Refuses later records. The feeder ends once it has taken the earlier ones.
    pub(crate) fn close(&self) {
        self.open.lock().closed = true;
        self.wake.notify_one();
        self.freed.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.open.lock().closed
    }

    /// Counts a record as appended or failed.
    pub(crate) fn release(&self, size: usize) {
        // `SeqCst` here and in `room`: either this call sees the one that waits, or that one sees the bytes.
        let left = self.bytes.fetch_sub(size, Ordering::SeqCst).saturating_sub(size);
        if left <= BULK_RESUMED && self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Waits until [`BULK`] has room for more records, the first of which has this size, or the stage is closed. Another
    /// sender may take the room.
    pub(crate) async fn room(&self, size: usize) {
        let most = if size > BULK - BULK_RESUMED { 0 } else { BULK_RESUMED };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        loop {
            // From here on a release is noticed.
            let freed = self.freed.notified();
            if self.bytes.load(Ordering::SeqCst) <= most || self.is_closed() {
                return;
            }
            freed.await;
        }
    }

    /// Takes the records of a closed stage without waiting.
    pub(crate) fn take_rest(&self) -> Arena {
        let mut open = self.open.lock();
        open.ended = true;
        mem::take(&mut open.arena)
    }

    /// Waits for staged records, and takes them in exchange for an empty arena. `None` once the
    /// stage is closed and empty.
    pub(crate) async fn take(&self, spare: Arena) -> Option<Arena> {
        loop {
            {
                let mut open = self.open.lock();
                if !open.arena.items.is_empty() {
                    return Some(mem::replace(&mut open.arena, spare));
                }
                if open.closed {
                    open.ended = true;
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }
}
