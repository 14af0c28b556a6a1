//! The task that commits offsets: one request at a time, in the order of the calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    ops::RangeInclusive,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use curtail_proto::{
    assignor::Key,
    later::Later,
    membership::{Identity, Standing},
    plant::{Plant, planted},
};
use curtail_wire::{ErrorCode, cold::messages};
use messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep_until, timeout_at},
};

use super::{Group, committed::ask_coordinator, key, requests::text};
use crate::{
    Error, Result, TopicPartition,
    config::GroupProtocol,
    conn::{Connection, Idle},
    consumer::shared::Shared,
    metrics::GroupStats,
    span::Span,
    transaction::OffsetAndMetadata,
};

/// Version 10 names topics by id.
const VERSIONS: RangeInclusive<i16> = 2..=9;
/// First version that names static members.
const STATIC: i16 = 7;
/// First version for members of the consumer protocol (KIP-848).
const WITH_EPOCHS: i16 = 9;

/// Offsets by partition.
pub(super) type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// The identity under which offsets are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// No member: the application assigned the partitions.
    Application,
    /// The member, which has released none of the partitions since.
    Owner,
    /// The member with the identity under which it released the partitions.
    Former(Identity),
    /// No one: the member lost the partitions, and other members may have committed since.
    Lost,
}

/// Commits to send.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Number of finished commits.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Waiting {
    /// The commit in progress.
    current: Option<Claim>,
    commits: VecDeque<Commit>,
    /// Number of commits queued so far.
    taken: u64,
    /// Whether the task that sends commits has ended.
    closed: bool,
}

/// Offsets and the authority to commit them. The application's side changes the authority when it releases a
/// partition, also for the commit in progress.
#[derive(Clone)]
struct Claim {
    offsets: Arc<Offsets>,
    authority: Authority,
}

impl Claim {
    fn touches(&self, partitions: &BTreeSet<TopicPartition>) -> bool {
        self.offsets.keys().any(|at| partitions.contains(at))
    }
}

struct Commit {
    claim: Claim,
    deadline: Instant,
    /// More than one if later calls have replaced earlier ones.
    told: Vec<oneshot::Sender<Result<()>>>,
    span: Span,
}

impl Waiting {
    /// Queues a commit. It replaces a waiting commit of the same partitions, which shares its outcome. Otherwise the
    /// queue of an application that commits faster than the coordinator responds would grow without bound, and a
    /// rebalance waits for the queue. Commits with common partitions keep their order.
    fn add(&mut self, commit: Commit) {
        let Claim { offsets, authority } = &commit.claim;
        let touches =
            |other: &&mut Commit| offsets.keys().any(|at| other.claim.offsets.contains_key(at));
        let earlier = self.commits.iter_mut().rev().find(touches).filter(|earlier| {
            let earlier = &earlier.claim;
            earlier.authority == *authority && earlier.offsets.keys().eq(offsets.keys())
        });
        match earlier {
            Some(earlier) => {
                let told = std::mem::take(&mut earlier.told);
                *earlier = commit;
                earlier.told.splice(0..0, told);
            }
            None => {
                self.taken += 1;
                self.commits.push_back(commit);
            }
        }
    }

    fn begin_next(&mut self) -> Option<Commit> {
        let next = self.commits.pop_front();
        self.current = next.as_ref().map(|commit| commit.claim.clone());
        next
    }

    /// Claims of partitions that the member has not released since.
    fn of_owner(&mut self) -> impl Iterator<Item = &mut Claim> {
        let waiting = self.commits.iter_mut().map(|commit| &mut commit.claim);
        self.current.iter_mut().chain(waiting).filter(|claim| claim.authority == Authority::Owner)
    }
}

impl Queue {
    /// Queues offsets, to be committed within `default.api.timeout.ms` or not at all.
    pub(super) fn push(
        &self,
        shared: &Shared,
        offsets: Offsets,
        authority: Authority,
    ) -> PendingCommit {
        let (told, outcome) = oneshot::channel();
        if offsets.is_empty() {
            // The receiver still exists.
            let _ = told.send(Ok(()));
            return PendingCommit(outcome);
        }
        let deadline = Instant::now().later(shared.config.common.default_api_timeout);
        let config = &shared.config;
        let span =
            Span::commit(&config.common.client_id, config.group_id.as_deref(), offsets.len());
        let claim = Claim { offsets: Arc::new(offsets), authority };
        let mut waiting = self.waiting.lock();
        if !waiting.closed {
            waiting.add(Commit { claim, deadline, told: vec![told], span });
        }
        drop(waiting);
        self.wake.notify_one();
        PendingCommit(outcome)
    }

