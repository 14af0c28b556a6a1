//! Errors of faults: the parts of a request that they refuse, and the response to these.
//!
//! A refused part is taken out of the request, so that the cluster does not apply it, and its result is
//! added to the response. Fetch and Metadata change nothing, and their parts are not all in the request:
//! `content` refuses in their responses.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use curtail_wire::{
    ApiKey, ErrorCode, Uuid, Writer,
    cold::{
        self, Decodable, Encodable, Message, Request, StrBytes,
        messages::{
            AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
            BrokerId, ConsumerGroupHeartbeatResponse, CreatePartitionsRequest,
            CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
            DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
            EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse, GroupId,
            HeartbeatResponse, InitProducerIdResponse, JoinGroupRequest, JoinGroupResponse,
            LeaveGroupResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetCommitResponse,
            OffsetFetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
            ProducerId, SyncGroupResponse, TopicName, TxnOffsetCommitRequest,
            TxnOffsetCommitResponse,
            add_partitions_to_txn_response::{
                AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
            },
            create_partitions_response::CreatePartitionsTopicResult,
            create_topics_response::CreatableTopicResult,
            delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
            delete_topics_response::DeletableTopicResult,
            find_coordinator_response::Coordinator,
            list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
            offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
            offset_fetch_response::{
                OffsetFetchResponseGroup, OffsetFetchResponsePartition,
                OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
            },
            offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
            txn_offset_commit_response::{
                TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
            },
        },
        newer::{
            OffsetCommitRequest, OffsetFetchRequest, OffsetFetchTopic,
            streams::StreamsGroupHeartbeatResponse,
        },
    },
    header::{RequestHeader, encode_response_header, response_body},
    produce::{ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse},
};

use super::directory::Directory;
use crate::faults::Item;

/// Asks whether a fault refuses a part.
pub(super) type Ask<'a> = &'a mut dyn FnMut(Item<'_>) -> Option<ErrorCode>;

/// Adds the results of the refused parts to the cluster's response. Frames have no length here.
pub(super) type Merge = Box<dyn FnOnce(&Bytes) -> Result<Bytes, String> + Send + Sync>;

/// What the faults make of a request.
pub(super) enum Verdict {
    /// No part is refused.
    Forward,
    /// The cluster gets the rest of the request, a whole frame.
    Part { request: Bytes, merge: Merge },
    /// All of it is refused, with this frame.
    Refused(Bytes),
    /// All of a request without a response is refused: the connection closes.
    Close,
}

type Done = Result<Verdict, String>;

/// Decides about a request with a body.
pub(super) fn decide(
    header: &RequestHeader<'_>,
    body: &Bytes,
    directory: &Directory,
    ask: Ask<'_>,
) -> Done {
    let call = Call { header, body };
    match header.api {
        ApiKey::PRODUCE => produce(&call, directory, ask),
        ApiKey::LIST_OFFSETS => list_offsets(&call, ask),
        ApiKey::OFFSET_COMMIT => offset_commit(&call, directory, ask),
        ApiKey::TXN_OFFSET_COMMIT => txn_offset_commit(&call, ask),
        ApiKey::DELETE_RECORDS => delete_records(&call, ask),
        ApiKey::OFFSET_FOR_LEADER_EPOCH => offset_for_leader_epoch(&call, ask),
        ApiKey::ADD_PARTITIONS_TO_TXN => add_partitions_to_txn(&call, ask),
        ApiKey::CREATE_TOPICS => create_topics(&call, ask),
        ApiKey::DELETE_TOPICS => delete_topics(&call, directory, ask),
        ApiKey::CREATE_PARTITIONS => create_partitions(&call, ask),
        ApiKey::FIND_COORDINATOR => find_coordinator(&call, ask),
        ApiKey::OFFSET_FETCH => offset_fetch(&call, ask),
        // To ask here would use up the fault: `content` asks once the response has arrived.
        ApiKey::FETCH | ApiKey::METADATA => Ok(Verdict::Forward),
        _ => whole(&call, ask),
    }
}

struct Call<'a> {
    header: &'a RequestHeader<'a>,
    body: &'a Bytes,
}

/// A whole frame without its length.
fn without_length(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).slice(4..)
}

