//! Properties from files and flags.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args;
use curtail::{ConfigError, ConsumerConfig, ProducerConfig, load_properties};

use crate::failure::Failure;

/// Default address of a command: the one `curtail cluster` listens on.
pub(crate) const DEFAULT_BOOTSTRAP: &str = "localhost:9092";

/// `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) value: String,
}

pub(crate) fn property(text: &str) -> Result<Property, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(Property { name: name.trim().to_owned(), value: value.to_owned() })
        }
        _ => Err("expected name=value".into()),
    }
}

/// The address and the properties of a client, with the spellings of kcat and of Kafka's tools.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// Bootstrap brokers: host:port, separated by commas [default: localhost:9092].
    #[arg(short, long, alias = "broker-list", value_name = "SERVERS")]
    pub(crate) bootstrap_server: Option<String>,
    /// A client property by its Java name. May be given several times.
    #[arg(short = 'X', long = "property", alias = "command-property", value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) properties: Vec<Property>,
    /// A file of client properties.
    #[arg(short = 'F', long = "config", alias = "command-config", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl ClientArguments {
    /// All properties, later ones win: the file, the flags, the address.
    pub(crate) fn all(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut all = properties(self.config.as_deref(), &self.properties)?;
        if let Some(servers) = &self.bootstrap_server {
            all.push((BOOTSTRAP.into(), servers.clone()));
        }
        if !all.iter().any(|(name, _)| name == BOOTSTRAP) {
            all.push((BOOTSTRAP.into(), DEFAULT_BOOTSTRAP.into()));
        }
        Ok(all)
    }
}

pub(crate) const BOOTSTRAP: &str = "bootstrap.servers";

/// The properties of a file, then those of flags; later ones win.
pub(crate) fn properties(
    file: Option<&std::path::Path>,
    flags: &[Property],
) -> Result<Vec<(String, String)>, Failure> {
    let mut all = match file {
        Some(path) => load_properties(path)?,
        None => Vec::new(),
    };
    all.extend(flags.iter().map(|p| (p.name.clone(), p.value.clone())));
    Ok(all)
}

/// Sets each property on the clients that know it, as tools with a producer and a consumer do.
pub(crate) fn set_both(
    producer: &mut ProducerConfig,
    consumer: &mut ConsumerConfig,
    properties: &[(String, String)],
) -> Result<(), Failure> {
    for (name, value) in properties {
        let produced = producer.set(name, value);
        let consumed = consumer.set(name, value);
        match (produced, consumed) {
            (Ok(()), Ok(())) => {}
            // A setting of the other client is accepted, but not a wrong value of it.
            (Ok(()), Err(error)) | (Err(error), Ok(())) if is_foreign(&error) => {}
            (Err(error), Err(other)) if is_foreign(&error) => return Err(other.into()),
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_foreign(error: &ConfigError) -> bool {
    matches!(error, ConfigError::NotSupported { why, .. } if why.starts_with("it is a setting of"))
}
