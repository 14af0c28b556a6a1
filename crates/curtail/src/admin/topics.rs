//! Creates, extends and deletes topics.

use std::collections::BTreeSet;

use curtail_wire::{ErrorCode, Uuid, cold::messages};
use messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
    create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic},
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    delete_topics_request::DeleteTopicState,
};

use super::{Admin, Call, Each, Mode, NewPartitions, NewTopic, id_error, text, topic_error};
use crate::Result;

impl Admin {
    /// Creates topics, with a result for each. A broker may not know a topic yet when this returns.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> Call<'a, Each<String, ()>> {
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        self.rounds("creating topics (default.api.timeout.ms)", names, move |open, timeout_ms| {
            self.create_once(topics, open, timeout_ms)
        })
    }

    async fn create_once(
        &self,
        topics: &[NewTopic],
        open: BTreeSet<String>,
        timeout_ms: i32,
    ) -> Result<Each<String, ()>> {
        let topics = topics.iter().filter(|topic| open.contains(&topic.name)).map(creatable);
        let request = CreateTopicsRequest::default()
            .with_topics(topics.collect())
            .with_timeout_ms(timeout_ms);
        // First version with defaults for partitions and replicas.
        let answer: CreateTopicsResponse = self.ask_controller(4..=7, |_| request).await?;
        let results = answer
            .topics
            .into_iter()
            .map(|topic| result(&topic.name.0, topic.error_code, topic.error_message.as_deref()));
        Ok(results.collect())
    }

    /// Deletes topics with all their records, with a result for each.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_topics<'a>(&'a self, names: &'a [&'a str]) -> Call<'a, Each<String, ()>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.rounds("deleting topics (default.api.timeout.ms)", names, move |open, timeout_ms| {
            self.delete_once(open, timeout_ms)
        })
    }

    async fn delete_once(
        &self,
        names: BTreeSet<String>,
        timeout_ms: i32,
    ) -> Result<Each<String, ()>> {
        let names = names.iter().map(|name| text(name).into());
        let answer: DeleteTopicsResponse = self
            .ask_controller(1..=6, |version| {
                let request = DeleteTopicsRequest::default().with_timeout_ms(timeout_ms);
                if version < 6 {
                    return request.with_topic_names(names.collect());
                }
                let topics = names.map(|name| DeleteTopicState::default().with_name(Some(name)));
                request.with_topics(topics.collect())
            })
            .await?;
        let results = answer.responses.into_iter().filter_map(|topic| {
            let name = topic.name?;
            Some(result(&name.0, topic.error_code, topic.error_message.as_deref()))
        });
        Ok(results.collect())
    }

    /// Deletes topics by their ids, with a result for each. A topic created later with the same name is not deleted.
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`, or has no version 6 of DeleteTopics.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn delete_topics_by_id<'a>(&'a self, ids: &'a [Uuid]) -> Call<'a, Each<Uuid, ()>> {
        self.rounds("deleting topics (default.api.timeout.ms)", ids, move |open, timeout_ms| {
            self.delete_ids_once(open, timeout_ms)
        })
    }

    async fn delete_ids_once(
        &self,
        mut ids: BTreeSet<Uuid>,
        timeout_ms: i32,
    ) -> Result<Each<Uuid, ()>> {
        let mut results = Each::new();
        if ids.remove(&Uuid::ZERO) {
            // No id, and brokers refuse the whole request for it.
            results
                .push((Uuid::ZERO, Err(id_error(Uuid::ZERO, ErrorCode::UNKNOWN_TOPIC_ID, None))));
        }
        let topic = |id: &Uuid| {
            DeleteTopicState::default().with_topic_id(uuid::Uuid::from_bytes(id.0)).with_name(None)
        };
        let request = DeleteTopicsRequest::default()
            .with_topics(ids.iter().map(topic).collect())
            .with_timeout_ms(timeout_ms);
        let answer: DeleteTopicsResponse = self.ask_controller(6..=6, |_| request).await?;
        results.extend(answer.responses.into_iter().map(|topic| {
            let id = Uuid(topic.topic_id.into_bytes());
            let message = topic.error_message.as_deref();
            (id, ErrorCode(topic.error_code).ok().map_err(|code| id_error(id, code, message)))
        }));
        Ok(results)
    }

    /// Adds partitions to topics, with a result for each topic. Keys then map to other partitions; existing records
    /// stay where they are.
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin) -> curtail::Result<()> {
    /// use curtail::admin::{Mode, NewPartitions};
    ///
    /// for (topic, result) in admin.create_partitions(&[NewPartitions::new("payments", 24)], Mode::Apply).await? {
    ///     println!("{topic}: {result:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn create_partitions<'a>(
        &'a self,
        partitions: &'a [NewPartitions],
        mode: Mode,
    ) -> Call<'a, Each<String, ()>> {
        let names: Vec<String> = partitions.iter().map(|new| new.topic.clone()).collect();
        let what = "creating partitions (default.api.timeout.ms)";
        self.rounds(what, names, move |open, timeout_ms| {
            self.create_partitions_once(partitions, mode, open, timeout_ms)
        })
    }

    async fn create_partitions_once(
        &self,
        partitions: &[NewPartitions],
        mode: Mode,
        open: BTreeSet<String>,
        timeout_ms: i32,
    ) -> Result<Each<String, ()>> {
        let topics = partitions.iter().filter(|new| open.contains(&new.topic)).map(|new| {
            let assignments = new.replicas.as_ref().map(|replicas| {
                let one = |ids: &Vec<i32>| {
                    CreatePartitionsAssignment::default()
                        .with_broker_ids(ids.iter().map(|id| (*id).into()).collect())
                };
                replicas.iter().map(one).collect()
            });
            CreatePartitionsTopic::default()
                .with_name(text(&new.topic).into())
                .with_count(new.total)
                .with_assignments(assignments)
        });
        let request = CreatePartitionsRequest::default()
            .with_topics(topics.collect())
            .with_timeout_ms(timeout_ms)
            .with_validate_only(mode.validates());
        let answer: CreatePartitionsResponse = self.ask_controller(0..=3, |_| request).await?;
        let results = answer
            .results
            .into_iter()
            .map(|topic| result(&topic.name.0, topic.error_code, topic.error_message.as_deref()));
        Ok(results.collect())
    }
}

fn result(name: &str, code: i16, message: Option<&str>) -> (String, Result<()>) {
    let result = ErrorCode(code).ok().map_err(|code| topic_error(name, code, message));
    (name.to_owned(), result)
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let configs = topic.configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    CreatableTopic::default()
        .with_name(text(&topic.name).into())
        .with_num_partitions(topic.partitions)
        .with_replication_factor(topic.replication_factor)
        .with_configs(configs.collect())
}
