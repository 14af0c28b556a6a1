//! An Apache Kafka client built for the latency tail.
//!
//! [`Producer`] sends records in batches, idempotently and in order. [`Consumer`] reads partitions, assigned by the
//! application or shared in a group, and fetches ahead within a byte budget. [`Admin`] manages topics, settings,
//! groups and offsets. Settings have Kafka's names, units and defaults, as setters or as properties.
//!
//! All clients run on the caller's tokio runtime, current-thread or multi-thread; [`blocking`] is for plain threads.
//! A slow broker delays only its own partitions: each broker has its own connections, and control traffic never
//! queues behind data.
//!
//! # Quick start
//!
//! ```no_run
//! use std::time::Duration;
//! use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record, TopicPartition};
//!
//! # async fn quick_start() -> curtail::Result<()> {
//! let producer = Producer::new(ProducerConfig::new("localhost:9092"))?;
//! let delivery = producer.send(Record::to("payments").key("account-7").value("42.00")).await?;
//! let written = delivery.await?;
//! println!("partition {} offset {:?}", written.partition, written.offset);
//! producer.close().await?;
//!
//! let mut consumer = Consumer::new(ConsumerConfig::new("localhost:9092"))?;
//! let partition = TopicPartition::new("payments", written.partition);
//! consumer.assign([partition.clone()]);
//! consumer.seek_to_beginning([&partition])?;
//! for record in consumer.poll(Duration::from_secs(1)).await? {
//!     println!("{} {:?}", record.offset(), record.value());
//! }
//! consumer.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Properties
//!
//! ```
//! # use curtail::ProducerConfig;
//! let config = ProducerConfig::from_properties([
//!     ("bootstrap.servers", "localhost:9092"),
//!     ("linger.ms", "0"),
//!     ("compression.type", "lz4"),
//! ])?;
//! let error = ProducerConfig::from_properties([("linger.mss", "5")]).unwrap_err();
//! assert_eq!(error.to_string(), "unknown property 'linger.mss'; did you mean 'linger.ms'?");
//! # Ok::<(), curtail::ConfigError>(())
//! ```

// `Instant + Duration` panics for durations that a caller may pass; see `curtail_proto::later`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![warn(missing_debug_implementations)]

/// The code in these documents compiles in the test run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct Package;
    #[doc = include_str!("../../../docs/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/producer.md")]
    struct Producer;
    #[doc = include_str!("../../../docs/consumer.md")]
    struct Consumer;
    #[doc = include_str!("../../../docs/exactly-once.md")]
    struct ExactlyOnce;
    #[doc = include_str!("../../../docs/admin.md")]
    struct AdminCalls;
    #[doc = include_str!("../../../docs/security.md")]
    struct Security;
    #[doc = include_str!("../../../docs/embedded-cluster.md")]
    struct EmbeddedCluster;
    #[doc = include_str!("../../../docs/tuning.md")]
    struct Tuning;
    #[doc = include_str!("../../../docs/metrics.md")]
    struct Metrics;
    #[doc = include_str!("../../../docs/errors.md")]
    struct Errors;
}

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod config;
mod conn;
pub mod consumer;
mod contained;
mod coordinator;
#[cfg(test)]
mod documents;
pub mod env;
pub mod error;
mod exactly_once;
mod metadata;
pub mod metrics;
pub mod producer;
mod record;
mod runtime;
pub mod security;
mod span;
mod telemetry;
#[cfg(feature = "tracing")]
pub mod trace;
pub mod transaction;

#[cfg(feature = "admin")]
pub use admin::Admin;
pub use config::{AdminConfig, ConsumerConfig, ProducerConfig};
pub use consumer::Consumer;
pub use curtail_wire::{ErrorCode, Uuid};
pub use env::Env;
pub use error::{ConfigError, Error, FileProblem, Result};
pub use producer::{Delivery, Producer};
pub use record::{ConsumerRecord, Header, Record, RecordMetadata, TopicPartition};
pub use transaction::TransactionalProducer;

#[cfg(feature = "plants")]
#[doc(hidden)]
pub use curtail_proto::plant;

/// Target of the [`tracing`] events at level `TRACE` that report the requests, responses and leader changes of a
/// record.
///
/// One event per request, response, connection, metadata response and leader change; none per record. The fields are
/// for `curtail lab run --why` and may change with any release.
pub const TRACE_TARGET: &str = "curtail::timeline";

/// Parsers of untrusted bytes, for the fuzz targets. Not part of the interface.
#[doc(hidden)]
#[cfg(feature = "oidc")]
pub mod fuzzing {
    /// Parses a token endpoint's response that arrived at `now_ms`.
    ///
    /// # Panics
    /// If an expired token is accepted, or an error shows the secret or more than one short line.
    pub fn token_response(status: u16, body: &[u8], secret: &str, now_ms: i64) {
        crate::security::oidc::check_response(status, body, secret, now_ms);
    }
}
