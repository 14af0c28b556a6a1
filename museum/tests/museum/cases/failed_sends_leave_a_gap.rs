//! Records that fail while the broker is unreachable consume sequence numbers.
//!
//! - Client: sarama, @platformatic/kafka
//! - Threads: https://github.com/IBM/sarama/issues/1430, https://github.com/IBM/sarama/pull/1661, https://github.com/platformatic/kafka/pull/310
//! - Failure: after the broker was back each batch was refused with OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer did not recover
//! - Promise: a producer recovers from expired batches without a restart

use std::time::Duration;

use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, ends, run};

#[test]
pub(crate) fn records_after_an_outage_are_written() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| {
            config
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        stage.script(|request| {
            if request.api == ApiKey::PRODUCE { Step::Cut } else { Step::Pass }
        });
        for n in 0..5 {
            work.send(&producer, 0, &format!("lost {n}")).await;
        }
        ends("flush", producer.flush()).await.unwrap();
        stage.honest();
        for n in 0..5 {
            work.deliver(&producer, 0, &format!("after {n}")).await;
        }
        let outcomes = work.verdict(&stage).await;
        assert_eq!(outcomes.values().filter(|outcome| outcome.is_err()).count(), 5);
    });
}
