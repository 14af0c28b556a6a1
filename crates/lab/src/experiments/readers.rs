//! Consumers that run alongside a load and read all its records.

pub(super) mod fetches;
pub(super) mod followers;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::{Consumer, ConsumerConfig, ConsumerRecord, TopicPartition};
#[cfg(feature = "sim")]
use curtail_sim::world::Handle;
use parking_lot::Mutex;
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle, time::sleep};

use self::fetches::Fetches;
use super::{
    LatencyUntil, Sample,
    check::{Order, read_back},
    load::{EARLIER, Sent, nanos, number, worst_ms},
};
use crate::{
    latency::Latencies,
    over_time::OverTime,
    perf::{
        Error, Pacer, Result, client_runtime,
        e2e::{assign_at_end, now},
    },
};

/// Longest wait for the next record; the missing records then count as lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Latencies over time that several consumers record together.
pub(super) type SharedOverTime = Arc<Mutex<OverTime>>;

/// The records that a consumer expects.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// When the first record was due.
    pub(super) start: Instant,
    /// Records per second.
    pub(super) rate: f64,
    /// Number of records, warm-up included.
    pub(super) records: u64,
    /// Records at the start that do not count.
    pub(super) warmup: u64,
    /// Records at the end that do not count.
    pub(super) cooldown: u64,
    /// The application's work after each non-empty poll.
    pub(super) work: Work,
    /// Latencies of all consumers together, by the records' intended send time.
    pub(super) over_time: SharedOverTime,
    /// The partition whose records do not count, if any.
    pub(super) apart: Option<i32>,
    /// Records of an earlier load to read as well.
    pub(super) backlog: u64,
}

impl Expected {
    /// All records count, the application does nothing with them, and there is no backlog.
    pub(super) fn new(start: Instant, rate: f64, records: u64) -> Self {
        Self {
            start,
            rate,
            records,
            warmup: 0,
            cooldown: 0,
            work: Work::Nothing,
            over_time: SharedOverTime::default(),
            apart: None,
            backlog: 0,
        }
    }
}

/// The application's work with the records of a poll.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// None, which takes no time.
    Nothing,
    /// Sleeps this long and on to the timer's next millisecond.
    Sleep(Duration),
    /// In virtual time: `least` and up to `more`, uniformly distributed.
    #[cfg(feature = "sim")]
    Drawn { handle: Handle, least: Duration, more: Duration },
}

impl Work {
    async fn done(&self) {
        match self {
            Self::Nothing => {}
            Self::Sleep(time) => sleep(*time).await,
            #[cfg(feature = "sim")]
            Self::Drawn { handle, least, more } => {
                let more = Duration::from_nanos(handle.below(nanos(*more) + 1));
                handle.until(handle.now() + *least + more).await;
            }
        }
    }
}

/// When and where a record was read. Times are nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// The partition's previous poll. From then on the consumer had reached this record or was fetching it.
    pub(super) caught_up: u64,
    /// The poll that returned it.
    pub(super) read: u64,
}

/// The reading of every record, by number; `None` for a record that was not read.
pub(super) type Readings = Vec<Option<Reading>>;

/// What one consumer has read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) readings: Readings,
    /// From the intended send time to the poll that returned the record; records after the warm-up that
    /// count.
    pub(super) latency: Latencies,
    /// When the last record of the earlier load was read, since the start.
    pub(super) caught_up: Option<Duration>,
    /// Fetch responses during the load, if the client reports them.
    pub(super) fetches: Fetches,
    missing: u64,
    again: u64,
    out_of_order: OutOfOrder,
}

/// Records that a consumer received in another order than the partition's previous record requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OutOfOrder {
    /// Sent before the previous one.
    sent: u64,
    /// Before the previous one in the partition.
    offsets: u64,
}

impl OutOfOrder {
    /// Records that violate the promised order.
    ///
    /// Keyless records have no order among each other once one has moved to another partition (decision 0061), so a
    /// consumer owes them the order of the offsets only. `read_back` compares the offsets with the acknowledgements.
    fn violating(self, order: Order) -> u64 {
        match order {
            Order::Sent | Order::SentInTurn(_) => self.sent,
            Order::Acknowledged => self.offsets,
        }
    }
}

/// Creates consumers, each at the end of every partition.
///
/// # Errors
/// Invalid settings, or a missing topic.
pub(super) fn at_end(
    runtime: &Runtime,
    config: &ConsumerConfig,
    topic: &str,
    count: usize,
) -> Result<Vec<Consumer>> {
    runtime.block_on(async {
        let mut consumers = Vec::with_capacity(count);
        for _ in 0..count {
            let mut consumer = Consumer::new(config.clone())?;
            assign_at_end(&mut consumer, topic).await?;
            consumers.push(consumer);
        }
        Ok(consumers)
    })
}