    /// Fails all queued and all later commits with [`Error::Closed`].
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.commits);
        drop(waiting);
        drop(dropped);
    }

    /// Returns a mark after the commits queued so far, for [`Self::flushed_to`].
    pub(super) fn mark(&self) -> u64 {
        self.waiting.lock().taken
    }

    /// Waits until all commits queued before the mark have finished.
    pub(super) async fn flushed_to(&self, mark: u64) {
        if planted(Plant::NoFlushBeforeRejoin) {
            return;
        }
        // The queue itself owns the sender, so the wait cannot fail.
        let _ = self.done.subscribe().wait_for(|done| *done >= mark).await;
    }

    /// Waits until all commits queued so far have finished.
    pub(super) async fn flushed(&self) {
        self.flushed_to(self.mark()).await;
    }

    /// Prepares the release of the partitions `going`. The member's commits whose partitions are all in `owned` are
    /// sent under the identity that owned them, before the member rejoins.
    pub(super) fn entrust(
        &self,
        going: &BTreeSet<TopicPartition>,
        owned: &BTreeSet<Key>,
        identity: &Identity,
    ) {
        for claim in self.waiting.lock().of_owner() {
            if claim.offsets.keys().all(|at| owned.contains(&key(at))) {
                claim.authority = Authority::Former(identity.clone());
            } else if claim.touches(going) {
                claim.authority = Authority::Lost;
            }
        }
    }

    /// Drops commits of lost partitions: they are not sent, even if the member owns the partitions again later.
    pub(super) fn disown(&self, lost: &BTreeSet<TopicPartition>) {
        for claim in self.waiting.lock().of_owner().filter(|claim| claim.touches(lost)) {
            claim.authority = Authority::Lost;
        }
    }

    /// Authority of the commit in progress.
    fn authority(&self) -> Authority {
        let waiting = self.waiting.lock();
        waiting.current.as_ref().map_or(Authority::Lost, |claim| claim.authority.clone())
    }

    async fn next(&self) -> Commit {
        loop {
            let woken = self.wake.notified();
            if let Some(commit) = self.waiting.lock().begin_next() {
                return commit;
            }
            woken.await;
        }
    }
}

/// Outcome of [`crate::Consumer::commit_nowait`], to be awaited or dropped: the offsets are still committed.
///
/// # Errors
/// As [`crate::Consumer::commit`].
#[derive(Debug)]
#[must_use = "a commit can fail; check the outcome, or drop it to ignore failures"]
pub struct PendingCommit(oneshot::Receiver<Result<()>>);

impl Future for PendingCommit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll(cx).map(|told| told.unwrap_or(Err(Error::Closed)))
    }
}

/// Runs until the consumer aborts it.
pub(super) async fn run(shared: Arc<Shared>, group: Arc<Group>) {
    let idle = Idle::new(&shared.runtime);
    let mut committer = Committer { shared, group, idle };
    loop {
        let commit = committer.group.commits.next().await;
        if planted(Plant::CommitDropped) && commit.told.iter().all(oneshot::Sender::is_closed) {
            committer.group.commits.done.send_modify(|done| *done += 1);
            continue;
        }
        let result = commit.span.wrap(committer.carry_out(&commit)).await;
        commit.span.end_of(&result);
        let Commit { claim, told, span, .. } = commit;
        span.end();
        match &result {
            Ok(()) => {
                committer.shared.committed(&claim.offsets);
                committer.shared.config.interceptors.on_commit(&claim.offsets);
            }
            Err(error) => {
                tracing::warn!(group = &*committer.group.id, error = %error.report(), "commit");
            }
        }
        for told in told {
            // The caller may have dropped its [`PendingCommit`].
            let _ = told.send(result.clone());
        }
        committer.group.commits.done.send_modify(|done| *done += 1);
    }
}

struct Committer {
    shared: Arc<Shared>,
    group: Arc<Group>,
    /// The connection to the coordinator, while it works.
    idle: Idle<i32>,
}

/// Whether a commit may be sent now.
enum Permit {
    /// Send it under this identity, if any.
    Go(Option<Identity>),
    /// Wait for a change of the membership.
    Wait,
}