#[allow(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Call<'_> {
    fn request<Q: Decodable + Message>(&self) -> Result<Q, String> {
        let layout = cold::layout::<Q>(self.header.api, self.header.version);
        cold::decode_request(layout, self.body.clone()).map_err(text)
    }

    fn respond<A: Encodable + Message>(&self, response: &A) -> Result<Bytes, String> {
        let RequestHeader { api, version, correlation_id, .. } = *self.header;
        cold::encode_response(api, version, correlation_id, response)
            .map(without_length)
            .map_err(text)
    }

    /// The verdict for a request from which parts have been taken out. `refused` has their results, and
    /// `merge` adds them to the cluster's.
    fn verdict<Q, A>(&self, rest: Rest<Q>, refused: A, merge: fn(&mut A, A)) -> Done
    where
        Q: Request,
        A: Encodable + Decodable + Message + Send + Sync + 'static,
    {
        let RequestHeader { api, version, correlation_id, client_id } = *self.header;
        let request = match rest {
            Rest::All => return Ok(Verdict::Forward),
            Rest::None => return self.respond(&refused).map(Verdict::Refused),
            Rest::Some(request) => request,
        };
        let request = cold::encode_request(version, correlation_id, client_id, &request);
        let merge = move |frame: &Bytes| {
            let body = response_body(frame, api, version).map_err(text)?;
            let mut response: A =
                cold::decode_response(cold::layout::<A>(api, version), body).map_err(text)?;
            merge(&mut response, refused);
            let frame = cold::encode_response(api, version, correlation_id, &response);
            frame.map(without_length).map_err(text)
        };
        Ok(Verdict::Part {
            request: request.map(without_length).map_err(text)?,
            merge: Box::new(merge),
        })
    }

    /// As [`Self::verdict`], for a request with `left` topics now.
    fn verdict_by_topic<Q: Request, A: ByTopic>(
        &self,
        request: Q,
        left: usize,
        refused: Vec<A::Topic>,
    ) -> Done {
        let rest = Rest::of(request, left, refused.len());
        let mut response = A::default();
        *response.topics() = refused;
        self.verdict(rest, response, |into: &mut A, mut refused| {
            merge_topics(into.topics(), std::mem::take(refused.topics()));
        })
    }
}

/// A response with a list of topics, each with a list of partitions.
trait ByTopic: Default + Encodable + Decodable + Message + Send + Sync + 'static {
    type Topic: Topic + Send + Sync;

    fn topics(&mut self) -> &mut Vec<Self::Topic>;
}

/// A topic of a response, with its partitions.
trait Topic {
    type Partition;

    fn is_same(&self, other: &Self) -> bool;
    fn partitions(&mut self) -> &mut Vec<Self::Partition>;
}

/// Implements the traits for a response of `kafka-protocol`. The fields identify a topic.
macro_rules! by_topic {
    ($response:ty: $topic:ty [$($field:ident),+], $partition:ty) => {
        impl ByTopic for $response {
            type Topic = $topic;

            fn topics(&mut self) -> &mut Vec<$topic> {
                &mut self.topics
            }
        }

        by_topic!($topic [$($field),+], $partition);
    };
    ($topic:ty [$($field:ident),+], $partition:ty) => {
        impl Topic for $topic {
            type Partition = $partition;

            fn is_same(&self, other: &Self) -> bool {
                $(self.$field == other.$field)&&+
            }

            fn partitions(&mut self) -> &mut Vec<$partition> {
                &mut self.partitions
            }
        }
    };
}

by_topic!(ProduceTopicResponse [name, topic_id], ProducePartitionResponse);
by_topic!(ListOffsetsResponse: ListOffsetsTopicResponse [name], ListOffsetsPartitionResponse);
by_topic!(OffsetCommitResponse: OffsetCommitResponseTopic [name, topic_id], OffsetCommitResponsePartition);
by_topic!(TxnOffsetCommitResponse: TxnOffsetCommitResponseTopic [name], TxnOffsetCommitResponsePartition);
by_topic!(DeleteRecordsResponse: DeleteRecordsTopicResult [name], DeleteRecordsPartitionResult);
by_topic!(OffsetForLeaderEpochResponse: OffsetForLeaderTopicResult [topic], EpochEndOffset);

