//! Reads a topic as a member of a group until it is terminated, and prints a line for everything that happens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use confluent_kafka::common::{Error, TopicPartition};
use confluent_kafka::consumer::{Consumer as _, ConsumerRebalanceListener};

use crate::Failure;
use crate::args::Args;
use crate::membership::{say, terminated};
use crate::settings;

const POLL: Duration = Duration::from_millis(200);

pub async fn run(args: &Args) -> Result<(), Failure> {
    if args.assignor != "range" {
        let text = "this client has only the consumer protocol, whose assignors are the brokers' own, and of the three \
                    only range";
        return Err(text.into());
    }
    let mut consumer = settings::consumer(
        args,
        &[
            ("group.id", &args.group),
            ("group.remote.assignor", &args.assignor),
            ("auto.offset.reset", "earliest"),
        ],
    )?;
    consumer.subscribe_with_topics_listener(vec![args.topic.clone()], Arc::new(Witness)).await?;
    while !terminated() {
        for record in &consumer.poll(POLL).await? {
            let value = String::from_utf8_lossy(record.value().map_or(&[][..], Vec::as_slice));
            say(&format!("record {} {} {value}", record.partition(), record.offset()));
        }
    }
    // Commits the records returned and leaves the group.
    consumer.close().await?;
    Ok(())
}

struct Witness;

impl Witness {
    fn tell(what: &str, partitions: &[TopicPartition]) {
        let mut indexes: Vec<i32> = partitions.iter().map(TopicPartition::partition).collect();
        indexes.sort_unstable();
        let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        say(format!("{what} {}", indexes.join(" ")).trim_end());
    }
}

#[async_trait]
impl ConsumerRebalanceListener for Witness {
    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        Self::tell("revoked", partitions);
        Ok(())
    }

    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        Self::tell("assigned", partitions);
        Ok(())
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        Self::tell("lost", partitions);
        Ok(())
    }
}
