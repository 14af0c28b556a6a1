//! Unclean elections, and a consumer that takes back what it reports as truncated.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use curtail::{Consumer, Error, TopicPartition, transaction::OffsetAndMetadata};
use curtail_net::{Entropy, Env};
use tokio::time::{sleep, timeout};

use super::{Shared, host::Power, reader, topics::Place};
use crate::{
    history::{ReadBack, RecordId, Stray, Truncation},
    net::{self, Client},
    payload,
    plan::{BROKERS, Crash, Host, LOSING},
    trace::now,
};

/// Polls without a record at the end of the logs, so that a pending report of a truncation arrives.
const QUIET: usize = 30;

/// How long a replica may take to fall out of sync: twice `replica.lag.time.max.ms`.
const OUT_OF_SYNC: Duration = Duration::from_secs(3);

/// Takes a replica out of sync, and then all others away, until it leads although it lacks records.
pub(super) async fn elect(shared: &Shared, survivor: i32, isolated: bool, lasts: Duration) {
    shared.note("waiting for replicas in sync before an unclean election");
    shared.cluster.wait_until(|_| shared.is_whole()).await;
    if !shared.casualties.lock().take_all_down() {
        return;
    }
    let others: Vec<i32> = (1..=BROKERS).filter(|id| *id != survivor).collect();
    if isolated {
        // A leader without a link to its followers would stay in sync and drop them.
        for place in losing(shared) {
            let _ = shared.cluster.move_leader(place.name, place.partition, others[0]);
        }
        others.iter().for_each(|other| hold(shared, survivor, *other));
    } else {
        shared.switch(survivor).set(Power::Off(Crash::KeepsAll));
    }
    shared.note(format!("waiting for broker {survivor} to be out of sync"));
    let is_out = |place: &Place| {
        let isr = shared.cluster.isr(place.name, place.partition);
        isr.is_some_and(|isr| !isr.contains(&survivor))
    };
    // A replica of a partition without new records stays in sync, and its election is clean.
    let all_out = shared.cluster.wait_until(|_| losing(shared).iter().all(is_out));
    let _ = timeout(OUT_OF_SYNC, all_out).await;
    sleep(lasts).await;
    for other in &others {
        shared.switch(*other).set(Power::Off(Crash::KeepsAll));
    }
    shared.switch(survivor).set(Power::On);
    shared.note(format!("waiting for broker {survivor} to lead"));
    let leads = |place: &Place| {
        let leader = shared.cluster.leader(place.name, place.partition);
        leader.is_some_and(|(leader, _)| leader == survivor)
    };
    shared.cluster.wait_until(|_| losing(shared).iter().all(leads)).await;
    sleep(lasts).await;
    for other in &others {
        if isolated {
            release(shared, survivor, *other);
        }
        shared.switch(*other).set(Power::On);
    }
    (1..=BROKERS).for_each(|broker| shared.casualties.lock().bring_up(broker));
}

fn hosts(shared: &Shared, a: i32, b: i32) -> (IpAddr, IpAddr) {
    let host = |broker| shared.fabric.host(&Host::Broker(broker).name());
    (host(a), host(b))
}

fn hold(shared: &Shared, a: i32, b: i32) {
    let (a, b) = hosts(shared, a, b);
    shared.fabric.hold(a, b);
}

fn release(shared: &Shared, a: i32, b: i32) {
    let (a, b) = hosts(shared, a, b);
    shared.fabric.break_connections(a, b);
    shared.fabric.release(a, b);
}

/// Partitions that may lose records.
fn losing(shared: &Shared) -> Vec<Place> {
    shared.places().into_iter().filter(|place| place.topic == LOSING).collect()
}

/// Records when partitions elect uncleanly, until it is dropped.
pub(super) async fn watch(shared: Shared) {
    let mut seen: BTreeMap<i32, u64> = BTreeMap::new();
    let look = |cluster: &curtail_cluster::ClusterHandle| {
        for place in shared.places() {
            let count = cluster.unclean_elections(place.name, place.partition);
            let before = seen.insert(place.number(), count).unwrap_or(0);
            for _ in before..count {
                let trace = shared.fabric.trace();
                trace.event("chaos", format_args!("unclean election of {}", place.number()));
                shared.history.lock().unclean.entry(place.number()).or_default().push(now());
            }
        }
        false
    };
    shared.cluster.wait_until(look).await;
}

/// A record that the consumer has.
struct Seen {
    offset: i64,
    epoch: i32,
    id: Option<RecordId>,
}

struct Reader {
    shared: Shared,
    /// The records read so far, by partition.
    view: BTreeMap<i32, Vec<Seen>>,
}

