//! The leader epoch is newer than that of the records read last.
//!
//! - Client: kafka-python
//! - Threads: https://github.com/dpkp/kafka-python/issues/3106, https://github.com/dpkp/kafka-python/pull/3107
//! - Failure: each batch put the position back to the epoch of its records, so it awaited validation again, and polls returned nothing
//! - Promise: records after a leader change are returned

use std::time::Duration;

use crate::stage::{Stage, TOPIC, is_consecutive, poll_values, run};

#[test]
fn old_records_are_read_from_a_leader_of_a_newer_epoch() {
    run(async {
        let stage = Stage::new(2, 1).await;
        for n in 0..10 {
            stage.fill(0, n * 10..(n + 1) * 10).await;
        }
        let mut consumer = stage.reader(|config| {
            config
                .max_partition_fetch_bytes(300)
                .max_poll_records(10)
                .metadata_max_age(Duration::from_millis(50))
        }).await;
        let mut records = poll_values(&mut consumer, Duration::from_secs(5)).await;
        for _ in 0..3 {
            let (leader, _) = stage.cluster.leader(TOPIC, 0).unwrap();
            stage.cluster.move_leader(TOPIC, 0, 3 - leader).unwrap();
            stage.cluster.settled().await;
        }
        stage.fill(0, 100..120).await;
        while records.len() < 120 {
            records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        consumer.close().await;
    });
}
