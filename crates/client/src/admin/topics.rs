//! Calls that change something: topics created and deleted, records deleted.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::{
    ErrorCode,
    cold::{Decodable, Message, Request, StrBytes, messages},
    metadata::MetadataResponse,
};
use messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    delete_topics_request::DeleteTopicState,
};

use super::{
    Admin, BrokerDescription, Each, NewTopic, Target, broker_error,
    describe::{describe_cluster, leader_of},
    passes, topic_error,
};
use crate::{Error, Result, TopicPartition};

impl Admin {
    /// Creates topics, each with a result of its own. A broker may not know a topic yet when this returns.
    ///
    /// # Errors
    /// If the controller does not answer within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<Each<String, ()>> {
        let mut outcome: BTreeMap<String, Result<()>> = BTreeMap::new();
        let mut attempts = self.attempts("creating topics (default.api.timeout.ms)");
        loop {
            let open: Vec<&NewTopic> =
                topics.iter().filter(|topic| is_open(outcome.get(&topic.name))).collect();
            let round = attempts.run(self.create_once(&open, attempts.timeout_ms())).await;
            let incomplete = match round {
                Ok(answer) => {
                    for topic in answer.topics {
                        let name = topic.name.to_string();
                        let message = topic.error_message.as_deref();
                        let result = result_of(&name, topic.error_code, message);
                        outcome.insert(name, result);
                    }
                    first_open(topics.iter().map(|topic| &topic.name), &outcome)
                }
                Err(error) => {
                    attempts.again(error).await?;
                    continue;
                }
            };
            let Some(error) = incomplete else { break };
            if attempts.again(error).await.is_err() {
                break;
            }
        }
        Ok(each(topics.iter().map(|topic| topic.name.clone()), outcome))
    }

    async fn create_once(
        &self,
        topics: &[&NewTopic],
        timeout_ms: i32,
    ) -> Result<CreateTopicsResponse> {
        let topics = topics.iter().map(|topic| creatable(topic)).collect();
        let request =
            CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(timeout_ms);
        // Version 4 is the first with defaults for partitions and replicas.
        self.ask_controller(4..=7, |_| request).await
    }

    /// Deletes topics with all their records, each with a result of its own.
    ///
    /// # Errors
    /// If the controller does not answer within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<Each<String, ()>> {
        let mut outcome: BTreeMap<String, Result<()>> = BTreeMap::new();
        let mut attempts = self.attempts("deleting topics (default.api.timeout.ms)");
        loop {
            let open: Vec<&str> =
                names.iter().copied().filter(|name| is_open(outcome.get(*name))).collect();
            let round = attempts.run(self.delete_once(&open, attempts.timeout_ms())).await;
            let incomplete = match round {
                Ok(answer) => {
                    for topic in answer.responses {
                        let Some(name) = topic.name else { continue };
                        let name = name.to_string();
                        let message = topic.error_message.as_deref();
                        let result = result_of(&name, topic.error_code, message);
                        outcome.insert(name, result);
                    }
                    first_open(names.iter().copied(), &outcome)
                }
                Err(error) => {
                    attempts.again(error).await?;
                    continue;
                }
            };
            let Some(error) = incomplete else { break };
            if attempts.again(error).await.is_err() {
                break;
            }
        }
        Ok(each(names.iter().map(|name| (*name).to_owned()), outcome))
    }

    async fn delete_once(&self, names: &[&str], timeout_ms: i32) -> Result<DeleteTopicsResponse> {
        let names = names.iter().map(|name| StrBytes::from_string((*name).to_owned()).into());
        self.ask_controller(1..=6, |version| {
            let request = DeleteTopicsRequest::default().with_timeout_ms(timeout_ms);
            if version < 6 {
                return request.with_topic_names(names.collect());
            }
            let topics = names.map(|name| DeleteTopicState::default().with_name(Some(name)));
            request.with_topics(topics.collect())
        })
        .await
    }

    /// One request to the controller, found anew each time: it may have moved.
    pub(super) async fn ask_controller<Q, A>(
        &self,
        versions: std::ops::RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let (controller, brokers) = self.controller().await?;
        let target = Target::Broker(controller);
        let mut connection = self.connection(target, &brokers).await?;
        let answer = connection.request(versions, request).await?;
        self.keep(target, connection);
        Ok(answer)
    }

    /// Deletes the records before an offset of each partition, all of them for -1; gives the first offset that is
    /// left.
    ///
    /// # Errors
    /// If no broker answers within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A call that is dropped may have been carried out.
    pub async fn delete_records(
        &self,
        before: &[(TopicPartition, i64)],
    ) -> Result<Each<TopicPartition, i64>> {
        let mut outcome: BTreeMap<TopicPartition, Result<i64>> = BTreeMap::new();
        let mut attempts = self.attempts("deleting records (default.api.timeout.ms)");
        loop {
            let open: Vec<&(TopicPartition, i64)> =
                before.iter().filter(|(at, _)| is_open(outcome.get(at))).collect();
            let round = attempts.run(self.delete_records_once(&open, attempts.timeout_ms())).await;
            let incomplete = match round {
                Ok(answered) => {
                    outcome.extend(answered);
                    first_open(before.iter().map(|(at, _)| at), &outcome)
                }
                Err(error) => {
                    attempts.again(error).await?;
                    continue;
                }
            };
            let Some(error) = incomplete else { break };
            if attempts.again(error).await.is_err() {
                break;
            }
        }
        Ok(each(before.iter().map(|(at, _)| at.clone()), outcome))
    }

    async fn delete_records_once(
        &self,
        before: &[&(TopicPartition, i64)],
        timeout_ms: i32,
    ) -> Result<Vec<(TopicPartition, Result<i64>)>> {
        let mut names: Vec<&str> = before.iter().map(|(at, _)| &*at.topic).collect();
        names.sort_unstable();
        names.dedup();
        let metadata = self.metadata(Some(&names)).await?;
        let mut outcome = Vec::new();
        let mut by_leader: BTreeMap<i32, Vec<&(TopicPartition, i64)>> = BTreeMap::new();
        for one in before {
            match leader_in(&metadata, &one.0) {
                Ok(leader) => by_leader.entry(leader).or_default().push(one),
                Err(error) => outcome.push((one.0.clone(), Err(error))),
            }
        }
        let brokers = describe_cluster(metadata).brokers;
        for (leader, part) in by_leader {
            match self.delete_records_on(leader, &brokers, &part, timeout_ms).await {
                Ok(answered) => outcome.extend(answered),
                Err(error) => {
                    outcome.extend(part.iter().map(|(at, _)| (at.clone(), Err(error.clone()))));
                }
            }
        }
        Ok(outcome)
    }

    async fn delete_records_on(
        &self,
        leader: i32,
        brokers: &[BrokerDescription],
        part: &[&(TopicPartition, i64)],
        timeout_ms: i32,
    ) -> Result<Vec<(TopicPartition, Result<i64>)>> {
        let mut topics: BTreeMap<&str, Vec<DeleteRecordsPartition>> = BTreeMap::new();
        for (at, offset) in part {
            let partition = DeleteRecordsPartition::default()
                .with_partition_index(at.partition)
                .with_offset(*offset);
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            let name = StrBytes::from_string(name.to_owned());
            DeleteRecordsTopic::default().with_name(name.into()).with_partitions(partitions)
        });
        let request = DeleteRecordsRequest::default()
            .with_topics(topics.collect())
            .with_timeout_ms(timeout_ms);
        let target = Target::Broker(leader);
        let mut connection = self.connection(target, brokers).await?;
        let answer: DeleteRecordsResponse = connection.request(0..=2, |_| request).await?;
        self.keep(target, connection);
        let mut outcome = Vec::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let result = match ErrorCode(partition.error_code).ok() {
                    Ok(()) => Ok(partition.low_watermark),
                    Err(code) => Err(broker_error(&at.to_string(), code, None)),
                };
                outcome.push((at, result));
            }
        }
        Ok(outcome)
    }
}

