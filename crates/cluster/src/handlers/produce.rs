//! Produce, key 0, versions 3 to 13 (0 to 2 are advertised and refused).
//!
//! - acks 0: no response. An error closes the connection, which is all a client can notice.
//! - acks 1: the response follows the leader's append.
//! - acks -1: refused below `min.insync.replicas`. Otherwise the response follows once the high
//!   watermark has passed the batch, or is REQUEST_TIMED_OUT after the request's timeout. An error
//!   after the append keeps the batch's offset, as Apache Kafka's `DelayedProduce` does.
//! - From version 10 NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH name the leader (KIP-951); from
//!   13 topics are identified by id.
//! - Only coordinators write to internal topics.
//! - A transactional batch begins a transaction in its partition only after verification with the
//!   coordinator ([`super::verify`]). Batches of a transaction need the transactional id, and are
//!   refused as unauthorized without it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    produce::{
        ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopic,
        ProduceTopicResponse,
    },
    records::{BatchHeader, Codec},
};
use tokio::time::{Instant, timeout_at};

use super::{
    Answer, Call, Endpoints, Item, muted, throttle_ms,
    verify::{Client, Patience, tell, verify},
};
use crate::{
    acl::{Operation, Resource},
    config::Plant,
    coordinator::Kind,
    log::{Origin, VerificationGuard},
    quota::Limit,
    replica::{
        partition::{Ack, NotServed, Partition, Taken},
        purgatory::Wait,
    },
    transaction::{Added, ProducerEpoch, TopicPartition, Version, server_version},
};

/// First version whose batches may be compressed with zstd (KIP-110).
const ZSTD: i16 = 7;
/// First version with leaders in errors.
const LEADER_HINTS: i16 = 10;
/// First version with topic ids.
const TOPIC_IDS: i16 = 13;

pub(super) async fn handle(
    call: &Call<'_>,
    body: &Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request =
        ProduceRequest::decode(call.version(), body).map_err(|error| error.to_string())?;
    call.concerns(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    let refused = refused(call, &request);
    let verified = match refused {
        None => verify_all(call, &request).await,
        Some(_) => Verified::new(),
    };
    take_turn(call, &request).await;
    let mut outcomes = append_all(call, &request, refused, &verified);
    if request.acks == -1 && call.broker.config.plant != Some(Plant::AckBeforeReplication) {
        wait_for_acks(call, request.timeout_ms, &mut outcomes).await;
    }
    let silence = call.count(Limit::ProducerByteRate, call.size);
    if request.acks == 0 {
        let failed = outcomes.iter().flatten().any(|o| matches!(o, Outcome::Refused(_)));
        return Ok(if failed { Answer::Close } else { muted(Answer::None, silence) });
    }
    let mut response = respond(call, &request, outcomes);
    response.throttle_time_ms = throttle_ms(silence);
    Ok(muted(call.answer_with(out, |w| response.encode(call.version(), w)), silence))
}

/// Waits before the append, on a disk that takes time.
async fn take_turn(call: &Call<'_>, request: &ProduceRequest) {
    let records = request.topics.iter().flat_map(|topic| &topic.partitions);
    let (batches, bytes) = records
        .filter_map(|asked| asked.records.as_ref())
        .fold((0, 0), |(batches, bytes), records| (batches + 1, bytes + records.len()));
    call.broker.disk_turn(batches, bytes).await;
}

/// The result of an append to one partition.
pub(super) enum Outcome {
    Refused(NotServed),
    Taken {
        taken: Taken,
        partition: Arc<Partition>,
    },
    /// It was appended, and then the leader could not acknowledge it.
    NotAcknowledged {
        taken: Taken,
        why: NotServed,
    },
}

/// Results for batches that begin a transaction in their partition, by topic and index: the guard,
/// or the refusal.
type Verified = BTreeMap<TopicPartition, Result<VerificationGuard, ErrorCode>>;

async fn verify_all(call: &Call<'_>, request: &ProduceRequest) -> Verified {
    let patience = Patience::new();
    loop {
        let verified = verify_once(call, request).await;
        let busy = verified.values().any(|v| *v == Err(ErrorCode::CONCURRENT_TRANSACTIONS));
        if !busy || !patience.waits().await {
            return verified;
        }
    }
}

async fn verify_once(call: &Call<'_>, request: &ProduceRequest) -> Verified {
    let mut verified = Verified::new();
    let Some(id) = &request.transactional_id else { return verified };
    let now_ms = call.broker.env.wall.now_ms();
    let mut producer = None;
    let mut guards = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            let Some(records) = &asked.records else { continue };
            let Ok(partition) = replica(call, topic, asked.index) else { continue };
            let Ok(Some(guard)) = partition.begin_verification(records, now_ms) else { continue };
            let Ok(header) = BatchHeader::parse(records) else { continue };
            producer = Some(ProducerEpoch { id: header.producer_id, epoch: header.producer_epoch });
            verified.insert((partition.topic.to_string(), asked.index), Ok(guard));
            guards.push((partition, guard));
        }
    }
    let Some(producer) = producer else { return verified };
    let client = match call.version() {
        ..11 => Client::Old,
        11 => Client::Abortable,
        _ if server_version(&call.broker.config) == Version::Two => Client::Adding,
        _ => Client::Abortable,
    };
    let asked = Added { producer, partitions: verified.keys().cloned().collect() };
    for (partition, code) in verify(call.broker, id, &asked, client).await {
        verified.insert(partition, Err(code));
    }
    for (partition, guard) in guards {
        // A marker that arrived during the verification invalidates it: the previous transaction
        // has just ended.
        if !partition.is_verifying(producer.id, guard) {
            let at = (partition.topic.to_string(), partition.key.index);
            verified.insert(at, Err(tell(ErrorCode::CONCURRENT_TRANSACTIONS, client)));
        }
    }
    verified
}

