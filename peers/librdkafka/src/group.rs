//! Reads a topic as a member of a group until it is terminated, and prints a line for everything that happens.

use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::message::Message as _;

use crate::Failure;
use crate::args::Args;
use crate::membership::{await_termination, say, terminated};
use crate::properties::{self, Role};

const POLL: Duration = Duration::from_millis(200);

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut config = properties::consumer(&args.bootstrap);
    config
        .set("group.id", &args.group)
        .set("enable.auto.commit", "true")
        .set("auto.offset.reset", "earliest")
        .set("partition.assignment.strategy", &args.assignor);
    properties::apply(&mut config, &args.properties, Role::Consumer, false)?;
    await_termination()?;
    let consumer: BaseConsumer<Witness> = config.create_with_context(Witness)?;
    consumer.subscribe(&[&args.topic])?;
    while !terminated() {
        // Errors of unreachable brokers are retried.
        let Some(Ok(message)) = consumer.poll(POLL) else { continue };
        let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
        say(&format!("record {} {} {value}", message.partition(), message.offset()));
    }
    // The drop commits the records returned and leaves the group.
    drop(consumer);
    Ok(())
}

struct Witness;

impl ClientContext for Witness {}

impl ConsumerContext for Witness {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let (what, partitions) = match rebalance {
            Rebalance::Assign(partitions) => ("assigned", partitions),
            Rebalance::Revoke(partitions) => ("revoked", partitions),
            Rebalance::Error(error) => return say(&format!("error {error}")),
        };
        let mut indexes: Vec<i32> = partitions.elements().iter().map(|p| p.partition()).collect();
        indexes.sort_unstable();
        let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        say(format!("{what} {}", indexes.join(" ")).trim_end());
    }
}
