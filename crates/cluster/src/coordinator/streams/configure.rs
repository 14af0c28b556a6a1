//! The numbers of partitions of a topology's internal topics and its numbers of tasks, which follow from the source
//! topics that exist.

use std::collections::{BTreeMap, BTreeSet};

use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{GroupStatus, Subtopology, TopicInfo, Topology},
};

use super::{Refused, status::Status};
use crate::controller::TopicSpec;

/// Names listed in a status; further ones are counted.
const LISTED: usize = 3;

/// Tasks of a topology, and partitions of its internal topics.
const MOST_TASKS: i64 = 100_000;

/// A topology with the topics of one version of the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    /// The subtopologies by id; empty while source topics are missing or do not fit.
    pub(crate) subtopologies: BTreeMap<String, ConfiguredSubtopology>,
    /// Internal topics to create.
    pub(crate) missing: Vec<TopicSpec>,
    /// Why no tasks can be assigned.
    pub(crate) problem: Option<GroupStatus>,
}

impl Configured {
    /// Returns whether tasks can be assigned.
    pub(crate) fn is_ready(&self) -> bool {
        self.problem.is_none()
    }
}

/// A subtopology whose topics have numbers of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredSubtopology {
    /// The number of tasks: the largest number of partitions of a source topic.
    pub(crate) tasks: i32,
    pub(crate) source_topics: BTreeSet<String>,
    pub(crate) repartition_sinks: BTreeSet<String>,
    pub(crate) repartition_sources: BTreeMap<String, TopicInfo>,
    pub(crate) changelogs: BTreeMap<String, TopicInfo>,
}

impl ConfiguredSubtopology {
    /// Returns whether its tasks have state, which standby tasks copy.
    pub(crate) fn is_stateful(&self) -> bool {
        !self.changelogs.is_empty()
    }

    /// Returns the topics that its tasks read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        self.source_topics.iter().chain(self.repartition_sources.keys()).map(String::as_str)
    }
}

/// Returns the topics of a topology whose metadata matters.
pub(crate) fn required_topics(topology: &Topology) -> BTreeSet<&str> {
    let mut topics = BTreeSet::new();
    for subtopology in &topology.subtopologies {
        let internal =
            subtopology.repartition_source_topics.iter().chain(&subtopology.state_changelog_topics);
        topics.extend(internal.map(|topic| topic.name.as_str()));
        topics.extend(subtopology.source_topics.iter().map(String::as_str));
    }
    topics
}

/// Returns the subtopology that reads a topic.
pub(crate) fn reader_of<'t>(topology: &'t Topology, topic: &str) -> Option<&'t Subtopology> {
    topology.subtopologies.iter().find(|subtopology| {
        subtopology.source_topics.iter().any(|source| source == topic)
            || subtopology.repartition_source_topics.iter().any(|source| source.name == topic)
    })
}

/// Why a topology has no tasks.
enum Failed {
    /// The group waits for other topics.
    Waits(Status, String),
    /// The topology can never work.
    Invalid(Refused),
}

impl Failed {
    fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(Refused::new(ErrorCode::STREAMS_INVALID_TOPOLOGY, reason))
    }

    /// A request that the client should not have made, which Kafka answers with its unexpected exception.
    fn unexpected(reason: impl Into<String>) -> Self {
        Self::Invalid(Refused::new(ErrorCode::UNKNOWN_SERVER_ERROR, reason))
    }

    fn partitioned(reason: String) -> Self {
        Self::Waits(Status::IncorrectlyPartitionedTopics, reason)
    }
}

/// Configures a topology. `partitions` returns the number of partitions of a topic that exists.
///
/// # Errors
/// STREAMS_INVALID_TOPOLOGY.
pub(super) fn configure(
    topology: &Topology,
    partitions: &dyn Fn(&str) -> Option<i32>,
) -> Result<Configured, Refused> {
    let mut counts = Counts { topology, existing: partitions, decided: BTreeMap::new() };
    match counts.configure() {
        Ok(configured) => Ok(configured),
        Err(Failed::Waits(status, detail)) => {
            Ok(Configured { problem: Some(status.with(detail)), ..Configured::default() })
        }
        Err(Failed::Invalid(refused)) => Err(refused),
    }
}

