//! Responses of every API and version that the client decodes, as it decodes them.

use std::fmt::Debug;

use bytes::Bytes;
use curtail_wire::{
    ApiKey, ApiVersions, DecodeError, Writer,
    cold::{self, Decodable, Encodable, Message, Request, messages::*, newer},
    fetch::FetchResponse,
    header::{self, encode_response_header},
    metadata::MetadataResponse,
    produce::ProduceResponse,
};

use crate::{Target, memory};

pub(super) const TARGET: Target = Target { name: "responses", run, seeds, cases: 30_000 };

/// Memory for one byte of a message: an array's element takes at most about 200 bytes for each on the wire, and
/// arrays nest three deep.
const FACTOR: usize = 600;

/// `kafka-protocol` allocates for an array before its elements: up to 4,096 of them, three deep.
const AHEAD: usize = 4 * 1024 * 1024;

/// Checks a response to this API in this version.
pub(super) type Check = fn(i16, &Bytes);

/// An API whose responses the client decodes through `kafka-protocol`.
struct Cold {
    api: ApiKey,
    check: Check,
    strict: Check,
    default: fn(i16) -> Option<Bytes>,
}

const fn cold_api<Q>() -> Cold
where
    Q: Request,
    Q::Response: Default + Debug,
{
    Cold {
        api: ApiKey(Q::KEY),
        check: check_cold::<Q>,
        strict: decode_strictly::<Q>,
        default: default::<Q>,
    }
}

const COLD: &[Cold] = &[
    cold_api::<AddOffsetsToTxnRequest>(),
    cold_api::<AddPartitionsToTxnRequest>(),
    cold_api::<AlterClientQuotasRequest>(),
    cold_api::<AlterPartitionReassignmentsRequest>(),
    cold_api::<AlterUserScramCredentialsRequest>(),
    cold_api::<ApiVersionsRequest>(),
    cold_api::<ConsumerGroupDescribeRequest>(),
    cold_api::<ConsumerGroupHeartbeatRequest>(),
    cold_api::<CreateAclsRequest>(),
    cold_api::<CreatePartitionsRequest>(),
    cold_api::<CreateTopicsRequest>(),
    cold_api::<DeleteAclsRequest>(),
    cold_api::<DeleteGroupsRequest>(),
    cold_api::<DeleteRecordsRequest>(),
    cold_api::<DeleteTopicsRequest>(),
    cold_api::<DescribeAclsRequest>(),
    cold_api::<DescribeClientQuotasRequest>(),
    cold_api::<DescribeClusterRequest>(),
    cold_api::<DescribeConfigsRequest>(),
    cold_api::<DescribeGroupsRequest>(),
    cold_api::<newer::DescribeLogDirsRequest>(),
    cold_api::<DescribeProducersRequest>(),
    cold_api::<DescribeQuorumRequest>(),
    cold_api::<DescribeTransactionsRequest>(),
    cold_api::<DescribeUserScramCredentialsRequest>(),
    cold_api::<ElectLeadersRequest>(),
    cold_api::<EndTxnRequest>(),
    cold_api::<FindCoordinatorRequest>(),
    cold_api::<HeartbeatRequest>(),
    cold_api::<IncrementalAlterConfigsRequest>(),
    cold_api::<InitProducerIdRequest>(),
    cold_api::<JoinGroupRequest>(),
    cold_api::<LeaveGroupRequest>(),
    cold_api::<ListGroupsRequest>(),
    cold_api::<ListOffsetsRequest>(),
    cold_api::<ListPartitionReassignmentsRequest>(),
    cold_api::<ListTransactionsRequest>(),
    cold_api::<newer::OffsetCommitRequest>(),
    cold_api::<OffsetDeleteRequest>(),
    cold_api::<newer::OffsetFetchRequest>(),
    cold_api::<OffsetForLeaderEpochRequest>(),
    cold_api::<SaslAuthenticateRequest>(),
    cold_api::<SaslHandshakeRequest>(),
    cold_api::<newer::streams::StreamsGroupDescribeRequest>(),
    cold_api::<newer::streams::StreamsGroupHeartbeatRequest>(),
    cold_api::<SyncGroupRequest>(),
    cold_api::<TxnOffsetCommitRequest>(),
    cold_api::<newer::WriteTxnMarkersRequest>(),
];

