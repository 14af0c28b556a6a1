use std::collections::BTreeMap;

use curtail::{admin::PartitionDescription, metrics::BrokerMetrics};

use super::{of_brokers, of_partitions};

#[test]
fn partitions_that_cannot_acknowledge_are_named_with_the_reason() {
    let partition = |partition, leader, isr: &[i32]| PartitionDescription {
        partition,
        leader,
        leader_epoch: None,
        replicas: vec![1, 2],
        isr: isr.to_vec(),
        offline: Vec::new(),
    };
    let mut all =
        vec![partition(0, Some(1), &[1, 2]), partition(1, Some(1), &[1]), partition(2, None, &[2])];
    let expected =
        ["t-1 has 1 in-sync replica, fewer than min.insync.replicas=2", "t-2 has no leader"];
    assert_eq!(of_partitions("t", &all, Some(2)), expected);
    assert_eq!(of_partitions("t", &all, None), expected[1..]);
    all.extend((3..6).map(|index| partition(index, None, &[])));
    let reasons = of_partitions("t", &all, Some(2));
    assert_eq!(reasons[2..], ["t-3 has no leader", "the same for 2 more partitions"]);
}

#[test]
fn brokers_are_named_with_what_they_do() {
    let broker = |change: fn(&mut BrokerMetrics)| {
        let mut broker = BrokerMetrics::default();
        change(&mut broker);
        broker
    };
    let brokers = BTreeMap::from([
        (1, broker(|b| (b.batch_refused_total, b.requests_in_flight) = (7, 1))),
        (2, broker(|b| (b.connection_count, b.requests_in_flight) = (1, 2))),
        (3, broker(|b| b.queue_bytes = 9)),
        (4, broker(|b| b.connection_count = 1)),
    ]);
    let expected = [
        "broker 1 refused a batch 7 times",
        "broker 2 has not responded to 2 requests",
        "there is no connection to broker 3",
    ];
    assert_eq!(of_brokers(&brokers), expected);
}
