//! Outcomes by tag for plain threads ([`curtail::blocking::Completions`]), on the embedded cluster.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{Backend, read_all},
    completions::Received,
};
use curtail::{
    Error, ProducerConfig, Record,
    blocking::{Completions, Producer, TransactionalProducer},
    producer::CompletionSink,
};
use tokio::runtime::Runtime;

const TOPIC: &str = "tagged";
const PATIENT: Duration = Duration::from_secs(600);

/// A cluster of one broker with the topic, and its runtime.
fn cluster(partitions: i32) -> (Runtime, Backend) {
    let runtime = Runtime::new().expect("a runtime");
    let backend = runtime.block_on(async {
        let backend =
            Backend::embedded_with(1, |config| config.broker_session_timeout = PATIENT).await;
        backend.create_topic(TOPIC, partitions, 1).await;
        backend
    });
    (runtime, backend)
}

fn config(backend: &Backend, properties: &[(&str, &str)]) -> ProducerConfig {
    let mut config = ProducerConfig::new(backend.bootstrap());
    for (name, value) in properties {
        config.set(name, value).expect("a known property");
    }
    config
}

fn warm(backend: &Backend, properties: &[(&str, &str)]) -> Producer {
    let producer = Producer::new(config(backend, properties)).expect("usable");
    producer.warm_up(&[TOPIC]).expect("warm");
    producer
}

/// Runs `work` on a plain thread. Fails if it hangs.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    move || result.recv_timeout(PATIENT).expect("the thread ends")
}

/// Receives until the sinks and their records have ended.
fn received(completions: Completions) -> Received {
    let mut all = Received::default();
    completions.for_each(|run| all.add(&run.expect("no async context")));
    all
}

