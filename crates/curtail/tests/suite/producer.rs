//! The producer against the embedded cluster and Apache Kafka: the same bodies on both.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{Backend, producer, read_all, until, until_in_time};
use curtail::{
    ConsumerRecord, Delivery, Error, ErrorCode, Header, Producer, ProducerConfig, Record,
    producer::Timing,
};
use tokio::{sync::watch, time::timeout};

/// Runs a body on the embedded cluster.
fn on_embedded(body: impl AsyncFnOnce(&Backend), brokers: u32) {
    runtime().block_on(async { body(&Backend::embedded(brokers).await).await });
}

/// Runs a body on Apache Kafka's shared broker, if available.
fn on_apache(name: &str, body: impl AsyncFnOnce(&Backend)) {
    let Some(backend) = Backend::shared_apache(name) else { return };
    runtime().block_on(body(backend));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn every_field_and_codec_arrives_embedded() {
    on_embedded(every_field_and_codec_arrives, 1);
}

#[test]
fn every_field_and_codec_arrives_apache() {
    on_apache("every_field_and_codec_arrives", every_field_and_codec_arrives);
}

async fn every_field_and_codec_arrives(backend: &Backend) {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("fields-{codec}");
        backend.create_topic(&topic, 1, 1).await;
        let producer = producer(backend, &[("compression.type", codec), ("linger.ms", "20")]);
        let headers = [
            Header { key: "trace", value: Some(b"1") },
            Header { key: "trace", value: Some(b"2") },
            Header { key: "empty", value: None },
        ];
        let mut deliveries: Vec<Delivery> = Vec::new();
        for n in 0..100i64 {
            let value = vec![b'v'; n as usize * 10];
            let record = Record::to(&topic).timestamp(1_000_000 + n).headers(&headers);
            let record = if n % 3 == 0 { record } else { record.key("k").value(&value) };
            deliveries.push(producer.send(record).await.expect("sent"));
        }
        for (n, mut delivery) in deliveries.into_iter().enumerate() {
            let written = (&mut delivery).await.expect("written");
            assert_eq!(written.offset, Some(n as i64));
            assert_eq!(written.timestamp, 1_000_000 + n as i64);
            let batch = delivery.batch_outcome().expect("resolved").expect("written");
            let records = batch.base_offset.map(|base| base..base + i64::from(batch.records));
            assert!(records.is_some_and(|records| records.contains(&(n as i64))), "{batch:?}");
            assert!(batch.bytes > 0 && batch.attempts >= 1, "{batch:?}");
            let Timing { created, first_written, written, acknowledged, .. } = batch.timing;
            assert!([created, first_written, written, acknowledged].is_sorted(), "{batch:?}");
            assert!(batch.attempts > 1 || first_written == written, "{batch:?}");
        }
        let read = read_all(backend, &topic, 1).await.remove(&0).expect("partition 0");
        assert_eq!(read.len(), 100, "{codec}");
        for (n, record) in read.iter().enumerate() {
            assert_eq!((record.offset(), record.timestamp()), (n as i64, 1_000_000 + n as i64));
            let expected = (n % 3 != 0).then(|| vec![b'v'; n * 10]);
            assert_eq!(record.value(), expected.as_deref());
            assert_eq!(record.key().is_some(), n % 3 != 0);
            let got: Vec<_> = record.headers().collect();
            assert_eq!(got, [("trace", Some(&b"1"[..])), ("trace", Some(b"2")), ("empty", None)]);
        }
        producer.close().await.expect("closed");
    }
}

/// Number of records sent.
type Progress = tokio::sync::watch::Receiver<u64>;