const HOT: [(ApiKey, Check); 3] =
    [(ApiKey::PRODUCE, produce), (ApiKey::FETCH, fetch), (ApiKey::METADATA, metadata)];

/// Checks a response that must be valid; `None` for an API whose responses the client does not decode.
pub(super) fn strict_check_of(api: ApiKey) -> Option<Check> {
    match api {
        ApiKey::PRODUCE => Some(|version, body| {
            ProduceResponse::decode(version, body).expect("a Produce response");
        }),
        ApiKey::FETCH => Some(|version, body| {
            FetchResponse::decode(version, body).expect("a Fetch response");
        }),
        ApiKey::METADATA => Some(|version, body| {
            MetadataResponse::decode(version, body).expect("a Metadata response");
        }),
        _ => COLD.iter().find(|cold| cold.api == api).map(|cold| cold.strict),
    }
}

fn decode_strictly<Q: Request>(version: i16, body: &Bytes) {
    let version = cold::layout::<Q::Response>(ApiKey(Q::KEY), version);
    if let Err(error) = cold::decode_response::<Q::Response>(version, body.clone()) {
        panic!("the cluster's response: {error}");
    }
}

/// The first byte chooses the API, the second the version; the rest is the frame.
fn run(input: &[u8]) {
    let [api, version, frame @ ..] = input else { return };
    let apis = HOT.len() + COLD.len();
    let (api, check) = match usize::from(*api) % apis {
        hot if hot < HOT.len() => HOT[hot],
        cold => (COLD[cold - HOT.len()].api, COLD[cold - HOT.len()].check),
    };
    let Some(versions) = api.coded_versions() else { return };
    let count = i16::from(*version) % (versions.end() - versions.start() + 1);
    let version = versions.start() + count;
    let frame = Bytes::copy_from_slice(frame);
    let _ = header::correlation_id(&frame);
    let Ok(body) = header::response_body(&frame, api, version) else { return };
    check(version, &body);
}

fn check_cold<Q>(version: i16, body: &Bytes)
where
    Q: Request,
    Q::Response: Debug,
{
    let version = cold::layout::<Q::Response>(ApiKey(Q::KEY), version);
    let what = std::any::type_name::<Q::Response>();
    let cap = AHEAD + FACTOR * body.len();
    let read =
        memory::within(what, cap, || cold::decode_response::<Q::Response>(version, body.clone()));
    if what.ends_with("::ApiVersionsResponse") {
        let cap = memory::SLACK + 16 * body.len();
        let _ = memory::within(what, cap, || ApiVersions::decode(version, body));
    }
    let Ok(read) = read else { return };
    let written = cold::encode(version, &read).expect("what was decoded can be encoded");
    let again =
        cold::decode_response::<Q::Response>(version, written.clone()).expect("our own encoding");
    // NaN differs from itself, so the bytes are compared.
    assert_eq!(cold::encode(version, &again).ok(), Some(written), "version {version}: {read:?}");
}

/// Checks one of our own codecs: `kafka-protocol` reads the same message from the canonical bytes.
fn check_hot<T, K>(
    version: i16,
    body: &Bytes,
    decode: fn(i16, &Bytes) -> Result<T, DecodeError>,
    encode: fn(&T, i16, &mut Writer),
) where
    T: PartialEq + Debug,
    K: Decodable + Encodable + Message,
{
    let what = std::any::type_name::<T>();
    let cap = memory::SLACK + 32 * body.len();
    let Ok(read) = memory::within(what, cap, || decode(version, body)) else { return };
    let api = ApiKey(match what {
        what if what.ends_with("ProduceResponse") => 0,
        what if what.ends_with("FetchResponse") => 1,
        _ => 3,
    });
    let mut w = Writer::default();
    w.set_encoding(api.encoding(version));
    encode(&read, version, &mut w);
    let written = w.into_bytes();
    let again = decode(version, &written);
    assert_eq!(again.as_ref(), Ok(&read), "version {version}");
    let other = cold::decode_response::<K>(version, written.clone());
    let other = other.unwrap_or_else(|error| panic!("version {version}: {error}: {read:?}"));
    assert_eq!(cold::encode(version, &other).ok(), Some(written), "version {version}: {read:?}");
}

fn produce(version: i16, body: &Bytes) {
    check_hot::<_, messages::ProduceResponse>(
        version,
        body,
        ProduceResponse::decode,
        ProduceResponse::encode,
    );
}