/// Creates one consumer, as [`at_end`].
///
/// # Errors
/// As [`at_end`].
pub(super) fn one_at_end(
    runtime: &Runtime,
    config: &ConsumerConfig,
    topic: &str,
) -> Result<Consumer> {
    let consumer = at_end(runtime, config, topic, 1)?.pop();
    consumer.ok_or_else(|| Error::Unexpected("no consumer".into()))
}

/// All partitions of a topic.
pub(super) async fn partitions(consumer: &Consumer, topic: &str) -> Result<Vec<TopicPartition>> {
    let partitions = consumer.partitions_for(topic).await?;
    Ok(partitions.iter().map(|info| TopicPartition::new(topic, info.partition)).collect())
}

/// A separate runtime for the consumers.
pub(super) fn runtime() -> Result<Runtime> {
    client_runtime()
}

/// Starts one task per consumer, which reads everything.
pub(super) fn read(
    runtime: &Runtime,
    consumers: Vec<Consumer>,
    expected: &Expected,
) -> Vec<JoinHandle<Result<Read>>> {
    let read = |consumer| runtime.spawn(Reader::new(expected.clone()).run(consumer));
    consumers.into_iter().map(read).collect()
}

/// Waits for all readers and collects what they read.
pub(super) fn join(runtime: &Runtime, readers: Vec<JoinHandle<Result<Read>>>) -> Result<Vec<Read>> {
    let joined = readers.into_iter().map(|reader| {
        let ended = runtime.block_on(reader);
        ended.unwrap_or_else(|error| Err(Error::Unexpected(format!("a reader failed: {error}"))))
    });
    joined.collect()
}

impl Read {
    /// Adds the records that this consumer missed, received twice or received out of order.
    pub(super) fn add_to(&self, order: Order, sample: &mut Sample) {
        sample.lost += self.missing;
        sample.duplicated += self.again;
        sample.reordered += self.out_of_order.violating(order);
    }

    /// Adds the time to catch up with an earlier load, as a figure.
    pub(super) fn note_caught_up(&self, sample: &mut Sample) {
        if let Some(caught_up) = self.caught_up {
            sample.note("caught_up_ms", worst_ms(nanos(caught_up)));
        }
    }
}

/// The sample of a load that each consumer has read completely: losses on the way to any of them, and
/// latencies until the polls.
///
/// # Errors
/// As [`read_back`].
pub(super) fn sample(
    mut sent: Sent,
    order: Order,
    mut read: Vec<Read>,
    over_time: &Mutex<OverTime>,
) -> Result<Sample> {
    // The phases are those of one consumer: all read the same records.
    if let Some(first) = read.first_mut() {
        sent.read_by(std::mem::take(&mut first.readings));
    }
    let mut sample = sent.sample();
    read_back(&sent, order, &mut sample)?;
    read.iter().for_each(|read| read.add_to(order, &mut sample));
    let latency = merged(read.iter().map(|read| &read.latency));
    set_latency(&mut sample, latency, over_time);
    Ok(sample)
}

/// One consumer's reading.
pub(super) struct Reader {
    expected: Expected,
    pacer: Pacer,
    partitions: BTreeMap<i32, Progress>,
    left: u64,
    behind: u64,
    read: Read,
}

/// How far one partition has been read.
#[derive(Default)]
struct Progress {
    /// Number and offset of the last record.
    last: Option<(u64, i64)>,
    /// The last poll that returned records of the partition, in nanoseconds since the start, and the previous
    /// one.
    polled: u64,
    before: u64,
}

impl Progress {
    /// Records that a poll returned a record; returns the time of the previous poll.
    fn poll(&mut self, at: u64) -> u64 {
        if self.polled != at {
            self.before = std::mem::replace(&mut self.polled, at);
        }
        self.before
    }

    /// Counts a record that is out of order after the last one.
    fn follow(&mut self, number: u64, offset: i64, counts: &mut OutOfOrder) {
        if let Some((last, last_offset)) = self.last.replace((number, offset)) {
            counts.sent += u64::from(number < last);
            counts.offsets += u64::from(offset < last_offset);
        }
    }
}

impl Reader {
    pub(super) fn new(expected: Expected) -> Self {
        let pacer = Pacer::new(expected.start, expected.rate);
        let readings = vec![None; usize::try_from(expected.records).unwrap_or(0)];
        let (left, behind) = (expected.records, expected.backlog);
        let read = Read { readings, ..Read::default() };
        Self { expected, pacer, partitions: BTreeMap::new(), left, behind, read }
    }