/// Sends numbered records by key while brokers stop and restart, and checks the log.
async fn numbered(
    backend: &Backend,
    topic: &str,
    partitions: i32,
    faults: impl AsyncFnOnce(Progress),
) {
    let producer = producer(backend, &[("linger.ms", "1"), ("delivery.timeout.ms", "60000")]);
    producer.warm_up(&[topic]).await.expect("the leaders answer");
    let (stop, sent) = (watch::Sender::new(false), watch::Sender::new(0));
    let progress = sent.subscribe();
    let sender =
        tokio::spawn(send_until(producer.clone(), topic.to_owned(), stop.subscribe(), sent));
    faults(progress).await;
    stop.send_replace(true);
    let deliveries = sender.await.expect("the sender ends");
    let mut acknowledged = BTreeSet::new();
    for (n, delivery) in deliveries {
        let written = delivery.await.unwrap_or_else(|e| panic!("record {n}: {e}"));
        acknowledged.insert((written.partition, n, written.offset));
    }
    let read = read_all(backend, topic, partitions).await;
    let mut found = BTreeSet::new();
    for (partition, records) in &read {
        let numbers: Vec<u64> = records.iter().map(number).collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "partition {partition} is out of order or repeats"
        );
        found.extend(records.iter().zip(numbers).map(|(r, n)| (*partition, n, r.offset())));
    }
    assert_eq!(found.len(), acknowledged.len());
    for (partition, n, offset) in acknowledged {
        // For a batch whose first response was lost, the broker knows the batch, but not always its offset.
        let is_there = match offset {
            Some(offset) => found.contains(&(partition, n, offset)),
            None => found.iter().any(|&(p, m, _)| (p, m) == (partition, n)),
        };
        assert!(is_there, "record {n} was acknowledged at {partition}/{offset:?} and is not there");
    }
}

fn number(record: &ConsumerRecord) -> u64 {
    u64::from_be_bytes(record.value().expect("a value").try_into().expect("a number"))
}

async fn send_until(
    producer: Producer,
    topic: String,
    mut stop: watch::Receiver<bool>,
    sent: watch::Sender<u64>,
) -> Vec<(u64, Delivery)> {
    let mut deliveries = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    for n in 0u64.. {
        tokio::select! {
            biased;
            _ = stop.wait_for(|&stop| stop) => break,
            _ = ticks.tick() => {}
        }
        let (key, value) = ((n % 50).to_be_bytes(), n.to_be_bytes());
        let record = Record::to(&topic).key(&key).value(&value);
        deliveries.push((n, producer.send(record).await.expect("room for the record")));
        sent.send_replace(n + 1);
    }
    deliveries
}

#[test]
fn killed_leaders_lose_and_duplicate_no_record_embedded() {
    on_embedded(killed_leaders, 3);
}

#[test]
fn records_follow_the_new_leader_of_a_frozen_broker_embedded() {
    on_embedded(frozen_leader, 3);
}

/// An unresponsive leader sends no error, and `request.timeout.ms` is 30 s. Its batches move to the new leaders long
/// before that, and are written once.
async fn frozen_leader(backend: &Backend) {
    backend.create_topic("frozen", 3, 3).await;
    let begun = std::time::Instant::now();
    numbered(backend, "frozen", 3, async |mut progress| {
        progress.wait_for(|&sent| sent >= 200).await.expect("sending continues");
        backend.freeze(3);
        progress.wait_for(|&sent| sent >= 600).await.expect("sending continues");
    })
    .await;
    let took = begun.elapsed();
    backend.thaw(3);
    assert!(took < Duration::from_secs(25), "{took:?} until everything was acknowledged");
}

#[test]
fn killed_leaders_lose_and_duplicate_no_record_apache() {
    let Some(backend) = Backend::apache("killed_leaders", 3) else { return };
    // Both on one cluster, because its start is slow.
    runtime().block_on(async {
        killed_leaders(&backend).await;
        frozen_leader(&backend).await;
    });
}

async fn killed_leaders(backend: &Backend) {
    backend.create_topic("killed", 6, 3).await;
    numbered(backend, "killed", 6, async |mut progress| {
        for (id, records) in [(1, 200), (2, 1000)] {
            progress.wait_for(|&sent| sent >= records).await.expect("sending continues");
            backend.kill(id);
            backend.restart(id).await;
            if let Backend::Embedded(cluster) = backend {
                let in_sync = |p| cluster.isr("killed", p).is_some_and(|isr| isr.len() == 3);
                cluster.wait_until(|_| (0..6).all(in_sync)).await;
            }
        }
        progress.wait_for(|&sent| sent >= 2000).await.expect("sending continues");
    })
    .await;
}

