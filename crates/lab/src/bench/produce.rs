//! `ProduceBenchSpec`: bursts of records every 100 ms, over partitions in turn.

use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use curtail::{ProducerConfig, Record, TopicPartition};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::{
    Figures, Outcome, millis,
    payload::{Generator, Payloads},
    place::{self, Place},
    refuse, status,
    track::{Tally, Track},
    trogdor::{self, ProduceBench, Throttle, Transactions},
};
use crate::{
    latency::Latencies,
    perf::{
        Error, Progress, Result, client_runtime,
        produce::client::{Client, Door},
        sleep_precisely,
    },
    setup::unique,
};

/// Trogdor's status of a producer. Latencies are from the send.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProduceStatus {
    total_sent: u64,
    average_latency_ms: f64,
    p50_latency_ms: u64,
    p95_latency_ms: u64,
    p99_latency_ms: u64,
    transactions_committed: u64,
}

impl ProduceStatus {
    fn new(latency: &Latencies, transactions_committed: u64) -> Self {
        let at = |quantile| latency.quantile(quantile).as_millis() as u64;
        Self {
            total_sent: latency.count(),
            average_latency_ms: millis(latency.mean()),
            p50_latency_ms: at(0.5),
            p95_latency_ms: at(0.95),
            p99_latency_ms: at(0.99),
            transactions_committed,
        }
    }
}

/// Runs the workload to its last record, or until `durationMs` have passed.
pub(super) fn run(
    spec: &ProduceBench,
    bootstrap: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let active = trogdor::topics(&spec.active_topics)?;
    let mut all = trogdor::topics(&spec.inactive_topics)?;
    all.extend(active.clone());
    if active.is_empty() {
        return refuse("activeTopics names no topic");
    }
    if let Some(transactions) = &spec.transaction_generator {
        transactions.check()?;
    }
    let keys = spec.key_generator.clone().unwrap_or(Generator::Sequential { size: 4, offset: 0 });
    let values = spec.value_generator.clone();
    let values = values.unwrap_or(Generator::Constant { size: 512, value: String::new() });
    let (keys, values) = (Payloads::new(&keys)?, Payloads::new(&values)?);
    let bootstrap = bootstrap.or(spec.bootstrap_servers.as_deref());
    let place = Place::open(bootstrap, place::replicas(&all), progress)?;
    let config = config(spec, &place)?;
    let runtime = client_runtime()?;
    let guard = runtime.enter();
    let admin = place.admin(spec.common_client_conf.iter().chain(&spec.admin_client_conf))?;
    runtime.block_on(place::create(&admin, &all))?;
    let names: Vec<&str> = active.keys().map(String::as_str).collect();
    let mut client = runtime.block_on(Client::start(config, &names))?;
    let mut sender = Sender {
        spec,
        runtime: &runtime,
        partitions: place::partitions(&active),
        keys,
        values,
        throttle: Throttle::new(spec.target_messages_per_sec),
        start: Instant::now(),
        track: Track::default(),
        committed: 0,
    };
    sleep_precisely();
    let sent = sender.run(&mut client);
    let Sender { track, committed, .. } = &mut sender;
    let (tally, committed) = (track.take(), *committed);
    let closed = runtime.block_on(client.close());
    drop(guard);
    sent?;
    closed?;
    outcome(&tally, committed)
}

fn config(spec: &ProduceBench, place: &Place) -> Result<ProducerConfig> {
    let id = format!("produce-bench-transaction-id-{}", unique());
    let defaults: &[(&str, &str)] = match spec.transaction_generator {
        Some(_) => &[("transactional.id", &id)],
        None => &[],
    };
    let config =
        place.producer(defaults, spec.common_client_conf.iter().chain(&spec.producer_conf))?;
    if spec.transaction_generator.is_none() && config.get_transactional_id().is_some() {
        return refuse("a transactional.id needs a transactionGenerator");
    }
    Ok(config)
}

