//! Settings by Kafka's names. `curtail_kafka._config` turns keywords and values into these.

use curtail::{AdminConfig, ConsumerConfig, ProducerConfig};
use curtail_lab::doctor::settings::Clients;
use pyo3::prelude::*;

use crate::error;

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

pub(crate) fn producer(py: Python<'_>, properties: Properties) -> PyResult<ProducerConfig> {
    check(py, &properties)?;
    ProducerConfig::from_properties(properties).map_err(|error| error::raise(py, &error.into()))
}

pub(crate) fn consumer(py: Python<'_>, properties: Properties) -> PyResult<ConsumerConfig> {
    check(py, &properties)?;
    ConsumerConfig::from_properties(properties).map_err(|error| error::raise(py, &error.into()))
}

pub(crate) fn admin(py: Python<'_>, properties: Properties) -> PyResult<AdminConfig> {
    check(py, &properties)?;
    AdminConfig::from_properties(properties).map_err(|error| error::raise(py, &error.into()))
}

/// Settings of a producer, a consumer and an admin client.
pub(crate) fn all(py: Python<'_>, properties: Properties) -> PyResult<Clients> {
    check(py, &properties)?;
    Clients::from_properties(properties).map_err(|error| error::raise(py, &error.into()))
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
