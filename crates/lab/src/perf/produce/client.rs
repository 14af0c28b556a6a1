//! The producer of a run, plain or transactional, and the door through which records go to it.

use curtail::{
    Delivery, Producer, ProducerConfig, ProducerMetrics, Record, Result, Transaction,
    TransactionalProducer,
};

/// A producer, connected to the leaders of its topic.
pub(super) enum Client {
    Plain(Producer),
    /// With a `transactional.id`.
    Transactional(TransactionalProducer),
}

impl Client {
    pub(super) async fn start(config: ProducerConfig, topic: &str) -> Result<Self> {
        if config.transactional_id.is_none() {
            let producer = Producer::new(config)?;
            producer.connect().await?;
            producer.warm_up(&[topic]).await?;
            return Ok(Self::Plain(producer));
        }
        let mut producer = TransactionalProducer::new(config)?;
        producer.init_transactions().await?;
        producer.warm_up(&[topic]).await?;
        Ok(Self::Transactional(producer))
    }

    /// Where the next records go: the producer itself, or a transaction that begins now.
    pub(super) async fn open(&mut self) -> Result<Door<'_>> {
        match self {
            Self::Plain(producer) => Ok(Door::Plain(producer)),
            Self::Transactional(producer) => {
                Ok(Door::Transaction(producer.begin_transaction().await?))
            }
        }
    }

    pub(super) fn metrics(&self) -> ProducerMetrics {
        match self {
            Self::Plain(producer) => producer.metrics(),
            Self::Transactional(producer) => producer.metrics(),
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        match self {
            Self::Plain(producer) => producer.close().await,
            Self::Transactional(producer) => producer.close().await,
        }
    }
}

/// What takes records.
pub(super) enum Door<'p> {
    Plain(&'p Producer),
    Transaction(Transaction<'p>),
}

impl Door<'_> {
    pub(super) fn is_transaction(&self) -> bool {
        matches!(self, Self::Transaction(_))
    }

    pub(super) fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        match self {
            Self::Plain(producer) => producer.try_send(record),
            Self::Transaction(transaction) => transaction.try_send(record),
        }
    }

    pub(super) async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        match self {
            Self::Plain(producer) => producer.send(record).await,
            Self::Transaction(transaction) => transaction.send(record).await,
        }
    }

    /// Waits until everything sent has its outcome; commits, where it is a transaction.
    pub(super) async fn shut(self) -> Result<()> {
        match self {
            Self::Plain(producer) => producer.flush().await,
            Self::Transaction(transaction) => transaction.commit().await,
        }
    }
}
