//! Records on their way from the event loop's thread to the runtime.
//!
//! `send` copies a record into one arena. The feeder takes the whole arena: it holds the lock for a
//! swap only. The stage wakes the feeder only if the arena was empty.

use std::{
    mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use curtail::{Header, Record, producer::CompletionSink};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::port::Core;

/// Bytes of staged records beyond which a send fails.
pub(crate) const CAPACITY: usize = 32 << 20;
/// Bytes that a record takes beside its content.
const OVERHEAD: usize = 96;
/// An arena with more capacity is not kept for reuse.
const REUSED: usize = 1 << 20;

/// Where outcomes go: one event loop's port.
pub(crate) struct Outlet {
    pub(crate) core: Arc<Core>,
    pub(crate) sink: CompletionSink,
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
}

impl Stage {
    /// Copies a record into the arena.
    pub(crate) fn push(&self, record: &NewRecord<'_>, outlet: &Arc<Outlet>) -> Result<(), Refused> {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let headers = record.headers.iter().map(|(name, value)| name.len() + length(*value) + 32);
        let content = record.topic.len() + length(record.key) + length(record.value);
        let size = content + headers.sum::<usize>() + OVERHEAD;
        let mut open = self.open.lock();
        if open.closed {
            return Err(Refused::Closed);
        }
        // A record that is larger than the capacity is staged alone, so that its own limit can refuse it.
        let staged = self.bytes.load(Ordering::Relaxed);
        if (staged > 0 && staged + size > CAPACITY) || size > u32::MAX as usize {
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
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.open.lock().closed
    }

    /// Counts a record as appended or failed.
    pub(crate) fn release(&self, size: usize) {
        self.bytes.fetch_sub(size, Ordering::Relaxed);
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
