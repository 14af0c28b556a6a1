//! One run of a load: an open-loop sender, consumers, and the join of their phase timestamps.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use curtail::{
    Consumer, ConsumerConfig, Delivery, Producer, ProducerConfig, Record, RecordMetadata,
    TopicPartition, consumer::RecordBatch,
};
use tokio::{runtime::Runtime, task::JoinHandle, time::timeout};

use super::{
    machine::Busy,
    sample::{ClockOffset, Passage, Sample},
    stop::Stop,
};
use crate::{
    error::{Error, Result},
    letters::Letters,
    pacer::{Pacer, sleep_precisely},
    setup::client_runtime,
};

/// A load to run once.
pub(super) struct Trial<'a> {
    pub(super) producer: ProducerConfig,
    pub(super) consumer: ConsumerConfig,
    /// Consumers that share the partitions.
    pub(super) consumers: usize,
    pub(super) topic: &'a str,
    /// Leaders by partition.
    pub(super) leaders: &'a [i32],
    /// Records per second.
    pub(super) rate: f64,
    /// Bytes of a value, at least [`SMALLEST`].
    pub(super) size: usize,
    pub(super) length: Duration,
    pub(super) stop: &'a Stop,
}

/// Bytes of a value that hold the run's mark and the record's number.
pub(super) const SMALLEST: usize = 16;
/// Share of a run that does not count: connections, caches and batches settle.
const WARMUP: f64 = 0.2;
/// Longest wait for the next record; the missing records then count as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest single wait, so that a stop is noticed.
const POLL: Duration = Duration::from_millis(50);

/// A record that was sent. Nanoseconds since the start.
struct Sent {
    at: u64,
    delivery: Option<Delivery>,
}

/// A record that a poll returned. Nanoseconds since the start.
#[derive(Clone, Copy)]
struct Arrival {
    number: u64,
    drained: u64,
    behind: bool,
    fetched: u64,
    read: u64,
}

/// State that sender and readers share.
struct Shared {
    /// Mark of this run's records.
    mark: u64,
    start: Instant,
    read: AtomicU64,
    /// Records to read; `u64::MAX` while the sender is running.
    expected: AtomicU64,
    stop: Stop,
}

