//! A cluster for tests: the embedded one, or Apache Kafka if Java and Maven are available.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod raw;

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, ConsumerRecord, Env, Error, Producer,
    ProducerConfig, TopicPartition, admin::NewTopic,
};
use curtail_apache::{ApacheCluster, ApacheClusterBuilder};
use curtail_cluster::{Cluster, ClusterConfig};

/// A running cluster of either kind.
pub(crate) enum Backend {
    /// In this process.
    Embedded(Box<Cluster>),
    /// In separate processes.
    Apache(Box<ApacheCluster>),
}

impl Backend {
    /// The embedded cluster, which detects dead brokers quickly.
    pub(crate) async fn embedded(brokers: u32) -> Self {
        Self::embedded_with(brokers, |_| {}).await
    }

    /// The embedded cluster with the test's settings.
    pub(crate) async fn embedded_with(
        brokers: u32,
        change: impl FnOnce(&mut ClusterConfig),
    ) -> Self {
        let mut config = ClusterConfig {
            brokers,
            broker_session_timeout: Duration::from_millis(1000),
            broker_heartbeat_interval: Duration::from_millis(200),
            // Tests of followers' waits set Kafka's values.
            replica_fetch_wait_max: Duration::from_millis(100),
            replica_fetch_backoff: Duration::from_millis(50),
            ..ClusterConfig::default()
        };
        change(&mut config);
        let cluster =
            Cluster::start(config, Env::real()).await.expect("the embedded cluster starts");
        Self::Embedded(Box::new(cluster))
    }

    /// Apache Kafka, or `None` with the reason printed.
    pub(crate) fn apache(test: &str, brokers: usize) -> Option<Self> {
        Self::apache_with(test, brokers, |builder| builder)
    }

    /// One broker of Apache Kafka for all tests that change nothing but their own topics and groups, or `None` with the reason
    /// printed. It ends with the process.
    pub(crate) fn shared_apache(test: &str) -> Option<&'static Self> {
        static BROKER: OnceLock<Option<Backend>> = OnceLock::new();
        BROKER.get_or_init(|| Self::apache(test, 1)).as_ref()
    }

    /// Apache Kafka with the test's settings, or `None` with the reason printed.
    pub(crate) fn apache_with(
        test: &str,
        brokers: usize,
        change: impl FnOnce(ApacheClusterBuilder) -> ApacheClusterBuilder,
    ) -> Option<Self> {
        let toolchain = curtail_apache::require_or_skip(test)?;
        let builder = ApacheCluster::builder()
            .toolchain(toolchain)
            .brokers(brokers)
            .short_lived()
            .property("auto.create.topics.enable", "false");
        let cluster = change(builder).start().expect("Apache Kafka starts");
        Some(Self::Apache(Box::new(cluster)))
    }

    pub(crate) fn bootstrap(&self) -> String {
        match self {
            Self::Embedded(cluster) => cluster.bootstrap(),
            Self::Apache(cluster) => cluster.bootstrap(),
        }
    }

    pub(crate) async fn create_topic(&self, name: &str, partitions: i32, replicas: i16) {
        self.create_topic_with(name, partitions, replicas, &[]).await;
    }

    pub(crate) async fn create_topic_with(
        &self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) {
        match self {
            Self::Embedded(cluster) => {
                let created = cluster.create_topic(name, partitions, replicas, configs);
                created.expect("the topic is new");
                cluster.settled().await;
            }
            Self::Apache(_) => {
                let topic = NewTopic::new(name).partitions(partitions).replication_factor(replicas);
                let topic =
                    configs.iter().fold(topic, |topic, (name, value)| topic.config(*name, *value));
                let admin = Admin::new(AdminConfig::new(self.bootstrap())).expect("usable");
                let created = admin.create_topics(&[topic]).await.expect("the controller answers");
                for (topic, outcome) in created {
                    outcome.unwrap_or_else(|error| panic!("{topic}: {error}"));
                }
                raw::until_known(self, name, partitions).await;
            }
        }
    }

    /// Kills a broker without a shutdown; ids count from 1.
    pub(crate) fn kill(&self, id: i32) {
        match self {
            Self::Embedded(cluster) => cluster.kill(id),
            Self::Apache(cluster) => cluster.kill(id as usize - 1).expect("the broker was running"),
        }
    }

    /// Freezes a broker without closing anything: it neither responds nor fails.
    pub(crate) fn freeze(&self, id: i32) {
        match self {
            Self::Embedded(cluster) => cluster.freeze(id),
            Self::Apache(cluster) => cluster.freeze(id as usize - 1).expect("it was running"),
        }
    }

    pub(crate) fn thaw(&self, id: i32) {
        match self {
            Self::Embedded(cluster) => cluster.thaw(id),
            Self::Apache(cluster) => cluster.thaw(id as usize - 1).expect("it was frozen"),
        }
    }

    pub(crate) async fn restart(&self, id: i32) {
        match self {
            Self::Embedded(cluster) => cluster.restart(id).await.expect("the broker starts again"),
            Self::Apache(cluster) => {
                cluster.restart(id as usize - 1).expect("the broker starts again");
            }
        }
    }
}

