//! `curtail topics`.

use clap::{Args, Subcommand};
use curtail::{Admin, AdminConfig, NewTopic, TopicDescription};
use tokio::runtime::Builder;

use crate::{
    failure::Failure,
    output,
    settings::{ClientArguments, Property, property},
};

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Creates a topic.
    Create(Create),
    /// Prints the names of all topics.
    List(List),
    /// Prints partitions, leaders and replicas.
    Describe(Describe),
    /// Deletes topics and all their records.
    Delete(Delete),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
    /// Partitions; the brokers' default without this.
    #[arg(long, value_name = "N")]
    partitions: Option<i32>,
    /// Replicas of each partition; the brokers' default without this.
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A setting of the topic, for example min.insync.replicas=2. May be given several times.
    #[arg(long = "topic-config", value_name = "NAME=VALUE", value_parser = property)]
    settings: Vec<Property>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    topics: Names,
}

/// Topics, as bare arguments or as Kafka's own tools have them.
#[derive(Debug, Args)]
struct Names {
    /// Names of topics.
    #[arg(value_name = "TOPIC")]
    bare: Vec<String>,
    /// Name of a topic. May be given several times.
    #[arg(short, long = "topic", value_name = "TOPIC")]
    flagged: Vec<String>,
}

impl Names {
    fn all(self) -> Vec<String> {
        self.bare.into_iter().chain(self.flagged).collect()
    }

    fn at_least_one(self) -> Result<Vec<String>, Failure> {
        let names = self.all();
        if names.is_empty() {
            return Err(Failure::new("which topic? Name it, for example with --topic payments"));
        }
        Ok(names)
    }
}

fn admin(client: &ClientArguments) -> Result<Admin, Failure> {
    Ok(Admin::new(AdminConfig::from_properties(client.all()?)?)?)
}

/// Does it.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    runtime.block_on(async {
        match command {
            Command::Create(arguments) => create(arguments).await,
            Command::List(arguments) => list(arguments).await,
            Command::Describe(arguments) => describe(arguments).await,
            Command::Delete(arguments) => delete(arguments).await,
        }
    })
}

async fn create(arguments: Create) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let topic = |name: &String| {
        let mut topic = NewTopic::new(name);
        if let Some(partitions) = arguments.partitions {
            topic = topic.partitions(partitions);
        }
        if let Some(replicas) = arguments.replication_factor {
            topic = topic.replication_factor(replicas);
        }
        for Property { name, value } in &arguments.settings {
            topic = topic.config(name, value);
        }
        topic
    };
    let topics: Vec<_> = names.iter().map(topic).collect();
    for (name, created) in admin.create_topics(&topics).await? {
        created?;
        output::line(format_args!("Created topic {name}."))?;
    }
    Ok(())
}

async fn list(arguments: List) -> Result<(), Failure> {
    let topics = admin(&arguments.client)?.list_topics().await?;
    let mut names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
    names.sort_unstable();
    for name in names {
        output::line(name)?;
    }
    Ok(())
}

async fn describe(arguments: Describe) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let mut names = arguments.topics.all();
    if names.is_empty() {
        names = admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
        names.sort_unstable();
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return Ok(());
    }
    for (_, described) in admin.describe_topics(&names).await? {
        output::print(&lines(&described?))?;
    }
    Ok(())
}

/// A topic in the manner of kafka-topics.
fn lines(topic: &TopicDescription) -> String {
    let numbers = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let replicas = topic.partitions.first().map_or(0, |first| first.replicas.len());
    let count = topic.partitions.len();
    let name = &topic.name;
    let mut text =
        format!("Topic: {name}\tPartitionCount: {count}\tReplicationFactor: {replicas}\n");
    for partition in &topic.partitions {
        let leader = partition.leader.map_or_else(|| "none".to_owned(), |id| id.to_string());
        text += &format!(
            "\tTopic: {name}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}\n",
            partition.partition,
            numbers(&partition.replicas),
            numbers(&partition.isr)
        );
    }
    text
}

async fn delete(arguments: Delete) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let names = arguments.topics.at_least_one()?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for (name, deleted) in admin.delete_topics(&names).await? {
        deleted?;
        output::line(format_args!("Deleted topic {name}."))?;
    }
    Ok(())
}
