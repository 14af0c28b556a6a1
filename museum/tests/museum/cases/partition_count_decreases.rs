//! A metadata response with fewer partitions restarts a partition's sequence numbers.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/issues/3712, https://github.com/confluentinc/librdkafka/pull/3672, https://github.com/confluentinc/librdkafka/issues/1884
//! - Failure: the partition came back with sequence 0 under the same producer id, so the broker took its next batch for a duplicate: acknowledged, never written
//! - Promise: an acknowledged record is written once

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, run};

#[test]
fn a_partition_that_metadata_left_out_keeps_its_sequence() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let producer =
            stage.producer(|config| config.metadata_max_age(Duration::from_millis(20)));
        let mut work = Work::default();
        for n in 0..3 {
            work.deliver(&producer, 1, &format!("before {n}")).await;
        }
        // A broker that lags behind the growth of the topic responds twice.
        let lagging = Arc::new(AtomicUsize::new(2));
        let left = Arc::clone(&lagging);
        stage.script(move |request| {
            let is_metadata = request.api == ApiKey::METADATA;
            let lags = is_metadata
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
            if !lags {
                return Step::Pass;
            }
            request.edit_metadata(|response| {
                response.topics.iter_mut().for_each(|topic| topic.partitions.retain(|p| p.index == 0));
            })
        });
        let before = stage.count(ApiKey::METADATA);
        stage.arrived(ApiKey::METADATA, before + 5).await;
        assert_eq!(lagging.load(Ordering::SeqCst), 0, "fewer partitions were reported");
        for n in 0..3 {
            work.deliver(&producer, 1, &format!("after {n}")).await;
        }
        work.all_acknowledged(&stage).await;
    });
}
