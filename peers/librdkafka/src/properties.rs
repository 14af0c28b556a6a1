//! Maps Kafka's property names to librdkafka's.

use rdkafka::ClientConfig;

use crate::Failure;

pub const CLIENT: &str = "librdkafka";

pub fn version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

/// Java names of each role's properties, with librdkafka's names.
const PRODUCER: &[(&str, &str)] = &[
    ("acks", "acks"),
    ("linger.ms", "linger.ms"),
    ("batch.size", "batch.size"),
    ("compression.type", "compression.type"),
    ("max.in.flight.requests.per.connection", "max.in.flight.requests.per.connection"),
    ("enable.idempotence", "enable.idempotence"),
    ("request.timeout.ms", "request.timeout.ms"),
    ("delivery.timeout.ms", "delivery.timeout.ms"),
    ("client.id", "client.id"),
];
const CONSUMER: &[(&str, &str)] = &[
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("fetch.min.bytes", "fetch.min.bytes"),
    ("fetch.max.bytes", "fetch.max.bytes"),
    ("max.partition.fetch.bytes", "max.partition.fetch.bytes"),
    ("group.protocol", "group.protocol"),
    ("session.timeout.ms", "session.timeout.ms"),
    ("heartbeat.interval.ms", "heartbeat.interval.ms"),
    ("max.poll.interval.ms", "max.poll.interval.ms"),
    ("auto.commit.interval.ms", "auto.commit.interval.ms"),
    ("client.id", "client.id"),
];

/// Default of `message.max.bytes`.
const MESSAGE_MAX_BYTES: u32 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

/// Puts the properties of `role` into `config`. A property of the other role is ignored if the tool uses both
/// roles (`both`); an unknown property is an error.
pub fn apply(
    config: &mut ClientConfig,
    properties: &[(String, String)],
    role: Role,
    both: bool,
) -> Result<(), Failure> {
    let (own, other) = match role {
        Role::Producer => (PRODUCER, CONSUMER),
        Role::Consumer => (CONSUMER, PRODUCER),
    };
    for (name, value) in properties {
        let find = |names: &'static [(&str, &str)]| names.iter().find(|(java, _)| java == name);
        match find(own) {
            Some((_, native)) => _ = config.set(*native, value),
            None if both && find(other).is_some() => {}
            None => {
                let known: Vec<&str> = own.iter().map(|(java, _)| *java).collect();
                let known = known.join(", ");
                let text = format!("property {name} is not mapped to librdkafka; known: {known}");
                return Err(text.into());
            }
        }
    }
    Ok(())
}

/// A producer's settings: librdkafka's defaults, but idempotent as the Java client is by default, unless the
/// properties exclude idempotence.
pub fn producer(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

/// Sets idempotence after all properties are known.
pub fn settle_idempotence(config: &mut ClientConfig) {
    let all = config.get("acks").is_none_or(|acks| acks == "all" || acks == "-1");
    if config.get("enable.idempotence").is_none() && all {
        config.set("enable.idempotence", "true");
    }
}

/// Lowers `message.max.bytes`, which only producers use, to `fetch.max.bytes`, which librdkafka does not accept below it.
pub fn settle_fetch_size(config: &mut ClientConfig) {
    let fetched = config.get("fetch.max.bytes").and_then(|bytes| bytes.parse::<u32>().ok());
    if let Some(bytes) = fetched.filter(|bytes| *bytes < MESSAGE_MAX_BYTES) {
        config.set("message.max.bytes", bytes.to_string());
    }
}

/// A consumer's settings: librdkafka's defaults. librdkafka's consumer requires a group, but nothing joins
/// it.
pub fn consumer(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "curtail-peer")
        .set("enable.auto.commit", "false");
    config
}
