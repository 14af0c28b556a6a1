//! The topics of a cluster under test.

use std::sync::Arc;

use curtail_wire::Uuid;

use super::Topics;
use crate::{
    config::ClusterConfig,
    image::{Image, PartitionImage, TopicImage},
};

/// The metadata, which tests change.
pub(crate) struct TestTopics {
    pub(crate) config: ClusterConfig,
    pub(crate) image: Image,
}

/// Returns the id of the topic with this name in tests.
pub(crate) fn topic_id(name: &str) -> Uuid {
    let mut id = [7; 16];
    name.bytes().zip(&mut id).for_each(|(byte, place)| *place = byte);
    Uuid(id)
}

impl TestTopics {
    pub(crate) fn new() -> Self {
        Self { config: ClusterConfig::default(), image: Image::empty("test") }
    }

    pub(crate) fn view(&self) -> Topics<'_> {
        Topics { image: &self.image, config: &self.config }
    }

    /// Adds a topic, or adds partitions to an existing one.
    pub(crate) fn add(&mut self, name: &str, partitions: usize) {
        let replicas = vec![&[1_i32][..]; partitions];
        self.add_with(name, topic_id(name), &replicas);
    }

    pub(crate) fn add_with(&mut self, name: &str, id: Uuid, replicas: &[&[i32]]) {
        let partition = |replicas: &&[i32]| PartitionImage {
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            isr: (*replicas).into(),
            replicas: (*replicas).into(),
            adding: Arc::default(),
            removing: Arc::default(),
        };
        let topic = TopicImage {
            name: name.into(),
            id,
            config: Arc::default(),
            partitions: replicas.iter().map(partition).collect(),
        };
        self.image.version += 1;
        self.image.topics_created = self.image.version;
        self.image.names.insert(id, name.into());
        self.image.topics.insert(name.into(), Arc::new(topic));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.image.version += 1;
        self.image.topics.remove(name);
        self.image.names.remove(&topic_id(name));
    }
}