/// The part of a request that no fault refuses.
enum Rest<Q> {
    All,
    Some(Q),
    None,
}

impl<Q> Rest<Q> {
    /// Of a request with this many parts now, after some were refused.
    fn of(request: Q, left: usize, refused: usize) -> Self {
        match (left, refused) {
            (_, 0) => Self::All,
            (0, _) => Self::None,
            _ => Self::Some(request),
        }
    }
}

/// Takes the refused partitions out of topics and returns their results by topic.
fn take_partitions<T, P, R, S>(
    topics: &mut Vec<T>,
    ask: Ask<'_>,
    name: impl Fn(&T) -> String,
    partitions: impl Fn(&mut T) -> &mut Vec<P>,
    index: impl Fn(&P) -> i32,
    result: impl Fn(i32, ErrorCode) -> R,
    topic_result: impl Fn(&T, Vec<R>) -> S,
) -> Vec<S> {
    let mut refused = Vec::new();
    topics.retain_mut(|topic| {
        let name = name(topic);
        let mut results = Vec::new();
        partitions(topic).retain(|partition| {
            let index = index(partition);
            match ask(Item::Partition(&name, index)) {
                Some(code) => results.push(result(index, code)),
                None => return true,
            }
            false
        });
        if results.is_empty() {
            return true;
        }
        let is_left = !partitions(topic).is_empty();
        refused.push(topic_result(topic, results));
        is_left
    });
    refused
}

/// Takes the refused topics out of a list and returns their results.
fn take_topics<T, R>(
    topics: &mut Vec<T>,
    ask: Ask<'_>,
    name: impl Fn(&T) -> Option<String>,
    result: impl Fn(&T, ErrorCode) -> R,
) -> Vec<R> {
    let mut refused = Vec::new();
    topics.retain(|topic| {
        let code = name(topic).and_then(|name| ask(Item::Topic(&name)));
        refused.extend(code.map(|code| result(topic, code)));
        code.is_none()
    });
    refused
}

/// Adds topics with results of partitions to others.
fn merge_topics<T: Topic>(into: &mut Vec<T>, refused: Vec<T>) {
    for mut topic in refused {
        match into.iter().position(|known| known.is_same(&topic)) {
            Some(at) => into[at].partitions().append(topic.partitions()),
            None => into.push(topic),
        }
    }
}

/// The name of a topic in a request that names topics by their ids or by names. It is empty if the id is
/// not known.
fn topic_name(directory: &Directory, name: &str, id: Uuid) -> String {
    match id.is_zero() {
        true => name.to_owned(),
        false => directory.topic_name(id).map(|name| name.to_string()).unwrap_or_default(),
    }
}

fn produce(call: &Call<'_>, directory: &Directory, ask: Ask<'_>) -> Done {
    let RequestHeader { api, version, correlation_id, .. } = *call.header;
    let mut request = ProduceRequest::decode(version, call.body).map_err(text)?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic_name(directory, &topic.name, topic.topic_id),
        |topic| &mut topic.partitions,
        |partition| partition.index,
        |index, error| ProducePartitionResponse { index, error, ..Default::default() },
        |topic, partitions| {
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            ProduceTopicResponse { name, topic_id, partitions }
        },
    );
    if refused.is_empty() {
        return Ok(Verdict::Forward);
    }
    // The client notices the error of a request without a response by the close.
    if request.acks == 0 {
        return Ok(Verdict::Close);
    }
    let encode = move |response: &ProduceResponse| {
        let mut w = Writer::with_capacity(256);
        encode_response_header(api, version, correlation_id, &mut w);
        response.encode(version, &mut w);
        w.into_bytes()
    };
    if request.topics.is_empty() {
        let response = ProduceResponse { topics: refused, ..Default::default() };
        return Ok(Verdict::Refused(encode(&response)));
    }
    let mut w = Writer::with_capacity(call.body.len() + 64);
    call.header.encode(&mut w);
    request.encode(version, &mut w);
    let merge = move |frame: &Bytes| {
        let body = response_body(frame, api, version).map_err(text)?;
        let mut response = ProduceResponse::decode(version, &body).map_err(text)?;
        merge_topics(&mut response.topics, refused);
        Ok(encode(&response))
    };
    Ok(Verdict::Part { request: w.into_bytes(), merge: Box::new(merge) })
}

