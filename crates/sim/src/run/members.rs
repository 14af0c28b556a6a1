//! The members of a consumer group, one host for each place. They read the producers' records, join and leave.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail::{
    Consumer, ConsumerConfig, Error, TopicPartition,
    config::OffsetReset,
    consumer::{PartitionQueue, Rebalance, RebalanceListener, Records},
    transaction::OffsetAndMetadata,
};
use curtail_net::Entropy;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{Failure, Shared, Stage, TOPIC};
use crate::{
    history::{Deed, GroupHistory, What},
    net::{self, Client, Presence},
    plan::{Commits, GroupPlan, Host, LifeEnd, LifePlan, MemberBug},
    trace::now,
};

/// Of this many polls one is dropped before it may have ended.
const DROPPED: u64 = 8;
/// A commit follows one in this number of polls, if the application commits.
const COMMITTED: u64 = 4;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Name of the group.
pub(super) const GROUP: &str = "members";
/// Prefix of every member's client id; its number follows.
pub(super) const CLIENT: &str = "member-";

/// More lives than a place has.
const LIVES: u32 = 100;

/// Number of the member that has the `life` of the place `slot`, from 0 and 1.
fn number(slot: u32, life: usize) -> u32 {
    slot * LIVES + life as u32
}

/// Runs one place of the group until everything is read.
pub(super) async fn run(shared: Shared, slot: u32) -> Result<(), Failure> {
    shared.reached(Stage::Running).await;
    let group = shared.plan.group.clone().ok_or("there is no group")?;
    let place = &group.slots[slot as usize - 1];
    let (leave, leaving) = watch::channel(false);
    // Members that were replaced and have not noticed yet.
    let mut members: JoinSet<Result<(), Error>> = JoinSet::new();
    for (index, life) in place.lives.iter().enumerate() {
        let last = index + 1 == place.lives.len();
        if !last && is_done(&shared) {
            continue;
        }
        sleep(life.rest).await;
        let instance = place.is_static.then(|| format!("static-{slot}"));
        let number = number(slot, index);
        let (close, closing) = match last {
            true => (None, leaving.clone()),
            false => {
                let (close, closing) = watch::channel(false);
                (Some(close), closing)
            }
        };
        let member = Member::new(shared.clone(), &group, life.clone(), number, instance)?;
        let task = members.spawn(member.run(closing));
        match close {
            None => wait_until_done(&shared).await,
            Some(close) => {
                sleep(life.lasts).await;
                end_life(&shared, life.end, number, &task, close, &mut members).await?;
            }
        }
    }
    leave.send_replace(true);
    while let Some(ended) = members.join_next().await {
        judge(ended)?;
    }
    Ok(())
}

async fn end_life(
    shared: &Shared,
    end: LifeEnd,
    number: u32,
    task: &AbortHandle,
    close: watch::Sender<bool>,
    members: &mut JoinSet<Result<(), Error>>,
) -> Result<(), Error> {
    match end {
        LifeEnd::Replaced => {
            note(shared, number, What::Neglects);
            // Ends when it is told to, or with the run.
            let shared = shared.clone();
            tokio::spawn(async move {
                wait_until_done(&shared).await;
                close.send_replace(true);
            });
            return Ok(());
        }
        LifeEnd::Close => {
            close.send_replace(true);
        }
        LifeEnd::Kill => task.abort(),
    }
    while !task.is_finished() {
        let Some(ended) = members.join_next().await else { break };
        judge(ended)?;
    }
    if end == LifeEnd::Kill {
        note(shared, number, What::Ended);
    }
    Ok(())
}

fn judge(ended: Result<Result<(), Error>, JoinError>) -> Result<(), Error> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn note(shared: &Shared, member: u32, what: What) {
    let at = now();
    shared.fabric.trace().event(format_args!("{CLIENT}{member}"), format_args!("{what:?}"));
    let mut history = shared.history.lock();
    let group = history.group.get_or_insert_with(GroupHistory::default);
    group.deeds.push(Deed { at, member, what });
}

