//! Settings of the clients.
//!
//! Names, meanings and defaults follow the Java client. A setting is made by its setter (`linger`), by name
//! ([`ProducerConfig::set`]) or in a file ([`ProducerConfig::from_file`]), and each of them means the same. Getters have
//! the prefix `get_`, because setters have the setting's name. TLS and SASL have their types in [`crate::security`].
//!
//! ```
//! use std::time::Duration;
//!
//! use curtail::ProducerConfig;
//!
//! let mut config = ProducerConfig::new("localhost:9092").linger(Duration::from_millis(20));
//! config.set("batch.size", "32768")?;
//! assert_eq!(config.get_batch_size(), 32_768);
//! assert_eq!(config.get("linger.ms").as_deref(), Some("20"));
//! assert!(config.is_given("linger.ms") && !config.is_given("acks"));
//! # Ok::<(), curtail::ConfigError>(())
//! ```

mod admin;
pub(crate) mod aws;
mod common;
mod consumer;
mod file;
mod forms;
mod jaas;
pub(crate) mod oidc;
mod producer;
mod properties;
mod providers;
mod redact;
pub(crate) mod security;
mod table;
#[cfg(test)]
mod tests;

pub use admin::AdminConfig;
#[cfg(feature = "aws-msk-iam")]
pub(crate) use aws::{AwsLogin, AwsSource, Role, SESSION_NAME};
pub use common::{CommonConfig, DnsLookup};
#[cfg(feature = "arms")]
pub use consumer::BufferedPartitions;
#[cfg(not(feature = "arms"))]
pub(crate) use consumer::BufferedPartitions;
pub use consumer::{ConsumerConfig, GroupProtocol, OffsetReset};
pub use file::{load_properties, parse_properties};
pub(crate) use forms::host_and_port;
#[cfg(feature = "oidc")]
pub(crate) use oidc::{
    ASSERTION_FILE, ASSERTION_KEY_FILE, ASSERTION_TEMPLATE_FILE, Grant, Origin, ProviderLogin,
    TokenEndpoint,
};
#[cfg(feature = "arms")]
pub use producer::LeaderDiscovery;
#[cfg(not(feature = "arms"))]
pub(crate) use producer::LeaderDiscovery;
pub use producer::{Acks, PartitionerLoad, ProducerConfig};
pub use properties::IGNORED_PROPERTIES;
pub use providers::ConfigProviders;
pub(crate) use redact::HIDDEN;
pub(crate) use security::Login;
use security::{
    CipherSuite, HostCheck, Mechanism, Secret, SecurityConfig, SecurityProtocol, SslConfig,
    StoreType, TlsVersion,
};

pub use curtail_proto::{assignor::Assignor, metadata::recovery::RecoveryStrategy};
pub use curtail_wire::{
    compression::{Codec, Compression},
    fetch::IsolationLevel,
};

use std::time::Duration;

use crate::error::ConfigError;

/// Largest duration of a setting that is an `int` in Java.
const INT_MAX_MILLIS: Duration = Duration::from_millis(i32::MAX as u64);

fn contradiction(text: String) -> Result<(), ConfigError> {
    Err(ConfigError::Contradiction(text))
}
