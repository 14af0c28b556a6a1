//! The groups of one partition of `__consumer_offsets`: their state machines, their offsets, and
//! the waiting requests.
//!
//! A group uses one protocol at a time. A group without members changes its protocol when a member
//! of another protocol joins: one batch deletes its records and adds the first ones of the new
//! kind. Its offsets stay.

mod consumer;
mod stored;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use curtail_wire::{ErrorCode, records::EndTxnMarker};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Kind,
    consumer::{ConsumerGroup, Settings},
    group::{
        CONSUMER, Group, GroupConfig, GroupState, Join, JoinAnswer, Output, Stored, SyncAnswer,
        SyncRequest, Waiter,
    },
    offsets::{Commit, Offsets, TopicPartition},
    records::{
        self, Key, OffsetValue, consumer_record, group_record, group_tombstone, offset_record,
        offset_tombstone, streams_record,
    },
    runtime::{Cx, DeletedTopic, Entry, Producer, State, StateRecord},
    streams::{Settings as StreamsSettings, StreamsGroup},
};
use crate::{
    broker::Broker,
    config::Plant,
    log::{TxnMarker, VerificationGuard},
    replica::partition::{NotServed, Taken},
    settings::{of_group, of_streams_group},
};

/// The committer of offsets, from the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committer<'a> {
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
    /// -1 outside a generation.
    pub(crate) generation: i32,
}

/// The request of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitBy {
    /// OffsetCommit with this version.
    Request(i16),
    /// TxnOffsetCommit.
    Transaction,
}

/// A group of any protocol.
pub(crate) enum AnyGroup {
    Classic(Group),
    Consumer(ConsumerGroup),
    Streams(StreamsGroup),
}

/// The protocol type of streams groups.
const STREAMS: &str = "streams";

impl AnyGroup {
    /// Returns the protocol's name in ListGroups.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
            Self::Streams(_) => STREAMS,
        }
    }

    pub(crate) fn protocol_type(&self) -> &str {
        match self {
            Self::Classic(group) => group.protocol_type(),
            Self::Consumer(_) => CONSUMER,
            Self::Streams(_) => STREAMS,
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.state().name(),
            Self::Consumer(group) => group.state().name(),
            Self::Streams(group) => group.state().name(),
        }
    }

    /// Whether the group has no members and no assigned member ids.
    fn is_unused(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_unused(),
            Self::Consumer(group) => group.is_empty(),
            Self::Streams(group) => group.is_empty(),
        }
    }

    /// Returns where the retention of the group's offsets begins; `None` while no offset expires.
    fn retained_from(&self) -> Option<RetainedFrom> {
        let Self::Classic(group) = self else { return Some(RetainedFrom::Commit) };
        if group.protocol_type().is_empty() {
            return Some(RetainedFrom::Commit);
        }
        match group.state() {
            GroupState::Empty => Some(match group.state_timestamp() {
                time if time >= 0 => RetainedFrom::Time(time),
                _ => RetainedFrom::Commit,
            }),
            GroupState::Stable if group.protocol_type() == CONSUMER => Some(RetainedFrom::Commit),
            _ => None,
        }
    }

    /// Returns the topics to which the members subscribe; `None` if those of consumers are unknown. As in
    /// Kafka, they then count as subscribed to every topic.
    pub(crate) fn subscribed(&self) -> Option<BTreeSet<String>> {
        let owned = |topics: BTreeSet<&str>| topics.into_iter().map(str::to_owned).collect();
        match self {
            Self::Classic(group) if group.protocol_type() == CONSUMER => group.subscribed(),
            Self::Classic(_) => Some(BTreeSet::new()),
            Self::Consumer(group) => Some(owned(group.subscribed())),
            Self::Streams(group) => Some(owned(group.sources())),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Classic(group) => group.deadline(),
            Self::Consumer(group) => group.deadline(),
            Self::Streams(group) => group.deadline(),
        }
    }

    /// Returns the records that delete the group from the log.
    fn tombstones(&self, id: &str) -> Vec<StateRecord> {
        match self {
            Self::Classic(_) => vec![group_tombstone(id)],
            Self::Consumer(group) => {
                group.tombstones().iter().map(|change| consumer_record(id, change)).collect()
            }
            Self::Streams(group) => {
                group.tombstones().iter().map(|change| streams_record(id, change)).collect()
            }
        }
    }
}

