//! AddPartitionsToTxn, key 24, versions 0 to 5.
//!
//! Up to version 3 clients send one transaction. From version 4 on brokers send many: they add
//! partitions on behalf of a producer, or verify that the producer has added them (KIP-890). All
//! partitions are added or none. Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        add_partitions_to_txn_response::{
            AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult,
            AddPartitionsToTxnTopicResult,
        },
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    transaction::{self, Added, ProducerEpoch, TopicPartition},
};

/// First version with PRODUCER_FENCED.
const FENCED: i16 = 2;
/// First version for brokers, with many transactions.
const BATCHED: i16 = 4;

type Codes = BTreeMap<TopicPartition, ErrorCode>;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: AddPartitionsToTxnRequest = call.decode(body)?;
    if call.version() < BATCHED {
        let producer = ProducerEpoch {
            id: request.v3_and_below_producer_id.0,
            epoch: request.v3_and_below_producer_epoch,
        };
        let partitions = partitions(&request.v3_and_below_topics);
        let id = &request.v3_and_below_transactional_id.0;
        let codes = add_for_client(call, id, Added { producer, partitions }).await;
        let response = AddPartitionsToTxnResponse::default()
            .with_results_by_topic_v3_and_below(by_topic(codes));
        return call.answer(&response, out);
    }
    if let Err(code) = call.require(Operation::ClusterAction, Resource::Cluster) {
        return call.answer(&AddPartitionsToTxnResponse::default().with_error_code(code.0), out);
    }
    let mut results = Vec::new();
    for asked in &request.transactions {
        let producer = ProducerEpoch { id: asked.producer_id.0, epoch: asked.producer_epoch };
        let added = Added { producer, partitions: partitions(&asked.topics) };
        let codes = match asked.verify_only {
            true => verify(call, &asked.transactional_id.0, added).await,
            false => add(call, &asked.transactional_id.0, added).await,
        };
        let result = AddPartitionsToTxnResult::default()
            .with_transactional_id(asked.transactional_id.clone())
            .with_topic_results(by_topic(codes));
        results.push(result);
    }
    call.answer(&AddPartitionsToTxnResponse::default().with_results_by_transaction(results), out)
}

fn partitions(topics: &[AddPartitionsToTxnTopic]) -> BTreeSet<TopicPartition> {
    let each = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|index| (topic.name.0.to_string(), *index)));
    each.collect()
}

/// Like [`add`], if the client may write to the transaction and to all of the topics.
async fn add_for_client(call: &Call<'_>, id: &str, added: Added) -> Codes {
    if let Err(code) = call.require(Operation::Write, Resource::TransactionalId(id)) {
        return added.partitions.into_iter().map(|partition| (partition, code)).collect();
    }
    let refused =
        |(topic, _): &TopicPartition| call.require(Operation::Write, Resource::Topic(topic)).err();
    if added.partitions.iter().any(|partition| refused(partition).is_some()) {
        let others = ErrorCode::OPERATION_NOT_ATTEMPTED;
        let codes = added.partitions.into_iter().map(|partition| {
            let code = refused(&partition).unwrap_or(others);
            (partition, code)
        });
        return codes.collect();
    }
    let injected: Codes = added
        .partitions
        .iter()
        .filter_map(|(topic, index)| {
            let code = call.injected(Item::Partition(topic, *index)).err()?;
            Some(((topic.clone(), *index), code))
        })
        .collect();
    if !injected.is_empty() {
        let code = |partition: &TopicPartition| injected.get(partition).copied();
        let codes = added.partitions.into_iter().map(|partition| {
            let code = code(&partition).unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED);
            (partition, code)
        });
        return codes.collect();
    }
    add(call, id, added).await
}

async fn add(call: &Call<'_>, id: &str, added: Added) -> Codes {
    let image = call.broker.image().clone();
    let exists = |(topic, index): &TopicPartition| image.has_partition(topic, *index);
    if !added.partitions.iter().all(exists) {
        let code = |partition: &TopicPartition| match exists(partition) {
            true => ErrorCode::OPERATION_NOT_ATTEMPTED,
            false => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        };
        return added
            .partitions
            .into_iter()
            .map(|p| {
                let code = code(&p);
                (p, code)
            })
            .collect();
    }
    let code = match transaction::add(call.broker, id, &added).await {
        Ok(()) => ErrorCode::NONE,
        Err(code) => call.fenced_code(code, FENCED),
    };
    added.partitions.into_iter().map(|partition| (partition, code)).collect()
}

async fn verify(call: &Call<'_>, id: &str, asked: Added) -> Codes {
    match transaction::verify(call.broker, id, &asked).await {
        Ok(results) => results
            .into_iter()
            .map(|(partition, result)| (partition, result.err().unwrap_or(ErrorCode::NONE)))
            .collect(),
        Err(code) => asked.partitions.into_iter().map(|partition| (partition, code)).collect(),
    }
}

fn by_topic(codes: Codes) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut topics: BTreeMap<String, Vec<AddPartitionsToTxnPartitionResult>> = BTreeMap::new();
    for ((topic, index), code) in codes {
        let result = AddPartitionsToTxnPartitionResult::default()
            .with_partition_index(index)
            .with_partition_error_code(code.0);
        topics.entry(topic).or_default().push(result);
    }
    let topics = topics.into_iter().map(|(name, results)| {
        AddPartitionsToTxnTopicResult::default()
            .with_name(text(&name).into())
            .with_results_by_partition(results)
    });
    topics.collect()
}
