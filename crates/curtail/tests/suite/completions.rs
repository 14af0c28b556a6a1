//! Outcomes by tag ([`Producer::completions`]), on the embedded cluster and on Apache Kafka.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{self, Backend, producer, read_all, until};
use curtail::{
    Error, ErrorCode, Producer, ProducerConfig, Record, RecordMetadata,
    producer::{CompletionRun, Completions, ProducerInterceptor},
};
use tokio::time::timeout;

const TOPIC: &str = "tagged";
const PATIENT: Duration = Duration::from_secs(600);

/// Partition and offset by tag, and the tags that failed.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) written: BTreeMap<u64, (i32, Option<i64>)>,
    pub(crate) failed: BTreeMap<u64, Error>,
}

impl Received {
    /// Adds the records of a run. No tag may come twice.
    pub(crate) fn add(&mut self, run: &CompletionRun) {
        let partition = run.outcome().map(|batch| batch.partition).map_err(Clone::clone);
        for (tag, offset) in run.records() {
            let is_known = self.written.contains_key(&tag) || self.failed.contains_key(&tag);
            assert!(!is_known, "tag {tag} came twice");
            match &partition {
                Ok(partition) => drop(self.written.insert(tag, (*partition, offset))),
                Err(error) => drop(self.failed.insert(tag, error.clone())),
            }
        }
    }
}

/// A cluster with the topic, and a producer that knows it.
async fn warm_producer(properties: &[(&str, &str)]) -> (Backend, Producer) {
    let backend = Backend::embedded(1).await;
    backend.create_topic(TOPIC, 1, 1).await;
    let producer = producer(&backend, properties);
    producer.warm_up(&[TOPIC]).await.expect("warm");
    (backend, producer)
}

/// Receives until the sinks and their batches are gone. No tag may come twice.
pub(crate) async fn received(mut completions: Completions) -> Received {
    let mut all = Received::default();
    while let Some(run) = timeout(PATIENT, completions.next()).await.expect("runs arrive") {
        all.add(&run);
    }
    all
}

/// Values by partition and offset.
async fn log(backend: &Backend, topic: &str, partitions: i32) -> BTreeMap<(i32, i64), u64> {
    let read = read_all(backend, topic, partitions).await.into_values().flatten();
    let number = |value: Option<&[u8]>| {
        u64::from_be_bytes(value.expect("a value")[..8].try_into().expect("8 bytes"))
    };
    read.map(|record| ((record.partition(), record.offset()), number(record.value()))).collect()
}