    /// Whether everything has been read.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.behind == 0
    }

    /// Takes the records of a poll.
    pub(super) fn take(&mut self, records: impl IntoIterator<Item = ConsumerRecord>) {
        let now = now();
        for record in records {
            self.take_one(&record, now);
        }
    }

    fn take_one(&mut self, record: &ConsumerRecord, now: Instant) {
        let read = nanos(now.saturating_duration_since(self.expected.start));
        let number = record.value().and_then(number);
        self.take_read(record.partition(), record.offset(), number, read);
    }

    /// Takes a record that a poll returned at this time, in nanoseconds since the start.
    fn take_read(&mut self, partition: i32, offset: i64, number: Option<u64>, read: u64) {
        let progress = self.partitions.entry(partition).or_default();
        // Records of an earlier load count for the catch-up, too.
        let caught_up = progress.poll(read);
        let Some(number) = number else { return };
        if number >= EARLIER {
            return self.take_earlier(read);
        }
        let readings = &mut self.read.readings;
        let Some(seen) = usize::try_from(number).ok().and_then(|at| readings.get_mut(at)) else {
            return;
        };
        if seen.is_some() {
            self.read.again += 1;
            return;
        }
        *seen = Some(Reading { partition, offset, caught_up, read });
        self.left -= 1;
        progress.follow(number, offset, &mut self.read.out_of_order);
        let Expected { records, warmup, cooldown, .. } = self.expected;
        if (warmup..records.saturating_sub(cooldown)).contains(&number) {
            let due = self.pacer.due(number);
            let due = nanos(due.saturating_duration_since(self.expected.start));
            let latency = read.saturating_sub(due);
            if self.expected.apart != Some(partition) {
                self.expected.over_time.lock().record(due, latency);
                self.read.latency.record_nanos(latency);
            }
        }
    }

    fn take_earlier(&mut self, read: u64) {
        if self.behind == 1 {
            self.read.caught_up = Some(Duration::from_nanos(read));
        }
        self.behind = self.behind.saturating_sub(1);
    }

    /// Number of different records read.
    pub(super) fn taken(&self) -> u64 {
        self.expected.records - self.left
    }

    /// Returns what was read.
    pub(super) fn finish(self) -> Read {
        let records = self.expected.records;
        self.finish_of(records)
    }

    /// Returns what was read when fewer records were sent than expected.
    pub(super) fn finish_of(mut self, records: u64) -> Read {
        self.read.missing = records.saturating_sub(self.taken());
        self.read
    }

    /// Reads until all records are read or no more arrive.
    ///
    /// # Errors
    /// Errors of the consumer.
    pub(super) async fn run(mut self, mut consumer: Consumer) -> Result<Read> {
        let earlier = consumer.metrics();
        while !self.is_done() {
            let records = consumer.poll(PATIENCE).await?;
            if records.is_empty() {
                break;
            }
            self.take(records);
            self.expected.work.done().await;
        }
        self.read.fetches = Fetches::since(&earlier, &consumer.metrics(), self.taken());
        consumer.close().await;
        Ok(self.finish())
    }
}

/// Reads until the number of records is known and all are read, or no more arrive.
///
/// # Errors
/// Errors of the consumer.
pub(super) async fn read_until_told(
    mut consumer: Consumer,
    expected: Expected,
    mut sent: watch::Receiver<Option<u64>>,
) -> Result<Read> {
    let mut reader = Reader::new(expected);
    let mut last = now();
    let records = loop {
        let told = *sent.borrow_and_update();
        if let Some(sent) = told
            && (reader.taken() >= sent || now().saturating_duration_since(last) > PATIENCE)
        {
            break sent;
        }
        let records = consumer.poll(Duration::from_millis(100)).await?;
        if records.is_empty() {
            continue;
        }
        last = now();
        reader.take(records);
        reader.expected.work.done().await;
    };
    consumer.close().await;
    Ok(reader.finish_of(records))
}

/// Replaces the sample's latencies, those of the acknowledgements, by those of consumers.
pub(super) fn set_latency(sample: &mut Sample, latency: Latencies, over_time: &Mutex<OverTime>) {
    sample.latency = latency;
    sample.over_time = std::mem::take(&mut *over_time.lock());
    sample.latency_until = LatencyUntil::Polled;
}

/// Adds properties to the settings of a consumer.
pub(super) fn with_properties(
    mut config: ConsumerConfig,
    properties: &[(&str, impl AsRef<str>)],
) -> Result<ConsumerConfig> {
    for (name, value) in properties {
        config.set(name, value.as_ref()).map_err(Error::from)?;
    }
    Ok(config)
}

/// Merges latencies.
pub(super) fn merged<'a>(latencies: impl IntoIterator<Item = &'a Latencies>) -> Latencies {
    latencies.into_iter().fold(Latencies::default(), |mut sum, latencies| {
        sum.add(latencies);
        sum
    })
}
