//! The client under test: Curtail, or a peer behind its driver.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use curtail::{Record, TopicPartition};
use tokio::sync::oneshot;

use super::{Driver, TOPIC, partition};

/// Where a record was written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) partition: i32,
    /// `None` if the client does not know it.
    pub(crate) offset: Option<i64>,
}

/// A failure as the client reported it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// Always true for a peer, because peers do not report it.
    pub(crate) may_have_been_written: bool,
}

pub(crate) type Outcome = Result<Written, Failure>;

impl From<curtail::Error> for Failure {
    fn from(error: curtail::Error) -> Self {
        let may_have_been_written = error.may_have_been_written();
        Self { text: error.report().to_string(), may_have_been_written }
    }
}

impl From<curtail::RecordMetadata> for Written {
    fn from(metadata: curtail::RecordMetadata) -> Self {
        Self { partition: metadata.partition, offset: metadata.offset }
    }
}

/// The outcome of a record, once it is known.
pub(crate) enum Delivery {
    Own(curtail::Delivery),
    Pending(oneshot::Receiver<Outcome>),
    Known(Outcome),
}

impl Future for Delivery {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut *self {
            Self::Known(outcome) => return Poll::Ready(outcome.clone()),
            Self::Own(delivery) => match delivery.outcome() {
                Some(outcome) => outcome.map(Written::from).map_err(Failure::from),
                None => {
                    let outcome = ready!(Pin::new(delivery).poll(context));
                    outcome.map(Written::from).map_err(Failure::from)
                }
            },
            Self::Pending(known) => {
                ready!(Pin::new(known).poll(context)).expect("the driver ended")
            }
        };
        *self = Self::Known(outcome.clone());
        Poll::Ready(outcome)
    }
}

#[derive(Clone)]
pub(crate) enum Producer {
    Own(curtail::Producer),
    Peer(Arc<Driver>),
}

impl Producer {
    pub(crate) async fn send(&self, index: Option<i32>, value: &str) -> Result<Delivery, Failure> {
        match self {
            Self::Own(producer) => {
                let record = Record::to(TOPIC).value(value);
                let record = match index {
                    Some(index) => record.partition(index),
                    None => record,
                };
                Ok(Delivery::Own(producer.send(record).await?))
            }
            Self::Peer(driver) => Ok(Delivery::Pending(driver.send(index.unwrap_or(-1), value))),
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Own(producer) => Ok(producer.flush().await?),
            Self::Peer(driver) => driver.call("flush").await.map(drop),
        }
    }

    pub(crate) async fn close(self) -> Result<(), Failure> {
        match self {
            Self::Own(producer) => Ok(producer.close().await?),
            Self::Peer(driver) => driver.call("close").await.map(drop),
        }
    }
}

/// A transactional producer.
pub(crate) enum Transactions {
    Own(curtail::TransactionalProducer),
    Peer(Arc<Driver>),
}

impl Transactions {
    pub(crate) async fn init(&mut self) -> Result<(), Failure> {
        match self {
            Self::Own(producer) => Ok(producer.init_transactions().await?),
            Self::Peer(driver) => driver.call("init").await.map(drop),
        }
    }

    /// Sends the values in one transaction, awaits their outcomes and commits.
    pub(crate) async fn transact(&mut self, values: &[&str]) -> Result<(), Failure> {
        match self {
            Self::Own(producer) => {
                let transaction = producer.begin_transaction().await?;
                for value in values {
                    let _ = transaction.send(Record::to(TOPIC).value(value)).await?.await;
                }
                Ok(transaction.commit().await?)
            }
            Self::Peer(driver) => {
                driver.call("begin").await?;
                for value in values {
                    let _ = driver.send(-1, value).await.expect("the driver ended");
                }
                driver.call("commit").await.map(drop)
            }
        }
    }

    pub(crate) async fn abort(&mut self) -> Result<(), Failure> {
        match self {
            Self::Own(producer) => Ok(producer.abort_transaction().await?),
            Self::Peer(driver) => driver.call("abort").await.map(drop),
        }
    }
}

