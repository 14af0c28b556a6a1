//! How the coordinator's responses change the member.

use std::{mem, sync::Arc, time::Instant};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    consumer_protocol::{self, Assignment, Subscription},
};

use super::{
    Assignments, Assignor, Identity, Key, Leadership, Member, Membership, Node, Phase, Protocol,
    Reason, Sync, Topics, assignor,
};
use crate::later::Later;

/// The response to a JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    /// The new generation.
    pub generation: i32,
    /// The member's id from now on.
    pub member: Arc<str>,
    /// The assignor that the group has chosen.
    pub protocol: String,
    /// Id of the leader.
    pub leader: Arc<str>,
    /// The leader has rejoined and its assignment is in force: it only has to follow the metadata (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: all members with the metadata for their assignor.
    pub members: Vec<(Arc<str>, Option<Arc<str>>, Bytes)>,
}

/// Why a request has no usable response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble<E> {
    /// The coordinator refused it: with the member id that a JoinGroup lacks (KIP-394), or with a message.
    Refused(ErrorCode, Option<Arc<str>>),
    /// There was no response: the request may have been carried out.
    Lost(E),
    /// It can never be sent, for example because the broker does not support the request.
    Impossible(E),
}

/// The reaction to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// Find the coordinator again.
    Find,
    /// Retry later.
    Later,
    /// Join again.
    Rejoin,
    /// Join as a new member: the owned partitions may belong to others.
    Renew { keep_id: bool },
    /// Fail: no retry can succeed.
    Fail,
}

/// Returns the reaction to an error code of the group requests. Other retriable codes are retried later.
fn remedy(code: ErrorCode) -> Remedy {
    match code {
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => Remedy::Find,
        ErrorCode::REBALANCE_IN_PROGRESS => Remedy::Rejoin,
        ErrorCode::UNKNOWN_MEMBER_ID => Remedy::Renew { keep_id: false },
        ErrorCode::ILLEGAL_GENERATION | ErrorCode::FENCED_MEMBER_EPOCH => {
            Remedy::Renew { keep_id: true }
        }
        ErrorCode::FENCED_INSTANCE_ID => Remedy::Fail,
        // The coordinator failed for no reason it can name.
        ErrorCode::UNKNOWN_SERVER_ERROR => Remedy::Later,
        code if code.is_retriable() => Remedy::Later,
        _ => Remedy::Fail,
    }
}

impl<E> Reason<E> {
    /// Whether only another subscription ends the failure. The Java client asks again with every poll if an operator
    /// may have fixed the cause. That holds for a missing ACL permission, and under the classic protocol for every
    /// refusal except `FENCED_INSTANCE_ID`, with which another member has taken this one's place.
    pub(super) fn lasts(&self, protocol: &Protocol) -> bool {
        match self {
            Self::Reported(_) | Self::Refused(_, ErrorCode::FENCED_INSTANCE_ID, _) => true,
            Self::Refused(_, code, _) => {
                matches!(protocol, Protocol::Consumer { .. }) && !is_missing_right(*code)
            }
        }
    }
}

fn is_missing_right(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
    )
}

impl<E: Clone> Membership<E> {
    /// Reports the response to [`super::Step::Find`].
    pub fn found(&mut self, found: Result<Node, Trouble<E>>, now: Instant, unit: f64) {
        match found {
            Ok(node) => self.coordinator = Some(node),
            // One attempt is enough to leave.
            Err(_) if self.departure.take().is_some() => {}
            Err(Trouble::Refused(code, words)) if remedy(code) == Remedy::Fail => {
                self.failed_once(now, unit);
                self.fail(Reason::Refused("FindCoordinator", code, words));
            }
            Err(Trouble::Impossible(error)) => self.fail(Reason::Reported(error)),
            Err(_) => self.failed_once(now, unit),
        }
    }

    /// Reports that all commits handed over have a response.
    pub fn flushed(&mut self) {
        if !matches!(self.phase, Phase::Flushing { .. }) {
            return;
        }
        if self.reconciliation.is_some() && self.generation >= 0 {
            self.phase = Phase::Settled;
            self.reconcile();
        } else {
            self.phase = Phase::Joining;
        }
    }

