//! Producers: every record has an outcome, and an acknowledged record is in the topic exactly once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use super::{HOUR_MS, Place, Rig, Steps, Trap, Trouble, park_on, rounds};
use crate::common;
use curtail::{
    Delivery, Error, Producer, ProducerConfig, Record, RecordMetadata, Result,
    producer::ProducerInterceptor,
};
use curtail_net::Entropy;

const PRODUCE: i16 = 0;
const METADATA: i16 = 3;
const INIT_PRODUCER_ID: i16 = 22;

/// A record, and its delivery unless it was refused.
type Sent = (String, Result<Delivery>);

/// Counts outcomes.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl ProducerInterceptor for Counts {
    fn on_acknowledgement(&self, _: &str, _: Result<&RecordMetadata, &Error>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_record_has_an_outcome_when_the_producers_runtime_shuts_down() {
    rounds(round);
}

fn config(rig: &Rig, draw: &Entropy) -> ProducerConfig {
    let mut config = ProducerConfig::new(rig.backend.bootstrap());
    let linger = if draw.below(2) == 0 { "0" } else { "20" };
    for (name, value) in [
        ("max.block.ms", HOUR_MS),
        ("request.timeout.ms", HOUR_MS),
        ("delivery.timeout.ms", "7200000"),
        ("linger.ms", linger),
        ("batch.size", "1024"),
        // Little enough for senders that wait.
        ("buffer.memory", "16384"),
    ] {
        config.set(name, value).expect("a known property");
    }
    if draw.below(3) == 0 { config.interceptor(Counts::default()) } else { config }
}

fn value(who: &str, n: u64) -> String {
    format!("{who}-{n}-{}", "x".repeat(200))
}

fn round(rig: &Rig, seed: u64, steps: Steps) {
    let draw = Entropy::from_seed(seed);
    let topic = format!("shutdown-{seed}");
    rig.create_topic(&topic, 3);
    let mut trap = Trap::set(&draw, steps);
    let trouble = Trouble::draw(&draw, &[PRODUCE, METADATA, INIT_PRODUCER_ID]);
    let trouble_at = draw.below(60);
    let entered = trap.doomed.0.handle.enter();
    let producer = Producer::new(config(rig, &draw)).expect("usable");
    drop(entered);

    let over = Arc::new(AtomicBool::new(false));
    let second = {
        let (producer, topic, over) = (producer.clone(), topic.clone(), over.clone());
        thread::spawn(move || on_a_plain_thread(&producer, &topic, &over))
    };
    let mut sent = Vec::new();
    for n in 0..50 {
        if n == trouble_at {
            rig.trouble(trouble);
        }
        call(&mut trap, &producer, &topic, (draw.below(10), n), &mut sent);
    }
    trap.shut();
    for n in 50..60 {
        call(&mut trap, &producer, &topic, (n - 50, n), &mut sent);
    }
    over.store(true, Ordering::Relaxed);
    trap.steps.enter("the plain thread".into());
    sent.extend(second.join().expect("no panic on the plain thread"));
    let outcomes: Vec<_> = sent
        .into_iter()
        .map(|(value, sent)| {
            let outcome = sent.map(|delivery| trap.run("a delivery", delivery));
            (value, outcome)
        })
        .collect();
    // It waits for acknowledgements, of which all have come: so it has nothing to report.
    trap.run("close", producer.close()).expect("closed");
    trap.steps.enter("the verdict".into());
    rig.no_trouble();
    verdict(rig, &topic, &outcomes);
}

fn call(
    trap: &mut Trap,
    producer: &Producer,
    topic: &str,
    (which, n): (u64, u64),
    sent: &mut Vec<Sent>,
) {
    let value = value("task", n);
    let key = n.to_string();
    let record = Record::to(topic).key(&key).value(&value);
    match which {
        0 => drop(trap.run("flush", producer.flush())),
        1 => drop(trap.run("warm_up", producer.warm_up(&[topic]))),
        2 => drop(trap.run("partitions_for", producer.partitions_for(topic))),
        3 => drop(trap.run("connect", producer.connect())),
        4 | 5 => {
            let tried = trap.now("try_send", || producer.try_send(record));
            sent.push((value.clone(), tried));
        }
        _ => {
            let delivery = trap.run("send", producer.send(record));
            sent.push((value.clone(), delivery));
        }
    }
}

fn on_a_plain_thread(producer: &Producer, topic: &str, over: &AtomicBool) -> Vec<Sent> {
    let mut sent = Vec::new();
    for n in 0..200 {
        let value = value("thread", n);
        let tried = producer.try_send(Record::to(topic).value(&value));
        sent.push((value, tried));
        if n % 8 == 0 {
            // It fails only if the flush of a closed producer does.
            park_on(producer.flush()).expect("flushed");
        }
        if over.load(Ordering::Relaxed) {
            break;
        }
        thread::yield_now();
    }
    sent
}

fn verdict(rig: &Rig, topic: &str, outcomes: &[(String, Result<Result<RecordMetadata>>)]) {
    let written = rig.runtime.block_on(common::read_all(&rig.backend, topic, 3));
    let mut places: BTreeMap<Vec<u8>, Vec<(i32, i64)>> = BTreeMap::new();
    for record in written.values().flatten() {
        let value = record.value().unwrap_or_default().to_vec();
        places.entry(value).or_default().push((record.partition(), record.offset()));
    }
    for (value, outcome) in outcomes {
        let found = places.remove(value.as_bytes()).unwrap_or_default();
        match outcome {
            Ok(Ok(written)) => {
                let offset = written.offset.expect("acks=all");
                assert_eq!(found, [(written.partition, offset)], "{value}");
            }
            Ok(Err(error)) if error.may_have_been_written() => {
                assert!(found.len() <= 1, "{value}: {found:?}");
            }
            Ok(Err(error)) | Err(error) => assert!(found.is_empty(), "{value}: {error}: {found:?}"),
        }
    }
    assert!(places.is_empty(), "records that were not sent: {places:?}");
}

/// The trap's places are all used: a plain thread polls without any runtime.
#[test]
fn send_ends_when_the_runtime_shuts_down_while_buffer_memory_is_full() {
    let rig = Rig::start();
    rig.create_topic("full", 1);
    for (seed, place) in (0..).zip([Place::Plain, Place::Other, Place::Doomed]) {
        let draw = Entropy::from_seed(seed);
        let mut trap = Trap { polls: u64::MAX, place, ..Trap::set(&draw, Steps::default()) };
        let entered = trap.doomed.0.handle.enter();
        let producer = Producer::new(config(&rig, &draw)).expect("usable");
        drop(entered);
        trap.run("warm_up", producer.warm_up(&["full"])).expect("warm");
        rig.trouble(Trouble::Silent(Some(PRODUCE)));
        let value = value("full", seed);
        let mut deliveries = Vec::new();
        while let Ok(delivery) = producer.try_send(Record::to("full").value(&value)) {
            deliveries.push(delivery);
        }
        trap.polls = 10;
        let refused = trap.run("send", producer.send(Record::to("full").value(&value)));
        assert!(matches!(refused, Err(Error::Closed)), "{place:?}: {refused:?}");
        for delivery in deliveries {
            let failed = trap.run("a delivery", delivery).expect_err("no response");
            assert!(matches!(failed, Error::NotAcknowledged { .. }), "{failed:?}");
        }
        rig.no_trouble();
    }
}