impl Committer {
    async fn carry_out(&mut self, commit: &Commit) -> Result<()> {
        let mut changed = self.group.changed.subscribe();
        let (mut failures, mut last) = (0, None);
        loop {
            changed.borrow_and_update();
            let identity = match self.permit(commit)? {
                Permit::Go(identity) => identity,
                Permit::Wait => match timeout_at(commit.deadline, changed.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return Err(Error::Closed),
                    Err(_) => return Err(self.too_late(last)),
                },
            };
            let asked = Instant::now();
            let attempt = self.attempt(commit, identity.as_ref());
            let attempt = timeout_at(commit.deadline, attempt).await;
            if let Ok(Ok(()) | Err(Error::Broker { .. })) = attempt {
                GroupStats::took(&self.group.stats.commits, asked);
            }
            let error = match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.too_late(last)),
            };
            self.judge(&error, identity.as_ref())?;
            last = Some(Arc::new(error));
            failures += 1;
            let again = Instant::now().later(self.shared.backoff(failures));
            if again >= commit.deadline {
                return Err(self.too_late(last));
            }
            sleep_until(again).await;
        }
    }

    fn too_late(&self, last: Option<Arc<Error>>) -> Error {
        let limit = self.shared.config.common.default_api_timeout;
        Error::Timeout { what: "OffsetCommit (default.api.timeout.ms)", limit, last }
    }

    fn permit(&self, commit: &Commit) -> Result<Permit> {
        match self.group.commits.authority() {
            Authority::Application => Ok(Permit::Go(None)),
            Authority::Former(identity) => {
                let successor = self.group.look(|machine| machine.successor(&identity));
                Ok(Permit::Go(Some(successor.unwrap_or(identity))))
            }
            Authority::Lost => {
                let reason =
                    "the member has lost the partitions since the offsets were handed over";
                Err(self.failed(ErrorCode::UNKNOWN_MEMBER_ID, reason))
            }
            Authority::Owner => self.group.look(|machine| {
                let owned = machine.owned();
                let foreign = commit.claim.offsets.keys().find(|at| !owned.contains(&key(at)));
                if let Some(at) = foreign {
                    let reason = format!("{at} is no longer assigned to this member");
                    return Err(self.failed(ErrorCode::REBALANCE_IN_PROGRESS, &reason));
                }
                match machine.standing() {
                    Standing::Member(identity) => Ok(Permit::Go(Some(identity))),
                    Standing::Rebalancing => Ok(Permit::Wait),
                    Standing::Outside => {
                        let reason = "the consumer is no longer a member of the group";
                        Err(self.failed(ErrorCode::UNKNOWN_MEMBER_ID, reason))
                    }
                }
            }),
        }
    }

    fn failed(&self, code: ErrorCode, reason: &str) -> Error {
        Error::CommitFailed { group: self.group.id.clone(), code, reason: reason.into() }
    }

    /// Returns `Ok` for errors that a retry may resolve.
    fn judge(&self, error: &Error, identity: Option<&Identity>) -> Result<()> {
        let code = match error {
            Error::Broker { code, .. } => *code,
            Error::UnsupportedVersion(_) => return Err(error.clone()),
            _ => return Ok(()),
        };
        let of_membership = matches!(
            code,
            ErrorCode::UNKNOWN_MEMBER_ID
                | ErrorCode::ILLEGAL_GENERATION
                | ErrorCode::REBALANCE_IN_PROGRESS
                | ErrorCode::FENCED_INSTANCE_ID
                | ErrorCode::STALE_MEMBER_EPOCH
        );
        if !of_membership {
            let passes = code.is_retriable() || code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return if passes { Ok(()) } else { Err(error.clone()) };
        }
        let refused = |identity| {
            self.group.change(|machine, now| machine.commit_refused(identity, code, now))
        };
        let again = match (self.group.commits.authority(), identity) {
            (Authority::Owner, Some(identity)) => refused(identity),
            // The coordinator refuses offsets while the leader assigns, and those under an epoch before the previous
            // one. Retrying helps if the member stays.
            (Authority::Former(_), Some(identity)) => {
                let passes = matches!(
                    code,
                    ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::STALE_MEMBER_EPOCH
                );
                let stays = self.group.look(|machine| machine.successor(identity).is_some());
                refused(identity) && stays && passes
            }
            _ => false,
        };
        if again { Ok(()) } else { Err(self.failed(code, code.message())) }
    }

    async fn attempt(&mut self, commit: &Commit, identity: Option<&Identity>) -> Result<()> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        ask_coordinator(&shared, &group, &self.idle, async |connection| {
            request(connection, &group, &commit.claim.offsets, identity).await
        })
        .await
    }
}

