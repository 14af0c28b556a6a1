//! `curtail topics describe`, in the format of kafka-topics, and the selection of partitions by their state.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use curtail::{
    Admin, TopicPartition, Uuid,
    admin::{
        ConfigEntry, ConfigResource, ConfigSource, Each, OngoingReassignment, PartitionDescription,
        TopicDescription,
    },
};

use super::{Names, if_exists};
use crate::{
    admin::{Cell, Format, admin, report_named},
    failure::Failure,
    output,
    settings::ClientArguments,
};

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    #[command(flatten)]
    format: Format,
    /// Ids of topics, separated by commas, in place of names.
    #[arg(
        long,
        value_name = "ID,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with_all = ["bare", "flagged"]
    )]
    topic_id: Vec<Uuid>,
    /// Leave out a topic that does not exist.
    #[arg(long)]
    if_exists: bool,
    /// Print only partitions with fewer in-sync replicas than replicas.
    #[arg(long)]
    under_replicated_partitions: bool,
    /// Print only partitions without a live leader.
    #[arg(long)]
    unavailable_partitions: bool,
}

const PARTITION: [&str; 6] = ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR"];

pub(super) async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let mut described = match arguments.topic_id.as_slice() {
        [] => by_name(&admin, arguments.topics.all()).await?,
        ids => by_id(&admin, ids).await?,
    };
    if described.is_empty() {
        return arguments.format.rows(&PARTITION, Vec::new(), "no topics");
    }
    if arguments.if_exists {
        described = if_exists(described, "nothing to describe");
    }
    let selection = Selection {
        under_replicated: arguments.under_replicated_partitions,
        unavailable: arguments.unavailable_partitions,
    };
    let none = selection.none();
    selection.apply(&admin, &mut described).await?;
    if arguments.format.json {
        let mut rows = Vec::new();
        let all_known = report_named(&admin, described, |_, topic| {
            rows.extend(topic.partitions.iter().map(|partition| row(&topic, partition)));
            Ok(())
        })
        .await;
        arguments.format.rows(&PARTITION, rows, none)?;
        return all_known;
    }
    // As in kafka-topics, a selection of partitions leaves out the lines of topics.
    let mut configs = match selection.is_all() {
        true => configs(&admin, &described).await?,
        false => BTreeMap::new(),
    };
    let mut found = false;
    let all_known = report_named(&admin, described, |name, topic| {
        let mut text = String::new();
        if selection.is_all() {
            text += &header(&topic, configs.remove(name));
        }
        text.extend(topic.partitions.iter().map(|partition| line(&topic, partition)));
        found |= !text.is_empty();
        output::print(&text)
    })
    .await;
    if !found && all_known.is_ok() {
        output::note(none);
    }
    all_known
}

type Described = Each<String, TopicDescription>;

/// The topics with these names; without names all topics.
async fn by_name(admin: &Admin, mut names: Vec<String>) -> Result<Described, Failure> {
    if names.is_empty() {
        names = admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
        names.sort_unstable();
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => Ok(Each::new()),
        false => Ok(admin.describe_topics(&names).await?),
    }
}

/// The topics with these ids. A topic that does not exist has its id as name.
async fn by_id(admin: &Admin, ids: &[Uuid]) -> Result<Described, Failure> {
    let topics = admin.describe_topics_by_id(ids).await?.into_iter();
    let named = topics.map(|(id, topic)| match topic {
        Ok(topic) => (topic.name.clone(), Ok(topic)),
        Err(error) => (id.to_string(), Err(error)),
    });
    Ok(named.collect())
}

/// Partitions to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    pub(super) under_replicated: bool,
    pub(super) unavailable: bool,
}

impl Selection {
    fn is_all(self) -> bool {
        !self.under_replicated && !self.unavailable
    }

    /// The sentence in place of an empty result.
    pub(super) fn none(self) -> &'static str {
        match (self.under_replicated, self.unavailable) {
            (false, false) => "no topics",
            (true, false) => "no under-replicated partitions",
            (false, true) => "no unavailable partitions",
            (true, true) => "no under-replicated or unavailable partitions",
        }
    }

    /// Removes the partitions that are not selected.
    pub(super) async fn apply(
        self,
        admin: &Admin,
        topics: &mut Each<String, TopicDescription>,
    ) -> Result<(), Failure> {
        if self.is_all() {
            return Ok(());
        }
        let cluster = admin.describe_cluster().await?;
        let live: BTreeSet<i32> = cluster.brokers.iter().map(|broker| broker.id).collect();
        // Without the permission to list reassignments, replicas that are being added count as missing.
        let moving = match self.under_replicated {
            true => admin.list_partition_reassignments(None).await.unwrap_or_default(),
            false => BTreeMap::new(),
        };
        for (name, topic) in topics {
            let Ok(topic) = topic else { continue };
            topic.partitions.retain(|partition| {
                let at = TopicPartition::new(name.as_str(), partition.partition);
                (self.unavailable && is_unavailable(partition, &live))
                    || (self.under_replicated && is_under_replicated(partition, moving.get(&at)))
            });
        }
        Ok(())
    }
}

