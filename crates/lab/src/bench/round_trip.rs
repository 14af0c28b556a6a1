//! `RoundTripWorkloadSpec`: every record sent is read back once and unchanged.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curtail::{Consumer, Record, TopicPartition};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{runtime::Runtime, sync::watch};

use super::{
    Figures, Outcome,
    payload::{Generator, Payloads},
    place::{self, Place},
    produce::{ended, now_ms},
    refuse, status,
    track::{Tally, Track},
    trogdor::{self, RoundTrip, Throttle},
};
use crate::{
    latency::Latencies,
    perf::{
        Progress, Result, client_runtime,
        produce::client::{Client, Door},
        sleep_precisely,
    },
};

/// Trogdor's status of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoundTripStatus {
    total_unique_sent: u64,
    total_received: u64,
}

/// Trogdor's settings of the producer.
const PRODUCER: [(&str, &str); 6] = [
    ("batch.size", "16384"),
    ("buffer.memory", "65536"),
    ("max.block.ms", "1000"),
    ("client.id", "producer.curtail"),
    ("acks", "all"),
    ("request.timeout.ms", "105000"),
];
/// Trogdor's settings of the consumer. It needs no group: it begins at the end of every partition.
const CONSUMER: [(&str, &str); 3] = [
    ("client.id", "consumer.curtail"),
    ("auto.offset.reset", "earliest"),
    ("request.timeout.ms", "105000"),
];

/// Longest wait for the next record after the last send; the missing records then count as lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the workload until all records are read back, or no more arrive.
pub(super) fn run(
    spec: &RoundTrip,
    bootstrap: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    if spec.target_messages_per_sec <= 0 {
        return refuse("targetMessagesPerSec must be above 0");
    }
    let topics = trogdor::topics(&spec.active_topics)?;
    if topics.is_empty() {
        return refuse("activeTopics names no topic");
    }
    let default = Generator::UniformRandom { size: 32, seed: 123, padding: 10 };
    let values = Payloads::new(spec.value_generator.as_ref().unwrap_or(&default))?;
    let bootstrap = bootstrap.or(spec.bootstrap_servers.as_deref());
    let place = Place::open(bootstrap, place::replicas(&topics), progress)?;
    let producer =
        place.producer(&PRODUCER, spec.common_client_conf.iter().chain(&spec.producer_conf))?;
    if producer.get_transactional_id().is_some() {
        return refuse("a round trip is not transactional: leave transactional.id out");
    }
    let consumer =
        place.consumer(&CONSUMER, spec.common_client_conf.iter().chain(&spec.consumer_conf))?;
    let runtime = client_runtime()?;
    let _guard = runtime.enter();
    let admin = place.admin(spec.common_client_conf.iter().chain(&spec.admin_client_conf))?;
    runtime.block_on(place::create(&admin, &topics))?;
    let partitions = place::partitions(&topics);
    let consumer = runtime.block_on(at_end(Consumer::new(consumer)?, &partitions))?;
    let names: Vec<&str> = topics.keys().map(String::as_str).collect();
    let mut client = runtime.block_on(Client::start(producer, &names))?;

    let pending = Arc::new(Mutex::new(Pending::new(spec.max_messages)));
    let (done, told) = watch::channel(None);
    let reader = runtime.spawn(read(consumer, pending.clone(), told));
    let door = runtime.block_on(client.open())?;
    let sent = send(spec, &runtime, &door, &partitions, values, &pending);
    let flushed = runtime.block_on(door.shut());
    // The reader may have all records already, or have failed.
    let _ = done.send(Some(Instant::now()));
    let read = runtime.block_on(reader).map_err(|error| ended(&error))?;
    runtime.block_on(client.close())?;
    let mut track = sent?;
    flushed?;
    read?;
    let tally = track.take();
    let pending = std::mem::take(&mut *pending.lock());
    outcome(&pending, &tally, spec.max_messages)
}

/// Fixes the positions before the first send, so that records of earlier runs are not read.
async fn at_end(mut consumer: Consumer, partitions: &[TopicPartition]) -> Result<Consumer> {
    consumer.assign(partitions.iter().cloned());
    consumer.seek_to_end(partitions)?;
    for partition in partitions {
        consumer.position(partition).await?;
    }
    Ok(consumer)
}

fn send(
    spec: &RoundTrip,
    runtime: &Runtime,
    door: &Door<'_>,
    partitions: &[TopicPartition],
    mut values: Payloads,
    pending: &Mutex<Pending>,
) -> Result<Track> {
    sleep_precisely();
    let throttle = Throttle::new(spec.target_messages_per_sec);
    let start = Instant::now();
    let end = start + Duration::from_millis(spec.duration_ms);
    let mut track = Track::default();
    for number in 0..spec.max_messages {
        let due = start + throttle.due(number);
        thread::sleep(due.min(end).saturating_duration_since(Instant::now()));
        if Instant::now() >= end {
            break;
        }
        let at = &partitions[(number % partitions.len() as u64) as usize];
        let value = values.get(number, now_ms());
        let key = (number as u32).to_le_bytes();
        pending.lock().sent(number, value.clone(), due);
        let mut record = Record::to(&at.topic).partition(at.partition).key(&key);
        if let Some(value) = &value {
            record = record.value(value);
        }
        track.send(runtime, door, record, due)?;
    }
    Ok(track)
}

