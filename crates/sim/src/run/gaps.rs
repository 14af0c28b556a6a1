//! Deletions of the oldest records of a topic, and a consumer that seeks, pauses and resets in that topic.
//!
//! A record is skipped legitimately only by a deletion: the consumer continues at the offset expected, at an offset up to
//! which a deletion was requested, or after records that retention need not keep.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use curtail::{Admin, AdminConfig, Consumer, Error, TopicPartition, config::OffsetReset};
use curtail_net::{Entropy, Env};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::{Shared, Stage, reader, topics::Place};
use crate::{
    history::{NeedlessReset, Outcome, Sent, Stray},
    net::{self, Client},
    plan::{GapPlan, Host, Retention, SHRINKING},
    trace::now,
};

/// An offset that no log reaches.
const FAR: i64 = 1_000_000;
/// Deletions at least, even if the faults end sooner.
const DELETIONS: usize = 10;
/// Polls at least before the consumer reads to the end.
const POLLS: usize = 100;

/// Deletions in one partition, as far as the application knows them.
#[derive(Debug, Default)]
struct Deleted {
    /// Offsets up to which a deletion was requested: the log may start at each.
    requested: BTreeSet<i64>,
    /// The log starts here or later, as a response has said.
    confirmed: i64,
}

/// Deletions of all partitions of the topic.
#[derive(Clone, Default)]
pub(super) struct Deletions(Arc<Mutex<BTreeMap<i32, Deleted>>>);

/// Upper bound of the bytes that one record adds to a log: a batch with only this record.
const RECORD_BYTES: u64 = 200;

/// Whether retention may have deleted everything before an offset.
fn need_not_keep(shared: &Shared, retention: Retention, partition: i32, before: i64) -> bool {
    let place = place(shared, partition);
    let history = shared.history.lock();
    let mut to_topic = history.sent.iter().filter(|sent| {
        let producer = shared.plan.producers.get(sent.id.producer as usize);
        producer.is_some_and(|producer| producer.tuning.topic == SHRINKING)
    });
    match retention {
        Retention::Age(age) => to_topic.all(|sent| match sent.outcome {
            Outcome::Acknowledged { partition, offset: Some(offset), .. } => {
                partition != place || offset >= before || sent.at + age <= now()
            }
            _ => true,
        }),
        Retention::Bytes(bytes) => {
            // A record without an outcome may be in any partition.
            let is_elsewhere = |sent: &&Sent| match sent.outcome {
                Outcome::Acknowledged { partition, .. } => partition != place,
                Outcome::NotWritten { .. } => true,
                Outcome::MaybeWritten { .. } | Outcome::Pending => false,
            };
            let here = to_topic.filter(|sent| !is_elsewhere(sent)).count() as u64;
            here.saturating_sub(before as u64) * RECORD_BYTES >= bytes
        }
    }
}

impl Deletions {
    /// Whether the log of a partition may have started at this offset.
    fn may_start_at(&self, shared: &Shared, partition: i32, offset: i64) -> bool {
        if let Some(retention) = shared.plan.gaps.and_then(|gaps| gaps.retention) {
            return offset == 0 || need_not_keep(shared, retention, partition, offset);
        }
        let deleted = self.0.lock();
        offset == 0 || deleted.get(&partition).is_some_and(|d| d.requested.contains(&offset))
    }

    /// Whether a deletion may have moved the start of the log past this offset.
    fn may_have_passed(&self, shared: &Shared, partition: i32, offset: i64) -> bool {
        if let Some(retention) = shared.plan.gaps.and_then(|gaps| gaps.retention) {
            return need_not_keep(shared, retention, partition, offset + 1);
        }
        let deleted = self.0.lock();
        deleted.get(&partition).is_some_and(|d| d.requested.last().is_some_and(|&to| to > offset))
    }

    fn confirmed(&self, partition: i32) -> i64 {
        self.0.lock().get(&partition).map_or(0, |deleted| deleted.confirmed)
    }

    /// Checks the final starts of the logs.
    pub(super) fn judge(&self, shared: &Shared) {
        for TopicPartition { partition, .. } in partitions(shared) {
            let place = place(shared, partition);
            let given = shared.history.lock().starts.get(&place).copied().unwrap_or(0);
            let confirmed = self.confirmed(partition);
            if !self.may_start_at(shared, partition, given) || given < confirmed {
                let stray = Stray { at: now(), partition: place, expected: Some(confirmed), given };
                shared.history.lock().strays.push(stray);
            }
        }
    }

    fn request(&self, partition: i32, before: i64) {
        self.0.lock().entry(partition).or_default().requested.insert(before);
    }

    fn confirm(&self, partition: i32, start: i64) {
        let mut deleted = self.0.lock();
        let confirmed = &mut deleted.entry(partition).or_default().confirmed;
        *confirmed = start.max(*confirmed);
    }
}

