//! Arguments of calls at their extremes: each call ends within its timeout, and no task panics.

use std::{future::Future, time::Duration};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    TopicPartition, TransactionalProducer,
    admin::{
        AbortTransaction, Mode, NewPartitions, NewTopic, OffsetSpec, QuotaChange, QuotaEntity,
        Reassignment, ScramChange, ScramMechanism, TransactionFilter,
    },
    config::{IsolationLevel, OffsetReset},
    metrics::Distribution,
    producer::{Partitioner, TopicPartitions},
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

use super::{GLANCE, LIMIT, TOPIC, run};
use crate::common::Backend;

const I64: [i64; 8] = [i64::MIN, i64::MIN + 1, -2, -1, 0, 1, i64::MAX - 1, i64::MAX];
const I32: [i32; 7] = [i32::MIN, -2, -1, 1, 1 << 20, i32::MAX - 1, i32::MAX];
const I16: [i16; 6] = [i16::MIN, -2, -1, 0, i16::MAX - 1, i16::MAX];
const DURATIONS: [Duration; 4] =
    [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX), Duration::MAX];
/// Time for a call that cannot succeed.
const SHORT: Duration = Duration::from_millis(300);

/// The result of a call that must end.
async fn ends<T>(what: &str, call: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, call).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

/// Offsets to commit or to seek to, with every leader epoch.
fn spots() -> Vec<OffsetAndMetadata> {
    let epochs = || [None, Some(i32::MIN), Some(-1), Some(0), Some(i32::MAX)].into_iter();
    let spot =
        |offset, leader_epoch| OffsetAndMetadata { leader_epoch, ..OffsetAndMetadata::new(offset) };
    I64.iter().flat_map(|offset| epochs().map(move |epoch| spot(*offset, epoch))).collect()
}

async fn with_a_record() -> Backend {
    let backend = Backend::embedded(1).await;
    backend.create_topic(TOPIC, 1, 1).await;
    let producer = Producer::new(ProducerConfig::new(backend.bootstrap())).expect("usable");
    producer.send(Record::to(TOPIC).value("x")).await.expect("sent").await.expect("written");
    backend
}

fn consumer(backend: &Backend) -> ConsumerConfig {
    ConsumerConfig::new(backend.bootstrap())
        .auto_offset_reset(OffsetReset::Earliest)
        .default_api_timeout(SHORT)
}

#[test]
fn extreme_arguments_of_consumers_are_harmless() {
    run(async {
        let backend = with_a_record().await;
        let mut consumer = Consumer::new(consumer(&backend)).expect("usable");
        consumer.assign([at(0)]);
        for spot in spots() {
            let sought = consumer.seek_to(&at(0), &spot);
            let valid = spot.offset >= 0 && spot.leader_epoch.is_none_or(|epoch| epoch >= 0);
            assert_eq!(sought.is_ok(), valid, "{spot:?}: {sought:?}");
            let _ = ends("position", consumer.position(&at(0))).await;
            let _ = ends("poll", consumer.poll(GLANCE)).await;
            let _ = consumer.current_lag(&at(0));
        }
        for number in I64 {
            assert_eq!(consumer.seek(&at(0), number).is_ok(), number >= 0);
            let _ = ends("poll_batch", consumer.poll_batch(GLANCE)).await;
            let _ = consumer.seek_to_timestamp(&at(0), number);
            let _ = ends("poll", consumer.poll(GLANCE)).await;
            let _ = ends("offsets_for_times", consumer.offsets_for_times([(at(0), number)])).await;
        }
        for limit in DURATIONS {
            consumer.seek(&at(0), 0).expect("assigned");
            let records = ends("poll", consumer.poll(limit)).await.expect("no error");
            assert!(!records.is_empty() || limit < GLANCE, "{limit:?}");
            consumer.seek(&at(0), 0).expect("assigned");
            let batch = ends("poll_batch", consumer.poll_batch(limit)).await.expect("no error");
            assert!(batch.is_some() || limit < GLANCE, "{limit:?}");
        }
        for partition in I32 {
            consumer.assign([at(partition)]);
            let _ = consumer.seek(&at(partition), 0);
            let _ = ends("poll", consumer.poll(GLANCE)).await;
            let _ = ends("end_offsets", consumer.end_offsets(&[at(partition)])).await;
        }
        ends("close", consumer.close()).await;
    });
}

