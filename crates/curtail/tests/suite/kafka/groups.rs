//! Kafka's console consumer and this client's consumer in one group: each leads once and runs the assignor for both.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::java;
use crate::common::{self, Backend};
use curtail::{Consumer, ConsumerConfig, Error, ErrorCode, Producer, Record};
use curtail_apache::{Program, Toolchain};

const LIMIT: Duration = Duration::from_secs(120);
/// For killed consumers.
const SESSION: Duration = Duration::from_secs(6);
const PARTITIONS: i32 = 4;

/// Settings that make coordinators act faster than by default.
const QUICK: [(&str, &str); 5] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "6000"),
];

/// The members of one group, and its producer.
struct Group<'a> {
    producer: &'a Producer,
    topic: &'a str,
    ours: Consumer,
    java: BTreeMap<&'static str, Program>,
    round: usize,
}

impl Group<'_> {
    /// Sends a record to each partition and waits until all of them were read. Returns the consumers that read some.
    async fn round(&mut self) -> BTreeSet<&'static str> {
        let begun = Instant::now();
        let mut missing = BTreeSet::new();
        for partition in 0..PARTITIONS {
            let value = format!("{}-{partition}", self.round);
            let record = Record::to(self.topic).partition(partition).value(&value);
            self.producer.send(record).await.unwrap().await.unwrap();
            missing.insert(value);
        }
        self.round += 1;
        let mut readers = BTreeSet::new();
        while !missing.is_empty() {
            assert!(begun.elapsed() < LIMIT, "no member reads {missing:?}");
            for record in self.ours.poll(Duration::from_millis(50)).await.unwrap() {
                let value = String::from_utf8(record.value().unwrap().to_vec()).unwrap();
                if missing.remove(&value) {
                    readers.insert("ours");
                }
            }
            for (name, java) in &self.java {
                for line in java.lines.try_iter() {
                    if missing.remove(&line) {
                        readers.insert(*name);
                    }
                }
            }
        }
        readers
    }

    /// Repeats rounds until exactly these consumers read.
    async fn until(&mut self, readers: &[&'static str]) {
        let begun = Instant::now();
        let expected: BTreeSet<&str> = readers.iter().copied().collect();
        while self.round().await != expected {
            assert!(begun.elapsed() < LIMIT, "never read by {readers:?} alone");
        }
    }

    /// Starts Java's consumer and this client's, one after the other, and waits until both read.
    async fn meet(&mut self, java_first: bool, start: impl FnOnce() -> Program) {
        if java_first {
            self.java.insert("java", start());
            self.until(&["java"]).await;
            self.ours.subscribe([self.topic]).unwrap();
        } else {
            self.ours.subscribe([self.topic]).unwrap();
            self.until(&["ours"]).await;
            self.java.insert("java", start());
        }
        self.until(&["java", "ours"]).await;
    }
}

