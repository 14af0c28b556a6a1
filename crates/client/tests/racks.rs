//! Keyless records stay in the producer's rack (KIP-1123), on the embedded cluster and on Apache Kafka: three brokers,
//! each in a rack of its own.

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{Backend, producer};
use curtail::{Admin, AdminConfig, Producer, Record};
use tokio::time::timeout;

const TOPIC: &str = "racks";
const PARTITIONS: i32 = 6;
const RACKS: [&str; 3] = ["near", "far", "farther"];
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_stay_in_the_rack_embedded() {
    let racks = RACKS.map(str::to_owned).to_vec();
    keyless_records_stay_in_the_rack(Backend::embedded_with(3, |c| c.racks = racks).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_stay_in_the_rack_apache() {
    let backend = Backend::apache_with("keyless_records_stay_in_the_rack_apache", 3, |builder| {
        (0..3).fold(builder, |builder, index| {
            builder.broker_property(index, "broker.rack", RACKS[index])
        })
    });
    let Some(backend) = backend else { return };
    keyless_records_stay_in_the_rack(backend).await;
}

async fn keyless_records_stay_in_the_rack(backend: Backend) {
    backend.create_topic(TOPIC, PARTITIONS, 3).await;
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
    let cluster = admin.describe_cluster().await.expect("described");
    let broker = cluster.brokers.iter().find(|broker| broker.rack.as_deref() == Some("near"));
    let broker = broker.expect("brokers tell their racks").id;
    let topic = admin.describe_topics(&[TOPIC]).await.expect("described").remove(0).1;
    let partitions = topic.expect("the topic").partitions;
    let led = partitions.iter().filter(|partition| partition.leader == Some(broker));
    let near: BTreeSet<i32> = led.map(|partition| partition.partition).collect();
    let all: BTreeSet<i32> = (0..PARTITIONS).collect();
    assert!(!near.is_empty() && near != all, "{near:?}");

    let aware = in_rack(&backend, "near", "true");
    assert_eq!(used(&aware).await, near);
    let adaptive =
        [("client.rack", "near"), ("partitioner.rack.aware", "true"), ("linger.ms", "0")];
    assert!(used(&producer(&backend, &adaptive)).await.is_subset(&near));
    assert_eq!(used(&in_rack(&backend, "near", "false")).await, all);
    // Without a leader in the rack every leader will do.
    assert_eq!(used(&in_rack(&backend, "elsewhere", "true")).await, all);
    // What is bound to a partition goes there.
    let far = *all.difference(&near).next().expect("others");
    let bound = aware.send(Record::to(TOPIC).partition(far).value("bound")).await.expect("sent");
    assert_eq!(bound.await.expect("written").partition, far);
    // The rack loses its leader.
    backend.kill(broker);
    let everywhere = async {
        let mut seen = BTreeSet::new();
        while seen != all {
            seen.insert(keyless(&aware).await);
        }
    };
    timeout(LIMIT, everywhere).await.expect("records go to other racks");
}

/// A producer that gives each leader the same share.
fn in_rack(backend: &Backend, rack: &str, aware: &str) -> Producer {
    let properties = [
        ("client.rack", rack),
        ("partitioner.rack.aware", aware),
        ("partitioner.adaptive.partitioning.enable", "false"),
        ("linger.ms", "0"),
        // Each record is a batch, and the next one goes to another partition.
        ("batch.size", "1"),
    ];
    producer(backend, &properties)
}

async fn keyless(producer: &Producer) -> i32 {
    let delivery = producer.send(Record::to(TOPIC).value("keyless")).await.expect("sent");
    timeout(LIMIT, delivery).await.expect("an outcome").expect("written").partition
}

/// The partitions that many records without keys go to.
async fn used(producer: &Producer) -> BTreeSet<i32> {
    let mut partitions = BTreeSet::new();
    for _ in 0..200 {
        partitions.insert(keyless(producer).await);
    }
    partitions
}