/// Reads the topic to its end, without a reset policy. When the consumer reports a truncation, its lost records are
/// discarded and read again. At times the application rests, and continues at its position, which another log may
/// have passed by then. Returns the consumer, for the caller to close.
pub(super) async fn follow(shared: Shared, env: Env, entropy: Entropy) -> Result<Consumer, Error> {
    let client = Client::new("truncated", reader::REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let mut consumer = Consumer::with_env(reader::config(&shared), &env)?;
    let places = losing(&shared);
    let partitions: Vec<TopicPartition> =
        places.iter().map(|place| TopicPartition::new(place.name, place.partition)).collect();
    consumer.assign(partitions.iter().cloned());
    let view = places.iter().map(|place| (place.partition, Vec::new())).collect();
    let mut reader = Reader { shared, view };
    for at in &partitions {
        consumer.seek(at, 0)?;
    }
    let (mut quiet, mut rests_at) = (0, now());
    while quiet < QUIET {
        if now() >= rests_at && reader.shared.ends.get().is_none() {
            consumer.assign([]);
            sleep(Duration::from_millis(entropy.below(3000))).await;
            consumer.assign(partitions.iter().cloned());
            for at in &partitions {
                consumer.seek_to(at, &reader.position(at.partition))?;
            }
            rests_at = now() + Duration::from_millis(200 + entropy.below(1500));
        }
        quiet = if reader.is_at_end() { quiet + 1 } else { 0 };
        match consumer.poll(Duration::from_millis(100)).await {
            Ok(records) => {
                for record in records {
                    let seen = Seen {
                        offset: record.offset(),
                        epoch: record.leader_epoch().unwrap_or(-1),
                        id: payload::id_of_record(&record),
                    };
                    reader.given(record.partition(), seen);
                }
            }
            Err(Error::LogTruncated {
                partition,
                offset,
                divergent_offset,
                divergent_epoch,
                ..
            }) => {
                let diverges = divergent_offset.zip(divergent_epoch);
                reader.truncated(&mut consumer, partition, offset, diverges)?;
            }
            Err(Error::OffsetOutOfRange { partition, offset, .. }) => {
                reader.truncated(&mut consumer, partition, offset, None)?;
            }
            Err(error) => return Err(error),
        }
    }
    client.leave();
    reader.conclude();
    Ok(consumer)
}

impl Reader {
    fn place(&self, partition: i32) -> Place {
        Place { topic: LOSING, name: self.shared.topic(LOSING), partition }
    }

    fn next(&self, partition: i32) -> i64 {
        let last = self.view.get(&partition).and_then(|seen| seen.last());
        last.map_or(0, |last| last.offset + 1)
    }

    fn is_at_end(&self) -> bool {
        self.shared.ends.get().is_some()
            && self.view.keys().all(|partition| {
                self.next(*partition) == self.shared.end_of(self.place(*partition))
            })
    }

    fn given(&mut self, partition: i32, seen: Seen) {
        let (expected, given) = (self.next(partition), seen.offset);
        let trace = self.shared.fabric.trace();
        trace.event("truncated", format_args!("given {partition} {given} {:?}", seen.id));
        if expected != given {
            let partition = self.place(partition).number();
            let stray = Stray { at: now(), partition, expected: Some(expected), given };
            self.shared.history.lock().strays.push(stray);
        }
        self.view.entry(partition).or_default().push(seen);
    }

    /// Continues where the consumer's records part from the log. An epoch later than the leader's is not in its log.
    fn truncated(
        &mut self,
        consumer: &mut Consumer,
        partition: i32,
        offset: i64,
        diverges: Option<(i64, i32)>,
    ) -> Result<(), Error> {
        let (place, expected) = (self.place(partition), self.next(partition));
        let trace = self.shared.fabric.trace();
        let told = format_args!("{partition} truncated at {diverges:?}, position {offset}");
        trace.event("truncated", told);
        let report = Truncation { at: now(), partition: place.number(), offset, expected };
        self.shared.history.lock().truncations.push(report);
        let view = self.view.entry(partition).or_default();
        let (to, epoch) = diverges.unwrap_or((0, -1));
        view.truncate(view.partition_point(|seen| seen.offset < to && seen.epoch <= epoch));
        consumer.seek_to(&TopicPartition::new(place.name, partition), &self.position(partition))
    }

    /// Where the application continues, with the epoch of its last record.
    fn position(&self, partition: i32) -> OffsetAndMetadata {
        let mut position = OffsetAndMetadata::new(self.next(partition));
        let last = self.view.get(&partition).and_then(|seen| seen.last());
        position.leader_epoch = last.map(|last| last.epoch);
        position
    }

    fn conclude(&self) {
        let mut view = Vec::new();
        for (partition, seen) in &self.view {
            let partition = self.place(*partition).number();
            let record = |seen: &Seen| ReadBack { partition, offset: seen.offset, id: seen.id };
            view.extend(seen.iter().map(record));
        }
        self.shared.history.lock().view = Some(view);
    }
}
