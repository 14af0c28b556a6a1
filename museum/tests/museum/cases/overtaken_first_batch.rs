//! The first batch of a producer is refused, and the second one is appended before it.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: KAFKA-14359, https://github.com/apache/kafka/pull/13796
//! - Failure: a leader without state of the producer takes any sequence number, so the second batch was appended; the first then failed with OUT_OF_ORDER_SEQUENCE_NUMBER until it expired
//! - Promise: a partition keeps the order of sends

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, run};

#[test]
pub(crate) fn the_second_batch_waits_for_the_first() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let mut refusals = 3;
        stage.script(move |request| {
            if request.api == ApiKey::PRODUCE && refusals > 0 {
                // Only the batch that begins the sequence is refused.
                if request.batches().iter().any(|(_, batch)| batch.header.base_sequence == 0) {
                    refusals -= 1;
                    return request.refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
                }
            }
            Step::Pass
        });
        let producer = stage.producer(|config| config.batch_size(1));
        let mut work = Work::default();
        for n in 0..10 {
            work.send(&producer, 0, &n.to_string()).await;
        }
        work.all_acknowledged(&stage).await;
    });
}
