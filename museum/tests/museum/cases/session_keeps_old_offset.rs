//! An incremental fetch session stays at an offset from before a seek.
//!
//! - Client: kafka-python
//! - Threads: https://github.com/dpkp/kafka-python/issues/2575
//! - Failure: the broker kept sending batches from an earlier offset of the session, the consumer skipped each, and made no progress
//! - Promise: after a seek the first record returned is that of the offset sought

use std::time::Duration;

use crate::stage::{Stage, is_consecutive, poll_values, run};

#[test]
pub(crate) fn a_session_follows_every_seek() {
    run(async {
        let stage = Stage::new(1, 1).await;
        // Many batches, so that one response does not hold the whole log.
        for n in 0..20 {
            stage.fill(0, n * 10..(n + 1) * 10).await;
        }
        let mut consumer = stage.reader(|config| {
            config.max_partition_fetch_bytes(300).max_poll_records(7).prefetch_bytes(1000)
        }).await;
        for offset in [0, 150, 3, 199, 42, 41, 180, 0] {
            consumer.seek(0, offset).await;
            let left = (200 - offset as usize).min(30);
            let mut records = Vec::new();
            while records.len() < left {
                records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
            }
            assert!(is_consecutive(&records, offset), "{offset}: {records:?}");
        }
        consumer.close().await;
    });
}