fn list_offsets(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: ListOffsetsRequest = call.request()?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic.name.0.to_string(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
        |index, code| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(index)
                .with_error_code(code.0)
                .with_offset(-1)
                .with_timestamp(-1)
        },
        |topic, partitions| {
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        },
    );
    let left = request.topics.len();
    call.verdict_by_topic::<_, ListOffsetsResponse>(request, left, refused)
}

fn offset_commit(call: &Call<'_>, directory: &Directory, ask: Ask<'_>) -> Done {
    let mut request: OffsetCommitRequest = call.request()?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic_name(directory, &topic.name, topic.topic_id),
        |topic| &mut topic.partitions,
        |partition| partition.index,
        |index, code| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code.0)
        },
        |topic, partitions| {
            OffsetCommitResponseTopic::default()
                .with_name(named(&topic.name))
                .with_topic_id(uuid::Uuid::from_bytes(topic.topic_id.0))
                .with_partitions(partitions)
        },
    );
    let left = request.topics.len();
    call.verdict_by_topic::<_, OffsetCommitResponse>(request, left, refused)
}

fn named(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn txn_offset_commit(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: TxnOffsetCommitRequest = call.request()?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic.name.0.to_string(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
        |index, code| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code.0)
        },
        |topic, partitions| {
            TxnOffsetCommitResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        },
    );
    let left = request.topics.len();
    call.verdict_by_topic::<_, TxnOffsetCommitResponse>(request, left, refused)
}

fn delete_records(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: DeleteRecordsRequest = call.request()?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic.name.0.to_string(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
        |index, code| {
            DeleteRecordsPartitionResult::default()
                .with_partition_index(index)
                .with_low_watermark(-1)
                .with_error_code(code.0)
        },
        |topic, partitions| {
            DeleteRecordsTopicResult::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        },
    );
    let left = request.topics.len();
    call.verdict_by_topic::<_, DeleteRecordsResponse>(request, left, refused)
}

fn offset_for_leader_epoch(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: OffsetForLeaderEpochRequest = call.request()?;
    let refused = take_partitions(
        &mut request.topics,
        ask,
        |topic| topic.topic.0.to_string(),
        |topic| &mut topic.partitions,
        |partition| partition.partition,
        |index, code| {
            EpochEndOffset::default()
                .with_partition(index)
                .with_error_code(code.0)
                .with_leader_epoch(-1)
                .with_end_offset(-1)
        },
        |topic, partitions| {
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions)
        },
    );
    let left = request.topics.len();
    call.verdict_by_topic::<_, OffsetForLeaderEpochResponse>(request, left, refused)
}

/// If one partition is refused, none is added. From version 4 the request is one of brokers.
fn add_partitions_to_txn(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let request: AddPartitionsToTxnRequest = call.request()?;
    if call.header.version >= 4 {
        return Ok(Verdict::Forward);
    }
    let mut any = false;
    let topics = request.v3_and_below_topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|index| {
            let code = ask(Item::Partition(&topic.name.0, *index));
            any |= code.is_some();
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(code.unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED).0)
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    });
    let topics = topics.collect();
    let response = AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics);
    match any {
        true => call.respond(&response).map(Verdict::Refused),
        false => Ok(Verdict::Forward),
    }
}

fn message(code: ErrorCode) -> Option<StrBytes> {
    Some(StrBytes::from_static_str(code.message()))
}

fn create_topics(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: CreateTopicsRequest = call.request()?;
    let refused = take_topics(
        &mut request.topics,
        ask,
        |topic| Some(topic.name.0.to_string()),
        |topic, code| {
            CreatableTopicResult::default()
                .with_name(topic.name.clone())
                .with_error_code(code.0)
                .with_error_message(message(code))
        },
    );
    let (left, count) = (request.topics.len(), refused.len());
    let response = CreateTopicsResponse::default().with_topics(refused);
    call.verdict(Rest::of(request, left, count), response, |into, mut refused| {
        into.topics.append(&mut refused.topics);
    })
}

/// First version of DeleteTopics with messages.
const DELETE_MESSAGES: i16 = 5;

