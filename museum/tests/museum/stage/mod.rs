//! The stage: an embedded cluster, and between it and the client under test a proxy that a case scripts.
//!
//! The brokers behind the proxy are honest, so sequence checks, elections, groups and transactions are those of the
//! cluster. The script decides only the fate of a request or its response between client and broker.

mod client;
mod driver;
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
    time::{Duration, Instant},
};

use curtail::{
    Admin, AdminConfig, ConsumerConfig, Env, ProducerConfig, TopicPartition, TransactionalProducer,
    config::{GroupProtocol, IsolationLevel, OffsetReset},
};
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_net::{SystemClock, WallClock};
use curtail_wire::ApiKey;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use client::{Consumer, Delivery, Failure, Outcome, Producer, Transactions, Written};
pub(crate) use driver::{curtail_only, is_peer};
pub(crate) use proxy::Gate;
pub(crate) use request::{Reply, Request, Step};
pub(crate) use work::{Work, is_consecutive, poll_values};

use driver::Driver;
use proxy::{Through, serve};

/// The topic of every case.
pub(crate) const TOPIC: &str = "exhibit";

/// A wait that takes longer counts as a hang.
const LIMIT: Duration = Duration::from_secs(20);

/// As [`LIMIT`], for peers: some start slowly, and some wait seconds for metadata.
const PEER_LIMIT: Duration = Duration::from_secs(60);

/// The least `delivery.timeout.ms` of peers: some take longer than that of a case for their first connection.
const PEER_DELIVERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Extra time that peers have where a case measures.
const PEER_GRACE: Duration = Duration::from_secs(10);

type Script = Box<dyn FnMut(&Request) -> Step + Send>;

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
    static PATIENCE: Cell<Duration> = const { Cell::new(LIMIT) };
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

/// Sets the limit of each wait on this thread.
pub(crate) fn wait_at_most(limit: Duration) {
    PATIENCE.set(limit);
}

/// Awaits a call that must end without help.
pub(crate) async fn ends<T>(what: &str, call: impl Future<Output = T>) -> T {
    let limit = if is_peer() { PEER_LIMIT } else { PATIENCE.get() };
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => panic!("{what} hangs"),
    }
}

/// Fails unless less time has passed since `begun`.
pub(crate) fn within(begun: Instant, limit: Duration) {
    let limit = if is_peer() { limit + PEER_GRACE } else { limit };
    let elapsed = begun.elapsed();
    assert!(elapsed < limit, "late: {elapsed:?} of {limit:?}");
}