fn replica(call: &Call<'_>, topic: &ProduceTopic, index: i32) -> Result<Arc<Partition>, NotServed> {
    let partition = if call.version() >= TOPIC_IDS {
        let topic = call.topic_by_id(topic.topic_id)?;
        call.require(Operation::Write, Resource::Topic(&topic.name))?;
        call.replica(&topic, index)?
    } else {
        call.require(Operation::Write, Resource::Topic(&topic.name))?;
        call.replica_by_name(&topic.name, index)?
    };
    if Kind::of_topic(&partition.topic).is_some() {
        return Err(NotServed::code(ErrorCode::INVALID_TOPIC_EXCEPTION));
    }
    Ok(partition)
}

fn codec(records: &Bytes) -> Option<Codec> {
    BatchHeader::parse(records).ok()?.compression().ok()
}

/// Returns whether a batch belongs to a transaction.
fn is_transactional(asked: &ProducePartition) -> bool {
    let header = asked.records.as_ref().and_then(|records| BatchHeader::parse(records).ok());
    header.is_some_and(|header| header.is_transactional())
}

/// Returns the error that refuses the whole request.
fn refused(call: &Call<'_>, request: &ProduceRequest) -> Option<ErrorCode> {
    let mut batches = request.topics.iter().flat_map(|topic| &topic.partitions);
    let of_nobody = || {
        call.concerns(0);
        Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    };
    if batches.any(is_transactional) {
        let allowed = request.transactional_id.as_deref().map_or_else(of_nobody, |id| {
            call.require(Operation::Write, Resource::TransactionalId(id)).err()
        });
        if allowed.is_some() {
            return allowed;
        }
    }
    (!(-1..=1).contains(&request.acks)).then(|| {
        call.concerns(0);
        ErrorCode::INVALID_REQUIRED_ACKS
    })
}

/// Returns one list of outcomes per topic, in the order of the request.
fn append_all(
    call: &Call<'_>,
    request: &ProduceRequest,
    refuse_all: Option<ErrorCode>,
    verified: &Verified,
) -> Vec<Vec<Outcome>> {
    let now_ms = call.broker.env.wall.now_ms();
    let one = |topic: &ProduceTopic, partition: &ProducePartition| {
        if let Some(code) = refuse_all {
            return Outcome::Refused(NotServed::code(code));
        }
        match append(call, topic, partition, verified, request.acks == -1, now_ms) {
            Ok(taken) => taken,
            Err(refused) => Outcome::Refused(refused),
        }
    };
    request
        .topics
        .iter()
        .map(|topic| topic.partitions.iter().map(|partition| one(topic, partition)).collect())
        .collect()
}