    /// Reports the response to [`super::Step::Join`].
    pub fn joined(&mut self, reply: Result<JoinReply, Trouble<E>>, now: Instant, unit: f64) {
        let introduces = mem::take(&mut self.introduces);
        if !matches!(self.phase, Phase::Joining) {
            // The application has left. The group would wait for the member, up to `session.timeout.ms`.
            let assigned = match reply {
                Ok(reply) => Some((reply.generation, reply.member)),
                Err(Trouble::Refused(ErrorCode::MEMBER_ID_REQUIRED, Some(id))) => Some((-1, id)),
                Err(_) => None,
            };
            if let Some((generation, member)) = assigned.filter(|_| introduces) {
                self.dismiss(Identity { generation, member });
            }
            return;
        }
        match reply {
            Ok(reply) => self.accepted(reply, now),
            Err(Trouble::Refused(ErrorCode::MEMBER_ID_REQUIRED, Some(id))) => {
                // The coordinator gives a new member its id and requires a second join with it (KIP-394).
                if self.member.is_empty() {
                    self.retry_at_once();
                } else {
                    self.failed_once(now, unit);
                }
                self.member = id;
            }
            // The coordinator may have evicted the member by now; with its id the coordinator knows it again.
            Err(Trouble::Refused(ErrorCode::REBALANCE_IN_PROGRESS, _)) => {
                self.failed_once(now, unit);
            }
            Err(trouble) => self.handle("JoinGroup", trouble, now, unit),
        }
    }

    fn accepted(&mut self, reply: JoinReply, now: Instant) {
        let known = Assignor::of_name(&reply.protocol);
        let Some(protocol) = known.filter(|a| self.settings.protocol.assignors().contains(a))
        else {
            let code = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
            return self.fail(Reason::Refused("JoinGroup", code, None));
        };
        self.retry_at_once();
        self.generation = reply.generation;
        self.member = reply.member;
        self.beat_at = now.later(self.settings.protocol.heartbeat_interval());
        self.leading = None;
        let leads = reply.leader == self.member;
        if !leads {
            self.sync(protocol, Vec::new());
            return;
        }
        let members: Arc<[Member]> = reply.members.into_iter().filter_map(member).collect();
        let wanted = Arc::new(assignor::wanted_topics(&members));
        let in_force = reply.skip_assignment;
        self.leading = Some(Leadership { wanted, layouts: Topics::new(), in_force });
        self.phase = Phase::Assigning(protocol, members);
    }

    fn sync(&mut self, protocol: Assignor, assignments: Vec<(Arc<str>, Bytes)>) {
        let identity = Identity { generation: self.generation, member: self.member.clone() };
        self.phase = Phase::Syncing(Sync { identity, protocol, assignments });
    }

    /// Reports the outcome of [`super::Step::Assign`], with the partitions it was made from.
    pub fn assigned(&mut self, assignments: &Assignments, mut layouts: Topics) {
        let Phase::Assigning(protocol, _) = self.phase else { return };
        let Some(leading) = &mut self.leading else { return };
        if self.settings.rack.is_none() {
            layouts.values_mut().for_each(|layout| layout.racks.clear());
        }
        leading.layouts = layouts;
        if leading.in_force {
            return self.sync(protocol, Vec::new());
        }
        let encoded = assignments.iter().map(|(member, keys)| {
            let assignment = Assignment { partitions: assignor::by_topic(keys), user_data: None };
            (member.clone(), assignment.encode(consumer_protocol::VERSION))
        });
        self.sync(protocol, encoded.collect());
    }

    /// Reports the response to [`super::Step::Sync`]: the assignment.
    pub fn synced(&mut self, reply: Result<Bytes, Trouble<E>>, now: Instant, unit: f64) {
        if !matches!(self.phase, Phase::Syncing(_)) {
            return;
        }
        let bytes = match reply {
            Ok(bytes) => bytes,
            // Only a new JoinGroup shows whether the group is complete.
            Err(Trouble::Lost(_)) => {
                self.coordinator = None;
                self.phase = Phase::Joining;
                return self.failed_once(now, unit);
            }
            Err(trouble) => return self.handle("SyncGroup", trouble, now, unit),
        };
        let Ok(assignment) = Assignment::decode(&bytes) else {
            let code = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
            return self.fail(Reason::Refused("SyncGroup", code, None));
        };
        self.retry_at_once();
        self.beat_at = now.later(self.settings.protocol.heartbeat_interval());
        let offer: Vec<Key> = assignor::flat(&assignment.partitions);
        self.given = Some((assignor::by_topic(&offer), self.generation));
        self.phase = Phase::Offered(offer.into_iter().collect());
        if std::mem::take(&mut self.rejoin) {
            self.begin(now);
        }
    }

