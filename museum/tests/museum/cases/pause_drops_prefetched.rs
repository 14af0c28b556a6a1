//! A pause discards records that were fetched ahead.
//!
//! - Client: confluent-kafka-javascript
//! - Threads: https://github.com/confluentinc/confluent-kafka-javascript/issues/517, https://github.com/confluentinc/confluent-kafka-javascript/issues/528
//! - Failure: the cache of fetched messages was dropped without a seek back, so they were skipped, and later committed
//! - Promise: records fetched and not returned are returned later

use std::time::Duration;

use crate::stage::{Stage, is_consecutive, poll_values, run};

#[test]
pub(crate) fn records_fetched_ahead_survive_a_pause() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..500).await;
        let mut consumer = stage.reader(|config| config.max_poll_records(10)).await;
        let mut records = Vec::new();
        while records.len() < 500 {
            records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
            if records.len() % 50 == 0 {
                consumer.pause(0).await;
                for _ in 0..3 {
                    assert_eq!(poll_values(&mut consumer, Duration::from_millis(5)).await, []);
                }
                consumer.resume(0).await;
            }
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        consumer.close().await;
    });
}
