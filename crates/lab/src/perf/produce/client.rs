//! The producer of a run, plain or transactional, and the handle that accepts its records.

use curtail::{
    Delivery, Producer, ProducerConfig, Record, Result, TransactionalProducer,
    metrics::ProducerMetrics, transaction::Transaction,
};

/// A producer, connected to the leaders of its topics.
pub(crate) enum Client {
    Plain(Producer),
    /// With a `transactional.id`.
    Transactional(TransactionalProducer),
}

impl Client {
    pub(crate) async fn start(config: ProducerConfig, topics: &[&str]) -> Result<Self> {
        if config.get_transactional_id().is_none() {
            let producer = Producer::new(config)?;
            producer.connect().await?;
            producer.warm_up(topics).await?;
            return Ok(Self::Plain(producer));
        }
        let mut producer = TransactionalProducer::new(config)?;
        producer.init_transactions().await?;
        producer.warm_up(topics).await?;
        Ok(Self::Transactional(producer))
    }

    /// Handle for the next records: the producer itself, or a transaction that begins now.
    pub(crate) async fn open(&mut self) -> Result<Door<'_>> {
        match self {
            Self::Plain(producer) => Ok(Door::Plain(producer)),
            Self::Transactional(producer) => {
                Ok(Door::Transaction(producer.begin_transaction().await?))
            }
        }
    }

    pub(crate) fn metrics(&self) -> ProducerMetrics {
        match self {
            Self::Plain(producer) => producer.metrics(),
            Self::Transactional(producer) => producer.metrics(),
        }
    }

    pub(crate) async fn close(self) -> Result<()> {
        match self {
            Self::Plain(producer) => producer.close().await,
            Self::Transactional(producer) => producer.close().await,
        }
    }
}

/// Accepts records.
pub(crate) enum Door<'p> {
    Plain(&'p Producer),
    Transaction(Transaction<'p>),
}

impl Door<'_> {
    pub(crate) fn is_transaction(&self) -> bool {
        matches!(self, Self::Transaction(_))
    }

    pub(crate) fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        match self {
            Self::Plain(producer) => producer.try_send(record),
            Self::Transaction(transaction) => transaction.try_send(record),
        }
    }

    pub(crate) async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        match self {
            Self::Plain(producer) => producer.send(record).await,
            Self::Transaction(transaction) => transaction.send(record).await,
        }
    }

    /// Waits until every record sent has its outcome.
    pub(crate) async fn flush(&self) -> Result<()> {
        match self {
            Self::Plain(producer) => producer.flush().await,
            Self::Transaction(transaction) => transaction.flush().await,
        }
    }

    /// Waits until every record sent has its outcome; commits a transaction.
    pub(crate) async fn shut(self) -> Result<()> {
        match self {
            Self::Plain(producer) => producer.flush().await,
            Self::Transaction(transaction) => transaction.commit().await,
        }
    }
}
