//! Kafka's consumers of the consumer protocol (KIP-848) and its group tool, on both kinds of cluster. The
//! coordinators behave alike, and Kafka's log reader decodes the embedded cluster's log.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use super::java;
use crate::common::{self, Backend};
use curtail::{Producer, Record};
use curtail_apache::{Program, Toolchain};
use curtail_cluster::Storage;

const LIMIT: Duration = Duration::from_secs(150);
const PARTITIONS: i32 = 4;
const GROUP: &str = "sharing";
const TOPIC: &str = "shared";
/// The group of [`matching`].
const MATCHING: &str = "matching";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/Matching.java");

/// Settings of the brokers: short sessions.
const SETTINGS: [(&str, &str); 4] = [
    ("group.consumer.min.session.timeout.ms", "6000"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.heartbeat.interval.ms", "500"),
];

/// Sends a record to each partition and waits until all of them were read. Returns the consumers that read some.
async fn round(producer: &Producer, number: usize, readers: &[&Program]) -> BTreeSet<usize> {
    let begun = Instant::now();
    let mut missing = BTreeSet::new();
    for partition in 0..PARTITIONS {
        let value = format!("{number}-{partition}");
        let record = Record::to(TOPIC).partition(partition).value(&value);
        producer.send(record).await.unwrap().await.unwrap();
        missing.insert(value);
    }
    let mut by = BTreeSet::new();
    while !missing.is_empty() {
        assert!(begun.elapsed() < LIMIT, "no member reads {missing:?}");
        for (index, java) in readers.iter().enumerate() {
            if let Ok(line) = java.lines.recv_timeout(Duration::from_millis(20))
                && missing.remove(&line)
            {
                by.insert(index);
            }
        }
    }
    by
}

/// Output of the group tool.
fn on_group(toolchain: &Toolchain, backend: &Backend, group: &str, args: &[&str]) -> String {
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let bootstrap = backend.bootstrap();
    let at = ["--bootstrap-server", &bootstrap, "--group", group];
    let args = [&at[..], args].concat();
    let output = toolchain.tool(class).short_lived().args(&args).run().unwrap();
    assert!(output.success(), "{args:?}: {}{}", output.stdout, output.stderr);
    output.stdout
}

/// The lines of a table about the group, in words, without the heading.
fn rows(printed: &str) -> Vec<Vec<String>> {
    rows_of(printed, GROUP)
}

fn rows_of(printed: &str, group: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut rows: Vec<_> = printed.lines().map(words).collect();
    rows.retain(|row| row.first().is_some_and(|first| first == group));
    rows
}

/// A static member subscribes to an expression. It stops, restarts and continues where it was.
async fn matching(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    let partitions = [("words-a", 0), ("words-a", 1), ("words-b", 0), ("more-words-c", 0)];
    for (topic, count) in [("words-a", 2), ("words-b", 1), ("more-words-c", 1)] {
        backend.create_topic(topic, count, 1).await;
    }
    for round in ["first", "second"] {
        for (topic, partition) in partitions {
            let value = format!("{round}-{topic}-{partition}");
            let record = Record::to(topic).partition(partition).value(&value);
            producer.send(record).await.unwrap().await.unwrap();
        }
        let args = [&bootstrap, MATCHING, "words-.", "3"];
        let output = toolchain.tool(PROGRAM).short_lived().args(&args).run().unwrap();
        assert!(output.success(), "{}{}", output.stdout, output.stderr);
        let assigned = "words-a-0 words-a-1 words-b-0";
        let mut expected: Vec<String> =
            assigned.split(' ').map(|partition| format!("{round}-{partition}")).collect();
        expected.push(assigned.to_owned());
        assert_eq!(output.stdout.lines().collect::<Vec<_>>(), expected);
    }
    producer.close().await.unwrap();
}

/// After its session timeout the static member is removed.
fn is_forgotten(backend: &Backend, toolchain: &Toolchain) {
    let begun = Instant::now();
    loop {
        let printed = on_group(toolchain, backend, MATCHING, &["--describe", "--state"]);
        if rows_of(&printed, MATCHING)[0].contains(&"Empty".to_owned()) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{printed}");
    }
}

/// The ids of the consumers that the tool reports for each partition.
fn owners(toolchain: &Toolchain, backend: &Backend) -> Vec<String> {
    let printed = on_group(toolchain, backend, GROUP, &["--describe"]);
    let rows = rows(&printed);
    assert_eq!(rows.len(), PARTITIONS as usize, "{printed}");
    // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
    rows.iter().map(|row| row[6].clone()).collect()
}

/// Two consumers share a topic. One is killed and the other takes over. It leaves, and the empty group is deleted.
async fn share(backend: &Backend, toolchain: &Toolchain) {
    let producer = common::producer(backend, &[]);
    let bootstrap = backend.bootstrap();
    backend.create_topic(TOPIC, PARTITIONS, 1).await;
    let protocol = [("group.protocol", "consumer")];
    let start = || java::start(toolchain, &bootstrap, (TOPIC, GROUP), &protocol);
    let (one, other) = (start(), start());
    let mut number = 0;
    let mut until = async |readers: &[&Program]| {
        let begun = Instant::now();
        while round(&producer, number, readers).await.len() < readers.len() {
            number += 1;
            assert!(begun.elapsed() < LIMIT, "never read by all of them");
        }
        number += 1;
    };
    until(&[&one, &other]).await;
    let members = owners(toolchain, backend);
    let distinct: BTreeSet<&String> = members.iter().collect();
    assert_eq!(distinct.len(), 2, "{members:?}");
    for id in &distinct {
        assert_eq!(members.iter().filter(|member| member == id).count(), 2, "{members:?}");
    }
    let printed = on_group(toolchain, backend, GROUP, &["--describe", "--state"]);
    let row = &rows(&printed)[0];
    assert!(row.contains(&"uniform".to_owned()) && row.contains(&"Stable".to_owned()), "{printed}");
    assert_eq!(row.last().unwrap(), "2", "{printed}");
    let printed = on_group(toolchain, backend, GROUP, &["--describe", "--members", "--verbose"]);
    let mut epochs: Vec<_> = rows(&printed).iter().map(|row| row[5].clone()).collect();
    epochs.dedup();
    assert_eq!(epochs.len(), 1, "all have arrived at one epoch: {printed}");

    drop(one);
    until(&[&other]).await;
    let survivors = owners(toolchain, backend);
    assert!(survivors.iter().all(|id| *id == survivors[0]), "{survivors:?}");
    other.stop().expect("it runs");
    let printed = on_group(toolchain, backend, GROUP, &["--describe", "--state"]);
    assert!(rows(&printed)[0].contains(&"Empty".to_owned()), "{printed}");
    let printed = on_group(toolchain, backend, GROUP, &["--delete"]);
    assert!(printed.contains("successful"), "{printed}");
    producer.close().await.unwrap();
}

/// Kafka's log reader decodes every kind of record.
fn check_log(toolchain: &Toolchain, data: &Path) {
    let log = |partition: i32| {
        let directory = data.join(format!("__consumer_offsets-{partition}"));
        directory.join("00000000000000000000.log").display().to_string()
    };
    let files: Vec<String> = (0..4).map(log).collect();
    let tool = toolchain.tool("org.apache.kafka.tools.DumpLogSegments").short_lived();
    let output = tool.args(&["--offsets-decoder", "--files", &files.join(",")]).run().unwrap();
    let printed = output.stdout.clone();
    assert!(output.success() && !printed.contains("skipping"), "{printed}{}", output.stderr);
    for (kind, value) in [
        (3, "\"metadataHash\""),
        (5, "\"subscribedTopicNames\":[\"shared\"]"),
        (6, "\"assignmentTimestamp\""),
        (7, "\"topicPartitions\""),
        (8, "\"assignmentEpochs\""),
        (16, "\"topics\":[\"words-a\",\"words-b\"]"),
    ] {
        let of = |line: &&str| line.contains(&format!("key: {{\"type\":\"{kind}\""));
        let of: Vec<&str> = printed.lines().filter(of).collect();
        assert!(of.iter().any(|line| line.contains(value)), "{kind}: {of:?}");
        assert!(of.iter().any(|line| line.contains("<DELETE>")), "{kind}: {of:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_of_the_consumer_protocol_share_embedded() {
    let name = "consumers_of_the_consumer_protocol_share_embedded";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let backend = Backend::embedded_with(1, |config| {
        config.storage = Storage::Dir(directory.path().to_owned());
        // The JVMs may keep a small machine busy: no broker is dead here.
        config.broker_session_timeout = Duration::from_secs(30);
        for (name, value) in SETTINGS {
            config.set(name, value).unwrap();
        }
    });
    let backend = backend.await;
    matching(&backend, &toolchain).await;
    share(&backend, &toolchain).await;
    is_forgotten(&backend, &toolchain);
    let Backend::Embedded(cluster) = backend else { unreachable!("embedded") };
    cluster.shutdown().await;
    check_log(&toolchain, &directory.path().join("broker-1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_of_the_consumer_protocol_share_apache() {
    let name = "consumers_of_the_consumer_protocol_share_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let backend = Backend::apache_with(name, 1, |builder| {
        let set = |builder: curtail_apache::ApacheClusterBuilder, (name, value)| {
            builder.property(name, value)
        };
        SETTINGS.into_iter().fold(builder, set)
    });
    let backend = backend.expect("it is there");
    matching(&backend, &toolchain).await;
    share(&backend, &toolchain).await;
    is_forgotten(&backend, &toolchain);
}
