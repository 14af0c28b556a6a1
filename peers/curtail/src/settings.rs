//! Clients with the properties of the command line.

use curtail::{ConfigError, Consumer, ConsumerConfig, Producer, ProducerConfig, TopicPartition};

use crate::Failure;
use crate::args::{Args, Tool};

pub const CLIENT: &str = "curtail";

/// How the program learns the outcomes of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcomes {
    /// It awaits one delivery for each record.
    Deliveries,
    /// It receives the records of a batch at once, by their tags.
    Completions,
}

impl Outcomes {
    /// `--completions`, which the other drivers lack, is taken out of the arguments.
    pub fn take_from(args: &mut Vec<String>) -> Self {
        let before = args.len();
        args.retain(|arg| arg != "--completions");
        if args.len() < before { Self::Completions } else { Self::Deliveries }
    }

    pub fn client(self) -> &'static str {
        match self {
            Self::Deliveries => CLIENT,
            Self::Completions => "curtail-completions",
        }
    }
}

pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

pub fn producer(args: &Args, defaults: &[(&str, &str)]) -> Result<Producer, Failure> {
    let mut config = ProducerConfig::new(&args.bootstrap);
    let foreign = |name: &str, value: &str| ConsumerConfig::new("").set(name, value);
    apply(args, defaults, |name, value| config.set(name, value), foreign)?;
    Ok(Producer::new(config)?)
}

pub fn consumer(args: &Args, defaults: &[(&str, &str)]) -> Result<Consumer, Failure> {
    let mut config = ConsumerConfig::new(&args.bootstrap);
    let foreign = |name: &str, value: &str| ProducerConfig::new("").set(name, value);
    apply(args, defaults, |name, value| config.set(name, value), foreign)?;
    Ok(Consumer::new(config)?)
}

/// Sets the defaults, then the command line's properties. Properties of the other role are ignored if the tool uses both
/// roles.
fn apply(
    args: &Args,
    defaults: &[(&str, &str)],
    mut own: impl FnMut(&str, &str) -> Result<(), ConfigError>,
    foreign: impl Fn(&str, &str) -> Result<(), ConfigError>,
) -> Result<(), Failure> {
    for (name, value) in defaults {
        own(name, value)?;
    }
    let has_both = matches!(args.tool, Tool::EndToEnd | Tool::Load);
    for (name, value) in &args.properties {
        match own(name, value) {
            Err(ConfigError::NotSupported { .. }) if has_both && foreign(name, value).is_ok() => {}
            result => result?,
        }
    }
    Ok(())
}

/// The topic's partitions.
pub async fn partitions(consumer: &Consumer, topic: &str) -> Result<Vec<TopicPartition>, Failure> {
    let found = consumer.partitions_for(topic).await?;
    if found.is_empty() {
        return Err(format!("topic {topic} has no partitions; create it first").into());
    }
    Ok(found.iter().map(|info| TopicPartition::new(topic, info.partition)).collect())
}

/// A consumer at the current end of every partition.
pub async fn consumer_at_end(args: &Args, defaults: &[(&str, &str)]) -> Result<Consumer, Failure> {
    let mut consumer = consumer(args, defaults)?;
    let partitions = partitions(&consumer, &args.topic).await?;
    consumer.assign(partitions.clone());
    consumer.seek_to_end(&partitions)?;
    for partition in &partitions {
        consumer.position(partition).await?;
    }
    Ok(consumer)
}
