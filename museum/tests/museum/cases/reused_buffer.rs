//! A buffer is reused while an expired batch is still being written.
//!
//! - Client: Apache Kafka (Java)
//! - Threads: CVE-2026-35554, KAFKA-19012, https://github.com/apache/kafka/pull/21065
//! - Failure: a batch expired during its write; its pooled buffer took another batch, and the old request carried the new bytes to the wrong topic
//! - Promise: a buffer belongs to its write until the socket has taken all of it

use std::time::Duration;

use curtail_wire::ApiKey;

use crate::stage::{Stage, Work, ends, run};

/// A value of a size that no socket buffer takes, all of one letter.
fn large(letter: char) -> String {
    String::from(letter).repeat(900_000)
}

#[test]
fn a_batch_that_expires_in_a_stalled_write_keeps_its_bytes() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let producer = stage.producer(|config| {
            config
                .socket_buffers(Some(16 * 1024), None)
                .request_timeout(Duration::from_millis(300))
                .delivery_timeout(Duration::from_millis(600))
        });
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        work.deliver(&producer, 1, "second").await;
        stage.read_from_clients(false);
        for letter in ['a', 'b', 'c'] {
            work.send(&producer, 0, &large(letter)).await;
        }
        ends("flush", producer.flush()).await.unwrap();
        // These may take the buffers of the expired batches, if those are ever freed.
        for letter in ['x', 'y', 'z'] {
            work.send(&producer, 1, &large(letter)).await;
        }
        stage.read_from_clients(true);
        let outcomes = work.verdict(&stage).await;
        let expired = outcomes.values().filter(|outcome| outcome.is_err()).count();
        assert!(expired >= 3, "the write was stalled until the timeout");
        for request in stage.seen(ApiKey::PRODUCE) {
            for (index, batch) in request.batches() {
                batch.verify_crc().unwrap();
                let letters = if index == 0 { b"abc" } else { b"xyz" };
                let body = &batch.raw()[batch.raw().len() / 2..];
                let is_own = |byte: &u8| letters.contains(byte) && *byte == body[0];
                assert!(body.len() < 1000 || body[..1000].iter().all(is_own), "{index}");
            }
        }
    });
}
