//! Transactions: a producer with a transactional id, its transactions, and the offsets they commit.

pub(crate) use crate::producer::transaction::Writer;
pub use crate::{
    exactly_once::{Batch, ExactlyOnce},
    producer::transaction::{
        ConsumerGroupMetadata, OffsetAndMetadata, Transaction, TransactionalProducer,
    },
};
