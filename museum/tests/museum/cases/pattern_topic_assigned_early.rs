//! A topic that matches a pattern is assigned before the client's metadata has it.
//!
//! - Client: franz-go
//! - Threads: https://github.com/twmb/franz-go/commit/9b92299f
//! - Failure: the assigned topic was not in the client's subscription yet and was dropped; the coordinator did not send it again, so it was never consumed
//! - Promise: a member fetches every partition assigned to it

use std::time::Duration;

use curtail::config::GroupProtocol;
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, curtail_only, ends, run};

const LATER: &str = "exhibit-later";

#[test]
fn a_topic_created_after_the_join_is_consumed() {
    run(async {
        curtail_only("drivers do not subscribe to patterns");
        let stage = Stage::new(1, 1).await;
        let mut subscriber = stage.consumer(|config| {
            config
                .group_id("museum")
                .group_protocol(GroupProtocol::Consumer)
                .metadata_max_age(Duration::from_millis(100))
        });
        let consumer = subscriber.own();
        consumer.subscribe_pattern("exhibit.*").unwrap();
        while consumer.assignment().is_empty() {
            ends("poll", consumer.poll(Duration::from_millis(20))).await.unwrap();
        }
        // The client's metadata lags behind the coordinator's.
        let mut without = 3;
        stage.script(move |request| {
            if request.api != ApiKey::METADATA || without == 0 {
                return Step::Pass;
            }
            without -= 1;
            request.edit_metadata(|response| {
                response.topics.retain(|topic| topic.name.as_deref() != Some(LATER));
            })
        });
        stage.cluster.create_topic(LATER, 1, 1, &[]).unwrap();
        stage.cluster.settled().await;
        // Coordinators resolve patterns at most every 10 s.
        stage.advance_clock(Duration::from_secs(11));
        stage.fill_topic(LATER, 0, 0..10).await;
        let mut count = 0;
        while count < 10 {
            let records = ends("poll", consumer.poll(Duration::from_millis(100))).await.unwrap();
            count += records.into_iter().filter(|record| record.topic() == LATER).count();
        }
        subscriber.close().await;
    });
}
