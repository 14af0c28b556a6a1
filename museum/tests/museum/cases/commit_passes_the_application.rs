//! Auto-commit commits records that the application has not been given.
//!
//! - Client: Apache Kafka (Java), franz-go, librdkafka
//! - Threads: KAFKA-18641, https://github.com/apache/kafka/pull/18737, https://github.com/twmb/franz-go/issues/57, https://github.com/confluentinc/librdkafka/issues/4534
//! - Failure: a commit in the background took the position of the fetcher, so a crash lost records that were fetched or being processed
//! - Promise: a committed offset never passes what an earlier poll returned

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use curtail::config::GroupProtocol;
use curtail_wire::{ApiKey, cold::messages::OffsetCommitRequest};

use crate::stage::{Stage, Step, group_member, is_consecutive, poll_values, run};

async fn commits_in_the_background(protocol: GroupProtocol, heartbeat: ApiKey) {
    let stage = Stage::new(1, 1).await;
    stage.fill(0, 0..300).await;
    let processed = Arc::new(AtomicI64::new(0));
    let farthest = Arc::new(AtomicI64::new(0));
    let (limit, most) = (Arc::clone(&processed), Arc::clone(&farthest));
    stage.script(move |request| {
        if request.api == ApiKey::OFFSET_COMMIT {
            let commit: OffsetCommitRequest = request.message();
            for partition in commit.topics.iter().flat_map(|topic| &topic.partitions) {
                let offset = partition.committed_offset;
                assert!(offset <= limit.load(Ordering::SeqCst), "{offset} was committed");
                most.fetch_max(offset, Ordering::SeqCst);
            }
        }
        Step::Pass
    });
    let mut consumer = stage.consumer(|config| {
        group_member(config, protocol, Duration::from_millis(10))
            .max_poll_records(10)
            .enable_auto_commit(true)
            .auto_commit_interval(Duration::from_millis(5))
    });
    consumer.subscribe().await;
    let mut records = Vec::new();
    while records.len() < 300 {
        let polled = poll_values(&mut consumer, Duration::from_millis(200)).await;
        // The records are being processed while the client's tasks run.
        if (100..150).contains(&records.len()) {
            stage.arrived(heartbeat, stage.count(heartbeat) + 1).await;
        }
        records.extend(polled);
        processed.store(records.len() as i64, Ordering::SeqCst);
    }
    assert!(is_consecutive(&records, 0), "{records:?}");
    consumer.close().await;
    assert_eq!(farthest.load(Ordering::SeqCst), 300, "close commits what was returned");
}

#[test]
pub(crate) fn commits_cover_only_records_of_earlier_polls() {
    run(commits_in_the_background(GroupProtocol::Classic, ApiKey::HEARTBEAT));
}

#[test]
fn commits_cover_only_records_of_earlier_polls_with_the_consumer_protocol() {
    run(commits_in_the_background(GroupProtocol::Consumer, ApiKey::CONSUMER_GROUP_HEARTBEAT));
}
