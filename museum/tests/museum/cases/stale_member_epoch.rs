//! The coordinator has raised a member's epoch, and the member looks up offsets with the previous one.
//!
//! - Client: @platformatic/kafka
//! - Threads: https://github.com/platformatic/kafka/commit/4385ff7
//! - Failure: STALE_MEMBER_EPOCH failed the lookup of committed offsets, and the consumer did not start
//! - Promise: a stale epoch delays the lookup of committed offsets and does not end it

use std::time::Duration;

use curtail::{ErrorCode, config::GroupProtocol};
use curtail_wire::{ApiKey, cold::messages::OffsetFetchResponse};

use crate::stage::{Request, Stage, Step, ends, is_consecutive, poll_values, run};

#[test]
fn a_member_asks_again_with_its_new_epoch() {
    run(async {
        let stage = Stage::new(1, 1).await;
        stage.fill(0, 0..10).await;
        let code = ErrorCode::STALE_MEMBER_EPOCH.0;
        let stale_lookups = move || {
            let mut lookups = 0;
            move |request: &Request| {
                if request.api != ApiKey::OFFSET_FETCH || lookups == 2 {
                    return Step::Pass;
                }
                lookups += 1;
                request.edit(move |response: &mut OffsetFetchResponse| {
                    response.groups.iter_mut().for_each(|group| {
                        group.error_code = code;
                        group.topics.clear();
                    });
                })
            }
        };
        let member = || {
            stage.consumer(|config| {
                config
                    .group_id("museum")
                    .group_protocol(GroupProtocol::Consumer)
                    .enable_auto_commit(false)
                    .max_poll_records(5)
            })
        };
        stage.script(stale_lookups());
        let mut first = member();
        first.subscribe().await;
        let mut records = Vec::new();
        while records.is_empty() {
            records.extend(poll_values(&mut first, Duration::from_millis(100)).await);
        }
        ends("commit", first.commit()).await.unwrap();
        let committed = stage.committed("museum").await.unwrap();
        assert_eq!(committed, records.len() as i64);
        ends("close", first.close()).await;
        stage.script(stale_lookups());
        let mut second = member();
        second.subscribe().await;
        while records.len() < 10 {
            records.extend(poll_values(&mut second, Duration::from_millis(100)).await);
        }
        assert!(is_consecutive(&records, 0), "{records:?}");
        ends("close", second.close()).await;
    });
}
