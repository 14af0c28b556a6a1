//! A producer is closed while no broker can be reached.
//!
//! - Client: kafka-python
//! - Threads: https://github.com/dpkp/kafka-python/pull/3108
//! - Failure: the sender waited for a node to send InitProducerId to, so the close did not end
//! - Promise: close ends within delivery.timeout.ms

use std::time::{Duration, Instant};

use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, ends, run, within};

#[test]
fn close_ends_when_every_connection_fails() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.script(|_| Step::Cut);
        let producer = stage.producer(|config| {
            config
                .max_block(Duration::from_millis(300))
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let begun = Instant::now();
        let sent = ends("send", producer.send(None, "lost")).await;
        let _ = ends("close", producer.close()).await;
        if let Ok(delivery) = sent {
            ends("a delivery", delivery).await.unwrap_err();
        }
        within(begun, Duration::from_secs(2));
    });
}

#[test]
fn close_ends_while_no_producer_id_is_given() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.script(|request| match request.api {
            ApiKey::INIT_PRODUCER_ID => Step::Cut,
            _ => Step::Pass,
        });
        let producer = stage.producer(|config| {
            config
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let sent = ends("send", producer.send(None, "lost")).await.unwrap();
        let begun = Instant::now();
        let _ = ends("close", producer.close()).await;
        within(begun, Duration::from_millis(1500));
        ends("a delivery", sent).await.unwrap_err();
        assert!(stage.ledger().await.is_empty());
    });
}
