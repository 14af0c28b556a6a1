//! The transaction coordinator (KIP-98, KIP-890), based on the coordinators' runtime.
//!
//! - [`machine`] is the state machine of one transactional id, pure.
//! - [`record`] is the encoding of a transactional id in `__transaction_state`.
//! - [`requests`] are the operations. Each is decided and its record appended under the shard's
//!   lock. The response follows once every in-sync replica has all the state it was decided from.
//! - [`markers`] sends a transaction's outcome to the partitions' leaders, once it is final.
//!
//! A decided end survives its coordinator: the next coordinator finds it in the log and continues.

mod machine;
mod markers;
mod record;
mod requests;
#[cfg(test)]
mod tests;

pub(crate) use record::check_record;

pub(crate) use machine::{Phase, ProducerEpoch, TopicPartition, Txn, Version};
pub(crate) use requests::{Added, add, describe, end, init, list, verify};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use curtail_wire::ErrorCode;
use tokio::time::Instant;

use crate::{
    broker::Broker,
    config::ClusterConfig,
    coordinator::{
        Kind,
        runtime::{Cx, Entry, State, StateRecord},
    },
    replica::partition::Taken,
};
use record::Format;

/// The transactional ids of one partition of `__transaction_state`.
pub(crate) struct Transactions {
    by_id: BTreeMap<Arc<str>, Txn>,
    /// The ids with an open transaction.
    ongoing: BTreeSet<Arc<str>>,
    /// When to check for timed-out transactions.
    next_check: Instant,
    /// When to remove expired ids; `None` before the log has been read.
    next_removal: Option<Instant>,
}

/// Returns the transaction version for producers.
pub(crate) fn server_version(config: &ClusterConfig) -> Version {
    if config.transaction_version >= 2 { Version::Two } else { Version::One }
}

impl State for Transactions {
    const KIND: Kind = Kind::Transaction;

    fn empty(_: &Broker, _: i32) -> Self {
        Self {
            by_id: BTreeMap::new(),
            ongoing: BTreeSet::new(),
            next_check: Instant::now(),
            next_removal: None,
        }
    }

    fn replay(&mut self, entry: &Entry<'_>) {
        let Entry::Record { key, value, .. } = entry else { return };
        let key = Bytes::copy_from_slice(key);
        let Some(id) = record::decode_key(&key) else { return };
        match value {
            None => {
                self.by_id.remove(id);
                self.ongoing.remove(id);
            }
            Some(value) => {
                if let Some(txn) = record::decode_value(&Bytes::copy_from_slice(value)) {
                    self.set(&id.into(), txn);
                }
            }
        }
    }

    fn loaded(&mut self, cx: &mut Cx<'_, Self>) {
        self.next_removal = Some(cx.now + cx.broker.config.transactional_id_removal_interval);
        let decided = self.by_id.iter().filter(|(_, txn)| txn.phase.ending().is_some());
        for (id, _) in decided {
            markers::start(cx, id);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let check = (!self.ongoing.is_empty()).then_some(self.next_check);
        check.into_iter().chain(self.next_removal).min()
    }

    fn expire(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.ongoing.is_empty() && self.next_check <= cx.now {
            self.abort_late(cx);
        }
        if self.next_removal.is_some_and(|at| at <= cx.now) {
            self.next_removal = Some(cx.now + cx.broker.config.transactional_id_removal_interval);
            self.remove_expired(cx);
        }
    }
}

impl Transactions {
    /// Aborts transactions that have exceeded their producer's timeout.
    fn abort_late(&mut self, cx: &mut Cx<'_, Self>) {
        self.next_check = cx.now + cx.broker.config.transaction_abort_interval;
        let now_ms = cx.now_ms();
        let server = server_version(&cx.broker.config);
        let is_late = |id: &&Arc<str>| self.by_id.get(*id).is_some_and(|txn| txn.timed_out(now_ms));
        let late: Vec<Arc<str>> = self.ongoing.iter().filter(is_late).map(Arc::clone).collect();
        for id in late {
            let Some(Ok(fenced)) = self.by_id.get(&id).map(|txn| txn.fence(now_ms, server)) else {
                continue;
            };
            match self.change(cx, &id, fenced) {
                Ok(_) => {
                    tracing::info!(transactional_id = %id, "transaction took too long; aborted");
                }
                // The next check retries.
                Err(code) => {
                    tracing::debug!(transactional_id = %id, code = code.name(), "not aborted");
                }
            }
        }
    }

    /// Removes ids without an open transaction that have not changed for
    /// `transactional.id.expiration.ms`. A producer that continues with such an id gets
    /// INVALID_PRODUCER_ID_MAPPING.
    fn remove_expired(&mut self, cx: &mut Cx<'_, Self>) {
        let kept_ms = cx.broker.config.transactional_id_expiration.as_millis() as i64;
        let until = cx.now_ms().saturating_sub(kept_ms);
        let expired = self.by_id.iter().filter(|(_, txn)| txn.expired(until));
        let expired: Vec<Arc<str>> = expired.map(|(id, _)| Arc::clone(id)).collect();
        let tombstone = |id: &Arc<str>| StateRecord { key: record::encode_key(id), value: None };
        let tombstones: Vec<StateRecord> = expired.iter().map(tombstone).collect();
        let (mut ids, mut records) = (&expired[..], &tombstones[..]);
        while !records.is_empty() {
            let count = match cx.append_first(records) {
                Ok((count, _)) => count,
                // The next check retries.
                Err(code) => {
                    let code = code.name();
                    tracing::debug!(code, "expired transactional ids were not removed");
                    return;
                }
            };
            ids[..count].iter().for_each(|id| drop(self.by_id.remove(id)));
            (ids, records) = (&ids[count..], &records[count..]);
        }
    }

    fn set(&mut self, id: &Arc<str>, txn: Txn) {
        if txn.phase == Phase::Ongoing {
            self.ongoing.insert(Arc::clone(id));
        } else {
            self.ongoing.remove(id);
        }
        self.by_id.insert(Arc::clone(id), txn);
    }

    /// Stores a transactional id's new state, and starts writing the markers of an end.
    fn change(&mut self, cx: &mut Cx<'_, Self>, id: &str, txn: Txn) -> Result<Taken, ErrorCode> {
        let format = match cx.broker.config.transaction_version {
            0 => Format::Classic,
            _ => Format::Flexible,
        };
        let record = StateRecord {
            key: record::encode_key(id),
            value: Some(record::encode_value(&txn, format)),
        };
        let taken = cx.append(&[record])?;
        let ends = txn.phase.ending().is_some();
        let id: Arc<str> = id.into();
        self.set(&id, txn);
        if ends {
            markers::start(cx, &id);
        }
        Ok(taken)
    }
}
