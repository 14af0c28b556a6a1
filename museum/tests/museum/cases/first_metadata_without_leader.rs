//! The first metadata of a topic has no leader yet.
//!
//! - Client: franz-go
//! - Threads: https://github.com/twmb/franz-go/pull/1232
//! - Failure: errors of new partitions did not lead to another metadata request, so records waited for the metadata's maximum age, 5 minutes
//! - Promise: records are sent once their partition has a leader

use std::time::{Duration, Instant};

use curtail::ErrorCode;
use curtail_wire::ApiKey;

use crate::stage::{Stage, Step, Work, run, within};

#[test]
fn metadata_is_requested_until_there_is_a_leader() {
    run(async {
        let stage = Stage::new(1, 2).await;
        let mut without = 3;
        stage.script(move |request| {
            if request.api != ApiKey::METADATA || without == 0 {
                return Step::Pass;
            }
            without -= 1;
            request.edit_metadata(|response| {
                for partition in response.topics.iter_mut().flat_map(|t| &mut t.partitions) {
                    partition.error = ErrorCode::LEADER_NOT_AVAILABLE;
                    partition.leader_id = -1;
                    partition.leader_epoch = -1;
                }
            })
        });
        let producer = stage.producer(|config| config);
        let begun = Instant::now();
        let mut work = Work::default();
        for n in 0..10 {
            work.send(&producer, n % 2, &n.to_string()).await;
        }
        work.all_acknowledged(&stage).await;
        within(begun, Duration::from_secs(5));
    });
}
