//! Requests, one file per API.

mod acls;
mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_configs;
mod alter_replica_log_dirs;
mod api_versions;
mod authorize;
mod client_quotas;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_partitions;
mod create_topics;
mod delegation_tokens;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offsets_for_leader_epoch;
mod produce;
mod raft_voters;
mod reassignments;
mod sasl_authenticate;
mod sasl_handshake;
mod served;
mod streams_group_describe;
mod streams_group_heartbeat;
mod sync_group;
mod telemetry;
mod txn_offset_commit;
mod unregister_broker;
mod update_features;
mod user_scram_credentials;
mod verify;
mod write_txn_markers;

pub(crate) use api_versions::unsupported;
pub(crate) use served::newest_served;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use curtail_wire::{
    Encoding, ErrorCode, Uuid, Writer,
    api::ApiKey,
    cold::{self, Decodable, Encodable, Message, StrBytes},
    header::{RequestHeader, encode_response_header},
    produce::{LeaderIdAndEpoch, NodeEndpoint},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    admission::Principal,
    broker::Broker,
    config::ListenerName,
    coordinator::{groups::Groups, runtime::Shard},
    faults::{self, KafkaRelease, names_leader},
    image::{PartitionKey, TopicImage},
    quota::Limit,
    replica::partition::{NotServed, Partition},
    telemetry::Origin,
};

use faults::Item;
use served::{Rights, Served};

/// The action after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Write the output.
    Written,
    /// Write the output, if any, and do not read from the connection for this long.
    Mute(Duration),
    /// Continue without a response.
    None,
    /// Close the connection.
    Close,
}

/// Handles one request. `out` is empty and receives the parts of the response frame.
///
/// # Errors
/// Why the connection must be closed: the request is malformed.
pub(crate) async fn handle(
    request: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let header = request.header;
    let release = request.release();
    let served = request.served.filter(|served| {
        let newest = served.newest(release).filter(|_| request.is_offered(served));
        newest.is_some_and(|newest| (*served.versions.start()..=newest).contains(&header.version))
    });
    let Some(served) = served else {
        if header.api == ApiKey::API_VERSIONS {
            return api_versions::unsupported(header, release, out);
        }
        return Err("unsupported API or version".to_owned());
    };
    let answer = dispatch(request, body, out).await?;
    request.may_answer(&served.rights).map(|()| answer)
}

