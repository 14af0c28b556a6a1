//! A flush waits for a partition that has no leader.
//!
//! - Client: confluent-kafka-dotnet (librdkafka)
//! - Threads: https://github.com/confluentinc/confluent-kafka-dotnet/issues/1027, https://github.com/confluentinc/librdkafka/issues/2006
//! - Failure: the flush did not return, because no timeout applied to records without a leader
//! - Promise: delivery.timeout.ms bounds each record, and so each flush

use std::time::{Duration, Instant};

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, ends, run, within};

#[test]
fn a_flush_ends_with_the_delivery_timeout() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| {
            config
                .metadata_max_age(Duration::from_millis(20))
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let mut work = Work::default();
        work.deliver(&producer, 0, "before").await;
        stage.script(|request| match request.api {
            ApiKey::METADATA => request.edit_metadata(|response| {
                for partition in response.topics.iter_mut().flat_map(|t| &mut t.partitions) {
                    partition.error = ErrorCode::LEADER_NOT_AVAILABLE;
                    partition.leader_id = -1;
                    partition.leader_epoch += 1;
                }
            }),
            ApiKey::PRODUCE => request.refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            _ => Step::Pass,
        });
        let begun = Instant::now();
        work.send(&producer, 0, "without a leader").await;
        ends("flush", producer.flush()).await.unwrap();
        within(begun, Duration::from_millis(1500));
        let outcomes = work.verdict(&stage).await;
        assert!(outcomes["without a leader"].is_err());
    });
}
