//! A batch fails for good while an earlier one is in doubt.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: KAFKA-14034, https://github.com/apache/kafka/pull/13796
//! - Failure: the failed batch made the producer renumber its partition; the earlier batch, already written, was retried under new numbers and written again
//! - Promise: an acknowledged record is written once

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Gate, Stage, Step, Work, pipelined, run};

#[test]
pub(crate) fn a_batch_in_doubt_is_not_renumbered() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(pipelined);
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        let gate = Gate::closed();
        let (held, mut doubts) = (gate.clone(), true);
        stage.script(move |request| {
            let has = |value: &[u8]| {
                let batches = request.batches();
                batches.iter().any(|(_, batch)| batch.raw().windows(value.len()).any(|w| w == value))
            };
            if has(b"in doubt") && std::mem::take(&mut doubts) {
                // Written, and then the leader stops waiting for its followers.
                let doubt = request.edit_produce(|response| {
                    let partition = &mut response.topics[0].partitions[0];
                    partition.error = ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND;
                    partition.base_offset = -1;
                });
                return Step::Hold(held.clone(), Box::new(doubt));
            }
            if has(b"invalid") { request.refuse(ErrorCode::INVALID_RECORD) } else { Step::Pass }
        });
        let before = stage.count(ApiKey::PRODUCE);
        work.send(&producer, 0, "in doubt").await;
        stage.arrived(ApiKey::PRODUCE, before + 1).await;
        work.send(&producer, 0, "invalid").await;
        stage.arrived(ApiKey::PRODUCE, before + 2).await;
        work.send(&producer, 0, "later").await;
        gate.open();
        let outcomes = work.verdict(&stage).await;
        assert!(outcomes["invalid"].is_err());
        assert!(outcomes["in doubt"].is_ok(), "{:?}", outcomes["in doubt"]);
        assert!(outcomes["later"].is_ok(), "{:?}", outcomes["later"]);
    });
}
