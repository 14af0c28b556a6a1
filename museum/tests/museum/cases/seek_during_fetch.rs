//! A fetch response that was requested before a seek arrives after it.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/pull/1565
//! - Failure: records from the previous position were returned after the seek, and moved the position
//! - Promise: after a seek the first record returned is that of the offset sought

use std::time::Duration;

use curtail_wire::ApiKey;

use crate::stage::{Gate, Reply, Stage, Step, is_consecutive, partition, poll_values, run};

#[test]
fn a_response_from_before_the_seek_is_dropped() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..100).await;
        let gate = Gate::closed();
        let held = gate.clone();
        stage.script(move |request| match request.api {
            ApiKey::FETCH => Step::PassThen(Reply::Hold(held.clone())),
            _ => Step::Pass,
        });
        let mut consumer = stage.reader(|_| {});
        while stage.count(ApiKey::FETCH) == 0 {
            assert_eq!(poll_values(&mut consumer, Duration::from_millis(10)).await, []);
        }
        consumer.seek(&partition(0), 50).unwrap();
        gate.open();
        let mut records = Vec::new();
        while records.len() < 50 {
            records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
        }
        assert!(is_consecutive(&records, 50), "{records:?}");
        consumer.close().await;
    });
}
