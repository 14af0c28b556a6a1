//! Queues by partition, processing in key order, handles, and the ends of a membership.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

use curtail::consumer::{
    CloseOptions, GroupMembership, InKeyOrder, PartitionQueue, PartitionQueues,
};
use tokio::{
    runtime::{Handle, Id},
    sync::Notify,
    task::JoinSet,
    time::timeout,
};

use super::*;

const TEN: (&str, &str) = ("max.poll.records", "10");

/// Returns the next queue.
async fn queue(queues: &mut PartitionQueues) -> PartitionQueue {
    timeout(LIMIT, queues.next()).await.expect("a queue in time").unwrap()
}

/// Serves the group until the queue returns records or ends. Returns their offsets.
async fn next(queues: &mut PartitionQueues, queue: &mut PartitionQueue) -> Option<Vec<i64>> {
    let records = tokio::select! {
        records = queue.next() => records?.unwrap(),
        other = queues.next() => panic!("another queue: {other:?}"),
        () = tokio::time::sleep(LIMIT) => panic!("no records within {LIMIT:?}"),
    };
    Some(records.iter().map(ConsumerRecord::offset).collect())
}

async fn committed(backend: &Bench<'_>, group: &str, partitions: i32) -> Vec<Option<i64>> {
    let consumer = Consumer::new(config(backend, group, &[])).unwrap();
    let all: Vec<_> = (0..partitions).map(|index| at(group, index)).collect();
    let committed = consumer.committed(&all).await.unwrap();
    committed.into_values().map(|offset| offset.map(|offset| offset.offset)).collect()
}

pub(super) async fn partitions_are_processed_in_parallel(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 4, 1).await;
    produce(&common::producer(backend, &[]), name, 4, 0..50).await;
    let mut queues = member(backend, name, &[TEN]).into_queues();
    let done = Arc::new(Notify::new());
    let left = Arc::new(AtomicUsize::new(4 * 50));
    let mut tasks = JoinSet::new();
    let all_read = async {
        loop {
            let mut queue = queues.next().await.unwrap();
            let (done, left) = (done.clone(), left.clone());
            tasks.spawn(async move {
                let mut read = Vec::new();
                while let Some(records) = queue.next().await {
                    for record in records.unwrap() {
                        assert_eq!(record.topic_partition(), *queue.partition());
                        read.push(record.offset());
                        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                            done.notify_one();
                        }
                    }
                }
                (queue.partition().partition, read)
            });
        }
    };
    tokio::select! {
        () = all_read => {}
        () = done.notified() => {}
        () = tokio::time::sleep(LIMIT) => panic!("{left:?} records left"),
    }
    queues.close().await;
    let read: BTreeMap<i32, Vec<i64>> = tasks.join_all().await.into_iter().collect();
    assert_eq!(read.len(), 4);
    for (partition, offsets) in read {
        assert_eq!(offsets, (0..50).collect::<Vec<_>>(), "partition {partition}");
    }
    assert_eq!(committed(backend, name, 4).await, [Some(50); 4]);
}

pub(super) async fn a_slow_queue_does_not_delay_the_others(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    let producer = common::producer(backend, &[]);
    produce(&producer, name, 2, 0..10).await;
    let small = ("curtail.prefetch.bytes", "10000");
    let mut queues = member(backend, name, &[TEN, small]).into_queues();
    let mut one = queue(&mut queues).await;
    let mut other = queue(&mut queues).await;
    // Its task keeps these records for the rest of the case, and more than its share of the memory arrives.
    let kept = next(&mut queues, &mut one).await.unwrap();
    assert_eq!(kept[0], 0);
    let large = "x".repeat(1_000);
    for _ in 0..100 {
        let record = Record::to(name).partition(one.partition().partition).value(&large);
        producer.send(record).await.unwrap().await.unwrap();
    }
    let mut read = 0;
    for value in 10..60 {
        let value = value.to_string();
        let record = Record::to(name).partition(other.partition().partition).value(&value);
        producer.send(record).await.unwrap().await.unwrap();
    }
    while read < 60 {
        read += next(&mut queues, &mut other).await.unwrap().len();
    }
    let mut offset = kept.len() as i64;
    while offset < 110 {
        for read in next(&mut queues, &mut one).await.unwrap() {
            assert_eq!(read, offset);
            offset += 1;
        }
    }
    drop((one, other));
    queues.close().await;
}