#[test]
fn moving_leaders_lose_and_duplicate_no_record() {
    runtime().block_on(async {
        // All brokers stay in the cluster, also on a busy machine.
        let session = Duration::from_secs(600);
        let backend =
            Backend::embedded_with(3, |config| config.broker_session_timeout = session).await;
        backend.create_topic("moved", 3, 3).await;
        let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
        numbered(&backend, "moved", 3, async |mut progress| {
            for round in 0..30 {
                let (partition, to) = (round % 3, 1 + (round / 3) % 3);
                if cluster.leader("moved", partition).is_some_and(|(leader, _)| leader != to) {
                    cluster.move_leader("moved", partition, to).expect("the replica is in sync");
                }
                let next = 20 * (round as u64 + 1);
                progress.wait_for(|&sent| sent >= next).await.expect("sending continues");
            }
        })
        .await;
    });
}

/// The broker appends, but its responses are too late: every attempt but the first is a duplicate.
#[test]
fn timed_out_attempts_do_not_duplicate_records() {
    on_embedded(
        async |backend| {
            backend.create_topic("late", 1, 1).await;
            let Backend::Embedded(cluster) = backend else { unreachable!("embedded") };
            let producer = producer(
                backend,
                &[
                    ("linger.ms", "0"),
                    ("request.timeout.ms", "200"),
                    ("delivery.timeout.ms", "1500"),
                ],
            );
            producer.warm_up(&["late"]).await.expect("the leader answers");
            cluster.delay(None, Some(0), Duration::from_secs(3600));
            let mut deliveries = Vec::new();
            for n in 0u64..10 {
                let value = n.to_be_bytes();
                deliveries
                    .push(producer.send(Record::to("late").value(&value)).await.expect("sent"));
            }
            let mut first = true;
            for delivery in deliveries {
                let error = delivery.await.expect_err("no response came in time");
                let Error::NotAcknowledged { may_have_been_written, .. } = error else {
                    panic!("{error}")
                };
                assert!(may_have_been_written || !first, "the first was appended");
                first = false;
            }
            cluster.clear_delays();
            // A busy machine may exceed the timeouts without a delay, too.
            let acknowledged = async {
                let mut n = 10u64;
                loop {
                    let value = n.to_be_bytes();
                    let sent = producer.send(Record::to("late").value(&value)).await.expect("sent");
                    if sent.await.is_ok() {
                        break n;
                    }
                    n += 1;
                }
            };
            let limit = Duration::from_secs(60);
            let last = timeout(limit, acknowledged).await.expect("acknowledged");
            let read = read_all(backend, "late", 1).await.remove(&0).expect("records");
            let numbers: Vec<u64> = read.iter().map(number).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            assert_eq!((numbers.first(), numbers.last()), (Some(&0), Some(&last)));
        },
        1,
    );
}

#[test]
fn full_buffer_is_reported_to_the_caller() {
    on_embedded(
        async |backend| {
            backend.create_topic("full", 1, 1).await;
            let Backend::Embedded(cluster) = backend else { unreachable!("embedded") };
            let settings = [
                ("buffer.memory", "65536"),
                ("batch.size", "16384"),
                ("max.block.ms", "2000"),
                ("linger.ms", "0"),
            ];
            let producer = producer(backend, &settings);
            producer.warm_up(&["full"]).await.expect("the leader answers");
            cluster.freeze(1);
            let value = vec![0; 10_000];
            let record = Record::to("full").value(&value);
            let mut deliveries = Vec::new();
            let error = loop {
                match producer.try_send(record) {
                    Ok(delivery) => deliveries.push(delivery),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::BufferFull { .. }), "{error}");
            let waited = producer
                .send(record)
                .await
                .expect_err("nothing is acknowledged while the broker is frozen");
            assert!(matches!(waited, Error::BufferFull { .. }), "{waited}");
            cluster.thaw(1);
            for delivery in deliveries {
                delivery.await.expect("acknowledged after the broker resumes");
            }
            assert_eq!(producer.available_memory(), 65_536);
        },
        1,
    );
}

