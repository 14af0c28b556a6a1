//! The brokers' values of topic settings, for topics without an override.

use std::collections::BTreeMap;

use super::properties;
use crate::topic_config::{self, DefaultSetting, ROLL_HOURS, ROLL_JITTER_HOURS};

/// Settings of brokers for topics without an override, such as `log.cleanup.policy` and `compression.type`. Those with a
/// field in [`ClusterConfig`](super::ClusterConfig) are not among them.
///
/// [`ClusterConfig::set`](super::ClusterConfig::set) changes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicDefaults {
    /// By the brokers' names.
    given: BTreeMap<&'static str, String>,
}

impl TopicDefaults {
    fn all() -> impl Iterator<Item = DefaultSetting> {
        topic_config::defaults_of_brokers().filter(|setting| !properties::is_field(setting.name))
    }

    /// Returns every name and its value.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        Self::all().map(|setting| (setting.name, self.value(&setting).to_owned()))
    }

    /// Returns the value of a broker setting.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        Self::all().find(|setting| setting.name == name).map(|setting| self.value(&setting))
    }

    fn value(&self, setting: &DefaultSetting) -> &str {
        self.given(setting.name).unwrap_or(setting.default)
    }

    /// Sets one value. An empty one restores the default where the default is empty. Returns `None` if there is no such
    /// setting.
    ///
    /// # Errors
    /// Why the value is refused.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let setting = Self::all().find(|setting| setting.name == name)?;
        let value = value.trim();
        if value == setting.default {
            self.given.remove(setting.name);
            return Some(Ok(()));
        }
        let checked = setting.check(value);
        if checked.is_ok() {
            self.given.insert(setting.name, value.to_owned());
        }
        Some(checked)
    }

    /// Returns whether every value is the default.
    pub(crate) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Returns the value of a broker setting if it is not the default.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// Returns `log.roll.hours` in milliseconds if it is not the default. It applies without `log.roll.ms`.
    pub(crate) fn roll_hours_ms(&self) -> Option<i64> {
        self.hours_ms(ROLL_HOURS)
    }

    /// Returns `log.roll.jitter.hours` in milliseconds if it is not the default. It applies without
    /// `log.roll.jitter.ms`.
    pub(crate) fn roll_jitter_hours_ms(&self) -> Option<i64> {
        self.hours_ms(ROLL_JITTER_HOURS)
    }

    fn hours_ms(&self, name: &str) -> Option<i64> {
        Some(self.given(name)?.parse::<i64>().ok()? * 3_600_000)
    }
}