pub(super) async fn unfinished_records_of_a_dropped_queue_are_read_again(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..30).await;
    let mut queues = member(backend, name, &[TEN]).into_queues();
    let mut first = queue(&mut queues).await;
    assert_eq!(next(&mut queues, &mut first).await.unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(next(&mut queues, &mut first).await.unwrap(), (10..20).collect::<Vec<_>>());
    drop(first);
    let mut second = queue(&mut queues).await;
    assert_eq!(next(&mut queues, &mut second).await.unwrap(), (10..20).collect::<Vec<_>>());
    // Only finished records are committed, also if their task takes longer than the close waits.
    queues.close_with(CloseOptions::new().timeout(Duration::from_millis(300))).await;
    assert!(second.next().await.is_none());
    // The commit may arrive after the close.
    let arrived = async {
        loop {
            match committed(backend, name, 1).await[..] {
                [None] => {}
                [Some(10)] => break,
                ref other => panic!("{other:?}"),
            }
        }
    };
    timeout(LIMIT, arrived).await.expect("the commit arrives");
}

pub(super) async fn a_revoked_partition_waits_for_its_unfinished_records(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..20).await;
    let mut queues = member(backend, name, &[TEN]).into_queues();
    let mut first = queue(&mut queues).await;
    let mut second = queue(&mut queues).await;
    for queue in [&mut first, &mut second] {
        assert_eq!(next(&mut queues, queue).await.unwrap(), (0..10).collect::<Vec<_>>());
    }
    let mut other = member(backend, name, &[]);
    // The group waits for this member, however often the other one polls.
    let mut polls = 0;
    let begun = Instant::now();
    while polls < 20 {
        assert!(begun.elapsed() < LIMIT, "no partition is revoked");
        tokio::select! {
            queue = queues.next() => panic!("another queue: {queue:?}"),
            records = other.poll(LOOK) => assert!(records.unwrap().is_empty()),
        }
        polls += usize::from(first.is_revoked() || second.is_revoked());
    }
    assert!(other.assignment().is_empty());
    // Now the tasks go on. Their records count as processed, and a revoked queue ends.
    let mut kept = VecDeque::from([first, second]);
    let mut read: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    let begun = Instant::now();
    while read.values().map(Vec::len).sum::<usize>() < 20 {
        assert!(begun.elapsed() < LIMIT, "{read:?} {:?}", other.assignment());
        let mut queue = kept.pop_front();
        let mut more = async || match &mut queue {
            Some(queue) => queue.next().await,
            None => std::future::pending().await,
        };
        tokio::select! {
            biased;
            records = more() => match records {
                Some(records) => for record in records.unwrap() {
                    read.entry(record.partition()).or_default().push(record.offset());
                },
                None => queue = None,
            },
            new = queues.next() => kept.push_back(new.unwrap()),
            records = other.poll(LOOK) => for record in records.unwrap() {
                read.entry(record.partition()).or_default().push(record.offset());
            },
        }
        kept.extend(queue);
    }
    // Each of the other records is read once, by either member.
    let expected: Vec<i64> = (10..20).collect();
    assert_eq!(read, [(0, expected.clone()), (1, expected)].into());
    drop(kept);
    queues.close().await;
    other.close().await;
}