impl Trial<'_> {
    /// Runs the load.
    ///
    /// # Errors
    /// [`Error::Interrupted`], unusable settings, an unreachable cluster. Records that were not acknowledged
    /// are part of the sample.
    pub(super) fn run(&self) -> Result<Sample> {
        self.stop.check()?;
        let (sending, reading) = (client_runtime()?, client_runtime()?);
        let consumers = reading.block_on(self.stop.unless_set(self.consumers()))?;
        let _context = sending.enter();
        let producer = Producer::new(self.producer.clone())?;
        sending.block_on(self.stop.unless_set(producer.warm_up(&[self.topic])))?;
        let shared = Arc::new(Shared {
            mark: curtail::Env::real().entropy.next_u64(),
            start: Instant::now(),
            read: AtomicU64::new(0),
            expected: AtomicU64::new(u64::MAX),
            stop: self.stop.clone(),
        });
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock =
            Clock { start: shared.start, wall: wall.saturating_sub(shared.start.elapsed()) };
        let busy = Busy::now();
        let readers: Vec<JoinHandle<Result<Vec<Arrival>>>> = consumers
            .into_iter()
            .map(|consumer| reading.spawn(read(consumer, shared.clone())))
            .collect();
        let before = producer.metrics();
        let sent = self.send_all(&sending, &producer, &shared);
        let flushed = sent.and_then(|sent| {
            sending.block_on(self.stop.unless_set(producer.flush()))?;
            Ok(sent)
        });
        let acknowledged = flushed.as_ref().map_or(0, |sent| {
            sent.iter().filter(|sent| outcome(sent).is_some_and(|outcome| outcome.is_ok())).count()
        });
        shared.expected.store(acknowledged as u64, Ordering::Relaxed);
        let mut arrivals = Vec::new();
        for reader in readers {
            let read = reading.block_on(reader);
            let read =
                read.map_err(|error| Error::Unexpected(format!("a reader failed: {error}")))?;
            arrivals.extend(read?);
        }
        let busy = busy.until_now();
        let metrics = producer.metrics().since(&before);
        // Before the records' outcomes: a stopped run does not wait for them.
        sending.block_on(self.stop.unless_set(producer.close()))?;
        let mut sample = self.sample(&flushed?, &arrivals, clock);
        sample.busy = busy;
        sample.memory_waits = metrics.buffer_wait.count() + metrics.window_wait.count();
        let all = metrics.all_brokers();
        sample.write_share = all.write_time.mean() / all.request_latency.mean().max(1.0);
        Ok(sample)
    }

    /// Consumers at the end of their partitions: earlier records are skipped.
    async fn consumers(&self) -> Result<Vec<Consumer>> {
        let mut consumers = Vec::with_capacity(self.consumers);
        for index in 0..self.consumers {
            let mut consumer = Consumer::new(self.consumer.clone())?;
            let all = (0..self.leaders.len()).skip(index).step_by(self.consumers);
            let partitions: Vec<_> =
                all.map(|partition| TopicPartition::new(self.topic, partition as i32)).collect();
            consumer.assign(partitions.iter().cloned());
            consumer.seek_to_end(&partitions)?;
            for partition in &partitions {
                consumer.position(partition).await?;
            }
            consumers.push(consumer);
        }
        Ok(consumers)
    }

    fn records(&self) -> u64 {
        ((self.rate * self.length.as_secs_f64()) as u64).max(1)
    }

    /// Sends each record when it is due.
    ///
    /// If the cluster or the machine cannot keep up, sending ends after 1.5 times the planned length: the
    /// time is bounded, not the number of records.
    fn send_all(
        &self,
        runtime: &Runtime,
        producer: &Producer,
        shared: &Shared,
    ) -> Result<Vec<Sent>> {
        sleep_precisely();
        let pacer = Pacer::new(shared.start, self.rate);
        let end = shared.start + self.length * 3 / 2 + Duration::from_millis(500);
        let mut values = Values::new(self.size, shared.mark);
        let mut all = Vec::with_capacity(self.records() as usize);
        for number in 0..self.records() {
            let (_, now) = pacer.wait(number);
            if now > end {
                break;
            }
            self.stop.check()?;
            let record = Record::to(self.topic).value(values.get(number));
            let delivery = match producer.try_send(record) {
                Err(curtail::Error::BufferFull { .. }) => {
                    runtime.block_on(self.patiently(producer, record, end))?
                }
                other => Some(other?),
            };
            all.push(Sent { at: nanos(now.saturating_duration_since(shared.start)), delivery });
        }
        Ok(all)
    }

    /// Waits for memory, until the end of the run or a stop.
    async fn patiently(
        &self,
        producer: &Producer,
        record: Record<'_>,
        end: Instant,
    ) -> Result<Option<Delivery>> {
        while Instant::now() < end {
            self.stop.check()?;
            if let Ok(sent) = timeout(POLL, producer.send(record)).await {
                return Ok(Some(sent?));
            }
        }
        Ok(None)
    }

    fn sample(&self, sent: &[Sent], arrivals: &[Arrival], clock: Clock) -> Sample {
        let mut found: Vec<Option<Arrival>> = vec![None; sent.len()];
        for arrival in arrivals {
            if let Some(place) = found.get_mut(arrival.number as usize) {
                place.get_or_insert(*arrival);
            }
        }
        let warmup = (self.records() as f64 * WARMUP) as usize;
        let mut course = Course {
            trial: self,
            clock,
            passages: Vec::with_capacity(sent.len()),
            sample: Sample::default(),
            span: (u64::MAX, 0),
            acknowledged: 0,
        };
        for (number, (sent, arrival)) in sent.iter().zip(&found).enumerate().skip(warmup) {
            course.add(number as u64, sent, *arrival);
        }
        course.finish()
    }
}

fn outcome(sent: &Sent) -> Option<curtail::Result<curtail::RecordMetadata>> {
    sent.delivery.as_ref()?.outcome()
}

/// Start of a run, on both clocks.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    /// Since 1970-01-01 UTC.
    wall: Duration,
}

impl Clock {
    fn nanos(&self, at: tokio::time::Instant) -> u64 {
        nanos(at.into_std().saturating_duration_since(self.start))
    }

    /// Milliseconds since 1970-01-01 UTC.
    fn wall_ms(&self, nanos: u64) -> f64 {
        (self.wall + Duration::from_nanos(nanos)).as_secs_f64() * 1e3
    }
}

/// Collects the records of a run into a sample.
struct Course<'a> {
    trial: &'a Trial<'a>,
    clock: Clock,
    passages: Vec<Passage>,
    sample: Sample,
    /// Due time of the first record, and last acknowledgement.
    span: (u64, u64),
    acknowledged: u64,
}

