//! A leader has forgotten the producer while several batches are in flight.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: KAFKA-8483, KAFKA-8484, https://github.com/apache/kafka/pull/6883
//! - Failure: in-flight batches were renumbered in the order of a priority queue's iteration, which is no order
//! - Promise: a partition keeps the order of sends

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Gate, Stage, Step, Work, ends, is_peer, pipelined, run};

#[test]
fn batches_refused_with_unknown_producer_id_keep_the_order() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(pipelined);
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        let gate = Gate::closed();
        let (held, mut refusals) = (gate.clone(), 5);
        stage.script(move |request| {
            if request.api == ApiKey::PRODUCE && refusals > 0 {
                refusals -= 1;
                let refusal = request.refuse(ErrorCode::UNKNOWN_PRODUCER_ID);
                return Step::Hold(held.clone(), Box::new(refusal));
            }
            Step::Pass
        });
        let before = stage.count(ApiKey::PRODUCE);
        for n in 0..5 {
            work.send(&producer, 0, &n.to_string()).await;
            stage.arrived(ApiKey::PRODUCE, before + n + 1).await;
        }
        gate.open();
        ends("flush", producer.flush()).await.unwrap();
        work.deliver(&producer, 0, "after").await;
        // Each refused batch is either retried in order or reported as not written.
        let outcomes = work.verdict(&stage).await;
        for (value, outcome) in outcomes {
            let in_doubt = outcome.is_err_and(|failure| failure.may_have_been_written);
            assert!(!in_doubt || is_peer(), "a refusal proves that {value:?} was not written");
        }
    });
}
