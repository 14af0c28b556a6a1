//! A workload from its topics to its result.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use curtail::{Admin, Consumer, Record};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    Driver, KeyDistributor, Workload,
    backlog::Backlog,
    rate::{self, RateController},
    result::{Period, Results},
};
use crate::{
    bench::{
        Figures, Outcome,
        place::Place,
        produce::{ended, now_ms},
        refuse,
        track::{Tally, Track},
    },
    latency::Latencies,
    perf::{
        Error, Event, Pacer, Progress, Result, client_runtime,
        produce::client::{Client, Door},
        sleep_precisely,
    },
    setup::unique,
};

/// Length of a period of the result.
const PERIOD: Duration = Duration::from_secs(10);
/// Longest wait for the consumers' partitions.
const READY: Duration = Duration::from_secs(60);
/// Interval at which the backlog is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Number of different keys.
const KEYS: usize = 10_000;

/// Runs a workload.
pub(in crate::bench) fn run(
    workload: &Workload,
    driver: &Driver,
    bootstrap: Option<&str>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let payloads = payloads(workload)?;
    let bootstrap = bootstrap.or_else(|| driver.bootstrap());
    let place = Place::open(bootstrap, driver.replication_factor, progress)?;
    let runtime = client_runtime()?;
    let _guard = runtime.enter();
    let admin = place.admin(pairs(&driver.common))?;
    let topics: Vec<String> =
        (0..workload.topics).map(|index| format!("test-topic-{}-{index:04}", unique())).collect();
    runtime.block_on(create(&admin, workload, driver, &topics))?;
    let measured = measure(workload, driver, &place, &runtime, &topics, payloads, progress);
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let deleted = runtime.block_on(admin.delete_topics(&names));
    let outcome = measured?;
    for (_, deleted) in deleted? {
        deleted?;
    }
    Ok(outcome)
}

fn pairs(properties: &[(String, String)]) -> impl Iterator<Item = (&String, &String)> {
    properties.iter().map(|(name, value)| (name, value))
}

async fn create(
    admin: &Admin,
    workload: &Workload,
    driver: &Driver,
    topics: &[String],
) -> Result<()> {
    let new = |name: &String| {
        let topic = curtail::admin::NewTopic::new(name)
            .partitions(workload.partitions_per_topic)
            .replication_factor(driver.replication_factor);
        driver.topic.iter().fold(topic, |topic, (name, value)| topic.config(name, value))
    };
    let new: Vec<_> = topics.iter().map(new).collect();
    for (_, created) in admin.create_topics(&new).await? {
        created?;
    }
    Ok(())
}

/// The values of records.
fn payloads(workload: &Workload) -> Result<Vec<Vec<u8>>> {
    let size = workload.message_size;
    if workload.use_randomized_payloads {
        let random = (size as f64 * workload.random_bytes_ratio) as usize;
        let mut source = SmallRng::seed_from_u64(0);
        let payload = |_| {
            let mut bytes = vec![0; size];
            source.fill(&mut bytes[..random.min(size)]);
            bytes
        };
        return Ok((0..workload.randomized_payload_pool_size).map(payload).collect());
    }
    let Some(file) = &workload.payload_file else { return Ok(vec![vec![0; size]]) };
    let bytes = std::fs::read(file)
        .map_err(|error| Error::Options(format!("cannot read payloadFile {file}: {error}")))?;
    if bytes.len() != size {
        let length = bytes.len();
        return refuse(format!("payloadFile {file} has {length} bytes, and messageSize is {size}"));
    }
    Ok(vec![bytes])
}

/// Progress of the consumers, and whether they are ready.
#[derive(Default)]
struct Received {
    total: AtomicU64,
    period: Mutex<Latencies>,
    stop: AtomicBool,
    pause: AtomicBool,
}