#[test]
fn invalid_sends_report_their_reason() {
    on_embedded(cannot_be_sent, 1);
}

#[test]
fn invalid_sends_report_their_reason_apache() {
    on_apache("cannot_be_sent", cannot_be_sent);
}

async fn cannot_be_sent(backend: &Backend) {
    backend.create_topic("known", 2, 1).await;
    let producer = producer(backend, &[("max.block.ms", "1500"), ("linger.ms", "0")]);
    // On a busy machine the first connection may take longer than that.
    until_in_time(async || producer.warm_up(&["known"]).await).await;
    let large = vec![0; 2_000_000];
    let error = producer.send(Record::to("known").value(&large)).await.expect_err("too large");
    assert!(matches!(error, Error::RecordTooLarge { .. }), "{error}");
    let error =
        producer.send(Record::to("known").partition(9).value("x")).await.expect_err("no such");
    assert!(matches!(error, Error::UnknownPartition { partitions: 2, .. }), "{error}");
    let error = producer.send(Record::to("no topic!").value("x")).await.expect_err("bad name");
    assert!(
        matches!(error, Error::Broker { code: ErrorCode::INVALID_TOPIC_EXCEPTION, .. }),
        "{error}"
    );
    // The failures above do not prevent valid sends.
    producer.send(Record::to("known").value("x")).await.expect("sent").await.expect("written");
    let other = producer.clone();
    producer.close().await.expect("closed");
    let error = other.send(Record::to("known").value("x")).await.expect_err("closed");
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
fn acks_0_has_no_offset_and_acks_1_has_one() {
    on_embedded(acks_0_and_1, 1);
}

#[test]
fn acks_0_has_no_offset_and_acks_1_has_one_apache() {
    on_apache("acks_0_and_1", acks_0_and_1);
}

async fn acks_0_and_1(backend: &Backend) {
    backend.create_topic("acks", 1, 1).await;
    for (acks, has_offset) in [("0", false), ("1", true)] {
        let producer = producer(backend, &[("acks", acks), ("linger.ms", "0")]);
        let mut last = None;
        for _ in 0..3 {
            let delivery = producer.send(Record::to("acks").value(acks)).await.expect("sent");
            last = delivery.await.expect("acknowledged").offset;
        }
        assert_eq!(last.is_some(), has_offset, "acks={acks}");
        producer.close().await.expect("closed");
    }
    // Records with acks=0 may still be in flight; those with acks=1 are in the log.
    let read = read_all(backend, "acks", 1).await;
    assert!(read[&0].iter().filter(|record| record.value() == Some(b"1")).count() == 3);
}

#[test]
fn refused_connection_is_one_clear_error() {
    runtime().block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        drop(listener);
        let producer = Producer::new(ProducerConfig::new(&address)).expect("usable");
        let error = producer.connect().await.expect_err("no broker listens").report().to_string();
        assert!(error.contains(&address) && error.contains("refused"), "{error}");
    });
}

/// A record that does not fit a batch goes to the next partition. If it opened a batch of the same one, that batch would
/// get no other record before `linger.ms` ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_batches_leave_no_record_behind() {
    const RECORDS: usize = 200;
    let backend = Backend::embedded(1).await;
    backend.create_topic("full", 6, 1).await;
    let properties = [("linger.ms", "80000"), ("delivery.timeout.ms", "120000")];
    let producer = producer(&backend, &properties);
    // Otherwise each partition first gets a batch with one record, to test its leader.
    for partition in 0..6 {
        drop(producer.send(Record::to("full").partition(partition).value("hello")).await);
    }
    producer.flush().await.expect("acknowledged");
    // 16 of them fit batch.size.
    let value = [b'x'; 1000];
    let mut deliveries = Vec::new();
    for _ in 0..RECORDS {
        deliveries.push(producer.send(Record::to("full").value(&value)).await.expect("sent"));
    }
    // A batch may have grown to twice its size behind an earlier one of its partition.
    let waits = |delivery: &Delivery| delivery.outcome().is_none();
    let first = || deliveries.iter().position(waits).unwrap_or(RECORDS);
    until("only the last batch waits for more records", || first() + 32 >= RECORDS).await;
}