/// Numbers of partitions in the making.
struct Counts<'a> {
    topology: &'a Topology,
    existing: &'a dyn Fn(&str) -> Option<i32>,
    /// Numbers of partitions of internal topics.
    decided: BTreeMap<String, i32>,
}

impl Counts<'_> {
    fn configure(&mut self) -> Result<Configured, Failed> {
        self.check_sources()?;
        self.count_repartition_topics()?;
        self.copartition()?;
        self.count_changelogs()?;
        let mut subtopologies = BTreeMap::new();
        for subtopology in &self.topology.subtopologies {
            let configured = self.configured(subtopology)?;
            subtopologies.insert(subtopology.subtopology_id.clone(), configured);
        }
        check_size(&subtopologies)?;
        let missing = self.missing(&subtopologies)?;
        let names: Vec<&str> = missing.iter().map(|topic| topic.name.as_str()).collect();
        let problem = (!names.is_empty()).then(|| {
            let detail = format!("Missing internal topics: {}", summary(&names));
            Status::MissingInternalTopics.with(detail)
        });
        Ok(Configured { subtopologies, missing, problem })
    }

    /// The number of partitions of a topic that exists, or that is decided.
    fn count(&self, topic: &str) -> Option<i32> {
        (self.existing)(topic).or_else(|| self.decided.get(topic).copied())
    }

    fn known(&self, topic: &str) -> Result<i32, Failed> {
        self.count(topic).ok_or_else(|| {
            Failed::unexpected(format!("the number of partitions of topic {topic} is not known"))
        })
    }

    fn check_sources(&self) -> Result<(), Failed> {
        let sources =
            self.topology.subtopologies.iter().flat_map(|subtopology| &subtopology.source_topics);
        let missing: BTreeSet<&str> =
            sources.map(String::as_str).filter(|topic| (self.existing)(topic).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<&str> = missing.into_iter().collect();
        let detail = format!("Missing source topics: {}", summary(&missing));
        Err(Failed::Waits(Status::MissingSourceTopics, detail))
    }

    /// Repartition topics without a fixed number of partitions have as many as the largest source of the subtopology
    /// that writes to them, which may itself be such a topic.
    fn count_repartition_topics(&mut self) -> Result<(), Failed> {
        let sources = self.topology.subtopologies.iter();
        let sources = sources.flat_map(|subtopology| &subtopology.repartition_source_topics);
        let mut counts: BTreeMap<&str, i32> = sources
            .clone()
            .filter(|topic| topic.partitions != 0)
            .map(|topic| (topic.name.as_str(), topic.partitions))
            .collect();
        loop {
            let (mut waits, mut progressed) = (false, false);
            for subtopology in &self.topology.subtopologies {
                for sink in &subtopology.repartition_sink_topics {
                    if counts.contains_key(sink.as_str()) {
                        continue;
                    }
                    match self.largest_source(subtopology, &counts) {
                        Some(count) => {
                            counts.insert(sink, count);
                            progressed = true;
                        }
                        None => waits = true,
                    }
                }
            }
            if !waits {
                break;
            }
            if !progressed {
                return Err(Failed::invalid(
                    "repartition topics depend on each other in a circle, so that their numbers of \
                     partitions are not defined",
                ));
            }
        }
        if let Some(topic) = sources.clone().find(|topic| !counts.contains_key(&*topic.name)) {
            let reason = format!("no subtopology writes to the repartition topic {}", topic.name);
            return Err(Failed::invalid(reason));
        }
        self.decided = counts.into_iter().map(|(topic, count)| (topic.to_owned(), count)).collect();
        Ok(())
    }

    fn largest_source(
        &self,
        subtopology: &Subtopology,
        counts: &BTreeMap<&str, i32>,
    ) -> Option<i32> {
        let internal = subtopology.repartition_source_topics.iter();
        let internal = internal.filter_map(|topic| counts.get(topic.name.as_str()).copied());
        let external = subtopology.source_topics.iter().filter_map(|topic| (self.existing)(topic));
        internal.chain(external).max()
    }

    fn copartition(&mut self) -> Result<(), Failed> {
        let topics =
            || self.topology.subtopologies.iter().flat_map(|s| &s.repartition_source_topics);
        let names = |fixed: bool| -> BTreeSet<&str> {
            let chosen = topics().filter(|topic| (topic.partitions != 0) == fixed);
            chosen.map(|topic| topic.name.as_str()).collect()
        };
        let (fixed, flexible) = (names(true), names(false));
        for subtopology in &self.topology.subtopologies {
            for group in copartitioned(subtopology)? {
                let decided = self.enforce(&group, &fixed, &flexible)?;
                self.decided.extend(decided);
            }
        }
        Ok(())
    }

    /// Returns the numbers of partitions of the repartition topics in a group of copartitioned topics.
    fn enforce(
        &self,
        group: &BTreeSet<&str>,
        fixed: &BTreeSet<&str>,
        flexible: &BTreeSet<&str>,
    ) -> Result<BTreeMap<String, i32>, Failed> {
        let (mut internal, mut external) = (BTreeMap::new(), BTreeMap::new());
        for topic in group {
            let is_internal = fixed.contains(topic) || flexible.contains(topic);
            let into = if is_internal { &mut internal } else { &mut external };
            into.insert(*topic, self.known(topic)?);
        }
        let count = if let Some(count) = external.values().next() {
            all_have(*count, &external)?;
            *count
        } else if let Some(first) = fixed.first() {
            // As in Kafka, all fixed topics of the topology count, not only those of this group.
            let count = self.known(first)?;
            for topic in fixed {
                if self.known(topic)? != count {
                    return Err(unequal(&internal));
                }
            }
            count
        } else {
            internal.values().max().copied().unwrap_or_default()
        };
        for (topic, own) in &internal {
            if fixed.contains(topic) && *own != count {
                return Err(Failed::partitioned(format!(
                    "The repartition topic {topic} has {own} partitions, the topics with the same keys have {count}."
                )));
            }
        }
        Ok(internal.into_keys().map(|topic| (topic.to_owned(), count)).collect())
    }

    fn count_changelogs(&mut self) -> Result<(), Failed> {
        for subtopology in &self.topology.subtopologies {
            let tasks = self.tasks(subtopology)?;
            let changelogs = subtopology.state_changelog_topics.iter();
            self.decided.extend(changelogs.map(|topic| (topic.name.clone(), tasks)));
        }
        Ok(())
    }

    fn tasks(&self, subtopology: &Subtopology) -> Result<i32, Failed> {
        let internal = subtopology.repartition_source_topics.iter().map(|topic| &topic.name);
        let mut tasks = None;
        for topic in subtopology.source_topics.iter().chain(internal) {
            tasks = tasks.max(Some(self.known(topic)?));
        }
        tasks.ok_or_else(|| {
            let id = &subtopology.subtopology_id;
            Failed::invalid(format!("the subtopology {id} has no source topics"))
        })
    }

    fn configured(&self, subtopology: &Subtopology) -> Result<ConfiguredSubtopology, Failed> {
        let internal = |topics: &[TopicInfo]| -> Result<BTreeMap<String, TopicInfo>, Failed> {
            let counted = topics.iter().map(|topic| {
                let partitions = match topic.partitions {
                    0 => self.decided.get(&topic.name).copied().unwrap_or_default(),
                    fixed => fixed,
                };
                if partitions < 1 {
                    let name = &topic.name;
                    let reason = format!("the internal topic {name} has {partitions} partitions");
                    return Err(Failed::unexpected(reason));
                }
                Ok((topic.name.clone(), TopicInfo { partitions, ..topic.clone() }))
            });
            counted.collect()
        };
        Ok(ConfiguredSubtopology {
            tasks: self.tasks(subtopology)?,
            source_topics: subtopology.source_topics.iter().cloned().collect(),
            repartition_sinks: subtopology.repartition_sink_topics.iter().cloned().collect(),
            repartition_sources: internal(&subtopology.repartition_source_topics)?,
            changelogs: internal(&subtopology.state_changelog_topics)?,
        })
    }

    /// Returns the internal topics that do not exist.
    fn missing(
        &self,
        subtopologies: &BTreeMap<String, ConfiguredSubtopology>,
    ) -> Result<Vec<TopicSpec>, Failed> {
        let internal = subtopologies.values().flat_map(|subtopology| {
            subtopology.repartition_sources.values().chain(subtopology.changelogs.values())
        });
        let internal: BTreeMap<&str, &TopicInfo> =
            internal.map(|topic| (topic.name.as_str(), topic)).collect();
        let mut missing = Vec::new();
        for (name, topic) in internal {
            match (self.existing)(name) {
                None => missing.push(spec(topic)),
                Some(count) if count == topic.partitions => {}
                Some(count) => {
                    return Err(Failed::partitioned(format!(
                        "The internal topic {name} has {count} partitions and needs {}.",
                        topic.partitions
                    )));
                }
            }
        }
        Ok(missing)
    }
}

