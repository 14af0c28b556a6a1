use curtail::{Env, ErrorCode, Producer, ProducerConfig, Record};
use curtail_cluster::{Cluster, ClusterConfig};

use super::*;

/// A batch too large for its topic is split, and its parts end one by one: here one with a single record, which fails.
#[tokio::test]
async fn records_of_a_split_batch_have_separate_outcomes() {
    const SIZES: [usize; 8] = [1000, 1000, 1000, 30_000, 1000, 1000, 1000, 500];
    let config =
        ClusterConfig { brokers: 1, default_replication_factor: 1, ..ClusterConfig::default() };
    let cluster = Cluster::start(config, Env::real()).await.expect("started");
    let limit = [("max.message.bytes", "2500")];
    cluster.create_topic("limited", 1, 1, &limit).expect("created");
    cluster.settled().await;
    let mut config = ProducerConfig::new(cluster.bootstrap());
    for (name, value) in [("batch.size", "100000"), ("linger.ms", "60000")] {
        config.set(name, value).expect("a known property");
    }
    let producer = Producer::new(config).expect("usable");
    let mut outstanding = Outstanding::new(Instant::now(), None);
    let mut runs = 0;
    for size in SIZES {
        let value = vec![7; size];
        let delivery = producer.send(Record::to("limited").value(&value)).await.expect("sent");
        runs += usize::from(outstanding.push(delivery, 0, size as u64));
    }
    assert_eq!(runs, 1, "one batch, and one look at it while nothing is known");
    producer.flush().await.expect("flushed");
    outstanding.settle_resolved();
    assert_eq!(outstanding.settled(), 8);
    let window = outstanding.take_window(Duration::from_secs(1));
    assert_eq!((window.records, window.bytes), (7, 6500));
    let tally = outstanding.finish().expect("everything has its outcome");
    assert_eq!((tally.errors, tally.sent.count(), tally.bytes), (1, 7, 6500));
    let error = tally.first_error.expect("an error");
    assert_eq!(error.code(), Some(ErrorCode::MESSAGE_TOO_LARGE));
    producer.close().await.expect("closed");
}