/// Where the retention of an offset begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetainedFrom {
    /// At its commit.
    Commit,
    /// When the last member left, in ms since the Unix epoch.
    Time(i64),
}

/// A group and its offsets.
struct Kept {
    group: AnyGroup,
    offsets: Offsets,
    due: Option<Instant>,
}

impl Kept {
    /// Returns the offsets whose retention began at or before `until`, in ms since the Unix epoch. As
    /// in Kafka, those of topics to which members subscribe stay, and so do those with a pending
    /// replacement.
    fn expired(&self, until: i64) -> Vec<TopicPartition> {
        let until = match self.group.retained_from() {
            Some(RetainedFrom::Commit) => until,
            Some(RetainedFrom::Time(time)) if time <= until => i64::MAX,
            Some(RetainedFrom::Time(_)) | None => return Vec::new(),
        };
        let mut expired = self.offsets.committed_until(until);
        if !expired.is_empty() {
            let subscribed = self.group.subscribed();
            expired.retain(|(topic, _)| {
                subscribed.as_ref().is_some_and(|topics| !topics.contains(topic))
            });
        }
        expired
    }
}

/// The result for each leaving member, and the append to wait for.
type Left = (Vec<Result<(), ErrorCode>>, Option<Taken>);

enum Reply {
    Join(oneshot::Sender<JoinAnswer>),
    Sync(oneshot::Sender<SyncAnswer>),
}

/// The state of one partition; see the module documentation.
pub(crate) struct Groups {
    config: GroupConfig,
    settings: Arc<Settings>,
    streams_settings: Arc<StreamsSettings>,
    retention_ms: i64,
    commit_timeout: Duration,
    groups: BTreeMap<String, Kept>,
    /// Deadlines of the groups, as in [`Kept::due`].
    due: BTreeSet<(Instant, String)>,
    /// Groups with pending offsets of a producer's open transaction, by producer id.
    transactions: BTreeMap<i64, BTreeSet<String>>,
    /// Waiting requests. Dropping one signals that the coordinator has moved.
    waiting: BTreeMap<Waiter, Reply>,
    next_waiter: Waiter,
    next_retention_check: Option<Instant>,
}

impl State for Groups {
    const KIND: Kind = Kind::Group;

    fn empty(broker: &Broker, _partition: i32) -> Self {
        let config = &broker.config;
        Self {
            config: GroupConfig { initial_rebalance_delay: config.group_initial_rebalance_delay },
            settings: Arc::new(config.consumer_groups()),
            streams_settings: Arc::new(config.streams_groups()),
            retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
            commit_timeout: config.offsets_commit_timeout,
            groups: BTreeMap::new(),
            due: BTreeSet::new(),
            transactions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_waiter: 0,
            next_retention_check: None,
        }
    }

