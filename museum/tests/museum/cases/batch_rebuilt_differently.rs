//! A retried batch holds other records than the first attempt.
//!
//! - Client: librdkafka
//! - Threads: https://github.com/confluentinc/librdkafka/pull/4750
//! - Failure: batches are built again for a retry, and a large one came out different: "Unable to reconstruct MessageSet", a fatal error
//! - Promise: a retry has the sequence numbers and the records of the first attempt

use std::collections::BTreeMap;

use curtail_wire::ApiKey;

use crate::stage::{Reply, Request, Stage, Step, Work, run};

#[test]
pub(crate) fn a_retry_repeats_the_bytes() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let producer = stage.producer(|config| config.linger(std::time::Duration::from_millis(5)));
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        work.deliver(&producer, 1, "second").await;
        let mut losses = 6;
        stage.script(move |request| {
            if request.api == ApiKey::PRODUCE && losses > 0 {
                losses -= 1;
                return if losses % 2 == 0 { Step::PassThen(Reply::Cut) } else { Step::Cut };
            }
            Step::Pass
        });
        for n in 0..2000 {
            work.send(&producer, (n % 2) as i32, &format!("{n}-{}", "x".repeat(n % 90))).await;
            if n % 200 == 0 {
                tokio::task::yield_now().await;
            }
        }
        work.all_acknowledged(&stage).await;
        let mut first: BTreeMap<(i32, i32), Vec<u8>> = BTreeMap::new();
        let mut repeats = 0;
        for (index, batch) in stage.seen(ApiKey::PRODUCE).iter().flat_map(Request::batches) {
            let bytes = batch.raw().to_vec();
            let known = first.entry((index, batch.header.base_sequence)).or_insert_with(|| bytes.clone());
            repeats += usize::from(*known == bytes);
            assert!(*known == bytes, "sequence {}", batch.header.base_sequence);
        }
        assert!(repeats > first.len(), "nothing was retried");
    });
}