fn tell(shared: &Shared, member: u32, what: &str, error: &Error) {
    let member = format_args!("{CLIENT}{member}");
    shared.fabric.trace().event(member, format_args!("{what} failed: {error}"));
}

/// Whether the last record of every partition was returned to a member, and no more follow.
pub(super) fn is_done(shared: &Shared) -> bool {
    shared.ends.get().is_some_and(|ends| shared.given.look(|given| reaches(given, &ends)))
}

/// Whether members have returned the records of every partition up to its end.
fn reaches(given: &BTreeMap<i32, i64>, ends: &[i64]) -> bool {
    ends.iter()
        .zip(0..)
        .all(|(end, partition)| *end == 0 || given.get(&partition).is_some_and(|next| next >= end))
}

pub(super) async fn wait_until_done(shared: &Shared) {
    let ends = shared.ends.wait().await;
    shared.given.wait_for(|given| reaches(given, &ends)).await;
}

/// One member, from its begin to its end.
struct Member {
    presence: Presence,
    shared: Shared,
    life: LifePlan,
    max_poll_interval: Duration,
    bug: Option<MemberBug>,
    number: u32,
    entropy: Entropy,
    consumer: Consumer,
    next: Next,
    /// Outcomes of commits.
    commits: JoinSet<()>,
    /// With [`MemberBug::ReadOn`]: records that the application received and has not worked on.
    unread: Vec<(i32, i64)>,
}

/// For each owned partition, the offset after the last returned record.
type Next = Arc<Mutex<BTreeMap<i32, i64>>>;

impl Member {
    fn new(
        shared: Shared,
        group: &GroupPlan,
        life: LifePlan,
        number: u32,
        instance: Option<String>,
    ) -> Result<Self, Error> {
        let entropy = shared.entropy.fork();
        let host = Host::Member(number / LIVES).name();
        let env = net::env(&shared.fabric, &host, entropy.fork());
        let client = Client::new(format!("{CLIENT}{number}"), REQUEST_TIMEOUT);
        let env = net::observed(&shared.fabric, &host, &env, &client);
        let mut config = config(&shared, group, &life).client_id(format!("{CLIENT}{number}"));
        if let Some(instance) = instance {
            shared.history.lock().group.get_or_insert_default().statics.insert(number);
            config = config.group_instance_id(instance);
        }
        let next = Next::default();
        let mut consumer = Consumer::with_env(config, &env)?;
        consumer.set_rebalance_listener(Witness {
            shared: shared.clone(),
            number,
            commits: life.commits == Commits::Sync,
            next: next.clone(),
        });
        consumer.subscribe([TOPIC])?;
        if matches!(life.commits, Commits::Auto(_)) {
            shared.history.lock().group.get_or_insert_default().automatic.insert(number);
        }
        let (commits, unread) = (JoinSet::new(), Vec::new());
        let (presence, bug) = (client.present(), group.bug);
        let max_poll_interval = group.max_poll_interval;
        Ok(Self {
            presence,
            shared,
            life,
            max_poll_interval,
            bug,
            number,
            entropy,
            consumer,
            next,
            commits,
            unread,
        })
    }

    fn note(&self, what: What) {
        note(&self.shared, self.number, what);
    }

    async fn run(self, closing: watch::Receiver<bool>) -> Result<(), Error> {
        if self.life.queues && self.bug.is_none() {
            return self.run_queues(closing).await;
        }
        self.run_polls(closing).await
    }

