//! Settings by Kafka's names. `curtail_kafka._config` turns keywords and values into these.

use std::sync::Arc;

use curtail::{
    AdminConfig, ConfigError, ConsumerConfig, ProducerConfig,
    config::{CommonConfig, ConfigProviders},
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

/// Sets the properties, then the program's function for tokens, and checks the whole.
fn made<C: Default>(
    py: Python<'_>,
    mut properties: Properties,
    token: Token,
    set: fn(&mut C, &str, &str) -> Result<(), ConfigError>,
    common: fn(&mut C) -> &mut CommonConfig,
    validate: fn(&C) -> Result<(), ConfigError>,
) -> Made<C> {
    check(py, &properties)?;
    let raise = |error: ConfigError| error::raise(py, &error.into());
    // The variables of other values may need them.
    properties.sort_by_key(|(name, _)| !ConfigProviders::configures(name));
    let mut config = C::default();
    for (name, value) in &properties {
        set(&mut config, name, value).map_err(raise)?;
    }
    let tokens = tokens(py, token, [common(&mut config)])?;
    validate(&config).map_err(raise)?;
    Ok((config, tokens))
}

fn tokens<const N: usize>(
    py: Python<'_>,
    token: Token,
    mut all: [&mut CommonConfig; N],
) -> PyResult<Option<Arc<Tokens>>> {
    let (Some(token), Some(first)) = (token, all.first()) else { return Ok(None) };
    let tokens = Arc::new(Tokens::new(py, token, first)?);
    for common in &mut all {
        token::configure(py, common, &tokens)?;
    }
    Ok(Some(tokens))
}

pub(crate) fn producer(
    py: Python<'_>,
    properties: Properties,
    token: Token,
) -> Made<ProducerConfig> {
    made(
        py,
        properties,
        token,
        ProducerConfig::set,
        |config| &mut config.common,
        ProducerConfig::validate,
    )
}

pub(crate) fn consumer(
    py: Python<'_>,
    properties: Properties,
    token: Token,
) -> Made<ConsumerConfig> {
    made(
        py,
        properties,
        token,
        ConsumerConfig::set,
        |config| &mut config.common,
        ConsumerConfig::validate,
    )
}

pub(crate) fn admin(py: Python<'_>, properties: Properties, token: Token) -> Made<AdminConfig> {
    made(
        py,
        properties,
        token,
        AdminConfig::set,
        |config| &mut config.common,
        AdminConfig::validate,
    )
}

/// Settings of a producer, a consumer and an admin client.
pub(crate) fn all(py: Python<'_>, properties: Properties, token: Token) -> Made<Clients> {
    check(py, &properties)?;
    let raise = |error: ConfigError| error::raise(py, &error.into());
    let mut clients = Clients::unvalidated(properties).map_err(raise)?;
    let Clients { producer, consumer, .. } = &mut clients;
    let both = [&mut producer.common, &mut consumer.common];
    let tokens = tokens(py, token, both)?;
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
