use std::{collections::BTreeMap, time::Duration};

use curtail_wire::{ApiKey, metadata::MetadataRequest};
use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    task::yield_now,
    time::{Instant, sleep},
};

use super::*;
use crate::{config::CommonConfig, metadata::tests::net::World};

const LIMIT: Duration = Duration::from_millis(1_000);

#[derive(Clone, Debug)]
enum Operation {
    /// Opens a connection, and keeps it.
    Put(u8),
    /// Takes a connection, uses it and keeps it again.
    Use(u8),
    /// Takes a connection and drops it.
    Take(u8),
    Clear,
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..4u8).prop_map(Operation::Put),
        3 => (0..4u8).prop_map(Operation::Use),
        1 => (0..4u8).prop_map(Operation::Take),
        1 => Just(Operation::Clear),
        4 => (0..1_500u64).prop_map(Operation::Wait),
    ]
}

/// Compares the pool with a map of the times of last use, after each operation.
async fn check(operations: Vec<Operation>, limit: Option<Duration>) {
    let world = World::new(&[1], &[]);
    let common = CommonConfig { connections_max_idle: limit, ..CommonConfig::default() };
    let (runtime, _guard) = Runtime::of(&common).unwrap();
    let pool = Idle::new(&runtime);
    let mut model = BTreeMap::<u8, Instant>::new();
    let open = async || Connection::open(&world.env(), &common, "h", 1).await.unwrap();
    for operation in operations {
        let is_open = |model: &BTreeMap<u8, Instant>, key: &u8| {
            let used = model.get(key);
            used.is_some_and(|used| limit.is_none_or(|limit| *used + limit > Instant::now()))
        };
        match operation {
            Operation::Put(key) => {
                pool.put(key, open().await);
                model.insert(key, Instant::now());
            }
            Operation::Use(key) => {
                let taken = pool.take(&key);
                assert_eq!(taken.is_some(), is_open(&model, &key));
                model.remove(&key);
                if let Some(mut connection) = taken {
                    connection.shake_hands().await.unwrap();
                    pool.put(key, connection);
                    model.insert(key, Instant::now());
                }
            }
            Operation::Take(key) => {
                assert_eq!(pool.take(&key).is_some(), is_open(&model, &key));
                model.remove(&key);
            }
            Operation::Clear => {
                pool.clear();
                model.clear();
            }
            Operation::Wait(millis) => sleep(Duration::from_millis(millis)).await,
        }
        // The task may be due now.
        for _ in 0..3 {
            yield_now().await;
        }
        let kept = model.keys().filter(|key| is_open(&model, key)).count();
        assert_eq!(pool.len(), kept, "without a request in between");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn connections_close_exactly_when_they_were_idle_for_the_limit(
        operations in proptest::collection::vec(operation(), 0..40),
        is_limited in prop::bool::weighted(0.8),
    ) {
        let paused = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        paused.block_on(check(operations, is_limited.then_some(LIMIT)));
    }
}

#[tokio::test(start_paused = true)]
async fn spare_connection_replaces_one_that_cannot_be_used() {
    let world = World::new(&[1], &[]);
    let common = CommonConfig::default();
    let (runtime, _guard) = Runtime::of(&common).unwrap();
    let pool = Idle::new(&runtime);
    let open = async || Connection::open(&world.env(), &common, "h", 1).await.unwrap();
    let mut unusable = open().await;
    // Its response arrives while the connection is kept.
    let frame = unusable.frame(ApiKey::METADATA, 12, 9, |w| {
        MetadataRequest::default().encode(12, w);
    });
    unusable.write(&frame).await.unwrap();
    pool.put(1, unusable);
    sleep(LIMIT).await;
    pool.put_spare(1, open().await);
    assert!(pool.take(&1).is_some());
    // A usable one stays.
    pool.put(1, open().await);
    let mut other = open().await;
    other.set_receive_limit(7, "other");
    pool.put_spare(1, other);
    assert_eq!(pool.take(&1).unwrap().limited_by, None);
}
