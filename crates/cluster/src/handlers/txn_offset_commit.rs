//! TxnOffsetCommit, key 28, versions 0 to 5: offsets that take effect when their producer's
//! transaction is committed.
//!
//! A transaction's first offsets in the group's partition need verification with the transaction
//! coordinator, as in Produce ([`super::verify`]). From version 5 on the verification adds the
//! partition (KIP-890). From version 3 on the group's members are checked (KIP-447).

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{
        TxnOffsetCommitRequest, TxnOffsetCommitResponse,
        txn_offset_commit_response::{
            TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
        },
    },
};

use super::{
    Answer, Call,
    offset_commit::{Asked, check},
    verify::{Client, Patience, verify},
};
use crate::{
    acl::{Operation, Resource},
    coordinator::{
        Kind, groups::Committer, offsets::TopicPartition, records::OffsetValue, runtime::Producer,
    },
    transaction::{Added, ProducerEpoch, Version, server_version},
};

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: TxnOffsetCommitRequest = call.decode(body)?;
    let id = Resource::TransactionalId(&request.transactional_id.0);
    let group = Resource::Group(&request.group_id.0);
    let allowed =
        call.require(Operation::Write, id).and_then(|()| call.require(Operation::Read, group));
    let mut offsets = Vec::new();
    // The error of each partition, in the order of the request.
    let mut refused = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let asked = Asked {
                topic: &topic.name.0,
                topic_id: Uuid::ZERO,
                index: partition.partition_index,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.committed_metadata.as_deref(),
            };
            let checked = allowed.and_then(|()| check(call, &asked));
            refused.push(checked.as_ref().err().copied());
            offsets.extend(checked);
        }
    }
    let prepared = match allowed {
        Ok(()) => prepare(call, &request, offsets).await.err().unwrap_or(ErrorCode::NONE),
        Err(code) => code,
    };
    let mut refused = refused.into_iter();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let code = refused.next().flatten().unwrap_or(prepared);
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code.0)
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    let topics = topics.collect();
    call.answer(&TxnOffsetCommitResponse::default().with_topics(topics), out)
}

async fn prepare(
    call: &Call<'_>,
    request: &TxnOffsetCommitRequest,
    offsets: Vec<(TopicPartition, OffsetValue)>,
) -> Result<(), ErrorCode> {
    let group = &request.group_id.0;
    let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
    let groups = call.groups(group)?;
    let patience = Patience::new();
    let guard = loop {
        let guard = groups.run(call.broker, |_, cx| cx.begin_verification(producer))??;
        let Some(guard) = guard else { break None };
        let asked = ask(call, request, groups.index).await;
        // As in Produce, a marker that arrived during the verification invalidates it.
        let holds = groups.run(call.broker, |_, cx| cx.is_verifying(producer.id, guard))?;
        match asked {
            Ok(()) if holds => break Some(guard),
            Ok(()) if patience.waits().await => {}
            Ok(()) => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Err(ErrorCode::CONCURRENT_TRANSACTIONS) if patience.waits().await => {}
            Err(code) => return Err(code),
        }
    };
    let committer = Committer {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    };
    let prepared = groups.run(call.broker, |groups, cx| {
        groups.prepare(group, committer, (producer, guard), offsets, cx)
    })??;
    let Some(taken) = prepared else { return Ok(()) };
    groups.committed(call.broker, &taken, call.broker.config.offsets_commit_timeout).await
}

/// Verifies the group's partition with the transaction coordinator.
async fn ask(
    call: &Call<'_>,
    request: &TxnOffsetCommitRequest,
    index: i32,
) -> Result<(), ErrorCode> {
    let client = match call.version() {
        ..4 => Client::Old,
        4 => Client::Abortable,
        _ if server_version(&call.broker.config) == Version::Two => Client::Adding,
        _ => Client::Abortable,
    };
    let producer = ProducerEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let partitions = [(Kind::Group.topic().to_owned(), index)].into();
    let id = &request.transactional_id.0;
    let refused = verify(call.broker, id, &Added { producer, partitions }, client).await;
    match refused.into_values().next() {
        None => Ok(()),
        // A transient error; Produce reports it as NOT_ENOUGH_REPLICAS.
        Some(ErrorCode::NOT_ENOUGH_REPLICAS) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        Some(code) => Err(code),
    }
}
