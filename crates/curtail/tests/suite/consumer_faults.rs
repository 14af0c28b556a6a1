//! The consumer while brokers die, leaders move, topics are recreated and bytes are damaged.

use std::{
    collections::BTreeMap,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::common::{self, Backend};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, Record, TopicPartition,
    admin::OffsetSpec,
    config::{IsolationLevel, OffsetReset},
};

const LIMIT: Duration = Duration::from_secs(60);

fn earliest(backend: &Backend) -> Consumer {
    let config = ConsumerConfig::new(backend.bootstrap()).auto_offset_reset(OffsetReset::Earliest);
    Consumer::new(config).unwrap()
}

fn all(topic: &str, partitions: i32) -> Vec<TopicPartition> {
    (0..partitions).map(|p| TopicPartition::new(topic, p)).collect()
}

async fn send(producer: &Producer, topic: &str, partitions: i32, numbers: std::ops::Range<usize>) {
    let mut sent = Vec::new();
    for n in numbers {
        for partition in 0..partitions {
            let value = n.to_string();
            let record = Record::to(topic).partition(partition).value(&value);
            sent.push(producer.send(record).await.unwrap());
        }
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

/// Polls until each partition has returned the numbers 0 to `count - 1`, in order and once each.
async fn read_exactly(consumer: &mut Consumer, partitions: i32, count: usize) {
    let mut next: BTreeMap<i32, usize> = BTreeMap::new();
    read_on(consumer, &mut next, partitions, count).await;
}

async fn read_on(
    consumer: &mut Consumer,
    next: &mut BTreeMap<i32, usize>,
    partitions: i32,
    count: usize,
) {
    let deadline = Instant::now() + LIMIT;
    while next.values().sum::<usize>() < count * partitions as usize {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "only {next:?} of {count} each within {LIMIT:?}");
        for record in consumer.poll(left).await.unwrap() {
            let number: usize =
                std::str::from_utf8(record.value().unwrap()).unwrap().parse().unwrap();
            let expected = next.entry(record.partition()).or_default();
            assert_eq!(number, *expected, "partition {}", record.partition());
            *expected += 1;
        }
    }
}

async fn a_killed_leader_interrupts_but_loses_nothing(backend: Backend) {
    let topic = "killed";
    backend.create_topic(topic, 3, 3).await;
    let producer = common::producer(&backend, &[("acks", "all")]);
    let mut consumer = earliest(&backend);
    consumer.assign(all(topic, 3));
    let mut next = BTreeMap::new();
    send(&producer, topic, 3, 0..200).await;
    read_on(&mut consumer, &mut next, 3, 200).await;
    let victim = consumer.partitions_for(topic).await.unwrap()[0].leader.unwrap();
    backend.kill(victim);
    send(&producer, topic, 3, 200..400).await;
    read_on(&mut consumer, &mut next, 3, 400).await;
    backend.restart(victim).await;
    send(&producer, topic, 3, 400..500).await;
    read_on(&mut consumer, &mut next, 3, 500).await;
    consumer.close().await;
}

#[tokio::test]
async fn a_killed_leader_embedded() {
    a_killed_leader_interrupts_but_loses_nothing(Backend::embedded(3).await).await;
}

#[tokio::test]
async fn a_killed_leader_apache() {
    let Some(backend) = Backend::apache("a_killed_leader_apache", 3) else { return };
    a_killed_leader_interrupts_but_loses_nothing(backend).await;
}

/// The addresses of all other brokers.
fn addresses_without(backend: &Backend, broker: i32) -> String {
    let Backend::Embedded(cluster) = backend else { unreachable!("only embedded brokers freeze") };
    let left_out = cluster.broker(broker).unwrap().addr().to_string();
    let bootstrap = backend.bootstrap();
    let others: Vec<&str> = bootstrap.split(',').filter(|address| *address != left_out).collect();
    others.join(",")
}

/// A consumer whose requests and calls may take longer than the test.
fn patient(bootstrap: &str) -> ConsumerConfig {
    ConsumerConfig::new(bootstrap)
        .auto_offset_reset(OffsetReset::Earliest)
        .request_timeout(2 * LIMIT)
        .default_api_timeout(2 * LIMIT)
}

/// A frozen broker sends no error. Its partitions are read from the next leader long before the request's timeout.
#[tokio::test]
async fn a_frozen_leader_is_suspected() {
    let topic = "frozen";
    let backend = Backend::embedded(3).await;
    backend.create_topic(topic, 1, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
    let (leader, _) = cluster.leader(topic, 0).unwrap();
    let others = addresses_without(&backend, leader);
    let mut consumer = Consumer::new(patient(&others)).unwrap();
    consumer.assign(all(topic, 1));
    let mut next = BTreeMap::new();
    send(&common::producer(&backend, &[]), topic, 1, 0..10).await;
    read_on(&mut consumer, &mut next, 1, 10).await;
    cluster.freeze(leader);
    cluster.wait_until(|c| c.leader(topic, 0).is_some_and(|(now, _)| now != leader)).await;
    let second = Producer::new(curtail::ProducerConfig::new(&others)).unwrap();
    send(&second, topic, 1, 10..20).await;
    read_on(&mut consumer, &mut next, 1, 20).await;
    cluster.thaw(leader);
}

/// The consumer looks up offsets for itself and for the application, and so does the admin client. All lookups move
/// to the next leader long before the request's timeout.
#[tokio::test]
async fn offset_lookup_at_a_frozen_leader_moves_to_the_next_one() {
    let topic = "frozen-lookup";
    let backend = Backend::embedded(3).await;
    backend.create_topic(topic, 1, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
    send(&common::producer(&backend, &[]), topic, 1, 0..10).await;
    let (leader, _) = cluster.leader(topic, 0).unwrap();
    let others = addresses_without(&backend, leader);
    let config = patient(&others).connection_setup_timeout(2 * LIMIT);
    let admin = Admin::new(AdminConfig::default().common(config.get_common())).unwrap();
    let (mut start, asking) =
        (Consumer::new(config.clone()).unwrap(), Consumer::new(config).unwrap());
    for consumer in [&start, &asking] {
        assert_eq!(consumer.partitions_for(topic).await.unwrap()[0].leader, Some(leader));
    }
    cluster.freeze(leader);
    start.assign(all(topic, 1));
    let wanted = all(topic, 1);
    let latest = [(wanted[0].clone(), OffsetSpec::Latest)];
    let listing = admin.list_offsets(&latest, IsolationLevel::ReadUncommitted);
    let started = read_exactly(&mut start, 1, 10);
    let (ends, listed, started) = tokio::join!(
        tokio::time::timeout(LIMIT / 2, asking.end_offsets(&wanted)),
        tokio::time::timeout(LIMIT / 2, listing),
        tokio::time::timeout(LIMIT / 2, started),
    );
    assert_eq!([ends.is_ok(), listed.is_ok(), started.is_ok()], [true; 3]);
    assert_eq!(ends.unwrap().unwrap()[&wanted[0]], 10);
    assert_eq!(listed.unwrap().unwrap()[0].1.as_ref().unwrap().offset, Some(10));
    cluster.thaw(leader);
}

#[tokio::test]
async fn leaders_that_move_are_followed() {
    let topic = "moving";
    let backend = Backend::embedded(3).await;
    backend.create_topic(topic, 2, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
    let producer = common::producer(&backend, &[("acks", "all"), ("linger.ms", "0")]);
    let mut consumer = earliest(&backend);
    consumer.assign(all(topic, 2));
    let mut next = BTreeMap::new();
    for round in 0..30 {
        for partition in 0..2 {
            cluster.wait_until(|c| c.isr(topic, partition).is_some_and(|isr| isr.len() == 3)).await;
            cluster.move_leader(topic, partition, 1 + (round + partition) % 3).unwrap();
        }
        let round = round as usize;
        send(&producer, topic, 2, round * 10..(round + 1) * 10).await;
        read_on(&mut consumer, &mut next, 2, (round + 1) * 10).await;
    }
}

/// A partition that moves to a broker with a waiting fetch is not delayed by that fetch.
#[tokio::test]
async fn waiting_fetch_does_not_delay_a_new_partition() {
    let topic = "newcomer";
    let backend = Backend::embedded(1).await;
    backend.create_topic(topic, 2, 1).await;
    let producer = common::producer(&backend, &[("linger.ms", "0")]);
    send(&producer, topic, 2, 0..1).await;
    let config = ConsumerConfig::new(backend.bootstrap())
        .auto_offset_reset(OffsetReset::Earliest)
        .fetch_max_wait(LIMIT)
        .request_timeout(2 * LIMIT)
        .default_api_timeout(2 * LIMIT);
    let mut consumer = Consumer::new(config).unwrap();
    let both = all(topic, 2);
    consumer.assign([both[0].clone()]);
    assert_eq!(consumer.poll(LIMIT).await.unwrap().len(), 1);
    let begun = Instant::now();
    // From here on the broker delays a fetch; assignments and seeks still take effect at once.
    consumer.assign(both.clone());
    let records = consumer.poll(LIMIT).await.unwrap();
    assert_eq!((records.len(), records[0].partition()), (1, 1));
    for _ in 0..5 {
        consumer.seek(&both[0], 0).unwrap();
        let records = consumer.poll(LIMIT).await.unwrap();
        assert_eq!((records.len(), records[0].partition()), (1, 0));
    }
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_session_serves_until_it_is_closed() {
    let topic = "session";
    let backend = Backend::embedded(1).await;
    backend.create_topic(topic, 4, 1).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
    let producer = common::producer(&backend, &[]);
    send(&producer, topic, 4, 0..500).await;
    let config = ConsumerConfig::new(backend.bootstrap())
        .auto_offset_reset(OffsetReset::Earliest)
        .prefetch_bytes(4_000);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign(all(topic, 4));
    let id = cluster.broker_ids()[0];
    read_exactly(&mut consumer, 4, 500).await;
    assert_eq!(cluster.fetch_sessions(id).unwrap().sessions, 1);
    // Interrupted fetches keep the session.
    for at in all(topic, 4) {
        consumer.seek(&at, 499).unwrap();
        consumer.poll(LIMIT).await.unwrap();
    }
    assert_eq!(cluster.fetch_sessions(id).unwrap().sessions, 1);
    consumer.close().await;
    assert_eq!(cluster.fetch_sessions(id).unwrap().sessions, 0);
}

#[tokio::test]
async fn recreated_topic_is_read_from_its_beginning() {
    let topic = "recreated";
    let backend = Backend::embedded(1).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
    let mut consumer = earliest(&backend);
    for round in 0..3 {
        backend.create_topic(topic, 1, 1).await;
        let producer = common::producer(&backend, &[]);
        send(&producer, topic, 1, 0..100 - 10 * round).await;
        consumer.assign(all(topic, 1));
        read_exactly(&mut consumer, 1, 100 - 10 * round).await;
        assert!(cluster.delete_topic(topic));
        cluster.settled().await;
    }
}

#[tokio::test]
async fn damage_on_disk_is_reported_and_passed_by_a_seek_embedded() {
    let directory = tempfile::tempdir().unwrap();
    let storage = curtail_cluster::Storage::Dir(directory.path().to_owned());
    let backend = Backend::embedded_with(1, |config| config.storage = storage).await;
    damage_on_disk_is_reported_and_passed_by_a_seek(&backend, directory.path()).await;
}

#[tokio::test]
async fn damage_on_disk_is_reported_and_passed_by_a_seek_apache() {
    let name = "damage_on_disk_is_reported_and_passed_by_a_seek_apache";
    let Some(backend) = Backend::apache(name, 1) else { return };
    let Backend::Apache(cluster) = &backend else { unreachable!("made above") };
    damage_on_disk_is_reported_and_passed_by_a_seek(&backend, cluster.data_dir(0)).await;
}

async fn damage_on_disk_is_reported_and_passed_by_a_seek(backend: &Backend, data: &Path) {
    let topic = "damaged";
    backend.create_topic(topic, 2, 1).await;
    let producer = common::producer(backend, &[("linger.ms", "0")]);
    // One batch each. The embedded broker keeps the newest 1 MiB of a log in memory: the last two evict the others.
    for size in [10, 10, 700_000, 700_000] {
        let value = vec![b'x'; size];
        for partition in 0..2 {
            let record = Record::to(topic).partition(partition).value(&value);
            producer.send(record).await.unwrap().await.unwrap();
        }
    }
    flip_last_byte_of_second_batch(&segment_below(data, "damaged-0").expect("it has a log"));

    let mut consumer = earliest(backend);
    consumer.assign(all(topic, 2));
    let mut read: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    let mut reports = 0;
    let deadline = Instant::now() + LIMIT;
    while reports < 3 || read.get(&1).is_none_or(|offsets| offsets.len() < 7) {
        assert!(Instant::now() < deadline, "{reports} reports, read {read:?}");
        let error = match consumer.poll(LIMIT).await {
            Ok(records) => {
                note(&mut read, &records);
                continue;
            }
            Err(error) => error,
        };
        let next_offset = passing(&error, topic);
        assert_eq!(next_offset, 2, "{error}");
        let at = TopicPartition::new(topic, 0);
        assert_eq!(consumer.position(&at).await.unwrap(), 1, "the position stays");
        if reports < 3 {
            // Other partitions are read in the meantime.
            let record = Record::to(topic).partition(1).value("meanwhile");
            producer.send(record).await.unwrap().await.unwrap();
        }
        reports += 1;
    }
    assert_eq!(read[&0], [0]);

    consumer.seek(&TopicPartition::new(topic, 0), 2).unwrap();
    while read[&0].len() < 3 {
        let records = consumer.poll(LIMIT).await.unwrap();
        assert!(!records.is_empty(), "nothing after {read:?}");
        note(&mut read, &records);
    }
    assert_eq!((&read[&0][..], &read[&1][..]), (&[0, 2, 3][..], &[0, 1, 2, 3, 4, 5, 6][..]));
}

fn note(read: &mut BTreeMap<i32, Vec<i64>>, records: &curtail::consumer::Records) {
    for record in records {
        read.entry(record.partition()).or_default().push(record.offset());
    }
}

/// Offset at which to continue after the damage at offset 1 of partition 0.
fn passing(error: &Error, topic: &str) -> i64 {
    let Error::Corrupt { topic: named, partition: 0, offset: 1, next_offset: Some(next), .. } =
        error
    else {
        panic!("{error}")
    };
    assert_eq!(&**named, topic);
    assert!(error.report().to_string().contains("damaged-0 at offset 1"), "{error}");
    *next
}

/// The first segment of a partition, anywhere below a directory.
fn segment_below(directory: &Path, partition: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|name| name == partition) {
            return Some(path.join("00000000000000000000.log"));
        }
        let below = segment_below(&path, partition);
        if below.is_some() {
            return below;
        }
    }
    None
}

fn flip_last_byte_of_second_batch(segment: &Path) {
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(segment)
        .expect("the segment is there");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let size =
        |at: usize| 12 + u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let second = size(0);
    let last = second + size(second) - 2;
    file.seek(SeekFrom::Start(last as u64)).unwrap();
    file.write_all(&[bytes[last] ^ 1]).unwrap();
}
