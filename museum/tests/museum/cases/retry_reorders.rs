//! A retried batch is sent after batches that were sent after it.
//!
//! - Client: sarama, librdkafka
//! - Threads: https://github.com/IBM/sarama/issues/2619, https://github.com/IBM/sarama/issues/2860, https://github.com/confluentinc/librdkafka/issues/1092
//! - Failure: with one request in flight and without idempotence, a retriable error put the batch after newer ones
//! - Promise: a partition keeps the order of sends

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, run};

async fn refused_every_other_time(idempotence: bool, max_in_flight: usize) {
    let stage = Stage::new(1, 1).await;
    let producer = stage.producer(|config| {
        config.idempotence(idempotence).max_in_flight(max_in_flight).batch_size(1)
    });
    let mut work = Work::default();
    work.deliver(&producer, 0, "first").await;
    let mut requests = 0;
    stage.script(move |request| {
        if request.api != ApiKey::PRODUCE {
            return Step::Pass;
        }
        requests += 1;
        if requests % 2 == 1 && requests < 20 {
            return request.refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        Step::Pass
    });
    for n in 0..20 {
        work.send(&producer, 0, &n.to_string()).await;
    }
    work.all_acknowledged(&stage).await;
}

#[test]
pub(crate) fn one_request_in_flight_keeps_the_order_without_idempotence() {
    run(refused_every_other_time(false, 1));
}

#[test]
fn five_requests_in_flight_keep_the_order_with_idempotence() {
    run(refused_every_other_time(true, 5));
}