/// Waits for a condition that sends no notification.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let met = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), met).await.expect(what);
}

/// Repeats a call whose limit is short until the brokers respond in time. On a busy machine a new connection may take
/// longer.
pub(crate) async fn until_in_time<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let in_time = async {
        loop {
            match call().await {
                Err(Error::Timeout { .. } | Error::Unreachable { .. }) => {
                    tokio::task::yield_now().await;
                }
                done => return done.expect("no other error"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), in_time).await.expect("the brokers respond")
}

pub(crate) fn producer(backend: &Backend, properties: &[(&str, &str)]) -> Producer {
    let mut config = ProducerConfig::new(backend.bootstrap());
    for (name, value) in properties {
        config.set(name, value).expect("a known property");
    }
    Producer::new(config).expect("a usable configuration")
}

/// All records of a topic, in order, by partition.
pub(crate) async fn read_all(
    backend: &Backend,
    topic: &str,
    partitions: i32,
) -> BTreeMap<i32, Vec<ConsumerRecord>> {
    let mut consumer =
        Consumer::new(ConsumerConfig::new(backend.bootstrap())).expect("a usable configuration");
    let all: Vec<TopicPartition> =
        (0..partitions).map(|index| TopicPartition::new(topic, index)).collect();
    consumer.assign(all.iter().cloned());
    let ends = consumer.end_offsets(&all).await.expect("end offsets");
    consumer.seek_to_beginning(&all).expect("assigned");
    let mut records: BTreeMap<i32, Vec<ConsumerRecord>> = BTreeMap::new();
    loop {
        let mut done = true;
        for partition in &all {
            let position = consumer.position(partition).await.expect("a position");
            done &= position >= ends[partition];
        }
        if done {
            consumer.close().await;
            return records;
        }
        for record in consumer.poll(Duration::from_secs(10)).await.expect("records") {
            records.entry(record.partition()).or_default().push(record);
        }
    }
}

/// Reads partition 0 of a topic until a poll returns records. Returns how many polls reported damage before, and the first
/// value.
pub(crate) async fn read_past_damage(bootstrap: String, topic: &str) -> (u64, Vec<u8>) {
    let mut consumer = Consumer::new(ConsumerConfig::new(bootstrap)).unwrap();
    let partition = TopicPartition::new(topic, 0);
    consumer.assign([partition.clone()]);
    consumer.seek_to_beginning(&[partition]).unwrap();
    let mut damaged = 0;
    let records = loop {
        match consumer.poll(Duration::from_secs(30)).await {
            Ok(records) if !records.is_empty() => break records,
            Ok(_) => {}
            Err(Error::Corrupt { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    };
    let first = records.into_iter().next().unwrap().value().unwrap().to_vec();
    consumer.close().await;
    (damaged, first)
}
