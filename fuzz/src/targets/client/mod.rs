//! The real `Producer` and `Consumer` against a broker whose responses are changed, cut, swallowed and delayed.
//!
//! In virtual time: no call panics, none outlasts its documented timeout, each record has an outcome within
//! `delivery.timeout.ms`, the consumer returns only records that the broker stores, and memory stays bounded.

mod broker;

use std::{sync::Arc, time::Duration};

use curtail::{
    AdminConfig, Consumer, ConsumerConfig, Delivery, Env, Error, Producer, ProducerConfig, Record,
    TopicPartition,
    config::{Acks, OffsetReset},
};
use curtail_net::Entropy;
use tokio::time::{Instant, timeout};

use self::broker::{ADDRESS, Broker, TOPIC, VALUES};
use crate::{
    Input, Target, memory,
    network::{Network, Still},
};

pub(super) const TARGET: Target = Target { name: "client", run, seeds, cases: 250 };

/// Upper bound of the clients' memory: frames in reception, `buffer.memory`, batches that are read, and their own
/// structures.
const CAP: usize = 8 << 20;

const REQUEST: Duration = Duration::from_secs(1);
const API: Duration = Duration::from_secs(3);
const BLOCK: Duration = Duration::from_secs(2);
const DELIVERY: Duration = Duration::from_secs(5);

/// Longest time between a call's timeout and its end.
const GRACE: Duration = Duration::from_secs(1);

fn run(input: &[u8]) {
    virtually("the client", CAP, play(input));
}

/// Runs in virtual time and counts the memory of its tasks.
fn virtually(what: &str, cap: usize, body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    memory::within(what, cap, || {
        runtime.block_on(body);
        drop(runtime);
    });
}

async fn play(input: &[u8]) {
    let mut input = Input::new(input);
    let calls = input.section();
    let mut network = Network::default();
    let broker = Broker::start(&mut network, input.rest()).await;
    let env = Env { net: Arc::new(network), wall: Arc::new(Still), entropy: Entropy::from_seed(1) };
    let mut player = Player::new(&mut Input::new(calls), &env);
    let mut calls = Input::new(calls.get(1..).unwrap_or_default());
    // More calls would only add time.
    for _ in 0..24 {
        if calls.is_empty() {
            break;
        }
        player.call(&mut calls).await;
    }
    player.end().await;
    drop(broker);
}

struct Player {
    producer: Producer,
    consumer: Consumer,
    deliveries: Vec<(Instant, Delivery)>,
}

impl Player {
    fn new(input: &mut Input<'_>, env: &Env) -> Self {
        let choice = input.byte();
        let short = AdminConfig::new(ADDRESS.to_string())
            .request_timeout(REQUEST)
            .connection_setup_timeout(REQUEST)
            .default_api_timeout(API)
            .metadata_max_age(Duration::from_secs(2));
        let config = ProducerConfig::default()
            .common(short.get_common())
            .acks(if choice & 1 == 0 { Acks::All } else { Acks::Leader })
            .idempotence(choice & 3 == 0)
            .batch_size(if choice & 4 == 0 { 1 } else { 4096 })
            .buffer_memory(64 << 10)
            .max_block(BLOCK)
            .delivery_timeout(DELIVERY);
        let producer = Producer::with_env(config, env).expect("a usable configuration");
        let reset = if choice & 8 == 0 { OffsetReset::Earliest } else { OffsetReset::None };
        let config = ConsumerConfig::default()
            .common(short.get_common())
            .auto_offset_reset(reset)
            .fetch_max_bytes(64 << 10)
            .max_partition_fetch_bytes(64 << 10)
            .prefetch_bytes(64 << 10)
            .max_decompressed_batch(1 << 20)
            .fetch_max_wait(Duration::from_millis(50));
        let mut consumer = Consumer::with_env(config, env).expect("a usable configuration");
        consumer.assign([partition(0), partition(1)]);
        Self { producer, consumer, deliveries: Vec::new() }
    }

    async fn call(&mut self, input: &mut Input<'_>) {
        match input.below(10) {
            0..=2 => {
                let began = Instant::now();
                let value = vec![b'p'; *input.pick(&[1, 100, 5000])];
                let record = Record::to(TOPIC).partition(i32::from(input.flag())).value(&value);
                match ends("send", BLOCK, self.producer.send(record)).await {
                    Ok(delivery) => self.deliveries.push((began, delivery)),
                    Err(error) => check(&error),
                }
            }
            3 => {
                let flushed = ends("flush", DELIVERY, self.producer.flush()).await;
                flushed.unwrap_or_else(|error| check(&error));
            }
            4 | 5 => {
                let limit = Duration::from_millis(100 * u64::from(input.byte()));
                self.poll(limit).await;
            }
            6 => {
                let offset = input.number();
                if let Err(error) = self.consumer.seek(&partition(0), offset) {
                    check(&error);
                }
            }
            7 => {
                let at = partition(1);
                let position = ends("position", API, self.consumer.position(&at)).await;
                position.map_or_else(|error| check(&error), drop);
            }
            8 => {
                let ends_of = [partition(0), partition(1)];
                let offsets = ends("end_offsets", API, self.consumer.end_offsets(&ends_of)).await;
                offsets.map_or_else(|error| check(&error), drop);
            }
            _ => tokio::time::sleep(Duration::from_millis(20 * u64::from(input.byte()))).await,
        }
    }

