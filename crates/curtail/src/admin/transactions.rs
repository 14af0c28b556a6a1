//! Producers and their transactions (KIP-664).

use std::{sync::Arc, time::Duration};

use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, InitProducerIdRequest, InitProducerIdResponse,
    ListTransactionsRequest, ListTransactionsResponse, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    describe_producers_request::TopicRequest,
    write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
};

use super::{Admin, Call, Each, broker_error, partition_result, text, topics_of};
use crate::{Result, TopicPartition, coordinator::Coordinators};

/// State of a producer at a partition's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerState {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence number of the last record; `None` if the producer has written markers only.
    pub last_sequence: Option<i32>,
    /// Time of the last write, in milliseconds since 1970-01-01 UTC, if known.
    pub last_timestamp: Option<i64>,
    /// Epoch of the coordinator that ended the producer's last transaction here.
    pub coordinator_epoch: Option<i32>,
    /// First offset of the producer's open transaction in this partition, if there is one.
    pub transaction_start: Option<i64>,
}

/// Producer id and epoch of a transactional id whose producers were fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FencedProducer {
    /// Producer id.
    pub producer_id: i64,
    /// The first epoch that is not fenced.
    pub producer_epoch: i16,
}

/// A transactional id in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionListing {
    /// `transactional.id`.
    pub transactional_id: String,
    /// Producer id.
    pub producer_id: i64,
    /// Kafka's name of the state, such as `Ongoing`.
    pub state: String,
}

/// Filter for transactions; the default matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    /// In one of these states, by Kafka's names; empty for any.
    pub states: Vec<String>,
    /// Of one of these producer ids; empty for any.
    pub producer_ids: Vec<i64>,
    /// Open for longer than this (KIP-994).
    pub open_for: Option<Duration>,
}

/// A transaction described.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionDescription {
    /// Broker id of the coordinator.
    pub coordinator: i32,
    /// Kafka's name of the state, such as `Ongoing`.
    pub state: String,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// `transaction.timeout.ms`.
    pub timeout: Duration,
    /// Start, in milliseconds since 1970-01-01 UTC; `None` without an open transaction.
    pub started: Option<i64>,
    /// Partitions of the transaction.
    pub partitions: Vec<TopicPartition>,
}

/// An open transaction in one partition, to be aborted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortTransaction {
    /// The partition.
    pub partition: TopicPartition,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Epoch of the coordinator; 0 if none has ended a transaction of the producer there.
    pub coordinator_epoch: i32,
}

impl AbortTransaction {
    /// The transaction of a producer from [`Admin::describe_producers`].
    #[must_use]
    pub fn of(partition: TopicPartition, producer: &ProducerState) -> Self {
        Self {
            partition,
            producer_id: producer.producer_id,
            producer_epoch: producer.producer_epoch,
            coordinator_epoch: producer.coordinator_epoch.unwrap_or(0),
        }
    }
}