/// The coordinator removes a member whose tasks do not finish the records of revoked partitions. Other members then
/// own all its partitions. All its queues end, and it joins again.
pub(super) async fn all_queues_end_when_the_group_no_longer_waits_for_one(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..20).await;
    let impatient = [TEN, ("max.poll.interval.ms", "2000")];
    let mut queues = member(backend, name, &impatient).into_queues();
    let mut kept = [queue(&mut queues).await, queue(&mut queues).await];
    for queue in &mut kept {
        assert_eq!(next(&mut queues, queue).await.unwrap(), (0..10).collect::<Vec<_>>());
    }
    let mut other = member(backend, name, &impatient);
    let begun = Instant::now();
    let mut new = Vec::new();
    // Neither task finishes its records.
    while !kept.iter().all(PartitionQueue::is_revoked) || new.is_empty() {
        let revoked: Vec<bool> = kept.iter().map(PartitionQueue::is_revoked).collect();
        assert!(begun.elapsed() < LIMIT, "revoked {revoked:?}, new {new:?}");
        tokio::select! {
            queue = queues.next() => new.push(queue.unwrap()),
            records = other.poll(LOOK) => drop(records.unwrap()),
        }
    }
    for mut queue in kept {
        assert!(queue.next().await.is_none());
    }
    drop(new);
    queues.close().await;
    other.close().await;
}

/// Also with commits that are due: the member does not poll for them.
pub(super) async fn queues_of_a_member_that_does_not_poll_end(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..20).await;
    let quick = [TEN, ("max.poll.interval.ms", "1500"), ("auto.commit.interval.ms", "100")];
    let mut queues = member(backend, name, &quick).into_queues();
    let mut first = queue(&mut queues).await;
    assert_eq!(next(&mut queues, &mut first).await.unwrap(), (0..10).collect::<Vec<_>>());
    // From now on only the task of the queue continues.
    let rest = async {
        let mut rest = Vec::new();
        while let Some(records) = first.next().await {
            rest.extend(records.unwrap().iter().map(ConsumerRecord::offset));
        }
        rest
    };
    let rest = timeout(LIMIT, rest).await.expect("the queue ends");
    assert_eq!(rest, (10..20).collect::<Vec<_>>());
    // The lost records are not committed.
    let mut again = queue(&mut queues).await;
    assert_eq!(next(&mut queues, &mut again).await.unwrap(), (0..10).collect::<Vec<_>>());
    drop((first, again));
    queues.close().await;
}

pub(super) async fn a_panic_of_a_handler_waits_for_the_others_of_its_partition(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..2).await;
    let (begun, panics) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let ended = Arc::new(AtomicUsize::new(0));
    let handler = {
        let ended = ended.clone();
        move |record: ConsumerRecord| {
            let (begun, panics, ended) = (begun.clone(), panics.clone(), ended.clone());
            async move {
                if record.offset() == 1 {
                    begun.notified().await;
                    panics.notify_one();
                    panic!("the handler panics");
                }
                begun.notify_one();
                panics.notified().await;
                // The worker learns of the panic.
                for _ in 0..1_000 {
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
                Ok::<(), Error>(())
            }
        }
    };
    let consumer = member(backend, name, &[]);
    let run = tokio::spawn(InKeyOrder::new(4).run(consumer, std::future::pending(), handler));
    let panicked = timeout(LIMIT, run).await.expect("ends in time").unwrap_err();
    assert_eq!(panicked.into_panic().downcast_ref::<&str>().copied(), Some("the handler panics"));
    assert_eq!(ended.load(Ordering::SeqCst), 1, "the other handler was aborted");
}

