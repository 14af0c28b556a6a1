//! What the coordinator is asked for. All of these are answered with NOT_COORDINATOR by other brokers, with
//! COORDINATOR_LOAD_IN_PROGRESS before the log has been read, and with COORDINATOR_NOT_AVAILABLE while the log has too
//! few replicas.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_wire::{ErrorCode, records::EndTxnMarker};
use parking_lot::Mutex;

use super::{
    Transactions,
    machine::{End, Init, Phase, ProducerEpoch, TopicPartition, Txn, Version},
    server_version,
};
use crate::{broker::Broker, config::Plant};

/// How long the followers have for a record of the log.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// What an operation comes to.
enum Decision<R> {
    /// The id becomes this; then the answer.
    Change(Txn, R),
    /// Nothing changes.
    Keep(R),
}

/// Decides an operation on a transactional id, writes down what it changes, and waits until that, and all it was
/// decided from, is on the in-sync replicas.
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
            // Refused because of what a former coordinator knows, a transaction would fail that is fine.
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

/// Producer ids for one decision, which must not be taken if an id was needed and there was none.
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

/// InitProducerId of a transactional producer: its id and a new epoch, which fences the one before.
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

/// Partitions to add, and whose transaction gets them.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub(crate) producer: ProducerEpoch,
    pub(crate) partitions: BTreeSet<TopicPartition>,
}

/// AddPartitionsToTxn and AddOffsetsToTxn.
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

/// Whether a producer may write to partitions, one result each.
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

/// EndTxn: decides the end, and answers the producer's id and epoch from then on. The partitions are told afterwards.
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

/// One transactional id as it is (DescribeTransactions).
pub(crate) fn describe(broker: &Arc<Broker>, id: &str) -> Result<Txn, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let shard = broker.transactions.shard(broker, id)?;
    let txn = shard.run(broker, |state: &mut Transactions, _| state.by_id.get(id).cloned())?;
    txn.ok_or(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND)
}

/// Every transactional id that this broker coordinates and `wanted` holds for, with its producer id and phase.
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
            // Another broker answers for what has moved away.
            Ok(()) | Err(ErrorCode::NOT_COORDINATOR) => {}
            Err(code) => return Err(code),
        }
    }
    Ok(found)
}
