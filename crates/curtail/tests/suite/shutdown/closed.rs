//! Calls after the end of a client's runtime.

use std::{fmt::Debug, future::Future, time::Duration};

use super::{HOUR, Rig, park_on, workers};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record, Result,
    TopicPartition, TransactionalProducer, admin::NewTopic,
};
use tokio::runtime::{Builder, Runtime};

const TOPIC: &str = "closed";

/// Time after which a call that should fail at once hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread().enable_all().build().expect("a runtime"), workers(2)]
}

/// Checks a call on a thread without a runtime, and on another runtime.
fn is_closed<T: Debug, F: Future<Output = Result<T>>>(name: &str, mut call: impl FnMut() -> F) {
    let plain = park_on(call());
    assert!(matches!(plain, Err(Error::Closed)), "{name} on a plain thread: {plain:?}");
    let other = workers(1).block_on(async { tokio::time::timeout(LIMIT, call()).await });
    let other = other.unwrap_or_else(|_| panic!("{name} does not end"));
    assert!(matches!(other, Err(Error::Closed)), "{name} on another runtime: {other:?}");
}

#[test]
fn a_producers_calls_fail_with_closed_after_its_runtime_has_ended() {
    let rig = Rig::start();
    rig.create_topic(TOPIC, 1);
    for is_used in [false, true] {
        for runtime in runtimes() {
            let config = ProducerConfig::new(rig.backend.bootstrap());
            let producer = runtime.block_on(async { Producer::new(config).expect("usable") });
            if is_used {
                let sent = producer.send(Record::to(TOPIC).value("used"));
                drop(runtime.block_on(sent).expect("sent"));
                runtime.block_on(producer.flush()).expect("written");
            }
            drop(runtime);
            is_closed("send", || producer.send(Record::to(TOPIC).value("late")));
            is_closed("send to an unknown topic", || producer.send(Record::to("other").value("")));
            for topic in [TOPIC, "other"] {
                let tried = producer.try_send(Record::to(topic).value("late"));
                assert!(matches!(tried, Err(Error::Closed)), "try_send to {topic}: {tried:?}");
            }
            is_closed("warm_up", || producer.warm_up(&[TOPIC]));
            is_closed("partitions_for", || producer.partitions_for(TOPIC));
            is_closed("connect", || producer.connect());
            park_on(producer.flush()).expect("nothing to wait for");
            park_on(producer.close()).expect("nothing to wait for");
        }
    }
}

#[test]
fn a_transactional_producers_calls_fail_with_closed_after_its_runtime_has_ended() {
    let rig = Rig::start();
    rig.create_topic(TOPIC, 1);
    for runtime in runtimes() {
        let new = |id: &str| {
            let config = ProducerConfig::new(rig.backend.bootstrap()).transactional_id(id);
            TransactionalProducer::new(config).expect("usable")
        };
        let (mut unused, mut ready, mut open) =
            runtime.block_on(async { (new("unused"), new("ready"), new("open")) });
        runtime.block_on(ready.init_transactions()).expect("initialized");
        runtime.block_on(open.init_transactions()).expect("initialized");
        let transaction = runtime.block_on(open.begin_transaction()).expect("begun");
        drop(runtime.block_on(transaction.send(Record::to(TOPIC).value("in time"))).expect("sent"));
        drop(runtime);
        let tried = transaction.try_send(Record::to("other").value("late"));
        assert!(matches!(tried, Err(Error::Closed)), "try_send: {tried:?}");
        is_closed("send", || transaction.send(Record::to(TOPIC).value("late")));
        is_closed("flush", || transaction.flush());
        let committed = park_on(transaction.commit());
        assert!(matches!(committed, Err(Error::Closed)), "commit: {committed:?}");
        let repeated = park_on(open.commit_transaction());
        assert!(matches!(repeated, Err(Error::Closed)), "commit_transaction: {repeated:?}");
        let aborted = park_on(open.abort_transaction());
        assert!(matches!(aborted, Err(Error::Closed)), "abort_transaction: {aborted:?}");
        let closed = park_on(open.close());
        assert!(matches!(closed, Err(Error::Closed)), "close: {closed:?}");
        for producer in [&mut unused, &mut ready] {
            let initialized = park_on(producer.init_transactions());
            assert!(matches!(initialized, Err(Error::Closed)), "init: {initialized:?}");
            let begun = park_on(producer.begin_transaction());
            assert!(matches!(begun, Err(Error::Closed)), "begin_transaction: {begun:?}");
        }
    }
}

