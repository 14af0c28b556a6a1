//! A new epoch restarts the sequence numbers of only the partition that caused it.
//!
//! - Client: Apache Kafka (Java), Dekaf
//! - Threads: KAFKA-12152, https://github.com/apache/kafka/pull/9832, https://github.com/thomhurst/Dekaf/issues/3342
//! - Failure: other partitions continued their numbers under the new epoch, and their batches were refused
//! - Promise: a failure in one partition does not fail records of another

use std::{sync::Arc, time::Duration};

use curtail::ErrorCode;
use curtail_wire::{ApiKey, produce::ProduceResponse};
use parking_lot::Mutex;

use crate::stage::{Stage, Step, Work, ends, run};

#[test]
pub(crate) fn idle_partitions_begin_the_new_epoch_at_zero() {
    run(async {
        let stage = Stage::new(1, 3).await;
        let producer = stage.producer(|config| {
            config
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let mut work = Work::default();
        for n in 0..3 {
            for index in 0..3 {
                work.deliver(&producer, index, &format!("{index} before {n}")).await;
            }
        }
        // Partition 0 gets no response until its record has expired, which leaves a gap in its sequence.
        stage.script(|request| if request.produces_to(0) { Step::Swallow } else { Step::Pass });
        work.send(&producer, 0, "expires").await;
        ends("flush", producer.flush()).await.unwrap();
        let refused: Arc<Mutex<Vec<ErrorCode>>> = Arc::default();
        let errors = Arc::clone(&refused);
        stage.script(move |request| {
            if request.api != ApiKey::PRODUCE {
                return Step::Pass;
            }
            let errors = Arc::clone(&errors);
            let seen = move |response: &mut ProduceResponse| {
                let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
                let refusals = partitions.map(|p| p.error).filter(|e| *e != ErrorCode::NONE);
                errors.lock().extend(refusals);
            };
            request.edit_produce(seen)
        });
        for n in 0..3 {
            for index in 0..3 {
                work.deliver(&producer, index, &format!("{index} after {n}")).await;
            }
        }
        assert_eq!(*refused.lock(), [], "refusals after the new epoch");
        let outcomes = work.verdict(&stage).await;
        assert!(outcomes["expires"].is_err());
    });
}