fn outcome(tally: &Tally, committed: u64) -> Result<Outcome> {
    let Tally { sent, intended, errors, first_error, .. } = tally;
    let failure = (*errors > 0).then(|| {
        let first = first_error.clone().unwrap_or_default();
        format!("{errors} records were not acknowledged; the first: {first}")
    });
    Ok(Outcome {
        status: status(&ProduceStatus::new(sent, committed))?,
        from_send: Figures::of(sent, "from the send to the acknowledgement, as Trogdor counts"),
        from_intended: Figures::of(intended, "from the intended send time to the acknowledgement"),
        notes: Vec::new(),
        failure,
    })
}

struct Sender<'a> {
    spec: &'a ProduceBench,
    runtime: &'a Runtime,
    partitions: Vec<TopicPartition>,
    keys: Payloads,
    values: Payloads,
    throttle: Throttle,
    start: Instant,
    track: Track,
    committed: u64,
}

impl Sender<'_> {
    fn end(&self) -> Instant {
        self.start + Duration::from_millis(self.spec.duration_ms)
    }

    fn run(&mut self, client: &mut Client) -> Result<()> {
        let mut next = 0;
        while next < self.spec.max_messages && Instant::now() < self.end() {
            let door = self.runtime.block_on(client.open())?;
            let began = Instant::now();
            let first = next;
            next = self.send(&door, next, began)?;
            let whole = match self.spec.transaction_generator {
                Some(Transactions::Uniform { messages_per_transaction }) => {
                    next - first == messages_per_transaction
                }
                Some(Transactions::Interval { transaction_interval_ms }) => {
                    began.elapsed() >= Duration::from_millis(transaction_interval_ms)
                }
                None => true,
            };
            match door {
                // As in Trogdor, an incomplete last transaction is never committed.
                Door::Transaction(transaction) if !whole => {
                    self.runtime.block_on(transaction.flush())?;
                    self.track.settle();
                    self.runtime.block_on(transaction.abort())?;
                }
                door => {
                    self.committed += u64::from(door.is_transaction());
                    self.runtime.block_on(door.shut())?;
                }
            }
            self.track.settle();
        }
        Ok(())
    }

    /// Sends records from `next` on until a transaction is full or the run has ended; returns the next
    /// number.
    fn send(&mut self, door: &Door<'_>, mut next: u64, began: Instant) -> Result<u64> {
        let (end, first) = (self.end(), next);
        let is_full = |next: u64| match self.spec.transaction_generator {
            Some(Transactions::Uniform { messages_per_transaction }) => {
                next - first >= messages_per_transaction
            }
            Some(Transactions::Interval { transaction_interval_ms }) => {
                began.elapsed() >= Duration::from_millis(transaction_interval_ms)
            }
            None => false,
        };
        while next < self.spec.max_messages && !is_full(next) {
            let due = self.start + self.throttle.due(next);
            if self.throttle.begins_period(next) && next > first && !self.spec.skip_flush {
                // The flush keeps the delay between bursts out of the latencies.
                self.runtime.block_on(door.flush())?;
            }
            thread::sleep(due.min(end).saturating_duration_since(Instant::now()));
            if Instant::now() >= end {
                break;
            }
            self.send_one(door, next, due)?;
            next += 1;
        }
        Ok(next)
    }

    fn send_one(&mut self, door: &Door<'_>, number: u64, due: Instant) -> Result<()> {
        let count = self.partitions.len() as u64;
        let at = &self.partitions[(number % count) as usize];
        let now = now_ms();
        let (key, value) = (self.keys.get(number, now), self.values.get(number, now));
        let mut record = Record::to(&at.topic).timestamp(now);
        if let Some(key) = &key {
            record = record.key(key);
        }
        if let Some(value) = &value {
            record = record.value(value);
        }
        if !self.spec.use_configured_partitioner {
            record = record.partition(at.partition);
        }
        self.track.send(self.runtime, door, record, due)
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// The error for a task that ended abnormally.
pub(super) fn ended(error: &tokio::task::JoinError) -> Error {
    Error::Unexpected(format!("a task of the run ended: {error}"))
}
