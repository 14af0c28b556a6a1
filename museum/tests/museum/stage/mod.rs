//! The stage: an embedded cluster, and between it and the client under test a proxy that a case scripts.
//!
//! The brokers behind the proxy are honest, so sequence checks, elections, groups and transactions are those of the
//! cluster. The script decides only what happens to a request or its response on the way.

mod proxy;
mod request;
mod work;

use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Once,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use curtail::{
    Admin, AdminConfig, CommonConfig, Consumer, ConsumerConfig, Env, IsolationLevel, OffsetReset,
    Producer, ProducerConfig, TopicPartition,
};
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_net::{SystemClock, WallClock};
use curtail_wire::ApiKey;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use proxy::Gate;
pub(crate) use request::{Reply, Request, Step};
pub(crate) use work::{Work, is_consecutive, poll_values};

use proxy::{Through, serve};

/// The topic of every case.
pub(crate) const TOPIC: &str = "exhibit";

/// A wait that takes longer has hung.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

type Script = Box<dyn FnMut(&Request) -> Step + Send>;

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Runs a case on this thread. A panic of a client's task fails the case, though the runtime would swallow it.
pub(crate) fn run(case: impl Future<Output = ()>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            default(info);
        }));
    });
    PANICS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(ends("the case", case));
    drop(runtime);
    assert_eq!(PANICS.get(), 0, "a task panicked");
}

/// Awaits a call that must end without help.
pub(crate) async fn ends<T>(what: &str, call: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(result) => result,
        Err(_) => panic!("{what} hangs"),
    }
}

/// What the proxy shares with the case.
pub(crate) struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<Request>>,
    /// Number of requests seen, for those who wait.
    arrivals: watch::Sender<usize>,
    /// Whether the proxy reads from clients.
    reading: Gate,
}

/// The brokers' wall clock, which a case can advance.
#[derive(Default)]
struct Clock(AtomicI64);

impl WallClock for Clock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    clock: Arc<Clock>,
    shared: Arc<Shared>,
    routes: BTreeMap<SocketAddr, SocketAddr>,
}

impl Stage {
    /// A cluster with the topic on as many replicas as there are brokers.
    pub(crate) async fn new(brokers: u32, partitions: i32) -> Self {
        Self::with(brokers, partitions, |_| {}, &[]).await
    }