#[test]
fn extreme_offsets_that_are_committed_are_harmless() {
    run(async {
        let backend = with_a_record().await;
        let mut consumer = Consumer::new(consumer(&backend).group_id("g")).expect("usable");
        consumer.subscribe([TOPIC]).expect("a group");
        ends("poll", consumer.poll(LIMIT)).await.expect("joined");
        for spot in spots() {
            let _ = ends("commit", consumer.commit_offsets([(at(0), spot)])).await;
        }
        for partition in I32 {
            let spot = OffsetAndMetadata::new(0);
            let _ = ends("commit", consumer.commit_offsets([(at(partition), spot)])).await;
        }
        let long = OffsetAndMetadata { metadata: "m".repeat(1 << 20), ..OffsetAndMetadata::new(1) };
        let refused = ends("commit", consumer.commit_offsets([(at(0), long)])).await;
        assert!(refused.is_err(), "{refused:?}");
        let committed = consumer.commit_offsets([(at(0), OffsetAndMetadata::new(1))]);
        ends("commit", committed).await.expect("the member is intact");
        ends("close", consumer.close()).await;
    });
}

/// A partitioner that returns the value of each record.
#[derive(Debug)]
struct Named;

impl Partitioner for Named {
    fn partition(&self, record: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32> {
        let value = record.value_bytes()?.first_chunk()?;
        let partition = i32::from_be_bytes(*value);
        let _ = partitions.has_leader(partition);
        Some(partition)
    }
}

#[test]
fn extreme_fields_of_records_are_harmless() {
    run(async {
        let backend = with_a_record().await;
        let config = ProducerConfig::new(backend.bootstrap()).max_block(SHORT).partitioner(Named);
        let producer = Producer::new(config).expect("usable");
        for partition in I32 {
            let value = partition.to_be_bytes();
            let records = [Record::to(TOPIC).value(&value), Record::to(TOPIC).partition(partition)];
            for record in records {
                let sent = ends("send", producer.send(record)).await;
                assert!(sent.is_err(), "partition {partition} does not exist");
            }
        }
        // All in one batch: their differences do not fit into 64 bits.
        let mut deliveries = Vec::new();
        for timestamp in I64 {
            let record = Record::to(TOPIC).partition(0).timestamp(timestamp);
            deliveries.push(ends("send", producer.send(record)).await);
        }
        for delivery in deliveries.into_iter().flatten() {
            let _ = ends("delivery", delivery).await;
        }
        let large = vec![0; 64 << 20];
        let record = Record::to(TOPIC).partition(0).value(&large);
        let refused = ends("send", producer.send(record)).await;
        assert!(matches!(refused, Err(Error::RecordTooLarge { .. })), "{refused:?}");
        let written = ends("send", producer.send(Record::to(TOPIC).partition(0).value("y"))).await;
        ends("delivery", written.expect("sent")).await.expect("the producer is intact");
        ends("close", producer.close()).await.expect("closed");
    });
}

#[test]
fn extreme_offsets_of_transactions_are_harmless() {
    run(async {
        let backend = with_a_record().await;
        for (n, spot) in spots().into_iter().enumerate() {
            let config = ProducerConfig::new(backend.bootstrap())
                .max_block(Duration::from_secs(2))
                .transactional_id(format!("t{n}"));
            let mut producer = TransactionalProducer::new(config).expect("usable");
            ends("init", producer.init_transactions()).await.expect("a new id");
            let transaction = producer.begin_transaction().await.expect("initialised");
            let mut group = ConsumerGroupMetadata::new("g");
            group.generation_id = I32[n % I32.len()];
            group.member_id = "m".to_owned();
            let added = transaction.send_offsets_to_transaction([(at(0), spot)], &group);
            let _ = ends("send_offsets_to_transaction", added).await;
            let _ = ends("abort", transaction.abort()).await;
            let _ = ends("close", producer.close()).await;
        }
    });
}

#[test]
fn extreme_arguments_of_admins_are_harmless() {
    run(async {
        let backend = with_a_record().await;
        let config =
            AdminConfig::new(backend.bootstrap()).request_timeout(SHORT).default_api_timeout(SHORT);
        let admin = Admin::new(config).expect("usable");
        let some = [at(0)];
        for number in I32 {
            let grown = [NewPartitions::new(TOPIC, number)];
            let _ =
                ends("create_partitions", admin.create_partitions(&grown, Mode::Validate)).await;
            let created = [NewTopic::new(format!("t{number}")).partitions(number)];
            if number != 1 {
                let done = ends("create_topics", admin.create_topics(&created)).await;
                assert!(number == -1 || done.expect("answered")[0].1.is_err(), "{number}");
            }
            let _ = ends("describe_log_dirs", admin.describe_log_dirs(&[number])).await;
            let moved = [(at(0), Reassignment::To(vec![number]))];
            let _ = ends("reassign", admin.alter_partition_reassignments(&moved)).await;
            let offset = [(at(number), OffsetAndMetadata::new(0))];
            let _ = ends("alter_group_offsets", admin.alter_group_offsets("h", &offset)).await;
        }
        for factor in I16 {
            let created = [NewTopic::new(format!("f{factor}")).replication_factor(factor)];
            let _ = ends("create_topics", admin.create_topics(&created)).await;
        }
        for number in I64 {
            let wanted = some.clone().map(|at| (at, OffsetSpec::Timestamp(number)));
            let level = IsolationLevel::ReadUncommitted;
            let _ = ends("list_offsets", admin.list_offsets(&wanted, level)).await;
            let wanted = some.clone().map(|at| (at, number));
            let _ = ends("delete_records", admin.delete_records(&wanted)).await;
            let abort = AbortTransaction {
                partition: at(0),
                producer_id: number,
                producer_epoch: if number < 0 { i16::MIN } else { i16::MAX },
                coordinator_epoch: if number < 0 { i32::MIN } else { i32::MAX },
            };
            let _ = ends("abort_transaction", admin.abort_transaction(&abort)).await;
        }
        for spot in spots() {
            let offset = [(at(0), spot)];
            let _ = ends("alter_group_offsets", admin.alter_group_offsets("h", &offset)).await;
        }
        for open_for in DURATIONS {
            let filter = TransactionFilter { open_for: Some(open_for), ..Default::default() };
            let _ = ends("list_transactions", admin.list_transactions(&filter)).await;
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, -0.0] {
            let change = QuotaChange::Set("producer_byte_rate".to_owned(), value);
            let of: QuotaEntity = [("user".to_owned(), Some("u".to_owned()))].into();
            let changed = [(of, vec![change])];
            let _ = ends("quotas", admin.alter_client_quotas(&changed, Mode::Validate)).await;
        }
    });
}

#[test]
fn scram_iterations_beyond_the_limit_are_refused_before_they_are_computed() {
    run(async {
        let backend = Backend::embedded(1).await;
        let admin = Admin::new(AdminConfig::new(backend.bootstrap())).expect("usable");
        for count in [1_000_001, u32::MAX] {
            let change = |user: &str| ScramChange::upsert(user, ScramMechanism::Sha512, "secret");
            let changes = [change("a").iterations(count), change("b")];
            let altered = ends("alter", admin.alter_user_scram_credentials(&changes)).await;
            let altered = altered.expect("answered");
            assert!(matches!(altered[0].1, Err(Error::IllegalState(_))), "{altered:?}");
            assert!(altered[1].1.is_ok(), "{altered:?}");
            let alone = [change("a").iterations(count), change("a")];
            let altered = ends("alter", admin.alter_user_scram_credentials(&alone)).await;
            assert!(matches!(altered.expect("an outcome")[..], [(_, Err(_))]));
        }
        let change = [ScramChange::upsert("a", ScramMechanism::Sha256, "x").iterations(0)];
        let altered = ends("alter", admin.alter_user_scram_credentials(&change)).await;
        assert!(altered.expect("answered")[0].1.is_err());
    });
}

#[test]
fn extreme_quantiles_are_clamped() {
    let histogram = Distribution::default();
    for quantile in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1.0, f64::MAX, f64::INFINITY] {
        assert_eq!(histogram.quantile(quantile), 0);
    }
}