async fn dispatch(request: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    match request.header.api {
        ApiKey::PRODUCE => produce::handle(request, &body, out).await,
        ApiKey::FETCH => fetch::handle(request, &body, out).await,
        ApiKey::LIST_OFFSETS => list_offsets::handle(request, body, out),
        ApiKey::METADATA => metadata::handle(request, &body, out),
        ApiKey::OFFSET_COMMIT => offset_commit::handle(request, body, out).await,
        ApiKey::OFFSET_FETCH => offset_fetch::handle(request, body, out).await,
        ApiKey::JOIN_GROUP => join_group::handle(request, body, out).await,
        ApiKey::HEARTBEAT => heartbeat::handle(request, body, out),
        ApiKey::LEAVE_GROUP => leave_group::handle(request, body, out).await,
        ApiKey::SYNC_GROUP => sync_group::handle(request, body, out).await,
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            consumer_group_heartbeat::handle(request, body, out).await
        }
        ApiKey::CONSUMER_GROUP_DESCRIBE => {
            consumer_group_describe::handle(request, body, out).await
        }
        ApiKey::STREAMS_GROUP_HEARTBEAT => {
            streams_group_heartbeat::handle(request, body, out).await
        }
        ApiKey::STREAMS_GROUP_DESCRIBE => streams_group_describe::handle(request, body, out).await,
        ApiKey::DESCRIBE_GROUPS => describe_groups::handle(request, body, out),
        ApiKey::LIST_GROUPS => list_groups::handle(request, body, out),
        ApiKey::DELETE_GROUPS => delete_groups::handle(request, body, out).await,
        ApiKey::OFFSET_DELETE => offset_delete::handle(request, body, out).await,
        ApiKey::FIND_COORDINATOR => find_coordinator::handle(request, body, out),
        ApiKey::API_VERSIONS => api_versions::handle(request, body, out),
        ApiKey::SASL_HANDSHAKE => sasl_handshake::handle(request, body, out),
        ApiKey::SASL_AUTHENTICATE => sasl_authenticate::handle(request, body, out),
        ApiKey::CREATE_TOPICS => create_topics::handle(request, body, out),
        ApiKey::DELETE_TOPICS => delete_topics::handle(request, body, out),
        ApiKey::CREATE_PARTITIONS => create_partitions::handle(request, body, out),
        ApiKey::ALTER_CONFIGS => alter_configs::handle(request, body, out),
        ApiKey::INCREMENTAL_ALTER_CONFIGS => incremental_alter_configs::handle(request, body, out),
        ApiKey::DELETE_RECORDS => delete_records::handle(request, body, out).await,
        ApiKey::ELECT_LEADERS => elect_leaders::handle(request, body, out),
        ApiKey::DESCRIBE_LOG_DIRS => describe_log_dirs::handle(request, body, out),
        ApiKey::INIT_PRODUCER_ID => init_producer_id::handle(request, body, out).await,
        ApiKey::OFFSET_FOR_LEADER_EPOCH => offsets_for_leader_epoch::handle(request, body, out),
        ApiKey::DESCRIBE_CONFIGS => describe_configs::handle(request, body, out),
        ApiKey::DESCRIBE_CLUSTER => describe_cluster::handle(request, body, out),
        ApiKey::ADD_PARTITIONS_TO_TXN => add_partitions_to_txn::handle(request, body, out).await,
        ApiKey::ADD_OFFSETS_TO_TXN => add_offsets_to_txn::handle(request, body, out).await,
        ApiKey::END_TXN => end_txn::handle(request, body, out).await,
        ApiKey::TXN_OFFSET_COMMIT => txn_offset_commit::handle(request, body, out).await,
        ApiKey::DESCRIBE_TRANSACTIONS => describe_transactions::handle(request, body, out),
        ApiKey::LIST_TRANSACTIONS => list_transactions::handle(request, body, out),
        ApiKey::DESCRIBE_PRODUCERS => describe_producers::handle(request, body, out),
        ApiKey::ALTER_PARTITION_REASSIGNMENTS => reassignments::alter(request, body, out),
        ApiKey::LIST_PARTITION_REASSIGNMENTS => reassignments::list(request, body, out),
        ApiKey::DESCRIBE_ACLS => acls::describe(request, body, out),
        ApiKey::CREATE_ACLS => acls::create(request, body, out),
        ApiKey::DELETE_ACLS => acls::delete(request, body, out),
        ApiKey::DESCRIBE_CLIENT_QUOTAS => client_quotas::describe(request, body, out),
        ApiKey::ALTER_CLIENT_QUOTAS => client_quotas::alter(request, body, out),
        ApiKey::DESCRIBE_USER_SCRAM_CREDENTIALS => {
            user_scram_credentials::describe(request, body, out)
        }
        ApiKey::ALTER_USER_SCRAM_CREDENTIALS => user_scram_credentials::alter(request, body, out),
        ApiKey::CREATE_DELEGATION_TOKEN => delegation_tokens::create(request, body, out),
        ApiKey::RENEW_DELEGATION_TOKEN => delegation_tokens::renew(request, body, out),
        ApiKey::EXPIRE_DELEGATION_TOKEN => delegation_tokens::expire(request, body, out),
        ApiKey::DESCRIBE_DELEGATION_TOKEN => delegation_tokens::describe(request, body, out),
        ApiKey::ALTER_REPLICA_LOG_DIRS => alter_replica_log_dirs::handle(request, body, out),
        ApiKey::DESCRIBE_QUORUM => describe_quorum::handle(request, body, out),
        ApiKey::UNREGISTER_BROKER => unregister_broker::handle(request, body, out),
        ApiKey::UPDATE_FEATURES => update_features::handle(request, body, out),
        ApiKey::GET_TELEMETRY_SUBSCRIPTIONS => telemetry::subscriptions(request, body, out),
        ApiKey::PUSH_TELEMETRY => telemetry::push(request, &body, out),
        ApiKey::LIST_CONFIG_RESOURCES => list_config_resources::handle(request, body, out),
        ApiKey::DESCRIBE_TOPIC_PARTITIONS => describe_topic_partitions::handle(request, body, out),
        ApiKey::ADD_RAFT_VOTER => raft_voters::add(request, body, out),
        ApiKey::REMOVE_RAFT_VOTER => raft_voters::remove(request, body, out),
        ApiKey::WRITE_TXN_MARKERS => write_txn_markers::handle(request, body, out).await,
        _ => Err("unsupported API".to_owned()),
    }
}

/// A request as its handler sees it.
pub(crate) struct Call<'a> {
    pub(crate) broker: &'a Arc<Broker>,
    pub(crate) header: &'a RequestHeader<'a>,
    /// The connection.
    pub(crate) origin: &'a Origin,
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// The listener that accepted the connection.
    pub(crate) listener: &'a ListenerName,
    /// The client's principal.
    pub(crate) principal: &'a Principal,
    /// Bytes of the request's frame.
    size: usize,
    served: Option<&'static Served>,
    /// Whether the authorizer has been asked, or the response reveals nothing that needs
    /// permission.
    asked: AtomicBool,
    /// Faults of requests with a part that this one has.
    pub(crate) named: Mutex<Vec<String>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        broker: &'a Arc<Broker>,
        header: &'a RequestHeader<'a>,
        origin: &'a Origin,
        listener: &'a ListenerName,
        principal: &'a Principal,
        size: usize,
    ) -> Self {
        let served = served::of(header.api);
        let (asked, named) = (AtomicBool::new(false), Mutex::default());
        let peer = origin.ip;
        Self { broker, header, origin, peer, listener, principal, size, served, asked, named }
    }
}

