//! A fetch response that was requested before a seek arrives after it.
//!
//! - Client: Dekaf
//! - Threads: https://github.com/thomhurst/Dekaf/pull/1565
//! - Failure: records from the previous position were returned after the seek, and moved the position
//! - Promise: after a seek the first record returned is that of the offset sought

use std::time::Duration;

use curtail_wire::ApiKey;

use crate::stage::{Gate, Stage, Step, is_consecutive, poll_values, run};

/// Seeks from offset 50 while the fetch for that offset is in flight.
async fn seeks_to(offset: i64) {
    let stage = Stage::new(1, 1).await;
    stage.fill(0, 0..50).await;
    let mut consumer = stage.reader(|config| config).await;
    let mut records = Vec::new();
    while records.len() < 50 {
        records.extend(poll_values(&mut consumer, Duration::from_millis(200)).await);
    }
    assert!(is_consecutive(&records, 0), "{records:?}");
    let gate = Gate::closed();
    let held = gate.clone();
    stage.script(move |request| match request.api {
        ApiKey::FETCH => Step::Hold(held.clone(), Box::new(Step::Pass)),
        _ => Step::Pass,
    });
    let before = stage.count(ApiKey::FETCH);
    while stage.count(ApiKey::FETCH) == before {
        assert_eq!(poll_values(&mut consumer, Duration::from_millis(10)).await, []);
    }
    // The held request asks for these records, and the seek comes before its response.
    stage.fill(0, 50..100).await;
    consumer.seek(0, offset).await;
    gate.open();
    let left = (100 - offset) as usize;
    let mut records = Vec::new();
    while records.len() < left {
        records.extend(poll_values(&mut consumer, Duration::from_secs(5)).await);
    }
    assert!(is_consecutive(&records, offset), "{records:?}");
    consumer.close().await;
}

#[test]
pub(crate) fn a_response_from_before_a_seek_back_is_dropped() {
    run(seeks_to(10));
}

#[test]
fn a_response_from_before_a_seek_ahead_is_dropped() {
    run(seeks_to(80));
}
