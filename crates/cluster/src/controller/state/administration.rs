//! Administrative changes of existing topics, brokers and groups.

use std::{collections::BTreeMap, sync::Arc};

use curtail_wire::ErrorCode;

use super::{Refusal, State};
use crate::{
    config::ClusterConfig,
    controller::{
        journal::Change,
        placement::{self, TopicSpec},
    },
    image::{NO_LEADER, PartitionImage, PartitionKey, TopicImage},
    settings::{self, Given, Whose},
    topic_config::{ConfigEdits, TopicConfig},
};

/// A request for more partitions of a topic.
#[derive(Clone, Debug)]
pub(crate) struct MorePartitions {
    pub(crate) topic: String,
    /// Including the existing ones.
    pub(crate) total: i32,
    /// Replicas of each new partition; `None` for automatic placement.
    pub(crate) replicas: Option<Vec<Vec<i32>>>,
}

/// The kind of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    /// Elects the first replica, which must be in sync.
    Preferred,
    /// Elects any live replica if no in-sync replica is live.
    Unclean,
}

impl State {
    /// Validates new partitions and places their replicas.
    pub(in crate::controller) fn check_partitions(
        &self,
        more: &MorePartitions,
        config: &ClusterConfig,
    ) -> Result<(Arc<TopicImage>, Vec<Vec<i32>>), Refusal> {
        let topic = self.topic_named(&more.topic)?;
        let there = topic.partitions.len() as i32;
        let refuse = |code, reason| Err((code, reason));
        if more.total < there {
            let reason = format!(
                "The topic {} currently has {there} partition(s); {} would not be an increase.",
                more.topic, more.total
            );
            return refuse(ErrorCode::INVALID_PARTITIONS, reason);
        }
        if more.total == there {
            let reason = format!("Topic already has {there} partition(s).");
            return refuse(ErrorCode::INVALID_PARTITIONS, reason);
        }
        let factor = topic.partitions.front().map_or(0, |first| first.replicas.len());
        let added = more.total - there;
        let mut spec = TopicSpec {
            name: more.topic.clone(),
            partitions: added,
            replication_factor: factor as i16,
            ..TopicSpec::default()
        };
        if let Some(replicas) = &more.replicas {
            if replicas.len() != added as usize {
                let reason = format!(
                    "Attempted to add {added} additional partition(s), but only {} assignment(s) \
                     were specified.",
                    replicas.len()
                );
                return refuse(ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason);
            }
            if replicas.iter().any(|ids| ids.len() != factor) {
                let reason = format!("Every partition of this topic has {factor} replica(s).");
                return refuse(ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason);
            }
            (spec.partitions, spec.replication_factor) = (-1, -1);
            spec.assignment = (0..).zip(replicas.iter().cloned()).collect();
        }
        let brokers = self.image.brokers.values();
        let (fenced, live): (Vec<_>, Vec<_>) = brokers.partition(|broker| broker.fenced);
        let ids = |brokers: &[&crate::image::BrokerImage]| -> Vec<i32> {
            brokers.iter().map(|broker| broker.id).collect()
        };
        let placed =
            placement::place(&spec, config, &ids(&live), &ids(&fenced), self.next_placement)?;
        Ok((topic, placed))
    }

    /// Adds partitions to a topic.
    pub(in crate::controller) fn create_partitions(
        &mut self,
        more: &MorePartitions,
        config: &ClusterConfig,
    ) -> Result<(), Refusal> {
        let (topic, placed) = self.check_partitions(more, config)?;
        self.next_placement = self.next_placement.wrapping_add(placed.len());
        let mut topic = (*topic).clone();
        topic.partitions.extend(placed.into_iter().map(|replicas| self.born(replicas)));
        self.replace_topic(topic);
        Ok(())
    }

    /// Returns a newly created partition.
    pub(super) fn born(&self, replicas: Vec<i32>) -> PartitionImage {
        let isr: Arc<[i32]> = replicas.iter().copied().filter(|id| self.live(*id)).collect();
        PartitionImage {
            leader: isr.first().copied().unwrap_or(NO_LEADER),
            leader_epoch: 0,
            partition_epoch: 0,
            isr,
            replicas: replicas.into(),
            adding: Arc::default(),
            removing: Arc::default(),
        }
    }

    /// Returns a topic's settings after these edits, without applying them.
    pub(in crate::controller) fn check_config(
        &self,
        name: &str,
        edits: &ConfigEdits,
    ) -> Result<TopicConfig, Refusal> {
        let topic = self.topic_named(name)?;
        topic.config.edited(edits).map_err(|reason| (ErrorCode::INVALID_CONFIG, reason))
    }