/// A record that has not been read back.
#[derive(Debug)]
struct Expected {
    value: Option<Vec<u8>>,
    due: Instant,
    sent: Instant,
}

/// Records sent and not yet read back, by number, and the errors found.
#[derive(Debug, Default)]
struct Pending {
    all: u64,
    open: BTreeMap<u64, Expected>,
    sent: u64,
    received: u64,
    again: u64,
    changed: u64,
    foreign: u64,
    from_send: Latencies,
    from_intended: Latencies,
}

impl Pending {
    fn new(all: u64) -> Self {
        Self { all, ..Self::default() }
    }

    fn sent(&mut self, number: u64, value: Option<Vec<u8>>, due: Instant) {
        self.sent += 1;
        self.open.insert(number, Expected { value, due, sent: Instant::now() });
    }

    fn take(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, now: Instant) {
        let number = key.and_then(|key| key.try_into().ok()).map(u32::from_le_bytes);
        let Some(number) = number.map(u64::from).filter(|number| *number < self.all) else {
            self.foreign += 1;
            return;
        };
        let Some(expected) = self.open.remove(&number) else {
            self.again += 1;
            return;
        };
        self.received += 1;
        self.changed += u64::from(expected.value.as_deref() != value);
        self.from_send.record(now.saturating_duration_since(expected.sent));
        self.from_intended.record(now.saturating_duration_since(expected.due));
    }

    /// Errors of the records read back, in words.
    fn wrong(&self) -> Option<String> {
        let counts = [
            (self.open.len() as u64, "missing"),
            (self.again, "duplicated"),
            (self.changed, "changed"),
            (self.foreign, "not of this run"),
        ];
        let said: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if said.is_empty() {
            return None;
        }
        let first = self.open.keys().next().map(|number| format!("; the first missing: {number}"));
        Some(format!(
            "records were read back with errors: {}{}",
            said.join(", "),
            first.unwrap_or_default()
        ))
    }
}

/// Reads until all sent records are read back, or none has arrived for too long.
async fn read(
    mut consumer: Consumer,
    pending: Arc<Mutex<Pending>>,
    done: watch::Receiver<Option<Instant>>,
) -> Result<()> {
    let mut last = Instant::now();
    loop {
        let records = consumer.poll(Duration::from_millis(50)).await?;
        let now = Instant::now();
        if !records.is_empty() {
            last = now;
        }
        let mut pending = pending.lock();
        for record in records {
            pending.take(record.key(), record.value(), now);
        }
        // A closed channel means that the sender has ended.
        let sent_all = done.has_changed().is_err() || done.borrow().is_some();
        let since = done.borrow().map_or(last, |sent| sent.max(last));
        if sent_all && (pending.open.is_empty() || now > since + PATIENCE) {
            break;
        }
    }
    // Duplicates come after the records that were awaited.
    let partitions: Vec<_> = consumer.assignment().into_iter().collect();
    let ends = consumer.end_offsets(&partitions).await?;
    for (at, end) in ends {
        while consumer.position(&at).await? < end && last.elapsed() < PATIENCE {
            let records = consumer.poll(Duration::from_millis(50)).await?;
            let now = Instant::now();
            let mut pending = pending.lock();
            for record in records {
                last = now;
                pending.take(record.key(), record.value(), now);
            }
        }
    }
    consumer.close().await;
    Ok(())
}

fn outcome(pending: &Pending, tally: &Tally, all: u64) -> Result<Outcome> {
    let mut wrong: Vec<String> = pending.wrong().into_iter().collect();
    if tally.errors > 0 {
        let first = tally.first_error.clone().unwrap_or_default();
        wrong.push(format!("{} records were not acknowledged; the first: {first}", tally.errors));
    }
    if pending.sent < all {
        wrong.push(format!("durationMs ended before record {} of {all}", pending.sent));
    }
    Ok(Outcome {
        status: status(&RoundTripStatus {
            total_unique_sent: pending.sent,
            total_received: pending.received,
        })?,
        from_send: Figures::of(&pending.from_send, "from the send until the poll that returned it"),
        from_intended: Figures::of(
            &pending.from_intended,
            "from the intended send time until the poll that returned it",
        ),
        notes: Vec::new(),
        failure: (!wrong.is_empty()).then(|| wrong.join("; ")),
    })
}
