//! A consumer changes from the leader to the replica in its rack.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/issues/3257
//! - Failure: a response of the leader and one of the replica overlapped, and records were returned twice
//! - Promise: each poll continues where the one before ended

use std::{collections::BTreeMap, time::Duration};

use curtail_cluster::ReplicaSelector;

use crate::stage::{Stage, ends, run};

#[test]
fn offsets_are_consecutive_across_the_change_of_replica() {
    run(async {
        let racks = |config: &mut curtail_cluster::ClusterConfig| {
            config.racks = vec!["a".into(), "b".into()];
            config.replica_selector = ReplicaSelector::RackAware;
        };
        let stage = Stage::with(2, 4, racks, &[]).await;
        for n in 0..10 {
            for index in 0..4 {
                stage.fill(index, n * 50..(n + 1) * 50).await;
            }
        }
        let mut consumer = stage.consumer(|config| {
            config.client_rack("a").max_partition_fetch_bytes(1000)
        });
        consumer.assign(4).await;
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        while next.values().sum::<i64>() < 4 * 500 {
            for record in ends("poll", consumer.poll(Duration::from_secs(5))).await.unwrap() {
                let expected = next.entry(record.partition).or_default();
                assert_eq!(record.offset, *expected, "partition {}", record.partition);
                *expected += 1;
            }
        }
        let brokers: std::collections::BTreeSet<_> =
            stage.seen(curtail_wire::ApiKey::FETCH).iter().map(|request| request.broker).collect();
        assert_eq!(brokers.len(), 2, "both replicas were read from");
        consumer.close().await;
    });
}
