//! A member subscribes again before the response to its leave.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: KAFKA-19335, https://github.com/apache/kafka/pull/19818
//! - Failure: the late response to the leave set the epoch of the joining member to -1, its heartbeat was refused with INVALID_REQUEST, and it stayed out of the group
//! - Promise: a member that subscribes again joins with epoch 0 and gets its partitions

use std::time::Duration;

use curtail::config::GroupProtocol;
use curtail_wire::{ApiKey, cold::messages::ConsumerGroupHeartbeatRequest};

use crate::stage::{Gate, Reply, Request, Stage, Step, is_consecutive, poll_values, run};

#[test]
fn a_late_response_to_the_leave_changes_nothing() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..20).await;
        let mut consumer = stage.consumer(|config| {
            config.group_id("museum").group_protocol(GroupProtocol::Consumer)
        });
        consumer.subscribe().await;
        let mut records = Vec::new();
        while records.len() < 20 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        let gate = Gate::closed();
        let held = gate.clone();
        let epoch = |request: &Request| {
            request.message::<ConsumerGroupHeartbeatRequest>().member_epoch
        };
        stage.script(move |request| {
            if request.api == ApiKey::CONSUMER_GROUP_HEARTBEAT && epoch(request) == -1 {
                return Step::PassThen(Reply::Hold(held.clone()));
            }
            Step::Pass
        });
        consumer.commit().await.unwrap();
        consumer.unsubscribe().await;
        let left = || {
            let heartbeats = stage.seen(ApiKey::CONSUMER_GROUP_HEARTBEAT);
            heartbeats.iter().position(|request| epoch(request) == -1)
        };
        while left().is_none() {
            let _ = consumer.poll(Duration::from_millis(5)).await;
        }
        consumer.subscribe().await;
        let _ = consumer.poll(Duration::from_millis(5)).await;
        gate.open();
        stage.fill(0, 20..40).await;
        while records.len() < 40 {
            records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        let heartbeats = stage.seen(ApiKey::CONSUMER_GROUP_HEARTBEAT);
        let epochs: Vec<i32> = heartbeats.iter().skip(left().unwrap() + 1).map(epoch).collect();
        assert!(epochs.contains(&0) && !epochs.contains(&-1), "{epochs:?}");
        consumer.close().await;
    });
}
