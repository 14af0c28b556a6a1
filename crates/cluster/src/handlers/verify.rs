//! Verification before a transactional batch begins a transaction in a partition (KIP-890). With
//! transaction version 2 the broker asks the transaction coordinator to add the partition, before
//! that whether the producer has added it. Without verification a late batch could open a
//! transaction that never ends.

use std::{collections::BTreeMap, time::Duration};

use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AddPartitionsToTxnRequest, ProducerId, TransactionalId,
        add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
    },
};
use tokio::time::{Instant, sleep};

use super::text;
use crate::{
    broker::Broker,
    coordinator::{self, Kind},
    transaction::{Added, TopicPartition},
};

/// The version of AddPartitionsToTxn between brokers.
const VERSION: i16 = 5;
/// Limit and interval of the wait for the end of the previous transaction
/// (`add.partitions.to.txn.retry.backoff.max.ms`, `add.partitions.to.txn.retry.backoff.ms`).
const PATIENCE: Duration = Duration::from_millis(100);
const BACKOFF: Duration = Duration::from_millis(20);

/// The errors that a client supports, by the version of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// Does not support TRANSACTION_ABORTABLE, and adds its partitions itself.
    Old,
    /// Supports TRANSACTION_ABORTABLE, and adds its partitions itself.
    Abortable,
    /// Lets the broker add partitions (transaction version 2).
    Adding,
}

/// Limits the wait for the previous transaction.
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { until: Instant::now() + PATIENCE }
    }

    /// Waits for one backoff, if there is time left. The verification must then restart: the
    /// awaited marker has invalidated earlier guards, so that no late batch follows it.
    pub(crate) async fn waits(&self) -> bool {
        if Instant::now() + BACKOFF > self.until {
            return false;
        }
        sleep(BACKOFF).await;
        true
    }
}

/// Verifies partitions of one producer's transaction. Returns the refused ones with the client's
/// error codes. CONCURRENT_TRANSACTIONS is worth another verification ([`Patience`]).
pub(crate) async fn verify(
    broker: &Broker,
    id: &str,
    asked: &Added,
    client: Client,
) -> BTreeMap<TopicPartition, ErrorCode> {
    let refused = ask(broker, id, asked, client).await;
    refused.into_iter().map(|(partition, code)| (partition, tell(code, client))).collect()
}

async fn ask(
    broker: &Broker,
    id: &str,
    asked: &Added,
    client: Client,
) -> BTreeMap<TopicPartition, ErrorCode> {
    let all = |code| asked.partitions.iter().map(|p| (p.clone(), code)).collect();
    let coordinator = match coordinator::find(broker, Kind::Transaction, id) {
        Ok(coordinator) => coordinator.id,
        Err(code) => return all(code),
    };
    let response =
        match broker.peers.call(broker, coordinator, VERSION, &request(id, asked, client)).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(broker = broker.id, coordinator, %error, "verification failed");
                return all(ErrorCode::NETWORK_EXCEPTION);
            }
        };
    if response.error_code != 0 {
        return all(ErrorCode(response.error_code));
    }
    let mut refused: BTreeMap<TopicPartition, ErrorCode> = all(ErrorCode::NETWORK_EXCEPTION);
    let topics =
        response.results_by_transaction.into_iter().flat_map(|result| result.topic_results);
    for topic in topics {
        for partition in topic.results_by_partition {
            let key = (topic.name.0.to_string(), partition.partition_index);
            match ErrorCode(partition.partition_error_code) {
                ErrorCode::NONE => refused.remove(&key),
                code => refused.insert(key, code),
            };
        }
    }
    refused
}

fn request(id: &str, asked: &Added, client: Client) -> AddPartitionsToTxnRequest {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, index) in &asked.partitions {
        by_topic.entry(topic).or_default().push(*index);
    }
    let topics = by_topic.into_iter().map(|(topic, indexes)| {
        AddPartitionsToTxnTopic::default().with_name(text(topic).into()).with_partitions(indexes)
    });
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_producer_id(ProducerId(asked.producer.id))
        .with_producer_epoch(asked.producer.epoch)
        .with_verify_only(client != Client::Adding)
        .with_topics(topics.collect());
    AddPartitionsToTxnRequest::default().with_transactions(vec![transaction])
}

/// Translates the coordinator's refusal for the client of a Produce or TxnOffsetCommit. Transient
/// errors become NOT_ENOUGH_REPLICAS, which clients retry without fetching metadata.
pub(crate) fn tell(code: ErrorCode, client: Client) -> ErrorCode {
    match code {
        ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::TRANSACTION_ABORTABLE if client == Client::Old => ErrorCode::INVALID_TXN_STATE,
        ErrorCode::CONCURRENT_TRANSACTIONS if client == Client::Adding => code,
        ErrorCode::CONCURRENT_TRANSACTIONS
        | ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR => ErrorCode::NOT_ENOUGH_REPLICAS,
        code => code,
    }
}
