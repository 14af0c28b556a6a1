//! A group rebalances while a member holds records fetched ahead.
//!
//! - Client: kafka-go, Alpakka Kafka, librdkafka
//! - Threads: https://github.com/segmentio/kafka-go/issues/1398, https://github.com/akka/alpakka-kafka/issues/336, https://github.com/confluentinc/librdkafka/issues/1720
//! - Failure: records of revoked partitions were returned after the rebalance, or records between the commit and the position were skipped
//! - Promise: a new owner begins where the previous one stopped; nothing is skipped, nothing returned twice

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use curtail::config::GroupProtocol;

use crate::stage::{Consumer, Stage, ends, group_member, run};

/// One poll, checked against the assignment after it.
async fn poll(consumer: &mut Consumer, seen: &mut BTreeMap<(i32, i64), usize>) {
    let records = ends("poll", consumer.poll(Duration::from_millis(5))).await.unwrap();
    let owned = consumer.assignment();
    for record in records {
        let owner = owned.iter().any(|at| at.partition == record.partition);
        assert!(owner, "a record of partition {} was returned", record.partition);
        *seen.entry((record.partition, record.offset)).or_default() += 1;
    }
}

async fn members_come_and_leave(protocol: GroupProtocol) {
    let stage = Stage::new(1, 4).await;
    for index in 0..4 {
        stage.fill(index, 0..500).await;
    }
    let member = async || {
        let mut consumer = stage.consumer(|config| {
            group_member(config, protocol, Duration::from_millis(50)).max_poll_records(5)
        });
        consumer.subscribe().await;
        consumer
    };
    let mut seen = BTreeMap::new();
    let mut first = member().await;
    while seen.len() < 100 {
        poll(&mut first, &mut seen).await;
    }
    let mut second = member().await;
    while second.assignment().is_empty() || seen.len() < 300 {
        poll(&mut first, &mut seen).await;
        poll(&mut second, &mut seen).await;
    }
    ends("close", first.close()).await;
    while seen.len() < 4 * 500 {
        poll(&mut second, &mut seen).await;
    }
    ends("close", second.close()).await;
    let twice: BTreeSet<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{} records were returned twice", twice.len());
}

#[test]
pub(crate) fn members_of_the_classic_protocol_hand_over_exactly() {
    run(members_come_and_leave(GroupProtocol::Classic));
}

#[test]
fn members_of_the_consumer_protocol_hand_over_exactly() {
    run(members_come_and_leave(GroupProtocol::Consumer));
}