    /// Changes a topic's settings.
    pub(in crate::controller) fn alter_config(
        &mut self,
        name: &str,
        edits: &ConfigEdits,
    ) -> Result<(), Refusal> {
        let altered = self.check_config(name, edits)?;
        let topic = self.topic_named(name)?;
        if *topic.config != altered {
            self.replace_topic(TopicImage { config: Arc::new(altered), ..(*topic).clone() });
            self.elect_leaderless(&topic);
        }
        Ok(())
    }

    /// Elects leaders for leaderless partitions, since unclean elections may be allowed now.
    /// Kafka's controller checks every `unclean.leader.election.interval.ms` (five minutes).
    fn elect_leaderless(&mut self, topic: &TopicImage) {
        let partitions = topic.partitions.iter().zip(0..);
        let leaderless = partitions.filter(|(partition, _)| partition.leader == NO_LEADER);
        for (_, index) in leaderless {
            self.elect(PartitionKey { topic: topic.id, index });
        }
    }

    /// Returns the settings of a broker or a group after these edits, without applying them.
    pub(in crate::controller) fn check_settings(
        &self,
        whose: &Whose,
        edits: &ConfigEdits,
        config: &ClusterConfig,
    ) -> Result<Given, Refusal> {
        let given = self.image.settings.get(whose).cloned().unwrap_or_default();
        settings::edited(whose, &given, edits, config)
    }

    /// Changes the settings of a broker or a group.
    pub(in crate::controller) fn alter_settings(
        &mut self,
        whose: &Whose,
        edits: &ConfigEdits,
        config: &ClusterConfig,
    ) -> Result<(), Refusal> {
        let given = self.check_settings(whose, edits, config)?;
        let before = self.image.settings.get(whose);
        if before.map_or(given.is_empty(), |before| **before == given) {
            return Ok(());
        }
        self.set_settings(whose.clone(), given);
        if *whose == Whose::Brokers {
            let topics: Vec<_> = self.image.topics.values().cloned().collect();
            topics.iter().for_each(|topic| self.elect_leaderless(topic));
        }
        Ok(())
    }

    pub(in crate::controller) fn set_settings(&mut self, whose: Whose, given: Given) {
        if given.is_empty() {
            self.image.settings.remove(&whose);
        } else {
            self.image.settings.insert(whose.clone(), Arc::new(given.clone()));
        }
        self.changed(Change::Settings { whose, given });
    }

    /// Returns the changes that rebuild the settings.
    pub(in crate::controller) fn settings_snapshot(&self) -> Vec<Change> {
        let one = |(whose, given): (&Whose, &Arc<Given>)| Change::Settings {
            whose: whose.clone(),
            given: (**given).clone(),
        };
        self.image.settings.iter().map(one).collect()
    }

    fn topic_named(&self, name: &str) -> Result<Arc<TopicImage>, Refusal> {
        let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        self.image.topic(name).cloned().ok_or_else(|| (code, code.message().to_owned()))
    }

    fn replace_topic(&mut self, topic: TopicImage) {
        self.image.version += 1;
        self.image.topics.insert(Arc::clone(&topic.name), Arc::new(topic.clone()));
        self.changes.push(Change::Topic(topic));
    }

    /// Returns all partitions by topic.
    pub(in crate::controller) fn all_partitions(&self) -> BTreeMap<String, Vec<i32>> {
        let topics = self.image.topics.values();
        topics.map(|t| (t.name.to_string(), (0..t.partitions.len() as i32).collect())).collect()
    }

    /// Elects the leader of a partition on request.
    pub(in crate::controller) fn elect_leader(
        &mut self,
        name: &str,
        index: i32,
        election: Election,
    ) -> Result<(), Refusal> {
        let unknown = || {
            let reason = format!("No such partition as {name}-{index}");
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, reason)
        };
        let key = PartitionKey { topic: self.image.topic(name).ok_or_else(unknown)?.id, index };
        let partition = self.partition(key).ok_or_else(unknown)?.clone();
        let in_sync = |id: &i32| partition.isr.contains(id) && self.live(*id);
        let not_needed = || {
            let reason = "Leader election not needed for topic partition.";
            (ErrorCode::ELECTION_NOT_NEEDED, reason.to_owned())
        };
        let chosen = match election {
            Election::Preferred => {
                let preferred = partition.replicas.first().copied().unwrap_or(NO_LEADER);
                if partition.leader == preferred {
                    return Err(not_needed());
                }
                let code = ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE;
                let refusal = || (code, "The preferred leader is not in sync.".to_owned());
                Some(preferred).filter(in_sync).ok_or_else(refusal)?
            }
            Election::Unclean => {
                if partition.leader != NO_LEADER {
                    return Err(not_needed());
                }
                let clean = partition.replicas.iter().find(|id| in_sync(id));
                let any = || partition.replicas.iter().find(|id| self.live(**id));
                let code = ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE;
                let refusal = || (code, "No replica lives.".to_owned());
                *clean.or_else(any).ok_or_else(refusal)?
            }
        };
        self.appoint(key, chosen);
        Ok(())
    }
}