fn delete_topics(call: &Call<'_>, directory: &Directory, ask: Ask<'_>) -> Done {
    let mut request: DeleteTopicsRequest = call.request()?;
    let result = |name: Option<TopicName>, code: ErrorCode| {
        let result = DeletableTopicResult::default().with_name(name).with_error_code(code.0);
        match call.header.version >= DELETE_MESSAGES {
            true => result.with_error_message(message(code)),
            false => result,
        }
    };
    let mut refused = take_topics(
        &mut request.topic_names,
        &mut *ask,
        |name| Some(name.0.to_string()),
        |name, code| result(Some(name.clone()), code),
    );
    refused.extend(take_topics(
        &mut request.topics,
        ask,
        |topic| match &topic.name {
            Some(name) => Some(name.0.to_string()),
            None => {
                directory.topic_name(Uuid(topic.topic_id.into_bytes())).map(|name| name.to_string())
            }
        },
        |topic, code| result(topic.name.clone(), code).with_topic_id(topic.topic_id),
    ));
    let (left, count) = (request.topic_names.len() + request.topics.len(), refused.len());
    let response = DeleteTopicsResponse::default().with_responses(refused);
    call.verdict(Rest::of(request, left, count), response, |into, mut refused| {
        into.responses.append(&mut refused.responses);
    })
}

fn create_partitions(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let mut request: CreatePartitionsRequest = call.request()?;
    let refused = take_topics(
        &mut request.topics,
        ask,
        |topic| Some(topic.name.0.to_string()),
        |topic, code| {
            CreatePartitionsTopicResult::default()
                .with_name(topic.name.clone())
                .with_error_code(code.0)
                .with_error_message(message(code))
        },
    );
    let (left, count) = (request.topics.len(), refused.len());
    let response = CreatePartitionsResponse::default().with_results(refused);
    call.verdict(Rest::of(request, left, count), response, |into, mut refused| {
        into.results.append(&mut refused.results);
    })
}

/// First version of FindCoordinator with many keys.
const MANY_KEYS: i16 = 4;

fn find_coordinator(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let version = call.header.version;
    let nowhere = BrokerId(-1);
    if version < MANY_KEYS {
        let Some(code) = ask(Item::Request) else { return Ok(Verdict::Forward) };
        let response = FindCoordinatorResponse::default()
            .with_error_code(code.0)
            .with_node_id(nowhere)
            .with_port(-1);
        let response = match version {
            0 => response,
            _ => response.with_error_message(message(code)),
        };
        return call.respond(&response).map(Verdict::Refused);
    }
    let mut request: FindCoordinatorRequest = call.request()?;
    let mut refused = Vec::new();
    request.coordinator_keys.retain(|key| {
        let code = ask(Item::Request);
        refused.extend(code.map(|code| {
            Coordinator::default()
                .with_key(key.clone())
                .with_node_id(nowhere)
                .with_port(-1)
                .with_error_code(code.0)
                .with_error_message(message(code))
        }));
        code.is_none()
    });
    let (left, count) = (request.coordinator_keys.len(), refused.len());
    let response = FindCoordinatorResponse::default().with_coordinators(refused);
    call.verdict(Rest::of(request, left, count), response, |into, mut refused| {
        into.coordinators.append(&mut refused.coordinators);
    })
}

/// First version of OffsetFetch with many groups, and the first with an error of the group.
const MANY_GROUPS: i16 = 8;
const GROUP_ERRORS: i16 = 2;

fn offset_fetch(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let version = call.header.version;
    let mut request: OffsetFetchRequest = call.request()?;
    if version < MANY_GROUPS {
        let Some(code) = ask(Item::Request) else { return Ok(Verdict::Forward) };
        let topics = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
        let topics = topics.map(|topic| {
            let partitions = topic.partitions.iter().map(|index| {
                OffsetFetchResponsePartition::default()
                    .with_partition_index(*index)
                    .with_committed_offset(-1)
                    .with_committed_leader_epoch(-1)
                    .with_metadata(Some(StrBytes::from_static_str("")))
                    .with_error_code(code.0)
            });
            OffsetFetchResponseTopic::default()
                .with_name(named(&topic.name))
                .with_partitions(partitions.collect())
        });
        let response = OffsetFetchResponse::default().with_topics(topics.collect());
        let response = match version {
            ..GROUP_ERRORS => response,
            _ => response.with_error_code(code.0),
        };
        return call.respond(&response).map(Verdict::Refused);
    }
    let mut refused = Vec::new();
    request.groups.retain(|group| {
        let Some(code) = ask(Item::Request) else { return true };
        let topics = group.topics.iter().flatten().map(|topic| no_offsets(topic, code));
        refused.push(
            OffsetFetchResponseGroup::default()
                .with_group_id(GroupId(StrBytes::from_string(group.group_id.clone())))
                .with_error_code(code.0)
                .with_topics(topics.collect()),
        );
        false
    });
    let (left, count) = (request.groups.len(), refused.len());
    let response = OffsetFetchResponse::default().with_groups(refused);
    call.verdict(Rest::of(request, left, count), response, |into, mut refused| {
        into.groups.append(&mut refused.groups);
    })
}