struct Readers {
    received: Arc<Received>,
    tasks: Vec<JoinHandle<Result<()>>>,
    /// Number of partitions of each consumer whose position is known.
    assigned: Vec<Arc<AtomicI32>>,
}

fn measure(
    workload: &Workload,
    driver: &Driver,
    place: &Place,
    runtime: &Runtime,
    topics: &[String],
    payloads: Vec<Vec<u8>>,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let reading = client_runtime()?;
    let readers = readers(workload, driver, place, &reading, topics)?;
    let config = place.producer(&[], pairs(&driver.common).chain(pairs(&driver.producer)))?;
    if config.get_transactional_id().is_some() {
        return refuse("producerConfig: transactional.id is not supported");
    }
    let mut clients = Vec::new();
    for _ in 0..workload.producers_per_topic {
        for topic in topics {
            let client = runtime.block_on(Client::start(config.clone(), &[topic]))?;
            clients.push((client, topic.as_str()));
        }
    }
    progress.on(Event::Preparing("waiting for the consumers' partitions"));
    readers.wait(workload)?;
    let mut load = Load::new(workload, runtime, &readers, payloads);
    let sent = load.run(&mut clients, Results::new(workload, driver), progress);
    for (client, _) in clients {
        runtime.block_on(client.close())?;
    }
    let read = readers.stop(&reading);
    let (results, intended, first_error) = sent?;
    read?;
    Ok(outcome(results, &intended, first_error))
}

fn outcome(results: Results, intended: &Latencies, first_error: Option<String>) -> Outcome {
    let whole = results.whole();
    let failure = (whole.errors > 0).then(|| {
        let first = first_error.unwrap_or_default();
        format!("{} records were not acknowledged; the first: {first}", whole.errors)
    });
    Outcome {
        from_send: Figures::of(&whole.publish, "from the send to the acknowledgement: publishLatency"),
        from_intended: Figures::of(intended, "from the intended send time to the acknowledgement"),
        notes: vec![
            "endToEndLatency is from the records' timestamps, those of the send in whole milliseconds, to the poll"
                .to_owned(),
        ],
        failure,
        status: results.finish(),
    }
}

fn readers(
    workload: &Workload,
    driver: &Driver,
    place: &Place,
    runtime: &Runtime,
    topics: &[String],
) -> Result<Readers> {
    let _guard = runtime.enter();
    let received = Arc::new(Received::default());
    let mut readers = Readers { received, tasks: Vec::new(), assigned: Vec::new() };
    for topic in topics {
        for subscription in 0..workload.subscriptions_per_topic {
            let group = format!("sub-{subscription:03}-{}", unique());
            for _ in 0..workload.consumer_per_subscription {
                let properties = pairs(&driver.common).chain(pairs(&driver.consumer));
                let config = place.consumer(&[("group.id", &group)], properties)?.group_id(&group);
                let mut consumer = Consumer::new(config)?;
                consumer.subscribe([topic])?;
                let assigned = Arc::new(AtomicI32::new(0));
                readers.assigned.push(assigned.clone());
                let task = read(consumer, readers.received.clone(), assigned);
                readers.tasks.push(runtime.spawn(task));
            }
        }
    }
    Ok(readers)
}

async fn read(
    mut consumer: Consumer,
    received: Arc<Received>,
    assigned: Arc<AtomicI32>,
) -> Result<()> {
    let mut had = std::collections::BTreeSet::new();
    while !received.stop.load(Ordering::Relaxed) {
        // Polls continue, for the membership, but return no records during the wait.
        let has = consumer.assignment();
        match received.pause.load(Ordering::Relaxed) {
            true => consumer.pause(&has),
            false => consumer.resume(&has),
        }
        let records = consumer.poll(Duration::from_millis(100)).await?;
        let now = now_ms();
        if !records.is_empty() {
            let mut latencies = received.period.lock();
            for record in records.iter() {
                let ms = now.saturating_sub(record.timestamp()).max(0);
                latencies.record(Duration::from_millis(ms as u64));
            }
            received.total.fetch_add(records.len() as u64, Ordering::Relaxed);
        }
        let has = consumer.assignment();
        if has != had {
            for partition in &has {
                consumer.position(partition).await?;
            }
            assigned.store(has.len() as i32, Ordering::Relaxed);
            had = has;
        }
    }
    consumer.close().await;
    Ok(())
}