    /// A cluster whose settings the case changes, and settings of the topic.
    pub(crate) async fn with(
        brokers: u32,
        partitions: i32,
        change: impl FnOnce(&mut ClusterConfig),
        topic: &[(&str, &str)],
    ) -> Self {
        let mut config = ClusterConfig {
            brokers,
            broker_session_timeout: Duration::from_millis(1000),
            broker_heartbeat_interval: Duration::from_millis(200),
            auto_create_topics: false,
            ..ClusterConfig::default()
        };
        for (name, value) in [
            ("group.min.session.timeout.ms", "1000"),
            ("group.consumer.min.heartbeat.interval.ms", "50"),
            ("group.consumer.heartbeat.interval.ms", "100"),
        ] {
            config.set(name, value).unwrap();
        }
        change(&mut config);
        let clock = Arc::<Clock>::default();
        let env = Env { wall: Arc::clone(&clock) as Arc<dyn WallClock>, ..Env::real() };
        let cluster = Cluster::start(config, env).await.unwrap();
        cluster.create_topic(TOPIC, partitions, brokers as i16, topic).unwrap();
        cluster.settled().await;
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(|_| Step::Pass)),
            seen: Mutex::default(),
            arrivals: watch::Sender::new(0),
            reading: Gate::open_at_first(),
        });
        let mut routes = BTreeMap::new();
        for id in cluster.broker_ids() {
            let broker = cluster.broker(id).unwrap().addr();
            let listener = proxy::listen().unwrap();
            routes.insert(broker, listener.local_addr().unwrap());
            tokio::spawn(serve(listener, id, broker, Arc::clone(&shared)));
        }
        Self { cluster, clock, shared, routes }
    }

    /// Advances the brokers' wall clock.
    pub(crate) fn advance_clock(&self, by: Duration) {
        self.clock.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }

    /// Replaces the script.
    pub(crate) fn script(&self, script: impl FnMut(&Request) -> Step + Send + 'static) {
        *self.shared.script.lock() = Box::new(script);
    }

    /// Lets everything pass.
    pub(crate) fn honest(&self) {
        self.script(|_| Step::Pass);
    }

    /// Stops or resumes reading from every client.
    pub(crate) fn read_from_clients(&self, reads: bool) {
        self.shared.reading.set(reads);
    }

    /// The requests of an API that clients have sent so far.
    pub(crate) fn seen(&self, api: ApiKey) -> Vec<Request> {
        self.shared.seen.lock().iter().filter(|request| request.api == api).cloned().collect()
    }

    pub(crate) fn count(&self, api: ApiKey) -> usize {
        self.shared.seen.lock().iter().filter(|request| request.api == api).count()
    }

    /// Returns once `count` requests of an API have arrived.
    pub(crate) async fn arrived(&self, api: ApiKey, count: usize) {
        let mut arrivals = self.shared.arrivals.subscribe();
        let wait = arrivals.wait_for(|_| self.count(api) >= count);
        ends(&format!("request {count} of {api:?}"), wait).await.unwrap();
    }

    /// Returns the number of requests seen once it is greater than `seen`.
    pub(crate) async fn next_request(&self, seen: usize) -> usize {
        let mut arrivals = self.shared.arrivals.subscribe();
        let wait = arrivals.wait_for(|count| *count > seen);
        ends("the next request", wait).await.map(|count| *count).unwrap()
    }

    /// An environment whose connections lead through the proxy.
    pub(crate) fn env(&self) -> Env {
        Env { net: Arc::new(Through(self.routes.clone())), ..Env::real() }
    }

    pub(crate) fn producer_config(&self) -> ProducerConfig {
        let mut config = ProducerConfig::new(self.cluster.bootstrap());
        quick(&mut config.common);
        config.max_block = Duration::from_secs(5);
        config.delivery_timeout = Duration::from_secs(10);
        config.linger = Duration::ZERO;
        config
    }

    pub(crate) fn producer(&self, change: impl FnOnce(&mut ProducerConfig)) -> Producer {
        let mut config = self.producer_config();
        change(&mut config);
        Producer::with_env(config, &self.env()).unwrap()
    }

    pub(crate) fn consumer(&self, change: impl FnOnce(&mut ConsumerConfig)) -> Consumer {
        let mut config = ConsumerConfig::new(self.cluster.bootstrap());
        quick(&mut config.common);
        config.auto_offset_reset = OffsetReset::Earliest;
        config.fetch_max_wait = Duration::from_millis(20);
        change(&mut config);
        Consumer::with_env(config, &self.env()).unwrap()
    }

    /// A consumer with partition 0 assigned by hand.
    pub(crate) fn reader(&self, change: impl FnOnce(&mut ConsumerConfig)) -> Consumer {
        let mut consumer = self.consumer(change);
        consumer.assign([partition(0)]);
        consumer
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(AdminConfig::new(self.cluster.bootstrap())).unwrap()
    }

    /// Writes numbered records to a partition, past the proxy.
    pub(crate) async fn fill(&self, index: i32, numbers: std::ops::Range<u32>) {
        self.fill_topic(TOPIC, index, numbers).await;
    }

    /// As [`Self::fill`], to another topic.
    pub(crate) async fn fill_topic(&self, topic: &str, index: i32, numbers: std::ops::Range<u32>) {
        let producer = Producer::new(ProducerConfig::new(self.cluster.bootstrap())).unwrap();
        let mut deliveries = Vec::new();
        for n in numbers {
            let value = n.to_string();
            let record = curtail::Record::to(topic).partition(index).value(&value);
            deliveries.push(producer.send(record).await.unwrap());
        }
        for delivery in deliveries {
            ends("a delivery past the proxy", delivery).await.unwrap();
        }
        ends("close past the proxy", producer.close()).await.unwrap();
    }

    /// The committed values of partition 0, read past the proxy once no transaction is open.
    pub(crate) async fn committed_values(&self) -> Vec<String> {
        let mut config = ConsumerConfig::new(self.cluster.bootstrap());
        config.isolation_level = IsolationLevel::ReadUncommitted;
        let all = Consumer::new(config.clone()).unwrap();
        let end = ends("end offsets", all.end_offsets(&[partition(0)])).await.unwrap();
        all.close().await;
        config.isolation_level = IsolationLevel::ReadCommitted;
        let mut consumer = Consumer::new(config).unwrap();
        consumer.assign([partition(0)]);
        consumer.seek_to_beginning([&partition(0)]).unwrap();
        let mut values = Vec::new();
        let all = async {
            while consumer.position(&partition(0)).await.unwrap() < end[&partition(0)] {
                for record in consumer.poll(Duration::from_millis(100)).await.unwrap() {
                    values.push(String::from_utf8(record.value().unwrap().to_vec()).unwrap());
                }
            }
        };
        ends("reading what is committed", all).await;
        consumer.close().await;
        values
    }

    /// Every value in the topic with its offset, by partition, read past the proxy.
    pub(crate) async fn ledger(&self) -> BTreeMap<i32, Vec<(i64, String)>> {
        let mut consumer = Consumer::new(ConsumerConfig::new(self.cluster.bootstrap())).unwrap();
        let partitions = consumer.partitions_for(TOPIC).await.unwrap();
        let all: Vec<_> = (0..partitions.len() as i32).map(partition).collect();
        consumer.assign(all.iter().cloned());
        let ends_at = ends("end offsets", consumer.end_offsets(&all)).await.unwrap();
        consumer.seek_to_beginning(&all).unwrap();
        let mut ledger: BTreeMap<i32, Vec<(i64, String)>> = BTreeMap::new();
        loop {
            let mut done = true;
            for at in &all {
                done &= ends("position", consumer.position(at)).await.unwrap() >= ends_at[at];
            }
            if done {
                consumer.close().await;
                return ledger;
            }
            for record in ends("poll", consumer.poll(Duration::from_secs(1))).await.unwrap() {
                let value = String::from_utf8(record.value().unwrap().to_vec()).unwrap();
                ledger.entry(record.partition()).or_default().push((record.offset(), value));
            }
        }
    }
}

pub(crate) fn partition(index: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, index)
}

/// Makes each record a batch, and sends batches while others are in flight, however late those are.
pub(crate) fn pipelined(config: &mut ProducerConfig) {
    config.batch_size = 1;
    config.suspicion = false;
}

fn quick(common: &mut CommonConfig) {
    common.request_timeout = Duration::from_secs(2);
    common.default_api_timeout = Duration::from_secs(10);
    common.retry_backoff = Duration::from_millis(5);
    common.retry_backoff_max = Duration::from_millis(50);
    common.reconnect_backoff = Duration::from_millis(5);
    common.reconnect_backoff_max = Duration::from_millis(50);
}
