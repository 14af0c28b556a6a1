//! An idle member gets partitions in a rebalance.
//!
//! - Client: confluent-kafka-javascript
//! - Threads: https://github.com/confluentinc/confluent-kafka-javascript/issues/476
//! - Failure: the worker waited for its empty cache to fill and did not fetch; the member sent heartbeats and consumed nothing
//! - Promise: a member fetches every partition assigned to it

use std::time::Duration;

use curtail::config::GroupProtocol;

use crate::stage::{Stage, ends, group_member, is_consecutive, poll_values, run};

async fn one_of_two_members_leaves(protocol: GroupProtocol) {
    let stage = Stage::new(1, 1).await;
    let member = async || {
        let mut consumer =
            stage.consumer(|config| group_member(config, protocol, Duration::from_millis(50)));
        consumer.subscribe().await;
        consumer
    };
    let mut owner = member().await;
    while owner.assignment().is_empty() {
        assert_eq!(poll_values(&mut owner, Duration::from_millis(20)).await, []);
    }
    let mut idle = member().await;
    stage.fill(0, 0..10).await;
    let mut records = Vec::new();
    while records.len() < 10 {
        records.extend(poll_values(&mut owner, Duration::from_millis(20)).await);
        records.extend(poll_values(&mut idle, Duration::from_millis(20)).await);
    }
    // Either may own the partition by now; the other one stays.
    let (leaves, mut stays) = if owner.assignment().is_empty() { (idle, owner) } else { (owner, idle) };
    ends("close", leaves.close()).await;
    stage.fill(0, 10..20).await;
    while records.len() < 20 {
        records.extend(poll_values(&mut stays, Duration::from_millis(100)).await);
    }
    assert!(is_consecutive(&records, 0), "{records:?}");
    ends("close", stays.close()).await;
}

#[test]
fn an_idle_member_of_the_classic_protocol_takes_over() {
    run(one_of_two_members_leaves(GroupProtocol::Classic));
}

#[test]
fn an_idle_member_of_the_consumer_protocol_takes_over() {
    run(one_of_two_members_leaves(GroupProtocol::Consumer));
}