impl Course<'_> {
    fn add(&mut self, number: u64, sent: &Sent, arrival: Option<Arrival>) {
        let due = (number as f64 * 1e9 / self.trial.rate) as u64;
        self.span.0 = self.span.0.min(due);
        self.sample.lateness.record_nanos(sent.at.saturating_sub(due));
        let metadata = match outcome(sent) {
            Some(Ok(metadata)) => metadata,
            Some(Err(error)) => {
                self.sample.errors += 1;
                self.sample.first_error.get_or_insert_with(|| error.report().to_string());
                return;
            }
            // It could not be sent, which lowers the throughput.
            None => return,
        };
        let Some(timing) = sent.delivery.as_ref().and_then(Delivery::timing) else { return };
        let written = self.clock.nanos(timing.written);
        let acknowledged = self.clock.nanos(timing.acknowledged);
        self.acknowledged += 1;
        self.span.1 = self.span.1.max(acknowledged);
        self.note_broker(&metadata, written, acknowledged);
        let Some(Arrival { drained, behind, fetched, read, .. }) = arrival else {
            self.sample.missing += 1;
            return;
        };
        self.passages.push(Passage { due, written, acknowledged, drained, behind, fetched, read });
    }

    fn note_broker(&mut self, metadata: &RecordMetadata, written: u64, acknowledged: u64) {
        let partition = usize::try_from(metadata.partition).ok();
        let Some(leader) = partition.and_then(|at| self.trial.leaders.get(at)) else { return };
        let requests = self.sample.by_broker.entry(*leader).or_default();
        requests.record_nanos(acknowledged.saturating_sub(written));
        let Some(append) = metadata.log_append_time else { return };
        let (from, to) = (self.clock.wall_ms(written), self.clock.wall_ms(acknowledged));
        let offset = ClockOffset::of(append, from, to);
        let known = self.sample.clocks.entry(*leader).or_insert(offset);
        *known = known.and(offset);
    }

    fn finish(self) -> Sample {
        let Self { trial, passages, sample: noted, span, acknowledged, .. } = self;
        let mut sample = Sample::of(&passages);
        sample.lateness = noted.lateness;
        sample.by_broker = noted.by_broker;
        sample.clocks = noted.clocks;
        sample.errors = noted.errors;
        sample.first_error = noted.first_error;
        sample.missing = noted.missing;
        // The last record's latency is not part of the time in which records were due.
        let due = acknowledged as f64 / trial.rate;
        let way = sample.request.quantile(0.5).as_secs_f64();
        let took = span.1.saturating_sub(span.0) as f64 / 1e9;
        let seconds = (took - way).max(due);
        let bytes = acknowledged as f64 * trial.size as f64;
        sample.bytes_per_second.push(if seconds > 0.0 { bytes / seconds } else { 0.0 });
        sample
    }
}

/// Reads a run's records until all are read or no more arrive.
async fn read(mut consumer: Consumer, shared: Arc<Shared>) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut behind = BTreeMap::new();
    let since = |at: Instant| nanos(at.saturating_duration_since(shared.start));
    let (mut drained, mut last) = (Instant::now(), Instant::now());
    while !shared.is_done(last) {
        let Some(mut batch) = consumer.poll_batch(POLL).await? else { continue };
        let fetched = Instant::now();
        // Records that have already arrived, up to the last batch, without waiting.
        loop {
            let way = Arrival {
                number: 0,
                drained: since(drained),
                behind: behind.get(&batch.partition()).copied().unwrap_or(false),
                fetched: since(fetched),
                read: since(Instant::now()),
            };
            take(&mut batch, &shared, way, &mut arrivals)?;
            match consumer.poll_batch(Duration::ZERO).await? {
                Some(next) => batch = next,
                None => break,
            }
        }
        (drained, last) = (Instant::now(), Instant::now());
        for at in consumer.assignment() {
            behind.insert(at.partition, consumer.current_lag(&at).is_some_and(|lag| lag > 0));
        }
    }
    let closing = async {
        consumer.close().await;
        Ok::<_, Error>(())
    };
    shared.stop.unless_set(closing).await?;
    Ok(arrivals)
}

/// The records of this run in a batch.
fn take(
    batch: &mut RecordBatch,
    shared: &Shared,
    way: Arrival,
    arrivals: &mut Vec<Arrival>,
) -> Result<()> {
    let before = arrivals.len();
    while let Some(record) = batch.next_record() {
        let record = record?;
        let Some((mark, number)) = record.value.and_then(mark_and_number) else { continue };
        if mark == shared.mark {
            arrivals.push(Arrival { number, ..way });
        }
    }
    shared.read.fetch_add((arrivals.len() - before) as u64, Ordering::Relaxed);
    Ok(())
}

impl Shared {
    fn is_done(&self, last: Instant) -> bool {
        let expected = self.expected.load(Ordering::Relaxed);
        let sent_all = expected != u64::MAX;
        let stopped = self.stop.check().is_err();
        stopped
            || self.read.load(Ordering::Relaxed) >= expected
            || (sent_all && last.elapsed() > PATIENCE)
    }
}

/// Values: the run's mark, the record's number, and letters.
struct Values {
    letters: Letters,
    value: Vec<u8>,
}

impl Values {
    fn new(size: usize, mark: u64) -> Self {
        let rest = size.saturating_sub(SMALLEST);
        let mut value = vec![0; SMALLEST + rest];
        value[..8].copy_from_slice(&mark.to_be_bytes());
        Self { letters: Letters::new(rest, mark), value }
    }

    fn get(&mut self, number: u64) -> &[u8] {
        self.value[8..SMALLEST].copy_from_slice(&number.to_be_bytes());
        self.value[SMALLEST..].copy_from_slice(self.letters.get(number));
        &self.value
    }
}

fn mark_and_number(value: &[u8]) -> Option<(u64, u64)> {
    let (mark, rest) = value.split_first_chunk()?;
    Some((u64::from_be_bytes(*mark), u64::from_be_bytes(*rest.first_chunk()?)))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