fn refused<T>(result: curtail::Result<T>) {
    match result {
        Err(Error::IllegalState(text)) => assert!(text.contains("async context"), "{text}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Threads share a producer and a sink. The receiver's thread learns the offset of each record.
#[test]
fn a_thread_receives_the_records_of_many_threads() {
    const RECORDS: u64 = 500;
    let (runtime, backend) = cluster(3);
    let producer = warm(&backend, &[]);
    let (sink, completions) = producer.completions();
    let receiving = on_a_thread(move || received(completions));
    let send = |from: u64, sink: &CompletionSink| {
        for tag in from..from + RECORDS {
            let value = tag.to_string();
            let record = Record::to(TOPIC).value(&value);
            match tag % 2 {
                0 => producer.send_tagged(record, tag, sink).expect("sent"),
                _ => producer.try_send_tagged(record, tag, sink).expect("sent"),
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let (sink, send) = (sink.clone(), &send);
            scope.spawn(move || send(thread * RECORDS, &sink));
        }
    });
    drop(sink);
    // The receiver ends without a close: its records are acknowledged.
    let Received { written, failed } = receiving();
    assert!(failed.is_empty(), "{failed:?}");
    producer.close().expect("closed");
    let told: BTreeMap<_, _> = written.into_iter().map(|(tag, place)| (place, tag)).collect();
    let read = runtime.block_on(read_all(&backend, TOPIC, 3)).into_values().flatten();
    let log: BTreeMap<_, u64> = read
        .map(|record| {
            let value = std::str::from_utf8(record.value().expect("a value")).expect("text");
            ((record.partition(), Some(record.offset())), value.parse().expect("a tag"))
        })
        .collect();
    assert_eq!(log.len() as u64, 4 * RECORDS);
    assert_eq!(told, log);
}

/// A thread that waits is woken by a run, and by the end of the last sink.
#[test]
fn a_waiting_thread_is_woken_by_a_run_and_by_the_last_sink() {
    let (_runtime, backend) = cluster(1);
    let producer = warm(&backend, &[("linger.ms", "60000")]);
    let (sink, mut completions) = producer.completions();
    producer.send_tagged(Record::to(TOPIC).value("v"), 7, &sink).expect("sent");
    let (steps, step) = mpsc::channel();
    let receiving = on_a_thread(move || {
        steps.send(()).expect("the test listens");
        let first = completions.recv().expect("no async context").expect("a run");
        steps.send(()).expect("the test listens");
        let second = completions.recv_timeout(PATIENT).expect("no async context").expect("a run");
        steps.send(()).expect("the test listens");
        let end = completions.recv().expect("no async context").is_none();
        (first.tags().to_vec(), second.tags().to_vec(), end, completions.is_ended())
    });
    let next = || step.recv_timeout(PATIENT).expect("the thread continues");
    next();
    producer.flush().expect("flushed");
    next();
    producer.send_tagged(Record::to(TOPIC).value("v"), 8, &sink).expect("sent");
    producer.flush().expect("flushed");
    next();
    drop(sink);
    assert_eq!(receiving(), (vec![7], vec![8], true, true));
}

/// A wait that times out takes no run, and can be repeated.
#[test]
fn recv_timeout_returns_none_after_its_limit_and_takes_no_run() {
    let (_runtime, backend) = cluster(1);
    let producer = warm(&backend, &[("linger.ms", "60000")]);
    let (sink, mut completions) = producer.completions();
    producer.send_tagged(Record::to(TOPIC).value("v"), 7, &sink).expect("sent");
    let limit = Duration::from_millis(30);
    let began = Instant::now();
    assert!(completions.recv_timeout(limit).expect("no async context").is_none());
    assert!(began.elapsed() >= limit);
    assert!(completions.recv_timeout(Duration::ZERO).expect("no async context").is_none());
    assert!(completions.try_recv().is_none() && !completions.is_ended());
    producer.flush().expect("flushed");
    // A run that has arrived is returned without a wait.
    let run = completions.recv_timeout(Duration::ZERO).expect("no async context");
    assert_eq!(run.expect("flushed, so the run has arrived").tags(), [7]);
    drop(sink);
    assert!(completions.recv_timeout(PATIENT).expect("no async context").is_none());
    assert!(completions.is_ended() && completions.next().is_none());
}

/// Blocking calls are refused inside an async context, and take nothing. The others work there.
#[test]
fn blocking_calls_are_refused_inside_an_async_context() {
    let (runtime, backend) = cluster(1);
    let producer = warm(&backend, &[("linger.ms", "60000")]);
    let (sink, mut completions) = producer.completions();
    producer.send_tagged(Record::to(TOPIC).value("v"), 7, &sink).expect("sent");
    producer.flush().expect("flushed");
    let record = Record::to(TOPIC).value("v");
    runtime.block_on(async {
        refused(completions.recv());
        refused(completions.recv_timeout(PATIENT));
        refused(completions.next().expect("an error"));
        refused(producer.send_tagged(record, 8, &sink));
        producer.try_send_tagged(record, 9, &sink).expect("does not block");
        assert_eq!(completions.try_recv().expect("still there").tags(), [7]);
    });
    producer.flush().expect("flushed");
    // The refused send has appended nothing.
    assert_eq!(completions.recv().expect("no async context").expect("a run").tags(), [9]);
    runtime.block_on(async { drop((completions, sink, producer)) });
}

/// A dropped receiver discards the outcomes with their memory, and disturbs no send.
#[test]
fn a_dropped_receiver_stops_no_sender() {
    let (_runtime, backend) = cluster(1);
    let producer = warm(&backend, &[("buffer.memory", "655360"), ("batch.size", "65536")]);
    let all = producer.available_memory();
    let (sink, completions) = producer.completions();
    let value = vec![b'x'; 30_000];
    // A run that the receiver has not taken, and a batch that ends later.
    producer.send_tagged(Record::to(TOPIC).value(&value), 0, &sink).expect("sent");
    producer.flush().expect("flushed");
    producer.send_tagged(Record::to(TOPIC).value(&value), 1, &sink).expect("sent");
    drop(completions);
    // More than `buffer.memory`.
    for tag in 2..100 {
        producer.send_tagged(Record::to(TOPIC).value(&value), tag, &sink).expect("sent");
    }
    producer.flush().expect("flushed");
    let deadline = Instant::now() + PATIENT;
    while producer.available_memory() < all {
        assert!(Instant::now() < deadline, "memory is returned");
        thread::yield_now();
    }
}

/// A thread that only sends fills `buffer.memory` with runs: its send fails after `max.block.ms`. Received runs make
/// room.
#[test]
fn undrained_runs_bound_the_memory_of_a_blocking_producer() {
    let (_runtime, backend) = cluster(1);
    let properties =
        [("buffer.memory", "655360"), ("batch.size", "65536"), ("max.block.ms", "1000")];
    let producer = warm(&backend, &properties);
    let all = producer.available_memory();
    let (sink, mut completions) = producer.completions();
    let value = vec![b'x'; 30_000];
    let mut received = Received::default();
    let mut sent = 0;
    for _ in 0..2 {
        let full = loop {
            assert!(sent < 1000, "nothing bounds the memory");
            match producer.send_tagged(Record::to(TOPIC).value(&value), sent, &sink) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::BufferFull { .. }), "{full}");
        producer.flush().expect("flushed");
        while let Some(run) = completions.try_recv() {
            received.add(&run);
        }
        assert_eq!((received.written.len() as u64, received.failed.len()), (sent, 0));
        assert_eq!(producer.available_memory(), all);
    }
}

/// Runs that no thread has taken outlive a closed producer. Records of a dropped producer fail.
#[test]
fn the_receiver_outlives_its_producer() {
    let (_runtime, backend) = cluster(1);
    let producer = warm(&backend, &[("linger.ms", "60000")]);
    let (sink, completions) = producer.completions();
    for tag in 0..10 {
        producer.send_tagged(Record::to(TOPIC).value("v"), tag, &sink).expect("sent");
    }
    let other = producer.clone();
    producer.close().expect("closed");
    let late = other.send_tagged(Record::to(TOPIC).value("v"), 10, &sink).expect_err("closed");
    assert!(matches!(late, Error::Closed), "{late}");
    drop((other, sink));
    let Received { written, failed } = on_a_thread(move || received(completions))();
    assert!(written.keys().copied().eq(0..10) && failed.is_empty(), "{written:?} {failed:?}");

    let producer = warm(&backend, &[("linger.ms", "60000")]);
    let (sink, completions) = producer.completions();
    backend.freeze(1);
    for tag in 0..10 {
        producer.send_tagged(Record::to(TOPIC).value("v"), tag, &sink).expect("sent");
    }
    drop(sink);
    let receiving = on_a_thread(move || received(completions));
    drop(producer);
    let Received { written, failed } = receiving();
    assert!(failed.keys().copied().eq(0..10) && written.is_empty(), "{written:?} {failed:?}");
    backend.thaw(1);
}

/// Threads share a transaction. When a commit returns, its runs have arrived; an abort fails what was not sent.
#[test]
fn threads_share_a_transaction_by_tags() {
    let (runtime, backend) = cluster(3);
    let properties = [("linger.ms", "60000"), ("transactional.id", "tagged")];
    let mut producer = TransactionalProducer::new(config(&backend, &properties)).expect("usable");
    producer.init_transactions().expect("initialized");
    producer.warm_up(&[TOPIC]).expect("warm");
    let (sink, mut completions) = producer.completions();
    let mut all = Received::default();
    for commits in [true, false, true] {
        let transaction = producer.begin_transaction().expect("begun");
        let before = all.written.len() as u64 + all.failed.len() as u64;
        thread::scope(|scope| {
            for thread in 0..3u64 {
                let (transaction, sink) = (&transaction, &sink);
                scope.spawn(move || {
                    for number in 0..10 {
                        let tag = before + 10 * thread + number;
                        let record = Record::to(TOPIC).partition(thread as i32).value("v");
                        match tag % 2 {
                            0 => transaction.send_tagged(record, tag, sink).expect("sent"),
                            _ => transaction.try_send_tagged(record, tag, sink).expect("sent"),
                        }
                    }
                });
            }
        });
        assert!(completions.try_recv().is_none(), "the records linger");
        runtime.block_on(async {
            refused(transaction.send_tagged(Record::to(TOPIC).value("v"), 999, &sink));
        });
        match commits {
            true => transaction.commit().expect("committed"),
            false => transaction.abort().expect("aborted"),
        }
        while let Some(run) = completions.try_recv() {
            all.add(&run);
        }
        assert_eq!(all.written.len() as u64 + all.failed.len() as u64, before + 30);
    }
    assert!(all.failed.keys().copied().eq(30..60), "{:?}", all.failed);
    // A transaction makes a pair, too; closing the producer aborts its records.
    let transaction = producer.begin_transaction().expect("begun");
    let (other, others) = transaction.completions();
    transaction.send_tagged(Record::to(TOPIC).value("v"), 0, &other).expect("sent");
    drop((transaction, other, sink));
    assert!(completions.recv().expect("no async context").is_none());
    let receiving = on_a_thread(move || received(others));
    producer.close().expect("closed");
    let Received { written, failed } = receiving();
    assert!(written.is_empty() && failed.len() == 1, "{written:?} {failed:?}");
}