/// A pause that exceeds the limit of set-aside records drops them. They are fetched again, and no earlier ones.
pub(super) async fn a_pause_by_a_handle_returns_no_batch_twice(backend: &Bench<'_>, name: &str) {
    const SMALL: usize = 1_000;
    const LARGE: usize = 3_000;
    backend.create_topic(name, 2, 1).await;
    let producer = common::producer(backend, &[("linger.ms", "600000")]);
    let batch = async |partition: i32, bytes: usize| {
        let value = "x".repeat(bytes);
        let mut sent = Vec::new();
        for _ in 0..5 {
            let record = Record::to(name).partition(partition).value(&value);
            sent.push(producer.send(record).await.unwrap());
        }
        producer.flush().await.unwrap();
        for delivery in sent {
            delivery.await.unwrap();
        }
    };
    let buffered = async |consumer: &Consumer, partition: i32, bytes: usize| {
        let begun = Instant::now();
        let now = || consumer.metrics().partitions[&at(name, partition)].buffered_bytes;
        while now() < bytes {
            assert!(begun.elapsed() < LIMIT, "{} of {bytes} bytes", now());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut config = ConsumerConfig::new(backend.bootstrap());
    config.set("auto.offset.reset", "earliest").unwrap();
    // Less than two large batches.
    config.set("curtail.prefetch.bytes", "24000").unwrap();
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign([at(name, 0), at(name, 1)]);
    let handle = consumer.handle();
    batch(0, SMALL).await;
    let mut read = consumer.poll_batch(LIMIT).await.unwrap().expect("a batch in time");
    assert_eq!(read.last_offset(), 4);
    batch(1, LARGE).await;
    buffered(&consumer, 1, 5 * LARGE).await;
    handle.pause([&at(name, 1)]);
    // The consumer still holds the small batch's response.
    batch(0, LARGE).await;
    buffered(&consumer, 0, 5 * (SMALL + LARGE)).await;
    handle.pause([&at(name, 0)]);
    handle.resume([&at(name, 0)]);
    read = consumer.poll_batch(LIMIT).await.unwrap().expect("a batch in time");
    assert_eq!((read.partition(), read.last_offset()), (0, 9));
    consumer.close().await;
}

pub(super) async fn records_are_processed_in_the_order_of_their_keys(
    backend: &Bench<'_>,
    name: &str,
) {
    const KEYS: usize = 5;
    const EACH: usize = 40;
    backend.create_topic(name, 3, 1).await;
    let producer = common::producer(backend, &[]);
    let mut sent = Vec::new();
    for number in 0..EACH {
        for key in 0..KEYS {
            let (key, value) = (key.to_string(), number.to_string());
            sent.push(producer.send(Record::to(name).key(&key).value(&value)).await.unwrap());
        }
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
    let seen: Arc<Mutex<BTreeMap<Vec<u8>, Vec<usize>>>> = Arc::default();
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(Notify::new());
    let stop = {
        let done = done.clone();
        async move { done.notified().await }
    };
    let handler = {
        let (seen, peak) = (seen.clone(), peak.clone());
        move |record: ConsumerRecord| {
            let (seen, peak) = (seen.clone(), peak.clone());
            let (running, done) = (running.clone(), done.clone());
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                let number = std::str::from_utf8(record.value().unwrap()).unwrap().parse().unwrap();
                let mut seen = seen.lock().unwrap();
                seen.entry(record.key().unwrap().to_vec()).or_default().push(number);
                if seen.values().map(Vec::len).sum::<usize>() == KEYS * EACH {
                    done.notify_one();
                }
                Ok::<(), Error>(())
            }
        }
    };
    let consumer = member(backend, name, &[]);
    let processed = InKeyOrder::new(3).max_records(20).run(consumer, stop, handler);
    timeout(LIMIT, processed).await.expect("all in time").unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), KEYS);
    for (key, numbers) in seen {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "key {key:?}");
    }
    let peak = peak.load(Ordering::SeqCst);
    assert!((2..=3).contains(&peak), "{peak} handlers at a time");
    let committed: i64 = committed(backend, name, 3).await.into_iter().flatten().sum();
    assert_eq!(committed, (KEYS * EACH) as i64);
}

pub(super) async fn processing_commits_only_what_precedes_a_failure(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..50).await;
    let handler = async |record: ConsumerRecord| match record.offset() {
        17 => Err(Error::IllegalState("the handler fails")),
        _ => Ok(()),
    };
    let run = |offsets: &'static [(&str, &str)]| {
        let consumer = member(backend, name, offsets);
        timeout(LIMIT, InKeyOrder::new(4).run(consumer, std::future::pending(), handler))
    };
    for _ in 0..2 {
        let failed = run(&[]).await.expect("ends in time").unwrap_err();
        assert_eq!(failed.to_string(), "the handler fails");
        // Records after the failed one may have been processed.
        assert_eq!(committed(backend, name, 1).await, [Some(17)]);
    }
    let refused = run(&[("enable.auto.commit", "false")]).await.expect("ends at once");
    assert!(refused.unwrap_err().to_string().contains("enable.auto.commit"));
}

