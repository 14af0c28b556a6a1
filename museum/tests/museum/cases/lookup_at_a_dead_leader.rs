//! The leader stops responding while a consumer looks up its start offset.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/issues/843
//! - Failure: the lookup stayed with the previous leader and was repeated there, one minute for each timeout
//! - Promise: request.timeout.ms bounds a lookup at an unresponsive broker; the next one goes to the new leader

use std::time::{Duration, Instant};

use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, TOPIC, is_consecutive, poll_values, run, within};

#[test]
fn the_next_lookup_goes_to_the_new_leader() {
    run(async {
        let stage = Stage::new(3, 1).await;
        stage.fill(0, 0..20).await;
        let (leader, _) = stage.cluster.leader(TOPIC, 0).unwrap();
        stage.script(move |request| {
            let silent = request.broker == leader && request.api == ApiKey::LIST_OFFSETS;
            if silent { Step::Swallow } else { Step::Pass }
        });
        let mut consumer = stage.reader(|config| {
            config
                .request_timeout(Duration::from_secs(1))
                .metadata_max_age(Duration::from_millis(200))
        }).await;
        while stage.count(ApiKey::LIST_OFFSETS) == 0 {
            assert_eq!(poll_values(&mut consumer, Duration::from_millis(10)).await, []);
        }
        let begun = Instant::now();
        stage.cluster.move_leader(TOPIC, 0, leader % 3 + 1).unwrap();
        let mut records = Vec::new();
        while records.len() < 20 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(200)).await);
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        within(begun, Duration::from_secs(3));
        consumer.close().await;
    });
}