    fn replay(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Record { batch, offset, key, value } => {
                let producer = batch.is_transactional().then_some(batch.producer_id);
                if let Err(error) = self.replay_record(producer, *offset, key, *value) {
                    tracing::warn!(offset, %error, "record of __consumer_offsets skipped");
                }
            }
            Entry::Marker { producer_id, marker } => {
                self.end_transaction(*producer_id, *marker);
            }
        }
    }

    fn loaded(&mut self, cx: &mut Cx<'_, Self>) {
        self.check_retention_later(cx);
        let image = cx.broker.image();
        for (id, kept) in &mut self.groups {
            if cx.broker.config.plant == Some(Plant::ForgetCommits) {
                kept.offsets = Offsets::default();
            }
            match &mut kept.group {
                AnyGroup::Classic(group) => group.resume(cx.now),
                AnyGroup::Consumer(group) => {
                    group.configure(&of_group(&self.settings, &image.settings, id));
                    group.resume(cx.now);
                }
                AnyGroup::Streams(group) => {
                    let settings = &self.streams_settings;
                    group.configure(&of_streams_group(settings, &image.settings, id));
                    group.resume(cx.now);
                }
            }
            kept.due = kept.group.deadline();
            self.due.extend(kept.due.map(|due| (due, id.clone())));
        }
    }

    fn topics_deleted(&mut self, topics: &[DeletedTopic], cx: &mut Cx<'_, Self>) {
        self.delete_offsets_of(topics, cx);
    }

    fn deadline(&self) -> Option<Instant> {
        let first = self.due.first().map(|(due, _)| *due);
        first.into_iter().chain(self.next_retention_check).min()
    }

    fn expire(&mut self, cx: &mut Cx<'_, Self>) {
        // Each iteration advances a group's deadline or removes it.
        while let Some((due, id)) = self.due.first().cloned()
            && due <= cx.now
        {
            let now_ms = cx.now_ms();
            let expired = self.change(&id, cx, |group, now| ((), group.expire(now, now_ms)));
            if expired.is_none() {
                self.expire_consumers(&id, cx);
                self.expire_streams(&id, cx);
            }
        }
        if self.next_retention_check.is_some_and(|at| at <= cx.now) {
            self.check_retention_later(cx);
            self.drop_expired(cx);
        }
    }
}

impl Groups {
    fn kept(&mut self, group: &str, now_ms: i64) -> &mut Kept {
        let config = self.config;
        self.groups.entry(group.to_owned()).or_insert_with(|| Kept {
            group: AnyGroup::Classic(Group::new(config, now_ms)),
            offsets: Offsets::default(),
            due: None,
        })
    }

    fn replay_record(
        &mut self,
        producer: Option<i64>,
        offset: i64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), curtail_wire::DecodeError> {
        match (records::decode_key(key)?, value) {
            (None, _) => {}
            (Some(Key::Group(id)), None) => {
                // A group's offsets have separate tombstones.
                if let Some(Kept { group: AnyGroup::Classic(group), .. }) = self.groups.get_mut(&id)
                {
                    *group = Group::new(self.config, -1);
                }
                self.drop_if_unused(&id);
            }
            (Some(Key::Group(id)), Some(value)) => {
                if let Some(value) = records::decode_group(value)? {
                    let group = Group::load(self.config, value);
                    self.kept(&id, -1).group = AnyGroup::Classic(group);
                }
            }
            (Some(Key::Consumer(id, part)), value) => {
                if let Some(change) = records::decode_change(part, value)? {
                    self.take_on_change::<ConsumerGroup>(&id, change);
                }
            }
            (Some(Key::Streams(id, part)), value) => {
                if let Some(change) = records::decode_streams_change(part, value)? {
                    self.take_on_change::<StreamsGroup>(&id, change);
                }
            }
            (Some(Key::Offset { group, topic, partition }), None) => {
                if let Some(kept) = self.groups.get_mut(&group) {
                    kept.offsets.remove(&(topic, partition));
                }
                self.drop_if_unused(&group);
            }
            (Some(Key::Offset { group, topic, partition }), Some(value)) => {
                if let Some(value) = records::decode_offset(value)? {
                    let commit = Commit { value, log_offset: offset };
                    self.take_on(producer, &group, (topic, partition), commit);
                }
            }
        }
        Ok(())
    }