/// State that the proxy shares with the case.
pub(crate) struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<Request>>,
    /// Number of requests seen, for tasks that wait for one.
    arrivals: watch::Sender<usize>,
    /// Whether the proxy reads from clients.
    reading: Gate,
    /// The addresses of brokers and those of their proxies, for clients without the network seam.
    addresses: Vec<(SocketAddr, SocketAddr)>,
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
            replica_fetch_wait_max: Duration::from_millis(100),
            replica_fetch_backoff: Duration::from_millis(50),
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
        let mut routes = BTreeMap::new();
        let mut listeners = Vec::new();
        for id in cluster.broker_ids() {
            let broker = cluster.broker(id).unwrap().addr();
            let listener = proxy::listen().unwrap();
            routes.insert(broker, listener.local_addr().unwrap());
            listeners.push((listener, id, broker));
        }
        let translated = routes.iter().map(|(broker, proxy)| (*broker, *proxy));
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(|_| Step::Pass)),
            seen: Mutex::default(),
            arrivals: watch::Sender::new(0),
            reading: Gate::open_at_first(),
            addresses: if is_peer() { translated.collect() } else { Vec::new() },
        });
        for (listener, id, broker) in listeners {
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

    /// Passes every request on.
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
        ProducerConfig::new(self.cluster.bootstrap())
            .common(quick().get_common())
            .max_block(if is_peer() { PEER_LIMIT / 2 } else { LIMIT / 4 })
            .delivery_timeout(if is_peer() { PEER_LIMIT / 2 } else { LIMIT / 2 })
            .linger(Duration::ZERO)
    }

    pub(crate) fn producer(
        &self,
        change: impl FnOnce(ProducerConfig) -> ProducerConfig,
    ) -> Producer {
        let config = change(self.producer_config());
        if is_peer() {
            let limit = config.get_delivery_timeout().max(PEER_DELIVERY_TIMEOUT);
            return Producer::Peer(self.producer_driver(&config.delivery_timeout(limit)));
        }
        Producer::Own(self.own_producer(config))
    }

    /// Curtail's producer, for a case that begins with [`curtail_only`].
    pub(crate) fn own_producer(&self, config: ProducerConfig) -> curtail::Producer {
        curtail::Producer::with_env(config, &self.env()).unwrap()
    }

    pub(crate) fn transactions(&self, id: &str) -> Transactions {
        let config = self.producer_config().transactional_id(id);
        if is_peer() {
            return Transactions::Peer(self.producer_driver(&config));
        }
        Transactions::Own(TransactionalProducer::with_env(config, &self.env()).unwrap())
    }

    fn producer_driver(&self, config: &ProducerConfig) -> Arc<Driver> {
        let unset = ProducerConfig::default().properties();
        // Peers that compress by default would hide values from scripts.
        let always = [("compression.type", "none".to_owned())];
        let chosen = chosen(config.properties(), &unset);
        Driver::start("producer", &self.proxies(), chosen.chain(always))
    }

    /// The proxies' addresses as `bootstrap.servers` takes them.
    fn proxies(&self) -> String {
        let proxies: Vec<String> = self.routes.values().map(ToString::to_string).collect();
        proxies.join(",")
    }

    pub(crate) fn consumer(
        &self,
        change: impl FnOnce(ConsumerConfig) -> ConsumerConfig,
    ) -> Consumer {
        let config = ConsumerConfig::new(self.cluster.bootstrap())
            .common(quick().get_common())
            .auto_offset_reset(OffsetReset::Earliest)
            .fetch_max_wait(Duration::from_millis(20));
        let config = change(config);
        if is_peer() {
            let unset = ConsumerConfig::default().properties();
            // Java refuses to commit for no group.
            let commits = config.get_enable_auto_commit() && config.get_group_id().is_some();
            let always = [("enable.auto.commit", commits.to_string())];
            let chosen = chosen(config.properties(), &unset);
            let driver = Driver::start("consumer", &self.proxies(), chosen.chain(always));
            return Consumer::Peer(driver, Vec::new());
        }
        let consumer = curtail::Consumer::with_env(config, &self.env()).unwrap();
        Consumer::Own(Box::new(consumer))
    }

    /// A consumer with partition 0 assigned by hand.
    pub(crate) async fn reader(
        &self,
        change: impl FnOnce(ConsumerConfig) -> ConsumerConfig,
    ) -> Consumer {
        let mut consumer = self.consumer(change);
        consumer.assign(1).await;
        consumer
    }

    /// The offset that a group has committed for partition 0, read past the proxy.
    pub(crate) async fn committed(&self, group: &str) -> Option<i64> {
        let config = ConsumerConfig::new(self.cluster.bootstrap()).group_id(group);
        let consumer = curtail::Consumer::new(config).unwrap();
        let committed = ends("committed", consumer.committed(&[partition(0)])).await.unwrap();
        consumer.close().await;
        committed[&partition(0)].as_ref().map(|at| at.offset)
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
        let producer =
            curtail::Producer::new(ProducerConfig::new(self.cluster.bootstrap())).unwrap();
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
        let mut config = ConsumerConfig::new(self.cluster.bootstrap())
            .isolation_level(IsolationLevel::ReadUncommitted);
        let all = curtail::Consumer::new(config.clone()).unwrap();
        let end = ends("end offsets", all.end_offsets(&[partition(0)])).await.unwrap();
        all.close().await;
        config = config.isolation_level(IsolationLevel::ReadCommitted);
        let mut consumer = curtail::Consumer::new(config).unwrap();
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
        let mut consumer =
            curtail::Consumer::new(ConsumerConfig::new(self.cluster.bootstrap())).unwrap();
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

/// Makes each record a batch, and sends batches while others are in flight, however many and however late those are.
pub(crate) fn pipelined(config: ProducerConfig) -> ProducerConfig {
    config.batch_size(1).suspicion(false).latency_target(Duration::ZERO)
}

/// Makes a consumer a member of the group `museum`. With the consumer protocol the brokers choose the heartbeats.
pub(crate) fn group_member(
    config: ConsumerConfig,
    protocol: GroupProtocol,
    heartbeat: Duration,
) -> ConsumerConfig {
    let config = config.group_id("museum").group_protocol(protocol);
    match protocol {
        GroupProtocol::Classic => config.heartbeat_interval(heartbeat),
        GroupProtocol::Consumer => config,
    }
}

/// The settings that a case or the stage has chosen.
fn chosen(
    properties: Vec<(&'static str, String)>,
    unset: &[(&'static str, String)],
) -> impl Iterator<Item = (&'static str, String)> {
    properties
        .into_iter()
        .filter(|property| property.0 != "bootstrap.servers" && !unset.contains(property))
}

/// Common settings of the stage's clients.
fn quick() -> AdminConfig {
    AdminConfig::default()
        .request_timeout(Duration::from_secs(2))
        .default_api_timeout(Duration::from_secs(10))
        .retry_backoff(Duration::from_millis(5), Duration::from_millis(50))
        .reconnect_backoff(Duration::from_millis(5), Duration::from_millis(50))
}
