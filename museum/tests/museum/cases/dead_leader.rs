//! A leader dies, and the producer keeps sending to it.
//!
//! - Client: @platformatic/kafka, Dekaf, librdkafka
//! - Threads: https://github.com/platformatic/kafka/issues/377, https://github.com/thomhurst/Dekaf/issues/1670, https://github.com/confluentinc/librdkafka/issues/1913
//! - Failure: only a response with NOT_LEADER_OR_FOLLOWER refreshed the metadata, and a dead broker gives none: records expired although a new leader was elected
//! - Promise: records go to the new leader once it is elected

use crate::stage::{Stage, TOPIC, Work, run};

#[test]
pub(crate) fn records_go_to_the_leader_elected_next() {
    run(async {
        let stage = Stage::new(3, 1).await;
        let producer = stage.producer(|config| config);
        let mut work = Work::default();
        work.deliver(&producer, 0, "before").await;
        let (leader, _) = stage.cluster.leader(TOPIC, 0).unwrap();
        stage.cluster.kill(leader);
        for n in 0..10 {
            work.send(&producer, 0, &format!("after {n}")).await;
        }
        work.all_acknowledged(&stage).await;
        assert_ne!(stage.cluster.leader(TOPIC, 0).unwrap().0, leader);
    });
}