fn leader_in(metadata: &MetadataResponse, at: &TopicPartition) -> Result<i32> {
    let topic = metadata.topics.iter().find(|t| t.name.as_deref() == Some(&*at.topic));
    match topic {
        Some(topic) => leader_of(topic, at.partition),
        None => Err(Error::UnknownTopic(at.topic.clone())),
    }
}

/// No answer yet, or one that passes.
fn is_open<T>(outcome: Option<&Result<T>>) -> bool {
    outcome.is_none_or(|result| result.as_ref().is_err_and(passes))
}

/// Why there has to be another try: the first answer that is missing or passes.
fn first_open<'a, K, B, T>(
    asked: impl Iterator<Item = &'a B>,
    outcome: &BTreeMap<K, Result<T>>,
) -> Option<Error>
where
    K: std::borrow::Borrow<B> + Ord,
    B: Ord + ?Sized + 'a,
{
    asked.map(|key| outcome.get(key)).find(|result| is_open(*result)).map(|result| match result {
        Some(Err(error)) => error.clone(),
        _ => no_answer(),
    })
}

/// The outcomes in the order asked; a name that was asked for twice has one outcome.
pub(super) fn each<K: Ord + Clone, T>(
    asked: impl Iterator<Item = K>,
    mut outcome: BTreeMap<K, Result<T>>,
) -> Each<K, T> {
    let mut seen = BTreeSet::new();
    let mut results = Each::new();
    for key in asked {
        match outcome.remove_entry(&key) {
            Some((key, result)) => {
                results.push((key.clone(), result));
                seen.insert(key);
            }
            None if seen.contains(&key) => {}
            None => results.push((key, Err(no_answer()))),
        }
    }
    results
}

fn no_answer() -> Error {
    broker_error("answer", ErrorCode::UNKNOWN_SERVER_ERROR, Some("the broker left this out"))
}

fn result_of(name: &str, code: i16, message: Option<&str>) -> Result<()> {
    ErrorCode(code).ok().map_err(|code| topic_error(name, code, message))
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let configs = topic.configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_value(Some(StrBytes::from_string(value.clone())))
    });
    CreatableTopic::default()
        .with_name(StrBytes::from_string(topic.name.clone()).into())
        .with_num_partitions(topic.partitions)
        .with_replication_factor(topic.replication_factor)
        .with_configs(configs.collect())
}