    /// Reports the response to [`super::Step::Heartbeat`].
    pub fn beaten(&mut self, reply: Result<(), Trouble<E>>, now: Instant, unit: f64) {
        self.beat_at = now.later(self.settings.protocol.heartbeat_interval());
        match reply {
            Ok(()) => self.retry_at_once(),
            Err(trouble) => self.handle("Heartbeat", trouble, now, unit),
        }
    }

    /// Reports the response to [`super::Step::Leave`]. Whatever it is, the member has left.
    pub fn left(&mut self) {
        self.departure = None;
    }

    /// Reports that a commit under `identity` was refused. Returns whether the member can commit again without a
    /// rejoin.
    pub fn commit_refused(&mut self, identity: &Identity, code: ErrorCode, now: Instant) -> bool {
        if code == ErrorCode::STALE_MEMBER_EPOCH {
            return self.successor(identity).is_some();
        }
        // A commit and a join on another connection may overtake each other. If the join was first, the coordinator has
        // begun the generation that the join asks for: the member stays, and learns of it by the join's response.
        // **Was a bug:** it gave up its partitions.
        let is_overtaken =
            code == ErrorCode::ILLEGAL_GENERATION && matches!(self.phase, Phase::Joining);
        let current = self.identity().as_ref() == Some(identity);
        match remedy(code) {
            Remedy::Renew { keep_id } if current && !is_overtaken => {
                self.renew(keep_id, now);
                false
            }
            Remedy::Fail if current && code == ErrorCode::FENCED_INSTANCE_ID => {
                self.fail(Reason::Refused("OffsetCommit", code, None));
                false
            }
            Remedy::Rejoin if current => {
                self.ask_to_rejoin(now);
                true
            }
            Remedy::Renew { .. } | Remedy::Rejoin | Remedy::Later | Remedy::Find => true,
            Remedy::Fail => false,
        }
    }

    /// Returns the current identity of the member that was `former`, if it has been in the group ever since.
    pub fn successor(&self, former: &Identity) -> Option<Identity> {
        let identity = self.identity()?;
        let same = match &self.reconciliation {
            Some(reconciliation) => {
                identity.member == former.member && reconciliation.was_member_in(former.generation)
            }
            None => identity == *former,
        };
        same.then_some(identity)
    }

    /// Forgets the coordinator if it is `node`, which no longer is the right one.
    pub fn coordinator_lost(&mut self, node: &Node) {
        if self.coordinator.as_ref() == Some(node) {
            self.coordinator = None;
        }
    }

    pub(super) fn handle(
        &mut self,
        request: &'static str,
        trouble: Trouble<E>,
        now: Instant,
        unit: f64,
    ) {
        let (code, words) = match trouble {
            Trouble::Refused(code, words) => (code, words),
            Trouble::Impossible(error) => return self.fail(Reason::Reported(error)),
            Trouble::Lost(_) => {
                self.coordinator = None;
                self.beat_at = now;
                return self.failed_once(now, unit);
            }
        };
        match remedy(code) {
            Remedy::Find => {
                self.coordinator = None;
                self.beat_at = now;
                self.failed_once(now, unit);
            }
            Remedy::Later => self.failed_once(now, unit),
            // The coordinator never responds with this under the consumer protocol.
            Remedy::Rejoin if self.reconciliation.is_some() => self.failed_once(now, unit),
            Remedy::Rejoin => match self.phase {
                Phase::Joining | Phase::Assigning(..) | Phase::Syncing(_) => {
                    self.phase = Phase::Joining;
                }
                _ => self.ask_to_rejoin(now),
            },
            Remedy::Renew { keep_id } => {
                // A join that names no ended membership would be repeated unchanged, without backoff.
                let is_new = keep_id || self.member == self.settings.protocol.own_id();
                if is_new && matches!(self.phase, Phase::Joining) {
                    self.failed_once(now, unit);
                }
                self.renew(keep_id, now);
            }
            Remedy::Fail => {
                self.failed_once(now, unit);
                self.fail(Reason::Refused(request, code, words));
            }
        }
    }

    fn renew(&mut self, keep_id: bool, now: Instant) {
        let id = self.member.clone();
        self.lose_membership(now);
        if keep_id {
            self.member = id;
        }
    }
}

/// Decodes a member's subscription. A member that does not speak the protocol is assigned no partitions.
fn member((id, instance, metadata): (Arc<str>, Option<Arc<str>>, Bytes)) -> Option<Member> {
    let subscription = Subscription::decode(&metadata).ok()?;
    Some(Member { id, instance, subscription })
}
