//! The coordinator is loading its state when a member asks.
//!
//! - Client: sarama
//! - Threads: https://github.com/IBM/sarama/issues/2246
//! - Failure: the error ended the session, and the group did not consume again
//! - Promise: a retriable error of the coordinator delays a member and does not end it

use std::time::Duration;

use curtail::{ErrorCode, config::GroupProtocol};
use curtail_wire::{
    ApiKey,
    cold::messages::{
        ConsumerGroupHeartbeatResponse, HeartbeatResponse, JoinGroupResponse, OffsetCommitResponse,
        OffsetFetchResponse,
    },
};

use crate::stage::{Stage, Step, group_member, is_consecutive, poll_values, run};

async fn loading_coordinator(protocol: GroupProtocol, heartbeat: ApiKey) {
    let stage = Stage::new(1, 1).await;
    stage.fill(0, 0..50).await;
    let code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
    let mut left = std::collections::BTreeMap::new();
    stage.script(move |request| {
        let left: &mut usize = left.entry(request.api).or_insert(3);
        if *left == 0 {
            return Step::Pass;
        }
        *left -= 1;
        match request.api {
            ApiKey::JOIN_GROUP => {
                request.answer(&JoinGroupResponse::default().with_error_code(code))
            }
            ApiKey::HEARTBEAT => {
                request.answer(&HeartbeatResponse::default().with_error_code(code))
            }
            ApiKey::CONSUMER_GROUP_HEARTBEAT => {
                request.answer(&ConsumerGroupHeartbeatResponse::default().with_error_code(code))
            }
            ApiKey::OFFSET_FETCH => request.edit(move |response: &mut OffsetFetchResponse| {
                response.groups.iter_mut().for_each(|group| {
                    group.error_code = code;
                    group.topics.clear();
                });
            }),
            ApiKey::OFFSET_COMMIT => request.edit(move |response: &mut OffsetCommitResponse| {
                let partitions = response.topics.iter_mut().flat_map(|t| &mut t.partitions);
                partitions.for_each(|partition| partition.error_code = code);
            }),
            _ => Step::Pass,
        }
    });
    let mut consumer =
        stage.consumer(|config| group_member(config, protocol, Duration::from_millis(50)));
    consumer.subscribe().await;
    let mut records = Vec::new();
    while records.len() < 50 {
        records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
    }
    stage.arrived(heartbeat, 4).await;
    consumer.commit().await.unwrap();
    stage.fill(0, 50..60).await;
    while records.len() < 60 {
        records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
    }
    assert!(is_consecutive(&records, 0), "{records:?}");
    consumer.close().await;
}

#[test]
fn a_member_of_the_classic_protocol_waits_for_the_coordinator() {
    run(loading_coordinator(GroupProtocol::Classic, ApiKey::HEARTBEAT));
}

#[test]
fn a_member_of_the_consumer_protocol_waits_for_the_coordinator() {
    run(loading_coordinator(GroupProtocol::Consumer, ApiKey::CONSUMER_GROUP_HEARTBEAT));
}
