//! Memory that a consumer holds for decompressed batches, counted by the allocator (decision 0056).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::mpsc, thread, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Env, Producer, ProducerConfig, Record, TopicPartition,
    config::{Codec, OffsetReset},
    consumer::Records,
};
use curtail_cluster::{Cluster, ClusterConfig};
use tokio::{runtime::Runtime, sync::oneshot};

const MIB: usize = 1 << 20;
const LIMIT: usize = 4 * MIB;
/// Bytes fetched ahead, all compressed.
const PREFETCH: usize = MIB;
/// The consumer's other memory, with a response in flight.
const REST: usize = PREFETCH + MIB;
/// Decompresses to almost the limit. The first poll leaves its last record.
const MANY: [usize; 100] = [40_000; 100];
const BATCHES: [&[usize]; 6] = [&MANY, &[1_900_000], &[1_000_000], &[4_000_000], &[100], &MANY];
const POLLS: usize = 5;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A cluster on its own thread, whose memory does not count. It runs until the sender is dropped.
fn cluster() -> (String, oneshot::Sender<()>) {
    let (tell, told) = mpsc::channel();
    let (keep, dropped) = oneshot::channel::<()>();
    thread::spawn(move || {
        runtime().block_on(async {
            let config = ClusterConfig { brokers: 1, ..ClusterConfig::default() };
            let cluster = Cluster::start(config, Env::real()).await.unwrap();
            for codec in &Codec::ALL[1..] {
                cluster.create_topic(codec.name(), 1, 1, &[]).unwrap();
            }
            cluster.settled().await;
            for codec in &Codec::ALL[1..] {
                fill(&cluster.bootstrap(), *codec).await;
            }
            tell.send(cluster.bootstrap()).unwrap();
            let _ = dropped.await;
        });
    });
    (told.recv().unwrap(), keep)
}

async fn fill(bootstrap: &str, codec: Codec) {
    let config = ProducerConfig::new(bootstrap)
        .compression(codec)
        .linger(Duration::from_secs(600))
        .batch_size(8 * MIB)
        .max_request_size(8 * MIB);
    let producer = Producer::new(config).unwrap();
    for batch in BATCHES {
        for &len in batch {
            // The flush below waits for it.
            drop(producer.send(Record::to(codec.name()).value(&vec![0; len])).await.unwrap());
        }
        producer.flush().await.unwrap();
    }
    producer.close().await.unwrap();
}

async fn poll(bootstrap: &str, topic: &str, polls: usize) -> (Consumer, Records) {
    let config = ConsumerConfig::new(bootstrap)
        .auto_offset_reset(OffsetReset::Earliest)
        .max_poll_records(MANY.len() - 1)
        .prefetch_bytes(PREFETCH)
        .max_decompressed_batch(LIMIT);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign([TopicPartition::new(topic, 0)]);
    let mut records = Records::default();
    for _ in 0..polls {
        drop(std::mem::take(&mut records));
        records = consumer.poll(Duration::from_secs(60)).await.unwrap();
        assert!(!records.is_empty(), "{topic}: the log has more");
    }
    (consumer, records)
}

#[test]
fn a_poll_holds_its_budget_and_one_batch_and_between_polls_one_batch_stays() {
    let (bootstrap, _running) = cluster();
    for codec in &Codec::ALL[1..] {
        for polls in 1..=POLLS {
            let runtime = runtime();
            let mut kept = None;
            let used = allocation_counter::measure(|| {
                kept = Some(runtime.block_on(poll(&bootstrap, codec.name(), polls)));
            });
            let (consumer, records) = kept.take().unwrap();
            let what = format!("{codec}, poll {polls}: {used:?}");
            assert!(used.bytes_current <= (2 * LIMIT + REST) as i64, "{what}");
            // The buffer of a batch that grows may exist twice.
            assert!(used.bytes_max <= (3 * LIMIT + REST) as u64, "{what}");
            let freed = allocation_counter::measure(|| drop(records));
            let left = used.bytes_current + freed.bytes_current;
            assert!(left <= (LIMIT + REST) as i64, "{codec}, after poll {polls}: {left} bytes");
            drop(consumer);
        }
    }
}