/// Partitions of the topic.
fn partitions(shared: &Shared) -> Vec<TopicPartition> {
    let name = shared.topic(SHRINKING);
    let count = shared.cluster.partitions(name).unwrap_or(0) as i32;
    (0..count).map(|partition| TopicPartition::new(name, partition)).collect()
}

fn place_of(shared: &Shared, partition: i32) -> Place {
    Place { topic: SHRINKING, name: shared.topic(SHRINKING), partition }
}

fn place(shared: &Shared, partition: i32) -> i32 {
    place_of(shared, partition).number()
}

/// The offset after the last acknowledged record.
fn acknowledged(shared: &Shared, partition: i32) -> i64 {
    let place = place(shared, partition);
    let history = shared.history.lock();
    let offsets = history.sent.iter().filter_map(|sent| match sent.outcome {
        Outcome::Acknowledged { partition, offset, .. } if partition == place => offset,
        _ => None,
    });
    offsets.max().map_or(0, |last| last + 1)
}

/// Deletes records until the faults have ended.
pub(super) async fn delete(
    shared: Shared,
    plan: GapPlan,
    env: Env,
    entropy: Entropy,
    deletions: Deletions,
) -> Result<(), Error> {
    let config = AdminConfig::new(shared.cluster.bootstrap())
        .request_timeout(reader::REQUEST_TIMEOUT)
        .default_api_timeout(Duration::from_secs(4));
    let admin = Admin::with_env(config, &env)?;
    let partitions = partitions(&shared);
    for round in 0.. {
        if round >= DELETIONS && shared.has_reached(Stage::Healed) {
            return Ok(());
        }
        sleep(Duration::from_millis(entropy.below(plan.apart + 1))).await;
        let at = &partitions[entropy.below(partitions.len() as u64) as usize];
        let (begin, end) = (deletions.confirmed(at.partition), acknowledged(&shared, at.partition));
        let before = begin + entropy.below((end - begin).max(0) as u64 + 1) as i64;
        deletions.request(at.partition, before);
        let trace = shared.fabric.trace();
        trace.event("deleter", format_args!("delete {} before {before}", at.partition));
        // Whether a call that failed has deleted anything is not known.
        let Ok(results) = admin.delete_records(&[(at.clone(), before)]).await else { continue };
        for (at, result) in results {
            trace.event("deleter", format_args!("{} starts at {result:?}", at.partition));
            if let Ok(start) = result {
                deletions.confirm(at.partition, start);
            }
        }
    }
    Ok(())
}

/// The possible next records of a partition.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The one at this offset.
    At(i64),
    /// The first one of the log, which starts here or later.
    First(i64),
    /// Any one from here on: the position is the end of the log, as it was at the lookup.
    From(i64),
}

