//! Settings by Kafka's names. `curtail_kafka._config` turns keywords and values into these.

use std::{sync::Arc, time::Duration};

use curtail::{
    AdminConfig, ConfigError, ConsumerConfig, ProducerConfig, config::ConfigProviders,
    security::SecurityConfig,
};
use curtail_lab::doctor::settings::Clients;
use pyo3::prelude::*;

use crate::{
    error,
    token::{self, Function, Tokens},
};

/// Settings as names and values.
pub(crate) type Properties = Vec<(String, String)>;

const IO_THREAD: &str = "curtail.io.thread";

fn check(py: Python<'_>, properties: &Properties) -> PyResult<()> {
    if properties.iter().any(|(name, _)| name.trim() == IO_THREAD) {
        let text =
            "curtail.io.thread is not supported in Python: clients always run on separate threads";
        return Err(error::config(py, text));
    }
    Ok(())
}

type Token = Option<Function>;
type Made<C> = PyResult<(C, Option<Arc<Tokens>>)>;

/// What the bindings need of the settings of each kind of client.
pub(crate) trait Settings: Default {
    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError>;
    fn validate(&self) -> Result<(), ConfigError>;
    fn is_given(&self, name: &str) -> bool;
    fn connection_setup_timeout(&self) -> Duration;
    fn get_security(&self) -> &SecurityConfig;
    fn security(self, security: SecurityConfig) -> Self;
}

macro_rules! settings {
    ($($config:ty),*) => {$(
        impl Settings for $config {
            fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                <$config>::set(self, name, value)
            }

            fn validate(&self) -> Result<(), ConfigError> {
                <$config>::validate(self)
            }

            fn is_given(&self, name: &str) -> bool {
                <$config>::is_given(self, name)
            }

            fn connection_setup_timeout(&self) -> Duration {
                self.get_connection_setup_timeout()
            }

            fn get_security(&self) -> &SecurityConfig {
                <$config>::get_security(self)
            }

            fn security(self, security: SecurityConfig) -> Self {
                <$config>::security(self, security)
            }
        }
    )*};
}

settings!(ProducerConfig, ConsumerConfig, AdminConfig);

/// Sets the properties, then the program's function for tokens, and checks the whole.
fn made<C: Settings>(py: Python<'_>, mut properties: Properties, token: Token) -> Made<C> {
    check(py, &properties)?;
    let raise = |error: ConfigError| error::raise(py, &error.into());
    // The variables of other values may need them.
    properties.sort_by_key(|(name, _)| !ConfigProviders::configures(name));
    let mut config = C::default();
    for (name, value) in &properties {
        config.set(name, value).map_err(raise)?;
    }
    let tokens = token.map(|token| Tokens::new(py, token, &config)).transpose()?.map(Arc::new);
    if let Some(tokens) = &tokens {
        config = token::configure(py, config, tokens)?;
    }
    config.validate().map_err(raise)?;
    Ok((config, tokens))
}

pub(crate) fn producer(
    py: Python<'_>,
    properties: Properties,
    token: Token,
) -> Made<ProducerConfig> {
    made(py, properties, token)
}

pub(crate) fn consumer(
    py: Python<'_>,
    properties: Properties,
    token: Token,
) -> Made<ConsumerConfig> {
    made(py, properties, token)
}

pub(crate) fn admin(py: Python<'_>, properties: Properties, token: Token) -> Made<AdminConfig> {
    made(py, properties, token)
}

/// Settings of a producer, a consumer and an admin client.
pub(crate) fn all(py: Python<'_>, properties: Properties, token: Token) -> Made<Clients> {
    check(py, &properties)?;
    let raise = |error: ConfigError| error::raise(py, &error.into());
    let mut clients = Clients::unvalidated(properties).map_err(raise)?;
    let tokens = token.map(|token| Tokens::new(py, token, &clients.producer)).transpose()?;
    let tokens = tokens.map(Arc::new);
    if let Some(tokens) = &tokens {
        clients.producer = token::configure(py, clients.producer, tokens)?;
        clients.consumer = token::configure(py, clients.consumer, tokens)?;
    }
    Ok((clients.validated().map_err(raise)?, tokens))
}

fn names(properties: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    properties.into_iter().filter(|(name, _)| *name != IO_THREAD).collect()
}

/// Settings of producers, with their defaults.
#[pyfunction]
pub(crate) fn producer_properties() -> Vec<(&'static str, String)> {
    names(ProducerConfig::default().properties())
}

/// Settings of consumers, with their defaults.
#[pyfunction]
pub(crate) fn consumer_properties() -> Vec<(&'static str, String)> {
    names(ConsumerConfig::default().properties())
}

/// Settings of admin clients, with their defaults.
#[pyfunction]
pub(crate) fn admin_properties() -> Vec<(&'static str, String)> {
    names(AdminConfig::default().properties())
}
