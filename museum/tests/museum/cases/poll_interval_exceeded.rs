//! A member exceeds max.poll.interval.ms, leaves, and polls again.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/pull/5488
//! - Failure: the leave was sent before the assignment was revoked, and the member that came back was refused with INVALID_REQUEST, a fatal error
//! - Promise: a member that polls again joins again, and continues from the committed offset

use std::time::Duration;

use curtail::config::GroupProtocol;
use curtail_wire::{ApiKey, cold::messages::ConsumerGroupHeartbeatRequest};

use crate::stage::{Request, Stage, ends, group_member, is_consecutive, is_peer, run};

/// Whether the member has left.
fn has_left(stage: &Stage) -> bool {
    let left = |request: &Request| {
        request.message::<ConsumerGroupHeartbeatRequest>().member_epoch == -1
    };
    let heartbeats = stage.seen(ApiKey::CONSUMER_GROUP_HEARTBEAT);
    stage.count(ApiKey::LEAVE_GROUP) > 0 || heartbeats.iter().any(left)
}

async fn late_member(protocol: GroupProtocol) {
    let stage = Stage::new(1, 1).await;
    stage.fill(0, 0..20).await;
    let mut consumer = stage.consumer(|config| {
        // Peers need time to start, and some need more than the session's timeout.
        let limit = Duration::from_millis(if is_peer() { 3000 } else { 300 });
        group_member(config, protocol, Duration::from_millis(50)).max_poll_interval(limit)
    });
    consumer.subscribe().await;
    let mut records = Vec::new();
    while records.len() < 20 {
        let polled = ends("poll", consumer.poll(Duration::from_millis(100))).await.unwrap();
        records.extend(polled.into_iter().map(|record| (record.offset, record.offset as u32)));
    }
    consumer.commit().await.unwrap();
    let mut requests = 0;
    while !has_left(&stage) {
        requests = stage.next_request(requests).await;
    }
    stage.fill(0, 20..40).await;
    // A poll may report that the member had left.
    while records.len() < 40 {
        let polled = ends("poll", consumer.poll(Duration::from_millis(100))).await;
        let polled = polled.into_iter().flatten();
        records.extend(polled.map(|record| (record.offset, record.offset as u32)));
    }
    assert!(is_consecutive(&records, 0), "{records:?}");
    ends("close", consumer.close()).await;
}

#[test]
fn a_late_member_of_the_classic_protocol_comes_back() {
    run(late_member(GroupProtocol::Classic));
}

#[test]
fn a_late_member_of_the_consumer_protocol_comes_back() {
    run(late_member(GroupProtocol::Consumer));
}
