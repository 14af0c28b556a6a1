//! Clients with the properties of the command line.

use std::collections::{HashMap, HashSet};

use confluent_kafka::common::TopicPartition;
use confluent_kafka::common::serialization::{ByteArrayDeserializer, ByteArraySerializer};
use confluent_kafka::consumer::{Consumer as _, ConsumerConfig, KafkaConsumer};
use confluent_kafka::producer::{KafkaProducer, ProducerConfig};

use crate::Failure;
use crate::args::{Args, Tool};

pub const CLIENT: &str = "confluent-rust";

/// A constant: the crate does not report its version.
pub fn version() -> String {
    "1.0.0".into()
}

pub type Producer = KafkaProducer<Vec<u8>, Vec<u8>>;
pub type Consumer = KafkaConsumer<Vec<u8>, Vec<u8>>;

pub fn producer(args: &Args, defaults: &[(&str, &str)]) -> Result<Producer, Failure> {
    let own = ProducerConfig::config_names();
    let properties = properties(args, defaults, &own, &ConsumerConfig::config_names())?;
    let config = ProducerConfig::new(&properties)?;
    Ok(KafkaProducer::new(config, ByteArraySerializer::new(), ByteArraySerializer::new())?)
}

/// The crate supports only the consumer protocol, which is not the default.
pub fn consumer(args: &Args, defaults: &[(&str, &str)]) -> Result<Consumer, Failure> {
    let own = ConsumerConfig::config_names();
    let defaults = [&[("group.protocol", "consumer")][..], defaults].concat();
    let properties = properties(args, &defaults, &own, &ProducerConfig::config_names())?;
    let config = ConsumerConfig::new(&properties)?;
    Ok(KafkaConsumer::new(config, ByteArrayDeserializer::new(), ByteArrayDeserializer::new())?)
}

/// The defaults, overridden by the command line's properties of this role. Properties of the other role are
/// ignored if the tool uses both roles, and unknown ones if a case drives the client.
fn properties(
    args: &Args,
    defaults: &[(&str, &str)],
    own: &HashSet<String>,
    other: &HashSet<String>,
) -> Result<HashMap<String, String>, Failure> {
    let mut properties: HashMap<String, String> =
        defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    properties.insert("bootstrap.servers".into(), args.bootstrap.clone());
    let driven = args.tool == Tool::Drive;
    let has_both = matches!(args.tool, Tool::EndToEnd | Tool::Load);
    for (name, value) in &args.properties {
        if driven && name == "heartbeat.interval.ms" {
            // The consumer protocol leaves it to the brokers, and the client refuses it.
            continue;
        }
        if own.contains(name) {
            properties.insert(name.clone(), value.clone());
        } else if !driven && (!has_both || !other.contains(name)) {
            return Err(format!("unknown property {name}").into());
        }
    }
    Ok(properties)
}

/// A consumer at the current end of every partition.
pub async fn consumer_at_end(args: &Args, defaults: &[(&str, &str)]) -> Result<Consumer, Failure> {
    let mut consumer = consumer(args, defaults)?;
    let partitions = partitions(&mut consumer, &args.topic).await?;
    consumer.assign(partitions.clone()).await?;
    consumer.seek_to_end(&partitions).await?;
    for partition in &partitions {
        consumer.position(partition).await?;
    }
    Ok(consumer)
}

/// The topic's partitions.
pub async fn partitions(
    consumer: &mut Consumer,
    topic: &str,
) -> Result<Vec<TopicPartition>, Failure> {
    let found = consumer.partitions_for(topic).await?;
    if found.is_empty() {
        return Err(format!("topic {topic} has no partitions; create it first").into());
    }
    Ok(found.iter().map(|info| TopicPartition::new(topic, info.partition())).collect())
}
