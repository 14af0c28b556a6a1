//! Common parts of every driver's `load`: the start, the records, and their outcomes.

use std::io::BufRead as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report, sleep_until};

/// First record number of the warm-up, or of an earlier load.
pub const EARLIER: u64 = 1 << 40;
/// Bytes of a value that hold the record's number.
const NUMBER: usize = 8;
/// Letters that values are cut from, beyond the length of one value. With fewer, values repeat within a batch, and a codec
/// compresses the repetitions.
const POOL: usize = 1 << 22;
/// Longest time from now to a start; a larger one belongs to another clock.
const LONGEST: Duration = Duration::from_secs(60);

/// Prints `ready` and waits for the line `go`, with or without a start time.
pub fn await_start() -> Result<Instant, Failure> {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let (now, clock) = (Instant::now(), Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?));
    let mut words = line.split_whitespace();
    let start = match (words.next(), words.next()) {
        (Some("go"), None) => return Ok(now),
        (Some("go"), Some(nanos)) => Duration::from_nanos(nanos.parse()?),
        _ => {
            let text = "expected \"go\" or \"go NANOSECONDS\" on standard input";
            return Err(format!("{text}, not {line:?}").into());
        }
    };
    if start.abs_diff(clock) > LONGEST {
        let text = format!("the start is at {start:?}; this process's clock is at {clock:?}");
        return Err(text.into());
    }
    let start =
        if start > clock { now.checked_add(start - clock) } else { now.checked_sub(clock - start) };
    start.ok_or_else(|| "the start is no time of this clock".into())
}

/// Producer and partition of a record.
#[derive(Clone, Copy)]
pub struct Place {
    pub producer: usize,
    /// `None` if the client chooses.
    pub partition: Option<i32>,
}

impl Place {
    fn of(args: &Args, index: u64) -> Self {
        let in_turn = |count: usize| (index % count as u64) as usize;
        let partitions = &args.to_partitions;
        let partition = (!partitions.is_empty()).then(|| partitions[in_turn(partitions.len())]);
        Self { producer: in_turn(args.producers), partition }
    }
}

/// Values: the record's number, then letters. Keys: a number of different ones, in turn.
pub struct Records {
    letters: Vec<u8>,
    value: Vec<u8>,
    keys: u64,
    warmup: u64,
}

impl Records {
    fn new(args: &Args) -> Self {
        let mut state = args.seed;
        let mut next = || {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            b'A' + ((z ^ (z >> 31)) % 26) as u8
        };
        let letters = (0..POOL + args.record_size).map(|_| next()).collect();
        Self { letters, value: vec![0; args.record_size], keys: args.keys, warmup: args.warmup }
    }

    /// The record of this slot; the warm-up has the first slots.
    pub fn get(&mut self, slot: u64) -> (Option<[u8; 8]>, &[u8]) {
        let (first, index) = match slot.checked_sub(self.warmup) {
            Some(index) => (0, index),
            None => (EARLIER, slot),
        };
        let at = (index.wrapping_mul(40_503) as usize) % POOL;
        let (number, rest) = self.value.split_at_mut(NUMBER);
        number.copy_from_slice(&(first + index).to_be_bytes());
        rest.copy_from_slice(&self.letters[at..at + rest.len()]);
        let key = (self.keys > 0).then(|| (index % self.keys).to_be_bytes());
        (key, &self.value)
    }
}

/// The number of the record with this value; `None` for a foreign record.
pub fn number_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*value.first_chunk::<NUMBER>()?))
}

/// The slot of the record with this value; `None` for a foreign record.
fn slot_of(value: &[u8], warmup: u64) -> Option<usize> {
    let number = number_of(value)?;
    let slot = number.checked_sub(EARLIER).or_else(|| warmup.checked_add(number))?;
    usize::try_from(slot).ok()
}

/// Outcome of each record, the warm-up's first. Times are nanoseconds since the origin.
pub struct Fates {
    origin: Instant,
    slots: Vec<Slot>,
    first_error: OnceLock<String>,
}

struct Slot {
    sent: AtomicU64,
    /// -1 if not acknowledged.
    acknowledged: AtomicI64,
    partition: AtomicI32,
    offset: AtomicI64,
}

impl Fates {
    pub fn new(records: u64) -> Self {
        let slot = |_| Slot {
            sent: AtomicU64::new(0),
            acknowledged: AtomicI64::new(-1),
            partition: AtomicI32::new(-1),
            offset: AtomicI64::new(-1),
        };
        let slots = (0..records).map(slot).collect();
        Self { origin: Instant::now(), slots, first_error: OnceLock::new() }
    }

    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub fn sent(&self, slot: usize) {
        self.slots[slot].sent.store(self.now(), Ordering::Relaxed);
    }

    /// Records that a record was read back at this time.
    pub fn read(&self, slot: usize, sent: u64, read: u64, partition: i32, offset: i64) {
        self.slots[slot].sent.store(sent, Ordering::Relaxed);
        self.acknowledged_at(slot, read, partition, offset);
    }

