//! Requests to coordinators, and their responses.

use std::{sync::Arc, time::Duration};

use curtail_proto::{
    accumulator::ProducerIdentity,
    transaction::{GroupOffsets, Key, Outcome, Protocol, Reply, Request},
};
use curtail_wire::{
    ErrorCode,
    cold::{StrBytes, messages},
};
use messages::{
    add_partitions_to_txn_request::AddPartitionsToTxnTopic,
    txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
};

use crate::{Error, Result, conn::Connection};

/// Fields common to a transactional producer's requests.
pub(super) struct Call<'a> {
    /// `transactional.id`.
    pub(super) id: &'a str,
    /// `transaction.timeout.ms`.
    pub(super) timeout: Duration,
    pub(super) identity: Option<ProducerIdentity>,
    pub(super) protocol: Protocol,
}

const NO_PRODUCER: ProducerIdentity = ProducerIdentity { id: -1, epoch: -1 };

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Sends a request and reads its response.
pub(super) async fn ask(
    connection: &mut Connection,
    call: &Call<'_>,
    request: &Request,
) -> Result<Reply<Error>> {
    match request {
        Request::InitProducerId(before) => init_producer_id(connection, call, *before).await,
        Request::AddPartitions(partitions) => add_partitions(connection, call, partitions).await,
        Request::AddOffsets(group) => add_offsets(connection, call, group).await,
        Request::CommitOffsets(offsets) => commit_offsets(connection, call, offsets).await,
        Request::End(outcome) => end(connection, call, *outcome).await,
    }
}

async fn init_producer_id(
    connection: &mut Connection,
    call: &Call<'_>,
    before: Option<ProducerIdentity>,
) -> Result<Reply<Error>> {
    // Since version 3 the request can bump the epoch of an existing id (KIP-360).
    let versions = if before.is_some() { 3..=5 } else { 0..=5 };
    let before = before.unwrap_or(NO_PRODUCER);
    let timeout = i32::try_from(call.timeout.as_millis()).unwrap_or(i32::MAX);
    let answer: messages::InitProducerIdResponse = connection
        .request(versions, |_| {
            messages::InitProducerIdRequest::default()
                .with_transactional_id(Some(text(call.id).into()))
                .with_transaction_timeout_ms(timeout)
                .with_producer_id(before.id.into())
                .with_producer_epoch(before.epoch)
        })
        .await?;
    let identity = ProducerIdentity { id: answer.producer_id.0, epoch: answer.producer_epoch };
    Ok(match ErrorCode(answer.error_code) {
        ErrorCode::NONE if identity.id < 0 || identity.epoch < 0 => {
            return Err(connection.protocol_error("InitProducerId without a producer id"));
        }
        ErrorCode::NONE => Reply::Identity(identity),
        code => Reply::Refused(code),
    })
}

async fn add_partitions(
    connection: &mut Connection,
    call: &Call<'_>,
    partitions: &[Key],
) -> Result<Reply<Error>> {
    let identity = call.identity.unwrap_or(NO_PRODUCER);
    // The machine returns the keys in order.
    let topics = partitions.chunk_by(|(a, _), (b, _)| a == b).map(|topic| {
        AddPartitionsToTxnTopic::default()
            .with_name(text(&topic[0].0).into())
            .with_partitions(topic.iter().map(|(_, index)| *index).collect())
    });
    // Versions 4 and later are for brokers (KIP-890).
    let answer: messages::AddPartitionsToTxnResponse = connection
        .request(0..=3, |_| {
            messages::AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(text(call.id).into())
                .with_v3_and_below_producer_id(identity.id.into())
                .with_v3_and_below_producer_epoch(identity.epoch)
                .with_v3_and_below_topics(topics.collect())
        })
        .await?;
    let mut results = Vec::new();
    for topic in answer.results_by_topic_v3_and_below {
        let name: Arc<str> = topic.name.as_str().into();
        results.extend(topic.results_by_partition.iter().map(|result| {
            ((name.clone(), result.partition_index), ErrorCode(result.partition_error_code))
        }));
    }
    complete(connection, partitions.iter(), results)
}

