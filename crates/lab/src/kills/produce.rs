//! Keyed and keyless records with acks=all, idempotent, while brokers are killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{Producer, Record, RecordMetadata, config::Acks};
use parking_lot::Mutex;
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    Event, Reading, Soak, TopicReport, count, create_topic, faults::Killer, readings, value,
};
use crate::{
    experiments::{Acknowledged, Fate, Found, Order, Testbed, findings, nanos},
    perf::{Error, Result, application_runtime},
};

const KEYED: &str = "kills-keyed";
const KEYLESS: &str = "kills-keyless";
/// Different keys.
pub(super) const KEYS: u64 = 1000;

pub(super) fn run(
    soak: &Soak,
    killer: &mut Killer<'_>,
    told: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<TopicReport>> {
    let testbed = killer.testbed;
    let runtime = application_runtime()?;
    let mut feeds = Vec::new();
    for (topic, keys) in [(KEYED, Keys::Some), (KEYLESS, Keys::None)] {
        create_topic(testbed, topic)?;
        feeds.push(Feed::start(&runtime, testbed, topic, keys, soak.rate)?);
    }
    for done in 1..=soak.broker_kills {
        killer.pass_time();
        let id = killer.kill_broker(&[KEYED, KEYLESS], |_| Ok(()))?;
        told(Event::Broker { id, done, of: soak.broker_kills });
    }
    feeds
        .into_iter()
        .map(|feed| {
            told(Event::Reading { topic: feed.topic });
            let order = feed.keys.promised_order();
            let topic = feed.topic;
            let ledger = feed.stop(&runtime)?;
            ledger.report(testbed, topic, order)
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Some,
    None,
}

impl Keys {
    fn promised_order(self) -> Order {
        match self {
            Self::Some => Order::Sent,
            Self::None => Order::Acknowledged,
        }
    }
}

/// Outcomes of the records of a feed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) fates: Vec<Fate>,
    failed: u64,
    first_error: Option<String>,
    slowest: Duration,
}

/// A producer that sends at a steady rate until it is stopped.
pub(super) struct Feed {
    pub(super) topic: &'static str,
    keys: Keys,
    stopping: Arc<AtomicBool>,
    task: JoinHandle<Result<Ledger>>,
}

impl Feed {
    pub(super) fn start(
        runtime: &Runtime,
        testbed: &Testbed,
        topic: &'static str,
        keys: Keys,
        rate: f64,
    ) -> Result<Self> {
        let _context = runtime.enter();
        let producer = Producer::new(testbed.producer().acks(Acks::All))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let task = runtime.spawn(feed(producer, topic, keys, rate, Arc::clone(&stopping)));
        Ok(Self { topic, keys, stopping, task })
    }

    /// Stops sending and waits for every outcome.
    pub(super) fn stop(self, runtime: &Runtime) -> Result<Ledger> {
        self.stopping.store(true, Ordering::Relaxed);
        let ended = runtime.block_on(self.task);
        ended.map_err(|error| Error::Unexpected(format!("the producer's task: {error}")))?
    }
}

async fn feed(
    producer: Producer,
    topic: &'static str,
    keys: Keys,
    rate: f64,
    stopping: Arc<AtomicBool>,
) -> Result<Ledger> {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut waiting = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        let due = start + Duration::from_secs_f64(number as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let key = (number % KEYS).to_string();
        let value = value(number);
        let record = Record::to(topic).value(&value);
        let record = match keys {
            Keys::Some => record.key(&key),
            Keys::None => record,
        };
        ledger.lock().fates.push(Fate { sent: nanos(start.elapsed()), acknowledged: None });
        let sent = producer.send(record).await;
        let ledger = Arc::clone(&ledger);
        waiting.spawn(async move {
            let outcome = match sent {
                Ok(delivery) => delivery.await,
                Err(error) => Err(error),
            };
            ledger.lock().settle(number, start, due, outcome);
        });
        while waiting.try_join_next().is_some() {}
    }
    while waiting.join_next().await.is_some() {}
    producer.close().await?;
    Ok(std::mem::take(&mut *ledger.lock()))
}

impl Ledger {
    fn settle(
        &mut self,
        number: u64,
        start: Instant,
        due: Instant,
        outcome: curtail::Result<RecordMetadata>,
    ) {
        match outcome {
            Ok(written) => {
                let (partition, offset) = (written.partition, written.offset);
                let at = nanos(start.elapsed());
                let acknowledged = Acknowledged { partition, offset, written: None, at };
                self.fates[number as usize].acknowledged = Some(acknowledged);
                self.slowest = self.slowest.max(due.elapsed());
            }
            Err(error) => {
                self.failed += 1;
                self.first_error.get_or_insert_with(|| error.report().to_string());
            }
        }
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.fates.iter().filter(|fate| fate.acknowledged.is_some()).count()
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    fn report(self, testbed: &Testbed, topic: &str, order: Order) -> Result<TopicReport> {
        let check = |by, found: &Found| {
            let found_out = findings(&self.fates, found, order);
            Reading {
                by,
                records: count(found),
                lost: found_out.lost,
                duplicated: found_out.duplicated,
                reordered: found_out.reordered,
            }
        };
        let acknowledged = self.acknowledged();
        Ok(TopicReport {
            topic: topic.into(),
            sent: self.fates.len() as u64,
            acknowledged: acknowledged as u64,
            failed: self.failed,
            readings: readings(testbed, topic, check, acknowledged)?,
            first_error: self.first_error,
            slowest_ms: Some(self.slowest.as_secs_f64() * 1e3),
        })
    }
}
