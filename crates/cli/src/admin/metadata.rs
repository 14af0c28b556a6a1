//! `curtail metadata`: brokers, topics and partitions in the format of kcat -L.

use std::fmt::Write as _;

use clap::Args;
use curtail::admin::{ClusterDescription, PartitionDescription, TopicDescription};
use serde_json::{Value, json};

use super::{Format, admin, block_on, described, topics::Names};
use crate::{failure::Failure, output, settings::ClientArguments};

/// Arguments of `curtail metadata`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    topics: Names,
}

/// Runs `curtail metadata`.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    block_on(async {
        let admin = admin(&arguments.client)?;
        let mut names = arguments.topics.all();
        let of = if names.is_empty() { "all topics".to_owned() } else { names.join(", ") };
        let cluster = admin.describe_cluster().await?;
        if names.is_empty() {
            names = admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let topics: Vec<TopicDescription> = match names.is_empty() {
            true => Vec::new(),
            false => described(&admin, &names).await?.into_iter().map(|(_, topic)| topic).collect(),
        };
        match arguments.format.json {
            true => output::line(object(&cluster, &topics)),
            false => output::print(&text(&of, &cluster, &topics)),
        }
    })
}

fn text(of: &str, cluster: &ClusterDescription, topics: &[TopicDescription]) -> String {
    let numbers = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let mut text = format!("Metadata for {of}:\n {} brokers:\n", cluster.brokers.len());
    for broker in &cluster.brokers {
        let mark = if cluster.controller == Some(broker.id) { " (controller)" } else { "" };
        let (id, host, port) = (broker.id, &broker.host, broker.port);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  broker {id} at {host}:{port}{mark}");
    }
    let _ = writeln!(text, " {} topics:", topics.len());
    for topic in topics {
        let count = topic.partitions.len();
        let _ = writeln!(text, "  topic \"{}\" with {count} partitions:", topic.name);
        for partition in &topic.partitions {
            let PartitionDescription { partition, leader, replicas, isr, .. } = partition;
            let (leader, replicas, isr) = (leader.unwrap_or(-1), numbers(replicas), numbers(isr));
            let _ = writeln!(
                text,
                "    partition {partition}, leader {leader}, replicas: {replicas}, isrs: {isr}"
            );
        }
    }
    text
}

/// The object of kcat -L -J, without the broker that responded.
fn object(cluster: &ClusterDescription, topics: &[TopicDescription]) -> Value {
    let ids = |ids: &[i32]| ids.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>();
    let brokers = cluster.brokers.iter().map(
        |broker| json!({ "id": broker.id, "name": format!("{}:{}", broker.host, broker.port) }),
    );
    let topics = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            json!({
                "partition": partition.partition,
                "leader": partition.leader.unwrap_or(-1),
                "replicas": ids(&partition.replicas),
                "isrs": ids(&partition.isr),
            })
        });
        json!({ "topic": topic.name, "partitions": partitions.collect::<Vec<_>>() })
    });
    json!({
        "controllerid": cluster.controller.unwrap_or(-1),
        "brokers": brokers.collect::<Vec<_>>(),
        "topics": topics.collect::<Vec<_>>(),
    })
}