    /// Records that a record with this value was read back now, from this place.
    pub fn returned(
        &self,
        value: Option<&[u8]>,
        warmup: u64,
        partition: i32,
        offset: i64,
    ) -> Result<(), String> {
        let slot = value.and_then(|value| slot_of(value, warmup));
        let Some(slot) = slot.filter(|slot| self.awaits(*slot)) else {
            let text = format!("partition {partition}, offset {offset}");
            return Err(format!("{text} came twice or is not of this load"));
        };
        self.acknowledged(slot, partition, offset);
        Ok(())
    }

    pub fn acknowledged(&self, slot: usize, partition: i32, offset: i64) {
        self.acknowledged_at(slot, self.now(), partition, offset);
    }

    fn acknowledged_at(&self, slot: usize, now: u64, partition: i32, offset: i64) {
        let slot = &self.slots[slot];
        slot.partition.store(partition, Ordering::Relaxed);
        slot.offset.store(offset, Ordering::Relaxed);
        slot.acknowledged.store(now as i64, Ordering::Relaxed);
    }

    /// Whether this slot exists and has no fate yet.
    fn awaits(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.acknowledged.load(Ordering::Relaxed) < 0)
    }

    pub fn failed(&self, error: impl ToString) {
        self.first_error.get_or_init(|| error.to_string());
    }

    /// Writes the slots after the warm-up in the format of peers/README.md. `start` is nanoseconds since the
    /// origin.
    pub fn write(&self, path: &str, warmup: u64, start: u64) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(28 * self.slots.len());
        for slot in &self.slots[warmup as usize..] {
            let sent = slot.sent.load(Ordering::Relaxed).saturating_sub(start);
            let acknowledged = match slot.acknowledged.load(Ordering::Relaxed) {
                -1 => -1,
                at => (at - start as i64).max(sent as i64),
            };
            bytes.extend((sent as i64).to_le_bytes());
            bytes.extend(acknowledged.to_le_bytes());
            bytes.extend(slot.partition.load(Ordering::Relaxed).to_le_bytes());
            bytes.extend(slot.offset.load(Ordering::Relaxed).to_le_bytes());
        }
        std::fs::write(path, bytes).map_err(|error| format!("write {path}: {error}").into())
    }
}

/// Sends the warm-up, waits for `go`, and sends the measured records. `send` starts sending a record at its
/// due time, independent of earlier records, with this producer; `drain` waits until all have their fates.
pub fn run(
    args: &Args,
    fates: &Fates,
    client: &'static str,
    version: String,
    mut send: impl FnMut(usize, Place, Option<&[u8]>, &[u8]) -> Result<(), Failure>,
    mut drain: impl FnMut() -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let rate = args.rate.unwrap_or(f64::INFINITY);
    let mut records = Records::new(args);
    // The records of a burst are due when the first of them would be due alone.
    let due = |index: u64| ((index - index % args.burst) as f64 * 1e9 / rate) as u64;
    let mut all = |slots: std::ops::Range<u64>, start: u64| -> Result<(), Failure> {
        for slot in slots.clone() {
            let index = slot - slots.start;
            sleep_until(fates.origin, start + due(index));
            let (key, value) = records.get(slot);
            fates.sent(slot as usize);
            send(slot as usize, Place::of(args, index), key.as_ref().map(|key| &key[..]), value)?;
        }
        drain()
    };
    if args.warmup > 0 {
        all(0..args.warmup, fates.now())?;
        if let Some(error) = fates.first_error.get() {
            return Err(format!("the warm-up failed: {error}").into());
        }
    }
    let start = await_start()?.saturating_duration_since(fates.origin).as_nanos() as u64;
    let cpu = Cpu::now()?;
    all(args.warmup..args.records, start)?;
    let (cpu_end, end) = (Cpu::now()?, fates.now());
    if let Some(error) = fates.first_error.get() {
        eprintln!("first error: {error}");
    }
    if let Some(path) = &args.fates {
        fates.write(path, args.warmup, start)?;
    }
    let (mut latency, mut send_latency, mut acknowledged) = (Histogram::new(), Histogram::new(), 0);
    for (index, slot) in (0..).zip(&fates.slots[args.warmup as usize..]) {
        let Ok(at) = u64::try_from(slot.acknowledged.load(Ordering::Relaxed)) else { continue };
        acknowledged += 1;
        latency.record(at.saturating_sub(start + due(index)));
        send_latency.record(at.saturating_sub(slot.sent.load(Ordering::Relaxed)));
    }
    Ok(Report {
        client,
        version,
        tool: "load",
        records: acknowledged,
        errors: args.records - args.warmup - acknowledged,
        record_size: args.record_size as f64,
        bytes: acknowledged * args.record_size as u64,
        elapsed: Duration::from_nanos(end.saturating_sub(start)),
        cpu: (cpu, cpu_end),
        latency,
        send_latency,
    })
}
