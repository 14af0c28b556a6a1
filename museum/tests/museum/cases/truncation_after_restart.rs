//! A consumer starts at a committed offset that an unclean election has cut off.
//!
//! - Client: librdkafka, Apache Kafka (Java)
//! - Threads: https://github.com/confluentinc/librdkafka/issues/5158, KAFKA-19902, https://github.com/apache/kafka/pull/23183
//! - Failure: the start offset was not validated against its leader epoch, so records that a new leader wrote below it were skipped, or the reset policy replayed or skipped the log
//! - Promise: a start offset beyond the end of its leader epoch is reported or moved back to that end (KIP-320)

use std::time::Duration;

use curtail_wire::{ApiKey, cold::messages::OffsetForLeaderEpochResponse};

use crate::stage::{Stage, Step, TOPIC, is_consecutive, poll_values, run};

#[test]
fn a_committed_offset_is_validated() {
    run(async {
        let stage = Stage::new(2, 1).await;
        stage.fill(0, 0..15).await;
        let group = |config: curtail::ConsumerConfig| config.group_id("museum");
        let mut consumer = stage.consumer(group);
        consumer.subscribe().await;
        let mut records = Vec::new();
        while records.len() < 15 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        consumer.commit().await.unwrap();
        consumer.close().await;
        let (leader, _) = stage.cluster.leader(TOPIC, 0).unwrap();
        stage.cluster.move_leader(TOPIC, 0, 3 - leader).unwrap();
        stage.cluster.settled().await;
        stage.fill(0, 15..20).await;
        // As after an unclean election: the committed epoch ended at offset 10.
        stage.script(|request| match request.api {
            ApiKey::OFFSET_FOR_LEADER_EPOCH => {
                request.edit(|response: &mut OffsetForLeaderEpochResponse| {
                    let topics = response.topics.iter_mut();
                    topics.flat_map(|t| &mut t.partitions).for_each(|p| p.end_offset = 10);
                })
            }
            _ => Step::Pass,
        });
        let mut consumer = stage.consumer(group);
        consumer.subscribe().await;
        let mut records = Vec::new();
        while records.len() < 10 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        assert!(is_consecutive(&records, 10), "{records:?}");
        assert!(stage.count(ApiKey::OFFSET_FOR_LEADER_EPOCH) > 0);
        consumer.close().await;
    });
}