/// A broker that takes no further request lets batches grow, so records stay with a partition (decision 0100). On one
/// thread no task of the broker runs while it freezes.
#[tokio::test]
async fn keyless_records_stay_with_a_batch_that_cannot_leave() {
    const RECORDS: usize = 500;
    let backend = Backend::embedded(1).await;
    backend.create_topic("stay", 6, 1).await;
    let properties = [
        ("curtail.latency.target.ms", "0"),
        ("curtail.route.around.trouble", "false"),
        ("partitioner.adaptive.partitioning.enable", "false"),
        ("curtail.suspicion.enable", "false"),
        ("max.in.flight.requests.per.connection", "1"),
    ];
    let producer = producer(&backend, &properties);
    for partition in 0..6 {
        drop(producer.send(Record::to("stay").partition(partition).value("hello")).await);
    }
    producer.flush().await.expect("acknowledged");

    backend.freeze(1);
    // 16 of them fit batch.size.
    let value = [b'x'; 1000];
    let mut deliveries = Vec::new();
    for _ in 0..RECORDS {
        deliveries.push(producer.send(Record::to("stay").value(&value)).await.expect("sent"));
    }
    backend.thaw(1);
    let mut partitions = Vec::new();
    for delivery in deliveries {
        partitions.push(delivery.await.expect("acknowledged").partition);
    }

    // The first batch left at once. A batch of batch.size would have 16 or 17 records.
    let stays = partitions.chunk_by(|one, next| one == next).map(<[_]>::len);
    let stays = stays.collect::<Vec<_>>();
    let [_first, grown @ .., _last] = &*stays else { panic!("{stays:?}") };
    assert!(grown.iter().all(|records| *records >= 30), "{stays:?}");
}

/// Batches are filled to `batch.size` after compression, as expected from earlier batches of the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_batches_are_filled_to_batch_size() {
    let backend = Backend::embedded(1).await;
    backend.create_topic("dense", 1, 1).await;
    // Nothing lingers while the broker's window is full.
    let properties = [
        ("linger.ms", "60000"),
        ("batch.max.size", "0"),
        ("curtail.latency.target.ms", "0"),
        ("compression.type", "zstd"),
    ];
    let producer = producer(&backend, &properties);
    let (sink, mut completions) = producer.completions();
    let mut draw = 1u64;
    for tag in 0..5000 {
        // Hexadecimal digits compress to little more than half.
        let mut value = String::new();
        while value.len() < 1000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value += &format!("{:08x}", draw >> 32);
        }
        producer.send_tagged(Record::to("dense").value(&value), tag, &sink).await.expect("sent");
    }
    producer.flush().await.expect("acknowledged");
    let mut bytes = Vec::new();
    while let Some(run) = completions.try_next() {
        bytes.push(run.outcome().expect("acknowledged").bytes);
    }
    let [first, .., _last] = &*bytes else { panic!("{bytes:?}") };
    assert!((7_000..11_000).contains(first), "{bytes:?}");
    // The estimate keeps a reserve of 5%, and a batch holds whole records.
    let mut settled = bytes[bytes.len() / 2..bytes.len() - 1].to_vec();
    settled.sort_unstable();
    assert!((14_500..=16_384).contains(&settled[settled.len() / 2]), "{bytes:?}");
    // A batch that compresses worse than expected lowers the size of the next ones.
    assert!((12_288..=16_384).contains(&settled[0]), "{bytes:?}");
    assert!(settled[settled.len() - 1] <= 16_384, "{bytes:?}");
}