fn append(
    call: &Call<'_>,
    topic: &ProduceTopic,
    asked: &ProducePartition,
    verified: &Verified,
    all_replicas: bool,
    now_ms: i64,
) -> Result<Outcome, NotServed> {
    let partition = replica(call, topic, asked.index)?;
    call.injected(Item::Partition(&partition.topic, asked.index))?;
    let Some(records) = asked.records.clone() else {
        return Err(NotServed::code(ErrorCode::INVALID_RECORD));
    };
    if call.version() < ZSTD && codec(&records) == Some(Codec::Zstd) {
        return Err(NotServed::code(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE));
    }
    let guard = match verified.get(&(partition.topic.to_string(), asked.index)) {
        Some(Err(code)) => return Err(NotServed::code(*code)),
        Some(Ok(guard)) => Some(*guard),
        None => None,
    };
    let taken = partition.append(Origin::Client, records, guard, all_replicas, now_ms)?;
    Ok(Outcome::Taken { taken, partition })
}

/// Waits until every appended batch is acknowledged or has failed, up to the request's timeout.
pub(super) async fn wait_for_acks(call: &Call<'_>, timeout_ms: i32, outcomes: &mut [Vec<Outcome>]) {
    let id = call.broker.wait_ids.next();
    let taken = || outcomes.iter().flatten().filter(|o| matches!(o, Outcome::Taken { .. }));
    // One condition more than there are batches, so that none completes the wait during its setup.
    let wait = Wait::for_all(taken().count() + 1);
    for outcome in taken() {
        if let Outcome::Taken { taken, partition } = outcome
            && partition.wait_for_ack(taken, id, &wait) != Ack::Open
        {
            wait.one_came_true();
        }
    }
    wait.one_came_true();
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    // The partitions, not this result, show the outcome: some may have been acknowledged in time.
    let _ = timeout_at(Instant::now() + timeout, wait.done()).await;
    for outcome in outcomes.iter_mut().flatten() {
        let Outcome::Taken { taken, partition } = outcome else { continue };
        let why = match partition.ack(taken, id) {
            Ack::Done => continue,
            Ack::Open => NotServed::code(ErrorCode::REQUEST_TIMED_OUT),
            Ack::Failed(why) => why,
        };
        *outcome = Outcome::NotAcknowledged { taken: *taken, why };
    }
}

fn respond(
    call: &Call<'_>,
    request: &ProduceRequest,
    outcomes: Vec<Vec<Outcome>>,
) -> ProduceResponse {
    let mut endpoints = Endpoints::default();
    let topics = request
        .topics
        .iter()
        .zip(outcomes)
        .map(|(topic, outcomes)| ProduceTopicResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .zip(outcomes)
                .map(|(asked, outcome)| {
                    respond_one(call, topic, asked.index, outcome, &mut endpoints)
                })
                .collect(),
        })
        .collect();
    let mut response = ProduceResponse { topics, throttle_time_ms: 0, node_endpoints: endpoints.0 };
    if call.broker.config.plant == Some(Plant::MixUpAnswers) {
        for topic in &mut response.topics {
            if let [first, second, ..] = &mut topic.partitions[..] {
                std::mem::swap(&mut first.base_offset, &mut second.base_offset);
            }
        }
    }
    response
}

fn respond_one(
    call: &Call<'_>,
    topic: &ProduceTopic,
    index: i32,
    outcome: Outcome,
    endpoints: &mut Endpoints,
) -> ProducePartitionResponse {
    let mut response = ProducePartitionResponse { index, ..ProducePartitionResponse::default() };
    let (taken, refused) = match outcome {
        Outcome::Taken { taken, .. } => (Some(taken), None),
        Outcome::NotAcknowledged { taken, why } => (Some(taken), Some(why)),
        Outcome::Refused(refused) => (None, Some(refused)),
    };
    if let Some(taken) = taken {
        response.base_offset = taken.appended.base_offset;
        response.log_append_time_ms = taken.appended.log_append_time_ms;
        response.log_start_offset = taken.log_start;
    }
    let acks_refused = call.broker.config.plant == Some(Plant::AckRefused);
    let is_acked =
        |refused: &NotServed| acks_refused && refused.code == ErrorCode::KAFKA_STORAGE_ERROR;
    if let Some(refused) = refused.filter(|refused| !is_acked(refused)) {
        response.error = refused.code;
        if call.version() >= LEADER_HINTS {
            let image = call.broker.image();
            let by_id = image.topic_by_id(&topic.topic_id).filter(|_| call.version() >= TOPIC_IDS);
            let name = by_id.map_or(topic.name.as_str(), |topic| &topic.name);
            let part = Item::Partition(name, index);
            response.current_leader = endpoints.hint(call, part, &refused);
        }
        response.error_message = refused.message;
        response.record_errors = refused.records;
    }
    response
}
