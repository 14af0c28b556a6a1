//! A record that was written is refused with a retriable error until it expires.
//!
//! - Client: franz-go
//! - Threads: https://github.com/twmb/franz-go/issues/1217
//! - Failure: the next record got the sequence number of the abandoned one, so the broker took it for a duplicate: acknowledged, never written
//! - Promise: an acknowledged record is written once

use std::time::Duration;

use curtail::ErrorCode;

use crate::stage::{Stage, Step, Work, ends, run};

#[test]
pub(crate) fn an_expired_record_keeps_its_sequence_number() {
    run(async {
        let stage = Stage::new(1, 1).await;
        let producer = stage.producer(|config| {
            config
                .request_timeout(Duration::from_millis(200))
                .delivery_timeout(Duration::from_millis(500))
        });
        let mut work = Work::default();
        work.deliver(&producer, 0, "first").await;
        let mut is_written = false;
        stage.script(move |request| {
            if !request.produces_to(0) {
                return Step::Pass;
            }
            if std::mem::replace(&mut is_written, true) {
                return request.refuse(ErrorCode::REQUEST_TIMED_OUT);
            }
            request.edit_produce(|response| {
                let partition = &mut response.topics[0].partitions[0];
                partition.error = ErrorCode::REQUEST_TIMED_OUT;
                partition.base_offset = -1;
            })
        });
        work.send(&producer, 0, "expired").await;
        ends("flush", producer.flush()).await.unwrap();
        stage.honest();
        work.deliver(&producer, 0, "next").await;
        let outcomes = work.verdict(&stage).await;
        assert!(outcomes["expired"].is_err(), "{:?}", outcomes["expired"]);
    });
}