/// Seeks until the faults have ended, then reads every partition to its end. Returns the consumer, for the caller to close
/// when no other consumer closes: the order of their last messages would differ between runs.
pub(super) async fn seek(
    shared: Shared,
    plan: GapPlan,
    env: Env,
    entropy: Entropy,
    deletions: Deletions,
) -> Result<Consumer, Error> {
    let client = Client::new("gaps", reader::REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let reset = if plan.resets { OffsetReset::Earliest } else { OffsetReset::None };
    let config = reader::config(&shared).max_poll_records(20).auto_offset_reset(reset);
    let mut consumer = Consumer::with_env(config, &env)?;
    let partitions = partitions(&shared);
    consumer.assign(partitions.iter().cloned());
    let mut seeker = Seeker {
        shared,
        plan,
        entropy,
        deletions,
        next: BTreeMap::new(),
        end: BTreeMap::new(),
        paused: BTreeSet::new(),
    };
    for at in &partitions {
        seeker.jump(&mut consumer, at, Next::At(0))?;
    }
    for round in 0.. {
        if round > POLLS && seeker.shared.has_reached(Stage::Healed) {
            break;
        }
        seeker.act(&mut consumer, &partitions)?;
        let patience = Duration::from_millis(seeker.entropy.below(60));
        // A poll that is dropped has returned nothing.
        let polled = timeout(patience, consumer.poll(Duration::from_millis(40))).await;
        seeker.take(&mut consumer, polled.unwrap_or_else(|_| Ok(Default::default())))?;
    }
    consumer.resume(&partitions);
    seeker.paused.clear();
    seeker.shared.ends.wait().await;
    while !seeker.is_at_end(&mut consumer, &partitions).await {
        let polled = consumer.poll(Duration::from_millis(100)).await;
        seeker.take(&mut consumer, polled)?;
    }
    client.leave();
    Ok(consumer)
}

struct Seeker {
    shared: Shared,
    plan: GapPlan,
    entropy: Entropy,
    deletions: Deletions,
    next: BTreeMap<i32, Next>,
    /// Per partition, the offset after the last record seen.
    end: BTreeMap<i32, i64>,
    paused: BTreeSet<i32>,
}

impl Seeker {
    /// One random call.
    fn act(&mut self, consumer: &mut Consumer, partitions: &[TopicPartition]) -> Result<(), Error> {
        let at = &partitions[self.entropy.below(partitions.len() as u64) as usize];
        let end = self.end.get(&at.partition).copied().unwrap_or(0);
        match self.entropy.below(12) {
            0 | 1 => {
                let offset = self.entropy.below(end as u64 + 1) as i64;
                self.jump(consumer, at, Next::At(offset))?;
            }
            2 => self.jump_to_start(consumer, at)?,
            3 => self.jump(consumer, at, Next::From(end))?,
            // Outside the log, on the other side.
            4 => self.jump(consumer, at, Next::At(FAR))?,
            5 => {
                consumer.pause([at]);
                self.paused.insert(at.partition);
            }
            6 | 7 => {
                consumer.resume(partitions);
                self.paused.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn jump_to_start(&mut self, consumer: &mut Consumer, at: &TopicPartition) -> Result<(), Error> {
        let start = self.deletions.confirmed(at.partition);
        self.jump(consumer, at, Next::First(start))
    }

    fn jump(
        &mut self,
        consumer: &mut Consumer,
        at: &TopicPartition,
        next: Next,
    ) -> Result<(), Error> {
        self.shared.fabric.trace().event("gaps", format_args!("{} {next:?}", at.partition));
        match next {
            Next::At(offset) => consumer.seek(at, offset)?,
            Next::First(_) => consumer.seek_to_beginning([at])?,
            Next::From(_) => consumer.seek_to_end([at])?,
        }
        self.next.insert(at.partition, next);
        Ok(())
    }

    fn take(
        &mut self,
        consumer: &mut Consumer,
        polled: Result<curtail::consumer::Records, Error>,
    ) -> Result<(), Error> {
        match polled {
            Ok(records) => {
                for record in records {
                    self.given(record.partition(), record.offset());
                }
                Ok(())
            }
            Err(Error::OffsetOutOfRange { topic, partition, offset }) if !self.plan.resets => {
                self.out_of_range(partition, offset);
                self.jump_to_start(consumer, &TopicPartition::new(topic, partition))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a record at this offset may come next.
    fn fits(&self, partition: i32, offset: i64) -> bool {
        let is_start =
            |from| offset >= from && self.deletions.may_start_at(&self.shared, partition, offset);
        match self.next.get(&partition).copied().unwrap_or(Next::At(0)) {
            Next::At(FAR) => self.plan.resets && is_start(0),
            Next::At(next) => offset == next || self.plan.resets && is_start(next),
            Next::First(from) => is_start(from),
            Next::From(from) => offset >= from,
        }
    }

    fn given(&mut self, partition: i32, given: i64) {
        self.shared.fabric.trace().event("gaps", format_args!("given {partition} {given}"));
        if self.paused.contains(&partition) {
            self.stray(partition, None, given);
        } else if !self.fits(partition, given) {
            self.stray(partition, Some(self.expected(partition)), given);
        }
        self.next.insert(partition, Next::At(given + 1));
        let end = self.end.entry(partition).or_default();
        *end = (*end).max(given + 1);
    }

    fn expected(&self, partition: i32) -> i64 {
        match self.next.get(&partition) {
            Some(Next::At(next) | Next::First(next) | Next::From(next)) => *next,
            None => 0,
        }
    }

    fn stray(&self, partition: i32, expected: Option<i64>, given: i64) {
        let partition = place(&self.shared, partition);
        let stray = Stray { at: now(), partition, expected, given };
        self.shared.history.lock().strays.push(stray);
    }

    /// With `auto.offset.reset=none` the error must name the position, and the log must not have it.
    fn out_of_range(&self, partition: i32, offset: i64) {
        let trace = self.shared.fabric.trace();
        trace.event("gaps", format_args!("{partition} out of range at {offset}"));
        let is_position = match self.next.get(&partition) {
            Some(Next::At(next)) => *next == offset,
            Some(Next::First(from) | Next::From(from)) => offset >= *from,
            None => offset == 0,
        };
        let is_outside =
            offset == FAR || self.deletions.may_have_passed(&self.shared, partition, offset);
        if !is_position || !is_outside {
            let partition = place(&self.shared, partition);
            let needless = NeedlessReset { at: now(), partition, offset };
            self.shared.history.lock().needless_resets.push(needless);
        }
    }

    /// Whether everything is read. Records skipped at the end must have been deleted.
    async fn is_at_end(&self, consumer: &mut Consumer, partitions: &[TopicPartition]) -> bool {
        let mut strays = Vec::new();
        for at in partitions {
            let end = self.shared.end_of(place_of(&self.shared, at.partition));
            // Without a position, poll has more to do or to say.
            let Ok(Ok(position)) = timeout(Duration::from_millis(1), consumer.position(at)).await
            else {
                return false;
            };
            if position != end {
                return false;
            }
            if !self.fits(at.partition, end) {
                strays.push((at.partition, end));
            }
        }
        for (partition, end) in strays {
            self.stray(partition, Some(self.expected(partition)), end);
        }
        true
    }
}