    /// Removes a group without any record in the log.
    fn drop_if_unused(&mut self, id: &str) {
        let unused = |kept: &Kept| {
            kept.group.is_unused()
                && kept.group.protocol_type().is_empty()
                && kept.offsets.is_empty()
        };
        if self.groups.get(id).is_some_and(unused) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(Kept { due: Some(due), .. }) = self.groups.remove(id) {
            self.due.remove(&(due, id.to_owned()));
        }
    }

    /// Applies an offset from the log, inside or outside a producer's transaction.
    fn take_on(&mut self, producer: Option<i64>, group: &str, at: TopicPartition, commit: Commit) {
        let timestamp = commit.value.commit_timestamp;
        let offsets = &mut self.kept(group, timestamp).offsets;
        match producer {
            None => offsets.commit(at, commit),
            Some(producer_id) => {
                offsets.prepare(producer_id, at, commit);
                self.transactions.entry(producer_id).or_default().insert(group.to_owned());
            }
        }
    }

    /// Returns the group, if it exists.
    pub(crate) fn group(&self, id: &str) -> Option<&AnyGroup> {
        self.groups.get(id).map(|kept| &kept.group)
    }

    /// Returns the group, if it exists and uses the classic protocol.
    pub(crate) fn classic(&self, id: &str) -> Option<&Group> {
        match self.group(id)? {
            AnyGroup::Classic(group) => Some(group),
            AnyGroup::Consumer(_) | AnyGroup::Streams(_) => None,
        }
    }

    /// Returns the group, if it exists and uses the consumer protocol.
    pub(crate) fn consumers(&self, id: &str) -> Option<&ConsumerGroup> {
        match self.group(id)? {
            AnyGroup::Consumer(group) => Some(group),
            AnyGroup::Classic(_) | AnyGroup::Streams(_) => None,
        }
    }

    /// Returns a group's offsets, if the group exists.
    pub(crate) fn offsets(&self, id: &str) -> Option<&Offsets> {
        self.groups.get(id).map(|kept| &kept.offsets)
    }