async fn request(
    connection: &mut Connection,
    group: &Group,
    offsets: &Offsets,
    identity: Option<&Identity>,
) -> Result<()> {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (at, offset) in offsets {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(at.partition)
            .with_committed_offset(offset.offset)
            .with_committed_metadata(Some(text(&offset.metadata)));
        topics.entry(&at.topic).or_default().push(partition);
    }
    let epoch_of = |topic: &str, index: i32| {
        let at = TopicPartition { topic: topic.into(), partition: index };
        offsets.get(&at).and_then(|offset| offset.leader_epoch).unwrap_or(-1)
    };
    let versions = match group.protocol {
        GroupProtocol::Consumer if identity.is_some() => WITH_EPOCHS..=*VERSIONS.end(),
        _ => VERSIONS,
    };
    let answer: messages::OffsetCommitResponse = connection
        .request(versions, |version| {
            let topics = topics.into_iter().map(|(name, mut partitions)| {
                for partition in partitions.iter_mut().filter(|_| version >= 6) {
                    partition.committed_leader_epoch = epoch_of(name, partition.partition_index);
                }
                OffsetCommitRequestTopic::default()
                    .with_name(text(name).into())
                    .with_partitions(partitions)
            });
            let request = messages::OffsetCommitRequest::default()
                .with_group_id(text(&group.id).into())
                .with_generation_id_or_member_epoch(identity.map_or(-1, |i| i.generation))
                .with_member_id(text(identity.map_or("", |i| &i.member)))
                .with_topics(topics.collect());
            if version >= STATIC && identity.is_some() {
                request.with_group_instance_id(group.instance.as_deref().map(text))
            } else {
                request
            }
        })
        .await?;
    let mut codes = answer
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| ErrorCode(partition.error_code)));
    match codes.find(|code| code.is_error()) {
        None => Ok(()),
        Some(code) => Err(group.refused("OffsetCommit", code)),
    }
}

impl Shared {
    /// Records committed offsets.
    fn committed(&self, offsets: &Offsets) {
        let mut state = self.state.lock();
        for (at, offset) in offsets {
            if let Some(assigned) = state.partitions.get_mut(at) {
                assigned.committed = Some(offset.offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(index: i32) -> TopicPartition {
        TopicPartition::new("t", index)
    }

    fn commit(partitions: &[i32]) -> Commit {
        let offsets = partitions.iter().map(|index| (partition(*index), OffsetAndMetadata::new(7)));
        let claim = Claim { offsets: Arc::new(offsets.collect()), authority: Authority::Owner };
        Commit { claim, deadline: Instant::now(), told: Vec::new(), span: Span::NONE }
    }

    /// A queue whose task has begun the first of these commits.
    fn queue(commits: &[&[i32]]) -> Queue {
        let queue = Queue::default();
        for partitions in commits {
            queue.waiting.lock().add(commit(partitions));
        }
        assert!(queue.waiting.lock().begin_next().is_some());
        queue
    }

    fn authorities(queue: &Queue) -> Vec<Authority> {
        let waiting = queue.waiting.lock();
        let waiting_ones = waiting.commits.iter().map(|commit| commit.claim.authority.clone());
        let all = waiting.current.iter().map(|claim| claim.authority.clone()).chain(waiting_ones);
        all.collect()
    }

    #[test]
    fn commit_of_a_lost_partition_stays_dropped_when_the_member_owns_it_again() {
        let queue = queue(&[&[1], &[1, 2], &[2]]);
        queue.disown(&BTreeSet::from([partition(1)]));
        assert_eq!(authorities(&queue), [Authority::Lost, Authority::Lost, Authority::Owner]);
        assert_eq!(queue.authority(), Authority::Lost);
        queue.waiting.lock().add(commit(&[1]));
        assert_eq!(authorities(&queue).last(), Some(&Authority::Owner));
    }

    #[test]
    fn commit_of_a_revoked_partition_keeps_the_identity_of_its_owner_while_in_progress() {
        let queue = queue(&[&[1], &[1, 3], &[2]]);
        let owned = [1, 2].map(|index| key(&partition(index))).into();
        let identity = Identity { generation: 4, member: "m".into() };
        queue.entrust(&BTreeSet::from([partition(1)]), &owned, &identity);
        let former = Authority::Former(identity);
        assert_eq!(authorities(&queue), [former.clone(), Authority::Lost, former]);
    }
}
