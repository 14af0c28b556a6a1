//! The coordinator's operations. The errors common to all of them: NOT_COORDINATOR from other
//! brokers, COORDINATOR_LOAD_IN_PROGRESS before the log has been read, and
//! COORDINATOR_NOT_AVAILABLE while the log has too few replicas.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_wire::{ErrorCode, records::EndTxnMarker};
use parking_lot::Mutex;

use super::{
    Transactions,
    machine::{End, Init, Phase, ProducerEpoch, TopicPartition, Txn, Version},
    server_version,
};
use crate::{broker::Broker, config::Plant};

/// Timeout of the followers' acknowledgement of a record.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an operation.
enum Decision<R> {
    /// Stores this state of the id, then responds.
    Change(Txn, R),
    /// Nothing changes.
    Keep(R),
}

/// Decides an operation on a transactional id, stores its change, and waits until the change and
/// everything it was decided from is on the in-sync replicas.
async fn decide<R>(
    broker: &Arc<Broker>,
    id: &str,
    operation: impl FnOnce(Option<&Txn>, i64) -> Result<Decision<R>, ErrorCode>,
) -> Result<R, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let shard = broker.transactions.shard(broker, id)?;
    let decided = shard.run(broker, |state: &mut Transactions, cx| {
        let now_ms = cx.now_ms();
        match operation(state.by_id.get(id), now_ms)? {
            Decision::Change(txn, answer) => Ok((Some(state.change(cx, id, txn)?), answer)),
            Decision::Keep(answer) => Ok((None, answer)),
        }
    })?;
    let (taken, answer) = match decided {
        Ok(decided) => decided,
        Err(code) => {
            // A refusal based on a previous coordinator's state could fail a valid transaction.
            shard.is_current(broker)?;
            return Err(code);
        }
    };
    match taken {
        Some(taken) => shard.committed(broker, &taken, COMMIT_TIMEOUT).await?,
        None => shard.settled(broker, COMMIT_TIMEOUT).await?,
    }
    Ok(answer)
}

fn known(txn: Option<&Txn>) -> Result<&Txn, ErrorCode> {
    txn.ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
}

/// Producer ids for one decision, which is discarded if an id was needed and none was available.
struct ProducerIds<'a> {
    broker: &'a Broker,
    refused: Mutex<Option<ErrorCode>>,
}

impl<'a> ProducerIds<'a> {
    fn new(broker: &'a Broker) -> Self {
        Self { broker, refused: Mutex::new(None) }
    }

    fn next(&self) -> i64 {
        self.broker.controller.next_producer_id().unwrap_or_else(|code| {
            *self.refused.lock() = Some(code);
            -1
        })
    }

    fn check(&self) -> Result<(), ErrorCode> {
        self.refused.lock().take().map_or(Ok(()), Err)
    }
}

/// Handles InitProducerId of a transactional producer. Returns its id and a new epoch, which fences
/// the previous one.
pub(crate) async fn init(
    broker: &Arc<Broker>,
    id: &str,
    timeout_ms: i32,
    expected: Option<ProducerEpoch>,
) -> Result<ProducerEpoch, ErrorCode> {
    let most = broker.config.transaction_max_timeout.as_millis();
    if timeout_ms <= 0 || timeout_ms as u128 > most {
        return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT);
    }
    let ids = ProducerIds::new(broker);
    let server = server_version(&broker.config);
    let ready = decide(broker, id, |txn, now_ms| {
        let fresh = txn.is_none().then(|| {
            let mut fresh = Txn::new(ids.next(), timeout_ms, now_ms);
            fresh.producer.epoch = broker.config.first_producer_epoch - 1;
            fresh
        });
        let Some(txn) = txn.or(fresh.as_ref()) else { return Err(ErrorCode::UNKNOWN_SERVER_ERROR) };
        let init = txn.init(expected, timeout_ms, now_ms, server, || ids.next())?;
        ids.check()?;
        Ok(match init {
            Init::Ready(next) => {
                let producer = next.producer;
                Decision::Change(next, Some(producer))
            }
            Init::Fenced(next) => Decision::Change(next, None),
        })
    });
    ready.await?.ok_or(ErrorCode::CONCURRENT_TRANSACTIONS)
}

/// Partitions to add, and the producer of the transaction.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub(crate) producer: ProducerEpoch,
    pub(crate) partitions: BTreeSet<TopicPartition>,
}

/// Handles AddPartitionsToTxn and AddOffsetsToTxn.
pub(crate) async fn add(broker: &Arc<Broker>, id: &str, added: &Added) -> Result<(), ErrorCode> {
    let fences = broker.config.plant == Some(Plant::FenceUnsettled);
    decide(broker, id, |txn, now_ms| {
        let next = known(txn)?.add(added.producer, &added.partitions, now_ms);
        let next = next.map_err(|code| match code {
            ErrorCode::CONCURRENT_TRANSACTIONS if fences => ErrorCode::PRODUCER_FENCED,
            code => code,
        })?;
        Ok(next.map_or(Decision::Keep(()), |next| Decision::Change(next, ())))
    })
    .await
}

/// Returns whether a producer may write to partitions, one result per partition.
pub(crate) async fn verify(
    broker: &Arc<Broker>,
    id: &str,
    asked: &Added,
) -> Result<Vec<(TopicPartition, Result<(), ErrorCode>)>, ErrorCode> {
    decide(broker, id, |txn, _| {
        let txn = known(txn)?;
        let one =
            |partition: &TopicPartition| (partition.clone(), txn.verify(asked.producer, partition));
        Ok(Decision::Keep(asked.partitions.iter().map(one).collect()))
    })
    .await
}

/// Handles EndTxn: decides the end and returns the producer's next id and epoch. The markers are
/// written afterwards.
pub(crate) async fn end(
    broker: &Arc<Broker>,
    id: &str,
    producer: ProducerEpoch,
    result: EndTxnMarker,
    client: Version,
) -> Result<ProducerEpoch, ErrorCode> {
    let ids = ProducerIds::new(broker);
    decide(broker, id, |txn, now_ms| {
        let txn = known(txn)?;
        let end = txn.end(producer, result, client, now_ms, || ids.next())?;
        ids.check()?;
        Ok(match end {
            End::Decided(next) => {
                let after = next.producer_after();
                Decision::Change(next, after)
            }
            End::Done => Decision::Keep(txn.producer),
        })
    })
    .await
}

/// Returns the state of one transactional id (DescribeTransactions).
pub(crate) fn describe(broker: &Arc<Broker>, id: &str) -> Result<Txn, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let shard = broker.transactions.shard(broker, id)?;
    let txn = shard.run(broker, |state: &mut Transactions, _| state.by_id.get(id).cloned())?;
    txn.ok_or(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND)
}

/// Returns every transactional id of this broker for which `wanted` holds, with its producer id and
/// phase.
pub(crate) fn list(
    broker: &Arc<Broker>,
    wanted: impl Fn(&str, &Txn, i64) -> bool,
) -> Result<Vec<(String, i64, Phase)>, ErrorCode> {
    let mut found = Vec::new();
    for shard in broker.transactions.shards() {
        let listed = shard.run(broker, |state: &mut Transactions, cx| {
            let now_ms = cx.now_ms();
            for (id, txn) in state.by_id.iter().filter(|(id, txn)| wanted(id, txn, now_ms)) {
                found.push((id.to_string(), txn.producer.id, txn.phase));
            }
        });
        match listed {
            // Another broker lists the ids of a partition that has moved.
            Ok(()) | Err(ErrorCode::NOT_COORDINATOR) => {}
            Err(code) => return Err(code),
        }
    }
    Ok(found)
}
