//! A topic gets partitions while records are sent, and one broker's metadata lags.
//!
//! - Client: librdkafka, franz-go
//! - Threads: https://github.com/twmb/franz-go/pull/1348, https://github.com/confluentinc/librdkafka/issues/1454, https://github.com/confluentinc/librdkafka/issues/592
//! - Failure: queued records were written again, or failed with "Broker handle destroyed"
//! - Promise: an acknowledged record is written once

use std::time::Duration;

use curtail::admin::{Mode, NewPartitions};
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, TOPIC, Work, ends, run};

#[test]
fn records_sent_during_growth_are_written_once() {
    run(async {
        let stage = Stage::new(1, 2).await;
        // Every other response is from before the growth.
        let mut requests = 0;
        stage.script(move |request| {
            if request.api != ApiKey::METADATA {
                return Step::Pass;
            }
            requests += 1;
            if requests % 2 == 0 {
                return Step::Pass;
            }
            request.edit_metadata(|response| {
                response.topics.iter_mut().for_each(|topic| topic.partitions.retain(|p| p.index < 2));
            })
        });
        let producer = stage.producer(|config| {
            config.metadata_max_age(Duration::from_millis(10)).batch_size(1)
        });
        let mut work = Work::default();
        let mut sent = 0;
        for growth in [0, 4, 6] {
            if growth > 0 {
                let admin = stage.admin();
                let grown = admin.create_partitions(&[NewPartitions::new(TOPIC, growth)], Mode::Apply).await;
                grown.unwrap().into_iter().for_each(|(_, outcome)| outcome.unwrap());
            }
            let seen = stage.count(ApiKey::METADATA);
            while stage.count(ApiKey::METADATA) < seen + 6 {
                for _ in 0..3 {
                    work.send_anywhere(&producer, &sent.to_string()).await;
                    sent += 1;
                }
                ends("flush", producer.flush()).await.unwrap();
            }
        }
        work.all_acknowledged(&stage).await;
    });
}