    /// Returns all groups of this partition.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &AnyGroup)> {
        self.groups.iter().map(|(id, kept)| (id.as_str(), &kept.group))
    }

    /// Changes a group of the classic protocol and carries out the outputs; `None` if there is no
    /// such group.
    fn change<R>(
        &mut self,
        id: &str,
        cx: &mut Cx<'_, Self>,
        change: impl FnOnce(&mut Group, Instant) -> (R, Vec<Output>),
    ) -> Option<R> {
        let AnyGroup::Classic(group) = &mut self.groups.get_mut(id)?.group else { return None };
        let (result, outputs) = change(group, cx.now);
        self.carry_out(id, outputs, cx);
        self.arm(id);
        Some(result)
    }

    fn arm(&mut self, id: &str) {
        let Some(kept) = self.groups.get_mut(id) else { return };
        let next = kept.group.deadline();
        if next == kept.due {
            return;
        }
        if let Some(old) = std::mem::replace(&mut kept.due, next) {
            self.due.remove(&(old, id.to_owned()));
        }
        self.due.extend(next.map(|next| (next, id.to_owned())));
    }

    fn carry_out(&mut self, id: &str, outputs: Vec<Output>, cx: &mut Cx<'_, Self>) {
        let mut outputs = VecDeque::from(outputs);
        while let Some(output) = outputs.pop_front() {
            match output {
                // The waiting request may have ended with its connection.
                Output::Joined { waiter, answer } => {
                    if let Some(Reply::Join(reply)) = self.waiting.remove(&waiter) {
                        let _ = reply.send(answer);
                    }
                }
                Output::Synced { waiter, answer } => {
                    if let Some(Reply::Sync(reply)) = self.waiting.remove(&waiter) {
                        let _ = reply.send(answer);
                    }
                }
                Output::Store { value, then } => match cx.append(&[group_record(id, &value)]) {
                    Ok(taken) => self.when_committed(id, taken, then, cx),
                    Err(code) => {
                        let kept = self.groups.get_mut(id).map(|kept| &mut kept.group);
                        let Some(AnyGroup::Classic(group)) = kept else { return };
                        let now_ms = cx.now_ms();
                        outputs.extend(group.stored(cx.now, now_ms, then, Err(code)));
                    }
                },
            }
        }
    }

    /// Notifies the state machine once its group is stored.
    fn when_committed(&self, id: &str, taken: Taken, then: Stored, cx: &Cx<'_, Self>) {
        let (broker, shard) = (cx.broker.clone(), cx.shard.clone());
        let (id, timeout) = (id.to_owned(), self.commit_timeout);
        cx.broker.spawn(async move {
            let result = shard.committed(&broker, &taken, timeout).await;
            // If the shard has ended, so have the waiting requests.
            let _ = shard.run(&broker, |groups, cx| {
                let now_ms = cx.now_ms();
                groups.change(&id, cx, |group, now| ((), group.stored(now, now_ms, then, result)));
            });
        });
    }

    fn wait(&mut self, reply: Reply) -> Waiter {
        self.next_waiter += 1;
        self.waiting.insert(self.next_waiter, reply);
        self.next_waiter
    }

    /// Handles JoinGroup. The response is sent through the channel, which closes if the coordinator
    /// moves.
    pub(crate) fn join(
        &mut self,
        group: &str,
        mut join: Join,
        cx: &mut Cx<'_, Self>,
    ) -> oneshot::Receiver<JoinAnswer> {
        let (reply, answer) = oneshot::channel();
        if cx.broker.config.plant == Some(Plant::RebalanceWithoutWaiting) {
            join.rebalance_timeout = Duration::ZERO;
        }
        let now_ms = cx.now_ms();
        if let Err(code) = self.make_classic(group, &join.member_id, cx) {
            let _ = reply.send(Err((code, join.member_id)));
            return answer;
        }
        self.kept(group, now_ms);
        let waiter = self.wait(Reply::Join(reply));
        self.change(group, cx, |group, now| ((), group.join(now, now_ms, join, waiter)));
        answer
    }

    /// Handles SyncGroup, like [`Groups::join`].
    pub(crate) fn sync(
        &mut self,
        group: &str,
        sync: SyncRequest,
        cx: &mut Cx<'_, Self>,
    ) -> oneshot::Receiver<SyncAnswer> {
        let (reply, answer) = oneshot::channel();
        if self.classic(group).is_none() {
            let _ = reply.send(Err(ErrorCode::UNKNOWN_MEMBER_ID));
            return answer;
        }
        let waiter = self.wait(Reply::Sync(reply));
        self.change(group, cx, |group, now| ((), group.sync(now, sync, waiter)));
        answer
    }

    /// Handles Heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        group: &str,
        member: Committer<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<(), ErrorCode> {
        let Committer { member_id, instance_id, generation } = member;
        let heartbeat = |group: &mut Group, now| {
            (group.heartbeat(now, member_id, instance_id, generation), Vec::new())
        };
        self.change(group, cx, heartbeat).unwrap_or(Err(ErrorCode::UNKNOWN_MEMBER_ID))
    }

    /// Handles LeaveGroup.
    pub(crate) fn leave(
        &mut self,
        group: &str,
        leaving: &[(String, Option<String>)],
        cx: &mut Cx<'_, Self>,
    ) -> Result<Left, ErrorCode> {
        if self.consumers(group).is_some() {
            return self.leave_consumers(group, leaving, cx);
        }
        let now_ms = cx.now_ms();
        let left = self.change(group, cx, |group, now| group.leave(now, now_ms, leaving));
        let unknown = || vec![Err(ErrorCode::UNKNOWN_MEMBER_ID); leaving.len()];
        Ok((left.unwrap_or_else(unknown), None))
    }

    /// Handles OffsetCommit. The offsets are appended when this returns; respond once the append is
    /// committed.
    pub(crate) fn commit(
        &mut self,
        group: &str,
        committer: Committer<'_>,
        version: i16,
        offsets: Vec<(TopicPartition, OffsetValue)>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Option<Taken>, ErrorCode> {
        let Committer { member_id, instance_id, generation } = committer;
        let may = |group: &mut Group, now| {
            (group.may_commit(now, member_id, instance_id, generation), Vec::new())
        };
        let by = CommitBy::Request(version);
        let plant = cx.broker.config.plant;
        match self.change(group, cx, may) {
            _ if plant == Some(Plant::TakeAnyCommit) => {}
            Some(may) => may?,
            None => self.may_commit(group, committer, by, &offsets, cx)?,
        }
        if offsets.is_empty() {
            return Ok(None);
        }
        if plant == Some(Plant::CommitInMemory) {
            for (at, value) in offsets {
                self.take_on(None, group, at, Commit { value, log_offset: 0 });
            }
            return Ok(None);
        }
        let taken = cx.append(&offset_records(group, &offsets))?;
        self.take_on_all(None, group, offsets, &taken);
        Ok(Some(taken))
    }

    /// Handles TxnOffsetCommit like [`Groups::commit`], except that the offsets take effect when
    /// the producer's transaction is committed ([`Groups::end_transaction`]). `guard` proves that
    /// the transaction coordinator knows this partition as part of the transaction.
    pub(crate) fn prepare(
        &mut self,
        group: &str,
        committer: Committer<'_>,
        (producer, guard): (Producer, Option<VerificationGuard>),
        offsets: Vec<(TopicPartition, OffsetValue)>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Option<Taken>, ErrorCode> {
        let Committer { member_id, instance_id, generation } = committer;
        match self.classic(group) {
            _ if cx.broker.config.plant == Some(Plant::TakeAnyCommit) => {}
            Some(group) => group.may_commit_in_transaction(member_id, instance_id, generation)?,
            None => self.may_commit(group, committer, CommitBy::Transaction, &offsets, cx)?,
        }
        if offsets.is_empty() {
            return Ok(None);
        }
        let taken = cx.append_in_transaction(&offset_records(group, &offsets), producer, guard)?;
        self.take_on_all(Some(producer.id), group, offsets, &taken);
        Ok(Some(taken))
    }

    /// Appends the marker that ends a producer's transaction in this partition, and applies it to
    /// the offsets.
    pub(crate) fn write_marker(
        &mut self,
        marker: &TxnMarker,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Taken, NotServed> {
        let taken = cx.append_marker(marker)?;
        self.end_transaction(marker.producer_id, marker.result);
        Ok(taken)
    }

    fn take_on_all(
        &mut self,
        producer: Option<i64>,
        group: &str,
        offsets: Vec<(TopicPartition, OffsetValue)>,
        taken: &Taken,
    ) {
        for ((at, value), log_offset) in offsets.into_iter().zip(taken.appended.base_offset..) {
            self.take_on(producer, group, at, Commit { value, log_offset });
        }
    }

    /// Commits or discards a producer's pending offsets, after its marker has been appended to this
    /// partition's log.
    pub(crate) fn end_transaction(&mut self, producer_id: i64, marker: EndTxnMarker) {
        for group in self.transactions.remove(&producer_id).unwrap_or_default() {
            if let Some(kept) = self.groups.get_mut(&group) {
                kept.offsets.complete(producer_id, marker == EndTxnMarker::Commit);
            }
            self.drop_if_unused(&group);
        }
    }

    /// Handles OffsetDelete for partitions whose offsets may be deleted. Returns the append to wait
    /// for, if any.
    pub(crate) fn delete_offsets(
        &mut self,
        group: &str,
        partitions: &[TopicPartition],
        cx: &mut Cx<'_, Self>,
    ) -> Result<Option<Taken>, ErrorCode> {
        let Some(kept) = self.groups.get(group) else { return Err(ErrorCode::GROUP_ID_NOT_FOUND) };
        let known: Vec<TopicPartition> =
            partitions.iter().filter(|at| kept.offsets.get(at).is_some()).cloned().collect();
        let records = known.iter().map(|(topic, index)| offset_tombstone(group, topic, *index));
        let taken = cx.append_all(&records.collect::<Vec<_>>())?;
        if let Some(kept) = self.groups.get_mut(group) {
            known.iter().for_each(|at| kept.offsets.remove(at));
        }
        Ok(taken)
    }

    /// Deletes the offsets of topics that no longer exist, as Kafka's coordinator does: a later topic of
    /// the same name begins without offsets.
    fn delete_offsets_of(&mut self, topics: &[DeletedTopic], cx: &mut Cx<'_, Self>) {
        for (id, kept) in &mut self.groups {
            let own = |(topic, name): &DeletedTopic| kept.offsets.of_deleted(name, *topic);
            let deleted: BTreeSet<TopicPartition> = topics.iter().flat_map(own).collect();
            if deleted.is_empty() {
                continue;
            }
            if let Err(code) = cx.append_all(&tombstones(id, deleted.iter())) {
                let code = code.name();
                tracing::warn!(group = id, code, "offsets of deleted topics were not removed");
                return;
            }
            deleted.iter().for_each(|at| kept.offsets.remove(at));
        }
    }

    /// Handles DeleteGroups for one group.
    pub(crate) fn delete(
        &mut self,
        group: &str,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Option<Taken>, ErrorCode> {
        let Some(kept) = self.groups.get(group) else { return Err(ErrorCode::GROUP_ID_NOT_FOUND) };
        if !kept.group.is_unused() {
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        let mut records = tombstones(group, kept.offsets.all().map(|(at, _)| at));
        records.extend(kept.group.tombstones(group));
        let taken = cx.append_all(&records)?;
        self.remove(group);
        Ok(taken)
    }

    fn check_retention_later(&mut self, cx: &Cx<'_, Self>) {
        let interval = cx.broker.config.offsets_retention_check_interval;
        self.next_retention_check = Some(cx.now + interval);
    }

    /// Deletes the offsets that have exceeded `offsets.retention.minutes`, and the groups without
    /// members that then have no offsets.
    fn drop_expired(&mut self, cx: &mut Cx<'_, Self>) {
        let until = cx.now_ms().saturating_sub(self.retention_ms);
        let due = |(id, kept): (&String, &Kept)| {
            let expired = kept.expired(until);
            let ends = kept.group.is_unused() && kept.offsets.are_all(&expired);
            (ends || !expired.is_empty()).then(|| (id.clone(), expired, ends))
        };
        let due: Vec<_> = self.groups.iter().filter_map(due).collect();
        for (id, expired, ends) in due {
            let Some(kept) = self.groups.get_mut(&id) else { continue };
            let mut records = tombstones(&id, expired.iter());
            if ends {
                records.extend(kept.group.tombstones(&id));
            }
            if let Err(code) = cx.append_all(&records) {
                tracing::debug!(
                    group = id,
                    code = code.name(),
                    "expired offsets were not removed; the next check retries"
                );
                continue;
            }
            expired.iter().for_each(|at| kept.offsets.remove(at));
            if ends {
                self.remove(&id);
            }
        }
    }
}

fn offset_records(group: &str, offsets: &[(TopicPartition, OffsetValue)]) -> Vec<StateRecord> {
    let record = |((topic, partition), value): &(TopicPartition, OffsetValue)| {
        offset_record(group, topic, *partition, value)
    };
    offsets.iter().map(record).collect()
}

fn tombstones<'a>(
    group: &str,
    offsets: impl Iterator<Item = &'a TopicPartition>,
) -> Vec<StateRecord> {
    offsets.map(|(topic, partition)| offset_tombstone(group, topic, *partition)).collect()
}
