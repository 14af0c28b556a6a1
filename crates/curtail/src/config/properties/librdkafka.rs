//! Names of librdkafka's settings that Kafka's clients do not have, with Kafka's names for the same.

const BUFFER: &str = "it is librdkafka's name; use buffer.memory, in bytes";
const KEYSTORE: &str = "it is librdkafka's name; use ssl.keystore.location with ssl.keystore.type=PEM, one file with certificate and key";
const PASSWORD: &str = "it is librdkafka's name; use sasl.jaas.config, or SecurityConfig";
const PREFETCH: &str = "it is librdkafka's name; use curtail.prefetch.bytes, in bytes";
const QUEUES: &str = "it is librdkafka's; Consumer::into_queues counts records as processed at the next call, \
     and commit_offsets commits any offset";

static NAMES: &[(&str, &str)] = &[
    ("auto.commit.enable", "it is librdkafka's name; use enable.auto.commit"),
    ("batch.num.messages", "it is librdkafka's name; use batch.size, in bytes"),
    ("compression.codec", "it is librdkafka's name; use compression.type"),
    ("debug", "it is librdkafka's; the program's tracing subscriber selects events"),
    ("enable.auto.offset.store", QUEUES),
    ("enable.partition.eof", "it is librdkafka's; Consumer::current_lag is 0 at the end"),
    ("fetch.message.max.bytes", "it is librdkafka's name; use max.partition.fetch.bytes"),
    ("fetch.wait.max.ms", "it is librdkafka's name; use fetch.max.wait.ms"),
    ("max.in.flight", "it is librdkafka's name; use max.in.flight.requests.per.connection"),
    ("message.max.bytes", "it is librdkafka's name; use max.request.size"),
    ("message.send.max.retries", "it is librdkafka's name; use retries"),
    ("message.timeout.ms", "it is librdkafka's name; use delivery.timeout.ms"),
    ("metadata.broker.list", "it is librdkafka's name; use bootstrap.servers"),
    ("partitioner", "it is librdkafka's name; use partitioner.class"),
    ("queue.buffering.max.kbytes", BUFFER),
    ("queue.buffering.max.messages", BUFFER),
    ("queue.buffering.max.ms", "it is librdkafka's name; use linger.ms"),
    ("queued.max.messages.kbytes", PREFETCH),
    ("queued.min.messages", PREFETCH),
    ("request.required.acks", "it is librdkafka's name; use acks"),
    ("sasl.mechanisms", "it is librdkafka's name; use sasl.mechanism"),
    ("sasl.password", PASSWORD),
    ("sasl.username", PASSWORD),
    (
        "ssl.ca.location",
        "it is librdkafka's name; use ssl.truststore.location with ssl.truststore.type=PEM",
    ),
    ("ssl.certificate.location", KEYSTORE),
    ("ssl.key.location", KEYSTORE),
    ("statistics.interval.ms", "it is librdkafka's; metrics() returns the metrics at any time"),
    ("topic.metadata.refresh.interval.ms", "it is librdkafka's name; use metadata.max.age.ms"),
];

/// Returns Kafka's name for a name of librdkafka, in words.
pub(super) fn find(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdminConfig, ConsumerConfig, ProducerConfig};

    #[test]
    fn each_name_is_refused_with_the_name_of_kafka() {
        for (name, ours) in NAMES {
            let refused = [
                ProducerConfig::default().set(name, "1"),
                ConsumerConfig::default().set(name, "1"),
                AdminConfig::default().set(name, "1"),
            ];
            for refused in refused {
                let text = refused.unwrap_err().to_string();
                assert_eq!(text, format!("{name} is not supported: {ours}"));
            }
        }
    }

    #[test]
    fn each_replacement_that_is_a_setting_exists() {
        let known: Vec<&str> = ProducerConfig::default()
            .properties()
            .into_iter()
            .chain(ConsumerConfig::default().properties())
            .map(|(name, _)| name)
            .collect();
        for (name, ours) in NAMES {
            let Some((_, use_this)) = ours.split_once("name; use ") else { continue };
            let setting = use_this.split([' ', ',', '=']).next().unwrap_or_default();
            assert!(known.contains(&setting), "{name}: {setting}");
        }
    }
}