/// A record that a poll returned.
pub(crate) struct Polled {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) value: String,
}

pub(crate) enum Consumer {
    Own(Box<curtail::Consumer>),
    /// With the partitions assigned after the last poll.
    Peer(Arc<Driver>, Vec<TopicPartition>),
}

impl Consumer {
    pub(crate) async fn subscribe(&mut self) {
        match self {
            Self::Own(consumer) => consumer.subscribe([TOPIC]).unwrap(),
            Self::Peer(driver, _) => drop(driver.call("subscribe").await.unwrap()),
        }
    }

    pub(crate) async fn unsubscribe(&mut self) {
        match self {
            Self::Own(consumer) => consumer.unsubscribe(),
            Self::Peer(driver, _) => drop(driver.call("unsubscribe").await.unwrap()),
        }
    }

    /// Assigns the partitions below `count`, from the beginning.
    pub(crate) async fn assign(&mut self, count: i32) {
        match self {
            Self::Own(consumer) => consumer.assign((0..count).map(partition)),
            Self::Peer(driver, _) => drop(driver.call(&format!("assign {count}")).await.unwrap()),
        }
    }

    pub(crate) fn assignment(&self) -> Vec<TopicPartition> {
        match self {
            Self::Own(consumer) => consumer.assignment().into_iter().collect(),
            Self::Peer(_, owned) => owned.clone(),
        }
    }

    pub(crate) async fn poll(&mut self, wait: Duration) -> Result<Vec<Polled>, Failure> {
        match self {
            Self::Own(consumer) => {
                let polled = consumer.poll(wait).await?.into_iter();
                let value = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let records = polled.map(|record| Polled {
                    partition: record.partition(),
                    offset: record.offset(),
                    value: value(record.value().unwrap()),
                });
                Ok(records.collect())
            }
            Self::Peer(driver, owned) => {
                let mut records = Vec::new();
                for line in driver.call(&format!("poll {}", wait.as_millis())).await? {
                    match line.split(' ').collect::<Vec<_>>()[..] {
                        ["record", index, offset, value] => records.push(Polled {
                            partition: index.parse().unwrap(),
                            offset: offset.parse().unwrap(),
                            value: value.to_owned(),
                        }),
                        ["assignment", ref indexes @ ..] => {
                            let parsed = indexes.iter().map(|index| index.parse().unwrap());
                            *owned = parsed.map(partition).collect();
                        }
                        _ => panic!("unexpected line {line:?}"),
                    }
                }
                Ok(records)
            }
        }
    }

    pub(crate) async fn seek(&mut self, index: i32, offset: i64) {
        match self {
            Self::Own(consumer) => consumer.seek(&partition(index), offset).unwrap(),
            Self::Peer(driver, _) => {
                drop(driver.call(&format!("seek {index} {offset}")).await.unwrap());
            }
        }
    }

    pub(crate) async fn pause(&mut self, index: i32) {
        match self {
            Self::Own(consumer) => consumer.pause([&partition(index)]),
            Self::Peer(driver, _) => drop(driver.call(&format!("pause {index}")).await.unwrap()),
        }
    }

    pub(crate) async fn resume(&mut self, index: i32) {
        match self {
            Self::Own(consumer) => consumer.resume([&partition(index)]),
            Self::Peer(driver, _) => drop(driver.call(&format!("resume {index}")).await.unwrap()),
        }
    }

    /// Commits the records returned so far.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        match self {
            Self::Own(consumer) => Ok(consumer.commit().await?),
            Self::Peer(driver, _) => driver.call("commit").await.map(drop),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Own(consumer) => consumer.close().await,
            Self::Peer(driver, _) => drop(driver.call("close").await),
        }
    }

    /// Curtail's consumer, for a case that begins with [`super::curtail_only`].
    pub(crate) fn own(&mut self) -> &mut curtail::Consumer {
        match self {
            Self::Own(consumer) => consumer,
            Self::Peer(..) => panic!("a peer has no consumer of Curtail"),
        }
    }
}