/// A handler that runs longer than the close of a consumer waits, when processing stops.
pub(super) async fn records_of_a_slow_last_handler_are_committed(backend: &Bench<'_>, name: &str) {
    const LIMIT_OF_CLOSE: Duration = Duration::from_millis(300);
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..1).await;
    let consumer = member(backend, name, &[("default.api.timeout.ms", "300")]);
    let begun = Arc::new(Notify::new());
    let stop = {
        let begun = begun.clone();
        async move { begun.notified().await }
    };
    let handler = move |_: ConsumerRecord| {
        let begun = begun.clone();
        async move {
            begun.notify_one();
            tokio::time::sleep(5 * LIMIT_OF_CLOSE).await;
            Ok::<(), Error>(())
        }
    };
    timeout(LIMIT, InKeyOrder::new(1).run(consumer, stop, handler)).await.expect("ends").unwrap();
    assert_eq!(committed(backend, name, 1).await, [Some(1)]);
}

/// Records on which runtimes it is called.
#[derive(Clone, Default)]
struct Places {
    runtimes: Arc<Mutex<Vec<Id>>>,
    called: Arc<Notify>,
}

impl RebalanceListener for Places {
    fn on_partitions_assigned(&mut self, _: &mut Rebalance<'_>, _: &[TopicPartition]) {
        self.runtimes.lock().unwrap().push(Handle::current().id());
        self.called.notify_one();
    }
}

/// The member stays in its group while the last handlers run.
pub(super) async fn a_listener_runs_on_the_applications_runtime_while_handlers_end(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 2, 1).await;
    // The partition that a handler delays is not revoked.
    let keeps = match backend.protocol {
        GroupProtocol::Classic => ("partition.assignment.strategy", "cooperative-sticky"),
        GroupProtocol::Consumer => ("group.remote.assignor", "uniform"),
    };
    let mut one = member(backend, name, &[keeps, ("curtail.io.thread", "true")]);
    let mut other = member(backend, name, &[keeps]);
    settle(&mut [&mut one, &mut other], &[1, 1]).await;
    let places = Places::default();
    one.set_rebalance_listener(places.clone());
    produce(&common::producer(backend, &[]), name, 2, 0..1).await;
    let [begun, stopped, end] = [(); 3].map(|()| Arc::new(Notify::new()));
    let stop = {
        let (begun, stopped) = (begun.clone(), stopped.clone());
        async move {
            begun.notified().await;
            stopped.notify_one();
        }
    };
    let handler = {
        let end = end.clone();
        move |_: ConsumerRecord| {
            let (begun, end) = (begun.clone(), end.clone());
            async move {
                begun.notify_one();
                end.notified().await;
                Ok::<(), Error>(())
            }
        }
    };
    let run = tokio::spawn(InKeyOrder::new(1).run(one, stop, handler));
    timeout(LIMIT, stopped.notified()).await.expect("a handler begins");
    other.close().await;
    timeout(LIMIT, places.called.notified()).await.expect("the other partition is assigned");
    end.notify_one();
    timeout(LIMIT, run).await.expect("ends").unwrap().unwrap();
    let runtimes = places.runtimes.lock().unwrap().clone();
    assert!(runtimes.iter().all(|id| *id == Handle::current().id()), "{runtimes:?}");
}

pub(super) async fn a_queue_commits_the_offset_that_it_was_sought_to(
    backend: &Bench<'_>,
    name: &str,
) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..20).await;
    let mut queues = member(backend, name, &[TEN, ("enable.auto.commit", "false")]).into_queues();
    let mut queue = queue(&mut queues).await;
    assert_eq!(next(&mut queues, &mut queue).await.unwrap(), (0..10).collect::<Vec<_>>());
    queues.handle().seek_to_end([&at(name, 0)]).unwrap();
    // The offset is looked up first.
    timeout(LIMIT, queue.commit()).await.expect("a commit in time").unwrap();
    assert_eq!(committed(backend, name, 1).await, [Some(20)]);
    drop(queue);
    queues.close().await;
}