impl Call<'_> {
    /// Returns the request as faults distinguish requests.
    pub(crate) fn as_faults_see_it(&self) -> faults::Request<'_> {
        let client_id = self.header.client_id.unwrap_or_default();
        faults::Request { broker: self.broker.id, api: self.header.api, client_id }
    }

    /// Returns the Kafka release whose versions the client is offered.
    fn release(&self) -> Option<KafkaRelease> {
        self.broker.faults.release(&self.as_faults_see_it())
    }

    /// Returns whether clients are offered an API: those for metrics of clients only while the cluster has a receiver.
    fn is_offered(&self, served: &Served) -> bool {
        let for_metrics = [ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, ApiKey::PUSH_TELEMETRY];
        !for_metrics.contains(&served.api) || self.broker.takes_metrics()
    }

    /// Fails if a fault refuses a part of the request. Handlers ask once for each part, after the
    /// permission.
    fn injected(&self, item: Item<'_>) -> Result<(), ErrorCode> {
        let error = self.broker.faults.error(&self.as_faults_see_it(), item, &self.named);
        error.map_or(Ok(()), Err)
    }

    /// Checks that the handler has asked for the permission that the API needs.
    fn may_answer(&self, rights: &Rights) -> Result<(), String> {
        match rights {
            Rights::Asked(_) if !self.asked.load(Ordering::Relaxed) => {
                Err("the handler has not checked the permission".to_owned())
            }
            Rights::Asked(_) | Rights::Everyone => Ok(()),
        }
    }

    /// Records the number of things that the response is about. With none it reveals nothing and
    /// needs no permission.
    fn concerns(&self, count: usize) {
        if count == 0 {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes of the request's frame.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn version(&self) -> i16 {
        self.header.version
    }

    fn decode<T: Decodable + Message>(&self, body: Bytes) -> Result<T, String> {
        let layout = cold::layout::<T>(self.header.api, self.header.version);
        cold::decode_request(layout, body).map_err(|error| error.to_string())
    }

    fn answer<T: Encodable + Message>(
        &self,
        response: &T,
        out: &mut Vec<Bytes>,
    ) -> Result<Answer, String> {
        let RequestHeader { api, version, correlation_id, .. } = *self.header;
        let frame = cold::encode_response(api, version, correlation_id, response)
            .map_err(|error| error.to_string())?;
        out.push(frame.into());
        Ok(Answer::Written)
    }

    /// Translates PRODUCER_FENCED for versions before `first`.
    fn fenced_code(&self, code: ErrorCode, first: i16) -> ErrorCode {
        match code {
            ErrorCode::PRODUCER_FENCED if self.version() < first => {
                ErrorCode::INVALID_PRODUCER_EPOCH
            }
            code => code,
        }
    }

    /// Responds with one of Curtail's own codecs.
    fn answer_with(&self, out: &mut Vec<Bytes>, encode: impl FnOnce(&mut Writer)) -> Answer {
        let mut w = Writer::with_capacity(256);
        w.set_encoding(Encoding::Classic);
        w.i32(0);
        let RequestHeader { api, version, correlation_id, .. } = *self.header;
        encode_response_header(api, version, correlation_id, &mut w);
        encode(&mut w);
        let mut frame = w.into_vec();
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        out.push(frame.into());
        Answer::Written
    }

    /// Returns user and client id for quotas; `None` for brokers.
    fn limited(&self) -> Option<(&str, &str)> {
        Some((self.principal.user()?, self.header.client_id.unwrap_or_default()))
    }

    /// Counts bytes against the client's quota. Returns how long the client must be throttled.
    fn count(&self, limit: Limit, bytes: usize) -> Duration {
        let image = self.broker.image();
        match self.limited() {
            Some(client) if !image.quotas.is_empty() => {
                self.broker.meters.count(&image.quotas, limit, client, bytes, Instant::now())
            }
            _ => Duration::ZERO,
        }
    }

    /// Like [`Call::count`], but bytes beyond the quota are not counted, because they will not be
    /// sent.
    fn count_if_sent(&self, limit: Limit, bytes: usize) -> Duration {
        let silence = self.count(limit, bytes);
        if let Some(client) = self.limited().filter(|_| !silence.is_zero()) {
            self.broker.meters.take_back(&self.broker.image().quotas, limit, client, bytes);
        }
        silence
    }

    /// Returns the shard of a group.
    fn groups(&self, group: &str) -> Result<Arc<Shard<Groups>>, ErrorCode> {
        if group.len() > MAX_STRING {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        self.broker.groups.shard(self.broker, group)
    }

    /// Like [`Call::groups`], for requests of members: their group id must not be empty.
    fn members_groups(&self, group: &str) -> Result<Arc<Shard<Groups>>, ErrorCode> {
        if group.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        self.groups(group)
    }

    /// Returns the local replica of a partition that the client may know of.
    fn replica(&self, topic: &TopicImage, index: i32) -> Result<Arc<Partition>, NotServed> {
        let known = usize::try_from(index).ok().and_then(|index| topic.partitions.get(index));
        let Some(image) = known else {
            return Err(NotServed::code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        };
        let key = PartitionKey { topic: topic.id, index };
        if let Some(partition) = self.broker.partition(key) {
            return Ok(partition);
        }
        if image.replicas.contains(&self.broker.id) {
            return Err(NotServed::code(ErrorCode::KAFKA_STORAGE_ERROR));
        }
        let leader = LeaderIdAndEpoch { leader_id: image.leader, leader_epoch: image.leader_epoch };
        let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        Err(NotServed::led_by(code, leader))
    }

    /// Returns the local replica of a partition of a topic named in the request.
    fn replica_by_name(&self, topic: &str, index: i32) -> Result<Arc<Partition>, NotServed> {
        let image = self.broker.image();
        let unknown = || NotServed::code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        self.replica(image.topic(topic).ok_or_else(unknown)?, index)
    }

    /// Returns the leader of a partition from the broker's metadata.
    fn leader(&self, part: Item<'_>) -> Option<LeaderIdAndEpoch> {
        let Item::Partition(topic, index) = part else { return None };
        let image = self.broker.image();
        let partition = image.topic(topic)?.partitions.get(usize::try_from(index).ok()?)?;
        let (leader_id, leader_epoch) = (partition.leader, partition.leader_epoch);
        Some(LeaderIdAndEpoch { leader_id, leader_epoch })
    }

    /// Returns the topic with an id from the request. Permissions need the topic's name; an unknown
    /// id needs none.
    fn topic_by_id(&self, id: Uuid) -> Result<Arc<TopicImage>, ErrorCode> {
        let topic = self.broker.image().topic_by_id(&id).cloned();
        topic.ok_or_else(|| {
            self.concerns(0);
            ErrorCode::UNKNOWN_TOPIC_ID
        })
    }

    /// Returns the name of a topic of the request, which has its id instead from version `by_id` on.
    fn topic_name(&self, by_id: i16, name: &str, id: Uuid) -> Result<Arc<str>, ErrorCode> {
        match self.version() < by_id {
            true => Ok(name.into()),
            false => self.topic_by_id(id).map(|topic| topic.name.clone()),
        }
    }
}

/// The endpoints of the leaders that a response names, without duplicates.
#[derive(Default)]
struct Endpoints(Vec<NodeEndpoint>);

impl Endpoints {
    /// Adds the leader named with an error, if the error is one that names it. A fault may replace it.
    fn hint(
        &mut self,
        call: &Call<'_>,
        part: Item<'_>,
        refused: &NotServed,
    ) -> Option<LeaderIdAndEpoch> {
        if !names_leader(refused.code) {
            return None;
        }
        let known = refused.leader.filter(|leader| leader.leader_epoch >= 0);
        let wrong = call.broker.faults.wrong_leader(&call.as_faults_see_it(), part);
        let Some(wrong) = wrong else {
            let leader = known?;
            self.add(call.broker.endpoint(leader.leader_id, call.listener));
            return Some(leader);
        };
        // An injected error comes without the leader.
        let right = known.or_else(|| call.leader(part))?;
        let (leader, endpoint) = wrong.misname(right);
        let endpoint = endpoint.or_else(|| call.broker.endpoint(leader.leader_id, call.listener));
        self.add(endpoint);
        Some(leader)
    }

    fn add(&mut self, endpoint: Option<NodeEndpoint>) {
        let new = endpoint.filter(|new| self.0.iter().all(|known| known.node_id != new.node_id));
        self.0.extend(new);
    }
}

/// Returns the throttle time of a response.
fn throttle_ms(silence: Duration) -> i32 {
    i32::try_from(silence.as_millis()).unwrap_or(i32::MAX)
}

/// Returns the action after a response with this throttle time.
fn muted(answer: Answer, silence: Duration) -> Answer {
    match answer {
        Answer::Written | Answer::None if !silence.is_zero() => Answer::Mute(silence),
        answer => answer,
    }
}

/// The longest group id: longer strings do not fit into the coordinator's records.
const MAX_STRING: usize = i16::MAX as usize;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}