/// Refuses what no cluster could serve. Each member's target and each internal topic is kept in memory and stored.
fn check_size(subtopologies: &BTreeMap<String, ConfiguredSubtopology>) -> Result<(), Failed> {
    let tasks: i64 = subtopologies.values().map(|of| i64::from(of.tasks)).sum();
    let internal = subtopologies
        .values()
        .flat_map(|of| of.repartition_sources.values().chain(of.changelogs.values()));
    let partitions: i64 = internal.map(|topic| i64::from(topic.partitions)).sum();
    if tasks.max(partitions) <= MOST_TASKS {
        return Ok(());
    }
    Err(Failed::invalid(format!(
        "the topology has {tasks} tasks, and internal topics with {partitions} partitions; the limit is {MOST_TASKS}"
    )))
}

/// Returns the topics of each copartition group.
fn copartitioned(subtopology: &Subtopology) -> Result<Vec<BTreeSet<&str>>, Failed> {
    let at = |index: &i16| usize::try_from(*index).unwrap_or(usize::MAX);
    let groups = subtopology.copartition_groups.iter().map(|group| {
        let external = group
            .source_topics
            .iter()
            .map(|index| subtopology.source_topics.get(at(index)).map(String::as_str));
        let internal = group.repartition_source_topics.iter().map(|index| {
            subtopology.repartition_source_topics.get(at(index)).map(|topic| topic.name.as_str())
        });
        let group: Option<BTreeSet<&str>> = external.chain(internal).collect();
        group.ok_or_else(|| {
            let id = &subtopology.subtopology_id;
            let reason = format!(
                "a copartition group of the subtopology {id} names a topic that it does not have"
            );
            Failed::unexpected(reason)
        })
    });
    groups.collect()
}

