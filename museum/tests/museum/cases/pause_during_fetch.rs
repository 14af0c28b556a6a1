//! A partition is paused while its fetch is in flight.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: KAFKA-2632, https://github.com/apache/kafka/pull/295
//! - Failure: the response was handled as if the partition were not paused, or its records were dropped
//! - Promise: a paused partition returns nothing, and loses nothing

use std::time::Duration;

use curtail_wire::ApiKey;

use crate::stage::{Gate, Reply, Stage, Step, is_consecutive, poll_values, run};

#[test]
fn a_response_after_the_pause_is_returned_after_the_resume() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..100).await;
        let gate = Gate::closed();
        let held = gate.clone();
        stage.script(move |request| match request.api {
            ApiKey::FETCH => Step::PassThen(Reply::Hold(held.clone())),
            _ => Step::Pass,
        });
        let mut consumer = stage.reader(|config| config).await;
        while stage.count(ApiKey::FETCH) == 0 {
            assert_eq!(poll_values(&mut consumer, Duration::from_millis(10)).await, []);
        }
        consumer.pause(0).await;
        gate.open();
        for _ in 0..5 {
            assert_eq!(poll_values(&mut consumer, Duration::from_millis(20)).await, []);
        }
        consumer.resume(0).await;
        let mut records = Vec::new();
        while records.len() < 100 {
            records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        consumer.close().await;
    });
}