pub(super) async fn a_handle_controls_a_consumer_that_is_polled(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..10).await;
    let properties = [("max.poll.records", "1"), ("enable.auto.commit", "false")];
    let mut consumer = member(backend, name, &properties);
    let handle = consumer.handle();
    settle(&mut [&mut consumer], &[2]).await;
    assert_eq!(handle.assignment(), [at(name, 0), at(name, 1)].into());
    // Each poll returns one record and leaves others of the same batch with the consumer.
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    let (one, seen) = (at(name, read[0].partition()), read.len() as i64);
    let other = at(name, 1 - one.partition);
    let position = handle.position(&one).unwrap();
    handle.pause([&one]);
    assert_eq!(handle.paused(), [one.clone()].into());
    let of_other = poll_until(&mut [&mut consumer], |_, records| records.len() >= 10).await;
    assert!(of_other.iter().all(|record| record.partition() == other.partition));
    handle.seek(&other, 3).unwrap();
    let again = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!((again[0].partition(), again[0].offset()), (other.partition, 3));
    handle.seek_to_end([&other]).unwrap();
    handle.resume([&one]);
    let rest =
        poll_until(&mut [&mut consumer], |_, records| records.len() as i64 >= 10 - position).await;
    assert_eq!(offsets(&rest), [(one.partition, (position..10).collect::<Vec<_>>())].into());
    assert!(seen >= 1);
    handle.commit_offsets([(one.clone(), OffsetAndMetadata::new(4))]).await.unwrap();
    let committed = handle.committed(std::slice::from_ref(&one)).await.unwrap();
    assert_eq!(committed[&one].as_ref().map(|offset| offset.offset), Some(4));
    consumer.close().await;
    assert!(handle.assignment().is_empty());
    assert!(matches!(handle.seek(&one, 0), Err(Error::Closed)));
    assert!(matches!(handle.committed(&[one]).await, Err(Error::Closed)));
}

/// KIP-1092.
pub(super) async fn a_member_chooses_how_it_leaves(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    let cases = [
        (None, GroupMembership::Default, 0),
        (None, GroupMembership::RemainInGroup, 1),
        (Some("i1"), GroupMembership::Default, 1),
        (Some("i2"), GroupMembership::LeaveGroup, 0),
    ];
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    for (index, (instance, membership, left)) in cases.into_iter().enumerate() {
        let group = format!("{name}-{index}");
        let instance = instance.map(|instance| ("group.instance.id", instance));
        let properties: Vec<_> = instance.into_iter().collect();
        let mut consumer = Consumer::new(config(backend, &group, &properties)).unwrap();
        consumer.subscribe([name]).unwrap();
        settle(&mut [&mut consumer], &[1]).await;
        consumer.close_with(CloseOptions::new().membership(membership)).await;
        let described = admin.describe_groups(&[&group]).await.unwrap().remove(0).1.unwrap();
        assert_eq!(described.members.len(), left, "{instance:?}, {membership:?}");
    }
}

pub(super) async fn a_rebalance_is_enforced(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    let mut consumer = member(backend, name, &[]);
    settle(&mut [&mut consumer], &[1]).await;
    let before = consumer.group_metadata().unwrap().generation_id;
    consumer.enforce_rebalance().unwrap();
    poll_until(&mut [&mut consumer], |consumers, _| {
        let now = consumers[0].group_metadata().unwrap().generation_id;
        now == before + 1 && consumers[0].assignment().len() == 1
    })
    .await;
    consumer.close().await;
}

pub(super) async fn topics_are_listed(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 3, 1).await;
    let consumer = Consumer::new(config(backend, name, &[])).unwrap();
    let topics = consumer.list_topics().await.unwrap();
    let listed: Vec<i32> = topics[name].iter().map(|partition| partition.partition).collect();
    assert_eq!(listed, [0, 1, 2]);
    assert!(topics[name].iter().all(|partition| partition.leader.is_some()));
}
