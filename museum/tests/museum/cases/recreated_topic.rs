//! A topic is created again, and its leader epochs begin at 0.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/issues/4898, https://github.com/confluentinc/librdkafka/issues/4823
//! - Failure: metadata of the new topic was dropped as stale because its leader epoch was lower, so the producer kept sending to the previous leader
//! - Promise: records go to the leader of the topic that exists

use std::time::Duration;

use crate::stage::{Stage, TOPIC, Work, run};

#[test]
fn records_reach_the_topic_created_again() {
    run(async {
        let stage = Stage::new(3, 1).await;
        for _ in 0..4 {
            let isr = stage.cluster.isr(TOPIC, 0).unwrap();
            let (leader, _) = stage.cluster.leader(TOPIC, 0).unwrap();
            let other = isr.into_iter().find(|id| *id != leader).unwrap();
            stage.cluster.move_leader(TOPIC, 0, other).unwrap();
            stage.cluster.settled().await;
        }
        let producer =
            stage.producer(|config| config.metadata_max_age(Duration::from_millis(50)));
        let mut before = Work::default();
        before.deliver(&producer, 0, "before").await;
        before.all_acknowledged(&stage).await;
        let (leader, epoch) = stage.cluster.leader(TOPIC, 0).unwrap();
        assert!(stage.cluster.delete_topic(TOPIC));
        stage.cluster.settled().await;
        stage.cluster.create_topic(TOPIC, 1, 3, &[]).unwrap();
        stage.cluster.settled().await;
        let (created, first_epoch) = stage.cluster.leader(TOPIC, 0).unwrap();
        assert!(first_epoch < epoch, "{first_epoch} {epoch}");
        if created == leader {
            let isr = stage.cluster.isr(TOPIC, 0).unwrap();
            let other = isr.into_iter().find(|id| *id != leader).unwrap();
            stage.cluster.move_leader(TOPIC, 0, other).unwrap();
            stage.cluster.settled().await;
        }
        let mut after = Work::default();
        after.deliver(&producer, 0, "after").await;
        after.all_acknowledged(&stage).await;
    });
}
