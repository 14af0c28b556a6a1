//! Validation of topic names and placement of replicas.

use curtail_wire::ErrorCode;

use super::state::Refusal;
use crate::{config::ClusterConfig, image::Image};

/// The maximum length of a topic name, as in Kafka.
const MAX_NAME: usize = 249;
/// The maximum number of partitions in a topic's creation.
const MAX_PARTITIONS: i32 = 100_000;

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSpec {
    pub(crate) name: String,
    /// -1 for the cluster's default.
    pub(crate) partitions: i32,
    /// -1 for the cluster's default.
    pub(crate) replication_factor: i16,
    /// Replicas of each partition; empty for automatic placement.
    pub(crate) assignment: Vec<(i32, Vec<i32>)>,
    pub(crate) configs: Vec<(String, String)>,
}

/// Returns whether Kafka allows this name for a topic.
pub(crate) fn valid_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name != "."
        && name != ".."
        && name.chars().all(allowed)
}

/// Checks a new topic's name against Kafka's rules and the existing topics.
pub(super) fn check_name(name: &str, image: &Image) -> Result<(), Refusal> {
    if !valid_name(name) {
        let reason = format!(
            "Topic name is invalid: it must have 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, '.', '_', '-' \
             and be neither \".\" nor \"..\""
        );
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, reason));
    }
    if image.topic(name).is_some() {
        return Err((ErrorCode::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
    }
    // Metric names replace periods with underscores, so Kafka refuses names that differ only there.
    let plain = name.replace('.', "_");
    let collides = |other: &&std::sync::Arc<str>| {
        other.len() == name.len() && other.replace('.', "_") == plain
    };
    if !name.contains(['.', '_']) {
        return Ok(());
    }
    match image.topics.keys().find(collides) {
        Some(other) => Err((
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("Topic '{name}' collides with existing topic: {other}"),
        )),
        None => Ok(()),
    }
}

/// Places the replicas of every partition. Leaders rotate over the live brokers from `start`.
/// Followers are the next brokers in the circle, shifted by one with every full rotation, so that a
/// dead broker's load is distributed.
pub(super) fn place(
    spec: &TopicSpec,
    config: &ClusterConfig,
    live: &[i32],
    fenced: &[i32],
    start: usize,
) -> Result<Vec<Vec<i32>>, Refusal> {
    if !spec.assignment.is_empty() {
        return check_assignment(spec, live, fenced);
    }
    let partitions = if spec.partitions == -1 { config.num_partitions } else { spec.partitions };
    if !(1..=MAX_PARTITIONS).contains(&partitions) {
        let reason = format!("Number of partitions must be 1 to {MAX_PARTITIONS}.");
        return Err((ErrorCode::INVALID_PARTITIONS, reason));
    }
    let factor = match spec.replication_factor {
        -1 => config.default_replication_factor,
        factor => factor,
    };
    let Some(factor) = usize::try_from(factor).ok().filter(|factor| *factor > 0) else {
        let reason = "Replication factor must be larger than 0.".to_owned();
        return Err((ErrorCode::INVALID_REPLICATION_FACTOR, reason));
    };
    if factor > live.len() + fenced.len() || live.is_empty() {
        let reason = format!(
            "Unable to replicate the partition {factor} time(s): {} broker(s) are registered and {} unfenced.",
            live.len() + fenced.len(),
            live.len()
        );
        return Err((ErrorCode::INVALID_REPLICATION_FACTOR, reason));
    }
    let count = live.len();
    let replicas = |partition: usize| {
        let lead = start.wrapping_add(partition);
        let shift = lead / count;
        let mut replicas = vec![live[lead % count]];
        let others = count - 1;
        replicas.extend((0..others.min(factor - 1)).map(|follower| {
            let step = 1 + (shift + follower) % others;
            live[(lead + step) % count]
        }));
        replicas.extend(fenced.iter().copied().take(factor - replicas.len()));
        replicas
    };
    Ok((0..partitions as usize).map(replicas).collect())
}

fn check_assignment(
    spec: &TopicSpec,
    live: &[i32],
    fenced: &[i32],
) -> Result<Vec<Vec<i32>>, Refusal> {
    if spec.partitions != -1 || spec.replication_factor != -1 {
        let reason =
            "A manual partition assignment was specified, but a number of partitions or a \
                      replication factor was too."
                .to_owned();
        return Err((ErrorCode::INVALID_REQUEST, reason));
    }
    let refuse = |reason: &str| Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason.to_owned()));
    let mut assignment = spec.assignment.clone();
    assignment.sort_by_key(|(index, _)| *index);
    let width = assignment[0].1.len();
    for ((index, replicas), expected) in assignment.iter().zip(0..) {
        if *index != expected {
            return refuse("Partitions must be consecutive and start at 0.");
        }
        if replicas.is_empty() || replicas.len() != width {
            return refuse("Every partition needs replicas, and all partitions equally many.");
        }
        let known = |id: &i32| live.contains(id) || fenced.contains(id);
        if !replicas.iter().all(known) {
            return refuse("The assignment names a broker that is not registered.");
        }
        let mut sorted = replicas.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != replicas.len() {
            return refuse("The assignment names a broker twice for one partition.");
        }
    }
    Ok(assignment.into_iter().map(|(_, replicas)| replicas).collect())
}
