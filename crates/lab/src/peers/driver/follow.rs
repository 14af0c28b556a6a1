//! Consumers of another client that read a topic while this process sends a load to it.
//!
//! The driver writes [`SIZE`] bytes for each record that a consumer has read, in the order of the reads of each consumer,
//! little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | consumer, from 0 |
//! | 4 | partition |
//! | 8 | offset |
//! | 8 | the record's number |
//! | 8 | time of the poll that returned it, in nanoseconds since the start |

use std::time::Duration;

use super::{Cost, Driver, END_LIMIT, FATES, READY_LIMIT, Ready, Sending, flags, settings};
use crate::{cpu::CpuTime, perf::Result};

/// Bytes of one reading.
pub(crate) const SIZE: usize = 32;

/// Order to read a load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Follow {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    /// Records of the load.
    pub(crate) records: u64,
    /// Length of the load.
    pub(crate) length: Duration,
    pub(crate) wanted: Wanted,
    pub(crate) properties: Vec<(String, String)>,
}

/// Consumers to start, and their part of the topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Consumers, each of which reads everything.
    pub(crate) consumers: usize,
    /// The partitions that are read from their beginning; the others are read from their end.
    pub(crate) from_beginning: Vec<i32>,
    /// Records of an earlier load in those partitions, which each consumer reads too.
    pub(crate) backlog: u64,
    /// Records that one consumer reads from the topic's beginning before the driver is ready, as a warm-up.
    pub(crate) read_first: u64,
    /// The application's work after each poll that has returned records, in whole milliseconds.
    pub(crate) work: Duration,
}

/// A record that a consumer has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) number: u64,
    /// Nanoseconds since the start.
    pub(crate) at: u64,
}

impl Follow {
    fn arguments(&self) -> Vec<String> {
        let wanted = &self.wanted;
        let mut words = flags(&[
            ("--bootstrap-server", self.bootstrap.clone()),
            ("--topic", self.topic.clone()),
            ("--num-records", self.records.to_string()),
            ("--consumers", wanted.consumers.to_string()),
            ("--backlog", wanted.backlog.to_string()),
            ("--read-first", wanted.read_first.to_string()),
            ("--work-ms", wanted.work.as_millis().to_string()),
        ]);
        if !wanted.from_beginning.is_empty() {
            let list: Vec<String> = wanted.from_beginning.iter().map(i32::to_string).collect();
            words.extend(flags(&[("--from-beginning", list.join(","))]));
        }
        words.extend(settings(&self.properties));
        words.insert(0, "follow".into());
        words
    }
}

impl Driver {
    /// Starts consumers and returns when they are ready to read the load.
    ///
    /// # Errors
    /// A driver that does not become ready.
    pub(crate) fn follow(&self, follow: &Follow) -> Result<Ready> {
        let end = 2 * follow.length + END_LIMIT;
        self.start(follow.arguments(), follow.records, READY_LIMIT, end)
    }
}

impl Sending {
    /// Waits until the consumers have read everything or nothing more arrives. Returns the readings of each consumer and
    /// the driver's CPU time since the start.
    ///
    /// # Errors
    /// A driver that fails, or does not end.
    pub(crate) fn followed(self, consumers: usize) -> Result<(Vec<Vec<Followed>>, CpuTime)> {
        let Ready { mut running, limit, .. } = self.0;
        running.wait(limit)?;
        let read = running.file(FATES).and_then(|bytes| read(&bytes, consumers));
        let read = read.and_then(|read| Ok((read, running.figures::<Cost>()?.cpu())));
        read.map_err(|reason| running.failed(&format!("has written {reason}")))
    }
}

/// Reads the file of a driver with this number of consumers.
fn read(bytes: &[u8], consumers: usize) -> Result<Vec<Vec<Followed>>, String> {
    let (chunks, rest) = bytes.as_chunks::<SIZE>();
    if !rest.is_empty() {
        return Err(format!("{} bytes of readings of {SIZE} bytes", bytes.len()));
    }
    let mut all = vec![Vec::new(); consumers];
    for (number, chunk) in chunks.iter().enumerate() {
        let read = reading(chunk).and_then(|(consumer, read)| {
            all.get_mut(usize::try_from(consumer).ok()?)?.push(read);
            Some(())
        });
        read.ok_or_else(|| format!("a malformed reading, number {number}"))?;
    }
    Ok(all)
}

/// One reading and its consumer.
fn reading(bytes: &[u8; SIZE]) -> Option<(u32, Followed)> {
    let (consumer, rest) = bytes.split_first_chunk()?;
    let (partition, rest) = rest.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let partition = i32::from_le_bytes(*partition);
    let offset = i64::from_le_bytes(*offset);
    let at = u64::try_from(i64::from_le_bytes(*rest.first_chunk()?)).ok()?;
    let number = u64::from_le_bytes(*number);
    let read = Followed { partition, offset, number, at };
    (partition >= 0 && offset >= 0).then_some((u32::from_le_bytes(*consumer), read))
}

#[cfg(test)]
mod tests;