/// A topic of a refused group.
fn no_offsets(topic: &OffsetFetchTopic, code: ErrorCode) -> OffsetFetchResponseTopics {
    let partitions = topic.partitions.iter().map(|index| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(*index)
            .with_committed_offset(-1)
            .with_committed_leader_epoch(-1)
            .with_metadata(Some(StrBytes::from_static_str("")))
            .with_error_code(code.0)
    });
    OffsetFetchResponseTopics::default()
        .with_name(named(&topic.name))
        .with_topic_id(uuid::Uuid::from_bytes(topic.topic_id.0))
        .with_partitions(partitions.collect())
}

/// First version of JoinGroup whose errors have no protocol.
const NO_PROTOCOL: i16 = 7;

/// Requests that are refused as a whole.
fn whole(call: &Call<'_>, ask: Ask<'_>) -> Done {
    let RequestHeader { api, version, .. } = *call.header;
    let Some(code) = ask(Item::Request) else { return Ok(Verdict::Forward) };
    let frame = match api {
        ApiKey::JOIN_GROUP => {
            let request: JoinGroupRequest = call.request()?;
            let protocol = (version < NO_PROTOCOL).then(|| StrBytes::from_static_str(""));
            call.respond(
                &JoinGroupResponse::default()
                    .with_error_code(code.0)
                    .with_generation_id(-1)
                    .with_protocol_type(None)
                    .with_protocol_name(protocol)
                    .with_member_id(request.member_id),
            )
        }
        ApiKey::HEARTBEAT => call.respond(&HeartbeatResponse::default().with_error_code(code.0)),
        ApiKey::LEAVE_GROUP => call.respond(&LeaveGroupResponse::default().with_error_code(code.0)),
        ApiKey::SYNC_GROUP => call.respond(&SyncGroupResponse::default().with_error_code(code.0)),
        ApiKey::INIT_PRODUCER_ID => {
            let code = fenced_code(code, version, 4);
            call.respond(
                &InitProducerIdResponse::default()
                    .with_error_code(code.0)
                    .with_producer_id(ProducerId(-1))
                    .with_producer_epoch(-1),
            )
        }
        ApiKey::ADD_OFFSETS_TO_TXN => {
            let code = fenced_code(code, version, 2);
            call.respond(&AddOffsetsToTxnResponse::default().with_error_code(code.0))
        }
        ApiKey::END_TXN => {
            let code = fenced_code(code, version, 2);
            call.respond(&EndTxnResponse::default().with_error_code(code.0))
        }
        ApiKey::CONSUMER_GROUP_HEARTBEAT => call.respond(
            &ConsumerGroupHeartbeatResponse::default()
                .with_error_code(code.0)
                .with_error_message(message(code)),
        ),
        ApiKey::STREAMS_GROUP_HEARTBEAT => call.respond(&StreamsGroupHeartbeatResponse {
            error: code,
            error_message: Some(code.message().to_owned()),
            ..StreamsGroupHeartbeatResponse::default()
        }),
        _ => return Ok(Verdict::Forward),
    };
    frame.map(Verdict::Refused)
}

/// Translates PRODUCER_FENCED for versions before `first`.
fn fenced_code(code: ErrorCode, version: i16, first: i16) -> ErrorCode {
    match code {
        ErrorCode::PRODUCER_FENCED if version < first => ErrorCode::INVALID_PRODUCER_EPOCH,
        code => code,
    }
}