    async fn poll(&mut self, limit: Duration) {
        match ends("poll", limit, self.consumer.poll(limit)).await {
            Ok(records) => {
                for record in records {
                    // The checksum covers values. Offsets and the rest of a batch's header belong to the broker.
                    let value = record.value().unwrap_or_default();
                    assert!(VALUES.contains(&value), "{record:?} is not stored");
                }
            }
            Err(error) => check(&error),
        }
    }

    async fn end(mut self) {
        self.poll(Duration::from_secs(1)).await;
        for (began, delivery) in self.deliveries {
            let left = (began + DELIVERY).saturating_duration_since(Instant::now());
            if let Err(error) = ends("delivery", left, delivery).await {
                check(&error);
            }
        }
        let closed = ends("close of the producer", DELIVERY, self.producer.close()).await;
        closed.unwrap_or_else(|error| check(&error));
        ends("close of the consumer", API, self.consumer.close()).await;
    }
}

fn partition(index: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, index)
}

/// Waits for a call that ends within its timeout.
async fn ends<T>(what: &str, limit: Duration, call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    match timeout(limit + GRACE, call).await {
        Ok(result) => result,
        Err(_) => {
            panic!("{what} has not ended after {:?}, its timeout is {limit:?}", began.elapsed())
        }
    }
}

/// Checks that an error is one readable line.
fn check(error: &Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains(['\n', '\r', '\0']), "{text:?}");
    assert!(text.len() < 2000, "{text}");
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let calls: [&[u8]; 4] = [
        &[0, 0, 1, 0, 0, 1, 1, 0, 2, 0, 3, 4, 10, 4, 10, 7, 8],
        &[4, 0, 1, 0, 0, 0, 0, 9, 50, 0, 1, 1, 3, 6, 1, 4, 5, 7],
        &[1, 4, 5, 0, 1, 1, 9, 200, 0, 0, 0, 3, 4, 20, 8],
        &[9, 6, 2, 4, 10, 5, 10, 0, 0, 1, 9, 255, 0, 0, 1, 3, 7],
    ];
    let faults: [&[u8]; 7] = [
        &[],
        &[0, 0, 0, 0, 200, 0, 0, 0, 210, 0, 0, 220, 3],
        &[0, 0, 160, 1, 40, 255, 0, 0, 161, 20, 0, 0, 170, 1, 30, 7],
        &[0, 0, 0, 0, 180, 40, 2, 0, 0, 180, 60, 1, 0, 0, 0, 180, 80, 3],
        &[0, 0, 0, 0, 0, 0, 190, 9, 0, 0, 0, 0, 230, 230, 0, 0, 240, 40],
        &[0, 0, 0, 0, 0, 0, 0, 185, 50, 0, 0, 175, 20, 0, 0, 165, 60, 128],
        &[200, 0, 200, 0, 220, 1, 220, 9, 240, 255, 0, 0, 240, 255],
    ];
    for calls in calls {
        for faults in faults {
            let length = u16::try_from(calls.len()).unwrap_or(u16::MAX).to_be_bytes();
            seeds.push([&length[..], calls, faults].concat());
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use curtail::config::Codec;

    use super::*;

    /// Each batch is within `curtail.decompressed.batch.max.bytes`; all of them in one poll would be 64 MiB.
    #[test]
    fn polls_of_many_decompression_bombs_hold_a_bounded_number_of_them() {
        let value = vec![0; 1_000_000];
        let bombs: Vec<u8> =
            (0..64).flat_map(|offset| broker::batch(offset, &value, Codec::Zstd)).collect();
        assert!(bombs.len() < 32_000, "{} bytes", bombs.len());
        virtually("a poll", 8 << 20, async {
            let mut network = Network::default();
            let broker = Broker::storing(&mut network, &[], bombs.into()).await;
            let env = Env {
                net: Arc::new(network),
                wall: Arc::new(Still),
                entropy: Entropy::from_seed(1),
            };
            let config = ConsumerConfig::new(ADDRESS.to_string())
                .max_decompressed_batch(1 << 20)
                .auto_offset_reset(OffsetReset::Earliest);
            let mut consumer = Consumer::with_env(config, &env).expect("a usable configuration");
            consumer.assign([partition(0)]);
            let mut next = 0;
            while next < 64 {
                let records = consumer.poll(API).await.expect("valid batches");
                for record in records {
                    assert_eq!(record.offset(), next);
                    next += 1;
                }
            }
            consumer.close().await;
            drop(broker);
        });
    }
}
