//! A peer stops reading, and no acknowledgement is expected.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/issues/382
//! - Failure: messages in the queue did not time out, so flush and close did not return
//! - Promise: delivery.timeout.ms bounds each record, and so flush and close

use std::time::{Duration, Instant};

use curtail::config::Acks;

use crate::stage::{Stage, ends, run, within};

#[test]
fn flush_and_close_end_with_the_delivery_timeout() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| {
            config
                .acks(Acks::None)
                .idempotence(false)
                .socket_buffers(Some(16 * 1024), None)
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let first = producer.send(None, "first").await.unwrap();
        ends("a delivery", first).await.unwrap();
        stage.read_from_clients(false);
        let begun = Instant::now();
        let large = "x".repeat(500_000);
        let mut deliveries = Vec::new();
        for _ in 0..10 {
            deliveries.push(producer.send(None, &large).await.unwrap());
        }
        ends("flush", producer.flush()).await.unwrap();
        within(begun, Duration::from_millis(1500));
        let mut expired = 0;
        for delivery in deliveries {
            expired += usize::from(ends("a delivery", delivery).await.is_err());
        }
        assert!(expired > 0, "the socket cannot have taken 5 MB");
        let _ = ends("close", producer.close()).await;
    });
}