/// The classic protocol with this assignor, for both.
fn classic(class: &str, session: Duration) -> [(&'static str, String); 3] {
    [
        ("partition.assignment.strategy", format!("org.apache.kafka.clients.consumer.{class}")),
        ("session.timeout.ms", session.as_millis().to_string()),
        ("heartbeat.interval.ms", "500".into()),
    ]
}

fn as_strs<'a>(properties: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    properties.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A consumer of this client, not subscribed yet.
fn ours(backend: &Backend, topic: &str, properties: &[(&str, &str)]) -> Consumer {
    let mut config = ConsumerConfig::new(backend.bootstrap()).group_id(topic);
    for (name, value) in [("auto.offset.reset", "earliest")].iter().chain(properties) {
        config.set(name, value).unwrap();
    }
    Consumer::new(config).unwrap()
}

/// A group whose only consumer is this client's, not subscribed yet.
fn group<'a>(producer: &'a Producer, topic: &'a str, ours: Consumer) -> Group<'a> {
    Group { producer, topic, ours, java: BTreeMap::new(), round: 0 }
}

async fn share(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    for (class, java_first) in
        [("CooperativeStickyAssignor", false), ("StickyAssignor", true), ("RangeAssignor", false)]
    {
        let topic = &format!("shared-{class}");
        backend.create_topic(topic, PARTITIONS, 1).await;
        let properties = classic(class, SESSION);
        let properties = as_strs(&properties);
        let start = || java::start(toolchain, &bootstrap, (topic, topic), &properties);
        let mut group = group(&producer, topic, ours(backend, topic, &properties));
        group.meet(java_first, start).await;
        assert_eq!(group.ours.assignment().len(), 2, "{class}");
        // Whichever member leads now, it notices the other's end.
        group.java.clear();
        group.until(&["ours"]).await;
        assert_eq!(group.ours.assignment().len(), 4, "{class}");
        group.ours.close().await;
    }
}

/// As [`share`], with the consumer protocol. The first consumer has a static member's place, which the other is
/// refused.
async fn share_by_coordinator(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    for java_first in [false, true] {
        let topic = &format!("shared-by-coordinator-{java_first}");
        backend.create_topic(topic, PARTITIONS, 1).await;
        let protocol = ("group.protocol", "consumer");
        let instance = ("group.instance.id", "only-one");
        let start = || java::start(toolchain, &bootstrap, (topic, topic), &[protocol, instance]);
        let mut group = group(&producer, topic, ours(backend, topic, &[protocol]));
        group.meet(java_first, start).await;
        assert_eq!(group.ours.assignment().len(), 2);
        let mut second = ours(backend, topic, &[protocol, instance]);
        second.subscribe([topic]).unwrap();
        let refused = tokio::time::timeout(LIMIT, second.poll(LIMIT)).await.unwrap().unwrap_err();
        let expected = ErrorCode::UNRELEASED_INSTANCE_ID;
        assert!(matches!(refused, Error::Broker { code, .. } if code == expected), "{refused}");
        second.close().await;
        group.java.clear();
        group.until(&["ours"]).await;
        assert_eq!(group.ours.assignment().len(), 4);
        group.ours.close().await;
    }
}

/// Members of both clients join, leave and die; in every round each record is read.
async fn come_and_go(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    for class in ["RangeAssignor", "CooperativeStickyAssignor"] {
        let topic = &format!("come-and-go-{class}");
        backend.create_topic(topic, PARTITIONS, 1).await;
        let start = |session| {
            java::start(toolchain, &bootstrap, (topic, topic), &as_strs(&classic(class, session)))
        };
        let ours = ours(backend, topic, &as_strs(&classic(class, SESSION)));
        let mut group = group(&producer, topic, ours);
        group.ours.subscribe([topic]).unwrap();
        group.until(&["ours"]).await;
        // The group does not wait for a member that leaves: its session would outlast the test.
        group.java.insert("leaves", start(2 * LIMIT));
        group.until(&["leaves", "ours"]).await;
        group.java.remove("leaves").unwrap().stop().expect("it runs");
        group.until(&["ours"]).await;
        // Three share; one dies, then this client's consumer leaves.
        group.java.insert("dies", start(SESSION));
        group.java.insert("stays", start(SESSION));
        group.until(&["dies", "ours", "stays"]).await;
        group.java.remove("dies");
        group.until(&["ours", "stays"]).await;
        assert_eq!(group.ours.assignment().len(), 2, "{class}");
        group.ours.unsubscribe();
        group.until(&["stays"]).await;
        group.ours.subscribe([topic]).unwrap();
        group.until(&["ours", "stays"]).await;
        group.java.remove("stays");
        group.until(&["ours"]).await;
        assert_eq!(group.ours.assignment().len(), 4, "{class}");
        group.ours.close().await;
    }
}

/// A cluster with one broker.
async fn embedded() -> Backend {
    Backend::embedded_with(1, |config| {
        // The JVMs may keep a small machine busy: no broker is dead here.
        config.broker_session_timeout = Duration::from_secs(30);
        for (name, value) in QUICK {
            config.set(name, value).unwrap();
        }
    })
    .await
}

fn apache(name: &str) -> Backend {
    let backend = Backend::apache_with(name, 1, |builder| {
        QUICK.iter().fold(builder, |builder, (name, value)| builder.property(*name, *value))
    });
    backend.expect("it is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_share_groups_embedded() {
    let name = "java_and_ours_share_groups_embedded";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = embedded().await;
    share(&backend, &toolchain).await;
    share_by_coordinator(&backend, &toolchain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_share_groups_apache() {
    let name = "java_and_ours_share_groups_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = apache(name);
    share(&backend, &toolchain).await;
    share_by_coordinator(&backend, &toolchain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_come_and_go_embedded() {
    let name = "java_and_ours_come_and_go_embedded";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    come_and_go(&embedded().await, &toolchain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_come_and_go_apache() {
    let name = "java_and_ours_come_and_go_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    come_and_go(&apache(name), &toolchain).await;
}
