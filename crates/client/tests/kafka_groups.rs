//! Kafka's console consumer and ours as members of one group: each leads once and runs the assignor for the other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use common::Backend;
use curtail::{Consumer, ConsumerConfig, Producer, Record};
use curtail_apache::Toolchain;

const LIMIT: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 4;

/// A console consumer that goes on until it is killed.
struct Java {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Java {
    fn start(toolchain: &Toolchain, bootstrap: &str, topic: &str, strategy: &str) -> Self {
        let mut args = vec!["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic];
        let strategy = format!("partition.assignment.strategy={strategy}");
        args.extend(["--from-beginning", "--command-property", &strategy]);
        args.extend(["--command-property", "session.timeout.ms=6000"]);
        args.extend(["--command-property", "heartbeat.interval.ms=500"]);
        let tool = toolchain.tool("org.apache.kafka.tools.consumer.ConsoleConsumer").args(&args);
        let mut command = tool.command();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that takes part in one group.
struct Group<'a> {
    producer: &'a Producer,
    topic: &'a str,
    ours: Consumer,
    java: Option<Java>,
    round: usize,
}

impl Group<'_> {
    /// Sends a record to each partition and waits until all of them were read; who read some.
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
            assert!(begun.elapsed() < LIMIT, "nobody reads {missing:?}");
            for record in self.ours.poll(Duration::from_millis(50)).await.unwrap() {
                let value = String::from_utf8(record.value().unwrap().to_vec()).unwrap();
                if missing.remove(&value) {
                    readers.insert("ours");
                }
            }
            for line in self.java.iter().flat_map(|java| java.lines.try_iter()) {
                if missing.remove(&line) {
                    readers.insert("java");
                }
            }
        }
        readers
    }

    /// Rounds until exactly these read.
    async fn until(&mut self, readers: &[&'static str]) {
        let begun = Instant::now();
        let expected: BTreeSet<&str> = readers.iter().copied().collect();
        while self.round().await != expected {
            assert!(begun.elapsed() < LIMIT, "never read by {readers:?} alone");
        }
    }
}

async fn share(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    let package = "org.apache.kafka.clients.consumer.";
    for (class, java_first) in
        [("CooperativeStickyAssignor", false), ("StickyAssignor", true), ("RangeAssignor", false)]
    {
        let topic = &format!("shared-{class}");
        backend.create_topic(topic, PARTITIONS, 1).await;
        let strategy = format!("{package}{class}");
        let start = || Java::start(toolchain, &bootstrap, topic, &strategy);
        let mut config = ConsumerConfig::new(&bootstrap).group_id(topic);
        for (name, value) in [
            ("partition.assignment.strategy", strategy.as_str()),
            ("auto.offset.reset", "earliest"),
            ("session.timeout.ms", "6000"),
            ("heartbeat.interval.ms", "500"),
        ] {
            config.set(name, value).unwrap();
        }
        let ours = Consumer::new(config).unwrap();
        let mut group = Group { producer: &producer, topic, ours, java: None, round: 0 };
        if java_first {
            group.java = Some(start());
            group.until(&["java"]).await;
            group.ours.subscribe([topic]).unwrap();
        } else {
            group.ours.subscribe([topic]).unwrap();
            group.until(&["ours"]).await;
            group.java = Some(start());
        }
        group.until(&["java", "ours"]).await;
        assert_eq!(group.ours.assignment().len(), 2, "{class}");
        // Whoever leads now, the other's end is noticed.
        group.java = None;
        group.until(&["ours"]).await;
        assert_eq!(group.ours.assignment().len(), 4, "{class}");
        group.ours.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_share_groups_embedded() {
    let name = "java_and_ours_share_groups_embedded";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = Backend::embedded_with(1, |config| {
        // The JVMs may keep a small machine busy: no broker is dead here.
        config.broker_session_timeout = Duration::from_secs(30);
    });
    share(&backend.await, &toolchain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_share_groups_apache() {
    let name = "java_and_ours_share_groups_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = Backend::apache_with(name, 1, |builder| {
        builder.property("group.initial.rebalance.delay.ms", "0")
    });
    let backend = backend.expect("it is there");
    share(&backend, &toolchain).await;
}