fn fetch(version: i16, body: &Bytes) {
    check_hot::<_, messages::FetchResponse>(
        version,
        body,
        FetchResponse::decode,
        FetchResponse::encode,
    );
}

fn metadata(version: i16, body: &Bytes) {
    check_hot::<_, messages::MetadataResponse>(
        version,
        body,
        MetadataResponse::decode,
        MetadataResponse::encode,
    );
}

use curtail_wire::cold::messages;

fn default<Q: Request>(version: i16) -> Option<Bytes>
where
    Q::Response: Default,
{
    let version = cold::layout::<Q::Response>(ApiKey(Q::KEY), version);
    cold::encode(version, &Q::Response::default()).ok()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let hot = HOT.iter().map(|(api, _)| (*api, None));
    let cold = COLD.iter().map(|cold| (cold.api, Some(cold.default)));
    for (index, (api, default)) in hot.chain(cold).enumerate() {
        let Some(versions) = api.coded_versions() else { continue };
        for (count, version) in versions.enumerate() {
            let body = match default {
                Some(default) => default(version),
                None => Some(populated(api, version)),
            };
            let Some(body) = body else { continue };
            let mut w = Writer::default();
            encode_response_header(api, version, 7, &mut w);
            w.raw(&body);
            seeds.push([&[index as u8, count as u8], w.as_slice()].concat());
        }
    }
    seeds
}

/// A response of a hot API with every field set.
fn populated(api: ApiKey, version: i16) -> Bytes {
    use curtail_wire::{ErrorCode, Uuid, fetch as f, metadata as m, produce as p};

    let mut w = Writer::default();
    w.set_encoding(api.encoding(version));
    let leader = Some(p::LeaderIdAndEpoch { leader_id: 2, leader_epoch: 5 });
    let node_endpoints =
        vec![p::NodeEndpoint { node_id: 2, host: "h".into(), port: 9092, rack: None }];
    let name = |first_with_id: i16| if version >= first_with_id { "" } else { "t" }.to_owned();
    let id = |first: i16| if version >= first { Uuid([7; 16]) } else { Uuid::ZERO };
    match api {
        ApiKey::PRODUCE => {
            let refused = p::ProducePartitionResponse {
                error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
                record_errors: vec![p::BatchIndexError { batch_index: 1, message: None }],
                error_message: Some("no".into()),
                current_leader: leader,
                ..Default::default()
            };
            let partitions = vec![refused, p::ProducePartitionResponse::default()];
            let topic = p::ProduceTopicResponse { name: name(13), topic_id: id(13), partitions };
            ProduceResponse { topics: vec![topic], throttle_time_ms: 1, node_endpoints }
                .encode(version, &mut w);
        }
        ApiKey::FETCH => {
            let partition = f::FetchPartitionResponse {
                diverging_epoch: Some(f::EpochEndOffset { epoch: 1, end_offset: 2 }),
                current_leader: leader,
                aborted_transactions: Some(vec![f::AbortedTransaction {
                    producer_id: 1,
                    first_offset: 2,
                }]),
                records: Bytes::from_static(b"records"),
                ..Default::default()
            };
            let partitions = vec![partition, f::FetchPartitionResponse::default()];
            let topic = f::FetchTopicResponse { name: name(13), topic_id: id(13), partitions };
            FetchResponse {
                session_id: 3,
                topics: vec![topic],
                node_endpoints,
                ..Default::default()
            }
            .encode(version, &mut w);
        }
        _ => {
            let partition = m::MetadataPartition {
                error: ErrorCode::NONE,
                index: 0,
                leader_id: 1,
                leader_epoch: 4,
                replicas: vec![1, 2],
                isr: vec![1],
                offline_replicas: vec![2],
            };
            let topic = m::MetadataTopic {
                error: ErrorCode::NONE,
                name: Some("t".into()),
                topic_id: id(10),
                is_internal: false,
                partitions: vec![partition],
                authorized_operations: m::NO_OPERATIONS,
            };
            let broker = m::MetadataBroker { node_id: 1, host: "h".into(), port: 9092, rack: None };
            let response = MetadataResponse {
                brokers: vec![broker],
                cluster_id: Some("c".into()),
                topics: vec![topic],
                ..MetadataResponse::default()
            };
            response.encode(version, &mut w);
        }
    }
    w.into_bytes()
}
