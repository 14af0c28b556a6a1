//! Keyless records stay in the producer's rack (KIP-1123), and consumers read there (KIP-392). On the embedded
//! cluster and on Apache Kafka, with three brokers in separate racks.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{Backend, producer, raw};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Producer, Record, TopicPartition,
    admin::{Mode, NewPartitions},
    config::{Assignor, OffsetReset},
};
use curtail_cluster::ReplicaSelector;
use tokio::time::timeout;

/// Topics of the three cases, which share a cluster of Apache Kafka.
const SENT: &str = "sent";
const READ: &str = "read";
const SHARED: &str = "shared";
const PARTITIONS: i32 = 6;
const RACKS: [&str; 3] = ["near", "far", "farther"];
const LIMIT: Duration = Duration::from_secs(60);
const AWARE: (&str, &str) = ("partitioner.rack.aware", "true");

/// All cases on one cluster, because its start is slow. The last two kill the broker in the first rack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racks_are_respected_apache() {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let backend = Backend::apache_with("racks_are_respected_apache", 3, |builder| {
        let builder = builder.property("replica.selector.class", selector);
        (0..3).fold(builder, |builder, index| {
            builder.broker_property(index, "broker.rack", RACKS[index])
        })
    });
    let Some(backend) = backend else { return };
    members_get_partitions_in_their_rack(&backend).await;
    consumers_read_in_their_rack(&backend).await;
    backend.restart(1).await;
    keyless_records_stay_in_the_rack(&backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_stay_in_the_rack_embedded() {
    let racks = RACKS.map(str::to_owned).to_vec();
    keyless_records_stay_in_the_rack(&Backend::embedded_with(3, |c| c.racks = racks).await).await;
}

async fn keyless_records_stay_in_the_rack(backend: &Backend) {
    backend.create_topic(SENT, PARTITIONS, 3).await;
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
    let cluster = admin.describe_cluster().await.expect("described");
    let broker = cluster.brokers.iter().find(|broker| broker.rack.as_deref() == Some("near"));
    let broker = broker.expect("brokers report their racks").id;
    let topic = admin.describe_topics(&[SENT]).await.expect("described").remove(0).1;
    let partitions = topic.expect("the topic").partitions;
    let led = partitions.iter().filter(|partition| partition.leader == Some(broker));
    let near: BTreeSet<i32> = led.map(|partition| partition.partition).collect();
    let all: BTreeSet<i32> = (0..PARTITIONS).collect();
    assert!(!near.is_empty() && near != all, "{near:?}");

    // Keyless records leave a broker whose response is late for another rack, and a busy machine makes brokers late.
    // Here they do not leave.
    let stay = ("curtail.route.around.trouble", "false");
    assert_eq!(used(&in_rack(backend, "near", &[AWARE, stay])).await, near);
    let adaptive = [("client.rack", "near"), AWARE, ("linger.ms", "0"), stay];
    assert!(used(&producer(backend, &adaptive)).await.is_subset(&near));
    assert_eq!(used(&in_rack(backend, "near", &[])).await, all);
    // Without a leader in the rack, every leader is used.
    assert_eq!(used(&in_rack(backend, "elsewhere", &[AWARE])).await, all);
    // A record with an explicit partition goes there.
    let aware = in_rack(backend, "near", &[AWARE]);
    let far = *all.difference(&near).next().expect("others");
    let bound = aware.send(Record::to(SENT).partition(far).value("bound")).await.expect("sent");
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

/// A producer that uses all leaders equally.
fn in_rack(backend: &Backend, rack: &str, more: &[(&str, &str)]) -> Producer {
    let properties = [
        ("client.rack", rack),
        ("partitioner.adaptive.partitioning.enable", "false"),
        ("linger.ms", "0"),
        // Each record is a batch, and the next one goes to another partition.
        ("batch.size", "1"),
    ];
    producer(backend, &[&properties[..], more].concat())
}

async fn keyless(producer: &Producer) -> i32 {
    let delivery = producer.send(Record::to(SENT).value("keyless")).await.expect("sent");
    timeout(LIMIT, delivery).await.expect("an outcome").expect("written").partition
}

/// The partitions of many keyless records.
async fn used(producer: &Producer) -> BTreeSet<i32> {
    let mut partitions = BTreeSet::new();
    for _ in 0..200 {
        partitions.insert(keyless(producer).await);
    }
    partitions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_read_in_their_rack_embedded() {
    let backend = Backend::embedded_with(3, |c| {
        c.racks = RACKS.map(str::to_owned).to_vec();
        c.replica_selector = ReplicaSelector::RackAware;
    });
    consumers_read_in_their_rack(&backend.await).await;
}

async fn consumers_read_in_their_rack(backend: &Backend) {
    backend.create_topic(READ, PARTITIONS, 3).await;
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
    let cluster = admin.describe_cluster().await.expect("described");
    let broker = cluster.brokers.iter().find(|broker| broker.rack.as_deref() == Some("near"));
    let near = broker.expect("brokers report their racks").id;
    let sender = producer(backend, &[("linger.ms", "0")]);
    let config = ConsumerConfig::new(backend.bootstrap())
        .client_rack("near")
        .auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::new(config).expect("usable");
    let all: Vec<_> = (0..PARTITIONS).map(|index| TopicPartition::new(READ, index)).collect();
    consumer.assign(all.iter().cloned());
    // Every partition has a replica in the rack, and is read there once its leader has named it.
    let mut sent = 0;
    while consumer.read_from().values().any(|from| *from != Some(near)) {
        sent += round(&sender, &mut consumer).await;
        assert!(sent < 6_000, "{:?}", consumer.read_from());
    }
    // Sought offsets are looked up at the leader, and the records are read in the rack again.
    consumer.seek_to_beginning(&all).expect("assigned");
    let mut again = 0;
    while again < sent {
        let records = timeout(LIMIT, consumer.poll(LIMIT)).await.expect("in time").expect("read");
        again += records.len();
    }
    assert_eq!(again, sent);
    while consumer.read_from().values().any(|from| *from != Some(near)) {
        round(&sender, &mut consumer).await;
    }
    // The rack loses its replicas: the leaders, old and new, return the records.
    backend.kill(near);
    for _ in 0..10 {
        round(&sender, &mut consumer).await;
    }
    assert!(consumer.read_from().values().all(|from| *from != Some(near)));
    consumer.close().await;
    sender.close().await.expect("closed");
}

/// Sends one record to each partition and reads all of them.
async fn round(sender: &Producer, consumer: &mut Consumer) -> usize {
    let mut deliveries = Vec::new();
    for partition in 0..PARTITIONS {
        let record = Record::to(READ).partition(partition).value("x");
        deliveries.push(sender.send(record).await.expect("sent"));
    }
    for delivery in deliveries {
        delivery.await.expect("written");
    }
    let mut read = 0;
    while read < PARTITIONS as usize {
        let records = timeout(LIMIT, consumer.poll(LIMIT)).await.expect("in time").expect("read");
        assert!(!records.is_empty(), "{read} of {PARTITIONS} came back");
        read += records.len();
    }
    assert_eq!(read, PARTITIONS as usize);
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_get_partitions_in_their_rack_embedded() {
    let racks = RACKS.map(str::to_owned).to_vec();
    let backend = Backend::embedded_with(3, |config| {
        config.racks = racks;
        config.set("group.initial.rebalance.delay.ms", "0").unwrap();
    });
    members_get_partitions_in_their_rack(&backend.await).await;
}

/// Partitions have one replica each, two in each rack. Three members, one in each rack, share them (KIP-881).
async fn members_get_partitions_in_their_rack(backend: &Backend) {
    backend.create_topic(SHARED, 1, 1).await;
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
    let brokers = admin.describe_cluster().await.expect("described").brokers;
    let topic = admin.describe_topics(&[SHARED]).await.expect("described").remove(0).1;
    let first = topic.expect("the topic").partitions[0].replicas[0];
    let mut placed: Vec<i32> = brokers.iter().chain(&brokers).map(|broker| broker.id).collect();
    placed.remove(placed.iter().position(|id| *id == first).expect("a broker"));
    let added = placed.iter().map(|id| vec![*id]);
    let added = NewPartitions::new(SHARED, PARTITIONS).replicas(added);
    let created = admin.create_partitions(&[added], Mode::Apply).await.expect("created");
    created.into_iter().for_each(|(_, outcome)| outcome.expect("created"));
    raw::until_known(backend, SHARED, PARTITIONS).await;
    placed.insert(0, first);
    let near = |rack: &str| -> BTreeSet<i32> {
        let broker = brokers.iter().find(|broker| broker.rack.as_deref() == Some(rack));
        let broker = broker.expect("brokers report their racks").id;
        (0..).zip(&placed).filter(|(_, id)| **id == broker).map(|(index, _)| index).collect()
    };
    for assignor in [Assignor::Range, Assignor::Sticky, Assignor::CooperativeSticky] {
        // The first member to join gets all partitions first. Racks in reverse order of the brokers: without them, members
        // would get others.
        let mut members: Vec<Consumer> = RACKS
            .iter()
            .rev()
            .map(|rack| {
                let config = ConsumerConfig::new(backend.bootstrap())
                    .group_id(assignor.name())
                    .client_rack(*rack)
                    .partition_assignment_strategy([assignor]);
                let mut consumer = Consumer::new(config).expect("usable");
                consumer.subscribe([SHARED]).expect("a subscription");
                consumer
            })
            .collect();
        let expected: Vec<BTreeSet<i32>> = RACKS.iter().rev().map(|rack| near(rack)).collect();
        let mut assigned = Vec::new();
        let settled = async {
            while assigned != expected {
                assigned.clear();
                for member in &mut members {
                    member.poll(Duration::from_millis(20)).await.expect("no error");
                    let partitions = member.assignment().into_iter().map(|at| at.partition);
                    assigned.push(partitions.collect::<BTreeSet<i32>>());
                }
            }
        };
        if timeout(LIMIT, settled).await.is_err() {
            panic!("{assignor:?}: {assigned:?} instead of {expected:?}");
        }
        for member in members {
            member.close().await;
        }
    }
}