fn all_have(count: i32, topics: &BTreeMap<&str, i32>) -> Result<(), Failed> {
    match topics.values().all(|own| *own == count) {
        true => Ok(()),
        false => Err(unequal(topics)),
    }
}

fn unequal(topics: &BTreeMap<&str, i32>) -> Failed {
    let topics: Vec<String> =
        topics.iter().map(|(topic, count)| format!("{topic}={count}")).collect();
    Failed::partitioned(format!(
        "Topics with the same keys have different numbers of partitions: {}.",
        topics.join(", ")
    ))
}

/// Lists the first texts of a status and counts the others.
pub(crate) fn summary<T: AsRef<str>>(all: &[T]) -> String {
    let listed: Vec<&str> = all.iter().take(LISTED).map(AsRef::as_ref).collect();
    let listed = listed.join(", ");
    match all.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

fn spec(topic: &TopicInfo) -> TopicSpec {
    let configs = topic.topic_configs.iter();
    TopicSpec {
        name: topic.name.clone(),
        partitions: topic.partitions,
        replication_factor: if topic.replication_factor == 0 {
            -1
        } else {
            topic.replication_factor
        },
        assignment: Vec::new(),
        configs: configs.map(|config| (config.key.clone(), config.value.clone())).collect(),
    }
}