fn is_unavailable(partition: &PartitionDescription, live: &BTreeSet<i32>) -> bool {
    partition.leader.is_none_or(|leader| !live.contains(&leader))
}

/// Replicas that a reassignment is adding are not expected to be in sync.
fn is_under_replicated(
    partition: &PartitionDescription,
    moving: Option<&OngoingReassignment>,
) -> bool {
    let adding = moving.map_or(0, |moving| moving.adding.len());
    partition.replicas.len().saturating_sub(adding) > partition.isr.len()
}

fn row(topic: &TopicDescription, partition: &PartitionDescription) -> Vec<Cell> {
    vec![
        Cell::from(topic.name.as_str()),
        partition.partition.into(),
        partition.leader.into(),
        partition.leader_epoch.into(),
        Cell::Numbers(partition.replicas.clone()),
        Cell::Numbers(partition.isr.clone()),
    ]
}

/// Settings of topics that differ from Kafka's defaults, as `name=value,name=value`. A topic whose settings may not be
/// described has none, and standard error says so.
async fn configs(
    admin: &Admin,
    topics: &Each<String, TopicDescription>,
) -> Result<BTreeMap<String, String>, Failure> {
    let known = topics.iter().filter(|(_, topic)| topic.is_ok());
    let resources: Vec<_> = known.map(|(name, _)| ConfigResource::Topic(name.clone())).collect();
    let mut all = BTreeMap::new();
    if resources.is_empty() {
        return Ok(all);
    }
    for (resource, settings) in admin.describe_configs(&resources).await? {
        match (resource, settings) {
            (ConfigResource::Topic(name), Ok(settings)) => {
                all.insert(name, changed(settings));
            }
            (resource, Err(error)) => {
                output::note(format_args!(
                    "settings of {resource} are not shown: {}",
                    error.report()
                ));
            }
            _ => {}
        }
    }
    Ok(all)
}

fn changed(settings: Vec<ConfigEntry>) -> String {
    let changed = settings.into_iter().filter(|entry| entry.source != ConfigSource::Default);
    let pair = |entry: ConfigEntry| format!("{}={}", entry.name, entry.value.unwrap_or_default());
    let mut pairs: Vec<String> = changed.map(pair).collect();
    pairs.sort_unstable();
    pairs.join(",")
}

fn header(topic: &TopicDescription, configs: Option<String>) -> String {
    let replicas = topic.partitions.first().map_or(0, |first| first.replicas.len());
    let (name, count) = (&topic.name, topic.partitions.len());
    let configs = configs.map(|configs| format!("\tConfigs: {configs}")).unwrap_or_default();
    let id = topic.id.map(|id| format!("\tTopicId: {id}")).unwrap_or_default();
    format!("Topic: {name}{id}\tPartitionCount: {count}\tReplicationFactor: {replicas}{configs}\n")
}

fn line(topic: &TopicDescription, partition: &PartitionDescription) -> String {
    let numbers = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let leader = partition.leader.map_or_else(|| "none".to_owned(), |id| id.to_string());
    format!(
        "\tTopic: {}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}\n",
        topic.name,
        partition.partition,
        numbers(&partition.replicas),
        numbers(&partition.isr)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_selected_by_their_in_sync_replicas_and_leader() {
        let partition = |leader, replicas: &[i32], isr: &[i32]| PartitionDescription {
            partition: 0,
            leader,
            leader_epoch: None,
            replicas: replicas.to_vec(),
            isr: isr.to_vec(),
            offline: Vec::new(),
        };
        let whole = partition(Some(1), &[1, 2, 3], &[3, 1, 2]);
        let short = partition(Some(1), &[1, 2, 3], &[1, 3]);
        assert!(!is_under_replicated(&whole, None) && is_under_replicated(&short, None));
        let live = BTreeSet::from([1, 2]);
        assert!(!is_unavailable(&short, &live));
        assert!(is_unavailable(&partition(Some(3), &[3], &[3]), &live));
        assert!(is_unavailable(&partition(None, &[3], &[3]), &live));
    }
}