/// Records of two sinks, and awaited ones, share batches. Each has its own outcome, with the offset that it has in the
/// log.
async fn each_record_has_its_own_outcome(backend: &Backend) {
    const RECORDS: u64 = 3000;
    backend.create_topic(TOPIC, 3, 1).await;
    let producer = producer(backend, &[("linger.ms", "5")]);
    let ((one, ones), (other, others)) = (producer.completions(), producer.completions());
    let mut deliveries = Vec::new();
    for number in 0..RECORDS {
        let value = number.to_be_bytes();
        let record = Record::to(TOPIC).value(&value);
        match number % 3 {
            0 => producer.send_tagged(record, number, &one).await.expect("sent"),
            1 => producer.try_send_tagged(record, number, &other).expect("sent"),
            _ => deliveries.push((number, producer.send(record).await.expect("sent"))),
        }
    }
    drop((one, other));
    let mut told = BTreeMap::new();
    for (rest, completions) in [(0, ones), (1, others)] {
        let received = received(completions).await;
        assert!(received.failed.is_empty(), "{:?}", received.failed);
        assert!(received.written.keys().all(|tag| tag % 3 == rest));
        told.extend(received.written);
    }
    for (number, delivery) in deliveries {
        let written = delivery.await.expect("written");
        told.insert(number, (written.partition, written.offset));
    }
    let told: BTreeMap<_, _> = told
        .into_iter()
        .map(|(number, (partition, offset))| ((partition, offset.expect("an offset")), number))
        .collect();
    assert_eq!(told.len() as u64, RECORDS);
    assert_eq!(told, log(backend, TOPIC, 3).await);
    producer.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_has_its_own_outcome_embedded() {
    each_record_has_its_own_outcome(&Backend::embedded(1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_has_its_own_outcome_apache() {
    let name = "each_record_has_its_own_outcome_apache";
    let Some(backend) = Backend::shared_apache(name) else { return };
    each_record_has_its_own_outcome(backend).await;
}

#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl ProducerInterceptor for Count {
    fn on_acknowledgement(&self, _topic: &str, _outcome: Result<&RecordMetadata, &Error>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The parts of a split batch are separate runs, each with its records' outcome. Interceptors are called first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_split_batch_are_runs_of_their_own() {
    const RECORDS: u64 = 50;
    const TOO_LARGE: u64 = 30;
    let backend = Backend::embedded(1).await;
    backend.create_topic_with(TOPIC, 1, 1, &[("max.message.bytes", "20000")]).await;
    let count = Count::default();
    let mut config = ProducerConfig::new(backend.bootstrap()).interceptor(count.clone());
    for (name, value) in [("batch.size", "100000"), ("linger.ms", "60000")] {
        config.set(name, value).expect("a known property");
    }
    let producer = Producer::new(config).expect("usable");
    producer.warm_up(&[TOPIC]).await.expect("warm");
    let (sink, completions) = producer.completions();
    for number in 0..RECORDS {
        let mut value = vec![b'x'; if number == TOO_LARGE { 30_000 } else { 1000 }];
        value[..8].copy_from_slice(&number.to_be_bytes());
        let record = Record::to(TOPIC).value(&value);
        producer.send_tagged(record, number, &sink).await.expect("sent");
    }
    producer.flush().await.expect("flushed");
    assert!(producer.metrics().all_brokers().batch_split_total > 0);
    assert_eq!(count.0.load(Ordering::SeqCst) as u64, RECORDS, "interceptors come first");
    drop(sink);
    let Received { written, failed } = received(completions).await;
    assert_eq!(failed.into_keys().collect::<Vec<_>>(), [TOO_LARGE]);
    let told: BTreeMap<_, _> = written
        .into_iter()
        .map(|(number, (partition, offset))| ((partition, offset.expect("an offset")), number))
        .collect();
    assert_eq!(told, log(&backend, TOPIC, 1).await);
}

/// A record may be sent before its topic is known. Its sink receives its outcome in any case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_an_unknown_topic_are_reported_to_their_sink() {
    let backend = Backend::embedded_with(1, |config| config.auto_create_topics = false).await;
    let producer = producer(&backend, &[("linger.ms", "0")]);
    let (sink, completions) = producer.completions();
    for number in 0..10u64 {
        let (topic, value) =
            (["later", "not a topic's name"][number as usize % 2], number.to_be_bytes());
        producer.try_send_tagged(Record::to(topic).value(&value), number, &sink).expect("queued");
    }
    backend.create_topic("later", 1, 1).await;
    producer.flush().await.expect("flushed");
    drop(sink);
    let Received { written, failed } = received(completions).await;
    assert_eq!(written.into_keys().collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    assert_eq!(failed.keys().copied().collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    for error in failed.values() {
        let Error::NotAcknowledged { may_have_been_written: false, cause, .. } = error else {
            panic!("{error}");
        };
        let invalid = ErrorCode::INVALID_TOPIC_EXCEPTION;
        assert!(matches!(&**cause, Error::Broker { code, .. } if *code == invalid), "{cause}");
    }
}

/// A run that is not dropped counts in `buffer.memory`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_holds_memory_until_it_is_dropped() {
    const RECORDS: usize = 100;
    let properties = [("buffer.memory", "655360"), ("batch.size", "65536"), ("max.block.ms", "50")];
    let (_backend, producer) = warm_producer(&properties).await;
    let all = producer.available_memory();
    let (sink, mut completions) = producer.completions();
    let value = vec![b'x'; 30_000];
    let mut sent = BTreeSet::new();
    let full = async {
        for tag in 0.. {
            match producer.send_tagged(Record::to(TOPIC).value(&value), tag, &sink).await {
                Ok(()) => sent.insert(tag),
                Err(Error::BufferFull { .. }) => return,
                Err(error) => panic!("{error}"),
            };
            assert!(sent.len() < RECORDS, "ten batches fill the memory");
        }
    };
    timeout(PATIENT, full).await.expect("undrained runs fill the memory");
    producer.flush().await.expect("flushed");
    assert!(producer.available_memory() < 65_536, "no memory for a batch");
    while let Some(run) = completions.try_next() {
        run.outcome().expect("written");
        for tag in run.tags() {
            assert!(sent.remove(tag));
        }
    }
    assert!(sent.is_empty(), "{sent:?}");
    until("all memory is returned", || producer.available_memory() == all).await;
    producer.send_tagged(Record::to(TOPIC).value("v"), 0, &sink).await.expect("there is room");
    drop(completions);
    // Without a receiver the outcome is discarded, with its memory.
    producer.flush().await.expect("flushed");
    until("all memory is returned", || producer.available_memory() == all).await;
}

/// The runs of a batch keep its memory until the last of them is dropped, whichever sink's it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_a_batch_holds_its_memory() {
    let (_backend, producer) = warm_producer(&[("linger.ms", "60000")]).await;
    let all = producer.available_memory();
    let ((one, mut ones), (other, mut others)) = (producer.completions(), producer.completions());
    for sink in [&one, &other, &one] {
        producer.send_tagged(Record::to(TOPIC).value("v"), 0, sink).await.expect("sent");
    }
    producer.flush().await.expect("flushed");
    for completions in [&mut others, &mut ones] {
        assert!(producer.available_memory() < all, "a run is left");
        drop(completions.try_next().expect("flushed, so the run has arrived"));
    }
    until("all memory is returned", || producer.available_memory() == all).await;
    assert!(!ones.is_ended(), "the sink may send more");
    drop(one);
    assert!(ones.is_ended());
}

/// Undrained runs do not count in the broker's window, which is smaller than `buffer.memory`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_not_taken_leave_the_window_free() {
    const RECORDS: u64 = 400;
    let (_backend, producer) =
        warm_producer(&[("batch.size", "65536"), ("max.block.ms", "600000")]).await;
    let (sink, completions) = producer.completions();
    let value = vec![b'x'; 30_000];
    for tag in 0..RECORDS {
        let sent = producer.send_tagged(Record::to(TOPIC).value(&value), tag, &sink);
        timeout(Duration::from_secs(60), sent).await.expect("there is room").expect("sent");
    }
    drop(sink);
    assert_eq!(received(completions).await.written.len() as u64, RECORDS);
}

/// Nothing ties a sink to a producer. The runs count in the memory of the producer that sent their records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_receives_the_records_of_any_producer() {
    let (backend, producer) = warm_producer(&[("linger.ms", "60000")]).await;
    let other = common::producer(&backend, &[("linger.ms", "60000")]);
    other.warm_up(&[TOPIC]).await.expect("warm");
    let all = producer.available_memory();
    assert_eq!(other.available_memory(), all);
    let (sink, mut completions) = producer.completions();
    for (tag, sender) in (0u64..).zip([&other, &producer, &other]) {
        sender.send_tagged(Record::to(TOPIC).value("v"), tag, &sink).await.expect("sent");
    }
    producer.close().await.expect("closed");
    let first = completions.try_next().expect("closed, so its run has arrived");
    assert_eq!(first.tags(), [1]);
    other.flush().await.expect("flushed");
    drop(first);
    assert!(other.available_memory() < all, "the second run is left");
    let second = completions.try_next().expect("flushed, so its run has arrived");
    assert_eq!(second.records().collect::<Vec<_>>(), [(0, Some(1)), (2, Some(2))]);
    drop(second);
    until("all memory is returned", || other.available_memory() == all).await;
    drop(sink);
    assert!(completions.is_ended());
}

/// A hundred sinks in one batch receive one record each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_may_have_many_sinks() {
    let (_backend, producer) = warm_producer(&[("linger.ms", "60000")]).await;
    let mut receivers = Vec::new();
    for tag in 0..100u64 {
        let (sink, completions) = producer.completions();
        producer.send_tagged(Record::to(TOPIC).value("v"), tag, &sink).await.expect("sent");
        receivers.push(completions);
    }
    producer.flush().await.expect("flushed");
    for (tag, completions) in (0u64..).zip(receivers) {
        let written = received(completions).await.written;
        assert_eq!(written, BTreeMap::from([(tag, (0, Some(tag as i64)))]));
    }
}

/// When the producer is gone, the sinks of unacknowledged records learn it, and the receiver ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_producer_fails_its_tagged_records() {
    let backend = Backend::embedded_with(1, |config| config.broker_session_timeout = PATIENT).await;
    backend.create_topic(TOPIC, 1, 1).await;
    let producer = producer(&backend, &[]);
    producer.warm_up(&[TOPIC]).await.expect("warm");
    backend.freeze(1);
    let (sink, completions) = producer.completions();
    for tag in 0..5 {
        producer.send_tagged(Record::to(TOPIC).value("v"), tag, &sink).await.expect("sent");
    }
    drop((producer, sink));
    let Received { written, failed } = received(completions).await;
    assert!(written.is_empty(), "{written:?}");
    assert_eq!(failed.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    backend.thaw(1);
}
