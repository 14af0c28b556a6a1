//! The cluster of a run, and its topics.

use std::collections::BTreeMap;

use curtail::{
    Admin, AdminConfig, ConsumerConfig, ProducerConfig, TopicPartition, admin::NewTopic,
};
use curtail_cluster::ClusterConfig;

use super::{refuse, trogdor::TopicsSpec};
use crate::perf::{Embedded, Event, Progress, Result};

/// Brokers of an embedded cluster, unless topics ask for more replicas.
const BROKERS: u32 = 3;

/// Cluster of a run.
#[derive(Debug)]
pub(super) struct Place {
    bootstrap: String,
    embedded: Option<Embedded>,
}

impl Place {
    /// The cluster at an address, or an embedded one with brokers for this number of replicas.
    pub(super) fn open(
        bootstrap: Option<&str>,
        replicas: i16,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        if let Some(bootstrap) = bootstrap {
            return Ok(Self { bootstrap: bootstrap.to_owned(), embedded: None });
        }
        let brokers = BROKERS.max(u32::try_from(replicas).unwrap_or(0));
        progress
            .on(Event::Preparing(&format!("starting an embedded cluster of {brokers} brokers")));
        let config =
            ClusterConfig { brokers, default_replication_factor: 3, ..ClusterConfig::default() };
        let embedded = Embedded::start(config, None, &[])?;
        Ok(Self { bootstrap: embedded.bootstrap().to_owned(), embedded: Some(embedded) })
    }

    pub(super) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// An admin client. The run's address takes precedence over that of the properties.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn admin<'p>(
        &self,
        properties: impl IntoIterator<Item = (&'p String, &'p String)>,
    ) -> Result<Admin> {
        let mut config = AdminConfig::new(&self.bootstrap);
        for (name, value) in properties {
            config.set(name, value)?;
        }
        config.set(BOOTSTRAP, &self.bootstrap)?;
        Ok(Admin::new(config)?)
    }

    /// Defaults overridden by properties; later ones win.
    pub(super) fn producer<'p>(
        &self,
        defaults: &[(&str, &str)],
        properties: impl IntoIterator<Item = (&'p String, &'p String)>,
    ) -> Result<ProducerConfig> {
        let mut config = ProducerConfig::default();
        for (name, value) in defaults {
            config.set(name, value)?;
        }
        for (name, value) in properties {
            config.set(name, value)?;
        }
        config.set(BOOTSTRAP, &self.bootstrap)?;
        Ok(config)
    }

    /// Defaults overridden by properties; later ones win.
    pub(super) fn consumer<'p>(
        &self,
        defaults: &[(&str, &str)],
        properties: impl IntoIterator<Item = (&'p String, &'p String)>,
    ) -> Result<ConsumerConfig> {
        let mut config = ConsumerConfig::default();
        for (name, value) in defaults {
            config.set(name, value)?;
        }
        for (name, value) in properties {
            config.set(name, value)?;
        }
        config.set(BOOTSTRAP, &self.bootstrap)?;
        Ok(config)
    }
}

const BOOTSTRAP: &str = "bootstrap.servers";

/// Creates the topics that do not exist.
///
/// # Errors
/// A topic that exists with another number of partitions, or that cannot be created.
pub(super) async fn create(admin: &Admin, topics: &TopicsSpec) -> Result<()> {
    let there: BTreeMap<String, usize> = admin
        .list_topics()
        .await?
        .into_iter()
        .map(|topic| (topic.name, topic.partitions))
        .collect();
    let mut missing = Vec::new();
    for (name, spec) in topics {
        let wanted = spec.partitions();
        match there.get(name) {
            Some(&count) if count == wanted as usize => {}
            Some(count) => {
                return refuse(format!(
                    "topic '{name}' exists with {count} partitions instead of {wanted}"
                ));
            }
            None => {
                let mut topic =
                    NewTopic::new(name).partitions(wanted).replication_factor(spec.replicas());
                for (setting, value) in &spec.configs {
                    topic = topic.config(setting, value);
                }
                missing.push(topic);
            }
        }
    }
    for (_, created) in admin.create_topics(&missing).await? {
        created?;
    }
    Ok(())
}

/// Every partition of the topics.
pub(super) fn partitions(topics: &TopicsSpec) -> Vec<TopicPartition> {
    let of = |(name, spec): (&String, &super::trogdor::PartitionsSpec)| {
        let name: std::sync::Arc<str> = name.as_str().into();
        (0..spec.partitions()).map(move |index| TopicPartition::new(name.clone(), index))
    };
    topics.iter().flat_map(of).collect()
}

/// The most replicas that a topic asks for.
pub(super) fn replicas(topics: &TopicsSpec) -> i16 {
    topics.values().map(super::trogdor::PartitionsSpec::replicas).max().unwrap_or(1)
}