    async fn run_polls(mut self, mut closing: watch::Receiver<bool>) -> Result<(), Error> {
        let mut stall = self.life.stall.map(|(after, lasts)| (Instant::now() + after, lasts));
        let mut polled = Instant::now();
        while !*closing.borrow_and_update() {
            // A synchronous commit waits for the end of a rebalance, up to `default.api.timeout.ms`, which is longer
            // here than `max.poll.interval.ms`.
            if polled.elapsed() >= self.max_poll_interval {
                self.note(What::Neglects);
            }
            if let Some((_, lasts)) = stall.take_if(|(at, _)| *at <= Instant::now()) {
                self.note(What::Neglects);
                // A member that is told to close does so, even during a stall.
                let _ = timeout(lasts, closing.changed()).await;
                continue;
            }
            self.note(What::Polls);
            let records = self.poll().await;
            polled = Instant::now();
            match records {
                Ok(records) => self.read(&records).await,
                Err(error) if error.is_fenced() => {
                    self.note(What::Ended);
                    return Ok(());
                }
                Err(error) => {
                    tell(&self.shared, self.number, "poll", &error);
                    // The limit of the whole run ends this.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        self.note(What::Polls);
        drop(self.presence);
        self.consumer.close().await;
        note(&self.shared, self.number, What::Ended);
        Ok(())
    }

    /// As [`Self::run_polls`], with a task for each partition.
    async fn run_queues(self, mut closing: watch::Receiver<bool>) -> Result<(), Error> {
        let mut stall = self.life.stall.map(|(after, lasts)| (Instant::now() + after, lasts));
        let mut queues = self.consumer.into_queues();
        let mut readers = JoinSet::new();
        while !*closing.borrow_and_update() {
            if let Some((_, lasts)) = stall.take_if(|(at, _)| *at <= Instant::now()) {
                note(&self.shared, self.number, What::Neglects);
                let _ = timeout(lasts, closing.changed()).await;
                continue;
            }
            let patience = Duration::from_millis(self.entropy.below(200));
            match timeout(patience, queues.next()).await {
                Err(_) => {}
                Ok(Ok(queue)) => {
                    let reader = QueueReader {
                        shared: self.shared.clone(),
                        number: self.number,
                        next: self.next.clone(),
                        longest: self.life.work,
                        entropy: self.entropy.fork(),
                    };
                    drop(readers.spawn(reader.run(queue)));
                }
                Ok(Err(error)) if error.is_fenced() => {
                    note(&self.shared, self.number, What::Ended);
                    return Ok(());
                }
                Ok(Err(error)) => {
                    tell(&self.shared, self.number, "queues", &error);
                    // The limit of the whole run ends this.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.presence);
        queues.close().await;
        note(&self.shared, self.number, What::Ended);
        Ok(())
    }

    /// One poll; some are dropped while they wait.
    async fn poll(&mut self) -> Result<Vec<(i32, i64)>, Error> {
        let patience = match self.entropy.below(DROPPED) {
            0 => Duration::from_millis(self.entropy.below(30)),
            _ => Duration::from_secs(1),
        };
        let polled = timeout(patience, self.consumer.poll(Duration::from_millis(200))).await;
        let records = polled.unwrap_or(Ok(Records::default()))?;
        Ok(records.into_iter().map(|record| (record.partition(), record.offset())).collect())
    }

    /// Works on records.
    async fn read(&mut self, records: &[(i32, i64)]) {
        let given = match self.bug {
            Some(MemberBug::ReadOn) => std::mem::replace(&mut self.unread, records.to_vec()),
            _ => records.to_vec(),
        };
        for &record in &given {
            returned(&self.shared, self.number, &self.next, record);
        }
        let longest = self.life.work.as_micros() as u64;
        sleep(Duration::from_micros(self.entropy.below(longest + 1))).await;
        if self.bug == Some(MemberBug::Skip)
            && let Some((partition, offset)) = given.last()
        {
            let at = TopicPartition::new(TOPIC, *partition);
            // If the partition is no longer assigned, there is nothing to skip.
            let _ = self.consumer.seek(&at, offset + 2);
        }
        if self.entropy.below(COMMITTED) == 0 {
            self.commit().await;
        }
    }

    async fn commit(&mut self) {
        let offsets: Vec<(i32, i64)> =
            self.next.lock().iter().map(|(partition, next)| (*partition, *next)).collect();
        let (shared, number) = (self.shared.clone(), self.number);
        let told = move |result: Result<(), Error>, offsets| match result {
            Ok(()) => note(&shared, number, What::Committed(offsets)),
            Err(error) => tell(&shared, number, "commit", &error),
        };
        match self.life.commits {
            Commits::Auto(_) => {}
            Commits::Sync if self.bug == Some(MemberBug::CommitAhead) => {
                let ahead = offsets.iter().map(|(partition, next)| {
                    let at = TopicPartition::new(TOPIC, *partition);
                    (at, OffsetAndMetadata::new(next + 3))
                });
                // The checker reads the outcome from the coordinators' log.
                drop(self.consumer.commit_offsets(ahead.collect::<Vec<_>>()).await);
            }
            Commits::Sync => told(self.consumer.commit().await, offsets),
            Commits::Async => {
                if let Ok(pending) = self.consumer.commit_nowait() {
                    self.commits.spawn(async move { told(pending.await, offsets) });
                }
            }
        }
    }
}

/// Reads one partition of a member.
struct QueueReader {
    shared: Shared,
    number: u32,
    next: Next,
    /// Longest time for which it works on the records of a call.
    longest: Duration,
    entropy: Entropy,
}

impl QueueReader {
    async fn run(self, mut queue: PartitionQueue) {
        let partition = queue.partition().partition;
        loop {
            note(&self.shared, self.number, What::Finishes(partition));
            let records = match queue.next().await {
                None => return,
                Some(Ok(records)) => records,
                Some(Err(error)) => {
                    tell(&self.shared, self.number, "queue", &error);
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            for record in &records {
                returned(&self.shared, self.number, &self.next, (partition, record.offset()));
            }
            let longest = self.longest.as_micros() as u64;
            sleep(Duration::from_micros(self.entropy.below(longest + 1))).await;
        }
    }
}

/// Records that a member received a record.
fn returned(shared: &Shared, number: u32, next: &Next, (partition, offset): (i32, i64)) {
    note(shared, number, What::Given(partition, offset));
    next.lock().insert(partition, offset + 1);
    shared.given.update(|given| {
        let next = given.entry(partition).or_default();
        *next = (*next).max(offset + 1);
        true
    });
}

fn config(shared: &Shared, group: &GroupPlan, life: &LifePlan) -> ConsumerConfig {
    let ms = Duration::from_millis;
    let config = ConsumerConfig::new(shared.cluster.bootstrap())
        .group_id(GROUP)
        .partition_assignment_strategy(group.assignors.iter().copied())
        .session_timeout(group.session_timeout)
        .heartbeat_interval(group.heartbeat_interval)
        .max_poll_interval(group.max_poll_interval)
        .max_poll_records(life.max_poll_records)
        .auto_offset_reset(OffsetReset::Earliest)
        .request_timeout(REQUEST_TIMEOUT)
        .default_api_timeout(ms(4000))
        .fetch_max_wait(ms(300))
        .retry_backoff(ms(20), ms(500))
        .reconnect_backoff(ms(20), ms(500))
        .connection_setup_timeout(ms(1000))
        .metadata_max_age(Duration::from_secs(10));
    match life.commits {
        Commits::Auto(interval) => config.enable_auto_commit(true).auto_commit_interval(interval),
        Commits::Sync | Commits::Async => config.enable_auto_commit(false),
    }
}

/// Records the assignment and revocation of partitions.
struct Witness {
    shared: Shared,
    number: u32,
    /// Whether it commits the revoked partitions.
    commits: bool,
    next: Next,
}

impl Witness {
    fn forget(&self, partitions: &[TopicPartition]) {
        let mut next = self.next.lock();
        for at in partitions {
            next.remove(&at.partition);
        }
    }
}

fn indexes(partitions: &[TopicPartition]) -> Vec<i32> {
    partitions.iter().map(|at| at.partition).collect()
}

impl RebalanceListener for Witness {
    fn on_partitions_assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        note(&self.shared, self.number, What::Assigned(indexes(partitions)));
    }

    fn on_partitions_revoked(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        for at in partitions.iter().filter(|_| self.commits) {
            if let Some(position) = rebalance.position(at) {
                rebalance.commit(at, OffsetAndMetadata::new(position));
            }
        }
        note(&self.shared, self.number, What::Revoked(indexes(partitions)));
        self.forget(partitions);
    }

    fn on_partitions_lost(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        note(&self.shared, self.number, What::Lost(indexes(partitions)));
        self.forget(partitions);
    }
}
