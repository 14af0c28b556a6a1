//! A consumer is paused, polled without records, and closed.
//!
//! - Client: confluent-kafka-javascript, kafka-php
//! - Threads: https://github.com/confluentinc/confluent-kafka-javascript/issues/404, https://github.com/weiboad/kafka-php/issues/179
//! - Failure: the close, or a commit after a fetch without messages, wrote an offset from before the last commit
//! - Promise: a committed offset is the position after the last record returned

use std::time::Duration;

use curtail::config::GroupProtocol;

use crate::stage::{Stage, is_consecutive, poll_values, run};

async fn pauses_and_empty_polls(protocol: GroupProtocol) {
    let stage = Stage::new(1, 1).await;
    stage.fill(0, 0..50).await;
    let mut consumer = stage.consumer(|config| {
        config
            .group_id("museum")
            .group_protocol(protocol)
            .enable_auto_commit(true)
            .auto_commit_interval(Duration::from_millis(5))
            .max_poll_records(10)
    });
    consumer.subscribe().await;
    let mut records = Vec::new();
    while records.len() < 30 {
        records.extend(poll_values(&mut consumer, Duration::from_millis(100)).await);
    }
    consumer.commit().await.unwrap();
    consumer.pause(0).await;
    for _ in 0..5 {
        assert_eq!(poll_values(&mut consumer, Duration::from_millis(10)).await, []);
    }
    consumer.close().await;
    let mut next = stage.consumer(|config| config.group_id("museum").group_protocol(protocol));
    next.subscribe().await;
    let mut rest = Vec::new();
    while rest.len() < 20 {
        rest.extend(poll_values(&mut next, Duration::from_millis(100)).await);
    }
    assert!(is_consecutive(&rest, 30), "{rest:?}");
    for _ in 0..3 {
        assert_eq!(poll_values(&mut next, Duration::from_millis(10)).await, []);
        next.commit().await.unwrap();
    }
    assert_eq!(stage.committed("museum").await, Some(50));
    next.close().await;
}

#[test]
pub(crate) fn pause_and_empty_polls_leave_the_offset() {
    run(pauses_and_empty_polls(GroupProtocol::Classic));
}

#[test]
fn pause_and_empty_polls_leave_the_offset_with_the_consumer_protocol() {
    run(pauses_and_empty_polls(GroupProtocol::Consumer));
}
