//! Transactional producers: a transaction is all or nothing, and a commit that succeeded is visible.

use std::{collections::BTreeMap, time::Duration};

use super::{HOUR_MS, Rig, Steps, Trap, Trouble, rounds};
use curtail::{
    Consumer, ConsumerConfig, ProducerConfig, Record, TopicPartition, TransactionalProducer,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};
use curtail_net::Entropy;

const PRODUCE: i16 = 0;
const FIND_COORDINATOR: i16 = 10;
const INIT_PRODUCER_ID: i16 = 22;
const END_TXN: i16 = 26;
const TXN_OFFSET_COMMIT: i16 = 28;

const RECORDS: usize = 4;

/// The end of a transaction, as its calls returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed,
    Aborted,
    Unknown,
}

#[test]
fn transactions_stay_whole_when_the_producers_runtime_shuts_down() {
    rounds(round);
}

fn config(rig: &Rig, id: &str) -> ProducerConfig {
    let mut config = ProducerConfig::new(rig.backend.bootstrap()).transactional_id(id);
    for (name, value) in [
        ("max.block.ms", HOUR_MS),
        ("request.timeout.ms", HOUR_MS),
        ("delivery.timeout.ms", "7200000"),
    ] {
        config.set(name, value).expect("a known property");
    }
    config
}

fn round(rig: &Rig, seed: u64, steps: Steps) {
    let draw = Entropy::from_seed(seed);
    let topic = format!("shutdown-{seed}");
    rig.create_topic(&topic, 1);
    let mut trap = Trap::set(&draw, steps);
    let apis = [PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT];
    let (trouble, trouble_at) = (Trouble::draw(&draw, &apis), draw.below(12));
    let entered = trap.doomed.0.handle.enter();
    let mut producer = TransactionalProducer::new(config(rig, &topic)).expect("usable");
    drop(entered);

    let mut ends = BTreeMap::new();
    for n in 0..12 {
        if n == trouble_at {
            rig.trouble(trouble);
        }
        if n == 10 {
            trap.shut();
        }
        // Only the first call does anything.
        drop(trap.run("init_transactions", producer.init_transactions()));
        let end = transaction(&mut trap, &mut producer, &topic, n, draw.below(4));
        ends.insert(n, end);
    }
    drop(trap.run("close", producer.close()));
    trap.steps.enter("the verdict".into());
    rig.no_trouble();
    verdict(rig, &topic, &ends);
}

fn transaction(
    trap: &mut Trap,
    producer: &mut TransactionalProducer,
    topic: &str,
    n: u64,
    how: u64,
) -> End {
    let Ok(transaction) = trap.run("begin_transaction", producer.begin_transaction()) else {
        return End::Unknown;
    };
    let mut deliveries = Vec::new();
    for i in 0..RECORDS {
        let value = format!("{n}-{i}");
        let record = Record::to(topic).value(&value);
        deliveries.extend(trap.run("send", transaction.send(record)));
    }
    let complete = deliveries.len() == RECORDS;
    if how == 0 {
        drop(trap.run("flush", transaction.flush()));
    }
    if how == 1 {
        let offsets = [(TopicPartition::new(topic, 0), OffsetAndMetadata::new(1))];
        let group = ConsumerGroupMetadata::new(topic);
        let sent = transaction.send_offsets_to_transaction(offsets, &group);
        drop(trap.run("send_offsets_to_transaction", sent));
    }
    let end = if how == 2 || !complete {
        let aborted = trap.run("abort", transaction.abort());
        if aborted.is_ok() { End::Aborted } else { End::Unknown }
    } else {
        let mut committed = trap.run("commit", transaction.commit());
        if committed.is_err() && how == 3 {
            committed = trap.run("commit_transaction", producer.commit_transaction());
        }
        if committed.is_ok() { End::Committed } else { End::Unknown }
    };
    for delivery in deliveries {
        let outcome = trap.run("a delivery", delivery);
        assert!(end != End::Committed || outcome.is_ok(), "{n} was committed: {outcome:?}");
    }
    end
}

fn verdict(rig: &Rig, topic: &str, ends: &BTreeMap<u64, End>) {
    let visible = rig.runtime.block_on(async {
        // Ends the transaction that the producer has left open.
        let mut next = TransactionalProducer::new(config(rig, topic)).expect("usable");
        next.init_transactions().await.expect("initialized");
        next.close().await.expect("closed");
        read_committed(rig, topic).await
    });
    for (n, end) in ends {
        let whole: Vec<String> = (0..RECORDS).map(|i| format!("{n}-{i}")).collect();
        let prefix = format!("{n}-");
        let found: Vec<String> =
            visible.iter().filter(|value| value.starts_with(&prefix)).cloned().collect();
        let is_whole = found == whole;
        let as_promised = match end {
            End::Committed => is_whole,
            End::Aborted => found.is_empty(),
            End::Unknown => is_whole || found.is_empty(),
        };
        assert!(as_promised, "transaction {n} is {end:?}: {found:?}");
    }
}

async fn read_committed(rig: &Rig, topic: &str) -> Vec<String> {
    let mut config = ConsumerConfig::new(rig.backend.bootstrap());
    config.set("isolation.level", "read_committed").expect("a known property");
    let mut consumer = Consumer::new(config).expect("usable");
    let at = TopicPartition::new(topic, 0);
    let uncommitted = Consumer::new(ConsumerConfig::new(rig.backend.bootstrap())).expect("usable");
    let end = uncommitted.end_offsets(std::slice::from_ref(&at)).await.expect("ends")[&at];
    consumer.assign([at.clone()]);
    consumer.seek_to_beginning([&at]).expect("assigned");
    let mut values = Vec::new();
    while consumer.position(&at).await.expect("a position") < end {
        for record in consumer.poll(Duration::from_millis(100)).await.expect("records") {
            values.push(String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned());
        }
    }
    values
}
