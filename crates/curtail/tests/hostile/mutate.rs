//! Responses with bytes changed, inserted and removed at random: the calls end with a result or with a typed error.

use std::{sync::Arc, thread};

use curtail::config::Codec;
use curtail_wire::ApiKey;
use parking_lot::Mutex;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    broker::{Act, Broker, batch},
    *,
};

/// One change, at a fraction of the response's length.
#[derive(Clone, Copy, Debug)]
enum Change {
    Set(f64, u8),
    Flip(f64, u8),
    Insert(f64, u8),
    Remove(f64),
    /// Four bytes, the size of lengths and counts.
    Number(f64, i32),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = 0.0..1.0f64;
    let number = prop_oneof![Just(-1), Just(i32::MAX), Just(i32::MIN), any::<i32>()];
    let change = prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at.clone(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        at.clone().prop_map(Change::Remove),
        (at, number).prop_map(|(at, number)| Change::Number(at, number)),
    ];
    proptest::collection::vec(change, 1..6)
}

/// Returns the frame with a changed body. Length and correlation id stay valid: other tests cover frames.
fn mutated(frame: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut body = frame[8..].to_vec();
    for change in changes {
        let place = |at: f64| (at * body.len() as f64) as usize;
        match *change {
            _ if body.len() < 4 => {}
            Change::Set(at, byte) => {
                let at = place(at);
                body[at] = byte;
            }
            Change::Flip(at, bit) => {
                let at = place(at);
                body[at] ^= 1 << bit;
            }
            Change::Insert(at, byte) => body.insert(place(at), byte),
            Change::Remove(at) => {
                body.remove(place(at));
            }
            Change::Number(at, number) => {
                let at = place(at).min(body.len() - 4);
                body[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
        }
    }
    [&((body.len() + 4) as i32).to_be_bytes(), &frame[4..8], &body].concat()
}

/// Number of concurrent cases, which mostly wait.
const SIDE_BY_SIDE: usize = 4;

/// Runs the same cases every time.
fn each_case(cases: u32, case: impl AsyncFn(Vec<Change>) + Sync) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = changes();
    let cases = (0..cases).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    let left = Mutex::new(cases.collect::<Vec<_>>().into_iter());
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some(changes) = left.lock().next() else { return };
                    run(async {
                        let shown = format!("{changes:?}");
                        // Printed by the test if a call hangs or a task panics.
                        let told = Told(shown);
                        case(changes).await;
                        std::mem::forget(told);
                    });
                }
            });
        }
    });
}

/// Prints the case while a panic unwinds.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        #[allow(clippy::print_stderr, reason = "it tells which case failed")]
        {
            eprintln!("with the changes {}", self.0);
        }
    }
}

/// Changes the first two responses of an API; the others are honest.
async fn broker(api: ApiKey, changes: Vec<Change>) -> Arc<Broker> {
    Broker::start(move |call, frame| match call.api {
        called if called == api && call.nth < 2 => Act::Send(mutated(&frame, &changes)),
        _ => Act::Send(frame),
    })
    .await
}

#[test]
fn changed_metadata() {
    each_case(300, async |changes| {
        let broker = broker(ApiKey::METADATA, changes).await;
        let config = producer_config(&broker.address.to_string())
            .max_block(Duration::from_millis(100))
            .delivery_timeout(Duration::from_millis(200))
            .request_timeout(Duration::from_millis(100));
        let producer = Producer::with_env(config, &broker.env()).unwrap();
        if let Err(error) = deliver(&producer, "x").await {
            check_error(&error);
        }
        ends("close", producer.close()).await.unwrap();
        let admin = admin(&broker);
        if let Err(error) = ends("describe", admin.describe_topics(&["t"])).await {
            check_error(&error);
        }
    });
}

#[test]
fn changed_produce_responses() {
    each_case(300, async |changes| {
        let broker = broker(ApiKey::PRODUCE, changes).await;
        let config = producer_config(&broker.address.to_string())
            .max_block(BLOCK)
            .delivery_timeout(Duration::from_millis(200))
            .request_timeout(Duration::from_millis(100));
        let producer = Producer::with_env(config, &broker.env()).unwrap();
        let values: Vec<String> = (0..3).map(|n| n.to_string()).collect();
        for value in &values {
            if let Err(error) = deliver(&producer, value).await {
                check_error(&error);
            }
        }
        ends("close", producer.close()).await.unwrap();
        // Whatever the responses, no record is duplicated or out of order in the log.
        let log = broker.model.lock().log.get(&0).cloned().unwrap_or_default();
        let mut rest = values.iter();
        for value in log {
            assert!(rest.any(|sent| sent.as_bytes() == value), "{value:?} is in the log again");
        }
    });
}

#[test]
fn changed_fetch_responses() {
    each_case(300, async |changes| {
        let broker = broker(ApiKey::FETCH, changes).await;
        let values: [&[u8]; 3] = [b"first", b"second", b"third"];
        let mut stored = batch(0, Codec::None, &values[..1]);
        stored.extend(batch(1, Codec::None, &values[1..2]));
        stored.extend(batch(2, Codec::Zstd, &values[2..]));
        broker.model.lock().stored = stored.into();
        let mut consumer = consumer(&broker);
        let mut last = -1;
        for _ in 0..6 {
            match ends("poll", consumer.poll(Duration::from_millis(20))).await {
                Ok(records) => {
                    for record in records {
                        assert!(record.offset() > last, "{} after {last}", record.offset());
                        last = record.offset();
                        // The checksum covers the values; offsets come from the broker.
                        assert!(values.contains(&record.value().unwrap()), "{record:?}");
                    }
                }
                Err(error) => check_error(&error),
            }
        }
        ends("close", consumer.close()).await;
    });
}
