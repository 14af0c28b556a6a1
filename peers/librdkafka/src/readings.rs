//! Common parts of every driver's `follow`: the records that each consumer has read, and their file.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report};
use crate::open_loop::{EARLIER, number_of};

/// Longest wait for the next record. The missing ones are a result.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Records that one consumer has read.
pub struct Readings {
    start: Instant,
    /// The measured records that have been read.
    seen: Vec<bool>,
    /// Records that are still expected: measured ones, and those of an earlier load.
    left: u64,
    behind: u64,
    all: Vec<Reading>,
    bytes: u64,
}

/// One record. The time is nanoseconds since the start.
struct Reading {
    partition: i32,
    offset: i64,
    number: u64,
    at: u64,
}

impl Readings {
    pub fn new(args: &Args, start: Instant) -> Self {
        let seen = vec![false; usize::try_from(args.records).unwrap_or(0)];
        let expected = usize::try_from(args.records + args.backlog).unwrap_or(0);
        let all = Vec::with_capacity(expected);
        Self { start, seen, left: args.records, behind: args.backlog, all, bytes: 0 }
    }

    /// Whether everything has been read.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.behind == 0
    }

    /// The time of a poll.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Adds a record of a poll that returned at this time.
    pub fn take(
        &mut self,
        value: Option<&[u8]>,
        partition: i32,
        offset: i64,
        at: u64,
    ) -> Result<(), String> {
        let number = value.and_then(number_of).filter(|number| {
            *number >= EARLIER || usize::try_from(*number).is_ok_and(|at| at < self.seen.len())
        });
        let Some(number) = number else {
            return Err(format!("partition {partition}, offset {offset} is not of this load"));
        };
        if number >= EARLIER {
            self.behind = self.behind.saturating_sub(1);
        } else if !std::mem::replace(&mut self.seen[number as usize], true) {
            self.left -= 1;
        }
        self.bytes += value.map_or(0, <[u8]>::len) as u64;
        self.all.push(Reading { partition, offset, number, at });
        Ok(())
    }
}

/// Writes what the consumers have read, in the format of peers/README.md, and reports it.
pub fn finish(
    args: &Args,
    client: &'static str,
    version: String,
    cpu: (Cpu, Cpu),
    consumers: &[Readings],
) -> Result<Report, Failure> {
    let records = consumers.iter().map(|readings| readings.all.len()).sum::<usize>() as u64;
    let bytes = consumers.iter().map(|readings| readings.bytes).sum::<u64>();
    let last = consumers.iter().filter_map(|readings| Some(readings.all.last()?.at)).max();
    if let Some(path) = &args.fates {
        let mut file = Vec::with_capacity(32 * records as usize);
        for (consumer, readings) in (0_u32..).zip(consumers) {
            for Reading { partition, offset, number, at } in &readings.all {
                file.extend(consumer.to_le_bytes());
                file.extend(partition.to_le_bytes());
                file.extend(offset.to_le_bytes());
                file.extend(number.to_le_bytes());
                file.extend(at.to_le_bytes());
            }
        }
        std::fs::write(path, file).map_err(|error| format!("write {path}: {error}"))?;
    }
    Ok(Report {
        client,
        version,
        tool: "follow",
        records,
        errors: 0,
        record_size: (bytes as f64 / records.max(1) as f64).round(),
        bytes,
        elapsed: Duration::from_nanos(last.unwrap_or(0)),
        cpu,
        latency: Histogram::new(),
        send_latency: Histogram::new(),
    })
}
