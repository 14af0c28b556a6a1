//! A member is fenced, and must join again with epoch 0.
//!
//! - Client: Apache Kafka (Java and coordinator)
//! - Threads: KAFKA-19233, https://github.com/apache/kafka/pull/21305
//! - Failure: the coordinator refused epoch 0 of a member it still knew, so the member stayed out of the group
//! - Promise: a fenced member joins again and continues from the committed offset

use std::time::Duration;

use curtail::{ErrorCode, config::GroupProtocol};
use curtail_wire::{
    ApiKey,
    cold::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse},
};

use crate::stage::{Stage, Step, is_consecutive, poll_values, run};

#[test]
pub(crate) fn a_fenced_member_continues() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..100).await;
        let mut consumer = stage.consumer(|config| {
            config.group_id("museum").group_protocol(GroupProtocol::Consumer).max_poll_records(10)
        });
        consumer.subscribe().await;
        let mut records = Vec::new();
        while records.len() < 50 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        consumer.commit().await.unwrap();
        let mut fences = 2;
        stage.script(move |request| {
            if request.api != ApiKey::CONSUMER_GROUP_HEARTBEAT || fences == 0 {
                return Step::Pass;
            }
            let heartbeat: ConsumerGroupHeartbeatRequest = request.message();
            if heartbeat.member_epoch <= 0 {
                return Step::Pass;
            }
            fences -= 1;
            let code = ErrorCode::FENCED_MEMBER_EPOCH.0;
            request.answer(&ConsumerGroupHeartbeatResponse::default().with_error_code(code))
        });
        let before = stage.count(ApiKey::CONSUMER_GROUP_HEARTBEAT);
        stage.arrived(ApiKey::CONSUMER_GROUP_HEARTBEAT, before + 1).await;
        stage.fill(0, 100..150).await;
        // Records that were returned and not committed before the fence may be returned again.
        let mut after = Vec::new();
        while after.last().is_none_or(|(offset, _)| *offset < 149) {
            after.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        let numbers = stage.seen(ApiKey::CONSUMER_GROUP_HEARTBEAT).into_iter();
        let epochs: Vec<i32> =
            numbers.map(|r| r.message::<ConsumerGroupHeartbeatRequest>().member_epoch).collect();
        assert!(epochs.iter().filter(|epoch| **epoch == 0).count() >= 3, "{epochs:?}");
        let offsets: std::collections::BTreeSet<_> =
            after.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (50..150).collect());
        assert!(is_consecutive(&records, 0), "{records:?}");
        consumer.close().await;
    });
}
