//! The control connection between refreshes.

use std::cell::Cell;

use curtail_wire::cold::messages::GetTelemetrySubscriptionsRequest;

use super::{net::Receiver, *};
use crate::metadata::control::{Attempt, attempt};

/// A client with a topic's metadata, of a broker that receives metrics.
async fn receiving(throttle: Duration) -> (Arc<World>, MetadataHandle) {
    let world = World::new(&[1], &["t"]);
    let interval = 10_000 * MS;
    *world.receiver.lock() = Some(Receiver { interval, throttle, ..Receiver::default() });
    let metadata = known(&world, &config(&[1])).await;
    // The backoff after the first refresh has ended.
    sleep(1_000 * MS).await;
    (world, metadata)
}

async fn subscribe(metadata: &MetadataHandle) {
    let control = ControlConnection::new(&metadata.shared);
    let borrowed = control.borrow::<GetTelemetrySubscriptionsRequest>(true).await.unwrap();
    let answer = borrowed.request(GetTelemetrySubscriptionsRequest::default()).await.unwrap();
    assert_eq!(answer.subscription_id, 1);
}

#[tokio::test(start_paused = true)]
async fn request_between_refreshes_uses_their_connection() {
    let (world, metadata) = receiving(Duration::ZERO).await;
    subscribe(&metadata).await;
    metadata.request_refresh(Some("t"));
    sleep(10 * MS).await;
    assert_eq!(world.asked().len(), 1);
    assert_eq!(world.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn refresh_that_is_due_has_the_connection_first() {
    let (world, metadata) = receiving(Duration::ZERO).await;
    metadata.request_refresh(Some("t"));
    // The driver has not run since.
    subscribe(&metadata).await;
    assert_eq!(world.asked().len(), 1);
    assert_eq!(world.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn refresh_does_not_use_a_throttled_connection() {
    let (world, metadata) = receiving(60_000 * MS).await;
    subscribe(&metadata).await;
    world.topics.lock().insert("u".into(), 0);
    let began = Instant::now();
    metadata.topic("u", soon()).await.unwrap();
    assert!(began.elapsed() < 10 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn caller_without_a_broker_learns_why_there_is_no_connection() {
    let (world, metadata) = receiving(Duration::ZERO).await;
    world.set(1, Behaviour::Dead);
    metadata.request_refresh(Some("t"));
    let control = ControlConnection::new(&metadata.shared);
    match control.borrow::<GetTelemetrySubscriptionsRequest>(true).await.err() {
        Some(Error::Timeout { last: Some(last), .. }) => {
            assert!(matches!(*last, Error::Unreachable { .. }), "{last}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refresh_that_begins_during_an_attempt_does_not_lead_to_another_connection() {
    let is_needed = Cell::new(false);
    let take = || {
        is_needed.set(true);
        None::<()>
    };
    assert_eq!(attempt(|| is_needed.get(), take), Attempt::InUse);
    assert_eq!(attempt(|| true, || Some(())), Attempt::InUse);
    assert_eq!(attempt(|| false, || Some(())), Attempt::Taken(()));
    assert_eq!(attempt(|| false, || None::<()>), Attempt::Unkept);
}
