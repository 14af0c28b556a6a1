//! Requests of a group member, and their responses.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_proto::membership::{
    GroupHeartbeat, GroupReply, Identity, Join, JoinReply, Sync, TopicIds, Trouble,
};
use curtail_wire::{
    ApiKey, ErrorCode, Uuid,
    cold::{StrBytes, messages},
};
use messages::{
    consumer_group_heartbeat_request::TopicPartitions,
    join_group_request::JoinGroupRequestProtocol, leave_group_request::MemberIdentity,
    sync_group_request::SyncGroupRequestAssignment,
};

use crate::{Error, conn::Connection};

/// `protocol.type` of consumers.
const PROTOCOL_TYPE: &str = "consumer";
/// The response to a JoinGroup comes at the end of the rebalance, which waits for its members up to
/// `max.poll.interval.ms`. This is the coordinator's extra time.
const GRACE: Duration = Duration::from_secs(5);

type Outcome<T> = Result<T, Trouble<Error>>;

/// Fields common to a member's requests.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) group: &'a str,
    pub(super) instance: Option<&'a str>,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) request_timeout: Duration,
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The outcome of a request without a response. A request in an unsupported version will not succeed later either.
pub(super) fn lost(error: Error) -> Trouble<Error> {
    match error {
        Error::UnsupportedVersion(_) => Trouble::Impossible(error),
        error => Trouble::Lost(error),
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

impl Who<'_> {
    fn instance(&self) -> Option<StrBytes> {
        self.instance.map(text)
    }

    fn rebalance_limit(&self) -> Duration {
        self.request_timeout.max(self.rebalance_timeout.saturating_add(GRACE))
    }
}

pub(super) async fn join(
    connection: &mut Connection,
    who: Who<'_>,
    join: &Join,
) -> Outcome<JoinReply> {
    /// First version with static members.
    const STATIC: i16 = 5;
    let protocols = join.protocols.iter().map(|(name, metadata)| {
        JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(metadata.clone())
    });
    let versions = if who.instance.is_some() { STATIC..=9 } else { 2..=9 };
    let answer: messages::JoinGroupResponse = connection
        .request_within(who.rebalance_limit(), versions, |version| {
            let request = messages::JoinGroupRequest::default()
                .with_group_id(text(who.group).into())
                .with_session_timeout_ms(millis(who.session_timeout))
                .with_rebalance_timeout_ms(millis(who.rebalance_timeout))
                .with_member_id(text(&join.member))
                .with_protocol_type(text(PROTOCOL_TYPE))
                .with_protocols(protocols.collect());
            if version >= STATIC { request.with_group_instance_id(who.instance()) } else { request }
        })
        .await
        .map_err(lost)?;
    let member: Arc<str> = answer.member_id.as_str().into();
    if ErrorCode(answer.error_code).is_error() {
        let given = (!member.is_empty()).then_some(member);
        return Err(Trouble::Refused(ErrorCode(answer.error_code), given));
    }
    let members = answer.members.into_iter().map(|member| {
        let instance = member.group_instance_id.as_deref().map(Arc::from);
        (member.member_id.as_str().into(), instance, member.metadata)
    });
    Ok(JoinReply {
        generation: answer.generation_id,
        member,
        protocol: answer.protocol_name.map(|name| name.to_string()).unwrap_or_default(),
        leader: answer.leader.as_str().into(),
        skip_assignment: answer.skip_assignment,
        members: members.collect(),
    })
}

pub(super) async fn sync(connection: &mut Connection, who: Who<'_>, sync: &Sync) -> Outcome<Bytes> {
    let assignments = sync.assignments.iter().map(|(member, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(assignment.clone())
    });
    let answer: messages::SyncGroupResponse = connection
        .request_within(who.rebalance_limit(), 1..=5, |version| {
            let mut request = messages::SyncGroupRequest::default()
                .with_group_id(text(who.group).into())
                .with_generation_id(sync.identity.generation)
                .with_member_id(text(&sync.identity.member))
                .with_assignments(assignments.collect());
            if version >= 3 {
                request = request.with_group_instance_id(who.instance());
            }
            if version >= 5 {
                request = request
                    .with_protocol_type(Some(text(PROTOCOL_TYPE)))
                    .with_protocol_name(Some(text(sync.protocol.name())));
            }
            request
        })
        .await
        .map_err(lost)?;
    done(answer.error_code).map(|()| answer.assignment)
}

pub(super) async fn heartbeat(
    connection: &mut Connection,
    who: Who<'_>,
    identity: &Identity,
) -> Outcome<()> {
    // A coordinator that takes longer has already removed the member.
    let limit = who.request_timeout.min(who.session_timeout);
    let answer: messages::HeartbeatResponse = connection
        .request_within(limit, 0..=4, |version| {
            let request = messages::HeartbeatRequest::default()
                .with_group_id(text(who.group).into())
                .with_generation_id(identity.generation)
                .with_member_id(text(&identity.member));
            if version >= 3 { request.with_group_instance_id(who.instance()) } else { request }
        })
        .await
        .map_err(lost)?;
    done(answer.error_code)
}

pub(super) async fn leave(
    connection: &mut Connection,
    who: Who<'_>,
    identity: &Identity,
) -> Outcome<()> {
    /// First version that names several members.
    const BATCHED: i16 = 3;
    let answer: messages::LeaveGroupResponse = connection
        .request(0..=5, |version| {
            let request =
                messages::LeaveGroupRequest::default().with_group_id(text(who.group).into());
            let member = text(&identity.member);
            if version < BATCHED {
                return request.with_member_id(member);
            }
            let member = MemberIdentity::default()
                .with_member_id(member)
                .with_group_instance_id(who.instance.map(text));
            request.with_members(vec![member])
        })
        .await
        .map_err(lost)?;
    done(answer.error_code)
}

/// The hint for brokers without the consumer protocol.
pub(super) const NO_CONSUMER_PROTOCOL: &str = "group.protocol=consumer needs Apache Kafka 4.0 or later with the feature group.version; set group.protocol=classic \
     until the cluster is upgraded";
/// The hint for brokers with the consumer protocol but without regular expressions.
const NO_PATTERNS: &str =
    "subscribe_pattern needs brokers that resolve regular expressions, Apache Kafka 4.0 or later";

/// ConsumerGroupHeartbeat (KIP-848), which joins, keeps and ends a membership.
pub(super) async fn group_heartbeat(
    connection: &mut Connection,
    who: Who<'_>,
    heartbeat: GroupHeartbeat,
) -> Outcome<GroupReply> {
    /// First version with regular expressions.
    const PATTERNS: i16 = 1;
    let wants_pattern = heartbeat.pattern.as_ref().is_some_and(|pattern| !pattern.is_empty());
    let versions = if wants_pattern { PATTERNS..=1 } else { 0..=1 };
    let known = connection.negotiate(ApiKey::CONSUMER_GROUP_HEARTBEAT, 0..=1).is_ok();
    let hint = if known { NO_PATTERNS } else { NO_CONSUMER_PROTOCOL };
    let names = |topics: Vec<Arc<str>>| topics.iter().map(|topic| text(topic).into()).collect();
    let answer: messages::ConsumerGroupHeartbeatResponse = connection
        .request(versions, |version| {
            let pattern = heartbeat.pattern.as_deref().filter(|_| version >= PATTERNS);
            messages::ConsumerGroupHeartbeatRequest::default()
                .with_group_id(text(who.group).into())
                .with_member_id(text(&heartbeat.member))
                .with_member_epoch(heartbeat.epoch)
                .with_instance_id(who.instance())
                .with_rack_id(heartbeat.rack.as_deref().map(text))
                .with_rebalance_timeout_ms(heartbeat.rebalance_timeout.map_or(-1, millis))
                .with_subscribed_topic_names(heartbeat.topics.map(names))
                .with_subscribed_topic_regex(pattern.map(text))
                .with_server_assignor(heartbeat.assignor.as_deref().map(text))
                .with_topic_partitions(heartbeat.owned.map(by_id))
        })
        .await
        .map_err(|error| match error {
            Error::UnsupportedVersion(reason) => {
                Trouble::Impossible(Error::UnsupportedVersion(format!("{reason}; {hint}").into()))
            }
            error => lost(error),
        })?;
    if ErrorCode(answer.error_code).is_error() {
        let words = answer.error_message.map(|words| words.as_str().into());
        return Err(Trouble::Refused(ErrorCode(answer.error_code), words));
    }
    let interval = u64::try_from(answer.heartbeat_interval_ms).unwrap_or_default();
    let assignment = answer.assignment.map(|assignment| {
        let mut partitions = TopicIds::new();
        for topic in assignment.topic_partitions {
            let id = Uuid(topic.topic_id.into_bytes());
            partitions.entry(id).or_default().extend(topic.partitions);
        }
        partitions
    });
    let interval = Duration::from_millis(interval);
    Ok(GroupReply { epoch: answer.member_epoch, interval, assignment })
}

fn by_id(partitions: TopicIds) -> Vec<TopicPartitions> {
    let topic = |(id, indexes): (Uuid, std::collections::BTreeSet<i32>)| {
        TopicPartitions::default()
            .with_topic_id(uuid::Uuid::from_bytes(id.0))
            .with_partitions(indexes.into_iter().collect())
    };
    partitions.into_iter().map(topic).collect()
}

fn done(code: i16) -> Outcome<()> {
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        code => Err(Trouble::Refused(code, None)),
    }
}
