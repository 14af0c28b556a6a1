//! Compaction leaves a batch without records.
//!
//! - Client: kafka-python
//! - Threads: https://github.com/dpkp/kafka-python/issues/1701
//! - Failure: the consumer did not pass offsets without records, and fetched the same batch indefinitely
//! - Promise: a position passes offsets without records

use std::time::Duration;

use curtail_wire::{
    ApiKey,
    records::{self, BATCH_HEADER_LEN, Batch, ProducerStamp},
};

use crate::stage::{Stage, Step, ends, is_peer, partition, poll_values, run};

/// The batch as the cleaner leaves it: offsets and no records.
fn emptied(batch: &Batch) -> Vec<u8> {
    let mut bytes = batch.raw()[..BATCH_HEADER_LEN].to_vec();
    bytes[8..12].copy_from_slice(&(BATCH_HEADER_LEN as i32 - 12).to_be_bytes());
    bytes[BATCH_HEADER_LEN - 4..].copy_from_slice(&0i32.to_be_bytes());
    records::stamp(&mut bytes, ProducerStamp::NONE);
    bytes
}

#[test]
fn a_batch_without_records_is_passed() {
    run(async {
        let stage = Stage::new(1, 1).await;
        for n in 0..5 {
            stage.fill(0, n * 10..(n + 1) * 10).await;
        }
        stage.script(|request| match request.api {
            ApiKey::FETCH => request.edit_fetch(|response| {
                for partition in response.topics.iter_mut().flat_map(|t| &mut t.partitions) {
                    let mut compacted = Vec::new();
                    for batch in records::batches(partition.records.clone()) {
                        let batch = batch.unwrap();
                        let keeps = [10, 30].contains(&(batch.header.base_offset / 10 * 10));
                        let bytes = if keeps { batch.raw().to_vec() } else { emptied(&batch) };
                        compacted.extend(bytes);
                    }
                    partition.records = compacted.into();
                }
            }),
            _ => Step::Pass,
        });
        let mut consumer = stage.reader(|config| config.max_partition_fetch_bytes(300)).await;
        let mut records = Vec::new();
        while records.len() < 20 {
            records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
        }
        let offsets: Vec<i64> = records.into_iter().map(|(offset, _)| offset).collect();
        let expected: Vec<i64> = (10..20).chain(30..40).collect();
        assert_eq!(offsets, expected);
        if !is_peer() {
            // Past the last batch, which is empty as well.
            while ends("position", consumer.own().position(&partition(0))).await.unwrap() < 50 {
                assert_eq!(poll_values(&mut consumer, Duration::from_millis(20)).await, []);
            }
        }
        consumer.close().await;
    });
}