impl Admin {
    /// Returns the producers that the leaders of partitions know, with a result for each partition.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_producers<'a>(
        &'a self,
        partitions: &'a [TopicPartition],
    ) -> Call<'a, Each<TopicPartition, Vec<ProducerState>>> {
        self.rounds("describing producers (default.api.timeout.ms)", partitions, move |open, _| {
            self.at_leaders(open, |admin, leader, part| async move {
                let topics = topics_of(&part, |index, _| index).into_iter();
                let topics = topics.map(|(name, indexes)| {
                    TopicRequest::default().with_name(name).with_partition_indexes(indexes)
                });
                let request = DescribeProducersRequest::default().with_topics(topics.collect());
                let answer: DescribeProducersResponse =
                    admin.ask(&leader, 0..=0, |_| request).await?;
                let mut results = Each::new();
                for topic in answer.topics {
                    for found in topic.partitions {
                        let at = TopicPartition::new(topic.name.as_str(), found.partition_index);
                        let message = found.error_message.as_deref();
                        let result = partition_result(&at, found.error_code, message);
                        let producers = found.active_producers.iter().map(state).collect();
                        results.push((at, result.map(|()| producers)));
                    }
                }
                Ok(results)
            })
        })
    }

    /// Returns the transactional ids that each broker coordinates, with a result for each broker.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn list_transactions<'a>(
        &'a self,
        filter: &'a TransactionFilter,
    ) -> Call<'a, Each<i32, Vec<TransactionListing>>> {
        Box::pin(async move {
            let what = "listing transactions (default.api.timeout.ms)";
            let ids = self.broker_ids(what).await?;
            let filter = Arc::new(filter.clone());
            self.rounds(what, ids, |open, _| {
                let filter = filter.clone();
                self.at_brokers(open, move |admin, broker| {
                    let filter = filter.clone();
                    async move {
                        let request = ListTransactionsRequest::default()
                            .with_state_filters(
                                filter.states.iter().map(|name| text(name)).collect(),
                            )
                            .with_producer_id_filters(
                                filter.producer_ids.iter().map(|id| (*id).into()).collect(),
                            );
                        let open_for = filter.open_for.map(|limit| limit.as_millis());
                        let open_for = open_for.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
                        // Only version 1 supports a minimum duration.
                        let first = if open_for.is_some() { 1 } else { 0 };
                        let answer: ListTransactionsResponse = admin
                            .ask(&broker, first..=1, |_| match open_for {
                                Some(ms) => request.with_duration_filter(ms),
                                None => request,
                            })
                            .await?;
                        let what = format!("transactions of broker {}", broker.id);
                        let error = |code| broker_error(&what, code, None);
                        ErrorCode(answer.error_code).ok().map_err(error)?;
                        if let Some(unknown) = answer.unknown_state_filters.first() {
                            let message = format!("unknown transaction state '{unknown}'");
                            let code = ErrorCode::INVALID_REQUEST;
                            return Err(broker_error(&what, code, Some(&message)));
                        }
                        let listed =
                            answer.transaction_states.into_iter().map(|found| TransactionListing {
                                transactional_id: found.transactional_id.to_string(),
                                producer_id: found.producer_id.0,
                                state: found.transaction_state.to_string(),
                            });
                        Ok(listed.collect())
                    }
                })
            })
            .await
        })
    }

    /// Returns the transactions of transactional ids, with a result for each.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_transactions<'a>(
        &'a self,
        transactional_ids: &'a [&'a str],
    ) -> Call<'a, Each<String, TransactionDescription>> {
        const KIND: Coordinators = Coordinators::OfTransactions;
        let ids: Vec<String> = transactional_ids.iter().map(|id| (*id).to_owned()).collect();
        self.rounds("describing transactions (default.api.timeout.ms)", ids, move |open, _| {
            self.at_coordinators(KIND, open, |admin, broker, part| async move {
                let ids = part.iter().map(|id| text(id).into()).collect();
                let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
                let answer: DescribeTransactionsResponse =
                    admin.ask(&broker, 0..=0, |_| request).await?;
                let results = answer.transaction_states.into_iter().map(|found| {
                    let id = found.transactional_id.to_string();
                    let error = |code| broker_error(&KIND.name(&id), code, None);
                    let result = ErrorCode(found.error_code).ok().map_err(error);
                    let mut partitions = Vec::new();
                    for topic in &found.topics {
                        let one = |index: &i32| TopicPartition::new(topic.topic.as_str(), *index);
                        partitions.extend(topic.partitions.iter().map(one));
                    }
                    let timeout = u64::try_from(found.transaction_timeout_ms).unwrap_or(0);
                    let described = TransactionDescription {
                        coordinator: broker.id,
                        state: found.transaction_state.to_string(),
                        producer_id: found.producer_id.0,
                        producer_epoch: found.producer_epoch,
                        timeout: Duration::from_millis(timeout),
                        started: Some(found.transaction_start_time_ms).filter(|at| *at >= 0),
                        partitions,
                    };
                    (id, result.map(|()| described))
                });
                Ok(results.collect())
            })
        })
    }

    /// Fences the producers of transactional ids, with a result for each (KIP-588): their open transactions abort, and their
    /// later requests fail. Creates ids that do not exist.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn fence_producers<'a>(
        &'a self,
        transactional_ids: &'a [&'a str],
    ) -> Call<'a, Each<String, FencedProducer>> {
        const KIND: Coordinators = Coordinators::OfTransactions;
        let ids: Vec<String> = transactional_ids.iter().map(|id| (*id).to_owned()).collect();
        self.rounds("fencing producers (default.api.timeout.ms)", ids, move |open, timeout_ms| {
            self.at_coordinators(KIND, open, move |admin, broker, part| async move {
                let mut results = Each::new();
                // A request has one id.
                for id in part {
                    let request = InitProducerIdRequest::default()
                        .with_transactional_id(Some(text(&id).into()))
                        // The timeout of the next transaction, if a producer ever begins one with this epoch.
                        .with_transaction_timeout_ms(timeout_ms)
                        .with_producer_id((-1).into())
                        .with_producer_epoch(-1);
                    let answer: Result<InitProducerIdResponse> =
                        admin.ask(&broker, 0..=5, |_| request).await;
                    // A failure leaves the results of the ids before it.
                    let fenced = answer.and_then(|answer| {
                        let error = |code| broker_error(&KIND.name(&id), code, None);
                        ErrorCode(answer.error_code).ok().map_err(error)?;
                        let producer_id = answer.producer_id.0;
                        Ok(FencedProducer { producer_id, producer_epoch: answer.producer_epoch })
                    });
                    results.push((id, fenced));
                }
                Ok(results)
            })
        })
    }

    /// Aborts a transaction in one partition without its coordinator, for a transaction that nothing else will end.
    /// Readers with `read_committed` can then pass it.
    ///
    /// # Errors
    /// If the partition's leader does not respond within `default.api.timeout.ms`, or refuses.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn abort_transaction<'a>(&'a self, transaction: &'a AbortTransaction) -> Call<'a, ()> {
        Box::pin(async move {
            let what = "aborting a transaction (default.api.timeout.ms)";
            let asked = [transaction.partition.clone()];
            let done = self.rounds(what, asked, |open, _| {
                let transaction = transaction.clone();
                self.at_leaders(open, move |admin, leader, _| {
                    let AbortTransaction {
                        partition,
                        producer_id,
                        producer_epoch,
                        coordinator_epoch,
                    } = transaction.clone();
                    async move {
                        let topic = WritableTxnMarkerTopic::default()
                            .with_name(text(&partition.topic).into())
                            .with_partition_indexes(vec![partition.partition]);
                        let marker = WritableTxnMarker::default()
                            .with_producer_id(producer_id.into())
                            .with_producer_epoch(producer_epoch)
                            .with_coordinator_epoch(coordinator_epoch)
                            .with_transaction_result(false)
                            .with_topics(vec![topic]);
                        let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
                        let answer: WriteTxnMarkersResponse =
                            admin.ask(&leader, 1..=1, |_| request).await?;
                        let mut results = Each::new();
                        for topic in answer.markers.into_iter().flat_map(|marker| marker.topics) {
                            for done in topic.partitions {
                                let at =
                                    TopicPartition::new(topic.name.as_str(), done.partition_index);
                                let result = partition_result(&at, done.error_code, None);
                                results.push((at, result));
                            }
                        }
                        Ok(results)
                    }
                })
            });
            done.await?.into_iter().try_for_each(|(_, result)| result)
        })
    }
}

fn state(found: &messages::describe_producers_response::ProducerState) -> ProducerState {
    ProducerState {
        producer_id: found.producer_id.0,
        producer_epoch: i16::try_from(found.producer_epoch).unwrap_or(i16::MAX),
        last_sequence: Some(found.last_sequence).filter(|sequence| *sequence >= 0),
        last_timestamp: Some(found.last_timestamp).filter(|at| *at >= 0),
        coordinator_epoch: Some(found.coordinator_epoch).filter(|epoch| *epoch >= 0),
        transaction_start: Some(found.current_txn_start_offset).filter(|offset| *offset >= 0),
    }
}