impl Readers {
    /// Waits until each subscription's consumers have all partitions, so that no record is missed.
    fn wait(&self, workload: &Workload) -> Result<()> {
        let begun = Instant::now();
        let size = workload.consumer_per_subscription.max(1) as usize;
        let is_ready = |group: &[Arc<AtomicI32>]| {
            let has: i32 = group.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            has == workload.partitions_per_topic
        };
        while !self.assigned.chunks(size).all(is_ready) {
            if self.tasks.iter().any(JoinHandle::is_finished) || begun.elapsed() > READY {
                return Err(Error::Unexpected(format!(
                    "the consumers were not assigned their partitions within {READY:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends the consumers.
    fn stop(self, runtime: &Runtime) -> Result<()> {
        self.received.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            runtime.block_on(task).map_err(|error| ended(&error))??;
        }
        Ok(())
    }
}

/// The producers, and the clock of the run.
struct Load<'a> {
    workload: &'a Workload,
    runtime: &'a Runtime,
    readers: &'a Readers,
    payloads: Vec<Vec<u8>>,
    keys: Vec<String>,
    random: SmallRng,
    track: Track,
    /// Outcomes of the current period.
    period: Tally,
    published: u64,
    sent: u64,
    backlog: Option<Backlog>,
    /// When the backlog was last checked.
    looked: Instant,
}

/// A rate, and the number of records sent at it.
struct Rate {
    per_second: f64,
    since: Instant,
    pacer: Pacer,
    sent: u64,
}

impl Rate {
    fn new(per_second: f64) -> Self {
        let since = Instant::now();
        Self { per_second, since, pacer: Pacer::new(since, per_second), sent: 0 }
    }
}

/// The results, latencies from the intended send time, and the first error.
type Measured = (Results, Latencies, Option<String>);

impl<'a> Load<'a> {
    fn new(
        workload: &'a Workload,
        runtime: &'a Runtime,
        readers: &'a Readers,
        payloads: Vec<Vec<u8>>,
    ) -> Self {
        let mut random = SmallRng::seed_from_u64(1);
        let keys = (0..KEYS).map(|_| format!("{:07x}", random.random::<u32>() >> 4)).collect();
        Self {
            workload,
            runtime,
            readers,
            payloads,
            keys,
            random,
            track: Track::default(),
            period: Tally::default(),
            published: 0,
            sent: 0,
            backlog: None,
            looked: Instant::now(),
        }
    }

    fn run(
        &mut self,
        clients: &mut [(Client, &str)],
        mut results: Results,
        progress: &mut dyn Progress,
    ) -> Result<Measured> {
        sleep_precisely();
        let mut doors = Vec::with_capacity(clients.len());
        for (client, topic) in clients {
            doors.push((self.runtime.block_on(client.open())?, *topic));
        }
        let mut rate = Rate::new(match self.workload.producer_rate {
            0.0 => rate::FIRST,
            rate => rate,
        });
        let mut controller = RateController::new();
        let mut intended = Latencies::default();
        let mut first_error = None;
        let warm = self.workload.warmup();
        for (length, counts) in [(warm, false), (self.workload.duration(), true)] {
            progress.on(Event::Preparing(if counts { "measuring" } else { "warming up" }));
            if counts {
                self.backlog = self.workload.backlog();
            }
            let mut end = Instant::now() + length;
            while Instant::now() < end {
                let began = Instant::now();
                let until = end.min(began + PERIOD);
                let drained = self.send(&doors, &mut rate, &mut controller, until)?;
                // The measured time begins when the backlog has been drained.
                if drained || self.backlog.is_some_and(|backlog| !backlog.is_drained()) {
                    end = Instant::now() + length;
                }
                let period = self.period(began.elapsed());
                if counts {
                    results.add(&period);
                    intended.add(&self.period.intended);
                    first_error = first_error.or_else(|| self.period.first_error.take());
                }
                self.period = Tally::default();
            }
        }
        for (door, _) in doors {
            self.runtime.block_on(door.shut())?;
        }
        Ok((results, intended, first_error))
    }

    /// Sends until a given time at the rate, which the controller adjusts; returns whether the backlog was
    /// drained.
    fn send(
        &mut self,
        doors: &[(Door<'_>, &str)],
        rate: &mut Rate,
        controller: &mut RateController,
        until: Instant,
    ) -> Result<bool> {
        let searching = self.workload.producer_rate == 0.0;
        let mut drained = false;
        loop {
            let now = Instant::now();
            drained |= self.tend_backlog(now);
            if searching && now >= rate.since + rate::PERIOD {
                self.settle();
                let received = self.readers.received.total.load(Ordering::Relaxed);
                let copies = u64::from(self.workload.subscriptions_per_topic);
                let period = now - rate.since;
                let next =
                    controller.next(rate.per_second, period, self.published, received, copies);
                *rate = Rate::new(next);
            }
            let due = rate.pacer.due(rate.sent);
            std::thread::sleep(due.min(until).saturating_duration_since(now));
            if Instant::now() >= until {
                break;
            }
            let at = (self.sent % doors.len() as u64) as usize;
            self.send_one(&doors[at], due)?;
            rate.sent += 1;
        }
        self.settle();
        Ok(drained)
    }

    /// Pauses consumers while a backlog is built; returns `true` when it has just been drained.
    fn tend_backlog(&mut self, now: Instant) -> bool {
        if self.backlog.is_none_or(|backlog| backlog.is_drained()) || now < self.looked + LOOK {
            return false;
        }
        self.looked = now;
        self.settle();
        let behind = self.behind();
        let Some(backlog) = &mut self.backlog else { return false };
        let drained = backlog.tell(behind);
        self.readers.received.pause.store(backlog.is_building(), Ordering::Relaxed);
        drained
    }

    /// Lag: records published that consumers have not received.
    fn behind(&self) -> u64 {
        let copies = u64::from(self.workload.subscriptions_per_topic);
        let received = self.readers.received.total.load(Ordering::Relaxed);
        (self.published * copies).saturating_sub(received)
    }

    fn send_one(&mut self, (door, topic): &(Door<'_>, &str), due: Instant) -> Result<()> {
        let key = match self.workload.key_distributor {
            KeyDistributor::NoKey => None,
            KeyDistributor::KeyRoundRobin => Some((self.sent % KEYS as u64) as usize),
            KeyDistributor::RandomNano => Some(self.random.random_range(0..KEYS)),
        };
        let payload = match self.payloads.len() {
            1 => 0,
            count => self.random.random_range(0..count),
        };
        let mut record = Record::to(topic).value(&self.payloads[payload]);
        if let Some(key) = key {
            record = record.key(&self.keys[key]);
        }
        self.sent += 1;
        self.track.send(self.runtime, door, record, due)
    }

    fn settle(&mut self) {
        let known = self.track.take();
        self.published += known.acknowledged();
        self.period.add(&known);
    }

    /// Figures of the period that has ended.
    fn period(&self, elapsed: Duration) -> Period {
        let end_to_end = std::mem::take(&mut *self.readers.received.period.lock());
        Period {
            elapsed,
            published: self.period.acknowledged(),
            errors: self.period.errors,
            received: end_to_end.count(),
            backlog: self.behind(),
            publish: self.period.sent.clone(),
            delay: self.period.delay.clone(),
            end_to_end,
        }
    }
}
