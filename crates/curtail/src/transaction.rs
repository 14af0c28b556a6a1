//! Transactions: a producer with a transactional id, its transactions, and the offsets they commit.

pub use crate::producer::transaction::{
    ConsumerGroupMetadata, OffsetAndMetadata, Transaction, TransactionalProducer,
};