async fn add_offsets(
    connection: &mut Connection,
    call: &Call<'_>,
    group: &str,
) -> Result<Reply<Error>> {
    let identity = call.identity.unwrap_or(NO_PRODUCER);
    let answer: messages::AddOffsetsToTxnResponse = connection
        .request(0..=4, |_| {
            messages::AddOffsetsToTxnRequest::default()
                .with_transactional_id(text(call.id).into())
                .with_producer_id(identity.id.into())
                .with_producer_epoch(identity.epoch)
                .with_group_id(text(group).into())
        })
        .await?;
    Ok(match ErrorCode(answer.error_code) {
        ErrorCode::NONE => Reply::Done,
        code => Reply::Refused(code),
    })
}

async fn commit_offsets(
    connection: &mut Connection,
    call: &Call<'_>,
    offsets: &GroupOffsets,
) -> Result<Reply<Error>> {
    let identity = call.identity.unwrap_or(NO_PRODUCER);
    let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
    for ((topic, index), offset) in &offsets.offsets {
        if topics.last().is_none_or(|last| last.name.as_str() != &**topic) {
            topics.push(TxnOffsetCommitRequestTopic::default().with_name(text(topic).into()));
        }
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(*index)
            .with_committed_offset(offset.offset)
            .with_committed_leader_epoch(offset.leader_epoch)
            .with_committed_metadata(Some(text(&offset.metadata)));
        if let Some(last) = topics.last_mut() {
            last.partitions.push(partition);
        }
    }
    // Version 5 adds the group to the transaction automatically. Versions 3 and later name the member (KIP-447).
    let versions = match call.protocol {
        Protocol::V2 => 5..=5,
        Protocol::V1 => 0..=4,
    };
    let answer: messages::TxnOffsetCommitResponse = connection
        .request(versions, |version| {
            let request = messages::TxnOffsetCommitRequest::default()
                .with_transactional_id(text(call.id).into())
                .with_group_id(text(&offsets.group).into())
                .with_producer_id(identity.id.into())
                .with_producer_epoch(identity.epoch)
                .with_topics(topics);
            if version < 3 {
                return request;
            }
            request
                .with_generation_id(offsets.generation)
                .with_member_id(text(&offsets.member))
                .with_group_instance_id(offsets.instance.as_deref().map(text))
        })
        .await?;
    let mut results = Vec::new();
    for topic in answer.topics {
        let name: Arc<str> = topic.name.as_str().into();
        results.extend(
            topic.partitions.iter().map(|result| {
                ((name.clone(), result.partition_index), ErrorCode(result.error_code))
            }),
        );
    }
    complete(connection, offsets.offsets.iter().map(|(key, _)| key), results)
}

async fn end(
    connection: &mut Connection,
    call: &Call<'_>,
    outcome: Outcome,
) -> Result<Reply<Error>> {
    let identity = call.identity.unwrap_or(NO_PRODUCER);
    let versions = match call.protocol {
        Protocol::V2 => 5..=5,
        Protocol::V1 => 0..=4,
    };
    let answer: messages::EndTxnResponse = connection
        .request(versions, |_| {
            messages::EndTxnRequest::default()
                .with_transactional_id(text(call.id).into())
                .with_producer_id(identity.id.into())
                .with_producer_epoch(identity.epoch)
                .with_committed(outcome == Outcome::Commit)
        })
        .await?;
    let next = ProducerIdentity { id: answer.producer_id.0, epoch: answer.producer_epoch };
    Ok(match (ErrorCode(answer.error_code), call.protocol) {
        (ErrorCode::NONE, Protocol::V1) => Reply::Done,
        (ErrorCode::NONE, Protocol::V2) if next.id < 0 || next.epoch < 0 => {
            return Err(connection.protocol_error("EndTxn without the next epoch"));
        }
        (ErrorCode::NONE, Protocol::V2) => Reply::Identity(next),
        (code, _) => Reply::Refused(code),
    })
}

/// Returns the results, or an error if the response leaves out a key.
fn complete<'a>(
    connection: &Connection,
    mut asked: impl Iterator<Item = &'a Key>,
    results: Vec<(Key, ErrorCode)>,
) -> Result<Reply<Error>> {
    match asked.find(|key| !results.iter().any(|(answered, _)| answered == *key)) {
        None => Ok(Reply::Each(results)),
        Some((topic, index)) => {
            Err(connection.protocol_error(format!("the response omits {topic}-{index}")))
        }
    }
}