#[test]
fn a_consumers_calls_fail_with_closed_after_its_runtime_has_ended() {
    let rig = Rig::start();
    rig.create_topic(TOPIC, 1);
    let at = TopicPartition::new(TOPIC, 0);
    for is_member in [false, true] {
        for (n, runtime) in runtimes().into_iter().enumerate() {
            // The member of the runtime before stays in its group until `session.timeout.ms`.
            let group = format!("closed-{n}");
            let config = ConsumerConfig::new(rig.backend.bootstrap()).group_id(group);
            let mut consumer = runtime.block_on(async { Consumer::new(config).expect("usable") });
            if is_member {
                consumer.subscribe([TOPIC]).expect("subscribed");
                while consumer.assignment().is_empty() {
                    runtime.block_on(consumer.poll(Duration::from_millis(10))).expect("polled");
                }
            } else {
                consumer.assign([at.clone()]);
            }
            drop(runtime);
            let polled = park_on(consumer.poll(HOUR));
            assert!(matches!(polled, Err(Error::Closed)), "poll: {polled:?}");
            let polled = park_on(consumer.poll_batch(HOUR));
            assert!(matches!(polled, Err(Error::Closed)), "poll_batch: {polled:?}");
            let offsets = [(at.clone(), curtail::transaction::OffsetAndMetadata::new(0))];
            let committed = park_on(consumer.commit_offsets(offsets));
            assert!(matches!(committed, Err(Error::Closed)), "commit: {committed:?}");
            let partitions = std::slice::from_ref(&at);
            is_closed("committed", || consumer.committed(partitions));
            is_closed("end_offsets", || consumer.end_offsets(partitions));
            is_closed("partitions_for", || consumer.partitions_for(TOPIC));
            is_closed("connect", || consumer.connect());
            // A call that changes the assignment has no request to wait for.
            consumer.unsubscribe();
            consumer.assign([TopicPartition::new("other", 0)]);
            is_closed("position", || async {
                consumer.position(&TopicPartition::new("other", 0)).await
            });
            park_on(consumer.close());
        }
    }
}

#[test]
fn queues_fail_with_closed_after_their_runtime_has_ended() {
    let rig = Rig::start();
    rig.create_topic(TOPIC, 2);
    for runtime in runtimes() {
        let mut queues = runtime.block_on(async {
            let config = ConsumerConfig::new(rig.backend.bootstrap());
            let mut consumer = Consumer::new(config).expect("usable");
            consumer.assign([TopicPartition::new(TOPIC, 0), TopicPartition::new(TOPIC, 1)]);
            consumer.into_queues()
        });
        let mut queue = runtime.block_on(queues.next()).expect("assigned");
        drop(runtime);
        let read = park_on(queue.next());
        assert!(matches!(read, Some(Err(Error::Closed))), "next of a queue: {read:?}");
        // A task drops its queue after this error. The consumer must not return another queue for it.
        drop(queue);
        let mut left = Vec::new();
        let closed = loop {
            match park_on(queues.next()) {
                Ok(queue) => left.push(queue.partition().clone()),
                Err(error) => break error,
            }
            assert!(left.len() <= 1, "queues of a consumer that is closed: {left:?}");
        };
        assert!(matches!(closed, Error::Closed), "next: {closed:?}");
        park_on(queues.close());
    }
}

#[test]
fn an_admins_calls_fail_with_closed_after_its_runtime_has_ended() {
    let rig = Rig::start();
    for is_used in [false, true] {
        for runtime in runtimes() {
            let config = AdminConfig::new(rig.backend.bootstrap());
            let admin = runtime.block_on(async { Admin::new(config).expect("usable") });
            if is_used {
                runtime.block_on(admin.list_topics()).expect("listed");
            }
            drop(runtime);
            is_closed("list_topics", || admin.list_topics());
            is_closed("describe_cluster", || admin.describe_cluster());
            is_closed("create_topics", || async {
                admin.create_topics(&[NewTopic::new("late")]).await
            });
        }
    }
}

#[test]
fn a_client_made_on_a_runtime_that_has_ended_is_closed() {
    let rig = Rig::start();
    for runtime in runtimes() {
        let handle = runtime.handle().clone();
        drop(runtime);
        let entered = handle.enter();
        let producer = Producer::new(ProducerConfig::new(rig.backend.bootstrap())).expect("usable");
        let config = ConsumerConfig::new(rig.backend.bootstrap()).group_id("closed");
        let mut consumer = Consumer::new(config).expect("usable");
        let admin = Admin::new(AdminConfig::new(rig.backend.bootstrap())).expect("usable");
        drop(entered);
        is_closed("send", || producer.send(Record::to(TOPIC).value("late")));
        is_closed("list_topics", || admin.list_topics());
        consumer.subscribe([TOPIC]).expect("subscribed");
        let polled = park_on(consumer.poll(HOUR));
        assert!(matches!(polled, Err(Error::Closed)), "poll: {polled:?}");
        park_on(consumer.close());
    }
}
