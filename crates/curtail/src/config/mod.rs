//! Settings of the clients, as typed fields or as properties.
//!
//! Names, meanings and defaults follow the Java client. TLS and SASL have their settings in [`crate::security`].

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
pub use common::{CommonConfig, DnsLookup, Given};
pub use consumer::{BufferedPartitions, ConsumerConfig, GroupProtocol, OffsetReset};
pub use file::{load_properties, parse_properties};
pub(crate) use forms::host_and_port;
#[cfg(feature = "oidc")]
pub(crate) use oidc::{
    ASSERTION_FILE, ASSERTION_KEY_FILE, ASSERTION_TEMPLATE_FILE, Grant, Origin, ProviderLogin,
    TokenEndpoint,
};
pub use producer::{Acks, LeaderDiscovery, PartitionerLoad, ProducerConfig};
pub use properties::IGNORED_PROPERTIES;
pub use providers::ConfigProviders;
pub(crate) use redact::HIDDEN;
pub(crate) use security::Login;
use security::{
    CipherSuite, HostCheck, Mechanism, Secret, SecurityConfig, SecurityProtocol, SslConfig, Store,
    StoreType, TlsVersion,
};

pub use curtail_proto::{assignor::Assignor, metadata::recovery::RecoveryStrategy};
pub use curtail_wire::{
    compression::{Codec, Compression},
    fetch::IsolationLevel,
};

use crate::error::ConfigError;

fn contradiction(text: String) -> Result<(), ConfigError> {
    Err(ConfigError::Contradiction(text))
}
